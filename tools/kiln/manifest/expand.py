"""Kernels -> variants -> images, in order of declaration, with no two names that could be taken for each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kiln.errors import ManifestError, Position
from kiln.manifest.model import Image, Kernel, Value, Variant
from kiln.manifest.names import check_name, fold
from kiln.manifest.pattern import fill, placeholders
from kiln.manifest.schema import BLOCK_CONSTANT, OPTIONS
from kiln.manifest.signature import Signature, parse_signature
from kiln.manifest.value_types import Either


def expand_variants(kernels: Iterable[Kernel]) -> tuple[Variant, ...]:
    """All variants: kernels in order, the dtypes of each, the blocks of each dtype.

    Raises ManifestError for names that cannot stand in symbols or are equal but for case, for signatures, and for
    options out of range.
    """
    variants = tuple(variant for kernel in kernels for variant in _expand_kernel(kernel))
    _check_variant_names(variants)
    _check_groups(variants)
    return variants


def expand_images(variants: Iterable[Variant], targets: Sequence[str]) -> tuple[Image, ...]:
    """All images: each variant's targets in order."""
    return tuple(Image(variant=variant, target=target) for variant in variants for target in targets)


def _expand_kernel(kernel: Kernel) -> Iterator[Variant]:
    for dtype in kernel.dtypes:
        signature = parse_signature(fill(kernel.signature, {"dtype": dtype}), _position(kernel, "signature"))
        for block in kernel.blocks:
            yield _make_variant(kernel, dtype, block, signature)


def _make_variant(kernel: Kernel, dtype: str, block: int, signature: Signature) -> Variant:
    words = {"dtype": dtype, "block": str(block)}
    name, group = fill(kernel.name, words), fill(kernel.group, words)
    check_name(name, _position(kernel, "name"), "a variant's name")
    check_name(group, _position(kernel, "group"), "a group's name")
    constants: dict[str, Value] = {BLOCK_CONSTANT: block}
    options: dict[str, Value] = {}
    for option, value in kernel.options.items():
        kind = OPTIONS[option].type
        assert isinstance(kind, Either)
        options[option] = kind.resolve(
            value, {"block": block, BLOCK_CONSTANT: block}, f"kernels.{kernel.key}.options.{option}"
        )
    return Variant(
        id=name,
        kernel=kernel,
        dtype=dtype,
        block=words["block"],
        group=group,
        signature=signature,
        constants=constants,
        options=options,
    )


def _position(kernel: Kernel, key: str) -> Position:
    return kernel.positions.get(key, kernel.position)


def _check_variant_names(variants: Iterable[Variant]) -> None:
    seen: dict[str, Variant] = {}
    for variant in variants:
        first = seen.setdefault(fold(variant.id), variant)
        if first is variant:
            continue
        if first.kernel is variant.kernel:
            makers, remedy = f"kernel '{variant.kernel.key}' twice", _missing_placeholder(first, variant)
        else:
            makers = f"kernels '{first.kernel.key}' and '{variant.kernel.key}'"
            remedy = f"start `name` of '{variant.kernel.key}' with another word, such as {variant.kernel.key}_"
        alike = "" if first.id == variant.id else f", which equals '{first.id}' but for upper and lower case"
        raise ManifestError(
            f"'{variant.id}' is the name of two variants, of {makers}{alike}",
            where=_position(variant.kernel, "name"),
            expected="names that differ in more than upper and lower case",
            actual=f"dtype {first.dtype}, block {first.block}, and dtype {variant.dtype}, block {variant.block}",
            remedy=remedy,
        )


def _missing_placeholder(first: Variant, second: Variant) -> str:
    used = placeholders(first.kernel.name)
    missing = [
        f"{{{name}}}"
        for name, differs in (("dtype", first.dtype != second.dtype), ("block", first.block != second.block))
        if differs and name not in used
    ]
    if missing:
        return f"add {' and '.join(missing)} to `name`"
    return "put an underscore between the placeholders of `name`"


def _check_groups(variants: Sequence[Variant]) -> None:
    """A group becomes one function beside those of the variants, with one list of arguments."""
    names = {fold(variant.id): variant for variant in variants}
    seen: dict[str, Variant] = {}
    for variant in variants:
        where = _position(variant.kernel, "group")
        same = names.get(fold(variant.group))
        if same is not None:
            raise ManifestError(
                f"the group '{variant.group}' has the name of a variant, '{same.id}' of kernel '{same.kernel.key}'",
                where=where,
                expected="names of groups that no variant has, whatever the case",
                actual=f"group: {variant.kernel.group}, name: {same.kernel.name}",
                remedy="add {block} to `name`, or give the kernel another `group`",
            )
        first = seen.setdefault(fold(variant.group), variant)
        if first.group != variant.group:
            raise ManifestError(
                f"the groups '{first.group}' and '{variant.group}' differ in upper and lower case only",
                where=where,
                expected="names that differ in more than case",
                actual=f"of kernels '{first.kernel.key}' and '{variant.kernel.key}'",
                remedy="rename one of them",
            )
        if first.signature is not variant.signature and _types(first.signature) != _types(variant.signature):
            raise ManifestError(
                f"'{first.id}' and '{variant.id}' are in the group '{variant.group}' and take different arguments",
                where=where,
                expected=f"the types of '{first.id}': {first.signature.text}",
                actual=variant.signature.text,
                remedy="add {dtype} to `group`, or give one of the kernels another group",
            )


def _types(signature: Signature) -> list[str]:
    return [item.type for item in signature.items]

"""Kernels -> variants -> images, in order of declaration, with no two names that could be taken for each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kiln.errors import ManifestError, Position, did_you_mean
from kiln.manifest.budgets import LIMIT
from kiln.manifest.combinations import Combination, combine
from kiln.manifest.constants import DTypeConstant, Value, fill_dtypes
from kiln.manifest.expression import Expression
from kiln.manifest.model import SIGNATURE_TEXT, Budget, Image, Kernel, PromiseSet, Variant
from kiln.manifest.names import check_base, check_name, fold
from kiln.manifest.pattern import placeholders
from kiln.manifest.schema import KERNEL, OPTIONS
from kiln.manifest.signature import Signature, item_offsets, parse_signature
from kiln.manifest.value_types import Either
from kiln.manifest.wording import show


def expand_variants(kernels: Iterable[Kernel]) -> tuple[Variant, ...]:
    """All variants: kernels in order; of each the dtypes, of each dtype the axes' values, of each of these the blocks.

    Raises ManifestError for names that cannot stand in symbols or are equal but for case, for signatures, for constants
    and options that cannot be computed or are out of range, and for what `exclude` says.
    """
    variants = tuple(variant for kernel in kernels for variant in _expand_kernel(kernel))
    _check_variant_names(variants)
    _check_bases(variants)
    _check_groups(variants)
    return variants


def expand_images(variants: Iterable[Variant]) -> tuple[Image, ...]:
    """All images: each variant's targets in order."""
    return tuple(Image(variant=variant, target=target) for variant in variants for target in variant.targets)


def _expand_kernel(kernel: Kernel) -> Iterator[Variant]:
    _check_expressions(kernel)
    signatures: dict[str, Signature] = {}
    places = _item_places(kernel)
    for combination in combine(kernel):
        text = combination.signature
        if text not in signatures:
            position = combination.declared or _position(kernel, "signature")
            signatures[text] = parse_signature(text, position, places)
        for promises in kernel.promises:
            yield _make_variant(kernel, combination, signatures[text], promises)


def _make_variant(kernel: Kernel, combination: Combination, signature: Signature, promises: PromiseSet) -> Variant:
    block = combination.block
    base, group = combination.name, combination.group
    name = f"{base}_{promises.tag}" if promises.tag else base
    check_name(name, combination.declared or _position(kernel, "name"), "a variant's name")
    check_base(base, combination.declared or _position(kernel, "name"))
    check_name(group, combination.declared or _position(kernel, "group"), "a group's name")
    values = _integers({**combination.axes, **block.constants, **_literals(kernel)})
    if block.is_integer:
        values["block"] = int(block.tag)
    constants = dict(block.constants)
    for constant, declared in kernel.constants.items():
        constants[constant] = declared.evaluate(values) if isinstance(declared, Expression) else declared
    computed = values | _integers(constants)
    return Variant(
        id=name,
        base=base,
        promises=promises,
        kernel=kernel,
        dtype=combination.dtype,
        block=block.tag,
        axes=_filled(kernel, combination, combination.axes),
        group=group,
        signature=signature,
        constants=_filled(kernel, combination, constants),
        options=_options(kernel, combination, computed),
        targets=kernel.targets if block.targets is None else block.targets,
        threads=_threads(kernel, computed),
        shared=_shared(kernel, computed, name),
        budgets=_budgets(kernel, computed),
    )


def _options(kernel: Kernel, combination: Combination, values: Mapping[str, int]) -> dict[str, int]:
    """The block's own over the kernel's, in the order of the table of options."""
    merged = {**kernel.options, **combination.block.options}
    options: dict[str, int] = {}
    for option, known in OPTIONS.items():
        if option in merged:
            assert isinstance(known.type, Either)
            what = f"kernels.{kernel.key}.options.{option}"
            options[option] = known.type.resolve(merged[option], values, what)
    return options


def _threads(kernel: Kernel, values: Mapping[str, int]) -> int | None:
    if kernel.cuda is None:
        return None
    known = KERNEL["threads"].type
    assert isinstance(known, Either)
    return int(known.resolve(kernel.cuda.threads, values, f"kernels.{kernel.key}.threads"))


def _shared(kernel: Kernel, values: Mapping[str, int], variant: str) -> int | None:
    if kernel.cuda is None or kernel.cuda.shared is None:
        return None
    shared = int(kernel.cuda.shared.evaluate(values))
    if shared < 0:
        raise ManifestError(
            f"`kernels.{kernel.key}.shared` is negative for {variant}",
            where=kernel.cuda.shared.position,
            expected="bytes of dynamic shared memory",
            actual=str(shared),
        )
    return shared


def _budgets(kernel: Kernel, values: Mapping[str, int]) -> Mapping[str, Mapping[str, Budget]]:
    """The kernel's budgets for one variant; the same ones where nothing is computed."""
    if not any(_computed(kernel)):
        return kernel.budgets
    return {
        name: {
            target: dataclasses.replace(budget, limit=LIMIT.resolve(budget.limit, values, budget.name))
            for target, budget in by_target.items()
        }
        for name, by_target in kernel.budgets.items()
    }


def _computed(kernel: Kernel) -> Iterator[tuple[str, Expression]]:
    """The budgets that are expressions, with what messages call them."""
    for by_target in kernel.budgets.values():
        for budget in by_target.values():
            if isinstance(budget.limit, Expression):
                yield budget.name, budget.limit


def _filled(kernel: Kernel, combination: Combination, values: Mapping[str, Value]) -> dict[str, Value]:
    """Constants or axes, with the names of dtypes among them filled in."""
    filled = dict(values)
    for name, value in values.items():
        if isinstance(value, tuple | DTypeConstant):
            own = combination.block.positions.get(name, combination.block.position)
            places = (f"axes.{name}", f"constants.{name}")
            where = next((kernel.positions[place] for place in places if place in kernel.positions), own)
            filled[name] = fill_dtypes(value, combination.words, where, f"{name} of {combination.name}")
    return filled


def _literals(kernel: Kernel) -> dict[str, Value]:
    return {name: value for name, value in kernel.constants.items() if not isinstance(value, Expression)}


def _integers(values: Mapping[str, Value]) -> dict[str, int]:
    return {name: value for name, value in values.items() if isinstance(value, int)}


def _check_expressions(kernel: Kernel) -> None:
    """Every name in constants and options stands for an integer or a truth value, in every variant."""
    first = kernel.blocks[0]
    values: dict[str, list[Value]] = {
        **({"block": [1]} if first.is_integer else {}),
        **{name: [block.constants[name] for block in kernel.blocks] for name in first.constants},
        **{name: [value] for name, value in _literals(kernel).items()},
        **{name: list(words.values()) for name, words in kernel.axes.items()},
    }
    for name, value in kernel.constants.items():
        if isinstance(value, Expression):
            _check_names(value, values, f"kernels.{kernel.key}.constants.{name}", kernel)
    # An option may use what is computed, too.
    values |= {name: [0] for name, value in kernel.constants.items() if isinstance(value, Expression)}
    for options, what in (
        (kernel.options, f"kernels.{kernel.key}.options"),
        *((block.options, f"kernels.{kernel.key}.blocks[{index}]") for index, block in enumerate(kernel.blocks)),
        *_cuda_expressions(kernel),
    ):
        for name, option in options.items():
            if isinstance(option, Expression):
                _check_names(option, values, f"{what}.{name}", kernel)
    for name, limit in _computed(kernel):
        _check_names(limit, values, name, kernel)


def _cuda_expressions(kernel: Kernel) -> list[tuple[Mapping[str, Value | Expression], str]]:
    if kernel.cuda is None:
        return []
    launch: dict[str, Value | Expression] = {"threads": kernel.cuda.threads}
    if kernel.cuda.shared is not None:
        launch["shared"] = kernel.cuda.shared
    return [(launch, f"kernels.{kernel.key}"), (kernel.cuda.defines, f"kernels.{kernel.key}.defines")]


def _check_names(expression: Expression, values: Mapping[str, list[Value]], what: str, kernel: Kernel) -> None:
    known = [name for name, given in values.items() if all(isinstance(value, int) for value in given)]
    for name in sorted(expression.names - set(known)):
        why, remedy = (
            f"the unknown name {show(name)}",
            did_you_mean(name, known) or "declare it under `axes` or `constants`",
        )
        if name in values:
            why, remedy = f"{show(name)}, which is no integer", "use an integer in its place"
        elif name == "block":
            why, remedy = "'block', and the kernel has no `blocks`", "use a constant or an axis in its place"
            if kernel.has_blocks:
                why = "'block', and the blocks are maps"
                remedy = f"use their constants: {', '.join(kernel.blocks[0].constants) or 'there are none'}"
        elif name in kernel.constants:
            why, remedy = f"{show(name)}, which is computed itself", "write out what that one is computed with"
        raise ManifestError(
            f"`{what}` uses {why}",
            where=expression.position,
            expected=f"names among {', '.join(known)}" if known else "numbers only",
            actual=show(expression.text),
            remedy=remedy,
        )


def _item_places(kernel: Kernel) -> list[Position]:
    """Where each item of the kernel's signature begins in kernels.yaml; none where that cannot be told."""
    start = kernel.positions.get(SIGNATURE_TEXT)
    if start is None or kernel.rows:
        return []
    return [dataclasses.replace(start, column=start.column + offset) for offset in item_offsets(kernel.signature)]


def _position(kernel: Kernel, key: str) -> Position:
    return kernel.positions.get(key, kernel.position)


def _declared(variant: Variant, key: str) -> Position:
    """Where a variant's name or group comes from: a row of a function table, or the kernel's own pattern."""
    row = next((row for row in variant.kernel.rows if row.name == variant.block), None)
    return row.position if row is not None else _position(variant.kernel, key)


def _check_variant_names(variants: Iterable[Variant]) -> None:
    seen: dict[str, Variant] = {}
    for variant in variants:
        first = seen.setdefault(fold(variant.id), variant)
        if first is variant:
            continue
        if first.kernel is variant.kernel:
            makers, remedy = f"kernel '{variant.kernel.key}' twice", _missing_placeholder(first, variant)
        elif variant.kernel.rows:
            makers = f"kernels '{first.kernel.key}' and '{variant.kernel.key}'"
            remedy = "give the row another name, or rename the other kernel's variants"
        else:
            makers = f"kernels '{first.kernel.key}' and '{variant.kernel.key}'"
            remedy = f"start `name` of '{variant.kernel.key}' with another word, such as {variant.kernel.key}_"
        alike = "" if first.id == variant.id else f", which equals '{first.id}' but for upper and lower case"
        raise ManifestError(
            f"'{variant.id}' is the name of two variants, of {makers}{alike}",
            where=_declared(variant, "name"),
            expected="names that differ in more than upper and lower case",
            actual=f"{_described(first)}, and {_described(variant)}",
            remedy=remedy,
        )


def _check_bases(variants: Sequence[Variant]) -> None:
    """What variants that differ by promises share is named by their base: it is no name of anything else."""
    names = {fold(variant.id): variant for variant in variants}
    for variant in variants:
        if variant.base == variant.id:
            continue
        other = names.setdefault(fold(variant.base), variant)
        if other.kernel is not variant.kernel or other.base != variant.base:
            raise ManifestError(
                f"'{variant.base}', which '{variant.id}' is called without its promises, is the name of something else",
                where=_position(variant.kernel, "name"),
                expected="names without promises that no other kernel uses, whatever the case",
                actual=f"'{other.id}' of kernel '{other.kernel.key}'",
                remedy=f"start `name` of '{variant.kernel.key}' with another word, such as {variant.kernel.key}_",
            )


def _choices(variant: Variant) -> dict[str, Value]:
    block = {"block": variant.block} if variant.kernel.has_blocks else {}
    return {"dtype": variant.dtype, **variant.axes, **block}


def _described(variant: Variant) -> str:
    return ", ".join(f"{name} {value}" for name, value in _choices(variant).items())


def _missing_placeholder(first: Variant, second: Variant) -> str:
    if first.kernel.rows:
        return "give each row of the function table a name of its own"
    used, other = placeholders(first.kernel.name), _choices(second)
    missing = [f"{{{name}}}" for name, value in _choices(first).items() if value != other[name] and name not in used]
    if missing:
        return f"add {' and '.join(missing)} to `name`"
    return "put an underscore between the placeholders of `name`"


def _check_groups(variants: Sequence[Variant]) -> None:
    """A group becomes one function beside those of the variants, with one list of arguments."""
    names = {fold(name): variant for variant in variants for name in (variant.base, variant.id)}
    seen: dict[str, Variant] = {}
    for variant in variants:
        where = _declared(variant, "group")
        same = names.get(fold(variant.group))
        if same is not None:
            kernel = variant.kernel
            raise ManifestError(
                f"the group '{variant.group}' has the name of a variant, '{same.id}' of kernel '{same.kernel.key}'",
                where=where,
                expected="names of groups that no variant has, whatever the case",
                actual=f"group: {kernel.group or variant.group}, name: {same.kernel.name}",
                remedy="give the row another name, or another group"
                if kernel.rows
                else f"{'add {block} to `name`, or ' if kernel.has_blocks else ''}give the kernel another `group`",
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
                remedy="give one of the rows another group"
                if variant.kernel.rows
                else "add {dtype}, or the axis that they differ by, to `group`, or give a kernel another group",
            )


def _types(signature: Signature) -> list[tuple[str, tuple[int, ...]]]:
    return [(item.type, item.path) for item in signature.items]

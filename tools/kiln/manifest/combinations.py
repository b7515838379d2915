"""What a kernel is built in: its combinations of dtype, axes and block, less those that `exclude` drops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from kiln.errors import ManifestError, Position, did_you_mean
from kiln.manifest.constants import same, written
from kiln.manifest.from_source import main_dtype
from kiln.manifest.model import Block, Exclusion, Kernel, TableRow, Value
from kiln.manifest.pattern import fill
from kiln.manifest.wording import show


@dataclass(frozen=True, kw_only=True)
class Combination:
    """What tells a kernel's variants apart."""

    dtype: str
    axes: Mapping[str, Value]
    block: Block
    words: Mapping[str, str]
    """placeholder of a pattern -> what stands for it"""
    name: str
    group: str
    signature: str
    """every placeholder filled, as in the two above"""
    declared: Position | None = None
    """where, when that is a row of a function table and not the kernel's own patterns"""


def combine(kernel: Kernel) -> list[Combination]:
    """Every combination that is built, in order: dtypes outermost, then the axes as declared, blocks innermost.

    Raises ManifestError for an entry of `exclude` that names what the kernel does not have or matches nothing, and when
    nothing is left.
    """
    if kernel.rows:
        return [_row(row, block) for row, block in zip(kernel.rows, kernel.blocks, strict=True)]
    every = [
        _combination(kernel, dtype, chosen, block)
        for dtype in kernel.dtypes
        for chosen in product(*(values.items() for values in kernel.axes.values()))
        for block in kernel.blocks
    ]
    return _keep(kernel, every) if kernel.exclude else every


def _combination(kernel: Kernel, dtype: str, chosen: Sequence[tuple[str, Value]], block: Block) -> Combination:
    words = {
        "dtype": dtype,
        "block": block.tag,
        **{name: word for name, (word, _) in zip(kernel.axes, chosen, strict=True)},
    }
    return Combination(
        dtype=dtype,
        axes={name: value for name, (_, value) in zip(kernel.axes, chosen, strict=True)},
        block=block,
        words=words,
        name=fill(kernel.name, words),
        group=fill(kernel.group, words),
        signature=fill(kernel.signature, words),
    )


def _row(row: TableRow, block: Block) -> Combination:
    dtype = main_dtype(row.signature)
    return Combination(
        dtype=dtype,
        axes={},
        block=block,
        words={"dtype": dtype, "block": block.tag},
        name=row.name,
        group=row.group,
        signature=row.signature,
        declared=row.position,
    )


def _keep(kernel: Kernel, combinations: Sequence[Combination]) -> list[Combination]:
    """The combinations that no entry of `exclude` matches."""
    _check_words(kernel)
    dropped: set[int] = set()
    for exclusion in kernel.exclude:
        matched = {index for index, each in enumerate(combinations) if _matches(exclusion, each)}
        if not matched:
            raise ManifestError(
                f"an entry of `kernels.{kernel.key}.exclude` excludes nothing",
                where=exclusion.position,
                expected="values that some variant has all together",
                actual=_said(exclusion),
                remedy="remove it, or correct its values: no block has all of them",
            )
        dropped |= matched
    if len(dropped) == len(combinations):
        raise ManifestError(
            f"`kernels.{kernel.key}.exclude` leaves no variant",
            where=kernel.positions.get("exclude", kernel.position),
            expected="at least one combination that is built",
            actual=f"all {len(combinations)} are excluded",
            remedy="remove an entry, or remove the kernel",
        )
    return [each for index, each in enumerate(combinations) if index not in dropped]


def _matches(exclusion: Exclusion, combination: Combination) -> bool:
    block = combination.block
    own: dict[str, Value] = {
        **combination.axes,
        **block.constants,
        "dtype": combination.dtype,
        "block": block.tag,
    }
    return all(any(_same(name, own[name], value) for value in values) for name, values in exclusion.values.items())


def _same(name: str, own: Value, given: Value) -> bool:
    """Whether a value is meant: true is not 1. A block's tag may look like a number: 128."""
    if name == "block" and type(given) is int:
        return own == str(given)
    return same(own, given)


def _check_words(kernel: Kernel) -> None:
    known: dict[str, Sequence[Value]] = {
        "dtype": kernel.dtypes,
        **({"block": [block.tag for block in kernel.blocks]} if kernel.has_blocks else {}),
        **{name: list(values.values()) for name, values in kernel.axes.items()},
        **{name: [block.constants[name] for block in kernel.blocks] for name in kernel.blocks[0].constants},
    }
    for exclusion in kernel.exclude:
        for name, values in exclusion.values.items():
            if name not in known:
                why = "names a block, and the kernel has no `blocks`"
                raise ManifestError(
                    f"`kernels.{kernel.key}.exclude` {why if name == 'block' else f'has the unknown key {show(name)}'}",
                    where=exclusion.key_positions[name],
                    expected=f"one of {', '.join(known)}",
                    actual=show(name),
                    remedy=did_you_mean(name, known) or "remove it",
                )
            for value, position in zip(values, exclusion.positions[name], strict=True):
                if any(_same(name, own, value) for own in known[name]):
                    continue
                texts = list(dict.fromkeys(str(own) if isinstance(own, str) else written(own) for own in known[name]))
                raise ManifestError(
                    f"`kernels.{kernel.key}.exclude` excludes nothing: {name} is never {written(value)}",
                    where=position,
                    expected=f"one of {', '.join(texts)}",
                    actual=written(value),
                    remedy=did_you_mean(str(value), texts) or "correct the value, or remove the entry",
                )


def _said(exclusion: Exclusion) -> str:
    return ", ".join(f"{name}: {' or '.join(map(written, values))}" for name, values in exclusion.values.items())

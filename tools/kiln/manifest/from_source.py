"""What a manifest takes from source files, as data, and who reads it there: this room opens no Python file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kiln.errors import ManifestError, Position, did_you_mean
from kiln.manifest.choices import TAG, TAG_RULE, word_of
from kiln.manifest.constants import written
from kiln.manifest.model import Block, TableRow, Value
from kiln.manifest.wording import show


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One configuration that a function is tuned over: a `triton.Config`, as a manifest understands it."""

    constants: Mapping[str, Value]
    """constexpr parameter -> value, in the order in which the source gives them"""
    options: Mapping[str, int]
    """compiler option -> value, in kernels.yaml's words; Triton's own defaults for those that the source leaves out"""
    targets: tuple[str, ...] | None
    """the targets that have it, in the order asked for; None: all"""
    position: Position
    """in the source"""


@dataclass(frozen=True, kw_only=True)
class SourcePlace:
    """A source file, and what its code may reach: what a reader needs to know of a manifest."""

    source: Path
    root: Path
    """the folder that the project's files lie below"""
    roots: Mapping[str, str]
    """name -> folder, relative to `root`, of the further ones that the manifest declares"""
    environment: Mapping[str, str | None]
    """variable -> its value, or None for one that is unset; no others may be read"""
    where: Position
    """the place in the manifest that asks"""


class SourceReader(Protocol):
    """Reads declarations off Python files. Implementations run none of their code.

    `targets` has the targets asked for, in order, with the places in the manifest that name them. Both methods raise
    ClosureError, at the line of the source, for what cannot be told without running it.
    """

    def configurations(
        self, place: SourcePlace, function: str, targets: Mapping[str, Position]
    ) -> tuple[Configuration, ...]:
        """What the function's own `@triton.autotune` lists, in order, no two equal, for any of `targets`."""

    def function_table(self, place: SourcePlace, targets: Mapping[str, Position]) -> tuple[TableRow, ...]:
        """What the file's `get_function_table()` returns, in order: the same for each of `targets`."""


_POINTER = re.compile(r"\*\s*(\w+)")
_WORD = re.compile(r"\w+")


def main_dtype(signature: str) -> str:
    """The dtype that a row's variant goes by: of its first pointer, else of its first argument; empty without any."""
    found = _POINTER.search(signature)
    if found is not None:
        return found[1]
    word = _WORD.search(signature)
    return word[0] if word is not None else ""


def autotuned_blocks(
    configurations: Sequence[Configuration], what: str, where: Position, targets: Iterable[str]
) -> tuple[Block, ...]:
    """The blocks that configurations stand for, in order; `what` is the dotted path of `blocks`.

    A tag is the constants' values with an x between them. Where that does not tell all of them apart, each tag goes on
    with its options: `128x64_w8s3`. What a tag holds depends on its own configuration alone, so that one more at the
    end of the list renames no other unless it is the first that differs by its options only.

    Raises ManifestError when there is none, when they set different constants, and when values make no tag.
    """
    if not configurations:
        raise ManifestError(
            f"`{what}` finds no configuration in the source",
            where=where,
            expected=f"at least one for {' or '.join(targets)}",
            actual="an empty list",
            remedy="write the blocks out",
        )
    first = configurations[0]
    for other in configurations:
        if other.constants.keys() != first.constants.keys():
            unlike = sorted(other.constants.keys() ^ first.constants.keys())
            raise ManifestError(
                f"`{what}`: two configurations set different constants",
                where=other.position,
                expected=f"those of the first one, at {first.position}: {', '.join(first.constants) or 'none'}",
                actual=f"{', '.join(other.constants) or 'none'}; only one of them sets {', '.join(unlike)}",
                remedy="write the blocks out, with a value for each constant",
            )
    ordered = [{name: other.constants[name] for name in first.constants} for other in configurations]
    tags = ["x".join(word_of(value) for value in constants.values()) for constants in ordered]
    if len({tag.lower() for tag in tags}) < len(tags) or not first.constants:
        words = [_options_word(configuration.options) for configuration in configurations]
        tags = ["_".join(filter(None, both)) for both in zip(tags, words, strict=True)]
    blocks = []
    for tag, constants, configuration in zip(tags, ordered, configurations, strict=True):
        _check_tag(tag, configuration, what)
        blocks.append(
            Block(
                tag=tag,
                constants=constants,
                options=configuration.options,
                is_integer=False,
                position=configuration.position,
                positions=dict.fromkeys((*constants, *configuration.options), configuration.position),
                targets=configuration.targets,
            )
        )
    _check_unique(blocks, what)
    return tuple(blocks)


_SHORT = {
    "num_warps": "w",
    "num_stages": "s",
    "num_ctas": "c",
    "maxnreg": "r",
    "waves_per_eu": "e",
    "matrix_instr_nonkdim": "m",
    "kpack": "k",
}
"""compiler options that configurations differ by -> what stands for each in a tag"""


def _options_word(options: Mapping[str, Value]) -> str:
    """w8s3, and the rarer options where they are given."""
    return "".join(f"{letter}{word_of(options[name])}" for name, letter in _SHORT.items() if name in options)


def _check_tag(tag: str, configuration: Configuration, what: str) -> None:
    for name, value in configuration.constants.items():
        if TAG.fullmatch(word_of(value)) is None:
            raise ManifestError(
                f"`{what}`: {name} of a configuration is {written(value)}, which cannot stand in names",
                where=configuration.position,
                expected=f"integers, truth values, dtypes, functions, and texts of {TAG_RULE}",
                actual=f"{name} = {written(value)}",
                remedy="write the blocks out, each with a `tag`; `kiln import` prints them",
            )
    if not tag:
        raise ManifestError(
            f"`{what}`: a configuration makes no tag, and so no name",
            where=configuration.position,
            expected="constants or compiler options",
            actual="neither",
            remedy="write the blocks out, each with a `tag`",
        )


def _check_unique(blocks: Sequence[Block], what: str) -> None:
    seen: dict[str, Block] = {}
    for block in blocks:
        first = seen.setdefault(block.tag.lower(), block)
        if first is not block:
            raise ManifestError(
                f"`{what}`: two configurations make the tag {show(block.tag)}",
                where=block.position,
                expected="configurations that differ in the values that stand in names",
                actual=f"the first is at {first.position}",
                remedy="write the blocks out, each with a `tag` of its own",
            )


def table_blocks(rows: Sequence[TableRow], what: str) -> tuple[Block, ...]:
    """One block a row, with the row's name for a tag; `what` is the dotted path of `function_table`.

    Raises ManifestError when rows set different constants: grid, select and options are written once for all of them.
    """
    first = rows[0]
    blocks = []
    for row in rows:
        if row.constants.keys() != first.constants.keys():
            unlike = sorted(row.constants.keys() ^ first.constants.keys())
            raise ManifestError(
                f"`{what}`: two rows of {row.function} set different constants",
                where=row.position,
                expected=f"those of {show(first.name)}: {', '.join(first.constants) or 'none'}",
                actual=f"{show(row.name)} sets {', '.join(row.constants) or 'none'}; only one of them sets "
                f"{', '.join(unlike)}",
                remedy="set the same constants in every row of a function",
            )
        constants = {name: row.constants[name] for name in first.constants}
        blocks.append(
            Block(
                tag=row.name,
                constants=constants,
                options=row.options,
                is_integer=False,
                position=row.position,
                positions=dict.fromkeys((*constants, *row.options), row.position),
            )
        )
    return tuple(blocks)


def rows_of(rows: Sequence[TableRow], function: str | None, what: str, where: Position) -> tuple[TableRow, ...]:
    """The rows of one function; None stands for the only one there is.

    Raises ManifestError at `where` when there are no rows, none of that function, or those of several.
    """
    functions = list(dict.fromkeys(row.function for row in rows))
    if not functions:
        raise ManifestError(
            f"the table of `{what}` is empty",
            where=where,
            expected="a get_function_table() that returns at least one row",
            actual="no rows",
            remedy="correct the table, or remove the kernel",
        )
    if function is None and len(functions) > 1:
        raise ManifestError(
            f"the table of `{what}` has rows of several functions",
            where=where,
            expected="one of them, under `function`",
            actual=", ".join(functions),
            remedy=f"add `function: {functions[0]}`, and a kernel for each of the others",
        )
    wanted = functions[0] if function is None else function
    if wanted not in functions:
        raise ManifestError(
            f"the table of `{what}` has no row of the function {show(wanted)}",
            where=where,
            expected=f"one of {', '.join(functions)}",
            actual=show(wanted),
            remedy=did_you_mean(wanted, functions) or "name a function that the table has",
        )
    return tuple(row for row in rows if row.function == wanted)

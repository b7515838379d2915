"""What a kernel is built in many forms by: the types of `blocks`, `axes` and `exclude`."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kiln.errors import ManifestError, Position, did_you_mean
from kiln.manifest.compound_types import Key, ListOf, MapOf, OneOrMore, Section
from kiln.manifest.constant_types import Constant
from kiln.manifest.constants import DTypeConstant, FunctionConstant, Value, same, written
from kiln.manifest.expression import RESERVED_NAMES
from kiln.manifest.model import Block, Exclusion
from kiln.manifest.value_types import Integer, Text, wrong
from kiln.manifest.wording import show
from kiln.manifest.yaml_nodes import List, Map, Node, Scalar

AUTOTUNE = "autotune"
"""what stands for the configurations of the function's own `@triton.autotune`"""

BLOCK_CONSTANT = "BLOCK_SIZE"
"""the constexpr parameter that a block which is an integer sets"""

OWN_WORDS = ("dtype", "block", "tag")
"""what names of constants and axes would be taken for"""

TAG = re.compile(r"[A-Za-z0-9]+(?:_[A-Za-z0-9]+)*")
TAG_RULE = "letters and digits, with single underscores between them, all ASCII"


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """A list of integers, or of maps that all set the same constants, or a word for those that the source lists."""

    options: Mapping[str, Key]
    """the compiler options: any other key of a map is a constant"""

    number = Integer(minimum=1, maximum=2**31 - 1)
    words = (
        f"a list of values, each {number.words}, or each a map of constants and compiler options "
        f"({{BLOCK_M: 128, BLOCK_N: 64, num_warps: 8}}); or the word {AUTOTUNE}"
    )

    def read(self, node: Node, what: str) -> tuple[Block, ...] | None:
        """None: those of the function's own `@triton.autotune`, which the loader reads."""
        if isinstance(node, Scalar) and node.text == AUTOTUNE:
            return None
        if not isinstance(node, List) or not node.items:
            remedy = "put brackets around it, for a list of one" if isinstance(node, Map) or _is_number(node) else None
            if isinstance(node, Scalar) and remedy is None:
                remedy = did_you_mean(node.text, [AUTOTUNE])
            raise wrong(node, what, self.words, "list at least one" if isinstance(node, List) else remedy)
        maps = [isinstance(item, Map) for item in node.items]
        if any(maps) and not all(maps):
            raise ManifestError(
                f"`{what}` mixes integers and maps",
                where=node.items[maps.index(not maps[0])].position,
                expected="integers alone, or maps alone",
                actual=f"{sum(maps)} of {len(maps)} are maps",
                remedy=f"write an integer n as {{{BLOCK_CONSTANT}: n}}",
            )
        if not maps[0]:
            return self._read_integers(node, what)
        blocks: list[Block] = []
        for index, item in enumerate(node.items):
            assert isinstance(item, Map)
            blocks.append(self._read_map(item, f"{what}[{index}]", blocks[0] if blocks else None))
        _check_tags(blocks, what)
        return tuple(blocks)

    def _read_integers(self, node: Node, what: str) -> tuple[Block, ...]:
        assert isinstance(node, List)
        values = ListOf(item=self.number).read(node, what)
        return tuple(
            Block(
                tag=str(value),
                constants={BLOCK_CONSTANT: value},
                options={},
                is_integer=True,
                position=item.position,
                positions={},
            )
            for value, item in zip(values, node.items, strict=True)
        )

    def _read_map(self, node: Map, what: str, first: Block | None) -> Block:
        tag: str | None = None
        constants: dict[str, Value] = {}
        options = []
        for entry in node.entries:
            name, path = entry.key.text, f"{what}.{entry.key.text}"
            if name == "tag":
                tag = Text(words="text for names, such as 128x64", check=check_tag).read(entry.value, path)
            elif name in self.options:
                options.append(entry)
            else:
                check_variable(name, entry.key.position, f"a constant in `{what}`")
                constants[name] = Constant().read(entry.value, path)
        positions = {entry.key.text: entry.key.position for entry in node.entries}
        if first is not None:
            constants = self._like_the_first(constants, first, node.position, positions, what)
        return Block(
            tag=_make_tag(constants, node.position, what) if tag is None else tag,
            constants=constants,
            options=Section(keys=self.options).read(Map(entries=tuple(options), position=node.position), what),
            is_integer=False,
            position=node.position,
            positions=positions,
        )

    def _like_the_first(
        self,
        constants: Mapping[str, Value],
        first: Block,
        position: Position,
        positions: Mapping[str, Position],
        what: str,
    ) -> dict[str, Value]:
        """The constants in the order of the first block's, which are the same ones."""
        for name in constants:
            if name not in first.constants:
                raise ManifestError(
                    f"`{what}` sets {show(name)}, and the first block does not",
                    where=positions[name],
                    expected=f"the constants of the first block: {', '.join(first.constants) or 'none'}",
                    actual=show(name),
                    remedy=did_you_mean(name, [*first.constants, *self.options]) or "set it in every block, or in none",
                )
        missing = [name for name in first.constants if name not in constants]
        if missing:
            raise ManifestError(
                f"`{what}` does not set {', '.join(missing)}, and the first block does",
                where=position,
                expected=f"the constants of the first block: {', '.join(first.constants)}",
                actual=", ".join(constants) or "no constants",
                remedy="set the same constants in every block",
            )
        return {name: constants[name] for name in first.constants}


def _is_number(node: Node) -> bool:
    return isinstance(node, Scalar) and node.plain and node.text.isascii() and node.text.isdigit()


def check_tag(text: str, position: Position, what: str) -> None:
    """Refuse what cannot be a part of names. Raises ManifestError at `position`."""
    if TAG.fullmatch(text) is None:
        raise ManifestError(
            f"{show(text)} cannot be `{what}`: it becomes a part of names",
            where=position,
            expected=TAG_RULE,
            actual=show(text),
            remedy="choose another, such as 128x64",
        )


def _make_tag(constants: Mapping[str, Value], position: Position, what: str) -> str:
    """The values of the constants with an x between them: 128x64."""
    tag = "x".join(word_of(value) for value in constants.values())
    if TAG.fullmatch(tag) is None:
        raise ManifestError(
            f"`{what}` needs a tag: " + ("its values make none" if constants else "it sets no constant to make one of"),
            where=position,
            expected=f"a `tag` for the block's names, {TAG_RULE}",
            actual=", ".join(f"{name}: {written(value)}" for name, value in constants.items()) or "options alone",
            remedy="add `tag: ` and a word",
        )
    return tag


def _check_tags(blocks: Sequence[Block], what: str) -> None:
    seen: dict[str, Block] = {}
    for block in blocks:
        first = seen.setdefault(block.tag.lower(), block)
        if first is not block:
            raise ManifestError(
                f"two entries of `{what}` have the tag {show(block.tag)}",
                where=block.positions.get("tag", block.position),
                expected="tags that differ in more than upper and lower case",
                actual=f"the first is at line {first.position.line}, column {first.position.column}",
                remedy="remove one of them, or tell them apart with `tag: ` and a word",
            )


def word_of(value: Value) -> str:
    """How a value stands in names: 1 and 0 for true and false, integers and texts as they are written, dtypes and
    functions by their own names.

    What has no such word, as null and 0.5, gives one that no name can hold.
    """
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, DTypeConstant):
        return value.name
    if isinstance(value, FunctionConstant):
        return "_".join(re.findall("[A-Za-z0-9]+", value.name))
    return "~" if value is None else value if isinstance(value, str) else written(value)


def check_variable(name: str, position: Position, what: str) -> None:
    """Refuse what cannot be a constexpr parameter, a placeholder and a name in expressions; `what` is `an axis`.

    Raises ManifestError at `position`.
    """
    if not name.isascii() or not name.isidentifier() or keyword.iskeyword(name):
        why = "it is no identifier" if not name.isidentifier() or not name.isascii() else "it is a keyword of Python"
    elif name in RESERVED_NAMES or name.lower() in ("true", "false"):
        why = "it has a meaning of its own in expressions"
    elif name in OWN_WORDS:
        why = "it has a meaning of its own in kernels.yaml"
    else:
        return
    raise ManifestError(
        f"{show(name)} cannot be the name of {what}: {why}",
        where=position,
        expected="the name of a constexpr parameter",
        actual=show(name),
        remedy="choose another name",
    )


@dataclass(frozen=True, kw_only=True)
class AxisValues:
    """The values of an axis: a list, or a map that gives each a word for names."""

    words = (
        "a list of integers, of texts, or of true and false; or a map that gives each value, of the types that "
        "`constants` takes, a word for names ({causal: true, full: false})"
    )

    def read(self, node: Node, what: str) -> dict[str, Value]:
        """What stands for each value in names -> the value, in order."""
        if isinstance(node, List) and node.items:
            values = [Constant().read(item, f"{what}[{index}]") for index, item in enumerate(node.items)]
            entries = [(item.position, word_of(value), value) for item, value in zip(node.items, values, strict=True)]
        elif isinstance(node, Map) and node.entries:
            entries = [
                (entry.key.position, entry.key.text, Constant().read(entry.value, f"{what}.{entry.key.text}"))
                for entry in node.entries
            ]
        else:
            raise wrong(node, what, self.words, "put brackets around it" if isinstance(node, Scalar) else None)
        found: dict[str, Value] = {}
        for position, word, value in entries:
            self._check(position, word, value, found, what)
            found[word] = value
        return found

    def _check(self, position: Position, word: str, value: Value, before: Mapping[str, Value], what: str) -> None:
        if TAG.fullmatch(word) is None:
            raise ManifestError(
                f"a value of `{what}` cannot stand in names",
                where=position,
                expected=TAG_RULE,
                actual=written(value) if word == word_of(value) else show(word),
                remedy=f"give each value a word, as in {{low: {written(value)}}}"
                if word == word_of(value)
                else "use another word",
            )
        # None beside another type is how Python says that something is left out.
        other = next((other for other in before.values() if other is not None), value)
        if value is not None and type(value) is not type(other):
            raise ManifestError(
                f"`{what}` mixes values of different types",
                where=position,
                expected="values of one type",
                actual=f"{written(value)} beside {written(other)}",
                remedy="make two axes of them, or two kernels",
            )
        is_taken = word.lower() in {other.lower() for other in before}
        if is_taken or any(same(value, other) for other in before.values()):
            raise ManifestError(
                f"`{what}` holds {show(word) if is_taken else written(value)} twice",
                where=position,
                expected="values and words that all differ, in more than upper and lower case",
                actual=written(value),
                remedy="remove one of them",
            )


@dataclass(frozen=True, kw_only=True)
class Exclusions:
    """The variants that are not built. What the keys and values mean is checked with the kernel: `exclude`."""

    entry = MapOf(key=Text(words="dtype, block, an axis or a constant of the blocks"), value=OneOrMore(item=Constant()))
    words = f"a list of maps, each {entry.words}"

    def read(self, node: Node, what: str) -> tuple[Exclusion, ...]:
        if not isinstance(node, List) or not node.items:
            remedy = "put brackets around it, for a list of one" if isinstance(node, Map) else None
            raise wrong(node, what, self.words, "remove the key" if isinstance(node, List) else remedy)
        found = []
        for index, item in enumerate(node.items):
            if not isinstance(item, Map) or not item.entries:
                raise wrong(item, f"{what}[{index}]", self.entry.words)
            values = self.entry.read(item, f"{what}[{index}]")
            found.append(
                Exclusion(
                    values={name: tuple(value for value, _ in given) for name, given in values.items()},
                    positions={name: tuple(position for _, position in given) for name, given in values.items()},
                    key_positions={entry.key.text: entry.key.position for entry in item.entries},
                    position=item.position,
                )
            )
        return tuple(found)

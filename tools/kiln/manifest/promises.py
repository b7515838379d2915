"""The type of `promises`: sets of what a caller guarantees of arguments, one variant for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kiln.errors import ManifestError, Position
from kiln.manifest.choices import TAG, TAG_RULE, check_tag
from kiln.manifest.model import PromiseSet
from kiln.manifest.names import check_argument
from kiln.manifest.value_types import Integer, Text, wrong
from kiln.manifest.wording import show
from kiln.manifest.yaml_nodes import List, Map, Node

_LONGEST_TAG = 60
"""characters of one that nobody wrote"""


@dataclass(frozen=True, kw_only=True)
class PromiseSets:
    """A list of maps from arguments to 16 or 1. Which arguments there are, the function says."""

    words = (
        "a list of maps, each from arguments to 16 (address or value is divisible by 16) or 1 (the value is 1), with "
        "a `tag` for names if need be; {} promises nothing"
    )

    def read(self, node: Node, what: str) -> tuple[PromiseSet, ...]:
        if not isinstance(node, List) or not node.items:
            remedy = "put brackets around it, for a list of one" if isinstance(node, Map) else None
            raise wrong(node, what, self.words, "remove the key" if isinstance(node, List) else remedy)
        found: list[PromiseSet] = []
        for index, item in enumerate(node.items):
            one = self._read_set(item, f"{what}[{index}]")
            _check_reached(one, found, f"{what}[{index}]")
            found.append(one)
        return tuple(found)

    def _read_set(self, node: Node, what: str) -> PromiseSet:
        if not isinstance(node, Map):
            raise wrong(node, what, "a map from arguments to 16 or 1")
        tag: str | None = None
        promises: dict[str, int] = {}
        for entry in node.entries:
            name, path = entry.key.text, f"{what}.{entry.key.text}"
            if name == "tag":
                tag = Text(words="text for names, such as aligned", check=check_tag).read(entry.value, path)
                continue
            check_argument(name, entry.key.position, "the name of an argument")
            promise = Integer().read(entry.value, path)
            if promise not in (1, 16):
                raise ManifestError(
                    f"wrong value for `{path}`",
                    where=entry.value.position,
                    expected="16 (address or value is divisible by 16) or 1 (the value is 1)",
                    actual=str(promise),
                    remedy="write 16: it holds for every multiple of 16" if promise % 16 == 0 and promise else None,
                )
            promises[name] = promise
        if tag is not None and not promises:
            raise ManifestError(
                f"`{what}` promises nothing, and has a tag",
                where=node.position,
                expected="promises to tell apart by the tag, or {}: variants without promises keep the plain name",
                actual=f"tag: {show(tag)} alone",
                remedy="remove the tag, or add a promise",
            )
        return PromiseSet(
            tag=_make_tag(promises, node.position, what) if tag is None else tag,
            promises=promises,
            position=node.position,
            positions={entry.key.text: entry.key.position for entry in node.entries},
        )


def _make_tag(promises: Mapping[str, int], position: Position, what: str) -> str:
    """stride16_n1 for {stride: 16, n: 1}."""
    tag = "_".join(f"{name}{promise}" for name, promise in promises.items())
    if promises and (TAG.fullmatch(tag) is None or len(tag) > _LONGEST_TAG):
        raise ManifestError(
            f"`{what}` needs a tag: its arguments make no good name",
            where=position,
            expected=f"a `tag` for the variant's name, {TAG_RULE}",
            actual=show(tag),
            remedy="add `tag: ` and a word",
        )
    return tag


def _check_reached(one: PromiseSet, before: Sequence[PromiseSet], what: str) -> None:
    """Refuse a set that is never picked, for an earlier one holds whenever it does, and a tag that is taken."""
    for index, other in enumerate(before):
        if other.promises.items() <= one.promises.items():
            same = other.promises == one.promises
            raise ManifestError(
                f"`{what}` is never picked: entry {index} of the list holds whenever it does, and comes first",
                where=one.position,
                expected="more promises first, and {} last",
                actual=f"{_said(one)} behind {_said(other)}",
                remedy="remove one of them" if same else "move it in front of that entry",
            )
        if other.tag.lower() == one.tag.lower():
            raise ManifestError(
                f"two entries of the list have the tag {show(one.tag)}",
                where=one.positions.get("tag", one.position),
                expected="tags that differ in more than upper and lower case",
                actual=f"the first is at line {other.position.line}, column {other.position.column}",
                remedy="choose another tag for one of them",
            )


def _said(one: PromiseSet) -> str:
    return f"{{{', '.join(f'{name}: {promise}' for name, promise in one.promises.items())}}}"

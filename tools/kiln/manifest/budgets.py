"""Budgets: the most that an image may use of registers, memory and bytes, as kernels.yaml gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kiln.errors import ManifestError, did_you_mean
from kiln.manifest.compound_types import Key
from kiln.manifest.model import Budget
from kiln.manifest.value_types import Computed, Either, Integer, wrong
from kiln.manifest.wording import show
from kiln.manifest.yaml_nodes import Entry, Map, Node

EVERY = ""
"""in place of a target's name: the budget is for all of them"""

LIMIT = Either(literal=Integer(minimum=0), computed=Computed(result="int"))


@dataclass(frozen=True, kw_only=True)
class ByTarget:
    """A limit for every target, or a map from targets to limits; read as target -> Budget."""

    @property
    def words(self) -> str:
        return f"{LIMIT.words}; or a map from targets to such values"

    def read(self, node: Node, what: str) -> dict[str, Budget]:
        if not isinstance(node, Map):
            return {EVERY: _budget(node, what, self.words)}
        if not node.entries:
            raise wrong(node, what, self.words, "name at least one target, or remove the budget")
        return {entry.key.text: _budget(entry.value, f"{what}.{entry.key.text}", LIMIT.words) for entry in node.entries}


def _budget(node: Node, what: str, words: str) -> Budget:
    try:
        return Budget(limit=LIMIT.read(node, what), name=what, position=node.position)
    except ManifestError as error:
        if error.expected != LIMIT.words:
            raise
        raise ManifestError(
            error.what, where=error.where, expected=words, actual=error.actual, remedy=error.remedy
        ) from None


KEYS: dict[str, Key] = {
    "registers": Key(
        type=ByTarget(), doc="32-bit registers a thread (VGPRs on AMD)", example="{sm_80: 128, sm_90a: 168}"
    ),
    "spills": Key(
        type=ByTarget(),
        doc="bytes a thread that the code spills to memory, each instruction counted once: on NVIDIA the larger of "
        "what ptxas reports as stores and as loads, on AMD 4 for each VGPR that is spilled",
        example="0",
    ),
    "stack": Key(
        type=ByTarget(),
        doc="bytes of local memory a thread, for spills and local arrays; "
        "of recursion and calls by address one call's at most",
        example="{gfx942: 64}",
    ),
    "shared": Key(
        type=ByTarget(), doc="bytes of shared memory a block, static and dynamic", example="2 * BLOCK_M * BLOCK_K * 2"
    ),
    "size": Key(type=ByTarget(), doc="bytes of the image's file", example="65536"),
}
"""What a budget can be for. A kernel's facts have each of them, or do not know it."""


def merge_budgets(
    given: Mapping[str, Mapping[str, Budget]], own: Mapping[str, Mapping[str, Budget]], targets: Sequence[str]
) -> dict[str, dict[str, Budget]]:
    """A kernel's budgets: those of the library for its targets, and over them its own for the targets that it names.

    So an exception for one target leaves the library's budget to the others. Returns budget -> target -> the most.
    """
    return {
        name: {**_of_targets(given.get(name, {}), targets), **_of_targets(own.get(name, {}), targets)}
        for name in KEYS
        if name in given or name in own
    }


def check_targets(what: str, entry: Entry | None, known: Sequence[str], whose: str) -> None:
    """Refuse a budget for a target that nothing is built for: it would never be held against anything.

    `entry` is that of `budgets` at the path `what`, None without any. Raises ManifestError.
    """
    for budget in entry.value.entries if entry is not None and isinstance(entry.value, Map) else ():
        for own in budget.value.entries if isinstance(budget.value, Map) else ():
            if own.key.text not in known:
                guess, otherwise = did_you_mean(own.key.text, known), "remove it, or add the target to `targets`"
                raise ManifestError(
                    f"a budget for {show(own.key.text)}, which {whose} not built for",
                    where=own.key.position,
                    expected=f"targets among {', '.join(known)}",
                    actual=f"{what}.{budget.key.text}.{own.key.text}",
                    remedy=f"{guess} if not, {otherwise}" if guess else otherwise,
                )


def _of_targets(by_target: Mapping[str, Budget], targets: Sequence[str]) -> dict[str, Budget]:
    if EVERY in by_target:
        return dict.fromkeys(targets, by_target[EVERY])
    return {name: by_target[name] for name in targets if name in by_target}

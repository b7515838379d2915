"""Work that was done ahead, in the child of the step before, and whether it is what a run would do now."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from kiln.engine.jobs import Ended, PackedCall, packed
from kiln.engine.rows import Row
from kiln.engine.step import Step


@dataclass(frozen=True, kw_only=True)
class Rider:
    """What is known of a step when another starts whose child is to do its work too."""

    inputs: Mapping[str, str]
    """as they were before; those that are over what the other step makes will be others"""
    call: PackedCall


def asked_beforehand(steps: Mapping[str, Step]) -> dict[str, Rider]:
    """What is known of steps before the one that they ride on has run; of those that can be asked."""
    found: dict[str, Rider] = {}
    for name, step in steps.items():
        # What is wrong with it is told when it is asked again, at its turn.
        with suppress(Exception):
            found[name] = Rider(inputs=step.inputs(), call=packed(step.call()))
    return found


@dataclass(frozen=True, kw_only=True)
class Ahead:
    """What a step's call has made in the child of the step that it rides on. Its turn comes later."""

    rider: Rider
    ended: Ended
    under: str
    """the name of the step that it rode on"""
    staged: Mapping[str, str]
    """path -> sha256 of what it found there"""
    slot: int
    """the place in the pool"""

    def is_still_asked(self, step: Step, inputs: Mapping[str, str], row: Row | None) -> bool:
        """Whether it is what a run would do now, with the same bytes.

        `inputs` are those of the step now, without what a run finds; `row` is that of the step that it rode on.
        """
        published = {output.path: output.sha256 for output in row.outputs} if row is not None else {}
        # A tool that was replaced meanwhile has another digest now, which what was made must not be recorded with.
        before, new = self.rider.inputs, set(published.values())
        return (
            self.staged == published
            and inputs.keys() == before.keys()
            and all(inputs[name] == before[name] or inputs[name] in new for name in inputs)
            and packed(step.call()) == self.rider.call
        )

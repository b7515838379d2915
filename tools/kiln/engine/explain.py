"""Why a step is stale, or what it waits for: its inputs and outputs as they are, held against its last good run.

Nothing is written, whatever state the record of earlier builds is in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kiln.digests import is_digest
from kiln.engine.build import Build
from kiln.engine.publish import intact
from kiln.engine.rows import Row
from kiln.engine.step import Found, Step, Text
from kiln.errors import KilnError


@dataclass(frozen=True, kw_only=True)
class Input:
    """A named input as it was, as it is, or both."""

    name: str
    old: str | None
    """None where the last run had no such input"""
    new: str | None
    """None where the step has no such input any more"""
    old_text: str | None = None
    """what the digest is over, where that is known"""
    new_text: Text | None = None


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What is known of one step."""

    name: str
    reason: str | None
    """what has nothing to do with any one input or output: it was never built here, its last run failed"""
    changes: tuple[Input, ...]
    faults: tuple[str, ...]
    """what is wrong with each output"""
    runs_before: tuple[str, ...]
    """the stale steps that it comes after, at any distance: what they make may make it stale"""
    inputs: tuple[Input, ...]
    """all of them as they are; empty where one cannot be had"""

    @property
    def is_stale(self) -> bool:
        """Whether it will run, whatever becomes of other steps."""
        return bool(self.reason or self.changes or self.faults)


@dataclass(frozen=True, kw_only=True)
class _Own:
    """What is known of a step without a look at others."""

    reason: str | None = None
    changes: tuple[Input, ...] = ()
    faults: tuple[str, ...] = ()
    components: Mapping[str, str] = field(default_factory=dict)
    found: Found = field(default_factory=dict)

    @property
    def is_stale(self) -> bool:
        return bool(self.reason or self.changes or self.faults)


class Explainer:
    """Explains the steps of one build. Statuses and texts are found once for all that have them in common."""

    def __init__(self, build: Build, steps: Mapping[str, Step]) -> None:
        """`steps` are those that may be asked for, and all that they come after."""
        self._build = build
        self._steps = steps
        self._own: dict[str, _Own] = {}
        self._before: dict[str, frozenset[str]] = {}
        self._texts: dict[str, str | None] = {}

    def explain(self, name: str, *, with_inputs: bool = False) -> Explanation:
        """The step of that name; `with_inputs` for all of its inputs, and not only what changed."""
        own, step = self._own_of(name), self._steps[name]
        inputs: tuple[Input, ...] = ()
        if with_inputs:
            inputs = tuple(
                Input(name=each, old=None, new=value, new_text=_text(step, each, value, own.found))
                for each, value in sorted(own.components.items())
            )
        return Explanation(
            name=name,
            reason=own.reason,
            changes=tuple(self._with_texts(step, own.found, change) for change in own.changes),
            faults=own.faults,
            runs_before=tuple(sorted(self._stale_before(name))),
            inputs=inputs,
        )

    def _own_of(self, name: str) -> _Own:
        if name not in self._own:
            try:
                self._own[name] = self._compare(name)
            except KilnError as error:
                self._own[name] = _Own(reason=str(error))
            except Exception as error:
                # A rule of the project's own may raise anything.
                self._own[name] = _Own(reason=f"its inputs cannot be told: {type(error).__name__}: {error}")
        return self._own[name]

    def _compare(self, name: str) -> _Own:
        build, step = self._build, self._steps[name]
        row = build.state.rows.get(name)
        status = build.status(name, step)
        if row is None:
            return _Own(reason=status.reasons[0], components=status.components)
        changes = tuple(
            Input(name=each, old=row.components.get(each), new=status.components.get(each))
            for each in sorted(row.components.keys() | status.components.keys())
            if row.components.get(each) != status.components.get(each)
        )
        faults = [intact(build.root, [output], build.state.files) for output in row.outputs]
        return _Own(
            reason=_other_outputs(row, step) if row.valid else status.reasons[0],
            changes=changes,
            faults=tuple(fault for fault in faults if fault is not None),
            components=status.components,
            found=row.found,
        )

    def _with_texts(self, step: Step, found: Found, change: Input) -> Input:
        old, new = change.old, change.new
        if old is not None and is_digest(old) and old not in self._texts:
            self._texts[old] = self._build.state.text(old)
        return Input(
            name=change.name,
            old=old,
            new=new,
            old_text=self._texts.get(old) if old is not None else None,
            new_text=_text(step, change.name, new, found) if new is not None else None,
        )

    def _stale_before(self, name: str) -> frozenset[str]:
        """The stale steps that a step comes after."""
        pending, opened = [name], set[str]()
        while pending:
            each = pending[-1]
            after = self._steps[each].after
            if each not in opened:
                opened.add(each)
                pending += [before for before in after if before not in self._before and before not in opened]
                continue
            pending.pop()
            own = {before for before in after if self._own_of(before).is_stale}
            self._before[each] = frozenset(own.union(*(self._before.get(before, ()) for before in after)))
        return self._before[name]


def _other_outputs(row: Row, step: Step) -> str | None:
    """What the step makes now and did not make, or the other way round."""
    before, now = {output.path for output in row.outputs}, set(step.outputs)
    parts = [f"it makes {path} now" for path in sorted(now - before)]
    parts += [f"it makes {path} no more" for path in sorted(before - now)]
    return "; ".join(parts) or None


def _text(step: Step, name: str, value: str, found: Found) -> Text | None:
    if not is_digest(value):
        return None
    try:
        return step.text(name, value, found)
    except Exception:
        # As in a build: it costs the text.
        return None

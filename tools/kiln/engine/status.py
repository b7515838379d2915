"""Is a step fresh? If not, which of its named inputs or outputs moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kiln.digests import FileDigests, is_digest
from kiln.engine.publish import intact
from kiln.engine.rows import Row
from kiln.engine.step import Step
from kiln.errors import os_failure
from kiln.files import unnoted


@dataclass(frozen=True, kw_only=True)
class Status:
    components: Mapping[str, str]
    """the step's named inputs as they are now"""
    reasons: tuple[str, ...]
    """why it must run; empty when it is fresh"""

    @property
    def fresh(self) -> bool:
        return not self.reasons


def check(step: Step, row: Row | None, root: Path, files: FileDigests) -> Status:
    """Compare a step with what was recorded of its last good run below `root`. A time stamp alone never makes it stale.

    Raises KilnError when an input cannot be had.
    """
    try:
        components = {**step.inputs(), **(step.found(row.found) if row is not None and row.found else {})}
    except OSError as error:
        raise os_failure("an input cannot be read", error, root) from error
    if row is None:
        return Status(components=components, reasons=("it was never built here",))
    if not row.valid:
        return Status(components=components, reasons=("its last run failed or was forgotten",))
    reasons = [
        f"{name} changed: {_short(row.components.get(name))} -> {_short(components.get(name))}"
        for name in sorted(components.keys() | row.components.keys())
        if components.get(name) != row.components.get(name)
    ]
    if not reasons and {output.path for output in row.outputs} != set(step.outputs):
        reasons.append("its list of outputs changed")
    if not reasons:
        with unnoted():
            # What a build makes it does not go by.
            fault = intact(root, row.outputs, files)
        reasons += [fault] if fault else []
    return Status(components=components, reasons=tuple(reasons))


def _short(value: str | None) -> str:
    if value is None:
        return "nothing"
    return value[:12] if is_digest(value) else value

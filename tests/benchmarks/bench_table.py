"""The table of the benchmarks: a row for each figure that has a bar, and for those that help to read them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

_UNITS = {"s": 1.0, "ms": 1e3, "MB": 1e-6}
"""what a figure in seconds or bytes is multiplied with, to be shown"""
_HEAD = ("what", "Kiln", "peer", "", "value", "bar", "stretch", "")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure of Kiln's, with a peer's, and what it is held against. Bars are of the `value`."""

    bench: str
    """the benchmark that it is from"""
    what: str
    kiln: float
    """seconds or bytes"""
    peer: float | None = None
    """the same of a peer"""
    peer_name: str = ""
    unit: Literal["s", "ms", "MB"] = "s"
    """in which both are shown"""
    by: Literal["ratio", "speed-up", "figure"]
    """what the value is: Kiln's figure as a part of the peer's, the other way round, or itself, in its unit"""
    bar: float | None = None
    stretch: float | None = None

    @property
    def value(self) -> float:
        """What is held against the bar."""
        if self.by == "figure":
            return self.kiln * _UNITS[self.unit]
        assert self.peer is not None
        return self.kiln / self.peer if self.by == "ratio" else self.peer / self.kiln

    @property
    def verdict(self) -> str:
        """`stretch`, `ok` or `over`: within the stretch, within the bar, or neither; nothing without a bar."""
        if self.bar is None:
            return ""
        sign = -1 if self.by == "speed-up" else 1
        if self.stretch is not None and sign * self.value <= sign * self.stretch:
            return "stretch"
        return "ok" if sign * self.value <= sign * self.bar else "over"


def as_table(rows: Iterable[Row]) -> str:
    """The rows as text, for people."""
    lines = [_HEAD, *map(_cells, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEAD))]
    is_text = (0, 3, 7)
    lines.insert(1, tuple("-" * width for width in widths))
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in is_text else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def as_json(rows: Sequence[Row], failed: Mapping[str, str], machine: Mapping[str, Any]) -> str:
    """The rows as JSON, for programs: figures in seconds and bytes."""
    found = [{**asdict(row), "value": row.value, "verdict": row.verdict} for row in rows]
    return json.dumps({"rows": found, "failed": dict(failed), "machine": dict(machine)}, indent=1)


def _cells(row: Row) -> tuple[str, ...]:
    sign = {"ratio": "<=", "speed-up": ">=", "figure": "<="}[row.by]
    unit = f" {row.unit}" if row.by == "figure" else "x"
    return (
        row.what,
        _figure(row.kiln, row.unit),
        "" if row.peer is None else _figure(row.peer, row.unit),
        row.peer_name,
        f"{row.value:.3g}{unit}" if row.value < 1000 else f"{row.value:.0f}{unit}",
        "" if row.bar is None else f"{sign} {row.bar:g}{unit}",
        "" if row.stretch is None else f"{sign} {row.stretch:g}{unit}",
        row.verdict,
    )


def _figure(value: float, unit: str) -> str:
    shown = value * _UNITS[unit]
    return f"{shown:.3f} {unit}" if shown < 10 else f"{shown:.1f} {unit}"

"""Numbers, lists and tables as the commands of the plugin print them."""

from __future__ import annotations

from collections.abc import Sequence


def size_text(size: int) -> str:
    """Bytes as people write them."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >> shift:
            return f"{size / (1 << shift):.1f} {unit}"
    return f"{size} B"


def some(names: Sequence[str], most: int = 6) -> str:
    """The first of some names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def columns(rows: Sequence[Sequence[str]], names: int = 1) -> list[str]:
    """A line a row, in columns with two blanks between them: the first `names` to the left, numbers to the right."""
    widths = [max(len(row[column]) for row in rows if row) for column in range(len(rows[0]))] if rows else []
    return [
        "  ".join(
            cell.ljust(width) if column < names else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=False))
        ).rstrip()
        for row in rows
    ]


def printable(text: str) -> str:
    """A text that may hold bytes of no encoding, as sources do: those are shown as unknown characters."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

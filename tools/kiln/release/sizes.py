"""How large what is in a release is: a table for people, and the budgets that kernels.yaml sets for targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kiln.errors import ReleaseError
from kiln.manifest.model import Budget
from kiln.packaging.record import Record
from kiln.release.documents import Entry
from kiln.release.names import DOCUMENTS
from kiln.release.plan import ReleasePlan


def check_budgets(records: Iterable[Record], budgets: Mapping[str, Budget]) -> None:
    """Raise ReleaseError where the images of a target are larger together than kernels.yaml allows."""
    sizes = _by_target(records)
    broken = {
        target: (sum(sizes[target]), budget)
        for target, budget in budgets.items()
        if target in sizes and sum(sizes[target]) > budget.most
    }
    if broken:
        first = next(iter(broken.values()))[1]
        raise ReleaseError(
            f"the images for {', '.join(broken)} are larger than {first.name} allows"
            if len(broken) == 1
            else f"the images for {', '.join(broken)} are larger than kernels.yaml allows",
            where=first.position,
            expected="; ".join(f"{target}: at most {budget.most:,} bytes" for target, (_, budget) in broken.items()),
            actual="; ".join(
                f"{target}: {size:,} bytes in {len(sizes[target])} images" for target, (size, _) in broken.items()
            ),
            remedy="drop variants, or raise the budget; `doit size --by variant` shows the largest",
        )


def size_table(plan: ReleasePlan, records: Sequence[Record], entries: Sequence[Entry], tar: int) -> str:
    """Lines for people, ending with a newline: the images by target, then all by what it is; sizes are bytes."""
    names = plan.names
    rows = [["target", "images", "bytes", "largest", "budget", "left"]]
    sizes = _by_target(records)
    for target in plan.targets:
        own = sizes.get(target, [])
        budget = plan.budgets.get(target)
        left = "-" if budget is None else f"{budget.most - sum(own):,}"
        most = "-" if budget is None else f"{budget.most:,}"
        rows.append([target, str(len(own)), f"{sum(own):,}", f"{max(own, default=0):,}", most, left])
    every = [size for own in sizes.values() for size in own]
    rows.append(["all", str(len(every)), f"{sum(every):,}", f"{max(every, default=0):,}", "", ""])
    parts: dict[str, list[int]] = {}
    for entry in entries:
        parts.setdefault(_part(entry.path), []).append(entry.size)
    held = [["part", "files", "bytes"]]
    held += [[part, str(len(own)), f"{sum(own):,}"] for part, own in sorted(parts.items())]
    held.append(["all", str(len(entries)), f"{sum(entry.size for entry in entries):,}"])
    held.append(["as a tar", "1", f"{tar:,}"])
    return "\n".join([names.stem, "", *_columns(rows), "", *_columns(held)]) + "\n"


def _by_target(records: Iterable[Record]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for record in records:
        found.setdefault(record.image.target, []).append(record.facts.size)
    return found


def _part(path: str) -> str:
    """What people look for by a name: a folder, an archive, or all documents."""
    if path in DOCUMENTS:
        return "documents"
    if path.endswith(".a"):
        return path
    return f"{path.partition('/')[0]}/"


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]

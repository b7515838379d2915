"""What `doit size --crate` prints of the Rust crate: its size when Cargo packs it, by target, and how to split it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from kiln.doit_plugin.reporting.wording import columns, size_text
from kiln.manifest.model import Manifest
from kiln.packaging.crate_parts import Part, split

SCHEMA = 1
"""version of what --json prints"""


def crate_as_json(manifest: Manifest, parts: Sequence[Part], limit: int) -> str:
    """Sizes in bytes, ending with a newline; the target of the sources is null."""
    packed = sum(part.packed for part in parts)
    shown = {
        "library": manifest.library,
        "version": manifest.library_version,
        "size": sum(part.size for part in parts),
        "packed": packed,
        "limit": limit,
        "parts": [
            {"target": part.target, "files": part.files, "size": part.size, "packed": part.packed} for part in parts
        ],
        "split": [[part.target for part in crate] for crate in split(parts, limit)] if packed > limit else None,
    }
    return json.dumps({"schema": SCHEMA, "crate": shown}, indent=1) + "\n"


def crate_as_table(manifest: Manifest, parts: Sequence[Part], limit: int) -> str:
    """Lines for people: a table, what it comes to, and what to do where that is too much."""
    rows = [["part", "files", "size", "packed"]]
    rows += [_row(part.target or "sources", [part]) for part in parts]
    rows += [[], _row("all", parts)]
    packed = sum(part.packed for part in parts)
    name, takes = f"{manifest.library} {manifest.library_version}", f"Cargo's default registry takes {size_text(limit)}"
    if packed <= limit:
        return _lines([*columns(rows), "", f"{name} can be published: {takes}"])
    advice = [
        f"{name} is too large to be published: {takes}; as a path, from Git or in a registry of your own it is none",
        "libraries for some of the targets, each with a name of its own (`library` in kernels.yaml):",
    ]
    sources = sum(part.packed for part in parts if part.target is None)
    for crate in split(parts, limit):
        targets = ",".join(part.target or "" for part in crate)
        size = sources + sum(part.packed for part in crate)
        line = f"    doit --targets {targets} --build-dir DIR crate    {size_text(size)} packed"
        advice.append(line if size <= limit else f"{line}, too large still: divide its kernels")
    return _lines([*columns(rows), "", *advice])


def _row(name: str, parts: Sequence[Part]) -> list[str]:
    sizes = (sum(part.size for part in parts), sum(part.packed for part in parts))
    return [name, str(sum(part.files for part in parts)), *map(size_text, sizes)]


def _lines(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"

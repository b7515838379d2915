"""What only follows from differences that are told: digests and names in the documents of a release."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from kiln.release.names import BOM, BUILDINFO, MANIFEST, SUMS


@dataclass(kw_only=True)
class Told:
    """What has been told, and so explains what follows from it."""

    files: set[str] = field(default_factory=set)
    tools: set[str] = field(default_factory=set)
    packages: set[str] = field(default_factory=set)
    sources: set[str] = field(default_factory=set)
    lone: set[str] = field(default_factory=set)
    """what only one of the two has, by its name in an SBOM: `file:lib/x.a`, `tool:ar`, `package:jinja2`"""
    kiln: bool = False
    machine: bool = False
    lock: bool = False


def unexplained(path: str, mine: bytes, other: bytes, told: Told) -> tuple[bytes, bytes] | None:
    """The two versions of a document without what follows from what is told; None where nothing is left.

    A document that cannot be read is left as it is.
    """
    if path == SUMS:
        lines = {_name_in_sums(line): line for line in mine.splitlines(keepends=True)}
        names = [_name_in_sums(line) for line in other.splitlines(keepends=True)]
        alone = {name for name in told.files if f"file:{name}" in told.lone}
        # With the lines that are told as they are in the other one, so that the numbers of lines stay.
        sums = b"".join(line for name, line in lines.items() if name not in alone)
        other_sums = b"".join(
            lines[name] if name in told.files and name in lines else line
            for name, line in zip(names, other.splitlines(keepends=True), strict=True)
            if name not in alone
        )
        return None if sums == other_sums else (sums, other_sums)
    try:
        documents = [json.loads(mine), json.loads(other)]
        for data in documents:
            _EXPLAIN[path](data, told)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return mine, other
    if documents[0] == documents[1]:
        same_text = json.loads(mine) == json.loads(other)
        return (mine, other) if same_text else None
    texts = [json.dumps(data, indent=1).encode() for data in documents]
    return texts[0], texts[1]


def _name_in_sums(line: bytes) -> str:
    return line.rstrip(b"\r\n").partition(b"  ")[2].decode("utf-8", "replace")


def _explain_manifest(data: Any, told: Told) -> None:
    data["files"] = _stubs(data["files"], "path", {f"file:{path}" for path in told.files}, told.lone, "file:")
    data["records"] = [{"id": record["id"]} if record["file"] in told.files else record for record in data["records"]]


def _explain_buildinfo(data: Any, told: Told) -> None:
    data["tools"] = _stubs(data["tools"], "name", {f"tool:{name}" for name in told.tools}, told.lone, "tool:")
    data["packages"] = {name: each for name, each in data["packages"].items() if name not in told.packages}
    if told.kiln:
        del data["kiln"]
    if told.machine:
        del data["python"], data["machine"]
    if told.lock:
        del data["locked"]


def _explain_bom(data: Any, told: Told) -> None:
    gone = {f"tool:{name}" for name in told.tools} | {f"package:{name}" for name in told.packages}
    gone |= {f"file:{name}" for name in told.files}
    data["components"] = _stubs(data["components"], "bom-ref", gone, told.lone, "")
    data["dependencies"] = [
        {**each, "dependsOn": [name for name in each.get("dependsOn", ()) if name not in told.lone]}
        for each in data["dependencies"]
        if each["ref"] not in told.lone
    ]
    if told.kiln:
        del data["metadata"]["tools"]
    if gone or told.kiln:
        del data["serialNumber"]


def _stubs(entries: Iterable[Any], key: str, gone: set[str], lone: set[str], prefix: str) -> list[Any]:
    """The entries that both have, in their places, and of those that are told no more than their names."""
    return [
        {key: entry[key]} if f"{prefix}{entry[key]}" in gone else entry
        for entry in entries
        if f"{prefix}{entry[key]}" not in lone
    ]


_EXPLAIN: dict[str, Callable[[Any, Told], None]] = {
    MANIFEST: _explain_manifest,
    BUILDINFO: _explain_buildinfo,
    BOM: _explain_bom,
}
"""document -> what takes out of it whatever follows from what is told"""

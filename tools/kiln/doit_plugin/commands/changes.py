"""Inputs of steps in the words of `doit explain`: what each is called, and what of it changed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from kiln.digests import is_digest
from kiln.doit_plugin.reporting.wording import columns, some
from kiln.doit_plugin.tasks import shown
from kiln.engine.explain import Input
from kiln.engine.step import Text

_CONTEXT = 2
"""unchanged lines that a diff shows around what changed"""
_LINES = 40
"""of a diff that are shown; --json has all"""
_NAMES = 8
"""files or images of a list that are named"""
_DIGEST = re.compile(r"[0-9a-f]{12}|")
"""a value of a list that tells people nothing"""

_TITLES = {
    "closure": "the kernel's slice as a whole",
    "entry": "the kernel's symbol",
    "lines": "where the kernel's code stands",
    "line table": "whether there is a line table",
    "arguments": "the arguments",
    "target": "the target",
    "rule": "the rule in dodo.py",
    "kiln": "Kiln's own code",
    "triton": "Triton's own files",
    "triton nvidia": "Triton's files for NVIDIA",
    "triton amd": "Triton's files for AMD",
    "facts": "what was measured off images",
    "declarations": "what kernels.yaml and the sources declare",
    "images": "the list of images",
    "groups": "the list of groups",
    "parameters": "the parameters of images",
    "onnxruntime": "the kernels for ONNX Runtime",
    "image": "the image",
    "bundled": "the images in the fat binary",
    "bundles": "the fat binaries",
    "fat binaries": "which variants have a fat binary",
    "sources": "the sources of images with line tables",
    "objects": "the objects",
    "members": "the list of members",
    "headers": "headers of CUDA and the host compiler",
    "lookups": "where includes lead",
    "elftools": "the Python package elftools",
    "msgpack": "the Python package msgpack",
    "jinja2": "the Python package jinja2",
}


def title(name: str) -> str:
    """An input as people call it."""
    if name in _TITLES:
        return _TITLES[name]
    kind, _, rest = name.partition(" ")
    if kind == "closure" and rest:
        file, _, bound = rest.rpartition(":")
        return (
            f"{bound} of {file}" if file else rest if "/" in rest or rest.endswith(".py") else f"the answer to {rest}"
        )
    return rest if kind in ("source", "include") and rest else name


def changes_shown(changes: Sequence[Input]) -> list[Input]:
    """Without what only says again that a part of the kernel's code changed."""
    is_part = any(change.name.startswith("closure ") for change in changes)
    is_object = any(change.name == "objects" for change in changes)
    return [
        change
        for change in changes
        if not (is_part and change.name == "closure") and not (is_object and change.name == "members")
    ]


def change_lines(change: Input) -> Iterator[str]:
    """One input: a line with what it was and what it is, and below it a diff where there is text to compare."""
    name, old, new = title(change.name), change.old_text, change.new_text
    if change.old is None:
        yield f"{name} is new: {_new_value(change)}"
    elif change.new is None:
        yield f"{name} is no longer needed; it was {_old_value(change)}"
    elif change.name.startswith("include ") and not is_digest(change.new):
        yield f"{name} is gone, or no longer included"
    elif new is not None and new.is_list and old is not None:
        yield f"{name} changed: {_list_change(old, new.body)}"
    elif new is not None and old is not None and _is_source(new):
        yield f"{name} changed"
        yield from (f"  {line}" for line in _diff(old, new))
    elif new is not None and _is_source(new):
        yield f"{name} changed, {_short(change.old)} -> {_short(change.new)}: {_where(new)}; what it was is not kept"
    else:
        yield f"{name} changed: {_old_value(change)} -> {_new_value(change)}"


def _is_source(text: Text) -> bool:
    return text.place is not None or text.body.count("\n") > 1


def _old_value(change: Input) -> str:
    text = change.old_text
    return _value(change.old, text if text is not None and text.count("\n") == 1 else None)


def _new_value(change: Input) -> str:
    text = change.new_text
    if text is not None and text.place is not None:
        return f"{_place(text.place)}:{text.lines[0] if text.lines else 1}"
    return _value(change.new, text.body if text is not None and not _is_source(text) and not text.is_list else None)


def _value(value: str | None, line: str | None) -> str:
    """A value, or one line about a digest with it."""
    short = _short(value)
    return short if line is None else f"{line.strip()} ({short})"


def _short(value: str | None) -> str:
    if value is None:
        return "nothing"
    return value[:12] if is_digest(value) else value


def _place(place: str) -> str:
    return shown(Path(place)) if Path(place).is_absolute() else place


def _list_change(old: str, new: str) -> str:
    """What of two lists differs: names stand in front of a tab, digests or values behind it."""
    before, after = (dict(_entries(text)) for text in (old, new))
    changed = [
        f"{name} ({before[name]} -> {value})" if not _DIGEST.fullmatch(value) else name
        for name, value in after.items()
        if name in before and before[name] != value
    ]
    parts = [
        f"{word}{some(names, _NAMES)}"
        for word, names in (
            ("", changed),
            ("new: ", [name for name in after if name not in before]),
            ("gone: ", [name for name in before if name not in after]),
        )
        if names
    ]
    return "; ".join(parts) or "the order"


def _entries(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, _, value = line.partition("\t")
        yield name, value


def _diff(old: str, new: Text) -> Iterator[str]:
    """A unified diff; the heads of its hunks have the file and the line of the first change as they are now."""
    lines = list(difflib.unified_diff(old.splitlines(), new.body.splitlines(), n=_CONTEXT, lineterm=""))[2:]
    if not lines:
        yield "its text is what it was"
    numbers = list(new.lines) or list(range(1, new.body.count("\n") + 2))
    for index, line in enumerate(lines[:_LINES]):
        if line.startswith("@@") and new.place is not None:
            start = int(line.split("+")[1].split()[0].split(",")[0]) - 1
            same = next((at for at, text in enumerate(lines[index + 1 :]) if text[:1] != " "), 0)
            yield f"@@ {_place(new.place)}:{numbers[min(max(start, 0) + same, len(numbers) - 1)]} @@"
        else:
            yield line
    if len(lines) > _LINES:
        yield f"... and {len(lines) - _LINES} more lines of the diff"


def faults_shown(faults: Iterable[str], root: Path) -> Iterator[str]:
    """What is wrong with outputs, with paths as people write them."""
    for fault in faults:
        yield f"output {fault.replace(f'{root}/', f'{shown(root)}/')}"


def input_lines(inputs: Sequence[Input]) -> Iterator[str]:
    """A short table: what an input is called, its value, and where it is."""
    yield from columns([(title(each.name), _short(each.new), _where(each.new_text)) for each in inputs], names=3)


def _where(text: Text | None) -> str:
    if text is None:
        return ""
    if text.place is not None:
        return f"{_place(text.place)}:{text.lines[0] if text.lines else 1}"
    if text.is_list:
        count = text.body.count("\n")
        return f"{count} entries" if count != 1 else "1 entry"
    return text.body.strip() if text.body.count("\n") == 1 else ""

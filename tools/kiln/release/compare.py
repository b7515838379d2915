"""A release against the one that the sources make here: every file, what in it differs, and what it likely comes from.

Causes are told in the order of what they prove: a file that was changed since, another tool, another source, and what
the bytes themselves tell, such as a path in them. What only follows from a difference that is told, as a digest in
SHA256SUMS does, is not told again.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kiln.errors import ReleaseError
from kiln.release.checks import STATEMENT, Documents
from kiln.release.consequences import Told, unexplained
from kiln.release.differences import Difference, difference
from kiln.release.names import BOM, BUILDINFO, DOCUMENTS, MANIFEST, SUMS, level_of
from kiln.release.opened import Opened
from kiln.toolchain.identity import Tool

_DIFFOSCOPE = "diffoscope"
_DIFFOSCOPE_FILES = 3
"""of how many files diffoscope is asked"""
_DIFFOSCOPE_LINES = 30
_DIFFOSCOPE_SECONDS = 120
_CHANGED = "the file was changed after the release was made: SHA256SUMS in it has another digest"
_FULL = 25
"""files whose differences are told in full; of more, one cause is likely"""
_NAMED = 4
"""causes that are named one by one"""


class DifferenceError(ReleaseError):
    """A file, or what it was made with, is not what it is here."""

    def __init__(self, what: str, *, cause: str | None = None, details: Iterable[str] = (), **parts: Any) -> None:
        super().__init__(what, **parts)
        self.cause = cause
        self.details = tuple(details)

    def __str__(self) -> str:
        *lines, last = super().__str__().splitlines()
        more = [f"  likely cause: {self.cause}"] if self.cause else []
        return "\n".join([*lines, *more, *(f"  {line}" for line in self.details), last])


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two releases."""

    opened: Opened
    documents: Documents
    digests: Mapping[str, str]
    """path -> sha256"""


def compare(released: Side, rebuilt: Side) -> Iterator[ReleaseError]:
    """In what a release is not the one that was made here. Nothing is yielded where each byte is the same."""
    told = Told()
    if not released.documents.changed(BUILDINFO, released.digests.get(BUILDINFO, "")):
        # One that was changed since says nothing of what the release was made with.
        yield from _made_with(released.documents, rebuilt.documents, told)
    yield from _made_from(released, rebuilt, told)
    causes = _Causes(released.documents, rebuilt.documents, told)
    look = _Diffoscope()
    alike: dict[tuple[str | None, str | None], list[str]] = {}
    for path in sorted({*released.digests, *rebuilt.digests} - set(DOCUMENTS)):
        pair = rebuilt.digests.get(path), released.digests.get(path)
        if pair[0] != pair[1]:
            told.files.add(path)
            if None in pair:
                told.lone.add(f"file:{path}")
            # An image is in the crate, too.
            alike.setdefault(pair if None not in pair else (None, path), []).append(path)
    for number, (first, *others) in enumerate(alike.values()):
        if number == _FULL:
            yield _left(list(alike.values())[number:])
            break
        mine, other = rebuilt.digests.get(first), released.digests.get(first)
        if mine is None or other is None:
            yield _missing(first, is_released=other is not None)
            continue
        data = rebuilt.opened.files[first], released.opened.files[first]
        yield _file(first, *data, causes.of(first, other), look, others)
    for path in (MANIFEST, BUILDINFO, BOM, SUMS):
        if path in rebuilt.digests and path in released.digests and rebuilt.digests[path] != released.digests[path]:
            mine_data, other_data = rebuilt.opened.files[path], released.opened.files[path]
            left = unexplained(path, mine_data, other_data, told)
            if left is not None:
                yield _file(path, *left, causes.of(path, released.digests[path]), look)
            told.files.add(path)
        elif path not in released.digests or path not in rebuilt.digests:
            told.files.add(path)
            told.lone.add(f"file:{path}")
            yield _missing(path, is_released=path in released.digests)
    yield from _statement(released, rebuilt, told)


def _made_with(released: Documents, rebuilt: Documents, told: Told) -> Iterator[ReleaseError]:
    """What the two say that they were made with, where that differs."""
    mine, other = rebuilt.buildinfo, released.buildinfo
    if mine is None or other is None:
        return
    yield from _tools(mine.tools, other.tools, told)
    versions = {each.name: each.version for each in mine.packages}
    other_versions = {each.name: each.version for each in other.packages}
    for name in dict.fromkeys((*versions, *other_versions)):
        version, other_version = versions.get(name), other_versions.get(name)
        if version != other_version:
            told.packages.add(name)
            if version is None or other_version is None:
                told.lone.add(f"package:{name}")
            yield DifferenceError(
                f"the release was made with another version of the Python package {name}",
                where=f"{BUILDINFO}: packages.{name}",
                expected=f"{version or 'none'}, which is here",
                actual=other_version or "none",
                remedy=f"pip install {name}{f'=={other_version}' if other_version else ''}, and verify again",
            )
    said = (("version", mine.kiln_version, other.kiln_version), ("sha256", mine.kiln_sha256, other.kiln_sha256))
    key, value, other_value = next((each for each in said if each[1] != each[2]), ("", "", ""))
    if key:
        told.kiln = True
        yield DifferenceError(
            "the release was made with another Kiln" + (" of the same version" if key == "sha256" else ""),
            where=f"{BUILDINFO}: kiln.{key}",
            expected=f"{value}, which is here",
            actual=other_value,
            remedy=f"verify with the Kiln that made it: version {other.kiln_version}",
        )
    if (mine.python, mine.machine) != (other.python, other.machine):
        told.machine = True
        yield DifferenceError(
            "the release was made with another Python, or on another kind of machine",
            where=f"{BUILDINFO}: python, machine",
            expected=f"{mine.python} on {mine.machine}, as here",
            actual=f"{other.python} on {other.machine}",
            remedy="verify with that Python on such a machine; files of level device are the same nevertheless",
        )
    if mine.is_locked != other.is_locked:
        told.lock = True
        texts = {True: "with the tools of kiln.lock", False: "with whatever tools there were, by --unlocked"}
        yield DifferenceError(
            "the release was made with another word on kiln.lock",
            where=f"{BUILDINFO}: locked",
            expected=f"made {texts[mine.is_locked]}, as here",
            actual=f"made {texts[other.is_locked]}",
            remedy="see which tools differ, if any do; and ask for a release that is made without --unlocked",
        )


def _tools(mine: Iterable[Tool], others: Iterable[Tool], told: Told) -> Iterator[ReleaseError]:
    tools, other_tools = {tool.name: tool for tool in mine}, {tool.name: tool for tool in others}
    for name in dict.fromkeys((*tools, *other_tools)):
        tool, other = tools.get(name), other_tools.get(name)
        if tool is None or other is None:
            told.lone.add(f"tool:{name}")
            what = ""
        elif (tool.version, tool.sha256) == (other.version, other.sha256):
            # What else is said of it, the document that says it is told for.
            continue
        elif tool.sha256 == other.sha256:
            what = ": with the same bytes, of another version"
        else:
            what = ": of the same version, but with other bytes" if tool.version == other.version else ""
        told.tools.add(name)
        yield DifferenceError(
            f"the release was made with another {name}{what}",
            where=f"{BUILDINFO}: tools, {name}",
            expected=f"{_tool(tool)}, which is here" if tool is not None else "no such tool, as here",
            actual=f"{_tool(other)}, which made it" if other is not None else "no such tool",
            remedy="install the tool that the release names and verify again; where version and bytes do not go "
            "together, find out which of the two is the vendor's",
        )


def _made_from(released: Side, rebuilt: Side, told: Told) -> Iterator[ReleaseError]:
    """The sources of the two, where they differ."""
    mine, other = rebuilt.documents.statement, released.documents.statement
    if mine is None or other is None:
        return
    sources = {source.name: source.sha256 for source in mine.sources}
    other_sources = {source.name: source.sha256 for source in other.sources}
    for name in dict.fromkeys((*sources, *other_sources)):
        if sources.get(name) != other_sources.get(name):
            told.sources.add(name)
            yield DifferenceError(
                f"the release says that it was made from another {name}",
                where=f"{released.opened.beside(STATEMENT).name}: resolvedDependencies, {name}",
                expected=f"sha256 {sources[name]}, as here" if name in sources else "no such source, as here",
                actual=f"sha256 {other_sources[name]}" if name in other_sources else "no such source",
                remedy="check out the sources of that release; where these are they, its statement was changed",
            )


class _Causes:
    """Why a file may differ, by what the two releases say of themselves."""

    def __init__(self, released: Documents, rebuilt: Documents, told: Told) -> None:
        self._changed = released.changed
        self._told = told
        tools = [*(rebuilt.buildinfo.tools if rebuilt.buildinfo is not None else ())]
        self._tools = [tool for tool in tools if tool.name in told.tools]

    def of(self, path: str, sha256: str) -> list[str]:
        """In words, of a released file; none where nothing tells."""
        if self._changed(path, sha256):
            return [_CHANGED]
        found: list[str] = []
        level, target = level_of(path), _target_of(path)
        tools = [
            tool.name
            for tool in self._tools
            if tool.level == "device" or level == "host"
            if target is None or " for " not in tool.used_for or target in re.split(r"[, ]+", tool.used_for)
        ]
        if tools:
            found.append(f"another {_some(tools)}, as told above")
        if self._told.sources:
            found.append(f"another source, {_some(sorted(self._told.sources))}, as told above")
        if self._told.kiln:
            found.append("another Kiln, as told above")
        if self._told.packages and path in DOCUMENTS:
            found.append(f"another version of {_some(sorted(self._told.packages))}, as told above")
        return found


def _file(
    path: str,
    expected: bytes,
    actual: bytes,
    causes: list[str],
    look: Callable[[str, bytes, bytes], list[str]],
    alike: Iterable[str] = (),
) -> DifferenceError:
    """`alike` are files with the same bytes, on both sides."""
    found = difference(expected, actual, path)
    if found.hint is not None and _CHANGED not in causes:
        causes = [*causes, found.hint]
    return DifferenceError(
        "the release has other bytes than the sources make" + (f"; {found.others_text}" if found.others else ""),
        where=f"{path}, {found.place}" if found.place else path,
        expected=f"{found.expected}, as rebuilt",
        actual=f"{found.actual}, as released",
        cause="; or ".join(causes) or "none that shows: the same tools made other bytes, or somebody replaced the file",
        details=[*(f"the same in: {other}" for other in alike), *look(path, expected, actual)],
        remedy=_remedy(causes, found),
    )


def _remedy(causes: list[str], found: Difference) -> str:
    if _CHANGED in causes:
        return "do not use this release; get it again from who released it"
    if any("told above" in cause for cause in causes):
        return "see to that first, and verify again"
    if found.hint is not None:
        return "keep that out of what is built: see docs/release.md"
    return "see what made the file: its task is shown by `doit info`; and tell who released it"


def _left(groups: list[list[str]]) -> DifferenceError:
    """The files that are not looked into, by name."""
    paths = [path for group in groups for path in group]
    return DifferenceError(
        f"{len(paths)} more files are not what the sources make",
        where="the release",
        expected="the same bytes, or no file, as rebuilt",
        actual="\n    ".join(["other bytes, or a file, as released:", *paths]),
        remedy="see to the differences told above, and verify again",
    )


def _missing(path: str, *, is_released: bool) -> DifferenceError:
    return DifferenceError(
        "the release has a file that the sources do not make"
        if is_released
        else "the release lacks a file that the sources make",
        where=path,
        expected="no such file, as rebuilt" if is_released else "the file, as rebuilt",
        actual="a file" if is_released else "no file",
        remedy="do not use this release unless who released it can tell where that comes from",
    )


def _statement(released: Side, rebuilt: Side, told: Told) -> Iterator[ReleaseError]:
    """The statement, which has to be the same but for what is told."""
    paths = released.opened.beside(STATEMENT), rebuilt.opened.beside(STATEMENT)
    try:
        other, mine = (path.read_bytes() for path in paths)
        documents = [json.loads(mine), json.loads(other)]
    except (OSError, ValueError, RecursionError):
        # That there is none, or that it is none, is told where documents are read.
        return
    if mine == other:
        return
    with suppress(KeyError, TypeError, AttributeError):
        for data in documents:
            definition = data["predicate"]["buildDefinition"]
            gone = told.tools | told.packages | told.sources
            definition["resolvedDependencies"] = [
                each for each in definition["resolvedDependencies"] if each["name"] not in gone
            ]
            if told.files:
                # Then there is another tar, which is told by its files.
                del data["subject"]
            gone_keys = [("kilnSha256", told.kiln), ("python", told.machine), ("locked", told.lock)]
            for key, is_gone in gone_keys:
                if is_gone:
                    del definition["internalParameters"][key]
            if told.kiln:
                del data["predicate"]["runDetails"]["builder"]["version"]
    if documents[0] != documents[1] or json.loads(mine) == json.loads(other):
        texts = [json.dumps(data, indent=1).encode() for data in documents]
        if texts[0] == texts[1]:
            texts = [mine, other]
        found = difference(texts[0], texts[1], paths[0].name)
        yield DifferenceError(
            "the statement is not the one that the sources make",
            where=f"{paths[0]}, {found.place}",
            expected=f"{found.expected}, as rebuilt",
            actual=f"{found.actual}, as released",
            cause="somebody changed the statement",
            remedy="do not use this release; get it again from who released it",
        )


class _Diffoscope:
    """Asks diffoscope, where it is installed, of the first files that differ."""

    def __init__(self) -> None:
        self._program = shutil.which(_DIFFOSCOPE)
        self._asked = 0

    def __call__(self, path: str, expected: bytes, actual: bytes) -> list[str]:
        """The head of what it says, as lines."""
        if self._program is None or self._asked == _DIFFOSCOPE_FILES:
            return []
        self._asked += 1
        with TemporaryDirectory() as folder:
            names = [f"{side}/{Path(path).name}" for side in ("rebuilt", "released")]
            for name, data in zip(names, (expected, actual), strict=True):
                file = Path(folder, name)
                file.parent.mkdir()
                file.write_bytes(data)
            try:
                done = subprocess.run(
                    [self._program, "--text", "-", *names],
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    # Which of its own helpers it misses.
                    stderr=subprocess.DEVNULL,
                    timeout=_DIFFOSCOPE_SECONDS,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                return [f"diffoscope told nothing: {type(error).__name__}"]
        lines = done.stdout.decode("utf-8", "replace").splitlines()
        if not lines:
            return [f"diffoscope told nothing, and ended with {done.returncode}"]
        more = [f"... {len(lines) - _DIFFOSCOPE_LINES} lines more"] if len(lines) > _DIFFOSCOPE_LINES else []
        return ["diffoscope:", *(f"  {line}" for line in (*lines[:_DIFFOSCOPE_LINES], *more))]


def _target_of(path: str) -> str | None:
    """Whose image it is; None for what is no image."""
    parts = path.split("/")
    return parts[-2] if parts[-3:-2] == ["images"] else None


def _tool(tool: Tool) -> str:
    return f"{tool.version or 'a version that it does not tell'}, sha256 {tool.sha256}"


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")

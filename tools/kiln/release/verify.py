"""Verifies a release: against its own documents, its signature, this machine's names, and a rebuild of its sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from kiln.digests import digest_file
from kiln.errors import ReleaseError
from kiln.release.checks import ENVELOPE, SIZES, STATEMENT, Documents, check, read_documents
from kiln.release.compare import Side, compare
from kiln.release.leaks import find_leaks, signs_of_this_machine
from kiln.release.names import BOM, BUILDINFO, DOCUMENTS, MANIFEST, SUMS
from kiln.release.opened import Opened, open_release
from kiln.release.rebuild import Project, rebuild
from kiln.release.signing import check_payload, check_signature, signers_of


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be verified, and against what."""

    path: Path
    """the release's tar or folder"""
    public_key: Path | None = None
    """of who signed it; None: nobody's signature is asked for"""
    project: Project
    """what it was made from"""
    is_rebuilt: bool = True
    """whether that is built again, to compare"""


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What came out."""

    faults: tuple[ReleaseError, ...]
    lines: tuple[str, ...]
    """what was held against what, for people"""


def verify(wanted: Wanted, tell: Callable[[str], None]) -> Verified:
    """Verify a release; `tell` is told what takes long before it is done.

    Raises ReleaseError where there is no release, no key, or nothing to rebuild it from.
    """
    opened = open_release(wanted.path)
    digests = opened.files.digests()
    documents = read_documents(opened)
    faults = list(check(opened, documents, digests))
    lines = [f"{opened.path}: {len(opened.files):,} files, {opened.files.total:,} bytes", *_checked(documents)]
    for more, line in (
        _signature(opened, wanted.public_key),
        _twin(opened, digests),
        _leaks(opened, documents, wanted.project),
    ):
        faults += more
        lines += line
    if wanted.is_rebuilt:
        more, line = _rebuilt(Side(opened=opened, documents=documents, digests=digests), wanted.project, tell)
        faults += more
        lines += line
    return Verified(faults=tuple(faults), lines=tuple(lines))


_Result = tuple[list[ReleaseError], list[str]]


def _checked(documents: Documents) -> Iterator[str]:
    if documents.sums is not None:
        yield f"  held against {SUMS}, {MANIFEST} and {BOM}, in both directions: every file, image and record"
    if documents.buildinfo is not None:
        tools, packages = len(documents.buildinfo.tools), len(documents.buildinfo.packages)
        yield f"  held against one another: {tools} tools and {packages} packages of {BUILDINFO}, {BOM} and statement"
        if not documents.buildinfo.is_locked:
            yield f"  made by --unlocked, as {BUILDINFO} says: its compilers are not those that kiln.lock had"
    if documents.statement is not None:
        yield f"  held against the statement: the tar's sha256, {documents.statement.sha256}"


def _signature(opened: Opened, public_key: Path | None) -> _Result:
    envelope, statement = opened.beside(ENVELOPE), opened.beside(STATEMENT)
    if public_key is not None:
        try:
            data = statement.read_bytes()
        except OSError:
            # That it is missing is told; its signature is still looked at.
            data = b""
        line = [f"  held against {public_key}: {envelope.name}"] if envelope.is_file() else []
        return list(check_signature(envelope, data, public_key)), line
    if not envelope.is_file():
        return [], ["  not signed, as far as can be seen here"]
    data = envelope.read_bytes()
    signers = ", ".join(signers_of(data)) or "nobody that it names"
    stale = list(check_payload(envelope, data, statement))
    return stale, [f"  NOT held against a key: {envelope.name}, by {signers}; give --public-key PUB.pem for that"]


def _twin(opened: Opened, digests: Mapping[str, str]) -> _Result:
    """Of a tar that has its folder beside it, whether they hold the same."""
    folder = opened.path.with_name(opened.stem)
    if not opened.is_tar or not folder.is_dir():
        return [], []
    other = open_release(folder)
    others = other.files.digests()
    faults = list(other.faults)
    for path in sorted({*digests, *others}):
        if digests.get(path) != others.get(path):
            faults.append(
                ReleaseError(
                    "the folder beside the tar does not hold what is in the tar",
                    where=f"{folder}/{path}",
                    expected=f"sha256 {digests[path]}" if path in digests else "no such file",
                    actual=f"sha256 {others[path]}" if path in others else "no such file",
                    remedy="make the release again: doit release; or remove the folder",
                )
            )
    return faults, [f"  held against the folder beside it, {folder.name}/: every file of the tar"]


def _leaks(opened: Opened, documents: Documents, project: Project) -> _Result:
    sources = documents.statement.sources if documents.statement is not None else ()
    found = signs_of_this_machine(
        {"the project's folder": project.folder, "the build folder": project.build},
        [project.folder / source.name for source in sources],
        opened.files.total,
    )
    faults = list(find_leaks(opened.files, found.signs))
    for ending in (STATEMENT, SIZES):
        beside = opened.beside(ending)
        if beside.is_file():
            faults += find_leaks({beside.name: beside.read_bytes()}, found.signs)
    folders, names = (sum(sign.is_name is is_name for sign in found.signs) for is_name in (False, True))
    text = f"  looked for in every byte: {folders} folders of this machine, and {names} names of its user and host"
    return faults, [text, *(f"    {line}" for line in found.left_out)]


def _rebuilt(released: Side, project: Project, tell: Callable[[str], None]) -> _Result:
    manifest, buildinfo, stem = released.documents.manifest, released.documents.buildinfo, released.opened.stem
    with TemporaryDirectory(prefix="kiln-", ignore_cleanup_errors=True) as fresh:
        part = manifest.part if manifest is not None else ()
        is_locked = buildinfo is None or buildinfo.is_locked
        try:
            made = rebuild(project, Path(fresh), tell, part=part, is_locked=is_locked)
        except ReleaseError as error:
            return [error], []
        tar = made / f"{stem}.tar"
        if not tar.is_file():
            there = ", ".join(sorted(path.name for path in made.glob("*.tar"))) or "none"
            return [
                ReleaseError(
                    "the sources make a release of another name",
                    where=str(project.folder),
                    expected=f"{stem}.tar",
                    actual=there,
                    remedy="check out the sources of that version, or name the release that these make",
                )
            ], []
        again = open_release(tar)
        other = Side(opened=again, documents=read_documents(again), digests=again.files.digests())
        faults = list(compare(released, other))
        if not faults and released.opened.is_tar and digest_file(released.opened.path) != digest_file(tar):
            faults.append(
                ReleaseError(
                    "the tar is packed otherwise than the one that the sources make; the files in it are the same",
                    where=str(released.opened.path),
                    expected=f"sha256 {digest_file(tar)}",
                    actual=f"sha256 {digest_file(released.opened.path)}",
                    remedy="see which entry is told above, and get the tar again from who released it",
                )
            )
        count = len({*released.digests, *other.digests} - set(DOCUMENTS))
    return faults, [f"  held against a rebuild of the sources in {project.folder}: {count:,} files and the documents"]

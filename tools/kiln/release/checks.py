"""Whether a release is what its own documents say, each of them, in both directions, and all of them the same.

Nothing is built for that, and nothing but the release and what lies beside it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeVar

from kiln.digests import digest_file
from kiln.errors import ReleaseError
from kiln.release.bom import BillOfMaterials, read_bom
from kiln.release.buildinfo import BuildInfo, read_buildinfo
from kiln.release.documents import Package
from kiln.release.names import BOM, BUILDINFO, DOCUMENTS, LEVELS, MANIFEST, SUMS, Names, level_of
from kiln.release.opened import TAKE_ANEW, Opened
from kiln.release.provenance import ProvenanceStatement, read_statement
from kiln.release.records import ReleaseManifest, read_manifest
from kiln.release.sums import read_sums
from kiln.release.tar import write_tar

T = TypeVar("T")

STATEMENT = ".intoto.json"
ENVELOPE = ".dsse.json"
SIZES = ".sizes.txt"
"""ends of the names of what lies beside a release; `names.Names` has them whole"""

_LISTED_BY = {
    SUMS: frozenset({SUMS}),
    MANIFEST: frozenset({MANIFEST}),
    BOM: frozenset({BOM, SUMS}),
}
"""document -> the files of a release that it does not list; all others it does"""


@dataclass(frozen=True, kw_only=True)
class Documents:
    """What a release says of itself; None for what is not there or cannot be read."""

    sums: Mapping[str, str] | None
    manifest: ReleaseManifest | None
    bom: BillOfMaterials | None
    buildinfo: BuildInfo | None
    statement: ProvenanceStatement | None
    faults: tuple[ReleaseError, ...]
    """why"""

    def changed(self, path: str, sha256: str) -> bool:
        """Whether a file, by its path and its digest, is another than the release was made with."""
        return self.sums is not None and path in self.sums and self.sums[path] != sha256


class _Tool(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def sha256(self) -> str: ...
    @property
    def level(self) -> str: ...


def read_documents(opened: Opened) -> Documents:
    """All documents of a release that can be read."""
    faults: list[ReleaseError] = []

    def read(name: str, reader: Callable[[str], T]) -> T | None:
        if name not in opened.files:
            faults.append(_fault("a document of the release is missing", name, expected=f"{', '.join(DOCUMENTS)}"))
            return None
        return _read(opened.files[name], name, reader, faults)

    statement = opened.beside(STATEMENT)
    stated = None
    try:
        data = statement.read_bytes()
    except OSError as error:
        faults.append(
            ReleaseError(
                "the release has no statement: nothing says of what and with what it was made",
                where=str(statement),
                expected="the in-toto statement beside the release",
                actual=error.strerror,
                remedy="get it from who released it, with the tar",
            )
        )
    else:
        stated = _read(data, statement.name, lambda text: read_statement(text, statement.name), faults)
    return Documents(
        sums=read(SUMS, read_sums),
        manifest=read(MANIFEST, read_manifest),
        bom=read(BOM, read_bom),
        buildinfo=read(BUILDINFO, read_buildinfo),
        statement=stated,
        faults=tuple(faults),
    )


def check(opened: Opened, documents: Documents, digests: Mapping[str, str]) -> Iterator[ReleaseError]:
    """What is wrong with a release, by itself; `digests` are those of its files, by path."""
    faults = [*opened.faults, *documents.faults, *check_files(documents, digests)]
    if documents.manifest is not None:
        faults += check_records(documents.manifest, digests, opened.files.size)
        faults += check_names(opened.stem, documents)
    faults += check_tools(documents)
    if documents.bom is not None and not any(BOM in str(fault) for fault in faults):
        # What else stands there, such as what a tool was used for, stands nowhere else.
        faults += check_serial_number(documents.bom)
    if documents.statement is not None:
        faults += check_subject(opened, documents.statement)
    yield from faults


def check_files(documents: Documents, digests: Mapping[str, str]) -> Iterator[ReleaseError]:
    """Each file against each document that lists it, and each document against the files; the culprit is named once."""
    listed: dict[str, Mapping[str, str | None]] = {}
    if documents.sums is not None:
        listed[SUMS] = documents.sums
    if documents.manifest is not None:
        listed[MANIFEST] = {file.path: file.sha256 for file in documents.manifest.files}
    if documents.bom is not None:
        listed[BOM] = documents.bom.files
    for path in dict.fromkeys((*digests, *(path for each in listed.values() for path in each))):
        found = digests.get(path)
        naming = [name for name, each in listed.items() if path in each]
        silent = [name for name in listed if name not in naming and path not in _LISTED_BY[name]]
        if found is None:
            yield _fault("a file of the release is missing", path, expected=f"the file that {_and(naming)} name")
            continue
        if silent and not naming:
            yield _fault(
                "a file is in the release that no document names",
                path,
                expected="the files that were released, and no others",
                actual=f"sha256 {found}",
            )
        elif silent:
            yield _fault("a file of the release is left out of a document", _and(silent), expected=path)
        said = {name: listed[name][path] for name in naming if listed[name][path] is not None}
        wrong = {name: sha256 for name, sha256 in said.items() if sha256 != found}
        if wrong and len(wrong) == len(said):
            texts = dict.fromkeys(f"sha256 {sha256}" for sha256 in wrong.values())
            yield _fault(
                "the file was changed since it was released"
                if len(wrong) > 1
                else f"the file is not what {_and(list(wrong))} says: one of the two was changed since",
                path,
                expected=f"{' or '.join(texts)}, as {_and(list(wrong))} {'has' if len(wrong) == 1 else 'have'} it",
                actual=f"sha256 {found}",
            )
        elif wrong:
            right = [name for name in said if name not in wrong]
            yield _fault(
                f"there is another digest of {path} than that of the file, as it also stands in {_and(right)}",
                _and(list(wrong)),
                expected=f"sha256 {found}",
                actual=" or ".join(f"sha256 {sha256}" for sha256 in wrong.values()),
            )


def check_records(
    manifest: ReleaseManifest, digests: Mapping[str, str], size: Callable[[str], int]
) -> Iterator[ReleaseError]:
    """The records in manifest.json against the images, and its list of files against the levels that they have."""
    if dict(manifest.levels) != LEVELS:
        yield _fault(
            "manifest.json says of the levels of sameness something else than they are",
            f"{MANIFEST}: levels",
            expected=str(LEVELS),
            actual=str(dict(manifest.levels)),
        )
    for number, file in enumerate(manifest.files):
        level = level_of(file.path)
        is_whole = (file.sha256 is not None and file.size is not None) == (level == "device")
        if file.level != level or not is_whole:
            yield _fault(
                f"manifest.json has {file.path} at another level than it is",
                f"{MANIFEST}: files[{number}]",
                expected=f"level {level}, {'with' if level == 'device' else 'without'} size and sha256",
                actual=f"level {file.level}, size {file.size}, sha256 {file.sha256}",
            )
        elif file.size is not None and file.path in digests and file.size != size(file.path):
            yield _fault(
                f"manifest.json has another size of {file.path}",
                f"{MANIFEST}: files[{number}].size",
                expected=str(size(file.path)),
                actual=str(file.size),
            )
    images = {path for path in digests if path.startswith("images/")}
    listed = {file.path: file for file in manifest.files}
    seen: set[str] = set()
    for number, record in enumerate(manifest.records):
        where, path = f"{MANIFEST}: records[{number}]", record["file"]
        said: list[tuple[str, object, object]] = [
            ("id", f"{record['variant']}@{record['target']}", record["id"]),
            ("target", True, record["target"] in manifest.targets),
            ("file", True, path.startswith(f"images/{record['target']}/{record['variant']}.")),
        ]
        if path not in images:
            said.append(("file", "an image of the release", path))
        elif path in listed:
            # Whether the image is what the list says, is looked at with the other files.
            said += [("sha256", listed[path].sha256, record["sha256"]), ("size", listed[path].size, record["size"])]
        if path in seen:
            said.append(("file", "an image that no other record has", path))
        seen.add(path)
        for key, expected, actual in said:
            if expected != actual:
                yield _fault(
                    f"the record of {record['id']} is not that of its image",
                    f"{where}.{key}",
                    expected=str(expected) if expected is not True else f"one that goes with {record['id']}",
                    actual=str(actual) if expected is not True else str(record[key]),
                )
    for path in sorted(images - seen):
        yield _fault("an image has no record", path, expected=f"a record in {MANIFEST}")


def check_names(stem: str, documents: Documents) -> Iterator[ReleaseError]:
    """Library, version, targets and host: all documents have to say what manifest.json says."""
    manifest = documents.manifest
    assert manifest is not None
    name = Names(library=manifest.library, version=manifest.version, part=manifest.part).stem
    said: list[tuple[str, str, object, object]] = [(stem, MANIFEST, name, stem)]
    if documents.bom is not None:
        said += [
            (f"{BOM}: metadata.component.name", MANIFEST, manifest.library, documents.bom.library),
            (f"{BOM}: metadata.component.version", MANIFEST, manifest.version, documents.bom.version),
        ]
    statement = documents.statement
    if statement is not None:
        for key in ("library", "version", "host", "part", "targets"):
            value = getattr(manifest, key)
            where = f"{stem}{STATEMENT}: externalParameters.{key}"
            said.append(
                (where, MANIFEST, list(value) if isinstance(value, tuple) else value, statement.parameters[key])
            )
        if documents.buildinfo is not None:
            where = f"{stem}{STATEMENT}: runDetails.builder.version"
            said.append((where, BUILDINFO, documents.buildinfo.kiln_version, statement.kiln_version))
    for where, document, value, other in said:
        if value != other:
            yield _fault(f"it is not what {document} says", where, expected=str(value), actual=str(other))


def check_tools(documents: Documents) -> Iterator[ReleaseError]:
    """The tools and the Python packages: buildinfo.json, SBOM and statement have to name the same."""
    if documents.buildinfo is None:
        return
    others: list[tuple[str, Sequence[_Tool], Sequence[Package]]] = []
    if documents.bom is not None:
        others.append((BOM, documents.bom.tools, documents.bom.packages))
    if documents.statement is not None:
        others.append(("the statement", documents.statement.tools, documents.statement.packages))
    tools = {tool.name: _tool_text(tool) for tool in documents.buildinfo.tools}
    packages = {package.name: package.version for package in documents.buildinfo.packages}
    for name, other_tools, other_packages in others:
        yield from _same(name, "tool", tools, [(tool.name, _tool_text(tool)) for tool in other_tools])
        yield from _same(name, "package", packages, [(each.name, each.version) for each in other_packages])


def check_serial_number(bom: BillOfMaterials) -> Iterator[ReleaseError]:
    """The serial number of the SBOM, which follows from all else in it."""
    if bom.serial_number != bom.serial_of_contents:
        yield _fault(
            "the SBOM was edited: its serial number is that of another",
            f"{BOM}: serialNumber",
            expected=bom.serial_of_contents,
            actual=bom.serial_number,
        )


def check_subject(opened: Opened, statement: ProvenanceStatement) -> Iterator[ReleaseError]:
    """The tar against the statement; of a folder, the tar that it makes."""
    if opened.is_tar:
        digest, what = digest_file(opened.path), "the tar is not the one that the statement is of"
    else:
        what = "the folder is not what was packed into the tar that the statement is of"
        try:
            with TemporaryDirectory() as scratch:
                again = Path(scratch, "tar")
                write_tar(opened.path, opened.stem, again)
                digest = digest_file(again)
        except ReleaseError:
            # Of what cannot be packed it is told already.
            return
    name = f"{opened.stem}.tar"
    if (statement.subject, statement.sha256) != (name, digest):
        yield _fault(
            what,
            str(opened.path),
            expected=f"{statement.subject} with sha256 {statement.sha256}, as {opened.beside(STATEMENT).name} has it",
            actual=f"{name} with sha256 {digest}",
        )


def _same(
    document: str, kind: str, expected: Mapping[str, str], found: Iterable[tuple[str, str]]
) -> Iterator[ReleaseError]:
    actual: dict[str, str] = {}
    for name, text in found:
        if name in actual:
            yield _fault(f"{document} names a {kind} twice: {name}", document)
        actual[name] = text
    for name in dict.fromkeys((*expected, *actual)):
        if expected.get(name) != actual.get(name):
            yield _fault(
                f"{document} and {BUILDINFO} do not name the same {kind} {name}",
                document,
                expected=expected.get(name, "none"),
                actual=actual.get(name, "none"),
            )


def _tool_text(tool: _Tool) -> str:
    return f"version {tool.version or 'unknown'}, sha256 {tool.sha256}, level {tool.level}"


def _read(data: bytes, name: str, reader: Callable[[str], T], faults: list[ReleaseError]) -> T | None:
    try:
        return reader(data.decode())
    except UnicodeDecodeError as error:
        faults.append(_fault("a document of the release is no text", name, expected="UTF-8", actual=str(error)))
    except ReleaseError as error:
        faults.append(error)
    return None


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _fault(what: str, where: str, **parts: Any) -> ReleaseError:
    return ReleaseError(what, where=where, remedy=TAKE_ANEW, **parts)

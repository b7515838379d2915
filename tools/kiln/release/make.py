"""Makes a release of what is built: copies, held against their digests, then the documents about them, then the tar."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from kiln.digests import digest_file
from kiln.errors import ReleaseError, os_failure
from kiln.packaging.record import Record, read_records
from kiln.release.bom import write_bom
from kiln.release.buildinfo import packages, write_buildinfo
from kiln.release.documents import Entry
from kiln.release.names import BOM, BUILDINFO, DOCUMENTS, FOLDER, MANIFEST, SUMS, check_paths, level_of
from kiln.release.plan import Released, ReleasePlan
from kiln.release.provenance import write_statement
from kiln.release.records import image_file, write_manifest
from kiln.release.sizes import check_budgets, size_table
from kiln.release.sums import write_sums
from kiln.release.tar import write_tar
from kiln.stages import timed

_BLOCK = 1 << 20


def make(plan: ReleasePlan, staging: Path) -> None:
    """Write the release below `staging`, under the names that `plan.names` has.

    It is there as a whole or not at all. Raises ReleaseError for a file that is missing or is not what its step made,
    for an image that is not what its record says, and for images that are larger than their budget.
    """
    names = plan.names
    check_paths([*(file.path for file in plan.files), *DOCUMENTS])
    used = packages()
    records = _records(plan)
    check_budgets(records, plan.budgets)
    with TemporaryDirectory(dir=staging) as scratch:
        made = Path(scratch) / FOLDER
        folder = Path(scratch) / names.folder
        folder.mkdir(parents=True)
        with timed("copy"):
            entries = [_copy(file, folder) for file in sorted(plan.files, key=lambda file: file.path)]
        _check_images(records, entries)
        with timed("documents"):
            entries.append(_document(folder, MANIFEST, write_manifest(plan, records, entries)))
            entries.append(_document(folder, BUILDINFO, write_buildinfo(plan, used)))
            entries.append(_document(folder, BOM, write_bom(plan, entries, used)))
            entries.append(_document(folder, SUMS, write_sums(entries)))
        with timed("tar"):
            tar = Path(scratch) / names.tar
            write_tar(folder, names.stem, tar)
        statement = write_statement(plan, digest_file(tar), used)
        (Path(scratch) / names.statement).write_text(statement, "utf-8")
        table = size_table(plan, records, entries, tar.stat().st_size)
        (Path(scratch) / names.sizes).write_text(table, "utf-8")
        made.rename(staging / FOLDER)


def _records(plan: ReleasePlan) -> list[Record]:
    """Every image with its facts. Raises ReleaseError where they cannot be read."""
    found = []
    for declared in plan.declared:
        try:
            found += read_records([declared])
        except (OSError, ValueError) as error:
            raise ReleaseError(
                f"the facts of {declared.image.id} cannot be read: {error}",
                where=str(declared.facts),
                remedy="delete the file and build again: it is made anew",
            ) from error
    return found


def _copy(file: Released, folder: Path) -> Entry:
    """Put a file into the release. Raises ReleaseError unless it is what its step published."""
    target = folder / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    try:
        with file.file.open("rb") as source, target.open("xb") as output:
            while block := source.read(_BLOCK):
                digest.update(block)
                output.write(block)
                size += len(block)
    except FileNotFoundError as error:
        raise ReleaseError(
            f"a file is missing that {file.step} made",
            where=str(file.file),
            expected=f"what is released as {file.path}",
            remedy="build again: it is made anew",
        ) from error
    except OSError as error:
        raise os_failure(f"what {file.step} made cannot be copied into the release", error, file.file) from error
    if digest.hexdigest() != file.sha256:
        raise ReleaseError(
            f"a file is not what {file.step} made",
            where=str(file.file),
            expected=f"sha256 {file.sha256}",
            actual=f"sha256 {digest.hexdigest()}",
            remedy="delete the file and build again: it is made anew",
        )
    return Entry(path=file.path, level=file.level, sha256=file.sha256, size=size)


def _check_images(records: Sequence[Record], entries: Sequence[Entry]) -> None:
    """Raise ReleaseError unless each record has its image in the release, and each image its record."""
    released = {entry.path: entry for entry in entries if entry.path.startswith("images/")}
    for record in records:
        entry = released.pop(image_file(record), None)
        if entry is None or entry.sha256 != record.facts.sha256 or entry.size != record.facts.size:
            raise ReleaseError(
                f"the image {record.image.id} is not what its facts were measured off"
                if entry is not None
                else f"the image {record.image.id} is not among what is released",
                where=image_file(record),
                expected=f"sha256 {record.facts.sha256}, {record.facts.size} bytes",
                actual=f"sha256 {entry.sha256}, {entry.size} bytes" if entry is not None else "no file",
                remedy="delete image and facts, and build again: they are made anew",
            )
    for path in released:
        raise ReleaseError(
            "an image would be released that no record describes",
            where=path,
            remedy="release the images that are declared, and no others",
        )


def _document(folder: Path, name: str, text: str) -> Entry:
    data = text.encode()
    (folder / name).write_bytes(data)
    return Entry(path=name, level=level_of(name), sha256=hashlib.sha256(data).hexdigest(), size=len(data))

"""Changes to a release that is made, as somebody would make them who wants nobody to see, or as a disk does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kiln.digests import digest_file
from kiln.errors import ReleaseError
from kiln.release.bom import read_bom
from kiln.release.checks import check, read_documents
from kiln.release.compare import Side
from kiln.release.documents import Entry
from kiln.release.names import SUMS, level_of
from kiln.release.opened import open_release
from kiln.release.sums import write_sums
from kiln.release.tar import write_tar

STEM = "scratch-1.2.0"


def flip(path: Path, offset: int, bit: int = 1) -> None:
    """Change one byte of a file."""
    data = bytearray(path.read_bytes())
    data[offset] ^= bit
    path.write_bytes(data)


def edit_json(path: Path, change: Callable[[Any], None]) -> None:
    """Change a document, and write it as Kiln does."""
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data, indent=1) + "\n")


def sum_up(release: Path) -> None:
    """Write SHA256SUMS anew, as anybody can."""
    folder = release / STEM
    paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    entries = [
        Entry(path=path, level=level_of(path), sha256=digest_file(folder / path), size=(folder / path).stat().st_size)
        for path in paths
        if path != SUMS
    ]
    (folder / SUMS).write_text(write_sums(entries))


def pack(release: Path) -> None:
    """Write the tar anew, and the statement's digest of it."""
    tar = release / f"{STEM}.tar"
    tar.unlink()
    write_tar(release / STEM, STEM, tar)
    digest = digest_file(tar)
    edit_json(release / f"{STEM}.intoto.json", lambda data: data["subject"][0]["digest"].update(sha256=digest))


def side(path: Path) -> Side:
    """A release to compare."""
    opened = open_release(path)
    return Side(opened=opened, documents=read_documents(opened), digests=opened.files.digests())


def faults_of(path: Path) -> list[ReleaseError]:
    """What a release, a tar or a folder, is found to be wrong in by itself."""
    read = side(path)
    return list(check(read.opened, read.documents, read.digests))


def told(faults: list[ReleaseError]) -> list[str]:
    """Each as `where: what`."""
    return [str(fault).splitlines()[0] for fault in faults]


def cover_up(release: Path) -> None:
    """Write all documents anew around changed files, so that the release agrees with itself again."""
    folder = release / STEM

    def manifest(data: Any) -> None:
        for file in data["files"]:
            if file["level"] == "device":
                file.update(size=(folder / file["path"]).stat().st_size, sha256=digest_file(folder / file["path"]))
        for record in data["records"]:
            image = folder / record["file"]
            record.update(size=image.stat().st_size, sha256=digest_file(image))

    def bom(data: Any) -> None:
        for each in data["components"]:
            if each["type"] == "file":
                each["hashes"][0].update(content=digest_file(folder / each["name"]))

    edit_json(folder / "manifest.json", manifest)
    edit_json(folder / "bom.cdx.json", bom)
    serial = read_bom((folder / "bom.cdx.json").read_text("utf-8")).serial_of_contents
    edit_json(folder / "bom.cdx.json", lambda data: data.update(serialNumber=serial))
    sum_up(release)
    pack(release)

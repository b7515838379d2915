"""A release is held against its own documents, and these against one another: each fault is found, and named."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from release_changes import STEM, edit_json, faults_of, flip, pack, sum_up, told

from kiln.digests import digest_file
from kiln.errors import ReleaseError
from kiln.release.names import level_of
from kiln.release.opened import open_release

KINDS = [
    "images/sm_80/twice_fp32_128.cubin",
    "images/gfx942/twice_fp32_128.hsaco",
    "bundles/scale_fp32_128.fatbin",
    "lib/libscratch.a",
    "lib/libscratch_gfx942.a",
    "lib/cmake/scratch/scratchConfig.cmake",
    "lib/pkgconfig/scratch.pc",
    "include/scratch/scratch.h",
    "include/scratch/scratch.hpp",
    "share/scratch/src/launch.c",
    "rust/scratch/Cargo.toml",
    "rust/scratch/src/lib.rs",
    "onnxruntime/triton_kernel_infos.a",
    "manifest.json",
    "bom.cdx.json",
    "buildinfo.json",
    "SHA256SUMS",
]
"""of each kind of file one"""


def test_a_release_as_it_was_made_has_no_fault(released: Path) -> None:
    assert faults_of(released / f"{STEM}.tar") == []
    assert faults_of(released / STEM) == []


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_one_byte_of_a_file_is_found(released: Path, name: str, where: str) -> None:
    path = released / STEM / name
    flip(path, {"first": 0, "middle": path.stat().st_size // 2, "last": path.stat().st_size - 1}[where])
    lines = told(faults_of(released / STEM))
    assert any(line.startswith(f"{name}: ") or " SHA256SUMS " in line for line in lines), lines
    if level_of(name) == "device":
        assert f"{name}: the file was changed since it was released" in lines
    assert f"{released / STEM}: the folder is not what was packed into the tar that the statement is of" in lines


@pytest.mark.parametrize("name", KINDS)
def test_one_byte_of_a_file_in_the_tar_is_found(released: Path, name: str) -> None:
    tar = released / f"{STEM}.tar"
    with tarfile.open(tar) as opened:
        entry = opened.getmember(f"{STEM}/{name}")
    flip(tar, entry.offset_data + entry.size // 2)
    lines = told(faults_of(tar))
    assert any(name in line for line in lines)
    assert f"{tar}: the tar is not the one that the statement is of" in lines


def test_every_byte_around_the_files_of_the_tar_counts(released: Path) -> None:
    """Headers, padding and the end: whichever is changed, the entry is named that it belongs to."""
    tar = released / f"{STEM}.tar"
    whole = tar.read_bytes()
    with tarfile.open(tar) as opened:
        entry = opened.getmember(f"{STEM}/manifest.json")
        last = max(opened.getmembers(), key=lambda member: member.offset)
    behind = entry.offset_data + entry.size
    assert whole[behind] == 0
    # Of the header, bytes of the name's end, the mode, the time, the owner's name, and what has no use.
    for offset in (*(entry.offset + at for at in (90, 100, 136, 265, 501)), behind):
        flip(tar, offset)
        text = "\n".join(map(str, faults_of(tar)))
        assert "manifest.json" in text and "the tar is not the one that the statement is of" in text, offset
        tar.write_bytes(whole)
    flip(tar, len(whole) - 1)
    assert "something stands behind the last entry" in str(faults_of(tar)[0])
    tar.write_bytes(whole + b"\0" * 512)
    assert "has another length" in str(faults_of(tar)[0])
    assert last.offset < len(whole)


def test_an_entry_with_a_bad_checksum_hides_nothing(released: Path) -> None:
    """tar ends where a header does not add up, and says nothing; what comes then would not be missed."""
    tar = released / f"{STEM}.tar"
    with tarfile.open(tar) as opened:
        entry = opened.getmember(f"{STEM}/lib/libscratch.a")
    flip(tar, entry.offset + 150)
    assert any("lib" in line or "tar" in line for line in told(faults_of(tar)))
    assert faults_of(tar)


def repacked(tar: Path, change: Callable[[tarfile.TarFile, tarfile.TarInfo, bytes], None]) -> None:
    """Write a tar anew, each of its files by `change`."""
    with tarfile.open(tar) as opened:
        # A file has something to extract.
        held = [(entry, opened.extractfile(entry).read() if entry.isfile() else b"") for entry in opened]  # type: ignore[union-attr]
    with tarfile.open(tar, "w", format=tarfile.PAX_FORMAT) as output:
        for entry, data in held:
            change(output, entry, data)


def _plain(output: tarfile.TarFile, entry: tarfile.TarInfo, data: bytes) -> None:
    output.addfile(entry, io.BytesIO(data))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"mode": 0o755}, "mode"),
        ({"mtime": 1_700_000_000}, "time"),
        ({"uid": 1000}, "owner"),
        ({"uname": "mallory"}, "owner"),
        ({"gname": "staff"}, "group"),
        ({"type": tarfile.SYMTYPE, "linkname": "../x", "size": 0}, "neither a file nor a folder"),
        ({"name": f"{STEM}/../manifest.json"}, "leads out"),
        ({"name": "/etc/manifest.json"}, "leads out"),
        ({"name": "other/manifest.json"}, "leads out"),
        ({"name": f"{STEM}/zzz.json"}, "order"),
    ],
)
def test_an_entry_of_the_tar_is_not_as_it_should_be(released: Path, changes: dict[str, Any], text: str) -> None:
    tar = released / f"{STEM}.tar"

    def change(output: tarfile.TarFile, entry: tarfile.TarInfo, data: bytes) -> None:
        if entry.name.endswith("manifest.json"):
            for key, value in changes.items():
                setattr(entry, key, value)
        _plain(output, entry, data)

    repacked(tar, change)
    first = str(faults_of(tar)[0])
    assert text in first
    assert str(changes.get("name", "manifest.json")) in first or text == "order"
    assert not any("/etc" in name or ".." in name for name in open_release(tar).files)


def test_a_second_file_of_a_name_is_found(released: Path) -> None:
    """tar unpacks the later one, and who lists the first sees nothing."""
    tar = released / f"{STEM}.tar"

    def change(output: tarfile.TarFile, entry: tarfile.TarInfo, data: bytes) -> None:
        _plain(output, entry, data)
        if entry.name.endswith("manifest.json"):
            _plain(output, entry, data)

    repacked(tar, change)
    assert "manifest.json" in str(faults_of(tar)[0])


def test_a_tar_by_another_name_is_told(released: Path) -> None:
    tar = (released / f"{STEM}.tar").rename(released / "other-1.2.0.tar")
    assert f"{tar}: the tar is called otherwise than the folder in it" in told(faults_of(tar))


@pytest.mark.parametrize("data", [b"", b"no tar", b"\x1f\x8b compressed"])
def test_what_is_no_tar_is_told(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(data)
    with pytest.raises(ReleaseError, match="this is no tar"):
        open_release(path)


def test_no_release_is_told(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="there is no release"):
        open_release(tmp_path / "x.tar")


def test_an_added_file_is_found(released: Path) -> None:
    (released / STEM / "lib/extra.so").write_bytes(b"x")
    assert told(faults_of(released / STEM))[0] == "lib/extra.so: a file is in the release that no document names"
    sum_up(released)
    first = told(faults_of(released / STEM))[0]
    assert first == "manifest.json and bom.cdx.json: a file of the release is left out of a document"


def test_a_removed_file_is_found(released: Path) -> None:
    (released / STEM / "include/scratch/scratch.h").unlink()
    first = str(faults_of(released / STEM)[0])
    assert first.startswith("include/scratch/scratch.h: a file of the release is missing")
    assert "SHA256SUMS, manifest.json and bom.cdx.json" in first


def test_a_removed_image_is_missed_by_its_record_too(released: Path) -> None:
    (released / STEM / "images/sm_80/twice_fp32_128.cubin").unlink()
    lines = told(faults_of(released / STEM))
    assert "manifest.json: records[0].file: the record of twice_fp32_128@sm_80 is not that of its image" in lines


def test_a_link_in_a_folder_is_none_of_its_files(released: Path) -> None:
    header = released / STEM / "include/scratch/scratch.h"
    header.rename(released / "scratch.h")
    header.symlink_to(released / "scratch.h")
    lines = told(faults_of(released / STEM))
    assert lines[0].endswith("include/scratch/scratch.h: a release holds files and folders alone")
    assert "include/scratch/scratch.h: a file of the release is missing" in lines


@pytest.mark.parametrize("name", ["manifest.json", "bom.cdx.json", "buildinfo.json", "SHA256SUMS"])
def test_a_removed_document_is_found(released: Path, name: str) -> None:
    (released / STEM / name).unlink()
    assert f"{name}: a document of the release is missing" in told(faults_of(released / STEM))


def component(data: Any, ref: str) -> Any:
    """A component of an SBOM."""
    return next(each for each in data["components"] if each["bom-ref"] == ref)


HEADER = "file:include/scratch/scratch.h"


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            lambda data: component(data, HEADER)["hashes"][0].update(content="0" * 64),
            "bom.cdx.json: there is another digest of include/scratch/scratch.h than that of the file, as it also "
            "stands in SHA256SUMS and manifest.json",
        ),
        (
            lambda data: data["components"].remove(component(data, HEADER)),
            "bom.cdx.json: a file of the release is left out of a document",
        ),
        (
            lambda data: data["components"].append({**component(data, HEADER), "bom-ref": "file:x.h", "name": "x.h"}),
            "x.h: a file of the release is missing",
        ),
        (
            lambda data: component(data, "tool:ptxas").update(version="1.0"),
            "bom.cdx.json: bom.cdx.json and buildinfo.json do not name the same tool ptxas",
        ),
        (
            lambda data: component(data, "tool:ptxas")["hashes"][0].update(content="0" * 64),
            "bom.cdx.json: bom.cdx.json and buildinfo.json do not name the same tool ptxas",
        ),
        (
            lambda data: data["components"].remove(component(data, "tool:ptxas")),
            "bom.cdx.json: bom.cdx.json and buildinfo.json do not name the same tool ptxas",
        ),
        (
            lambda data: component(data, "package:jinja2").update(version="0"),
            "bom.cdx.json: bom.cdx.json and buildinfo.json do not name the same package jinja2",
        ),
        (
            lambda data: data["metadata"]["component"].update(version="9"),
            "bom.cdx.json: metadata.component.version: it is not what manifest.json says",
        ),
        (
            lambda data: component(data, "tool:ptxas")["properties"].pop(),
            "bom.cdx.json: serialNumber: the SBOM was edited: its serial number is that of another",
        ),
        (
            lambda data: data["metadata"]["tools"]["components"][0].update(version="9"),
            "bom.cdx.json: serialNumber: the SBOM was edited: its serial number is that of another",
        ),
    ],
)
def test_an_edited_sbom_is_found(released: Path, change: Callable[[Any], None], line: str) -> None:
    """Also when sums, tar and statement are written anew around it."""
    edit_json(released / STEM / "bom.cdx.json", change)
    sum_up(released)
    pack(released)
    lines = told(faults_of(released / f"{STEM}.tar"))
    assert lines == [line]


def entry(data: Any, path: str) -> Any:
    """A file in manifest.json."""
    return next(each for each in data["files"] if each["path"] == path)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda data: data["records"][0].update(sha256="0" * 64), "manifest.json: records[0].sha256"),
        (lambda data: data["records"][0].update(size=1), "manifest.json: records[0].size"),
        (lambda data: data["records"][0].update(id="x@sm_80"), "manifest.json: records[0].id"),
        (lambda data: data["records"][0].update(file="images/sm_80/x.cubin"), "manifest.json: records[0].file"),
        (lambda data: data["records"].pop(0), "images/sm_80/twice_fp32_128.cubin: an image has no record"),
        (lambda data: data["records"].append(data["records"][0]), "manifest.json: records[3].file"),
        (lambda data: data["targets"].remove("gfx942"), "manifest.json: records[1].target"),
        (lambda data: entry(data, "lib/libscratch.a").update(level="device"), "manifest.json: files["),
        (lambda data: entry(data, "include/scratch/scratch.h").update(size=1), "manifest.json: files["),
        (lambda data: data["levels"].update(host="whatever"), "manifest.json: levels"),
        (lambda data: data.update(version="9.9"), f"{STEM}: it is not what manifest.json says"),
        (lambda data: data.update(host="aarch64-linux-gnu"), f"{STEM}.intoto.json: externalParameters.host"),
    ],
)
def test_an_edited_manifest_is_found(released: Path, change: Callable[[Any], None], line: str) -> None:
    folder = released / STEM
    edit_json(folder / "manifest.json", change)
    digest = digest_file(folder / "manifest.json")
    edit_json(
        folder / "bom.cdx.json",
        lambda data: component(data, "file:manifest.json")["hashes"][0].update(content=digest),
    )
    sum_up(released)
    pack(released)
    lines = told(faults_of(released / f"{STEM}.tar"))
    assert any(each.startswith(line) for each in lines), lines


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda data: data["subject"][0]["digest"].update(sha256="0" * 64), "the tar is not the one"),
        (lambda data: data["subject"][0].update(name="other.tar"), "the tar is not the one"),
        (lambda data: data.update(predicateType="https://example.org/x"), "is no in-toto Statement"),
        (lambda data: data.update(_type="https://example.org/x"), "is no in-toto Statement"),
        (lambda data: data.update(subject=[]), "is no in-toto Statement"),
        (
            lambda data: data["predicate"]["buildDefinition"]["externalParameters"].update(targets=["sm_80"]),
            f"{STEM}.intoto.json: externalParameters.targets: it is not what manifest.json says",
        ),
        (
            lambda data: data["predicate"]["buildDefinition"]["resolvedDependencies"].remove(dependency(data, "ptxas")),
            "the statement and buildinfo.json do not name the same tool ptxas",
        ),
        (
            lambda data: dependency(data, "cc")["digest"].update(sha256="0" * 64),
            "the statement and buildinfo.json do not name the same tool cc",
        ),
    ],
)
def test_a_tampered_statement_is_found(released: Path, change: Callable[[Any], None], line: str) -> None:
    edit_json(released / f"{STEM}.intoto.json", change)
    lines = told(faults_of(released / f"{STEM}.tar"))
    assert len(lines) == 1 and line in lines[0], lines


def dependency(data: Any, name: str) -> Any:
    """What a statement says was used."""
    return next(each for each in data["predicate"]["buildDefinition"]["resolvedDependencies"] if each["name"] == name)


def test_a_release_without_a_statement_is_told(released: Path) -> None:
    (released / f"{STEM}.intoto.json").unlink()
    (line,) = told(faults_of(released / f"{STEM}.tar"))
    assert line.startswith(f"{released / STEM}.intoto.json: the release has no statement")


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"a": ' * 2000, "\0", '{"schema": 99}'])
def test_documents_of_strangers_cost_a_fault_each_and_no_more(released: Path, text: str) -> None:
    for name in ("manifest.json", "bom.cdx.json", "buildinfo.json", "SHA256SUMS"):
        (released / STEM / name).write_text(text)
    (released / f"{STEM}.intoto.json").write_text(text)
    lines = told(faults_of(released / STEM))
    for name in ("manifest.json", "bom.cdx.json", "buildinfo.json", f"{STEM}.intoto.json"):
        assert any(line.startswith(name) for line in lines), (name, lines)


def test_what_json_says_is_what_is_edited(released: Path) -> None:
    """`edit_json` writes as Kiln does, so that the tests above change what they mean to change, and nothing else."""
    for name in ("manifest.json", "bom.cdx.json", "buildinfo.json"):
        path = released / STEM / name
        before = path.read_bytes()
        edit_json(path, lambda data: None)
        assert path.read_bytes() == before
        assert json.loads(before)

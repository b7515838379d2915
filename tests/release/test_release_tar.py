"""The tar of a release: the same bytes for the same files, and read back with distrust."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kiln.errors import KilnError, ReleaseError
from kiln.release.tar import Packed, read_tar, write_tar

LONG = "/".join(["a folder with a name of some length"] * 9) + "/file"
FILES = {"b/c": b"two", "b.c": b"one", "b/a/d": b"", "empty": b"", LONG: b"long" * 5000}


def write(folder: Path, files: dict[str, bytes] = FILES) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    write_tar(write(tmp_path / "lib-1"), "lib-1", tmp_path / "lib-1.tar")
    return tmp_path / "lib-1.tar"


def test_it_is_read_back(packed: Path, tmp_path: Path) -> None:
    found = read_tar(packed, tmp_path / "out")
    assert found == Packed(stem="lib-1", files=tuple(sorted(FILES)))
    assert {name: (tmp_path / "out" / name).read_bytes() for name in found.files} == FILES


def test_entries_are_sorted_and_say_nothing_of_who_packed_them(packed: Path) -> None:
    with tarfile.open(packed, "r:") as tar:
        entries = tar.getmembers()
    assert [entry.name for entry in entries] == sorted(entry.name for entry in entries)
    assert entries[0].name == "lib-1" and entries[0].isdir()
    for entry in entries:
        assert (entry.uid, entry.gid, entry.uname, entry.gname, entry.mtime) == (0, 0, "", "", 0)
        assert entry.mode == (0o755 if entry.isdir() else 0o644)
    assert {entry.name for entry in entries if entry.pax_headers} == {
        entry.name for entry in entries if len(entry.name) > 100
    }


def test_times_modes_and_order_of_files_do_not_matter(packed: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "other", dict(reversed(FILES.items())))
    for path in folder.rglob("*"):
        os.utime(path, (1, 2))
        path.chmod(0o711)
    write_tar(folder, "lib-1", tmp_path / "other.tar")
    assert (tmp_path / "other.tar").read_bytes() == packed.read_bytes()


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("empty"), os.mkfifo])
def test_what_is_no_file_is_not_packed(tmp_path: Path, make: Callable[[Path], object]) -> None:
    folder = write(tmp_path / "lib-1")
    make(folder / "other")
    with pytest.raises(ReleaseError, match="files and folders alone"):
        write_tar(folder, "lib-1", tmp_path / "lib-1.tar")


def changed(packed: Path, change: Callable[[tarfile.TarInfo], object]) -> Path:
    """The same tar written anew, with `change` made to the entry lib-1/empty."""
    output = packed.with_name("changed.tar")
    with tarfile.open(packed, "r:") as old, tarfile.open(output, "w:", format=tarfile.PAX_FORMAT) as new:
        for entry in old.getmembers():
            data = old.extractfile(entry)
            if entry.name == "lib-1/empty":
                change(entry)
            entry.pax_headers = {}
            new.addfile(entry, data)
    return output


def test_a_tar_that_is_written_anew_is_the_same(packed: Path) -> None:
    """So what the tests below find is what they changed."""
    assert changed(packed, lambda entry: None).read_bytes() == packed.read_bytes()


def link(entry: tarfile.TarInfo) -> None:
    entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda entry: setattr(entry, "mode", 0o755), "the mode of a file of somebody.*0644.*0755"),
        (lambda entry: setattr(entry, "mode", 0o4644), "the mode"),
        (lambda entry: setattr(entry, "mtime", 1), "the time.*'?0'?.*1"),
        (lambda entry: setattr(entry, "uid", 1000), "the owner.*1000"),
        (lambda entry: setattr(entry, "uname", "somebody"), "the owner.*0 somebody"),
        (lambda entry: setattr(entry, "gname", "users"), "the group.*0 users"),
        (lambda entry: setattr(entry, "name", "lib-1/../../etc/passwd"), "leads out"),
        (lambda entry: setattr(entry, "name", "/etc/passwd"), "leads out"),
        (lambda entry: setattr(entry, "name", "lib-2/empty"), "leads out"),
        (lambda entry: setattr(entry, "name", "lib-1/aaa"), "order"),
        (lambda entry: setattr(entry, "name", "lib-1/b/c"), "not as Kiln writes them|order"),
        (lambda entry: setattr(entry, "name", "lib-1/d\\e"), "a file of this name"),
        (link, "neither a file nor a folder"),
        (lambda entry: setattr(entry, "type", tarfile.CHRTYPE), "neither a file nor a folder"),
    ],
)
def test_an_entry_that_kiln_does_not_write_is_refused(
    packed: Path, tmp_path: Path, change: Callable[[tarfile.TarInfo], object], said: str
) -> None:
    with pytest.raises(KilnError) as raised:
        read_tar(changed(packed, change), tmp_path / "out")
    assert raised.match(f"(?s){said}")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data[:700],
        lambda data: data + bytes(512),
        lambda data: data + b"x",
        lambda data: b"",
        lambda data: b"no tar at all",
        lambda data: bytes(len(data)),
        lambda data: data[:-1] + b"x",
        # between a file's end and the next header, and in a checksum
        lambda data: data.replace(b"two\0", b"two!", 1),
        lambda data: data[:148] + b"000000" + data[154:],
    ],
)
def test_a_damaged_tar_is_refused(packed: Path, tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    data = packed.read_bytes()
    assert damage(data) != data
    (tmp_path / "damaged.tar").write_bytes(damage(data))
    with pytest.raises(ReleaseError):
        read_tar(tmp_path / "damaged.tar", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_compressed_tar_is_refused(packed: Path, tmp_path: Path) -> None:
    (tmp_path / "lib.tar.gz").write_bytes(gzip.compress(packed.read_bytes()))
    with pytest.raises(ReleaseError, match="no tar"):
        read_tar(tmp_path / "lib.tar.gz")


def test_every_header_is_looked_at(packed: Path, tmp_path: Path) -> None:
    """One bit of any byte of the tar, but of the files' own: their digests stand elsewhere."""
    data = packed.read_bytes()
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
        own = {at for entry in tar.getmembers() for at in range(entry.offset_data, entry.offset_data + entry.size)}
    for at in [at for at in range(0, len(data), 37) if at not in own]:
        damaged = bytearray(data)
        damaged[at] ^= 4
        (tmp_path / "damaged.tar").write_bytes(damaged)
        with pytest.raises(KilnError):
            read_tar(tmp_path / "damaged.tar")

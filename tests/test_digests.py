"""Digests: of files through a stat cache, and of declarations without what is only a place."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from kiln import digests, files
from kiln.digests import FileDigests, digest_bytes, digest_file, digest_json, plain
from kiln.errors import Position

# -- files -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were read, in order."""
    read: list[Path] = []

    def digest(path: Path) -> str:
        read.append(path)
        return digest_file(path)

    monkeypatch.setattr(digests, "digest_file", digest)
    return read


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that has settled: its time stamps are not of this moment."""
    path = tmp_path / "tool"
    path.write_bytes(b"one")
    settle()
    return path


def settle() -> None:
    time.sleep(files._SETTLED / 1e9 + 0.02)


def test_a_file_is_read_again_only_when_its_stat_moved(file: Path, reads: list[Path]) -> None:
    files = FileDigests({})
    assert files.of(file) == files.of(file) == digest_bytes(b"one")
    assert reads == [file]
    again = FileDigests(files.learned)
    assert again.of(file) == digest_bytes(b"one")
    assert reads == [file]
    assert again.learned == {}
    os.utime(file, ns=(5, 5))
    settle()
    assert again.of(file) == again.of(file) == digest_bytes(b"one")
    assert len(reads) == 2
    file.write_bytes(b"longer")
    assert again.of(file) == digest_bytes(b"longer")


def test_a_replaced_file_of_the_same_size_and_time_is_noticed(file: Path, tmp_path: Path) -> None:
    """What installers do that keep the time stamps of their packages, even where the inode is used again."""
    files = FileDigests({})
    os.utime(file, ns=(5, 5))
    settle()
    assert files.of(file) == digest_bytes(b"one")
    with file.open("r+b") as opened:
        opened.write(b"two")
    os.utime(file, ns=(5, 5))
    assert files.of(file) == digest_bytes(b"two")
    settle()
    assert files.of(file) == digest_bytes(b"two")
    (tmp_path / "new").write_bytes(b"six")
    os.utime(tmp_path / "new", ns=(5, 5))
    (tmp_path / "new").replace(file)
    assert files.of(file) == digest_bytes(b"six")


def test_a_file_that_has_just_changed_is_not_remembered(file: Path) -> None:
    """Its time stamps may stand still through the next change: file systems count in steps of milliseconds."""
    files = FileDigests({})
    for number in range(200):
        text = f"{number:3}".encode()
        file.write_bytes(text)
        assert files.of(file) == digest_bytes(text)
    assert files.learned == {}


def test_a_digest_over_files_goes_by_names_not_by_paths(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"2")
    (tmp_path / "copy").write_bytes(b"1")
    files = FileDigests({})
    both = files.of_all({"x": tmp_path / "a", "y": tmp_path / "b"})
    assert files.of_all({"y": tmp_path / "b", "x": tmp_path / "copy"}) == both
    assert files.of_all({"x": tmp_path / "b", "y": tmp_path / "a"}) != both


def test_a_file_that_cannot_be_read_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileDigests({}).of(tmp_path / "none")


def test_a_large_file_is_hashed_whole(tmp_path: Path) -> None:
    data = os.urandom((1 << 20) + 7)
    (tmp_path / "large").write_bytes(data)
    assert digest_file(tmp_path / "large") == digest_bytes(data)


# -- declarations ------------------------------------------------------------------------------------------------------


class Kind(Enum):
    """As the manifest's and the targets' kinds are."""

    CUBIN = "cubin"
    PTX = "ptx"


@dataclass(frozen=True, kw_only=True)
class Inner:
    """A node of a tree."""

    operands: tuple[int | str, ...]


@dataclass(frozen=True, kw_only=True)
class Other:
    """Another node with the same fields."""

    operands: tuple[int | str, ...]


@dataclass(frozen=True, kw_only=True)
class Everything:
    """A field of each type that a declaration can have."""

    position: Position
    positions: Mapping[str, Position]
    path: Path
    boolean: bool
    number: int
    fraction: float
    text: str
    nothing: str | None
    data: bytes
    kind: Kind
    node: Inner | Other
    items: tuple[Any, ...]
    numbers: list[int] | tuple[int, ...]
    names: frozenset[str]
    table: Mapping[Any, Any]


EVERYTHING = Everything(
    position=Position(file="kernels.yaml", line=3),
    positions=MappingProxyType({"name": Position(file="kernels.yaml", line=4)}),
    path=Path("/home/a/kernels.yaml"),
    boolean=True,
    number=1,
    fraction=1e-5,
    text="one",
    nothing=None,
    data=b"one",
    kind=Kind.CUBIN,
    node=Inner(operands=(1, 2)),
    items=(1, "a"),
    numbers=(1, 2),
    names=frozenset({"a", "b"}),
    table=MappingProxyType({"a": 1, "b": 2}),
)


def digest(value: Any) -> str:
    return digest_json(plain(value))


def test_what_is_only_a_place_does_not_count() -> None:
    one = EVERYTHING
    other = replace(
        one,
        position=Position(file="elsewhere.yaml", line=300, column=7),
        positions={"name": Position(file="elsewhere.yaml", line=301)},
        path=Path("/home/b/kernels.yaml"),
    )
    assert digest(one) == digest(other)


@pytest.mark.parametrize(
    "change",
    [
        {"boolean": False},
        {"boolean": 1},
        {"number": 2},
        {"number": 1.0},
        {"number": "1"},
        {"fraction": 1e-6},
        {"fraction": "1e-05"},
        {"text": "two"},
        {"nothing": ""},
        {"nothing": "None"},
        {"data": b"two"},
        {"data": "one"},
        {"kind": Kind.PTX},
        {"kind": "cubin"},
        {"node": Inner(operands=(1, 3))},
        {"node": Inner(operands=(1, "2"))},
        {"node": Other(operands=(1, 2))},
        {"items": ("a", 1)},
        {"items": (1, "a", None)},
        {"items": ((1, "a"),)},
        {"numbers": (2, 1)},
        {"names": frozenset({"a"})},
        {"names": frozenset({"a", "c"})},
        {"table": {"a": 1}},
        {"table": {"a": 2, "b": 1}},
        {"table": {"b": 2, "a": 1}},
        {"positions": {"other": Position(file="kernels.yaml", line=4)}},
    ],
    # The order of a set is another in each process, and a test's name is not to be.
    ids=lambda change: str({name: sorted(v) if isinstance(v, frozenset) else v for name, v in change.items()}),
)
def test_everything_else_counts(change: dict[str, Any]) -> None:
    """Its type too, and the order of declaration, which is the order of output."""
    assert digest(replace(EVERYTHING, **change)) != digest(EVERYTHING)


def test_keys_keep_their_type() -> None:
    assert len({digest({1: "x"}), digest({"1": "x"}), digest({True: "x"}), digest({None: "x"})}) == 4
    assert digest({1, 2}) != digest({"1", "2"})


def test_a_set_has_no_order() -> None:
    names = [f"name{index}" for index in range(100)]
    assert digest(set(names)) == digest(frozenset(reversed(names)))


def test_what_has_no_lasting_text_is_refused() -> None:
    """`<object at 0x7f...>` differs in every run: the step would never be fresh, and nobody would see why."""
    for value in (object(), lambda: 1, Everything):
        with pytest.raises(TypeError, match="cannot be part of a digest"):
            plain({"a": [value]})

"""Archives: whole, in order, the same bytes each time, and read back."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from c_library import tool

from kiln.errors import PackagingError
from kiln.packaging.archive import make_archive, read_archive


def make_objects(folder: Path, count: int) -> list[tuple[str, Path]]:
    """`count` small objects, each with a global symbol, under names shorter and longer than 15 characters."""
    folder.mkdir()
    names = [f"o{i}" if i % 2 else f"object_with_a_long_name_{i}" for i in range(count)]
    for i, name in enumerate(names):
        (folder / f"{name}.c").write_text(f"int {name} = {i};\n")
    sources = [f"{name}.c" for name in names]
    subprocess.run(["gcc", "-c", *sources], cwd=folder, check=True)
    return [(f"{name}.o", folder / f"{name}.o") for name in names]


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Path]]:
    return make_objects(tmp_path_factory.mktemp("archive") / "objects", 5)


def fake(folder: Path, script: str) -> Path:
    path = folder / "ar"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_holds_its_members_in_order(objects: list[tuple[str, Path]], tmp_path: Path) -> None:
    make_archive(objects, tool("ar"), tmp_path, "lib.a")
    listed = subprocess.run(["ar", "t", tmp_path / "lib.a"], capture_output=True, text=True, check=True).stdout.split()
    assert listed == [name for name, _ in objects]
    assert [path.name for path in tmp_path.iterdir()] == ["lib.a"]
    indexed = subprocess.run(["nm", "-s", tmp_path / "lib.a"], capture_output=True, text=True, check=True).stdout
    assert "object_with_a_long_name_0 in object_with_a_long_name_0.o" in indexed


def test_same_members_same_bytes(objects: list[tuple[str, Path]], tmp_path: Path) -> None:
    """Neither times nor modes of the objects, nor the folder's name, get into the archive."""
    one, two = tmp_path / "one", tmp_path / "zwei, größer"
    one.mkdir()
    two.mkdir()
    make_archive(objects, tool("ar"), one, "lib.a")
    for _, path in objects:
        os.utime(path, (1, 1))
        path.chmod(0o600)
    make_archive(objects, tool("ar"), two, "lib.a")
    assert (one / "lib.a").read_bytes() == (two / "lib.a").read_bytes()


def test_thousands_of_members(objects: list[tuple[str, Path]], tmp_path: Path) -> None:
    """More names than fit an argument list of the smallest kind, in little time."""
    long = "n" * 80
    members = [(f"{long}_{i}.o", objects[i % 5][1]) for i in range(2_000)]
    make_archive(members, tool("ar"), tmp_path, "lib.a")
    found, has_index = read_archive((tmp_path / "lib.a").read_bytes())
    assert has_index
    assert [member.name for member in found] == [name for name, _ in members]


@pytest.mark.parametrize("name", ["a b.o", "-x.o", "@x.o", "../x.o", "a'.o", "a\n.o", "é.o", ""])
def test_refuses_names_that_a_tool_would_take_apart(objects: list[tuple[str, Path]], tmp_path: Path, name: str) -> None:
    with pytest.raises(PackagingError, match="cannot be the name of an archive's member"):
        make_archive([(name, objects[0][1])], tool("ar"), tmp_path, "lib.a")
    assert list(tmp_path.iterdir()) == []


def test_refuses_members_of_one_name(objects: list[tuple[str, Path]], tmp_path: Path) -> None:
    """ar would keep the last of them without a word."""
    with pytest.raises(PackagingError, match="share a name") as caught:
        make_archive([objects[0], ("o1.o", objects[1][1]), objects[1]], tool("ar"), tmp_path, "lib.a")
    assert caught.value.actual == "o1.o"


def test_refuses_to_be_empty(tmp_path: Path) -> None:
    with pytest.raises(PackagingError, match="without members"):
        make_archive([], tool("ar"), tmp_path, "lib.a")


@pytest.mark.parametrize(
    ("script", "actual"),
    [
        ("exit 0", "no file"),
        (": > ./-archive", "it does not begin with"),
        ("ar rcSD ./-archive *.o", "none"),
        ("ar rcsD ./-archive o1.o", "1 members, without object_with_a_long_name_0.o"),
        ("ar rcsD ./-archive o*.o", "5 members in another order"),
        ("ar -MD && truncate -s -40 ./-archive", "it ends within a member"),
        ("ar -MD && echo junk >> ./-archive", "there is no member's header"),
        ("cat o3.o > copy && rm o1.o && mv copy o1.o && ar -MD", "other bytes"),
        ("ar -MD && ar rU ./-archive o1.o", "of o1.o"),
    ],
    ids=["nothing", "empty", "no index", "lost", "reordered", "cut short", "junk", "bytes changed", "time stamps"],
)
def test_believes_no_exit_code(objects: list[tuple[str, Path]], tmp_path: Path, script: str, actual: str) -> None:
    """An ar that ends well with a wrong archive: each is found, and nothing is left behind."""
    staging = tmp_path / "staging"
    staging.mkdir()
    with pytest.raises(PackagingError) as caught:
        make_archive(objects, fake(tmp_path, script), staging, "lib.a")
    assert actual in str(caught.value.actual)
    assert caught.value.where == "lib.a"
    assert list(staging.iterdir()) == []


def test_tells_what_ar_says(objects: list[tuple[str, Path]], tmp_path: Path) -> None:
    with pytest.raises(PackagingError) as caught:
        make_archive([*objects, ("gone.o", tmp_path / "gone.o")], tool("ar"), tmp_path, "lib.a")
    assert "ar could not make lib.a: exit code" in str(caught.value)
    assert "can't open file gone.o" in str(caught.value)


def test_a_missing_ar(objects: list[tuple[str, Path]], tmp_path: Path) -> None:
    with pytest.raises(PackagingError) as caught:
        make_archive(objects, tmp_path / "no-ar", tmp_path, "lib.a")
    assert "no-ar could not make lib.a: it cannot be run" in str(caught.value)

"""`kiln_add_library`: kernels as part of a CMake build, which asks Kiln when what they are made from has moved."""

from __future__ import annotations

from pathlib import Path

import pytest

from cmake_tree import AWKWARD, LIST, Tree, make

IMAGE = "scale_fp32_256@gfx942"
KILN = "Building the kernels of red"
"""what both generators say when they run Kiln"""
LINKING = "Linking C executable list"

LISTS = """\
cmake_minimum_required(VERSION 3.20)
project(app LANGUAGES C)
execute_process(COMMAND python3 -m kiln cmake-dir OUTPUT_VARIABLE kiln OUTPUT_STRIP_TRAILING_WHITESPACE
    COMMAND_ERROR_IS_FATAL ANY)
list(APPEND CMAKE_MODULE_PATH "${kiln}")
include(KilnAddLibrary)
"""

APP = """\
kiln_add_library(my_kernels MANIFEST red/kernels.yaml)
add_executable(list list.c)
target_link_libraries(list PRIVATE my_kernels)
"""


@pytest.fixture
def tree(tmp_path: Path, kiln_cache: Path) -> Tree:
    """A library `red` in red/, with no word of doit."""
    tree = Tree(folder=tmp_path / AWKWARD, cache=kiln_cache)
    tree.write_library("red", "red", "gfx942")
    tree.write("list.c", LIST.replace("LIBRARY", "red"))
    return tree


def build_app(tree: Tree, generator: str) -> Tree:
    tree.write("CMakeLists.txt", LISTS + APP)
    tree.configure(".", "out", generator=generator).expect()
    tree.build("out").expect(KILN, LINKING)
    return tree


@pytest.fixture(scope="module")
def _built(tmp_path_factory: pytest.TempPathFactory, kiln_cache: Path) -> Tree:
    tree = Tree(folder=tmp_path_factory.mktemp("built") / AWKWARD, cache=kiln_cache)
    tree.write_library("red", "red", "gfx942")
    tree.write("list.c", LIST.replace("LIBRARY", "red"))
    return build_app(tree, "Ninja")


def listed(tree: Tree) -> list[str]:
    return tree.run(tree.folder / "out/list").expect().output.split()


def ran(tree: Tree) -> set[str]:
    """Build, and say what of the two was to be done."""
    output = tree.build("out").expect().output
    return {text for text in (KILN, LINKING) if text in output}


def test_a_build_does_what_an_edit_asks_for(_built: Tree) -> None:
    tree = _built
    assert listed(tree) == [IMAGE]
    # Nothing moved.
    assert ran(tree) == set()
    # What no kernel is made from.
    tree.edit("list.c", "return 1;", "return 3;")
    assert ran(tree) == {LINKING}
    # A file that is imported by the kernel's, in a place that is compiled.
    tree.edit("red/kernels/helper.py", "x * 1.5", "x * 2.5")
    assert ran(tree) == {KILN, LINKING}
    # And in one that is not: Kiln is asked, and what it leaves alone is linked to nothing anew.
    tree.edit("red/kernels/helper.py", "by half", "by more")
    assert ran(tree) == {KILN}
    # What was not there, and would have been read.
    tree.write("red/kernels/__init__.py", "")
    assert ran(tree) == {KILN}
    # The manifest.
    tree.edit("red/kernels.yaml", "blocks: [256]", "blocks: [256, 512]")
    assert ran(tree) == {KILN, LINKING}
    assert listed(tree) == [IMAGE, IMAGE.replace("256", "512")]
    # What it made.
    (tree.folder / "out/kiln/my_kernels/lib/libred.a").unlink()
    assert ran(tree) >= {KILN}
    assert ran(tree) == set()


def test_makefiles_do_what_an_edit_asks_for(tree: Tree) -> None:
    """They read the same depfile, by rules of their own."""
    make()
    build_app(tree, "Unix Makefiles")
    assert ran(tree) == set()
    tree.edit("red/kernels/helper.py", "x * 1.5", "x * 2.5")
    assert ran(tree) == {KILN, LINKING}
    tree.edit("red/kernels/helper.py", "by half", "by more")
    assert ran(tree) == {KILN}
    # Make has no rule for what Kiln made, but for the stamp.
    (tree.folder / "out/kiln/my_kernels/lib/libred.a").unlink()
    (tree.folder / "out/kiln/my_kernels.stamp").unlink()
    assert ran(tree) >= {KILN}
    assert listed(tree) == [IMAGE]
    assert ran(tree) == set()


def test_an_error_is_told_in_kilns_words_and_the_next_build_goes_on(_built: Tree) -> None:
    tree = _built
    before = (tree.folder / "red/kernels/helper.py").read_text("utf-8")
    tree.edit("red/kernels/helper.py", "return x *", "return y *")
    failed = tree.build("out")
    assert failed.code != 0
    failed.expect(r"^FAILED compile:scale_fp32_256", r"kernels/helper\.py:7:", "'y'", code=failed.code)
    assert tree.build("out").code != 0
    tree.write("red/kernels/helper.py", before)
    assert KILN in ran(tree)
    # A manifest that cannot be read is told when CMake configures.
    manifest = (tree.folder / "red/kernels.yaml").read_text("utf-8")
    tree.edit("red/kernels.yaml", "dtypes:", "dtype:")
    refused = tree.build("out")
    assert refused.code != 0
    refused.expect(r"kernels\.yaml:8:5: .*'dtype'", "did you mean 'dtypes'", "see above what", code=refused.code)
    tree.write("red/kernels.yaml", manifest)
    assert ran(tree) <= {KILN}
    assert ran(tree) == set()


def test_two_libraries_and_some_targets_from_other_folders(tree: Tree) -> None:
    """Each in a folder of its own, in one program of a third; of one library an image for one target."""
    tree.write_library("red", "red", "gfx90a, gfx942")
    tree.write_library("blue", "blue", "gfx90a, gfx942")
    add = "include(KilnAddLibrary)\nkiln_add_library({0}_kernels MANIFEST kernels.yaml {1})\n"
    tree.write("CMakeLists.txt", LISTS + "".join(f"add_subdirectory({name})\n" for name in ("red", "blue", "app")))
    tree.write("red/CMakeLists.txt", add.format("red", "TARGETS gfx942"))
    tree.write("blue/CMakeLists.txt", add.format("blue", ""))
    tree.write(
        "app/CMakeLists.txt",
        """\
        add_executable(both both.c)
        target_link_libraries(both PRIVATE red_kernels blue::gfx90a blue::gfx942_by_name)
        add_library(engine SHARED engine.c)
        target_link_libraries(engine PRIVATE red::whole)
        """,
    )
    tree.write("app/engine.c", "int engine(void);\nint engine(void) { return 7; }\n")
    tree.write(
        "app/both.c",
        """\
        #include <blue/blue.h>
        #include <red/red.h>
        #include <stdio.h>

        int main(void)
        {
            for (size_t i = 0; i < red_image_count(); i++) printf("red %s\\n", red_image_id(red_image_at(i)));
            for (size_t i = 0; i < blue_image_count(); i++) printf("blue %s\\n", blue_image_id(blue_image_at(i)));
            return 0;
        }
        """,
    )
    tree.configure(".", "out").expect()
    tree.build("out").expect()
    printed = tree.run(tree.folder / "out/app/both").expect().output.splitlines()
    assert printed == [f"red {IMAGE}", "blue scale_fp32_256@gfx90a", f"blue {IMAGE}"]
    assert tree.build("out").output.count("no work to do") == 1
    assert not (tree.folder / "out/red/kiln/red_kernels/images/gfx90a").exists()


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("kiln_add_library(mine)", r"MANIFEST <path of kernels\.yaml>"),
        ("kiln_add_library(mine MANIFEST red/kernels.yaml TARGET gfx942)", r"not\s+understood:\s+TARGET"),
        ("kiln_add_library(mine MANIFEST red/kernels.yaml TARGETS gfx94)", r"TARGETS: .* the target 'gfx94'"),
        ("kiln_add_library(mine MANIFEST red/list.yaml)", r"list\.yaml: a manifest is called kernels\.yaml"),
        ("kiln_add_library(mine MANIFEST blue/kernels.yaml)", r"blue/kernels\.yaml"),
        (
            "add_library(mine INTERFACE)\nkiln_add_library(mine MANIFEST red/kernels.yaml)",
            r"there is a target of\s+that\s+name",
        ),
        (
            "kiln_add_library(one MANIFEST red/kernels.yaml)\nkiln_add_library(two MANIFEST red/kernels.yaml)",
            r"there is a library red\s+already",
        ),
        ("set(KILN_PYTHON /bin/false)\nkiln_add_library(mine MANIFEST red/kernels.yaml)", r"KILN_PYTHON is /bin/false"),
    ],
    ids=["no manifest", "word", "target", "file name", "no file", "taken", "twice", "python"],
)
def test_what_cannot_be_meant_is_refused(tree: Tree, lines: str, said: str) -> None:
    # To look for a compiler takes longer than all else.
    lists = LISTS if said.startswith("there is a library") else LISTS.replace("LANGUAGES C", "LANGUAGES NONE")
    tree.write("CMakeLists.txt", f"{lists}{lines}\n")
    tree.configure(".", "out").expect(said, code=1)

"""`doit install`, and programs that are built on what it installed: by CMake, by pkg-config, one library or two."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from c_doubles import Doubles
from cmake_tree import AWKWARD, LIST, Tree, make, program
from project import REPOSITORY, Project

IMAGES = ["scale_fp32_256@gfx90a", "scale_fp32_256@gfx942"]


@pytest.fixture(scope="module")
def _installed(tmp_path_factory: pytest.TempPathFactory, kiln_cache: Path) -> Tree:
    tree = Tree(folder=tmp_path_factory.mktemp("installed") / AWKWARD, cache=kiln_cache)
    for library in ("red", "blue"):
        tree.write_library(library, library, "gfx90a, gfx942")
        tree.kiln(library, "install", "--prefix", "../staged", DESTDIR="").expect(
            rf"^installed {library} in .*: \d+ new,"
        )
    # Nobody who uses a tree knows where it was made.
    (tree.folder / "staged").rename(tree.folder / "prefix")
    return tree


@pytest.fixture
def installed(_installed: Tree, tmp_path: Path) -> Tree:
    """A folder with both libraries in prefix/; a test may change it."""
    shutil.copytree(_installed.folder, tmp_path / AWKWARD, symlinks=True)
    return Tree(folder=tmp_path / AWKWARD, cache=_installed.cache)


def cmake_project(tree: Tree, *lines: str) -> None:
    """A CMake project in app/, of C alone."""
    head = ["cmake_minimum_required(VERSION 3.16)", "project(app LANGUAGES C)"]
    tree.write("app/CMakeLists.txt", "\n".join([*head, *lines]) + "\n")


def test_what_is_installed_names_no_folder_of_this_machine(installed: Tree) -> None:
    prefix = installed.folder / "prefix"
    files = {path.relative_to(prefix).as_posix() for path in prefix.rglob("*") if path.is_file()}
    assert {
        "include/red/red.h",
        "include/red/red.hpp",
        "lib/libred.a",
        "lib/libred_gfx90a.a",
        "lib/libblue_gfx942.a",
        "lib/cmake/blue/blueConfig.cmake",
        "lib/pkgconfig/red.pc",
        "share/red/src/lookup.c",
        "share/red/installed.json",
    } <= files
    for name in files:
        data = (prefix / name).read_bytes()
        for word in (AWKWARD.encode(), b"staged", str(REPOSITORY).encode(), str(Path.home()).encode() + b"/"):
            assert word not in data, f"{word!r} is in {name}"
        assert (prefix / name).stat().st_mode & 0o777 == 0o644


def test_each_target_of_the_package_links_its_images(installed: Tree) -> None:
    """And a program has two libraries, each with its own prefix."""
    cmake_project(
        installed,
        "find_package(red 0.0 CONFIG REQUIRED COMPONENTS gfx90a gfx942)",
        "find_package(blue CONFIG REQUIRED)",
        'message(STATUS "red ${red_VERSION}")',
        "foreach(name IN ITEMS red gfx90a gfx942)",
        "  add_executable(list_${name} list.c)",
        "  target_link_libraries(list_${name} PRIVATE red::${name})",
        "endforeach()",
        "add_executable(list_by_name list.c)",
        "target_link_libraries(list_by_name PRIVATE red::gfx90a red::gfx942_by_name)",
        "add_executable(both both.c)",
        "target_link_libraries(both PRIVATE red::red blue::blue)",
        "add_library(engine SHARED engine.c)",
        "target_link_libraries(engine PRIVATE red::whole)",
        "add_executable(through through.c)",
        "target_link_libraries(through PRIVATE engine ${CMAKE_DL_LIBS})",
    )
    installed.write("app/list.c", LIST.replace("LIBRARY", "red"))
    installed.write(
        "app/both.c",
        """\
        #include <blue/blue.h>
        #include <red/red.h>
        #include <stdio.h>

        int main(void)
        {
            const struct red_image *one = red_image_find("scale_fp32_256", "gfx90a");
            const struct blue_image *other = blue_image_find("scale_fp32_256", "gfx942");
            if (one == NULL || other == NULL || !red_image_verify(one) || !blue_image_verify(other)) return 1;
            printf("%s %s\\n", red_image_id(one), blue_image_id(other));
            return 0;
        }
        """,
    )
    installed.write("app/engine.c", "int engine(void);\nint engine(void) { return 7; }\n")
    installed.write(
        "app/through.c",
        """\
        #include <dlfcn.h>
        #include <stdio.h>
        #include <string.h>

        int engine(void);

        int main(void)
        {
            size_t (*count)(void) = NULL;
            void *found = dlsym(RTLD_DEFAULT, "red_image_count");
            if (engine() != 7 || found == NULL) return 1;
            memcpy(&count, &found, sizeof count);
            printf("%zu\\n", count());
            return 0;
        }
        """,
    )
    prefix = f"-DCMAKE_PREFIX_PATH={installed.folder / 'prefix'}"
    installed.configure("app", "out", prefix).expect(r"red 0\.0\.0$")
    installed.build("out").expect()
    printed = {
        name: installed.run(installed.folder / "out" / name).expect().output.split()
        for name in ("list_red", "list_gfx90a", "list_gfx942", "list_by_name", "both", "through")
    }
    assert printed == {
        "list_red": IMAGES,
        "list_gfx90a": IMAGES[:1],
        "list_gfx942": IMAGES[1:],
        "list_by_name": IMAGES,
        "both": IMAGES,
        "through": ["2"],
    }


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "find_package(red CONFIG REQUIRED COMPONENTS gfx90a sm_90a)",
            r"(?s)red has no sm_90a.*built for\s+gfx90a, gfx942",
        ),
        ("find_package(red 1.2 CONFIG REQUIRED)", r"redConfig.cmake, version: 0\.0\.0$"),
        (
            "set(CMAKE_SYSTEM_PROCESSOR riscv64)\nfind_package(red CONFIG REQUIRED)",
            r"version: 0\.0\.0 \(for\s+x86_64-linux-gnu\)",
        ),
        ("set(CMAKE_SIZEOF_VOID_P 4)\nfind_package(red CONFIG REQUIRED)", r"version: 0\.0\.0 \(64 bits\)"),
    ],
    ids=["target", "version", "machine", "bits"],
)
def test_a_package_that_does_not_fit_is_refused(installed: Tree, line: str, said: str) -> None:
    cmake_project(installed, line)
    installed.configure("app", "out", f"-DCMAKE_PREFIX_PATH={installed.folder / 'prefix'}").expect(said, code=1)


def test_archives_may_be_taken_out(installed: Tree) -> None:
    """Who packages the tree may split it: what is left is found, what is gone is named."""
    for name in ("libred.a", "libred_gfx942.a"):
        (installed.folder / "prefix/lib" / name).unlink()
    cmake_project(
        installed,
        "find_package(red CONFIG REQUIRED COMPONENTS gfx90a OPTIONAL_COMPONENTS gfx942)",
        "if(red_gfx942_FOUND OR TARGET red::red OR NOT red_gfx90a_FOUND)",
        "  message(FATAL_ERROR wrong)",
        "endif()",
    )
    installed.configure("app", "out", f"-DCMAKE_PREFIX_PATH={installed.folder / 'prefix'}").expect()


def test_the_build_folder_is_a_prefix_too(installed: Tree) -> None:
    cmake_project(installed, "find_package(red CONFIG REQUIRED COMPONENTS red gfx90a)")
    installed.configure("app", "out", f"-DCMAKE_PREFIX_PATH={installed.folder / 'red/build'}").expect()


def test_pkg_config_links_a_program(installed: Tree) -> None:
    installed.write("list.c", LIST.replace("LIBRARY", "red"))
    # As make and others do it: what is printed is read by a shell, for the path has a blank.
    installed.run(
        "sh",
        "-c",
        f"eval \"cc list.c $('{program('pkgconf')}' --static --cflags --libs red) -o listed\"",
        PKG_CONFIG_PATH=str(installed.folder / "prefix/lib/pkgconfig"),
    ).expect()
    assert installed.run(installed.folder / "listed").expect().output.split() == IMAGES


def test_the_examples_use_an_installed_library(_examples: Tree, doubles: Doubles) -> None:
    """In C++ one program for each way: to compile both takes longer than all else."""
    tree = _examples
    tree.kiln(".", "install", "--prefix", "prefix").expect("^installed kernels")
    for language, by_cmake, by_make in (
        ("c", ["walk", "softmax"], ["walk", "softmax"]),
        ("cpp", ["softmax"], ["groups"]),
    ):
        build = f"out {language}"
        source = f"examples/{language}/find_package"
        tree.configure(source, build, f"-DCMAKE_PREFIX_PATH={tree.folder / 'prefix'}").expect()
        tree.build(build, "--target", *by_cmake).expect()
        _check_printed(tree, tree.folder / build, by_cmake, doubles)
        words = [f"PKG_CONFIG={program('pkgconf')}", "OUT=.", "CFLAGS=-O0", "CXXFLAGS=-O0"]
        words += [f"./{name}" for name in by_make]
        paths = str(tree.folder / "prefix/lib/pkgconfig")
        tree.run(make(), "-C", f"examples/{language}/pkg-config", *words, PKG_CONFIG_PATH=paths).expect()
        _check_printed(tree, tree.folder / f"examples/{language}/pkg-config", by_make, doubles)


def test_the_examples_build_their_kernels(_examples: Tree, doubles: Doubles) -> None:
    tree = _examples
    for language, programs in (("c", ["walk", "softmax"]), ("cpp", ["groups"])):
        build = f"own {language}"
        tree.configure(f"examples/{language}/add_library", build).expect()
        tree.build(build, "--target", *programs).expect()
        _check_printed(tree, tree.folder / build, programs, doubles)


def _check_printed(tree: Tree, folder: Path, programs: list[str], doubles: Doubles) -> None:
    expected = {
        "walk": (0, r"^softmax_fp32_1024@gfx942 hsaco \d+ \w{64} ok$"),
        "groups": (0, r"^softmax_fp32: sm_90a 1 images, \d+ bytes; gfx942 1 images, \d+ bytes$"),
        "softmax": (2, "^there is no driver of a GPU$"),
    }
    for name in programs:
        code, text = expected[name]
        tree.run(folder / name, LD_LIBRARY_PATH=str(doubles.of("none"))).expect(text, code=code)


@pytest.fixture(scope="module")
def _examples(tmp_path_factory: pytest.TempPathFactory, kiln_cache: Path) -> Tree:
    """The examples, beside a small library with the kernels that they launch."""
    tree = Tree(folder=tmp_path_factory.mktemp("examples") / AWKWARD, cache=kiln_cache)
    shutil.copytree(REPOSITORY / "examples", tree.folder / "examples", ignore=shutil.ignore_patterns("target"))
    tree.write("kernels/softmax.py", (REPOSITORY / "kernels/softmax.py").read_text("utf-8"))
    tree.write(
        "kernels.yaml",
        """\
        version: 1
        library: kernels
        targets: [sm_90a, gfx942]
        kernels:
          softmax:
            source: kernels/softmax.py
            function: softmax_kernel
            dtypes: [fp32]
            blocks: [1024]
            name: softmax_{dtype}_{block}
            group: softmax_{dtype}
            signature: "*{dtype}:16, *{dtype}:16, i32, i32, i32"
            inputs: {n_rows: i32}
            grid: [n_rows]
            select: n_cols <= BLOCK_SIZE
        """,
    )
    return tree


def test_destdir_stands_before_the_prefix_and_paths_are_of_the_current_folder(built: Project, tmp_path: Path) -> None:
    (built.folder / "below").mkdir()
    below = Project(folder=built.folder / "below")
    settings = built.read("doit.cfg")
    below.write("doit.cfg", settings)
    below.doit("install", "-k", "--prefix", "out").expect(r"^installed scratch in .*/below/out: \d+ new")
    assert (built.folder / "below/out/lib/libscratch.a").exists()
    staged = {"DESTDIR": str(tmp_path / "stage")}
    built.doit("install", "--prefix", "/opt/engine", **staged).expect("^0 built", r"/stage/opt/engine: \d+ new")
    again = built.doit("install", "--json", "--prefix=/opt/engine", **staged)
    again.expect(r"/stage/opt/engine: 0 new, 0 changed, \d+ as before, 0 removed")
    assert (tmp_path / "stage/opt/engine/include/scratch/scratch.h").exists()


def test_what_is_stale_is_built_before_and_what_is_gone_is_removed(built: Project) -> None:
    built.doit("install", "--prefix", "out").expect()
    built.edit("kernels.yaml", "[sm_80, gfx942]", "[sm_80]")
    built.doit("install", "--prefix", "out").expect(r"[1-9]\d* built", "[1-9] changed, .* 1 removed")
    assert {name for name in built.files("out/lib") if name.endswith(".a")} == {"libscratch.a", "libscratch_sm_80.a"}
    before = built.files("out")
    built.edit("kernels/scale.py", "x * 2", "y * 2")
    failed = built.doit("install", "--prefix", "out").expect("FAILED", code=1)
    assert "installed" not in failed.output and built.files("out") == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["install"], r"say where to install: doit install --prefix DIR"),
        (["install", "--prefix", "~/x"], r"--prefix is '~/x'"),
        (["install", "--prefix", "out", "crate"], r"install takes no tasks.*'crate'"),
        (["install", "--prefix", "build/out"], r"the prefix lies in the build folder"),
        (["install", "--prefix", "taken"], r"taken/lib/libscratch\.a: the prefix has files that no installation"),
    ],
    ids=["no prefix", "home", "task", "build", "taken"],
)
def test_what_cannot_be_installed_is_refused(built: Project, arguments: list[str], said: str) -> None:
    built.write("taken/lib/libscratch.a", "somebody's")
    built.doit(*arguments).expect(said, code=3)
    assert built.read("taken/lib/libscratch.a") == "somebody's"

"""README.md, "A kernel of your own": what it says to write is written, built, and compiled in C and in Rust."""

from __future__ import annotations

import os
import subprocess
import textwrap
from pathlib import Path

import pytest

from kiln.project import init
from project import REPOSITORY, Project


def snippet(first: str, page: str = "README.md") -> str:
    """The code on a page that begins with a line, without the page's indentation."""
    lines = iter((REPOSITORY / page).read_text("utf-8").splitlines())
    begin = next(line for line in lines if line.strip() == first)
    margin = begin[: len(begin) - len(begin.lstrip())]
    assert len(margin) >= 4, f"{first!r} is no code"
    code = [begin]
    for line in lines:
        if line.strip() and not line.startswith(margin):
            break
        code.append(line)
    return textwrap.dedent("\n".join(code)).strip() + "\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("readme") / "my-kernels"
    init(folder)
    made = Project(folder=folder)
    made.write("kernels/relu.py", snippet("import triton"))
    made.edit("kernels.yaml", "targets: [sm_80, sm_90a, compute_80, gfx942]", "targets: [sm_80]")
    made.write("kernels.yaml", made.read("kernels.yaml").rstrip() + "\n\n" + textwrap.indent(snippet("relu:"), "  "))
    made.doit().expect("0 failed")
    return made


def test_the_launch_in_c_compiles_and_links(project: Project, tmp_path: Path) -> None:
    code = snippet("struct my_kernels_relu_fp32_args args = { .output_ptr = y, .input_ptr = x, .n_elements = n };")
    (tmp_path / "relu.c").write_text(
        "#include <my_kernels/my_kernels.h>\n"
        "int relu(void *y, void *x, int n, struct CUstream_st *stream);\n"
        "int relu(void *y, void *x, int n, struct CUstream_st *stream)\n{\n"
        f"{code}return status;\n}}\nint main(void) {{ return relu(0, 0, 0, 0); }}\n"
    )
    build = project.folder / "build"
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", build / "include"]
    libraries = [build / "lib" / "libmy_kernels.a", "-ldl", "-lpthread"]
    subprocess.run(["cc", *flags, "relu.c", *libraries, "-o", "relu"], cwd=tmp_path, check=True)
    # Of no elements: nothing is launched, and no driver is asked.
    subprocess.run([tmp_path / "relu"], check=True)


def test_the_launch_in_rust_compiles_without_a_warning(project: Project, tmp_path: Path) -> None:
    code = snippet("use my_kernels::{groups::relu_fp32::Args, DeviceBuffer, Library, Stream};")
    engine = tmp_path / "engine"
    (engine / "src").mkdir(parents=True)
    (engine / "src" / "main.rs").write_text(
        code + '\nfn main() {\n    println!("{:?}", relu(&[1.0, -1.0]).unwrap_err());\n}\n'
    )
    # The page's own line, for a program beside the project.
    lines = (REPOSITORY / "README.md").read_text("utf-8").splitlines()
    (dependency,) = [line.split("`")[1] for line in lines if "with `my_kernels = " in line]
    (tmp_path / "my-kernels").symlink_to(project.folder)
    (engine / "Cargo.toml").write_text(
        f'[package]\nname = "engine"\nversion = "0.1.0"\nedition = "2021"\n\n[dependencies]\n{dependency}\n'
    )
    environment = {**os.environ, "RUSTFLAGS": "-D warnings", "LD_LIBRARY_PATH": ""}
    ended = subprocess.run(
        ["cargo", "run", "-q"], cwd=engine, env=environment, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "no driver of a GPU was found: libcuda.so.1" in ended.stdout

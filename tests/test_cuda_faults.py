"""Faults around the real nvcc: its host compiler, its toolkit, memory, time, disks and the caller's environment."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cuda_project import fake, image
from project import REPOSITORY, Project

LIMITED = """
import dataclasses
from kiln import graph

_unlimited = graph._compile_cuda

def _limited(library, image):
    step = _unlimited(library, image)
    return dataclasses.replace(step, call=lambda: dataclasses.replace(step.call(), LIMIT))

graph._compile_cuda = _limited
"""
"""for dodo.py: a step of nvcc has 30 minutes and 24 GiB, which no test can wait for"""


def left_over(project: Project) -> list[Path]:
    return list((project.folder / "build/.kiln/tmp").glob("*"))


def test_a_host_compiler_that_nvcc_does_not_support(cuda: Project, tmp_path: Path) -> None:
    gcc = tmp_path / "gcc-99"
    gcc.write_text('#!/bin/sh\nexec gcc "$@" -U__GNUC__ -D__GNUC__=99\n')
    gcc.chmod(0o755)
    cuda.doit("-a", "compile", NVCC_CCBIN=str(gcc)).expect(
        r"gcc-99: nvcc does not support this host compiler$",
        r"unsupported GNU version! gcc versions later than \d+",
        "remedy: set NVCC_CCBIN to a gcc that this nvcc supports",
        code=1,
    )


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("NVCC", "/usr", "NVCC is '/usr', and there is no program /usr$"),
        ("CUDA_HOME", "/etc/passwd", "CUDA_HOME is '/etc/passwd', and there is no program /etc/passwd/bin/nvcc$"),
        ("CUDA_HOME", "relative", "CUDA_HOME is 'relative', and there is no program relative/bin/nvcc$"),
        ("NVCC_CCBIN", "/usr/bin", "/usr/bin is missing: nvcc preprocesses with it$"),
    ],
)
def test_variables_that_lead_to_nothing(cuda: Project, variable: str, value: str, words: str) -> None:
    before = image(cuda)
    cuda.doit("-a", "compile", **{variable: value}).expect(words, "remedy: ", code=1)
    assert image(cuda) == before


def test_a_toolkit_without_headers(cuda: Project, tmp_path: Path) -> None:
    home = fake(tmp_path / "cuda", 'exec "$REAL" "$@"')
    (Path(home) / "include").unlink()
    cuda.doit("-a", "compile", CUDA_HOME=home).expect(
        "bin/nvcc: the CUDA toolkit around nvcc lacks cuda_runtime.h$",
        "expected: a file .*include/cuda_runtime.h",
        code=1,
    )


def test_time_runs_out_and_all_descendants_with_it(cuda: Project, tmp_path: Path) -> None:
    cuda.write("dodo.py", LIMITED.replace("LIMIT", "seconds=1.0") + cuda.read("dodo.py"))
    pids = tmp_path / "pids"
    home = fake(tmp_path / "cuda", f'(trap "" TERM; echo $BASHPID >> {pids}; sleep 600) & echo $$ >> {pids}; sleep 600')
    began = time.monotonic()
    cuda.doit("-a", "compile", CUDA_HOME=home).expect(
        "compile:scale_fp32_128@sm_80", r"ran past its time limit of 1 s", "1 failed", code=1
    )
    assert time.monotonic() - began < 20
    numbers = pids.read_text().split()
    assert len(numbers) == 2
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{number}").exists() for number in numbers) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [number for number in numbers if Path(f"/proc/{number}").exists()] == []
    assert left_over(cuda) == []


def test_memory_runs_out(cuda: Project) -> None:
    """The preprocessor, or the compiler behind it, gets no more."""
    cuda.write("dodo.py", LIMITED.replace("LIMIT", "memory=100 << 20") + cuda.read("dodo.py"))
    cuda.doit("-a", "compile").expect("out of memory: its limit is 100 MiB", "remedy: ", code=1)
    assert left_over(cuda) == []


@pytest.mark.parametrize("size", ["64k", "2m"])
def test_a_full_disk(cuda: Project, size: str) -> None:
    """nvcc cannot write its files, and the error has no room in the log."""
    namespace = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode != 0:
        pytest.fail("this test needs a mount namespace: allow unprivileged user namespaces, or run it as root")
    before = image(cuda)
    (cuda.folder / "build/.kiln/tmp").mkdir(exist_ok=True)
    mount = f"mount -t tmpfs -o size={size} none build/.kiln/tmp && exec {sys.executable} -m doit -a compile"
    done = subprocess.run(
        [*namespace, "sh", "-c", mount],
        cwd=cuda.folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "tools")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 1
    assert "scale_fp32_128@sm_80: no space left on the disk: nvcc could not write its files" in done.stdout
    assert "build/.kiln/tmp" in done.stdout and "make room on the disk" in done.stdout
    assert image(cuda) == before
    cuda.doit("-a", "compile").expect("1 built")
    assert image(cuda) == before


def test_a_hostile_environment(cuda: Project, tmp_path: Path) -> None:
    """With a library that is loaded into every program, and that breaks what a compiler writes."""
    before = image(cuda)
    source = tmp_path / "evil.c"
    source.write_text(
        "#include <string.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
        "extern char *program_invocation_short_name;\n"
        "__attribute__((constructor)) static void start(void) {\n"
        '    if (strstr("nvcc cicc ptxas cc1plus", program_invocation_short_name)) _exit(7);\n'
        "}\n"
    )
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", tmp_path / "evil.so"], check=True)
    cuda.write("cuda_runtime.h", "#error found through CPATH\n")
    hostile = {
        "LD_PRELOAD": str(tmp_path / "evil.so"),
        "NVCC_APPEND_FLAGS": "--bogus",
        "NVCC_PREPEND_FLAGS": "--bogus",
        "CPATH": str(cuda.folder),
        "CPLUS_INCLUDE_PATH": str(cuda.folder),
        "C_INCLUDE_PATH": str(cuda.folder),
        "GCC_EXEC_PREFIX": "/nothing/",
        "COMPILER_PATH": "/nothing",
        "PTXAS_OPTIONS": "--bogus",
        "CICC_OPTIONS": "--bogus",
        "NVVM_OPTIONS": "--bogus",
        "TMPDIR": str(tmp_path),
        "LANG": "de_DE.UTF-8",
        "SOURCE_DATE_EPOCH": "123",
    }
    cuda.doit("-a", "compile", **hostile).expect("1 built")
    assert image(cuda) == before

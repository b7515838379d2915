"""Faults of the machine and of compilers, each really injected into a build of a small project, through doit.

What one room does about each is tested there; here is what people see, and that the next build puts it right.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from other_tritons import linked_triton, python_with
from project import KERNEL, MANIFEST, REPOSITORY, Project

WITHOUT_ROOT = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
# Another program has no capability back for being root's: PR_SET_SECUREBITS with SECBIT_NOROOT, locked. Of whoever is
# not root that is refused, and not needed.
libc.prctl(28, 3, 0, 0, 0)
# capset(2): none is left, so that the modes of files hold.
assert libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()) == 0
os.execv(sys.executable, [sys.executable, "-m", "doit", *sys.argv[1:]])
"""


def contents(project: Project) -> dict[str, bytes]:
    """Every published file of a build."""
    return {name: (project.folder / "build" / name).read_bytes() for name in project.files()}


def set_modes(folder: Path, mode: int) -> None:
    """Of a folder and of all folders in it."""
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            path.chmod(mode)


# -- what cannot be written


def test_a_build_folder_that_cannot_be_written_is_one_clear_error(built: Project) -> None:
    before = contents(built)
    built.edit("kernels/scale.py", "x * 2", "x * 3")
    set_modes(built.folder / "build", 0o555)
    result = built.run_python("-c", WITHOUT_ROOT)
    set_modes(built.folder / "build", 0o755)
    assert result.code != 0
    assert len(re.findall("Permission denied", result.output)) == 1, result.output
    assert re.search(r"^  remedy: ", result.output, re.MULTILINE), result.output
    assert "Traceback" not in result.output and str(built.folder / "build") in result.output
    assert contents(built) == before
    assert len(built.doit().expect().ran("compile")) == 4


def test_a_cache_that_cannot_be_written_costs_a_warning(built: Project, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o555)
    built.edit("kernels/scale.py", "x * 2", "x * 3")
    result = built.run_python("-c", WITHOUT_ROOT, "compile", KILN_CACHE=str(cache))
    cache.chmod(0o755)
    result.expect(f"^kiln: .*{cache}.*Permission denied", "^4 built, 0 up to date, 0 failed|^4 built, ")
    assert result.output.count(str(cache)) == 1
    assert list(cache.iterdir()) == []


FULL = """
mount -t tmpfs -o size=64m none build || exit 90
doit() {{ {python} -m doit "$@"; }}
doit > first.txt 2>&1 || exit 91
mkdir first && cp -r build/images build/lib build/include first/
sed -i 's/x \\* 2/x * 3/' kernels/scale.py
dd if=/dev/zero of=build/filler bs=4k > /dev/null 2>&1 && exit 92
doit > full.txt 2>&1
echo $? > code.txt
mkdir full && cp -r build/images build/lib build/include full/
rm build/filler
doit > second.txt 2>&1 || exit 93
mkdir second && cp -r build/images build/lib build/include second/
"""


def tree(folder: Path) -> dict[str, bytes]:
    """The files in a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_full_disk_is_named_and_old_outputs_stay_whole(built: Project, tmp_path: Path) -> None:
    """The build folder on a disk of its own, which is filled to the last block between two builds."""
    namespace = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode != 0:
        pytest.fail("this test needs a mount namespace: allow unprivileged user namespaces, or run it as root")
    built.edit("kernels.yaml", "[128, 256]", "[128]")
    shutil.rmtree(built.folder / "build")
    (built.folder / "build").mkdir()
    done = subprocess.run(
        [*namespace, "sh", "-c", FULL.format(python=sys.executable)],
        cwd=built.folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "tools"), "KILN_CACHE": "off"},
        check=False,
    )
    assert done.returncode == 0, sorted(built.files("."))
    said = built.read("full.txt")
    assert built.read("code.txt").strip() in ("1", "2"), said
    assert "no space left on the disk" in said and "build/" in said, said
    assert "remedy: make room there and run again; finished work is kept" in said
    assert "Traceback" not in said and len(said.splitlines()) < 60, said
    assert tree(built.folder / "full") == tree(built.folder / "first")
    whole = Project.create(
        tmp_path / "whole", manifest=built.read("kernels.yaml"), scale=built.read("kernels/scale.py")
    )
    whole.doit().expect()
    second = tree(built.folder / "second")
    assert second == {name: data for name, data in contents(whole).items() if name in second}
    assert any(second[name] != data for name, data in tree(built.folder / "first").items())


# -- what was planted


@pytest.mark.parametrize("planted", ["images/sm_80", "lib"])
def test_a_link_planted_in_the_build_folder_is_not_followed(built: Project, tmp_path: Path, planted: str) -> None:
    """With what stands there now, or with nothing, at its end: neither is read for the build's own, nor written to."""
    inside, outside = built.folder / "build" / planted, tmp_path / "outside"
    inside.rename(outside)
    inside.symlink_to(outside)
    before = tree(outside)
    built.edit("kernels/scale.py", "x * 2", "x * 3")
    result = built.doit().expect("a symbolic link", "follows no links", code=1)
    assert "Traceback" not in result.output
    assert tree(outside) == before
    inside.unlink()
    built.doit().expect(" 0 failed")
    assert not inside.is_symlink() and tree(outside) == before


# -- the record of earlier builds, cut short


def test_a_record_that_was_cut_short_is_told_and_made_anew(built: Project, tmp_path: Path) -> None:
    """At random places; what reading does for every place is in engine/test_engine_state.py."""
    before, cache = contents(built), str(tmp_path / "cache")
    built.doit("-a", KILN_CACHE=cache).expect(" 0 failed")
    path = built.folder / "build/.kiln/state.sqlite"
    chance = random.Random(3)
    for _ in range(3):
        data = path.read_bytes()
        path.write_bytes(data[: chance.randrange(1, len(data))])
        built.doit(KILN_CACHE=cache).expect("the record of earlier builds cannot be read", "^0 built, 23 from cache")
        assert contents(built) == before
    built.doit(KILN_CACHE=cache).expect("^0 built, 23 up to date")


# -- compilers that go wrong inside Triton

COMPILER = "backends/nvidia/compiler.py"
PTXAS = "backends/nvidia/bin/ptxas"
STAGE = "    def make_llir(self, src, metadata, options, capability):\n"
FAULTS = """\
        text = str(src)
        if "crashing_kernel" in text:
            import ctypes
            ctypes.string_at(0)
        if "hungry_kernel" in text:
            bytearray(40 << 30)
        if "slow_kernel" in text:
            import pathlib, time
            pathlib.Path({reached!r}).touch()
            while not pathlib.Path({go!r}).exists():
                time.sleep(0.01)
"""


@pytest.fixture
def faulty(tmp_path: Path) -> Project:
    """A project of one kernel for sm_80, whose Triton has faults for kernels of certain names; and so has its ptxas."""
    triton = linked_triton(tmp_path, {COMPILER, PTXAS})
    text = (triton / COMPILER).read_text()
    assert text.count(STAGE) == 1
    faults = FAULTS.format(reached=str(tmp_path / "reached"), go=str(tmp_path / "go"))
    (triton / COMPILER).write_text(text.replace(STAGE, STAGE + faults))
    real = triton / "backends/nvidia/bin/real ptxas"
    (triton / PTXAS).rename(real)
    (triton / PTXAS).write_text(
        f'#!/bin/bash\nfor file; do [[ $file == *.ptx ]] && grep -q killed_kernel "$file" && kill -KILL $$; done\n'
        f'exec "{real}" "$@"\n'
    )
    (triton / PTXAS).chmod(0o755)
    manifest = MANIFEST.replace("[sm_80, gfx942]", "[sm_80]").replace("[128, 256]", "[128]")
    made = Project.create(tmp_path / "scratch", manifest=manifest)
    return Project(folder=made.folder, python=python_with(triton.parent, tmp_path / "venv"))


def test_a_compiler_that_crashes_or_runs_out_of_memory_costs_its_image_only(faulty: Project) -> None:
    declared = MANIFEST.partition("kernels:\n")[2].replace("[128, 256]", "[128]")
    faults = ("crashing", "hungry", "killed")
    faulty.write("kernels.yaml", faulty.read("kernels.yaml") + "".join(declared.replace("scale", f) for f in faults))
    for name in faults:
        faulty.write(f"kernels/{name}.py", KERNEL.replace("scale_kernel", f"{name}_kernel"))
    began = time.monotonic()
    result = faulty.doit("compile").expect(
        "^FAILED compile:crashing_fp32_128@sm_80",
        r"killed by signal 11 \(SIGSEGV\)",
        "^FAILED compile:hungry_fp32_128@sm_80",
        "out of memory: its limit is 24576 MiB",
        "^FAILED compile:killed_fp32_128@sm_80",
        "ptxas was killed by signal 9",
        "^1 built, 0 up to date, 3 failed",
        code=1,
    )
    assert time.monotonic() - began < 60
    assert result.ran("compile") == ["scale_fp32_128@sm_80"]
    assert faulty.files("build/images") == {"sm_80/scale_fp32_128.cubin", "sm_80/scale_fp32_128.facts.json"}
    assert not (faulty.folder / "build/.kiln/tmp").exists()


def test_a_kernel_that_is_edited_while_it_compiles_is_built_again(faulty: Project, tmp_path: Path) -> None:
    """What comes out is an image of what was read first; it is not taken for one of what stands there now."""
    slow = KERNEL.replace("scale_kernel", "slow_kernel")
    faulty.write("kernels/scale.py", slow)
    faulty.edit("kernels.yaml", "scale_kernel", "slow_kernel")
    process = subprocess.Popen(
        [faulty.python, "-m", "doit"],
        cwd=faulty.folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "tools"), "KILN_CACHE": "off"},
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "reached").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    faulty.write("kernels/scale.py", slow.replace("x * 2", "x * 3"))
    (tmp_path / "go").touch()
    assert process.wait(timeout=60) == 0
    first = contents(faulty)
    assert faulty.doit().expect().ran("compile") == ["scale_fp32_128@sm_80"]
    second = contents(faulty)
    assert second["images/sm_80/scale_fp32_128.cubin"] != first["images/sm_80/scale_fp32_128.cubin"]
    faulty.doit().expect("^0 built")
    shutil.rmtree(faulty.folder / "build")
    faulty.doit().expect(" 0 failed")
    assert contents(faulty) == second

"""A ptxas that misbehaves: the real Triton, in a Python of its own, with a script in the place of its ptxas.

The script knows an image by its number of threads, so that one build meets all faults at once.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

from project import MANIFEST, REPOSITORY, Project

SITE = Path(sysconfig.get_path("purelib"))
PTXAS = "backends/nvidia/bin/ptxas"

# warps of the variant -> what becomes of its ptxas; the variant with one warp is compiled as ever
FAULTS = {
    2: ("nothing is written", "exit 0"),
    4: ("half a file", '"$REAL" "$@"; code=$?; truncate -s 1000 "$OUT"; exit $code'),
    8: ("it hangs", "sleep 600"),
    16: ("it floods, and crashes", 'head -c 100000000 /dev/zero | tr "\\0" x; kill -SEGV $$'),
}


def write_ptxas(triton: Path, script: str) -> None:
    path = triton / PTXAS
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/bash\nREAL={SITE / 'triton' / PTXAS}\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def triton(tmp_path: Path) -> Path:
    """A Triton that is links to the real one, but for what a test writes; `python` beside it imports it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (site,) = (tmp_path / "venv/lib").glob("python*/site-packages")
    (site / "others.pth").write_text(f"{SITE}\n")
    inner = Path("triton", PTXAS)
    for depth in range(len(inner.parts) - 1, 0, -1):
        folder = Path(*inner.parts[:depth])
        (site / folder).mkdir(parents=True, exist_ok=True)
        for path in (SITE / folder).iterdir():
            if path.name not in (inner.parts[depth], "__pycache__") or depth == len(inner.parts) - 1:
                (site / folder / path.name).symlink_to(path)
    return site / "triton"


def project_for(triton: Path, folder: Path, manifest: str) -> Project:
    """A project that is built by the Python of that Triton."""
    made = Project.create(folder, manifest=manifest)
    return Project(folder=made.folder, python=str(triton.parents[3] / "bin/python"))


def test_each_fault_costs_its_image_alone(triton: Path, tmp_path: Path) -> None:
    """Nothing is published of those that fail, each is named with the reason, and nothing of them is left running."""
    cases = "\n".join(
        f"  *.reqntid\\ {32 * warps}*|*.maxntid\\ {32 * warps}*) {script};;" for warps, (_, script) in FAULTS.items()
    )
    write_ptxas(
        triton,
        'for OUT; do case "$OUT" in *.ptx) PTX="$OUT";; esac; done\n'
        '[ -n "$PTX" ] || exec "$REAL" "$@"\n'
        f'case "$(cat "$PTX")" in\n{cases}\n  *) exec "$REAL" "$@";;\nesac',
    )
    manifest = MANIFEST.replace("[128, 256]", "[64, 128, 256, 512, 1024]")
    manifest = manifest.replace("    grid:", "    options: {num_warps: block // 64}\n    grid:")
    project = project_for(triton, tmp_path / "scratch", manifest)
    rules = (REPOSITORY / "dodo.py").read_text()
    line = '            preload=("kiln.compilers.triton",),\n'
    assert rules.count(line) == 1
    project.write("dodo.py", rules.replace(line, f"{line}            seconds=10,\n"))
    began = time.monotonic()
    result = project.doit("compile")
    result.expect(
        "^6 built, 0 up to date, 4 failed",
        "past its time limit of 10 s",
        "ptxas exited with 0 and wrote no image",
        "the file is cut short",
        "ptxas was killed by signal 11",
        code=1,
    )
    assert time.monotonic() - began < 200
    for block in (128, 256, 512, 1024):
        assert f"scale_fp32_{block}@sm_80" in result.output
    assert "Traceback" not in result.output
    assert {name for name in project.files("build/images") if name.startswith("sm_80")} == {
        "sm_80/scale_fp32_64.cubin",
        "sm_80/scale_fp32_64.facts.json",
    }
    assert len(project.files("build/images")) == 2 * 6
    assert not (project.folder / "build/.kiln/tmp").exists()
    assert len(result.output) < 50_000
    assert not left_running(triton)


def left_running(triton: Path) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        if str(triton / PTXAS) in words and path.parent.name != str(os.getpid()):
            found.append(words)
    return found


def test_another_ptxas_of_the_same_version_compiles_what_it_serves(triton: Path, tmp_path: Path) -> None:
    """What it says of itself is the same: its content decides. What needs no ptxas is left alone."""
    write_ptxas(triton, 'exec "$REAL" "$@"  # one')
    project = project_for(triton, tmp_path / "scratch", MANIFEST.replace("[128, 256]", "[128]"))
    project.doit("compile").expect("^2 built")
    project.doit("compile").expect("^0 built")
    stat = (triton / PTXAS).stat()
    write_ptxas(triton, 'exec "$REAL" "$@"  # two')
    os.utime(triton / PTXAS, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (triton / PTXAS).stat().st_size == stat.st_size
    assert project.doit("compile").expect().ran("compile") == ["scale_fp32_128@sm_80"]

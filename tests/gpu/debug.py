"""Stops in softmax by cuda-gdb, at a line of its source, and steps: python3 tests/gpu/debug.py

Builds softmax with `debug: true` and by `entry_names: variant`, starts examples/c/softmax.c under cuda-gdb with the one
rule that docs/debugging.md names, and compares the lines that it shows with those of kernels/softmax.py. Prints what it
found, and ends with 1 when a line is not what it should be. Where there is no cuda-gdb, it says so and ends with 0.

Needs an NVIDIA GPU of compute capability 9.0 with its driver. `--prepare` builds into build/gpu/debug, with Triton and
cc, and runs nothing; a machine with a GPU and without those then needs that folder alone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "gpu" / "debug"
SOURCE = "softmax.py"
STEPS = 4

MANIFEST = """\
version: 1
library: kernels
targets: [sm_90a]
entry_names: variant
debug: true
kernels:
  softmax:
    source: kernels/softmax.py
    function: softmax_kernel
    dtypes: [fp32]
    blocks: [1024, 4096, 16384]
    name: softmax_{dtype}_{block}
    group: softmax_{dtype}
    signature: "*{dtype}:16, *{dtype}:16, i32, i32, i32"
    inputs: {n_rows: i32}
    grid: [n_rows]
    select: n_cols <= BLOCK_SIZE
"""


def prepare() -> None:
    """Build the library, link the example, and keep both with the sources."""
    project = FOLDER / "project"
    shutil.rmtree(FOLDER, ignore_errors=True)
    (project / "kernels").mkdir(parents=True)
    (project / "kernels.yaml").write_text(MANIFEST)
    shutil.copy(ROOT / "kernels" / SOURCE, project / "kernels")
    paths = os.pathsep.join(filter(None, [str(ROOT / "tools"), os.environ.get("PYTHONPATH", "")]))
    build = [sys.executable, "-m", "kiln", "build", "archive", "header:c"]
    subprocess.run(build, cwd=project, env={**os.environ, "PYTHONPATH": paths}, check=True, stdout=subprocess.DEVNULL)
    made, example = project / "build", ROOT / "examples" / "c" / "softmax.c"
    libraries = ["-ldl", "-lpthread", "-lm"]
    command = ["cc", "-std=c99", "-I", made / "include", example, made / "lib/libkernels.a", *libraries]
    subprocess.run([*command, "-o", FOLDER / "softmax"], check=True)
    shutil.copytree(made / "share/kernels/sources", FOLDER / "sources")
    shutil.rmtree(project)


def find_debugger() -> str | None:
    """cuda-gdb, from PATH or from a toolkit."""
    folders = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
    found = [shutil.which("cuda-gdb"), *(shutil.which(f"{folder}/bin/cuda-gdb") for folder in folders if folder)]
    return next(filter(None, found), None)


def stops(text: str) -> list[tuple[int, str]]:
    """The lines that a debugger showed when it stopped: number and text."""
    return [(int(number), line.strip()) for number, line in re.findall(r"(?m)^(\d+)\t(.*)$", text)]


def faults_of(output: str, source: list[str], wanted: int) -> list[str]:
    """What is wrong with a session that was to stop at the line `wanted`, and then to step."""
    found = stops(output)
    faults = [
        f"line {number} is shown as {text!r}, and is {source[number - 1].strip()!r}"
        for number, text in found
        if number > len(source) or source[number - 1].strip() != text
    ]
    if not found or found[0][0] != wanted:
        faults.append(f"it did not stop at line {wanted}")
    if len({number for number, _ in found}) < 2:
        faults.append("no step came to another line")
    if not re.search(r"\bsoftmax_fp32_1024\b", output):
        faults.append("the kernel is not called as its variant")
    return faults


def main() -> int:
    """Run one session, and report."""
    if "--prepare" in sys.argv or not (FOLDER / "softmax").exists():
        prepare()
    if "--prepare" in sys.argv:
        return 0
    debugger = find_debugger()
    if debugger is None:
        print("no cuda-gdb here: nothing was tried")
        return 0
    path = FOLDER / "sources" / "kernels" / SOURCE
    source = path.read_text().split("\n")
    wanted = next(number for number, line in enumerate(source, 1) if "tl.load(" in line)
    commands = [
        "set pagination off",
        "set confirm off",
        "set breakpoint pending on",
        f"set substitute-path /<kiln> {FOLDER / 'sources'}",
        f"break {SOURCE}:{wanted}",
        "run",
        "info cuda kernels",
        *["next"] * STEPS,
        "kill",
    ]
    arguments = [word for command in commands for word in ("-ex", command)]
    try:
        done = subprocess.run(
            [debugger, "-q", "-batch", *arguments, FOLDER / "softmax"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        print(f"WRONG cuda-gdb did not end in {late.timeout:.0f} s:\n{late.stdout}")
        return 1
    faults = faults_of(done.stdout, source, wanted)
    for number, text in stops(done.stdout):
        print(f"    {SOURCE}:{number}: {text}")
    print(f"{'WRONG' if faults else 'ok'} cuda-gdb stops at {SOURCE}:{wanted}, and steps")
    for fault in faults:
        print(f"    {fault}")
    if faults:
        print(done.stdout)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

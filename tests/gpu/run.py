"""Every test that needs a GPU, in one command: python3 tests/gpu/run.py

Launches each NVIDIA variant of the default library on each of its problems, with each image and by each function of
the header, alone, by group, from two threads, in two contexts, in a graph and from PTX alone; by the Rust crate in the
same ways, on addresses and on slices of cudarc; and compares with its reference in float64. Then the smallest problem
of each under compute-sanitizer, where that is here; then all of them out of fat binaries, in which the driver chooses;
then softmax through ONNX Runtime's header, with examples/onnxruntime; then tunes softmax over some shapes, runs
examples/c/graph.c and the examples in Rust, and measures what the library costs a program beside the driver alone,
Triton and torch. Prints a line a kernel with its largest error, and ends with 1 when anything is off. Figures alone
make no fault.

Needs an NVIDIA GPU of compute capability 9.0 with its driver, NumPy, and what a build made (build/include, build/lib,
build/src, build/onnxruntime, build/rust). `--prepare` links the programs and writes the plan of launches into
build/gpu, and runs nothing; a machine with a GPU and without cc, c++, cargo and PyYAML then needs that folder alone.
What it has, it uses to make them anew. Triton and torch are asked for their own figures where they are installed.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests")]

from gpu.gpu_figures import run_cost, run_python_costs  # noqa: E402  # importable by the lines above
from gpu.gpu_jobs import LIMIT, names_of, run_bundled, run_kernel, run_memcheck  # noqa: E402  # importable by the lines above
from gpu.gpu_links import (  # noqa: E402  # importable by the lines above
    EXAMPLES,
    STARTS,
    build_rust_cost,
    build_rust_examples,
    build_rust_typed,
    compile_onnxruntime,
    compile_program,
    compile_tuner,
    link_cost,
    link_graph,
    link_typed,
)

FOLDER = ROOT / "build" / "gpu"
SHAPES = (("1", "1"), ("37", "2000"), ("8192", "4096"), ("3", "16384"))
"""rows and columns of the tensors that go through ONNX Runtime's header"""

LINKS: dict[str, Callable[[Path, Path], None]] = {
    "launch": compile_program,
    "typed": link_typed,
    "tune": compile_tuner,
    "graph": link_graph,
    "cost": link_cost,
}
"""programs that a C compiler links with the library"""
RUST = ("rust_typed", "rust_cost", *(f"rust_{kind}_{name}" for kind, names in EXAMPLES.items() for name in names))
"""programs that cargo builds"""


def run_program(program: Path, *arguments: str | Path) -> tuple[list[str], list[str]]:
    """What a program prints, and what went wrong."""
    try:
        done = subprocess.run(
            [program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return [], [f"{program.name} hangs"]
    lines = done.stdout.splitlines()
    if done.returncode:
        return [], [f"exit code {done.returncode}: {line}" for line in lines or [""]]
    return lines, []


def run_tuner(program: Path) -> list[str]:
    """Tune softmax over some shapes, and show what came of it. Returns what went wrong."""
    with tempfile.TemporaryDirectory() as scratch:
        lines, faults = run_program(program, Path(scratch) / "choices")
    for line in lines:
        print(f"    {line}")
    return faults


def run_example(program: Path) -> list[str]:
    """Run an example that needs no arguments, and show what it says. Returns what went wrong."""
    lines, faults = run_program(program)
    for line in lines:
        print(f"    {line}")
    return faults


def run_onnxruntime(program: Path, shapes: Sequence[tuple[str, str]] = SHAPES) -> list[str]:
    """Softmax through that program, of tensors of some shapes. Returns what went wrong."""
    faults = []
    for shape in shapes:
        case = f"softmax of {' x '.join(shape)} through ONNX Runtime's header"
        try:
            done = subprocess.run(
                [program, *shape], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT
            )
        except subprocess.TimeoutExpired:
            faults.append(f"{case}: it hangs")
            continue
        if done.returncode:
            faults.append(f"{case}: exit code {done.returncode}: {done.stdout.strip()[-500:]}")
    return faults


def prepare() -> None:
    """Link the programs and write the plan, as far as this machine can; raises SystemExit when one is missing."""
    if shutil.which("cc") and (ROOT / "build" / "lib").exists():
        # Always: a program that was linked to an older archive would test that one.
        for name, make in LINKS.items():
            make(ROOT / "build", FOLDER / name)
    if shutil.which("c++") and (ROOT / "build" / "onnxruntime").exists():
        compile_onnxruntime(ROOT / "build", FOLDER / "onnxruntime")
    if shutil.which("cc") and (ROOT / "build" / "lib").exists() and importlib.util.find_spec("yaml") is not None:
        from gpu.gpu_bundles import link_bundled

        link_bundled(ROOT, FOLDER)
    if importlib.util.find_spec("yaml") is not None:
        from gpu.gpu_plan import make_plan

        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / "plan.json").write_text(json.dumps(make_plan(ROOT)))
    if shutil.which("cargo") and shutil.which("cc") and (FOLDER / "plan.json").exists():
        build_rust_typed(ROOT, FOLDER / "rust_typed", json.loads((FOLDER / "plan.json").read_text()))
        build_rust_cost(ROOT, FOLDER / "rust_cost", "--release")
        build_rust_examples(ROOT, FOLDER, "--release")
    needs = {**dict.fromkeys((*LINKS, *STARTS), "cc"), "onnxruntime": "c++", "plan.json": "PyYAML"}
    needs |= dict.fromkeys(RUST, "cargo")
    needs |= dict.fromkeys(("typed_fatbin", "onnxruntime_fatbin"), "a CUDA toolkit's fatbinary")
    for name, program in needs.items():
        if not (FOLDER / name).exists():
            remedy = f"run this with --prepare on a machine with {program}, or install that"
            sys.exit(f"build/gpu/{name} is missing: {remedy}")


def tell(what: str, faults: Sequence[str]) -> int:
    """Print what was done and what went wrong, and return how much that is."""
    print(f"{'WRONG' if faults else 'ok'} {what}", flush=True)
    for fault in faults[:10]:
        print(f"    {fault}")
    if len(faults) > 10:
        print(f"    and {len(faults) - 10} more")
    return len(faults)


def main() -> int:
    """Run every variant on its problems, compare, and report."""
    prepare()
    if "--prepare" in sys.argv:
        return 0
    plan = json.loads((FOLDER / "plan.json").read_text())
    unused = plan["variants"].keys() - {launch["variant"] for launch in plan["launches"]}
    bad = len(unused)
    if unused:
        print(f"no problem that they serve: {', '.join(sorted(unused))}")
    for kernel, group in groupby(plan["launches"], lambda launch: launch["kernel"]):
        launches = list(group)
        programs = (FOLDER / "typed", FOLDER / "rust_typed")
        outcome = run_kernel(FOLDER / "launch", launches, plan["variants"], *programs)
        allowed = {launch["dtype"]: launch["tolerance"] for launch in launches}
        errors = ", ".join(f"{name} {error:.1e} of {allowed[name]:.0e}" for name, error in outcome.largest.items())
        counts = f"{len(names_of(launches))} variants, {outcome.launches} launches, {outcome.typed} typed"
        refused = f"{outcome.refused} images refused"
        bad += tell(f"{kernel}: {counts}, {refused}; largest error {errors or 'unknown'}", outcome.faults)
    said, faults = run_memcheck(FOLDER / "typed", plan["launches"], plan["variants"])
    bad += tell(f"compute-sanitizer memcheck: {said}", faults)
    said, faults = run_bundled(FOLDER / "typed_fatbin", plan["launches"], plan["variants"])
    bad += tell(f"fat binaries: {said}", faults)
    bad += tell("onnxruntime: softmax by name and by group", run_onnxruntime(FOLDER / "onnxruntime"))
    bad += tell("onnxruntime: the same out of fat binaries", run_onnxruntime(FOLDER / "onnxruntime_fatbin"))
    bad += tell("tuner: softmax_fp16 over shapes", run_tuner(FOLDER / "tune"))
    bad += tell("examples/c/graph.c", run_example(FOLDER / "graph"))
    for kind, names in EXAMPLES.items():
        for name in names:
            bad += tell(f"examples/rust/{kind}, {name}", run_example(FOLDER / f"rust_{kind}_{name}"))
    bad += tell("costs beside the driver alone", run_cost(FOLDER / "cost", [FOLDER / name for name in STARTS]))
    bad += tell("costs of the crate beside the driver alone", run_cost(FOLDER / "rust_cost", []))
    print("costs of Triton and torch")
    run_python_costs()
    print("all is well" if not bad else f"{bad} faults")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

"""Every test that needs a GPU, in one command: python3 tests/gpu/run.py

Launches each NVIDIA variant of the default library on each of its problems, from the archive with C alone, and compares
with its reference in float64. Prints a line a kernel with its largest error, and ends with 1 when anything is off.

Needs an NVIDIA GPU of compute capability 9.0 with its driver, NumPy, and what a build made (build/include, build/lib).
`--prepare` links the C program and writes the plan of launches into build/gpu, and runs nothing; a machine with a GPU
and without cc and PyYAML then needs that folder alone. What it has, it uses to make them anew.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests")]

from gpu.gpu_numbers import BITS, decode, encode, extent, largest_error, view  # noqa: E402  # importable by the lines above

FOLDER = ROOT / "build" / "gpu"
FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-D_POSIX_C_SOURCE=200809L")
RUNS_ON_SM_90 = ("sm_90a", "compute_80")
"""targets of the default manifest that an H100 or H200 takes; the others must be refused with an error"""
NO_BINARY_FOR_GPU = "209"
"""CUDA_ERROR_NO_BINARY_FOR_GPU"""
LIMIT = 90.0
"""seconds for all launches of a kernel: one that hangs fails alone"""


@dataclass
class Outcome:
    """What came of all launches of one kernel."""

    launches: int = 0
    refused: int = 0
    largest: dict[str, float] = field(default_factory=dict)
    """dtype -> largest error, relative to the largest magnitude in the reference"""
    faults: list[str] = field(default_factory=list)


def compile_program(build: Path, program: Path) -> None:
    """Link the C program with the whole library below `build`."""
    program.parent.mkdir(parents=True, exist_ok=True)
    source, archive = ROOT / "tests" / "gpu" / "launch.c", build / "lib" / "libkernels.a"
    subprocess.run(["cc", *FLAGS, "-I", build / "include", source, archive, "-ldl", "-o", program], check=True)


def load_function(reference: str) -> Any:
    """The function that a kernel's `reference` names, `file.py:function`."""
    file, _, name = reference.partition(":")
    spec = importlib.util.spec_from_file_location(Path(file).stem, ROOT / file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def make_input(argument: Mapping[str, Any], seed: str) -> npt.NDArray[Any]:
    """The bits of a tensor from its first element to its last, gaps included; equal for equal seeds."""
    random = np.random.default_rng(zlib.crc32(seed.encode()))
    size = extent(argument["shape"], argument["strides"])
    if "range" in argument:
        low, high = argument["range"]
        return random.integers(low, high, size).astype(BITS[argument["dtype"]])
    return encode(random.normal(size=size), argument["dtype"])


def with_role(launch: Mapping[str, Any], role: str) -> list[dict[str, Any]]:
    """The arguments that are scalar, input, output or workspace."""
    return [argument for argument in launch["arguments"] if argument["role"] == role]


def known_numbers(launch: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the reference's parameters that are no tensors."""
    values = {**launch["constants"], **launch["problem"]}
    values |= {argument["name"]: argument["value"] for argument in with_role(launch, "scalar")}
    names = inspect.signature(load_function(launch["reference"])).parameters
    return {name: values[name] for name in names if name in values}


def wanted(launch: Mapping[str, Any], inputs: Mapping[str, npt.NDArray[Any]]) -> tuple[npt.NDArray[np.float64], ...]:
    """What the reference makes of a launch's inputs: an array for each output."""
    tensors = {
        argument["name"]: decode(
            view(inputs[argument["name"]], argument["shape"], argument["strides"]), argument["dtype"]
        )
        for argument in with_role(launch, "input")
    }
    result = load_function(launch["reference"])(**tensors, **known_numbers(launch))
    return result if isinstance(result, tuple) else (result,)


def job_lines(launch: Mapping[str, Any], target: str, paths: Mapping[str, Path]) -> Iterator[str]:
    """One launch, as launch.c reads it; `paths` are the files of inputs and outputs."""
    yield f"launch {launch['variant']} {target} {' '.join(map(str, launch['grid']))}"
    for argument in launch["arguments"]:
        name, role = argument["name"], argument["role"]
        if role == "scalar":
            yield f"scalar {name} {argument['hex']}"
            continue
        item = np.dtype(BITS[argument["dtype"]]).itemsize
        size = extent(argument["shape"], argument["strides"]) * item
        yield f"zero {name} {size} {item}" if role == "workspace" else f"{role} {name} {size} {item} {paths[name]}"
    yield "go"


def touched_between(memory: npt.NDArray[Any], shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether any byte that is not the tensor's own is no longer 0xff."""
    is_own = np.zeros(memory.size, bool)
    view(is_own, shape, strides)[...] = True
    return bool((memory.view(np.uint8).reshape(memory.size, -1)[~is_own] != 0xFF).any())


def compare(launch: Mapping[str, Any], target: str, outputs: Mapping[str, Path], right: Any, outcome: Outcome) -> None:
    """Hold what one launch wrote against the reference, and see that it wrote nothing between its rows."""
    case = f"{launch['variant']}@{target} with {launch['problem']}"
    for argument, expected in zip(with_role(launch, "output"), right, strict=True):
        bits = np.fromfile(outputs[argument["name"]], BITS[argument["dtype"]])
        tensor = view(bits, argument["shape"], argument["strides"])
        error = largest_error(decode(tensor, argument["dtype"]), expected)
        outcome.largest[launch["dtype"]] = max(error, outcome.largest.get(launch["dtype"], 0.0))
        if not error <= launch["tolerance"]:
            outcome.faults.append(f"{case}: error of {argument['name']} {error:.2e}")
        if touched_between(bits, argument["shape"], argument["strides"]):
            outcome.faults.append(f"{case}: it wrote between the rows of {argument['name']}")


def run_jobs(program: Path, folder: Path, lines: Sequence[str]) -> list[list[str]]:
    """What the C program says, a list of words a line. Raises RuntimeError when it does not finish."""
    (folder / "jobs").write_text("\n".join(lines) + "\n")
    try:
        done = subprocess.run(
            [program, folder / "jobs"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT
        )
    except subprocess.TimeoutExpired as error:
        said = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        raise RuntimeError(f"it hangs; {len(said.splitlines())} launches ended before") from error
    if done.returncode not in (0, 1):
        raise RuntimeError(f"the program ended with {done.returncode}: {done.stdout.strip()[-500:]}")
    return [line.split(maxsplit=2) for line in done.stdout.splitlines()]


def by_image(
    launches: Sequence[Mapping[str, Any]], variants: Mapping[str, Any]
) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Each launch for each target that this GPU takes, those of an image after each other: it is loaded once."""
    for variant in dict.fromkeys(launch["variant"] for launch in launches):
        for target in (target for target in variants[variant]["targets"] if target in RUNS_ON_SM_90):
            yield from ((launch, target) for launch in launches if launch["variant"] == variant)


def run_kernel(program: Path, launches: Sequence[Mapping[str, Any]], variants: Mapping[str, Any]) -> Outcome:
    """All launches of one kernel, and of each of its variants the images that this GPU must refuse."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        runs: list[tuple[Mapping[str, Any], str, dict[str, Path], Any]] = []
        lines: list[str] = []
        references: dict[str, Any] = {}
        for launch, target in by_image(launches, variants):
            arrays, paths = {}, {}
            for argument in with_role(launch, "input"):
                seed = json.dumps([launch["kernel"], argument])
                path = folder / f"{zlib.crc32(seed.encode()):08x}.in"
                paths[argument["name"]] = path
                if not path.exists():
                    make_input(argument, seed).tofile(path)
                arrays[argument["name"]] = np.fromfile(path, BITS[argument["dtype"]])
            key = json.dumps([with_role(launch, "input"), known_numbers(launch)])
            if key not in references:
                references[key] = wanted(launch, arrays)
            outputs = {each["name"]: folder / f"{len(runs)}.{each['name']}" for each in with_role(launch, "output")}
            lines += job_lines(launch, target, paths | outputs)
            runs.append((launch, target, outputs, references[key]))
        foreign = [
            (variant, target)
            for variant in dict.fromkeys(launch["variant"] for launch in launches)
            for target in variants[variant]["targets"]
            if target not in RUNS_ON_SM_90
        ]
        lines += [f"refuse {variant} {target}" for variant, target in foreign]
        try:
            said = run_jobs(program, folder, lines)
        except RuntimeError as error:
            outcome.faults.append(str(error))
            return outcome
        ended = [words for words in said if words[0] in ("ok", "failed")]
        for (launch, target, outputs, right), words in zip(runs, ended, strict=True):
            outcome.launches += 1
            if words[0] == "ok":
                compare(launch, target, outputs, right, outcome)
            else:
                outcome.faults.append(f"{launch['variant']}@{target} with {launch['problem']}: {words[2]}")
        refusals = Counter(words[2] for words in said if words[0] == "refused")
        outcome.refused = refusals.total()
        if refusals != Counter(f"{target} {NO_BINARY_FOR_GPU}" for _, target in foreign):
            outcome.faults.append(f"images for other GPUs were not all refused with {NO_BINARY_FOR_GPU}: {refusals}")
    return outcome


def prepare() -> None:
    """Link the program and write the plan, as far as this machine can; raises SystemExit when one is missing."""
    if shutil.which("cc") and (ROOT / "build" / "lib").exists():
        # Always: a program that was linked to an older archive would test that one.
        compile_program(ROOT / "build", FOLDER / "launch")
    if importlib.util.find_spec("yaml") is not None:
        from gpu.gpu_plan import make_plan

        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / "plan.json").write_text(json.dumps(make_plan(ROOT)))
    for name, needs in (("launch", "cc"), ("plan.json", "PyYAML")):
        if not (FOLDER / name).exists():
            sys.exit(f"build/gpu/{name} is missing: run this with --prepare on a machine with {needs}, or install that")


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
        outcome = run_kernel(FOLDER / "launch", launches, plan["variants"])
        allowed = {launch["dtype"]: launch["tolerance"] for launch in launches}
        errors = ", ".join(f"{name} {error:.1e} of {allowed[name]:.0e}" for name, error in outcome.largest.items())
        count = len({launch["variant"] for launch in launches})
        verdict = "WRONG" if outcome.faults else "ok"
        counts = f"{count} variants, {outcome.launches} launches, {outcome.refused} images refused"
        print(f"{verdict} {kernel}: {counts}; largest error {errors or 'unknown'}", flush=True)
        for fault in outcome.faults[:10]:
            print(f"    {fault}")
        if len(outcome.faults) > 10:
            print(f"    and {len(outcome.faults) - 10} more")
        bad += len(outcome.faults)
    print("all is well" if not bad else f"{bad} faults")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

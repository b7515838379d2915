"""Launches as jobs of launch.c, typed.c and typed.rs, and what came of them, held against the references."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import shutil
import subprocess
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

from gpu.gpu_numbers import BITS, decode, encode, extent, largest_error, view

ROOT = Path(__file__).parents[2]
RUNS_ON_SM_90 = ("sm_90a", "compute_80")
"""targets of the default manifest that an H100 or H200 takes; the others must be refused with an error"""
NO_BINARY_FOR_GPU = "209"
"""CUDA_ERROR_NO_BINARY_FOR_GPU"""
PTX = "compute_80"
WAYS_BYTES = 16 << 20
"""what the tensors of a launch may take that is done in all ways: each has memory of its own, and takes its time"""
LIMIT = 90.0
"""seconds for all launches of a kernel: one that hangs fails alone"""
LIMIT_UNDER = 180.0
"""seconds for the launches of all variants under a tool that watches them"""
NO_IMAGE = {"c": "KERNELS_ERROR_NO_IMAGE", "rust": "NoCompatibleImage"}
"""what a variant without an image for the GPU is refused with"""
RUST_WAYS = ("driver", "cudarc")
"""how the program in Rust launches"""


@dataclass
class Outcome:
    """What came of all launches of one kernel."""

    launches: int = 0
    refused: int = 0
    typed: int = 0
    """of which each is many launches"""
    largest: dict[str, float] = field(default_factory=dict)
    """dtype -> largest error, relative to the largest magnitude in the reference"""
    faults: list[str] = field(default_factory=list)


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
    """One launch, as launch.c and typed.c read it, without `go`; `paths` are the files of inputs and outputs."""
    yield f"launch {launch['variant']} {target} {' '.join(map(str, launch['grid']))}"
    for argument in launch["arguments"]:
        name, role = argument["name"], argument["role"]
        if role == "scalar":
            yield f"scalar {name} {argument['hex']}"
            continue
        item = np.dtype(BITS[argument["dtype"]]).itemsize
        size = extent(argument["shape"], argument["strides"]) * item
        yield f"zero {name} {size} {item}" if role == "workspace" else f"{role} {name} {size} {item} {paths[name]}"
    for name, data in launch["inputs"].items():
        yield f"scalar {name} {data}"


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


def run_jobs(
    program: Path,
    folder: Path,
    lines: Sequence[str],
    environment: Mapping[str, str] | None = None,
    under: Sequence[str] = (),
    arguments: Sequence[str] = (),
) -> list[list[str]]:
    """What a program says, a list of words a line; `under` is a command that runs it, and takes longer.

    Raises RuntimeError when it does not finish.
    """
    (folder / "jobs").write_text("\n".join(lines) + "\n")
    try:
        done = subprocess.run(
            [*under, program, *arguments, folder / "jobs"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_UNDER if under else LIMIT,
            env={**os.environ, **(environment or {})},
        )
    except subprocess.TimeoutExpired as error:
        said = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        raise RuntimeError(f"it hangs; {len(said.splitlines())} launches ended before") from error
    if done.returncode not in (0, 1):
        raise RuntimeError(f"the program ended with {done.returncode}: {done.stdout.strip()[-500:]}")
    return [line.split(maxsplit=2) for line in done.stdout.splitlines() if line.strip()]


def ended_of(said: Sequence[list[str]], count: int) -> list[list[str]]:
    """What a program says of its launches. Raises RuntimeError when it does not say it of each."""
    ended = [words for words in said if words[0] in ("ok", "failed")]
    if len(ended) != count:
        raise RuntimeError(f"of {count} launches {len(ended)} ended: {' '.join(said[-1]) if said else ''}")
    return ended


def by_image(
    launches: Sequence[Mapping[str, Any]], variants: Mapping[str, Any]
) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Each launch for each target that this GPU takes, those of an image after each other: it is loaded once."""
    for variant in dict.fromkeys(launch["variant"] for launch in launches):
        for target in (target for target in variants[variant]["targets"] if target in RUNS_ON_SM_90):
            yield from ((launch, target) for launch in launches if launch["variant"] == variant)


@dataclass(kw_only=True)
class Tensors:
    """The inputs of launches, as files of a folder, and what the references make of them. Each is made once."""

    folder: Path
    _references: dict[str, Any] = field(default_factory=dict)

    def inputs(self, launch: Mapping[str, Any]) -> dict[str, Path]:
        """Argument -> its file."""
        paths = {}
        for argument in with_role(launch, "input"):
            seed = json.dumps([launch["kernel"], argument])
            path = self.folder / f"{zlib.crc32(seed.encode()):08x}.in"
            paths[argument["name"]] = path
            if not path.exists():
                make_input(argument, seed).tofile(path)
        return paths

    def right(self, launch: Mapping[str, Any]) -> Any:
        """An array for each output."""
        # Of the kernel too: kernels that take the same arguments have inputs of their own.
        key = json.dumps([launch["kernel"], with_role(launch, "input"), known_numbers(launch)])
        if key not in self._references:
            dtypes = {argument["name"]: argument["dtype"] for argument in with_role(launch, "input")}
            arrays = {name: np.fromfile(path, BITS[dtypes[name]]) for name, path in self.inputs(launch).items()}
            self._references[key] = wanted(launch, arrays)
        return self._references[key]


def run_images(
    program: Path,
    tensors: Tensors,
    launches: Sequence[Mapping[str, Any]],
    variants: Mapping[str, Any],
    outcome: Outcome,
) -> None:
    """Each launch with each image that this GPU takes; each of the variants' other images must be refused."""
    runs: list[tuple[Mapping[str, Any], str, dict[str, Path]]] = []
    lines: list[str] = []
    for launch, target in by_image(launches, variants):
        outputs = {each["name"]: tensors.folder / f"{len(runs)}.{each['name']}" for each in with_role(launch, "output")}
        lines += [*job_lines(launch, target, tensors.inputs(launch) | outputs), "go"]
        runs.append((launch, target, outputs))
    foreign = [
        (variant, target)
        for variant in dict.fromkeys(launch["variant"] for launch in launches)
        for target in variants[variant]["targets"]
        if target not in RUNS_ON_SM_90
    ]
    lines += [f"refuse {variant} {target}" for variant, target in foreign]
    said = run_jobs(program, tensors.folder, lines)
    ended = ended_of(said, len(runs))
    for (launch, target, outputs), words in zip(runs, ended, strict=True):
        outcome.launches += 1
        if words[0] == "ok":
            compare(launch, target, outputs, tensors.right(launch), outcome)
        else:
            outcome.faults.append(f"{launch['variant']}@{target} with {launch['problem']}: {words[2]}")
    refusals = Counter(words[2] for words in said if words[0] == "refused")
    outcome.refused = refusals.total()
    if refusals != Counter(f"{target} {NO_BINARY_FOR_GPU}" for _, target in foreign):
        outcome.faults.append(f"images for other GPUs were not all refused with {NO_BINARY_FOR_GPU}: {refusals}")


def run_typed(
    program: Path,
    tensors: Tensors,
    launches: Sequence[Mapping[str, Any]],
    variants: Mapping[str, Any],
    outcome: Outcome,
    only: str | None = None,
    under: Sequence[str] = (),
    expected: Sequence[str] = RUNS_ON_SM_90,
    environment: Mapping[str, str] | None = None,
    way: str | None = None,
) -> None:
    """Launches by the header's functions, in all ways that typed.c has; `only` leaves images of one target alone.

    With `way` the program is typed.rs, and launches by that. Each is of the first of the `expected` targets that the
    variant has an image for. With an `environment` in which the driver chooses otherwise than the library would, groups
    are left out: they tell a choice before they load it.
    """
    allowed = (only,) if only is not None else expected
    runs: list[tuple[Mapping[str, Any], str, dict[str, Path]]] = []
    lines: list[str] = []
    absent = []
    seen = set()
    for launch in launches:
        found = [target for target in allowed if target in variants[launch["variant"]]["targets"]]
        if not found:
            absent.append(launch["variant"])
            continue
        outputs = {
            each["name"]: tensors.folder / f"typed.{len(runs)}.{each['name']}" for each in with_role(launch, "output")
        }
        lines += job_lines(launch, found[0], tensors.inputs(launch) | outputs)
        # A group and its arguments once: it takes the same variant again.
        key = json.dumps([launch["group"], launch["problem"]])
        lines += ["group"] if key not in seen and environment is None else []
        lines += ["ways"] if bytes_of(launch) <= WAYS_BYTES else []
        lines += ["go"]
        seen.add(key)
        runs.append((launch, found[0], outputs))
    lines += [f"absent {variant}" for variant in dict.fromkeys(absent)]
    environment = {**(environment or {}), **({"KERNELS_TARGET": only} if only is not None else {})}
    said = run_jobs(program, tensors.folder, lines, environment, under, () if way is None else (way,))
    ended = ended_of(said, len(runs))
    for (launch, target, outputs), words in zip(runs, ended, strict=True):
        outcome.typed += 1
        if words[0] != "ok":
            typed = "typed" if way is None else f"typed in Rust by {way}"
            outcome.faults.append(f"{launch['variant']}@{target} with {launch['problem']}, {typed}, {words[2]}")
        for suffix in ("", ".group", ".unaligned"):
            written = {name: path.with_name(path.name + suffix) for name, path in outputs.items()}
            if all(path.exists() for path in written.values()):
                compare(launch, f"{target}{suffix}", written, tensors.right(launch), outcome)
                for path in written.values():
                    path.unlink()
    missing = [words[1:] for words in said if words[0] == "absent"]
    if missing != [[variant, NO_IMAGE["c" if way is None else "rust"]] for variant in dict.fromkeys(absent)]:
        outcome.faults.append(f"variants without an image of {only} are not all refused: {missing}")


def bytes_of(launch: Mapping[str, Any]) -> int:
    """What the tensors of a launch take."""
    tensors = [argument for argument in launch["arguments"] if argument["role"] != "scalar"]
    return sum(extent(each["shape"], each["strides"]) * np.dtype(BITS[each["dtype"]]).itemsize for each in tensors)


def run_kernel(
    program: Path,
    launches: Sequence[Mapping[str, Any]],
    variants: Mapping[str, Any],
    typed: Path | None = None,
    rust: Path | None = None,
) -> Outcome:
    """All launches of one kernel: with each image, by launch.c; by the functions of the header too with `typed`, and by
    the crate with `rust`."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as scratch:
        tensors = Tensors(folder=Path(scratch))
        try:
            run_images(program, tensors, launches, variants, outcome)
            firsts = [next(each for each in launches if each["variant"] == name) for name in names_of(launches)]
            if typed is not None:
                run_typed(typed, tensors, launches, variants, outcome)
                run_typed(typed, tensors, firsts, variants, outcome, PTX)
            if rust is not None:
                for way in RUST_WAYS:
                    run_typed(rust, tensors, launches, variants, outcome, way=way)
                run_typed(rust, tensors, firsts, variants, outcome, PTX, way=RUST_WAYS[0])
        except RuntimeError as error:
            outcome.faults.append(str(error))
    return outcome


def run_bundled(
    program: Path, launches: Sequence[Mapping[str, Any]], variants: Mapping[str, Any]
) -> tuple[str, list[str]]:
    """All launches by the header's functions with fat binaries: as the driver chooses, and where it is to take PTX.

    Each must be of the image that the driver took, with threads and memory of that. Returns what was done, and what
    went wrong.
    """
    outcome = Outcome()
    with_ptx = [launch for launch in launches if PTX in variants[launch["variant"]]["targets"]]
    firsts = [next(each for each in with_ptx if each["variant"] == name) for name in names_of(with_ptx)]
    with tempfile.TemporaryDirectory() as scratch:
        tensors = Tensors(folder=Path(scratch))
        try:
            # The driver's own variable: it compiles the PTX in a fat binary, whatever code is there.
            for own, expected, environment in (
                (launches, RUNS_ON_SM_90, None),
                (firsts, (PTX,), {"CUDA_FORCE_PTX_JIT": "1"}),
            ):
                for _, group in groupby(own, lambda launch: str(launch["kernel"])):
                    run_typed(program, tensors, list(group), variants, outcome, None, (), expected, environment)
        except RuntimeError as error:
            outcome.faults.append(str(error))
    return f"{outcome.typed} launches of {len(names_of(launches))} variants", outcome.faults


def names_of(launches: Sequence[Mapping[str, Any]]) -> list[str]:
    """Their variants, each once."""
    return list(dict.fromkeys(launch["variant"] for launch in launches))


def run_memcheck(
    program: Path, launches: Sequence[Mapping[str, Any]], variants: Mapping[str, Any]
) -> tuple[str, list[str]]:
    """The smallest launch of each variant under compute-sanitizer, by the header's functions.

    Returns what was done, and what went wrong. Where the tool is missing or has no access to the GPU, that is said.
    """
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        return "not run, for it is not here", []
    outcome = Outcome()
    smallest = [
        min((launch for launch in launches if launch["variant"] == name), key=bytes_of) for name in names_of(launches)
    ]
    # Whoever looks for a fallback asks the driver for what it may lack: such errors are no fault.
    under = [tool, "--tool", "memcheck", "--report-api-errors", "no", "--error-exitcode", "9"]
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "memcheck"
        under += ["--log-file", str(log)]
        try:
            run_typed(program, Tensors(folder=Path(scratch)), smallest, variants, outcome, under=under)
        except RuntimeError as error:
            outcome.faults.append(str(error))
        found = log.read_text() if log.exists() else ""
        # In some virtual machines the tool refuses the GPU, and each call to the driver is then error 999.
        if any("Device not supported" in text or " is 999" in text for text in (found, *outcome.faults)):
            return "not run, for it has no access to this GPU", []
        if outcome.faults:
            outcome.faults += found.splitlines()[:40]
    return f"{outcome.typed} variants", outcome.faults

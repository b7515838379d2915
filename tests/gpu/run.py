"""Every test that needs a GPU, in one command: python3 tests/gpu/run.py

Needs an NVIDIA GPU with its driver, NumPy, PyYAML and what a build made (build/include, build/lib): the archive alone
is run, so neither Triton nor doit has to be there. `--build-only` links the C program, for a GPU machine without cc.
Prints a line a variant with its largest error against the reference in float64, and ends with 1 when anything is off.
"""

from __future__ import annotations

import importlib.util
import itertools
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from kiln.manifest.loader import load  # noqa: E402  # what is above makes it importable

BUILD = ROOT / "build"
PROGRAM = BUILD / "gpu" / "launch_softmax"
FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-D_POSIX_C_SOURCE=200809L")

RUNS_ON_SM_90 = ("sm_90a", "compute_80")
"""targets of the default manifest that an H100 or H200 takes; the others must be refused with an error"""


def compile_program() -> None:
    """Link the C program with the whole library."""
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    source = ROOT / "tests" / "gpu" / "launch_softmax.c"
    archive = BUILD / "lib" / "libkernels.a"
    command = ["cc", *FLAGS, "-I", BUILD / "include", source, archive, "-ldl", "-o", PROGRAM]
    subprocess.run(command, check=True)


def reference(path: str) -> Any:
    """The function that a kernel's `reference` names, `file.py:function`."""
    file, _, name = path.partition(":")
    spec = importlib.util.spec_from_file_location("reference", ROOT / file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def encode(values: np.ndarray, dtype: str) -> np.ndarray:
    """float64 -> the bits of a dtype, rounded to nearest even."""
    if dtype == "bf16":
        bits = values.astype(np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return values.astype({"fp32": np.float32, "fp16": np.float16}[dtype])


def decode(bits: np.ndarray, dtype: str) -> np.ndarray:
    """The bits of a dtype -> float64."""
    if dtype == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return bits.astype(np.float64)


def main() -> int:
    """Run every variant on several shapes, compare, and report."""
    if shutil.which("cc") or "--build-only" in sys.argv:
        # Always: a program that was linked to an older archive would test that one.
        compile_program()
    if "--build-only" in sys.argv:
        return 0
    manifest = load(ROOT / "kernels.yaml")
    (kernel,) = (kernel for kernel in manifest.kernels if kernel.key == "softmax")
    variants = [variant for variant in manifest.variants if variant.kernel is kernel]
    expected = reference(kernel.reference or "")
    foreign = {target for target in manifest.targets if target.startswith("sm_")} - set(RUNS_ON_SM_90)
    random = np.random.default_rng(20240229)
    bad = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        jobs, inputs = [], {}
        for variant in variants:
            block = int(variant.block)
            shapes = {(problem["n_rows"], problem["n_cols"]) for problem in kernel.problems}
            shapes |= {(1, 1), (3, block), (5, block - 1), (7, block // 2 + 1)}
            for rows, columns in sorted(shape for shape in shapes if shape[1] <= block):
                # A stride beyond the row's end: what lies between the rows must not be touched.
                stride = columns + (0 if rows > 100 else 24)
                data = encode(random.normal(scale=3.0, size=(rows, stride)), variant.dtype)
                name = f"{variant.id}-{rows}-{columns}"
                data.tofile(folder / f"{name}.in")
                inputs[name] = (variant, rows, columns, data)
                for target in RUNS_ON_SM_90:
                    paths = f"{folder / name}.in {folder / name}.{target}"
                    jobs.append(f"{variant.id} {target} {rows} {columns} {stride} {paths}")
            for target in foreign:
                jobs.append(f"{variant.id} {target} {rows} {columns} {stride} {folder / name}.in {folder}/refused")
        (folder / "jobs").write_text("\n".join(jobs) + "\n")
        done = subprocess.run([PROGRAM, folder / "jobs"], stdout=subprocess.PIPE, text=True, check=False)
        ends = Counter(line.split()[0] for line in done.stdout.splitlines())
        print("\n".join(line for line in done.stdout.splitlines() if line.startswith("failed")))
        refused = (line.split() for line in done.stdout.splitlines() if line.startswith("refused"))
        refusals = Counter(" ".join(words[2:]) for words in refused)
        print(f"{len(jobs)} launches: {dict(ends)}; refused, target and driver error: {dict(refusals)}")
        if done.returncode or ends["ok"] != sum(job.split()[1] in RUNS_ON_SM_90 for job in jobs):
            bad += 1
        if set(refusals) != {f"{target} 209" for target in foreign}:
            print("the images for other GPUs were not refused with CUDA_ERROR_NO_BINARY_FOR_GPU (209)")
            bad += 1
        for variant, target in itertools.product(variants, RUNS_ON_SM_90):
            worst, shapes_done = 0.0, 0
            for name, (of, rows, columns, data) in inputs.items():
                output = folder / f"{name}.{target}"
                if of is not variant or not output.exists():
                    continue
                got = np.fromfile(output, data.dtype).reshape(data.shape)
                wanted = expected(decode(data, variant.dtype)[:, :columns])
                worst = max(worst, float(np.abs(decode(got, variant.dtype)[:, :columns] - wanted).max()))
                untouched = got.view(np.uint8).reshape(rows, -1)[:, columns * data.itemsize :]
                if (untouched != 0xFF).any():
                    print(f"{variant.id}@{target} wrote behind its rows")
                    bad += 1
                shapes_done += 1
            limit = kernel.tolerance[variant.dtype]
            verdict = "ok" if shapes_done and worst <= limit else "WRONG"
            bad += verdict != "ok"
            shown = f"{shapes_done} shapes, largest error {worst:.2e}, allowed {limit:.0e}"
            print(f"{verdict} {variant.id}@{target}: {shown}")
    print(f"{'all is well' if not bad else f'{bad} checks failed'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

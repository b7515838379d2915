"""What tests/gpu does short of a GPU: the plan, the numbers, and the C program on a driver that computes nothing.

The double of the driver checks that images are whole and that what is launched is what the facts say; it writes answers
that were made beforehand, right ones and wrong ones.
"""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu import gpu_numbers, gpu_plan
from gpu import run as gpu_run
from kiln.manifest.loader import load
from project import REPOSITORY, Project

MANIFEST = load(REPOSITORY / "kernels.yaml")
NVIDIA = tuple(target for target in MANIFEST.targets if not target.startswith("gfx"))


@pytest.fixture(scope="module")
def plan() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(gpu_plan.make_plan(REPOSITORY)))
    return made


# -- the plan


def test_every_nvidia_variant_is_launched(plan: dict[str, Any]) -> None:
    launched = {launch["variant"] for launch in plan["launches"]}
    assert launched == {variant.id for variant in MANIFEST.variants if set(variant.kernel.targets) & set(NVIDIA)}


def test_promises_hold_and_strides_reach_the_kernel(plan: dict[str, Any]) -> None:
    """What is promised holds, rows do not overlap, and no stride that is an argument follows from a shape."""
    variants = {variant.id: variant for variant in MANIFEST.variants}
    padded = set()
    for launch in plan["launches"]:
        for item, argument in zip(variants[launch["variant"]].signature.items, launch["arguments"], strict=True):
            if argument["role"] == "scalar":
                assert item.promise is None or argument["value"] in (1, 16 * (argument["value"] // 16)), argument
                assert len(bytes.fromhex(argument["hex"])) == {"i32": 4, "i64": 8, "fp32": 4}[item.type]
                continue
            cells = gpu_numbers.extent(argument["shape"], argument["strides"])
            assert cells >= np.prod(argument["shape"])
            if argument["shape"][0] < 100:
                marks = np.zeros(cells, int)
                for index in np.ndindex(*argument["shape"][:-1]):
                    first = int(np.dot(index, argument["strides"][:-1]))
                    marks[
                        first : first + argument["shape"][-1] * argument["strides"][-1] : argument["strides"][-1]
                    ] += 1
                assert marks.max() == 1, argument
            if cells > np.prod(argument["shape"]):
                padded.add(launch["kernel"])
    assert padded == {kernel.key for kernel in MANIFEST.kernels} - {"group_norm", "l2_normalize", "vector_add"}


def test_odd_problems_lie_otherwise() -> None:
    """Columns innermost where both strides are free, heads and rows swapped, and a stride that must be 1 is 1."""
    free = {"r": None, "c": None}
    assert gpu_plan.lay_out([5, 7], ["r", "c"], free, 0) == [10, 1]
    assert gpu_plan.lay_out([5, 7], ["r", "c"], free, 1) == [1, 8]
    assert gpu_plan.lay_out([5, 7], ["r", "c"], {"r": 16, "c": 1}, 1) == [32, 1]
    assert gpu_plan.lay_out([5, 7], ["r", "c"], {"r": 1, "c": 16}, 0) == [1, 32]
    assert gpu_plan.lay_out([5, 7], [None, None], {}, 1) == [7, 1]
    heads = dict.fromkeys("bhm")
    assert gpu_plan.lay_out([2, 3, 4, 8], ["b", "h", "m", None], heads, 0) == [144, 47, 11, 1]
    assert gpu_plan.lay_out([2, 3, 4, 8], ["b", "h", "m", None], heads, 1) == [147, 11, 36, 1]


# -- numbers


def test_bf16_is_the_upper_half_of_fp32() -> None:
    values = np.array([1.0, -2.5, 1 + 2**-8, 1 + 3 * 2**-8, 3.0e38, 1e-30])
    for value, bits in zip(values, gpu_numbers.encode(values, "bf16"), strict=True):
        (whole,) = struct.unpack("<I", struct.pack("<f", value))
        down = whole >> 16
        rest = whole & 0xFFFF
        assert bits == (down + 1 if rest > 0x8000 or (rest == 0x8000 and down % 2) else down)
    decoded = gpu_numbers.decode(gpu_numbers.encode(values, "bf16"), "bf16")
    np.testing.assert_allclose(decoded, values, rtol=2**-8)


def test_fp8_is_what_its_format_says() -> None:
    """Spelt out: the largest, the smallest normal, the smallest, ties to even, saturation, and no byte twice."""
    known = {0x00: 0.0, 0x01: 2**-9, 0x07: 7 * 2**-9, 0x08: 2**-6, 0x38: 1.0, 0x3C: 1.5, 0x7E: 448.0, 0xB8: -1.0}
    for byte, value in known.items():
        assert gpu_numbers.decode(np.array([byte], np.uint8), "fp8e4nv")[0] == value
    numbers = np.array([byte for byte in range(256) if byte & 127 != 127 and byte != 128], np.uint8)
    values = gpu_numbers.decode(numbers, "fp8e4nv")
    assert (gpu_numbers.encode(values, "fp8e4nv") == numbers).all()
    assert np.isnan(gpu_numbers.decode(np.array([0x7F, 0xFF], np.uint8), "fp8e4nv")).all()
    ties = gpu_numbers.encode(np.array([1.0625, 1.1875, -1.0625, 2**-10, 1e9, -1e9]), "fp8e4nv")
    assert ties.tolist() == [0x38, 0x3A, 0xB8, 0x00, 0x7E, 0xFE]


def test_errors_are_relative_to_the_scale_and_never_hide_a_nan() -> None:
    wanted = np.array([0.5, 100.0])
    assert gpu_numbers.largest_error(wanted + np.array([0, 1]), wanted) == pytest.approx(0.01)
    assert gpu_numbers.largest_error(wanted / 1e5 + np.array([1e-5, 0]), wanted / 1e5) == pytest.approx(0.01)
    assert gpu_numbers.largest_error(np.array([0.25, 0.0]), np.zeros(2)) == 0.25
    assert gpu_numbers.largest_error(np.array([0.5, np.nan]), wanted) == float("inf")
    assert gpu_numbers.largest_error(np.array([0.5]), wanted) == float("inf")


# -- the C program


@dataclass(frozen=True, kw_only=True)
class Double:
    """The C program, linked with the default library, and the folder of the driver's double."""

    program: Path
    folder: Path
    images: Path

    def run(self, launches: list[dict[str, Any]], plan: dict[str, Any], answers: dict[int, Any]) -> gpu_run.Outcome:
        """Run launches of one kernel; `answers` are arrays for the outputs of the numbered launches, in order."""
        lines = []
        for number, (launch, target) in enumerate(gpu_run.by_image(launches, plan["variants"])):
            user = (each for each in self.facts(launch["variant"], target)["parameters"] if each["role"] == "user")
            places = {argument["name"]: next(user)["offset"] for argument in self.passed(launch)}
            for argument, bits in zip(gpu_run.with_role(launch, "output"), answers.get(number, ()), strict=False):
                path = self.folder / f"answer-{number}-{argument['name']}"
                bits.tofile(path)
                lines.append(f"{number} {places[argument['name']]} {bits.nbytes} {path}\n")
        (self.folder / "answers").write_text("".join(lines))
        (self.folder / "log").write_text("")
        return gpu_run.run_kernel(self.program, launches, plan["variants"])

    def facts(self, variant: str, target: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.images / target / f"{variant}.facts.json").read_text())
        return found

    def image(self, variant: str, target: str) -> Path:
        (found,) = (path for path in (self.images / target).glob(f"{variant}.*") if path.suffix != ".json")
        return found

    def passed(self, launch: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The arguments that images have as parameters: all but those that are promised to be 1."""
        promises = self.promises(launch)
        return [argument for argument in launch["arguments"] if promises[argument["name"]] != 1]

    def promises(self, launch: Mapping[str, Any]) -> dict[str, int | None]:
        """Argument -> what it is promised to be divisible by, or to be."""
        variant = next(variant for variant in MANIFEST.variants if variant.id == launch["variant"])
        pairs = zip(launch["arguments"], variant.signature.items, strict=True)
        return {argument["name"]: item.promise for argument, item in pairs}

    def log(self) -> list[list[str]]:
        return [line.split() for line in (self.folder / "log").read_text().splitlines()]


@pytest.fixture
def double(
    _program: Path, _driver: Path, default_library: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Double:
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{_driver.parent}{os.pathsep}{os.environ.get('LD_LIBRARY_PATH', '')}")
    monkeypatch.setenv("KILN_DOUBLE", str(tmp_path))
    images = default_library.folder / "build/images"
    lines = []
    for target in gpu_run.RUNS_ON_SM_90:
        for path in sorted((images / target).glob("*.facts.json")):
            facts = json.loads(path.read_text())
            image = next(path.parent.glob(f"{path.name.removesuffix('.facts.json')}.[cp]*"))
            layout = " ".join(f"{each['offset']} {each['size']}" for each in facts["parameters"])
            numbers = [facts["size"], facts["shared_static"], facts["stack"] or 0, facts["registers"] or 0]
            lines.append(f"{image} {' '.join(map(str, numbers))} {len(facts['parameters'])} {layout}\n")
    (tmp_path / "images").write_text("".join(lines))
    return Double(program=_program, folder=tmp_path, images=images)


@pytest.fixture(scope="module")
def _program(default_library: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("gpu") / "launch"
    gpu_run.compile_program(default_library.folder / "build", program)
    return program


@pytest.fixture(scope="module")
def _driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("driver") / "libcuda.so.1"
    source = REPOSITORY / "tests/gpu/driver_double.c"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, source, "-o", path], check=True)
    return path


def small(plan: dict[str, Any], kernel: str) -> list[dict[str, Any]]:
    """The first launch of each variant of a kernel, and of its first variant the second too."""
    found: dict[str, list[dict[str, Any]]] = {}
    for launch in plan["launches"]:
        if launch["kernel"] == kernel:
            found.setdefault(launch["variant"], []).append(launch)
    first = next(iter(found.values()))
    return [*first[:2], *(launches[0] for name, launches in found.items() if name != first[0]["variant"])]


def right_answers(launch: dict[str, Any]) -> list[Any]:
    """What the outputs hold after a launch that went well: the reference's numbers, and 0xff between the rows."""
    inputs = {
        argument["name"]: gpu_run.make_input(argument, json.dumps([launch["kernel"], argument]))
        for argument in gpu_run.with_role(launch, "input")
    }
    found = []
    for argument, values in zip(gpu_run.with_role(launch, "output"), gpu_run.wanted(launch, inputs), strict=True):
        size = gpu_numbers.extent(argument["shape"], argument["strides"])
        bits = np.full(size * np.dtype(gpu_numbers.BITS[argument["dtype"]]).itemsize, 0xFF, np.uint8)
        bits = bits.view(gpu_numbers.BITS[argument["dtype"]])
        tensor = gpu_numbers.view(bits, argument["shape"], argument["strides"])
        tensor[...] = gpu_numbers.encode(values, argument["dtype"])
        found.append(bits)
    return found


@pytest.mark.parametrize("kernel", [kernel.key for kernel in MANIFEST.kernels])
def test_what_is_launched_is_what_the_facts_say(double: Double, plan: dict[str, Any], kernel: str) -> None:
    """Right answers pass; and grid, threads, shared memory, cluster, parameters and scratch are those of the facts."""
    launches = small(plan, kernel)
    runs = list(gpu_run.by_image(launches, plan["variants"]))
    rights = {id(launch): right_answers(launch) for launch in launches}
    outcome = double.run(launches, plan, {number: rights[id(launch)] for number, (launch, _) in enumerate(runs)})
    assert outcome.faults == []
    assert outcome.launches == len(runs)
    variants = {launch["variant"] for launch in launches}
    assert outcome.refused == sum("sm_80" in plan["variants"][variant]["targets"] for variant in variants)
    for (launch, target), (path, grid, block, shared, attributes, parameters) in zip(runs, double.log(), strict=True):
        facts = double.facts(launch["variant"], target)
        # The bytes, for two variants can have the same ones: vector_add reads its block's size when it runs.
        assert Path(path).read_bytes() == double.image(launch["variant"], target).read_bytes()
        blocks = [size * cluster for size, cluster in zip(launch["grid"], facts["cluster"], strict=True)]
        assert grid == ",".join(map(str, blocks))
        assert block == f"{facts['threads']},1,1"
        assert int(shared) == facts["shared_dynamic"]
        expected = "4:{},{},{};".format(*facts["cluster"]) if facts["cluster"] != [1, 1, 1] else ""
        assert attributes == expected + ("2:1,0,0;" if facts["cooperative"] else "") + "-"
        data = bytes.fromhex(parameters)
        assert len(data) == facts["parameter_bytes"]
        user = [each for each in facts["parameters"] if each["role"] == "user"]
        promises = double.promises(launch)
        for argument, place in zip(double.passed(launch), user, strict=True):
            there = data[place["offset"] : place["offset"] + place["size"]]
            if argument["role"] == "scalar":
                assert there.hex() == argument["hex"]
            else:
                # Not more than what is promised: a kernel that needs more is found out.
                size = np.dtype(gpu_numbers.BITS[argument["dtype"]]).itemsize
                step = promises[argument["name"]] or size
                assert int.from_bytes(there, "little") % (2 * step) == step
        hidden = {each["role"]: each["offset"] for each in facts["parameters"] if each["role"] != "user"}
        for role, offset in hidden.items():
            address = int.from_bytes(data[offset : offset + 8], "little")
            assert (address != 0) == (facts[f"{role}_bytes"] != 0)
            assert address % facts[f"{role}_align"] == 0


def test_a_wrong_number_is_found(double: Double, plan: dict[str, Any]) -> None:
    (launch, *_) = small(plan, "softmax")
    launches = [launch]
    right = right_answers(launch)[0]
    wrong = right.copy()
    wrong[-1] += np.asarray(0.01, wrong.dtype)
    outcome = double.run(launches, plan, {0: [right], 1: [wrong]})
    (fault,) = outcome.faults
    assert re.search(r"softmax_\w+@compute_80 with .*: error of output_ptr [1-9]\.\d\de[-+]\d\d", fault)
    outcome = double.run(launches, plan, {1: [right]})
    (fault,) = outcome.faults
    assert re.search(r"softmax_\w+@sm_90a with .*: error of output_ptr inf", fault)


def test_a_write_between_the_rows_and_one_behind_the_last_are_found(
    double: Double, plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = next(each for each in plan["launches"] if each["kernel"] == "rms_norm" and each["problem"]["n_rows"] == 37)
    right = right_answers(launch)[0]
    touched = right.copy()
    touched[launch["problem"]["n_cols"]] = 0
    outcome = double.run([launch], plan, {0: [touched], 1: [right]})
    (fault,) = outcome.faults
    assert "@sm_90a" in fault
    assert fault.endswith("it wrote between the rows of output_ptr")
    monkeypatch.setenv("KILN_DOUBLE_OVERRUN", "1")
    outcome = double.run([launch], plan, {0: [right]})
    assert any(fault.endswith("it wrote behind output_ptr") for fault in outcome.faults)


def test_an_image_that_the_driver_takes_otherwise_is_told(double: Double, plan: dict[str, Any]) -> None:
    """Registers, a parameter's place and an image that loads nowhere: the double says other things than the facts."""
    (launch, *_) = small(plan, "gather_rows")
    # The first launch that comes about is that of the other image, which the double knows as it is.
    text = (double.folder / "images").read_text()
    line = next(line for line in text.splitlines() if f"sm_90a/{launch['variant']}." in line)
    words = line.split()
    for place, value, expected in (
        (4, "99", "the driver counts 99 registers"),
        (2, "8", "the driver counts 8 bytes of static shared memory"),
        (8, "16", "the driver has parameter 1 at 16, of 8 bytes"),
    ):
        changed = " ".join([*words[:place], value, *words[place + 1 :]])
        (double.folder / "images").write_text(text.replace(line, changed))
        outcome = double.run([launch], plan, {0: right_answers(launch)})
        (fault,) = outcome.faults
        assert fault.endswith(expected)
    (double.folder / "images").write_text(text.replace(f"{line}\n", ""))
    outcome = double.run([launch], plan, {0: right_answers(launch)})
    (fault,) = outcome.faults
    assert fault.endswith("cuModuleLoadData(&loaded.module, job->image->data) is 209")


def test_jobs_that_do_not_fit_an_image_are_refused(double: Double) -> None:
    """By the program itself, from its records: a plan that is older than the archive cannot pass."""
    begin = "launch gather_rows_fp16_1024 sm_90a 1 1 1\n"
    cases = {
        begin + "go\n": "failed 0 output_ptr is not given",
        begin + "scalar n_cols 0000\ngo\n": "failed 0 n_cols has 2 bytes, and the record says 4",
        begin + "scalar n_columns 00000000\ngo\n": "failed 0 the image takes no n_columns",
        begin + "scalar n_cols 00000000\nscalar n_cols 00000000\ngo\n": "failed 0 n_cols is given twice",
        begin + "input table_ptr 64 2 /nowhere/x\ngo\n": "failed 0 /nowhere/x has 0 bytes of 64",
        "go\n": "",
        begin + "number n_cols 4\n": "",
    }
    for jobs, said in cases.items():
        path = double.folder / "jobs"
        path.write_text(jobs)
        done = subprocess.run([double.program, path], capture_output=True, text=True, check=False)
        assert done.returncode == (1 if said else 2), done.stderr
        assert done.stdout == (f"{said}\n" if said else "")
        assert said or done.stderr.startswith(f"{path}: ")

"""What tests/gpu does short of a GPU: the plan, the numbers, and its programs on a driver that computes nothing.

The double of the driver checks that images are whole and that what is launched is what the facts say; it writes answers
that were made beforehand, right ones and wrong ones.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from c_doubles import Doubles
from gpu import gpu_bundles, gpu_figures, gpu_jobs, gpu_links, gpu_numbers, gpu_plan, python_costs
from gpu import run as gpu_run
from kiln.manifest.loader import load
from project import REPOSITORY, Project

MANIFEST = load(REPOSITORY / "kernels.yaml")
NVIDIA = tuple(target for target in MANIFEST.targets if not target.startswith("gfx"))


@pytest.fixture(scope="module")
def plan() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(gpu_plan.make_plan(REPOSITORY)))
    return made


@pytest.fixture
def onnxruntime(default_library: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program for ONNX Runtime's header, on a driver that computes softmax on the host."""
    driver = tmp_path / "driver" / "libcuda.so.1"
    driver.parent.mkdir()
    source = REPOSITORY / "tests/onnxruntime_driver.c"
    subprocess.run(["gcc", "-std=c11", "-shared", "-fPIC", source, "-lm", "-o", driver], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver.parent))
    gpu_links.compile_onnxruntime(default_library.folder / "build", tmp_path / "onnxruntime")
    return tmp_path / "onnxruntime"


def test_softmax_through_onnx_runtimes_header(onnxruntime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = [("1", "1"), ("37", "2000")]
    assert gpu_run.run_onnxruntime(onnxruntime, shapes) == []
    monkeypatch.setenv("ORT_DRIVER_FAILS", "launch")
    one, other = gpu_run.run_onnxruntime(onnxruntime, shapes)
    assert one.startswith(
        "softmax of 1 x 1 through ONNX Runtime's header: exit code 2: softmax_fp32_16384 is not launched"
    )
    assert other.startswith("softmax of 37 x 2000 ")


def test_the_tuner_over_shapes(
    default_library: Project,
    doubles: Doubles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With a driver that computes nothing, and says so when it is asked to fail."""
    gpu_links.compile_tuner(default_library.folder / "build", tmp_path / "tune")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(doubles.of("cuda")))
    assert gpu_run.run_tuner(tmp_path / "tune") == []
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].strip().startswith("softmax_fp16 on NVIDIA H100 (80 GB), rows x columns")
    assert re.fullmatch(r" +8192 x +2048: \[2048 2500.0\] 4096 2500.0 8192 2500.0 16384 2500.0", lines[4])
    assert re.fullmatch(r" +a launch on the host: \S+ us of one variant, .*", lines[-1])
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    (fault,) = gpu_run.run_tuner(tmp_path / "tune")
    assert fault.startswith("exit code 2: there is no GPU")


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
    """The C programs, linked with the default library, and the folder of the driver's double."""

    program: Path
    folder: Path
    images: Path

    def run(self, launches: list[dict[str, Any]], plan: dict[str, Any], answers: dict[int, Any]) -> gpu_jobs.Outcome:
        """Run launches of one kernel; `answers` are arrays for the outputs of the numbered launches, in order."""
        lines: list[str] = []
        for number, (launch, target) in enumerate(gpu_jobs.by_image(launches, plan["variants"])):
            lines += self.answer(number, launch, target, answers.get(number, ()))
        (self.folder / "answers").write_text("".join(lines))
        (self.folder / "log").write_text("")
        return gpu_jobs.run_kernel(self.program, launches, plan["variants"])

    def run_typed(
        self,
        launch: dict[str, Any],
        plan: dict[str, Any],
        answers: dict[int, Any],
        only: str | None = None,
        way: str | None = None,
    ) -> gpu_jobs.Outcome:
        """Run one launch by the header's functions, in all ways; -1 is the answer of each launch that has none.

        With `way` by the crate, of which `program` is a program then.
        """
        target = only or gpu_jobs.RUNS_ON_SM_90[0]
        numbered = [self.answer(number, launch, target, bits) for number, bits in answers.items()]
        (self.folder / "answers").write_text("".join(line for lines in numbered for line in lines))
        (self.folder / "log").write_text("")
        outcome = gpu_jobs.Outcome()
        files = self.folder / "tensors"
        files.mkdir(exist_ok=True)
        program = self.program if way is not None else self.program.with_name("typed")
        tensors = gpu_jobs.Tensors(folder=files)
        gpu_jobs.run_typed(program, tensors, [launch], plan["variants"], outcome, only, way=way)
        return outcome

    def answer(self, number: int, launch: Mapping[str, Any], target: str, bits: Sequence[Any]) -> list[str]:
        """The lines of `answers` for the outputs of a launch."""
        user = (each for each in self.facts(launch["variant"], target)["parameters"] if each["role"] == "user")
        places = {argument["name"]: next(user)["offset"] for argument in self.passed(launch)}
        lines = []
        for argument, array in zip(gpu_jobs.with_role(launch, "output"), bits, strict=False):
            path = self.folder / f"answer-{number}-{argument['name']}"
            array.tofile(path)
            lines.append(f"{number} {places[argument['name']]} {array.nbytes} {path}\n")
        return lines

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
    for target in gpu_jobs.RUNS_ON_SM_90:
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
    gpu_links.compile_program(default_library.folder / "build", program)
    gpu_links.link_typed(default_library.folder / "build", program.with_name("typed"))
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
        argument["name"]: gpu_jobs.make_input(argument, json.dumps([launch["kernel"], argument]))
        for argument in gpu_jobs.with_role(launch, "input")
    }
    found = []
    for argument, values in zip(gpu_jobs.with_role(launch, "output"), gpu_jobs.wanted(launch, inputs), strict=True):
        size = gpu_numbers.extent(argument["shape"], argument["strides"])
        bits = np.full(size * np.dtype(gpu_numbers.BITS[argument["dtype"]]).itemsize, 0xFF, np.uint8)
        bits = bits.view(gpu_numbers.BITS[argument["dtype"]])
        tensor = gpu_numbers.view(bits, argument["shape"], argument["strides"])
        tensor[...] = gpu_numbers.encode(values, argument["dtype"])
        found.append(bits)
    return found


def test_kernels_with_equal_arguments_are_compared_with_their_own_references(
    plan: dict[str, Any], tmp_path: Path
) -> None:
    pair = [small(plan, kernel)[0] for kernel in ("matmul_large", "matmul_cluster")]
    assert pair[0]["arguments"] == pair[1]["arguments"]
    tensors = gpu_jobs.Tensors(folder=tmp_path)
    ours, theirs = (tensors.right(launch)[0] for launch in pair)
    assert not np.array_equal(ours, theirs)
    assert tensors.right(pair[0])[0] is ours


@pytest.mark.parametrize("kernel", [kernel.key for kernel in MANIFEST.kernels])
def test_what_is_launched_is_what_the_facts_say(double: Double, plan: dict[str, Any], kernel: str) -> None:
    """Right answers pass; and grid, threads, shared memory, cluster, parameters and scratch are those of the facts."""
    launches = small(plan, kernel)
    runs = list(gpu_jobs.by_image(launches, plan["variants"]))
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
    assert fault.endswith("cuModuleLoadData(&module, kernels_image_data(job->image)) is 209")


def test_jobs_that_do_not_fit_an_image_are_refused(double: Double) -> None:
    """By the program itself, from its records: a plan that is older than the archive cannot pass."""
    begin = "launch gather_rows_fp16_1024 sm_90a 1 1 1\n"
    cases = {
        begin + "go\n": "failed 0 output_ptr is not given",
        begin + "scalar n_cols 0000\ngo\n": "failed 0 n_cols has 2 bytes, and the struct 4",
        begin + "scalar n_columns 00000000\ngo\n": "failed 0 the variant takes no n_columns",
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


# -- by the header's functions


@pytest.mark.parametrize(
    "kernel", ["softmax", "matmul", "matmul_persistent", "matmul_cluster", "l2_normalize", "attention"]
)
def test_a_variant_is_launched_in_all_ways(double: Double, plan: dict[str, Any], kernel: str) -> None:
    """As often as there are ways; one is the group's with addresses that only a fallback takes, where there is one."""
    launch = min((each for each in plan["launches"] if each["kernel"] == kernel), key=gpu_jobs.bytes_of)
    right = right_answers(launch)
    outcome = double.run_typed(launch, plan, {-1: right})
    assert outcome.faults == []
    assert outcome.typed == 1
    launched = [Path(line[0]).stem for line in double.log()]
    alone, replays, context = 1, 2, 1
    threads = 2 if kernel == "l2_normalize" else 6
    by_group = {"matmul": 3, "matmul_cluster": 3}.get(kernel, 2)
    assert len(launched) == alone + by_group + threads + context + replays
    assert launched.count(launch["variant"]) >= len(launched) - by_group
    if kernel == "matmul":
        assert launched[3] == "matmul_fp16_any"


def test_a_variant_is_launched_out_of_a_fat_binary(
    double: Double, plan: dict[str, Any], default_library: Project, tmp_path: Path
) -> None:
    """With the image that the driver takes, and as that wants it: attention has more shared memory on 9.0 than 8.0."""
    gpu_bundles.link_bundled(default_library.folder, tmp_path / "bundled", ("attention", "softmax"))
    (tmp_path / "bundled" / "typed_fatbin").rename(tmp_path / "bundled" / "typed")
    out_of_it = replace(double, program=tmp_path / "bundled" / "launch")
    launch = min((each for each in plan["launches"] if each["kernel"] == "attention"), key=gpu_jobs.bytes_of)
    outcome = out_of_it.run_typed(launch, plan, {-1: right_answers(launch)})
    assert (outcome.faults, outcome.typed) == ([], 1)
    shared = {target: double.facts(launch["variant"], target)["shared_dynamic"] for target in ("sm_80", "sm_90a")}
    assert shared["sm_80"] != shared["sm_90a"]
    own = [line for line in double.log() if Path(line[0]).stem == launch["variant"]]
    assert len(own) > 5 and all(Path(line[0]).parent.name == "sm_90a" for line in own)
    assert all(str(shared["sm_90a"]) in line for line in own)


def test_ptx_alone_is_launched_and_what_has_none_is_absent(double: Double, plan: dict[str, Any]) -> None:
    launch = min((each for each in plan["launches"] if each["kernel"] == "vector_add"), key=gpu_jobs.bytes_of)
    outcome = double.run_typed(launch, plan, {-1: right_answers(launch)}, gpu_jobs.PTX)
    assert (outcome.faults, outcome.typed) == ([], 1)
    assert {Path(line[0]).suffix for line in double.log()} == {".ptx"}
    launch = next(each for each in plan["launches"] if each["kernel"] == "matmul_cluster")
    outcome = double.run_typed(launch, plan, {}, gpu_jobs.PTX)
    assert (outcome.faults, outcome.typed) == ([], 0)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, "error of output_ptr"),
        (1, "@sm_90a.group with .*error of output_ptr"),
        (2, "by dtype: output_ptr is not what the first launch wrote"),
        (5, "threads?: output_ptr is not what the first launch wrote"),
        (9, "in another context: output_ptr is not what the first launch wrote"),
        (11, "in a graph: output_ptr is not what the first launch wrote"),
    ],
)
def test_a_wrong_number_is_found_in_each_way(double: Double, plan: dict[str, Any], number: int, expected: str) -> None:
    launch = next(each for each in plan["launches"] if each["kernel"] == "softmax" and each["problem"]["n_rows"] == 4)
    (right,) = right_answers(launch)
    wrong = right.copy()
    wrong[-1] += np.asarray(0.5, wrong.dtype)
    outcome = double.run_typed(launch, plan, {-1: [right], number: [wrong]})
    assert any(re.search(expected, fault) for fault in outcome.faults), outcome.faults


def test_a_typed_launch_that_writes_elsewhere_is_found(
    double: Double, plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = next(each for each in plan["launches"] if each["kernel"] == "softmax")
    monkeypatch.setenv("KILN_DOUBLE_OVERRUN", "1")
    fault, *_ = double.run_typed(launch, plan, {-1: right_answers(launch)}).faults
    assert fault.endswith("typed, alone: it wrote behind output_ptr")


def test_typed_jobs_that_do_not_fit_the_library_are_refused(double: Double) -> None:
    begin = "launch gather_rows_fp16_1024 sm_90a 1 1 1\n"
    cases = {
        "launch no_such_variant sm_90a 1 1 1\n": "a launch of no_such_variant",
        begin + "scalar n_cols 0000\n": "an argument of n_cols",
        begin + "input table_ptr 64 2 /nowhere/x\n": "a file of /nowhere/x",
        begin + "number 4\n": "a word of number",
        "go\n": "a word outside of a launch of go",
    }
    for jobs, said in cases.items():
        (double.folder / "jobs").write_text(jobs)
        program = double.program.with_name("typed")
        done = subprocess.run([program, double.folder / "jobs"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (2, f"the jobs do not fit the library: {said}\n")


def test_memcheck_runs_where_it_is(double: Double, plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """With programs in its place: one that runs what it is given, one that finds something, one without a GPU."""
    launches = [each for each in plan["launches"] if each["kernel"] == "vector_add"]
    smallest = min(launches, key=gpu_jobs.bytes_of)
    assert double.run_typed(smallest, plan, {-1: right_answers(smallest)}).faults == []
    tool = double.folder / "bin" / "compute-sanitizer"
    tool.parent.mkdir()
    program = double.program.with_name("typed")
    monkeypatch.setenv("PATH", str(tool.parent))
    assert gpu_jobs.run_memcheck(program, launches, plan["variants"]) == ("not run, for it is not here", [])
    run_it = '#!/bin/sh\nwhile [ "$1" != --log-file ]; do shift; done\nlog=$2\nshift 2\n'
    for script, expected in (
        ('exec "$@"', (f"{len(gpu_jobs.names_of(launches))} variants", "")),
        (
            'echo "Invalid __global__ write" > "$log"; "$@" > "$log.out"; exit 9',
            ("0 variants", "Invalid __global__ write"),
        ),
        ('echo "Error: Device not supported" > "$log"; exit 1', ("not run, for it has no access to this GPU", "")),
    ):
        tool.write_text(f"{run_it}{script}\n")
        tool.chmod(0o755)
        said, faults = gpu_jobs.run_memcheck(program, launches, plan["variants"])
        assert (said, faults[-1] if faults else "") == expected


# -- by the crate

IN_RUST = ("softmax", "matmul", "matmul_persistent", "l2_normalize")
"""kernels: with several variants in a group, one for any address; with scratch memory; launched cooperatively"""
PLAINLY = {"CARGO_PROFILE_DEV_OPT_LEVEL": "0", "CARGO_PROFILE_DEV_DEBUG": "0"}


@pytest.fixture(scope="module")
def rust(default_library: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of the crate that was built, and of the programs in Rust."""
    root = tmp_path_factory.mktemp("rust")
    (root / "build").mkdir()
    (root / "build" / "rust").symlink_to(default_library.folder / "build" / "rust")
    for name in ("tests/gpu/rust", "examples/rust"):
        shutil.copytree(REPOSITORY / name, root / name, ignore=shutil.ignore_patterns("target", "Cargo.lock"))
    return root


@pytest.fixture(scope="module")
def _rust_typed(rust: Path, plan: dict[str, Any]) -> Path:
    program = rust / "typed"
    launches = [launch for launch in plan["launches"] if launch["kernel"] in IN_RUST]
    gpu_links.build_rust_typed(rust, program, {**plan, "launches": launches}, **PLAINLY)
    return program


@pytest.fixture
def crate_double(double: Double, _rust_typed: Path) -> Double:
    return replace(double, program=_rust_typed)


@pytest.mark.parametrize("way", gpu_jobs.RUST_WAYS)
@pytest.mark.parametrize("kernel", IN_RUST)
def test_the_crate_launches_a_variant_in_all_ways(
    crate_double: Double, plan: dict[str, Any], kernel: str, way: str
) -> None:
    launch = min((each for each in plan["launches"] if each["kernel"] == kernel), key=gpu_jobs.bytes_of)
    outcome = crate_double.run_typed(launch, plan, {-1: right_answers(launch)}, way=way)
    assert (outcome.faults, outcome.typed) == ([], 1)
    launched = [Path(line[0]).stem for line in crate_double.log()]
    alone, by_group, threads, context, replays = 1, 1, 6, 1, 2
    if kernel == "matmul":
        by_group = 2
        assert launched[2] == "matmul_fp16_any"
    assert len(launched) == alone + by_group + threads + context + replays
    assert launched.count(launch["variant"]) >= len(launched) - by_group


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, "error of output_ptr"),
        (1, "by group: output_ptr is not what the first launch wrote"),
        (4, "threads?: output_ptr is not what the first launch wrote"),
        (8, "in another context: output_ptr is not what the first launch wrote"),
        (10, "in a graph: output_ptr is not what the first launch wrote"),
    ],
)
def test_a_wrong_number_is_found_in_each_way_of_the_crate(
    crate_double: Double, plan: dict[str, Any], number: int, expected: str
) -> None:
    launch = min((each for each in plan["launches"] if each["kernel"] == "softmax"), key=gpu_jobs.bytes_of)
    (right,) = right_answers(launch)
    wrong = right.copy()
    wrong[-1] += np.asarray(0.5, wrong.dtype)
    outcome = crate_double.run_typed(launch, plan, {-1: [right], number: [wrong]}, way="cudarc")
    assert any(re.search(expected, fault) for fault in outcome.faults), outcome.faults


def test_a_wrong_number_is_found_where_addresses_are_not_aligned(crate_double: Double, plan: dict[str, Any]) -> None:
    launch = min((each for each in plan["launches"] if each["kernel"] == "matmul"), key=gpu_jobs.bytes_of)
    (right,) = right_answers(launch)
    outcome = crate_double.run_typed(launch, plan, {-1: [right], 2: [right[::-1].copy()]}, way="driver")
    assert any(re.search(r"@sm_90a\.unaligned with .*error of c_ptr", fault) for fault in outcome.faults), (
        outcome.faults
    )


def test_a_launch_of_the_crate_that_writes_elsewhere_and_a_variant_without_images_are_told(
    crate_double: Double, plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    persistent = next(each for each in plan["launches"] if each["kernel"] == "matmul_persistent")
    outcome = crate_double.run_typed(persistent, plan, {}, gpu_jobs.PTX, way="driver")
    assert (outcome.faults, outcome.typed) == ([], 0)
    launch = next(each for each in plan["launches"] if each["kernel"] == "softmax")
    monkeypatch.setenv("KILN_DOUBLE_OVERRUN", "1")
    fault, *_ = crate_double.run_typed(launch, plan, {-1: right_answers(launch)}, way="driver").faults
    assert fault.endswith("typed in Rust by driver, alone: it wrote before or behind output_ptr")


@pytest.fixture(scope="module")
def examples(rust: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all examples in Rust, built against the default library."""
    folder = tmp_path_factory.mktemp("examples")
    gpu_links.build_rust_examples(rust, folder, **PLAINLY)
    return folder


@pytest.fixture(scope="module")
def _whole_driver(rust: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the double with all functions that programs with cust name, for their loader asks for them."""
    source = REPOSITORY / "tests/gpu/driver_double.c"
    made = gpu_links.link_library(rust / "examples/rust/cust", tmp_path_factory.mktemp("driver"), source) / "lib64"
    (made / "libcuda.so.1").symlink_to("libcuda.so")
    return made


EXAMPLES = [(kind, name) for kind, names in gpu_links.EXAMPLES.items() for name in names]


@pytest.mark.parametrize(("kind", "name"), EXAMPLES)
def test_an_example_in_rust_says_that_there_is_no_driver(
    examples: Path, kind: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cust is linked to it."""
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    faults = gpu_run.run_example(examples / f"rust_{kind}_{name}")
    assert any("libcuda.so" in fault for fault in faults), faults


def softmax(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    powers: npt.NDArray[np.float64] = np.exp(values - values.max(-1, keepdims=True))
    sums: npt.NDArray[np.float64] = powers.sum(-1, keepdims=True)
    return powers / sums


def causal_attention() -> npt.NDArray[np.float16]:
    """What examples/rust/*/src/bin/attention.rs launches: 8 heads of queries over 2 of keys and values."""

    def tensor(heads: int, seed: int) -> npt.NDArray[np.float64]:
        numbers = (np.arange(heads * 300 * 64) * 37 + seed) % 113 / 56.0 - 1.0
        return numbers.astype(np.float16).astype(np.float64).reshape(heads, 300, 64)

    queries, keys, values = tensor(8, 1), tensor(2, 2).repeat(4, 0), tensor(2, 3).repeat(4, 0)
    scores = queries @ keys.swapaxes(1, 2) / 8
    scores[:, ~np.tri(300, dtype=bool)] = -np.inf
    return (softmax(scores) @ values).astype(np.float16)


def example_answers(name: str) -> dict[int, npt.NDArray[Any]]:
    """What each launch of an example writes to its first argument; -1: any launch. They are of the examples' inputs."""
    ramp = np.arange(100_000, dtype=np.float32)
    added, summed = ramp * np.float32(1.5), ramp.reshape(100, 1000).sum(1, np.float64)
    found: dict[str, dict[int, npt.NDArray[Any]]] = {
        "softmax": {0: softmax((np.arange(37 * 2000) % 97 / 10.0).reshape(37, 2000))},
        "attention": {0: causal_attention()},
        "cuda_cpp": {0: added, 1: summed},
        "modules": {0: added, 1: added, 2: summed},
        "graph": {-1: np.eye(1, 1000)},
        "out_of_memory": {-1: np.full((128, 16384), 2.0**-14)},
        "async_tokio": {-1: np.full(1, 2.0**-14)},
    }
    dtype = np.float16 if name == "attention" else np.float32
    return {number: array.astype(dtype) for number, array in found[name].items()}


@pytest.mark.parametrize(("kind", "name"), EXAMPLES)
def test_an_example_in_rust_takes_right_numbers_and_no_others(
    double: Double, examples: Path, _whole_driver: Path, kind: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a driver that has 8 MiB for an allocation, 128 rows of 16384: OutOfMemory came 19 times before."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(_whole_driver))
    if name == "out_of_memory":
        monkeypatch.setenv("KILN_DOUBLE_MEMORY", str(8 << 20))
    program, answers = examples / f"rust_{kind}_{name}", example_answers(name)

    def run() -> tuple[list[str], list[str]]:
        lines = []
        for number, array in answers.items():
            array.tofile(double.folder / f"answer{number}")
            lines.append(f"{number} 0 {array.nbytes} {double.folder / f'answer{number}'}\n")
        (double.folder / "answers").write_text("".join(lines))
        (double.folder / "log").write_text("")
        return gpu_run.run_program(program)

    said, faults = run()
    assert faults == []
    launches = {"graph": 45, "async_tokio": 400}.get(name, len(answers))
    assert len(double.log()) == launches
    if name == "out_of_memory":
        assert said[0] == f"{1 << 26} rows: {1 << 42} bytes asked for, {8 << 20} available"
        assert said[-1].startswith("128 rows at once, after 19 attempts")
    for array in answers.values():
        last = array.reshape(-1)[-1:]
        right = last.copy()
        last[:] = 2 * right + 1
        assert run()[1] != []
        last[:] = right


# -- what is measured


def test_costs_of_the_crate_beside_the_driver(
    double: Double, rust: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program stops at a result that is wrong, and each of its figures has the form of the others."""
    gpu_links.build_rust_cost(rust, tmp_path / "cost", **PLAINLY)
    (double.folder / "answers").write_text("")
    (fault,) = gpu_figures.run_cost(tmp_path / "cost", [], 1)
    assert "the result is 0x0" in fault
    answer = double.folder / "answer"
    np.full(64, 0x2400, np.uint16).tofile(answer)
    (double.folder / "answers").write_text(f"-1 0 {64 * 2} {answer}\n")
    capsys.readouterr()
    assert gpu_figures.run_cost(tmp_path / "cost", [], 1) == []
    lines = capsys.readouterr().out.splitlines()
    for line, bar in zip(lines, ("bar 1.05", "bar 1.1", "ratio", "us more, bar 1000"), strict=True):
        assert re.fullmatch(rf" +\D.*: \d+\.\d\d us, \d+\.\d\d us, .*{re.escape(bar)}.*", line)


def test_costs_beside_the_driver(
    double: Double,
    default_library: Project,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (double.folder / "answers").write_text("")
    gpu_links.link_cost(default_library.folder / "build", tmp_path / "cost")
    starts = [tmp_path / name for name in gpu_links.STARTS]
    monkeypatch.setenv("KILN_DOUBLE", str(double.folder))
    assert gpu_figures.run_cost(tmp_path / "cost", starts, 1) == []
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 12
    for line, bar in zip(lines, ("1.05", "1.1", "1.1", "1.3", "1.3", "50", "50"), strict=False):
        assert re.fullmatch(
            rf" +\D.*: \d+\.\d\d us, \d+\.\d\d us, ratio \d+\.\d{{3}}, .*bar {re.escape(bar)}( over)?", line
        )
    assert lines[7].strip().startswith("15 launches as a graph, beside a stream: ")
    (fault,) = gpu_figures.run_cost(tmp_path / "cost", [*starts[:3], tmp_path / "nowhere"], 1)
    assert "nowhere is 2" in fault or "posix_spawn" in fault
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    (fault,) = gpu_figures.run_cost(tmp_path / "cost", starts, 1)
    assert fault.startswith("cost: exit code 2: libcuda.so.1: cannot open")


def test_a_figure_past_its_bar_says_so() -> None:
    figures: list[dict[str, object]] = [
        {"name": "a", "ours": 1.2, "raw": 1.0, "bar": 1.1},
        {"name": "b", "ours": 90.0, "raw": 30.0, "most": 50},
        {"name": "c", "ours": 1.0, "raw": 1.0, "bar": 1.1},
        {"name": "d", "microseconds": 3.0},
    ]
    assert list(gpu_figures.lines_of(figures)) == [
        "a: 1.20 us, 1.00 us, ratio 1.200, bar 1.1 over",
        "b: 90.00 us, 30.00 us, ratio 3.000, 60.0 us more, bar 50 over",
        "c: 1.00 us, 1.00 us, ratio 1.000, bar 1.1",
        "d: 3.00 us",
    ]


class _Event:
    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, end: _Event) -> float:
        assert end is not self
        return 2.0


class _Kernel:
    """What Triton's JIT is called with."""

    def __init__(self) -> None:
        self.launched: set[tuple[Any, ...]] = set()

    def __getitem__(self, grid: tuple[int]) -> Any:
        return lambda made, given, *numbers, **options: self.launched.add((grid, given, numbers, *options.values()))


def test_costs_from_python(double: Double, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The figures, with a torch that only takes the calls; and the variants of kernels.yaml are what is launched."""
    monkeypatch.setattr(python_costs, "ROUNDS", 2)
    cuda = SimpleNamespace(synchronize=lambda: None, Event=_Event)
    torch = SimpleNamespace(
        cuda=cuda,
        float16="fp16",
        zeros=lambda *shape, dtype, device: (shape, dtype, device),
        empty_like=lambda given: given,
        softmax=lambda given, axis: given[axis],
    )
    kernel = _Kernel()
    python_costs.measure(torch, kernel)
    figures = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(figures) == 13
    on_the_gpu = [each["microseconds"] for each in figures if each["name"].endswith("on the GPU")]
    assert on_the_gpu == [100.0] * 8
    wanted = {
        (8192, 1000, 1024),
        (8192, 2048, 2048),
        (4096, 4096, 4096),
        (1024, 16384, 16384),
        (1, 64, 1024),
        (1, 2048, 2048),
    }
    assert {(grid[0], numbers[0], block) for grid, _, numbers, block, _ in kernel.launched} == wanted
    for *_, block, warps in kernel.launched:
        assert double.facts(f"softmax_fp16_{block}", "sm_90a")["threads"] == 32 * warps


def test_costs_from_python_are_shown_as_far_as_they_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    gpu_figures.run_python_costs()
    assert capsys.readouterr().out == "    not measured: triton and torch not installed\n"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    program = tmp_path / "costs.py"
    program.write_text('print(\'{"name": "a", "microseconds": 2.5}\')\nraise SystemExit("no compiler")\n')
    gpu_figures.run_python_costs(program)
    assert capsys.readouterr().out == "    a: 2.50 us\n    not measured: costs.py: exit code 1: no compiler\n"


def test_the_example_replays_a_graph(
    double: Double,
    default_library: Project,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Captured launches are those of the stream, to the last parameter, and none is launched by the capture."""
    (double.folder / "answers").write_text("")
    (double.folder / "log").write_text("")
    gpu_links.link_graph(default_library.folder / "build", tmp_path / "graph")
    subprocess.run([tmp_path / "graph", "1"], check=True)
    log = double.log()
    assert len(log) == 60
    assert log[:15] == log[15:30] == log[30:45] == log[45:]
    first = [Path(line[0]).stem for line in log[:3]]
    assert first == ["rms_norm_fp32_1024", "layer_norm_fp32_1024", "softmax_fp32_1024"]
    assert gpu_run.run_example(tmp_path / "graph") == []
    assert re.search(r"15 launches: \S+ us on a stream, \S+ us as a graph", capsys.readouterr().out)
    # The last launch of the graph writes something else.
    answer = tmp_path / "answer"
    answer.write_bytes(b"\1")
    (double.folder / "answers").write_text(f"29 0 1 {answer}\n")
    assert subprocess.run([tmp_path / "graph", "1"], check=False).returncode == 1
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    (fault,) = gpu_run.run_example(tmp_path / "graph")
    assert fault == "exit code 2: there is no driver of a GPU"

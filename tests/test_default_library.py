"""The library that this repository declares, built whole: every image, and the programs that link them all."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from c_doubles import DOUBLES, Doubles
from kiln.engine.state import State
from kiln.library import Library
from kiln.manifest.loader import load
from kiln.manifest.model import Image
from kiln.packaging.crate_parts import LIMIT
from optional_tools import llvm
from project import REPOSITORY, Project

MANIFEST = load(REPOSITORY / "kernels.yaml")
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")


@pytest.fixture(scope="module")
def library(default_library: Project) -> Project:
    """This repository's own library, built whole."""
    return default_library


def image_files(library: Project) -> dict[str, Path]:
    """Image id -> file."""
    root = library.folder / "build/images"
    return {f"{path.stem}@{path.parent.name}": path for path in root.rglob("*") if path.suffix in SUFFIXES}


SUFFIXES = (".cubin", ".ptx", ".hsaco")


def facts_of(path: Path) -> dict[str, object]:
    """The facts that lie beside an image."""
    facts: dict[str, object] = json.loads(path.with_suffix(".facts.json").read_text())
    return facts


def test_every_declared_image_is_there(library: Project) -> None:
    assert len(MANIFEST.images) == 294
    assert set(image_files(library)) == {image.id for image in MANIFEST.images}


def test_no_image_holds_an_absolute_path(library: Project) -> None:
    for path in image_files(library).values():
        data = path.read_bytes()
        # Two or more components of letters: `/tmp/x`; machine code hardly ever spells that.
        assert not re.findall(rb"(?<![\w./])/(?:[A-Za-z_][\w.-]{2,}/)+[\w.-]+", data), path
        assert str(library.folder).encode() not in data


def test_facts_of_every_cubin_equal_what_cuobjdump_shows(library: Project) -> None:
    """NVIDIA's own reader: parameters with hidden ones, their offsets and sizes, registers, stack and threads."""
    spec = importlib.util.find_spec("triton")
    assert spec is not None and spec.origin is not None
    tool = Path(spec.origin).parent / "backends/nvidia/bin/cuobjdump"
    cubins = [path for path in image_files(library).values() if path.suffix == ".cubin"]
    assert len(cubins) == sum(image.target.startswith("sm_") for image in MANIFEST.images)
    for path in cubins:
        listing = subprocess.run([tool, "-elf", path], capture_output=True, text=True, check=True).stdout
        number = r"(0x[0-9a-f]+)"
        found = re.findall(rf"Ordinal : {number}\s+Offset\s+: {number}\s+Size\s+: {number}", listing)
        shown = [(int(offset, 16), int(size, 16)) for _, offset, size in sorted(found, key=lambda row: int(row[0], 16))]
        facts = facts_of(path)
        parameters = facts["parameters"]
        assert isinstance(parameters, list)
        assert [(parameter["offset"], parameter["size"]) for parameter in parameters] == shown
        tools = facts["tools"]
        assert isinstance(tools, dict)
        hidden = ["global_scratch", "profile_scratch"] if "triton" in tools else ["user", "user"]
        assert [parameter["role"] for parameter in parameters[-2:]] == hidden
        assert f"register count: {facts['registers']}" in listing
        assert f"frame size: {facts['stack']:#x}" in listing
        # Triton's kernels demand a number of threads, and nvcc's name the most that they take, if any.
        demand = "EIATTR_REQNTID" if "triton" in tools else "EIATTR_MAX_THREADS"
        if "triton" in tools or demand in listing:
            value = rf"{demand}\s+Format:\s+EIFMT_SVAL\s+Value:\s+{facts['threads']:#x} 0x1 0x1"
            assert re.search(value, listing)


def test_facts_of_every_hsaco_equal_what_llvm_shows(library: Project) -> None:
    """LLVM's own reader, of the metadata note: argument layout, kernarg size, LDS, wave size, largest work-group."""
    tool = llvm("readelf")
    images = [path for path in image_files(library).values() if path.suffix == ".hsaco"]
    assert len(images) == sum(image.target.startswith("gfx") for image in MANIFEST.images)
    for path in images:
        listing = subprocess.run([tool, "--notes", path], capture_output=True, text=True, check=True).stdout
        (note,) = re.findall(r"^ +---\n(.*?)^\.\.\.$", listing, re.MULTILINE | re.DOTALL)
        metadata = yaml.safe_load(note)
        (kernel,) = metadata["amdhsa.kernels"]
        facts: dict[str, Any] = facts_of(path)
        arguments = [argument for argument in kernel[".args"] if not argument[".value_kind"].startswith("hidden_")]
        assert [(item["offset"], item["size"]) for item in facts["parameters"]] == [
            (argument[".offset"], argument[".size"]) for argument in arguments
        ], path
        pointers = [argument[".value_kind"] == "global_buffer" for argument in arguments]
        assert pointers[-2:] == [True, True] == [item["role"] != "user" for item in facts["parameters"]][-2:]
        shown = {
            "entry": kernel[".name"],
            "parameter_bytes": kernel[".kernarg_segment_size"],
            "shared_static": kernel[".group_segment_fixed_size"],
            "warp_size": kernel[".wavefront_size"],
            "threads": kernel[".max_flat_workgroup_size"],
            "registers": kernel[".vgpr_count"],
            "scalar_registers": kernel[".sgpr_count"],
            "spills": 4 * kernel[".vgpr_spill_count"],
            "stack": kernel[".private_segment_fixed_size"],
        }
        assert {name: facts[name] for name in shown} == shown, path
        assert metadata["amdhsa.target"].endswith(f"-{facts['arch']}")
        assert facts["warps"] * facts["warp_size"] == facts["threads"]


def test_what_the_default_library_is_there_to_show(library: Project) -> None:
    """Each has an image that needs what its name says, as measured and declared: nothing here is hypothetical."""
    facts = {identifier: facts_of(path) for identifier, path in image_files(library).items()}
    by_id = {image.id: image for image in MANIFEST.images}
    types = {item: image for image in MANIFEST.images for item in _types(image)}
    grids = {sum(dimension.text != "1" for dimension in image.variant.kernel.grid) for image in MANIFEST.images}

    def some(name: str, condition: Callable[[Any], bool]) -> bool:
        return any(condition(each[name]) for each in facts.values())

    assert grids == {1, 2, 3}
    assert {"fp32", "i64", "i32:1", "i32:16", "i64:16", "*i64", "*fp8e4nv:16"} <= types.keys()
    assert some("shared_dynamic", lambda size: size > 48 * 1024)
    assert some("cluster", lambda cluster: cluster == [2, 1, 1])
    assert some("cooperative", bool)
    assert some("global_scratch_bytes", lambda size: size > 0)
    warps = {key: image.variant.options["num_warps"] for key, image in by_id.items() if _is_triton(image)}
    assert any(facts[key]["warps"] > asked for key, asked in warps.items())
    assert any(not _is_triton(by_id[key]) and each["shared_dynamic"] > 0 for key, each in facts.items())
    assert {image.target for image in MANIFEST.images} == set(MANIFEST.targets)
    assert {kernel.targets for kernel in MANIFEST.kernels} >= {MANIFEST.targets, ("sm_90a",)}


def _is_triton(image: Image) -> bool:
    return image.variant.kernel.cuda is None


def _types(image: Image) -> list[str]:
    return [item.type + (f":{item.promise}" if item.promise else "") for item in image.variant.signature.items]


def test_images_equal_those_of_triton_compile(library: Project, tmp_path: Path) -> None:
    """Triton's own entry point, on the whole module, with a cache of its own, in another process.

    The first variant of each kernel in Triton, for each of its targets.
    """
    declared = Library.load(REPOSITORY / "kernels.yaml", tmp_path, State(tmp_path / "state.sqlite"))
    first = {variant.kernel.key: variant.id for variant in reversed(MANIFEST.variants)}
    images = [
        image for image in declared.images if _is_triton(image) and image.variant.id == first[image.variant.kernel.key]
    ]
    assert len({image.variant.kernel.key for image in images}) == 13
    jobs = [
        {
            "module": image.variant.kernel.source_name.removesuffix(".py").replace("/", "."),
            "function": image.variant.kernel.function,
            "arguments": [[item.name, item.type, item.promise] for item in declared.interface(image).arguments],
            "constants": declared.interface(image).constants,
            "target": image.target,
            "options": dict(image.variant.options),
            "path": str(image_files(library)[image.id]),
        }
        for image in images
    ]
    program = """
import importlib, json, sys
from pathlib import Path
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

sys.path.append(sys.argv[2])
different = []
for job in json.loads(Path(sys.argv[1]).read_text()):
    function = getattr(importlib.import_module(job["module"]), job["function"])
    constants = job["constants"] | {name: 1 for name, _, promise in job["arguments"] if promise == 1}
    types = {name: type for name, type, _ in job["arguments"]}
    signature = {name: "constexpr" if name in constants else types[name] for name in function.arg_names}
    place = function.arg_names.index
    hints = {(place(name),): [["tt.divisibility", 16]] for name, _, promise in job["arguments"] if promise == 16}
    source = ASTSource(function, signature, constants, hints)
    kind, _, number = job["target"].partition("_")
    options = job["options"] | ({"ptx_version": 80} if kind == "compute" else {})
    target = GPUTarget("cuda", int(number.rstrip("a")), 32) if number else GPUTarget("hip", job["target"], 64)
    assembly = compile(source, target=target, options=options).asm
    made = assembly[{"sm": "cubin", "compute": "ptx"}.get(kind, "hsaco")]
    if (made.encode() if isinstance(made, str) else made) != Path(job["path"]).read_bytes():
        different.append(job["path"])
if different:
    sys.exit("\\n".join(different))
"""
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "cache"), "TRITON_DISABLE_LINE_INFO": "1"}
    command = [sys.executable, "-c", program, str(tmp_path / "jobs.json"), str(REPOSITORY)]
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stderr


def walked(output: str) -> dict[str, tuple[int, str]]:
    """What a walk program printed: image id -> size and digest; every line must end with ok."""
    rows = [line.split() for line in output.splitlines()]
    assert all(row[-1] == "ok" for row in rows), output
    return {row[0]: (int(row[2]), row[3]) for row in rows}


def expected_walk(library: Project) -> dict[str, tuple[int, str]]:
    """The same, off the image files themselves."""
    found = {}
    for identifier, path in image_files(library).items():
        digest = subprocess.run(["sha256sum", path], capture_output=True, text=True, check=True).stdout.split()[0]
        found[identifier] = (path.stat().st_size, digest)
    return found


def test_a_c_program_links_and_checks_every_image(library: Project, tmp_path: Path) -> None:
    """And what it loads is read-only, and its stack is not executable."""
    build = library.folder / "build"
    walk = tmp_path / "walk"
    source = library.folder / "examples/c/walk.c"
    command = ["gcc", "-std=c99", *WARNINGS, "-I", build / "include", source, build / "lib/libkernels.a", "-o", walk]
    subprocess.run(command, check=True)
    done = subprocess.run([walk], capture_output=True, text=True, check=True)
    assert walked(done.stdout) == expected_walk(library)

    headers = subprocess.run(["readelf", "-lW", walk], capture_output=True, text=True, check=True).stdout
    segments = re.findall(r"^  (\S+) +0x\S+ (0x\S+) 0x\S+ 0x\S+ (0x\S+) (...) 0x", headers, re.MULTILINE)
    flags = {name: shown for name, _, _, shown in segments}
    assert flags["GNU_STACK"] == "RW "
    symbols = subprocess.run(["nm", walk], capture_output=True, text=True, check=True).stdout
    readable = [(int(start, 16), int(size, 16)) for name, start, size, shown in segments if shown.strip() == "R"]
    data = [line.split() for line in symbols.splitlines() if re.search(r"__(sm|compute|gfx)\w+_data$", line)]
    assert len(data) == len(MANIFEST.images)
    for address, _, name in data:
        place = int(address, 16)
        assert place % 64 == 0, name
        assert any(start <= place < start + size for start, size in readable), name


def softmax(columns: int) -> bytes:
    """What the example has to compute of its input."""
    index = np.arange(37 * columns, dtype=np.uint64)
    values = (index * 2654435761 % 2000).astype(np.float32) / np.float32(100) - np.float32(10)
    rows = values.astype(np.float64).reshape(37, columns)
    powers = np.exp(rows - rows.max(axis=1, keepdims=True))
    result: bytes = (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32).tobytes()
    return result


@pytest.mark.parametrize(("driver", "target"), [("cuda", "sm_90a"), ("hip", "gfx942")])
@pytest.mark.parametrize(
    ("compiler", "example", "called"),
    [
        (("gcc", "-std=c99"), "c/softmax.c", "softmax_fp32"),
        (("g++", "-std=c++17"), "cpp/softmax.cpp", "softmax<float>"),
    ],
    ids=["c", "c++"],
)
def test_a_program_launches_by_group(
    library: Project,
    doubles: Doubles,
    tmp_path: Path,
    driver: str,
    target: str,
    compiler: tuple[str, ...],
    example: str,
    called: str,
) -> None:
    """With a driver that computes nothing, and writes what NumPy says: the example takes the variants that fit."""
    program, answers = tmp_path / "softmax", tmp_path / "answers"
    source, archive = library.folder / "examples" / example, library.folder / "build/lib/libkernels.a"
    include = library.folder / "build/include"
    command = [*compiler, *WARNINGS, "-I", include, source, archive, "-ldl", "-lpthread", "-lm", "-o", program]
    subprocess.run(command, check=True)
    answers.mkdir()
    for launch, columns in enumerate((1000, 4096, 16384)):
        (answers / str(launch)).write_bytes(softmax(columns))
    done = doubles.run(driver, program, DOUBLE_ANSWERS=str(answers))
    assert done.returncode == 0, done.stderr
    assert [line.partition(", largest")[0] for line in done.stdout.splitlines()] == [
        f"{called}: softmax_fp32_{columns if columns > 1000 else 1024}@{target} for {columns} columns"
        for columns in (1000, 4096, 16384)
    ]
    (answers / "2").write_bytes(softmax(16384)[:-4] + b"\0\0\x80?")
    assert doubles.run(driver, program, DOUBLE_ANSWERS=str(answers)).returncode == 1
    done = doubles.run("none", program)
    assert (done.returncode, done.stderr) == (2, "there is no driver of a GPU\n")


def test_a_registry_takes_the_crate(library: Project, tmp_path: Path) -> None:
    command = ["cargo", "package", "--no-verify", "--allow-dirty", "--offline", "--quiet", "--target-dir", tmp_path]
    subprocess.run(command, cwd=library.folder / "build/rust/kernels", check=True)
    (packed,) = (tmp_path / "package").glob("*.crate")
    assert packed.stat().st_size < LIMIT


def test_a_rust_program_links_and_checks_every_image(library: Project, tmp_path: Path) -> None:
    example = library.folder / "examples/rust"
    environment = {**os.environ, "CARGO_TARGET_DIR": str(tmp_path / "target")}
    command = ["cargo", "run", "--quiet", "--release", "--manifest-path", example / "Cargo.toml"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert walked(done.stdout) == expected_walk(library)


def test_a_profiler_sees_which_image_a_launch_took(library: Project, doubles: Doubles, tmp_path: Path) -> None:
    """By examples/c/ranges.h, NVTX's own header, and what that loads where a profiler asks for it."""
    folders = importlib.import_module("nvidia").__path__
    (headers,) = (path for folder in folders for path in Path(folder).glob("*/include/nvtx3"))
    program, profiler, answers = tmp_path / "softmax", tmp_path / "profiler.so", tmp_path / "answers"
    nvtx, example = ("-isystem", headers.parent), library.folder / "examples/c/softmax.c"
    build = library.folder / "build"
    command = ["gcc", "-std=c99", *WARNINGS, *nvtx, "-DWITH_NVTX", "-I", build / "include", example]
    command += [build / "lib/libkernels.a", "-ldl", "-lpthread", "-lm", "-o", program]
    subprocess.run(command, check=True)
    command = ["gcc", "-std=gnu11", "-Wall", "-Werror", *nvtx, "-shared", "-fPIC", DOUBLES / "nvtx_profiler.c"]
    subprocess.run([*command, "-o", profiler], check=True)
    answers.mkdir()
    for launch, columns in enumerate((1000, 4096, 16384)):
        (answers / str(launch)).write_bytes(softmax(columns))
    done = doubles.run("cuda", program, DOUBLE_ANSWERS=str(answers), NVTX_INJECTION64_PATH=str(profiler))
    assert done.returncode == 0, done.stderr
    ranges = [line for line in done.stdout.splitlines() if not line.startswith("softmax_fp32:")]
    images = [f"softmax_fp32_{columns}@sm_90a" for columns in (1024, 4096, 16384)]
    assert ranges == [line for image in images for line in (f"> {image}", "<")]

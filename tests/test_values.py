"""Constants and signatures as kernels in use have them: built, and held against what Triton makes of the same ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kiln.engine.state import State
from kiln.errors import KilnError
from kiln.library import Library
from kiln.manifest.dtypes import DTYPES
from project import Project

KERNEL = """\
import torch
import triton
import triton.language as tl


@triton.jit
def relu(x):
    return tl.maximum(x, 0.0)


@triton.jit
def square(x):
    return x * x


@triton.jit
def values_kernel(
    out_ptr, bias_ptr, sizes, n, stride,
    ACT: tl.constexpr, OUT: tl.constexpr, SHAPE: tl.constexpr, MODE: tl.constexpr, LOW: tl.constexpr,
    EPS: tl.constexpr, WINDOW: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    x = tl.load(sizes[0] + offsets * sizes[1][0] + sizes[1][1], mask=mask).to(tl.float32)
    if bias_ptr is not None:
        x += tl.load(bias_ptr + offsets, mask=mask)
    x = ACT(x) * SHAPE[0] + SHAPE[1][0] + EPS + LOW
    if MODE == "negated":
        x = -x
    if WINDOW is None:
        x += 0.5
    else:
        x *= WINDOW
    tl.store(out_ptr + offsets * stride, x.to(OUT), mask=mask)
"""

MANIFEST = """\
version: 1
library: scratch
targets: [sm_90a, gfx942]
kernels:
  values:
    source: kernels/values.py
    function: values_kernel
    dtypes: [fp16, bf16]
    axes: {ACT: {relu: {function: relu}, squared: {function: square}}, WINDOW: {full: null, w4: 4}}
    blocks: [128]
    constants: {bias_ptr: null, OUT: {dtype: "{dtype}"}, SHAPE: [2, [3]], MODE: negated, LOW: -7, EPS: 1e-5}
    exclude: [{dtype: bf16, WINDOW: [null]}, {dtype: bf16, ACT: {function: square}}]
    name: values_{dtype}_{ACT}_{WINDOW}
    group: all_{dtype}_{ACT}_{WINDOW}
    signature: "*{dtype}:16, (*{dtype}:16, (i32:1, i32:16)), i32, i64"
    grid: ["cdiv(n, BLOCK_SIZE)"]
    select: sizes_1_0 == 1 and sizes_1_1 >= 0
    tensors: {sizes_0: [n]}
    problems: [{n: 100, sizes_1_1: 16}]
"""

REFERENCE = """\
import hashlib, importlib.util, json, os, sys, types
os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
os.environ["TRITON_CACHE_DIR"] = sys.argv[2]
sys.modules["torch"] = types.ModuleType("torch")
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
spec = importlib.util.spec_from_file_location("values", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
found = {}
targets = {"sm_90a": ("cubin", GPUTarget("cuda", 90, 32)), "gfx942": ("hsaco", GPUTarget("hip", "gfx942", 64))}
for target, (kind, gpu) in targets.items():
    for dtype, out in (("fp16", tl.float16), ("bf16", tl.bfloat16)):
        for act, window in (("relu", None), ("relu", 4), ("square", None), ("square", 4)):
            if dtype == "bf16" and (act == "square" or window is None):
                continue
            constants = {
                "bias_ptr": None, "ACT": getattr(module, act), "OUT": out, "SHAPE": (2, (3,)), "MODE": "negated",
                "LOW": -7, "EPS": 1e-5, "WINDOW": window, "BLOCK_SIZE": 128, (2, 1, 0): 1,
            }
            signature = {
                "out_ptr": f"*{dtype}", "bias_ptr": "constexpr", "sizes": (f"*{dtype}", ("constexpr", "i32")),
                "n": "i32", "stride": "i64",
            }
            signature |= {name: "constexpr" for name in constants if isinstance(name, str)}
            divisible = [["tt.divisibility", 16]]
            attributes = {(0,): divisible, (2, 0): divisible, (2, 1, 1): divisible}
            signature = {name: signature[name] for name in module.values_kernel.arg_names}
            source = ASTSource(module.values_kernel, signature, constants, attributes)
            options = {"num_warps": 4, "enable_fp_fusion": True}
            image = triton.compile(source, target=gpu, options=options).asm[kind]
            name = f"values_{dtype}_{'squared' if act == 'square' else act}_{'full' if window is None else 'w4'}"
            found[f"{name}@{target}"] = hashlib.sha256(image).hexdigest()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project.create(tmp_path_factory.mktemp("values") / "scratch", manifest=MANIFEST, values=KERNEL)
    project.doit("compile", "header", "record").expect(" 0 failed")
    return project


def test_each_image_equals_that_of_triton_for_the_same_values(project: Project, tmp_path: Path) -> None:
    """null, lists, dtypes, functions, texts, negative and real numbers, tuple arguments with promises; all differ."""
    project.write("reference.py", REFERENCE)
    made = project.run_python("reference.py", "kernels/values.py", str(tmp_path)).expect()
    expected = json.loads(made.output.splitlines()[-1])
    folder = project.folder / "build/images"
    found = {
        f"{path.name.removesuffix('.facts.json')}@{path.parent.name}": json.loads(path.read_text())["sha256"]
        for path in folder.rglob("*.facts.json")
    }
    assert found == expected
    assert len(found) == len(set(found.values())) == 10


def test_members_of_tuples_and_values_in_the_header(project: Project) -> None:
    header = project.read("build/include/scratch/scratch.h")
    struct = header.partition("struct scratch_values_fp16_relu_full_args {\n")[2].partition("};")[0]
    assert [line.strip() for line in struct.strip().splitlines()] == [
        "void *out_ptr; /* *fp16, address must be a multiple of 16 */",
        "void *sizes_0; /* *fp16, [n], address must be a multiple of 16 */",
        "int32_t sizes_1_0; /* i32, must be 1, which is compiled in: no image has it as a parameter */",
        "int32_t sizes_1_1; /* i32, value must be a multiple of 16, at 16 in the parameter buffer */",
        "int32_t n; /* i32, at 20 in the parameter buffer */",
        "int64_t stride; /* i64, at 24 in the parameter buffer */",
    ]
    text = re.sub(r"\s*\n \*\s+", " ", header)
    assert "bias_ptr = None, ACT = relu, OUT = fp16, SHAPE = (2, (3,)), MODE = negated, LOW = -7, EPS = 1e-05" in text


def test_a_function_given_as_a_constant_is_part_of_its_variants_only(project: Project) -> None:
    project.edit("kernels/values.py", "return x * x", "return x * x * x")
    ran = project.doit("compile").expect().ran("compile")
    assert sorted(ran) == sorted(
        f"values_fp16_squared_{window}@{target}" for window in ("full", "w4") for target in ("sm_90a", "gfx942")
    )
    project.edit("kernels.yaml", "w4: 4}", "w4: 5}")
    ran = project.doit("compile").expect().ran("compile")
    assert {image.split("@")[0] for image in ran} == {
        "values_fp16_relu_w4",
        "values_fp16_squared_w4",
        "values_bf16_relu_w4",
    }


SCALARS = """\
import triton
import triton.language as tl


@triton.jit
def scalar_kernel(out_ptr, in_ptr, value):
    tl.store(out_ptr, tl.load(in_ptr).to(tl.float32) + value.to(tl.float32))
"""

BUILT_ELSEWHERE = ("i32", "fp16", "bf16", "fp32")

SCALAR_MANIFEST = """\
version: 1
library: scratch
targets: [sm_90a, gfx942]
kernels:
  scalar:
    source: kernels/scalar.py
    function: scalar_kernel
    dtypes: [{dtypes}]
    blocks: [{{tag: one, num_warps: 1}}]
    name: scalar_{{dtype}}
    group: scalars_{{dtype}}
    signature: "*fp32, *{{dtype}}, {{dtype}}"
    grid: [1]
    targets: [{targets}]
"""


def test_every_dtype_is_a_scalar_and_a_pointer_on_each_target_that_has_it(tmp_path: Path) -> None:
    """What is said to be there compiles, passes its checks, and has the size that callers are told."""
    files = {}
    for target, lacks in (("sm_90a", ("fp8e4b8", "fp8e5b16")), ("gfx942", ("fp8e4b15",))):
        dtypes = [name for name in DTYPES if name not in (*lacks, *BUILT_ELSEWHERE)]
        text = SCALAR_MANIFEST.format(dtypes=", ".join(dtypes), targets=target)
        files[target] = text.replace("targets: [sm_90a, gfx942]", f"targets: [{target}]")
    project = Project.create(tmp_path / "scratch", manifest=files["sm_90a"], scalar=SCALARS)
    for target, text in files.items():
        project.write("kernels.yaml", text)
        project.doit("compile").expect(" 0 failed")
        for path in (project.folder / "build/images" / target).glob("*.facts.json"):
            parameters = json.loads(path.read_text())["parameters"]
            dtype = path.name.removeprefix("scalar_").removesuffix(".facts.json")
            assert [item["size"] for item in parameters[:3]] == [8, 8, DTYPES[dtype].size], dtype


def request(folder: Path, manifest: str, source: str) -> str:
    """The error that a library of these files ends with, before anything is compiled."""
    (folder / "kernels").mkdir(exist_ok=True)
    (folder / "kernels/values.py").write_text(source)
    (folder / "kernels/scalar.py").write_text(SCALARS)
    (folder / "kernels.yaml").write_text(manifest)
    with pytest.raises(KilnError) as caught:
        library = Library.load(folder / "kernels.yaml", folder / "build", State(folder / "build/state.sqlite"))
        for image in library.images:
            library.request(image)
    print(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("bias_ptr: null, ", "", ["15:5", "fewer items", "bias_ptr: (*fp16:16, (i32:1, i32:16))", "null"]),
        ("sizes_1_0 == 1", "sizes_0 == 1", ["select of", "sizes_0, which is no integer"]),
        ("sizes_1_0 == 1", "size_1_0 == 1", ["did you mean 'sizes_1_0'"]),
        ("{n: 100,", "{m: 100,", ["19:17", "neither an argument nor an input", "n, stride"]),
        ("{n: 100,", "{sizes_0: 100,", ["19:17", "*fp16, no integer", "did you mean 'sizes_1_0'"]),
        ("{n: 100, sizes_1_1", "{n: 100, size_1_1", ["19:25", "did you mean 'sizes_1_"]),
        ("LOW: -7", "LOV: -7", ["sets the constant LOV", "LOV = -7", "did you mean 'LOW'"]),
        ("{function: square}}, WINDOW", "{function: squares}}, WINDOW", ["squares"]),
        (", n, stride", ", sizes_0, stride", ["two arguments are called sizes_0", "member of the tuple sizes"]),
    ],
)
def test_what_does_not_fit_the_function(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    manifest, source = MANIFEST.replace(old, new), KERNEL.replace(old, new)
    assert (manifest, source) != (MANIFEST, KERNEL)
    if old == ", n, stride":
        source = source.replace("< n\n", "< stride\n")
        manifest = manifest.replace("n,", "stride,").replace("[n]", "[stride]").replace("{n:", "{stride:")
    if "squares" in new:
        manifest = manifest.replace("ACT: {function: square}", "ACT: {function: squares}")
    message = request(tmp_path, manifest, source)
    assert [word for word in words if word not in message] == []


@pytest.mark.parametrize(
    ("dtypes", "targets", "words"),
    [
        (
            "fp8e4b15",
            "sm_90a, gfx942",
            ["12:5", "scalar_fp8e4b15", "gfx942", "targets: [sm_90a]", "fp8e4nv or fp8e4b8"],
        ),
        ("fp8e4b8", "sm_90a", ["cannot be built for sm_90a, which has no fp8e4b8", "another dtype or target"]),
        ("fp16, fp8e5b16", "sm_90a, gfx942", ["scalar_fp8e5b16", "targets: [gfx942]"]),
    ],
)
def test_dtypes_that_a_target_lacks(tmp_path: Path, dtypes: str, targets: str, words: list[str]) -> None:
    manifest = SCALAR_MANIFEST.format(dtypes=dtypes, targets=targets).replace("[sm_90a, gfx942]", f"[{targets}]")
    message = request(tmp_path, manifest, KERNEL)
    assert [word for word in words if word not in message] == []

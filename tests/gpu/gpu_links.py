"""Links the programs here, in C and in Rust, with the library below a build folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gpu.gpu_starts import records_of
from kiln.manifest.names import member_name

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-D_POSIX_C_SOURCE=200809L")

STARTS: dict[str, tuple[int, Sequence[str]]] = {
    "start_few": (10, ("-fno-pie", "-no-pie")),
    "start_many": (1000, ("-fno-pie", "-no-pie")),
    "start_few_pie": (10, ("-fPIE", "-pie")),
    "start_many_pie": (1000, ("-fPIE", "-pie")),
}
"""programs of start.c, in the order in which cost.c takes them: how many images each has, and how it is linked. A
loader sets the pointers of what is position-independent when it starts"""


def link(build: Path, source: Path, program: Path, *more: str | Path) -> None:
    """Compile one C file and link it with the whole library below `build`; `more` goes before the library."""
    program.parent.mkdir(parents=True, exist_ok=True)
    archive, libraries = build / "lib" / "libkernels.a", ["-ldl", "-lpthread"]
    command = ["cc", *FLAGS, "-I", build / "include", source, *more, archive, *libraries, "-o", program]
    subprocess.run(command, check=True)


def compile_program(build: Path, program: Path) -> None:
    """Link launch.c."""
    link(build, HERE / "launch.c", program)


def compile_tuner(build: Path, program: Path) -> None:
    """Link the program that tunes."""
    link(build, HERE / "tune.c", program)


def link_graph(build: Path, program: Path) -> None:
    """Link the example that replays a graph."""
    link(build, ROOT / "examples" / "c" / "graph.c", program)


def link_cost(build: Path, program: Path) -> None:
    """Link the program that measures, and beside it those that it starts."""
    link(build, HERE / "cost.c", program)
    for name, (count, flags) in STARTS.items():
        made = program.with_name(name)
        with TemporaryDirectory() as folder:
            (Path(folder) / "records.h").write_text(records_of(count))
            link(build, HERE / "start.c", made, "-I", build / "src", "-I", folder, *flags)


def compile_onnxruntime(build: Path, program: Path) -> None:
    """Link examples/onnxruntime with what is made for ONNX Runtime below `build`: whole, and with its symbols shown."""
    program.parent.mkdir(parents=True, exist_ok=True)
    warnings = [flag for flag in FLAGS if flag.startswith("-W")]
    made, flags = build / "onnxruntime", ["-std=c++17", "-O2", *warnings, "-rdynamic"]
    sources = sorted((ROOT / "examples" / "onnxruntime").glob("*.cpp"))
    whole: list[str | Path] = ["-Wl,--whole-archive", made / "triton_kernel_infos.a", "-Wl,--no-whole-archive"]
    subprocess.run(["c++", *flags, "-I", made, *sources, *whole, "-ldl", "-o", program], check=True)


def typed_calls(header: str) -> str:
    """C tables of all functions in a library's header that launch: `calls` by name, and `fronts` by dtype."""
    function = r"^static inline int kernels_(\w+)_launch\("
    alone = re.findall(function + r"const struct kernels_\w+ \*args", header, re.MULTILINE)
    by_dtype = re.findall(function + r"\s+enum kernels_dtype dtype", header, re.MULTILINE)
    lines = ["/* Made from the library's header. */", "struct call {", "    const char *name;"]
    lines += ["    int (*launch)(const void *args, struct CUstream_st *stream);", "};", "struct front {"]
    lines += ["    const struct kernels_group *(*find)(enum kernels_dtype dtype);"]
    lines += ["    int (*launch)(enum kernels_dtype dtype, const void *args, struct CUstream_st *stream);", "};"]
    for number, name in enumerate(alone):
        lines.append(f"static int call_{number}(const void *args, struct CUstream_st *stream)")
        lines.append(f"{{ return kernels_{name}_launch(args, stream); }}")
    for number, name in enumerate(by_dtype):
        lines.append(f"static int front_{number}(enum kernels_dtype dtype, const void *args, struct CUstream_st *on)")
        lines.append(f"{{ return kernels_{name}_launch(dtype, args, on); }}")
    rows = ", ".join(f'{{ "{name}", call_{number} }}' for number, name in enumerate(alone))
    lines.append(f"static const struct call calls[] = {{ {rows} }};")
    rows = ", ".join(f"{{ kernels_{name}_for, front_{number} }}" for number, name in enumerate(by_dtype))
    lines.append(f"static const struct front fronts[] = {{ {rows} }};")
    return "\n".join(lines) + "\n"


def link_typed(build: Path, program: Path) -> None:
    """Link typed.c, which calls each function of the header."""
    header = (build / "include" / "kernels" / "kernels.h").read_text()
    program.parent.mkdir(parents=True, exist_ok=True)
    (program.parent / "typed_calls.h").write_text(typed_calls(header))
    link(build, HERE / "typed.c", program, "-I", program.parent)


RUST = {
    "fp32": "f32",
    "fp16": "kernels::F16",
    "bf16": "kernels::BF16",
    "fp8e4nv": "kernels::F8E4NV",
    "i32": "i32",
    "i64": "i64",
}
"""elements of tensors in Rust"""
EXAMPLES = {
    "cudarc": ("softmax", "attention", "cuda_cpp", "graph", "out_of_memory", "async_tokio"),
    "cust": ("softmax", "attention", "modules", "graph", "out_of_memory", "async_tokio"),
}
"""package of examples/rust -> its programs"""


def rust_calls(plan: Mapping[str, Any]) -> str:
    """The table of tests/gpu/rust/src/bin/typed.rs: the arguments of each variant, and of each group that has some."""
    lines = ["calls! {"]
    seen = set()
    for launch in plan["launches"]:
        for kind, name in (("variants", launch["variant"]), ("groups", launch["group"])):
            if name not in seen:
                lines += [f"    {kind}::{name} {{", *_fields(launch), "    }"]
            seen.add(name)
    return "\n".join([*lines, "}"]) + "\n"


def _fields(launch: Mapping[str, Any]) -> Iterator[str]:
    roles = {"input": "read", "output": "written", "workspace": "written", "scalar": "scalar"}
    arguments = [(each["name"], roles[each["role"]], each.get("dtype")) for each in launch["arguments"]]
    arguments += [(name, "scalar", None) for name in launch["inputs"]]
    for name, role, dtype in sorted(arguments, key=lambda argument: list(roles.values()).index(argument[1])):
        elements = f": {RUST[dtype]}" if role != "scalar" else ""
        yield f'        {role} {member_name(name)} = "{name}"{elements};'


def cargo_build(root: Path, package: str, *more: str, **environment: str) -> Path:
    """Build a package's programs, and return the folder that they are in."""
    target = root / "build" / "cargo"
    environment = {**os.environ, **environment, "CARGO_TARGET_DIR": str(target)}
    command = ["cargo", "build", "--quiet", "--manifest-path", root / package / "Cargo.toml", *more]
    subprocess.run(command, check=True, env=environment)
    return target / ("release" if "--release" in more else "debug")


def build_rust_typed(root: Path, program: Path, plan: Mapping[str, Any], **environment: str) -> None:
    """Build typed.rs for the launches of a plan; a project's folder `root` has the crate, and the package, at their
    places."""
    program.parent.mkdir(parents=True, exist_ok=True)
    calls = program.with_name("calls.rs")
    calls.write_text(rust_calls(plan))
    made = cargo_build(root, "tests/gpu/rust", "--bin", "typed", GPU_CALLS=str(calls), **environment)
    shutil.copy2(made / "typed", program)


def build_rust_cost(root: Path, program: Path, *more: str, **environment: str) -> None:
    """Build the program in Rust that measures."""
    made = cargo_build(root, "tests/gpu/rust", "--bin", "cost", *more, **environment)
    shutil.copy2(made / "cost", program)


def build_rust_examples(root: Path, folder: Path, *more: str, **environment: str) -> None:
    """Build the examples in Rust, and put them into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, programs in EXAMPLES.items():
        package = f"examples/rust/{kind}"
        if kind == "cust":
            sdk = link_library(root / package, root / "build" / "cargo" / "sdk")
            environment = {**environment, "CUDA_LIBRARY_PATH": str(sdk)}
        made = cargo_build(root, package, *more, **environment)
        for name in programs:
            shutil.copy2(made / name, folder / f"rust_{kind}_{name}")


def link_library(package: Path, sdk: Path, *sources: Path) -> Path:
    """A folder that stands in for the SDK of CUDA where a package is linked with cust: a libcuda.so in which functions
    that `sources` do not have end the program.

    The driver takes its place when the program starts, by the same soname.
    """
    command = ["cargo", "metadata", "--quiet", "--format-version", "1", "--manifest-path", package / "Cargo.toml"]
    packages = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["packages"]
    (raw,) = (Path(each["manifest_path"]).parent for each in packages if each["name"] == "cust_raw")
    declared = re.findall(r"pub fn (cu\w+)\s*\(", (raw / "src" / "cuda.rs").read_text())
    (sdk / "lib64").mkdir(parents=True, exist_ok=True)
    source = sdk / "libcuda.c"
    functions = (f"__attribute__((weak)) void {name}(void) {{ abort(); }}\n" for name in sorted(set(declared)))
    source.write_text("#include <stdlib.h>\n" + "".join(functions))
    flags = ("-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")
    subprocess.run(["cc", *flags, source, *sources, "-o", sdk / "lib64" / "libcuda.so"], check=True)
    return sdk

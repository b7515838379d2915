"""Links the C programs here with the library below a build folder."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from gpu.gpu_starts import records_of

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

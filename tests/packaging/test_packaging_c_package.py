"""The public header: it compiles everywhere, lays arguments out as images do, and computes what kernels.yaml says."""

from __future__ import annotations

import dataclasses
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from c_library import Package, accepts, compile_program, run, standards

from kiln.binaries.facts import Parameter
from kiln.errors import PackagingError
from kiln.manifest.interface import Argument, Interface
from kiln.packaging import c_names
from kiln.packaging.c_package import render_header
from kiln.packaging.record import Record
from softmax_images import expression, make_kernel, make_manifest

USE = "#include <kernels/kernels.h>\n"


def remade(record: Record, **changes: Any) -> Record:
    """The record with another declaration: `arguments` (name, type, promise), `constants`, or keys of the kernel."""
    arguments: Sequence[tuple[str, str, int | None]] | None = changes.pop("arguments", None)
    constants = changes.pop("constants", dict(record.interface.constants))
    interface = Interface(arguments=record.interface.arguments, constants=constants)
    facts = record.facts
    if arguments is not None:
        changes.setdefault("tensors", {})
        changes.setdefault("select", None)
        interface = Interface(
            arguments=tuple(Argument(name=name, type=type, promise=promise) for name, type, promise in arguments),
            constants=constants,
        )
        sizes = {
            "*": 8,
            "i1": 1,
            "i8": 1,
            "i32": 4,
            "i64": 8,
            "u64": 8,
            "fp16": 2,
            "fp32": 4,
            "fp64": 8,
            "nvTmaDesc": 8,
        }
        parameters, end = [], 0
        for _, type, promise in arguments:
            if promise != 1:
                size = sizes["*" if type.startswith("*") else type]
                offset = -(-end // size) * size
                parameters.append(Parameter(offset=offset, size=size, role="user"))
                end = offset + size
        facts = dataclasses.replace(facts, parameters=tuple(parameters), parameter_bytes=end)
    variant = dataclasses.replace(record.image.variant, kernel=make_kernel(**changes))
    image = dataclasses.replace(record.image, variant=variant)
    return Record(image=image, facts=facts, interface=interface, path=record.path)


def render(records: list[Record], folder: Path) -> Path:
    """The folder of headers, to be given to a compiler."""
    render_header(records, make_manifest(records), folder)
    return folder / "include"


def members(include: Path) -> list[str]:
    """The lines of the first argument struct."""
    text = (include / "kernels" / "kernels.h").read_text()
    found = re.search(r"^struct \w+_args \{\n(.*?)^\};", text, re.DOTALL | re.MULTILINE)
    assert found
    return [line.strip() for line in found.group(1).splitlines()]


@pytest.mark.parametrize(("compiler", "standard"), standards())
def test_compiles_without_a_warning(package: Package, compiler: str, standard: str) -> None:
    assert accepts(USE + USE, compiler, standard, "-I", package.include) == ""


def test_writes_the_files_that_it_names(records: list[Record], tmp_path: Path) -> None:
    render(records, tmp_path)
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert written == set(c_names.header_files("kernels"))


def test_arguments_lie_where_the_image_has_them(records: list[Record], package: Package, tmp_path: Path) -> None:
    """Offsets as a compiler sees them equal those that were read off the images."""
    names = [argument.name for argument in records[0].interface.arguments]
    rows = "".join(
        f'printf("{record.image.id} {name} %zu %zu\\n", offsetof(struct {struct}, {name}),'
        f" sizeof(((struct {struct} *)0)->{name}));\n"
        for record in records
        for struct in [f"kernels_{record.image.variant.id}_args"]
        for name in names
    )
    source = f"{USE}#include <stdio.h>\nint main(void) {{\n{rows}return 0;\n}}\n"
    printed = run(compile_program(source, tmp_path / "offsets", "-I", package.include)).splitlines()
    expected = [
        f"{record.image.id} {name} {parameter.offset} {parameter.size}"
        for record in records
        for name, parameter in zip(names, record.facts.parameters, strict=False)
    ]
    assert printed == expected


@pytest.mark.parametrize(("compiler", "standard"), standards())
def test_the_layout_is_asserted(records: list[Record], tmp_path: Path, compiler: str, standard: str) -> None:
    """With one offset changed in the header, no compiler takes it."""
    header = render(records, tmp_path) / "kernels" / "kernels.h"
    text = header.read_text()
    assert "_args, n_cols, 24, 4);" in text
    header.write_text(text.replace("_args, n_cols, 24, 4);", "_args, n_cols, 20, 4);"))
    assert "n_cols_offset" in accepts(USE, compiler, standard, "-I", header.parents[1])


def test_what_a_member_says(package: Package) -> None:
    assert members(package.include) == [
        "void *output_ptr; /* *fp32, [n_rows, n_cols], address must be a multiple of 16 */",
        "void *input_ptr; /* *fp32, [n_rows, n_cols], address must be a multiple of 16 */",
        "int32_t input_row_stride; /* i32 */",
        "int32_t output_row_stride; /* i32 */",
        "int32_t n_cols; /* i32 */",
        "int32_t n_rows; /* launch input, not passed to the kernel */",
    ]


@pytest.mark.parametrize("standard", ["c99", "c17", "c++20"])
def test_every_type_of_argument(records: list[Record], tmp_path: Path, standard: str) -> None:
    """Small, folded and awkwardly named arguments: compilers agree on the struct, and folded ones keep their place."""
    arguments = [
        ("flag", "i1", None),
        ("scale", "fp32", None),
        ("stride", "i32", 1),
        ("half", "fp16", None),
        ("new", "i64", 16),
        ("x", "*i8", None),
        ("eps", "fp64", None),
        ("register", "i8", None),
    ]
    include = render([remade(records[0], arguments=arguments)], tmp_path)
    assert members(include) == [
        "bool flag; /* i1 */",
        "float scale; /* fp32 */",
        "int32_t stride; /* i32, must be 1, which is compiled in: no image has it as a parameter */",
        "uint16_t half; /* fp16, at 8 in the parameter buffer */",
        "int64_t new_; /* i64, called new in the kernel and in records, value must be a multiple of 16 */",
        "void *x; /* *i8 */",
        "double eps; /* fp64 */",
        "int8_t register_; /* i8, called register in the kernel and in records */",
        "int32_t n_rows; /* launch input, not passed to the kernel */",
    ]
    assert accepts(USE, "gcc", standard, "-I", include) == ""


def packed(record: Record, values: dict[str, str], folder: Path) -> bytes:
    """What the variant's _pack writes into a buffer full of ones, as a program under the sanitizers prints it."""
    struct = f"kernels_{record.image.variant.id}"
    assignments = "".join(f"args.{name} = {value};\n" for name, value in values.items())
    source = f"""{USE}#include <stdio.h>
int main(void) {{
    struct {struct}_args args;
    unsigned char buffer[{struct}_buffer_bytes];
    memset(&args, 0xff, sizeof args);
    memset(buffer, 0xff, sizeof buffer);
    {assignments}
    {struct}_pack(&args, buffer);
    for (size_t i = 0; i < sizeof buffer; i++) printf("%02x", (unsigned)buffer[i]);
    return 0;
}}
"""
    folder.mkdir(exist_ok=True)
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-I", render([record], folder))
    return bytes.fromhex(run(compile_program(source, folder / "pack", *flags)))


def test_packing_follows_the_images(folded: list[Record], tmp_path: Path) -> None:
    """Real images whose third argument is folded: what follows lies 4 bytes lower in the buffer than in the struct."""
    names = ["output_ptr", "input_ptr", "input_row_stride", "output_row_stride", "n_cols", "n_rows"]
    values = dict(zip(names, ["(void *)0x1122", "(void *)0x3344", "1", "55", "66", "77"], strict=True))
    for record in folded:
        parameters = record.facts.parameters
        assert [(item.offset, item.size) for item in parameters if item.role == "user"] == [
            (0, 8),
            (8, 8),
            (16, 4),
            (20, 4),
        ]
        expected = bytearray(record.facts.parameter_bytes)
        for parameter, value in zip(parameters, (0x1122, 0x3344, 55, 66), strict=False):
            expected[parameter.offset : parameter.offset + parameter.size] = value.to_bytes(parameter.size, "little")
        assert packed(record, values, tmp_path / record.image.target) == expected
    assert members(tmp_path / "sm_80" / "include") == [
        "void *output_ptr; /* *fp32, [n_rows, n_cols], address must be a multiple of 16 */",
        "void *input_ptr; /* *fp32, [n_rows, n_cols], address must be a multiple of 16 */",
        "int32_t input_row_stride; /* i32, must be 1, which is compiled in: no image has it as a parameter */",
        "int32_t output_row_stride; /* i32, at 16 in the parameter buffer */",
        "int32_t n_cols; /* i32, at 20 in the parameter buffer */",
        "int32_t n_rows; /* launch input, not passed to the kernel */",
    ]


def test_packing_behind_a_folded_first_argument(records: list[Record], tmp_path: Path) -> None:
    """The struct has the pointer at 8 and the images have it at 0; structs of other images take no part in it."""
    arguments = [("stride", "i32", 1), ("x", "*i32", None), ("n", "i32", None)]
    record = remade(
        records[0], arguments=arguments, inputs={}, grid=(expression("n"), expression("1"), expression("1"))
    )
    buffer = packed(record, {"stride": "1", "x": "(void *)0x0102030405060708", "n": "-2"}, tmp_path)
    assert buffer == struct.pack("<Qi", 0x0102030405060708, -2)


def test_the_buffer_holds_that_of_every_image(records: list[Record], tmp_path: Path) -> None:
    """Images of one variant can have different hidden parameters; zeros stand for all of them."""
    pair = records[:2]
    facts = dataclasses.replace(pair[1].facts, parameter_bytes=pair[1].facts.parameter_bytes + 8)
    text = (
        render([pair[0], dataclasses.replace(pair[1], facts=facts)], tmp_path) / "kernels" / "kernels.h"
    ).read_text()
    assert pair[0].facts.parameter_bytes == 48
    assert "enum { kernels_softmax_fp32_1024_buffer_bytes = 56 };" in text


@pytest.mark.parametrize("standard", ["c99", "c17", "c++20"])
def test_a_folded_argument_compiles_without_a_warning(folded: list[Record], tmp_path: Path, standard: str) -> None:
    assert accepts(USE, "gcc", standard, "-I", render(folded, tmp_path)) == ""


@pytest.mark.parametrize("standard", ["c99", "c17", "c++20"])
def test_no_arguments_at_all(records: list[Record], tmp_path: Path, standard: str) -> None:
    """C has no empty struct."""
    one = expression("1")
    record = remade(records[0], arguments=[], inputs={}, grid=(one, one, one))
    assert accepts(USE, "gcc", standard, "-I", render([record], tmp_path)) == ""


def test_grid_and_selection_follow_the_expressions(records: list[Record], tmp_path: Path) -> None:
    """The inline functions give what the expressions give in Python, at the edges too."""
    grid = (expression("cdiv(n_cols, BLOCK_SIZE) * n_rows"), expression("max(n_rows // 2, 1)"), expression("1"))
    select = expression("n_cols <= BLOCK_SIZE and (n_rows > 3 or CAUSAL == 1)")
    constants = {"BLOCK_SIZE": 1024, "CAUSAL": True, "SCALE": 0.5}
    record = remade(records[0], grid=grid, select=select, constants=constants)
    include = render([record], tmp_path)
    struct = f"kernels_{record.image.variant.id}"
    source = f"""{USE}#include <inttypes.h>
#include <stdio.h>
int main(void) {{
    int32_t n_rows, n_cols;
    while (scanf("%" SCNd32 " %" SCNd32, &n_rows, &n_cols) == 2) {{
        struct {struct}_args args = {{0}};
        uint32_t grid[3] = {{9, 9, 9}};
        args.n_rows = n_rows;
        args.n_cols = n_cols;
        int status = (int){struct}_grid(&args, grid);
        printf("%d %" PRIu32 " %" PRIu32 " %" PRIu32 " %d\\n", status, grid[0], grid[1], grid[2],
               {struct}_selects(&args));
    }}
    return 0;
}}
"""
    cases = [
        (1, 1),
        (0, 5),
        (-1, 5),
        (7, 1024),
        (7, 1025),
        (131070, 1),
        (131072, 1),
        (2**31 - 1, 1),
        (2**31 - 1, 2**31 - 1),
    ]
    stdin = "".join(f"{n_rows} {n_cols}\n" for n_rows, n_cols in cases).encode()
    expected = []
    for n_rows, n_cols in cases:
        values = {"n_rows": n_rows, "n_cols": n_cols, **{name: int(value) for name, value in constants.items()}}
        x, y, z = (int(dimension.evaluate(values)) for dimension in grid)
        in_range = 0 <= x < 2**31 and 0 <= y < 2**16 and 0 <= z < 2**16
        status = 2 if not in_range else 1 if 0 in (x, y, z) else 0
        shown = (x, y, z) if in_range else (9, 9, 9)
        expected.append(f"{status} {shown[0]} {shown[1]} {shown[2]} {int(select.evaluate(values))}")
    assert {line[0] for line in expected} == {"0", "1", "2"}
    assert run(compile_program(source, tmp_path / "grid", "-I", include), stdin=stdin).splitlines() == expected


def test_an_argument_beyond_63_bits(records: list[Record], tmp_path: Path) -> None:
    """It is no number of the expressions: the grid is out of range and the variant not selected; nothing wraps."""
    one = expression("1")
    record = remade(
        records[0],
        arguments=[("n", "u64", None)],
        inputs={},
        grid=(expression("min(n, 5)"), one, one),
        select=one_or_more(),
    )
    struct = f"kernels_{record.image.variant.id}"
    source = f"""{USE}#include <stdio.h>
int main(void) {{
    struct {struct}_args args = {{UINT64_C(1) << 63}};
    uint32_t grid[3] = {{0, 0, 0}};
    printf("%d %d ", (int){struct}_grid(&args, grid), {struct}_selects(&args));
    args.n -= 1;
    printf("%d %d\\n", (int){struct}_grid(&args, grid), {struct}_selects(&args));
    return 0;
}}
"""
    assert run(compile_program(source, tmp_path / "wide", "-I", render([record], tmp_path))) == "2 0 0 1\n"


def one_or_more() -> Any:
    return expression("n >= 1 or n < 0")


def test_hostile_text_stays_in_comments(records: list[Record], tmp_path: Path) -> None:
    """Text that the manifest and the kernel's source can hold does not become code."""
    constants = {"MODE": "*/ #error hostile\n/* ??/\n\\", "BLOCK_SIZE": 1024}
    record = remade(records[0], constants=constants, source_name="kernels/*/é??/\u202e.py", function="f*/g")
    include = render([record], tmp_path)
    for standard in ("c99", "c17", "c++20"):
        assert accepts(USE, "gcc", standard, "-I", include) == ""


@pytest.mark.parametrize("which", [0, 1])
def test_parameters_that_no_struct_has(records: list[Record], tmp_path: Path, which: int) -> None:
    """In one image of a variant: the one struct cannot serve it, whichever it is."""
    pair = records[:2]
    moved = list(pair[which].facts.parameters)
    moved[4] = dataclasses.replace(moved[4], offset=28)
    facts = dataclasses.replace(pair[which].facts, parameters=tuple(moved))
    pair[which] = dataclasses.replace(pair[which], facts=facts)
    with pytest.raises(PackagingError) as caught:
        render(pair, tmp_path)
    assert str(caught.value).startswith(
        f"{pair[which].image.id}: the image has argument 'n_cols' where no struct has it\n"
        "  expected: offset 24\n  actual: offset 28\n"
    )


def test_parameters_of_another_signature(records: list[Record], tmp_path: Path) -> None:
    record = records[0]
    fewer = dataclasses.replace(record.interface, arguments=record.interface.arguments[:-1])
    with pytest.raises(PackagingError) as caught:
        render([dataclasses.replace(record, interface=fewer)], tmp_path)
    assert "the image's parameters are not those of its signature" in str(caught.value)
    assert caught.value.expected == (
        "output_ptr of 8 bytes, input_ptr of 8 bytes, input_row_stride of 4 bytes, output_row_stride of 4 bytes"
    )


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"grid": (expression("n_row"),) * 3}, "grid of softmax depends on 'n_row', an integer that no launch knows"),
        ({"grid": (expression("output_ptr"),) * 3}, "grid of softmax depends on 'output_ptr'"),
        ({"inputs": {"n_cols": "i32"}}, "arguments or launch inputs that structs would call 'n_cols'"),
        (
            {"arguments": [("new", "i32", None), ("new_", "i32", None)]},
            "softmax has two arguments or launch inputs that structs would call 'new_'",
        ),
        ({"arguments": [("t", "nvTmaDesc", None)]}, "an argument of type 'nvTmaDesc', which no caller can pass"),
    ],
    ids=["unknown name", "a pointer", "input named like an argument", "one name in C", "an unknown type"],
)
def test_what_cannot_be_said_in_c(records: list[Record], tmp_path: Path, changes: dict[str, Any], what: str) -> None:
    record = remade(records[0], **changes)
    with pytest.raises(PackagingError) as caught:
        render([record], tmp_path)
    assert what in str(caught.value)
    assert not (tmp_path / "include").exists()


def test_nothing_to_package(records: list[Record], tmp_path: Path) -> None:
    with pytest.raises(PackagingError, match="there are no images"):
        render_header([], make_manifest(records), tmp_path)

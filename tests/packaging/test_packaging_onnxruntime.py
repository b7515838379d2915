"""Header and archive for ONNX Runtime: its format to the letter, and what that cannot say."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from c_library import HOST, WARNINGS, symbols, tool

from kiln.binaries.host_object import read_host_object
from kiln.errors import PackagingError, Position
from kiln.manifest.model import OnnxRuntime, TableRow
from kiln.packaging.archive import read_archive
from kiln.packaging.onnxruntime import Row, make_infos_archive, render_infos
from kiln.packaging.onnxruntime import fitting as fitting_rows
from kiln.packaging.onnxruntime_format import ARCHIVE, HEADER, warning
from kiln.packaging.record import Record
from kiln.toolchain.hosts import HOSTS
from optional_tools import require

PLACE = Position(file="kernels.yaml", line=4, column=1)


def of(records: list[Record], target: str) -> list[Record]:
    return [record for record in records if record.image.target == target]


def declared(kernels: tuple[str, ...] | None = None, target: str = "sm_90a") -> OnnxRuntime:
    return OnnxRuntime(target=target, kernels=kernels, position=PLACE)


def rows(records: list[Record]) -> list[Row]:
    return [Row(record=record, path=record.path, kind=record.facts.kind) for record in records]


def fitting(records: list[Record], asked: OnnxRuntime) -> list[Record]:
    return [row.record for row in fitting_rows(records, asked, {})]


def render(records: list[Record], folder: Path, target: str = "sm_90a") -> str:
    render_infos(rows(records), "kernels", declared(target=target), folder)
    return (folder / HEADER).read_text()


def changed(record: Record, **facts: Any) -> Record:
    return replace(record, facts=replace(record.facts, **facts))


def with_constants(record: Record, **constants: Any) -> Record:
    return replace(record, interface=replace(record.interface, constants=constants))


def archive(records: list[Record], folder: Path, cc: Path | None = None) -> Path:
    make_infos_archive(rows(records), HOST, cc or tool("gcc"), tool("ar"), folder)
    return folder / ARCHIVE


# -- the header


def test_the_header_is_the_documented_one(records: list[Record], tmp_path: Path) -> None:
    """Struct, names, order and row are those of the format's own example, spaces aside."""
    text = render(of(records, "sm_90a"), tmp_path)
    squeezed = " ".join(text.split())
    assert (
        "struct _TritonKernelInfo { const char* name_start; const char* func_name; const char* group_name; "
        "const char* name; int num_warps; int shared; std::unordered_map<std::string, int> constants; };" in squeezed
    )
    assert (
        'const _TritonKernelInfo kernel_infos[] = { { "_binary_softmax_fp32_1024_cubin_start", "softmax_kernel", '
        '"softmax_fp32", "softmax_fp32_1024", 4, 16, { { "BLOCK_SIZE", 1024} } }, '
        '{ "_binary_softmax_fp16_2048_cubin_start", "softmax_kernel", "softmax_fp16", "softmax_fp16_2048", 8, 32, '
        '{ { "BLOCK_SIZE", 2048} } }, };' in squeezed
    )


def test_it_says_what_a_launch_passes(records: list[Record], folded: list[Record], tmp_path: Path) -> None:
    """Once for all groups that pass the same; the hidden pointers are part of it, an argument that is 1 is not."""
    text = render([*of(records, "sm_90a"), *of(folded, "sm_90a")], tmp_path).replace("\n//     ", " ")
    passed = r"global_scratch at 32, void \*profile_scratch at 40, 48 bytes"
    assert re.search(
        rf"^// softmax_fp32, softmax_fp16: void \*output_ptr at 0, .*n_cols at 24, void \*{passed}$", text, re.M
    )
    (line,) = re.findall(r"^// folded_fp32: .*$", text, re.M)
    assert "input_row_stride" not in line and "output_row_stride at 16" in line


def test_variants_of_a_group_that_pass_other_things_are_told_apart(
    records: list[Record], folded: list[Record], tmp_path: Path
) -> None:
    plain, odd = of(records, "sm_90a")[0], of(folded, "sm_90a")[0]
    odd = replace(odd, image=replace(odd.image, variant=replace(odd.image.variant, group="softmax_fp32")))
    text = render([plain, odd], tmp_path)
    assert "\n// softmax_fp32_1024: void" in text and "\n// folded_fp32_1024: void" in text


@pytest.mark.parametrize("standard", ["c++17", "c++20"])
def test_the_header_compiles_without_a_warning(records: list[Record], tmp_path: Path, standard: str) -> None:
    """By itself, in two units of a program, whatever the constants are; and it holds what the rows say."""
    first, second = of(records, "sm_90a")
    render([with_constants(first), with_constants(second, BLOCK_SIZE=2048, EVEN=True)], tmp_path)
    (tmp_path / "one.cpp").write_text(
        "#include <triton_kernel_infos.h>\nint one() { return kernel_infos[0].num_warps; }\n"
    )
    (tmp_path / "two.cpp").write_text(
        "#include <triton_kernel_infos.h>\n#include <triton_kernel_infos.h>\n#include <cstdio>\nint one();\n"
        "int main() {\n  static_assert(sizeof(kernel_infos) / sizeof(kernel_infos[0]) == 2);\n"
        "  const auto& second = kernel_infos[1].constants;\n"
        "  const auto first = kernel_infos[0].constants.size();\n"
        '  std::printf("%zu %d %d %d\\n", first, second.at("BLOCK_SIZE"), second.at("EVEN"), one());\n}\n'
    )
    command = ["g++", f"-std={standard}", *WARNINGS, "-I", tmp_path / "onnxruntime", "one.cpp", "two.cpp", "-o", "both"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "both"], capture_output=True, text=True, check=True).stdout == "0 2048 1 4\n"


def test_only_constants_that_are_ints_are_said(records: list[Record], tmp_path: Path) -> None:
    record = with_constants(
        of(records, "sm_90a")[0],
        SMALL=-(2**31),
        MODE="relu",
        BIAS=None,
        SCALE=0.5,
        SIZES=(1, 2),
        LARGE=2**31,
        LAST=False,
    )
    (row,) = re.findall(r'"softmax_fp32_1024", 4, 16, (.*) },\n', render([record], tmp_path))
    assert row == '{ { "SMALL", -2147483648}, { "LAST", 0} }'


# -- the archive


@pytest.mark.parametrize(("target", "kind"), [("sm_90a", "cubin"), ("compute_80", "ptx"), ("gfx942", "hsaco")])
def test_the_archive_holds_each_image_under_its_name(
    records: list[Record], tmp_path: Path, target: str, kind: str
) -> None:
    """Aligned, read-only, and as it is; a PTX has the NUL behind it that drivers look for."""
    chosen = of(records, target)
    path = archive(chosen, tmp_path)
    names = {f"_binary_{record.image.variant.id}_{kind}_{end}" for record in chosen for end in ("start", "end")}
    assert symbols(path, "-g") == names
    program = tmp_path / "dump.c"
    declarations, prints = "", ""
    for record in chosen:
        name = f"_binary_{record.image.variant.id}_{kind}"
        declarations += f"extern const unsigned char {name}_start[], {name}_end[];\n"
        prints += f"  fwrite({name}_start, 1, (size_t)({name}_end - {name}_start), stdout);\n"
        prints += f"  if ((uintptr_t){name}_start % 64 != 0) return 1;\n"
    program.write_text(
        f"#include <stdint.h>\n#include <stdio.h>\n{declarations}int main(void) {{\n{prints}  return 0;\n}}\n"
    )
    subprocess.run(["gcc", "-std=c99", *WARNINGS, program, path, "-o", tmp_path / "dump"], check=True)
    shown = subprocess.run([tmp_path / "dump"], capture_output=True, check=True).stdout
    assert shown == b"".join(record.path.read_bytes() + b"\0" * (kind == "ptx") for record in chosen)
    headers = subprocess.run(["readelf", "-lW", tmp_path / "dump"], capture_output=True, text=True, check=True).stdout
    assert re.search(r"GNU_STACK .* RW ", headers)


def test_the_same_images_make_the_same_bytes_wherever_they_lie(records: list[Record], tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    first = archive(of(records, "sm_90a"), tmp_path / "a")
    moved = []
    for record in of(records, "sm_90a"):
        path = tmp_path / "it is 'elsewhere'" / record.path.name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(record.path.read_bytes())
        moved.append(replace(record, path=path))
    (tmp_path / "b").mkdir()
    assert archive(moved, tmp_path / "b").read_bytes() == first.read_bytes()
    assert str(tmp_path).encode() not in first.read_bytes()


def test_an_archive_for_another_host_keeps_its_protection(records: list[Record], tmp_path: Path) -> None:
    """With what a cross compiler makes of the same unit."""
    host = "aarch64-linux-gnu"
    tools = [
        require(f"{host}-{name}", package=package, claim="aarch64")
        for name, package in (("gcc", "gcc-aarch64-linux-gnu"), ("ar", "binutils-aarch64-linux-gnu"))
    ]
    make_infos_archive(rows(of(records, "compute_80")), host, *tools, tmp_path)
    (member,) = read_archive((tmp_path / ARCHIVE).read_bytes())[0]
    made = read_host_object(member.data)
    assert made.machine == HOSTS[host].machine
    assert made.properties[HOSTS[host].protection_property] & HOSTS[host].code_protection
    (section,) = made.sections
    assert section.data.startswith(of(records, "compute_80")[0].path.read_bytes() + b"\0")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 0", ("gcc ended well, but triton_kernel_infos.o is not what was asked for", "cannot be read")),
        ("echo 'no such flag' >&2; exit 4", ("gcc could not make an object of the images", "no such flag")),
        ('truncate -s -64 1; exec GCC "$@"', ("the data is not the image's",)),
        (
            'exec GCC -flto -ffat-lto-objects -fcf-protection=none "$@" -fcf-protection=none',
            ("control-flow protection",),
        ),
    ],
)
def test_what_a_compiler_made_is_not_believed(
    records: list[Record], tmp_path: Path, script: str, said: tuple[str, ...]
) -> None:
    cc = tmp_path / "bin" / "gcc"
    cc.parent.mkdir()
    # An image is a link to where it was built: the truncated one is a copy.
    script = script.replace("truncate", "cp --remove-destination $(readlink 1) 1; truncate")
    cc.write_text(f"#!/bin/sh\n{script.replace('GCC', str(tool('gcc')))}\n")
    cc.chmod(0o755)
    with pytest.raises(PackagingError) as caught:
        archive(of(records, "sm_90a"), tmp_path, cc)
    print(caught.value)
    assert all(words in str(caught.value) for words in said)
    assert not (tmp_path / ARCHIVE).exists()


# -- what the format cannot say

UNFIT = [
    ({"cluster": (2, 1, 1)}, "blocks form clusters of 2 x 1 x 1"),
    ({"cooperative": True}, "all blocks must run at the same time"),
    ({"global_scratch_bytes": 384}, "a block needs 384 bytes of scratch memory"),
    ({"profile_scratch_bytes": 8}, "a block needs 8 bytes of scratch memory"),
    ({"threads": 100}, "a block has 100 threads, which are no whole warps"),
]


@pytest.mark.parametrize(("facts", "reason"), UNFIT)
def test_what_cannot_be_said_is_left_out_and_told(records: list[Record], facts: dict[str, Any], reason: str) -> None:
    first, second = of(records, "sm_90a")
    odd = changed(first, **facts)
    assert fitting([odd, second], declared()) == [second]
    facts_of = {record.image.variant.id: [record.facts] for record in (odd, second)}
    assert warning(facts_of, listed=True) is None
    said = warning(facts_of, listed=False)
    assert said == f"ONNX Runtime's header is without softmax_fp32_1024 ({reason})"


@pytest.mark.parametrize(("facts", "reason"), UNFIT)
def test_a_kernel_that_is_listed_has_to_fit(records: list[Record], facts: dict[str, Any], reason: str) -> None:
    first, second = of(records, "sm_90a")
    with pytest.raises(PackagingError) as caught:
        fitting([changed(first, **facts), second], declared(("softmax",)))
    print(caught.value)
    text = str(caught.value)
    assert text.startswith(f"kernels.yaml:8:3: ONNX Runtime cannot launch softmax_fp32_1024@sm_90a: {reason}\n")
    assert "remedy: remove softmax there, or declare its variants that fit as a kernel of their own" in text


def test_a_row_of_a_function_table_is_told_by_its_own_place(records: list[Record]) -> None:
    """Whoever has the tables of ONNX Runtime has written no kernel into kernels.yaml."""
    record = changed(of(records, "sm_90a")[0], cooperative=True)
    variant = record.image.variant
    row = TableRow(
        name=variant.block,
        group=variant.group,
        source=variant.kernel.source,
        source_name=variant.kernel.source_name,
        function=variant.kernel.function,
        signature=variant.kernel.signature,
        constants=variant.constants,
        options=variant.options,
        position=Position(file="kernels/softmax.py", line=40, column=9),
    )
    image = replace(record.image, variant=replace(variant, kernel=replace(variant.kernel, rows=(row,))))
    with pytest.raises(PackagingError) as caught:
        fitting([replace(record, image=image)], declared(("softmax",)))
    print(caught.value)
    assert str(caught.value).startswith("kernels/softmax.py:40:9: ONNX Runtime cannot launch softmax_fp32_1024@sm_90a")
    assert "take the row out of its table" in str(caught.value)


def test_a_kernel_that_is_listed_has_to_be_there(records: list[Record]) -> None:
    """A kernel can be built for a target by name, and have no configuration for it in its source."""
    with pytest.raises(PackagingError) as caught:
        fitting(of(records, "sm_90a"), declared(("softmax", "tuned")))
    print(caught.value)
    assert str(caught.value).startswith(
        "kernels.yaml:4:1: `onnxruntime.kernels` holds tuned, which has no variant for sm_90a"
    )


def test_a_header_without_rows_is_refused(records: list[Record]) -> None:
    unfit = [changed(record, cooperative=True) for record in of(records, "sm_90a")]
    with pytest.raises(PackagingError) as caught:
        fitting(unfit, declared())
    print(caught.value)
    assert str(caught.value).startswith("kernels.yaml:4:1: none of the library's kernels for sm_90a can be launched")
    assert "softmax_fp32_1024@sm_90a: all blocks must run at the same time" in str(caught.value)


def test_shared_memory_that_the_launcher_does_not_give_is_told(records: list[Record]) -> None:
    """The row is there all the same: a tuner passes it over, and a launcher of one's own may do better."""
    record = of(records, "sm_90a")[0]
    large, middle = changed(record, shared_dynamic=65537), changed(record, shared_dynamic=49136, shared_static=32)
    assert fitting([large, middle], declared(("softmax",))) == [large, middle]
    small = changed(record, shared_dynamic=49152)
    said = warning({"a": [large.facts], "b": [middle.facts], "c": [small.facts]}, listed=True)
    assert said == (
        "ONNX Runtime does not launch a (the launcher refuses more than 65536 bytes of shared memory); "
        "b (the launcher sets no attribute for more than 49152 bytes of shared memory)"
    )


def test_of_many_variants_some_are_named(records: list[Record]) -> None:
    facts = changed(of(records, "sm_90a")[0], cooperative=True).facts
    said = warning({f"v{number}": [facts] for number in range(9)}, listed=False)
    assert said is not None and "v0, v1, v2, v3, v4, v5 and 3 more (all blocks" in said
    assert warning({"fits": [of(records, "sm_90a")[0].facts]}, listed=False) is None

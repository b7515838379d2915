"""What read_ptx says of PTX, against the cubin that ptxas makes of the same text."""

from __future__ import annotations

from pathlib import Path

import pytest
from binaries_images import SOFTMAX, Built, assemble

from kiln.binaries.cubin import read_cubin
from kiln.binaries.ptx import read_ptx
from kiln.errors import ImageError

HEAD = ".version 8.8\n.target sm_90a\n.address_size 64\n"


def test_softmax_equals_its_cubin(images: dict[str, Built], tmp_path: Path) -> None:
    data = images["compute_80"].data
    reading = read_ptx(data)
    cubin = read_cubin(assemble(data.decode(), "sm_80", tmp_path)[0].read_bytes())
    assert [(span.offset, span.size) for span in reading.parameters] == SOFTMAX
    assert reading.parameters == cubin.parameters
    assert reading.parameter_bytes == cubin.parameter_bytes
    assert (reading.entry, reading.threads) == (cubin.entry, cubin.threads)
    assert (reading.arch, cubin.arch) == ("compute_80", "sm_80")
    assert reading.ptx_isa == "8.0"
    assert reading.registers is None


@pytest.mark.parametrize(
    "parameters",
    [
        "",
        ".param .u8 a",
        ".param .u8 a, .param .u16 b, .param .u8 c, .param .u32 d, .param .u8 e, .param .u64 f",
        ".param .u64 .ptr .global .align 16 a, .param .f16 b, .param .u64 .ptr .shared .align 1 c, .param .u64 .ptr d",
        ".param .b8 a, .param .align 16 .b8 map[128], .param .f32 b, .param .align 4 .b8 pair[6], .param .b16 list[3]",
        ".param .f64 a, .param .s8 b, .param .s32 c, .param .align 16 .b8 d",
    ],
)
def test_parameter_layout_is_ptxas_own(tmp_path: Path, parameters: str) -> None:
    text = f"{HEAD}.visible .entry k({parameters})\n.reqntid 32\n{{ ret; }}\n"
    reading = read_ptx(text.encode())
    cubin = read_cubin(assemble(text, "sm_90a", tmp_path)[0].read_bytes())
    assert reading.parameters == cubin.parameters
    assert reading.parameter_bytes == cubin.parameter_bytes


def test_directives_are_read_as_ptxas_reads_them(tmp_path: Path) -> None:
    text = (
        f"{HEAD}.visible .entry k()\n.reqntid 16, 2, 4\n.minnctapersm 1\n.explicitcluster\n.reqnctapercluster 2, 2\n"
        "{ ret; }\n"
    )
    reading = read_ptx(text.encode())
    cubin = read_cubin(assemble(text, "sm_90a", tmp_path)[0].read_bytes())
    assert (reading.threads, reading.max_threads, reading.cluster) == (128, None, (2, 2, 1))
    assert (cubin.threads, cubin.cluster) == (reading.threads, reading.cluster)
    assert reading.arch == "compute_90a"
    assert read_ptx(text.replace("{ ret", '.pragma "nounroll";\n{ ret').encode()) == reading
    bounded = read_ptx(text.replace(".reqntid", ".maxntid").encode())
    assert (bounded.threads, bounded.max_threads) == (None, 128)


def test_static_shared_memory_without_the_dynamic(tmp_path: Path) -> None:
    """All shared variables, wherever they stand, aligned; an extern one is dynamic, a pointer to one is no variable."""
    text = f"""{HEAD}
    .extern .shared .align 16 .b8 dynamic[];
    .shared .align 1 .b8 flag;
    .visible .shared .align 8 .b8 block[100]; .shared .v4 .f32 four[3];
    .visible .entry k(.param .u64 .ptr .shared .align 4 p) {{
        .reg .b32 %r<9>;
        .shared .b32 grid[2][5];
        mov.u32 %r1, grid; mov.u32 %r2, block; mov.u32 %r3, four; mov.u32 %r4, dynamic; mov.u32 %r5, flag;
        st.shared.b32 [%r1], %r2; st.shared.b32 [%r2], %r3; st.shared.b32 [%r3], %r4; st.shared.b8 [%r5], %r4;
        st.shared.b32 [%r4], %r1;
        ret;
    }}"""
    declared = read_ptx(text.encode()).shared_static
    assert declared == 8 + 100 + 4 + 48 + 40
    assert read_cubin(assemble(text, "sm_90a", tmp_path)[0].read_bytes()).shared_static <= declared


def test_comments_and_strings_hold_no_directives() -> None:
    text = (
        "// .version 1.0\n/* .target sm_10\n.entry no( */\n.version 8.8\n.target sm_120f, texmode_independent\n"
        '.address_size 64\n.file 1 "x/*.py // } .visible .entry no() {"\n'
        ".visible .entry $k_1() // {\n{ /* } */ ret; }\n// }\n"
    )
    reading = read_ptx(text.encode())
    assert (reading.entry, reading.arch, reading.ptx_isa) == ("$k_1", "compute_120f", "8.8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cut short"),
        (HEAD, "cut short"),
        (HEAD + ".visible .entry k() { ret;", "cut short"),
        (HEAD + ".visible .entry k() { ret; } }", "text was added"),
        (HEAD + ".visible .entry k() { ret; }\nmore", "text was added"),
        (HEAD + ".visible .entry k() { ret; }\n\0", "holds a NUL"),
        (HEAD + ".visible .entry k() { ret; } // \x1b[31m\n}", "holds a control character"),
        (HEAD + ".entry k() { ret; }", "cannot be looked up"),
        (HEAD + ".func k() { ret; }", "exactly one kernel"),
        (HEAD + ".visible .entry a() { ret; }\n.visible .entry b() { ret; }", "exactly one kernel"),
        (HEAD + ".visible .entry k(.param .texref t) { ret; }", "parameter 0 of the PTX is not understood"),
        (HEAD + ".visible .entry k(.param .align 3 .b8 t[4]) { ret; }", "no power of two"),
        (HEAD + ".visible .entry k(.param .align 64 .b8 t[128]) { ret; }", "parameter 0 of the PTX lies depends on"),
        (HEAD.replace("64", "32") + ".visible .entry k() { ret; }", "64-bit"),
        (HEAD.replace("sm_90a", "sm_90x") + ".visible .entry k() { ret; }", "unknown target"),
        (HEAD.replace(".version 8.8", "") + ".visible .entry k() { ret; }", "says .version other than once"),
        (HEAD + HEAD + ".visible .entry k() { ret; }", "other than once"),
        (HEAD + "// \udcff\n.visible .entry k() { ret; }", "the PTX cannot be read"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        read_ptx(text.encode("utf-8", "surrogateescape"))

"""What read_cubin says of real cubins, against cuobjdump and ptxas's own report."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from binaries_images import SOFTMAX, Built, assemble, cuobjdump, cuobjdump_parameters, cuobjdump_value

from kiln.binaries.cubin import read_cubin
from kiln.errors import ImageError

KERNEL = """
.version {version}
.target {arch}
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.shared .align 4 .b8 fixed[{shared}];
.func (.param .b32 r) helper(.param .b32 a)
{{
  .reg .pred %p<2>; .reg .b32 %r<5>;
  ld.param.b32 %r1, [a];
  setp.lt.s32 %p1, %r1, 1;
  mov.b32 %r3, 0;
  @%p1 bra DONE;
  sub.s32 %r4, %r1, 3;
  {{ .param .b32 x; .param .b32 y; st.param.b32 [x], %r4; call (y), helper, (x); ld.param.b32 %r3, [y]; }}
DONE:
  add.s32 %r2, %r3, 7;
  st.param.b32 [r], %r2;
  ret;
}}
.visible .entry k(.param .u64 p, .param .u32 n)
{directives}
{{
  .local .align 8 .b8 place[256];
  .reg .b32 %r<9>; .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [p];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x;
  mov.u64 %rd2, place;
  cvt.u64.u32 %rd3, %r1;
  add.s64 %rd3, %rd2, %rd3;
  st.local.b32 [%rd3], %r2;
  ld.local.b32 %r4, [%rd2+16];
  mov.u32 %r5, fixed;
  shl.b32 %r6, %r2, 2;
  add.s32 %r6, %r6, %r5;
  st.shared.b32 [%r6], %r4;
  bar.sync 0;
  ld.shared.b32 %r7, [%r5];
  mov.u32 %r6, dynamic;
  st.shared.b32 [%r6], %r7;
  bar.sync 0;
  ld.shared.b32 %r7, [%r6];
  {{ .param .b32 x; .param .b32 y; st.param.b32 [x], %r7; call (y), helper, (x); ld.param.b32 %r8, [y]; }}
  st.global.b32 [%rd1], %r8;
  ret;
}}
"""
"""A kernel with all that Triton's softmax lacks: a function that stays one, static shared memory, and a stack."""


def kernel(arch: str, *, shared: int = 512, directives: str = ".reqntid 128", version: str = "8.8") -> str:
    return KERNEL.format(arch=arch, shared=shared, directives=directives, version=version)


@pytest.mark.parametrize("name", ["sm_80", "sm_90a", "sm_120a", "cluster", "threads"])
def test_softmax_equals_what_cuobjdump_shows(images: dict[str, Built], name: str) -> None:
    """Parameters, hidden ones included, registers, threads, stack and cluster, in both generations of the format."""
    reading, listing = read_cubin(images[name].data), cuobjdump(images[name].path)
    spans = [(span.offset, span.size) for span in reading.parameters]
    assert spans == cuobjdump_parameters(listing) == SOFTMAX
    assert reading.parameter_bytes == int(cuobjdump_value(listing, "CBANK_PARAM_SIZE"), 16) == 48
    assert f"function: {reading.entry}(" in cuobjdump_value(listing, "REGCOUNT")
    assert f"register count: {reading.registers}" in cuobjdump_value(listing, "REGCOUNT")
    assert cuobjdump_value(listing, "FRAME_SIZE").endswith(f"frame size: {reading.stack:#x}")
    threads = [int(side, 16) for side in cuobjdump_value(listing, "REQNTID").split()]
    assert threads == [reading.threads, 1, 1]
    assert reading.max_threads is None
    assert reading.shared_static == 0
    if name == "cluster":
        assert [int(side, 16) for side in cuobjdump_value(listing, "CTA_PER_CLUSTER").split()] == [2, 1, 1]
    assert reading.cluster == ((2, 1, 1) if name == "cluster" else None)


@pytest.mark.parametrize(
    ("arch", "ptxas", "version"),
    [
        ("sm_80", "12.9", "12.9"),
        ("sm_80", "13.4", "13.4.59"),
        ("sm_90", "12.9", "12.9"),
        ("sm_90a", "12.9", "12.9"),
        ("sm_90a", "13.4", "13.4.59"),
        ("sm_100", "13.4", "13.4.59"),
        ("sm_100f", "13.4", "13.4.59"),
        ("sm_120a", "13.4", "13.4.59"),
        ("sm_120f", "12.9", "12.9.86"),
    ],
)
def test_architecture_suffix_and_version_in_both_generations(
    tmp_path: Path, arch: str, ptxas: str, version: str
) -> None:
    """The suffix makes code load on one GPU alone, and stands in three different places."""
    path, report = assemble(kernel(arch), arch, tmp_path, ptxas)
    reading = read_cubin(path.read_bytes())
    assert f"Compiling entry function 'k' for '{arch}'" in report
    assert reading.arch == arch
    assert reading.entry == "k"
    assert reading.tools == {"ptxas": version}


@pytest.mark.parametrize(("arch", "ptxas"), [("sm_80", "12.9"), ("sm_90a", "12.9"), ("sm_90a", "13.4")])
@pytest.mark.parametrize("shared", [512, 4096])
def test_static_shared_registers_and_stack_are_ptxas_own(tmp_path: Path, arch: str, ptxas: str, shared: int) -> None:
    """The 1024 bytes that the system keeps from sm_90 on are not counted, as ptxas and the driver do not either."""
    path, report = assemble(kernel(arch, shared=shared), arch, tmp_path, ptxas)
    reading = read_cubin(path.read_bytes())
    used = re.search(r"Used (\d+) registers.* (\d+) bytes cumulative stack size, (\d+) bytes smem", report)
    assert used is not None, report
    assert (reading.registers, reading.stack, reading.shared_static) == tuple(map(int, used.groups()))
    assert reading.shared_static == shared


RECURSIVE = """\
.version 8.0
.target sm_80
.address_size 64
.func (.param .b32 result) down(.param .b32 n) {
  .local .align 4 .b8 kept[64];
  .reg .b32 %r<5>; .reg .b64 %l<3>; .reg .pred %p;
  ld.param.b32 %r1, [n];
  cvt.u64.u32 %l1, %r1; mov.b64 %l2, kept; add.s64 %l2, %l2, %l1;
  st.local.b32 [%l2], %r1;
  setp.lt.s32 %p, %r1, 2;
  @%p bra END;
  sub.s32 %r2, %r1, 1;
  { .param .b32 x; .param .b32 y; st.param.b32 [x], %r2; call (y), down, (x); ld.param.b32 %r3, [y]; }
  ld.local.b32 %r4, [%l2 + 4];
  add.s32 %r1, %r3, %r4;
END:
  st.param.b32 [result], %r1;
  ret;
}
.visible .entry k(.param .u64 .ptr .global out) {
  .reg .b32 %r<3>; .reg .b64 %l<2>;
  ld.param.b64 %l1, [out];
  ld.global.b32 %r1, [%l1];
  { .param .b32 x; .param .b32 y; st.param.b32 [x], %r1; call (y), down, (x); ld.param.b32 %r2, [y]; }
  st.global.b32 [%l1], %r2;
  ret;
}
"""


@pytest.mark.parametrize("ptxas", ["12.9", "13.4"])
def test_what_a_recursion_keeps_is_stack(tmp_path: Path, ptxas: str) -> None:
    """ptxas cannot say how much all calls need, and says 0; one needs its array."""
    path, report = assemble(RECURSIVE, "sm_80", tmp_path, ptxas)
    frame = max(map(int, re.findall(r"(\d+) bytes stack frame", report)))
    assert frame >= 64
    assert read_cubin(path.read_bytes()).stack == frame


def test_a_bound_on_threads_is_no_demand(tmp_path: Path) -> None:
    path, _ = assemble(kernel("sm_80", directives=".maxntid 16, 8"), "sm_80", tmp_path)
    reading = read_cubin(path.read_bytes())
    assert (reading.threads, reading.max_threads) == (None, 128)


def test_cluster_and_two_dimensional_blocks(tmp_path: Path) -> None:
    directives = ".reqntid 16, 4, 2\n.reqnctapercluster 2, 2, 1\n.explicitcluster"
    path, _ = assemble(kernel("sm_90a", directives=directives), "sm_90a", tmp_path)
    reading = read_cubin(path.read_bytes())
    assert (reading.threads, reading.cluster) == (128, (2, 2, 1))


def test_parameters_beyond_4_kib(tmp_path: Path) -> None:
    """ptxas describes them in another form of the attribute."""
    text = """.version 8.1
    .target sm_90a
    .address_size 64
    .visible .entry k(.param .u64 p, .param .align 64 .b8 table[5000], .param .u8 flag) { ret; }"""
    path, _ = assemble(text, "sm_90a", tmp_path)
    reading, listing = read_cubin(path.read_bytes()), cuobjdump(path)
    spans = [(span.offset, span.size) for span in reading.parameters]
    assert "EIATTR_KPARAM_INFO_V2" in listing
    assert spans == cuobjdump_parameters(listing)
    assert [size for _, size in spans] == [8, 5000, 1]
    assert reading.parameter_bytes == spans[-1][0] + 1


def test_a_kernel_without_parameters(tmp_path: Path) -> None:
    text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }"
    reading = read_cubin(assemble(text, "sm_80", tmp_path)[0].read_bytes())
    assert (reading.parameters, reading.parameter_bytes) == ((), 0)


@pytest.mark.parametrize(
    ("body", "actual"), [("", "0 entries"), (".visible .entry a() { ret; } .visible .entry b() { ret; }", "2 entries")]
)
def test_other_than_one_kernel_is_refused(tmp_path: Path, body: str, actual: str) -> None:
    text = f".version 8.0\n.target sm_80\n.address_size 64\n{body}"
    data = assemble(text, "sm_80", tmp_path)[0].read_bytes()
    with pytest.raises(ImageError, match="exactly one kernel") as caught:
        read_cubin(data)
    assert caught.value.actual is not None
    assert caught.value.actual.startswith(actual)


def test_header_and_tool_note_must_agree(images: dict[str, Built]) -> None:
    data = bytearray(images["sm_90a"].data)
    assert data[49] == 90
    data[49] = 100
    with pytest.raises(ImageError, match="contradicts itself on its architecture") as caught:
        read_cubin(bytes(data))
    assert caught.value.expected == "sm_100, by its header"
    assert caught.value.actual == "sm_90a, by its tool note"


def test_an_empty_file() -> None:
    """What a compiler leaves on a full disk, with exit code 0."""
    with pytest.raises(ImageError, match="no ELF file") as caught:
        read_cubin(b"")
    assert caught.value.actual == "0 bytes that start with nothing"


def test_names_with_control_characters_do_not_reach_messages(images: dict[str, Built]) -> None:
    data = images["sm_80"].data.replace(b"softmax_kernel", b"softmax\x1b[31mel")
    with pytest.raises(ImageError, match="control character") as caught:
        read_cubin(data)
    assert "\x1b" not in str(caught.value)


def test_an_unknown_generation_is_refused(images: dict[str, Built]) -> None:
    data = bytearray(images["sm_90a"].data)
    data[8] = 9
    with pytest.raises(ImageError, match="generation that Kiln does not know") as caught:
        read_cubin(bytes(data))
    assert caught.value.actual == "OSABI 65 with ABI version 9"


@pytest.mark.parametrize("name", ["gfx942", "compute_80"])
def test_another_kind_of_image_is_refused(images: dict[str, Built], name: str) -> None:
    with pytest.raises(ImageError, match=r"holds no NVIDIA device code|is no ELF file"):
        read_cubin(images[name].data)

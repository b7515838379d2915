"""What ptxas prints with -v: how much is read off it, and that none of it passes for an error."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import triton

from kiln.compilers.diagnostics import printed_errors
from kiln.compilers.ptxas_log import spilled_bytes, without_report

LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_80'
ptxas info    : Function properties for k
    232 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 24 registers, used 0 barriers, 232 bytes cumulative stack size, 372 bytes cmem[0]
ptxas info    : Function properties for _Z4usedPKfi
    0 bytes stack frame, 264 bytes spill stores, 284 bytes spill loads
"""
"""of a kernel that calls a function"""

PTX = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry error(.param .u64 out)
.maxntid 1024
.maxnreg 24
{
    .reg .u64 %p;
    .reg .f32 %f<41>;
    ld.param.u64 %p, [out];
    cvta.to.global.u64 %p, %p;
"""


def test_functions_count_together_and_the_larger_of_stores_and_loads_counts() -> None:
    assert spilled_bytes(LOG) == 288
    assert spilled_bytes(LOG.replace("264 bytes spill stores", "300 bytes spill stores")) == 308


@pytest.mark.parametrize("log", ["", "ptxas info    : 0 bytes gmem\n", LOG.partition("    232")[0]])
def test_a_log_without_the_line_says_nothing(log: str) -> None:
    assert spilled_bytes(log) is None


@pytest.mark.parametrize("name", ["ptxas", "ptxas-blackwell"])
@pytest.mark.parametrize(("values", "spills"), [(4, False), (40, True)])
def test_what_each_ptxas_prints(name: str, values: int, spills: bool, tmp_path: Path) -> None:
    """Of a kernel called `error`, whose values all have to be held at the same time."""
    loads = [f"    ld.global.volatile.f32 %f{index}, [%p+{4 * index}];" for index in range(values)]
    stores = [f"    st.global.volatile.f32 [%p+{4 * index}], %f{index};" for index in reversed(range(values))]
    (tmp_path / "error.ptx").write_text("\n".join([PTX, *loads, *stores, "    ret;", "}", ""]))
    ptxas = Path(triton.__file__).parent / "backends/nvidia/bin" / name
    command = [ptxas, "-v", "-arch=sm_80", tmp_path / "error.ptx", "-o", tmp_path / "error.cubin"]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stderr
    found = spilled_bytes(said)
    assert found is not None and (found > 0) is spills, said
    log = tmp_path / "log"
    log.write_text(said)
    assert printed_errors(log) is None
    assert without_report(f"{said}\n") == ""


def test_what_else_was_printed_is_left() -> None:
    warning = "ptxas warning : Registers are spilled to local memory\n"
    assert without_report(f"one\n{LOG}{warning}two\n") == f"one\n{warning}two\n"

"""Each target's image is code for that target: the disassemblers of LLVM and NVIDIA read it whole, as others' not."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from binaries_images import TOOLS, Built, assemble

from kiln.binaries.elf import open_elf
from kiln.toolchain.targets import TARGETS
from optional_tools import llvm
from other_tritons import BUILDABLE

AMD = [name for name, target in BUILDABLE.items() if target.kind == "hsaco"]
CUBINS = [target.name for target in TARGETS.values() if target.kind == "cubin"]


def family(target: str) -> str:
    """gfx9, gfx11 or gfx12: the last two characters count within a family of instruction sets."""
    return target[:-2]


def disassembly(path: Path, processor: str) -> list[str]:
    """The instructions of softmax as that processor would take them, without what pads the end."""
    tool = llvm("objdump")
    command = [tool, "-d", f"--mcpu={processor}", "--disassemble-symbols=softmax_kernel", path]
    listing = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    found = [line.partition("//")[0].strip() for line in listing.splitlines() if "//" in line]
    while found and found[-1].split()[0] in ("s_nop", "s_code_end"):
        found.pop()
    return found


def unknown(instructions: list[str]) -> list[str]:
    return [text for text in instructions if re.match(r"\.long\b|\.byte\b|v_illegal\b|<unknown>", text)]


@pytest.mark.parametrize("target", AMD)
def test_an_hsaco_is_code_for_its_target(images: dict[str, Built], target: str) -> None:
    """To LLVM's disassembler, every instruction up to the end is known; as another family's, many are not."""
    path = images[target].path
    instructions = disassembly(path, target)
    assert len(instructions) > 100
    assert unknown(instructions) == []
    assert instructions[-1] == "s_endpgm"
    for other in {family(name): name for name in AMD if family(name) != family(target)}.values():
        assert len(unknown(disassembly(path, other))) > 20, other


def test_code_for_gfx950_is_not_for_gfx942(images: dict[str, Built]) -> None:
    """They share a family, and nearly all instructions."""
    assert unknown(disassembly(images["gfx950"].path, "gfx942")) != []


@pytest.mark.parametrize("target", AMD)
def test_the_header_of_an_hsaco_names_its_target_to_llvm(images: dict[str, Built], target: str) -> None:
    """Code of some targets of one family cannot be told apart; what a driver goes by can."""
    tool = llvm("readelf")
    header = subprocess.run([tool, "-h", images[target].path], check=True, capture_output=True, text=True).stdout
    (flags,) = re.findall(r"^  Flags: +(.*)$", header, re.MULTILINE)
    assert target in flags.split(", ")


@pytest.mark.parametrize("target", CUBINS)
def test_a_cubin_is_code_for_its_target(images: dict[str, Built], target: str, tmp_path: Path) -> None:
    """To NVIDIA's disassembler; as code of a generation far from it, it holds what is no instruction.

    What Triton has no name for, sm_90 and the families, is assembled from its PTX.
    """
    if target in images:
        path = images[target].path
    else:
        path, _ = assemble(images["compute_80"].data.decode(), target, tmp_path)
    tool = TOOLS / "nvdisasm"
    listing = subprocess.run([tool, "-c", path], check=True, capture_output=True, text=True, timeout=60).stdout
    # The letter f does not show there.
    name = target.rstrip("f")
    assert re.search(rf"^\s*\.target\s+{name}$|\bEF_CUDA_{name.upper().replace('_', '')}\b", listing, re.MULTILINE)
    instructions = re.findall(r"^\s+/\*[0-9a-f]+\*/\s+(?:\{\s*)?(.*?)\s*;", listing, re.MULTILINE)
    assert len(instructions) > 100
    assert "EXIT" in instructions[-40:]

    section = open_elf(path.read_bytes()).section(".text.softmax_kernel")
    assert section is not None
    code = tmp_path / "code.bin"
    code.write_bytes(section.data)
    number = int(re.sub(r"\D", "", target))
    # A newer generation may know the code of the one before.
    other = "SM120" if number < 100 else "SM80"
    foreign = subprocess.run([tool, "--binary", other, code], check=False, capture_output=True, text=True)
    assert foreign.returncode != 0
    assert "Illegal instruction found" in foreign.stderr

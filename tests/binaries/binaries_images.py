"""Real images for the tests of binaries, and what tools other than Kiln say of them."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import triton
import yaml

from kiln.binaries.expected import Expected
from kiln.binaries.facts import Facts
from kiln.binaries.measure import measure
from kiln.compilers.request import CompilerMetadata
from kiln.toolchain.targets import TARGETS, Kind
from softmax_images import in_child

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
PTXAS = {"12.9": TOOLS / "ptxas", "13.4": TOOLS / "ptxas-blackwell"}

USER_SIZES = (8, 8, 4, 4, 4)
"""softmax: two pointers, three i32"""
SOFTMAX = [(0, 8), (8, 8), (16, 4), (20, 4), (24, 4), (32, 8), (40, 8)]
"""offset and size of softmax's parameters, the two scratch pointers included, on every target"""


@dataclass(frozen=True, kw_only=True)
class Built:
    """One image as a compiler left it."""

    name: str
    kind: Kind
    path: Path
    compiled: CompilerMetadata

    @cached_property
    def data(self) -> bytes:
        return self.path.read_bytes()

    @property
    def facts(self) -> Facts:
        return measure(self.data, kind=self.kind, user_parameters=len(USER_SIZES), compiled=self.compiled)

    @property
    def llvm_kernel(self) -> dict[str, Any]:
        """LLVM's own account of an AMD kernel, from the assembly text."""
        return amd_metadata(self.path.with_suffix(".amdgcn").read_text())["amdhsa.kernels"][0]


def build_images(folder: Path) -> dict[str, Built]:
    """Compile them all in a process of their own, so that this one loads no compiler."""
    in_child(Path(__file__).with_name("binaries_compile.py"), str(folder), TRITON_CACHE_DIR=str(folder / "cache"))
    kinds: tuple[Kind, ...] = ("cubin", "ptx", "hsaco")
    built = {}
    for kind in kinds:
        for path in sorted(folder.glob(f"*.{kind}")):
            report = json.loads(path.with_suffix(".json").read_text())
            metadata = CompilerMetadata(**{**report, "cluster": tuple(report["cluster"])})
            built[path.stem] = Built(name=path.stem, kind=kind, path=path, compiled=metadata)
    return built


def compiled(**changes: Any) -> CompilerMetadata:
    """A compiler's report of a plain 128-thread kernel `k`."""
    plain = CompilerMetadata(
        entry="k",
        warps=4,
        warp_size=32,
        cluster=(1, 1, 1),
        cooperative=False,
        pdl=False,
        shared_dynamic=0,
        global_scratch_bytes=0,
        global_scratch_align=1,
        profile_scratch_bytes=0,
        profile_scratch_align=1,
        tools={"triton": triton.__version__},
    )
    return replace(plain, **changes)


def expected(target: str, **changes: Any) -> Expected:
    """What softmax's declaration says for one target."""
    plain = Expected(
        image_id=f"softmax_fp16_2048@{target}",
        target=TARGETS[target],
        entry="softmax_kernel",
        parameters=USER_SIZES,
        warps=4,
    )
    return replace(plain, **changes)


def cuobjdump(path: Path) -> str:
    """NVIDIA's own account of a cubin."""
    command = [str(TOOLS / "cuobjdump"), "-elf", str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def cuobjdump_parameters(listing: str) -> list[tuple[int, int]]:
    """(offset, size) in order."""
    rows = re.findall(r"Ordinal : 0x(\w+)\s+Offset  : 0x(\w+)\s+Size    : 0x(\w+)", listing)
    # From sm_100 on the listing has the attributes of the packed form of the code too, which are the same.
    found = {int(ordinal, 16): (int(offset, 16), int(size, 16)) for ordinal, offset, size in rows}
    return [found[ordinal] for ordinal in sorted(found)]


def cuobjdump_value(listing: str, attribute: str) -> str:
    """The last value of an attribute."""
    return re.findall(rf"EIATTR_{attribute}\n\tFormat:\t\w+\n\tValue:\t(.*)", listing)[-1]


def amd_metadata(text: str) -> dict[str, Any]:
    """The metadata document in AMD assembly text."""
    document = text.partition(".amdgpu_metadata\n")[2].partition("\n\t.end_amdgpu_metadata")[0]
    metadata: dict[str, Any] = yaml.safe_load(document)
    return metadata


def assemble(text: str, arch: str, folder: Path, version: str = "13.4") -> tuple[Path, str]:
    """A cubin from PTX text, and what ptxas says of it."""
    source, output = folder / "in.ptx", folder / "out.cubin"
    source.write_text(text)
    command = [str(PTXAS[version]), "-v", "-arch", arch, str(source), "-o", str(output)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return output, done.stderr

"""Facts: what was measured off one built image. They are cached with it and never hold what was merely declared."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kiln.toolchain.targets import Kind

SCHEMA = 2
"""Version of the facts file; a reader refuses any other."""

Role = Literal["user", "global_scratch", "profile_scratch"]

SUFFIX: dict[Kind, str] = {"cubin": ".cubin", "ptx": ".ptx", "hsaco": ".hsaco"}


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One kernel parameter as the image lays it out, in bytes."""

    offset: int
    size: int
    role: Role


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What one image says of itself, joined with what its compiler reported. Sizes are bytes.

    A fact that this kind of image does not carry is None: registers of a PTX, say.
    """

    kind: Kind
    sha256: str
    """of the image's bytes (a PTX without the NUL that packaging adds)"""
    size: int
    arch: str
    """sm_90a, compute_80 or gfx942, read off the image"""
    entry: str
    """the kernel's symbol"""
    parameters: tuple[Parameter, ...]
    parameter_bytes: int
    """size of the whole parameter buffer, hidden parameters included"""
    threads: int
    """threads in a block, as launched: warps x warp_size, or fewer in the last warp of a kernel in CUDA C++"""
    warps: int
    """warps as launched; warp specialisation makes it differ from num_warps"""
    warp_size: int
    cluster: tuple[int, int, int]
    cooperative: bool
    pdl: bool
    """launched with programmatic dependent launch"""
    shared_static: int
    """what counts against the target's limit: without the bytes that the system keeps for itself from sm_90 on"""
    shared_dynamic: int
    """known from the compiler's metadata only"""
    global_scratch_bytes: int
    """per block of the grid and CTA of the cluster"""
    global_scratch_align: int
    profile_scratch_bytes: int
    profile_scratch_align: int
    registers: int | None
    """32-bit registers a thread (VGPRs on AMD)"""
    scalar_registers: int | None
    """SGPRs on AMD, else None"""
    spills: int | None
    """bytes a thread that the code spills to memory, each instruction counted once. On NVIDIA what ptxas reports, the
    larger of stores and loads; on AMD 4 for each spilled VGPR (SGPRs are spilled to lanes of VGPRs)"""
    stack: int | None
    """bytes of local memory a thread: spills and local arrays; of recursion and calls by address one call's at most"""
    ptx_isa: str | None
    """8.0, of a PTX image: it decides the oldest driver that can load it"""
    tools: Mapping[str, str]
    """tool -> version, of what made this image: {"triton": "3.9.0", "ptxas": "13.4.59"}"""

    @property
    def by_triton(self) -> bool:
        """Whether Triton made it, of a kernel of its own language."""
        return "triton" in self.tools

    @property
    def used(self) -> dict[str, int | None]:
        """What the image uses of each that a budget can be for; None where that is not known."""
        return {
            "registers": self.registers,
            "spills": self.spills,
            "stack": self.stack,
            "shared": self.shared_static + self.shared_dynamic,
            "size": self.size,
        }

    def to_json(self) -> str:
        """The facts as a file: one key a line, sorted, with the schema version."""
        return json.dumps({"schema": SCHEMA, **dataclasses.asdict(self)}, indent=1, sort_keys=True) + "\n"

    @classmethod
    def load(cls, path: Path) -> Facts:
        """Read a facts file. Raises OSError, and ValueError for what is none of this schema."""
        return cls.from_json(path.read_text("utf-8"))

    @classmethod
    def from_json(cls, text: str) -> Facts:
        """Read what `to_json` wrote. Raises ValueError for any other schema or shape."""
        data: dict[str, Any] = json.loads(text)
        if not isinstance(data, dict):
            raise ValueError(f"facts that are a {type(data).__name__}")
        schema = data.pop("schema", None)
        if schema != SCHEMA:
            raise ValueError(f"facts of schema {schema}, and this Kiln reads schema {SCHEMA}")
        names = {field.name for field in dataclasses.fields(cls)}
        if data.keys() != names:
            raise ValueError(f"facts with the wrong keys: {sorted(data.keys() ^ names)}")
        try:
            data["parameters"] = tuple(Parameter(**parameter) for parameter in data["parameters"])
            data["cluster"] = tuple(data["cluster"])
        except TypeError as error:
            raise ValueError(f"facts with the wrong shape: {error}") from error
        if not isinstance(data["tools"], dict) or not all(isinstance(text, str) for text in data["tools"].values()):
            raise ValueError("facts with the wrong shape: tools is no map of texts")
        return cls(**data)

"""What a compiler is asked for, and what it reports besides the image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kiln.closure.slice import Closure
from kiln.digests import digest_json
from kiln.errors import Position
from kiln.manifest.interface import Interface
from kiln.manifest.model import Image
from kiln.toolchain.targets import Target

ENVIRONMENT = {"TRITON_DISABLE_LINE_INFO": "1"}
"""Line info holds paths and line numbers: with it a comment would change the image."""

NVIDIA_ONLY = frozenset({"maxnreg", "ptx_version", "launch_pdl"})
AMD_ONLY = frozenset({"waves_per_eu", "matrix_instr_nonkdim", "kpack"})


@dataclass(frozen=True, kw_only=True)
class CompileRequest:
    """Everything that one image is compiled from: plain data that a child process gets, and that the digest covers."""

    image_id: str
    target: Target
    closure: Closure
    interface: Interface
    options: Mapping[str, int]
    entry: str
    """the symbol that the kernel gets"""
    debug: bool
    """whether the image gets a line table"""
    declared: Position
    """the kernel in kernels.yaml, for messages"""


@dataclass(frozen=True, kw_only=True)
class CompilerMetadata:
    """What only the compiler knows of an image. Sizes are bytes."""

    entry: str
    """the symbol that the compiler says it made"""
    warps: int
    """as launched, not as asked: warp specialisation adds some"""
    warp_size: int
    cluster: tuple[int, int, int]
    cooperative: bool
    pdl: bool
    shared_dynamic: int
    global_scratch_bytes: int
    global_scratch_align: int
    profile_scratch_bytes: int
    profile_scratch_align: int
    tools: Mapping[str, str]
    """tool -> version"""
    spills: int | None = None
    """a thread, as ptxas says; None where the image says it itself (hsaco), and where nobody can (PTX)"""
    threads: int | None = None
    """of a block, where they are declared and need not fill their warps; None: warps x warp_size"""
    hidden: bool = True
    """whether the compiler may add parameters behind those of callers"""


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """An image's bytes, and what the compiler says of it."""

    data: bytes
    metadata: CompilerMetadata


def compile_request(image: Image, target: Target, closure: Closure, interface: Interface) -> CompileRequest:
    """The request for one image. Options that mean nothing to the target's vendor are left out."""
    foreign = AMD_ONLY if target.vendor == "nvidia" else NVIDIA_ONLY
    options = {name: value for name, value in image.variant.options.items() if name not in foreign}
    return CompileRequest(
        image_id=image.id,
        target=target,
        closure=closure,
        interface=interface,
        options=with_ptx_version(options, target),
        entry=image.variant.entry_name or closure.entry,
        debug=image.variant.kernel.debug,
        declared=image.variant.kernel.position,
    )


def environment(image: Image) -> dict[str, str]:
    """What Triton finds in its environment."""
    return {} if image.variant.kernel.debug else dict(ENVIRONMENT)


def with_ptx_version(options: Mapping[str, int], target: Target) -> dict[str, int]:
    """The options with the ISA for PTX targets, and without one for the others.

    Left alone, compilers write the ISA of their newest ptxas, which drivers in use refuse.
    """
    chosen = dict(options)
    asked = chosen.pop("ptx_version", target.ptx_version)
    return chosen if asked is None or target.kind != "ptx" else {**chosen, "ptx_version": asked}


def components(request: CompileRequest) -> dict[str, str]:
    """The request's own named parts for the action digest; tools and Kiln's code are added by whoever knows them."""
    return {
        **{f"closure {name}": digest for name, digest in request.closure.components.items()},
        "closure": request.closure.digest,
        "arguments": digest_json(
            [[item.name, item.type, item.promise, list(item.path)] for item in request.interface.arguments]
        ),
        **{f"constant {name}": repr(value) for name, value in request.interface.constants.items()},
        **{f"option {name}": repr(value) for name, value in request.options.items()},
        "entry": request.entry,
        # A line table knows where each piece of the code stands, which the closure's digest leaves out.
        **({"lines": lines_digest(request.closure)} if request.debug else {}),
        "target": request.target.name,
    }


def lines_digest(closure: Closure) -> str:
    """Digest of what is compiled as it is written down, comments and all, with the lines and columns that it has."""
    return digest_json([[module.file, module.text] for module in closure.modules])

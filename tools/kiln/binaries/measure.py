"""measure: an image's bytes and its compiler's report -> Facts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

from kiln.binaries.cubin import read_cubin
from kiln.binaries.elf import DAMAGED
from kiln.binaries.facts import Facts, Parameter, Role
from kiln.binaries.hsaco import read_hsaco
from kiln.binaries.ptx import read_ptx
from kiln.binaries.reading import Reading
from kiln.compilers.request import CompilerMetadata
from kiln.errors import ImageError
from kiln.toolchain.targets import Kind

READERS: dict[Kind, Callable[[bytes], Reading]] = {"cubin": read_cubin, "ptx": read_ptx, "hsaco": read_hsaco}

HIDDEN: tuple[Role, ...] = ("global_scratch", "profile_scratch")
"""What Triton adds behind the user's parameters, in this order: none up to 3.2, one in 3.3 and 3.4, both from 3.5."""


def measure(data: bytes, *, kind: Kind, user_parameters: int, compiled: CompilerMetadata) -> Facts:
    """The facts of one image.

    `user_parameters` is the number of parameters that callers pass: folded arguments are none. What the image says
    wins; the compiler's report fills in what an image cannot say, and where both speak they must agree.

    Raises ImageError when the image cannot be read, holds other than one kernel, or contradicts the report.
    """
    image = READERS[kind](data)
    _agree("entry", compiled.entry, image.entry)
    warp_size = image.warp_size or compiled.warp_size
    _agree("warp size", compiled.warp_size, warp_size)
    cluster = image.cluster or compiled.cluster
    _agree("cluster", compiled.cluster, cluster)
    launched = compiled.warps * warp_size if compiled.threads is None else compiled.threads
    threads = launched if image.threads is None else image.threads
    spills = compiled.spills if image.spills is None else image.spills
    if image.max_threads is not None and threads > image.max_threads:
        raise ImageError(
            "the image cannot be launched with as many threads as its compiler reports",
            expected=f"at most {image.max_threads}, by the image",
            actual=f"{threads}, by the compiler",
            remedy=DAMAGED,
        )
    if kind == "cubin" and spills is None:
        raise ImageError(
            "it is not known how much the kernel spills",
            expected="a ptxas that says so, with -v: `0 bytes spill stores, 0 bytes spill loads`",
            actual="no such line in what it printed",
            remedy="see what it printed, and use a ptxas from CUDA 12.x or 13.x",
        )
    return Facts(
        kind=kind,
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        arch=image.arch,
        entry=image.entry,
        parameters=_roles(image, user_parameters, HIDDEN if compiled.hidden else ()),
        parameter_bytes=image.parameter_bytes,
        threads=threads,
        warps=compiled.warps,
        warp_size=warp_size,
        cluster=cluster,
        cooperative=compiled.cooperative,
        pdl=compiled.pdl,
        shared_static=image.shared_static,
        shared_dynamic=compiled.shared_dynamic,
        global_scratch_bytes=compiled.global_scratch_bytes,
        global_scratch_align=compiled.global_scratch_align,
        profile_scratch_bytes=compiled.profile_scratch_bytes,
        profile_scratch_align=compiled.profile_scratch_align,
        registers=image.registers,
        scalar_registers=image.scalar_registers,
        spills=spills,
        stack=image.stack,
        ptx_isa=image.ptx_isa,
        tools=_tools(image.tools, compiled.tools),
    )


def _roles(image: Reading, user_parameters: int, known: tuple[Role, ...]) -> tuple[Parameter, ...]:
    hidden = len(image.parameters) - user_parameters
    if not 0 <= hidden <= len(known):
        raise ImageError(
            f"{image.entry} has a number of parameters that does not fit its signature",
            expected=f"{user_parameters} from the signature"
            + (", and none, one or two for scratch memory" if known else ""),
            actual=str(len(image.parameters)),
            remedy="compare the signature in kernels.yaml with the function's parameters",
        )
    user: Role = "user"
    roles = (*[user] * user_parameters, *known[:hidden])
    return tuple(
        Parameter(offset=span.offset, size=span.size, role=role)
        for span, role in zip(image.parameters, roles, strict=True)
    )


def _tools(image: Mapping[str, str], compiled: Mapping[str, str]) -> dict[str, str]:
    """Both reports in one; where both name a tool, the version with more parts, of which the other is the start."""
    tools = dict(compiled)
    for name, version in image.items():
        reported = tools.setdefault(name, version)
        short, long = sorted((version.split("."), reported.split(".")), key=len)
        if long[: len(short)] != short:
            _agree(f"{name} version", reported, version)
        tools[name] = ".".join(long)
    return tools


def _agree(what: str, compiler: object, image: object) -> None:
    if compiler != image:
        raise ImageError(
            f"the image is not what its compiler reports: {what}",
            expected=f"{compiler}, by the compiler",
            actual=f"{image}, by the image",
            remedy=DAMAGED,
        )

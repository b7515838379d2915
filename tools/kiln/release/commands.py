"""What each kind of step runs, as arguments and variables: made by the code that runs it, with words in place of paths.

Triton compiles in Kiln's own process and calls ptxas itself; its options stand with each record of manifest.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kiln.compilers import cuda_request, nvcc, request
from kiln.engine import pool
from kiln.packaging import host_tool
from kiln.packaging.archive import ARGUMENTS, archive_script
from kiln.packaging.bundle import fatbinary_arguments
from kiln.packaging.c_compile import assembly_arguments, unit_arguments
from kiln.packaging.inventory import inventory_of
from kiln.packaging.objcopy import objcopy_arguments
from kiln.release.plan import ReleasePlan
from kiln.toolchain.hosts import HOSTS


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What a process finds in its environment. Variables that lead to private folders are left out."""

    passed: tuple[str, ...]
    """variables of the caller that it gets as they are"""
    fixed: Mapping[str, str]
    """variable -> value, whatever the caller has"""


@dataclass(frozen=True, kw_only=True)
class Command:
    """How a kind of step calls a tool."""

    steps: str
    """`objcopy`, `compile`"""
    tool: str
    arguments: tuple[str, ...]
    """words in <> stand for what differs from call to call, flags and roots for any number of words"""
    script: str = ""
    """what it reads from its standard input"""
    environment: str = "host tools"
    """the name of one of the `environments`"""


def environments() -> dict[str, Environment]:
    """By what runs in it."""
    passed, fixed = pool.ENVIRONMENT, pool.FIXED
    of_nvcc = tuple(name for name in nvcc.PASSED if name in passed)
    return {
        "steps": Environment(passed=passed, fixed=fixed),
        _triton(lines=False): Environment(passed=passed, fixed={**fixed, **request.ENVIRONMENT}),
        _triton(lines=True): Environment(passed=passed, fixed=fixed),
        "nvcc": Environment(passed=of_nvcc, fixed={**nvcc.SET, **cuda_request.ENVIRONMENT}),
        "host tools": Environment(passed=host_tool.PASSED, fixed=host_tool.SET),
    }


def _triton(*, lines: bool) -> str:
    return "triton with line tables" if lines else "triton"


def commands(plan: ReleasePlan) -> tuple[Command, ...]:
    """Of the kinds of step that the release is made with."""
    host = HOSTS[plan.host]
    images = [declared.image for declared in plan.declared]
    kernels = {(image.variant.kernel.cuda is None, image.variant.kernel.debug) for image in images}
    found = []
    for is_triton, lines in sorted(kernels, reverse=True):
        if is_triton:
            found.append(Command(steps="compile", tool="triton", arguments=(), environment=_triton(lines=lines)))
            continue
        front = nvcc.front_arguments(
            "compute_<capability>",
            includes=("<-I and each root>",),
            lines=lines,
            depfile="<depfile>",
            unit="<unit>",
            output="<ptx>",
        )
        head = ("-ccbin", "<host compiler>", "<flags of the kernel>")
        found += [
            Command(steps="compile", tool="nvcc", arguments=(*head, *own), environment="nvcc")
            for own in (front, nvcc.assembly_arguments("sm_<capability>", lines=lines))
        ]
    symbols = {"start": "<symbol>_data", "end": "<symbol>_data_end", "content": "<symbol>_<sha256>"}
    own = objcopy_arguments(host, **symbols, output="<object>")
    found.append(Command(steps="objcopy", tool="objcopy", arguments=tuple(own)))
    alone = tuple(assembly_arguments(host, "<unit>", "<object>"))
    bundles = inventory_of(images).bundles
    for targets in dict.fromkeys(targets for _, targets in bundles):
        found.append(Command(steps="bundle", tool="fatbinary", arguments=tuple(fatbinary_arguments(targets))))
    if bundles:
        found.append(Command(steps="bundle", tool="cc", arguments=alone))
    for steps in ("record", "variants", "table"):
        found.append(Command(steps=steps, tool="cc", arguments=tuple(unit_arguments(host))))
    archive = Command(steps="archive", tool="ar", arguments=ARGUMENTS, script=archive_script(["<object>"]))
    found.append(archive)
    if any(file.step == "header:onnxruntime" for file in plan.files):
        found.append(Command(steps="header:onnxruntime", tool="cc", arguments=alone))
        found.append(replace(archive, steps="header:onnxruntime"))
    return tuple(found)

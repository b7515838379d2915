"""docs/targets.md: what can stand in `targets`, made of the same tables as the checks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kiln.toolchain.fp8 import fp8_dtypes
from kiln.toolchain.targets import LIMITS, TARGETS, Limits, Target
from kiln.toolchain.triton_releases import RELEASES

_HEAD = """\
# Targets

<!-- Made with `kiln targets-docs > docs/targets.md` from the tables that the checks use; edits are lost. -->

What can stand in `targets` of kernels.yaml, which compiler serves it, and what one block may take there. An image that
takes more fails `validate`; what kernels.yaml itself says that a target cannot have is refused before anything is
built: threads, dynamic shared memory, clusters, programmatic dependent launch, fp8 dtypes, a PTX ISA that does not
know the target.

`sm_80` is code for compute capability 8.0, which later 8.x GPUs run too, but for embedded ones. `a` is code for one
architecture exactly, `f` for its family. `compute_80` is PTX, which a driver compiles for its own GPU, of that
capability or a later one. From 9.0 on Triton compiles for `sm_90a` and the like, never for `sm_90`, and writes no PTX
that another GPU could use.

`native` stands for the GPUs of the machine that builds, in the driver's order: `sm_86`, `sm_90a`, `gfx942`.
"""

_NVIDIA = """\
## NVIDIA

Shared memory is in bytes a block: what an image may declare itself, and what it may take with dynamic memory, above
48 KiB after the launcher has opted in. Clusters are in blocks: what every GPU of the kind can launch and, where it is
more, what a launch can have with the attribute for cluster sizes that are not portable.
"""

_AMD = """\
## AMD

Triton's alone. Shared memory is LDS, in bytes a work-group. There are no clusters.
"""


def targets_page() -> str:
    """The page's text, in Markdown, ending with a newline."""
    nvidia = [row for row in LIMITS.values() if isinstance(row.arch, int)]
    amd = [row for row in LIMITS.values() if isinstance(row.arch, str)]
    heads = (
        [
            "capability",
            "Triton",
            "nvcc",
            "threads",
            "registers a block, a thread",
            "shared memory",
            "clusters",
            "PTX ISA",
        ],
        ["target", "wave", "threads", "vector registers a thread", "shared memory"],
    )
    parts = [
        _HEAD,
        f"{_NVIDIA}\n{_table(heads[0], map(_nvidia_row, nvidia))}",
        f"{_AMD}\n{_table(heads[1], map(_amd_row, amd))}",
        "## Releases of Triton\n\nWhat each lacks of the targets above, and the newest PTX that it can check.\n\n"
        f"{_table(['Triton', 'lacks', 'PTX ISA'], _releases())}",
        f"## fp8 dtypes in Triton\n\n{_table(['targets', 'dtypes'], _dtypes())}",
        "CUDA C++ has fp8e4nv and fp8e5 on every target.\n",
        f"## Sources\n\n{_sources()}",
    ]
    return "\n".join(parts)


def _nvidia_row(row: Limits) -> list[str]:
    own = [target for target in TARGETS.values() if target.limits is row]
    clusters = str(row.portable_cluster) if row.portable_cluster > 1 else "none"
    if row.max_cluster > row.portable_cluster:
        clusters += f", {row.max_cluster}"
    assert isinstance(row.arch, int) and row.min_ptx is not None
    return [
        f"{row.arch // 10}.{row.arch % 10}",
        _names(target for target in own if target.triton) or "none",
        _names(own),
        str(row.max_threads),
        f"{row.max_registers}, {row.max_thread_registers}",
        f"{row.max_static_shared}, {row.max_shared}",
        clusters,
        f"{row.min_ptx // 10}.{row.min_ptx % 10}",
    ]


def _amd_row(row: Limits) -> list[str]:
    return [
        f"`{row.arch}`",
        str(row.warp_size),
        str(row.max_threads),
        str(row.max_thread_registers),
        str(row.max_shared),
    ]


def _releases() -> list[list[str]]:
    return [
        [
            f"{major}.{minor}",
            _names(target for target in TARGETS.values() if target.name in release.lacks) or "none",
            f"{release.newest_ptx // 10}.{release.newest_ptx % 10}",
        ]
        for (major, minor), release in RELEASES.items()
    ]


def _dtypes() -> list[list[str]]:
    """Targets with the same dtypes in one row."""
    rows: dict[tuple[str, ...], list[Target]] = {}
    for target in TARGETS.values():
        if target.triton:
            rows.setdefault(fp8_dtypes(target), []).append(target)
    return [[_names(own), ", ".join(has)] for has, own in rows.items()]


def _sources() -> str:
    """Each document once, with what it is for."""
    rows: dict[str, list[str]] = {}
    for row in LIMITS.values():
        arch = f"{row.arch // 10}.{row.arch % 10}" if isinstance(row.arch, int) else row.arch
        rows.setdefault(row.source, []).append(arch)
    return "".join(f"- {', '.join(archs)}: {source}.\n" for source, archs in rows.items())


def _names(targets: Iterable[Target]) -> str:
    return ", ".join(f"`{target.name}`" for target in targets)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)

"""The checks of an image against its declaration, its target's limits, and what a release may not give away."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kiln.binaries.expected import Expected
from kiln.binaries.facts import Facts
from kiln.binaries.leaks import find_leaks
from kiln.binaries.lines import Lines
from kiln.closure.virtual_names import CUDA, SYSTEM, TRITON
from kiln.errors import ImageError
from kiln.manifest.dtypes import POINTER_SIZE
from kiln.manifest.model import Budget
from kiln.toolchain.targets import Kind, Target


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One check that failed."""

    check: str
    """what does not hold, as a sentence"""
    field: str
    """the fact that it is about, as Facts names it"""
    expected: str
    actual: str
    remedy: str


_NOT_THE_DECLARED = "build it again; if it comes back, the compiler made something else than it was asked for"
_SIGNATURE = "compare the signature in kernels.yaml with the function's parameters and their types"


def check_image(facts: Facts, expected: Expected) -> list[Finding]:
    """Is this the image that was declared: kind, architecture, entry, parameters, threads?"""
    checks: tuple[Callable[[Facts, Expected], Iterator[Finding]], ...] = (
        check_kind,
        check_arch,
        check_entry,
        check_parameter_count,
        check_parameter_layout,
        check_parameter_bytes,
        check_warp_size,
        check_threads,
        check_warps,
    )
    return [finding for check in checks for finding in check(facts, expected)]


def check_limits(facts: Facts, target: Target) -> list[Finding]:
    """Can the target launch it: threads, shared memory, registers?"""
    checks: tuple[Callable[[Facts, Target], Iterator[Finding]], ...] = (
        check_max_threads,
        check_max_shared,
        check_max_registers,
    )
    return [finding for check in checks for finding in check(facts, target)]


def check_budgets(facts: Facts, budgets: Mapping[str, Budget]) -> list[Finding]:
    """Does it use no more than kernels.yaml allows? What is not known of the image is not held against it."""
    findings = []
    for name, budget in budgets.items():
        field, unit, in_triton, in_cuda = _BUDGETED[name]
        remedy = in_triton if facts.by_triton else in_cuda
        actual = facts.used[name]
        if actual is not None and actual > budget.most:
            findings.append(
                Finding(
                    check=f"the image uses more than its budget, {budget.name}",
                    field=field,
                    expected=f"at most {budget.most} {unit}, by {budget.position}",
                    actual=f"{actual} {unit}",
                    remedy=f"{remedy}, or raise the budget",
                )
            )
    return findings


_BUDGETED = {
    "registers": (
        "registers",
        "registers a thread",
        "use smaller blocks or more warps, cap them with maxnreg on NVIDIA",
        "spread the work over more `threads`, cap them with maxnreg",
    ),
    "spills": (
        "spills",
        "bytes a thread",
        "use smaller blocks or more warps, raise maxnreg where it is set",
        "spread the work over more `threads`, raise maxnreg where it is set",
    ),
    "stack": (
        "stack",
        "bytes a thread",
        "use smaller blocks, index local arrays with constants",
        "use smaller local arrays, index them with constants",
    ),
    "shared": (
        "shared_static + shared_dynamic",
        "bytes a block",
        "use smaller blocks or a lower num_stages",
        "use smaller __shared__ arrays, or less `shared`",
    ),
    "size": ("size", "bytes", "unroll less, use smaller blocks", "unroll less, use smaller blocks"),
}
"""budget -> the fact that it is about, its unit, and what helps in Triton and in CUDA C++"""


def check_clean(data: bytes, kind: Kind, *, debug: bool = False) -> list[Finding]:
    """Does it keep the build machine to itself: no absolute path and, without `debug`, no debug section?

    Raises ImageError if unreadable.
    """
    leaks = find_leaks(data, kind)
    findings = []
    if leaks.debug and not debug:
        findings.append(
            Finding(
                check="the image holds debug information",
                field="debug",
                expected="none",
                actual=", ".join(leaks.debug),
                remedy="build without line info and debug options; `debug: true` in kernels.yaml asks for line tables",
            )
        )
    if leaks.paths:
        findings.append(
            Finding(
                check="the image holds paths of the machine that built it",
                field="paths",
                expected="none",
                actual=", ".join(leaks.paths),
                remedy="build without line info; in CUDA sources keep __FILE__ out of device code",
            )
        )
    return findings


def check_lines(lines: Lines, known: Mapping[str, Collection[int]]) -> list[Finding]:
    """Does each line of a line table stand in the sources? `known` are their lines by virtual file name.

    Code of Triton's own functions and of headers comes from files that are none of the project's. Line 0 is that of
    code that comes from no line.
    """
    foreign = tuple(f"{folder}/" for folder in (TRITON, CUDA, SYSTEM))
    own = [(file, line) for file, line in lines if not file.startswith(foreign)]
    strange = sorted((file, line) for file, line in own if file not in known or (line and line not in known[file]))
    expected = f"lines of {', '.join(known)}, by `debug: true`"
    if strange:
        check, actual = "the image's line table names lines that the source does not have", _listed_lines(strange)
    elif not any(line for _, line in own):
        check, actual = "the image's line table names no line of the source", "none of them"
    else:
        return []
    return [Finding(check=check, field="lines", expected=expected, actual=actual, remedy=_NOT_THE_DECLARED)]


def _listed_lines(lines: Sequence[tuple[str, int]]) -> str:
    more = f" and {len(lines) - 5} more" if len(lines) > 5 else ""
    return ", ".join(f"{file}:{line}" for file, line in lines[:5]) + more


def require(findings: Iterable[Finding], where: str) -> None:
    """Raise one ImageError that tells all findings, or return when there are none."""
    found = list(findings)
    if not found:
        return
    if len(found) == 1:
        (one,) = found
        raise ImageError(
            f"{one.field}: {one.check}", where=where, expected=one.expected, actual=one.actual, remedy=one.remedy
        )
    blocks = [
        f"  {finding.field}: {finding.check}\n"
        f"    expected: {finding.expected}\n    actual: {finding.actual}\n    remedy: {finding.remedy}"
        for finding in found
    ]
    raise ImageError("\n".join([f"{len(found)} checks failed", *blocks]), where=where)


def check_kind(facts: Facts, expected: Expected) -> Iterator[Finding]:
    if facts.kind != expected.target.kind:
        yield Finding(
            check="the image is of another kind than its target takes",
            field="kind",
            expected=f"{expected.target.kind} for {expected.target.name}",
            actual=facts.kind,
            remedy=_NOT_THE_DECLARED,
        )


def check_arch(facts: Facts, expected: Expected) -> Iterator[Finding]:
    """Exactly the target, suffix included: sm_90a code loads on no other GPU, and sm_90 code may lack instructions."""
    if facts.arch != expected.target.name:
        yield Finding(
            check="the image is for another architecture",
            field="arch",
            expected=expected.target.name,
            actual=facts.arch,
            remedy=_NOT_THE_DECLARED,
        )


def check_entry(facts: Facts, expected: Expected) -> Iterator[Finding]:
    if expected.entry is not None and facts.entry != expected.entry:
        yield Finding(
            check="the image's kernel has another name",
            field="entry",
            expected=expected.entry,
            actual=facts.entry,
            remedy="compare `function` in kernels.yaml with the source",
        )


def check_parameter_count(facts: Facts, expected: Expected) -> Iterator[Finding]:
    count = len(_user_sizes(facts))
    if count != len(expected.parameters):
        yield Finding(
            check="the kernel takes another number of parameters",
            field="parameters",
            expected=f"{len(expected.parameters)} from the signature",
            actual=str(count),
            remedy=_SIGNATURE,
        )


def check_parameter_layout(facts: Facts, expected: Expected) -> Iterator[Finding]:
    """Each parameter has its declared size and lies at the next offset that its alignment allows, hidden ones too."""
    sizes = _all_sizes(facts, expected)
    if len(sizes) != len(facts.parameters):
        return  # the count is a finding of its own, and what would be compared with what is anybody's guess
    for index, (parameter, size, offset) in enumerate(
        zip(facts.parameters, sizes, natural_offsets(sizes), strict=True)
    ):
        name = f"parameters[{index}]" + ("" if parameter.role == "user" else f" ({parameter.role})")
        if parameter.size != size:
            yield Finding(
                check="a parameter has another size than its type",
                field=f"{name}.size",
                expected=f"{size} bytes",
                actual=f"{parameter.size} bytes",
                remedy=_SIGNATURE,
            )
        if parameter.offset != offset:
            yield Finding(
                check="a parameter lies elsewhere than its type's alignment says",
                field=f"{name}.offset",
                expected=str(offset),
                actual=str(parameter.offset),
                remedy=_SIGNATURE,
            )


def check_parameter_bytes(facts: Facts, expected: Expected) -> Iterator[Finding]:
    """The buffer ends with its last parameter. AMD's may be larger: the runtime's own arguments follow."""
    sizes = _all_sizes(facts, expected)
    total = natural_offsets(sizes)[-1] + sizes[-1] if sizes else 0
    if facts.parameter_bytes < total or (facts.kind != "hsaco" and facts.parameter_bytes != total):
        yield Finding(
            check="the parameter buffer has another size than its parameters",
            field="parameter_bytes",
            expected=str(total) if facts.kind != "hsaco" else f"at least {total}",
            actual=str(facts.parameter_bytes),
            remedy=_SIGNATURE,
        )


def check_warp_size(facts: Facts, expected: Expected) -> Iterator[Finding]:
    if facts.warp_size != expected.target.warp_size:
        yield Finding(
            check="the image is compiled for another warp size",
            field="warp_size",
            expected=f"{expected.target.warp_size} on {expected.target.name}",
            actual=str(facts.warp_size),
            remedy=_NOT_THE_DECLARED,
        )


def check_threads(facts: Facts, expected: Expected) -> Iterator[Finding]:
    launched = facts.warps * facts.warp_size if expected.threads is None else expected.threads
    if facts.threads != launched:
        yield Finding(
            check="the image demands another number of threads than its compiler launches",
            field="threads",
            expected=f"{launched}: {facts.warps} warps of {facts.warp_size}"
            if expected.threads is None
            else f"{launched}, the `threads` of kernels.yaml",
            actual=str(facts.threads),
            # LLVM caps what an AMD kernel demands at the hardware's limit, whatever it was asked for.
            remedy=_threads_remedy(expected, launched),
        )


def _threads_remedy(expected: Expected, launched: int) -> str:
    if expected.threads is not None:
        return "write the number of threads that the kernel's __block_size__ asks for"
    return _NOT_THE_DECLARED if launched <= expected.target.limits.max_threads else _fewer_warps(expected.target)


def check_warps(facts: Facts, expected: Expected) -> Iterator[Finding]:
    """Warp specialisation adds warps to those asked for, and nothing takes any away."""
    if facts.warps < expected.warps:
        yield Finding(
            check="the kernel is launched with fewer warps than asked for",
            field="warps",
            expected=f"at least {expected.warps}",
            actual=str(facts.warps),
            remedy=_NOT_THE_DECLARED,
        )


def check_max_threads(facts: Facts, target: Target) -> Iterator[Finding]:
    if facts.threads > target.limits.max_threads:
        yield Finding(
            check="a block has more threads than the target can run",
            field="threads",
            expected=f"at most {target.limits.max_threads} on {target.name}",
            actual=str(facts.threads),
            remedy=_fewer_warps(target),
        )


def check_max_shared(facts: Facts, target: Target) -> Iterator[Finding]:
    total = facts.shared_static + facts.shared_dynamic
    if total > target.limits.max_shared:
        yield Finding(
            check="a block needs more shared memory than the target has",
            field="shared_static + shared_dynamic",
            expected=f"at most {target.limits.max_shared} bytes on {target.name}",
            actual=f"{total} bytes: {facts.shared_static} static and {facts.shared_dynamic} dynamic",
            remedy="use smaller blocks, a lower num_stages or less `shared`, or leave this target out for the kernel",
        )


def check_max_registers(facts: Facts, target: Target) -> Iterator[Finding]:
    dealt, most = registers_of_block(facts, target), target.limits.max_registers
    if dealt is not None and most is not None and dealt > most:
        yield Finding(
            check="a block needs more registers than the target has",
            field="registers",
            expected=f"at most {most} for the {facts.threads} threads of a block on {target.name}",
            actual=f"{dealt}, at {facts.registers} a thread",
            remedy=f"lower {'num_warps' if facts.by_triton else '`threads`'}, or cap registers with maxnreg",
        )


def registers_of_block(facts: Facts, target: Target) -> int | None:
    """Registers that one block takes; None where the image does not say, or the target has no such pool.

    They are dealt out in portions, so the product alone would let through what no launch accepts. A thread's are
    rounded up to 8 (256 a warp) and a block's warps to 4: NVIDIA, "CUDA Occupancy Calculator", register allocation unit
    size and warp allocation granularity; an H200 refuses by the same rule.
    """
    if facts.registers is None or target.limits.max_registers is None:
        return None
    warps = -(-facts.threads // target.warp_size)
    return _round_up(facts.registers, 8) * target.warp_size * _round_up(warps, 4)


def natural_offsets(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Offset of each parameter, in bytes, when each is aligned to its own size, as scalars and pointers are."""
    offsets: list[int] = []
    end = 0
    for size in sizes:
        offsets.append(_round_up(end, size))
        end = offsets[-1] + size
    return tuple(offsets)


def _fewer_warps(target: Target) -> str:
    return f"lower num_warps to {target.limits.max_threads // target.warp_size} or less"


def _all_sizes(facts: Facts, expected: Expected) -> tuple[int, ...]:
    """Declared sizes, and those of the scratch pointers that this image has."""
    hidden = sum(parameter.role != "user" for parameter in facts.parameters)
    return expected.parameters + (POINTER_SIZE,) * hidden


def _user_sizes(facts: Facts) -> tuple[int, ...]:
    return tuple(parameter.size for parameter in facts.parameters if parameter.role == "user")


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit

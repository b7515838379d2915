"""Which failures are shown once: the same ones under other names, and those of one kernel that differ in numbers."""

from __future__ import annotations

import pytest

from kiln.doit_plugin.reporting.failures import Failure, Groups
from kiln.errors import ClosureError, CompileError, ImageError, KilnError, Position

DECLARED = ("kernels.yaml:9:3", "kernels/scale.py (scale_kernel)")


def failure(name: str, error: KilnError, declared: tuple[str, ...] = DECLARED) -> Failure:
    return Failure(name=name, error=error, declared=declared)


def grouped(*failures: Failure) -> list[tuple[str, list[str], list[str]]]:
    groups = Groups()
    shown = [each.name for each in failures if groups.add(each)]
    assert groups.count == len(failures) == sum(group.count for group in groups.all)
    assert shown == [group.first.name for group in groups.all]
    return [(group.first.name, group.same, group.alike) for group in groups.all]


FIRST = "compile:scale_fp32_128@sm_80"


@pytest.mark.parametrize(
    ("other", "first_text", "other_text"),
    [
        ("compile:scale_fp32_128@gfx942", "it failed", "it failed"),
        ("compile:scale_fp32_256@sm_80", "128 and 64 do not go together", "256 and 64 do not go together"),
        ("compile:scale_fp16_128@sm_80", "a pointer to fp32 is none", "a pointer to fp16 is none"),
        ("compile:scale_fp32_256@sm_90a", "scale_fp32_128@sm_80 has no entry", "scale_fp32_256@sm_90a has no entry"),
        ("compile:scale_fp32_128@gfx942", "sm_80 does not have it", "gfx942 does not have it"),
        ("compile:scale_fp32_128@sm_90a", "compute capability 80 does not", "compute capability 90a does not"),
    ],
)
def test_what_differs_in_the_images_own_names_is_the_same(other: str, first_text: str, other_text: str) -> None:
    where = Position(file="kernels/scale.py", line=9)
    failures = (
        failure(FIRST, CompileError(first_text, where=where)),
        failure(other, CompileError(other_text, where=where)),
    )
    assert grouped(*failures) == [(FIRST, [other], [])]


def test_numbers_of_one_kernel_are_told_apart_from_its_names() -> None:
    """Registers follow from the image, in a way that nobody can see: it is shown once, and not called the same."""
    other = "compile:scale_fp32_256@sm_80"
    texts = "it uses 255 registers, and 200 are allowed", "it uses 213 registers, and 200 are allowed"
    assert grouped(failure(FIRST, ImageError(texts[0])), failure(other, ImageError(texts[1]))) == [(FIRST, [], [other])]


@pytest.mark.parametrize(
    ("other", "error", "declared"),
    [
        ("compile:scale_fp32_256@sm_80", ImageError("it uses 9 registers"), ("kernels.yaml:20:3",)),
        ("compile:scale_fp32_256@sm_80", ImageError("it uses 9 threads"), DECLARED),
        ("compile:scale_fp32_256@sm_80", ImageError("it uses 7 registers", stage="ptxas"), DECLARED),
        ("compile:scale_fp32_256@sm_80", CompileError("it uses 7 registers", stage="check"), DECLARED),
        ("compile:scale_fp32_256@sm_80", ImageError("it uses 7 registers", remedy="use less"), DECLARED),
        ("compile:scale_fp32_256@sm_80", ImageError("it uses r9 registers"), DECLARED),
    ],
    ids=["another kernel", "another word", "another stage", "another kind", "another remedy", "no number"],
)
def test_what_may_be_another_fault_is_shown(other: str, error: KilnError, declared: tuple[str, ...]) -> None:
    first = failure(FIRST, ImageError("it uses 7 registers"))
    assert grouped(first, failure(other, error, declared)) == [(FIRST, [], []), (other, [], [])]


def test_a_fault_of_the_machine_is_the_same_for_all_kernels() -> None:
    others = [f"compile:{kernel}_fp32_64@sm_80" for kernel in ("softmax", "matmul")]
    missing = KilnError("nvcc is missing", remedy="install it")
    assert grouped(
        failure(FIRST, missing), *(failure(name, missing, (f"kernels.yaml:{name}",)) for name in others)
    ) == [(FIRST, others, [])]


def test_thousands_of_failures_are_grouped_at_once() -> None:
    """Two faults, each of 2,000 images with numbers of their own."""
    names = [f"compile:scale_fp32_{number}@sm_80" for number in range(2000)]
    failures = [failure(name, CompileError(f"line {index} is {word}")) for word in ("bad", "worse")
                for index, name in enumerate(names)]  # fmt: skip
    assert [(first, len(same) + len(alike)) for first, same, alike in grouped(*failures)] == [(names[0], 1999)] * 2


def test_a_block_has_all_that_helps() -> None:
    error = ClosureError("it cannot be cut", where="kernels/a.py:3:1", expected="this", actual="that", remedy="do so")
    block = Failure(
        name="compile:a@sm_80",
        error=error,
        printed=["LLVM ERROR: no"],
        declared=("kernels.yaml:9:3",),
        log="build/x.log",
    ).block()
    assert block.splitlines() == [
        "FAILED compile:a@sm_80",
        "  kernels/a.py:3:1: it cannot be cut",
        "    expected: this",
        "    actual: that",
        "    remedy: do so",
        "    printed:",
        "      LLVM ERROR: no",
        "  stage: slice",
        "  declared: kernels.yaml:9:3",
        "  log: build/x.log",
        "  reproduce: doit -v 2 compile:a@sm_80",
    ]

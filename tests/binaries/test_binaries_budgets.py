"""check_budgets: the facts of real images against each budget, at the limit and over it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from binaries_images import Built

from kiln.binaries.checks import check_budgets, require
from kiln.errors import ImageError, Position
from kiln.manifest.model import Budget

PLACE = Position(file="kernels.yaml", line=4, column=19)
FIELDS = {
    "registers": "registers",
    "spills": "spills",
    "stack": "stack",
    "shared": "shared_static + shared_dynamic",
    "size": "size",
}


def budget(name: str, limit: int) -> Budget:
    return Budget(limit=limit, name=f"budgets.{name}", position=PLACE)


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("image", ["sm_80", "sm_90a", "gfx942"])
def test_what_is_used_may_be_the_limit_and_no_more(images: dict[str, Built], image: str, name: str) -> None:
    facts = replace(images[image].facts, spills=8, stack=16, shared_static=4)
    used = facts.used[name]
    assert used is not None and used > 0
    assert check_budgets(facts, {name: budget(name, used)}) == []
    (finding,) = check_budgets(facts, {name: budget(name, used - 1)})
    assert finding.field == FIELDS[name]
    assert finding.check == f"the image uses more than its budget, budgets.{name}"
    assert finding.expected.startswith(f"at most {used - 1} ") and finding.expected.endswith(", by kernels.yaml:4:19")
    assert finding.actual.partition(" ")[0] == str(used)


def test_shared_memory_is_static_and_dynamic_together(images: dict[str, Built]) -> None:
    facts = replace(images["sm_80"].facts, shared_static=100, shared_dynamic=28)
    assert check_budgets(facts, {"shared": budget("shared", 128)}) == []
    assert check_budgets(facts, {"shared": budget("shared", 127)})[0].actual == "128 bytes a block"


def test_what_is_not_known_is_not_held_against_an_image(images: dict[str, Built]) -> None:
    facts = images["compute_80"].facts
    unknown = {name for name, used in facts.used.items() if used is None}
    assert unknown == {"registers", "spills", "stack"}
    found = check_budgets(facts, {name: budget(name, 0) for name in FIELDS})
    assert {finding.field for finding in found} == {FIELDS["shared"], FIELDS["size"]}


@pytest.mark.parametrize("name", ["registers", "spills", "stack", "shared"])
def test_what_helps_is_said_in_the_words_of_the_language(images: dict[str, Built], name: str) -> None:
    """A kernel in CUDA C++ has `threads`, and neither warps nor stages."""
    facts = replace(images["sm_80"].facts, spills=8, stack=16, shared_static=4)
    (in_triton,) = check_budgets(facts, {name: budget(name, 1)})
    (in_cuda,) = check_budgets(replace(facts, tools={"nvcc": "13.0"}), {name: budget(name, 1)})
    print(in_triton.remedy, in_cuda.remedy, sep="\n")
    assert re.search("blocks", in_triton.remedy) and not re.search("`threads`|__shared__", in_triton.remedy)
    assert not re.search("warps|stages|blocks", in_cuda.remedy)
    assert in_cuda.remedy.endswith(", or raise the budget")


def test_all_breaches_are_one_error(images: dict[str, Built]) -> None:
    facts = replace(images["sm_80"].facts, spills=8)
    with pytest.raises(ImageError) as caught:
        require(check_budgets(facts, {"spills": budget("spills", 7), "size": budget("size", 9)}), "softmax@sm_80")
    print(caught.value)
    lines = str(caught.value).splitlines()
    assert lines[0] == "softmax@sm_80: 2 checks failed"
    assert lines[1:4] == [
        "  spills: the image uses more than its budget, budgets.spills",
        "    expected: at most 7 bytes a thread, by kernels.yaml:4:19",
        "    actual: 8 bytes a thread",
    ]
    assert lines[6] == "    expected: at most 9 bytes, by kernels.yaml:4:19"

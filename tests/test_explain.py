"""`doit explain` in a small project: what changed, old and new, what waits for it, and that nothing is written."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import cuda_project
from project import KERNEL, MANIFEST, Project

COMPILE = "compile:scale_fp32_128@sm_80"


def explained(project: Project, *arguments: str, **environment: str) -> dict[str, dict[str, Any]]:
    """What --json says of each step."""
    output = project.doit("explain", "--json", *arguments, **environment).expect().output
    shown = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
    assert shown["kiln explain"] == 1
    return {step["name"]: step for step in shown["steps"]}


def changes(step: dict[str, Any]) -> dict[str, tuple[str | None, str | None]]:
    """The inputs that changed: old and new."""
    return {change["input"]: (change["old"], change["new"]) for change in step["changes"]}


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file below a folder, with its times; folders too."""
    return {
        path.relative_to(folder).as_posix(): (
            path.lstat().st_mtime_ns,
            path.lstat().st_ctime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in [folder, *folder.rglob("*")]
    }


def test_a_fresh_step_says_so_and_what_it_depends_on(built: Project) -> None:
    built.doit("explain").expect(r"^0 stale, 23 fresh$")
    output = built.doit("explain", "--inputs", COMPILE).expect(rf"^{COMPILE}: fresh$", r"^0 stale, 1 fresh$").output
    for line in (
        r"scale_kernel of kernels/scale\.py +[0-9a-f]{12} +kernels/scale\.py:5$",
        r"constant BLOCK_SIZE +128$",
        r"option num_warps +4$",
        r"ptxas +[0-9a-f]{12} +/\S+/ptxas of Triton 3\.9\.0$",
        r"the target +sm_80$",
        r"Kiln's own code +[0-9a-f]{12} +\d+ entries$",
        r"the rule in dodo\.py +[0-9a-f]{12} +\S+/graph\.py:\d+$",
    ):
        assert re.search(rf"^    {line}", output, re.MULTILINE), f"{line} is not in:\n{output}"
    (step,) = explained(built, "--inputs", COMPILE).values()
    assert step["state"] == "fresh" and step["inputs"]["constant BLOCK_SIZE"] == "128"


def test_an_edit_is_shown_as_a_diff_with_the_line_as_it_is_now(built: Project) -> None:
    """Once for all images that it concerns; what comes after them may follow."""
    built.edit("kernels/scale.py", "import triton\n", "import triton\n\n# a comment above\n")
    built.edit("kernels/scale.py", "x * 2", "x * 3")
    output = built.doit("explain").expect(r"^4 stale, 17 may follow, 2 fresh$", r"^table: fresh$").output
    assert output.count("+    tl.store(output_ptr + offsets, x * 3, mask=mask)") == 1
    block = output[: output.index("\n\n")].splitlines()
    assert block == [
        f"{COMPILE}: stale",
        "  and so are " + ", ".join(f"compile:{image}" for image in ("scale_fp32_128@gfx942",)) + ", "
        "compile:scale_fp32_256@sm_80, compile:scale_fp32_256@gfx942",
        "  scale_kernel of kernels/scale.py changed",
        "    @@ kernels/scale.py:12 @@",
        "         mask = offsets < n_elements",
        "         x = tl.load(input_ptr + offsets, mask=mask)",
        "    -    tl.store(output_ptr + offsets, x * 2, mask=mask)",
        "    +    tl.store(output_ptr + offsets, x * 3, mask=mask)",
        "  declared: kernels.yaml:5:3, kernels/scale.py (scale_kernel)",
    ]
    assert "validate:scale_fp32_128@sm_80: may follow\n" in output
    assert f"  {COMPILE} runs first: this runs too if that makes other bytes than before\n" in output
    assert "the kernel's slice" not in output


def test_helpers_that_come_and_go_in_another_file(built: Project) -> None:
    helper = "import triton\n\n@triton.jit\ndef twice(x):\n    return x * 2\n"
    built.write("kernels/helpers.py", helper)
    built.edit("kernels/scale.py", "import triton\n", "import triton\nfrom helpers import twice\n")
    built.edit("kernels/scale.py", "x * 2", "twice(x)")
    output = built.doit("explain", COMPILE).expect(r"^1 stale, 0 fresh$").output
    assert re.search(r"^  twice of kernels/helpers\.py is new: kernels/helpers\.py:3$", output, re.MULTILINE)
    built.doit("compile").expect()
    built.write("kernels/helpers.py", helper.replace("x * 2", "x * 4"))
    built.doit("explain", COMPILE).expect(
        r"^  twice of kernels/helpers\.py changed$",
        r"^    @@ kernels/helpers\.py:5 @@$",
        r"^    -    return x \* 2$",
        r"^    \+    return x \* 4$",
    )
    built.write("kernels/scale.py", KERNEL)
    built.doit("explain", COMPILE).expect(r"^  twice of kernels/helpers\.py is no longer needed")


def test_values_of_kernels_yaml(built: Project) -> None:
    built.edit("kernels.yaml", "*{dtype}:16, i32", "*{dtype}, i64")
    built.edit("kernels.yaml", "    grid:", '    options: {num_warps: "4 if block <= 128 else 8"}\n    grid:')
    steps = explained(built)
    assert "option num_warps" not in changes(steps[COMPILE])
    assert changes(steps["compile:scale_fp32_256@sm_80"])["option num_warps"] == ("4", "8")
    assert {"declarations"} <= changes(steps["header:c"]).keys()
    built.doit("explain").expect(
        r"^  the arguments changed: input_ptr \(\*fp32:16 -> \*fp32\), n_elements \(i32 -> i64\)$",
        r"^  option num_warps changed: 4 -> 8$",
        r"^  what kernels\.yaml and the sources declare changed: scale_fp32_128@sm_80, scale_fp32_256@sm_80$",
    )


def test_a_variant_that_is_new_and_one_that_is_gone(built: Project) -> None:
    built.edit("kernels.yaml", "[128, 256]", "[128, 512]")
    steps = explained(built)
    assert steps["compile:scale_fp32_512@sm_80"]["reason"] == "it was never built here"
    assert steps[COMPILE]["state"] == "fresh"
    assert "it makes objects/scale_fp32_256__sm_80.record.o no more" in steps["record:sm_80"]["reason"]
    built.doit("explain", "table").expect(
        r"^  the list of images changed: new: scale_fp32_512@sm_80, .*; gone: scale_fp32_256@sm_80, "
    )


def test_outputs_that_are_damaged_or_missing_are_all_named(built: Project) -> None:
    image = built.folder / "build/images/sm_80/scale_fp32_128.cubin"
    image.write_bytes(image.read_bytes()[:-1])
    (built.folder / "build/images/sm_80/scale_fp32_128.facts.json").unlink()
    built.doit("explain", COMPILE).expect(
        rf"^{COMPILE}: stale$",
        r"^  output build/images/sm_80/scale_fp32_128\.cubin does not hold what was built$",
        r"^  output build/images/sm_80/scale_fp32_128\.facts\.json is missing$",
    )


def test_a_tool_that_was_replaced(built: Project, tmp_path: Path) -> None:
    found = shutil.which("objcopy")
    assert found is not None
    other = tmp_path / "objcopy"
    other.write_bytes(Path(found).read_bytes() + b"\0")
    other.chmod(0o755)
    step = "objcopy:scale_fp32_128@sm_80"
    built.doit("explain", step, OBJCOPY=str(other)).expect(
        rf"^  objcopy changed: /\S*/objcopy \([0-9a-f]{{12}}\) -> {re.escape(str(other))} \([0-9a-f]{{12}}\)$"
    )
    assert explained(built, step)[step]["state"] == "fresh"


def test_a_rule_of_dodo_py(built: Project) -> None:
    """The rule's own text is shown, with its place in the project's file."""
    rules = (Path(__file__).parents[1] / "dodo.py").read_text("utf-8")
    built.write("dodo.py", rules)
    built.doit("table").expect()
    line = "        cached=tuple(members),\n"
    place = rules.index(line, rules.index("def table("))
    built.write("dodo.py", rules[:place] + line + "        sources=(),\n" + rules[place + len(line) :])
    built.doit("explain", "table").expect(
        r"^1 stale, 0 fresh$",
        r"^  the rule in dodo\.py changed$",
        rf"^    @@ dodo\.py:{rules[:place].count(chr(10)) + 2} @@$",
        r"^    \+        sources=\(\),$",
    )


def test_a_step_that_failed_says_what_changed_since_it_was_right(built: Project) -> None:
    built.edit("kernels/scale.py", "x * 2", "x + tl.arange(0, 64)")
    built.doit("compile").expect(code=1)
    built.doit("explain", COMPILE).expect(
        r"^  its last run failed or was forgotten$", r"^    \+    tl\.store\(output_ptr \+ offsets, x \+ tl\.arange"
    )
    built.edit("kernels/scale.py", "def scale_kernel", "def other_kernel")
    built.doit("explain", "compile").expect(r"has no function 'scale_kernel'$", r"^4 stale, 0 fresh$")


def test_names_are_checked_and_other_tasks_are_told_apart(built: Project) -> None:
    built.write("dodo.py", built.read("dodo.py") + "\n\ndef task_hello():\n    return {'actions': ['echo hello']}\n")
    built.doit("explain", "compile:scale_fp32_129@sm_80").expect(
        r"there is no task .*did you mean 'compile:scale_fp32_12", code=3
    )
    built.doit("explain", "hello").expect("hello is no step of Kiln's", code=3)
    built.doit("explain", "hello", "table").expect("hello is no step of Kiln's", r"^table: fresh$")
    built.doit("explain", "validate:scale*").expect(r"^0 stale, 4 fresh$")
    built.doit("explain", "build/lib/libscratch.a").expect(r"^archive:all: fresh$")


@pytest.mark.parametrize("damage", ["random", "cut", "gone", "other schema"])
def test_nothing_is_written_whatever_the_state_is(built: Project, damage: str) -> None:
    state = built.folder / "build/.kiln/state.sqlite"
    data = state.read_bytes()
    if damage == "gone":
        state.unlink()
    elif damage == "other schema":
        state.write_bytes(data[:60] + b"\0\0\0\x63" + data[64:])
    else:
        state.write_bytes({"random": b"\x5a" * 5000, "cut": data[: len(data) // 2]}[damage])
    before = snapshot(built.folder)
    result = built.doit("explain").expect(r"^23 stale, 0 fresh$", "it was never built here")
    assert ("cannot be read" in result.output) == (damage != "gone")
    assert snapshot(built.folder) == before


def test_nothing_is_written_on_a_project_that_was_never_built(tmp_path: Path) -> None:
    project = Project.create(tmp_path / "scratch", manifest=MANIFEST)
    before = snapshot(project.folder)
    project.doit("explain", "compile").expect("it was never built here", r"^4 stale, 0 fresh$")
    assert snapshot(project.folder) == before


def test_a_header_of_a_kernel_in_cuda(tmp_path: Path) -> None:
    """What nvcc found that it reads is compared too, in bytes of whatever encoding."""
    project = cuda_project.create(tmp_path / "scratch")
    project.doit("compile").expect("1 built")
    project.doit("explain", "--inputs", "compile").expect(
        r"^    kernels/factor\.cuh +[0-9a-f]{12} +kernels/factor\.cuh:1$",
        r"^    headers of CUDA and the host compiler +[0-9a-f]{12} +\d+ entries$",
    )
    header = project.folder / "kernels/factor.cuh"
    header.write_bytes(header.read_bytes() + b'#define NAME "caf\xe9"\n')
    (project.folder / "factor.cuh").write_text("#define FACTOR 3\n")
    project.doit("explain", "compile").expect(
        r"^  kernels/factor\.cuh changed$",
        r"^    @@ kernels/factor\.cuh:2 @@$",
        r'^    \+#define NAME "caf\ufffd"$',
        r"^  where includes lead changed: factor\.cuh in kernels/scale\.cu "
        r"\(kernels/factor\.cuh -> kernels/factor\.cuh, then factor\.cuh\)$",
    )
    (step,) = explained(project, "compile").values()
    assert changes(step).keys() == {"include kernels/factor.cuh", "lookups"}

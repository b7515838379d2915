"""`budgets`: what they read to for each image, and each thing that can be wrong, with file, line and column."""

from __future__ import annotations

from pathlib import Path

import pytest

from kiln.errors import ManifestError
from kiln.manifest.loader import load
from kiln.manifest.model import Budget, Manifest

HEAD = "version: 1\nlibrary: l\ntargets: [sm_80, compute_80, gfx942]\n"
KERNEL = """\
kernels:
  k:
    source: k.py
    function: f
    dtypes: [fp32]
    blocks: [128, 256]
    axes: {WIDE: [true, false]}
    constants: {ROWS: 4, COLUMNS: {expression: "BLOCK_SIZE // ROWS"}, MODE: relu}
    name: k_{dtype}_{block}_{WIDE}
    signature: "*{dtype}, i32"
    grid: [1]
"""


def load_text(folder: Path, text: str) -> Manifest:
    for name in ("k.py", "k.cu"):
        (folder / name).touch()
    (folder / "kernels.yaml").write_text(text)
    return load(folder / "kernels.yaml")


def budgets(folder: Path, top: str, own: str) -> dict[str, dict[str, int]]:
    """Image -> budget -> the most."""
    text = HEAD + (f"budgets: {top}\n" if top else "") + KERNEL + (f"    budgets: {own}\n" if own else "")
    images = load_text(folder, text).images
    return {image.id: {name: budget.most for name, budget in image.budgets.items()} for image in images}


def test_none_when_left_out(tmp_path: Path) -> None:
    assert set(map(str, budgets(tmp_path, "", "").values())) == {"{}"}


def test_a_number_is_for_every_image(tmp_path: Path) -> None:
    for top, own in (("{spills: 0, size: 0x100}", ""), ("", "{size: 256, spills: 0}")):
        found = budgets(tmp_path, top, own)
        assert len(found) == 12
        assert all(each == {"spills": 0, "size": 256} for each in found.values())


def test_a_map_is_for_its_targets_and_goes_before_the_librarys_for_those(tmp_path: Path) -> None:
    found = budgets(tmp_path, "{spills: 0, stack: {sm_80: 8}}", "{spills: {gfx942: 64}, stack: {gfx942: 16}}")
    assert found["k_fp32_128_1@sm_80"] == {"spills": 0, "stack": 8}
    assert found["k_fp32_128_1@compute_80"] == {"spills": 0}
    assert found["k_fp32_128_1@gfx942"] == {"spills": 64, "stack": 16}
    assert budgets(tmp_path, "{spills: {gfx942: 0}}", "{spills: 4}")["k_fp32_128_1@sm_80"] == {"spills": 4}


def test_an_expression_is_computed_for_each_variant(tmp_path: Path) -> None:
    own = '{registers: "64 if WIDE == 1 else block // 4", shared: {sm_80: COLUMNS * ROWS, gfx942: "2 * BLOCK_SIZE"}}'
    found = budgets(tmp_path, "{stack: '8'}", own)
    assert found["k_fp32_256_1@sm_80"] == {"registers": 64, "shared": 256, "stack": 8}
    assert found["k_fp32_256_0@gfx942"] == {"registers": 64, "shared": 512, "stack": 8}
    assert found["k_fp32_128_0@compute_80"] == {"registers": 32, "stack": 8}


def test_the_librarys_are_for_kernels_of_files_that_it_includes(tmp_path: Path) -> None:
    (tmp_path / "more.yaml").write_text(f"version: 1\n{KERNEL}")
    images = load_text(tmp_path, f"{HEAD}budgets: {{spills: 3}}\ninclude: [more.yaml]\n").images
    assert all(image.budgets["spills"].most == 3 for image in images)
    with pytest.raises(ManifestError, match="'budgets' cannot stand in a file that another one includes"):
        (tmp_path / "more.yaml").write_text(f"version: 1\nbudgets: {{spills: 3}}\n{KERNEL}")
        load(tmp_path / "kernels.yaml")


def test_the_librarys_targets_need_not_be_a_kernels(tmp_path: Path) -> None:
    text = f"{HEAD}budgets: {{size: {{sm_80: 1, gfx942: 2}}}}\n{KERNEL}    targets: [gfx942]\n"
    other = KERNEL.partition("\n")[2].replace("  k:", "  other:").replace("name: k_", "name: other_")
    images = load_text(tmp_path, f"{text}{other}").images
    assert {(image.target, image.budgets["size"].most) for image in images if image.variant.kernel.key == "k"} == {
        ("gfx942", 2)
    }


def test_a_budget_knows_where_it_stands(tmp_path: Path) -> None:
    text = f"{HEAD}budgets: {{spills: 0}}\n{KERNEL}    budgets:\n      size: {{sm_80: 4 * 8}}\n"
    budget: Budget = load_text(tmp_path, text).images[0].budgets["size"]
    assert (budget.most, budget.name, budget.position.line, budget.position.column) == (
        32, "kernels.k.budgets.size.sm_80", 17, 21,
    )  # fmt: skip
    assert load_text(tmp_path, text).images[0].budgets["spills"].name == "budgets.spills"


def test_a_kernel_in_cuda_has_budgets_too(tmp_path: Path) -> None:
    kernel = KERNEL.replace("k.py", "k.cu").replace(", MODE: relu", "").replace(", gfx942", "")
    text = HEAD.replace(", gfx942", "") + kernel + "    threads: 128\n    budgets: {shared: COLUMNS}\n"
    assert load_text(tmp_path, text).images[0].budgets["shared"].most == 32


@pytest.mark.parametrize(
    ("own", "place", "message"),
    [
        ("{spill: 0}", 15, "unknown key 'spill' in `kernels.k.budgets`.*did you mean 'spills'"),
        ("{threads: 0}", 15, "unknown key 'threads'.*registers, spills, stack, shared, size"),
        ("{spills: -1}", 23, "wrong value for `kernels.k.budgets.spills`.*at least 0.*map from targets.*actual: -1"),
        ("{spills: 1.5}", 23, "wrong value for `kernels.k.budgets.spills`.*1.5.*write an integer"),
        ("{spills: true}", 23, "wrong value for `kernels.k.budgets.spills`.*actual: the truth value 'true'"),
        ("{spills: no}", 23, "wrong value.*actual: the truth value 'no'"),
        ("{spills: }", 23, "wrong value.*actual: nothing"),
        ("{spills: [0]}", 23, "wrong value.*map from targets.*actual: a list of 1"),
        ("{spills: {}}", 23, "wrong value.*actual: an empty map.*name at least one target"),
        ("{spills: {sm_80: -1}}", 31, "wrong value for `kernels.k.budgets.spills.sm_80`.*at least 0.*actual: -1"),
        ("{spills: {sm_80: true}}", 31, "wrong value for `kernels.k.budgets.spills.sm_80`.*truth value"),
        ("{spills: {sm_80: {}}}", 31, "wrong value for `kernels.k.budgets.spills.sm_80`.*an empty map"),
        (
            "{spills: {sm_90a: 0}}",
            24,
            "a budget for 'sm_90a', which the kernel 'k' is not built for.*among sm_80, compute_80, gfx942"
            ".*actual: kernels.k.budgets.spills.sm_90a",
        ),
        ("{spills: {gfx941: 0}}", 24, "a budget for 'gfx941'.*did you mean 'gfx942'"),
        ("{spills: {'': 0}}", 24, "a budget for ''.*not built for"),
        ("{stack: BLOCK}", 22, "`kernels.k.budgets.stack` uses the unknown name 'BLOCK'.*did you mean"),
        ("{stack: MODE}", 22, "`kernels.k.budgets.stack` uses 'MODE', which is no integer"),
        ("{stack: n}", 22, "`kernels.k.budgets.stack` uses the unknown name 'n'"),
        ("{stack: {gfx942: M + 1}}", 31, "`kernels.k.budgets.stack.gfx942` uses the unknown name 'M'"),
        ("{stack: block > 2}", 22, "an expression that gives an integer.*gives a truth value"),
        (
            "{stack: ROWS - 5}",
            22,
            "wrong value for `kernels.k.budgets.stack`.*actual: -1, from 'ROWS - 5' with ROWS = 4",
        ),
        ("4", 14, "wrong value for `kernels.k.budgets`.*a map with keys among registers"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(own: str, place: int, message: str, tmp_path: Path) -> None:
    """All of it stands in line 15."""
    with pytest.raises(ManifestError, match=f"(?s){message}") as caught:
        budgets(tmp_path, "", own)
    print(caught.value)
    assert str(caught.value).startswith(f"{tmp_path}/kernels.yaml:15:{place}: ")


@pytest.mark.parametrize(
    ("top", "message"),
    [
        ("{sizes: 1}", "4:11: unknown key 'sizes' in `budgets`"),
        ("{size: -5}", "4:17: wrong value for `budgets.size`"),
        ("{size: {sm_81: 5}}", "4:18: a budget for 'sm_81', which the library is not built for"),
        ("{size: ROW}", "4:17: `budgets.size` uses the unknown name 'ROW'"),
    ],
)
def test_the_same_of_the_librarys(top: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ManifestError) as caught:
        budgets(tmp_path, top, "")
    print(caught.value)
    assert str(caught.value).startswith(f"{tmp_path}/kernels.yaml:{message}")


def test_with_native_targets_the_budgets_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "k.py").touch()
    text = f"{HEAD}budgets: {{size: {{sm_80: 1, gfx942: 2}}}}\n{KERNEL}"
    text += "    budgets: {spills: {compute_80: 4}, stack: 8}\n"
    (tmp_path / "kernels.yaml").write_text(text.replace("[sm_80, compute_80, gfx942]", "native"))
    images = load(tmp_path / "kernels.yaml", None, lambda position: ("gfx942",)).images
    assert {name: budget.most for name, budget in images[0].budgets.items()} == {"size": 2, "stack": 8}

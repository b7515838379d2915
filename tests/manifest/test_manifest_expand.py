"""Names that could be taken for each other, across kernels and groups; the order of variants and images."""

from __future__ import annotations

from pathlib import Path

import pytest

from kiln.errors import ManifestError
from kiln.manifest.loader import load
from kiln.manifest.model import Manifest


def kernel(key: str, **changes: str) -> str:
    keys = {
        "source": "k.py",
        "function": "f",
        "dtypes": "[fp32]",
        "blocks": "[64]",
        "name": f"{key}_{{dtype}}_{{block}}",
        "signature": '"*{dtype}"',
        "grid": "[1]",
        **changes,
    }
    return f"  {key}:\n" + "".join(f"    {name}: {value}\n" for name, value in keys.items())


def load_kernels(folder: Path, *kernels: str) -> Manifest:
    (folder / "k.py").touch()
    path = folder / "kernels.yaml"
    path.write_text("version: 1\nlibrary: l\ntargets: [gfx942, sm_80]\nkernels:\n" + "".join(kernels))
    return load(path)


def refusal(folder: Path, *kernels: str) -> str:
    with pytest.raises(ManifestError) as caught:
        load_kernels(folder, *kernels)
    return str(caught.value)


def test_order_is_the_order_of_declaration(tmp_path: Path) -> None:
    manifest = load_kernels(
        tmp_path,
        kernel("z", dtypes="[fp32, bf16]", blocks="[64, 16]"),
        kernel("a"),
    )
    names = ["z_fp32_64", "z_fp32_16", "z_bf16_64", "z_bf16_16", "a_fp32_64"]
    assert [variant.id for variant in manifest.variants] == names
    assert [image.id for image in manifest.images] == [
        f"{name}@{target}" for name in names for target in manifest.targets
    ]


def test_kernels_may_compete_in_one_group(tmp_path: Path) -> None:
    manifest = load_kernels(tmp_path, kernel("a", group="g_{dtype}"), kernel("b", group="g_{dtype}"))
    assert {variant.group for variant in manifest.variants} == {"g_fp32"}


def test_promises_do_not_keep_variants_out_of_a_group(tmp_path: Path) -> None:
    load_kernels(tmp_path, kernel("a", group="g"), kernel("b", group="g", signature='"*{dtype}:16"'))


@pytest.mark.parametrize(
    ("changes", "group"),
    [
        ({}, "a_fp32"),
        ({"name": "a_{dtype}"}, "a_fp32_group"),
        ({"name": "A_{dtype}"}, "a_fp32_group"),
        ({"name": "a_fp32"}, "a_fp32_group"),
        ({"name": "a"}, "a_fp32"),
        ({"name": "a_fp32_64"}, "a_fp32"),
        ({"name": "a_{dtype}_{D}", "axes": "{D: [1]}", "signature": '"*{dtype}, i{D}"'}, "a_fp32_1_group"),
        ({"name": "a_{D}_{dtype}", "axes": "{D: [1]}", "signature": '"*{dtype}, i{D}"'}, "a_fp32_1"),
        ({"name": "a_{dtype}_1", "axes": "{D: [1]}", "signature": '"*{dtype}, i{D}"'}, "a_fp32_1_group"),
        ({"name": "a_{dtype}", "promises": "[{x: 16}, {}]"}, "a_fp32_group"),
    ],
)
def test_a_default_group_is_no_name_of_a_variant(tmp_path: Path, changes: dict[str, str], group: str) -> None:
    """The kernel's key and what tells its groups apart; with a word behind it where `name` is just that."""
    assert {variant.group for variant in load_kernels(tmp_path, kernel("a", **changes)).variants} == {group}


def test_a_default_group_of_another_kernel_is_still_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, kernel("a"), kernel("b", name="a_{dtype}", group="g"))
    assert "the group 'a_fp32' has the name of a variant, 'a_fp32' of kernel 'b'" in message


@pytest.mark.parametrize(
    ("kernels", "words"),
    [
        (
            [kernel("a", name="x_{dtype}_{block}"), kernel("b", name="X_{dtype}_{block}")],
            ["'X_fp32_64' is the name of two variants", "kernels 'a' and 'b'", "equals 'x_fp32_64' but for"],
        ),
        (
            [kernel("a", name="x_{dtype}{block}", dtypes="[i1, i16]", blocks="[64, 4]", signature='"i32"', group="g")],
            ["'x_i164' is the name of two variants", "kernel 'a' twice", "an underscore between"],
        ),
        (
            [kernel("a", dtypes="[fp32, fp16]", blocks="[64, 32]", name="x")],
            ["'x' is the name of two variants", "add {block} to `name`"],
        ),
        ([kernel("a", group="g"), kernel("b", group="G")], ["groups 'g' and 'G'", "kernels 'a' and 'b'"]),
        (
            [kernel("a", name="a_{dtype}", group="a_{dtype}")],
            ["'a_fp32' has the name of a variant", "add {block} to `name`"],
        ),
        ([kernel("a", group="b_fp32_64"), kernel("b")], ["'b_fp32_64' has the name of a variant", "kernel 'b'"]),
        (
            [kernel("a", group="g"), kernel("b", group="g", signature='"*fp32, i32"')],
            ["'a_fp32_64' and 'b_fp32_64'", "group 'g'", "different arguments", "*fp32, i32"],
        ),
    ],
)
def test_refused(tmp_path: Path, kernels: list[str], words: list[str]) -> None:
    message = refusal(tmp_path, *kernels)
    assert [word for word in words if word not in message] == []

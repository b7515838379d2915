"""kernels.schema.json and docs/manifest.md: fresh, and in agreement with the reader that they are made beside."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest
import test_manifest_choices as choices
import test_manifest_loader as loader

from kiln.errors import ManifestError
from kiln.manifest import budgets
from kiln.manifest.compound_types import Key
from kiln.manifest.json_schema import FILE, MODELINE, json_schema, schema_of
from kiln.manifest.loader import load
from kiln.manifest.reference import reference_page
from kiln.manifest.schema import KERNEL, ONNXRUNTIME, OPTIONS, RELEASE, TOP
from kiln.manifest.yaml_nodes import List, Map, Node
from kiln.manifest.yaml_tree import read_yaml
from project import MANIFEST, REPOSITORY

TEMPLATE = REPOSITORY / "tools/kiln/project/template/kernels.yaml"

validate: Callable[[Any], Any] = fastjsonschema.compile(json.loads(json_schema()))


def data(node: Node) -> Any:
    """What an editor's YAML server makes of a file: scalars by the core schema of YAML 1.2 (yaml.org, 10.3)."""
    if isinstance(node, List):
        return [data(item) for item in node.items]
    if isinstance(node, Map):
        return {entry.key.text: data(entry.value) for entry in node.entries}
    if not node.plain:
        return node.text
    if node.text in ("true", "false"):
        return node.text == "true"
    if node.text in ("", "~", "null"):
        return None
    if re.fullmatch(r"[-+]?[0-9]+|0x[0-9a-fA-F]+", node.text):
        return int(node.text, 16 if node.text.startswith("0x") else 10)
    if re.fullmatch(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", node.text):
        return float(node.text)
    return node.text


def refused(text: str) -> str | None:
    """What the schema has against a manifest."""
    try:
        validate(data(read_yaml(text.encode(), "kernels.yaml")))
    except fastjsonschema.JsonSchemaValueException as error:
        return str(error.message)
    return None


@pytest.mark.parametrize(("name", "text"), [(FILE, json_schema()), ("docs/manifest.md", reference_page())])
def test_the_file_in_the_repository_is_fresh(name: str, text: str) -> None:
    """`kiln schema > kernels.schema.json` and `kiln manifest-docs > docs/manifest.md` make them anew."""
    assert (REPOSITORY / name).read_text("utf-8") == text


@pytest.mark.parametrize("path", [REPOSITORY / "kernels.yaml", TEMPLATE], ids=["repository", "template"])
def test_manifests_name_the_schema_and_fit_it(path: Path) -> None:
    assert path.read_text().startswith(MODELINE)
    assert refused(path.read_text().replace("LIBRARY", "x")) is None


def texts() -> list[str]:
    """Every manifest that a test of the loader replaces a part of, with the kernels of the tests of choices."""
    everything = choices.kernel(
        targets="[gfx942, sm_80]",
        exclude="[{dtype: [fp32], D: 128}, {CAUSAL: true, block: small}]",
        constants="{ACT: relu, FLAG: true, N: -3, EPS: 1e-5, HALF: {expression: D // 2}}",
        options='{num_stages: "2 if D == 64 else 3", launch_pdl: false, num_warps: 8}',
        **choices.AXES,
    )
    return [
        MANIFEST,
        loader.BASE,
        f"{choices.HEAD}kernels:\n{choices.kernel()}",
        f"{choices.HEAD}kernels:\n{everything}{choices.kernel('b', name='b_{dtype}_{block}')}",
        *(loader.with_line(line) for line in GOOD),
    ]


GOOD = [
    "axes: {A: {x: 0.5}, B: [a, b]}",
    "grid: [n, 2]",
    'grid: ["cdiv(n, BLOCK_SIZE)", m * 2, 3]',
    "problems: [{n: -1}, {n: 0x10}]",
    "tolerance: {fp32: 1e-5, fp16: 0}",
    "inputs: {n: i64, y: u8}",
    "select: true",
    "select: n <= 2",
    "options: {launch_pdl: BLOCK_SIZE > 1024, num_warps: block // 256}",
    "budgets: {spills: 0, registers: {sm_80: 128}, stack: BLOCK_SIZE // 8, shared: {sm_80: block}, size: 65536}",
]


@pytest.mark.parametrize("text", texts())
def test_good_manifests_fit(text: str) -> None:
    assert refused(text) is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("version: 1", "version: 2", "version"),
        ("version: 1", "version: 1\nkernles: {}", "kernles"),
        ("version: 1", "version: 1\ndefaults: {num_wraps: 4}", "num_wraps"),
        ("version: 1", "version: 1\nhost: arm", "host"),
        ("    blocks:", "    block:", "kernels.softmax"),
        ("    function: softmax_kernel\n", "", "function"),
        ("[fp32, fp16]", "[fp32, f16]", "dtypes[1]"),
        ("[fp32, fp16]", "[]", "dtypes"),
        ("[1024, 2048]", "[1024, 0]", "blocks"),
        ("[1024, 2048]", "[1024, {M: 1}]", "blocks"),
        ("[1024, 2048]", "[{M: 1, num_warps: 3}]", "blocks"),
        ("{num_warps: 4}", "{num_warp: 4}", "num_warp"),
        ("{num_warps: 4}", "{num_warps: 3}", "num_warps"),
        (loader.LAST, "    inputs: {n: fp32}", "inputs"),
        (loader.GRID, "    grid: [n, 1, 1, 1]", "grid"),
        (f"{loader.GRID}\n", "", "grid"),
        (loader.LAST, "    axes: {A: 1}", "axes"),
        (loader.LAST, "    axes: {A: []}", "axes"),
        (loader.LAST, "    constants: {A: {expr: B}}", "constants"),
        (loader.LAST, "    exclude: [{}]", "exclude"),
        (loader.LAST, "    tolerance: {f16: 1}", "tolerance"),
        (loader.LAST, "    tolerance: {fp16: -1}", "tolerance"),
        (loader.LAST, "    budgets: {spill: 0}", "spill"),
        (loader.LAST, "    budgets: {spills: -1}", "spills"),
        (loader.LAST, "    budgets: {spills: true}", "spills"),
        (loader.LAST, "    budgets: {spills: {sm_80: -1}}", "spills"),
        (loader.LAST, "    budgets: {spills: {}}", "spills"),
        ("version: 1", "version: 1\nrelease: {sizes: {}}", "sizes"),
        ("version: 1", "version: 1\nrelease: {size: 1}", "size"),
        ("version: 1", "version: 1\nrelease: {size: {}}", "size"),
        ("version: 1", "version: 1\nrelease: {size: {sm_80: -1}}", "size"),
        ("version: 1", "version: 1\nrelease: {size: {sm_80: true}}", "size"),
    ],
)
def test_what_the_reader_refuses_for_its_form_the_schema_refuses(old: str, new: str, words: str) -> None:
    message = refused(loader.replace(old, new))
    assert message is not None and words in message


def test_a_function_table_stands_in_place_of_other_keys() -> None:
    table = f"{choices.HEAD}kernels:\n  k:\n    function_table: k.py\n    grid: [1]\n"
    assert refused(table) is None
    assert refused(f"{table}    function: f\n") is None
    assert refused(f"{table}    name: k\n") is not None
    assert refused(table.replace("    function_table: k.py\n", "")) is not None


@pytest.mark.parametrize(
    "keys",
    [TOP, KERNEL, OPTIONS, budgets.KEYS, ONNXRUNTIME, RELEASE],
    ids=["top", "kernel", "options", "budgets", "onnxruntime", "release"],
)
def test_every_key_has_an_example_that_the_reader_and_the_schema_take(keys: dict[str, Key]) -> None:
    for name, key in keys.items():
        node = read_yaml(f"{name}: {key.example}\n".encode(), "example")
        assert isinstance(node, Map)
        key.type.read(node.entries[0].value, name)
        fastjsonschema.validate(schema_of(key.type), data(node.entries[0].value))
        assert f"### `{name}` (" in reference_page()
        assert f"\n    {name}: {key.example}\n" in reference_page()


def test_the_references_whole_kernel_is_read(tmp_path: Path) -> None:
    block = re.search(r"^    kernels:\n(?:    .*\n)+", reference_page(), re.MULTILINE)
    assert block is not None
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/attention.py").touch()
    text = "".join(line[4:] for line in block[0].splitlines(keepends=True))
    (tmp_path / "kernels.yaml").write_text(choices.HEAD.replace("sm_80, ", "") + text)
    manifest = load(tmp_path / "kernels.yaml")
    assert [variant.id for variant in manifest.variants[:2]] == [
        "attention_fp16_64_causal_128x64_n16",
        "attention_fp16_64_causal_128x64",
    ]
    assert len(manifest.variants) == 2 * 2 * 3 * 2
    assert refused((tmp_path / "kernels.yaml").read_text()) is None


def test_good_manifests_are_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the schema is shown to take above is what the reader takes, but for files and placeholders."""
    monkeypatch.chdir(tmp_path)
    for name in ("k.py", "kernels/softmax.py", "kernels/scale.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    for text in texts():
        if "axes: {A" in text:
            text = text.replace("softmax_{dtype}", "softmax_{A}_{B}_{dtype}")
        Path("kernels.yaml").write_text(text)
        try:
            load(Path("kernels.yaml"))
        except ManifestError as error:
            pytest.fail(f"{error}\n{text}")


def test_a_type_without_a_schema_is_noticed() -> None:
    with pytest.raises(TypeError, match="object has no JSON Schema"):
        schema_of(object())

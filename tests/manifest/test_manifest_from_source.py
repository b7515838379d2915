"""What a manifest takes from source files, with a reader that the tests give: autotune and function tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kiln.errors import ManifestError, Position
from kiln.manifest.constants import DTypeConstant, FunctionConstant
from kiln.manifest.from_source import Configuration, SourcePlace, main_dtype
from kiln.manifest.loader import load
from kiln.manifest.model import Manifest, TableRow, Value

HEAD = """\
version: 1
library: l
targets: [sm_80, sm_90a, gfx942]
kernels:
  k:
"""
AUTOTUNED = """\
    source: k.py
    function: f
    dtypes: [fp16]
    blocks: autotune
    name: k_{dtype}_{block}
    signature: "*{dtype}"
    grid: [1]
"""
TABLE = """\
    function_table: k.py
    grid: ["cdiv(n, BLOCK)"]
    inputs: {n: i32}
"""


@dataclass(frozen=True, kw_only=True)
class Given:
    """A reader that gives what the test says, and keeps what it was asked."""

    configured: tuple[Configuration, ...] = ()
    rows: tuple[TableRow, ...] = ()
    asked: list[tuple[SourcePlace, str | None, tuple[str, ...]]] = field(default_factory=list)

    def configurations(
        self, place: SourcePlace, function: str, targets: Mapping[str, Position]
    ) -> tuple[Configuration, ...]:
        self.asked.append((place, function, tuple(targets)))
        return self.configured

    def function_table(self, place: SourcePlace, targets: Mapping[str, Position]) -> tuple[TableRow, ...]:
        self.asked.append((place, None, tuple(targets)))
        return self.rows


def at(line: int) -> Position:
    return Position(file="k.py", line=line, column=9)


def config(
    line: int, warps: int = 4, stages: int = 3, targets: tuple[str, ...] | None = None, **constants: Value
) -> Configuration:
    options: Mapping[str, Value] = {"num_warps": warps, "num_stages": stages}
    return Configuration(constants=constants, options=options, targets=targets, position=at(line))


def row(line: int, name: str, function: str = "f", signature: str = "*fp16:16, i32", **constants: Value) -> TableRow:
    return TableRow(
        name=name,
        group=name.rpartition("_")[0],
        source=Path("/project/k.py"),
        source_name="k.py",
        function=function,
        signature=signature,
        constants=constants,
        options={"num_warps": 8},
        position=at(line),
    )


def load_kernel(folder: Path, kernel: str, reader: Given) -> Manifest:
    (folder / "k.py").touch()
    path = folder / "kernels.yaml"
    path.write_text(HEAD + kernel)
    return load(path, reader)


def refusal(folder: Path, kernel: str, reader: Given) -> str:
    with pytest.raises(ManifestError) as caught:
        load_kernel(folder, kernel, reader)
    message = str(caught.value).replace(f"{folder}/", "")
    print(message)
    return message


def tags(folder: Path, *configured: Configuration) -> list[str]:
    manifest = load_kernel(folder, AUTOTUNED, Given(configured=configured))
    return [variant.id.removeprefix("k_fp16_") for variant in manifest.variants]


def test_a_configuration_is_a_block(tmp_path: Path) -> None:
    reader = Given(configured=(config(3, 8, BLOCK_M=128, BLOCK_N=64), config(4, 4, 5, BLOCK_N=32, BLOCK_M=64)))
    large, small = load_kernel(tmp_path, AUTOTUNED, reader).variants
    assert (large.id, large.constants) == ("k_fp16_128x64", {"BLOCK_M": 128, "BLOCK_N": 64})
    assert (large.options["num_warps"], large.options["num_stages"]) == (8, 3)
    assert list(small.constants.items()) == [("BLOCK_M", 64), ("BLOCK_N", 32)]
    assert small.options["num_stages"] == 5
    assert small.kernel.blocks[1].positions["num_warps"] == at(4)
    [(place, function, targets)] = reader.asked
    assert (place.source, place.root, function) == (tmp_path / "k.py", tmp_path, "f")
    assert (place.where.line, place.where.column) == (9, 13)
    assert targets == ("sm_80", "sm_90a", "gfx942")


def test_options_stand_in_tags_where_constants_do_not_tell_configurations_apart(tmp_path: Path) -> None:
    assert tags(tmp_path, config(1, 4, B=64), config(2, 8, B=64), config(3, 4, B=32)) == [
        "64_w4s3",
        "64_w8s3",
        "32_w4s3",
    ]
    assert tags(tmp_path, config(1, 4), config(2, 8, 2)) == ["w4s3", "w8s2"]
    assert tags(tmp_path, config(1, 4, B=64), config(2, 8, B=32)) == ["64", "32"]


def test_dtypes_and_functions_stand_in_tags_by_their_names(tmp_path: Path) -> None:
    first = config(1, B=64, OUT=DTypeConstant(name="fp16"), ACT=FunctionConstant(name="Ops._relu"))
    second = config(2, B=64, OUT=DTypeConstant(name="fp32"), ACT=FunctionConstant(name="gelu"))
    assert tags(tmp_path, first, second) == ["64xfp16xOps_relu", "64xfp32xgelu"]


def test_one_more_configuration_renames_no_other(tmp_path: Path) -> None:
    told = (config(1, 4, B=64), config(2, 8, B=64))
    assert tags(tmp_path, *told, config(3, 2, 7, B=16))[:2] == tags(tmp_path, *told)


def test_a_configuration_of_some_targets_is_built_for_those(tmp_path: Path) -> None:
    reader = Given(configured=(config(1, B=64), config(2, targets=("gfx942",), B=32)))
    manifest = load_kernel(tmp_path, AUTOTUNED, reader)
    assert [image.id for image in manifest.images] == [
        "k_fp16_64@sm_80",
        "k_fp16_64@sm_90a",
        "k_fp16_64@gfx942",
        "k_fp16_32@gfx942",
    ]


def test_a_target_that_no_configuration_is_for_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, AUTOTUNED, Given(configured=(config(1, targets=("gfx942",), B=64),)))
    assert message.startswith("kernels.yaml:3:11: no kernel is built for 'sm_80'\n")
    assert "no configuration for it in its source" in message


def test_configurations_can_be_excluded_by_their_constants_and_tags(tmp_path: Path) -> None:
    reader = Given(configured=(config(1, B=64), config(2, B=32), config(3, B=16)))
    manifest = load_kernel(tmp_path, AUTOTUNED + "    exclude: [{B: 64}, {block: 16}]\n", reader)
    assert [variant.id for variant in manifest.variants] == ["k_fp16_32"]


@pytest.mark.parametrize(
    ("configured", "expected"),
    [
        ((), ("kernels.yaml:9:13: `kernels.k.blocks` finds no configuration", "remedy: write the blocks out")),
        (
            (config(1, B=64), config(2, B=32, C=1)),
            (
                "k.py:2:9: ",
                "set different constants",
                "those of the first one, at k.py:1:9: B",
                "only one of them sets C",
            ),
        ),
        (
            (config(1, B=64, ACT="a b"),),
            ("k.py:1:9: ", "ACT of a configuration is 'a b', which cannot stand in names", "each with a `tag`"),
        ),
        (
            (config(1, B=64, SCALE=0.5),),
            ("k.py:1:9: ", "SCALE of a configuration is 0.5, which cannot stand in names", "each with a `tag`"),
        ),
        (
            (config(1, ACT="a"), config(2, ACT="A")),
            ("k.py:2:9: ", "two configurations make the tag 'A_w4s3'", "the first is at k.py:1:9"),
        ),
    ],
)
def test_configurations_that_make_no_blocks_are_refused(
    tmp_path: Path, configured: tuple[Configuration, ...], expected: tuple[str, ...]
) -> None:
    message = refusal(tmp_path, AUTOTUNED, Given(configured=configured))
    for text in expected:
        assert text in message


def test_autotune_in_a_list_and_near_misses_are_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, AUTOTUNED.replace("autotune", "[autotune]"), Given())
    assert "kernels.yaml:9:14: wrong value for `kernels.k.blocks[0]`" in message
    message = refusal(tmp_path, AUTOTUNED.replace("autotune", "autotuned"), Given())
    assert "or the word autotune" in message and "did you mean 'autotune'?" in message


ROWS = (row(10, "soft_fp16_64", BLOCK=64), row(10, "soft_fp16_128", BLOCK=128))


def test_a_row_is_a_variant(tmp_path: Path) -> None:
    reader = Given(rows=(*ROWS, row(11, "soft_fp32_64", signature="i32, *fp32", BLOCK=64)))
    manifest = load_kernel(tmp_path, TABLE + "    options: {num_warps: 2, num_stages: BLOCK // 32}\n", reader)
    first, second, third = manifest.variants
    assert (first.id, first.group, first.dtype, first.constants) == ("soft_fp16_64", "soft_fp16", "fp16", {"BLOCK": 64})
    assert (first.signature.text, first.signature.position) == ("*fp16:16, i32", at(10))
    assert (first.options["num_warps"], first.options["num_stages"], second.options["num_stages"]) == (8, 2, 4)
    assert (third.dtype, third.group) == ("fp32", "soft_fp32")
    kernel = first.kernel
    assert (kernel.function, kernel.source, kernel.dtypes) == ("f", Path("/project/k.py"), ("fp16", "fp32"))
    assert len(manifest.images) == 9


def test_function_picks_the_rows_of_one_function(tmp_path: Path) -> None:
    rows = (ROWS[0], row(11, "other_64", "g", X=1), ROWS[1])
    manifest = load_kernel(tmp_path, TABLE + "    function: f\n", Given(rows=rows))
    assert [variant.id for variant in manifest.variants] == ["soft_fp16_64", "soft_fp16_128"]
    assert "rows of several functions" in (message := refusal(tmp_path, TABLE, Given(rows=rows)))
    assert "actual: f, g" in message and "remedy: add `function: f`" in message
    message = refusal(tmp_path, TABLE + "    function: ff\n", Given(rows=rows))
    assert "no row of the function 'ff'" in message and "did you mean 'f'?" in message


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ((), ("kernels.yaml:6:21: the table of `kernels.k.function_table` is empty",)),
        (
            (ROWS[0], row(11, "soft_fp16_128", BLOCK=1, WIDE=1)),
            ("k.py:11:9: ", "two rows of f set different constants", "sets BLOCK, WIDE; only one of them sets WIDE"),
        ),
        (
            (ROWS[0], ROWS[0]),
            ("k.py:10:9: 'soft_fp16_64' is the name of two variants", "each row of the function table"),
        ),
        ((row(10, "soft-64", BLOCK=1),), ("k.py:10:9: 'soft-64' cannot be a variant's name",)),
        ((row(10, "soft_64", signature="*fp17", BLOCK=1),), ("k.py:10:9: item 1 of the signature", "'fp17'")),
        (
            (ROWS[0], row(11, "soft_fp16_128", signature="*fp16", BLOCK=1)),
            ("k.py:11:9: ", "take different arguments", "give one of the rows another group"),
        ),
    ],
)
def test_rows_that_make_no_variants_are_refused(
    tmp_path: Path, rows: tuple[TableRow, ...], expected: tuple[str, ...]
) -> None:
    message = refusal(tmp_path, TABLE, Given(rows=rows))
    for text in expected:
        assert text in message


@pytest.mark.parametrize("key", ["source: k.py", "dtypes: [fp16]", "blocks: [64]", "axes: {A: [1]}", "name: x"])
def test_what_a_table_stands_in_place_of_is_refused_beside_it(tmp_path: Path, key: str) -> None:
    name = key.partition(":")[0]
    message = refusal(tmp_path, TABLE + f"    {key}\n", Given(rows=ROWS))
    assert message.startswith(f"kernels.yaml:9:5: `kernels.k` has `{name}` and `function_table`\n")


def test_a_kernel_of_neither_names_both(tmp_path: Path) -> None:
    message = refusal(tmp_path, "    function: f\n    grid: [1]\n", Given())
    assert "lacks the key `source`" in message and "or `function_table:` in its place" in message


@pytest.mark.parametrize("kernel", [AUTOTUNED, TABLE])
def test_a_manifest_alone_cannot_tell(tmp_path: Path, kernel: str) -> None:
    (tmp_path / "k.py").touch()
    path = tmp_path / "kernels.yaml"
    path.write_text(HEAD + kernel)
    with pytest.raises(ManifestError, match="is read from a source file"):
        load(path)


def test_the_dtype_of_a_row_is_that_of_its_first_pointer() -> None:
    signatures = ("i32, *fp16:16, *fp32", "*bf16", "i64, i32", "")
    assert [main_dtype(signature) for signature in signatures] == ["fp16", "bf16", "i64", ""]

"""An fp8 dtype that a target lacks is refused where a signature or a constant names it."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_toolchain_launches import BLOCKS, read

from kiln.errors import ManifestError


@pytest.mark.parametrize(
    ("targets", "lines", "old", "new", "words"),
    [
        (
            "sm_80, sm_90a",
            "constants: {OUT: {dtype: fp8e4nv}}",
            "",
            "",
            [":14:17: scale_fp32_128 cannot be built for sm_80, which has no fp8e4nv", "OUT is fp8e4nv", "[sm_90a]"],
        ),
        ("gfx942", "constants: {OUT: [1, {dtype: fp8e4b15}]}", "", "", [":14:17: ", "gfx942, which has no fp8e4b15"]),
        ("sm_90a", "", BLOCKS, "[{BLOCK_SIZE: 128, OUT: {dtype: fp8e4b8}}]", [":9:32: ", "use another dtype"]),
        (
            "sm_80",
            "axes: {OUT: [{dtype: fp16}, {dtype: fp8e4nv}]}",
            "{dtype}_{block}",
            "{dtype}_{OUT}_{block}",
            [":14:12: scale_fp32_fp8e4nv_128 cannot be built for sm_80", "OUT is fp8e4nv"],
        ),
        ("sm_80, gfx942", "", "[fp32]", "[fp16, fp8e4nv]", [":12:5: scale_fp8e4nv_128", "*fp8e4nv", "[gfx942]"]),
    ],
)
def test_dtypes_in_signature_and_constants(
    tmp_path: Path, targets: str, lines: str, old: str, new: str, words: list[str]
) -> None:
    with pytest.raises(ManifestError) as caught:
        read(tmp_path, targets, lines, old=old, new=new)
    print(caught.value)
    assert [word for word in words if word not in str(caught.value)] == []

"""The files of one kernel in CUDA C++: how they are read, and that macros of kernels.yaml count as theirs do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from kiln.closure.cuda_source import CudaFiles, CudaSource
from kiln.errors import Position

HERE = Position(file="kernels.yaml", line=1, column=1)
OWN = "__global__ void own(int *x) {\n  *x = VALUE;\n}\n"


def source(folder: Path, text: bytes, defines: Mapping[str, str]) -> CudaSource:
    (folder / "own.cu").write_bytes(text)
    return CudaFiles(folder).source(folder / "own.cu", "own", HERE, defines)


def test_line_ends_and_marks_of_other_systems_are_no_part_of_a_file(tmp_path: Path) -> None:
    digests = [
        source(tmp_path, text, {}).digests
        for text in (OWN.encode(), OWN.replace("\n", "\r\n").encode(), OWN.replace("\n", "\r").encode("utf-8-sig"))
    ]
    assert digests[0] == digests[1] == digests[2]


@pytest.mark.parametrize(("text", "keeps"), [("__LINE__", True), ("assert", True), ("'\"' + 1", False)])
def test_a_macro_of_the_manifest_that_shows_lines_keeps_them(tmp_path: Path, text: str, keeps: bool) -> None:
    found = source(tmp_path, OWN.encode(), {"VALUE": text})
    assert [*found.files] == ["own.cu"]
    assert found.files["own.cu"].keeps_layout is keeps


def test_a_macro_of_the_manifest_that_names_a_kernel_keeps_its_body(tmp_path: Path) -> None:
    text = f"__global__ void other(int *x) {{ *x = 2; }}\n{OWN}".encode()
    assert b"2" not in source(tmp_path, text, {"VALUE": "3"}).files["own.cu"].data
    assert b"2" in source(tmp_path, text, {"VALUE": "launch(other)"}).files["own.cu"].data

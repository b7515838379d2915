"""Patterns: the placeholders that are known, and no other brace."""

from __future__ import annotations

import pytest

from kiln.errors import ManifestError, Position
from kiln.manifest.pattern import check_pattern, fill, placeholders

HERE = Position(file="kernels.yaml", line=13, column=11)
BOTH = ("dtype", "block")


def test_fill() -> None:
    check_pattern("softmax_{dtype}_{block}_{dtype}", BOTH, HERE)
    assert fill("softmax_{dtype}_{block}_{dtype}", {"dtype": "fp16", "block": "64"}) == "softmax_fp16_64_fp16"
    assert placeholders("softmax_{dtype}_{block}_{dtype}") == {"dtype", "block"}
    assert fill("softmax", {}) == "softmax"


def test_what_is_filled_in_is_not_filled_again() -> None:
    assert fill("{dtype}", {"dtype": "{block}", "block": "x"}) == "{block}"


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("a_{type}", ["'{type}'", "did you mean 'dtype'?"]),
        ("a_{BLOCK}", ["'{BLOCK}'", "{dtype} and {block}"]),
        ("a_{}", ["'{}'"]),
        ("a_{ dtype }", ["'{ dtype }'", "did you mean 'dtype'?"]),
        ("a_{dtype.name}", ["'{dtype.name}'"]),
        ("a_{dtype!r}", ["'{dtype!r}'"]),
        ("a_{0}", ["'{0}'"]),
        ("a_{{dtype}}", ["brace at its character 3"]),
        ("a_{dtype", ["brace at its character 3"]),
        ("a_dtype}", ["brace at its character 8"]),
    ],
)
def test_refused(pattern: str, words: list[str]) -> None:
    with pytest.raises(ManifestError) as caught:
        check_pattern(pattern, BOTH, HERE)
    message = str(caught.value)
    assert message.startswith("kernels.yaml:13:11: ")
    assert [word for word in words if word not in message] == []


def test_a_placeholder_that_is_known_elsewhere() -> None:
    with pytest.raises(ManifestError, match=r"\{block\}"):
        check_pattern("*{dtype}, {block}", ("dtype",), HERE)

"""What a rule may be: its pattern, and a condition on the manifest."""

from __future__ import annotations

from typing import Any

import pytest

from kiln.doit_plugin.rules import collect, rule
from kiln.engine.step import Step
from kiln.errors import KilnError
from kiln.manifest.model import Manifest


def never(manifest: Manifest) -> bool:
    return False


def make(library: Any) -> Step:
    raise AssertionError("nobody asks for the step")


@pytest.mark.parametrize("pattern", ["", "Header:c", "header:", "compile:<variant>", "a:b:c"])
def test_other_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(KilnError, match="is no pattern for a rule"):
        rule(pattern)


def test_a_condition_on_images_is_refused() -> None:
    """The manifest says which images there are, and a build that knows them does not ask again."""
    with pytest.raises(KilnError, match="has a condition, and is one for images") as caught:
        rule("size:<image>", when=never)
    assert "let the manifest declare other images" in str(caught.value)


def test_a_rule_without_its_condition_has_no_steps() -> None:
    class Library:
        manifest = None

    def other(library: Any) -> Step:
        raise AssertionError("nobody asks for the step")

    first, second = collect({"a": rule("header:a", when=never)(make), "b": rule("header:b")(other)})
    library: Any = Library()
    assert [name for name, _ in first.steps(library)] == []
    assert [name for name, _ in second.steps(library)] == ["header:b"]

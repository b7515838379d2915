"""Errors read well, and cross from one process to another with all their parts."""

from __future__ import annotations

import errno
import inspect
import pickle
from pathlib import Path

import pytest

from kiln import errors
from kiln.errors import KilnError, Position, StateError, did_you_mean, no_space, os_failure

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, KilnError)]


def test_an_error_says_where_what_expected_actual_and_what_to_do() -> None:
    error = KilnError(
        "it failed",
        where=Position(file="kernels.yaml", line=3, column=5),
        expected="one",
        actual="two",
        remedy="mend it",
    )
    assert str(error) == "kernels.yaml:3:5: it failed\n  expected: one\n  actual: two\n  remedy: mend it"
    assert str(KilnError("it failed")) == "it failed"
    assert str(KilnError("it failed", where="here", actual="")) == "here: it failed"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_pickles_with_all_its_parts(kind: type[KilnError]) -> None:
    error = kind("what", where=Position(file="a", line=1), expected="b", actual="c", remedy="d")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert vars(again) == vars(error)
    assert str(again) == str(error)


def test_the_stage_is_that_of_the_kind_unless_another_is_given() -> None:
    kinds = (KilnError, errors.ClosureError, errors.ImageError)
    assert [kind("what").stage for kind in kinds] == [None, "slice", "check"]
    error = errors.ImageError("what", stage="ptxas")
    assert (error.stage, error.filled(actual="this").stage, pickle.loads(pickle.dumps(error)).stage) == ("ptxas",) * 3


def test_a_refusal_of_the_system_names_the_file_the_reason_and_a_remedy() -> None:
    error = os_failure("it cannot be written", OSError(errno.EACCES, "Permission denied", "/a/file"), Path("/a"))
    assert isinstance(error, StateError)
    assert str(error) == (
        "/a/file: it cannot be written: Permission denied\n"
        "  remedy: give yourself the rights to it, or remove it if another user made it, and run again"
    )


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_named_first(number: int) -> None:
    error = OSError(number, "")
    assert no_space(error)
    assert str(os_failure("it cannot be written", error, Path("/a"))).startswith(
        "/a: no space left on the disk: it cannot be written\n  remedy: make room "
    )


def test_a_refusal_without_a_number_keeps_its_text() -> None:
    assert str(os_failure("it failed", OSError("the reason"), "/a")) == "/a: it failed: the reason"


def test_near_names_are_offered() -> None:
    assert did_you_mean("block", ["blocks", "dtypes"]) == "did you mean 'blocks'?"
    assert did_you_mean("sm_9", ["sm_90", "sm_90a", "gfx942"]) == "did you mean 'sm_90' or 'sm_90a'?"
    assert did_you_mean("zebra", ["blocks"]) is None

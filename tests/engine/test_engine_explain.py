"""Explanations of steps without doit: changes with their texts, faults, what runs before, and rules that raise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from kiln.digests import digest_bytes
from kiln.engine.build import Build
from kiln.engine.explain import Explainer, Input
from kiln.engine.rows import Output, Row
from kiln.engine.state import State
from kiln.engine.step import Call, Step, Text
from kiln.errors import KilnError

OLD, NEW = digest_bytes(b"old"), digest_bytes(b"new")


def step(name: str, inputs: Callable[[], Mapping[str, str]] = dict, *, after: tuple[str, ...] = ()) -> Step:
    """A step with one output, which is called like it; the text of an input is its name and its digest's beginning."""
    return Step(
        inputs=inputs,
        call=lambda: Call(function="unused:unused", arguments={}),
        outputs=(f"{name}.bin",),
        after=after,
        text=lambda name, digest, found: Text(body=f"{name} {digest[:4]} {len(found)}\n"),
    )


@pytest.fixture
def build(tmp_path: Path) -> Build:
    return Build(state=State(tmp_path / "state.sqlite"), root=tmp_path, folder=tmp_path / "private", size=1)


def record(
    build: Build, name: str, *, components: Mapping[str, str], outputs: tuple[str, ...] = (), **more: bool
) -> None:
    """Let a step have run, with these inputs, and make its files."""
    made = []
    for output in outputs or (f"{name}.bin",):
        path = build.root / output
        path.write_bytes(b"made")
        found = path.stat()
        made.append(Output(path=output, size=4, ctime_ns=found.st_ctime_ns, sha256=digest_bytes(b"made")))
    row = Row(components=components, outputs=tuple(made), seconds=0.0, peak_memory=0, **more)
    build.state.record(name, row)


def test_changes_have_both_values_and_both_texts(build: Build) -> None:
    record(build, "a", components={"same": "1", "code": OLD, "option": "4", "gone": "x"})
    build.state.keep_texts({OLD: "what it was\n"})
    steps = {"a": step("a", lambda: {"same": "1", "code": NEW, "option": "8", "come": NEW})}
    found = Explainer(build, steps).explain("a", with_inputs=True)
    assert found.is_stale and found.reason is None and not found.faults and not found.runs_before
    text = Text(body=f"code {NEW[:4]} 0\n")
    assert found.changes == (
        Input(name="code", old=OLD, new=NEW, old_text="what it was\n", new_text=text),
        Input(name="come", old=None, new=NEW, new_text=Text(body=f"come {NEW[:4]} 0\n")),
        Input(name="gone", old="x", new=None),
        Input(name="option", old="4", new="8"),
    )
    assert [(each.name, each.new) for each in found.inputs] == [
        ("code", NEW),
        ("come", NEW),
        ("option", "8"),
        ("same", "1"),
    ]


def test_each_output_that_is_not_as_it_was_made(build: Build) -> None:
    record(build, "a", components={}, outputs=("a.bin", "b.bin", "c.bin"))
    (build.root / "a.bin").unlink()
    (build.root / "c.bin").write_bytes(b"madx")
    found = Explainer(build, {"a": step("a")}).explain("a")
    assert [fault.removeprefix(f"{build.root}/") for fault in found.faults] == [
        "a.bin is missing",
        "c.bin does not hold what was built",
    ]
    assert found.reason == "it makes b.bin no more; it makes c.bin no more"


def test_stale_steps_are_found_at_any_distance_and_those_between_may_follow(build: Build) -> None:
    steps = {
        "a": step("a", lambda: {"x": "2"}),
        "b": step("b", after=("a",)),
        "c": step("c", after=("b",)),
        "d": step("d", after=("c", "b", "e")),
        "e": step("e"),
    }
    for name in "abcd":
        record(build, name, components={"x": "1"} if name == "a" else {})
    explainer = Explainer(build, steps)
    found = {name: explainer.explain(name) for name in reversed(steps)}
    assert {name for name, each in found.items() if each.is_stale} == {"a", "e"}
    assert {name: each.runs_before for name, each in found.items()} == {
        "a": (),
        "b": ("a",),
        "c": ("a",),
        "d": ("a", "e"),
        "e": (),
    }
    assert found["e"].reason == "it was never built here"


def test_a_step_that_failed_or_was_forgotten(build: Build) -> None:
    record(build, "a", components={"x": "1"}, valid=False)
    found = Explainer(build, {"a": step("a", lambda: {"x": "2"})}).explain("a")
    assert found.reason == "its last run failed or was forgotten"
    assert [(change.old, change.new) for change in found.changes] == [("1", "2")]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KilnError("nvcc is missing", remedy="install it"), "nvcc is missing\n  remedy: install it"),
        (ZeroDivisionError("by zero"), "its inputs cannot be told: ZeroDivisionError: by zero"),
        (PermissionError(13, "denied", "x"), "x: an input cannot be read: Permission denied"),
    ],
)
def test_inputs_that_cannot_be_had_are_a_reason(build: Build, error: Exception, reason: str) -> None:
    def inputs() -> Mapping[str, str]:
        raise error

    record(build, "a", components={})
    steps = {"a": step("a", inputs), "b": step("b", after=("a",))}
    record(build, "b", components={})
    explainer = Explainer(build, steps)
    found = explainer.explain("a").reason
    assert found is not None and found.startswith(reason)
    assert explainer.explain("b").runs_before == ("a",)


def test_a_circle_of_rules_ends(build: Build) -> None:
    """doit refuses it when it builds; here it must not hang."""
    steps = {"a": step("a", after=("b",)), "b": step("b", after=("a",))}
    assert set(Explainer(build, steps).explain("a").runs_before) <= {"a", "b"}


def test_texts_that_cannot_be_had_cost_the_text(build: Build) -> None:
    def text(name: str, digest: str, found: object) -> Text | None:
        raise ZeroDivisionError

    record(build, "a", components={"code": OLD})
    plain = step("a", lambda: {"code": NEW})
    steps = {"a": Step(inputs=plain.inputs, call=plain.call, outputs=plain.outputs, text=text)}
    assert Explainer(build, steps).explain("a").changes == (Input(name="code", old=OLD, new=NEW),)

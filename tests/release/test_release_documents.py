"""Documents of releases are read as data of strangers: what is wrong with one is told with its place."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.model.bom_ref import BomRef

from kiln.errors import ReleaseError
from kiln.release.bom import read_bom, write_bom
from kiln.release.buildinfo import read_buildinfo
from kiln.release.documents import Entry, read_json, write_json
from kiln.release.plan import ReleasePlan
from kiln.release.provenance import read_statement
from kiln.release.records import read_manifest
from kiln.release.sums import read_sums, write_sums

Read = Callable[[str], object]
DOCUMENTS: dict[str, Read] = {
    "scratch-1.2.0/manifest.json": read_manifest,
    "scratch-1.2.0/buildinfo.json": read_buildinfo,
    "scratch-1.2.0/bom.cdx.json": read_bom,
    "scratch-1.2.0.intoto.json": read_statement,
}


def below(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The way to every table, list and value in a document, by keys and indices; of lists the first member alone."""
    ways: list[tuple[str | int, ...]] = [path]
    if isinstance(value, dict):
        ways += [way for key, member in value.items() for way in below(member, (*path, key))]
    if isinstance(value, list) and value:
        ways += below(value[0], (*path, 0))
    return ways


OPEN = ("axes", "constants", "components.0.", "tools.components")
"""where anything may stand: values of constants are of any type, and what Kiln does not read of CycloneDX"""


def changed(text: str, way: tuple[str | int, ...], change: Callable[[Any], Any]) -> str:
    """The document with what is there, at the end of the way, changed."""
    document = json.loads(text)
    if not way:
        return json.dumps(change(document))
    place = document
    for key in way[:-1]:
        place = place[key]
    place[way[-1]] = change(place[way[-1]])
    return json.dumps(document)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_value_of_another_kind_is_refused_wherever_it_stands(released: Path, name: str) -> None:
    """Every value in turn becomes a table in a list, which none of them is."""
    text, tried = (released / name).read_text(), 0
    for way in below(json.loads(text)):
        shown = ".".join(map(str, way))
        if any(each in f"{shown}." for each in OPEN if name.endswith("manifest.json") or "tools" in each):
            continue
        with pytest.raises(ReleaseError) as raised:
            DOCUMENTS[name](changed(text, way, lambda _: [[{}]]))
        assert raised.value.where is not None
        tried += 1
    assert tried > 20


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_key_too_many_is_refused(released: Path, name: str) -> None:
    text = (released / name).read_text()
    with pytest.raises(ReleaseError, match="added"):
        DOCUMENTS[name](changed(text, (), lambda document: {**document, "added": 1}))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_key_too_few_is_refused(released: Path, name: str) -> None:
    text = (released / name).read_text()
    for key in json.loads(text):
        with pytest.raises(ReleaseError):
            DOCUMENTS[name](
                changed(text, (), lambda document, key=key: {k: v for k, v in document.items() if k != key})
            )


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '"text"', "1" * 5000, "[" * 100_000])
def test_what_is_no_such_document_is_refused(name: str, text: str) -> None:
    with pytest.raises(ReleaseError):
        DOCUMENTS[name](text)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_is_cut_off_is_told_with_its_line(released: Path, name: str) -> None:
    text = (released / name).read_text()
    with pytest.raises(ReleaseError) as raised:
        DOCUMENTS[name](text[: len(text) // 2])
    line = text[: len(text) // 2].count("\n") + 1
    assert re.search(rf":({line}|{line - 1}):\d+$", str(raised.value.where))


@pytest.mark.parametrize("name", ["scratch-1.2.0/manifest.json", "scratch-1.2.0/buildinfo.json"])
def test_another_schema_is_refused_in_words(released: Path, name: str) -> None:
    text = (released / name).read_text()
    with pytest.raises(ReleaseError, match="another schema") as raised:
        DOCUMENTS[name](changed(text, ("schema",), lambda _: 2))
    assert (raised.value.expected, raised.value.actual) == ("1", "2")


@pytest.mark.parametrize(
    ("way", "value"),
    [
        (("_type",), "https://in-toto.io/Statement/v0.1"),
        (("predicateType",), "https://slsa.dev/provenance/v0.2"),
        (("subject",), []),
        (("predicate", "buildDefinition", "buildType"), "urn:another"),
        (("predicate", "buildDefinition", "resolvedDependencies", 0, "digest"), {"md5": "0"}),
        (("predicate", "runDetails", "builder"), {}),
    ],
)
def test_a_statement_of_another_kind_is_refused(released: Path, way: tuple[str | int, ...], value: object) -> None:
    text = (released / "scratch-1.2.0.intoto.json").read_text()
    with pytest.raises(ReleaseError):
        read_statement(changed(text, way, lambda _: value), "here.json")


def test_a_place_is_told_by_keys_and_indices() -> None:
    with pytest.raises(ReleaseError) as raised:
        read_json('{"a": [{"b": 1}, {"b": true}]}', {"a": [{"b": int}]}, "x.json")
    assert str(raised.value) == (
        "x.json: a[1].b: x.json is not as Kiln writes it: an integer is to stand there\n"
        "  actual: True\n"
        "  remedy: take the release anew from where it was published"
    )


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"a": NaN}', '{"a": Infinity}', '{"a": -Infinity}'])
def test_json_that_can_be_read_in_two_ways_is_refused(text: str) -> None:
    with pytest.raises(ReleaseError):
        read_json(text, {"*": object}, "x.json")


def test_keys_that_may_be_left_out() -> None:
    shape = {"a": str, "b?": int | None}
    assert read_json('{"a": "x"}', shape, "x.json") == {"a": "x"}
    assert read_json('{"a": "x", "b": null}', shape, "x.json") == {"a": "x", "b": None}
    for text in ('{"b": 1}', '{"a": "x", "b": "y"}', '{"a": "x", "b?": 1}'):
        with pytest.raises(ReleaseError):
            read_json(text, shape, "x.json")


def test_json_is_ascii_and_ends_with_a_newline() -> None:
    assert write_json({"b": "ü", "a": [1]}) == '{\n "b": "\\u00fc",\n "a": [\n  1\n ]\n}\n'
    with pytest.raises(ValueError, match="JSON"):
        write_json(float("inf"))


def test_sums_are_read_as_they_are_written() -> None:
    entries = [
        Entry(path=path, level="device", sha256=digit * 64, size=1) for path, digit in (("b/c", "1"), ("a", "2"))
    ]
    text = write_sums(entries)
    assert text == f"{'2' * 64}  a\n{'1' * 64}  b/c\n"
    assert read_sums(text) == {"a": "2" * 64, "b/c": "1" * 64}


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("1" * 63 + "  a", 2),
        ("G" * 64 + "  a", 2),
        ("1" * 64 + " a", 2),
        ("1" * 64, 2),
        ("", 2),
        ("\\" + "1" * 64 + "  a\\\\b", 2),
        ("1" * 64 + "  first", 2),
    ],
)
def test_a_line_of_sums_that_is_none_is_told(line: str, number: int) -> None:
    with pytest.raises(ReleaseError) as raised:
        read_sums(f"{'0' * 64}  first\n{line}\n")
    assert raised.value.where == f"SHA256SUMS:{number}"


def test_sums_that_are_cut_off_are_told() -> None:
    with pytest.raises(ReleaseError, match="ends within a line"):
        read_sums(f"{'0' * 64}  first")


def edited(released: Path, edit: Callable[[dict[str, Any]], object]) -> str:
    """The SBOM with something edited."""
    bom = json.loads((released / "scratch-1.2.0/bom.cdx.json").read_text())
    edit(bom)
    return json.dumps(bom)


@pytest.mark.parametrize(
    "edit",
    [
        lambda bom: bom["components"].append(bom["components"][0]),
        lambda bom: bom["components"].append({"bom-ref": "other:x", "type": "file", "name": "x"}),
        lambda bom: bom["components"].append({"bom-ref": "file:x", "type": "library", "name": "x"}),
        lambda bom: bom["components"].append({"bom-ref": "file:x", "type": "file", "name": "y"}),
    ],
)
def test_a_component_that_kiln_does_not_list_is_refused(
    released: Path, edit: Callable[[dict[str, Any]], object]
) -> None:
    with pytest.raises(ReleaseError, match="component"):
        read_bom(edited(released, edit))


def test_an_edited_sbom_has_the_serial_number_of_another(released: Path) -> None:
    """Wherever it is edited: of what stands there, the number follows from all."""
    for edit in (
        lambda bom: bom["components"].pop(),
        lambda bom: bom["components"][0]["hashes"][0].update(content="0" * 64),
        lambda bom: bom["metadata"]["tools"]["components"][0].update(version="9"),
        lambda bom: bom["dependencies"].pop(),
    ):
        bom = read_bom(edited(released, edit))
        assert bom.serial_number != bom.serial_of_contents


def test_the_sbom_of_a_large_library_takes_no_longer_for_each_file(
    plan: ReleasePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CycloneDX's own library looks each component up among all that it is given at once, by comparing references."""
    compared, compare = 0, BomRef.__eq__

    def counting(self: BomRef, other: object) -> bool:
        nonlocal compared
        compared += 1
        return compare(self, other)

    monkeypatch.setattr(BomRef, "__eq__", counting)
    entries = [Entry(path=f"images/sm_80/{at}.cubin", level="device", sha256="0" * 64, size=1) for at in range(2000)]
    bom = read_bom(write_bom(plan, entries, ()))
    assert list(bom.files) == [entry.path for entry in entries]
    assert 0 < compared < 500 * len(entries)

"""A release against the one that the sources make: what differs is named by file and place, with its likely cause."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from release_changes import STEM, cover_up, edit_json, faults_of, flip, pack, side, sum_up, told
from test_release_checks import KINDS, component, dependency

from kiln.digests import digest_file
from kiln.packaging.archive import read_archive
from kiln.release.compare import compare
from kiln.release.plan import ReleasePlan
from kiln.release_jobs import make_release


@pytest.fixture
def rebuilt(released: Path, tmp_path: Path) -> Path:
    """The release as the sources make it."""
    return Path(shutil.copytree(released, tmp_path / "rebuilt"))


def differences(released: Path, rebuilt: Path) -> list[str]:
    """Each in full."""
    return [str(fault) for fault in compare(side(released / f"{STEM}.tar"), side(rebuilt / f"{STEM}.tar"))]


def test_the_same_release_has_no_difference(released: Path, rebuilt: Path) -> None:
    assert differences(released, rebuilt) == []


@pytest.mark.parametrize("name", KINDS)
def test_one_byte_of_a_file_is_told_with_its_place(released: Path, rebuilt: Path, name: str) -> None:
    path = released / STEM / name
    flip(path, path.stat().st_size // 2)
    (text,) = [str(fault) for fault in compare(side(released / STEM), side(rebuilt / STEM))]
    head = text.splitlines()[0]
    assert head.startswith(f"{name}, ")
    place = head.removeprefix(f"{name}, ").partition(":")[0]
    kinds = {".cubin": "section ", ".hsaco": "section ", ".a": "member ", ".fatbin": "image sm_80"}
    assert place.startswith(kinds.get(path.suffix, ("line ", "$."))), text
    if name != "SHA256SUMS":
        assert "likely cause: the file was changed after the release was made" in text


@pytest.mark.parametrize("name", sorted({*KINDS} - {"manifest.json", "bom.cdx.json", "SHA256SUMS"}))
def test_what_follows_from_a_difference_is_not_told_again(released: Path, rebuilt: Path, name: str) -> None:
    """Somebody changed a file, and then every digest of it: the rebuild tells, and names that file alone."""
    path = released / STEM / name
    if name == "buildinfo.json":
        edit_json(path, lambda data: data["commands"].pop())
    else:
        flip(path, path.stat().st_size // 2)
    cover_up(released)
    assert faults_of(released / f"{STEM}.tar") == []
    (text,) = differences(released, rebuilt)
    assert text.startswith(f"{name}, ")
    assert "likely cause: none that shows" in text


@pytest.mark.parametrize(
    ("name", "change", "place"),
    [
        ("bom.cdx.json", lambda data: component(data, "tool:ptxas").update(scope="required"), "$.components["),
        ("manifest.json", lambda data: data["records"][0].update(registers=1), "$.records[0].registers"),
        ("buildinfo.json", lambda data: data["commands"][0]["arguments"].append("-x"), "$.commands[0].arguments["),
    ],
)
def test_an_edited_document_is_told_by_its_path(
    released: Path, rebuilt: Path, name: str, change: Callable[[Any], object], place: str
) -> None:
    edit_json(released / STEM / name, lambda data: change(data) and None)
    cover_up(released)
    (text,) = differences(released, rebuilt)
    # The SBOM's serial number, which follows from what it says, stands before that.
    assert text.startswith(f"{name}, ") and place in text.splitlines()[0]


def test_a_record_that_lies_beside_an_image_that_differs_is_told(released: Path, rebuilt: Path) -> None:
    """A difference in one image explains its own record, and no other."""
    flip(released / STEM / "images/gfx942/twice_fp32_128.hsaco", 2000)
    edit_json(released / STEM / "manifest.json", lambda data: data["records"][0].update(registers=1))
    cover_up(released)
    lines = [text.splitlines()[0] for text in differences(released, rebuilt)]
    assert [line.partition(", ")[0] for line in lines] == ["images/gfx942/twice_fp32_128.hsaco", "manifest.json"]
    assert "$.records[0].registers" in lines[1]


def test_a_document_written_otherwise_is_told(released: Path, rebuilt: Path) -> None:
    path = released / STEM / "manifest.json"
    path.write_text(path.read_text().replace("\n ", "\n  "))
    edit_json(
        released / STEM / "bom.cdx.json",
        lambda data: component(data, "file:manifest.json")["hashes"][0].update(content=digest_file(path)),
    )
    sum_up(released)
    pack(released)
    (text,) = differences(released, rebuilt)
    assert text.startswith("manifest.json, line 2")


def test_added_and_removed_files_are_told(released: Path, rebuilt: Path) -> None:
    (released / STEM / "lib/extra.so").write_bytes(b"x")
    (released / STEM / "include/scratch/scratch.h").unlink()
    pack(released)
    assert [text.splitlines()[0] for text in differences(released, rebuilt)] == [
        "include/scratch/scratch.h: the release lacks a file that the sources make",
        "lib/extra.so: the release has a file that the sources do not make",
    ]


def test_a_removed_document_is_told(released: Path, rebuilt: Path) -> None:
    (released / STEM / "bom.cdx.json").unlink()
    pack(released)
    assert differences(released, rebuilt)[0].startswith("bom.cdx.json: the release lacks a file")


def test_another_source_of_the_statement_is_told(released: Path, rebuilt: Path) -> None:
    edit_json(
        released / f"{STEM}.intoto.json",
        lambda data: dependency(data, "kernels/twice.py")["digest"].update(sha256="0" * 64),
    )
    (text,) = differences(released, rebuilt)
    assert text.startswith(f"{STEM}.intoto.json: resolvedDependencies, kernels/twice.py: the release says")
    assert "its statement was changed" in text


def test_a_statement_of_something_else_is_told(released: Path, rebuilt: Path) -> None:
    edit_json(
        released / f"{STEM}.intoto.json",
        lambda data: data["predicate"]["runDetails"]["builder"].update(id="https://example.org/trusted-builder"),
    )
    (text,) = differences(released, rebuilt)
    assert "the statement is not the one that the sources make" in text
    assert "$.predicate.runDetails.builder.id" in text


def remade(plan: ReleasePlan, tmp_path: Path, **changes: Any) -> Path:
    """A release of the same build, made as it would be with other tools."""
    staging = tmp_path / "remade"
    staging.mkdir()
    make_release(replace(plan, **changes), staging)
    return staging / "release"


def swapped(plan: ReleasePlan, name: str) -> tuple[Any, ...]:
    return tuple(replace(tool, sha256="5" * 64) if tool.name == name else tool for tool in plan.tools)


@pytest.mark.parametrize("name", ["ptxas", "objcopy", "ocml.bc", "cicc"])
def test_a_swapped_tool_with_the_same_version_is_named_once(
    plan: ReleasePlan, released: Path, tmp_path: Path, name: str
) -> None:
    """It made the same bytes: then it is all that differs, in whatever document it stands."""
    (text,) = differences(released, remade(plan, tmp_path, tools=swapped(plan, name)))
    same = next(tool for tool in plan.tools if tool.name == name)
    assert text.startswith(
        f"buildinfo.json: tools, {name}: the release was made with another {name}: of the same version, but with other"
    )
    assert f"sha256 {'5' * 64}, which is here" in text and f"sha256 {same.sha256}, which made it" in text


def test_what_a_swapped_tool_made_names_it_as_the_cause(plan: ReleasePlan, released: Path, tmp_path: Path) -> None:
    """An image is not blamed on a tool of the host, nor on one of another vendor's targets."""
    tools = (*(tool for tool in swapped(plan, "ptxas") if tool.name != "ar"), replace(plan.tools[-1], name="new ar"))
    rebuilt = remade(plan, tmp_path, tools=tools)
    for name in ("images/sm_80/twice_fp32_128.cubin", "images/gfx942/twice_fp32_128.hsaco", "lib/libscratch.a"):
        flip(rebuilt / STEM / name, 2000)
    cover_up(rebuilt)
    found = {text.partition(", ")[0]: text for text in differences(released, rebuilt)}
    causes = {
        name: next(line for line in text.splitlines() if "likely cause" in line)
        for name, text in found.items()
        if "likely cause" in text
    }
    assert causes["images/sm_80/twice_fp32_128.cubin"] == "  likely cause: another ptxas, as told above"
    assert "none that shows" in causes["images/gfx942/twice_fp32_128.hsaco"]
    assert causes["lib/libscratch.a"] == "  likely cause: another ptxas, new ar, as told above"
    assert len(causes) == 3


def test_another_kiln_and_another_version_are_told(plan: ReleasePlan, released: Path, tmp_path: Path) -> None:
    (text,) = differences(released, remade(plan, tmp_path, kiln_sha256="5" * 64))
    assert "the release was made with another Kiln of the same version" in text
    shutil.rmtree(tmp_path / "remade")
    lines = differences(released, remade(plan, tmp_path, kiln_version="9.9"))
    assert "the release was made with another Kiln\n" in lines[0]
    assert "verify with the Kiln that made it: version" in lines[0]


def test_a_release_that_was_made_unlocked_is_told(plan: ReleasePlan, released: Path, tmp_path: Path) -> None:
    (text,) = differences(remade(plan, tmp_path, is_locked=False), released)
    assert text.startswith("buildinfo.json: locked: ")
    assert "actual: made with whatever tools there were, by --unlocked" in text


def test_a_tool_that_only_one_of_them_names_is_told(plan: ReleasePlan, released: Path, tmp_path: Path) -> None:
    (text,) = differences(released, remade(plan, tmp_path, tools=plan.tools[:-1]))
    assert f"the release was made with another {plan.tools[-1].name}\n" in text
    assert "expected: no such tool, as here" in text


def test_another_version_of_a_package_is_told(released: Path, rebuilt: Path) -> None:
    edit_json(rebuilt / STEM / "buildinfo.json", lambda data: data["packages"].update(jinja2="0.1"))
    edit_json(rebuilt / STEM / "bom.cdx.json", lambda data: component(data, "package:jinja2").update(version="0.1"))
    edit_json(
        rebuilt / f"{STEM}.intoto.json",
        lambda data: dependency(data, "jinja2")["annotations"].update(version="0.1"),
    )
    cover_up(rebuilt)
    (text,) = differences(released, rebuilt)
    assert text.startswith("buildinfo.json: packages.jinja2: the release was made with another version")


def test_a_time_in_an_archive_is_the_cause_that_is_told(released: Path, rebuilt: Path) -> None:
    """As an ar that is not told otherwise writes it."""
    path = released / STEM / "lib/libscratch.a"
    data = path.read_bytes()
    members, _ = read_archive(data)
    at = members[2].offset - 60 + 16
    path.write_bytes(data[:at] + b"1700000000  " + data[at + 12 :])
    cover_up(released)
    (text,) = differences(released, rebuilt)
    assert text.startswith(f"lib/libscratch.a, header of member {members[2].name}: ")
    assert "likely cause: the time of a file, which ar wrote down" in text


def test_of_many_files_that_differ_the_last_are_named_alone(released: Path, rebuilt: Path) -> None:
    """One cause is likely; still each file is named. Those that have the same bytes are one difference."""
    paths = sorted(path for path in (released / STEM).rglob("*") if path.is_file() and path.parent != released / STEM)
    for path in paths:
        flip(path, path.stat().st_size // 2)
    cover_up(released)
    found = differences(released, rebuilt)
    text = "\n".join(found)
    assert len(found) == 26
    assert all(path.relative_to(released / STEM).as_posix() in text for path in paths)
    first = next(text for text in found if text.startswith("images/gfx942/twice_fp32_128.hsaco, "))
    assert "  the same in: rust/scratch/images/gfx942/twice_fp32_128.hsaco\n" in first


def test_diffoscope_is_asked_where_it_is(
    released: Path, rebuilt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of that name which tells what it is given; the real one takes seconds a file."""
    program = tmp_path / "bin/diffoscope"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "diffoscope of $1 $2"\ncmp "$3" "$4"\nseq 100\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    for name in KINDS[:5]:
        flip(released / STEM / name, 1000)
    found = [str(fault) for fault in compare(side(released / STEM), side(rebuilt / STEM))]
    asked = [text for text in found if "  diffoscope:\n" in text]
    assert (len(found), len(asked)) == (5, 3)
    assert "diffoscope of --text -" in asked[0] and "differ: byte 1001" in asked[0]
    assert "72 lines more" in asked[0]
    assert asked[0].splitlines()[-1].startswith("  remedy: ")


def test_what_lies_there_is_said_in_the_words_of_both(released: Path, rebuilt: Path) -> None:
    path = released / STEM / "include/scratch/scratch.h"
    path.write_text(path.read_text().replace("#ifndef", "#ifdef", 1))
    (fault,) = compare(side(released / STEM), side(rebuilt / STEM))
    assert "#ifndef" in str(fault.expected) and "as rebuilt" in str(fault.expected)
    assert "#ifdef" in str(fault.actual) and "as released" in str(fault.actual)
    assert told([fault])[0].startswith("include/scratch/scratch.h, line ")

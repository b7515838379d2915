"""A release of a small real library: what is in it, who reads its documents, and what keeps it from being made."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from google.protobuf import json_format
from in_toto_attestation.v1.statement import Statement
from in_toto_attestation.v1.statement_pb2 import Statement as Message

from kiln.digests import digest_file
from kiln.errors import KilnError, Position, ReleaseError, ToolchainError
from kiln.manifest.model import Budget
from kiln.release.bom import read_bom
from kiln.release.buildinfo import read_buildinfo
from kiln.release.names import PACKAGES
from kiln.release.plan import ReleasePlan
from kiln.release.provenance import read_statement
from kiln.release.records import read_manifest
from kiln.release.sums import read_sums
from kiln.release.tar import read_tar
from kiln.release_jobs import make_release
from project import REPOSITORY, Project
from release_project import elsewhere, in_child, plan_of

STEM = "scratch-1.2.0"


def files(folder: Path) -> dict[str, bytes]:
    """Path below the folder -> content."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(plan: ReleasePlan, tmp_path: Path) -> KilnError:
    """The error that making the release ends with; it leaves nothing behind."""
    staging = tmp_path / "staging"
    staging.mkdir(parents=True)
    with pytest.raises(KilnError) as raised:
        make_release(plan, staging)
    assert list(staging.iterdir()) == []
    return raised.value


def test_it_makes_what_its_plan_says(plan: ReleasePlan, released: Path) -> None:
    made = {f"release/{path}" for path in files(released)}
    assert made == set(plan.names.outputs(file.path for file in plan.files))


def test_sha256sum_agrees(released: Path) -> None:
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=released / STEM, capture_output=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    listed = read_sums((released / STEM / "SHA256SUMS").read_text())
    assert {*listed, "SHA256SUMS"} == set(files(released / STEM))
    assert list(listed) == sorted(listed)


def test_headers_and_archives_lie_where_they_are_installed(
    release_library: Project, released: Path, tmp_path: Path
) -> None:
    """Whoever unpacks a release has what `doit install` makes, at the same paths."""
    release_library.doit("install", "--prefix", str(tmp_path / "prefix")).expect("installed scratch")
    installed = files(tmp_path / "prefix")
    del installed["share/scratch/installed.json"]
    held = files(released / STEM)
    assert {path: held.get(path) for path in installed} == installed
    others = {path.split("/")[0] for path in held.keys() - installed.keys()}
    assert others == {
        "images",
        "bundles",
        "onnxruntime",
        "rust",
        "manifest.json",
        "SHA256SUMS",
        "bom.cdx.json",
        "buildinfo.json",
    }


def test_the_tar_holds_the_folder(released: Path, tmp_path: Path) -> None:
    """As tar unpacks it, and as Kiln reads it."""
    (tmp_path / "unpacked").mkdir()
    subprocess.run(["tar", "-xf", released / f"{STEM}.tar", "-C", tmp_path / "unpacked"], check=True)
    assert files(tmp_path / "unpacked" / STEM) == files(released / STEM)
    assert [path.name for path in (tmp_path / "unpacked").iterdir()] == [STEM]
    packed = read_tar(released / f"{STEM}.tar", tmp_path / "read")
    assert packed.stem == STEM
    assert list(packed.files) == sorted(files(released / STEM))
    assert files(tmp_path / "read") == files(released / STEM)


def test_the_sbom_is_cyclonedx_and_lists_what_is_there(plan: ReleasePlan, released: Path) -> None:
    text = (released / STEM / "bom.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert "timestamp" not in text
    bom = read_bom(text)
    assert (bom.library, bom.version) == ("scratch", "1.2.0")
    assert bom.serial_number == bom.serial_of_contents
    held = files(released / STEM)
    del held["bom.cdx.json"], held["SHA256SUMS"]
    assert bom.files == {path: digest_file(released / STEM / path) for path in held}
    tools = {(tool.name, tool.version, tool.sha256, tool.level) for tool in bom.tools}
    assert tools == {(tool.name, tool.version, tool.sha256, tool.level) for tool in plan.tools}
    assert {package.name for package in bom.packages} == set(PACKAGES)


def test_the_serial_number_follows_from_the_contents(plan: ReleasePlan, released: Path, tmp_path: Path) -> None:
    first = read_bom((released / STEM / "bom.cdx.json").read_text())
    make_release(replace(plan, is_locked=False), tmp_path)
    other = read_bom((tmp_path / "release" / STEM / "bom.cdx.json").read_text())
    differing = {path for path in first.files if first.files[path] != other.files[path]}
    assert differing == {"buildinfo.json"}
    assert first.serial_number != other.serial_number


def test_the_statement_is_in_toto_and_names_all_that_ran(plan: ReleasePlan, released: Path) -> None:
    path = released / f"{STEM}.intoto.json"
    message = json_format.Parse(path.read_text(), Message())
    Statement.copy_from_pb(message).validate()
    assert message.predicate_type == "https://slsa.dev/provenance/v1"
    statement = read_statement(path.read_text())
    assert (statement.subject, statement.sha256) == (f"{STEM}.tar", digest_file(released / f"{STEM}.tar"))
    assert {(tool.name, tool.sha256) for tool in statement.tools} == {(tool.name, tool.sha256) for tool in plan.tools}
    names = {tool.name for tool in statement.tools}
    assert names >= {"triton", "triton nvidia", "triton amd", "ptxas", "libdevice", "ocml.bc", "nvcc", "cicc"}
    assert names >= {"nvcc ptxas", "fatbinary", "objcopy", "ar", "cc", "cc1", "as", "cc1plus"}
    assert statement.sources == plan.sources
    assert statement.parameters == {
        "library": "scratch",
        "version": "1.2.0",
        "part": [],
        "targets": ["sm_80", "gfx942"],
        "host": "x86_64-linux-gnu",
        "manifest": "kernels.yaml",
    }


def test_the_manifest_has_every_file_and_every_record(plan: ReleasePlan, released: Path) -> None:
    manifest = read_manifest((released / STEM / "manifest.json").read_text())
    assert (manifest.library, manifest.version, manifest.targets) == ("scratch", "1.2.0", ("sm_80", "gfx942"))
    held = {path: data for path, data in files(released / STEM).items() if path != "manifest.json"}
    assert [file.path for file in manifest.files] == sorted(held)
    hosts = {file.path for file in manifest.files if file.level == "host"}
    assert hosts == {path for path in held if path.endswith(".a")} | {"SHA256SUMS", "bom.cdx.json", "buildinfo.json"}
    for file in manifest.files:
        expected = (
            (None, None) if file.path in hosts else (len(held[file.path]), digest_file(released / STEM / file.path))
        )
        assert (file.size, file.sha256) == expected
    assert [record["id"] for record in manifest.records] == [
        "twice_fp32_128@sm_80",
        "twice_fp32_128@gfx942",
        "scale_fp32_128@sm_80",
    ]
    first = manifest.records[0]
    assert first["signature"] == "*fp32:16, *fp32:16, i32"
    assert first["promises"] == {"output_ptr": 16, "input_ptr": 16}
    assert first["constants"] == {"BLOCK_SIZE": 128}
    assert first["grid"] == ["cdiv(n_elements, BLOCK_SIZE)", "1", "1"]
    assert [(each["name"], each["role"]) for each in first["parameters"][:4]] == [
        ("output_ptr", "user"),
        ("input_ptr", "user"),
        ("n_elements", "user"),
        (None, "global_scratch"),
    ]
    assert (first["threads"], first["warps"], first["line_table"]) == (128, 4, True)
    assert first["sha256"] == digest_file(released / STEM / first["file"])


def test_the_manifest_follows_from_what_is_of_level_device(plan: ReleasePlan, released: Path, tmp_path: Path) -> None:
    """Other archives, made by another ar, leave it as it is; and so do other tools of the host."""
    archive = tmp_path / "other.a"
    archive.write_bytes(b"!<arch>\n")
    others = [
        replace(file, built=archive, sha256=digest_file(archive)) if file.path.endswith(".a") else file
        for file in plan.files
    ]
    tools = [replace(tool, sha256="1" * 64) if tool.level == "host" else tool for tool in plan.tools]
    make_release(replace(plan, files=tuple(others), tools=tuple(tools)), tmp_path)
    assert (tmp_path / "release" / STEM / "manifest.json").read_bytes() == (
        released / STEM / "manifest.json"
    ).read_bytes()


def test_buildinfo_says_what_made_it(plan: ReleasePlan, released: Path) -> None:
    info = read_buildinfo((released / STEM / "buildinfo.json").read_text())
    assert info.tools == plan.tools
    assert info.is_locked
    assert info.python == sys.implementation.cache_tag
    assert {package.name for package in info.packages} == set(PACKAGES)
    assert [(command["steps"], command["tool"]) for command in info.commands] == [
        ("compile", "triton"),
        ("compile", "nvcc"),
        ("compile", "nvcc"),
        ("objcopy", "objcopy"),
        ("bundle", "fatbinary"),
        ("bundle", "cc"),
        ("record", "cc"),
        ("variants", "cc"),
        ("table", "cc"),
        ("archive", "ar"),
        ("header:onnxruntime", "cc"),
        ("header:onnxruntime", "ar"),
    ]
    assert info.environments["nvcc"] == {"passed": ["PATH"], "fixed": {"LC_ALL": "C", "SOURCE_DATE_EPOCH": "0"}}
    assert info.environments["triton"]["fixed"]["TRITON_DISABLE_LINE_INFO"] == "1"


def test_no_document_has_a_path_of_this_machine(release_library: Project, released: Path) -> None:
    """Nor has any other file: of the project, its build folder, Kiln, or this Python."""
    folders = [str(each).encode() for each in (release_library.folder, REPOSITORY, sys.prefix)]
    held = files(released)
    assert len(held) > 50
    for path, data in held.items():
        assert not [folder for folder in folders if folder in data], path


def test_sizes_are_told(plan: ReleasePlan, released: Path) -> None:
    lines = (released / f"{STEM}.sizes.txt").read_text().splitlines()
    images = files(released / STEM / "images")
    own = sum(len(data) for path, data in images.items() if path.startswith("sm_80/"))
    assert lines[0] == STEM
    assert [line.split()[:3] for line in lines if line.startswith("sm_80 ")] == [["sm_80", "2", f"{own:,}"]]
    tar = (released / f"{STEM}.tar").stat().st_size
    assert lines[-1].split() == ["as", "a", "tar", "1", f"{tar:,}"]


def test_a_budget_that_holds_is_shown(plan: ReleasePlan, tmp_path: Path) -> None:
    make_release(replace(plan, budgets={"gfx942": budget(1_000_000, 7)}), tmp_path)
    (line,) = [
        line for line in (tmp_path / f"release/{STEM}.sizes.txt").read_text().splitlines() if line.startswith("gfx942 ")
    ]
    assert line.split()[4] == "1,000,000"


def budget(limit: int, line: int, target: str = "gfx942") -> Budget:
    position = Position(file="kernels.yaml", line=line, column=5)
    return Budget(limit=limit, name=f"release.size.{target}", position=position)


def test_a_budget_that_is_broken_is_an_error_at_its_place(plan: ReleasePlan, tmp_path: Path) -> None:
    exact = sum(each.path.stat().st_size for each in plan.declared if each.image.target == "gfx942")
    error = refused(replace(plan, budgets={"gfx942": budget(exact - 1, 7)}), tmp_path)
    assert str(error).startswith(
        "kernels.yaml:7:5: the images for gfx942 are larger than release.size.gfx942 allows\n"
        f"  expected: gfx942: at most {exact - 1:,} bytes\n"
        f"  actual: gfx942: {exact:,} bytes in 1 images\n"
    )
    make_release(replace(plan, budgets={"gfx942": budget(exact, 7)}), tmp_path)


def test_every_budget_that_is_broken_is_named(plan: ReleasePlan, tmp_path: Path) -> None:
    budgets = {"sm_80": budget(1, 8, "sm_80"), "gfx942": budget(2, 7)}
    error = refused(replace(plan, budgets=budgets), tmp_path)
    assert str(error).startswith("kernels.yaml:8:5: the images for sm_80, gfx942 are larger")
    assert error.expected == "sm_80: at most 1 bytes; gfx942: at most 2 bytes"


@pytest.fixture
def copied(release_library: Project, tmp_path: Path) -> tuple[ReleasePlan, Path]:
    """The plan of a copy of the build, and that build, which a test may change."""
    old, new = release_library.folder / "build", tmp_path / "build"
    shutil.copytree(old, new)
    return in_child(elsewhere(plan_of(release_library), old, new), new), new


ARCHIVE, HEADER, IMAGE = "lib/libscratch.a", "include/scratch/scratch.h", "images/gfx942/twice_fp32_128.hsaco"


@pytest.mark.parametrize("path", [ARCHIVE, HEADER, IMAGE])
def test_a_file_that_is_missing_is_an_error(copied: tuple[ReleasePlan, Path], tmp_path: Path, path: str) -> None:
    plan, build = copied
    (build / path).unlink()
    error = refused(plan, tmp_path)
    assert isinstance(error, ReleaseError)
    assert error.where == str(build / path)
    assert "missing" in error.what and "build again" in str(error.remedy)


@pytest.mark.parametrize("path", [ARCHIVE, HEADER, IMAGE])
def test_a_file_of_other_bytes_is_an_error(copied: tuple[ReleasePlan, Path], tmp_path: Path, path: str) -> None:
    plan, build = copied
    data = bytearray((build / path).read_bytes())
    data[len(data) // 2] ^= 1
    (build / path).write_bytes(data)
    error = refused(plan, tmp_path)
    assert isinstance(error, ReleaseError)
    assert error.where == str(build / path)
    assert error.actual == f"sha256 {digest_file(build / path)}"


def test_facts_of_another_image_are_an_error(copied: tuple[ReleasePlan, Path], tmp_path: Path) -> None:
    """The image is what its step made, and the record of it is of another one."""
    plan, build = copied
    path = build / "images/gfx942/twice_fp32_128.facts.json"
    facts = json.loads(path.read_text())
    path.write_text(json.dumps({**facts, "sha256": "0" * 64}))
    error = refused(plan, tmp_path)
    assert "twice_fp32_128@gfx942 is not what its facts were measured off" in error.what


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_text("{")])
def test_facts_that_cannot_be_read_are_an_error(
    copied: tuple[ReleasePlan, Path], tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    plan, build = copied
    path = build / "images/gfx942/twice_fp32_128.facts.json"
    damage(path)
    error = refused(plan, tmp_path)
    assert (error.where, "twice_fp32_128@gfx942" in error.what) == (str(path), True)


def test_each_record_has_its_image_and_each_image_its_record(plan: ReleasePlan, tmp_path: Path) -> None:
    without = tuple(file for file in plan.files if file.path != IMAGE)
    assert "twice_fp32_128@gfx942 is not among" in refused(replace(plan, files=without), tmp_path / "a").what
    error = refused(replace(plan, declared=plan.declared[:1]), tmp_path / "b")
    assert (error.where, "no record" in error.what) == (IMAGE, True)


def test_without_the_extra_it_says_what_to_install(
    plan: ReleasePlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "cyclonedx" or name.startswith("kiln.release.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cyclonedx", None)
    error = refused(plan, tmp_path)
    assert isinstance(error, ToolchainError)
    assert "cyclonedx" in error.what and "PATH/OF/KILN[release]" in str(error.remedy)


def test_a_part_has_a_name_of_its_own(plan: ReleasePlan, tmp_path: Path) -> None:
    make_release(replace(plan, part=("sm_80", "gfx942")), tmp_path)
    stem = f"{STEM}-sm_80-gfx942"
    assert {path.name for path in (tmp_path / "release").iterdir()} == {
        stem,
        f"{stem}.tar",
        f"{stem}.intoto.json",
        f"{stem}.sizes.txt",
    }
    assert read_tar(tmp_path / f"release/{stem}.tar").stem == stem
    assert read_manifest((tmp_path / "release" / stem / "manifest.json").read_text()).part == ("sm_80", "gfx942")
    assert read_statement((tmp_path / f"release/{stem}.intoto.json").read_text()).subject == f"{stem}.tar"

"""`doit release:sign` and `doit release:verify`, as people run them: by exit code, and by what is printed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from release_changes import STEM, cover_up, flip

from project import REPOSITORY, Project

TAR = f"build/release/{STEM}.tar"


@pytest.fixture(scope="module")
def _made(release_library: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("verified") / "scratch"
    shutil.copytree(release_library.folder, folder, symlinks=True)
    project = Project(folder=folder)
    for name in ("key", "other"):
        key = folder.parent / f"{name}.pem"
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
        subprocess.run(
            ["openssl", "pkey", "-in", key, "-pubout", "-out", folder.parent / f"{name}.pub.pem"], check=True
        )
    project.doit("lock").expect()
    project.doit("release").expect("0 failed")
    project.doit("release:sign", "--key", "../key.pem").expect(f"signed .*{STEM}.intoto.json as [0-9a-f]{{64}}: ")
    return project


@pytest.fixture
def made(_made: Project, tmp_path: Path) -> Project:
    """The project with its release, built and signed, in a copy that a test may change; keys lie beside it."""
    for key in _made.folder.parent.glob("*.pem"):
        shutil.copy(key, tmp_path)
    shutil.copytree(_made.folder, tmp_path / "scratch", symlinks=True)
    return Project(folder=tmp_path / "scratch")


def test_a_release_is_what_its_sources_make(made: Project) -> None:
    """Everything that verification holds it against says so, and nothing is left of the rebuild."""
    (made.folder / "tmp").mkdir()
    done = made.doit("release:verify", "--public-key", "../key.pub.pem", TMPDIR=str(made.folder / "tmp"))
    done.expect(
        r"^rebuilding in .*: without a cache, another HOME, LC_ALL \S+, TZ \S+, PYTHONHASHSEED \d, umask 0\d7, -n \d+$",
        r"files, [\d,]+ bytes$",
        r"held against SHA256SUMS, manifest.json and bom.cdx.json, in both directions",
        r"held against .*key.pub.pem: scratch-1.2.0.dsse.json",
        r"looked for in every byte: \d+ folders of this machine",
        r"held against a rebuild of the sources in .*: \d+ files and the documents",
        r"^no fault was found$",
    )
    assert list((made.folder / "tmp").iterdir()) == []


def test_a_tool_a_byte_and_a_source_are_each_named(made: Project, tmp_path: Path) -> None:
    """A release in which somebody changed an image and all digests of it, held against sources and tools that changed
    since: an objcopy of the same version, and a line of C++."""
    elsewhere = tmp_path / "published"
    shutil.copytree(made.folder / "build/release", elsewhere)
    image = elsewhere / STEM / "images/gfx942/twice_fp32_128.hsaco"
    flip(image, image.read_bytes().index(b"scale_kernel"))
    cover_up(elsewhere)
    tool = tmp_path / "objcopy"
    shutil.copy(str(shutil.which("objcopy")), tool)
    with tool.open("ab") as file:
        file.write(b"\n")
    made.edit("kernels/factor.cuh", "FACTOR 2", "FACTOR 2 // twice")
    done = made.doit("release:verify", f"../published/{STEM}.tar", OBJCOPY=str(tool))
    done.expect(
        r"^  NOT held against a key: ",
        r"^buildinfo.json: tools, objcopy: the release was made with another objcopy: of the same version, but with ",
        rf"^{STEM}.intoto.json: resolvedDependencies, kernels/factor.cuh: the release says that it was made from ",
        r"^images/gfx942/twice_fp32_128.hsaco, section \S+: the release has other bytes than the sources make",
        r"^  likely cause: another source, kernels/factor.cuh, as told above$",
        r"^\d+ faults$",
        code=1,
    )


def test_a_folder_is_verified_as_its_tar_is(made: Project) -> None:
    done = made.doit("release:verify", "--no-rebuild", "--public-key", "../key.pub.pem", f"build/release/{STEM}")
    done.expect("^no fault was found; it was not built again$")
    flip(made.folder / "build/release" / STEM / "lib/libscratch.a", 4000)
    for arguments in ([], [f"build/release/{STEM}"]):
        made.doit("release:verify", "--no-rebuild", *arguments).expect("lib/libscratch.a", code=1)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--public-key", "../other.pub.pem"], "the signature is not by this key"),
        (["--public-key", "../key.pem"], "this is a private key"),
        (["--public-key", "../none.pem"], "the public key cannot be read"),
        (["nowhere.tar"], "nowhere.tar: there is no release"),
        (["kernels.yaml"], "kernels.yaml: this is no tar"),
        (["a", "b"], "one release at a time"),
    ],
)
def test_what_cannot_be_verified_says_why(made: Project, arguments: list[str], text: str) -> None:
    made.doit("release:verify", "--no-rebuild", *arguments).expect(text, "^1 fault$", code=1)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "say with what to sign"),
        (["--key", "../key.pem", "--sigstore"], "sign with one of the two"),
        (["--key", "../key.pub.pem"], "this is a public key"),
        (["--sigstore"], "sigstore is not installed|no identity"),
    ],
)
def test_what_cannot_be_signed_says_why(made: Project, arguments: list[str], text: str) -> None:
    made.doit("release:sign", *arguments).expect(text, "^1 fault$", code=1)


def test_there_is_something_to_do_before_there_is_a_release(made: Project) -> None:
    shutil.rmtree(made.folder / "build/release")
    made.doit("release:verify").expect("there is no release", "remedy: .*doit release", code=1)
    made.doit("release:sign", "--key", "../key.pem").expect("there is no release to sign", code=1)


def test_sources_that_do_not_build_are_told_with_what_doit_says(made: Project) -> None:
    made.edit("kernels/twice.py", "tl.store(", "tl.stored(")
    done = made.doit("release:verify")
    done.expect("the sources do not make a release: the build of a copy failed", "stored", "^1 fault$", code=1)


def test_a_rebuild_that_is_interrupted_leaves_nothing(made: Project) -> None:
    temporary = made.folder / "tmp"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "doit", "release:verify"],
        cwd=made.folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "tools"), "TMPDIR": str(temporary), "KILN_CACHE": "off"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("rebuilding"):
            break
    # Until doit runs in the copy.
    until = time.monotonic() + 60
    while not list(temporary.glob("kiln-*/out*/build/.kiln")) and time.monotonic() < until:
        time.sleep(0.05)
    (fresh,) = temporary.glob("kiln-*")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert not fresh.exists()

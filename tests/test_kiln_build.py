"""tools/rust/kiln-build: kernels as part of a Cargo build, which asks Kiln when what they are made from has moved."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cmake_tree import AWKWARD, Tree
from project import REPOSITORY, Result

CRATE = REPOSITORY / "tools/rust/kiln-build"
EXAMPLE = "examples/rust/build_rs"
IMAGES = ["scale_fp32_256@gfx942 hsaco", "scale_fp32_256@sm_80 cubin"]
PACKAGE = f"{EXAMPLE}/kernels/Cargo.toml"
BUILD = f"{EXAMPLE}/kernels/build.rs"
KILN = "Compiling kernels "
"""what Cargo says when it runs the build script"""


class Cargo:
    """The example with a small library in place of this repository's, and Cargo run in it."""

    def __init__(self, folder: Path, cache: Path, target: Path) -> None:
        self.tree = Tree(folder=folder, cache=cache)
        self.target = target
        self.tree.write_library(".", "kernels", "gfx942")
        shutil.copytree(REPOSITORY / EXAMPLE, folder / EXAMPLE, ignore=shutil.ignore_patterns("target", "Cargo.lock"))
        (folder / "tools").symlink_to(REPOSITORY / "tools")

    def __call__(self, *words: str, code: int = 0, environment: dict[str, str] | None = None) -> Result:
        """Run Cargo in the example's folder, without a network."""
        settings = {
            "CARGO_TARGET_DIR": str(self.target),
            "CARGO_TERM_COLOR": "never",
            "CARGO_NET_OFFLINE": "true",
            # What takes time, and nobody looks at.
            "CARGO_PROFILE_DEV_DEBUG": "0",
            "CARGO_INCREMENTAL": "0",
            **(environment or {}),
        }
        return self.tree.run("cargo", *words, inside=EXAMPLE, **settings).expect(code=code)

    def printed(self, *words: str, environment: dict[str, str] | None = None) -> list[str]:
        """What the program says of its images: name, kind and bytes of each."""
        return [line for line in self("run", "-q", *words, environment=environment).output.splitlines() if "@" in line]

    def listed(self, *words: str, environment: dict[str, str] | None = None) -> list[str]:
        """The images that it has: name and kind of each."""
        return [line.rsplit(" ", 2)[0] for line in self.printed(*words, environment=environment)]

    def asks(self, environment: dict[str, str] | None = None) -> bool:
        """Whether a build runs the build script."""
        return KILN in self("check", environment=environment).output


@contextmanager
def changed(cargo: Cargo, name: str, old: str, new: str) -> Iterator[None]:
    """A file with another text, for a while."""
    path = cargo.tree.folder / name
    before = path.read_text("utf-8")
    cargo.tree.edit(name, old, new)
    try:
        yield
    finally:
        path.write_text(before, "utf-8")


@pytest.fixture(scope="module")
def cargo(tmp_path_factory: pytest.TempPathFactory, kiln_cache: Path) -> Cargo:
    folder = tmp_path_factory.mktemp("cargo")
    return Cargo(folder / AWKWARD, kiln_cache, folder / "target")


def test_a_build_does_what_an_edit_asks_for(cargo: Cargo) -> None:
    assert cargo.listed() == IMAGES[:1]
    before = cargo.printed()
    # Nothing moved, or what no kernel is made from.
    assert not cargo.asks()
    cargo.tree.write("kernels/README.md", "Beside the kernels.\n")
    assert not cargo.asks()
    # A file that is imported by the kernel's: a comment, and then code.
    cargo.tree.edit("kernels/helper.py", "by half", "by more")
    assert cargo.asks()
    assert not cargo.asks()
    assert cargo.printed() == before
    cargo.tree.edit("kernels/helper.py", "return x * 1.5", "return tl.exp(x * 1.5)")
    cargo.tree.edit("kernels/helper.py", "import triton\n", "import triton\nimport triton.language as tl\n")
    assert cargo.printed() != before
    # The manifest.
    cargo.tree.edit("kernels.yaml", "[gfx942]", "[gfx942, sm_80]")
    assert cargo.listed() == IMAGES
    # Variables that the build asked for.
    assert cargo.asks({"PYTHONPATH": f"{REPOSITORY / 'tools'}:{cargo.tree.folder}"})
    assert cargo.asks()


def test_an_error_is_told_in_kilns_words_and_the_next_build_goes_on(cargo: Cargo) -> None:
    cargo.tree.edit("kernels/helper.py", "return ", "return y * ")
    told = cargo("build", code=101).expect(r"^  FAILED compile:scale_fp32_256@", code=101)
    told.expect(r"^    kernels/helper\.py:\d+:12: the name 'y' is not defined", r"Error: Kiln could not", code=101)
    assert not re.search(r"^\s*\[\d+/\d+\]", told.output, re.MULTILINE)
    assert "panicked" not in told.output
    # What it says to run shows the same, from any folder, and needs neither doit nor kiln on PATH.
    (command,) = re.findall(r"reproduce: (cd .*)", told.output)
    again = cargo.tree.run("bash", "-c", command, inside="tools")
    again.expect(r"helper\.py:\d+:12: the name 'y' is not defined", code=1)
    cargo.tree.edit("kernels/helper.py", "return y * ", "return ")
    assert cargo.asks()
    cargo.tree.edit("kernels.yaml", "dtypes:", "dtype:")
    cargo("build", code=101).expect(r"ERROR: kernels\.yaml:8:5: .*'dtype'", "did you mean 'dtypes'", code=101)
    cargo.tree.edit("kernels.yaml", "dtype:", "dtypes:")


def test_a_python_without_kiln_is_told(cargo: Cargo, tmp_path: Path) -> None:
    bare = tmp_path / "python3"
    bare.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'kiln'\" >&2\nexit 1\n")
    bare.chmod(0o755)
    for variable, python, said in (
        ("KILN_PYTHON", bare, "No module named 'kiln'"),
        ("PYTHON", tmp_path / "nowhere", "No such file"),
    ):
        told = cargo("build", code=101, environment={variable: str(python)})
        told.expect(said, rf"python: {re.escape(str(python))}, since {variable} says so", "KILN_PREBUILT", code=101)
    remedy = re.escape(f"`{bare} -m pip install PATH/OF/KILN`")
    cargo("build", code=101, environment={"KILN_PYTHON": str(bare)}).expect(remedy, code=101)
    told = cargo("build", code=101, environment={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    told.expect("python: python3 of PATH, since neither KILN_PYTHON, PYTHON nor an activated environment", code=101)


def test_a_path_of_a_python_starts_from_a_folder_that_is_known(cargo: Cargo) -> None:
    own = cargo.tree.write(f"{EXAMPLE}/own", f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    own.chmod(0o755)
    told = cargo("build", code=101, environment={"KILN_PYTHON": "./own"})
    line = 'KILN_PYTHON = { value = "./own", relative = true }'
    told.expect("nobody knows which folder that starts from", re.escape(f"`{line}`"), r"\.cargo/config\.toml", code=101)
    settings = cargo.tree.write(f"{EXAMPLE}/.cargo/config.toml", f"[env]\n{line}\n")
    nobody = {"PYTHON": "/bin/false"}
    cargo("check", environment=nobody)
    settings.unlink()
    # In the build script, from the package's.
    with changed(cargo, BUILD, ".build()?", '.python("../own").build()?'):
        cargo("check", environment={**nobody, "KILN_PYTHON": "/bin/false"})


def test_only_variables_that_decide_make_cargo_ask_again(cargo: Cargo) -> None:
    chosen = {"KILN_PYTHON": sys.executable}
    cargo.asks(chosen)
    assert not cargo.asks({**chosen, "PYTHON": "/bin/false", "VIRTUAL_ENV": "/nowhere"})
    assert cargo.asks({"PYTHON": sys.executable})
    assert not cargo.asks({"PYTHON": sys.executable, "VIRTUAL_ENV": "/nowhere"})
    assert cargo.asks({"PYTHON": sys.executable, **chosen})


def test_a_manifest_is_called_kernels_yaml(cargo: Cargo) -> None:
    """Kiln is run in its folder, and takes the file of that name: another one would be built than is meant."""
    shutil.copy(cargo.tree.folder / "kernels.yaml", cargo.tree.folder / "gpu.yaml")
    for name, said in (
        ("../../../../gpu.yaml", ("a manifest is called kernels.yaml", "remedy: rename the file")),
        (".", ("a manifest is called kernels.yaml", r"actual: \.$")),
        ("../kernels.yaml", ("cannot be found: ", "expected: a kernels.yaml, relative to the package's folder")),
    ):
        with changed(cargo, BUILD, '"../../../../kernels.yaml"', f'"{name}"'):
            cargo("check", code=101).expect(*said, code=101)


def test_what_an_earlier_build_script_left_is_refused(cargo: Cargo) -> None:
    cargo("check")
    stale = "kernels.rs is of an earlier build: `library` in kernels.yaml has another name now"
    with changed(cargo, "kernels.yaml", "library: kernels", "library: other"):
        cargo("check", code=101).expect(stale, code=101)
    with changed(cargo, BUILD, ".build()?", ""):
        cargo("check", code=101).expect(stale, r"or build\.rs does not call `\.build\(\)`", code=101)
    cargo("check")


@pytest.mark.parametrize("edition", ["2021", "2024"])
def test_any_package_takes_the_code_without_a_warning(cargo: Cargo, edition: str) -> None:
    """As `cargo new --lib` makes it: of the newest edition, and with no rust-version: clippy has more to say."""
    declared = 'edition = "2021"\nrust-version = "1.81"\n'
    clippy = ("clippy", "-q", "-p", "kernels")
    with (
        changed(cargo, PACKAGE, declared, f'edition = "{edition}"\n'),
        changed(cargo, PACKAGE, "link-static = []", "link-static = []\nhip = []"),
    ):
        assert cargo(*clippy, "--", "-D", "warnings").output == ""
        if edition == "2024":
            features = ("--features", "kernels/link-static,kernels/hip")
            assert cargo(*clippy, *features, "--", "-D", "warnings").output == ""
            assert cargo.listed(*features) == cargo.listed()


def test_images_come_out_of_the_archive(cargo: Cargo, tmp_path: Path) -> None:
    """The same ones; a crate that has others is not linked with it, and one for another machine is refused."""
    features = ("--features", "kernels/link-static")
    assert cargo.printed(*features) == cargo.printed()
    # Of the C package only what is needed.
    program = cargo.target / "debug/engine"
    cargo("build", *features)
    assert b"kernels_scale_fp32_256__sm_80_data" in program.read_bytes()
    assert b"kernels_last_error" not in program.read_bytes()

    # Out of a fat binary, too.
    cargo.tree.edit("kernels.yaml", "kernels:\n", "bundle: fatbin\nkernels:\n")
    bundled = cargo.printed(*features)
    assert b"kernels_scale_fp32_256__fatbin_data" in program.read_bytes()
    cargo.tree.edit("kernels.yaml", "bundle: fatbin\n", "")
    assert bundled == cargo.printed(*features)

    told = cargo("check", *features, "--target", "aarch64-unknown-linux-gnu", code=101)
    told.expect("expected: aarch64 with linux", "say `host: aarch64-linux-gnu`", code=101)

    built = tmp_path / "built"
    shutil.copytree(build_folder(cargo), built)
    module = built / "rust/kernels/src/variants/scale_fp32_256.rs"
    text = module.read_text()
    (digest,) = re.findall(r"__sm_80_data_([0-9a-f]{16})\b", text)
    module.write_text(text.replace(digest, digest[::-1]))
    told = cargo("build", *features, code=101, environment={"KILN_PREBUILT": str(built)})
    told.expect(f"undefined .*kernels_scale_fp32_256__sm_80_data_{digest[::-1]}", code=101)


def build_folder(cargo: Cargo) -> Path:
    """What Kiln made last, with an archive."""
    found = cargo.target.glob("debug/build/kernels-*/out/kiln-*/build/lib/libkernels.a")
    return max(found, key=lambda path: path.stat().st_mtime_ns).parent.parent


def test_what_was_built_elsewhere_needs_no_python(cargo: Cargo, tmp_path: Path) -> None:
    features = ("--features", "kernels/link-static")
    cargo("build", *features)
    built = tmp_path / AWKWARD
    shutil.copytree(build_folder(cargo), built)
    # Somebody ran Cargo in the crate's folder.
    for name in ("target/debug/left.rlib", "Cargo.lock"):
        (built / "rust/kernels" / name).parent.mkdir(parents=True, exist_ok=True)
        (built / "rust/kernels" / name).write_text("left")
    without = {"KILN_PREBUILT": str(built), "KILN_PYTHON": "/bin/false", "PYTHONPATH": ""}
    assert cargo.listed(environment=without) == IMAGES
    assert cargo.listed(*features, environment=without) == IMAGES
    copied = [path.parent for path in cargo.target.glob("debug/build/kernels-*/out/kiln-*/prebuilt/include.rs")]
    assert copied
    parts = {"Cargo.toml", "README.md", "images", "include.rs", "src"}
    assert all({path.name for path in folder.iterdir()} == parts for folder in copied)
    # It may be replaced by what was built later.
    (built / "rust/kernels/README.md").write_text("Another one.\n")
    assert cargo.asks(without)
    assert not cargo.asks(without)

    def refused(*said: str, folder: Path | str = built) -> None:
        cargo("build", code=101, environment={**without, "KILN_PREBUILT": str(folder)}).expect(*said, code=101)

    refused("which folder that starts from", folder="built")
    (built / "lib").rename(built / "nolib")
    told = cargo("build", *features, code=101, environment=without)
    told.expect(r"lib/libkernels\.a: cannot be read: No such file", "remedy: have `lib/` beside `rust/`", code=101)
    refused("no crate of the library kernels", "actual: no crate at all", folder=tmp_path / "nowhere")
    declared = built / "rust/kernels/Cargo.toml"
    text = declared.read_text()
    declared.write_text(text.replace("abi = 1\n", "abi = 99\n"))
    refused("of another form", "actual: abi 99", "remedy: use the kiln-build that came with")
    declared.write_text(text.replace('library = "kernels"\n', 'library = "other"\n'))
    refused("another library's", "expected: kernels, as in", "actual: other")
    declared.write_text(text)
    (built / "rust/kernels").rename(built / "rust/blue")
    refused("no crate of the library kernels", "actual: crates of blue")


def test_targets_and_features_are_the_packages_choice(cargo: Cargo) -> None:
    script = f"{EXAMPLE}/kernels/build.rs"
    before = (cargo.tree.folder / script).read_text()
    cargo.tree.edit(script, ".build()?", '.targets(["gfx942"]).no_default_features().build()?')
    assert "kernels, for gfx942" in cargo("run", "-q").output.splitlines()
    cargo.tree.edit(script, '"gfx942"', '"sm_99"')
    cargo("build", code=101).expect("does not have the target 'sm_99'", "did you mean 'sm_80'", code=101)
    cargo.tree.write(script, before)


def test_the_crate_itself(tmp_path: Path) -> None:
    crate = shutil.copytree(CRATE, tmp_path / "kiln-build", ignore=shutil.ignore_patterns("target", "Cargo.lock"))
    tree = Tree(folder=crate, cache=tmp_path / "cache")
    tree.run("cargo", "fmt", "--check").expect()
    tree.run("cargo", "clippy", "-q", "--offline", "--all-targets", "--", "-D", "warnings").expect()
    tree.run("cargo", "doc", "-q", "--offline", RUSTDOCFLAGS="-D warnings").expect()
    tree.run("cargo", "test", "--offline").expect("3 passed", "1 passed")
    (example,) = (REPOSITORY / EXAMPLE).glob("Cargo.toml")
    tree.run("cargo", "fmt", "--all", "--check", "--manifest-path", example).expect()

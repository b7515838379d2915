"""The crate with each of its features: alone, beside the defaults, and with all others, on a machine without CUDA."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from rust_crates import RELEASE, Cargo, render

from kiln.packaging.record import Record
from softmax_images import BUILT

OPTIONAL = ("hip", "disabled", "link-static", "cudarc", "cust", "f16")
"""features that are not on by default"""
TOGETHER = "hip,cudarc,cust,f16"
"""those that a program can want at once: with `disabled` or `link-static` there are no images to include"""

ALONE = {f"{feature} alone": f"--no-default-features --features {feature}" for feature in ("std", "driver", *OPTIONAL)}
SETS = {
    "default": "",
    "none": "--no-default-features",
    **ALONE,
    **{f"{target} alone": f"--no-default-features --features {target}" for target in BUILT},
    "a target and a driver": "--no-default-features --features driver,sm_80",
    "two targets out of the archive": "--no-default-features --features link-static,sm_80,compute_80",
    "f16 out of the archive": "--no-default-features --features link-static,f16,sm_80",
    **{f"{feature} beside the defaults": f"--features {feature}" for feature in OPTIONAL},
    "all that go together": f"--features {TOGETHER}",
    "every one": "--all-features",
}
"""set -> what cargo is told"""
DOCUMENTED = ("none", *ALONE, "all that go together", "every one")
"""sets that bring or leave out items, of which the documentation is made; what is left to the others is images"""
TESTED = {"none": 0, "default": 3, "disabled beside the defaults": 3}
"""set -> how many examples the documentation has with it: two of images and arguments, one of a launch, which is only
compiled"""


@pytest.fixture(scope="module")
def crate(records: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return render(records, tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What cudarc and cust ask for: a release of CUDA, and the folder of a libcuda.so, which a library needs not."""
    (sdk := tmp_path_factory.mktemp("sdk")).joinpath("lib64").mkdir()
    return {**RELEASE, "CUDA_LIBRARY_PATH": str(sdk)}


def test_each_feature_is_in_some_set(crate: Path) -> None:
    declared = tomllib.loads((crate / "Cargo.toml").read_text())["features"]
    assert set(declared["default"]) == {"std", "driver", *BUILT}
    assert set(declared) == {"default", "std", "driver", *OPTIONAL, *BUILT}


@pytest.mark.parametrize("name", SETS)
def test_clippy_finds_nothing(crate: Path, cargo: Cargo, environment: dict[str, str], name: str) -> None:
    """It checks all that `cargo check` does. Among the lints is incompatible_msrv: nothing newer than the declared
    rust-version is used."""
    cargo(crate, "clippy", "-q", "--lib", *SETS[name].split(), "--", "-D", "warnings", **environment)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_rustdoc_finds_nothing(crate: Path, cargo: Cargo, environment: dict[str, str], name: str) -> None:
    words = ("doc", "-q", "--no-deps", *SETS[name].split())
    cargo(crate, *words, RUSTDOCFLAGS="-D warnings", **environment)


@pytest.mark.parametrize("name", TESTED)
def test_the_examples_of_the_documentation_run(crate: Path, cargo: Cargo, name: str) -> None:
    """With cudarc, test_packaging_rust_adapters.py runs them."""
    ended = cargo(crate, "test", "--offline", *SETS[name].split())
    assert f"{TESTED[name]} passed" in ended.stdout.splitlines()[-2]


BARE = """\
#![no_std]

pub use kernels::LIBRARY;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
"""
MANIFEST = """\
[package]
name = "bare"
version = "0.1.0"
edition = "2021"

[dependencies]
kernels = {{ path = "{crate}", default-features = false, features = {features} }}
"""


@pytest.mark.parametrize(
    ("features", "is_bare"), [('["f16", "sm_80"]', True), ('["link-static", "gfx942"]', True), ('["std"]', False)]
)
def test_without_std_nothing_of_it_is_linked(
    crate: Path, cargo: Cargo, tmp_path: Path, features: str, is_bare: bool
) -> None:
    """A library that handles panics itself: with std in any of its dependencies, there are two that do."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "lib.rs").write_text(BARE)
    (tmp_path / "Cargo.toml").write_text(MANIFEST.format(crate=crate, features=features))
    ended = cargo(tmp_path, "check", "-q", expect=0 if is_bare else 101)
    assert ("panic_impl" in ended.stderr) is not is_bare

"""What a Rust program costs to build that has 100 MB of images: included, or linked from the archive."""

from __future__ import annotations

import dataclasses
import hashlib
import random
import sys
from collections.abc import Iterator
from pathlib import Path

# Images are compiled as the tests do it.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench_runner import Contender, Figures, Settings, in_turns, measured, program, remove
from bench_table import Row

MEGABYTES = 100
"""of images in the library, each of which is a megabyte"""

KINDS = {"program": "a program", "GNU ld": "a program, by GNU ld", "whole": "a program and the crate"}
"""what is built anew, and by which linker, if not by the one that rustc takes by itself -> what the table calls it"""

_PROGRAM = """\
fn main() {
    let bytes: usize = kernels::images().map(|image| image.bytes.len()).sum();
    println!("{} images, {bytes} bytes", kernels::images().len());
}
"""
_PACKAGE = """\
[package]
name = "consumer"
version = "0.1.0"
edition = "2021"

[dependencies]
kernels = { path = "../rust" }

[features]
gnu-ld = []
link-static = ["kernels/link-static"]

[workspace]
"""
_SCRIPT = """\
fn main() {
    println!("cargo:rustc-link-search=native=FOLDER");
    if std::env::var_os("CARGO_FEATURE_GNU_LD").is_some() {
        println!("cargo:rustc-link-arg=-fuse-ld=bfd");
    }
}
"""


def link(settings: Settings) -> Iterator[Row]:
    """`cargo build` of a program whose crate is built already, and with nothing built before."""
    folder = settings.scratch / "link"
    images = 3 if settings.quick else MEGABYTES
    # In a process of its own: memory that this one has taken counts as that of what it starts.
    measured([sys.executable, Path(__file__), folder, str(images)], settings.scratch)
    contenders = {
        f"{features or 'included'} {kind}": _contender(folder, features, kind, images)
        for kind in KINDS
        for features in ("link-static", "")
    }
    found = in_turns(contenders, settings.runs)
    for kind, what in KINDS.items():
        linked, included = found[f"link-static {kind}"], found[f"included {kind}"]
        has_bar = kind != "whole"
        peer = "include_bytes!"
        yield Row(
            bench="link",
            what=f"{what}, {images} MB linked",
            kiln=linked["wall"],
            peer=included["wall"],
            peer_name=peer,
            by="figure",
            bar=1.0 if has_bar else None,
        )
        yield Row(
            bench="link",
            what=f"{what}, peak memory",
            kiln=linked["peak"],
            peer=included["peak"],
            peer_name=peer,
            unit="MB",
            by="figure",
            bar=200.0 if has_bar else None,
        )


def make_library(folder: Path, count: int) -> None:
    """The crate of a library in `folder`/rust, an archive of its images in `folder`/lib, and a program on top of it.

    The images are a real one, each with other bytes behind it up to a megabyte.
    """
    from kiln.manifest.model import Image
    from kiln.packaging import c_names
    from kiln.packaging.archive import make_archive
    from kiln.packaging.objcopy import make_object
    from kiln.packaging.rust_crate import render_crate
    from softmax_images import SHAPES, make_kernel, make_manifest, make_records, make_variant

    kernel = make_kernel()
    first = make_variant(kernel, *SHAPES[0])
    folder.mkdir()
    (record,) = make_records(folder, [Image(variant=first, target="sm_80")])
    code = record.path.read_bytes()
    dice = random.Random(1)
    records, members = [], []
    for number in range(count):
        name = f"{first.id}_{number}"
        data = code + dice.randbytes(1_000_000 - len(code))
        path = folder / f"{name}.cubin"
        path.write_bytes(data)
        variant = make_variant(kernel, *SHAPES[0], id=name)
        image = Image(variant=variant, target="sm_80")
        facts = dataclasses.replace(record.facts, size=len(data), sha256=hashlib.sha256(data).hexdigest())
        records.append(dataclasses.replace(record, image=image, facts=facts, path=path))
        symbol = c_names.image_symbol("kernels", name, "sm_80")
        member = c_names.data_member(name, "sm_80")
        make_object(path, "cubin", symbol, "x86_64-linux-gnu", program("objcopy"), folder, member)
        members.append((member, folder / member))
    manifest = make_manifest(records)
    render_crate(records, manifest, manifest.library_version, folder / "rust")
    (folder / "lib").mkdir()
    make_archive(members, program("ar"), folder / "lib", "libkernels.a")
    consumer = folder / "consumer"
    for name, text in (
        ("Cargo.toml", _PACKAGE),
        ("build.rs", _SCRIPT.replace("FOLDER", str(folder / "lib"))),
        ("src/main.rs", _PROGRAM),
    ):
        (consumer / name).parent.mkdir(parents=True, exist_ok=True)
        (consumer / name).write_text(text, "utf-8")


def _contender(folder: Path, features: str, kind: str, images: int) -> Contender:
    target = folder / f"target-{features}"
    consumer = folder / "consumer"
    chosen = f"{features},gnu-ld" if kind == "GNU ld" else features
    command: list[str | Path] = [program("cargo"), "build", "--offline", "--features", chosen, "--target-dir", target]

    def prepare() -> None:
        if kind == "whole":
            remove(target)
        else:
            # The first time, of its crate too.
            run()
            (consumer / "src/main.rs").touch()

    def run() -> Figures:
        figures = measured(command, consumer)
        measured([target / "debug/consumer"], folder, f"{images} images, {images}000000 bytes")
        return figures

    return Contender(run=run, prepare=prepare)


if __name__ == "__main__":
    make_library(Path(sys.argv[1]), int(sys.argv[2]))

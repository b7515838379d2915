"""What the packaging steps do, each in a child of its own: plain data in, files below `staging` out."""

from __future__ import annotations

from pathlib import Path

from kiln.manifest.model import Manifest
from kiln.packaging.archive import make_archive
from kiln.packaging.c_objects import make_records, make_tables
from kiln.packaging.c_package import render_header
from kiln.packaging.objcopy import make_object
from kiln.packaging.record import Declared, read_records
from kiln.packaging.rust_crate import render_crate
from kiln.stages import timed
from kiln.toolchain.targets import Kind


def copy_image(image: Path, kind: Kind, symbol: str, host: str, objcopy: Path, output: str, staging: Path) -> None:
    """An image's bytes as a host object."""
    path = staging / output
    path.parent.mkdir(parents=True, exist_ok=True)
    with timed("objcopy"):
        make_object(image, kind, symbol, host, objcopy, path.parent, path.name)


def compile_records(declared: list[Declared], library: str, host: str, cc: Path, folder: str, staging: Path) -> None:
    """One target's records as host objects."""
    (staging / folder).mkdir(parents=True)
    make_records(read_records(declared), library, host, cc, staging / folder)


def compile_tables(
    images: list[tuple[str, str]], library: str, host: str, cc: Path, folder: str, staging: Path
) -> None:
    """The tables, the registries and the fixed runtime as host objects."""
    (staging / folder).mkdir(parents=True)
    make_tables(images, library, host, cc, staging / folder)


def archive(members: list[tuple[str, Path]], ar: Path, output: str, staging: Path) -> None:
    """A static archive of host objects."""
    path = staging / output
    path.parent.mkdir(parents=True, exist_ok=True)
    with timed("ar"):
        make_archive(members, ar, path.parent, path.name)


def render_c(declared: list[Declared], manifest: Manifest, staging: Path) -> None:
    """The public C headers and the runtime's sources."""
    render_header(read_records(declared), manifest, staging)


def render_rust(declared: list[Declared], manifest: Manifest, version: str, folder: str, staging: Path) -> None:
    """The Rust crate."""
    (staging / folder).mkdir(parents=True)
    render_crate(read_records(declared), manifest, version, staging / folder)

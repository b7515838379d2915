"""What the packaging steps do, each in a child of its own: plain data in, files below `staging` out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kiln.binaries.facts import Facts
from kiln.manifest.model import Manifest, OnnxRuntime
from kiln.packaging.archive import make_archive
from kiln.packaging.bundle import Bundled, check_alike, make_bundle, make_bundle_object
from kiln.packaging.c_launch_objects import make_variants
from kiln.packaging.c_objects import make_records, make_tables
from kiln.packaging.c_package import render_header
from kiln.packaging.cmake_names import Package
from kiln.packaging.cmake_package import render_package
from kiln.packaging.cpp_package import render_cpp_header
from kiln.packaging.inventory import Inventory
from kiln.packaging.objcopy import make_object
from kiln.packaging.onnxruntime import fitting, make_infos_archive, render_infos
from kiln.packaging.record import Declared, read_records
from kiln.packaging.rust_crate import render_crate
from kiln.packaging.source_map import write_sources
from kiln.stages import timed
from kiln.toolchain.targets import Kind


def copy_image(image: Path, kind: Kind, symbol: str, host: str, objcopy: Path, output: str, staging: Path) -> None:
    """An image's bytes as a host object."""
    path = staging / output
    path.parent.mkdir(parents=True, exist_ok=True)
    with timed("objcopy"):
        make_object(image, kind, symbol, host, objcopy, path.parent, path.name)


def bundle_images(
    targets: list[str],
    images: list[Path],
    facts: list[Path],
    variant: str,
    library: str,
    host: str,
    fatbinary: Path,
    cc: Path,
    outputs: tuple[str, str],
    staging: Path,
) -> None:
    """A variant's images in a fat binary, and that as a host object; `outputs` are the paths of the two."""
    bundled = [
        Bundled(target=target, data=image.read_bytes(), facts=Facts.load(measured))
        for target, image, measured in zip(targets, images, facts, strict=True)
    ]
    paths = [staging / output for output in outputs]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
    check_alike(variant, bundled)
    data, entries = make_bundle(bundled, fatbinary, staging)
    paths[0].write_bytes(data)
    make_bundle_object(data, entries, bundled, library=library, variant=variant, host=host, cc=cc, output=paths[1])


def compile_records(declared: list[Declared], library: str, host: str, cc: Path, folder: str, staging: Path) -> None:
    """One target's records as host objects."""
    (staging / folder).mkdir(parents=True)
    make_records(read_records(declared), library, host, cc, staging / folder)


def compile_variants(declared: list[Declared], library: str, host: str, cc: Path, folder: str, staging: Path) -> None:
    """What programs launch: variants and groups as host objects."""
    (staging / folder).mkdir(parents=True)
    make_variants(read_records(declared), library, host, cc, staging / folder)


def compile_tables(inventory: Inventory, library: str, host: str, cc: Path, folder: str, staging: Path) -> None:
    """The tables, the registries and the fixed runtime as host objects."""
    (staging / folder).mkdir(parents=True)
    make_tables(inventory, library, host, cc, staging / folder)


def archive(members: list[tuple[str, Path]], ar: Path, output: str, staging: Path) -> None:
    """A static archive of host objects."""
    path = staging / output
    path.parent.mkdir(parents=True, exist_ok=True)
    with timed("ar"):
        make_archive(members, ar, path.parent, path.name)


def render_c(declared: list[Declared], manifest: Manifest, staging: Path) -> None:
    """The public C headers and the runtime's sources."""
    render_header(read_records(declared), manifest, staging)


def render_cpp(declared: list[Declared], manifest: Manifest, staging: Path) -> None:
    """The public C++ headers."""
    render_cpp_header(read_records(declared), manifest, staging)


def render_cmake(package: Package, staging: Path) -> None:
    """What CMake and pkg-config read."""
    render_package(package, staging)


def copy_sources(library: str, files: Mapping[str, Path], staging: Path) -> None:
    """The sources of images with line tables, and the map to them."""
    write_sources(library, files, staging)


def package_onnxruntime(
    records: list[Declared],
    declared: OnnxRuntime,
    bundles: Mapping[str, Path],
    library: str,
    host: str,
    cc: Path,
    ar: Path,
    staging: Path,
) -> None:
    """Header and archive for ONNX Runtime; `bundles` are the fat binaries of variants, where those are meant."""
    found = fitting(read_records(records), declared, bundles)
    render_infos(found, library, declared, staging)
    make_infos_archive(found, host, cc, ar, staging)


def render_rust(declared: list[Declared], manifest: Manifest, version: str, folder: str, staging: Path) -> None:
    """The Rust crate."""
    (staging / folder).mkdir(parents=True)
    render_crate(read_records(declared), manifest, version, staging / folder)

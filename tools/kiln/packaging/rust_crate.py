"""Records -> a self-contained Rust crate: image data, tables, and one module a variant over the fixed runtime."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from kiln.errors import PackagingError
from kiln.manifest.expression import rust_helpers
from kiln.manifest.model import Manifest
from kiln.packaging import c_names, rust_names, rust_text
from kiln.packaging.record import Record
from kiln.packaging.rust_groups import view_groups
from kiln.packaging.rust_include import INCLUDE, include_text
from kiln.packaging.rust_view import ImageView, view_structs
from kiln.packaging.templates import environment


def render_crate(records: Sequence[Record], manifest: Manifest, version: str, staging: Path) -> None:
    """Write the crate of `manifest`, version `version`, into the folder `staging`: exactly `rust_names.crate_files`.

    `records` are one for each of the manifest's images, in order. Raises PackagingError when they are not, when an
    image is not the one that was measured, when the images of a variant disagree on where its arguments lie, and when
    something cannot be said in Rust.
    """
    _check_complete(records, manifest)
    structs = view_structs(records)
    groups = view_groups(records)
    variants = {variant.id: (struct, variant) for struct in structs for variant in struct.variants}
    images = [image for _, variant in variants.values() for image in variant.images]

    def symbol(image: ImageView) -> str:
        named = c_names.image_symbol(manifest.library, image.variant, image.target)
        return c_names.content_symbol(named, image.facts.sha256)

    render = _renderer(
        library=manifest.library,
        version=version,
        package=manifest.crate,
        targets=manifest.targets,
        structs=structs,
        groups=groups,
        symbol=symbol,
    )
    files = {
        "Cargo.toml": render("Cargo.toml"),
        "README.md": render("README.md", images=images, struct=structs[0], example=structs[0].variants[0]),
        **{f"src/{name}": (rust_names.RUNTIME / name).read_bytes() for name in rust_names.RUNTIME_SOURCES},
        "src/arithmetic.rs": f"//! What grids and conditions are computed with.\n\n{rust_helpers()}".encode(),
        "src/groups/mod.rs": render("groups.rs"),
        **{rust_names.group_file(group.name): render("group.rs", group=group) for group in groups},
        "src/tables.rs": render("tables.rs", images=images),
        "src/variants/mod.rs": render("mod.rs"),
        **{
            rust_names.variant_file(struct.base): render("shared.rs", struct=struct)
            for struct in structs
            if not struct.is_variant
        },
        **{
            rust_names.variant_file(name): render("variant.rs", struct=struct, variant=variant)
            for name, (struct, variant) in variants.items()
        },
    }
    files[INCLUDE] = include_text(files["src/lib.rs"].decode(), files).encode()
    for name, content in files.items():
        _write(staging / name, content)
    for record in records:
        _write(staging / rust_names.image_file(record.image), _image_content(record))


def _check_complete(records: Sequence[Record], manifest: Manifest) -> None:
    if not manifest.images:
        raise PackagingError(
            "there is no image to make a Rust crate of", where=manifest.position, remedy="declare a kernel"
        )
    declared = [image.id for image in manifest.images]
    given = [record.image.id for record in records]
    for place, (wanted, found) in enumerate(zip_longest(declared, given), 1):
        if wanted != found:
            raise PackagingError(
                "the Rust crate needs every image of the manifest, in order, and no other",
                where=manifest.position,
                expected=f"{wanted or 'nothing more'}, image {place} of {len(declared)}",
                actual=found or "nothing more",
                remedy="build every image first",
            )


def _image_content(record: Record) -> bytes:
    """The image as the crate keeps it: PTX with the NUL that drivers read up to."""
    data = record.path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if digest != record.facts.sha256:
        raise PackagingError(
            f"the file of image {record.image.id} is not the one that was measured",
            where=str(record.path),
            expected=f"{record.facts.size} bytes, SHA-256 {record.facts.sha256}",
            actual=f"{len(data)} bytes, SHA-256 {digest}",
            remedy="remove the file; the next build makes it again",
        )
    if record.facts.kind != "ptx":
        return data
    if b"\0" in data:
        raise PackagingError(
            f"the text of image {record.image.id} holds a NUL, where a driver would stop reading",
            where=str(record.path),
            expected="none before the end",
            actual=f"one at byte {data.index(0)} of {len(data)}",
            remedy="remove the file; the next build makes it again",
        )
    return data + b"\0"


def _renderer(**common: Any) -> Callable[..., bytes]:
    """`render(name, **context)` for the templates of the crate."""
    # An overlay shares everything with the environment of the C templates but this table.
    rust = environment().overlay()
    rust.filters = {
        **rust.filters,
        "built": rust_text.built,
        "code": rust_text.code,
        "literal": rust_text.literal,
        "number": rust_text.number,
        "option": rust_text.option,
        "toml": rust_text.toml,
    }

    def render(name: str, **context: Any) -> bytes:
        return rust.get_template(f"rust/{name}.j2").render(**common, **context).encode()

    return render


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)

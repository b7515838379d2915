"""The default library once more, with `bundle: fatbin`, packaged out of the images that a build has: nothing compiles.

What differs is in build/gpu/fatbin: an archive whose variants have fat binaries, and what ONNX Runtime gets for all
targets of NVIDIA at once. It is made as the steps of a build make it, by the same functions.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from gpu.gpu_links import HERE, compile_onnxruntime, link, typed_calls
from kiln.engine.state import State
from kiln.library import Library
from kiln.manifest.model import FATBIN, Image, Manifest, OnnxRuntime
from kiln.package_jobs import archive, bundle_images, compile_variants, package_onnxruntime
from kiln.packaging import c_names
from kiln.packaging.inventory import inventory_of
from kiln.toolchain.nvcc import find_fatbinary


def bundled(manifest: Manifest, only: Collection[str] | None = None) -> Manifest:
    """The manifest as if it said `bundle: fatbin`, or some of its kernels did, and the same for ONNX Runtime."""
    kernels = {
        kernel.key: replace(kernel, bundle=FATBIN) if only is None or kernel.key in only else kernel
        for kernel in manifest.kernels
    }
    variants = {each.id: replace(each, kernel=kernels[each.kernel.key]) for each in manifest.variants}
    return replace(
        manifest,
        kernels=tuple(kernels.values()),
        variants=tuple(variants.values()),
        images=tuple(Image(variant=variants[each.variant.id], target=each.target) for each in manifest.images),
        onnxruntime=OnnxRuntime(target=FATBIN, kernels=None, position=manifest.position),
    )


def _bundle(library: Library, variant: str, images: Sequence[Image], staging: Path) -> None:
    bundle_images(
        targets=[image.target for image in images],
        images=[library.build / library.image_path(image) for image in images],
        facts=[library.build / library.facts_path(image) for image in images],
        variant=variant,
        library=library.manifest.library,
        host=library.manifest.host,
        fatbinary=find_fatbinary(),
        cc=library.host_tools.cc,
        outputs=(library.bundle_path(variant), f"objects/{c_names.bundle_member(variant)}"),
        staging=staging,
    )


def make_package(root: Path, folder: Path, only: Collection[str] | None = None) -> None:
    """Write lib/ and onnxruntime/ into `folder`, and the headers of the build, of the library below `root`.

    `only` are the kernels that have fat binaries; None: all.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    built = root / "build"
    with_state = Library.load(root / "kernels.yaml", built, State(built / ".kiln" / "state.sqlite"))
    library = replace(with_state, manifest=bundled(with_state.manifest, only))
    manifest, tools = library.manifest, library.host_tools
    for variant, images in library.bundles.items():
        _bundle(library, variant, images, folder)
    # Others are as the build has them.
    changed = [image for image in library.images if image.variant.kernel.bundle == FATBIN]
    compile_variants(library.declared(changed), manifest.library, manifest.host, tools.cc, "variants", folder)
    members = []
    for name in c_names.archive_members(inventory_of(library.images), manifest.library, None):
        places = (folder / "variants" / name, folder / "objects" / name, built / "objects" / name)
        members.append((name, next(place for place in places if place.exists())))
    archive(members, tools.ar, f"lib/{c_names.archive_name(manifest.library, None)}", folder)
    assert manifest.onnxruntime is not None
    package_onnxruntime(
        library.declared(library.onnxruntime_images),
        manifest.onnxruntime,
        {variant: folder / path for variant, path in library.onnxruntime_bundles.items()},
        manifest.library,
        manifest.host,
        tools.cc,
        tools.ar,
        folder,
    )
    (folder / "include").symlink_to(built / "include")


def link_bundled(root: Path, folder: Path, only: Collection[str] | None = None) -> None:
    """Link typed.c and examples/onnxruntime with that, as typed_fatbin and onnxruntime_fatbin in `folder`."""
    package = folder / "fatbin"
    make_package(root, package, only)
    header = (package / "include" / "kernels" / "kernels.h").read_text()
    (folder / "typed_calls.h").write_text(typed_calls(header))
    link(package, HERE / "typed.c", folder / "typed_fatbin", "-I", folder)
    compile_onnxruntime(package, folder / "onnxruntime_fatbin")
    # What it was made of is not to travel to another machine.
    shutil.rmtree(package)

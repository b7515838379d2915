"""The build graph, in the order in which data flows.

Each rule makes the step of one image, of one target, or of the library: what it reads (`inputs`: digests by name), what
a child process does (`call`), and what that makes (`outputs`, below `build/`). A step runs again when a named digest
changed, or an output is not what was recorded; never because of a time stamp. What a step with the same inputs made
before, in whatever tree, the cache may have: under the roles that `cached` gives the outputs. `doit list` shows the
tasks, and docs/architecture.md explains the rooms behind them.

This file is also the module `kiln.graph`, which the dodo.py of other projects takes its rules from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kiln.doit_plugin.rules import rule
from kiln.engine.step import Built, Call, Step
from kiln.packaging import c_names, cmake_names, cpp_names, onnxruntime_format, rust_names, source_map
from kiln.packaging.inventory import has_bundles, inventory_of, serves_onnxruntime

if TYPE_CHECKING:
    # What makes steps is imported when one is to be made: a build with nothing to do starts in half the time.
    from kiln.library import Library
    from kiln.manifest.model import Image


@rule("compile:<image>")
def compile_image(library: Library, image: Image) -> Step:
    """compile one image, and keep it with its facts when it is what was declared"""
    if image.variant.kernel.cuda is not None:
        return _compile_cuda(library, image)
    paths = (library.image_path(image), library.facts_path(image))
    return Step(
        inputs=lambda: library.compile_inputs(image),
        call=lambda: Call(
            function="kiln.compile_jobs:compile_image",
            arguments={
                "request": library.request(image),
                "expected": library.expected(image),
                "triton": library.triton.folder,
                "image": paths[0],
                "facts": paths[1],
            },
            preload=("kiln.compilers.triton",),
            environment=library.environment(image),
        ),
        outputs=paths,
        cached=("image", "facts"),
        sources=library.sources([image]),
        origin=library.origin(image.variant.kernel),
        warning=lambda: library.request(image).closure.warning,
    )


def _compile_cuda(library: Library, image: Image) -> Step:
    """nvcc tells in the end which headers it read: they are inputs of the next run"""
    paths = (library.image_path(image), library.facts_path(image))
    return Step(
        inputs=lambda: library.compile_inputs(image),
        found=lambda found: library.cuda.found(image, found),
        call=lambda: Call(
            function="kiln.compile_jobs:compile_cuda_image",
            arguments={
                "request": library.cuda.request(image),
                "expected": library.expected(image),
                "image": paths[0],
                "facts": paths[1],
            },
            environment=library.environment(image),
        ),
        outputs=paths,
        cached=("image", "facts"),
        sources=library.sources([image]),
        origin=library.origin(image.variant.kernel),
    )


@rule("validate:<image>")
def validate(library: Library, image: Image) -> Step:
    """hold an image's facts against the limits of its target and the budgets of kernels.yaml"""
    return Step(
        after=(f"compile:{image.id}",),
        rides=True,
        inputs=lambda: library.validate_inputs(image),
        call=lambda: Call(
            function="kiln.compile_jobs:validate_image",
            arguments={
                "facts": Built(library.facts_path(image)),
                "image_id": image.id,
                "target": library.target(image),
                "budgets": image.budgets,
                "report": library.report_path(image),
            },
        ),
        outputs=(library.report_path(image),),
        cached=("report",),
        origin=library.origin(image.variant.kernel),
    )


@rule("objcopy:<image>")
def objcopy(library: Library, image: Image) -> Step:
    """wrap an image in a host object: read-only, aligned, under its own symbol"""
    manifest, output = library.manifest, f"objects/{c_names.data_member(image.variant.id, image.target)}"
    return Step(
        after=(f"compile:{image.id}",),
        rides=True,
        inputs=lambda: library.packages.objcopy_inputs(image),
        call=lambda: Call(
            function="kiln.package_jobs:copy_image",
            arguments={
                "image": Built(library.image_path(image)),
                "kind": library.target(image).kind,
                "symbol": c_names.image_symbol(manifest.library, image.variant.id, image.target),
                "host": manifest.host,
                "objcopy": library.host_tools.objcopy,
                "output": output,
            },
        ),
        outputs=(output,),
        cached=("object",),
    )


@rule("bundle:<bundle>", when=has_bundles)
def bundle(library: Library, variant: str) -> Step:
    """put a variant's images for NVIDIA into one fat binary, and wrap that in a host object"""
    manifest, images = library.manifest, library.bundles[variant]
    outputs = (library.bundle_path(variant), f"objects/{c_names.bundle_member(variant)}")
    return Step(
        after=library.measured(images),
        inputs=lambda: library.packages.bundle_inputs(variant),
        call=lambda: Call(
            function="kiln.package_jobs:bundle_images",
            arguments={
                "targets": [image.target for image in images],
                "images": [Built(library.image_path(image)) for image in images],
                "facts": [Built(library.facts_path(image)) for image in images],
                "variant": variant,
                "library": manifest.library,
                "host": manifest.host,
                "fatbinary": library.packages.fatbinary,
                "cc": library.host_tools.cc,
                "outputs": outputs,
            },
        ),
        outputs=outputs,
        cached=("bundle", "object"),
        origin=library.origin(images[0].variant.kernel),
    )


@rule("record:<target>")
def record(library: Library, target: str) -> Step:
    """compile the records of one target's images: what C programs read of an image"""
    images = library.images_for(target)
    return Step(
        after=library.measured(images),
        inputs=lambda: {**library.packages.package_inputs(images), **library.packages.compiler_inputs()},
        call=lambda: Call(
            function="kiln.package_jobs:compile_records",
            arguments={
                "declared": library.declared(images),
                "library": library.manifest.library,
                "host": library.manifest.host,
                "cc": library.host_tools.cc,
                "folder": "objects",
            },
        ),
        outputs=tuple(f"objects/{c_names.record_member(image.variant.id, image.target)}" for image in images),
        cached=tuple(image.id for image in images),
    )


@rule("variants")
def variants(library: Library) -> Step:
    """compile what C programs launch: variants and groups"""
    members = c_names.launch_members(inventory_of(library.images))
    return Step(
        after=library.measured(library.images),
        inputs=lambda: {**library.packages.launch_inputs(library.images), **library.packages.compiler_inputs()},
        call=lambda: Call(
            function="kiln.package_jobs:compile_variants",
            arguments={
                "declared": library.declared(library.images),
                "library": library.manifest.library,
                "host": library.manifest.host,
                "cc": library.host_tools.cc,
                "folder": "objects",
            },
        ),
        outputs=tuple(f"objects/{name}" for name in members),
        cached=tuple(members),
    )


@rule("table")
def table(library: Library) -> Step:
    """compile the tables that list images, variants and groups, and the fixed C runtime"""
    inventory = inventory_of(library.images)
    members = c_names.table_members(inventory, library.manifest.library)
    return Step(
        inputs=lambda: {**library.packages.table_inputs(inventory), **library.packages.compiler_inputs()},
        call=lambda: Call(
            function="kiln.package_jobs:compile_tables",
            arguments={
                "inventory": inventory,
                "library": library.manifest.library,
                "host": library.manifest.host,
                "cc": library.host_tools.cc,
                "folder": "objects",
            },
        ),
        outputs=tuple(f"objects/{name}" for name in members),
        cached=tuple(members),
    )


@rule("archive:all")
def archive(library: Library) -> Step:
    """the static archive of every image"""
    return _archive(library, None)


@rule("archive:<target>")
def archive_target(library: Library, target: str) -> Step:
    """a static archive of one target's images"""
    return _archive(library, target)


def _archive(library: Library, target: str | None) -> Step:
    images = library.images if target is None else library.images_for(target)
    targets = library.manifest.targets if target is None else (target,)
    name = library.manifest.library
    members = c_names.archive_members(inventory_of(library.images), name, target)
    bundles = library.bundles if target is None else {}
    within = inventory_of(library.images).embedded if bundles else frozenset()
    objects = (
        "table",
        "variants",
        *(f"record:{each}" for each in targets),
        *(f"bundle:{variant}" for variant in bundles),
        *(f"objcopy:{image.id}" for image in images if (image.variant.id, image.target) not in within),
    )
    output = f"lib/{c_names.archive_name(name, target)}"
    return Step(
        after=objects,
        inputs=lambda: library.packages.archive_inputs(objects, members),
        call=lambda: Call(
            function="kiln.package_jobs:archive",
            arguments={
                "members": [(member, Built(f"objects/{member}")) for member in members],
                "ar": library.host_tools.ar,
                "output": output,
            },
        ),
        outputs=(output,),
        cached=("archive",),
    )


@rule("archive:sources", when=lambda manifest: any(kernel.debug for kernel in manifest.kernels))
def archive_sources(library: Library) -> Step:
    """beside the archives, the sources of images with line tables, and the map that leads to them"""
    files = library.packages.debug_sources
    names = source_map.source_files(library.manifest.library, files)
    return Step(
        after=tuple(f"compile:{image.id}" for image in library.images if image.variant.kernel.debug),
        inputs=library.packages.source_inputs,
        call=lambda: Call(
            function="kiln.package_jobs:copy_sources",
            arguments={"library": library.manifest.library, "files": files},
        ),
        outputs=names,
        cached=names,
        sources=tuple(files.values()),
    )


@rule("header:c")
def header(library: Library) -> Step:
    """the C headers, with the runtime's sources"""
    return _header(library, "render_c", c_names.header_files(library.manifest.library))


@rule("header:cpp")
def header_cpp(library: Library) -> Step:
    """the C++ headers, on top of those in C"""
    return _header(library, "render_cpp", cpp_names.header_files(library.manifest.library))


def _header(library: Library, render: str, names: tuple[str, ...]) -> Step:
    return Step(
        after=library.measured(library.images),
        inputs=lambda: library.packages.launch_inputs(library.images),
        call=lambda: Call(
            function=f"kiln.package_jobs:{render}",
            arguments={"declared": library.declared(library.images), "manifest": library.manifest},
        ),
        outputs=names,
        cached=names,
    )


@rule("cmake")
def cmake(library: Library) -> Step:
    """what CMake and pkg-config find the headers and archives by"""
    names = tuple(cmake_names.config_files(library.manifest.library))
    return Step(
        inputs=library.packages.cmake_inputs,
        call=lambda: Call(
            function="kiln.package_jobs:render_cmake",
            arguments={"package": library.packages.cmake_package},
        ),
        outputs=names,
        cached=names,
    )


@rule("header:onnxruntime", when=serves_onnxruntime)
def header_onnxruntime(library: Library) -> Step:
    """header and archive for ONNX Runtime's loader of Triton kernels"""
    images, bundles = library.onnxruntime_images, library.onnxruntime_bundles
    return Step(
        after=(*library.measured(images), *(f"bundle:{variant}" for variant in bundles)),
        inputs=library.packages.onnxruntime_inputs,
        call=lambda: Call(
            function="kiln.package_jobs:package_onnxruntime",
            arguments={
                "records": library.declared(images),
                "declared": library.manifest.onnxruntime,
                "bundles": {variant: Built(path) for variant, path in bundles.items()},
                "library": library.manifest.library,
                "host": library.manifest.host,
                "cc": library.host_tools.cc,
                "ar": library.host_tools.ar,
            },
        ),
        outputs=(onnxruntime_format.HEADER, onnxruntime_format.ARCHIVE),
        cached=("header", "archive"),
        warning=library.packages.onnxruntime_warning,
    )


@rule("crate")
def crate(library: Library) -> Step:
    """the Rust crate, with every image in it"""
    folder, names = f"rust/{library.manifest.library}", rust_names.crate_files(library.manifest)
    return Step(
        after=library.measured(library.images),
        inputs=lambda: library.packages.crate_inputs(),
        call=lambda: Call(
            function="kiln.package_jobs:render_rust",
            arguments={
                "declared": library.declared(library.images),
                "manifest": library.manifest,
                "version": library.version,
                "folder": folder,
            },
        ),
        outputs=tuple(f"{folder}/{name}" for name in names),
        cached=tuple(names),
    )


def _check_release(library: Library) -> None:
    from kiln import releases

    releases.check(library)


@rule("release", default=False, before=_check_release)
def release(library: Library) -> Step:
    """everything that is handed over, as a folder and as a tar, and what it was made of and by"""
    from kiln import releases

    return Step(
        after=releases.after(library),
        inputs=lambda: releases.inputs(library),
        call=lambda: Call(
            function="kiln.release_jobs:make_release",
            arguments={"plan": releases.plan(library)},
        ),
        outputs=releases.outputs(library),
        sources=library.manifest.files,
    )

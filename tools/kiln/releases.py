"""A release of a library, as the parent of a build knows it: what is in it, what it says, and what has to hold before.

The child's side is `release_jobs`; the rule stands in dodo.py, with those of the packages.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import kiln
from kiln import files
from kiln.compilers.nvcc_found import HEADERS
from kiln.digests import digest_json, plain
from kiln.engine.step import Built
from kiln.library import RELEASING, Library
from kiln.packaging import c_names, cmake_names, cpp_names, onnxruntime_format, rust_names, source_map
from kiln.packaging.inventory import serves_onnxruntime
from kiln.release import refusals
from kiln.release.names import PACKAGES, Names, level_of, placed
from kiln.release.plan import Released, ReleasePlan, Source
from kiln.toolchain.identity import Tool, identify


def check(library: Library) -> None:
    """What has to hold before anything is built for a release. Raises KilnError, with all that does not."""
    refusals.check_manifest(library.manifest)
    refusals.check_tools(library.manifest, tools(library), allow_others=library.is_unlocked)


def tools(library: Library) -> tuple[Tool, ...]:
    """Every tool of the build. Raises ToolchainError for one that is missing."""
    return identify(library.manifest, library.state.files)


def names(library: Library) -> Names:
    """What the release is called."""
    return Names(library=library.manifest.library, version=library.version, part=library.part)


def _built(library: Library) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Task -> what it makes for a release, in the order of the rules."""
    manifest = library.manifest
    name = manifest.library
    for image in library.images:
        yield f"compile:{image.id}", (library.image_path(image),)
    for variant in library.bundles:
        yield f"bundle:{variant}", (library.bundle_path(variant),)
    yield "archive:all", (f"lib/{c_names.archive_name(name, None)}",)
    for target in manifest.targets:
        yield f"archive:{target}", (f"lib/{c_names.archive_name(name, target)}",)
    if any(kernel.debug for kernel in manifest.kernels):
        yield "archive:sources", source_map.source_files(name, library.packages.debug_sources)
    yield "header:c", c_names.header_files(name)
    yield "header:cpp", cpp_names.header_files(name)
    yield "cmake", tuple(cmake_names.config_files(name))
    if serves_onnxruntime(manifest):
        yield "header:onnxruntime", (onnxruntime_format.HEADER, onnxruntime_format.ARCHIVE)
    yield "crate", tuple(f"rust/{name}/{file}" for file in rust_names.crate_files(manifest))


def after(library: Library) -> tuple[str, ...]:
    """The tasks that a release comes after."""
    return tuple(dict.fromkeys((*library.measured(library.images), *(task for task, _ in _built(library)))))


def outputs(library: Library) -> tuple[str, ...]:
    """What the step makes, relative to the build folder."""
    return names(library).outputs(path for path, _, _ in _released(library))


def _released(library: Library) -> Iterator[tuple[str, str, str]]:
    """Path in the release, path in the build folder, and task, of each file of the build."""
    for task, made in _built(library):
        for output in made:
            path = placed(output, library.manifest.library)
            if path is not None:
                yield path, output, task


def inputs(library: Library) -> dict[str, str]:
    """Everything that is released or said, by digest."""
    return {
        "outputs": library.outputs(after(library)),
        "declarations": library.packages.package_inputs(library.images)["declarations"],
        "sources": digest_json(plain(_sources(library))),
        "tools": digest_json(plain(tools(library))),
        "toolchain": "locked" if _is_locked(library) else "another than is locked",
        "budgets": digest_json(plain(library.manifest.release_sizes)),
        "name": names(library).stem,
        "all of kiln": _own_code(library),
        **library.code(RELEASING, tuple(PACKAGES.values())),
    }


def plan(library: Library) -> ReleasePlan:
    """All that the child makes the release of."""
    manifest = library.manifest
    return ReleasePlan(
        library=manifest.library,
        version=library.version,
        part=library.part,
        host=manifest.host,
        targets=manifest.targets,
        manifest=manifest.path.name,
        sources=_sources(library),
        files=tuple(
            Released(
                path=path,
                built=Built(output),
                sha256=library.output(task, output),
                level=level_of(path),
                step=task,
            )
            for path, output, task in _released(library)
        ),
        declared=tuple(library.declared(library.images)),
        tools=tools(library),
        budgets=manifest.release_sizes,
        kiln_version=kiln.__version__,
        kiln_sha256=_own_code(library),
        is_locked=_is_locked(library),
    )


def _is_locked(library: Library) -> bool:
    """Whether the compilers are those of kiln.lock."""
    with files.asked_by(files.FOR_ALL):
        return refusals.check_tools(library.manifest, tools(library), allow_others=True)


def _own_code(library: Library) -> str:
    """Digest of Kiln's own code."""
    folder = Path(kiln.__file__).parent
    with files.asked_by(files.FOR_ALL):
        return library.state.files.of_all({path.relative_to(folder).as_posix(): path for path in files.below(folder)})


def _sources(library: Library) -> tuple[Source, ...]:
    """kernels.yaml with what it includes, what the images are compiled from, and the toolkit's headers, by name."""
    root = library.manifest.root
    declared = {_name(path, root): path for path in library.manifest.files}
    compiled: dict[str, Path] = {}
    for image in library.images:
        compiled |= library.sources_of(image)
    compiled |= _headers(library)
    compiled = {name: path for name, path in sorted(compiled.items()) if name not in declared}
    with files.asked_by(files.FOR_ALL):
        return tuple(
            Source(name=name, sha256=library.state.files.of(path)) for name, path in {**declared, **compiled}.items()
        )


def _headers(library: Library) -> dict[str, Path]:
    """The headers of the CUDA toolkit that the images are compiled from, as they are included: `<cuda_fp16.h>`.

    nvcc tells of them as it compiles; those of the host's compiler go with the compiler.
    """
    rows = (library.state.rows.get(f"compile:{image.id}") for image in library.images)
    names = {name for row in rows if row is not None for name in row.found.get(HEADERS, ()) if name.startswith("<")}
    return {name: library.cuda.nvcc.headers / name[1:-1] for name in names}


def _name(path: Path, root: Path) -> str:
    return Path(os.path.relpath(path, root)).as_posix()

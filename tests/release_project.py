"""A scratch project with something of everything that a release can hold, and the plan of a release of it."""

from __future__ import annotations

import io
import pickle
from dataclasses import replace
from pathlib import Path

import cuda_project
import kiln
from kiln.digests import digest_file
from kiln.engine.child import _Arguments
from kiln.engine.state import State
from kiln.engine.step import Built
from kiln.library import Library
from kiln.release.names import level_of, placed
from kiln.release.plan import Released, ReleasePlan, Source
from kiln.toolchain.identity import identify
from project import KERNEL, Project

MANIFEST = """\
version: 1
library: scratch
library_version: 1.2.0
targets: [sm_80, gfx942]
onnxruntime: {target: sm_80, kernels: [twice]}
kernels:
  twice:
    source: kernels/twice.py
    function: scale_kernel
    dtypes: [fp32]
    blocks: [128]
    name: twice_{dtype}_{block}
    group: twice_{dtype}
    signature: "*{dtype}:16, *{dtype}:16, i32"
    grid: ["cdiv(n_elements, BLOCK_SIZE)"]
    debug: true
  scale:
    source: kernels/scale.cu
    function: scale<{T}, {block}>
    dtypes: [fp32]
    blocks: [128]
    targets: [sm_80]
    name: scale_{dtype}_{block}
    group: scale_{dtype}
    signature: "*{dtype}, {dtype}, i32"
    threads: block
    grid: ["cdiv(n, BLOCK_SIZE)"]
    tensors: {x: [n]}
    bundle: fatbin
"""


def create(folder: Path, **environment: str) -> Project:
    """The project in a new folder, built; with variables of the environment set."""
    project = Project.create(folder, manifest=MANIFEST, twice=KERNEL)
    project.write("kernels/scale.cu", cuda_project.KERNEL)
    project.write("kernels/factor.cuh", "#define FACTOR 2\n")
    project.doit(**environment).expect("0 failed")
    return project


def load(project: Project) -> Library:
    """What the project declares, with the state of what is built."""
    build = project.folder / "build"
    return Library.load(project.folder / "kernels.yaml", build, State(build / ".kiln/state.sqlite"))


def plan_of(project: Project) -> ReleasePlan:
    """All that the project's build has, as the parent of a build knows it."""
    library = load(project)
    manifest = library.manifest
    files = [
        Released(path=path, built=Built(output.path), sha256=output.sha256, level=level_of(path), step=name)
        for name in library.state.rows
        for output in library.state.rows[name].outputs
        if (path := placed(output.path, manifest.library)) is not None
    ]
    names = ("kernels.yaml", "kernels/twice.py", "kernels/factor.cuh", "kernels/scale.cu")
    return ReleasePlan(
        library=manifest.library,
        version=library.version,
        host=manifest.host,
        targets=manifest.targets,
        manifest="kernels.yaml",
        sources=tuple(Source(name=name, sha256=digest_file(project.folder / name)) for name in names),
        files=tuple(files),
        declared=tuple(library.declared(library.images)),
        tools=identify(manifest, library.state.files),
        kiln_version=kiln.__version__,
        kiln_sha256="0" * 64,
        is_locked=True,
    )


def in_child(plan: ReleasePlan, build: Path) -> ReleasePlan:
    """The plan as it comes to a child: pickled, and with paths for what is built."""
    read = _Arguments(io.BytesIO(pickle.dumps({"plan": plan})), lambda name: build / name).load()
    found = read["plan"]
    assert isinstance(found, ReleasePlan)
    return found


def elsewhere(plan: ReleasePlan, old: Path, new: Path) -> ReleasePlan:
    """The plan of the same build in another folder."""
    moved = [
        replace(each, path=new / each.path.relative_to(old), facts=new / each.facts.relative_to(old))
        for each in plan.declared
    ]
    return replace(plan, declared=tuple(moved))

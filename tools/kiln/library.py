"""A library as it is built: kernels.yaml, its toolchain and its build folder, and what each step takes from them.

This is the parent's side of every step: names, paths and digests, nothing heavy. `compile_jobs` and
`package_jobs` are the child's side, and the rules of dodo.py are written with both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import kiln
from kiln import files
from kiln.binaries.expected import Expected
from kiln.binaries.facts import SUFFIX
from kiln.closure.slice import Closure
from kiln.closure.world import World
from kiln.compilers import request as requests
from kiln.compilers.request import CompileRequest
from kiln.digests import digest_json, plain
from kiln.engine.state import State
from kiln.errors import ToolchainError
from kiln.interfaces import Interfaces
from kiln.manifest.dtypes import DTYPES, POINTER_SIZE
from kiln.manifest.interface import Interface
from kiln.manifest.loader import load
from kiln.manifest.model import Image, Kernel, Manifest
from kiln.packaging.inventory import is_bundled
from kiln.packaging.record import Declared
from kiln.source_reader import StaticReader, world_of
from kiln.toolchain import refusals
from kiln.toolchain.native import native_targets
from kiln.toolchain.targets import Target, find
from kiln.toolchain.tools import HostTools, Triton, find_triton

if TYPE_CHECKING:
    from kiln.cuda_images import CudaImages
    from kiln.packages import Packages

_CHILDREN = ("engine/child.py", "engine/jobs.py", "engine/forkserver.py", "engine/pool.py")
"""the parts that decide what a child has around it"""
COMPILING = (
    "closure",
    "compilers",
    "binaries",
    "toolchain",
    "manifest",
    "digests.py",
    "files.py",
    "library.py",
    "interfaces.py",
    "source_reader.py",
    "cuda_images.py",
    "compile_jobs.py",
    *_CHILDREN,
)
"""the parts of Kiln that decide what an image and its facts are: at least what `compile_jobs` imports"""
PACKAGING = (
    "packaging",
    "binaries",
    "closure/virtual_names.py",
    "toolchain",
    "manifest",
    "digests.py",
    "files.py",
    "library.py",
    "packages.py",
    "source_reader.py",
    "cuda_images.py",
    "package_jobs.py",
    *_CHILDREN,
)
"""the parts that decide what packages look like: at least what `package_jobs` imports"""
RELEASING = ("release", "releases.py", "release_jobs.py", "binaries", "packaging/record.py", "digests.py", *_CHILDREN)
"""the parts that decide what a release is: at least what `release_jobs` imports, beside what packages are made by"""
READERS = ("elftools", "msgpack")
"""packages of others that read images"""
TEMPLATES = ("jinja2", "elftools")
"""packages of others that packages are rendered and checked with"""


def read_manifest(path: Path, only: Collection[str] | None = None) -> Manifest:
    """A manifest and what it includes; of its kernels only some, see `manifest.loader.load`.

    The word native among the targets asks the drivers of this machine. Raises ManifestError for what it says, and for
    what its targets cannot have; ToolchainError where the Triton that is installed is none that Kiln builds with.
    """
    manifest = load(path, StaticReader(), native_targets, only, find)
    refusals.check(manifest)
    return manifest


@dataclass(frozen=True, kw_only=True)
class Library:
    """One manifest, one build folder, and the state of earlier builds there."""

    manifest: Manifest
    build: Path
    """absolute path of the build folder"""
    state: State
    part: tuple[str, ...] = ()
    """the targets that the manifest was narrowed to; none where it is whole"""
    is_unlocked: bool = False
    """whether a release may be made by another toolchain than kiln.lock has"""

    @classmethod
    def load(cls, manifest: Path, build: Path, state: State) -> Library:
        """Read a manifest. Raises ManifestError for what it says and for targets that cannot be built."""
        return cls(manifest=read_manifest(manifest), build=build, state=state)

    # -- names

    @property
    def version(self) -> str:
        """Of the packages, as semantic versioning has it."""
        return self.manifest.library_version

    @property
    def images(self) -> tuple[Image, ...]:
        """Every image, in order of declaration."""
        return self.manifest.images

    def images_for(self, target: str) -> tuple[Image, ...]:
        """The images of one target."""
        return tuple(image for image in self.images if image.target == target)

    @property
    def onnxruntime_images(self) -> tuple[Image, ...]:
        """The images that may go to ONNX Runtime: of its target, or in fat binaries; of the kernels that are listed."""
        declared = self.manifest.onnxruntime
        if declared is None:
            return ()
        if declared.is_bundled:
            images = tuple(image for own in self.bundles.values() for image in own)
        else:
            images = self.images_for(declared.target)
        return tuple(
            image for image in images if declared.kernels is None or image.variant.kernel.key in declared.kernels
        )

    @property
    def onnxruntime_bundles(self) -> dict[str, str]:
        """variant -> the path of its fat binary, of those that may go to ONNX Runtime"""
        declared = self.manifest.onnxruntime
        if declared is None or not declared.is_bundled:
            return {}
        return {image.variant.id: self.bundle_path(image.variant.id) for image in self.onnxruntime_images}

    @cached_property
    def bundles(self) -> dict[str, tuple[Image, ...]]:
        """variant -> the images in its fat binary, of those that have one, in order of declaration"""
        found: dict[str, list[Image]] = {}
        for image in self.images:
            if is_bundled(image):
                found.setdefault(image.variant.id, []).append(image)
        return {variant: tuple(images) for variant, images in found.items()}

    def target(self, image: Image) -> Target:
        """What the image is built for, with its limits."""
        return find(image.target, self.manifest.target_positions[image.target])

    def image_path(self, image: Image) -> str:
        """The image's file, relative to the build folder: images/sm_90a/softmax_fp16_2048.cubin."""
        return f"images/{image.target}/{image.variant.id}{SUFFIX[self.target(image).kind]}"

    def facts_path(self, image: Image) -> str:
        """The file of the image's facts, beside it."""
        return f"images/{image.target}/{image.variant.id}.facts.json"

    def bundle_path(self, variant: str) -> str:
        """The file of a variant's fat binary, relative to the build folder: bundles/softmax_fp16_2048.fatbin."""
        return f"bundles/{variant}.fatbin"

    def report_path(self, image: Image) -> str:
        """What `validate` writes."""
        return f"reports/{image.target}/{image.variant.id}.json"

    def origin(self, kernel: Kernel) -> tuple[str, ...]:
        """Where people declared a kernel."""
        return (str(kernel.position), f"{kernel.source_name} ({kernel.function})")

    def sources(self, images: Iterable[Image]) -> tuple[Path, ...]:
        """The files that people edit, for a listing."""
        return (*self.manifest.files, *dict.fromkeys(image.variant.kernel.source for image in images))

    # -- compiling

    @cached_property
    def cuda(self) -> CudaImages:
        """What is asked of images in CUDA C++."""
        # Most builds have none to ask about, and this takes a third of what all that the parent needs does.
        from kiln.cuda_images import CudaImages

        return CudaImages(manifest=self.manifest, digests=self.state.files)

    @cached_property
    def triton(self) -> Triton:
        """The installed Triton. Raises ToolchainError when there is none."""
        with files.asked_by(files.FOR_ALL):
            return find_triton()

    @cached_property
    def _interfaces(self) -> Interfaces:
        return Interfaces(self.manifest, self.world)

    def closure(self, image: Image) -> Closure:
        """The slice that the image is compiled from. Raises ClosureError."""
        with files.asked_by(image.variant.kernel.key):
            return self._interfaces.closure(image)

    def interface(self, image: Image) -> Interface:
        """What a caller of the image's variant passes. Raises ManifestError when signature and function disagree."""
        with files.asked_by(image.variant.kernel.key):
            if image.variant.kernel.cuda is not None:
                return self.cuda.interface(image)
            return self._interfaces.interface(image)

    def world(self, image: Image) -> World:
        """What the code of an image may ask of the machine that it runs on."""
        return world_of(self.target(image), self.triton, self.manifest.environment)

    def request(self, image: Image) -> CompileRequest:
        """What the compiler is asked for."""
        return requests.compile_request(image, self.target(image), self.closure(image), self.interface(image))

    def environment(self, image: Image) -> dict[str, str]:
        """What the compiler finds in its environment."""
        return self.cuda.environment if image.variant.kernel.cuda is not None else requests.environment(image)

    def compile_inputs(self, image: Image) -> dict[str, str]:
        """Everything that can change the image: what is compiled, the compilers by content, and Kiln's own part."""
        if image.variant.kernel.cuda is not None:
            return {**self.cuda.inputs(image), **self.code(COMPILING, READERS)}
        return {
            **requests.components(self.request(image)),
            **self._compiler(image.target),
            **self.code(COMPILING, READERS),
        }

    def _compiler(self, target: str) -> dict[str, str]:
        if target not in self._compilers:
            found = find(target, self.manifest.target_positions[target])
            with files.asked_by(files.FOR_ALL):
                self._compilers[target] = self.triton.components(found, self.state.files)
        return self._compilers[target]

    @cached_property
    def _compilers(self) -> dict[str, dict[str, str]]:
        return {}

    def expected(self, image: Image) -> Expected:
        """What the image is held against."""
        arguments = self.interface(image).arguments
        is_cuda = image.variant.kernel.cuda is not None
        threads = self.cuda.request(image).threads if is_cuda else None
        return Expected(
            image_id=image.id,
            target=self.target(image),
            entry=image.variant.entry_name or (None if is_cuda else self.closure(image).entry),
            parameters=tuple(
                POINTER_SIZE if argument.type.startswith("*") else DTYPES[argument.type].size
                for argument in arguments
                if argument.promise != 1
            ),
            warps=int(image.variant.options["num_warps"]) if threads is None else -(-threads // 32),
            threads=threads,
        )

    def validate_inputs(self, image: Image) -> dict[str, str]:
        """The facts, what they are held against, and the name in the report."""
        return {
            "image": image.id,
            "facts": self.output(f"compile:{image.id}", self.facts_path(image)),
            "target": digest_json(plain(self.target(image))),
            **{f"budget {name}": str(budget.most) for name, budget in image.budgets.items()},
            **self.code(COMPILING, READERS),
        }

    # -- packaging

    @cached_property
    def packages(self) -> Packages:
        """What the steps of packages go by."""
        # What compiles alone does without.
        from kiln.packages import Packages

        return Packages(library=self)

    @cached_property
    def host_tools(self) -> HostTools:
        """objcopy, ar and cc of the manifest's host."""
        return HostTools(host=self.manifest.host)

    def output(self, task: str, path: str) -> str:
        """Digest of an output as it was published; tells only whether it changed, so a missing one has a word."""
        row = self.state.rows.get(task)
        found = [output.sha256 for output in row.outputs if output.path == path] if row else []
        return found[0] if found else "not built"

    def outputs(self, tasks: Iterable[str]) -> str:
        """One digest over all that some tasks published."""
        rows = {task: self.state.rows.get(task) for task in tasks}
        return digest_json(
            {
                task: [[output.path, output.sha256] for output in row.outputs] if row else None
                for task, row in rows.items()
            }
        )

    def sources_of(self, image: Image) -> dict[str, Path]:
        """The project's files that the image is compiled from, by the names that they have everywhere.

        Raises ClosureError for a kernel that cannot be cut out of its file.
        """
        kernel = image.variant.kernel
        with files.asked_by(kernel.key):
            if kernel.cuda is not None:
                return {name: self.manifest.root / name for name in self.cuda.source(image).files}
            closure = self.closure(image)
            return dict(zip(dict.fromkeys(module.file for module in closure.modules), closure.sources, strict=True))

    def declared(self, images: Sequence[Image]) -> list[Declared]:
        """What a child joins into records."""
        return [
            Declared(
                image=image,
                interface=self.interface(image),
                path=self.build / self.image_path(image),
                facts=self.build / self.facts_path(image),
            )
            for image in images
        ]

    def measured(self, images: Iterable[Image]) -> tuple[str, ...]:
        """The tasks after which the images and their facts are there, and are known to be fit for their targets."""
        return tuple(f"{kind}:{image.id}" for image in images for kind in ("compile", "validate"))

    def code(self, parts: tuple[str, ...], packages: tuple[str, ...]) -> dict[str, str]:
        """Digests of Kiln's own code, and of the Python packages of others, that a step runs."""
        if parts not in self._own_code:
            with files.asked_by(files.FOR_ALL):
                found = {"kiln": self.state.files.of_all(_files(parts))}
                found |= {name: self.state.files.of_all(_package(name)) for name in packages}
            self._own_code[parts] = found
        return self._own_code[parts]

    @cached_property
    def _own_code(self) -> dict[tuple[str, ...], dict[str, str]]:
        return {}


def _package(name: str) -> dict[str, Path]:
    """An installed package's files. Raises ToolchainError when it is not there."""
    folder = files.find_package(name)
    if folder is None:
        raise ToolchainError(
            f"the Python package {name} is not installed",
            remedy="install Kiln with its requirements: python3 tools/bootstrap.py, or pip install PATH/OF/KILN",
        )
    return {path.relative_to(folder).as_posix(): path for path in files.below(folder, ".py")}


def _files(parts: Iterable[str]) -> dict[str, Path]:
    package = Path(kiln.__file__).parent
    found: dict[str, Path] = {}
    for part in parts:
        path = package / part
        own = [path] if files.is_file(path) else files.below(path)
        found |= {file.relative_to(package).as_posix(): file for file in own}
    return found

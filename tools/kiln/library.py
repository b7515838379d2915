"""A library as it is built: kernels.yaml, its toolchain and its build folder, and what each step takes from them.

This is the parent's side of every step: names, paths and digests, nothing heavy. `compile_jobs` and
`package_jobs` are the child's side, and the rules of dodo.py are written with both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import kiln
from kiln import files
from kiln.binaries.expected import Expected
from kiln.binaries.facts import SUFFIX, Facts
from kiln.closure.slice import Closure
from kiln.closure.world import World
from kiln.compilers import request as requests
from kiln.compilers.request import CompileRequest
from kiln.digests import digest_json, plain
from kiln.engine.state import State
from kiln.errors import KilnError, ToolchainError
from kiln.interfaces import Interfaces
from kiln.manifest.dtypes import DTYPES, POINTER_SIZE
from kiln.manifest.interface import Interface
from kiln.manifest.loader import load
from kiln.manifest.model import Image, Kernel, Manifest
from kiln.packaging.c_names import bundle_symbol, image_symbol
from kiln.packaging.cmake_names import Package
from kiln.packaging.inventory import Inventory, inventory_of, is_bundled
from kiln.packaging.onnxruntime_format import warning
from kiln.packaging.record import Declared
from kiln.source_reader import StaticReader, world_of
from kiln.toolchain import refusals
from kiln.toolchain.native import native_targets
from kiln.toolchain.nvcc import find_fatbinary
from kiln.toolchain.targets import Target, find
from kiln.toolchain.tools import HostTools, Triton, find_triton

if TYPE_CHECKING:
    from kiln.cuda_images import CudaImages

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
    "source_reader.py",
    "cuda_images.py",
    "package_jobs.py",
    *_CHILDREN,
)
"""the parts that decide what packages look like: at least what `package_jobs` imports"""
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
            return {**self.cuda.inputs(image), **self._code(COMPILING, READERS)}
        return {
            **requests.components(self.request(image)),
            **self._compiler(image.target),
            **self._code(COMPILING, READERS),
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
            **self._code(COMPILING, READERS),
        }

    # -- packaging

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

    def objcopy_inputs(self, image: Image) -> dict[str, str]:
        """The image's bytes, its symbol and the tool."""
        return {
            "image": self.output(f"compile:{image.id}", self.image_path(image)),
            "symbol": image_symbol(self.manifest.library, image.variant.id, image.target),
            "library": self.manifest.library,
            "host": self.manifest.host,
            "objcopy": self._objcopy,
            **self._code(PACKAGING, TEMPLATES),
        }

    @cached_property
    def fatbinary(self) -> Path:
        """What makes fat binaries. Raises ToolchainError where there is none."""
        with files.asked_by(files.FOR_ALL):
            return find_fatbinary()

    def bundle_inputs(self, variant: str) -> dict[str, str]:
        """The images by content, their targets, the symbols, and the tools."""
        images = self.bundles[variant]
        return {
            "bundled": digest_json(
                {image.target: self.output(f"compile:{image.id}", self.image_path(image)) for image in images}
            ),
            "facts": digest_json([self.output(f"compile:{image.id}", self.facts_path(image)) for image in images]),
            "symbol": bundle_symbol(self.manifest.library, variant),
            "fatbinary": self._fatbinary,
            **self.compiler_inputs(),
            **self._code(PACKAGING, TEMPLATES),
        }

    @cached_property
    def _fatbinary(self) -> str:
        with files.asked_by(files.FOR_ALL):
            return self.state.files.of(self.fatbinary)

    @cached_property
    def _objcopy(self) -> str:
        with files.asked_by(files.FOR_ALL):
            return self.state.files.of(self.host_tools.objcopy)

    def package_inputs(self, images: Sequence[Image]) -> dict[str, str]:
        """The records of some images: their facts joined with their declarations."""
        return {
            "facts": digest_json([self.output(f"compile:{image.id}", self.facts_path(image)) for image in images]),
            "declarations": digest_json([[image.target, self.declaration(image)] for image in images]),
            "library": self.manifest.library,
            # The order of the images does not tell that of the targets where no variant is built for all of them.
            "targets": ", ".join(sorted({image.target for image in images}, key=self.manifest.targets.index)),
            "version": self.version,
            **self._code(PACKAGING, TEMPLATES),
        }

    def crate_inputs(self) -> dict[str, str]:
        """The records of all images, and what the crate's Cargo.toml says."""
        return {
            **self.package_inputs(self.images),
            **{f"crate.{name}": text for name, text in self.manifest.crate.items()},
        }

    def launch_inputs(self, images: Sequence[Image]) -> dict[str, str]:
        """The same for what is launched, which says of an image only what parameters it has.

        So an edit that changes a kernel's code and nothing around it leaves launches as they are.
        """
        declared = {name: digest for name, digest in self.package_inputs(images).items() if name != "facts"}
        return {
            **declared,
            "parameters": digest_json([self.parameters(image) for image in images]),
            "fat binaries": ", ".join(variant for variant, _ in inventory_of(images).bundles),
        }

    def parameters(self, image: Image) -> object:
        """The parameters of an image, as plain data; a word where it is not built, or its facts cannot be read."""
        if self.state.rows.get(f"compile:{image.id}") is None:
            return "not built"
        try:
            # As with ONNX Runtime's warning: what is built is no file that a build goes by.
            facts = Facts.load(self.build / self.facts_path(image))
        except (OSError, ValueError):
            return "damaged"
        return [facts.parameter_bytes, plain(facts.parameters)]

    def compiler_inputs(self) -> dict[str, str]:
        """The host's C compiler."""
        return {"host": self.manifest.host, **self.host_tools.compiler_components(self.state.files)}

    def table_inputs(self, inventory: Inventory) -> dict[str, str]:
        """Which images, variants and groups there are, and Kiln's templates and runtime."""
        return {
            "images": digest_json([list(name) for name in inventory.images]),
            "groups": digest_json([[group, list(variants)] for group, variants in inventory.groups]),
            "library": self.manifest.library,
            **self._code(PACKAGING, TEMPLATES),
        }

    def archive_inputs(self, tasks: Iterable[str], members: Sequence[str]) -> dict[str, str]:
        """The objects by content, the member list, and the tool."""
        return {
            "objects": self.outputs(tasks),
            "members": digest_json(list(members)),
            "ar": self.state.files.of(self.host_tools.ar),
            **self._code(PACKAGING, TEMPLATES),
        }

    @property
    def cmake_package(self) -> Package:
        """What CMake and pkg-config are told."""
        manifest = self.manifest
        return Package(library=manifest.library, targets=manifest.targets, host=manifest.host, version=self.version)

    def cmake_inputs(self) -> dict[str, str]:
        """That, and the templates."""
        return {
            "library": self.manifest.library,
            "targets": ", ".join(self.manifest.targets),
            "host": self.manifest.host,
            "version": self.version,
            **self._code(PACKAGING, TEMPLATES),
        }

    @property
    def debug_sources(self) -> dict[str, Path]:
        """The project's files that images with line tables are compiled from, by the names that they have everywhere.

        Those of a kernel that cannot be cut out of its file are left out: its images tell why.
        """
        return {name: path for sources in self._debug_sources.values() for name, path in sources.items()}

    @cached_property
    def _debug_sources(self) -> dict[str, dict[str, Path]]:
        """By kernel."""
        found: dict[str, dict[str, Path]] = {}
        for image in self.images:
            kernel = image.variant.kernel
            if not kernel.debug:
                continue
            own = found.setdefault(kernel.key, {})
            with files.asked_by(kernel.key), suppress(KilnError):
                if kernel.cuda is not None:
                    own |= {name: self.manifest.root / name for name in self.cuda.source(image).files}
                else:
                    closure = self.closure(image)
                    own |= zip(dict.fromkeys(module.file for module in closure.modules), closure.sources, strict=True)
        return found

    def source_inputs(self) -> dict[str, str]:
        """These files, and where they go."""
        digests: dict[str, str] = {}
        for kernel, sources in self._debug_sources.items():
            with files.asked_by(kernel):
                digests |= {name: self.state.files.of(path) for name, path in sources.items()}
        return {
            "sources": digest_json(digests),
            "library": self.manifest.library,
            **self._code(PACKAGING, TEMPLATES),
        }

    def onnxruntime_inputs(self) -> dict[str, str]:
        """The records of what may go to ONNX Runtime, what of it is meant, and the tools."""
        declared = self.manifest.onnxruntime
        kernels = declared.kernels if declared is not None else ()
        paths = self.onnxruntime_bundles
        bundles = {variant: self.output(f"bundle:{variant}", path) for variant, path in paths.items()}
        return {
            **({"bundles": digest_json(bundles)} if bundles else {}),
            **self.package_inputs(self.onnxruntime_images),
            **self.compiler_inputs(),
            "ar": self.state.files.of(self.host_tools.ar),
            "onnxruntime": ", ".join(kernels) if kernels is not None else "those that it can launch",
        }

    def onnxruntime_warning(self) -> str | None:
        """What ONNX Runtime cannot launch of that; to be asked when the images are built."""
        declared = self.manifest.onnxruntime
        # What is built is no file that a build goes by: the inputs have its digests.
        facts: dict[str, list[Facts]] = {}
        for image in self.onnxruntime_images:
            facts.setdefault(image.variant.id, []).append(Facts.load(self.build / self.facts_path(image)))
        return warning(facts, listed=declared is not None and declared.kernels is not None)

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

    def declaration(self, image: Image) -> str:
        """Digest of all that packages say of a variant, whatever it is built for."""
        variant = image.variant
        key = (variant.id, repr(self.interface(image)))
        if key not in self._declarations:
            kernel = variant.kernel
            if kernel.key not in self._kernels:
                # Tests and tuning read the first three, images are held against budgets, places are for messages, and
                # variants and images are made of the rest: no package says them.
                said = dataclasses.replace(
                    kernel,
                    tolerance={},
                    reference=None,
                    problems=(),
                    axes={},
                    blocks=(),
                    rows=(),
                    exclude=(),
                    targets=(),
                    budgets={},
                    # What they change, facts say.
                    entry_names="function",
                    debug=False,
                    # A variant has a fat binary or none; images do not know.
                    bundle="separate",
                    positions={},
                )
                self._kernels[kernel.key] = digest_json(plain(said))
            own = {field.name: getattr(variant, field.name) for field in dataclasses.fields(variant)}
            own |= {"kernel": self._kernels[kernel.key], "interface": self.interface(image), "budgets": None}
            self._declarations[key] = digest_json(plain(own))
        return self._declarations[key]

    @cached_property
    def _declarations(self) -> dict[tuple[str, str], str]:
        return {}

    @cached_property
    def _kernels(self) -> dict[str, str]:
        return {}

    def _code(self, parts: tuple[str, ...], packages: tuple[str, ...]) -> dict[str, str]:
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

"""A library as it is built: kernels.yaml, its toolchain and its build folder, and what each step takes from them.

This is the parent's side of every step: names, paths and digests, nothing heavy. `jobs` is the child's side, and the
rules of dodo.py are written with both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import kiln
from kiln.binaries.expected import Expected
from kiln.binaries.facts import SUFFIX
from kiln.closure.bind import bind
from kiln.closure.slice import Closure, cut
from kiln.compilers import request as requests
from kiln.compilers.request import CompileRequest
from kiln.digests import digest_json, plain
from kiln.engine.state import State
from kiln.manifest.dtypes import DTYPES, POINTER_SIZE
from kiln.manifest.interface import Interface
from kiln.manifest.loader import load
from kiln.manifest.model import Image, Kernel, Manifest
from kiln.packaging.record import Source
from kiln.toolchain.targets import Target, find
from kiln.toolchain.tools import HostTools, Triton, find_host_tools, find_triton

COMPILING = ("closure", "compilers", "binaries", "toolchain", "jobs.py")
"""the parts of Kiln that decide what an image and its facts are"""
PACKAGING = ("manifest", "binaries", "packaging", "jobs.py")
"""the parts of Kiln that decide what a package looks like"""


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
        loaded = load(manifest)
        for name in loaded.targets:
            find(name, loaded.target_positions[name])
        return cls(manifest=loaded, build=build, state=state)

    # -- names

    @property
    def version(self) -> str:
        """Of the packages, as semantic versioning has it: kernels.yaml says none yet, and this one says so."""
        return "0.0.0"

    @property
    def images(self) -> tuple[Image, ...]:
        """Every image, in order of declaration."""
        return self.manifest.images

    def images_for(self, target: str) -> tuple[Image, ...]:
        """The images of one target."""
        return tuple(image for image in self.images if image.target == target)

    def target(self, image: Image) -> Target:
        """What the image is built for, with its limits."""
        return find(image.target, self.manifest.target_positions[image.target])

    def image_path(self, image: Image) -> str:
        """The image's file, relative to the build folder: images/sm_90a/softmax_fp16_2048.cubin."""
        return f"images/{image.target}/{image.variant.id}{SUFFIX[self.target(image).kind]}"

    def facts_path(self, image: Image) -> str:
        """The file of the image's facts, beside it."""
        return f"images/{image.target}/{image.variant.id}.facts.json"

    def report_path(self, image: Image) -> str:
        """What `validate` writes."""
        return f"reports/{image.target}/{image.variant.id}.json"

    def origin(self, kernel: Kernel) -> tuple[str, ...]:
        """Where people declared a kernel."""
        return (str(kernel.position), f"{kernel.source_name} ({kernel.function})")

    def sources(self, images: Iterable[Image]) -> tuple[Path, ...]:
        """The files that people edit, for a listing."""
        return (self.manifest.path, *dict.fromkeys(image.variant.kernel.source for image in images))

    # -- compiling

    @cached_property
    def triton(self) -> Triton:
        """The installed Triton. Raises ToolchainError when there is none."""
        return find_triton()

    @cached_property
    def _closures(self) -> dict[str, Closure]:
        return {}

    @cached_property
    def _interfaces(self) -> dict[str, Interface]:
        return {}

    def closure(self, kernel: Kernel) -> Closure:
        """The slice that the kernel is compiled from; cut once a build. Raises ClosureError."""
        if kernel.key not in self._closures:
            where = kernel.positions.get("function", kernel.position)
            self._closures[kernel.key] = cut(kernel.source, kernel.function, root=self.manifest.root, where=where)
        return self._closures[kernel.key]

    def interface(self, image: Image) -> Interface:
        """What a caller of the image's variant passes. Raises ManifestError when signature and function disagree."""
        variant = image.variant
        if variant.id not in self._interfaces:
            self._interfaces[variant.id] = bind(variant, self.closure(variant.kernel))
        return self._interfaces[variant.id]

    def request(self, image: Image) -> CompileRequest:
        """What the compiler is asked for."""
        kernel = image.variant.kernel
        return requests.compile_request(image, self.target(image), self.closure(kernel), self.interface(image))

    def compile_inputs(self, image: Image) -> dict[str, str]:
        """Everything that can change the image: what is compiled, the compilers by content, and Kiln's own part."""
        return {
            **requests.components(self.request(image)),
            **self._compiler(image.target),
            "entry": image.variant.kernel.function,
            "kiln": self._own_code(COMPILING),
        }

    def _compiler(self, target: str) -> dict[str, str]:
        if target not in self._compilers:
            found = find(target, self.manifest.target_positions[target])
            self._compilers[target] = self.triton.components(found, self.state.files)
        return self._compilers[target]

    @cached_property
    def _compilers(self) -> dict[str, dict[str, str]]:
        return {}

    def expected(self, image: Image) -> Expected:
        """What the image is held against."""
        arguments = self.interface(image).arguments
        return Expected(
            image_id=image.id,
            target=self.target(image),
            entry=image.variant.kernel.function,
            parameters=tuple(
                POINTER_SIZE if argument.type.startswith("*") else DTYPES[argument.type].size
                for argument in arguments
                if argument.promise != 1
            ),
            warps=int(image.variant.options["num_warps"]),
        )

    def validate_inputs(self, image: Image) -> dict[str, str]:
        """The facts and what they are held against."""
        return {
            "facts": self.output(f"compile:{image.id}", self.facts_path(image)),
            "expected": digest_json(plain(self.expected(image))),
            "kiln": self._own_code(COMPILING),
        }

    # -- packaging

    @cached_property
    def host_tools(self) -> HostTools:
        """objcopy, ar and cc of the manifest's host. Raises ToolchainError naming the package of a missing one."""
        return find_host_tools(self.manifest.host)

    def output(self, task: str, path: str) -> str:
        """Digest of an output as it was published; tells only whether it changed, so a missing one has a word."""
        row = self.state.rows.get(task)
        found = [output.sha256 for output in row.outputs if output.path == path] if row and row.valid else []
        return found[0] if found else "not built"

    def outputs(self, tasks: Iterable[str]) -> str:
        """One digest over all that some tasks published."""
        rows = {task: self.state.rows.get(task) for task in tasks}
        return digest_json(
            {
                task: [[output.path, output.sha256] for output in row.outputs] if row and row.valid else None
                for task, row in rows.items()
            }
        )

    def objcopy_inputs(self, image: Image) -> dict[str, str]:
        """The image's bytes, its symbol and the tool."""
        return {
            "image": self.output(f"compile:{image.id}", self.image_path(image)),
            "library": self.manifest.library,
            "host": self.manifest.host,
            "objcopy": self.state.files.of(self.host_tools.objcopy),
            "kiln": self._own_code(PACKAGING),
        }

    def package_inputs(self, images: Sequence[Image]) -> dict[str, str]:
        """The records of some images: their facts joined with their declarations."""
        return {
            "facts": digest_json([self.output(f"compile:{image.id}", self.facts_path(image)) for image in images]),
            "declarations": digest_json(
                [plain(image) | {"interface": plain(self.interface(image))} for image in images]
            ),
            "library": self.manifest.library,
            "version": self.version,
            "kiln": self._own_code(PACKAGING),
        }

    def compiler_inputs(self) -> dict[str, str]:
        """The host's C compiler."""
        return {"host": self.manifest.host, "cc": self.state.files.of(self.host_tools.cc)}

    def table_inputs(self, names: Sequence[tuple[str, str]]) -> dict[str, str]:
        """Which images there are, and Kiln's templates and runtime."""
        return {
            "images": digest_json([list(name) for name in names]),
            "library": self.manifest.library,
            "kiln": self._own_code(PACKAGING),
        }

    def archive_inputs(self, tasks: Iterable[str], members: Sequence[str]) -> dict[str, str]:
        """The objects by content, the member list, and the tool."""
        return {
            "objects": self.outputs(tasks),
            "members": digest_json(list(members)),
            "ar": self.state.files.of(self.host_tools.ar),
            "kiln": self._own_code(PACKAGING),
        }

    def record_sources(self, images: Sequence[Image]) -> list[Source]:
        """What a child joins into records."""
        return [
            Source(
                image=image,
                interface=self.interface(image),
                path=self.build / self.image_path(image),
                facts=self.build / self.facts_path(image),
            )
            for image in images
        ]

    def _own_code(self, parts: tuple[str, ...]) -> str:
        if parts not in self._own_digests:
            self._own_digests[parts] = self.state.files.of_all(_files(parts))
        return self._own_digests[parts]

    @cached_property
    def _own_digests(self) -> dict[tuple[str, ...], str]:
        return {}


def _files(parts: Iterable[str]) -> dict[str, Path]:
    package = Path(kiln.__file__).parent
    found: dict[str, Path] = {}
    for part in parts:
        path = package / part
        files = [path] if path.is_file() else sorted(path.rglob("*"))
        found |= {
            file.relative_to(package).as_posix(): file
            for file in files
            if file.is_file() and "__pycache__" not in file.parts
        }
    return found

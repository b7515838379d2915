"""What the steps of packages go by: digests of records, declarations, objects and tools, as a library asks for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kiln import files
from kiln.binaries.facts import Facts
from kiln.digests import digest_json, plain
from kiln.errors import KilnError
from kiln.library import PACKAGING, TEMPLATES, Library
from kiln.manifest.model import Image, Manifest
from kiln.packaging.c_names import bundle_symbol, image_symbol
from kiln.packaging.cmake_names import Package
from kiln.packaging.inventory import Inventory, inventory_of
from kiln.packaging.onnxruntime_format import warning
from kiln.toolchain.nvcc import find_fatbinary


@dataclass(frozen=True, kw_only=True)
class Packages:
    """The packages of one library."""

    library: Library

    @property
    def _manifest(self) -> Manifest:
        return self.library.manifest

    def _bytes(self, image: Image) -> str:
        """Digest of an image as it was published."""
        return self.library.output(f"compile:{image.id}", self.library.image_path(image))

    def _facts(self, image: Image) -> str:
        """Digest of its facts."""
        return self.library.output(f"compile:{image.id}", self.library.facts_path(image))

    def objcopy_inputs(self, image: Image) -> dict[str, str]:
        """The image's bytes, its symbol and the tool."""
        return {
            "image": self._bytes(image),
            "symbol": image_symbol(self._manifest.library, image.variant.id, image.target),
            "library": self._manifest.library,
            "host": self._manifest.host,
            "objcopy": self._objcopy,
            **self.library.code(PACKAGING, TEMPLATES),
        }

    @cached_property
    def fatbinary(self) -> Path:
        """What makes fat binaries. Raises ToolchainError where there is none."""
        with files.asked_by(files.FOR_ALL):
            return find_fatbinary()

    def bundle_inputs(self, variant: str) -> dict[str, str]:
        """The images by content, their targets, the symbols, and the tools."""
        images = self.library.bundles[variant]
        return {
            "bundled": digest_json({image.target: self._bytes(image) for image in images}),
            "facts": digest_json([self._facts(image) for image in images]),
            "symbol": bundle_symbol(self._manifest.library, variant),
            "fatbinary": self._fatbinary,
            **self.compiler_inputs(),
            **self.library.code(PACKAGING, TEMPLATES),
        }

    @cached_property
    def _fatbinary(self) -> str:
        with files.asked_by(files.FOR_ALL):
            return self.library.state.files.of(self.fatbinary)

    @cached_property
    def _objcopy(self) -> str:
        with files.asked_by(files.FOR_ALL):
            return self.library.state.files.of(self.library.host_tools.objcopy)

    def package_inputs(self, images: Sequence[Image]) -> dict[str, str]:
        """The records of some images: their facts joined with their declarations."""
        return {
            "facts": digest_json([self._facts(image) for image in images]),
            "declarations": digest_json([[image.target, self.declaration(image)] for image in images]),
            "library": self._manifest.library,
            # The order of the images does not tell that of the targets where no variant is built for all of them.
            "targets": ", ".join(sorted({image.target for image in images}, key=self._manifest.targets.index)),
            "version": self.library.version,
            **self.library.code(PACKAGING, TEMPLATES),
        }

    def crate_inputs(self) -> dict[str, str]:
        """The records of all images, and what the crate's Cargo.toml says."""
        return {
            **self.package_inputs(self.library.images),
            **{f"crate.{name}": text for name, text in self._manifest.crate.items()},
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
        if self.library.state.rows.get(f"compile:{image.id}") is None:
            return "not built"
        try:
            # As with ONNX Runtime's warning: what is built is no file that a build goes by.
            facts = Facts.load(self.library.build / self.library.facts_path(image))
        except (OSError, ValueError):
            return "damaged"
        return [facts.parameter_bytes, plain(facts.parameters)]

    def compiler_inputs(self) -> dict[str, str]:
        """The host's C compiler."""
        return {"host": self._manifest.host, **self.library.host_tools.compiler_components(self.library.state.files)}

    def table_inputs(self, inventory: Inventory) -> dict[str, str]:
        """Which images, variants and groups there are, and Kiln's templates and runtime."""
        return {
            "images": digest_json([list(name) for name in inventory.images]),
            "groups": digest_json([[group, list(variants)] for group, variants in inventory.groups]),
            "library": self._manifest.library,
            **self.library.code(PACKAGING, TEMPLATES),
        }

    def archive_inputs(self, tasks: Iterable[str], members: Sequence[str]) -> dict[str, str]:
        """The objects by content, the member list, and the tool."""
        return {
            "objects": self.library.outputs(tasks),
            "members": digest_json(list(members)),
            "ar": self.library.state.files.of(self.library.host_tools.ar),
            **self.library.code(PACKAGING, TEMPLATES),
        }

    @property
    def cmake_package(self) -> Package:
        """What CMake and pkg-config are told."""
        manifest = self._manifest
        return Package(
            library=manifest.library, targets=manifest.targets, host=manifest.host, version=self.library.version
        )

    def cmake_inputs(self) -> dict[str, str]:
        """That, and the templates."""
        return {
            "library": self._manifest.library,
            "targets": ", ".join(self._manifest.targets),
            "host": self._manifest.host,
            "version": self.library.version,
            **self.library.code(PACKAGING, TEMPLATES),
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
        for image in self.library.images:
            kernel = image.variant.kernel
            if not kernel.debug:
                continue
            own = found.setdefault(kernel.key, {})
            with suppress(KilnError):
                own |= self.library.sources_of(image)
        return found

    def source_inputs(self) -> dict[str, str]:
        """These files, and where they go."""
        digests: dict[str, str] = {}
        for kernel, sources in self._debug_sources.items():
            with files.asked_by(kernel):
                digests |= {name: self.library.state.files.of(path) for name, path in sources.items()}
        return {
            "sources": digest_json(digests),
            "library": self._manifest.library,
            **self.library.code(PACKAGING, TEMPLATES),
        }

    def onnxruntime_inputs(self) -> dict[str, str]:
        """The records of what may go to ONNX Runtime, what of it is meant, and the tools."""
        declared = self._manifest.onnxruntime
        kernels = declared.kernels if declared is not None else ()
        paths = self.library.onnxruntime_bundles
        bundles = {variant: self.library.output(f"bundle:{variant}", path) for variant, path in paths.items()}
        return {
            **({"bundles": digest_json(bundles)} if bundles else {}),
            **self.package_inputs(self.library.onnxruntime_images),
            **self.compiler_inputs(),
            "ar": self.library.state.files.of(self.library.host_tools.ar),
            "onnxruntime": ", ".join(kernels) if kernels is not None else "those that it can launch",
        }

    def onnxruntime_warning(self) -> str | None:
        """What ONNX Runtime cannot launch of that; to be asked when the images are built."""
        declared = self._manifest.onnxruntime
        # What is built is no file that a build goes by: the inputs have its digests.
        facts: dict[str, list[Facts]] = {}
        for image in self.library.onnxruntime_images:
            facts.setdefault(image.variant.id, []).append(
                Facts.load(self.library.build / self.library.facts_path(image))
            )
        return warning(facts, listed=declared is not None and declared.kernels is not None)

    def declaration(self, image: Image) -> str:
        """Digest of all that packages say of a variant, whatever it is built for."""
        variant = image.variant
        key = (variant.id, repr(self.library.interface(image)))
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
            own |= {"kernel": self._kernels[kernel.key], "interface": self.library.interface(image), "budgets": None}
            self._declarations[key] = digest_json(plain(own))
        return self._declarations[key]

    @cached_property
    def _declarations(self) -> dict[tuple[str, str], str]:
        return {}

    @cached_property
    def _kernels(self) -> dict[str, str]:
        return {}

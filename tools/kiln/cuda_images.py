"""The parent's side of images in CUDA C++: sources, interfaces, requests and inputs, as `library` asks for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kiln.closure.bind_cuda import bind_cuda
from kiln.closure.cuda_source import CudaFiles, CudaSource
from kiln.compilers import cuda_request as requests
from kiln.compilers.cuda_request import CudaRequest
from kiln.compilers.nvcc_found import HEADERS, INCLUDE, LOOKUPS
from kiln.digests import FileDigests
from kiln.engine.step import Found
from kiln.files import FOR_ALL, Memo, asked_by
from kiln.manifest.interface import Interface
from kiln.manifest.model import Image, Manifest
from kiln.toolchain.nvcc import Nvcc, find_nvcc
from kiln.toolchain.targets import find

MISSING = "missing"
"""in place of the digest of a file that is not there any more"""


@dataclass(frozen=True, kw_only=True)
class CudaImages:
    """The images in CUDA C++ of one manifest. nvcc is looked for when the first of them asks for it."""

    manifest: Manifest
    digests: FileDigests

    environment = requests.ENVIRONMENT
    """what nvcc finds in its environment"""

    @cached_property
    def nvcc(self) -> Nvcc:
        """Raises ToolchainError where there is none."""
        with asked_by(FOR_ALL):
            return find_nvcc()

    def source(self, image: Image) -> CudaSource:
        """The files that the image can be compiled from. Raises ClosureError."""
        kernel = image.variant.kernel
        if kernel.key not in self._sources:
            assert kernel.cuda is not None
            where = kernel.positions.get("function", kernel.position)
            texts = {name: value for name, value in kernel.cuda.defines.items() if isinstance(value, str)}
            self._sources[kernel.key] = self._files.source(
                kernel.source, kernel.function, where, texts, as_written=kernel.debug
            )
        return self._sources[kernel.key]

    def interface(self, image: Image) -> Interface:
        """What a caller of the image's variant passes, on every target. Raises ManifestError."""
        variant = image.variant
        if variant.id not in self._interfaces:
            self._interfaces[variant.id] = bind_cuda(variant, self.source(image))
        return self._interfaces[variant.id]

    def request(self, image: Image) -> CudaRequest:
        """What nvcc is asked for."""
        target = find(image.target, self.manifest.target_positions[image.target])
        return requests.cuda_request(image, target, self.source(image), self.interface(image), self.nvcc)

    def inputs(self, image: Image) -> dict[str, str]:
        """What is known to change the image before nvcc runs: the source, what is asked for, and each tool."""
        return {**requests.components(self.request(image)), **self._tools}

    def found(self, image: Image, found: Found) -> dict[str, str]:
        """The digests, as this build sees the files, of what a run of nvcc read besides; see compilers.nvcc_found."""
        path, source = image.variant.kernel.source, self.source(image)
        digests: dict[str, str] = {}
        for name, names in found.items():
            if name == HEADERS:
                digests[name] = self._headers(tuple(names))
            elif name == LOOKUPS:
                digests[name] = self._files.lookups(path, names)
            elif name.startswith(INCLUDE):
                digests[name] = source.digests.get(name.removeprefix(INCLUDE), MISSING)
        return digests

    def leads(self, image: Image, names: Sequence[str]) -> dict[str, list[tuple[str, list[str]]]]:
        """By name of a file, where each include of it leads; see closure.cuda_source."""
        return self._files.leads(image.variant.kernel.source, names)

    @cached_property
    def _tools(self) -> Mapping[str, str]:
        with asked_by(FOR_ALL):
            return self.nvcc.components(self.digests)

    def _headers(self, names: Sequence[str]) -> str:
        """One digest over headers of toolkit and host compiler, which hundreds of images have in common."""
        return self._known_headers.get(tuple(names), lambda: self._digest_of(names))

    def _digest_of(self, names: Sequence[str]) -> str:
        paths = {name: self.nvcc.headers / name[1:-1] if name[:1] == "<" else Path(name) for name in names}
        try:
            return self.digests.of_all(paths)
        except OSError:
            return MISSING

    @cached_property
    def _files(self) -> CudaFiles:
        return CudaFiles(self.manifest.root, tuple(self.manifest.roots.values()))

    @cached_property
    def _sources(self) -> dict[str, CudaSource]:
        return {}

    @cached_property
    def _interfaces(self) -> dict[str, Interface]:
        return {}

    @cached_property
    def _known_headers(self) -> Memo[tuple[str, ...], str]:
        return Memo()

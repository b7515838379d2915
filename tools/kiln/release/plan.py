"""What a release is to be made of: plain data that the parent of a build knows, and its child makes the release of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kiln.engine.step import Built
from kiln.manifest.model import Budget
from kiln.packaging.record import Declared
from kiln.release.names import Level, Names
from kiln.toolchain.identity import Tool


@dataclass(frozen=True, kw_only=True)
class Released:
    """A file of the build that is released."""

    path: str
    """in the release"""
    built: Built | Path
    """the file: in a child its path"""
    sha256: str
    """as its step published it"""
    level: Level
    step: str
    """the task that made it: `compile:softmax_fp16_2048@sm_90a`"""

    @property
    def file(self) -> Path:
        """The file, in a child."""
        assert isinstance(self.built, Path)
        return self.built


@dataclass(frozen=True, kw_only=True)
class Source:
    """A file that the library is made of."""

    name: str
    """what it is called on every machine: `kernels.yaml`, `kernels/softmax.py`, `site-packages/liger_kernel/x.py`"""
    sha256: str


@dataclass(frozen=True, kw_only=True)
class ReleasePlan:
    """All that a release says and holds. It has no time, and no path but those of the files in a build."""

    library: str
    version: str
    part: tuple[str, ...] = ()
    """the targets of a release that leaves others of the library out"""
    host: str
    targets: tuple[str, ...]
    """in order of declaration"""
    manifest: str
    """the name of kernels.yaml among the sources"""
    sources: tuple[Source, ...]
    """kernels.yaml with what it includes, then all that a kernel or a package is made of"""
    files: tuple[Released, ...]
    """in any order; the documents of `names.DOCUMENTS` are added to them"""
    declared: tuple[Declared, ...]
    """every image, in order of declaration"""
    tools: tuple[Tool, ...]
    """all that run, in order"""
    budgets: Mapping[str, Budget] = field(default_factory=dict)
    """target -> the most bytes that its images may take together"""
    kiln_version: str
    kiln_sha256: str
    """over Kiln's own code"""
    is_locked: bool
    """whether the compilers are those of kiln.lock; they may be others where somebody asked for that"""

    @property
    def names(self) -> Names:
        """What the release is called."""
        return Names(library=self.library, version=self.version, part=self.part)

"""What a release is called, what is in it, and which of that is the same on every machine: names alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from kiln.errors import ReleaseError

FOLDER = "release"
"""of all releases, in the build folder"""

MANIFEST = "manifest.json"
SUMS = "SHA256SUMS"
BOM = "bom.cdx.json"
BUILDINFO = "buildinfo.json"
DOCUMENTS = (MANIFEST, SUMS, BOM, BUILDINFO)
"""what stands at the top of a release, and is about it"""

Level = Literal["device", "host"]

LEVELS: dict[Level, str] = {
    "device": "the same bytes on whatever machine it is built: they follow from the sources, from Kiln and from the "
    "compilers for GPUs that are locked",
    "host": "the same bytes with the same Kiln, compiler, assembler, archiver and objcopy of the host, and Python "
    "packages, all of which buildinfo.json names",
}
"""what a file can be relied on for"""

PACKAGES = {
    "cyclonedx-python-lib": "cyclonedx",
    "jinja2": "jinja2",
    "markupsafe": "markupsafe",
    "msgpack": "msgpack",
    "py-serializable": "py_serializable",
    "pyelftools": "elftools",
    "pyyaml": "yaml",
}
"""Python packages of others that what is released is rendered, read and checked with -> the module that each brings"""

_HOST_DOCUMENTS = frozenset({SUMS, BOM, BUILDINFO})
_LEFT_OUT = ("objects/", "reports/")
"""what archives are made of, and what images were held against"""
_FACTS = ".facts.json"


@dataclass(frozen=True, kw_only=True)
class Names:
    """The files of one release, relative to the build folder."""

    library: str
    version: str
    part: tuple[str, ...] = ()
    """the targets of a release that leaves others of the library out"""

    @property
    def stem(self) -> str:
        """`kernels-1.2.0`, `kernels-1.2.0-sm_90a`: what all names begin with, and the folder in the tar."""
        return "-".join((self.library, self.version, *self.part))

    @property
    def folder(self) -> str:
        """What is released, as files."""
        return f"{FOLDER}/{self.stem}"

    @property
    def tar(self) -> str:
        """The same, as one file."""
        return f"{FOLDER}/{self.stem}.tar"

    @property
    def statement(self) -> str:
        """Of what and with what the tar was made."""
        return f"{FOLDER}/{self.stem}.intoto.json"

    @property
    def envelope(self) -> str:
        """The statement, signed."""
        return f"{FOLDER}/{self.stem}.dsse.json"

    @property
    def sigstore(self) -> str:
        """The statement, signed without a key of one's own."""
        return f"{FOLDER}/{self.stem}.sigstore.json"

    @property
    def sizes(self) -> str:
        """How large what is, for people."""
        return f"{FOLDER}/{self.stem}.sizes.txt"

    def outputs(self, paths: Iterable[str]) -> tuple[str, ...]:
        """What the step `release` makes, relative to the build folder, of the files that a plan puts at these paths."""
        inside = (f"{self.folder}/{path}" for path in sorted((*paths, *DOCUMENTS)))
        return (*inside, self.tar, self.statement, self.sizes)


def placed(output: str, library: str) -> str | None:
    """Where a file of the build, by its path there, goes in a release; None for what is in none.

    Headers, archives and what belongs to them lie where `doit install` puts them below a prefix.
    """
    if output.startswith(_LEFT_OUT) or output.endswith(_FACTS):
        return None
    return f"share/{library}/{output}" if output.startswith("src/") else output


def level_of(path: str) -> Level:
    """On what the bytes of a file depend, by its path in a release."""
    return "host" if path in _HOST_DOCUMENTS or path.endswith(".a") else "device"


def check_paths(paths: Iterable[str]) -> None:
    """Raise ReleaseError for paths that a release cannot hold on every system, and for two that are in each other's
    way."""
    known: set[str] = set()
    for path in paths:
        parts = path.split("/")
        if not path.isascii() or not path.isprintable() or "\\" in path or {"", ".", ".."} & set(parts):
            raise ReleaseError(
                "a release cannot hold a file of this name",
                where=ascii(path),
                expected="a relative path of printable ASCII, without a backslash",
                remedy="rename it",
            )
        if path in known:
            raise ReleaseError("two files of a release have one path", where=path, remedy="rename one of them")
        known.add(path)
    for path in known:
        above = path.rpartition("/")[0]
        while above:
            if above in known:
                raise ReleaseError(
                    "a release has a file and a folder of one name", where=above, remedy="rename one of them"
                )
            above = above.rpartition("/")[0]

"""show: what an image file or a fat binary says of itself, as plain data for programs and as lines for people."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kiln.binaries.checks import require
from kiln.binaries.elf import DAMAGED
from kiln.binaries.facts import Facts
from kiln.binaries.fatbin import MAGIC, Entry, read_fatbin
from kiln.binaries.inspect import Inspected, check_against, inspect
from kiln.errors import ImageError
from kiln.toolchain.ptx_isa import oldest_driver

_LARGEST = 1 << 28
"""bytes: what is larger is no image, and is not read"""
_NAME_AN_IMAGE = "name an image, such as build/images/sm_90a/softmax_fp16_2048.cubin"


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One image file, read. `facts` are those that stand beside it and agree with it; None where there are none."""

    path: Path
    size: int
    sha256: str
    inspected: Inspected
    facts: Facts | None

    def plain(self) -> dict[str, Any]:
        """For JSON. Sizes are bytes; what the image does not say is null."""
        reading = asdict(self.inspected.reading)
        isa = self.inspected.reading.ptx_isa
        return {
            "file": str(self.path),
            "kind": self.inspected.kind,
            "size": self.size,
            "sha256": self.sha256,
            **reading,
            "oldest_driver": oldest_driver(isa) if isa else None,
            "facts": str(facts_path(self.path)) if self.facts else None,
        }

    def lines(self) -> list[str]:
        """For people: the file, then a line for each thing that the image says."""
        return [str(self.path), *(f"  {label:<17}{text}" for label, text in self._rows())]

    def _rows(self) -> Iterator[tuple[str, str]]:
        image = self.inspected.reading
        yield "kind", self.inspected.kind
        yield "size", _bytes(self.size)
        yield "sha256", self.sha256
        yield "arch", image.arch
        yield "entry", image.entry
        yield "parameters", f"{len(image.parameters)}, in a buffer of {_bytes(image.parameter_bytes)}"
        for index, span in enumerate(image.parameters):
            role = f", {self.facts.parameters[index].role}" if self.facts else ""
            yield f"  {index}", f"{_bytes(span.size)} at offset {span.offset}{role}"
        counted: Mapping[str, int | None] = {
            "threads": image.threads,
            "most threads": None if image.max_threads == image.threads else image.max_threads,
            "warp size": image.warp_size,
        }
        yield from ((label, f"{value}") for label, value in counted.items() if value is not None)
        if image.cluster is not None:
            yield "cluster", " x ".join(map(str, image.cluster)) + " blocks"
        yield "static shared", _bytes(image.shared_static)
        if image.registers is not None:
            yield "registers", f"{image.registers} a thread"
        if image.scalar_registers is not None:
            yield "scalar registers", f"{image.scalar_registers} a wave"
        local = {"spills": image.spills, "stack": image.stack}
        yield from ((label, f"{_bytes(value)} a thread") for label, value in local.items() if value is not None)
        if image.ptx_isa is not None:
            oldest = oldest_driver(image.ptx_isa)
            needs = f"which needs {oldest} or newer" if oldest else "newer than this Kiln knows"
            yield "PTX ISA", f"{image.ptx_isa}, {needs}"
        if image.tools:
            yield "made by", ", ".join(f"{tool} {version}" for tool, version in image.tools.items())
        yield "facts", f"{facts_path(self.path).name} agrees" if self.facts else f"no {facts_path(self.path).name}"


@dataclass(frozen=True, kw_only=True)
class ShownBundle:
    """A fat binary, read, with what each image in it says of itself."""

    path: Path
    size: int
    sha256: str
    images: tuple[tuple[Entry, Inspected], ...]

    def plain(self) -> dict[str, Any]:
        """For JSON. Sizes and offsets are bytes; what an image does not say is null."""
        images = [
            {"kind": entry.kind, "offset": entry.offset, "size": len(entry.data), **asdict(inspected.reading)}
            for entry, inspected in self.images
        ]
        return {
            "file": str(self.path),
            "kind": "fatbin",
            "size": self.size,
            "sha256": self.sha256,
            "images": images,
        }

    def lines(self) -> list[str]:
        """For people: the file, then a line for each image in it."""
        rows = [("kind", "fatbin"), ("size", _bytes(self.size)), ("sha256", self.sha256)]
        for entry, inspected in self.images:
            said = (
                f"{entry.kind} of {_bytes(len(entry.data))} at offset {entry.offset}, entry {inspected.reading.entry}"
            )
            rows.append((entry.arch, said))
        return [str(self.path), *(f"  {label:<17}{text}" for label, text in rows)]


def show(path: Path) -> Shown | ShownBundle:
    """Read an image file, and compare it with the facts beside it, `<name>.facts.json`, where there are any.

    Of a fat binary, each image is read. Raises ImageError naming the file: when it cannot be read, is neither, or is
    another than its facts say.
    """
    data = _read(path)
    if data.startswith(MAGIC):
        return _show_bundle(path, data)
    facts = _facts(facts_path(path))
    if facts is not None:
        require(check_against(data, facts), str(path))
    try:
        inspected = inspect(data)
    except ImageError as error:
        raise error.filled(where=str(path)) from error
    digest = hashlib.sha256(data).hexdigest()
    return Shown(path=path, size=len(data), sha256=digest, inspected=inspected, facts=facts)


def _show_bundle(path: Path, data: bytes) -> ShownBundle:
    try:
        images = tuple((entry, inspect(entry.data)) for entry in read_fatbin(data))
        for entry, inspected in images:
            if inspected.reading.arch != entry.arch:
                raise ImageError(
                    "an image in the fat binary is for another target than it says",
                    expected=entry.arch,
                    actual=inspected.reading.arch,
                    remedy=DAMAGED,
                )
    except ImageError as error:
        raise error.filled(where=str(path)) from error
    return ShownBundle(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest(), images=images)


def facts_path(image: Path) -> Path:
    """Where the facts of an image file stand."""
    return image.with_suffix(".facts.json")


def _read(path: Path) -> bytes:
    try:
        found = path.stat()
        if stat.S_ISREG(found.st_mode) and found.st_size <= _LARGEST:
            return path.read_bytes()
    except OSError as error:
        raise ImageError(
            f"the file cannot be read: {error.strerror}", where=str(path), remedy=_NAME_AN_IMAGE
        ) from error
    what = "a folder" if stat.S_ISDIR(found.st_mode) else _bytes(found.st_size) if found.st_size else "no plain file"
    raise ImageError(
        "this is no image", where=str(path), expected="a file with one image", actual=what, remedy=_NAME_AN_IMAGE
    )


def _facts(path: Path) -> Facts | None:
    if not path.exists():
        return None
    try:
        return Facts.from_json(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ImageError(
            "the facts beside the image cannot be read",
            where=str(path),
            expected="what a build of this Kiln wrote there",
            actual=str(error).splitlines()[0],
            remedy="build again, or look at the image in a folder of its own",
        ) from error


def _bytes(count: int) -> str:
    return f"{count} byte" + ("" if count == 1 else "s")

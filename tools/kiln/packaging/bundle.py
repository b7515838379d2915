"""Images of one variant -> a fat binary, and a host object of it, in which cubins have the symbols of their own.

The driver chooses among what is in it, by rules of its own. A launch needs to know which image that is, for threads,
shared memory and scratch memory are an image's own. The driver tells for which capability the code that it took was
written, be it a cubin or a PTX that it compiled. So images for one capability have to be launched alike, or are
refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from kiln.binaries.facts import Facts
from kiln.binaries.fatbin import Entry, Part, check_fatbin, read_fatbin
from kiln.errors import ImageError, PackagingError
from kiln.packaging import c_names
from kiln.packaging.c_compile import assemble_data
from kiln.packaging.host_tool import run_tool
from kiln.packaging.objcopy import ALIGNMENT
from kiln.stages import timed
from kiln.toolchain.targets import TARGETS

_BUNDLE = "bundle"
_OBJECT = "bundle.o"
_KINDS = {"cubin": "elf", "ptx": "ptx"}
"""kind of an image -> the program's word for it"""


@dataclass(frozen=True, kw_only=True)
class Bundled:
    """One image that goes into a fat binary."""

    target: str
    data: bytes = field(repr=False)
    facts: Facts


def check_alike(variant: str, images: Sequence[Bundled]) -> None:
    """Raise PackagingError unless a launch can tell what it needs of the image that the driver takes.

    All have one entry, for it is asked by name; and those for one capability are launched alike.
    """
    entries = {image.target: image.facts.entry for image in images}
    if len(set(entries.values())) > 1:
        raise _not_alike(variant, "the images have different entries, and a fat binary is asked for one", entries)
    for capability in dict.fromkeys(TARGETS[image.target].arch for image in images):
        own = [image for image in images if TARGETS[image.target].arch == capability]
        for what in differing([image.facts for image in own]):
            values = {image.target: _shown(getattr(image.facts, what)) for image in own}
            raise _not_alike(
                variant,
                f"the images for capability {capability} are not launched alike ({what}), and a driver does "
                "not tell which of them it takes",
                values,
            )


_LAUNCHED = (
    "parameters",
    "parameter_bytes",
    "threads",
    "cluster",
    "cooperative",
    "pdl",
    "shared_dynamic",
    "global_scratch_bytes",
    "global_scratch_align",
    "profile_scratch_bytes",
    "profile_scratch_align",
)
"""the facts that a launch goes by"""


def differing(facts: Sequence[Facts]) -> list[str]:
    """The facts that a launch goes by and that are not the same in all."""
    return [name for name in _LAUNCHED if any(getattr(each, name) != getattr(facts[0], name) for each in facts)]


def _shown(value: object) -> str:
    if isinstance(value, tuple) and value and not isinstance(value[0], int):
        return ", ".join(f"{each.size} bytes at {each.offset} ({each.role})" for each in value)
    return " x ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _not_alike(variant: str, what: str, values: dict[str, str]) -> PackagingError:
    return PackagingError(
        f"{variant} cannot have a fat binary: {what}",
        where=variant,
        expected="the same for each of them",
        actual="; ".join(f"{target}: {value}" for target, value in values.items()),
        remedy="write `bundle: separate` for the kernel, or build it for fewer targets",
    )


def fatbinary_arguments(targets: Sequence[str]) -> list[str]:
    """What fatbinary is given: fixed names, in a folder of its own, so that nothing of a path comes into the file."""
    images = [
        f"--image3=kind={_KINDS[TARGETS[target].kind]},sm={re.sub('^[a-z]+_', '', target)},file={number}"
        for number, target in enumerate(targets)
    ]
    return ["-64", f"--create={_BUNDLE}", "--compress=false", *images]


def make_bundle(images: Sequence[Bundled], fatbinary: Path, staging: Path) -> tuple[bytes, tuple[Entry, ...]]:
    """The fat binary of some images, in order, and what is in it; nothing is compressed.

    It is read back, and each image compared. Raises PackagingError when the program fails, or what it made is not what
    was asked for.
    """
    with TemporaryDirectory(dir=staging) as scratch, timed("fatbinary"):
        folder = Path(scratch)
        for number, image in enumerate(images):
            (folder / str(number)).write_bytes(image.data)
        run_tool(
            fatbinary,
            fatbinary_arguments([image.target for image in images]),
            folder=folder,
            purpose="make a fat binary",
            remedies={
                "Unknown option": "set CUDA_HOME to a CUDA toolkit whose fatbinary takes --image3, such as 13.0",
                "arch": "use the CUDA toolkit that the images are compiled with, or a newer one",
            },
        )
        where, remedy = str(fatbinary), "see that the disk has space; or set CUDA_HOME to another CUDA toolkit"
        try:
            data = (folder / _BUNDLE).read_bytes()
            entries = read_fatbin(data)
        except (OSError, ImageError) as error:
            what = error.what if isinstance(error, ImageError) else f"the file cannot be read: {error.strerror}"
            found = error if isinstance(error, ImageError) else None
            raise PackagingError(
                f"fatbinary ended well, but what it made is not what was asked for: {what}",
                where=where,
                expected=found.expected if found else None,
                actual=found.actual if found else None,
                remedy=remedy,
            ) from error
        findings = check_fatbin(entries, [Part(target=image.target, data=image.data) for image in images])
        if findings:
            raise PackagingError(
                "fatbinary ended well, but " + "; ".join(finding.check for finding in findings),
                where=where,
                expected="; ".join(finding.expected for finding in findings),
                actual="; ".join(finding.actual for finding in findings),
                remedy="; ".join(dict.fromkeys(finding.remedy for finding in findings)),
            )
    return data, entries


def make_bundle_object(
    data: bytes,
    entries: Sequence[Entry],
    images: Sequence[Bundled],
    *,
    library: str,
    variant: str,
    host: str,
    cc: Path,
    output: Path,
) -> None:
    """Write the fat binary as a host object at `output`: read-only data, aligned to 64, between two symbols.

    The data of each cubin has its own symbols in it, those that it has in an object by itself; it is aligned to 8.
    Raises PackagingError when the compiler fails, or what it made is not what was asked for.
    """
    start = c_names.bundle_symbol(library, variant)
    symbols = {c_names.data_symbol(start): 0, c_names.data_end_symbol(start): len(data)}
    for entry, image in zip(entries, images, strict=True):
        if entry.kind == "cubin":
            own = c_names.image_symbol(library, variant, image.target)
            symbols[c_names.data_symbol(own)] = entry.offset
            symbols[c_names.content_symbol(own, image.facts.sha256)] = entry.offset
            symbols[c_names.data_end_symbol(own)] = entry.offset + len(image.data)
    with TemporaryDirectory(dir=output.parent) as scratch:
        folder = Path(scratch)
        (folder / _BUNDLE).write_bytes(data)
        lines = [
            f".balign {ALIGNMENT}",
            ".Lbundle:",
            f'.incbin "{_BUNDLE}"',
            *(f".globl {name}\n.type {name}, %object\n.set {name}, .Lbundle + {at}" for name, at in symbols.items()),
        ]
        purpose = f"make an object of the fat binary of {variant} for {host}"
        assemble_data(lines, _OBJECT, symbols, data, host=host, cc=cc, folder=folder, purpose=purpose)
        (folder / _OBJECT).replace(output)

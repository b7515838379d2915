"""inspect: an image of any kind, told by its content, and held against the facts that were measured off it."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from kiln.binaries.checks import Finding
from kiln.binaries.cubin import EM_CUDA
from kiln.binaries.elf import DAMAGED
from kiln.binaries.facts import Facts
from kiln.binaries.hsaco import EM_AMDGPU
from kiln.binaries.measure import READERS
from kiln.binaries.reading import Reading
from kiln.errors import ImageError
from kiln.toolchain.hosts import machine_name
from kiln.toolchain.targets import Kind

_EXPECTED = "a cubin (NVIDIA), a PTX, or an hsaco (AMD)"
_FOREIGN = {
    b"!<arch>\n": "an archive of host objects",
    b"\x50\xed\x55\xba": "a fat binary",
    b"BC\xc0\xde": "LLVM bitcode",
    b"__CLANG_OFFLOAD_BUNDLE__": "a clang offload bundle",
    b"\x1f\x8b": "a gzip file",
    b"PK\x03\x04": "a zip file",
}
"""start of a file -> what it is: what people hand over for an image"""
_TEXT = re.compile(rb"[\t\n\v\f\r\x20-\x7e\x80-\xff]*")
_PTX = re.compile(rb"^[ \t]*\.version\b", re.MULTILINE)

_OTHER_FILE = "the file was changed after it was built, or the facts are another image's: build it again"


@dataclass(frozen=True, kw_only=True)
class Inspected:
    kind: Kind
    reading: Reading


def kind_of(data: bytes) -> Kind:
    """The kind of image that some bytes are, whatever the file is called.

    ELF tells a cubin and an hsaco by its machine number; a PTX is text with a directive .version. Raises ImageError for
    anything else, with what it looks like.
    """
    if data[:4] == b"\x7fELF" and len(data) >= 20:
        (machine,) = struct.unpack_from("<H", data, 18)
        if machine == EM_CUDA:
            return "cubin"
        if machine == EM_AMDGPU:
            return "hsaco"
        raise _foreign(f"an ELF file for {machine_name(machine)}")
    if not data:
        raise ImageError("the file is empty", expected=_EXPECTED, actual="0 bytes", remedy=DAMAGED)
    # Before the text is looked at, for an archive may hold a PTX.
    for start, name in _FOREIGN.items():
        if data.startswith(start):
            raise _foreign(name)
    if _PTX.search(data):
        return "ptx"
    if _TEXT.fullmatch(data):
        raise _foreign("text without a line .version")
    raise _foreign(f"{len(data)} bytes that start with {data[:4].hex(' ')}")


def _foreign(actual: str) -> ImageError:
    return ImageError(
        "this is no image",
        expected=_EXPECTED,
        actual=actual,
        remedy="name a file below build/images; a host object or an archive holds images, and is none",
    )


def inspect(data: bytes) -> Inspected:
    """What an image says of itself. Raises ImageError when it is none, is damaged, or holds other than one kernel.

    The NUL that ends a PTX in packages is taken off first.
    """
    kind = kind_of(data)
    image = data.removesuffix(b"\0") if kind == "ptx" else data
    return Inspected(kind=kind, reading=READERS[kind](image))


def check_against(data: bytes, facts: Facts) -> list[Finding]:
    """Is this the image that the facts were measured off? Every field that its bytes show is compared, and its digest.

    What an image does not say (the registers of a PTX, what only its compiler knows) is not held against it. Returns a
    finding for an image that cannot be read; raises nothing.
    """
    findings = list(_whole(data, facts))
    try:
        inspected = inspect(data)
    except ImageError as error:
        unread = Finding(
            check=error.what,
            field="image",
            expected=error.expected or f"a whole {facts.kind}",
            actual=error.actual or "one that cannot be read",
            remedy=error.remedy or DAMAGED,
        )
        return [*findings, unread]
    if inspected.kind != facts.kind:
        findings.append(_differs("kind", facts.kind, inspected.kind))
    return [*findings, *_shown(inspected.reading, facts)]


def _whole(data: bytes, facts: Facts) -> Iterator[Finding]:
    if len(data) != facts.size:
        yield _differs("size", f"{facts.size} bytes", f"{len(data)} bytes")
    digest = hashlib.sha256(data).hexdigest()
    if digest != facts.sha256:
        yield _differs("sha256", facts.sha256, digest)


_ALWAYS = ("arch", "entry", "parameter_bytes", "shared_static", "registers", "scalar_registers", "stack", "ptx_isa")
"""fields that an image either shows or, by its kind, cannot have: then both are None"""
_WHERE_SHOWN = ("threads", "warp_size", "cluster", "spills")
"""fields that some images leave to their compiler's report"""


def _shown(image: Reading, facts: Facts) -> Iterator[Finding]:
    for name in (*_ALWAYS, *_WHERE_SHOWN):
        shown, recorded = getattr(image, name), getattr(facts, name)
        if shown != recorded and (shown is not None or name in _ALWAYS):
            yield _differs(name, recorded, shown)
    if image.threads is None and image.max_threads is not None and facts.threads not in range(1, image.max_threads + 1):
        yield _differs("threads", facts.threads, f"at most {image.max_threads}")
    if len(image.parameters) != len(facts.parameters):
        yield _differs("parameters", f"{len(facts.parameters)} parameters", f"{len(image.parameters)} parameters")
    else:
        for index, (span, parameter) in enumerate(zip(image.parameters, facts.parameters, strict=True)):
            for name in ("offset", "size"):
                if getattr(span, name) != getattr(parameter, name):
                    yield _differs(f"parameters[{index}].{name}", getattr(parameter, name), getattr(span, name))
    for tool, version in image.tools.items():
        # An image may name fewer parts of a version than the tool itself does.
        recorded = facts.tools.get(tool, "none")
        if recorded.split(".")[: len(version.split("."))] != version.split("."):
            yield _differs(f"tools.{tool}", recorded, version)


def _differs(field: str, recorded: object, shown: object) -> Finding:
    return Finding(
        check="the image is not what its facts say",
        field=field,
        expected=f"{_text(recorded)}, by the facts",
        actual=f"{_text(shown)}, by the image",
        remedy=_OTHER_FILE,
    )


def _text(value: object) -> str:
    return " x ".join(map(str, value)) if isinstance(value, tuple) else str(value)

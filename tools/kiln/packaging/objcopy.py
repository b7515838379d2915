"""Turns an image into a host object: read-only data, aligned to 64, under the library's own symbols."""

from __future__ import annotations

import hashlib
from pathlib import Path
from tempfile import TemporaryDirectory

from kiln.binaries.host_object import MACHINES, check_host_object, read_host_object
from kiln.errors import ImageError, PackagingError
from kiln.packaging.c_names import data_end_symbol, data_symbol
from kiln.packaging.host_tool import HOSTS, run_tool
from kiln.toolchain.targets import Kind

ALIGNMENT = 64
"""of an image's data, in bytes"""

_BLOB = "blob"


def make_object(image: Path, kind: Kind, symbol: str, host: str, objcopy: Path, staging: Path, output: str) -> None:
    """Write `staging`/`output`: the image's bytes between the symbols `<symbol>_data` and `<symbol>_data_end`.

    A PTX gets one NUL more, for drivers read it as a string. The object is read back and compared. Raises
    PackagingError when the image is empty, objcopy fails, or what it made is not what was asked for.
    """
    content = image.read_bytes()
    if not content:
        raise PackagingError("the image is empty", where=str(image), remedy="delete it and build again")
    data = content + (b"\0" if kind == "ptx" else b"")
    words = HOSTS[host]
    start, end = data_symbol(symbol), data_end_symbol(symbol)
    with TemporaryDirectory(dir=staging) as scratch:
        folder = Path(scratch)
        # objcopy names symbols after the path that it is given: a fixed one makes them known, whatever the image's is.
        (folder / _BLOB).write_bytes(data)
        arguments = [
            *("-I", "binary", "-O", words.bfd, "-B", words.architecture),
            # Plain objcopy makes writable data that is aligned to 1.
            *("--rename-section", ".data=.rodata,alloc,load,readonly,data,contents"),
            *("--set-section-alignment", f".data={ALIGNMENT}"),
            # Without this note the linker makes the stack of the whole program executable.
            *("--add-section", ".note.GNU-stack=/dev/null"),
            *("--set-section-flags", ".note.GNU-stack=contents,readonly"),
            *("--redefine-sym", f"_binary_{_BLOB}_start={start}"),
            *("--redefine-sym", f"_binary_{_BLOB}_end={end}"),
            # An absolute symbol, which a position-independent program cannot link.
            *("--strip-symbol", f"_binary_{_BLOB}_size"),
            *(_BLOB, "object"),
        ]
        run_tool(objcopy, arguments, folder=folder, purpose=f"make a host object of {image.name}")
        made = folder / "object"
        try:
            findings = check_host_object(
                read_host_object(made),
                symbols={start: 0, end: len(data)},
                sha256=hashlib.sha256(data).hexdigest(),
                machine=MACHINES[host],
                alignment=ALIGNMENT,
            )
        except ImageError as error:
            raise _refusal(objcopy, image, error.what, error.expected, error.actual) from error
        if findings:
            what = "; ".join(finding.check for finding in findings)
            expected = "; ".join(finding.expected for finding in findings)
            raise _refusal(objcopy, image, what, expected, "; ".join(finding.actual for finding in findings))
        made.replace(staging / output)


def _refusal(objcopy: Path, image: Path, what: str, expected: str | None, actual: str | None) -> PackagingError:
    return PackagingError(
        f"{objcopy.name} ended well, but the host object is not what was asked for: {what}",
        where=str(image),
        expected=expected,
        actual=actual,
        remedy=f"see that the disk has space, and that {objcopy} is GNU objcopy (2.40 is known to do)",
    )

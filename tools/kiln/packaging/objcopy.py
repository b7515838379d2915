"""Turns an image into a host object: read-only data, aligned to 64, under the library's own symbols.

The notes of an object say what a linker may do with the whole program; objcopy makes none of its own.
"""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from kiln.binaries.host_object import PROPERTY_SECTION, check_image_object, property_note
from kiln.errors import PackagingError
from kiln.packaging.c_names import content_symbol, data_end_symbol, data_symbol
from kiln.packaging.host_tool import check_made, run_tool
from kiln.toolchain.hosts import HOSTS, Host
from kiln.toolchain.targets import Kind

ALIGNMENT = 64
"""of an image's data, in bytes"""

_BLOB = "blob"
_PROPERTIES = "properties"


def make_object(image: Path, kind: Kind, symbol: str, host: str, objcopy: Path, staging: Path, output: str) -> None:
    """Write `staging`/`output`: the image's bytes between the symbols `<symbol>_data` and `<symbol>_data_end`.

    Whoever links them by the content's symbol (`c_names.content_symbol`) gets this image or none. A PTX gets one NUL
    more, for drivers read it as a string. The object is read back and compared. Raises PackagingError when the image is
    empty, objcopy fails (as that of another host does), or what it made is not what was asked for.
    """
    content = image.read_bytes()
    if not content:
        raise PackagingError("the image is empty", where=str(image), remedy="delete it and build again")
    data = content + (b"\0" if kind == "ptx" else b"")
    words = HOSTS[host]
    start, end = data_symbol(symbol), data_end_symbol(symbol)
    checked = content_symbol(symbol, hashlib.sha256(content).hexdigest())
    with TemporaryDirectory(dir=staging) as scratch:
        folder = Path(scratch)
        # objcopy names symbols after the path that it is given: a fixed one makes them known, whatever the image's is.
        (folder / _BLOB).write_bytes(data)
        (folder / _PROPERTIES).write_bytes(property_note(words))
        other = f"point OBJCOPY to a GNU objcopy for {host}, or unset OBJCOPY; or correct `host` in kernels.yaml"
        run_tool(
            objcopy,
            objcopy_arguments(words, start=start, end=end, content=checked, output=output),
            folder=folder,
            purpose=f"make a host object of {image.name} for {host}",
            remedies={f"architecture {words.architecture} unknown": other, "invalid bfd target": other},
        )
        made = folder / output
        check_made(
            made,
            partial(
                check_image_object,
                symbols={start: 0, checked: 0, end: len(data)},
                sha256=hashlib.sha256(data).hexdigest(),
                host=words,
                alignment=ALIGNMENT,
            ),
            tool=objcopy,
            where=image,
            remedy=f"see that the disk has space, and that {objcopy} is GNU objcopy (2.40 is known to do)",
        )
        made.replace(staging / output)


def objcopy_arguments(host: Host, *, start: str, end: str, content: str, output: str) -> list[str]:
    """What objcopy is given; `start`, `end` and `content`, which tells what lies there, are symbols."""
    return [
        *("-I", "binary", "-O", host.bfd, "-B", host.architecture),
        # Plain objcopy makes writable data that is aligned to 1.
        *("--rename-section", ".data=.rodata,alloc,load,readonly,data,contents"),
        *("--set-section-alignment", f".data={ALIGNMENT}"),
        # Without this note the linker makes the stack of the whole program executable.
        *("--add-section", ".note.GNU-stack=/dev/null"),
        *("--set-section-flags", ".note.GNU-stack=contents,readonly"),
        # Without this one it takes control-flow protection from the whole program.
        *("--add-section", f"{PROPERTY_SECTION}={_PROPERTIES}"),
        *("--set-section-flags", f"{PROPERTY_SECTION}=alloc,readonly,data,contents"),
        *("--redefine-sym", f"_binary_{_BLOB}_start={start}"),
        *("--redefine-sym", f"_binary_{_BLOB}_end={end}"),
        *("--add-symbol", f"{content}=.rodata:0,global"),
        # An absolute symbol, which a position-independent program cannot link.
        *("--strip-symbol", f"_binary_{_BLOB}_size"),
        *(_BLOB, output),
    ]

"""Generated C, the fixed runtime, and data -> objects, by the host's compiler; what it made is read back."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from kiln.binaries.host_object import check_compiled_object, check_embedded_object
from kiln.packaging import c_names
from kiln.packaging.c_package import runtime_source
from kiln.packaging.c_text import c_string
from kiln.packaging.host_tool import check_made, run_tool
from kiln.packaging.objcopy import ALIGNMENT
from kiln.stages import timed
from kiln.toolchain.hosts import HOSTS, Host

FLAGS = ("-std=c99", "-O2", "-fPIC", "-g0")
"""Position-independent, for archives end up in shared libraries; without debug information, which holds paths."""
_UNITS = "units"
"""the file that lists what is compiled"""
_UNIT = "data.c"
_NOT_MADE = "see that the disk has space, and that CC is a C compiler such as gcc"


def compile_units(units: Mapping[str, tuple[str, str]], library: str, host: str, cc: Path, staging: Path) -> None:
    """Compile `units`, object name -> (C source, a symbol that it must define), into `staging`.

    A unit may include the public headers and internal.h. Raises PackagingError when the compiler fails or what it made
    is not what was asked for.
    """
    with timed("cc"), TemporaryDirectory(dir=staging) as scratch:
        folder = Path(scratch)
        for name, fixed in c_names.runtime_files(library).items():
            if name.endswith(".h"):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(runtime_source(fixed, library), "utf-8")
        for name, (source, _) in units.items():
            (folder / c_names.source_of(name)).write_text(source, "utf-8")
        # A list in a file: thousands of names do not fit a command line.
        (folder / _UNITS).write_text("\n".join(c_names.source_of(name) for name in units), "utf-8")
        words = HOSTS[host]
        run_tool(
            cc,
            unit_arguments(words),
            folder=folder,
            purpose=f"compile the tables of {library} for {host}",
            remedies={**compiler_remedies(words), **_header_remedies(words)},
        )
        for name, (_, symbol) in units.items():
            check_made(
                folder / name,
                partial(check_compiled_object, defines=symbol, host=words),
                tool=cc,
                where=cc,
                remedy=_NOT_MADE,
            )
        for name in units:
            (folder / name).replace(staging / name)


def assemble_data(
    lines: Sequence[str],
    member: str,
    symbols: Mapping[str, int],
    data: bytes,
    *,
    host: str,
    cc: Path,
    folder: Path,
    purpose: str,
) -> None:
    """Assemble read-only data, given as lines of assembly, to the object `member` in `folder`, and read that back.

    What it must hold is `data`, aligned to ALIGNMENT, with `symbols` at these distances from its beginning. Files that
    the lines name lie in `folder`. `purpose` completes "<tool> could not ...". Raises PackagingError when the compiler
    fails or what it made is not what was asked for.
    """
    words = HOSTS[host]
    code = "\n".join(c_string(f"{line}\n") for line in ('.pushsection .rodata,"a",%progbits', *lines, ".popsection"))
    # A unit in C with nothing but assembly: so the compiler adds the notes that a linker wants of an object.
    (folder / _UNIT).write_text(f"__asm__(\n{code}\n);\n", "utf-8")
    with timed("cc"):
        run_tool(
            cc,
            assembly_arguments(words, _UNIT, member),
            folder=folder,
            purpose=purpose,
            remedies=compiler_remedies(words),
        )
    check_made(
        folder / member,
        partial(
            check_embedded_object,
            symbols=symbols,
            sha256=hashlib.sha256(data).hexdigest(),
            host=words,
            alignment=ALIGNMENT,
        ),
        tool=cc,
        where=cc,
        remedy=_NOT_MADE,
    )


def compiler_remedies(host: Host) -> dict[str, str]:
    """What to do when a compiler does not know a flag that Kiln gives it."""
    return {
        host.protection_flag: f"point CC to a recent gcc or clang for {host.triplet}, or unset CC; or correct `host` "
        "in kernels.yaml"
    }


def _header_remedies(host: Host) -> dict[str, str]:
    """The same about headers that are not there, in the words of gcc and clang."""
    package = host.package("libc6-dev")
    headers = f"install the headers of the C library for {host.triplet} (Debian, Ubuntu: apt-get install {package})"
    return {
        "stdint.h: No such file": headers,
        "search for stdint.h": headers,
        "string.h: No such file": headers,
    }


def unit_arguments(host: Host) -> list[str]:
    """What the compiler is given for units: relative names only, for it writes a unit's name into its object."""
    return [*FLAGS, host.protection_flag, "-I", "include", "-I", "src", "-c", f"@{_UNITS}"]


def assembly_arguments(host: Host, unit: str, output: str) -> list[str]:
    """The same for a unit by itself, that has nothing but assembly in it."""
    return [*FLAGS, host.protection_flag, "-c", unit, "-o", output]

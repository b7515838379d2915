"""Generated C and the fixed runtime -> objects, in one call of the host's compiler; what it made is read back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from kiln.binaries.host_object import check_compiled_object
from kiln.packaging import c_names
from kiln.packaging.c_package import runtime_source
from kiln.packaging.host_tool import check_made, run_tool
from kiln.stages import timed
from kiln.toolchain.hosts import HOSTS, Host

FLAGS = ("-std=c99", "-O2", "-fPIC", "-g0")
"""Position-independent, for archives end up in shared libraries; without debug information, which holds paths."""


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
        (folder / "units").write_text("\n".join(c_names.source_of(name) for name in units), "utf-8")
        # Relative names only: the compiler writes a unit's name into its object.
        words = HOSTS[host]
        run_tool(
            cc,
            [*FLAGS, words.protection_flag, "-I", "include", "-I", "src", "-c", "@units"],
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
                remedy="see that the disk has space, and that CC is a C compiler such as gcc",
            )
        for name in units:
            (folder / name).replace(staging / name)


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

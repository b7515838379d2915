"""Reads back a compiled host object: what the linker will find in it, whatever the compiler's exit code was."""

from __future__ import annotations

from pathlib import Path

from kiln.binaries.elf import SHF_EXECINSTR, SHN_UNDEF, STB_GLOBAL, open_elf, reading
from kiln.errors import ImageError, PackagingError

_STACK_NOTE = ".note.GNU-stack"


def check_object(path: Path, *, machine: int, defines: str, tool: Path) -> None:
    """Raise PackagingError unless `path` is a whole object for e_machine `machine` that defines the global symbol
    `defines` and asks for no executable stack. `tool` made it."""
    if not path.exists():
        raise PackagingError(
            f"{tool.name} ended well, but did not make {path.name}",
            where=str(tool),
            remedy="see that the disk has space, and that CC is a C compiler such as gcc",
        )
    try:
        with reading("object"):
            elf = open_elf(path.read_bytes())
            globals_ = {s.name for s in elf.symbols() if s.bind == STB_GLOBAL and s.section != SHN_UNDEF}
            note = elf.section(_STACK_NOTE)
    except ImageError as error:
        raise PackagingError(
            f"{tool.name} ended well, but {path.name} is no object: {error.what}",
            where=str(tool),
            expected=error.expected,
            actual=error.actual,
            remedy="see that the disk has space, and build again",
        ) from error
    if elf.machine != machine:
        raise PackagingError(
            f"{tool.name} compiles for another machine than the library's host",
            where=str(tool),
            expected=f"ELF machine {machine}",
            actual=f"ELF machine {elf.machine}",
            remedy="point CC to a compiler for that host, or correct `host` in kernels.yaml",
        )
    if defines not in globals_:
        raise PackagingError(
            f"{tool.name} ended well, but {path.name} lacks its symbol",
            where=str(tool),
            expected=defines,
            actual=", ".join(sorted(globals_)) or "no symbols",
            remedy="use a C compiler that writes plain ELF objects (no -flto in CC)",
        )
    if note is None or note.flags & SHF_EXECINSTR:
        raise PackagingError(
            f"{path.name} would make the stack of every program that links it executable",
            where=str(tool),
            expected=f"a section {_STACK_NOTE} that is not executable",
            actual="none" if note is None else "an executable one",
            remedy="use a C compiler that writes the note, as gcc and clang do on Linux",
        )

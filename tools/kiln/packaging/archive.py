"""Static archives of host objects, made whole each time: the same members give the same bytes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from kiln.errors import PackagingError
from kiln.packaging.host_tool import run_tool

_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.]*", re.ASCII)
"""A member's name is one word of ar's script language, and no command line can mistake it."""

ARGUMENTS = ("-MD",)
"""of ar, which reads a script and writes no time, owner or mode of a file"""

_ARCHIVE = "-archive"
"""what it is called while it is made: no member can be"""

_STAMP = b"0           0     0     644     "
"""date, owner, group and mode of a member that says nothing of the file it was made from"""

_MAGIC = b"!<arch>\n"
_HEADER_SIZE = 60


@dataclass(frozen=True, kw_only=True)
class Member:
    name: str
    stamp: bytes
    """date, owner, group and mode, as the header has them"""
    offset: int
    """of its data in the archive, in bytes; the header lies before it"""
    data: bytes


def make_archive(members: Sequence[tuple[str, Path]], ar: Path, staging: Path, output: str) -> None:
    """Write `staging`/`output` with `members`, (name, object file) in order, and a symbol index.

    Always a new archive, for `ar r` keeps members that are gone. No time, owner or mode of the files gets in. The
    archive is read back and compared. Raises PackagingError when there are no members, names are not unique, ar fails,
    or what it made is not what was asked for.
    """
    names = [name for name, _ in members]
    _check_names(names, output)
    with TemporaryDirectory(dir=staging) as scratch:
        folder = Path(scratch)
        # ar names members after files. Links cost nothing, and make each the name that it is to have.
        for name, path in members:
            (folder / name).symlink_to(path.absolute())
        run_tool(ar, ARGUMENTS, folder=folder, purpose=f"make {output}", script=archive_script(names))
        made = folder / _ARCHIVE
        _compare(made, members, ar, output)
        made.replace(staging / output)


def archive_script(names: Sequence[str]) -> str:
    """What ar reads.

    A script, for thousands of names do not fit a command line; and 10,000 members take 3 s this way, and 18 s as
    `ar rcsD archive @file` (binutils 2.40, whose time grows with the square of their number). Each ADDMOD puts a member
    in front of the others.
    """
    members = "".join(f"ADDMOD {name}\n" for name in reversed(names))
    return f"CREATE {_ARCHIVE}\n{members}SAVE\nEND\n"


def read_archive(data: bytes) -> tuple[list[Member], bool]:
    """The members of an archive in order, and whether it has a symbol index. Raises ValueError where it is no archive.

    The format is System V's with GNU's long names: `!<arch>`, then for each member a header of 60 bytes (name 16,
    date 12, owner 6, group 6, mode 8, size 10, and two to end it) and its bytes, padded to an even offset. `/` is the
    symbol index (`/SYM64/` beyond 4 GiB), `//` the table of names above 15 characters, and `/<offset>` such a name.
    """
    if not data.startswith(_MAGIC):
        raise ValueError("it does not begin with !<arch>")
    members: list[Member] = []
    long_names = b""
    has_index = False
    offset = len(_MAGIC)
    while offset < len(data):
        header = data[offset : offset + _HEADER_SIZE]
        size_text = header[48:58].strip()
        if len(header) != _HEADER_SIZE or header[58:] != b"`\n" or not size_text.isdigit():
            raise ValueError(f"there is no member's header at byte {offset}")
        offset += _HEADER_SIZE
        size = int(size_text)
        content = data[offset : offset + size]
        if len(content) != size:
            raise ValueError(f"it ends within a member, at byte {len(data)}")
        at, offset = offset, offset + size + size % 2
        name = header[:16].rstrip(b" ")
        if name in (b"/", b"/SYM64/"):
            has_index = True
        elif name == b"//":
            long_names = content
        else:
            if name.startswith(b"/") and name[1:].isdigit():
                start = int(name[1:])
                name = long_names[start : long_names.find(b"\n", start)]
            name_text = name.removesuffix(b"/").decode("ascii", "backslashreplace")
            members.append(Member(name=name_text, stamp=header[16:48], offset=at, data=content))
    return members, has_index


def _check_names(names: Sequence[str], output: str) -> None:
    if not names:
        raise PackagingError("an archive without members would be made", where=output, remedy="declare a kernel")
    for name in names:
        if not _SAFE.fullmatch(name):
            raise PackagingError(
                f"{name!a} cannot be the name of an archive's member",
                where=output,
                expected="letters, digits, underscores and dots",
                actual=ascii(name),
                remedy="rename the variant in kernels.yaml",
            )
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise PackagingError(
            "members of an archive share a name, and the later one would replace the earlier",
            where=output,
            expected="names that are unique",
            actual=", ".join(twice),
            remedy="rename one of the variants in kernels.yaml",
        )


def _compare(archive: Path, members: Sequence[tuple[str, Path]], ar: Path, output: str) -> None:
    def refuse(expected: str, actual: str) -> PackagingError:
        return PackagingError(
            f"{ar.name} ended well, but the archive is not what was asked for",
            where=output,
            expected=expected,
            actual=actual,
            remedy=f"see that the disk has space, and that {ar} is GNU ar (2.40 is known to do)",
        )

    if not archive.exists():
        raise refuse("an archive", "no file")
    try:
        found, has_index = read_archive(archive.read_bytes())
    except ValueError as error:
        raise refuse("an archive", str(error)) from error
    if not has_index:
        raise refuse("a symbol index", "none")
    expected_names = [name for name, _ in members]
    found_names = [member.name for member in found]
    if found_names != expected_names:
        missing = [name for name in expected_names if name not in found_names]
        raise refuse(
            f"{len(expected_names)} members in the order given",
            f"{len(found_names)} members{', without ' + ', '.join(missing[:5]) if missing else ' in another order'}",
        )
    for (name, path), member in zip(members, found, strict=True):
        if member.stamp != _STAMP:
            raise refuse(
                "no time, owner or mode of the files in it", f"{member.stamp.decode(errors='replace')!r} of {name}"
            )
        if path.read_bytes() != member.data:
            raise refuse(f"member {name} as in {path}", "other bytes")

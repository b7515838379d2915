"""What of this machine stands in a release: folders of the build, the user's home and name, the host's name.

A leak is told by what only this machine can have put there. So every byte of every file is looked at for each folder
and name, as it is spelled and as compilers, JSON, URLs and make write it; and a name is not looked for where finding it
would prove nothing: one that is a word of Kiln's own files or of the sources, that is as short as what chance makes in
machine code, or that is what every machine calls it.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import kiln
from kiln.errors import ReleaseError
from kiln.release.places import is_text, place

_COMMON_WORDS = """
admin administrator agent alpine amd anonymous arch build builder builds buildkitsandbox centos ci circleci clang
container cuda daemon data debian default dev developer docker fedora gcc github gitlab gnu guest home host hostname
jenkins kernel kernels kiln linux llvm local localdomain localhost machine nobody node none nvidia podman project
python release rocky rocm root runner server service source src system test tester travis triton ubuntu unix unknown
user users vagrant web work worker workspace www
"""
_COMMON = frozenset(_COMMON_WORDS.split())
"""names that many machines and users have, and words of a build that tell of none"""

_LEAST = 3
"""characters of a name that is looked for at all"""
_LEAST_HEX = 8
"""characters of one that a digest or a UUID could hold by chance"""
_CHANCE = 1e-4
"""the most false finds by chance in machine code that a name may make us expect, in all of a release"""

_TEMPORARY = "the folder for temporary files"
"""the one folder that may be the same on many machines, however long: /var/tmp"""
_KEPT = 4_000_000
"""bytes of one of the files that words are common in: what is larger is no text that people write"""


@dataclass(frozen=True, kw_only=True)
class Sign:
    """A text that tells of this machine."""

    what: str
    """`the build folder`, `the user's name`"""
    text: str
    is_name: bool = False
    """whether it is one word; otherwise a folder"""
    only_in_texts: bool = False
    """whether chance may put it into other files"""


@dataclass(frozen=True, kw_only=True)
class Signs:
    """What is looked for, and what is not."""

    signs: tuple[Sign, ...]
    left_out: tuple[str, ...] = ()
    """why, a sentence each"""


def signs_of_this_machine(folders: Mapping[str, Path], inputs: Iterable[Path], size: int) -> Signs:
    """What to look for in a release of so many bytes.

    `folders` are those that the build knows, by what they are: `the project's folder`. `inputs` are files that it is
    made from: a word that stands in them, or in Kiln's own, proves nothing.
    """
    known = {
        **folders,
        _TEMPORARY: Path(tempfile.gettempdir()),
        "the folder of Kiln": Path(kiln.__file__).parent.parent,
    }
    # A user whom the system does not know, as in a container, may have none.
    with suppress(RuntimeError):
        known["the home folder"] = Path.home()
    if sys.prefix != sys.base_prefix:
        known["the virtual environment"] = Path(sys.prefix)
    return choose(known, _names(), _texts(inputs), size)


def choose(folders: Mapping[str, Path], names: Iterable[tuple[str, str]], texts: Iterable[bytes], size: int) -> Signs:
    """Of some folders and of names, (what, name), those that prove something where they are found.

    `texts` are what a release is made from, `size` is its own in bytes.
    """
    paths = [
        Sign(what=what, text=text)
        for what, path in folders.items()
        for text in dict.fromkeys((os.path.normpath(path), os.path.realpath(path)))
        if text != os.sep
    ]
    words = [Sign(what=what, text=name, is_name=True) for what, name in names if name]
    found: list[Sign] = []
    left_out: list[str] = []
    kept = list(texts)
    for sign in dict.fromkeys((*paths, *words)):
        why = _why_not(sign, kept)
        if why is not None:
            left_out.append(f"{sign.what}, {sign.text!r}, is not looked for: {why}")
        elif any(sign.text == other.text for other in found):
            continue
        elif sign.is_name and size / 256 ** len(sign.text.encode()) > _CHANCE:
            found.append(Sign(what=sign.what, text=sign.text, is_name=True, only_in_texts=True))
        else:
            found.append(sign)
    return Signs(signs=tuple(found), left_out=tuple(dict.fromkeys(left_out)))


def find_leaks(files: Mapping[str, bytes], signs: Iterable[Sign]) -> Iterator[ReleaseError]:
    """Each sign that stands in a file, once a file, with the place of the first."""
    # A folder that lies in another one, and a name in a path, are told once, as the longest.
    ordered = sorted(signs, key=lambda sign: (sign.is_name, -len(sign.text)))
    patterns = [(sign, (*_spellings(sign.text), *_wide(sign.text)), _pattern(sign)) for sign in ordered]
    for name in files:
        data = files[name]
        seen: list[tuple[int, int]] = []
        for sign, spellings, pattern in patterns:
            # Of most files that is all: a search for bytes takes a hundredth of the time that one for a pattern does.
            if not any(spelling in data for spelling in spellings):
                continue
            found = [match for match in pattern.finditer(data) if not _within(match.start(), seen)]
            if not found or (sign.only_in_texts and not is_text(data)):
                continue
            seen += [match.span() for match in found]
            at = found[0].start()
            yield ReleaseError(
                f"{sign.what} stands in a released file",
                where=f"{name}, {place(data, at)}",
                expected="nothing that tells of the machine that built it",
                actual=f"{_around(data, found[0])}, at byte {at}",
                remedy="see what wrote it there: a kernel's source or flags (__FILE__, -I), a tool, or Kiln itself",
            )


def _within(at: int, spans: Iterable[tuple[int, int]]) -> bool:
    return any(start <= at < end for start, end in spans)


def _names() -> Iterator[tuple[str, str]]:
    """(what, name) of the user and the host, as the system and the environment have them."""
    with suppress(KeyError):
        yield "the user's name", pwd.getpwuid(os.getuid()).pw_name
    for variable in ("USER", "LOGNAME", "SUDO_USER"):
        yield "the user's name", os.environ.get(variable, "")
    for host in (socket.gethostname(), os.environ.get("HOSTNAME", "")):
        yield "the host's name", host
        yield "the host's name", host.partition(".")[0]


def _why_not(sign: Sign, texts: Iterable[bytes]) -> str | None:
    """Why finding it would prove nothing; None where it would prove something."""
    text = sign.text
    if sign.is_name:
        if len(text) < _LEAST or not any(character.isalpha() for character in text):
            return "it is too short to tell"
        if text.lower() in _COMMON:
            return "many machines have that name"
        if len(text) < _LEAST_HEX and set(text.lower()) <= set("0123456789abcdef-"):
            return "a digest may hold it"
    elif text.count(os.sep) > 1 and sign.what != _TEMPORARY:
        # Nothing else is called /srv/kernels/build.
        return None
    pattern = _pattern(sign)
    if any(pattern.search(each) for each in texts):
        return "it stands in what every release is made from"
    return None


def _texts(inputs: Iterable[Path]) -> Iterator[bytes]:
    """What Kiln's own files and those of the project say."""
    own = (path for path in Path(kiln.__file__).parent.rglob("*") if "__pycache__" not in path.parts)
    for path in dict.fromkeys((*own, *inputs)):
        with suppress(OSError):
            if path.is_file() and path.stat().st_size <= _KEPT:
                yield path.read_bytes()


def _pattern(sign: Sign) -> re.Pattern[bytes]:
    """Finds the sign as a word, or as the whole or the beginning of a path."""
    spellings = b"|".join(re.escape(spelled) for spelled in _spellings(sign.text))
    wide = b"|".join(re.escape(spelled) for spelled in _wide(sign.text))
    if sign.is_name:
        return re.compile(rb"(?<![\w\x80-\xff])(?:" + spellings + rb")(?![\w\x80-\xff])|" + wide)
    if sign.text.count(os.sep) > 1:
        return re.compile(rb"(?:" + spellings + rb")(?![\w\x80-\xff-])|" + wide)
    # Of one component, it has to begin a path that goes on: behind a letter it is the end of another, behind `>` it is
    # virtual, and alone it may be anything.
    begins = rb"(?:(?<![\w./:~>+@\x80-\xff-])|(?<=file://)|(?<=\s-[IL]))"
    return re.compile(begins + rb"(?:" + spellings + rb")/[\w.\x80-\xff]")


def _spellings(text: str) -> tuple[bytes, ...]:
    """A text as the files of a release may have it."""
    plain = os.fsencode(text)
    octal = b"".join(b"\\%03o" % byte if byte >= 0x80 else bytes([byte]) for byte in plain)
    url = quote(plain).encode()
    lower = re.sub(rb"%[0-9A-F]{2}", lambda found: found[0].lower(), url)
    return tuple(
        dict.fromkeys((plain, octal, json.dumps(text)[1:-1].encode(), url, lower, plain.replace(b" ", b"\\ ")))
    )


def _wide(text: str) -> tuple[bytes, ...]:
    """As systems write it that have two bytes for a letter."""
    return tuple(text.encode(code, "surrogatepass") for code in ("utf-16-le", "utf-16-be"))


def _around(data: bytes, found: re.Match[bytes]) -> str:
    """What is found, with the rest of its word."""
    end = found.end()
    while end < len(data) and end - found.end() < 80 and data[end] > 0x20 and data[end] not in b"\"'<>;,)":
        end += 1
    return repr(data[found.start() : end].decode("utf-8", "backslashreplace"))

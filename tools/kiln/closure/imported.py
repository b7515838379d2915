"""Which files of a project are imported along with a file, and which of them name something: read off unparsed text.

A file may be imported for nothing but what it does: `import register`, which fills a list of a third file. Such files
are found here. The text is split into words and import statements, and errs on one side: what stands in a docstring,
or in a function that nobody calls, counts too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kiln import files
from kiln.closure.resolve import Project
from kiln.closure.roots import Roots
from kiln.digests import digest_bytes
from kiln.files import FileState

_IMPORT = re.compile(
    rb"(?:^|[:;])[ \t]*"
    rb"(?:from[ \t]+(?P<module>[.\w \t]+?)[ \t]+import\b[ \t]*(?P<names>\([^)]*\)|[^\n;]*)"
    rb"|import[ \t]+(?P<plain>[^\n;#]+))",
    re.MULTILINE,
)
_NAME = re.compile(rb"(?:^|,)\s*(\w+)")
_COMMENT = re.compile(rb"#[^\n]*")
_SEPARATORS = bytes(
    byte if bytes([byte]).isalnum() or byte == ord("_") or byte >= 128 else ord(" ") for byte in range(256)
)
DYNAMIC = frozenset({"setattr", "vars", "globals", "exec", "__dict__", "__setattr__"})
"""words with which code gives names that it makes up other objects"""
_DYNAMIC = frozenset(word.encode() for word in DYNAMIC)
_STORE = re.compile(rb"\.[ \t]*(\w+)[ \t]*(?::[^\n=]*)?[-+*/%&|^@<>]{0,3}=(?!=)|\b(?:as|del|for)[ \t]+[\w.]*\.(\w+)")
_STORES = re.compile(rb"^[ \t]*((?:[\w.\[\]]+[ \t]*,[ \t]*)+[\w.\[\]]+)[ \t]*=(?!=)", re.MULTILINE)
"""`a.b = 1`, and `a.b, a.c = 1, 2`"""
_TEXT = re.compile(rb"['\"](\w+)['\"]|(\w+)[ \t]*=(?!=)")
_GLOBAL = re.compile(rb"\bglobal[ \t]+([\w, \t]+)")


@dataclass(frozen=True, kw_only=True)
class _Text:
    """What the text of one file says, before it is parsed."""

    words: frozenset[bytes]
    imports: tuple[tuple[int, str, tuple[str, ...]], ...]
    """leading dots, dotted module, and the names that come from it"""
    stored: frozenset[bytes]
    """the attributes that it sets, and the texts and keywords that may name such"""
    is_dynamic: bool
    """whether it may give names that it makes up other objects"""
    declared: frozenset[bytes]
    """the names that its functions declare `global`"""


_texts: dict[str, tuple[FileState, _Text, str]] = {}
"""by path: the file's state, what it says, and the digest of its bytes"""


def _look(path: str) -> tuple[FileState | None, bool]:
    """The state of a file or folder, and whether another one will tell that it has changed."""
    try:
        found = Path(path).stat()
    except OSError:
        return None, True
    return files.state_of(found), files.is_settled(found)


def _read(path: str) -> _Text | None:
    """The text of a file; it is read again when the file has changed. None for one that cannot be read."""
    state, is_settled = _look(path)
    known = _texts.get(path)
    if known is not None and known[0] == state:
        files.note_bytes(Path(path), known[2], state)
        return known[1]
    try:
        content = files.read(Path(path))
    except OSError:
        return None
    text = _split(content)
    if state is not None and is_settled:
        _texts[path] = (state, text, digest_bytes(content))
    return text


def _split(content: bytes) -> _Text:
    joined = content.replace(b"\r", b"\n").replace(b"\\\n", b" ")
    words = frozenset(joined.translate(_SEPARATORS).split())
    is_dynamic = not _DYNAMIC.isdisjoint(words)
    return _Text(
        words=words,
        imports=tuple(_imports(joined)) if b"import" in joined else (),
        stored=frozenset((*_stored(joined), *(_named(joined) if is_dynamic else ()))),
        is_dynamic=is_dynamic,
        declared=frozenset(name for names in _GLOBAL.findall(joined) for name in names.translate(_SEPARATORS).split()),
    )


def _stored(content: bytes) -> Iterator[bytes]:
    for one, other in _STORE.findall(content):
        yield one or other
    for targets in _STORES.findall(content):
        yield from targets.translate(_SEPARATORS).split()


def _named(content: bytes) -> Iterator[bytes]:
    """The names in `setattr(config, "SIZE", 4)` and `vars(config).update(SIZE=4)`."""
    for text, keyword in _TEXT.findall(content):
        yield text or keyword


def _imports(content: bytes) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    for found in _IMPORT.finditer(content):
        if found["plain"] is not None:
            for part in found["plain"].split(b","):
                words = part.split()
                if words:
                    yield 0, words[0].decode(errors="replace"), ()
            continue
        module = found["module"].replace(b" ", b"").replace(b"\t", b"")
        dotted = module.lstrip(b".")
        names = _NAME.findall(_COMMENT.sub(b"", found["names"]).strip(b"()"))
        yield len(module) - len(dotted), dotted.decode(errors="replace"), tuple(name.decode() for name in names)


class Imported:
    """The files that are imported when one file is, with those that their functions may import later."""

    def __init__(self, files: dict[str, _Text]) -> None:
        self._files = files

    def naming(self, words: Iterable[str]) -> list[Path]:
        """The files, in the order of their paths, whose text has one of the words."""
        wanted = {word.encode() for word in words}
        return sorted(Path(path) for path, text in self._files.items() if not wanted.isdisjoint(text.words))

    def rebinding(self, name: str, module: Path) -> list[Path]:
        """The files that may give the name of a module another object: `config.SIZE = 4`, or `global SIZE` in its own.

        Such a file names the module and the name, unless one is made up at run time.
        """
        stem = (module.parent if module.name == "__init__.py" else module).stem.encode()
        word = name.encode()
        return sorted(
            Path(path)
            for path, text in self._files.items()
            if (
                (word in text.stored or word in text.declared or text.is_dynamic)
                if path == str(module)
                else (word in text.stored and stem in text.words)
            )
        )


_known: dict[tuple[Path, tuple[str, ...], frozenset[str]], _Graph] = {}


def imported(project: Project, start: Path) -> Imported:
    """What is imported along with the file `start`."""
    folders = project.folders
    key = (folders.root, folders.others, frozenset(folders.adopted))
    graph = _known.get(key)
    if graph is None or not graph.is_current():
        _known.clear()
        graph = _known[key] = _Graph(folders)
    return graph.imported(start)


class _Graph:
    """The files of a project that import statements have led to so far, and what each of them imports."""

    def __init__(self, folders: Roots) -> None:
        self._folders = folders
        self._states: dict[str, FileState | None] = {}
        """of all that was looked at: a file, or a folder that is listed"""
        self._listings: dict[str, frozenset[str]] = {}
        self._texts: files.Memo[str, _Text | None] = files.Memo()
        self._resolved: files.Memo[tuple[str, tuple[int, str, tuple[str, ...]]], list[str]] = files.Memo()
        self._is_settled = True

    def is_current(self) -> bool:
        """Whether the files and folders are as they were."""
        return self._is_settled and all(_look(path)[0] == state for path, state in self._states.items())

    def imported(self, start: Path) -> Imported:
        found: dict[str, _Text] = {}
        pending = [str(start), *self._packages(start)]
        while pending:
            path = pending.pop()
            text = self._text(path) if path not in found else None
            if text is None:
                continue
            found[path] = text
            folder = path.rpartition("/")[0]
            for statement in text.imports:
                pending += self._resolved.get((folder, statement), partial(self._modules_of, folder, statement))
        return Imported(found)

    def _text(self, path: str) -> _Text | None:
        return self._texts.get(path, partial(self._read, path))

    def _read(self, path: str) -> _Text | None:
        self._look_at(path)
        return _read(path)

    def _look_at(self, path: str) -> None:
        self._states[path], is_settled = _look(path)
        self._is_settled = self._is_settled and is_settled

    def _packages(self, path: Path) -> Iterator[str]:
        """The packages around a file, which Python imports before it."""
        folder = path.parent
        while self._has(str(folder), "__init__.py") and self._folders.base_of(folder) is not None:
            yield str(folder / "__init__.py")
            folder = folder.parent

    def _modules_of(self, folder: str, statement: tuple[int, str, tuple[str, ...]]) -> list[str]:
        return list(dict.fromkeys(self._modules(folder, *statement)))

    def _modules(self, folder: str, level: int, module: str, names: tuple[str, ...]) -> Iterator[str]:
        words = module.split(".") if module else []
        if level:
            for _ in range(level - 1):
                folder = folder.rpartition("/")[0]
            bases = [folder]
        else:
            around = self._folders.base_of(Path(folder))
            known = [around, *self._folders.bases]
            if words[0] in self._folders.adopted:
                known += self._folders.homes(words[0])
            bases = [folder, *(str(base.folder) for base in known if base is not None)]
        for base in dict.fromkeys(bases):
            yield from self._below(base, words, names)

    def _below(self, folder: str, words: list[str], names: tuple[str, ...]) -> Iterator[str]:
        for word in words:
            if self._has(folder, f"{word}.py"):
                yield f"{folder}/{word}.py"
            if not self._has(folder, word):
                return
            folder = f"{folder}/{word}"
            if self._has(folder, "__init__.py"):
                yield f"{folder}/__init__.py"
        for name in ("__init__", *names):
            if self._has(folder, f"{name}.py"):
                yield f"{folder}/{name}.py"
            if self._has(folder, name):
                yield f"{folder}/{name}/__init__.py"

    def _has(self, folder: str, name: str) -> bool:
        files.is_entry(Path(folder, name))
        listing = self._listings.get(folder)
        if listing is None:
            self._look_at(folder)
            try:
                listing = frozenset(entry.name for entry in os.scandir(folder))
            except OSError:
                listing = frozenset()
            self._listings[folder] = listing
        return name in listing

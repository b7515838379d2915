"""Which names Triton has, read off its files: a build that has nothing to do does not import it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from kiln import files
from kiln.closure import scope


@cache
def installed() -> Path | None:
    """The folder of the package that Python would import, which is not imported for that."""
    with files.asked_by(files.FOR_ALL):
        return files.find_package("triton")


def brings(folder: Path, path: tuple[str, ...], name: str) -> bool | None:
    """Whether `from triton.<path> import *` brings a name; None where the text of that module does not tell."""
    place = folder.joinpath(*path)
    candidates = (place / "__init__.py", place.with_name(f"{place.name}.py"))
    file = next((file for file in candidates if files.is_file(file)), None)
    if file is None:
        return None
    found = _names(file)
    if found.listed is not None:
        return name in found.listed
    if found.stars or not found.known:
        return None
    return name in found.names and not name.startswith("_")


def has(folder: Path, path: tuple[str, ...]) -> bool | None:
    """Whether `triton.<path>` is there, for the package in `folder`; None where its text does not tell.

    What a class or another object has is not looked into: the answer is that of the object itself, if that is missing.
    """
    return _has(folder, folder, path, 0)


def _has(top: Path, place: Path, path: tuple[str, ...], depth: int) -> bool | None:
    if not path:
        return True
    if depth > 20:
        return None
    name, rest = path[0], path[1:]
    file = place / "__init__.py" if files.is_dir(place) else place
    found = _names(file) if files.is_file(file) else _NOTHING
    # `from . import language` binds a module of the package's own.
    if name in found.names and not (files.is_dir(place) and found.names[name] == (1, "", name)):
        origin = found.names[name]
        if not rest:
            return True
        if origin is None:
            return None
        return _follow(top, file, origin, rest, depth)
    if files.is_dir(place):
        for below in (place / name, place / f"{name}.py"):
            if any(not name.endswith("/") for name in files.names(below)) or files.is_file(below):
                return _has(top, below, rest, depth + 1)
    for star in found.stars:
        brought = _follow(top, file, star, path, depth)
        if brought is not False:
            return brought
    return False if found.known else None


Origin = tuple[int, str, str | None]
"""level, module and name of an import"""


@dataclass(frozen=True, kw_only=True)
class _Names:
    """What one file binds."""

    names: dict[str, Origin | None]
    """with the origin of imported ones"""
    stars: tuple[Origin, ...]
    """its star imports"""
    known: bool
    """whether that is all"""
    listed: frozenset[str] | None
    """`__all__`, where one statement gives it as plain text"""


_NOTHING = _Names(names={}, stars=(), known=True, listed=None)


def _follow(top: Path, file: Path, origin: Origin, path: tuple[str, ...], depth: int) -> bool | None:
    """Look for `path` in what an import brings."""
    level, module, name = origin
    words = module.split(".") if module else []
    if level:
        base = file.parent
        for _ in range(level - 1):
            base = base.parent
    elif words[0] == "triton":
        base, words = top, words[1:]
    else:
        return None
    inner = tuple(words) + ((name,) if name is not None else ())
    return _has(top, base, inner + path, depth + 1)


@lru_cache(maxsize=256)
def _names(file: Path) -> _Names:
    with files.asked_by(files.FOR_ALL):
        tree = ast.parse(files.read(file).decode())
    names: dict[str, Origin | None] = {}
    stars: list[Origin] = []
    known = True
    for node in scope.own_nodes(tree.body):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name == "*":
                    stars.append((node.level, node.module or "", None))
                else:
                    names[alias.asname or alias.name] = (node.level, node.module or "", alias.name)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "globals"):
            known = False
    for statement in tree.body:
        for bound in scope.binds(statement):
            names.setdefault(bound, None)
    return _Names(names=names, stars=tuple(stars), known=known, listed=_listed(tree.body))


def _listed(body: list[ast.stmt]) -> frozenset[str] | None:
    binding = [node for node in body if "__all__" in scope.binds(node)]
    value = getattr(binding[0], "value", None) if len(binding) == 1 else None
    return scope.texts(value) if isinstance(value, (ast.List, ast.Tuple)) else None

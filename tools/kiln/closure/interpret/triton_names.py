"""Whether the installed Triton has a name, read off its files: a build that has nothing to do does not import it."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path

from kiln.closure import scope


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
    file = place / "__init__.py" if place.is_dir() else place
    names, stars, known = _names(file) if file.is_file() else ({}, (), True)
    # `from . import language` binds a module of the package's own.
    if name in names and not (place.is_dir() and names[name] == (1, "", name)):
        origin = names[name]
        if not rest:
            return True
        if origin is None:
            return None
        return _follow(top, file, origin, rest, depth)
    if place.is_dir():
        for below in (place / name, place / f"{name}.py"):
            if (below.is_dir() and any(file.is_file() for file in below.iterdir())) or below.is_file():
                return _has(top, below, rest, depth + 1)
    for star in stars:
        found = _follow(top, file, star, path, depth)
        if found is not False:
            return found
    return False if known else None


Origin = tuple[int, str, str | None]
"""level, module and name of an import"""


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
def _names(file: Path) -> tuple[dict[str, Origin | None], tuple[Origin, ...], bool]:
    """The names that a file binds, with the origin of imported ones; its star imports; whether that is all."""
    tree = ast.parse(file.read_text("utf-8"))
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
    return names, tuple(stars), known

"""What an import means to a slice: Triton, a part of the standard library, a file of the project, or neither."""

from __future__ import annotations

import ast
import hashlib
import keyword
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from kiln.closure.module import SourceModule, Unit, load_module
from kiln.closure.scope import plain_path
from kiln.errors import ClosureError

PACKAGE = "kiln_slice"
"""the package that slices of project files are modules of"""


@dataclass(frozen=True, kw_only=True)
class Outside:
    """A module that is no file of the project."""

    dotted: str


@dataclass(frozen=True, kw_only=True)
class Location:
    """A module or package of the project."""

    parts: tuple[str, ...]
    """its path below the root without `.py` or `__init__.py`"""
    path: Path | None
    """None for a folder without `__init__.py`"""


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A name at module level of a project file, and the attributes that are read off it."""

    module: SourceModule
    name: str
    attributes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Missing:
    """A path of attributes that leads nowhere."""

    location: Location
    name: str


@dataclass(frozen=True, kw_only=True)
class Imported:
    """The module of an import statement, and the names looked up in it (none for `import a`)."""

    module: Outside | Location
    names: tuple[str, ...]


def synthetic_name(parts: tuple[str, ...]) -> str:
    """The name that a project module has in a slice: `kiln_slice.kernels.softmax` for kernels/softmax.py."""
    return ".".join((PACKAGE, *map(_identifier, parts)))


def _identifier(part: str) -> str:
    if part.isidentifier() and not keyword.iskeyword(part):
        return part
    # A file name need be no identifier; the digest keeps `a-b` and `a_b` apart.
    return f"{re.sub('[^A-Za-z0-9]', '_', part)}_{hashlib.sha256(part.encode()).hexdigest()[:8]}"


def parts_of(file: str) -> tuple[str, ...]:
    """The parts of a file's module: ("kernels", "softmax") for kernels/softmax.py, ("kernels",) for its __init__.py."""
    folders = file.split("/")
    stem = folders.pop().removesuffix(".py")
    return (*folders, stem) if stem != "__init__" else tuple(folders)


@dataclass(frozen=True, kw_only=True)
class Project:
    """The folder that kernels.yaml stands in: absolute imports are looked up there and beside the importing file."""

    root: Path

    def open(self, path: Path) -> SourceModule:
        """The module in the file `path`. Raises ClosureError if it lies outside the project or does not parse."""
        try:
            real = path.resolve().relative_to(self.root.resolve())
            # As the project spells it, where links may stand for folders; a path by another way is spelled by its own.
            file = (path.relative_to(self.root) if path.is_relative_to(self.root) else real).as_posix()
        except ValueError:
            raise ClosureError(
                "the file lies outside the project",
                where=str(path),
                expected=f"a file below {self.root}, links followed",
                actual=str(path.resolve()),
                remedy="move or copy it into the project",
            ) from None
        return load_module(path, file)

    def locate(self, parts: tuple[str, ...]) -> Location | None:
        """The module of that name, in Python's order: a package, a file, a folder."""
        folder = self.root.joinpath(*parts)
        for path in (folder / "__init__.py", *([folder.with_name(f"{parts[-1]}.py")] if parts else ())):
            if path.is_file():
                return Location(parts=parts, path=path)
        return Location(parts=parts, path=None) if folder.is_dir() else None

    def imported(self, importer: SourceModule, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> Imported:
        """What one name of an import statement is bound to.

        Raises ClosureError for a relative import that leaves the project, for a module that the project has twice, and
        for one that it has only in part.
        """
        if isinstance(node, ast.ImportFrom):
            module = self._module(importer, node, node.module or "", node.level)
            return Imported(module=module, names=(alias.name,))
        name = alias.name if alias.asname else alias.name.partition(".")[0]
        return Imported(module=self._module(importer, node, name, 0), names=())

    def _module(self, importer: SourceModule, node: ast.stmt, name: str, level: int) -> Outside | Location:
        folder = tuple(importer.file.split("/")[:-1])
        words = tuple(name.split(".")) if name else ()
        if level:
            if level - 1 > len(folder):
                raise ClosureError(
                    f"the relative import `{ast.unparse(node)}` leads out of the project",
                    where=importer.position(node),
                    expected=f"a module below {self.root}",
                    remedy="move the imported file into the project",
                )
            base = folder[: len(folder) - level + 1]
            found = self.locate(base + words)
            if found is None:
                raise self._not_there(importer, node, [base + words])
            return found
        if words[0] == "triton" or words[0] in sys.stdlib_module_names:
            return Outside(dotted=name)
        bases = [(), folder] if folder else [()]
        locations = [location for base in bases if (location := self.locate(base + words)) is not None]
        if len(locations) == 2 and None not in (locations[0].path, locations[1].path):
            raise ClosureError(
                f"`{ast.unparse(node)}` could mean two files",
                where=importer.position(node),
                expected="one file, below the project's root or beside the importing file",
                actual=" and ".join(str(location.path) for location in locations),
                remedy="write it as a relative import, or rename one of them",
            )
        if locations:
            # A plain folder is only a namespace; a file wins over it.
            return next((location for location in locations if location.path is not None), locations[0])
        if any(self.locate((*base, words[0])) is not None for base in bases):
            raise self._not_there(importer, node, [base + words for base in bases])
        return Outside(dotted=name)

    def _not_there(self, importer: SourceModule, node: ast.stmt, tried: list[tuple[str, ...]]) -> ClosureError:
        return ClosureError(
            f"`{ast.unparse(node)}` names a module that the project does not have",
            where=importer.position(node),
            expected=" or ".join(f"{'/'.join(parts)}.py" for parts in tried),
            remedy="check the name; only files of the project can be cut",
        )

    def follow(
        self, location: Location, path: tuple[str, ...], importer: SourceModule
    ) -> Definition | Location | Missing:
        """Go down from a module: to a name that it binds, else to a module below it, as far as the path goes."""
        while path:
            is_package = location.path is None or location.path.name == "__init__.py"
            below = self.locate((*location.parts, path[0])) if is_package else None
            if location.path is not None:
                module = self.open(location.path)
                # `from . import x` in a package's own `__init__.py` binds x there, and gets the module.
                is_own = module.path == importer.path and below is not None
                if module.binding(path[0]) and not is_own:
                    return Definition(module=module, name=path[0], attributes=path[1:])
            if below is None:
                return Missing(location=location, name=path[0])
            location, path = below, path[1:]
        return location

    def canonical(self, module: SourceModule, node: ast.expr) -> str | None:
        """The dotted name outside the project that an expression stands for: `triton.jit` for a `jit` imported from it.

        Imports and plain renamings (`jit = triton.jit`) are followed, across files as well. None for anything else.
        """
        path = plain_path(node)
        return None if path is None else self.canonical_path(module, *path)

    def canonical_path(
        self,
        module: SourceModule,
        name: str,
        attributes: tuple[str, ...],
        seen: frozenset[tuple[str, str]] = frozenset(),
    ) -> str | None:
        """The same for a name and the attributes that are read off it."""
        units = module.binding(name)
        if not units or (module.file, name) in seen:
            return None
        seen |= {(module.file, name)}
        node = units[-1].node
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            imported = self.imported(module, node, alias_of(node, name))
            path = (*imported.names, *attributes)
            if isinstance(imported.module, Outside):
                return ".".join((imported.module.dotted, *path))
            end = self.follow(imported.module, path, module)
            return (
                self.canonical_path(end.module, end.name, end.attributes, seen) if isinstance(end, Definition) else None
            )
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            path_of_value = plain_path(node.value)
            if path_of_value is not None:
                return self.canonical_path(module, path_of_value[0], path_of_value[1] + attributes, seen)
        return None


def alias_of(node: ast.Import | ast.ImportFrom, name: str) -> ast.alias:
    """The last part of an import statement that binds `name`."""
    return [alias for alias in node.names if bound_by(alias) == name][-1]


def bound_by(alias: ast.alias) -> str:
    """The name that one part of an import statement binds."""
    return alias.asname or alias.name.partition(".")[0]


def is_import(unit: Unit) -> bool:
    return isinstance(unit.node, (ast.Import, ast.ImportFrom))

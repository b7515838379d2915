"""What an import means to a slice: Triton, a part of the standard library, a file of the project, or neither."""

from __future__ import annotations

import ast
import hashlib
import keyword
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from kiln import files
from kiln.closure import stars
from kiln.closure.module import Conditional, Decision, SourceModule, Spot, Unit, load_module
from kiln.closure.roots import Roots
from kiln.closure.scope import imports_inside, plain_path
from kiln.errors import ClosureError, UncutError
from kiln.manifest import installed

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
    """its name in parts, without `.py` or `__init__.py`"""
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
    """The folders that imports are looked up in.

    An absolute import is looked up in the importing file's own root and beside the file, then in the folder of
    kernels.yaml, in the other roots, and in installed packages; one in an installed package, in such packages only.
    """

    root: Path
    """the folder that kernels.yaml stands in"""
    roots: tuple[str, ...] = ()
    """further folders, relative to it, which may lead out of it: `../third_party/flash`"""
    decided: Mapping[str, Mapping[Spot, Decision]] = field(default_factory=dict)
    """file -> where an `if` or `try` begins at module level -> what it comes to"""
    start: Path | None = None
    """the file whose import begins all, where it is not the one at hand: what it imports may change other files"""
    is_cut: bool = False
    """whether a needed name raises Conditional where a condition that is not decided binds it; the last binding counts
    otherwise"""

    @cached_property
    def folders(self) -> Roots:
        """The same folders with those of installed packages, and what files are called."""
        return Roots(root=self.root, others=self.roots)

    def adopt(self, dotted: str) -> bool:
        """Follow imports into the installed package of a module from now on; False when there is none.

        To be asked where something of the package is needed: what nobody needs makes no difference, there or not.
        """
        return self.folders.adopt(dotted)

    def open(self, path: Path) -> SourceModule:
        """The module in the file `path`. Raises ClosureError if it lies outside the project or does not parse."""
        file = self.folders.name(path)
        return load_module(path, file, self.decided.get(file))

    def locate(self, parts: tuple[str, ...]) -> Location | None:
        """The module of that name, in Python's order: a package, a file, a folder."""
        found = [location for path in self.folders.paths(parts) if (location := self._at(path)) is not None]
        return next((location for location in found if location.path is not None), found[0] if found else None)

    def _at(self, folder: Path) -> Location | None:
        """The module whose path without `.py` or `__init__.py` is `folder`."""
        parts, base = self.folders.spelled(folder), self.folders.base_of(folder)
        if parts is None or base is None:
            return None
        for path in (
            folder / "__init__.py",
            *([folder.with_name(f"{folder.name}.py")] if folder != base.folder else ()),
        ):
            if files.is_file(path):
                return Location(parts=parts, path=path)
        return Location(parts=parts, path=None) if files.is_dir(folder) else None

    def needed(self, importer: SourceModule, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> Imported:
        """What one name of an import statement is bound to, which is needed: an installed package is read for it."""
        imported = self.imported(importer, node, alias)
        if isinstance(imported.module, Outside) and self.adopt(imported.module.dotted):
            return self.imported(importer, node, alias)
        return imported

    def imported(self, importer: SourceModule, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> Imported:
        """What one name of an import statement is bound to.

        Raises ClosureError for a relative import that leaves the project, for a module that the project has twice, and
        for one that it has only in part.
        """
        if isinstance(node, ast.ImportFrom):
            find = self._relative if node.level else self._absolute
            return Imported(module=find(importer, node, node.module or ""), names=(alias.name,))
        name = alias.name if alias.asname else alias.name.partition(".")[0]
        return Imported(module=self._absolute(importer, node, name), names=())

    def _path(self, module: SourceModule) -> Path:
        """The path of a module below its root: a link may lead to the file by another one."""
        if self.folders.base_of(module.path) is not None:
            return module.path
        return next(self.folders.paths(tuple(module.file.split("/"))))

    def _relative(self, importer: SourceModule, node: ast.ImportFrom, name: str) -> Location:
        above = self._path(importer).parents
        folder = above[min(node.level, len(above)) - 1]
        base = self.folders.base_of(folder)
        if base is None or (base.is_installed and folder == base.folder):
            raise ClosureError(
                f"the relative import `{ast.unparse(node)}` leads out of the project",
                where=importer.position(node),
                expected=f"a module below {' or '.join(str(each.folder) for each in self.folders.bases)}",
                remedy="move the imported file into the project, or declare a root above both under `roots`",
            )
        path = folder.joinpath(*name.split(".")) if name else folder
        found = self._at(path)
        if found is None:
            raise self._not_there(importer, node, [path])
        return found

    def _absolute(self, importer: SourceModule, node: ast.stmt, name: str) -> Outside | Location:
        words = tuple(name.split("."))
        if words[0] == "triton" or words[0] in sys.stdlib_module_names:
            return Outside(dotted=name)
        path = self._path(importer)
        own = self.folders.base_of(path)
        if own is not None and own.is_installed:
            self.adopt(importer.file.split("/")[1].removesuffix(".py"))
            return self._installed(words) or Outside(dotted=name)
        near = dict.fromkeys([*([own.folder] if own is not None else []), path.parent])
        locations = [location for folder in near if (location := self._at(folder.joinpath(*words))) is not None]
        if len(locations) == 2 and None not in (locations[0].path, locations[1].path):
            raise ClosureError(
                f"`{ast.unparse(node)}` could mean two files",
                where=importer.position(node),
                expected="one file, below the project's root or beside the importing file",
                actual=" and ".join(str(location.path) for location in locations),
                remedy="write it as a relative import, or rename one of them",
            )
        folders = dict.fromkeys([*near, *(base.folder for base in self.folders.bases)])
        locations += [
            location
            for folder in folders
            if folder not in near and (location := self._at(folder.joinpath(*words))) is not None
        ]
        # A plain folder is only a namespace; a file wins over it.
        with_files = [location for location in locations if location.path is not None]
        if with_files:
            return with_files[0]
        tops = [location for folder in folders if (location := self._at(folder / words[0])) is not None]
        is_shadowed = any(location.path is not None for location in tops)
        if not is_shadowed and self.folders.homes(words[0]):
            return self._installed(words) or Outside(dotted=name)
        if locations:
            return locations[0]
        if tops:
            raise self._not_there(importer, node, [folder.joinpath(*words) for folder in folders])
        return Outside(dotted=name)

    def _installed(self, words: tuple[str, ...]) -> Location | None:
        """The module of an installed package that imports are followed into."""
        return self.locate((installed.FOLDER, *words)) if words[0] in self.folders.adopted else None

    def _not_there(self, importer: SourceModule, node: ast.stmt, tried: Sequence[Path]) -> ClosureError:
        names = [f"{'/'.join(self.folders.spelled(path) or (str(path),))}.py" for path in tried]
        return ClosureError(
            f"`{ast.unparse(node)}` names a module that the project does not have",
            where=importer.position(node),
            expected=" or ".join(dict.fromkeys(names)),
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
                bound = self.binding(module, path[0])
                if bound and below is not None and below.path is not None and not is_own:
                    self._refuse_namesake(module, bound[-1], below, path[0])
                if bound and not is_own:
                    return Definition(module=module, name=path[0], attributes=path[1:])
            if below is None:
                return Missing(location=location, name=path[0])
            location, path = below, path[1:]
        return location

    def _refuse_namesake(self, package: SourceModule, unit: Unit, below: Location, name: str) -> None:
        """Raise UncutError for a name of a package that a module in it has, too: importing that replaces the name.

        A package that imports the module for the name has both from the beginning: `from .softmax import softmax`.
        """
        node = unit.node
        if isinstance(node, ast.ImportFrom):
            alias = alias_of(node, name)
            start = self.imported(package, node, alias).module
            if isinstance(start, Location):
                end = self.follow(start, (alias.name,), package)
                if start.parts == below.parts or (isinstance(end, Definition) and end.module.path == below.path):
                    return
                if end == below:
                    return
        raise UncutError(
            f"{name} of {package.file} is also a module there, and which of them is meant hangs on who imports it",
            where=package.position(node),
            expected="another name for one of them",
            actual=f"{package.file} and {self.folders.name(below.path) if below.path else name}",
            remedy=f"rename {name}, or import it from the file that defines it",
        )

    def canonical(self, module: SourceModule, node: ast.expr, *, needed: bool = False) -> str | None:
        """The dotted name outside the project that an expression stands for: `triton.jit` for a `jit` imported from it.

        Imports and plain renamings (`jit = triton.jit`) are followed, across files as well; into an installed package
        that nothing needed before, if this is `needed`. None for anything else.
        """
        path = plain_path(node)
        return None if path is None else self.canonical_path(module, *path, needed=needed)

    def canonical_path(
        self,
        module: SourceModule,
        name: str,
        attributes: tuple[str, ...],
        seen: frozenset[tuple[str, str]] = frozenset(),
        *,
        needed: bool = False,
    ) -> str | None:
        """The same for a name and the attributes that are read off it.

        Raises Conditional for one that is `needed` in a cut, where a condition decides what it stands for.
        """
        units = self.binding(module, name)
        if not units or (module.file, name) in seen:
            return None
        if needed and self.is_cut and units[-1].undecided is not None:
            raise Conditional(module, units[-1], name)
        seen |= {(module.file, name)}
        node = units[-1].node
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            return self.canonical_import(module, node, name, attributes, seen, needed=needed)
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            path_of_value = plain_path(node.value)
            if path_of_value is not None:
                return self.canonical_path(module, path_of_value[0], path_of_value[1] + attributes, seen, needed=needed)
        return None

    def canonical_import(
        self,
        module: SourceModule,
        node: ast.Import | ast.ImportFrom,
        name: str,
        attributes: tuple[str, ...],
        seen: frozenset[tuple[str, str]] = frozenset(),
        *,
        needed: bool = False,
    ) -> str | None:
        """The same for a name as the import statement `node` binds it, wherever in `module` that stands."""
        imported = (self.needed if needed else self.imported)(module, node, alias_of(node, name))
        path = (*imported.names, *attributes)
        if isinstance(imported.module, Outside):
            return ".".join((imported.module.dotted, *path))
        end = self.follow(imported.module, path, module)
        if not isinstance(end, Definition):
            return None
        return self.canonical_path(end.module, end.name, end.attributes, seen, needed=needed)

    def binding(self, module: SourceModule, name: str) -> tuple[Unit, ...]:
        """The units of a file that bind a name, star imports that bring it among them."""
        return stars.binding(self, module, name)

    @cached_property
    def stars(self) -> dict[tuple[SourceModule, str], tuple[Unit, ...]]:
        """What has been found of that."""
        return {}

    def module_at(self, module: SourceModule, name: str, attributes: tuple[str, ...]) -> SourceModule | None:
        """The project's module that a name, and the attributes that are read off it, stand for."""
        units = module.binding(name)
        node = units[-1].node if units else None
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            return None
        imported = self.imported(module, node, alias_of(node, name))
        if isinstance(imported.module, Outside):
            return None
        end = self.follow(imported.module, (*imported.names, *attributes), module)
        return self.open(end.path) if isinstance(end, Location) and end.path is not None else None


def alias_of(node: ast.Import | ast.ImportFrom, name: str) -> ast.alias:
    """The last part of an import statement that binds `name`."""
    return [alias for alias in node.names if bound_by(alias) == name][-1]


def bound_by(alias: ast.alias) -> str:
    """The name that one part of an import statement binds."""
    return alias.asname or alias.name.partition(".")[0]


def bound_inside(node: ast.stmt) -> dict[str, ast.Import | ast.ImportFrom]:
    """Name -> the import statement inside a definition that binds it."""
    return {bound_by(alias): inner for inner in imports_inside(node) for alias in inner.names}


def is_import(unit: Unit) -> bool:
    """Whether a statement is an import."""
    return isinstance(unit.node, (ast.Import, ast.ImportFrom))

"""Where a project's Python files lie: in its folder, below roots and in installed packages; and their names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from kiln.errors import ClosureError
from kiln.files import FOR_ALL, Memo, asked_by, real
from kiln.manifest import installed


@dataclass(frozen=True, kw_only=True)
class Base:
    """A folder below which modules are looked up."""

    label: tuple[str, ...]
    """what stands before the paths of its files: nothing, ("..", "third_party", "flash") or ("site-packages",)"""
    folder: Path

    @property
    def is_installed(self) -> bool:
        return self.label == (installed.FOLDER,)


@dataclass(frozen=True, kw_only=True)
class Roots:
    """The folders of one project. A file is called by a name that is the same on every machine.

    Such a name is the path from the project's folder, which may lead out of it to a declared root
    (`../third_party/flash/ops/x.py`); of a file in an installed package, it is the path from the folder that the
    package is installed in, after `site-packages/`.
    """

    root: Path
    """the project's own folder, which kernels.yaml stands in"""
    others: tuple[str, ...] = ()
    """further ones, relative to it; only these may lead out of it"""
    adopted: set[str] = field(default_factory=set)
    """The installed packages that imports are followed into, by their top-level names. A package that no kernel needs
    stays unread, so that it makes no difference whether a machine has it. More come as they are needed."""

    @cached_property
    def bases(self) -> tuple[Base, ...]:
        """The project's folder and the declared roots."""
        found = [Base(label=(), folder=self.root)]
        for text in self.others:
            label = tuple(text.split("/"))
            folder = self.root.joinpath(*label)
            # With its `..` resolved, a path is below the folder when it begins with it.
            with asked_by(FOR_ALL):
                found.append(Base(label=label, folder=real(folder) if ".." in label else folder))
        return tuple(found)

    @cached_property
    def packages(self) -> tuple[Base, ...]:
        """The folders that packages are installed in."""
        with asked_by(FOR_ALL):
            folders = installed.search_path([base.folder for base in self.bases])
        return tuple(Base(label=(installed.FOLDER,), folder=folder) for folder in folders)

    def adopt(self, name: str) -> bool:
        """Follow imports of the installed package `name` from now on; False when there is none to follow into."""
        top = name.partition(".")[0]
        if top not in self.adopted and self.homes(top):
            self.adopted.add(top)
        return top in self.adopted

    def homes(self, top: str) -> list[Base]:
        """The folders that hold a part of the installed top-level package."""

        def find() -> list[Base]:
            folders = installed.find_package(top, [base.folder for base in self.packages])
            return [base for base in self.packages if base.folder in folders]

        return self._homes.get(top, find)

    @cached_property
    def _homes(self) -> Memo[str, list[Base]]:
        return Memo()

    def base_of(self, path: Path) -> Base | None:
        """The innermost folder that `path` lies in, as it is spelled."""
        inside = f"{path}/"
        return next((base for start, base in self._starts if inside.startswith(start)), None)

    @cached_property
    def _starts(self) -> list[tuple[str, Base]]:
        """What a path below each folder begins with, inner folders first."""
        found = [(f"{base.folder}/", base) for base in (*self.bases, *self.packages)]
        return sorted(found, key=lambda item: -len(item[1].folder.parts))

    def spelled(self, path: Path) -> tuple[str, ...] | None:
        """The name of a file or folder, in parts, as its path is spelled; None for one that lies in no folder."""
        base = self.base_of(path)
        return None if base is None else (*base.label, *path.relative_to(base.folder).parts)

    def name(self, path: Path) -> str:
        """The name of a file. Raises ClosureError for one that lies in none of the folders, links followed."""
        return self._names.get(path, lambda: self._name(path))

    @cached_property
    def _names(self) -> Memo[Path, str]:
        return Memo()

    def _name(self, path: Path) -> str:
        base, parts = self.base_of(path), self.spelled(path)
        if base is not None and base.is_installed:
            # Installers may link to files that they keep elsewhere.
            return "/".join(parts or ())
        resolved = real(path)
        inside = [(each, real(each.folder)) for each in self.bases]
        around = [(each, folder) for each, folder in inside if resolved.is_relative_to(folder)]
        if not around:
            raise ClosureError(
                "the file lies outside the project",
                where=str(path),
                expected=f"a file below {' or '.join(str(each.folder) for each in self.bases)}, links followed",
                actual=str(resolved),
                remedy="move or copy it into the project, or declare its folder under `roots`",
            )
        if parts is None:
            innermost, folder = max(around, key=lambda item: len(item[1].parts))
            parts = (*innermost.label, *resolved.relative_to(folder).parts)
        # Otherwise as the project spells it, where links may stand for folders.
        if parts[0] == installed.FOLDER:
            raise ClosureError(
                f"the project has a folder called {installed.FOLDER}, and that name stands for installed packages",
                where=str(path),
                remedy="rename the folder",
            )
        return "/".join(parts)

    def paths(self, parts: tuple[str, ...]) -> Iterator[Path]:
        """Where a file or folder of that name, in parts, can lie."""
        if parts[:1] == (installed.FOLDER,):
            homes = self.homes(parts[1]) if len(parts) > 1 else []
            yield from (base.folder.joinpath(*parts[1:]) for base in homes)
            return
        around = [base for base in self.bases if parts[: len(base.label)] == base.label]
        if parts[:1] == ("..",):
            around = [base for base in around if base.label]
        if around:
            base = max(around, key=lambda base: len(base.label))
            yield base.folder.joinpath(*parts[len(base.label) :])

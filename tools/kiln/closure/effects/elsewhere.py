"""The statements that change what a name stands for, found in all files that are imported, most of them unparsed."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

from kiln.closure.effects.touches import Effects, Touch
from kiln.closure.imported import DYNAMIC, Imported
from kiln.closure.module import SourceModule, Unit
from kiln.closure.names import Place
from kiln.closure.resolve import Outside, Project, is_import
from kiln.errors import ClosureError


class Elsewhere:
    """Looks through the files that are imported along with one. Those that name nothing of concern are not parsed.

    What does it without naming anything that leads there, `for module in sys.modules.values()`, is not seen but in the
    name's own file.
    """

    def __init__(self, project: Project, files: Imported, effects: Effects) -> None:
        self._project = project
        self._files = files
        self._effects = effects

    def changing(self, module: SourceModule, name: str, *, in_place: bool) -> Iterator[tuple[SourceModule, Unit]]:
        """The statements that may give a name of `module` another object, or change that `in_place`.

        That others give `triton` or `torch` another meaning in a file is not looked for.
        """
        target = self._effects.names.trace(module, name)
        if isinstance(target, Outside) and not target.dotted.startswith("?"):
            return
        words = {name}
        paths = self._files.rebinding(name, module.path)
        if not paths and not in_place:
            return
        modules = {module.path: module}
        units: dict[tuple[str, int], tuple[SourceModule, Unit]] = {}
        grows = True
        while grows:
            grows = False
            for path in {*paths, *self._files.naming(words if in_place else words - {name})} - modules.keys():
                opened = self._open(path)
                if opened is not None:
                    modules[path] = opened
            for other in list(modules.values()):
                wanted = words | DYNAMIC if other is module else words
                for unit in other.units:
                    if (other.file, unit.index) not in units and _names(other, unit, wanted):
                        units[other.file, unit.index] = other, unit
                        new = self._leading(other, unit, (module.file, name), words, in_place=in_place) - words
                        words |= new
                        grows = grows or bool(new)
        for other, unit, touched in self._effects.touched_by(
            [each for each in units.values() if not is_import(each[1])]
        ):
            if any(self._counts(touch, other, (module.file, name), in_place=in_place) for touch in touched):
                yield other, unit

    def _counts(self, touch: Touch, other: SourceModule, place: Place, *, in_place: bool) -> bool:
        """Packages re-export in ways that only a run can follow: in other files, only what is named counts."""
        is_named = touch.is_definite or touch.place == (place[0], "") or other.file == place[0]
        return is_named and touch.touches(*place) and (in_place or touch.rebinds)

    def _leading(
        self, other: SourceModule, unit: Unit, place: Place, words: Collection[str], *, in_place: bool
    ) -> frozenset[str]:
        """The names of a statement through which others may change the name: aliases, and functions that do it."""
        if isinstance(unit.node, (ast.Import, ast.ImportFrom)):
            return frozenset(alias.asname for alias in unit.node.names if alias.asname and alias.name in words)
        if isinstance(unit.node, (ast.FunctionDef, ast.ClassDef)):
            functions = [node for node in ast.walk(unit.node) if isinstance(node, ast.FunctionDef)]
            touched = (touch for node in functions for touch in self._effects.of_call(other, node))
            is_leading = any(self._counts(touch, other, place, in_place=in_place) for touch in touched)
            return unit.binds if is_leading else frozenset()
        return unit.binds if in_place else frozenset()

    def _open(self, path: Path) -> SourceModule | None:
        try:
            module = self._project.open(path)
        except ClosureError:
            # It is imported for something that the kernel does not need; Python says what is wrong with it.
            return None
        self._effects.names.modules[module.file] = module
        return module


def _names(module: SourceModule, unit: Unit, words: Collection[str]) -> bool:
    """Whether the text of a statement has one of the words in it; it may be a part of another word."""
    first = min([unit.node.lineno, *(node.lineno for node in getattr(unit.node, "decorator_list", ()))])
    return any(word in line for line in module.lines[first - 1 : unit.node.end_lineno] for word in words)

"""Which statements change a module's name besides those that the interpreter runs for it, as the text tells."""

from __future__ import annotations

from pathlib import Path

from kiln.closure.effects.bindings import Bindings
from kiln.closure.effects.elsewhere import Elsewhere
from kiln.closure.effects.touches import Effects
from kiln.closure.imported import Imported, imported
from kiln.closure.interpret.builtins import is_view
from kiln.closure.interpret.values import (
    ClassValue,
    ConfigValue,
    LocalFunction,
    Method,
    Once,
    Partial,
    Undecided,
)
from kiln.closure.module import SourceModule, Unit
from kiln.closure.names import Names
from kiln.closure.resolve import Project
from kiln.errors import UncutError


class Changes:
    """The changes for one run of the interpreter; what is found is kept."""

    def __init__(self, project: Project, names: Names, start: Path) -> None:
        """`start` is the file that is imported first: what it imports may change things too."""
        self._project = project
        self._names = names
        self._start = start
        self._imported: Imported | None = None
        bindings = Bindings(names)
        self._effects = {in_place: Effects(bindings, objects=in_place) for in_place in (False, True)}
        self._found: dict[tuple[str, str, bool], list[tuple[SourceModule, Unit]]] = {}

    def of(self, module: SourceModule, name: str, *, in_place: bool) -> list[tuple[SourceModule, Unit]]:
        """The statements that may give a name of a module another object, or change its object where it can change.

        Those that bind the name are not among them. Raises Undecided where that is too much to look through.
        """
        key = (module.file, name, in_place)
        if key not in self._found:
            try:
                self._found[key] = self._find(module, name, in_place)
            except UncutError as error:
                raise Undecided(error.what) from None
        return self._found[key]

    def _find(self, module: SourceModule, name: str, in_place: bool) -> list[tuple[SourceModule, Unit]]:
        if self._imported is None:
            self._imported = imported(self._project, self._start)
        self._names.modules[module.file] = module
        elsewhere = Elsewhere(self._project, self._imported, self._effects[in_place])
        return list(elsewhere.changing(module, name, in_place=in_place))


def can_change(value: object) -> bool:
    """Whether a value, or something that it holds, can become another in place."""
    if isinstance(value, tuple):
        return any(map(can_change, value))
    if isinstance(value, LocalFunction):
        return any(map(can_change, value.defaults.values())) or value.frame.outer is not None
    if isinstance(value, Partial):
        return any(map(can_change, (value.function, *value.positional, *value.keywords.values())))
    if isinstance(value, Method):
        return can_change(value.owner)
    return isinstance(value, (list, dict, set, ClassValue, ConfigValue, Once))


def has_iterator(value: object) -> bool:
    """Whether a value is, or has as a part, what gives other things each time: an iterator, or a view of a map."""
    if isinstance(value, Once) or is_view(value):
        return True
    if isinstance(value, dict):
        return any(map(has_iterator, value.values()))
    return isinstance(value, (tuple, list)) and any(map(has_iterator, value))

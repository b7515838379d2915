"""The objects of one run of the interpreter that code in several places sees."""

from __future__ import annotations

from kiln.closure.interpret.values import LocalFunction, Method, Partial


class Shared:
    """Objects that nothing may change, with all that they hold, since they are the same wherever they are met again.

    The interpreter runs statements in the order in which their values are asked for, and some of them not at all. What
    a statement does to an object that others see as well would come at another time than in Python.
    """

    def __init__(self) -> None:
        # The objects are kept, so that no other gets the id of one.
        self._objects: dict[int, object] = {}

    def __contains__(self, value: object) -> bool:
        return id(value) in self._objects

    def add(self, value: object) -> None:
        """Enter an object, and what can be reached through it."""
        pending = [value]
        while pending:
            item = pending.pop()
            if item in self:
                continue
            held = _held(item)
            if held is not None:
                self._objects[id(item)] = item
                pending += held


def _held(value: object) -> list[object] | None:
    """What a container or a function holds; None for anything else."""
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, (list, set, tuple)):
        return list(value)
    if isinstance(value, LocalFunction):
        found = list(value.defaults.values())
        frame = value.frame
        while frame.outer is not None:
            found += frame.names.values()
            frame = frame.outer
        return found
    if isinstance(value, Partial):
        return [value.function, *value.positional, *value.keywords.values()]
    return [value.owner] if isinstance(value, Method) else None

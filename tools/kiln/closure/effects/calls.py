"""What a call does: to what it is given, through the functions of the project that it runs, and what it gives back."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from kiln.closure import packages, scope
from kiln.closure.effects.bindings import Callee
from kiln.closure.effects.references import (
    NOTHING,
    Arguments,
    Change,
    Flow,
    Job,
    Link,
    given_as_one,
    held,
    parts,
    reached,
    then,
)
from kiln.closure.module import SourceModule
from kiln.closure.names import ANY_MODULE, Builtin, Function, Local, Place, Scope
from kiln.closure.resolve import Definition, Outside

_MADE = frozenset({"__del__", "__init__", "__new__", "__post_init__", "__prepare__", "_missing_"})
"""methods that run when a class is called, or later unasked; a metaclass has `__prepare__`, an Enum `_missing_`"""

if TYPE_CHECKING:
    from kiln.closure.effects.walk import Walk


class Calls:
    """The calls of one walk, and the functions that stand inside what is walked. Its state grows with the walk's."""

    def __init__(self, walk: Walk, later: int) -> None:
        self._walk = walk
        self._later = later
        self.called: set[Place] = set()
        self.given_to_inner: Place | None = None
        self._calling: set[Place] = set()
        self._inner: dict[Place, list[Place]] = {}
        """inner functions and lambdas -> their parameters"""
        self._waiting: dict[Place, tuple[Function, list[Scope]]] = {}
        """those that nothing has called yet -> the scopes around them"""
        self._running: list[Place] = []

    def arguments(self, node: ast.Call) -> Arguments:
        spread = [item.value for item in node.args if isinstance(item, ast.Starred)]
        spread += [item.value for item in node.keywords if item.arg is None]
        return Arguments(
            positional=[self._walk.flow(item) for item in node.args if not isinstance(item, ast.Starred)],
            keywords={item.arg: self._walk.flow(item.value) for item in node.keywords if item.arg is not None},
            spread=parts(self._walk.flow_all(spread)),
        )

    def call(self, function: ast.expr, given: Arguments) -> Flow:
        """The result of a call of `function`; what the call does is taken down."""
        path = scope.plain_path(function)
        target = self._walk.target(*path) if path is not None else None
        if isinstance(target, Builtin):
            return self._builtin(target, given)
        if isinstance(target, Outside):
            return self._outside(target.dotted, given)
        if isinstance(target, Definition) and not target.attributes:
            return self._project(
                self._walk.bindings.callees((target.module.file, target.name)), self._walk.flow(function), given
            )
        if isinstance(function, ast.Attribute):
            return self._method(function, given)
        if isinstance(function, ast.Subscript) and self._is_kernel(function.value):
            self._walk.flow(function.slice)
            return NOTHING
        if isinstance(function, ast.Call):
            found = self._called_later(function, given)
            if found is not None:
                return found
        return self._project([], self._walk.flow(function), given, self._origin(function))

    def _called_later(self, function: ast.Call, given: Arguments) -> Flow | None:
        """The result of `f(x)(y)`, where f is a function of the project; None where it is something else."""
        depth, inner = 1, function
        while isinstance(inner.func, ast.Call):
            depth, inner = depth + 1, inner.func
        path = scope.plain_path(inner.func)
        target = self._walk.target(*path) if path is not None else None
        if not isinstance(target, Definition) or target.attributes:
            return None
        callees = self._walk.bindings.callees((target.module.file, target.name))
        if not callees or any(isinstance(callee.node, ast.ClassDef) for callee in callees):
            return None
        self._walk.flow(function)
        first = self.arguments(inner)
        later = replace(first, later=given.every)
        flows = [self.run(replace(callee, later=max(depth, callee.later)), later) for callee in callees]
        return frozenset().union(*flows) | parts(first.every | given.every)

    def _is_kernel(self, node: ast.expr) -> bool:
        """Whether an expression is a jitted function: `kernel[grid](x)` and `kernel.warmup(x)` change nothing."""
        path = scope.plain_path(node)
        target = self._walk.target(*path) if path is not None else None
        if not isinstance(target, Definition) or target.attributes:
            return False
        callees = self._walk.bindings.callees((target.module.file, target.name))
        return bool(callees) and self._walk.bindings.is_jitted(callees[0].module, callees[0].node)

    def _builtin(self, target: Builtin, given: Arguments) -> Flow:
        name = target.name
        if target.attributes:
            if target.changes:
                self._walk.change(given.every, deep=True, sure=True)
            return parts(given.every)
        here = (self._walk.module.file, "")
        inside = any(opened.is_function for opened in self._walk.scopes)
        if name == "exec":
            self._walk.facts.rebinds.add((self._walk.module.file, "*"))
        elif name == "eval":
            self._walk.facts.changes.add(Change(place=(self._walk.module.file, "*"), deep=True, sure=False))
        elif name == "__import__":
            return frozenset({(ANY_MODULE, Link.PART)})
        elif name == "globals" or (name in ("locals", "vars") and not given.every and not inside):
            return frozenset({(here, Link.SAME)})
        elif name in packages.READING_BUILTINS:
            self._walk.use(given.every)
            return NOTHING
        self._call_given(given.every, given.every)
        return parts(given.every) if name in packages.LEADING_BUILTINS else held(given.every)

    def _outside(self, name: str, given: Arguments) -> Flow:
        """A call of what lies outside the project."""
        if packages.gives_anything(name):
            return frozenset({(ANY_MODULE, Link.PART)})
        if packages.changes_arguments(name):
            self._walk.change(given.every, deep=False, sure=True)
        elif not packages.is_understood(name):
            self._walk.change(given.every, deep=True, sure=False)
        if packages.calls_methods(name):
            self.run_attribute(given.every, "*", given)
        if packages.calls_arguments(name):
            self._call_given(given.every, given.every)
        if packages.leads_to_arguments(name):
            return parts(given.every)
        return held(given.every) if packages.holds_arguments(name) else NOTHING

    def _method(self, function: ast.Attribute, given: Arguments) -> Flow:
        base, name = self._walk.flow(function.value), function.attr
        every = base | given.every
        own = self.methods(base, name)
        if name in packages.CHANGING_METHODS:
            self._walk.change(base, deep=False, sure=True)
            for place, _ in base:
                self._walk.facts.link(place, held(given.every))
            if name == "sort":
                self._call_given(given.every, base)
        origin = self._origin(function.value)
        if own:
            for callee in own:
                self.run(callee, given_as_one(self._walk.things(every)))
        elif name in packages.CHANGING_METHODS or name in packages.READING_METHODS or self._is_kernel(function.value):
            pass
        elif origin is not None:
            return self._outside(f"{origin}.{name}", given)
        else:
            self._walk.change(every, deep=True, sure=False)
            self._call_given(given.every, every)
        return held(every) if name == "copy" else parts(every)

    def methods(self, base: Flow, name: str) -> list[Callee]:
        """The methods of that name in this file, and in those that the object may come from."""
        files = sorted({self._walk.module.file, *(place[0] for place, _ in base)})
        return [callee for file in files for callee in self._walk.bindings.methods(file, name)]

    def run_attribute(self, base: Flow, name: str, given: Arguments) -> None:
        """Call what a name looked up as text leads to; a name with `*` at its end may be any that begins so."""
        begin = name.rstrip("*")
        found: list[Callee] = []
        for end in sorted(end for end in self._walk.ends(base) if end[0]):
            if not end[1] and begin == name:
                found += self._walk.bindings.callees((end[0], name))
            for made in self._walk.bindings.callees(end):
                if isinstance(made.node, ast.ClassDef):
                    methods = self._walk.bindings.inherited(made.module, made.node, None)
                    found += [each for each in methods if _name_of(each).startswith(begin)]
        for callee in found:
            self.run(callee, given_as_one(self._walk.things(base | given.every)))

    def _project(self, callees: list[Callee], function: Flow, given: Arguments, origin: str | None = None) -> Flow:
        """A call of something that the project made, from `function`; `origin` is where it comes from if not."""
        result: Flow = NOTHING
        ends = self._walk.ends(function)
        self.called |= {end for end in ends if not end[0]}
        result |= self._call_inner(ends, given.every)
        found = callees or [callee for end in sorted(ends) if end[0] for callee in self._walk.bindings.callees(end)]
        self._walk.facts.calls |= {end for end in ends if all(end) and not self._walk.bindings.is_function(end)}
        mixed = given_as_one(self._walk.things(given.every | parts(function)))
        for callee in found:
            result |= self.run(callee, given if callees and callee.exact else mixed)
        if callees and all(callee.exact for callee in callees):
            return result
        for callee in self.methods(function, "__call__"):
            result |= self.run(callee, mixed)
        if not found and not ends & self._inner.keys():
            if origin is not None:
                return self._outside(origin, given)
            self._walk.change(self._walk.things(given.every | function), deep=True, sure=False)
            self._call_given(given.every, given.every)
        return result | parts(self._walk.things(given.every | function))

    def run(self, callee: Callee, given: Arguments) -> Flow:
        if not isinstance(callee.node, ast.ClassDef):
            return self._apply(callee.module, callee.node, callee.later, given)
        for made in self._walk.bindings.inherited(callee.module, callee.node, _MADE):
            assert not isinstance(made.node, ast.ClassDef)
            own = Arguments(positional=(NOTHING, *given.positional), keywords=given.keywords, spread=given.spread)
            self._apply(made.module, made.node, 0, own)
        return held(given.every) | {((callee.module.file, callee.node.name), Link.HOLDS)}

    def _apply(self, module: SourceModule, node: Function, later: int, given: Arguments) -> Flow:
        """Take down what a call of a function with `given` does; its result."""
        matched = given.matched(node)
        concerned = frozenset(name for (_, name), flow in matched.items() if self._walk.facts.of_concern(flow))
        summary = self._walk.summary(Job(module=module, node=node, later=later, concerned=concerned))

        def actual(place: Place) -> Flow:
            return matched.get(place, frozenset({(place, Link.SAME)}) if place[0] else NOTHING)

        for change in summary.changes:
            self._walk.change(actual(change.place), deep=change.deep, sure=change.sure)
        for place, other, link in summary.links:
            flow = frozenset((end, then(link, second)) for end, second in actual(other))
            for holder, how in actual(place):
                if how is not Link.HOLDS:
                    self._walk.facts.link(holder, flow)
        self._walk.facts.rebinds |= summary.rebinds
        self._walk.facts.calls |= summary.calls
        for place in summary.called:
            self._call_given(actual(place), given.every)
        return frozenset((end, then(link, second)) for place, link in summary.result for end, second in actual(place))

    def _call_given(self, functions: Flow, given: Flow) -> None:
        """Functions among what a call is given, which it may call with the rest."""
        ends = self._walk.ends(functions)
        self.called |= {end for end in ends if not end[0]}
        self._call_inner(ends, given)
        # A function may be among all that is given; that it is given to itself is not what is meant.
        outer = sorted(end for end in ends - self._calling if end[0])
        self._calling.update(outer)
        for end in outer:
            for callee in self._walk.bindings.callees(end):
                if callee.exact and not isinstance(callee.node, ast.ClassDef):
                    self._apply(callee.module, callee.node, 0, given_as_one(self._walk.things(parts(given))))
        self._calling.difference_update(outer)

    def define(self, place: Place, node: Function) -> None:
        """Take down an inner function or a lambda. It is walked when it is called, a method at once."""
        self._inner[place] = []
        self._walk.facts.enliven(place)
        self._waiting[place] = (node, list(self._walk.scopes))
        if len(self._running) < self._later:
            self._start(place)
            if self.given_to_inner is not None:
                for parameter in self._inner[place]:
                    self._walk.facts.link(parameter, frozenset({(self.given_to_inner, Link.PART)}))
        elif self._walk.scopes and self._walk.scopes[-1].is_class:
            self._start(place)

    def _start(self, place: Place) -> None:
        if place not in self._waiting:
            return
        around = self._walk.scopes
        node, self._walk.scopes = self._waiting.pop(place)
        self._inner[place] = self._walk.enter(node)
        self._running.append(place)
        if isinstance(node, ast.Lambda):
            self.give_back(self._walk.flow(node.body))
        else:
            self._walk.run(node.body)
        self._running.pop()
        self._walk.scopes = around

    def give_back(self, flow: Flow) -> None:
        """What the function that is walked returns; that of an inner one has a place of its own."""
        if self._running:
            self._walk.facts.link(_returned(self._running[-1]), flow)
        if len(self._running) <= self._later:
            self._walk.result |= flow

    def finish(self, parameters: Iterable[Place]) -> None:
        """Walk the inner functions that may be called by others later: those put where others find them."""
        holders = [*parameters, *(place for place in self._walk.facts.links if place[0])]
        while True:
            found = {end for place in holders for end, _ in reached(self._walk.facts.links, place, True)}
            waiting = sorted(found & self._waiting.keys())
            if not waiting:
                return
            for place in waiting:
                self._start(place)

    def _call_inner(self, places: set[Place], given: Flow) -> Flow:
        """Inner functions among `places` are called; what they return."""
        found = places & self._inner.keys()
        for place in sorted(found):
            self._start(place)
            for parameter in self._inner[place]:
                self._walk.facts.link(parameter, parts(given))
        return frozenset((_returned(place), Link.SAME) for place in found)

    def _origin(self, node: ast.expr) -> str | None:
        """The dotted name outside the project that a value comes from, where no local variable stands between."""
        root: ast.expr = node
        while isinstance(root, (ast.Attribute, ast.Subscript, ast.Call)):
            root = root.func if isinstance(root, ast.Call) else root.value
        if isinstance(root, ast.Name) and isinstance(self._walk.target(root.id, ()), Local):
            return None
        return self._walk.bindings.origin(self._walk.module, node)


def _name_of(callee: Callee) -> str:
    return getattr(callee.node, "name", "")


def _returned(function: Place) -> Place:
    return (function[0], f"{function[1]}()")

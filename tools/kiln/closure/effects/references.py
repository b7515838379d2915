"""How references lead from one place to another, and what a piece of code does to the objects that they lead to."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kiln.closure.module import SourceModule
from kiln.closure.names import ANY, OUTSIDE, Function, Place, parameters_of


class Link(enum.IntEnum):
    """How one place leads to the object of another."""

    SAME = 1
    """`a = b`"""
    PART = 2
    """`a = b.c`, `for a in b`: a may be b's, or anything that b holds"""
    HOLDS = 3
    """`a = [b]`: a change of a itself leaves b"""


Flow = frozenset[tuple[Place, Link]]
"""where the value of an expression may come from"""

NOTHING: Flow = frozenset()
LATER = "<later>"
"""stands for the parameters of the functions that a function gives back"""


@dataclass(frozen=True, kw_only=True)
class Change:
    """The object at a place may become another in place."""

    place: Place
    deep: bool
    """whether it may be what the object holds that changes"""
    sure: bool
    """whether the text says so; otherwise it is a call of something that is not understood"""


@dataclass(kw_only=True)
class Facts:
    """What code does. It grows while the code is walked, so it is not frozen."""

    links: dict[Place, set[tuple[Place, Link]]] = field(default_factory=dict)
    changes: set[Change] = field(default_factory=set)
    rebinds: set[Place] = field(default_factory=set)
    """module-level names given another object by a function or through their module; `S*` is all that begin with S"""

    calls: set[Place] = field(default_factory=set)
    """module-level names whose objects, or what those hold, are called: `for hook in HOOKS: hook()`"""
    live: set[Place] = field(default_factory=set)
    """variables that lead to what somebody else may see; all others are of no concern"""
    _holders: dict[Place, set[Place]] = field(default_factory=dict)

    def link(self, place: Place, flow: Flow) -> None:
        """Take down where the object at `place` may come from; what is stored into one is then in the other."""
        for other, how in flow:
            self._link(place, other, how)
            if how is not Link.HOLDS and other[0] not in (OUTSIDE, ANY):
                self._link(other, place, Link.SAME if how is Link.SAME else Link.HOLDS)

    def _link(self, place: Place, other: Place, how: Link) -> None:
        self.links.setdefault(place, set()).add((other, how))
        self._holders.setdefault(other, set()).add(place)
        if not place[0] and self.is_live(other):
            self.enliven(place)

    def enliven(self, place: Place) -> None:
        pending = [place]
        while pending:
            place = pending.pop()
            if not place[0] and place not in self.live:
                self.live.add(place)
                pending += self._holders.get(place, ())

    def is_live(self, place: Place) -> bool:
        return bool(place[0]) or place in self.live

    def of_concern(self, flow: Flow) -> Flow:
        """The part of a flow that leads to what somebody else may see."""
        return frozenset(step for step in flow if self.is_live(step[0]))

    def add(self, other: Facts) -> None:
        for place, links in other.links.items():
            self.links.setdefault(place, set()).update(links)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A function of the project to find out about."""

    module: SourceModule
    node: Function
    later: int
    """with what it gives back called too, and what that gives back ..., as by those that it decorates"""
    concerned: frozenset[str]
    """the parameters that get something that others see; what happens to the rest is nobody's concern"""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a call of a function does; ("", name) stands for what is given as its parameter `name`."""

    changes: frozenset[Change] = frozenset()
    links: frozenset[tuple[Place, Place, Link]] = frozenset()
    rebinds: frozenset[Place] = frozenset()
    calls: frozenset[Place] = frozenset()
    called: frozenset[Place] = frozenset()
    """parameters that it calls, or gives to something that may"""
    result: Flow = NOTHING


def reached(
    links: Mapping[Place, set[tuple[Place, Link]]],
    place: Place,
    deep: bool,
    passable: Callable[[Place], bool] = lambda place: True,
) -> set[tuple[Place, bool]]:
    """The places whose object a change of `place` may change; with each, whether what that object holds may change.

    What is not `passable` cannot change, and so leads nowhere.
    """
    if not passable(place):
        return set()
    found = {(place, deep)}
    pending = [(place, deep)]
    while pending:
        place, deep = pending.pop()
        for other, link in links.get(place, ()):
            step = (other, deep or link is Link.PART)
            # That something holds a module does not make a change of it a change of the module.
            follows = link is not Link.HOLDS or (deep and bool(other[1]))
            if step not in found and follows and passable(other):
                found.add(step)
                pending.append(step)
    return found


def ends_of(
    links: Mapping[Place, set[tuple[Place, Link]]], place: Place, outer: Mapping[Place, Place]
) -> set[tuple[Place, Link]]:
    """Where a variable's object may come from: module-level names and the places in `outer`."""
    found: set[tuple[Place, Link]] = {(place, Link.SAME)}
    pending = [(place, Link.SAME)]
    while pending:
        place, link = pending.pop()
        for other, second in links.get(place, ()):
            step = (other, then(link, second))
            if step not in found:
                found.add(step)
                pending.append(step)
    return {(end, link) for end, link in found if end[0] or end in outer}


def then(first: Link, second: Link) -> Link:
    """How a leads to c, where it leads to b and b to c."""
    return second if first is Link.SAME else first


def parts(flow: Flow) -> Flow:
    """Where a part of the value, or something that it holds, may come from."""
    return frozenset((place, Link.PART) for place, _ in flow)


def held(flow: Flow) -> Flow:
    """The flow of something new that holds the value."""
    return frozenset((place, Link.HOLDS) for place, _ in flow)


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What a call gives."""

    positional: Sequence[Flow]
    keywords: Mapping[str, Flow]
    spread: Flow
    """what `*x` and `**x` may give"""

    later: Flow = NOTHING
    """what is given to what the call gives back"""

    @property
    def every(self) -> Flow:
        return frozenset().union(*self.positional, *self.keywords.values(), self.spread, self.later)

    def matched(self, node: Function) -> dict[Place, Flow]:
        """What each parameter of a function gets, and LATER those of the functions that it gives back."""
        names, rest = parameters_of(node)
        found: dict[Place, Flow] = {("", name): self.spread for name in names}
        surplus = [self.spread, *self.positional[len(names) :]]
        for name, flow in zip(names, self.positional, strict=False):
            found["", name] |= flow
        for name, flow in self.keywords.items():
            if ("", name) in found:
                found["", name] |= flow
            else:
                surplus.append(flow)
        found["", LATER] = self.later
        found.update({("", name): held(frozenset().union(*surplus)) for name in rest})
        return found


def given_as_one(flow: Flow) -> Arguments:
    """Arguments of which it is not known which parameter they are for."""
    return Arguments(positional=(), keywords={}, spread=flow, later=flow)

"""Which statements of a module change which objects when they run: read off the text, through aliases and calls.

A slice must keep `alias = Cfg; alias.S = 5` when the kernel reads Cfg.S, so references are followed to where the code
hands them: other names, containers, parameters, other files. The answer errs on one side. The order of statements does
not count, and a call that is not understood may change all that it is given. What only a run can tell (text that is
executed, modules looked up by a name that is made) counts as a change of everything that it can reach.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kiln.closure.effects.bindings import Bindings
from kiln.closure.effects.references import Change, Facts, Flow, Job, Summary, ends_of, reached, then
from kiln.closure.effects.walk import Walk
from kiln.closure.module import SourceModule, Unit
from kiln.closure.names import ANY, Place
from kiln.errors import UncutError

_LIMIT = 2000
"""functions, each as it is called; real projects have a hundred or so"""


@dataclass(frozen=True, kw_only=True, order=True)
class Touch:
    """Something that a statement may change; the name may end in `*`, for all that begin so."""

    place: Place
    rebinds: bool
    """whether the name may get another object; otherwise the object changes"""

    @property
    def is_definite(self) -> bool:
        """Whether it is one thing that the text names."""
        return self.place[0] != ANY and bool(self.place[1]) and not self.place[1].endswith("*")

    def touches(self, file: str, name: str) -> bool:
        own = self.place[1]
        return self.place[0] in (file, ANY) and (own in ("", name) or (own.endswith("*") and name.startswith(own[:-1])))


class Effects:
    """What the statements of a project's modules change. Kept for the time of one cut."""

    def __init__(self, bindings: Bindings, *, objects: bool) -> None:
        """Without `objects`, only what names are bound to is looked at: enough where nothing can change in place."""
        self.bindings = bindings
        self.names = bindings.names
        self.objects = objects
        self._units: dict[tuple[str, int], Facts] = {}
        self._summaries: dict[Job, Summary] = {}
        self._wanted: list[Job] = []
        """functions that the walk at hand has met without a summary"""
        self._open: dict[Job, None] = {}
        """functions whose summary is not final: they call each other in a circle"""
        self._met_open = False

    def touched(self, modules: Iterable[SourceModule]) -> Iterator[tuple[SourceModule, Unit, set[Touch]]]:
        """The statements of `modules` that may change something, with what they may change."""
        return self.touched_by([(module, unit) for module in modules for unit in module.units])

    def touched_by(self, units: list[tuple[SourceModule, Unit]]) -> Iterator[tuple[SourceModule, Unit, set[Touch]]]:
        """The same for single statements."""
        every = self._links(units)
        for module, unit in units:
            facts = self._unit(module, unit)
            touched = {Touch(place=place, rebinds=True) for place in facts.rebinds}
            for change in facts.changes:
                for place, _ in reached(every.links, change.place, change.deep, self.bindings.changeable):
                    # Modules are looked up to read their version, and given to whoever compares it.
                    if change.sure or place[0] != ANY:
                        touched.add(Touch(place=place, rebinds=not place[1]))
            for place in sorted(facts.calls):
                for end, _ in reached(every.links, place, True):
                    touched |= self._of_calling(end)
            if touched:
                yield module, unit, touched

    def _of_calling(self, place: Place) -> set[Touch]:
        """What a call of a function may change that a module-level name stands for."""
        callees = self.bindings.callees(place) if self.bindings.is_function(place) else ()
        return {
            touch
            for callee in callees
            if isinstance(callee.node, ast.FunctionDef)
            for touch in self.of_call(callee.module, callee.node)
        }

    def of_call(self, module: SourceModule, node: ast.FunctionDef) -> set[Touch]:
        """What a call of a function may change that is none of its own, whatever it is given."""
        job = Job(module=module, node=node, later=0, concerned=frozenset())
        if job not in self._summaries:
            self._summarize_all([job])
        summary = self._summaries.get(job, _EMPTY)
        found = {Touch(place=place, rebinds=True) for place in summary.rebinds}
        return found | {
            Touch(place=change.place, rebinds=not change.place[1])
            for change in summary.changes
            if change.place[0] and (change.sure or change.place[0] != ANY)
        }

    def _links(self, units: list[tuple[SourceModule, Unit]]) -> Facts:
        """The links of these statements, and of those in other files that bind what they lead to."""
        every, seen, pending = Facts(), set[Place](), list(units)
        own = {(module.file, unit.index) for module, unit in units}
        while pending:
            module, unit = pending.pop()
            facts = self._unit(module, unit)
            every.add(facts)
            places = {*facts.links, *(end for ends in facts.links.values() for end, _ in ends)}
            for place in places | {change.place for change in facts.changes}:
                if place not in seen and place[0] in self.names.modules:
                    seen.add(place)
                    other = self.names.modules[place[0]]
                    new = [unit for unit in other.binding(place[1]) if (other.file, unit.index) not in own]
                    own |= {(other.file, unit.index) for unit in new}
                    pending += [(other, unit) for unit in new]
        return every

    def _unit(self, module: SourceModule, unit: Unit) -> Facts:
        key = (module.file, unit.index)
        while key not in self._units:
            self._wanted = []
            walk = Walk(self.bindings, self._summary, module, objects=self.objects)
            if not isinstance(unit.node, (ast.Import, ast.ImportFrom)):
                walk.unit(unit.node)
            if len(self._summaries) > _LIMIT:
                raise UncutError(
                    "importing this file calls more functions than can be followed",
                    where=module.position(unit.node),
                    expected=f"at most {_LIMIT}",
                    remedy="move what the statement does to a file that the kernel does not need, or into a function",
                )
            if self._wanted:
                self._summarize_all(self._wanted)
            else:
                self._units[key] = walk.facts
        return self._units[key]

    def _summary(self, job: Job) -> Summary:
        """What a call of a function of the project does, as far as known; see `_summarize_all`."""
        if job in self._open:
            self._met_open = True
        elif job not in self._summaries:
            self._wanted.append(job)
        return self._summaries.get(job, _EMPTY)

    def _summarize_all(self, wanted: list[Job]) -> None:
        """Find the summaries of functions, and of those that they call.

        A walk that meets a function without a summary is done again when it has one: recursion would end at Python's
        limit. Functions that call each other are gone over until none of their summaries grows any more.
        """
        while wanted and len(self._summaries) <= _LIMIT:
            self._summarize_first(wanted)
            wanted = self._grow()
        self._open.clear()

    def _summarize_first(self, wanted: list[Job]) -> None:
        pending, begun = list(wanted), set()
        while pending and len(self._summaries) <= _LIMIT:
            job = pending[-1]
            if job in self._summaries and job not in begun:
                pending.pop()
                continue
            begun.add(job)
            self._open[job] = None
            self._wanted, self._met_open = [], False
            summary = self._summarize(job)
            if self._wanted:
                pending += self._wanted
                continue
            self._summaries[job] = summary
            begun.discard(job)
            pending.pop()
            if not self._met_open:
                del self._open[job]

    def _grow(self) -> list[Job]:
        """Go over the functions that call each other; those that turn up on the way and have no summary yet."""
        grows = True
        while grows:
            grows = False
            for job in [job for job in self._open if job in self._summaries]:
                self._wanted = []
                summary = self._summarize(job)
                if self._wanted:
                    return self._wanted
                grows = grows or summary != self._summaries[job]
                self._summaries[job] = summary
        return []

    def _summarize(self, job: Job) -> Summary:
        """A jitted function changes nothing of Python's."""
        if self.bindings.is_jitted(job.module, job.node):
            return _EMPTY
        return _summarize(Walk(self.bindings, self._summary, job.module, objects=self.objects, later=job.later), job)


_EMPTY = Summary()


def _summarize(walk: Walk, job: Job) -> Summary:
    outer: dict[Place, Place] = {place: ("", name) for place, name in walk.function(job.node, job.concerned).items()}
    links = walk.facts.links
    known: dict[Place, Flow] = {}

    def ends(place: Place) -> Flow:
        """The parameters and module-level names that a variable may stand for."""
        if place not in known:
            known[place] = frozenset((outer.get(end, end), link) for end, link in ends_of(links, place, outer))
        return known[place]

    return Summary(
        changes=frozenset(
            Change(place=outer.get(place, place), deep=deep, sure=change.sure)
            for change in walk.facts.changes
            for place, deep in reached(links, change.place, change.deep)
            if place[0] or place in outer
        ),
        links=frozenset(
            (outer.get(place, place), end, link)
            for place, found in links.items()
            if place[0] or place in outer
            for other, first in found
            for end, second in ends(other)
            for link in [then(first, second)]
        ),
        rebinds=frozenset(walk.facts.rebinds),
        calls=frozenset(walk.facts.calls),
        called=frozenset(
            outer[end] for place in walk.called for end, _ in ends_of(links, place, outer) if end in outer
        ),
        result=frozenset((end, then(first, second)) for place, first in walk.result for end, second in ends(place)),
    )

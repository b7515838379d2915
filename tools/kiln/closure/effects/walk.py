"""Follows a piece of Python code, and takes down where it hands references to objects and which objects it changes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from kiln.closure import packages, scope
from kiln.closure.effects.bindings import Bindings
from kiln.closure.effects.calls import Calls
from kiln.closure.effects.references import (
    LATER,
    NOTHING,
    Arguments,
    Change,
    Facts,
    Flow,
    Job,
    Link,
    Summary,
    given_as_one,
    held,
    parts,
    reached,
)
from kiln.closure.module import SourceModule
from kiln.closure.names import (
    ANY,
    ANY_MODULE,
    OUTSIDE,
    Builtin,
    Function,
    Local,
    Place,
    Scope,
    Target,
    imports_in,
    parameters_of,
    prefix,
)
from kiln.closure.resolve import Definition, Outside

_CALLED_FROM_OUTSIDE = frozenset({"__init__", "__new__", "_generate_next_value_", "_missing_"})
"""methods that a class of Python's own calls when one is derived from it, or when that is called"""


class Walk:
    """Follows a piece of code; its state grows on the way."""

    def __init__(
        self,
        bindings: Bindings,
        summary: Callable[[Job], Summary],
        module: SourceModule,
        *,
        objects: bool,
        later: int = 0,
    ) -> None:
        """Without `objects`, only what names are bound to counts: enough where nothing of concern can change in place.

        `later`: how deep the functions inside run as well, since what the code gives back is called.
        """
        self.bindings = bindings
        self.names = bindings.names
        self.summary = summary
        self.module = module
        self._objects = objects
        self.facts = Facts()
        self.result: Flow = NOTHING
        self.scopes: list[Scope] = []
        self._calls = Calls(self, later)

    def unit(self, node: ast.stmt) -> None:
        """Walk a statement of a module."""
        self._until_known(lambda: self.run([node]))

    def function(self, node: Function, concerned: frozenset[str]) -> dict[Place, str]:
        """Walk a function as it is called; the places of the parameters that are of concern."""
        names, rest = parameters_of(node)
        own = {self._place_in(node, name): name for name in (*names, *rest, LATER) if name in concerned}
        self._calls.given_to_inner = self._place_in(node, LATER)
        for place in own:
            self.facts.enliven(place)
        self._until_known(lambda: self._walk_function(node, own))
        return own

    def _until_known(self, walk: Callable[[], None]) -> None:
        """Walk again while what is of concern grows: a loop may hand on what comes later in the text."""
        known = -1
        while known < len(self.facts.live):
            known = len(self.facts.live)
            walk()

    def _walk_function(self, node: Function, own: Iterable[Place]) -> None:
        self.enter(node)
        if isinstance(node, ast.Lambda):
            self.result |= self.flow(node.body)
        else:
            self.run(node.body)
        self._calls.finish(own)
        self.scopes.pop()

    def enter(self, node: Function) -> list[Place]:
        """Open the scope of a function; where its parameters are."""
        opened = self.names.scope_of(self.module, node)
        names, rest = parameters_of(node)
        for argument, value in scope.defaults(node.args):
            self.facts.link(opened.place(argument.arg), self.flow(value))
        self.scopes.append(opened)
        return [opened.place(name) for name in names + rest]

    def _place_in(self, node: ast.AST, name: str) -> Place:
        return ("", f"{prefix(self.module, node)}{name}")

    @property
    def called(self) -> set[Place]:
        """Variables that the code calls, or gives to something that may."""
        return self._calls.called

    # Statements

    def run(self, statements: Iterable[ast.stmt]) -> None:
        for node in statements:
            special = getattr(self, f"_run_{type(node).__name__}", None)
            if special is not None:
                special(node)
            else:
                self._run_parts(node)

    def _run_parts(self, node: ast.AST) -> None:
        """Any other statement: the expressions and statements in it."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                self.run([child])
            elif isinstance(child, ast.expr):
                self.flow(child)
            else:
                self._run_parts(child)

    def _run_Assign(self, node: ast.Assign) -> None:
        flow = self.flow(node.value)
        if len(node.targets) > 1:
            # `a = b = []`: a new object has no place but that of the statement.
            flow |= {(("", prefix(self.module, node)), Link.SAME)}
        for target in node.targets:
            self._bind(target, flow)

    def _run_Expr(self, node: ast.Expr) -> None:
        # Of an `if`, such a statement is the test: the value is asked whether it is true.
        self.use(self.flow(node.value))

    def _run_If(self, node: ast.If | ast.While) -> None:
        self.use(self.flow(node.test))
        self.run([*node.body, *node.orelse])

    _run_While = _run_If

    def _run_Assert(self, node: ast.Assert) -> None:
        self.use(self.flow(node.test))
        if node.msg is not None:
            self.flow(node.msg)

    def _run_AnnAssign(self, node: ast.AnnAssign) -> None:
        if not any(item.is_function for item in self.scopes):
            self._annotate([node.annotation])
        if node.value is not None:
            self._bind(node.target, self.flow(node.value))

    def _run_AugAssign(self, node: ast.AugAssign) -> None:
        # `x += [1]` changes the list that x is, under all of its names.
        flow, value = self.flow(node.target), self.flow(node.value)
        self.use(flow | value)
        self.change(flow, deep=False, sure=True)
        self._bind(node.target, held(value))

    def _run_For(self, node: ast.For | ast.AsyncFor) -> None:
        flow = self.flow(node.iter)
        self.use(flow)
        self._bind(node.target, parts(flow))
        self.run([*node.body, *node.orelse])

    _run_AsyncFor = _run_For

    def _run_With(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            flow = self.flow(item.context_expr)
            if item.optional_vars is not None:
                self._bind(item.optional_vars, parts(flow))
            for name in ("__enter__", "__exit__"):
                for callee in self._calls.methods(flow, name):
                    self._calls.run(callee, given_as_one(self.things(flow)))
        self.run(node.body)

    _run_AsyncWith = _run_With

    def _run_Match(self, node: ast.Match) -> None:
        subject = parts(self.flow(node.subject))
        for case in node.cases:
            for name in scope.captures(case.pattern):
                self.facts.link(self._own(name), subject)
            if case.guard is not None:
                self.flow(case.guard)
            self.run(case.body)

    def _run_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            self._calls.give_back(self.flow(node.value))

    def _run_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            self.use(self.flow(target))
            self._bind(target, NOTHING)

    def _run_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        place = self._own(node.name)
        self.flow_all(default for _, default in scope.defaults(node.args))
        arguments = [child for child in ast.walk(node.args) if isinstance(child, ast.arg)]
        self._annotate([*(argument.annotation for argument in arguments), node.returns])
        if any(item.is_function for item in self.scopes):
            self._calls.define(place, node)
        self._decorate(node.decorator_list, place)

    _run_AsyncFunctionDef = _run_FunctionDef

    def _run_ClassDef(self, node: ast.ClassDef) -> None:
        place = self._own(node.name)
        for base in [*node.bases, *(keyword.value for keyword in node.keywords)]:
            self.facts.link(place, held(self.flow(base)))
        names = frozenset().union(*map(scope.binds, node.body))
        opened = Scope(prefix=prefix(self.module, node), names=names, imports=imports_in(node.body), is_class=True)
        for name in names:
            self.facts.link(place, frozenset({(opened.place(name), Link.HOLDS)}))
            # A class body looks a name up at run time: its own first, then the one outside.
            self.facts.link(opened.place(name), self._flow_of(self.target(name, ())))
        self.scopes.append(opened)
        self.run(node.body)
        self.scopes.pop()
        # `__set_name__`
        self.use(frozenset((opened.place(name), Link.SAME) for name in names))
        made = frozenset({(place, Link.SAME)})
        for hook in self.bindings.inherited(self.module, node, frozenset({"__init_subclass__"})):
            if hook.node not in node.body:
                self._calls.run(hook, given_as_one(made | self.flow_all(node.bases)))
        if self._is_made_outside(node):
            for hook in self.bindings.inherited(self.module, node, _CALLED_FROM_OUTSIDE):
                self._calls.run(hook, given_as_one(made))
        for keyword in node.keywords:
            if keyword.arg == "metaclass":
                for place_of, _ in self.flow(keyword.value):
                    for callee in self.bindings.callees(place_of):
                        self._calls.run(callee, given_as_one(made))
        self._decorate(node.decorator_list, place)

    def _annotate(self, annotations: Iterable[ast.expr | None]) -> None:
        """Evaluate annotations, where the file does not put that off."""
        if not self.module.lazy_annotations:
            self.flow_all(annotation for annotation in annotations if annotation is not None)

    def _is_made_outside(self, node: ast.ClassDef) -> bool:
        """Whether a class is derived from one outside the project, which may call methods: of an Enum, `__init__`."""
        outer = [*node.bases, *(keyword.value for keyword in node.keywords)]
        paths = [scope.plain_path(each) for each in outer]
        return any(path is None or isinstance(self.target(*path), Outside) for path in paths)

    def _decorate(self, decorators: list[ast.expr], place: Place) -> None:
        for decorator in reversed(decorators):
            given = Arguments(positional=(frozenset({(place, Link.SAME)}),), keywords={}, spread=NOTHING)
            self.facts.link(place, held(self._calls.call(decorator, given)))

    # Bindings

    def _own(self, name: str) -> Place:
        """The place that a name gets bound at here."""
        for opened in reversed(self.scopes):
            if name in opened.names:
                return opened.place(name)
            if name in opened.globals:
                break
        place = (self.module.file, name)
        if any(opened.is_function for opened in self.scopes):
            self.facts.rebinds.add(place)
        return place

    def _bind(self, target: ast.expr, flow: Flow) -> None:
        if isinstance(target, ast.Name):
            self.facts.link(self._own(target.id), flow)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self._bind(part, parts(flow))
        elif isinstance(target, ast.Starred):
            self._bind(target.value, flow)
        elif isinstance(target, ast.Attribute):
            self._store(target.value, target.attr, flow)
        elif isinstance(target, ast.Subscript):
            self.flow(target.slice)
            self._store(target.value, _key(target.slice), flow)

    def _store(self, node: ast.expr, key: str, flow: Flow) -> None:
        """`node.key = flow`, or `node[key] = flow`; a key that ends in `*` is one that only begins so."""
        path = scope.plain_path(node)
        target = self.target(*path) if path is not None else None
        if isinstance(target, Definition) and not target.attributes:
            outside = self.names.project.canonical_path(target.module, target.name, ())
            if outside is not None:
                target = Outside(dotted=outside)
            elif not self.bindings.changeable((target.module.file, target.name)):
                # `kernel.noinline = True`; that a function is handed on says nothing.
                self.facts.rebinds.add((target.module.file, target.name))
        if isinstance(target, Outside) and not packages.gives_anything(target.dotted):
            self.facts.rebinds.add((OUTSIDE, f"{target.dotted}.{key}"))
        else:
            self._store_into(self.flow(node), key, flow)

    def _store_into(self, base: Flow, key: str, flow: Flow) -> None:
        self.use(base | flow)
        for place, link in self.facts.of_concern(base):
            ends = {end for end, _ in reached(self.facts.links, place, link is not Link.SAME)}
            modules = {end for end in ends if end[0] and not end[1]}
            if modules:
                for end in modules:
                    self.facts.rebinds.add((end[0], key))
                    self.facts.link((end[0], key), flow)
                self.change(frozenset((end, Link.SAME) for end in ends - modules - {place}), deep=False, sure=True)
            else:
                self.change(frozenset({(place, link)}), deep=False, sure=True)
        for place, _ in base:
            if place[1]:
                self.facts.link(place, held(flow))

    def use(self, flow: Flow) -> None:
        """Something is done with objects that runs methods of theirs without naming them."""
        for end in sorted(end for end in self.ends(flow) if end[0] not in ("", ANY)):
            for callee in self.bindings.callees(end):
                methods = self.bindings.hidden(callee) if isinstance(callee.node, ast.ClassDef) else ()
                for method in [callee] if self.bindings.is_defaultdict(end) else methods:
                    self._calls.run(method, given_as_one(parts(self.things(flow))))

    def ends(self, flow: Flow) -> set[Place]:
        """All that a value may be or hold, as far as it is of concern."""
        flow = self.facts.of_concern(flow)
        return {end for place, _ in flow for end, _ in reached(self.facts.links, place, True)}

    def change(self, flow: Flow, *, deep: bool, sure: bool) -> None:
        for place, link in self.facts.of_concern(flow):
            if deep or link is not Link.HOLDS:
                self.facts.changes.add(Change(place=place, deep=deep or link is Link.PART, sure=sure))

    # Expressions

    def flow_all(self, nodes: Iterable[ast.expr]) -> Flow:
        return frozenset().union(*map(self.flow, nodes))

    def flow(self, node: ast.expr) -> Flow:
        """Where the value may come from; what evaluating it does is taken down."""
        path = scope.plain_path(node)
        if path is not None:
            flow = self._flow_of(self.target(*path))
            if isinstance(node, ast.Attribute):
                self.use(flow)
            return flow
        special = getattr(self, f"_flow_{type(node).__name__}", None)
        if special is not None:
            found: Flow = special(node)
            return found
        # A number or a text, or something new that holds what its parts are.
        made = held(self.flow_all(child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)))
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Dict, ast.Set, ast.JoinedStr)):
            self.use(made)
        return NOTHING if isinstance(node, (ast.Compare, ast.JoinedStr, ast.UnaryOp)) else made

    def _flow_Attribute(self, node: ast.Attribute) -> Flow:
        flow = parts(self.flow(node.value))
        self.use(flow)
        if (ANY_MODULE, Link.PART) in flow and node.attr != "__dict__":
            flow = flow - {(ANY_MODULE, Link.PART)} | {((ANY, node.attr), Link.PART)}
        return flow

    def _flow_Subscript(self, node: ast.Subscript) -> Flow:
        flow = self.flow(node.value)
        self.use(flow | self.flow(node.slice))
        return parts(flow)

    def _flow_Starred(self, node: ast.Starred | ast.Await | ast.YieldFrom) -> Flow:
        return parts(self.flow(node.value))

    _flow_Await = _flow_YieldFrom = _flow_Starred

    def _flow_Yield(self, node: ast.Yield) -> Flow:
        if node.value is not None:
            self._calls.give_back(held(self.flow(node.value)))
        return NOTHING

    def _flow_IfExp(self, node: ast.IfExp) -> Flow:
        self.use(self.flow(node.test))
        return self.flow(node.body) | self.flow(node.orelse)

    def _flow_BoolOp(self, node: ast.BoolOp) -> Flow:
        flow = self.flow_all(node.values)
        self.use(flow)
        return flow

    def _flow_NamedExpr(self, node: ast.NamedExpr) -> Flow:
        flow = self.flow(node.value)
        self._bind(node.target, flow)
        return flow | {(self._own(node.target.id), Link.SAME)}

    def _flow_Lambda(self, node: ast.Lambda) -> Flow:
        place: Place = ("", prefix(self.module, node))
        self.flow_all(default for _, default in scope.defaults(node.args))
        self._calls.define(place, node)
        return frozenset({(place, Link.SAME)})

    def _flow_comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Flow:
        targets = [child for item in node.generators for child in ast.walk(item.target)]
        names = frozenset(child.id for child in targets if isinstance(child, ast.Name))
        self.scopes.append(Scope(prefix=prefix(self.module, node), names=names))
        for item in node.generators:
            self._bind(item.target, parts(self.flow(item.iter)))
            self.use(self.flow_all(item.ifs))
        elements = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        made = held(self.flow_all(elements))
        self.scopes.pop()
        return made

    _flow_ListComp = _flow_SetComp = _flow_GeneratorExp = _flow_DictComp = _flow_comprehension

    def target(self, name: str, attributes: tuple[str, ...]) -> Target | Local:
        """What a name, and the attributes read off it, stand for here."""
        for depth, opened in enumerate(reversed(self.scopes)):
            if name in opened.globals:
                break
            if name in opened.names and not (opened.is_class and depth):
                if name in opened.imports:
                    end = self.names.through(self.module, opened.imports[name], name, attributes)
                    if isinstance(end, Definition):
                        return self.names.trace(end.module, end.name, end.attributes)
                    return end
                return Local(place=opened.place(name), attributes=attributes)
        return self.names.trace(self.module, name, attributes)

    def _flow_of(self, target: Target | Local) -> Flow:
        if isinstance(target, Builtin):
            return NOTHING
        attributes = target.attributes if isinstance(target, (Local, Definition)) else ()
        if isinstance(target, Outside):
            return frozenset({(ANY_MODULE, Link.PART)}) if packages.gives_anything(target.dotted) else NOTHING
        place = target.place if isinstance(target, Local) else self.names.place(target)
        return (
            NOTHING
            if place is None or not self._leads(place)
            else frozenset({(place, Link.PART if attributes else Link.SAME)})
        )

    def _leads(self, place: Place) -> bool:
        """Whether it matters who gets hold of the object at a place."""
        if not place[0] or not place[1] or self.bindings.is_function(place):
            return True
        if self._objects:
            return self.bindings.changeable(place)
        return self.bindings.holds_functions(place) or self.bindings.comes_from_module(place)

    def things(self, flow: Flow) -> Flow:
        """A flow without functions and without modules that a run looks up, which count only where they are named."""
        return frozenset(step for step in flow if step[0] != ANY_MODULE and not self.bindings.is_function(step[0]))

    def _flow_Call(self, node: ast.Call) -> Flow:
        if isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr") and len(node.args) > 1:
            self._store(node.args[0], _key(node.args[1]), self.flow_all(node.args[2:]))
            return NOTHING
        given = self._calls.arguments(node)
        if isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) > 1:
            self._calls.run_attribute(self.flow(node.args[0]), _key(node.args[1]), given)
        paths = [path for item in node.args if (path := scope.plain_path(item)) is not None]
        targets = [self.target(*path) for path in paths]
        if any(isinstance(target, Builtin) and target.changes for target in targets):
            # `map(setattr, ...)`
            self.change(given.every, deep=True, sure=True)
        return self._calls.call(node.func, given)


def _key(node: ast.expr) -> str:
    """A name given as text, or what it begins with and `*`."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else "*"
    if isinstance(node, ast.JoinedStr) and node.values and isinstance(node.values[0], ast.Constant):
        return f"{node.values[0].value!s}*"
    return "*"

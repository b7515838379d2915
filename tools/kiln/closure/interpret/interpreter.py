"""One run of the interpreter: what its names, attributes and calls give; `evaluate` and `call` start one."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from kiln.closure import jit, scope
from kiln.closure.interpret.builtins import Builtins
from kiln.closure.interpret.class_bodies import ClassBodies
from kiln.closure.interpret.expressions import Expressions
from kiln.closure.interpret.module_names import ModuleNames
from kiln.closure.interpret.number_formats import FloatFormat, IntegerFormat
from kiln.closure.interpret.outside_names import OutsideNames
from kiln.closure.interpret.shared import Shared
from kiln.closure.interpret.sizes import size
from kiln.closure.interpret.statements import Return, Statements
from kiln.closure.interpret.values import (
    ClassValue,
    ConfigValue,
    ConstexprValue,
    Frame,
    FunctionValue,
    LocalFunction,
    Method,
    ModuleValue,
    Once,
    OutsideValue,
    Partial,
    Raised,
    SomeValue,
    Undecided,
    VersionValue,
    is_plain,
    plain,
)
from kiln.closure.module import SourceModule
from kiln.closure.resolve import Project
from kiln.closure.world import World

_STEPS = 2_000_000
"""nodes of the syntax tree that are visited at most; the largest lists of configurations take a tenth of that"""
_FREE = 100
"""what a value may weigh before it counts"""
_DEPTH = 40
"""calls within calls"""

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "pre_hook", "ir_override")
"""the parameters of triton.Config after the first, in order (Triton 3.6 to 3.9, runtime/autotuner.py)"""
_CONFIG_DEFAULTS: dict[str, object] = {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None}
_RUN_AS_THEY_ARE = frozenset(
    {"functools.cache", "functools.lru_cache", "triton.constexpr_function", "triton.runtime.jit.constexpr_function"}
)
"""decorators that leave what a function computes"""


def evaluate(
    project: Project,
    module: SourceModule,
    node: ast.expr,
    world: World,
    *,
    asked: set[str] | None = None,
    unknown: frozenset[str] = frozenset(),
) -> object:
    """The value of an expression of `module`, in which names stand for what nothing tells that are `unknown`.

    Values are Python's own, and those of values.py. Names of the module are as they are where the statement at module
    level begins that the expression stands in. `asked` collects what was asked of the world, in the words of
    Closure.asked. Raises Undecided.
    """
    interpreter = Interpreter(project, module, world, asked)
    with interpreter.before(module, _limit(module, node)):
        return interpreter.entered(lambda: interpreter.expressions.value(node, Frame(module=module, unknown=unknown)))


def call(
    project: Project,
    module: SourceModule,
    name: str,
    arguments: Sequence[object],
    world: World,
    *,
    asked: set[str] | None = None,
) -> object:
    """The result of the plain function `name` of `module`, called with positional arguments. Raises Undecided."""
    interpreter = Interpreter(project, module, world, asked)
    return interpreter.entered(lambda: interpreter.apply(interpreter.names.of_module(module, name, None), arguments))


def _limit(module: SourceModule, node: ast.AST) -> int | None:
    """The statement of the module that a node stands in, or that follows it."""
    line = getattr(node, "lineno", None)
    if line is None:
        return None
    return next((unit.index for unit in module.units if line <= (unit.node.end_lineno or 0)), None)


class Interpreter:
    """One run: its values, how far it has come, and what it has asked."""

    def __init__(self, project: Project, module: SourceModule, world: World, asked: set[str] | None = None) -> None:
        """`module` is the file that the code is of which is run."""
        self.project = project
        self.start = project.start or module.path
        self.expressions = Expressions(self)
        self.statements = Statements(self, self.expressions)
        self.outside = OutsideNames(world, asked if asked is not None else set(), self.items)
        self.names = ModuleNames(self)
        self._builtins = Builtins(self)
        self._classes = ClassBodies(self)
        self._steps = 0
        self._depth = 0
        self._functions: dict[FunctionValue, ast.FunctionDef] = {}
        self._made: dict[FunctionValue, LocalFunction] = {}
        self._limits: dict[str, int | None] = {}
        self._importing: list[str] = []
        self.is_trying = False
        self._shared = Shared()

    def entered(self, run: Callable[[], object]) -> object:
        """Run from outside the interpreted code: what it raises has left it there."""
        self._steps = 0
        try:
            return run()
        except Raised as error:
            raise Undecided(f"it raises {error.kind.__name__}: {error.text}") from None
        except RecursionError:
            raise Undecided("it is nested too deeply to be followed") from None

    def step(self, frame: Frame, node: ast.AST) -> None:
        """Count a node."""
        self._steps += 1
        if self._steps > _STEPS:
            raise Undecided("it takes more steps than are followed", frame.module.position(node))

    def weigh(self, value: object) -> None:
        """Count a value that took long to make, or that takes much room, as steps."""
        cost = size(value) // 8
        if cost > _FREE:
            self._steps += cost

    @contextmanager
    def before(self, module: SourceModule, limit: int | None) -> Iterator[None]:
        """For code that runs while a module is imported: its statements from number `limit` on have not run yet."""
        around = self._limits.get(module.file)
        self._limits[module.file] = limit
        self._importing.append(module.file)
        try:
            yield
        finally:
            self._importing.pop()
            self._limits[module.file] = around

    @contextmanager
    def trying(self) -> Iterator[None]:
        """For code whose exceptions are caught: it matters whether an import raises one."""
        self.is_trying, around = True, self.is_trying
        try:
            yield
        finally:
            self.is_trying = around

    def standing_at(self, module: SourceModule, node: ast.AST) -> AbstractContextManager[None]:
        """The same for code that runs where a node of the module stands."""
        return self.before(module, _limit(module, node))

    def limit(self, module: SourceModule) -> int | None:
        """The first of a module's statements that have not run yet; None where all have.

        Raises Undecided for a module that another one, which is just imported, is imported by: how far Python had come
        in it then is not looked into.
        """
        limit = self._limits.get(module.file)
        if limit is not None and self._importing[-1] != module.file:
            raise Undecided(f"{module.file} and {self._importing[-1]} import each other")
        return limit

    def limits(self) -> dict[str, int]:
        """The same for all modules that are just imported, by file."""
        return {file: limit for file, limit in self._limits.items() if limit is not None}

    def share(self, value: object) -> object:
        """The value itself, which nothing may change from now on; see Shared."""
        self._shared.add(value)
        return value

    def changing(self, value: object) -> None:
        """Say that a value is about to be changed. Raises Undecided for one that is shared."""
        if value in self._shared:
            raise Undecided("it changes an object that other code sees too")

    def items(self, value: object) -> list[object]:
        """The elements of something that is iterated over."""
        return self._builtins.items(value)

    def truth(self, value: object) -> bool:
        """Whether a value counts as true."""
        return self._builtins.truth(value)

    def holds(self, module: SourceModule, node: ast.If) -> bool:
        """Whether the condition of an `if` at module level is true where it stands."""
        return bool(self.entered(lambda: self.names.condition(module, node)))

    # -- names

    def name(self, name: str, frame: Frame) -> object:
        """What a name stands for in running code."""
        start = frame
        while True:
            if frame.is_class and frame is not start:
                frame = Frame(module=frame.module)
            if name in frame.unknown:
                raise Undecided(f"{name} is not known before the run")
            if name in frame.names:
                return frame.names[name]
            if name in frame.own:
                raise Raised(NameError, f"{name} has no value yet")
            if frame.outer is None:
                return self.names.of_module(frame.module, name, self.limit(frame.module))
            frame = frame.outer

    def attribute(self, value: object, name: str) -> object:
        """`value.name`"""
        if isinstance(value, ModuleValue):
            return self.names.below(value.location, (name,), value.importer, AttributeError)
        if isinstance(value, OutsideValue):
            return self.outside.attribute(value, name)
        if isinstance(value, ClassValue):
            return self._classes.attribute(value, name)
        if isinstance(value, ConfigValue):
            return self._of_config(value, name)
        if isinstance(value, (FloatFormat, IntegerFormat)) and name in value.words:
            return getattr(value, name)
        if isinstance(value, VersionValue):
            return _of_version(value, name)
        if isinstance(value, ConstexprValue) and name == "value":
            return value.value
        if isinstance(value, FunctionValue) and name == "__name__":
            return value.name
        if isinstance(value, SomeValue):
            if name in value.attributes:
                return value.attributes[name]
            raise Undecided(f"{name!r} of {value.what} is not known before the run")
        value = plain(value)
        if type(value).__name__ == "version_info" and name in ("major", "minor", "micro"):
            return getattr(value, name)
        if value is None:
            raise Raised(AttributeError, f"None has no {name!r}")
        if isinstance(value, (list, dict, set, tuple)) or is_plain(value) or type(value).__module__ == "re":
            if not hasattr(value, name):
                raise Raised(AttributeError, f"{type(value).__name__} has no {name!r}")
            return Method(owner=value, name=name)
        raise Undecided(f"the attribute {name!r} is not known before the run")

    def has_attribute(self, value: object, name: str) -> bool:
        """`hasattr(value, name)`"""
        if isinstance(value, OutsideValue):
            return self.outside.has(value, name)
        try:
            self.attribute(value, name)
        except Raised as error:
            if issubclass(error.kind, AttributeError):
                return False
            raise
        return True

    # -- calls

    def called(
        self,
        function: object,
        positional: Sequence[object],
        keywords: Mapping[str, object],
        node: ast.Call,
        frame: Frame,
    ) -> object:
        """The result of a call in the code."""
        if isinstance(function, OutsideValue):
            if self.outside.known_as(function.dotted) == "triton.Config":
                return self._config(positional, keywords, node, frame)
            if self.outside.known_as(function.dotted) == "triton.language.constexpr":
                return ConstexprValue(value=plain(positional[0]))
        return self.apply(function, positional, keywords)

    def _of_config(self, config: ConfigValue, name: str) -> object:
        if name == "kwargs":
            # A change of it would change the configuration.
            return self.share(config.constants)
        if name in _CONFIG_DEFAULTS:
            return config.options.get(name, _CONFIG_DEFAULTS[name])
        raise Undecided(f"the attribute {name!r} of a configuration is not followed")

    def _config(
        self, positional: Sequence[object], keywords: Mapping[str, object], node: ast.Call, frame: Frame
    ) -> ConfigValue:
        named = dict(keywords)
        constants = named.pop("kwargs", None) if "kwargs" in named else positional[0] if positional else None
        if not isinstance(constants, dict) or not all(isinstance(name, str) for name in constants):
            raise Undecided("the constants of a configuration are not known before the run")
        # Triton keeps the map itself, and sees what is done to it later on.
        self.share(constants)
        options = dict(zip(_OPTIONS, positional[1:], strict=False)) | named
        unknown = sorted(options.keys() - set(_OPTIONS))
        if unknown or len(positional) > 1 + len(_OPTIONS):
            raise Undecided(f"triton.Config has no parameter {', '.join(unknown) or 'of that place'}")
        hook = options.pop("pre_hook", None)
        return ConfigValue(
            constants={str(name): value for name, value in constants.items()},
            options=options,
            has_hook=hook is not None,
            position=frame.module.position(node),
        )

    def apply(
        self, function: object, positional: Sequence[object], keywords: Mapping[str, object] | None = None
    ) -> object:
        """The result of calling a value."""
        named = dict(keywords or {})
        if isinstance(function, Partial):
            return self.apply(function.function, [*function.positional, *positional], {**function.keywords, **named})
        if isinstance(function, Method):
            return self._builtins.method(function.owner, function.name, positional, named)
        if isinstance(function, LocalFunction):
            return self._run_function(function, positional, named)
        if isinstance(function, FunctionValue):
            return self._run_function(self._function(function), positional, named)
        if isinstance(function, OutsideValue):
            return self.outside_call(function.dotted, positional, named)
        raise Undecided("what is called is not known before the run")

    def outside_call(
        self, dotted: str, positional: Sequence[object], keywords: Mapping[str, object] | None = None
    ) -> object:
        """The result of calling something that is no code of the project."""
        named = dict(keywords or {})
        try:
            if dotted.startswith("builtins."):
                return self._builtins.call(dotted.removeprefix("builtins."), positional, named)
            return self.outside.call(dotted, positional, named, lambda function, given: self.apply(function, given))
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise Raised(type(error), str(error)) from None

    def _function(self, function: FunctionValue) -> LocalFunction:
        """A function at module level with its defaults, which are computed once, where its `def` stands."""
        if function not in self._made:
            node = self._definition(function)
            with self.standing_at(function.module, node):
                made = self.expressions.function(node, Frame(module=function.module))
            self.share(made)
            self._made[function] = made
        return self._made[function]

    def _definition(self, function: FunctionValue) -> ast.FunctionDef:
        node = self._functions.get(function)
        if node is None:
            nodes = [unit.node for unit in self.names.units(function.module, function.name, None)]
            last = nodes[-1] if nodes else None
            if not isinstance(last, ast.FunctionDef):
                raise Undecided(f"{function.name} is not followed")
            node = last
        for decorator in node.decorator_list:
            bare = scope.decorated_with(decorator)
            name = self.project.canonical(function.module, bare)
            if name in jit.JIT:
                raise Undecided(f"{function.name} is a Triton function, which only a kernel can call")
            if name not in _RUN_AS_THEY_ARE:
                raise Undecided(f"what @{ast.unparse(bare)} makes of {function.name} is not followed")
        return node

    def define(self, node: ast.FunctionDef | ast.ClassDef, frame: Frame) -> FunctionValue | ClassValue:
        """The value of a definition at module level."""
        if isinstance(node, ast.ClassDef):
            return self._classes.define(node, frame)
        value = FunctionValue(module=frame.module, name=node.name)
        if self._functions.setdefault(value, node) is not node:
            raise Undecided(f"{node.name} is defined more than once", frame.module.position(node))
        return value

    def _run_function(
        self, function: LocalFunction, positional: Sequence[object], keywords: Mapping[str, object]
    ) -> object:
        node = function.node
        self._depth += 1
        if self._depth > _DEPTH:
            raise Undecided("its calls are nested too deeply to be followed")
        try:
            names = self._matched(function, positional, keywords)
            if isinstance(node, ast.Lambda):
                return self.expressions.value(
                    node.body, Frame(module=function.frame.module, names=names, outer=function.frame)
                )
            own = frozenset().union(*map(scope.binds, node.body))
            frame = Frame(module=function.frame.module, names=names, outer=function.frame, own=own)
            if any(isinstance(child, (ast.Yield, ast.YieldFrom)) for child in scope.own_nodes(node.body)):
                frame.yielded = []
            try:
                self.statements.run(node.body, frame)
            except Return as result:
                return result.value if frame.yielded is None else Once(frame.yielded)
            return None if frame.yielded is None else Once(frame.yielded)
        finally:
            self._depth -= 1

    def _matched(
        self, function: LocalFunction, positional: Sequence[object], keywords: Mapping[str, object]
    ) -> dict[str, object]:
        """parameter -> what it gets"""
        arguments = function.node.args
        parameters = [item.arg for item in (*arguments.posonlyargs, *arguments.args)]
        names = dict(zip(parameters, positional, strict=False))
        surplus = tuple(positional[len(parameters) :])
        known = {*parameters, *(item.arg for item in arguments.kwonlyargs)}
        rest = {name: value for name, value in keywords.items() if name not in known}
        twice = names.keys() & keywords.keys()
        names |= {name: value for name, value in keywords.items() if name in known}
        if arguments.vararg is not None:
            names[arguments.vararg.arg] = surplus
        if arguments.kwarg is not None:
            names[arguments.kwarg.arg] = rest
        names = {**function.defaults, **names}
        wrong = (surplus and arguments.vararg is None) or (rest and arguments.kwarg is None) or twice
        if wrong or known - names.keys():
            raise Raised(TypeError, "the arguments of a call do not fit the function")
        return names


def _of_version(version: VersionValue, name: str) -> object:
    numbered = (*version.release, 0, 0)[:3]
    known = {"release": version.release, **dict(zip(("major", "minor", "micro"), numbered, strict=True))}
    if name not in known:
        raise Undecided(f"the attribute {name!r} of a version is not followed")
    return known[name]

"""The configurations that a function's own `@triton.autotune` lists, read without running anything."""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass

from kiln.closure import jit, scope
from kiln.closure.entry import Entry, find, written
from kiln.closure.interpret.interpreter import evaluate
from kiln.closure.interpret.values import ConfigValue, Undecided
from kiln.closure.module import Conditional, SourceModule
from kiln.closure.names import Names, parameters_of
from kiln.closure.resolve import Definition, Location, Project, alias_of
from kiln.closure.tuning.manifest_values import (
    WRITE_OUT,
    KernelFile,
    for_targets,
    identity,
    manifest_value,
    option_value,
    undecided,
)
from kiln.closure.world import World
from kiln.errors import ClosureError, Position, did_you_mean
from kiln.manifest.constants import Value
from kiln.manifest.from_source import Configuration
from kiln.manifest.schema import OPTIONS

AUTOTUNE = frozenset(name for name in jit.TUNING if name.endswith(".autotune"))

_OBLIGATIONS = {
    "pre_hook": "it runs Python before each launch",
    "post_hook": "it runs Python after each launch",
    "reset_to_zero": "it clears arguments before each launch that is measured",
    "restore_value": "it restores arguments after each launch that is measured",
    "prune_configs_by": "it chooses among the configurations when the kernel is launched",
}
"""arguments of triton.autotune that are more than a list -> what each means; a build makes images and no launches"""
_OWN = "it is the project's own decorator, which may do more with configurations than triton.autotune does"
_MEASURING = frozenset({"cache_results", "do_bench", "rep", "use_cuda_graph", "warmup"})
"""those that say how to measure"""
_PARAMETERS = ("configs", "key", "prune_configs_by", "reset_to_zero", "restore_value", "pre_hook", "post_hook")
"""the parameters of triton.autotune in order, as far as they are given by place (Triton, runtime/autotuner.py)"""
_DEFAULTS: Mapping[str, int] = {"num_warps": 4, "num_stages": 3}
"""of triton.Config: a configuration says them even where its source does not"""


@dataclass(frozen=True, kw_only=True)
class Obligation:
    """Something in the tuning of a function that a launch must do, and that an image cannot hold."""

    name: str
    meaning: str
    position: Position


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What a function is tuned over."""

    configurations: tuple[Configuration, ...]
    """in order, no two equal"""
    obligations: tuple[Obligation, ...]


def configurations(
    project: Project, module: SourceModule, function: str, worlds: Mapping[str, World]
) -> tuple[Configuration, ...]:
    """The configurations of the function's `@triton.autotune`, for targets that are given with their worlds.

    Raises ClosureError when it has none, when they cannot be told, and when they oblige a launch to something.
    """
    found = read_tuning(project, module, function, worlds)
    for obligation in found.obligations:
        raise ClosureError(
            f"{function} is tuned with {obligation.name}: {obligation.meaning}, and an image cannot hold that",
            where=obligation.position,
            expected="configurations of constants and compiler options alone",
            actual=obligation.name,
            remedy="write the blocks out, and do the same where the kernel is launched; `kiln import` prints them",
        )
    return found.configurations


def read_tuning(project: Project, module: SourceModule, function: str, worlds: Mapping[str, World]) -> Tuning:
    """The same with what a launch must do. Raises ClosureError when there is no autotune or it cannot be told.

    A decorator of the project's own that takes `configs` counts, and is an obligation: it may do more than tune.
    """
    tuned = find_tuned(project, module, function)
    call, own = _autotune(project, tuned)
    if tuned is None or call is None:
        raise ClosureError(
            f"{function} has no @triton.autotune",
            where=tuned.module.position(tuned.definition) if tuned is not None else module.file,
            expected="a decorator that lists configurations, for `blocks: autotune`",
            remedy="write the blocks out in kernels.yaml",
        )
    source, module = module, tuned.module
    position = module.position(call)
    unknown = names_around(tuned)
    arguments = _arguments(project, module, call, next(iter(worlds.values())), own=own, unknown=unknown)
    if "configs" not in arguments:
        raise ClosureError(
            f"the autotune of {function} lists no configurations",
            where=position,
            expected="triton.autotune(configs=[...], key=[...])",
            actual=ast.unparse(call)[:60],
            remedy=WRITE_OUT,
        )
    parameters, _ = parameters_of(tuned.definition)
    kernel = KernelFile(names=Names(project), module=source)
    hooks: dict[Position, None] = {}

    def read(world: World, asked: set[str]) -> list[tuple[Hashable, Configuration]]:
        try:
            listed = evaluate(project, module, arguments["configs"], world, asked=asked, unknown=unknown)
        except Undecided as error:
            at = module.position(arguments["configs"])
            raise undecided(error, f"the configurations of {function}", at) from None
        if not isinstance(listed, (list, tuple)):
            raise _no_configuration(function, module.position(arguments["configs"]), listed)
        found = []
        for item in listed:
            if not isinstance(item, ConfigValue):
                raise _no_configuration(function, module.position(arguments["configs"]), item)
            if item.has_hook:
                hooks[item.position] = None
            configuration = _configuration(item, function, parameters, kernel)
            found.append((_identity(configuration), configuration))
        return found

    merged = for_targets(worlds, read)
    return Tuning(
        configurations=tuple(
            Configuration(constants=found.constants, options=found.options, targets=targets, position=found.position)
            for found, targets in merged
        ),
        obligations=(
            *([Obligation(name=f"@{ast.unparse(call.func)}", meaning=_OWN, position=position)] if own else []),
            *(
                Obligation(name=name, meaning=_OBLIGATIONS[name], position=module.position(node))
                for name, node in arguments.items()
                if name in _OBLIGATIONS and not (isinstance(node, ast.Constant) and node.value is None)
            ),
            *(Obligation(name="pre_hook", meaning=_OBLIGATIONS["pre_hook"], position=at) for at in hooks),
        ),
    )


def find_tuned(project: Project, module: SourceModule, function: str) -> Entry | None:
    """The function whose tuning is read: the one that is compiled. None where there is no such function."""
    try:
        return find(Names(project), module, function, None)
    except (ClosureError, Conditional):
        # The file is imported as it stands then, where it can be.
        found = written([unit.node for unit in module.units], function)
        definition = found[-1] if found else None
        if not isinstance(definition, ast.FunctionDef):
            return None
        return Entry(module=module, definition=definition, statements=(definition,), around=tuple(found[:-1]))


def names_around(entry: Entry) -> frozenset[str]:
    """The names that the definitions around a kernel bind: what they stand for there, the module does not tell."""
    names: set[str] = set()
    for node in entry.around:
        names |= frozenset().union(*map(scope.binds, node.body))
        if isinstance(node, ast.FunctionDef):
            names.update(*parameters_of(node))
    return frozenset(names)


def _autotune(project: Project, entry: Entry | None) -> tuple[ast.Call | None, bool]:
    """The call of triton.autotune that a function is decorated with, or wrapped in; and whether it is another one."""
    if entry is None:
        return None, False
    calls = tuning_calls(entry)
    tuned = [call for call in calls if project.canonical(entry.module, call.func, needed=True) in AUTOTUNE]
    others = [call for call in calls if any(keyword.arg == "configs" for keyword in call.keywords)]
    return next(iter((*tuned, *others)), None), not tuned


def tuning_calls(entry: Entry) -> list[ast.Call]:
    """The calls that a function is decorated with, or wrapped in, from the outside in."""
    found: list[ast.Call] = []
    for node in entry.statements:
        if isinstance(node, ast.FunctionDef):
            found += [decorator for decorator in node.decorator_list if isinstance(decorator, ast.Call)]
        elif isinstance(node, ast.Assign):
            found += _wrappers(node.value)
    return found


def _wrappers(node: ast.expr) -> Iterator[ast.Call]:
    """The calls whose results are called, in `autotune(...)(heuristics(...)(jit(f)))`, from the outside in."""
    while isinstance(node, ast.Call):
        if isinstance(node.func, ast.Call):
            yield node.func
        if not node.args:
            return
        node = node.args[0]


def _arguments(
    project: Project, module: SourceModule, call: ast.Call, world: World, *, own: bool, unknown: frozenset[str]
) -> dict[str, ast.expr]:
    """Parameter of triton.autotune -> what the call gives it; of a decorator of the project's own, what it shares."""
    if own:
        return {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg in _PARAMETERS}
    given = dict(zip(_PARAMETERS, call.args, strict=False))
    for keyword in call.keywords:
        if keyword.arg is not None:
            given[keyword.arg] = keyword.value
            continue
        for name in _keys(project, module, keyword.value, world, unknown):
            if name not in _MEASURING:
                given[name] = keyword.value
    strange = sorted(given.keys() - set(_PARAMETERS) - _MEASURING)
    if strange:
        raise ClosureError(
            f"triton.autotune has no argument that Kiln knows as {', '.join(strange)}",
            where=module.position(call),
            expected=f"one of {', '.join((*_PARAMETERS, *sorted(_MEASURING)))}",
            actual=", ".join(strange),
            remedy=did_you_mean(strange[0], [*_PARAMETERS, *_MEASURING]) or WRITE_OUT,
        )
    return given


def _keys(project: Project, module: SourceModule, node: ast.expr, world: World, unknown: frozenset[str]) -> list[str]:
    """The keys of a map that is spread into a call; of one whose values only a run can tell, those that it may have."""
    try:
        value = evaluate(project, module, node, world, unknown=unknown)
    except Undecided as error:
        written = _possible_keys(project, module, node)
        if written is None:
            raise undecided(error, "the arguments of triton.autotune", module.position(node)) from None
        return written
    if not isinstance(value, dict):
        raise undecided(Undecided("it is no map"), "the arguments of triton.autotune", module.position(node))
    return [str(key) for key in value]


def _possible_keys(project: Project, module: SourceModule, node: ast.expr) -> list[str] | None:
    """The keys that stand in the text of a map, through names and a choice of two; None for anything else."""
    if isinstance(node, ast.Name):
        found = [unit.node for unit in module.binding(node.id)]
        if len(found) == 1 and isinstance(found[0], (ast.Import, ast.ImportFrom)):
            imported = project.needed(module, found[0], alias_of(found[0], node.id))
            if isinstance(imported.module, Location):
                end = project.follow(imported.module, imported.names, module)
                if isinstance(end, Definition) and end.module is not module:
                    return _possible_keys(project, end.module, ast.Name(id=end.name))
        values = [statement.value for statement in found if isinstance(statement, ast.Assign)]
        keys = [_possible_keys(project, module, value) for value in values]
        return _joined(keys) if len(values) == len(found) > 0 else None
    if isinstance(node, ast.IfExp):
        return _joined([_possible_keys(project, module, side) for side in (node.body, node.orelse)])
    if isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys):
        return [str(key.value) for key in node.keys if isinstance(key, ast.Constant)]
    return None


def _joined(parts: list[list[str] | None]) -> list[str] | None:
    known = [part for part in parts if part is not None]
    return [key for part in known for key in part] if len(known) == len(parts) else None


def _no_configuration(function: str, where: Position, value: object) -> ClosureError:
    return ClosureError(
        f"the configurations of {function} are no list of triton.Config",
        where=where,
        expected="a list, each item triton.Config(...)",
        actual=type(value).__name__,
        remedy=WRITE_OUT,
    )


def _configuration(item: ConfigValue, function: str, parameters: tuple[str, ...], kernel: KernelFile) -> Configuration:
    constants: dict[str, Value] = {}
    options: dict[str, int] = dict(_DEFAULTS)
    for name, value in item.constants.items():
        own = manifest_value(value, f"{name} of a configuration of {function}", item.position, kernel)
        if name in parameters or (not parameters and name not in OPTIONS):
            constants[name] = own
        elif name in OPTIONS:
            # Backends take their own options among the constants: waves_per_eu, kpack.
            options[name] = option_value(name, value, f"a configuration of {function}", item.position)
        else:
            raise ClosureError(
                f"a configuration sets {name}, and {function} has no parameter of that name",
                where=item.position,
                expected=f"one of the parameters {', '.join(parameters)}, or a compiler option",
                actual=f"{name} = {own!r}",
                remedy=did_you_mean(name, [*parameters, *OPTIONS]) or WRITE_OUT,
            )
    for name, value in item.options.items():
        if value is None or (name == "num_ctas" and value == 1):
            continue
        if name not in OPTIONS:
            raise ClosureError(
                f"a configuration of {function} sets {name}, which a build cannot use",
                where=item.position,
                expected=f"options among {', '.join(OPTIONS)}",
                actual=name,
                remedy="write the blocks out without it; `kiln import` prints them",
            )
        options[name] = option_value(name, value, f"a configuration of {function}", item.position)
    return Configuration(constants=constants, options=options, targets=None, position=item.position)


def _identity(configuration: Configuration) -> Hashable:
    return (identity(configuration.constants), identity(configuration.options))

"""Function tables in ONNX Runtime's form: what `get_function_table()` of a file returns, read without running it.

Each row is a map with the keys name, group, func, sig and kwargs. Two forms of kwargs are in use: compiler options with
the constants under `constants`, and constants and options side by side. The form is that of ONNX Runtime's
tools/ci_build/compile_triton.py and docs/ORT_Use_Triton_Kernel.md.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Mapping

from kiln.closure.function_parameters import read_parameters
from kiln.closure.interpret.interpreter import call
from kiln.closure.interpret.values import FunctionValue, Undecided
from kiln.closure.module import SourceModule
from kiln.closure.names import Names
from kiln.closure.resolve import Project
from kiln.closure.tuning.autotune import find_tuned
from kiln.closure.tuning.manifest_values import (
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
from kiln.manifest.model import TableRow
from kiln.manifest.schema import OPTIONS

FUNCTION = "get_function_table"
_KEYS = ("name", "group", "func", "sig", "kwargs")
_REMEDY = "correct the table, or declare the kernel with `source`, `dtypes` and `blocks`"


def function_table(project: Project, module: SourceModule, worlds: Mapping[str, World]) -> tuple[TableRow, ...]:
    """The rows that the module's `get_function_table()` returns, in order; targets are given with their worlds.

    Raises ClosureError when there is no such function, when its result cannot be told, and for rows of another form.
    """
    bound = [unit.node for unit in module.binding(FUNCTION)]
    definition = bound[-1] if bound else None
    if not isinstance(definition, ast.FunctionDef):
        functions = [unit.node.name for unit in module.units if isinstance(unit.node, ast.FunctionDef)]
        raise ClosureError(
            f"the file has no function {FUNCTION}",
            where=Position(file=module.file, line=1),
            expected=f"a function {FUNCTION}() that returns a list of maps with {', '.join(_KEYS)}",
            actual=f"functions {', '.join(functions)}" if functions else "no function",
            remedy=did_you_mean(FUNCTION, functions) or "declare the kernel with `source`, `dtypes` and `blocks`",
        )
    where = module.position(definition)

    def read(world: World, asked: set[str]) -> list[tuple[Hashable, TableRow]]:
        try:
            listed = call(project, module, FUNCTION, [], world, asked=asked)
        except Undecided as error:
            raise undecided(error, f"what {FUNCTION}() returns", where, _REMEDY) from None
        if not isinstance(listed, (list, tuple)):
            raise _wrong(f"{FUNCTION}() returns no list", where, type(listed).__name__)
        places = _places(module, definition, len(listed))
        rows = [_row(project, item, number, places[number - 1]) for number, item in enumerate(listed, 1)]
        return [(_identity(row, number), row) for number, row in enumerate(rows)]

    merged = for_targets(worlds, read)
    for row, targets in merged:
        if targets is not None:
            raise ClosureError(
                f"{FUNCTION}() gives other rows for {targets[0]} than for other targets",
                where=where,
                expected="the same table for every target of the kernel",
                actual=f"{row.name} is for {', '.join(targets)} only",
                remedy="declare a kernel for each kind of target, with `targets`",
            )
    return tuple(row for row, _ in merged)


def _places(module: SourceModule, definition: ast.FunctionDef, count: int) -> list[Position]:
    """Where the rows stand in the text: those of a list that is written out, or the one map that makes all of them.

    That of the function for each, where neither is so.
    """
    lists = [node for node in ast.walk(definition) if isinstance(node, (ast.List, ast.Tuple))]
    written = [node.elts for node in lists if len(node.elts) == count and all(map(_is_row, node.elts))]
    if len(written) == 1:
        return [module.position(node) for node in written[0]]
    maps = [node for node in ast.walk(definition) if _is_row(node)]
    return [module.position(maps[0] if len(maps) == 1 else definition)] * count


def _is_row(node: ast.AST) -> bool:
    keys = node.keys if isinstance(node, ast.Dict) else []
    return any(isinstance(key, ast.Constant) and key.value == "func" for key in keys)


def _wrong(what: str, where: Position, actual: str, expected: str | None = None) -> ClosureError:
    form = f"a list of maps with {', '.join(_KEYS)}"
    return ClosureError(what, where=where, expected=expected or form, actual=actual, remedy=_REMEDY)


def _row(project: Project, item: object, number: int, where: Position) -> TableRow:
    what = f"row {number} of {FUNCTION}()"
    if not isinstance(item, dict):
        raise _wrong(f"{what} is no map", where, type(item).__name__)
    unknown = [key for key in item if key not in _KEYS]
    missing = [key for key in _KEYS if key not in item and key != "kwargs"]
    if unknown or missing:
        said = f"has the unknown key {unknown[0]!r}" if unknown else f"lacks {', '.join(missing)}"
        raise _wrong(f"{what} {said}", where, f"keys {', '.join(map(str, item))}")
    texts = {key: item[key] for key in ("name", "group", "sig")}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise _wrong(f"{key} of {what} is no text", where, repr(text), f"{key} as a text")
    function = item["func"]
    if not isinstance(function, FunctionValue):
        raise _wrong(f"func of {what} is no function of a project file", where, repr(function), "a jitted function")
    kwargs = item.get("kwargs", {})
    if not isinstance(kwargs, dict):
        raise _wrong(f"kwargs of {what} is no map", where, repr(kwargs), "a map of options and constants")
    entry = find_tuned(project, function.module, function.name)
    if entry is None:
        raise _wrong(f"func of {what} is not defined with def", where, function.name, "a jitted function")
    found = read_parameters(project, entry.module, entry.definition)
    parameters = {parameter.name: parameter.is_constexpr for parameter in found}
    kernel = KernelFile(names=Names(project), module=function.module)
    constants, options = _kwargs(kwargs, function.name, tuple(parameters), what, where, kernel)
    signature, written = _signature(texts["sig"], parameters, what, where, kernel)
    for name, value in written.items():
        if constants.setdefault(name, value) != value:
            raise _wrong(
                f"{what} sets {name} twice", where, f"{value!r} in sig, {constants[name]!r} in kwargs", "one value"
            )
    return TableRow(
        name=texts["name"],
        group=texts["group"],
        source=function.module.path,
        source_name=function.module.file,
        function=function.name,
        signature=signature,
        constants=constants,
        options=options,
        position=where,
    )


def _kwargs(
    kwargs: Mapping[object, object],
    function: str,
    parameters: tuple[str, ...],
    what: str,
    where: Position,
    kernel: KernelFile,
) -> tuple[dict[str, Value], dict[str, int]]:
    """Constants and options, from either form."""
    given = dict(kwargs)
    nested = given.pop("constants", {})
    if not isinstance(nested, dict):
        raise _wrong(f"constants of {what} is no map", where, repr(nested), "a map from parameters to values")
    constants: dict[str, Value] = {}
    options: dict[str, int] = {}
    for key, value in [*nested.items(), *given.items()]:
        # Older compilers took a parameter's number in place of its name.
        name = parameters[key] if type(key) is int and 0 <= key < len(parameters) else str(key)
        own = manifest_value(value, f"{name} of {what}", where, kernel, _REMEDY)
        if name in parameters:
            constants[name] = own
        elif name in OPTIONS and key in given:
            options[name] = option_value(name, value, what, where, _REMEDY)
        else:
            raise ClosureError(
                f"{what} sets {name}, and {function} has no parameter of that name",
                where=where,
                expected=f"a compiler option, or one of the parameters {', '.join(parameters)}",
                actual=f"{name} = {own!r}",
                remedy=did_you_mean(name, [*parameters, *OPTIONS]) or "remove it from the table",
            )
    return constants, options


def _signature(
    text: str, parameters: Mapping[str, bool], what: str, where: Position, kernel: KernelFile
) -> tuple[str, dict[str, Value]]:
    """The signature without constants, and the constants in it, which Triton's own form has in their places."""
    items = [item.strip() for item in text.split(",")]
    names = list(parameters)
    if len(items) != len(names) or not any(parameters.values()):
        return text, {}
    kept: list[str] = []
    constants: dict[str, Value] = {}
    for name, item in zip(names, items, strict=True):
        if not parameters[name]:
            kept.append(item)
            continue
        try:
            constants[name] = manifest_value(ast.literal_eval(item), name, where, kernel, _REMEDY)
        except (ValueError, SyntaxError):
            raise _wrong(
                f"sig of {what} gives the constant {name} a type", where, item, "its value, or no item for it"
            ) from None
    return ", ".join(kept), constants


def _identity(row: TableRow, number: int) -> Hashable:
    """A row that stands there twice is two rows, whose names are refused later on."""
    return (
        number,
        row.name,
        row.group,
        str(row.source),
        row.function,
        row.signature,
        identity(row.constants),
        identity(row.options),
    )

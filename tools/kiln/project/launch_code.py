"""The code that launches a kernel, in the kernel's own file: what it passes, and over which grid."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kiln.closure.module import SourceModule
from kiln.manifest.dtypes import dtype_called
from kiln.manifest.schema import OPTIONS

POINTER, INTEGER, REAL, TRUTH, NOTHING, DESCRIPTOR = "pointer", "integer", "real", "truth", "nothing", "descriptor"
"""what a launch can pass"""

_NEW_TENSORS = frozenset({"empty", "zeros", "ones", "full", "tensor", "arange", "rand", "randn", "randint"})
_LIKE_ANOTHER = frozenset({"empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like"})
_TENSOR_METHODS = """clone contiguous detach expand expand_as flatten movedim new_empty new_ones new_zeros permute
repeat reshape squeeze t transpose unflatten unsqueeze view view_as where"""
_SAME_DTYPE = frozenset(_TENSOR_METHODS.split())
"""methods and functions of tensors whose result has the dtype of what they are called on"""
_CONVERSIONS = {"float": "fp32", "half": "fp16", "bfloat16": "bf16", "double": "fp64", "long": "i64", "int": "i32"}
_SIZES = frozenset({"stride", "size", "numel", "dim", "nelement", "element_size", "storage_offset"})
_WHOLE = frozenset({"cdiv", "next_power_of_2", "ceil", "floor", "int", "len", "round", "bit_length", "isqrt"})


@dataclass(frozen=True, kw_only=True)
class Passed:
    """What a launch passes for one parameter."""

    node: ast.expr | None
    """None for one item of a starred argument"""
    kind: str | None
    """POINTER, INTEGER, REAL, TRUTH, NOTHING or DESCRIPTOR; None where it cannot be told"""
    dtype: str | None = None
    """of what a pointer points to, where the launch says it"""
    maybe_none: bool = False
    literal: bool | int | float | str | None = None
    """the value, where it is written out"""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The variables of the functions around a launch, innermost last."""

    functions: tuple[ast.FunctionDef, ...]
    module: SourceModule
    values: Mapping[str, ast.expr]
    """variable -> what it is last set to before the launch"""
    sizes: frozenset[str]
    """variables that a shape or strides are unpacked into"""
    parameters: Mapping[str, tuple[ast.expr | None, ast.expr | None]]
    """parameter of those functions -> annotation and default"""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One `kernel[grid](...)`."""

    line: int
    grid: ast.expr
    scope: Scope
    passed: Mapping[str, Passed]
    """parameter -> what it is given"""
    options: Mapping[str, int | bool]
    """compiler options that stand in the call as numbers"""
    computed: Mapping[str, str]
    """compiler options that the call computes -> how"""


def find_launches(module: SourceModule, function: str, parameters: list[str]) -> list[Launch]:
    """The launches of a function in its module, the one that passes most of its parameters first."""
    launches = [
        _launch(module, functions, call, grid, parameters)
        for functions, call, grid in _calls(module)
        if _launched(call) == function.rpartition(".")[2]
    ]
    return sorted(launches, key=lambda launch: len(launch.passed), reverse=True)


def differences(first: Launch, other: Launch, parameters: Sequence[str]) -> dict[str, str]:
    """What two launches write out differently: parameter or compiler option -> its text in the other one."""
    found: dict[str, str] = {}
    for name in parameters:
        own, else_ = first.passed.get(name), other.passed.get(name)
        if own is None or else_ is None or (own.literal is None and else_.literal is None):
            continue
        if (type(own.literal), own.literal) != (type(else_.literal), else_.literal) and else_.node is not None:
            found[name] = ast.unparse(else_.node)
    options = {name: value for name, value in other.options.items() if first.options.get(name) != value}
    return {**found, **{name: str(value) for name, value in options.items()}}


def _calls(module: SourceModule) -> Iterator[tuple[tuple[ast.FunctionDef, ...], ast.Call, ast.expr]]:
    """Every `f[grid](...)` of a module, with the functions around it."""

    def visit(
        node: ast.AST, around: tuple[ast.FunctionDef, ...]
    ) -> Iterator[tuple[tuple[ast.FunctionDef, ...], ast.Call, ast.expr]]:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
            yield around, node, node.func.slice
        inner = (*around, node) if isinstance(node, ast.FunctionDef) else around
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inner)

    for unit in module.units:
        yield from visit(unit.node, ())


def _launched(call: ast.Call) -> str:
    """The name of the function that a call launches."""
    assert isinstance(call.func, ast.Subscript)
    value = call.func.value
    while isinstance(value, ast.Call) and value.args:  # wrap(kernel)[grid](...)
        value = value.args[0]
    return value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""


def _launch(
    module: SourceModule,
    functions: tuple[ast.FunctionDef, ...],
    call: ast.Call,
    grid: ast.expr,
    parameters: list[str],
) -> Launch:
    scope = _scope(module, functions, call.lineno)
    named = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    positional = [name for name in parameters if name not in named]
    starred = sum(isinstance(argument, ast.Starred) for argument in call.args)
    # A starred argument stands for as many parameters as are left, when it is alone.
    spread = max(len(positional) - (len(call.args) - starred), 0) // starred if starred else 0
    nodes: list[ast.expr | None] = []
    for argument in call.args:
        nodes += [None] * spread if isinstance(argument, ast.Starred) else [argument]
    given: dict[str, ast.expr | None] = dict(zip(positional, nodes, strict=False))
    given |= {name: value for name, value in named.items() if name in parameters}
    options = {
        name: value.value
        for name, value in named.items()
        if name in OPTIONS and isinstance(value, ast.Constant) and type(value.value) is int
    }
    computed = {
        name: ast.unparse(value)
        for name, value in named.items()
        if name in OPTIONS and name not in (options.keys() | given)
    }
    passed = {
        name: Passed(node=None, kind=INTEGER) if node is None else _passed(scope, node) for name, node in given.items()
    }
    return Launch(line=call.lineno, grid=grid, scope=scope, passed=passed, options=options, computed=computed)


def _scope(module: SourceModule, functions: tuple[ast.FunctionDef, ...], line: int) -> Scope:
    values: dict[str, ast.expr] = {}
    sizes: set[str] = set()
    parameters: dict[str, tuple[ast.expr | None, ast.expr | None]] = {}
    for function in functions:
        parameters |= _parameters(function)
        statements = [node for node in ast.walk(function) if isinstance(node, ast.stmt) and node.lineno < line]
        for node in sorted(statements, key=lambda node: node.lineno):
            if isinstance(node, ast.FunctionDef) and node is not function:
                returned = [part.value for part in ast.walk(node) if isinstance(part, ast.Return)]
                if len(returned) == 1 and returned[0] is not None:
                    values[node.name] = ast.copy_location(ast.Lambda(args=node.args, body=returned[0]), node)
            elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    _assign(target, node.value, values, sizes)
    return Scope(functions=functions, module=module, values=values, sizes=frozenset(sizes), parameters=parameters)


def _assign(target: ast.expr, value: ast.expr, values: dict[str, ast.expr], sizes: set[str]) -> None:
    if isinstance(target, ast.Name):
        # `x = x.contiguous()` and `BLOCK = min(BLOCK, 64)` say less than what was there before.
        if not any(isinstance(part, ast.Name) and part.id == target.id for part in ast.walk(value)):
            values[target.id] = value
    elif isinstance(target, ast.Tuple):
        if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
            for part, own in zip(target.elts, value.elts, strict=True):
                _assign(part, own, values, sizes)
        elif any(
            isinstance(part, ast.Attribute) and part.attr in ("shape", "size", "stride") for part in ast.walk(value)
        ):
            sizes.update(part.id for part in target.elts if isinstance(part, ast.Name))


def _parameters(function: ast.FunctionDef) -> dict[str, tuple[ast.expr | None, ast.expr | None]]:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    pairs = [*zip(positional, defaults, strict=True), *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return {argument.arg: (argument.annotation, default) for argument, default in pairs}


def _passed(scope: Scope, node: ast.expr) -> Passed:
    found = _Kinds(scope=scope).of(node)
    literal = scope_literal(scope, node)
    kind = found.kind
    if literal is not None:
        words = {bool: TRUTH, int: INTEGER, float: REAL}
        kind = words.get(type(literal), kind)
    return Passed(node=node, kind=kind, dtype=found.dtype, maybe_none=found.maybe_none, literal=literal)


def scope_literal(scope: Scope, node: ast.expr, depth: int = 0) -> bool | int | float | str | None:
    """The value that a launch writes out, through variables and defaults of the functions around it."""
    if depth > 4:
        return None
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float, str)):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = scope_literal(scope, node.operand, depth + 1)
        return -value if isinstance(value, (int, float)) else None
    if isinstance(node, ast.Name):
        if node.id in scope.values:
            return scope_literal(scope, scope.values[node.id], depth + 1)
        if node.id in scope.parameters:
            default = scope.parameters[node.id][1]
            return None if default is None else scope_literal(scope, default, depth + 1)
        unit = next(iter(scope.module.binding(node.id)[-1:]), None)
        if unit is not None and isinstance(unit.node, ast.Assign):
            return scope_literal(scope, unit.node.value, depth + 1)
    return None


@dataclass(frozen=True, kw_only=True)
class _Kind:
    kind: str | None
    dtype: str | None = None
    maybe_none: bool = False


_UNKNOWN = _Kind(kind=None)


@dataclass(frozen=True, kw_only=True)
class _Kinds:
    """What expressions of a launch's scope are."""

    scope: Scope
    entered: set[str] = field(default_factory=set)

    def of(self, node: ast.expr) -> _Kind:
        if isinstance(node, ast.Constant):
            kinds = {bool: TRUTH, int: INTEGER, float: REAL, type(None): NOTHING}
            return _Kind(kind=kinds.get(type(node.value)))
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Subscript):
            return self._item(node)
        if isinstance(node, ast.Attribute):
            return _Kind(kind=INTEGER) if node.attr in ("ndim", "itemsize") else self._attribute(node)
        if isinstance(node, (ast.Compare, ast.BoolOp)) or (
            isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
        ):
            return _Kind(kind=TRUTH)
        if isinstance(node, ast.UnaryOp):
            return self.of(node.operand)
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.IfExp):
            sides = [self.of(node.body), self.of(node.orelse)]
            real = next((side for side in sides if side.kind not in (None, NOTHING)), _UNKNOWN)
            nothing = any(side.kind == NOTHING or side.maybe_none for side in sides)
            return _Kind(kind=real.kind, dtype=real.dtype, maybe_none=nothing)
        return _UNKNOWN

    def _name(self, name: str) -> _Kind:
        if name in self.scope.sizes:
            return _Kind(kind=INTEGER)
        if name in self.entered:
            return _UNKNOWN
        self.entered.add(name)
        if name in self.scope.values:
            return self.of(self.scope.values[name])
        if name not in self.scope.parameters:
            return _UNKNOWN
        annotation, default = self.scope.parameters[name]
        text = ast.unparse(annotation) if annotation is not None else ""
        nothing = isinstance(default, ast.Constant) and default.value is None
        nothing = nothing or "Optional" in text or "None" in text
        for word, kind in (("Tensor", POINTER), ("bool", TRUTH), ("int", INTEGER), ("float", REAL)):
            if word in text:
                return _Kind(kind=kind, maybe_none=nothing)
        found = self.of(default) if default is not None and not nothing else _UNKNOWN
        return _Kind(kind=found.kind, maybe_none=nothing)

    def _call(self, node: ast.Call) -> _Kind:
        word = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        is_function = isinstance(node.func, ast.Name) or (
            isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and word not in _CONVERSIONS
        )
        if word in _SIZES or (word in _WHOLE and is_function):
            return _Kind(kind=INTEGER)
        if word in ("min", "max") and node.args and isinstance(node.func, ast.Name):
            return self.of(node.args[0])
        dtype = next((_dtype(keyword.value) for keyword in node.keywords if keyword.arg == "dtype"), None)
        if "TensorDescriptor" in ast.unparse(node.func):  # the class, or its from_tensor
            return _Kind(kind=DESCRIPTOR)
        if word in _NEW_TENSORS:
            return _Kind(kind=POINTER, dtype=dtype)
        if word in _LIKE_ANOTHER and node.args:
            return _Kind(kind=POINTER, dtype=dtype or self.of(node.args[0]).dtype)
        if not isinstance(node.func, ast.Attribute):
            return _Kind(kind=REAL) if word == "float" else _UNKNOWN
        owner = node.func.value
        if word == "to":
            return _Kind(kind=POINTER, dtype=next(filter(None, map(_dtype, node.args)), dtype))
        if word in _CONVERSIONS and not node.args:
            return _Kind(kind=POINTER, dtype=_CONVERSIONS[word])
        if word in _SAME_DTYPE:
            return _Kind(kind=POINTER, dtype=dtype or self.of(owner).dtype)
        if word in ("sqrt", "item", "log", "exp", "log2", "pow"):
            return _Kind(kind=REAL) if isinstance(owner, ast.Name) and owner.id == "math" else _UNKNOWN
        return _UNKNOWN

    def _item(self, node: ast.Subscript) -> _Kind:
        inside = [part.attr for part in ast.walk(node.value) if isinstance(part, ast.Attribute)]
        if any(word in ("shape", "stride", "strides", "size") for word in inside):
            return _Kind(kind=INTEGER)
        found = self.of(node.value)
        return found if found.kind == POINTER else _UNKNOWN

    def _attribute(self, node: ast.Attribute) -> _Kind:
        if node.attr in ("T", "mT", "data", "grad"):
            found = self.of(node.value)
            return _Kind(kind=POINTER, dtype=found.dtype)
        return _UNKNOWN

    def _binary(self, node: ast.BinOp) -> _Kind:
        sides = [self.of(node.left).kind, self.of(node.right).kind]
        if POINTER in sides:
            return _Kind(kind=POINTER)
        if isinstance(node.op, (ast.Div, ast.Pow)) or REAL in sides:
            return _Kind(kind=REAL)
        return _Kind(kind=INTEGER if INTEGER in sides else None)


def _dtype(node: ast.expr) -> str | None:
    """fp32 for torch.float32, in kernels.yaml's words; None for what is no dtype, or is another tensor's."""
    return dtype_called(node.attr) if isinstance(node, ast.Attribute) else None

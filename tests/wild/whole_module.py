"""Compiles kernels as Triton's own users do: the whole file is imported, and what it lacks is stubbed.

A program for a process of its own, one a target: `python whole_module.py JOBS OUT`. JOBS is the JSON that
`test_wild.py` writes; OUT is a folder for the images and for `configurations.json`, the configurations of each tuned
kernel. It shares no code with Kiln.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import inspect
import json
import math
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import ASTSource
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

STUBBED = ("torch", "numpy", "einops")


class Stub:
    """Stands for anything that a missing module has: it can be called, subclassed, indexed and used to decorate."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub(f"{self._name}.{name}")

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        # As a decorator it leaves the function alone.
        if len(arguments) == 1 and not keywords and inspect.isfunction(arguments[0]):
            return arguments[0]
        return Stub(f"{self._name}()")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()

    def __getitem__(self, key: Any) -> Stub:
        return Stub(f"{self._name}[]")

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class StubFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of STUBBED and everything below them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in STUBBED:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        """Each of its names is a stub, until it is set. It stays a plain module: Triton looks at the exact type."""

        def stub(name: str) -> Stub:
            if name.startswith("__"):
                raise AttributeError(name)
            return Stub(f"{module.__name__}.{name}")

        vars(module)["__getattr__"] = stub


class Driver:
    """What code asks of Triton's driver, as the target would answer."""

    def __init__(self, target: GPUTarget) -> None:
        self._target = target

    def get_current_target(self) -> GPUTarget:
        return self._target


# IEEE 754 and OCP 8-bit formats: largest value and distance from 1 to the next.
FLOATS = {
    "float32": ((2 - 2**-23) * 2.0**127, 2.0**-23),
    "float16": (65504.0, 2.0**-10),
    "bfloat16": ((2 - 2**-7) * 2.0**127, 2.0**-7),
    "float8_e4m3fn": (448.0, 0.125),
}


def finfo(dtype: Stub) -> types.SimpleNamespace:
    largest, eps = FLOATS[dtype._name.rpartition(".")[2]]
    return types.SimpleNamespace(max=largest, min=-largest, eps=eps)


def iinfo(dtype: Stub) -> types.SimpleNamespace:
    bits = int(dtype._name.rpartition("int")[2])
    return types.SimpleNamespace(max=2 ** (bits - 1) - 1, min=-(2 ** (bits - 1)), bits=bits)


def pretend(target: GPUTarget) -> None:
    """Stub what is missing, and answer questions about the machine as the target would."""
    sys.meta_path.insert(0, StubFinder())
    torch, cuda, version = (importlib.import_module(name) for name in ("torch", "torch.cuda", "torch.version"))
    numpy = importlib.import_module("numpy")
    for module in (torch, numpy):
        vars(module).update(finfo=finfo, iinfo=iinfo)
    vars(numpy).update(pi=math.pi, int64=int)
    # Triton takes classes in annotations, and no other objects.
    vars(torch).update(Tensor=type("Tensor", (), {"__module__": "torch"}))
    hip = target.backend == "hip"
    vars(version).update(hip="6.4" if hip else None, cuda=None if hip else "12.8")
    vars(cuda).update(is_available=lambda: True, get_device_capability=lambda: divmod(int(target.arch), 10))
    triton.runtime.driver.set_active(Driver(target))


def main() -> None:
    jobs, out = json.loads(Path(sys.argv[1]).read_text("utf-8")), Path(sys.argv[2])
    target = GPUTarget(*jobs["target"])
    sys.path[:0] = jobs["roots"]
    pretend(target)
    configurations = {}
    for job in jobs["images"]:
        decorated = found(importlib.import_module(job["module"]), job["function"], job["constants"])
        name_like(job["names"])
        image = compiled(decorated, job, target)
        (out / job["id"]).write_bytes(image)
        if isinstance(decorated, Autotuner):
            configurations[job["kernel"]] = [
                [config.kwargs, {"num_warps": config.num_warps, "num_stages": config.num_stages}]
                for config in decorated.configs
            ]
    (out / "configurations.json").write_text(json.dumps(configurations))


def found(module: types.ModuleType, path: str, constants: dict[str, Any]) -> Any:
    """`kernel`, `Class.kernel`, or `factory.kernel`: the factory is called with the constants that it has."""
    value: Any = module
    for name in path.split("."):
        if inspect.isfunction(value):
            wanted = {key: constants.pop(key) for key in inspect.signature(value).parameters if key in constants}
            made = value(**wanted)
            made = made if isinstance(made, tuple) else (made,)
            value = next(item for item in made if getattr(item, "__name__", None) == name)
        else:
            value = getattr(value, name)
    return value


def name_like(names: dict[str, str]) -> None:
    """Give functions the module names that Kiln gives them: symbols of functions that are not inlined carry them."""
    for module in list(sys.modules.values()):
        name = names.get(getattr(module, "__name__", ""))
        for value in vars(module).values() if name else ():
            if isinstance(value, JITFunction) and value.__module__ == module.__name__:
                value.__module__ = name
                value._fn_name = f"{name}.{value.__qualname__}"


def compiled(decorated: Any, job: dict[str, Any], target: GPUTarget) -> bytes:
    """The image of one job, made with triton.compile."""
    heuristics: dict[str, Any] = {}
    function = decorated
    while isinstance(function, (Autotuner, Heuristics)):
        if isinstance(function, Heuristics):
            heuristics |= function.values
        function = function.fn
    assert isinstance(function, JITFunction), function
    # `repr=` would rename the entry point, which an engine looks up by the function's own name.
    function._repr = None
    constants = {key: constant(value, function) for key, value in job["constants"].items()}
    items: dict[int, dict[tuple[int, ...], list[Any]]] = {}
    for (place, *inner), *item in job["signature"]:
        items.setdefault(place, {})[tuple(inner)] = item
    signature: dict[str, Any] = {}
    values: dict[Any, Any] = {}
    attributes: dict[tuple[int, ...], list[list[Any]]] = {}
    arguments: dict[str, Any] = {}
    place = 0
    for index, parameter in enumerate(function.params):
        name = parameter.name
        if name in constants or (parameter.is_constexpr and name not in heuristics):
            values[name] = arguments[name] = constants.get(name, parameter.default)
            signature[name] = "constexpr"
        elif name not in heuristics:
            if name in job["promises"]:
                items[place][()][1] = job["promises"][name]
            signature[name] = declared(items[place], (index,), values, attributes)
            arguments[name] = sample(*items[place][()]) if () in items[place] else None
            place += 1
    assert place == len(items)
    for name, derive in heuristics.items():
        if name not in constants:
            values[name] = arguments[name] = derive(arguments)
            signature[name] = "constexpr"
    ordered = {parameter.name: signature[parameter.name] for parameter in function.params}
    source = ASTSource(function, ordered, values, attributes)
    kernel = triton.compile(source, target=target, options=job["options"])
    image: bytes = kernel.asm["hsaco" if target.backend == "hip" else "cubin"]
    return image


def declared(
    items: dict[tuple[int, ...], list[Any]],
    path: tuple[int, ...],
    values: dict[Any, Any],
    attributes: dict[tuple[int, ...], list[list[Any]]],
) -> Any:
    """Triton's type of one argument, or the tuple of such: `items` are types and promises by their place in it."""
    if () not in items:
        members: dict[int, dict[tuple[int, ...], list[Any]]] = {}
        for (place, *inner), item in items.items():
            members.setdefault(place, {})[tuple(inner)] = item
        return tuple(declared(below, (*path, place), values, attributes) for place, below in members.items())
    kind, promise = items[()]
    if promise == 1:
        values[path] = 1
        return "constexpr"
    if promise == 16:
        attributes[path] = [["tt.divisibility", 16]]
    return kind


def sample(kind: str, promise: int | None) -> Any:
    """An argument as a heuristic may see it: a pointer, or a number that keeps the promise and no other."""
    return object() if kind.startswith("*") else {1: 1, 16: 16, None: 7}[promise]


def constant(value: Any, function: JITFunction[Any]) -> Any:
    """A declared constant as Python has it."""
    if isinstance(value, list):
        return tuple(constant(item, function) for item in value)
    if isinstance(value, dict):
        [(kind, name)] = value.items()
        return function.__globals__[name] if kind == "function" else tl.str_to_ty(name, None)
    return value


if __name__ == "__main__":
    main()

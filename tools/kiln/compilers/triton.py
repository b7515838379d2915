"""Compiles one kernel with Triton, stage by stage, with no GPU and no driver.

Runs in a child of the fork server. Importing this module imports Triton and asks each ptxas for its version, so that
the children inherit both. Triton's own cache is never used: its key leaves out things that change the image.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import triton
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget, Language
from triton.backends.nvidia.compiler import get_ptxas
from triton.compiler import code_generator
from triton.compiler.code_generator import CodeGenerator
from triton.compiler.compiler import ASTSource, make_backend
from triton.language import str_to_ty
from triton.runtime import JITFunction

from kiln.closure import load
from kiln.closure.virtual_names import TRITON
from kiln.closure.visited import Visit, check_visits
from kiln.compilers.diagnostics import failure
from kiln.compilers.ptxas_log import spilled_bytes, without_report
from kiln.compilers.request import Compiled, CompileRequest, CompilerMetadata
from kiln.errors import ClosureError, KilnError
from kiln.manifest.constants import DTypeConstant, FunctionConstant, Value
from kiln.stages import timed

FOLDER = Path(triton.__file__).parent
"""of the Triton that compiles here"""
_PTXAS = {get_ptxas(arch).path: str(get_ptxas(arch).version) for arch in (80, 90, 100)}
"""path -> version, of each that a release of Triton takes for some capability"""


def compile_kernel(request: CompileRequest) -> Compiled:
    """The image of one request. Raises CompileError naming the stage and the kernel's line, or ClosureError."""
    target = request.target
    given = {name: _without_dtypes(value) for name, value in request.interface.constants.items()}
    with timed("slice"):
        function = load.load(request.closure, given)
    if request.entry != request.closure.entry:
        # What `@triton.jit(repr=...)` sets: the symbol that a kernel asks for.
        function._repr = lambda _: request.entry
    backend = make_backend(GPUTarget("cuda" if target.vendor == "nvidia" else "hip", target.arch, target.warp_size))
    stage = "options"
    try:
        options = backend.parse_options(dict(request.options))
        metadata: dict[str, Any] = dict(vars(options))
        stages: dict[str, Any] = {}
        backend.add_stages(stages, options, Language.TRITON)
        if target.kind == "ptx":
            del stages["cubin"]
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        stage = "front end"
        source = _source(function, request)
        with timed(stage), _visits() as visits, load.environment(request.closure):
            module = source.make_ir(
                backend.target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
            )
        check_visits(request.closure, visits, FOLDER)
        with _printed() as printed:
            for stage, run in stages.items():  # which stage failed is asked below
                with timed(stage):
                    module = run(module, metadata)
    except (KilnError, MemoryError):
        # Want of memory is told with the limit, by who set it.
        raise
    except Exception as error:
        raise failure(request, stage, error) from error
    data = module.encode() if isinstance(module, str) else bytes(module)
    return Compiled(data=data, metadata=_metadata(request, metadata, spilled_bytes(printed.getvalue())))


@contextmanager
def _visits() -> Iterator[list[Visit]]:
    """What Triton's front end visits: the functions that it compiles, and what the names of their modules stand for."""
    found: list[Visit] = []

    class Watched(CodeGenerator):  # type: ignore[misc]  # Triton has no types
        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            super().__init__(*arguments, **{**keywords, "file_name": _virtual(keywords["file_name"])})
            found.append(Visit(function=self.jit_fn))

        def _define_name_lookup(self) -> Callable[[str], Any]:
            lookup: Callable[[str], Any] = super()._define_name_lookup()

            def watched(name: str) -> Any:
                value = lookup(name)
                if name not in self.lscope and name in self.gscope:
                    found.append(Visit(function=self.jit_fn, name=name, value=self.gscope[name]))
                return value

            return watched

    code_generator.CodeGenerator = Watched
    try:
        yield found
    finally:
        code_generator.CodeGenerator = CodeGenerator


def _virtual(file: str) -> str:
    """What line tables call the file of a function: those of Triton's own lie elsewhere on each machine."""
    path = Path(file)
    return f"{TRITON}/{path.relative_to(FOLDER).as_posix()}" if path.is_relative_to(FOLDER) else file


@contextmanager
def _printed() -> Iterator[StringIO]:
    """What Triton prints, what ptxas says among it; but for that, it goes to standard output in the end."""
    printed = StringIO()
    try:
        with triton.knobs.nvidia.scope(), redirect_stdout(printed):
            triton.knobs.nvidia.dump_ptxas_log = True
            yield printed
    finally:
        sys.stdout.write(without_report(printed.getvalue()))


def _source(function: Any, request: CompileRequest) -> ASTSource:
    """Triton's own description: constants, and arguments promised to be 1, are folded; 16 becomes an attribute.

    It names an argument by its path: the place among the parameters, then that in each tuple around it.
    """
    names: list[str] = function.arg_names
    given = {argument.parameter for argument in request.interface.arguments}
    folded: dict[Any, Any] = {param.name: param.default for param in function.params if param.name not in given}
    constants = {name: value for name, value in request.interface.constants.items() if name in names}
    folded |= {name: _value(name, value, request) for name, value in constants.items()}
    signature: dict[str, Any] = dict.fromkeys(folded, "constexpr")
    attributes = {}
    for argument in request.interface.arguments:
        path = (names.index(argument.parameter), *argument.path)
        if argument.promise == 1:
            folded[path] = 1
        elif argument.promise == 16:
            attributes[path] = [["tt.divisibility", 16]]
        _place(signature, argument.parameter, argument.path, "constexpr" if argument.promise == 1 else argument.type)
    return ASTSource(function, _ordered(signature, names), folded, attributes)


def _place(tree: dict[Any, Any], key: Any, path: tuple[int, ...], type: str) -> None:
    """Put a type into a tree of maps, one for each tuple."""
    if path:
        _place(tree.setdefault(key, {}), path[0], path[1:], type)
    else:
        tree[key] = type


def _ordered(signature: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The signature in the order of the parameters, its trees as the tuples that Triton takes."""

    def tuples(node: Any) -> Any:
        return tuple(tuples(node[index]) for index in sorted(node)) if isinstance(node, dict) else node

    return {name: tuples(signature[name]) for name in names}


def _without_dtypes(value: Value) -> Any:
    """A value for the function that makes a kernel, which gets Triton's own objects for dtypes."""
    if isinstance(value, tuple):
        return tuple(_without_dtypes(member) for member in value)
    return str_to_ty(value.name, None) if isinstance(value, DTypeConstant) else value


def _value(name: str, value: Value, request: CompileRequest) -> Any:
    """A constant as the kernel gets it. Raises ClosureError for a function that is none of Triton's."""
    if isinstance(value, tuple):
        return tuple(_value(name, member, request) for member in value)
    if not isinstance(value, FunctionConstant):
        return _without_dtypes(value)
    found = load.named(request.closure, value.name)
    if not isinstance(found, JITFunction):
        raise ClosureError(
            f"the constant {name} is {value.name}, which is no function of Triton's",
            where=request.closure.position,
            expected=f"a function of that file with @triton.jit, for {name}: {{function: {value.name}}}",
            actual=type(found).__name__ if found is not None else f"nothing is called {value.name} there",
            remedy=f"decorate {value.name} with @triton.jit, or correct the name in {request.declared.file}",
        )
    return found


def _metadata(request: CompileRequest, metadata: dict[str, Any], spills: int | None) -> CompilerMetadata:
    target = request.target
    tools = {"triton": triton.__version__}
    if target.kind == "cubin" and isinstance(target.arch, int):
        tools["ptxas"] = _PTXAS[get_ptxas(target.arch).path]
    ctas = int(metadata.get("num_ctas", 1))
    return CompilerMetadata(
        entry=metadata["name"],
        warps=metadata["num_warps"],
        warp_size=metadata["warp_size"],
        cluster=(ctas, 1, 1),
        cooperative=bool(metadata.get("launch_cooperative_grid", False)),
        pdl=bool(metadata.get("launch_pdl", False)),
        shared_dynamic=metadata["shared"],
        global_scratch_bytes=metadata.get("global_scratch_size", 0),
        global_scratch_align=metadata.get("global_scratch_align", 1),
        profile_scratch_bytes=metadata.get("profile_scratch_size", 0),
        profile_scratch_align=metadata.get("profile_scratch_align", 1),
        tools=tools,
        spills=spills,
    )

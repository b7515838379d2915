"""Where a kernel cannot be cut: its file as it stands, with all files of the project that it may import."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kiln.closure import scope
from kiln.closure.module import SourceModule
from kiln.closure.resolve import Location, Project, bound_by
from kiln.errors import ClosureError, Position
from kiln.files import is_file


@dataclass(frozen=True, kw_only=True)
class WholeModule:
    """One file under a name that Python imports it by; a file may have several."""

    name: str
    module: SourceModule

    @property
    def text(self) -> str:
        return "\n".join(self.module.lines)


def collect(project: Project, module: SourceModule) -> tuple[WholeModule, ...]:
    """A file and all that it may import of the project and of installed packages that the project needs, itself first.

    Every import statement counts, wherever it stands. What is imported in other ways is not seen; it cannot be loaded.

    Raises ClosureError when the file's own name is taken by a module of Python or cannot be one.
    """
    start = _name(project, module)
    if not start or start[0] == "triton" or start[0] in sys.stdlib_module_names or any("." in part for part in start):
        raise ClosureError(
            f"the file cannot be imported under its own name, {'.'.join(start)}",
            where=module.file,
            expected="a name that neither Python nor Triton has for a module of its own",
            remedy="rename the file",
        )
    found: dict[tuple[str, ...], SourceModule] = {}
    pending = [(start, module.path)]
    while pending:
        name, path = pending.pop()
        if name in found:
            continue
        found[name] = project.open(path)
        pending += reversed(list(_packages(name, path)))
        pending += reversed(list(_imports(project, name, found[name])))
    return tuple(WholeModule(name=".".join(name), module=each) for name, each in found.items())


def tree(module: SourceModule) -> ast.Module:
    """The whole file's, with the branches that a slice leaves out."""
    return ast.parse("\n".join(module.lines), filename=module.file)


def variables(module: SourceModule) -> Iterator[tuple[str, Position]]:
    """The variables of the environment that a file reads by names that stand there, each time that it does."""
    nodes = list(ast.walk(tree(module)))
    reading = _readers(nodes)
    for node in nodes:
        name: ast.expr | None = None
        if isinstance(node, ast.Call) and node.args and scope.plain_path(node.func) in reading["get"]:
            name = node.args[0]
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            name = node.slice if scope.plain_path(node.value) in reading["environ"] else None
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            name = node.left if scope.plain_path(node.comparators[0]) in reading["environ"] else None
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            yield name.value, module.position(node)


def _readers(nodes: list[ast.AST]) -> Mapping[str, set[tuple[str, tuple[str, ...]]]]:
    """What a file calls os.environ, and the functions that read a variable."""
    environ: set[tuple[str, tuple[str, ...]]] = set()
    get: set[tuple[str, tuple[str, ...]]] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            for name in (bound_by(alias) for alias in node.names if alias.name == "os"):
                environ.add((name, ("environ",)))
                get.add((name, ("getenv",)))
        elif isinstance(node, ast.ImportFrom) and node.module == "os" and not node.level:
            environ |= {(bound_by(alias), ()) for alias in node.names if alias.name == "environ"}
            get |= {(bound_by(alias), ()) for alias in node.names if alias.name == "getenv"}
    get |= {(name, (*path, method)) for name, path in environ for method in ("get", "__getitem__", "__contains__")}
    return {"environ": environ, "get": get}


def _name(project: Project, module: SourceModule) -> tuple[str, ...]:
    base = project.folders.base_of(module.path)
    below = module.path.relative_to(base.folder) if base is not None else Path(module.path.name)
    return below.parent.parts if below.stem == "__init__" else below.with_suffix("").parts


def _packages(name: tuple[str, ...], path: Path) -> Iterator[tuple[tuple[str, ...], Path]]:
    """The packages around a module, which Python imports before it."""
    folder = path.parent.parent if path.name == "__init__.py" else path.parent
    for depth in range(len(name) - 1, 0, -1):
        if is_file(folder / "__init__.py"):
            yield name[:depth], folder / "__init__.py"
        folder = folder.parent


def _imports(project: Project, name: tuple[str, ...], module: SourceModule) -> Iterator[tuple[tuple[str, ...], Path]]:
    """The modules that a file's import statements name: as Python will call them, and their files."""
    package = name if module.path.name == "__init__.py" else name[:-1]
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                # With `as`, the name means the last module of the path, not the first.
                one = ast.copy_location(ast.Import(names=[ast.alias(name=alias.name, asname="_")]), node)
                yield from _module(project, module, one, alias.name, ())
        elif isinstance(node, ast.ImportFrom):
            around = package[: len(package) - node.level + 1] if node.level else ()
            yield from _module(project, module, node, node.module or "", around)


def _module(
    project: Project, module: SourceModule, node: ast.Import | ast.ImportFrom, text: str, around: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Path]]:
    name = (*around, *(text.split(".") if text else ()))
    try:
        location = project.needed(module, node, node.names[0]).module
    except ClosureError:
        # The statement may never run; if it does, Python says that there is no such module.
        return
    if not isinstance(location, Location):
        return
    if location.path is not None:
        yield name, location.path
    for depth in range(1, len(name)):
        above = project.locate(location.parts[: len(location.parts) - depth])
        if above is not None and above.path is not None:
            yield name[: len(name) - depth], above.path
    if isinstance(node, ast.ImportFrom):
        for alias in node.names:
            below = project.locate((*location.parts, alias.name)) if alias.name != "*" else None
            if below is not None and below.path is not None:
                yield (*name, alias.name), below.path

"""The order of the rooms: data flows down the list, and nothing imports upwards."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

KILN = Path(__file__).parent.parent / "tools" / "kiln"
ROOMS = ("manifest", "closure", "toolchain", "compilers", "binaries", "engine", "packaging", "release", "doit_plugin")
FOUNDATION = ("__init__", "errors", "digests", "files", "stages")
"""modules that every room may import, since they import no room"""
OUTSIDE = ("project",)
"""packages that are users of the rooms, as the modules beside them are: they may import all, no room imports them"""
NO_MODULES = ("template", "templates", "runtime")
"""folders whose files are copied or rendered, never imported"""


def modules() -> list[Path]:
    """Every module of kiln, relative to it."""
    paths = sorted(path.relative_to(KILN) for path in KILN.rglob("*.py"))
    return [path for path in paths if not set(path.parts) & set(NO_MODULES)]


def imports(source: str, module: Path) -> list[tuple[int, str]]:
    """(line, dotted name) of every import of a module of kiln at `module`, wherever in the code it stands."""
    package = ("kiln", *module.parts[:-1])
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            name = ".".join((*base, *(node.module.split(".") if node.module else ())))
            # The imported name may itself be a module: `from kiln import engine`.
            found += [(node.lineno, f"{name}.{alias.name}") for alias in node.names]
    return found


def upward_imports(source: str, module: Path) -> list[str]:
    """What `module` imports against the order of the rooms, as `path:line: name`."""
    room = module.parts[0] if len(module.parts) > 1 else module.stem
    if room in ROOMS:
        allowed = {*FOUNDATION, *ROOMS[: ROOMS.index(room) + 1]}
        # Where the rooms are joined: doit's side may use what stands beside the rooms.
        allowed |= {path.stem for path in KILN.glob("*.py")} if room == ROOMS[-1] else set()
    elif room in FOUNDATION:
        allowed = set(FOUNDATION)
    else:
        allowed = None
    wrong = []
    for line, name in imports(source, module):
        top, *rest = name.split(".")
        if top == "doit" and room != "doit_plugin":
            wrong.append(f"{module}:{line}: {name}")
        if top == "kiln" and allowed is not None:
            first = rest[0] if rest else "__init__"
            known = first in ROOMS or first in OUTSIDE or (KILN / f"{first}.py").exists()
            if known and first not in allowed:
                wrong.append(f"{module}:{line}: {name}")
    return wrong


def test_no_module_imports_upwards_and_only_doit_plugin_imports_doit() -> None:
    paths = modules()
    assert {path.parts[0] for path in paths} >= set(ROOMS)
    wrong = [line for path in paths for line in upward_imports((KILN / path).read_text(), path)]
    assert not wrong, "\n".join(wrong)


def test_every_package_has_its_place() -> None:
    """A new package is entered here, in the order of the rooms or outside of them, or this fails."""
    assert {path.parts[0] for path in modules() if len(path.parts) > 1} <= {*ROOMS, *OUTSIDE}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("manifest/loader.py", "from kiln.closure.slice import cut"),
        ("engine/pool.py", "def f():\n    import kiln.packaging.archive"),
        ("engine/pool.py", "from kiln import packaging"),
        ("engine/pool.py", "from .. import doit_plugin"),
        ("engine/pool.py", "from ..packaging.record import Record"),
        ("engine/pool.py", "import doit.task"),
        ("errors.py", "from kiln.manifest import model"),
        ("cli.py", "from doit.doit_cmd import DoitMain"),
    ],
)
def test_an_import_upwards_is_found(module: str, source: str) -> None:
    assert len(upward_imports(source, Path(module))) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "packaging/archive.py",
            "from kiln.engine.step import Step\nfrom ..errors import KilnError\nfrom . import record",
        ),
        ("doit_plugin/loader.py", "import doit\nfrom kiln import __version__\nfrom kiln.packaging import record"),
        ("cli.py", "from kiln.doit_plugin import loader"),
        ("engine/pool.py", "from kiln import __version__"),
    ],
)
def test_an_import_downwards_is_allowed(module: str, source: str) -> None:
    assert upward_imports(source, Path(module)) == []

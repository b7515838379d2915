"""What goes into the digests of steps: Kiln's own code, no less than what the steps' functions import."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import kiln
from kiln.library import COMPILING, PACKAGING, READERS, TEMPLATES

PACKAGE = Path(kiln.__file__).parent
UNIMPORTANT = {"__init__.py", "errors.py", "stages.py"}
"""a version, the words of errors, and a clock: no output depends on them"""


def imported(module: str, seen: set[str] | None = None) -> set[str]:
    """The modules that one of Kiln's imports, at any depth and inside functions too; of foreign ones the package."""
    seen = set() if seen is None else seen
    if module in seen:
        return seen
    seen.add(module)
    path = PACKAGE.joinpath(*module.split(".")[1:])
    path = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            own = PACKAGE.joinpath(*name.split(".")[1:])
            if name.split(".")[0] != "kiln":
                seen.add(name.split(".")[0])
            elif own.with_suffix(".py").exists() or (own / "__init__.py").exists():
                imported(name, seen)
    return seen


@pytest.mark.parametrize(
    ("module", "parts", "packages"),
    [("kiln.compile_jobs", COMPILING, READERS), ("kiln.package_jobs", PACKAGING, TEMPLATES)],
)
def test_every_module_that_a_job_imports_is_in_its_digest(
    module: str, parts: tuple[str, ...], packages: tuple[str, ...]
) -> None:
    found = imported(module)
    own = {name.removeprefix("kiln.").replace(".", "/") for name in found if name.startswith("kiln.")}
    files = {f"{name}.py" if (PACKAGE / f"{name}.py").exists() else f"{name}/__init__.py" for name in own}
    covered = {
        file.relative_to(PACKAGE).as_posix()
        for part in parts
        for file in ([PACKAGE / part] if (PACKAGE / part).is_file() else (PACKAGE / part).rglob("*.py"))
    }
    missing = {file for file in files - covered - UNIMPORTANT if not file.startswith("engine/")}
    assert not missing
    foreign = {"elftools", "msgpack", "jinja2"} & found
    assert foreign <= set(packages)

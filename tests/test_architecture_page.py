"""docs/architecture.md names every module of tools/kiln, and no file that is not there."""

from __future__ import annotations

import re
from pathlib import Path

from test_layers import KILN, modules

REPOSITORY = KILN.parent.parent
PAGE = (REPOSITORY / "docs/architecture.md").read_text("utf-8")
NAMED = set(re.findall(r"`(\w[\w/.]*\.(?:py|j2))`", PAGE))
UNNAMED = {"__init__.py", "__main__.py"}
"""those that their package stands for"""


def test_every_module_is_named() -> None:
    names = {Path(name).name for name in NAMED}
    assert [str(path) for path in modules() if path.name not in names | UNNAMED] == []


def test_every_file_that_is_named_is_there() -> None:
    """By a path from here, from tools/kiln, or from a room; or by a name alone."""
    names = {path.name for path in modules()}
    found = {name for name in NAMED if name in names or (REPOSITORY / name).is_file() or (KILN / name).is_file()}
    assert [name for name in sorted(NAMED - found) if not list(KILN.glob(f"*/{name}"))] == []

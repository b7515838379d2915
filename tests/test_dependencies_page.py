"""docs/dependencies.md names what is locked, in the locked versions."""

from __future__ import annotations

import re
from pathlib import Path

from packaging.utils import canonicalize_name

from test_requirements import read_lock

PAGE = (Path(__file__).parent.parent / "docs" / "dependencies.md").read_text(encoding="utf-8")


def test_tables_give_the_locked_versions_and_the_text_names_the_rest() -> None:
    locked: dict[str, set[str]] = {}
    for requirement, _ in read_lock("test.txt"):
        name, version = requirement.split("==")
        locked.setdefault(name, set()).add(version)
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in PAGE.splitlines() if line.startswith("| ")]
    tables = {canonicalize_name(name): set(re.findall(r"\d+\.\d[\d.]*(?:post\d+)?", locks)) for name, locks in rows}
    del tables["package"]
    # "from Python 3.12 on" is no version of a package.
    tables["numpy"].discard("3.12")
    assert tables == {name: versions for name, versions in locked.items() if name in tables}
    brought = set(re.findall(r"[\w-]+", " ".join(re.findall(r"bring .*?along: (.*?)From the system", PAGE, re.DOTALL))))
    assert {name for name in locked if name not in tables} <= brought

"""doit's command `dumpdb` for Kiln, whose state is no database of doit's."""

from __future__ import annotations

from typing import Any, NoReturn

from doit.cmd_dumpdb import DumpDB as DoitDumpDB
from doit.exceptions import InvalidCommand


class DumpDB(DoitDumpDB):  # type: ignore[misc]  # doit has no types
    """Says where to look instead."""

    def execute(self, opt_values: Any, pos_args: Any) -> NoReturn:
        raise InvalidCommand(
            "Kiln keeps its state in a database of its own, which dumpdb cannot print: `doit list --all -s` shows what "
            "is up to date, and `doit info TASK` what one task depends on"
        )

"""doit as a program, with Kiln's plugins whatever the current folder's settings say, and with no need of a dodo.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from doit.doit_cmd import DoitMain

KILN_BUILD = "kiln build"
"""what the program is called then"""


def build_words(program: str, dodo: str) -> list[str]:
    """The words behind Python's that build as this process does: options and tasks go behind them.

    `program` is what it is called, and `dodo` the file of the rules, which `doit -f` may have named.
    """
    if program == KILN_BUILD:
        return ["-m", *program.split(), "run"]
    return ["-m", "doit", "run", *(("-f", dodo) if dodo != "dodo.py" else ())]


def run_doit(words: Sequence[str], *, settings: Path, dodo: Path) -> int:
    """Run doit in the current folder; returns its exit code.

    Settings of the folder's own go before those of the file `settings`. `dodo` is what stands in for a dodo.py.
    """
    # Both are defaults of doit's options: the words of the command line go before them.
    extra = {} if Path("dodo.py").exists() else {"GLOBAL": {"dodoFile": str(dodo), "cwdPath": "."}}
    main = DoitMain(config_filenames=(str(settings), "pyproject.toml", "doit.cfg"), extra_config=extra)
    main.BIN_NAME = KILN_BUILD
    code: int = main.run(list(words))
    return code

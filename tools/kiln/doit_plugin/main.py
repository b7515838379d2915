"""doit as a program, with Kiln's plugins whatever the current folder's settings say, and with no need of a dodo.py."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from doit.doit_cmd import DoitMain

_own: list[str] = []
"""the words that this process was started by, where it is not doit's own program"""


def build_words(dodo: str) -> list[str]:
    """The words that run doit as this process does, in the same folder; options, commands and tasks go behind them.

    `dodo` is the file of the rules, which `doit -f` may have named.
    """
    if _own:
        return [sys.executable, "-m", *_own]
    return [sys.executable, "-m", "doit", "run", *(("-f", dodo) if dodo != "dodo.py" else ())]


def run_doit(words: Sequence[str], *, settings: Path, dodo: Path) -> int:
    """Run doit in the current folder; returns its exit code.

    Settings of the folder's own go before those of the file `settings`. `dodo` is what stands in for a dodo.py.
    """
    # Both are defaults of doit's options: the words of the command line go before them.
    extra = {} if Path("dodo.py").exists() else {"GLOBAL": {"dodoFile": str(dodo), "cwdPath": "."}}
    main = DoitMain(config_filenames=(str(settings), "pyproject.toml", "doit.cfg"), extra_config=extra)
    main.BIN_NAME = "kiln build"
    _own[:] = ["kiln", "build", "run"]
    code: int = main.run(list(words))
    return code

#!/usr/bin/env python3
"""Stands in for ONNX Runtime's tools/ci_build/compile_triton.py, with the same command line: see docs/onnxruntime.md.

It runs in the Python that has Kiln's requirements: that of .venv, which tools/bootstrap.py makes, if the Python that it
is started with has not.
"""

import importlib.util
import os
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
VENV_PYTHON = TOOLS.parent / ".venv" / "bin" / "python"
NEEDED = ("doit", "triton", "yaml")
"""packages that Kiln cannot do without"""


def start() -> int:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing and VENV_PYTHON.exists() and not Path(sys.prefix).samefile(VENV_PYTHON.parents[1]):
        os.execv(VENV_PYTHON, [str(VENV_PYTHON), *sys.argv])
    if missing:
        sys.stderr.write(
            f"ERROR: {sys.executable} has no {', '.join(missing)}\n"
            "  expected: a Python with Kiln's requirements\n"
            f"  remedy: make one: python3 {TOOLS / 'bootstrap.py'} list\n"
        )
        return 3
    sys.path.insert(0, str(TOOLS))
    from kiln.project.compile_triton import main

    return main()


if __name__ == "__main__":
    sys.exit(start())

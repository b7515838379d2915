"""Programs of C cases, tests/gpu_doubles/*_cases.c, with the runtime's sources as they stand, sanitized."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from c_doubles import DOUBLES
from kiln.packaging import c_names, c_package

RUNTIME = Path(c_package.__file__).parent / "runtime" / "c"
INCLUDES = ("-I", RUNTIME / "include", "-I", RUNTIME / "src", "-I", DOUBLES)
SOURCES = [RUNTIME / "src" / c_names.source_of(member) for member in c_names.runtime_members("kiln")]

_WRAPPED = {"launch": ("calloc",), "tune": ("calloc", "malloc", "realloc")}
"""cases -> functions of the C library that they let fail"""


@dataclass(frozen=True, kw_only=True)
class CasePrograms:
    """Programs, each made when it is first asked for; all of the same sanitizers share the runtime's objects."""

    folder: Path

    def of(self, cases: str, sanitizers: str) -> Path:
        """The program of launch_cases.c or tune_cases.c, with some sanitizers of gcc."""
        place = self.folder / sanitizers.replace(",", "_")
        program = place / cases
        flags = ["-std=gnu99", "-g", "-O1", f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all", *INCLUDES]
        if not place.exists():
            place.mkdir()
            # Lookups of images have a registry, which these cases do not.
            sources = [source for source in SOURCES if source.name not in ("lookup.c", "verify.c", "sha256.c")]
            subprocess.run(list(map(str, ["gcc", *flags, "-c", *sources])), cwd=place, check=True)
        if not program.exists():
            wraps = [f"-Wl,--wrap={name}" for name in _WRAPPED[cases]]
            parts = [DOUBLES / f"{cases}_cases.c", *sorted(place.glob("*.o"))]
            command = ["gcc", *flags, *wraps, *parts, "-ldl", "-lpthread", "-o", program]
            subprocess.run(list(map(str, command)), check=True)
        return program

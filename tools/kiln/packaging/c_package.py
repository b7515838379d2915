"""Records -> the C package: its public header, and the fixed runtime sources under the library's prefix."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from kiln.errors import PackagingError
from kiln.manifest.expression import c_helpers
from kiln.manifest.model import Manifest
from kiln.packaging import c_names
from kiln.packaging.c_view import helper_prefix, view_fronts, view_groups, view_structs
from kiln.packaging.record import Record
from kiln.packaging.templates import environment

_RUNTIME = Path(__file__).parent / "runtime" / "c"


def render_header(records: Sequence[Record], manifest: Manifest, staging: Path) -> None:
    """Write the public headers and the runtime's sources: the files of `c_names.header_files`, relative to `staging`.

    `records` stand in order of declaration. Raises PackagingError when there are none, and when the images of a
    variant do not agree on its arguments.
    """
    if not records:
        raise PackagingError("there are no images to package", where=manifest.position, remedy="declare a kernel")
    library = manifest.library
    built = {record.image.target for record in records}
    targets = [target for target in manifest.targets if target in built]
    header = (
        environment()
        .get_template("c/library.h.j2")
        .render(
            library=library,
            macro=c_names.macro_prefix(library),
            helpers=c_helpers(helper_prefix(library)),
            tables=[c_names.table_symbol(library, target) for target in targets],
            structs=view_structs(library, records),
            groups=view_groups(library, records),
            fronts=view_fronts(library, records),
        )
    )
    _write(staging / c_names.library_header(library), header)
    for name, fixed in c_names.runtime_files(library).items():
        _write(staging / name, runtime_source(fixed, library))


@cache
def runtime_source(name: str, library: str) -> str:
    """A fixed source of the runtime, by its path below runtime/c, under the library's prefix.

    The sources are complete C, or C++, for a library named kiln. Each `kiln_`, `KILN_`, `kiln/`, `"kiln"` and namespace
    `kiln` becomes the library's own, so that what a debugger shows is what a compiler read, and two libraries live in
    one program.
    """
    text = (_RUNTIME / name).read_text("utf-8")
    text = text.replace("kiln_", f"{library}_").replace("KILN_", f"{c_names.macro_prefix(library)}_")
    text = text.replace("namespace kiln", f"namespace {library}").replace("kiln::", f"{library}::")
    return text.replace("<kiln/", f"<{library}/").replace('"kiln"', f'"{library}"')


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")

"""What a package includes whose build script makes the crate: the crate's root, without what only a root can say."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

INCLUDE = "include.rs"
"""its name, beside the crate's Cargo.toml"""

_HEAD = re.compile(r"(?:#!\[[^\]]*(?:\[[^\]]*\][^\]]*)*\]|//[^\n]*|\s)*")
"""what stands before the first item: attributes of the crate, comments and blanks"""
_ALLOWED = re.compile(r"#!\[allow\(([^)]*)\)\]")
_MODULE = re.compile(r"(?:pub(?:\(crate\))? )?mod (\w+);")


def include_text(root: str, files: Collection[str]) -> str:
    """The items of `src/lib.rs`, whose text is `root`; `files` are the crate's.

    An included file can have no attributes of a crate, so what is allowed in the crate is allowed for each module, and
    whether there is `std` is up to the package. Modules are looked for beside the file with `mod`, so each is told its
    own; deeper ones lie below a `mod.rs`, as the crate's files do.
    """
    head = _HEAD.match(root)
    start = head.end() if head is not None else 0
    allowed = ", ".join(_ALLOWED.findall(root[:start]))
    lines = _lines(root[start:], allowed, files)
    return "// The items of src/lib.rs, for a build script whose package includes this file.\n\n" + "".join(lines)


def _lines(items: str, allowed: str, files: Collection[str]) -> Iterator[str]:
    for line in items.splitlines(keepends=True):
        module = _MODULE.fullmatch(line.rstrip("\n"))
        if module is not None:
            name = module.group(1)
            path = next(path for path in (f"src/{name}.rs", f"src/{name}/mod.rs") if path in files)
            yield f'#[allow({allowed})]\n#[path = "{path}"]\n' if allowed else f'#[path = "{path}"]\n'
        yield line

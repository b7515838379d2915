"""PTX as nvcc writes it -> PTX with one kernel in it, the same on every machine.

Source of the syntax: NVIDIA, "PTX ISA": a module is a list of directives, each of which ends with a semicolon or with
the brace that closes its body.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod

_TOKEN = re.compile(r'//[^\n]*|/\*.*?(?:\*/|\Z)|"[^"\n]*(?:"|\Z)|[{};]', re.DOTALL)
_NAME = r"[A-Za-z_$%][\w$]*"
_ENTRY = re.compile(rf"^[ \t]*(?:\.(?:visible|weak|extern)\s+)?\.entry\s+({_NAME})", re.MULTILINE)
_CLUSTER = re.compile(r"\.reqnctapercluster\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_BOUNDS = re.compile(r"\.maxntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_BLOCK = re.compile(r"\.reqntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_CLUSTER_BOUND = re.compile(r"\.maxclusterrank\s+(\d+)")
_EXTERN_SHARED = re.compile(rf"^\s*\.extern\s+\.shared\b[^;]*?({_NAME})\s*\[\s*\]\s*;", re.MULTILINE)
_OWN_SHARED = re.compile(rf"^\s*\.shared\b[^;{{]*?({_NAME})\s*(?:\[\d+\]\s*)*;\s*$")
_VERSION = re.compile(r"^(\s*\.version\s+)(\d+)\.(\d)\b", re.MULTILINE)
_PATH_DIGEST = re.compile(r"(_INTERNAL_|_GLOBAL__N__)[0-9a-f]{8}(_\d+_unit_cu_)(?:[0-9a-f]{8})?")
"""In names of what is local to a file. nvcc tells files apart by a digest of their path and, where a file defines
nothing with a name for other files, by another one; here there is one file, `unit.cu`."""


def symbol_of(text: str, variable: str) -> str | None:
    """The symbol whose address a variable is initialised with."""
    found = re.search(rf"^\s*\.global [^\n]*\b{variable}\s*=\s*({_NAME})\s*;", text, re.MULTILINE)
    return found[1] if found else None


def is_whole(text: str) -> bool:
    """Whether nothing is missing at the end: nvcc ends well on a full disk, too."""
    *_, (last, depth) = [("", 0), *_items(text)]
    return depth == 0 and not last.strip() and ".address_size" in text


def has_name(text: str, name: str) -> bool:
    """Whether something in a module is called so."""
    return re.search(rf"(?<![\w$%.]){re.escape(name)}(?![\w$])", _without_comments(text)) is not None


def with_symbol(text: str, symbol: str, name: str) -> str:
    """The module with its kernel `symbol`, and the parameters that are named after that, called `name`.

    Strings stay: a file in the line table may be called as the kernel is.
    """
    words = re.compile(rf'"[^"\n]*"|(?<![\w$%.]){re.escape(symbol)}(?=_param_\d|(?![\w$]))')
    return words.sub(lambda found: found[0] if found[0][0] == '"' else name, text)


def only_entry(text: str, symbol: str, variable: str, maxnreg: int | None) -> str:
    """The module with the kernel `symbol` alone, visible, and without the variable that named it.

    `maxnreg` caps its registers, as the option of that name does for Triton's kernels.
    """
    kept = []
    for item, _ in _items(text):
        code = _without_comments(item)
        entry = _ENTRY.search(code)
        if re.search(rf"\.global [^\n]*\b{variable}\b", code):
            found = re.search(r"^[ \t]*\.global ", item, re.MULTILINE)
            kept.append(item[: found.start()] if found else "")
        elif entry is None:
            kept.append(item)
        elif entry[1] == symbol and "{" in code:
            whole = item[: entry.start()] + f".visible .entry {symbol}" + item[entry.end() :]
            cap = f"\n.maxnreg {maxnreg}\n{{" if maxnreg is not None else "{"
            kept.append(whole.replace("{", cap, 1) if maxnreg is not None else whole)
        else:
            kept.append(item[: entry.start()])
    return without_path("".join(_without_unused_shared(kept)))


def _without_unused_shared(items: list[str]) -> Iterator[str]:
    """The directives, less the shared memory of kernels that are gone: whoever reads a PTX counts what it declares."""
    code = "".join(map(_without_comments, items))
    for item in items:
        found = _OWN_SHARED.match(_without_comments(item))
        if found is None or len(re.findall(rf"(?<![\w$]){re.escape(found[1])}(?![\w$])", code)) > 1:
            yield item


def without_path(text: str) -> str:
    """The text with names that do not depend on where the compiled file lay."""
    return _PATH_DIGEST.sub(lambda found: re.sub(r"[0-9a-f]{8}(?=_\d|$)", "00000000", found[0]), text)


def version_of(text: str) -> int:
    """The ISA, as major x 10 + minor; 0 for a text that names none."""
    found = _VERSION.search(text)
    return int(found[2]) * 10 + int(found[3]) if found else 0


def with_version(text: str, version: int) -> str:
    """The same text, marked with another ISA, major x 10 + minor."""
    return _VERSION.sub(rf"\g<1>{version // 10}.{version % 10}", text, count=1)


def cluster_of(text: str) -> tuple[int, int, int] | None:
    """Blocks of a cluster, where the kernel demands a number of them."""
    return _sides(_CLUSTER, text)


def block_of(text: str) -> tuple[int, int, int] | None:
    """Threads of a block, where the kernel demands a number of them."""
    return _sides(_BLOCK, text)


def most_blocks(text: str) -> int | None:
    """Blocks that a cluster may have, by the kernel's `__launch_bounds__`; None where it does not say."""
    found = _CLUSTER_BOUND.search(_without_comments(text))
    return int(found[1]) if found else None


def _sides(directive: re.Pattern[str], text: str) -> tuple[int, int, int] | None:
    found = directive.search(_without_comments(text))
    if found is None:
        return None
    x, y, z = (int(side or 1) for side in found.groups())
    return x, y, z


def most_threads(text: str) -> int | None:
    """Threads that a block may have, by the kernel's `__launch_bounds__`; None where it has none."""
    found = _BOUNDS.search(_without_comments(text))
    return prod(int(side or 1) for side in found.groups()) if found else None


def uses_dynamic_shared(text: str) -> bool:
    """Whether the code uses shared memory whose size the launch decides."""
    code = _without_comments(text)
    names = _EXTERN_SHARED.findall(code)
    return any(len(re.findall(rf"(?<![\w$]){re.escape(name)}(?![\w$])", code)) > 1 for name in names)


def _items(text: str) -> Iterator[tuple[str, int]]:
    """The directives of a module with the depth of braces at their end; what is left behind the last comes at last."""
    start = depth = 0
    for token in _TOKEN.finditer(text):
        if token[0] not in "{};":
            continue
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if depth == 0:
            yield text[start : token.end()], 0
            start = token.end()
    yield text[start:], depth


def _without_comments(text: str) -> str:
    """The text with comments and strings blanked, and every other character at its place."""
    return _TOKEN.sub(lambda found: found[0] if len(found[0]) == 1 else " " * len(found[0]), text)

"""PTX: what the text says of its kernel.

Source of the syntax: NVIDIA, "PTX ISA": module directives, `.entry`, parameter state space, performance-tuning and
cluster directives. Only declarations are read; instructions are ptxas's to check. A PTX that is cut short shows in
its braces: an entry's body, and with it the text, ends with one.
"""

from __future__ import annotations

import re
from math import prod

from kiln.binaries.elf import DAMAGED, reading
from kiln.binaries.reading import Reading, Span
from kiln.errors import ImageError

_CONTROL = re.compile(r"[^\t\n\v\f\r\x20-\x7e\x80-\U0010ffff]")
_STRING_OR_COMMENT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_IDENTIFIER = r"[A-Za-z_$%][\w$]*"
_ENTRY = re.compile(
    rf"(?P<linkage>\.(?:visible|weak|extern)\s+)?\.entry\s+(?P<name>{_IDENTIFIER})\s*"
    r'(?:\((?P<parameters>[^()]*)\))?(?P<directives>(?:[^{;]|"";)*)\{'  # .pragma alone ends with a semicolon
)
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>\w+)\s+"
    r"(?:\.ptr\s+(?:\.(?:const|global|local|shared)\s+)?(?:\.align\s+\d+\s+)?)?"
    rf"{_IDENTIFIER}\s*(?:\[\s*(?P<count>\d+)\s*\])?"
)
_SHARED = re.compile(
    r"^[ \t]*(?P<linkage>(?:\.(?:extern|visible|weak|common)\s+){0,2})\.shared\b(?P<rest>.*)\Z",
    re.MULTILINE | re.DOTALL,
)
_VARIABLES = re.compile(
    r"\s+(?:\.align\s+(?P<align>\d+)\s+)?(?:\.v(?P<vector>[248])\s+)?\.(?P<type>\w+)\s+(?P<names>[^{]+)"
)

_BYTES = {
    **dict.fromkeys(("b8", "u8", "s8"), 1),
    **dict.fromkeys(("b16", "u16", "s16", "f16"), 2),
    **dict.fromkeys(("b32", "u32", "s32", "f32"), 4),
    **dict.fromkeys(("b64", "u64", "s64", "f64"), 8),
    "b128": 16,
}
"""fundamental type -> bytes, which is its natural alignment too"""

_MAX_ALIGN = 16
_LARGEST = 1 << 32
"""Above any number of bytes or threads that a PTX can mean."""


def read_ptx(data: bytes) -> Reading:
    """What a PTX with exactly one visible entry says of it. Raises ImageError for anything else.

    A NUL is refused: packaging adds the one that drivers want, and an earlier one would cut the text short for them.
    """
    with reading("PTX"):
        return _read(data)


def declarations(text: str) -> str:
    """The text without comments and strings, in which directives and braces can be found safely."""
    return _STRING_OR_COMMENT.sub(lambda found: '""' if found[0][0] == '"' else " ", text)


def _read(data: bytes) -> Reading:
    if b"\0" in data:
        raise ImageError("the PTX holds a NUL", actual=f"at byte {data.index(0)}", remedy=DAMAGED)
    decoded = data.decode()
    strange = _CONTROL.search(decoded)
    if strange:
        raise ImageError("the PTX holds a control character", actual=ascii(strange[0]), remedy=DAMAGED)
    text = declarations(decoded)
    _check_whole(text)
    if _directive(text, "address_size", r"\d+") != "64":
        raise ImageError("the PTX is not for 64-bit addresses", expected=".address_size 64", remedy=DAMAGED)
    version = _directive(text, "version", r"\d{1,2}\.\d")
    target = _directive(text, "target", r"\S[^\n]*").split(",")[0].strip()
    if not re.fullmatch(r"sm_\d{2,3}[af]?", target):
        raise ImageError(
            "the PTX is for an unknown target", expected="sm_80, sm_90a, sm_120f", actual=target, remedy=DAMAGED
        )
    entry = _entry(text)
    directives = entry["directives"]
    parameters = _parameters(entry["parameters"] or "")
    threads = _dimensions(directives, "reqntid")
    max_threads = _dimensions(directives, "maxntid")
    return Reading(
        arch=f"compute_{target.removeprefix('sm_')}",
        entry=entry["name"],
        parameters=parameters,
        parameter_bytes=parameters[-1].end if parameters else 0,
        threads=prod(threads) if threads else None,
        max_threads=prod(max_threads) if max_threads else None,
        cluster=_dimensions(directives, "reqnctapercluster"),
        shared_static=_static_shared(text),
        ptx_isa=version,
    )


def _check_whole(text: str) -> None:
    depth = 0
    for brace in re.findall(r"[{}]", text):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            break
    last = text.rstrip()[-1:]
    if depth != 0 or last != "}":
        raise ImageError(
            "the PTX is cut short, or text was added to it",
            expected="balanced braces, and a } at the end",
            actual=f"{abs(depth)} unbalanced, and {last!r} at the end",
            remedy=DAMAGED,
        )


def _directive(text: str, name: str, value: str) -> str:
    """The value of a directive that stands once, on a line of its own."""
    found: list[str] = re.findall(rf"^[ \t]*\.{name}[ \t]+({value})[ \t\r]*$", text, re.MULTILINE)
    if len(found) != 1:
        raise ImageError(
            f"the PTX says .{name} other than once",
            expected=f"1 line .{name} with its value",
            actual=f"{len(found)} such lines",
            remedy=DAMAGED,
        )
    return found[0]


def _entry(text: str) -> re.Match[str]:
    words = len(re.findall(r"\.entry\b", text))
    found = list(_ENTRY.finditer(text)) if words == 1 else []
    if len(found) != 1:
        raise ImageError(
            "an image holds exactly one kernel",
            expected="1 .entry",
            actual=f"{words} .entry" + "".join(f" {name}" for name in re.findall(r"\.entry\s+([\w$%]+)", text)[:8]),
            remedy="compile each kernel into an image of its own",
        )
    if (found[0]["linkage"] or "").strip() != ".visible":
        raise ImageError(
            f"{found[0]['name']} cannot be looked up in the PTX",
            expected=".visible .entry",
            actual=f"{found[0]['linkage'] or ''}.entry",
            remedy=DAMAGED,
        )
    return found[0]


def _parameters(text: str) -> tuple[Span, ...]:
    """Each parameter at the next offset that its alignment allows: its own `.align`, else its type's size.

    The `.align` behind `.ptr` speaks of what the pointer points to. An alignment above 16 is refused: ptxas aligns
    parameters in the constant bank, not in their buffer, which starts at 0x160 up to sm_89 and at 0x210 on sm_90, so
    the offset differs between GPUs that the same PTX is for (measured with ptxas 12.9 and 13.4).
    """
    spans: list[Span] = []
    for item in text.split(",") if text.strip() else ():
        parameter = _PARAMETER.fullmatch(item.strip())
        if parameter is None or parameter["type"] not in _BYTES:
            raise ImageError(
                f"parameter {len(spans)} of the PTX is not understood", actual=" ".join(item.split()), remedy=DAMAGED
            )
        size = _BYTES[parameter["type"]]
        align = _number(parameter["align"] or str(size))
        if align > _MAX_ALIGN:
            raise ImageError(
                f"where parameter {len(spans)} of the PTX lies depends on the GPU",
                expected=f"an alignment of at most {_MAX_ALIGN} bytes",
                actual=" ".join(item.split()),
                remedy="build cubins for this kernel, and leave PTX targets out",
            )
        offset = _align_up(spans[-1].end if spans else 0, align)
        spans.append(Span(offset=offset, size=size * _number(parameter["count"] or "1")))
    return tuple(spans)


def _dimensions(directives: str, name: str) -> tuple[int, int, int] | None:
    """The one to three numbers of a directive such as `.reqntid 128, 1, 1`."""
    found = re.search(rf"\.{name}\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", directives)
    if found is None:
        return None
    x, y, z = (_number(side or "1") for side in found.groups())
    return x, y, z


def _static_shared(text: str) -> int:
    """Bytes of all shared variables, in order of declaration with their alignment; extern ones are dynamic.

    ptxas leaves out variables that nothing uses, so a cubin made of this may need less.
    """
    total = 0
    # Statement by statement: a search through the whole text would begin at every line, and hardly end on some texts.
    pieces = re.split(r"([;{}])", text)
    statements = (piece for piece, end in zip(pieces[::2], pieces[1::2], strict=False) if end == ";")
    for declaration in filter(None, map(_SHARED.search, statements)):
        if ".extern" in declaration["linkage"]:
            continue
        variables = _VARIABLES.fullmatch(declaration["rest"])
        if variables is None or variables["type"] not in _BYTES:
            raise ImageError(
                "a shared variable of the PTX is not understood",
                actual=" ".join(f".shared{declaration['rest']}".split()),
                remedy=DAMAGED,
            )
        element = _BYTES[variables["type"]] * int(variables["vector"] or 1)
        align = _number(variables["align"] or str(element))
        for name in variables["names"].split(","):
            counts = re.findall(r"\[\s*(\d+)\s*\]", name)
            total = _align_up(total, align) + element * prod(map(_number, counts))
            if total > _LARGEST:
                raise ImageError("the shared variables of the PTX are larger than any memory", remedy=DAMAGED)
    return total


def _number(digits: str) -> int:
    value = int(digits) if len(digits) < 20 else _LARGEST + 1
    if value > _LARGEST:
        raise ImageError("a number in the PTX is larger than any size", actual=f"{digits[:20]}...", remedy=DAMAGED)
    return value


def _align_up(value: int, alignment: int) -> int:
    if alignment < 1 or alignment & (alignment - 1):
        raise ImageError("an alignment in the PTX is no power of two", actual=str(alignment), remedy=DAMAGED)
    return -(-value // alignment) * alignment

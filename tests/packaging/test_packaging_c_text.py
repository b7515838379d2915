"""Text of the manifest in C: literals keep it, comments survive it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from c_library import accepts, compile_program, run

from kiln.packaging.c_text import c_comment, c_integer, c_string

HOSTILE = [
    "",
    "plain",
    'quote " backslash \\ end\\',
    "trigraph ??/ ??= and ??'",
    "comment */ int x; /* again /*/ */",
    "// line \\\nnext",
    "\x01\x02a1\x7f\t\r\n0",
    "é ü 漢字 \U0001f525",
    "bidi \u202e override \u2066",
    "%s %n {{ 7 * 7 }} {% raw %}",
    "*/" * 30 + "/*" * 30 + "*",
]


@pytest.mark.parametrize("standard", ["c99", "c17"])
def test_strings_keep_every_byte(tmp_path: Path, standard: str) -> None:
    """A compiler reads out of each literal exactly the bytes that went in, trigraphs or not."""
    rows = "".join(f"    {{ {c_string(text)}, sizeof {c_string(text)} - 1 }},\n" for text in HOSTILE)
    source = f"""#include <stdio.h>
struct row {{ const char *text; size_t size; }};
static const struct row rows[] = {{
{rows}}};
int main(void) {{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {{
        for (size_t k = 0; k < rows[i].size; k++) printf("%02x", (unsigned)(unsigned char)rows[i].text[k]);
        printf("\\n");
    }}
    return 0;
}}
"""
    printed = run(compile_program(source, tmp_path / "strings", f"-std={standard}"))
    assert [bytes.fromhex(line).decode() for line in printed.splitlines()] == HOSTILE


def test_no_text_is_null() -> None:
    assert c_string(None) == "NULL"


@pytest.mark.parametrize("compiler", [name for name in ("gcc", "clang") if shutil.which(name)])
@pytest.mark.parametrize("standard", ["c99", "c17", "c++20"])
def test_comments_cannot_be_left(compiler: str, standard: str) -> None:
    """Whatever a comment holds, what follows is still the code that was written, and no warning is due."""
    source = "".join(f"/* {c_comment(text)} */\n" for text in HOSTILE) + "extern int after;\n"
    assert accepts(source, compiler, standard) == ""
    assert all("\n" not in c_comment(text) and c_comment(text).isascii() for text in HOSTILE)


def test_integers_at_the_edges(tmp_path: Path) -> None:
    values = [0, 1, -1, 2**31, -(2**31), 2**63 - 1, -(2**63), -(2**63) + 1]
    prints = "".join(f'    printf("%" PRId64 "\\n", (int64_t){c_integer(value)});\n' for value in values)
    source = f"#include <inttypes.h>\n#include <stdio.h>\nint main(void) {{\n{prints}    return 0;\n}}\n"
    assert [int(line) for line in run(compile_program(source, tmp_path / "integers")).split()] == values
    with pytest.raises(OverflowError):
        c_integer(2**63)

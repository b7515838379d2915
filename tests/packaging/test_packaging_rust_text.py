"""Text of the manifest as Rust reads it back."""

from __future__ import annotations

import math
import os
import random
import subprocess
from pathlib import Path

import pytest

from kiln.errors import PackagingError
from kiln.packaging import rust_text

NASTY = [
    "\\",
    '"',
    "'",
    "`",
    "``",
    "{",
    "}",
    "\n",
    "\r",
    "\0",
    "\t",
    "*/",
    "//",
    "#",
    "\u202e",
    "\u2066",
    "\ufeff",
    "\u2028",
]
ALPHABET = [
    *NASTY,
    "\x7f",
    "\x85",
    "\u00ad",
    "\u0301",
    "é",
    "中",
    "🔥",
    "\U000e0001",
    "\uffff",
    "r#",
    "\\u{",
    "a",
    " ",
    "|",
    "[x]",
]


def test_rustc_reads_back_every_text(tmp_path: Path) -> None:
    """500 texts of awkward characters: the literal holds exactly the text, and the doc comment ends where it should."""
    choose = random.Random(1)
    texts = ["", *("".join(choose.choices(ALPHABET, k=choose.randint(1, 12))) for _ in range(500))]
    cases = "\n".join(
        f"/// {rust_text.code(text)} follows.\npub const T{index}: &str = {rust_text.literal(text)};\n"
        f"const _: () = same(T{index}.as_bytes(), &{list(text.encode())});"
        for index, text in enumerate(texts)
    )
    source = tmp_path / "texts.rs"
    source.write_text(
        "#![deny(warnings, missing_docs)]\n//! Texts.\n"
        "const fn same(a: &[u8], b: &[u8]) {\n    assert!(a.len() == b.len());\n    let mut i = 0;\n"
        "    while i < a.len() {\n        assert!(a[i] == b[i]);\n        i += 1;\n    }\n}\n" + cases,
        "utf-8",
    )
    check = ["rustc", "--edition=2021", "--crate-type=lib", "--emit=metadata", f"--out-dir={tmp_path}", str(source)]
    ended = subprocess.run(check, capture_output=True, text=True, check=False, env=os.environ)
    assert ended.returncode == 0, ended.stderr
    source.write_text(source.read_text("utf-8").replace("T7.as_bytes(), &[", "T7.as_bytes(), &[0, "), "utf-8")
    assert subprocess.run(check, capture_output=True, check=False, env=os.environ).returncode == 1


def test_a_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(PackagingError, match="no Unicode"):
        rust_text.literal("a\udcff")


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("n_cols <= 8", "`n_cols <= 8`"),
        ("a`b", "``a`b``"),
        ("`a", "`` `a ``"),
        ("a``b`", "``` a``b` ```"),
        ("two\n  lines", "`two lines`"),
        ("\u202eright\x1b", "`\\u{202e}right\\u{1b}`"),
        (" \n", "(empty)"),
    ],
)
def test_code_stays_one_code_span_on_one_line(text: str, span: str) -> None:
    assert rust_text.code(text) == span


def test_numbers_options_and_values() -> None:
    assert rust_text.number(1_234_567) == "1_234_567"
    assert rust_text.option(None) == "None"
    assert rust_text.option(0) == "Some(0)"
    assert rust_text.option("8.0") == 'Some("8.0")'
    assert rust_text.value(True) == "Bool(true)"
    assert rust_text.value(-(2**63)) == "Int(-9_223_372_036_854_775_808)"
    assert rust_text.value(1e-5) == "Float(1e-05)"
    assert rust_text.value(-math.inf) == "Float(f64::NEG_INFINITY)"
    assert rust_text.value(math.nan) == "Float(f64::NAN)"
    assert rust_text.value('a"b') == 'Text("a\\"b")'

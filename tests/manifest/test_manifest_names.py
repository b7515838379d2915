"""What may be a name: nothing that a shell, a path, a compiler or a reader could take for something else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kiln.errors import ManifestError, Position
from kiln.manifest.names import (
    C_KEYWORDS,
    CPP_KEYWORDS,
    LATER_KEYWORDS,
    MACROS,
    RUST_KEYWORDS,
    check_argument,
    check_library,
    check_name,
    check_parameter,
    fold,
    member_name,
)

HERE = Position(file="kernels.yaml", line=3, column=10)


@pytest.mark.parametrize(
    "name", ["softmax", "a", "softmax_fp16_2048", "A1_b2", "x" * 120, "None", "union_find", "ints"]
)
def test_taken(name: str) -> None:
    check_name(name, HERE, "a variant's name")
    check_parameter(name, HERE, "an input's name")


BAD = [
    ("../x", ["'../x'", "character 1 is '.'"]),
    ("/x", ["'/'"]),
    ("a;id", ["character 2 is ';'"]),
    ("$(id)", ["'$'"]),
    ("a\nb", ["'a\\nb'", "character 2 is '\\n'"]),
    ("a\n", ["character 2 is '\\n'"]),
    ("a'b", ['"a\'b"', "character 2"]),
    ('a"b', ["'a\"b'", "character 2"]),
    ("*/", ["'*/'", "character 1 is '*'"]),
    ("int", ["keyword of C and C++"]),
    ("fn", ["keyword of Rust"]),
    ("if", ["keyword of C, C++ and Rust"]),
    ("template", ["keyword of C++"]),
    ("not", ["keyword of C++"]),
    ("_Bool", ["_Bool"]),
    ("Self", ["keyword of Rust"]),
    ("x" * 300, ["too long", "300 characters", "at most 120"]),
    ("s\u043eftmax", ["'s\\u043eftmax'", "CYRILLIC SMALL LETTER O"]),
    ("\uff53oftmax", ["FULLWIDTH LATIN SMALL LETTER S"]),
    ("ma\u0308", ["COMBINING DIAERESIS"]),
    ("a\u200bb", ["ZERO WIDTH SPACE"]),
    ("a\x1b[31m", ["'\\x1b'"]),
    ("\u0663x", ["ARABIC-INDIC DIGIT THREE"]),
    ("a-b", ["character 2 is '-'"]),
    ("a b", ["character 2 is ' '"]),
    ("a/b", ["character 2 is '/'", "choose another name"]),
    ("1a", ["starts with a digit"]),
    ("", ["is empty"]),
]


@pytest.mark.parametrize(
    ("name", "meant"),
    [("my-kernels", "my_kernels"), ("ops.v2", "ops_v2"), ("a__b_", "a_b"), ("-x", "x"), ("for-", None), ("9-x", None)],
)
def test_the_name_that_is_meant_is_told(name: str, meant: str | None) -> None:
    with pytest.raises(ManifestError) as caught:
        check_name(name, HERE, "a library's name")
    assert caught.value.remedy == (f"did you mean '{meant}'?" if meant else "choose another name")


@pytest.mark.parametrize(("name", "words"), BAD, ids=[ascii(name)[:20] for name, _ in BAD])
def test_refused(name: str, words: list[str]) -> None:
    """Names and parameters both; the message shows the name without letting it act."""
    for check in (check_name, check_parameter):
        with pytest.raises(ManifestError) as caught:
            check(name, HERE, "a variant's name")
        message = str(caught.value)
        assert message.startswith("kernels.yaml:3:10: ")
        assert message.isascii() and message.replace("\n", "").isprintable()
        assert len(message.splitlines()) == 4
        assert [word for word in words if word not in message] == []


@pytest.mark.parametrize(
    ("name", "word"), [("_a", "starts with an underscore"), ("a_", "ends with"), ("a__b", "two under")]
)
def test_underscores_belong_to_symbols(name: str, word: str) -> None:
    with pytest.raises(ManifestError, match=word):
        check_name(name, HERE, "a variant's name")


def test_parameters_may_have_underscores_anywhere_but_two_in_front() -> None:
    for name in ("_a", "a_", "a__b"):
        check_parameter(name, HERE, "an input's name")
    for name in ("__a", "_", "__"):
        with pytest.raises(ManifestError, match="belong to the compilers"):
            check_parameter(name, HERE, "an input's name")


def test_an_argument_may_be_a_keyword_and_is_a_member_under_another_name(tmp_path: Path) -> None:
    """Every such name is a member's in every language, in one struct, and none is the name of two."""
    words = sorted(C_KEYWORDS | CPP_KEYWORDS | RUST_KEYWORDS | LATER_KEYWORDS | MACROS)
    for word in words:
        check_argument(word, HERE, "an argument")
    members = [member_name(word) for word in words]
    assert members == [f"{word}_" for word in words]
    assert [member_name(name) for name in ("n_cols", "do_", "_x", "Int", "INT8_MAXIMUM")] == [
        "n_cols",
        "do_",
        "_x",
        "Int",
        "INT8_MAXIMUM",
    ]
    assert (member_name("INT64_MAX"), member_name("UINTPTR_MAX")) == ("INT64_MAX_", "UINTPTR_MAX_")
    includes = "".join(f"#include <{name}.h>\n" for name in ("assert", "complex", "errno", "stddef", "stdio"))
    members_in_c = "".join(f"int {member};" for member in members)
    for command, source in (
        (["gcc", "-std=gnu99", "-fsyntax-only", "-Werror"], "t.c"),
        (["g++", "-std=gnu++20", "-fsyntax-only", "-Werror"], "t.cc"),
    ):
        assert _accepts(command, source, f"{includes}struct s {{ {members_in_c} }};", tmp_path)
    fields = ", ".join(f"pub {member}: u8" for member in members)
    rustc = ["rustc", "--edition=2021", "--crate-type=lib", "--emit=metadata", "-Anon_snake_case"]
    assert _accepts(rustc, "t.rs", f"pub struct S {{ {fields} }}", tmp_path)


@pytest.mark.parametrize("name", ["std", "core", "alloc", "test", "proc_macro", "half", "cudarc", "cust"])
def test_a_library_is_no_crate_of_rust(name: str) -> None:
    with pytest.raises(ManifestError, match="Rust has a crate of that name"):
        check_library(name, HERE)
    check_name(name, HERE, "a variant's name")


@pytest.mark.parametrize("name", ["linux", "errno", "INT8_MAX"])
def test_a_library_is_no_macro_of_c(name: str) -> None:
    """It is a namespace in C++."""
    with pytest.raises(ManifestError, match="it is a macro of C's headers or compilers"):
        check_library(name, HERE)
    check_name(name, HERE, "a variant's name")


def test_names_that_differ_in_case_are_equal() -> None:
    assert fold("Softmax_FP16") == fold("softmax_fp16")


def _accepts(command: list[str], source: str, text: str, folder: Path) -> bool:
    (folder / source).write_text(text)
    return subprocess.run([*command, source], cwd=folder, capture_output=True).returncode == 0


def test_keyword_lists_hold_what_the_compilers_refuse(tmp_path: Path) -> None:
    """What a list leaves out is a variable's name in that language; what it holds, in a sample, is none."""
    words = sorted(C_KEYWORDS | CPP_KEYWORDS | RUST_KEYWORDS)
    for language, known, command, source, line in (
        (
            "C",
            C_KEYWORDS,
            ["gcc", "-std=c17", "-fsyntax-only"],
            "t.c",
            "long w{n}(void) {{ long {w} = 1; return {w}; }}",
        ),
        (
            "C++",
            CPP_KEYWORDS,
            ["g++", "-std=c++20", "-fsyntax-only"],
            "t.cc",
            "long w{n}() {{ long {w} = 1; return {w}; }}",
        ),
        (
            "Rust",
            RUST_KEYWORDS,
            ["rustc", "--edition=2021", "--crate-type=lib", "--emit=metadata", "-Aunused"],
            "t.rs",
            "pub fn w{n}() -> i64 {{ let {w} = 1; {w} }}",
        ),
    ):
        # g++ knows some of C's words that start with an underscore, as an extension.
        free = [word for word in words if word not in known and not (language == "C++" and word.startswith("_"))]
        text = "\n".join(line.format(n=n, w=word) for n, word in enumerate(free))
        assert _accepts(command, source, text, tmp_path), f"the list of {language} lacks a word"
        # A sample, because each needs a compile of its own.
        for word in sorted(known)[::6]:
            assert not _accepts(command, source, line.format(n=0, w=word), tmp_path), (
                f"{word} is no keyword of {language}"
            )

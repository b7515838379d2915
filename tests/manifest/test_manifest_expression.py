"""The expression language: what it takes, what it refuses, and that Python, C and Rust agree on every value."""

from __future__ import annotations

import itertools
import pickle
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kiln.errors import ManifestError, Position
from kiln.manifest.expression import Expression, c_helpers, parse_expression, rust_helpers

HERE = Position(file="kernels.yaml", line=7, column=3)
INT_MIN, INT_MAX = -(2**63), 2**63 - 1


def parse(text: str) -> Expression:
    return parse_expression(text, HERE)


@pytest.mark.parametrize(
    ("text", "values", "result"),
    [
        ("4 if block <= 1024 else 8 if block <= 2048 else 16", {"block": 1024}, 4),
        ("4 if block <= 1024 else 8 if block <= 2048 else 16", {"block": 2048}, 8),
        ("4 if block <= 1024 else 8 if block <= 2048 else 16", {"block": 4096}, 16),
        ("cdiv(n, 128)", {"n": 129}, 2),
        ("cdiv(-7, 2) + -7 // 2 + -7 % 2", {}, -3 - 4 + 1),
        ("7 // -2 + 7 % -2", {}, -4 - 1),
        ("min(a, 3, b) * max(a, b)", {"a": 5, "b": 2}, 10),
        ("0 < n < 8", {"n": 8}, False),
        ("0 < n <= 8 != 9", {"n": 8}, True),
        ("not (a == 1) or b >= 2 and True", {"a": 1, "b": 2}, True),
        ("n != 0 and 8 % n == 0", {"n": 0}, False),
        ("n == 0 or 8 % n == 0", {"n": 0}, True),
        ("8 // n if n != 0 else 1", {"n": 0}, 1),
        ("(a < b) if a != 0 else False", {"a": 1, "b": 2}, True),
        ("+n - -n", {"n": 3}, 6),
        ("0x10", {}, 16),
        ("-9223372036854775808", {}, INT_MIN),
        (" n\n + 1 ", {"n": 1}, 2),
        ("flag * 2", {"flag": True}, 2),
    ],
)
def test_values(text: str, values: dict[str, int], result: int) -> None:
    value = parse(text).evaluate(values)
    assert (value, type(value)) == (result, type(result))


def test_names_and_type() -> None:
    assert parse("cdiv(n, BLOCK_SIZE) if n > m else 1").names == {"n", "m", "BLOCK_SIZE"}
    assert (parse("n + 1").type, parse("n == 1").type, parse("n == 1 if n < 2 else True").type) == (
        "int",
        "bool",
        "bool",
    )


@pytest.mark.parametrize(
    "text",
    [
        "a <= b",
        "a < b",
        "a >= b and b > 1",
        "a == b or a % 2 == 0",
        "a != b",
        "not a < b",
        "a < b < 3",
        "(a == 1) if b > 0 else (a >= b)",
        "1 == 1",
    ],
)
def test_a_condition_that_holds_falls_short_by_nothing(text: str) -> None:
    condition = parse_expression(text, HERE)
    shortfall = condition.shortfall()
    assert shortfall.type == "int" and shortfall.names == condition.names
    for a, b in itertools.product(range(-3, 5), repeat=2):
        missed = shortfall.evaluate({"a": a, "b": b})
        assert missed >= 0 and (missed == 0) == condition.evaluate({"a": a, "b": b})


def test_the_condition_that_comes_nearest_falls_short_by_least() -> None:
    condition = parse_expression("n <= BLOCK and n % 8 == 0", HERE).shortfall()
    missed = [condition.evaluate({"n": 20_000, "BLOCK": block}) for block in (1024, 16384, 4096)]
    assert missed == [18_976, 3_616, 15_904]


def test_survives_a_pipe() -> None:
    """Expressions go to compile children inside a variant."""
    copy = pickle.loads(pickle.dumps(parse("cdiv(n, 4)")))
    assert copy == parse("cdiv(n, 4)")
    assert copy.evaluate({"n": 5}) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["is empty"]),
        (" \n", ["is empty"]),
        ("n +", ["no expression"]),
        ("n == 1 == ", ["no expression"]),
        ("1) + (2", ["no expression"]),
        ("n ** 2", ["'n ** 2'", "not part of the language"]),
        ("n / 2", ["character 3", "//", "cdiv"]),
        ("n && m", ["`and`"]),
        ("n || m", ["`or`"]),
        ("!n", ["`not`"]),
        ("n ? 1 : 2", ["`a if condition else b`"]),
        ("n = 1", ["write =="]),
        ("n & 1", ["'&'", "not part of the language"]),
        ("n.real", ["'.'"]),
        ("n[0]", ["'['"]),
        ("'a'", ['"\'"']),
        ("n # 1", ["'#'"]),
        ("1.5", ["no number"]),
        ("1e5", ["no number"]),
        ("1_000", ["no number"]),
        ("0b11", ["no number"]),
        ("1if n else 2", ["no number"]),
        ("007", ["no expression"]),
        ("\u0578 + 1", ["'\\u0578'"]),
        ("\uff4e + 1", ["'\\uff4e'"]),
        ("9223372036854775808", ["out of range"]),
        ("0x8000000000000000", ["out of range"]),
        ("None", ["'None'", "not part"]),
        ("lambda", ["no expression"]),
        ("n is m", ["not part"]),
        ("n in m", ["not part"]),
        ("~n", ["'~'"]),
        ("n, m", ["'n, m'", "not part"]),
        ("max", ["'max' is a function", "max(a, b)"]),
        ("max(n)", ["wrong operands"]),
        ("cdiv(a, b, c)", ["wrong operands", "cdiv(a, b)"]),
        ("max(*n, m)", ["'*n'", "not part"]),
        ("pow(n, 2)", ["'pow(n, 2)'", "cdiv(a, b)"]),
        ("max(n, 1)(2)", ["not a function"]),
        ("n and m", ["'n' in the expression 'n and m' is an integer, where a truth value is meant", "!= 0"]),
        ("not n", ["truth value is meant"]),
        ("(n < 1) + 1", ["'n < 1'", "a truth value, where an integer is meant", "1 if ... else 0"]),
        ("True == (n < 1)", ["'True'", "an integer is meant"]),
        ("-(n < 1)", ["an integer is meant"]),
        ("1 if n else 2", ["'n'", "a truth value is meant"]),
        ("1 if n > 0 else False", ["'False'", "an integer is meant"]),
        ("n" + " " * 1024, ["too long", "1024", "1025"]),
        ("(" * 199 + "n" + ")" * 199 + " < 1 < 2 and 3", ["truth value"]),
        ("(" * 300 + "n" + ")" * 300, ["no expression", "nested"]),
        ("-" * 40 + "n", ["nested too deeply", "32"]),
        ("-" * 1000 + "n", ["nested"]),
        ("+".join(["n"] * 40), ["nested too deeply", "32"]),
        (" and ".join(["a<b<c"] * 60), ["too large", "200"]),
    ],
)
def test_refused(text: str, words: list[str]) -> None:
    with pytest.raises(ManifestError) as caught:
        parse(text)
    message = str(caught.value)
    assert message.startswith("kernels.yaml:7:3: ")
    assert message.isascii()
    assert [word for word in words if word not in message] == []


def test_chains_inside_chains_do_not_grow_without_bound() -> None:
    """The middle of a chain is written out twice; nested, that would double the code at each level."""
    text = "n"
    for _ in range(10):
        text = f"(1 if 0<{text}<9 else 0)"
    with pytest.raises(ManifestError, match="too large"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "values", "words"),
    [
        ("8 // n", {"n": 0}, ["divides by zero", "n = 0"]),
        ("8 % n", {"n": 0}, ["divides by zero"]),
        ("cdiv(n, 0)", {"n": 1}, ["divides by zero"]),
        ("n + 1", {"n": INT_MAX}, ["leaves the range", f"n = {INT_MAX}"]),
        ("n - 1", {"n": INT_MIN}, ["leaves the range"]),
        ("n * n", {"n": 2**32}, ["leaves the range"]),
        ("-n", {"n": INT_MIN}, ["leaves the range"]),
        ("n // -1", {"n": INT_MIN}, ["leaves the range"]),
        ("n", {"n": 2**63}, ["leaves the range"]),
        ("n + m", {"n": 1}, ["no value for m"]),
    ],
)
def test_evaluation_fails_with_position_and_values(text: str, values: dict[str, int], words: list[str]) -> None:
    with pytest.raises(ManifestError) as caught:
        parse(text).evaluate(values)
    message = str(caught.value)
    assert message.startswith("kernels.yaml:7:3: ")
    assert [word for word in words if word not in message] == []


def test_code_has_no_loose_ends() -> None:
    """The result is a call, so it stands beside any operator of the caller's."""
    names = {"n": "(int64_t)a->n"}
    assert parse("n <= 2048").to_c(names, "k_") == "k_le(k_number((int64_t)a->n), k_number(INT64_C(2048)))"
    assert parse("-5").to_c({}, "k_") == "k_number(-INT64_C(5))"
    assert parse("-9223372036854775808").to_c({}, "k_") == "k_number(INT64_MIN)"
    code = parse("n < -2").to_rust({"n": "self.n"}, "crate::e::")
    assert code == "crate::e::expr_lt(Some(self.n), Some(-2_i64))"
    assert parse("-9223372036854775808").to_rust({}) == "Some(i64::MIN)"
    assert (parse("True").to_c({}, "k_"), parse("True").to_rust({})) == ("k_truth(true)", "Some(true)")


def test_prefix_of_the_c_helpers() -> None:
    assert "static inline struct kernels_expr_integer kernels_expr_cdiv(" in c_helpers("kernels_expr_")
    with pytest.raises(ValueError, match="identifier"):
        c_helpers("1_")


# Random expressions: text built from small parts, so that it goes through the parser as a person's does.

NAMES = ("a", "b", "c")
INTS = st.one_of(st.integers(-9, 9), st.integers(INT_MIN, INT_MAX), st.sampled_from([INT_MIN, INT_MAX, 2**31, 2**32]))
ATOMS = st.one_of(st.sampled_from(NAMES), INTS.map(str))
BOOLS = st.sampled_from(["True", "False", "a < b", "b <= c < a", "a == a", "c != 0"])


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    condition = st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), inner),
        st.builds("(not ({}) or {})".format, BOOLS, BOOLS),
        st.builds("({} and ({}))".format, BOOLS, BOOLS),
        st.builds("(({}) if {} else {})".format, BOOLS, BOOLS, BOOLS),
    )
    return st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner),
        st.builds("{}({}, {})".format, st.sampled_from(["cdiv", "min", "max"]), inner, inner),
        st.builds("-{}".format, inner),
        st.builds("({} if {} else {})".format, inner, condition, inner),
    )


EXPRESSIONS = st.recursive(ATOMS, _compound, max_leaves=8)
VALUES = st.fixed_dictionaries(dict.fromkeys(NAMES, INTS))


def _random_cases(count: int) -> list[tuple[Expression, dict[str, int]]]:
    cases: list[tuple[Expression, dict[str, int]]] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(EXPRESSIONS, VALUES)
    def collect(text: str, values: dict[str, int]) -> None:
        cases.append((parse(text), values))

    collect()
    return cases


# By hand: each helper at the values where rounding goes wrong or there is no value.
CORNERS = [
    (parse(f"{call}"), {"a": a, "b": b, "c": 0})
    for call in ("a // b", "a % b", "cdiv(a, b)", "a + b", "a - b", "a * b", "-a", "min(a, b)", "max(a, b)")
    for a in (-7, 7, 0, INT_MIN, INT_MAX)
    for b in (-2, 2, 0, -1, INT_MIN, INT_MAX)
]
UNKNOWN = "(1 // c == 1)"
# And what is decided before, and what is not, where there is no value on either side.
DECIDED = [
    (parse(f"1 if {condition} else 0"), {"a": 1, "b": 2, "c": 0})
    for known in ("a < b", "a > b")
    for word in ("and", "or")
    for condition in (
        f"({known}) {word} {UNKNOWN}",
        f"{UNKNOWN} {word} ({known})",
        f"not (({known}) {word} {UNKNOWN})",
        f"({UNKNOWN} if {known} else True)",
    )
] + [
    (parse(text), {"a": 1, "b": 2, "c": 0})
    for text in ("a if 1 // c == 1 else b", "min(a, 1 // c)", "max(1 // c, b)", "-(1 // c)", "1 // c - b")
]


def _exact(expression: Expression, values: dict[str, int]) -> int | None:
    try:
        return expression.evaluate(values)
    except ManifestError:
        return None


def _c_int(value: int) -> str:
    return "INT64_MIN" if value == INT_MIN else f"(INT64_C({value}))"


def test_python_c_and_rust_agree(tmp_path: Path) -> None:
    """60 random expressions, the corners of each operation, and what is decided before a part without a value.

    C is built with the undefined-behaviour sanitizer, once as for a compiler without gcc's functions, and Rust with
    overflow checks. Where Python refuses, all say that there is no value.
    """
    cases = [*_random_cases(60), *CORNERS, *DECIDED]
    exact = [_exact(*case) for case in cases]
    assert sum(value is not None for value in exact) > 150
    assert sum(value is None for value in exact) > 50

    c_lines, rust_lines = [], []
    for expression, _ in cases:
        c_code = expression.to_c({name: name for name in NAMES}, "t_")
        rust_code = expression.to_rust({name: name for name in NAMES}, "e::")
        unused = "(void)a; (void)b; (void)c;"
        head = f"static struct t_integer f{len(c_lines)}(int64_t a, int64_t b, int64_t c)"
        c_lines.append(f"{head} {{ {unused} return {c_code}; }}")
        head = f"fn f{len(rust_lines)}(a: i64, b: i64, c: i64) -> Option<i64>"
        rust_lines.append(f"{head} {{ let _ = (a, b, c); {rust_code} }}")
    arguments = [", ".join(_c_int(values[name]) for name in NAMES) for _, values in cases]
    calls = [f"    show(f{index}({given}));" for index, given in enumerate(arguments)]
    (tmp_path / "t.c").write_text(
        "#include <stdbool.h>\n#include <stdint.h>\n#include <stdio.h>\n"
        + c_helpers("t_")
        + "static void show(struct t_integer a) {\n"
        + '    if (a.is_known) printf("%lld\\n", (long long)a.value); else puts("None");\n}\n'
        + "\n".join([*c_lines, "int main(void) {", *calls, "    return 0;", "}\n"])
    )
    arguments = [", ".join(f"{values[name]}_i64" for name in NAMES) for _, values in cases]
    calls = [f"    show(f{index}({given}));" for index, given in enumerate(arguments)]
    (tmp_path / "t.rs").write_text(
        "mod e {\n"
        + rust_helpers()
        + "}\nfn show(a: Option<i64>) {\n"
        + '    println!("{}", a.map_or("None".to_string(), |a| a.to_string()));\n}\n'
        + "\n".join([*rust_lines, "fn main() {", *calls, "}\n"])
    )
    gcc = ["gcc", "-std=c99", "-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all"]
    subprocess.run([*gcc, *WARNINGS, "-o", "c", "t.c"], cwd=tmp_path, check=True)
    plain = (tmp_path / "t.c").read_text().replace("defined(__GNUC__)", "0")
    (tmp_path / "plain.c").write_text(plain)
    subprocess.run([*gcc, *WARNINGS, "-o", "plain", "plain.c"], cwd=tmp_path, check=True)
    subprocess.run(["rustc", "-Cdebug-assertions=on", "-Dwarnings", "-o", "rust", "t.rs"], cwd=tmp_path, check=True)
    wanted = [str(value if value is None else int(value)) for value in exact]
    for name in ("c", "plain", "rust"):
        found = subprocess.run([f"./{name}"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout.split()
        wrong = [
            (expression.text, values, right, other)
            for (expression, values), right, other in zip(cases, wanted, found, strict=True)
            if right != other
        ]
        assert (name, wrong) == (name, [])


WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]

# Shapes that compilers and linters like to comment on when they are written with operators.
LINT_BAIT = (
    *("a <= a", "a * 0 + b * 1", "0 <= a and a < 9", "a < b if True else False", "not (a < b)", "a >= b + 1"),
    *("1 if a > 0 else 1", "a - a", "True and a == a", "a <= 9223372036854775807", "-(-a)", "a // 1 - -1"),
)


@pytest.mark.parametrize("compiler", [["gcc", "-std=c99"], ["gcc", "-std=c17"], ["g++", "-std=c++17", "-xc++"]])
def test_c_is_clean(tmp_path: Path, compiler: list[str]) -> None:
    codes = [(index, parse(text)) for index, text in enumerate(LINT_BAIT)]
    names = {"a": "s->a", "b": "s->b"}
    lines = []
    for index, expression in codes:
        head = f"struct t_{'condition' if expression.type == 'bool' else 'integer'} f{index}(const struct s *s)"
        lines.append(f"{head};\n{head} {{ (void)s; return {expression.to_c(names, 't_')}; }}")
    (tmp_path / "t.c").write_text(
        "#include <stdbool.h>\n#include <stdint.h>\n"
        + c_helpers("t_")
        + "struct s { int64_t a, b; };\n"
        + "\n".join(lines)
        + "\n"
    )
    subprocess.run([*compiler, *WARNINGS, "-c", "-O2", "t.c"], cwd=tmp_path, check=True)


def test_rust_is_clean_for_clippy_and_rustfmt(tmp_path: Path) -> None:
    lines = []
    for index, text in enumerate(LINT_BAIT):
        expression = parse(text)
        result = "Option<bool>" if expression.type == "bool" else "Option<i64>"
        code = expression.to_rust({"a": "a", "b": "b"}, "e::")
        lines.append(
            f"/// {text}\npub fn f{index}(a: i64, b: i64) -> {result} {{\n    let _ = (a, b);\n    {code}\n}}\n"
        )
    (tmp_path / "e.rs").write_text(rust_helpers())
    (tmp_path / "t.rs").write_text("//! Lint bait.\n#![no_std]\nmod e;\n" + "\n".join(lines))
    driver = shutil.which("clippy-driver")
    assert driver is not None
    checked = subprocess.run(
        [driver, "--crate-type=lib", "--emit=metadata", "--edition=2021", "-Dwarnings", "-Dclippy::all", "t.rs"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stderr
    formatted = subprocess.run(
        ["rustfmt", "--check", "--edition=2021", "e.rs"], cwd=tmp_path, capture_output=True, text=True
    )
    assert formatted.returncode == 0, formatted.stdout

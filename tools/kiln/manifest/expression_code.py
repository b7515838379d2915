"""Writes an expression's tree as C and as Rust, and holds the helper functions that both call.

The generated code is total: arithmetic wraps at 64 bits, and a division by zero gives 0. Every operation is a call of
a helper, with no operator in sight: operands are pure and total, so it does not matter that all are evaluated, and
no compiler or linter finds a comparison of a value with itself, a needless parenthesis or a precedence to warn about.
Wherever evaluation in Python gives a value, C and Rust give the same one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kiln.manifest.expression_tree import INT_MIN, Constant, Name, Node

RUST_PREFIX = "expr_"
"""what the names of the Rust helpers start with"""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def tree_to_c(tree: Node, names: Mapping[str, str], helper_prefix: str) -> str:
    """`tree` as a C99 and C++ expression of type int64_t or bool; see `Expression.to_c`."""
    if isinstance(tree, Constant):
        if isinstance(tree.value, bool):
            return "true" if tree.value else "false"
        return _literal(tree.value, "INT64_C({})", "INT64_MIN", helper_prefix)
    if isinstance(tree, Name):
        return names[tree.name]
    operands = ", ".join(tree_to_c(operand, names, helper_prefix) for operand in tree.operands)
    return f"{helper_prefix}{tree.function}({operands})"


def tree_to_rust(tree: Node, names: Mapping[str, str], helper_path: str) -> str:
    """`tree` as a Rust expression of type i64 or bool; see `Expression.to_rust`."""
    if isinstance(tree, Constant):
        if isinstance(tree.value, bool):
            return "true" if tree.value else "false"
        return _literal(tree.value, "{}_i64", "i64::MIN", helper_path + RUST_PREFIX)
    if isinstance(tree, Name):
        return names[tree.name]
    operands = ", ".join(tree_to_rust(operand, names, helper_path) for operand in tree.operands)
    return f"{helper_path}{RUST_PREFIX}{tree.function}({operands})"


def _literal(value: int, form: str, smallest: str, helper: str) -> str:
    """An integer with no minus sign in it, which would need parentheses next to the caller's own operators."""
    if value == INT_MIN:
        return smallest
    return form.format(value) if value >= 0 else f"{helper}neg({form.format(-value)})"


def c_helpers(prefix: str) -> str:
    """The C helpers, named `<prefix>add` and so on: static inline, C99 and C++, over <stdint.h> and <stdbool.h>.

    Raises ValueError unless `prefix` starts an identifier.
    """
    if _IDENTIFIER.fullmatch(prefix) is None:
        raise ValueError(f"{prefix!r} does not start a C identifier")
    return _C_HELPERS.replace("@", prefix)


def rust_helpers() -> str:
    """The Rust helpers, `expr_add` and so on: const, no_std, visible in the whole crate."""
    return _RUST_HELPERS


# Conversion from uint64_t to int64_t of what does not fit is implementation-defined before C23 and C++20; gcc, clang
# and MSVC all define it as modulo 2^64.
_C_HELPERS = """\
static inline int64_t @add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static inline int64_t @sub(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
static inline int64_t @mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
static inline int64_t @neg(int64_t a) { return (int64_t)(UINT64_C(0) - (uint64_t)a); }
static inline int64_t @floordiv(int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (b == -1) return @neg(a);
    return a / b - (int64_t)(a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t @floormod(int64_t a, int64_t b) {
    if (b == 0 || b == -1) return 0;
    return a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
}
static inline int64_t @cdiv(int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (b == -1) return @neg(a);
    return a / b + (int64_t)(a % b != 0 && (a < 0) == (b < 0));
}
static inline int64_t @min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t @max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline bool @eq(int64_t a, int64_t b) { return a == b; }
static inline bool @ne(int64_t a, int64_t b) { return a != b; }
static inline bool @lt(int64_t a, int64_t b) { return a < b; }
static inline bool @le(int64_t a, int64_t b) { return a <= b; }
static inline bool @gt(int64_t a, int64_t b) { return a > b; }
static inline bool @ge(int64_t a, int64_t b) { return a >= b; }
static inline bool @negate(bool a) { return !a; }
static inline bool @both(bool a, bool b) { return a && b; }
static inline bool @either(bool a, bool b) { return a || b; }
static inline int64_t @choose(bool c, int64_t a, int64_t b) { return c ? a : b; }
static inline bool @choose_bool(bool c, bool a, bool b) { return c ? a : b; }
"""


def _rust(name: str, parameters: str, result: str, body: str) -> str:
    lines = "\n".join(f"    {line}" for line in body.split("\n"))
    return f"#[allow(dead_code)]\npub(crate) const fn {RUST_PREFIX}{name}({parameters}) -> {result} {{\n{lines}\n}}\n"


_INTS = "a: i64, b: i64"
_RUST_HELPERS = "\n".join(
    (
        _rust("add", _INTS, "i64", "a.wrapping_add(b)"),
        _rust("sub", _INTS, "i64", "a.wrapping_sub(b)"),
        _rust("mul", _INTS, "i64", "a.wrapping_mul(b)"),
        _rust("neg", "a: i64", "i64", "a.wrapping_neg()"),
        _rust(
            "floordiv",
            _INTS,
            "i64",
            "if b == 0 {\n    return 0;\n}\na.wrapping_div(b) - (a.wrapping_rem(b) != 0 && (a < 0) != (b < 0)) as i64",
        ),
        _rust(
            "floormod",
            _INTS,
            "i64",
            "if b == 0 {\n    return 0;\n}\nlet rest = a.wrapping_rem(b);\n"
            "if rest != 0 && (a < 0) != (b < 0) {\n    rest + b\n} else {\n    rest\n}",
        ),
        _rust(
            "cdiv",
            _INTS,
            "i64",
            "if b == 0 {\n    return 0;\n}\na.wrapping_div(b) + (a.wrapping_rem(b) != 0 && (a < 0) == (b < 0)) as i64",
        ),
        _rust("min", _INTS, "i64", "if a < b {\n    a\n} else {\n    b\n}"),
        _rust("max", _INTS, "i64", "if a > b {\n    a\n} else {\n    b\n}"),
        _rust("eq", _INTS, "bool", "a == b"),
        _rust("ne", _INTS, "bool", "a != b"),
        _rust("lt", _INTS, "bool", "a < b"),
        _rust("le", _INTS, "bool", "a <= b"),
        _rust("gt", _INTS, "bool", "a > b"),
        _rust("ge", _INTS, "bool", "a >= b"),
        _rust("negate", "a: bool", "bool", "!a"),
        _rust("both", "a: bool, b: bool", "bool", "a && b"),
        _rust("either", "a: bool, b: bool", "bool", "a || b"),
        _rust("choose", "c: bool, a: i64, b: i64", "i64", "if c {\n    a\n} else {\n    b\n}"),
        _rust("choose_bool", "c: bool, a: bool, b: bool", "bool", "if c {\n    a\n} else {\n    b\n}"),
    )
)

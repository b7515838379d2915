"""Writes an expression's tree as C and as Rust, and holds the helper functions that both call.

What Python refuses has no value in the generated code either: each value says whether it is known, and one that is
computed of an unknown one is unknown, unless it does not depend on it: `n != 0 and m % n == 0` is false where n is 0.
Every operation is a call of a helper, with no operator in sight: operands are pure, so it does not matter that all are
evaluated, and no compiler or linter finds a comparison of a value with itself, a needless parenthesis or a precedence
to warn about.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kiln.manifest.expression_tree import INT_MIN, Constant, Name, Node

RUST_PREFIX = "expr_"
"""what the names of the Rust helpers start with"""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def tree_to_c(tree: Node, names: Mapping[str, str], helper_prefix: str) -> str:
    """`tree` as a C99 and C++ expression of a struct of the helpers; see `Expression.to_c`."""
    if isinstance(tree, Constant):
        if isinstance(tree.value, bool):
            return f"{helper_prefix}truth({'true' if tree.value else 'false'})"
        # 2^63 is no integer of C, from which the minus sign could make the smallest.
        sign = "-" if tree.value < 0 else ""
        text = "INT64_MIN" if tree.value == INT_MIN else f"{sign}INT64_C({abs(tree.value)})"
        return f"{helper_prefix}number({text})"
    if isinstance(tree, Name):
        return f"{helper_prefix}number({names[tree.name]})"
    operands = ", ".join(tree_to_c(operand, names, helper_prefix) for operand in tree.operands)
    return f"{helper_prefix}{tree.function}({operands})"


def tree_to_rust(tree: Node, names: Mapping[str, str], helper_path: str) -> str:
    """`tree` as a Rust expression of type Option<i64> or Option<bool>; see `Expression.to_rust`."""
    if isinstance(tree, Constant):
        if isinstance(tree.value, bool):
            return f"Some({'true' if tree.value else 'false'})"
        return f"Some({'i64::MIN' if tree.value == INT_MIN else f'{tree.value}_i64'})"
    if isinstance(tree, Name):
        return f"Some({names[tree.name]})"
    operands = ", ".join(tree_to_rust(operand, names, helper_path) for operand in tree.operands)
    return f"{helper_path}{RUST_PREFIX}{tree.function}({operands})"


def c_helpers(prefix: str) -> str:
    """The C helpers, named `<prefix>add` and so on: static inline, C99 and C++, over <stdint.h> and <stdbool.h>.

    `<prefix>holds` tells whether a condition is known and true; an integer has the members `value` and `is_known`.

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
struct @integer { int64_t value; bool is_known; };
struct @condition { bool value; bool is_known; };
static inline struct @integer @number(int64_t value)
{
    const struct @integer made = { value, true };
    return made;
}
static inline struct @condition @truth(bool value)
{
    const struct @condition made = { value, true };
    return made;
}
static inline bool @holds(struct @condition a) { return a.is_known && a.value; }
static inline struct @integer @add(struct @integer a, struct @integer b)
{
    const int64_t sum = (int64_t)((uint64_t)a.value + (uint64_t)b.value);
    const bool fits = ((a.value ^ sum) & (b.value ^ sum)) >= 0;
    const struct @integer made = { sum, a.is_known && b.is_known && fits };
    return made;
}
static inline struct @integer @sub(struct @integer a, struct @integer b)
{
    const int64_t rest = (int64_t)((uint64_t)a.value - (uint64_t)b.value);
    const bool fits = ((a.value ^ b.value) & (a.value ^ rest)) >= 0;
    const struct @integer made = { rest, a.is_known && b.is_known && fits };
    return made;
}
static inline struct @integer @neg(struct @integer a) { return @sub(@number(0), a); }
static inline struct @integer @mul(struct @integer a, struct @integer b)
{
#if defined(__GNUC__)
    int64_t product = 0;
    const bool fits = !__builtin_mul_overflow(a.value, b.value, &product);
#else
    const int64_t product = (int64_t)((uint64_t)a.value * (uint64_t)b.value);
    const bool fits = a.value == 0
        || (!(a.value == -1 && b.value == INT64_MIN) && !(b.value == -1 && a.value == INT64_MIN)
            && product / a.value == b.value);
#endif
    const struct @integer made = { product, a.is_known && b.is_known && fits };
    return made;
}
static inline bool @divides(struct @integer a, struct @integer b)
{
    return a.is_known && b.is_known && b.value != 0 && !(b.value == -1 && a.value == INT64_MIN);
}
static inline struct @integer @floordiv(struct @integer a, struct @integer b)
{
    struct @integer made = { 0, @divides(a, b) };
    if (made.is_known) {
        made.value = a.value / b.value - (int64_t)(a.value % b.value != 0 && (a.value < 0) != (b.value < 0));
    }
    return made;
}
static inline struct @integer @floormod(struct @integer a, struct @integer b)
{
    struct @integer made = { 0, a.is_known && b.is_known && b.value != 0 };
    if (made.is_known && b.value != -1) {
        const int64_t rest = a.value % b.value;
        made.value = rest + (rest != 0 && (a.value < 0) != (b.value < 0) ? b.value : 0);
    }
    return made;
}
static inline struct @integer @cdiv(struct @integer a, struct @integer b)
{
    struct @integer made = { 0, @divides(a, b) };
    if (made.is_known) {
        made.value = a.value / b.value + (int64_t)(a.value % b.value != 0 && (a.value < 0) == (b.value < 0));
    }
    return made;
}
static inline struct @integer @min(struct @integer a, struct @integer b)
{
    const struct @integer made = { a.value < b.value ? a.value : b.value, a.is_known && b.is_known };
    return made;
}
static inline struct @integer @max(struct @integer a, struct @integer b)
{
    const struct @integer made = { a.value > b.value ? a.value : b.value, a.is_known && b.is_known };
    return made;
}
static inline struct @condition @eq(struct @integer a, struct @integer b)
{
    const struct @condition made = { a.value == b.value, a.is_known && b.is_known };
    return made;
}
static inline struct @condition @lt(struct @integer a, struct @integer b)
{
    const struct @condition made = { a.value < b.value, a.is_known && b.is_known };
    return made;
}
static inline struct @condition @negate(struct @condition a)
{
    const struct @condition made = { !a.value, a.is_known };
    return made;
}
static inline struct @condition @ne(struct @integer a, struct @integer b) { return @negate(@eq(a, b)); }
static inline struct @condition @le(struct @integer a, struct @integer b) { return @negate(@lt(b, a)); }
static inline struct @condition @gt(struct @integer a, struct @integer b) { return @lt(b, a); }
static inline struct @condition @ge(struct @integer a, struct @integer b) { return @negate(@lt(a, b)); }
static inline struct @condition @both(struct @condition a, struct @condition b)
{
    return a.is_known && a.value ? b : a;
}
static inline struct @condition @either(struct @condition a, struct @condition b)
{
    return a.is_known && !a.value ? b : a;
}
static inline struct @integer @choose(struct @condition c, struct @integer a, struct @integer b)
{
    const struct @integer unknown = { 0, false };
    return !c.is_known ? unknown : c.value ? a : b;
}
static inline struct @condition @choose_bool(struct @condition c, struct @condition a, struct @condition b)
{
    return !c.is_known ? c : c.value ? a : b;
}
"""


def _rust(name: str, parameters: str, result: str, body: str) -> str:
    lines = "\n".join(f"    {line}" for line in body.split("\n"))
    return (
        f"#[allow(dead_code)]\npub(crate) const fn {RUST_PREFIX}{name}({parameters}) -> Option<{result}> "
        f"{{\n{lines}\n}}\n"
    )


def _of_two(name: str, result: str, value: str) -> str:
    """Of two integers: `value` is the result for those that are known."""
    body = f"match (a, b) {{\n    (Some(a), Some(b)) => {value},\n    _ => None,\n}}"
    return _rust(name, "a: Option<i64>, b: Option<i64>", result, body)


def _quotient(correction: str) -> str:
    """`checked_div` is None for a divisor of 0, and where the quotient leaves 64 bits."""
    known = f"        Some(quotient) => Some(quotient {correction} as i64),"
    return f"match a.checked_div(b) {{\n{known}\n        None => None,\n    }}"


_CHOOSE = "match c {\n    Some(true) => a,\n    Some(false) => b,\n    None => None,\n}"
_RUST_HELPERS = "\n".join(
    (
        _of_two("add", "i64", "a.checked_add(b)"),
        _of_two("sub", "i64", "a.checked_sub(b)"),
        _of_two("mul", "i64", "a.checked_mul(b)"),
        _rust("neg", "a: Option<i64>", "i64", "match a {\n    Some(a) => a.checked_neg(),\n    None => None,\n}"),
        _of_two("floordiv", "i64", _quotient("- (a % b != 0 && (a < 0) != (b < 0))")),
        _of_two("cdiv", "i64", _quotient("+ (a % b != 0 && (a < 0) == (b < 0))")),
        _rust(
            "floormod",
            "a: Option<i64>, b: Option<i64>",
            "i64",
            "match (a, b) {\n    (Some(a), Some(b)) if b != 0 => {\n        let rest = a.wrapping_rem(b);\n"
            "        if rest != 0 && (a < 0) != (b < 0) {\n            Some(rest + b)\n        } else {\n"
            "            Some(rest)\n        }\n    }\n    _ => None,\n}",
        ),
        _of_two("min", "i64", "Some(if a < b { a } else { b })"),
        _of_two("max", "i64", "Some(if a > b { a } else { b })"),
        _of_two("eq", "bool", "Some(a == b)"),
        _of_two("ne", "bool", "Some(a != b)"),
        _of_two("lt", "bool", "Some(a < b)"),
        _of_two("le", "bool", "Some(a <= b)"),
        _of_two("gt", "bool", "Some(a > b)"),
        _of_two("ge", "bool", "Some(a >= b)"),
        _rust("negate", "a: Option<bool>", "bool", "match a {\n    Some(a) => Some(!a),\n    None => None,\n}"),
        _rust(
            "both",
            "a: Option<bool>, b: Option<bool>",
            "bool",
            "match a {\n    Some(true) => b,\n    _ => a,\n}",
        ),
        _rust(
            "either",
            "a: Option<bool>, b: Option<bool>",
            "bool",
            "match a {\n    Some(false) => b,\n    _ => a,\n}",
        ),
        _rust("choose", "c: Option<bool>, a: Option<i64>, b: Option<i64>", "i64", _CHOOSE),
        _rust("choose_bool", "\n    c: Option<bool>,\n    a: Option<bool>,\n    b: Option<bool>,\n", "bool", _CHOOSE),
    )
)

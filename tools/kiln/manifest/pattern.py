"""Patterns of names and signatures: text with the placeholders `{dtype}`, `{block}` and one for each axis."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kiln.errors import ManifestError, Position, did_you_mean
from kiln.manifest.wording import show

_PART = re.compile(r"\{([^{}]*)\}|[{}]")


def check_pattern(pattern: str, allowed: Sequence[str], position: Position) -> None:
    """Refuse a brace that is no placeholder, and a placeholder that is not `allowed`. Raises ManifestError."""
    for part in _PART.finditer(pattern):
        word = part[1]
        if word in allowed:
            continue
        named = [f"{{{name}}}" for name in allowed]
        known = " and ".join([*([", ".join(named[:-1])] if named[1:] else []), named[-1]])
        if word is None:
            what = f"the pattern {show(pattern)} has a brace at its character {part.start() + 1} that is no placeholder"
            remedy = "remove the brace; names and signatures hold none"
        else:
            what = f"the pattern {show(pattern)} has the unknown placeholder {show(part[0])}"
            remedy = did_you_mean(word, allowed) or f"use {known}"
        raise ManifestError(what, where=position, expected=known, actual=show(part[0]), remedy=remedy)


def check_no_block(pattern: str, position: Position, what: str) -> None:
    """Refuse {block} in a pattern of a kernel without `blocks`; `what` is its dotted path. Raises ManifestError."""
    if "block" in _PART.findall(pattern):
        raise ManifestError(
            f"`{what}` uses {{block}}, and the kernel has no `blocks`",
            where=position,
            expected="{block} for kernels with blocks only",
            actual=show(pattern),
            remedy="remove {block}, or add `blocks`",
        )


def placeholders(pattern: str) -> frozenset[str]:
    """The placeholders of a checked pattern: {"dtype", "block"}."""
    return frozenset(_PART.findall(pattern))


def fill(pattern: str, values: Mapping[str, str]) -> str:
    """A checked pattern with its placeholders replaced. `values` may hold more than the pattern uses."""
    return _PART.sub(lambda part: values[part[1]], pattern)

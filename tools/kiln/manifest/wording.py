"""How messages show text that somebody else wrote: quoted, in ASCII, and short."""

from __future__ import annotations


def show(text: str, limit: int = 60) -> str:
    """`text` in quotes, escaped, and cut at `limit` characters, so that no character of it acts on a terminal."""
    if len(text) <= limit:
        return ascii(text)
    return f"{text[:limit]!a}... ({len(text)} characters)"

"""The template environment that every generated file is rendered with."""

from __future__ import annotations

from functools import cache

import jinja2


@cache
def environment() -> jinja2.Environment:
    """Templates of this package, by their path under templates/; a name that a template misspells is an error."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader("kiln.packaging", "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )

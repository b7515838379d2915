"""How much faster a clean build is when all that it makes is in the local cache."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench_compile import small_library
from bench_runner import Contender, Settings, copy_project, doit, in_turns, measured, remove
from bench_table import Row


def cached(settings: Settings) -> Iterator[Row]:
    """This repository's library with all its packages: once into an empty cache, once out of the cache."""
    project, cache = settings.scratch / "cached", settings.scratch / "cache"
    copy_project(project, ("kernels.yaml", "dodo.py", "pyproject.toml", "kernels"))
    if settings.quick:
        manifest = project / "kernels.yaml"
        manifest.write_text(small_library(manifest.read_text("utf-8"), only=None, quick=True), "utf-8")
    build = project / "build"
    # In this order: each cold build fills the cache for the one after it.
    found = in_turns(
        {
            "cold": Contender(
                run=partial(measured, doit(), project, "0 up to date, 0 failed", KILN_CACHE=str(cache)),
                prepare=partial(remove, build, cache),
            ),
            "cached": Contender(
                run=partial(measured, doit(), project, " from cache, 0 up to date, 0 failed", KILN_CACHE=str(cache)),
                prepare=partial(remove, build),
            ),
        },
        settings.runs,
    )
    yield Row(
        bench="cache",
        what="clean build of the default library, all from the local cache",
        kiln=found["cached"]["wall"],
        peer=found["cold"]["wall"],
        peer_name="Kiln with an empty cache",
        by="speed-up",
        bar=25.0,
        stretch=60.0,
    )

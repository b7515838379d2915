"""How long it takes to see what is to do: builds with nothing, with one image, and with one kernel's images stale."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from bench_project import KINDS, TARGET, Graph, graph_of, large_graph, nothing_to_do
from bench_runner import Contender, Figures, Settings, doit, in_turns, measured, program
from bench_table import Row


def null(settings: Settings) -> Iterator[Row]:
    """Everything is up to date."""
    graph = graph_of(settings)
    found = in_turns(
        {
            "Kiln": Contender(run=partial(measured, doit(*KINDS), graph.kiln, nothing_to_do(graph)), warm_ups=1),
            "ninja": Contender(run=partial(measured, [program("ninja")], graph.ninja, "no work to do"), warm_ups=1),
            "stock doit": Contender(run=partial(measured, doit(), graph.stock), warm_ups=1),
        },
        settings.runs,
    )
    what = f"null build, {graph.variants:,} variants"
    yield _against("null", what, found, "ninja", bar=2.5, stretch=1.6)
    yield _against("null", what, found, "stock doit")


def select(settings: Settings) -> Iterator[Row]:
    """One variant is asked for, and up to date."""
    graph = graph_of(settings)
    image = f"images/{TARGET}/{graph.one}.cubin"
    kiln, stock = doit(f"compile:{graph.one}"), doit(f"compile:{graph.one}")
    ninja: list[str | Path] = [program("ninja"), image]
    found = in_turns(
        {
            "Kiln": Contender(run=partial(measured, kiln, graph.kiln, "0 built, 1 up to date"), warm_ups=1),
            "ninja": Contender(run=partial(measured, ninja, graph.ninja, "no work to do"), warm_ups=1),
            "stock doit": Contender(run=partial(measured, stock, graph.stock), warm_ups=1),
        },
        settings.runs,
    )
    what = f"select one of {graph.variants:,}"
    yield _against("select", what, found, "ninja", bar=3.0, stretch=1.5)
    yield _against("select", what, found, "stock doit")


def edit(settings: Settings) -> Iterator[Row]:
    """One kernel was edited. Kiln compiles, and that is taken off; the peers' actions do next to nothing."""
    graph = graph_of(settings)
    summands = itertools.count(1_000_000)
    prepare = partial(_edit_next, graph, summands)
    steps = len(KINDS) * graph.per_kernel
    found = in_turns(
        {
            # The first run of a kind imports compilers whose files are not in memory yet.
            "Kiln": Contender(run=partial(_beyond_compiles, graph, steps), prepare=prepare, warm_ups=1),
            "ninja": Contender(run=partial(measured, [program("ninja")], graph.ninja, f"/{steps}]")),
            "stock doit": Contender(run=partial(measured, doit(), graph.stock)),
        },
        settings.runs,
    )
    what = f"edit a kernel of {graph.per_kernel} among {graph.variants:,}"
    for figure, words, peer, bar, stretch in (
        ("beyond compiles", "beyond the compiles", "ninja", 0.7, 0.3),
        ("beyond steps", "beyond all steps", "stock doit", None, None),
    ):
        yield Row(
            bench="edit",
            what=f"{what}: {words}",
            kiln=found["Kiln"][figure],
            peer=found[peer]["wall"],
            peer_name=f"{peer}, whose actions do nothing",
            by="figure",
            bar=bar,
            stretch=stretch,
        )


def large(settings: Settings) -> Iterator[Row]:
    """Everything is up to date, in a library ten times as large."""
    graph = large_graph(settings)
    kiln = Contender(run=partial(measured, doit(*KINDS), graph.kiln, nothing_to_do(graph)), warm_ups=1)
    found = in_turns({"Kiln": kiln}, settings.runs)["Kiln"]
    what = f"null build, {graph.variants:,} variants"
    yield Row(bench="large", what=what, kiln=found["wall"], by="figure", bar=4.0, stretch=2.0)
    yield Row(
        bench="large",
        what=f"{what}: peak memory",
        kiln=found["peak"],
        unit="MB",
        by="figure",
        bar=1500.0,
    )


def _against(
    bench: str,
    what: str,
    found: dict[str, dict[str, float]],
    peer: str,
    bar: float | None = None,
    stretch: float | None = None,
) -> Row:
    kiln, other = found["Kiln"]["wall"], found[peer]["wall"]
    return Row(bench=bench, what=what, kiln=kiln, peer=other, peer_name=peer, by="ratio", bar=bar, stretch=stretch)


def _edit_next(graph: Graph, summands: Iterator[int]) -> None:
    graph.edit(next(summands))


def _beyond_compiles(graph: Graph, steps: int) -> Figures:
    """A build of an edited kernel: `beyond compiles` is the time in which none was under way, `beyond steps` that in
    which no step was.

    One is under way from when the build hands it out: the first then waits until the compiler has been imported.
    """
    from kiln.doit_plugin.build_folder import BUILD_FOLDER, PRIVATE_FOLDER
    from kiln.engine.trace import TRACE, read_trace

    figures = measured(doit(*KINDS), graph.kiln, f"{steps} built, ")
    trace = read_trace(graph.kiln / BUILD_FOLDER / PRIVATE_FOLDER / TRACE)
    assert trace is not None and len(trace.spans) == steps
    steps_took = covered((span.asked, span.ended) for span in trace.spans)
    compiles_took = covered((span.asked, span.ended) for span in trace.spans if span.kind == "compile")
    wall = figures["wall"]
    return {**figures, "beyond compiles": wall - compiles_took, "beyond steps": wall - steps_took}


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """How much time some spans cover, what lies in several counted once."""
    total, until = 0.0, float("-inf")
    for began, ended in sorted(spans):
        total += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return total

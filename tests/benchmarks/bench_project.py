"""A project of many variants, built as far as anybody can tell, and the same graph for ninja and for stock doit.

Nobody compiles 10,000 kernels to find out how long it takes to see that nothing is to do. So Kiln's rules are asked for
their steps, and the outputs are written and recorded as a build would have; `python bench_project.py` does that in the
current folder. An edit afterwards compiles for real.
"""

from __future__ import annotations

import hashlib
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench_runner import Settings, doit, measured, program, remove

TARGET = "sm_80"
KINDS = ("compile", "validate", "objcopy")

KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def kernel_{number}(output_ptr, input_ptr, n_elements, BLOCK_SIZE: tl.constexpr, SCALE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    values = tl.load(input_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, values * SCALE + {summand}, mask=mask)
"""

ENTRY = """\
  k{number}:
    source: kernels/k{number}.py
    function: kernel_{number}
    dtypes: [fp32]
    blocks: {blocks}
    axes: {{SCALE: {scales}}}
    name: k{number}_{{dtype}}_{{SCALE}}_{{block}}
    group: k{number}_{{dtype}}_{{SCALE}}
    signature: "*{{dtype}}:16, *{{dtype}}:16, i32"
    grid: ["cdiv(n_elements, BLOCK_SIZE)"]
    tensors: {{output_ptr: [n_elements], input_ptr: [n_elements]}}
"""

STOCK_DODO = '''\
"""The same graph in plain doit: an action copies a digest of what it reads, so that an edit reaches the end."""

import hashlib
from pathlib import Path

DOIT_CONFIG = {{"backend": "dbm"}}
VARIANTS = [(k, f"k{{k}}_fp32_{{s}}_{{b}}") for k in range({kernels}) for s in {scales} for b in {blocks}]


def make(source, targets):
    data = hashlib.sha256(Path(source).read_bytes()).digest()
    for target in targets:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).write_bytes(data)


def task(name, sources, targets):
    return {{"name": name, "actions": [(make, [sources[0], targets])], "file_dep": sources, "targets": targets}}


def task_compile():
    for k, name in VARIANTS:
        made = [f"images/{target}/{{name}}.cubin", f"images/{target}/{{name}}.facts.json"]
        yield task(name, [f"kernels/k{{k}}.py", "kernels.yaml"], made)


def task_validate():
    for k, name in VARIANTS:
        yield task(name, [f"images/{target}/{{name}}.facts.json"], [f"reports/{target}/{{name}}.json"])


def task_objcopy():
    for k, name in VARIANTS:
        yield task(name, [f"images/{target}/{{name}}.cubin"], [f"objects/{{name}}.o"])
'''


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A graph of some kernels with some variants each, for one target, as three projects."""

    folder: Path
    kernels: int
    blocks: tuple[int, ...]
    scales: tuple[int, ...]

    @property
    def variants(self) -> int:
        """How many there are in all."""
        return self.kernels * self.per_kernel

    @property
    def per_kernel(self) -> int:
        """How many variants a kernel has."""
        return len(self.blocks) * len(self.scales)

    @property
    def kiln(self) -> Path:
        """Kiln's project."""
        return self.folder / "kiln"

    @property
    def ninja(self) -> Path:
        """The folder of build.ninja."""
        return self.folder / "ninja"

    @property
    def stock(self) -> Path:
        """The folder of stock doit's dodo.py."""
        return self.folder / "doit"

    @property
    def one(self) -> str:
        """A variant of the kernel in the middle."""
        return self._name(self.kernels // 2, self.scales[0], self.blocks[0])

    def names(self, kernel: int) -> Iterator[str]:
        """The variants of a kernel."""
        for scale, block in itertools.product(self.scales, self.blocks):
            yield self._name(kernel, scale, block)

    def _name(self, kernel: int, scale: int, block: int) -> str:
        return f"k{kernel}_fp32_{scale}_{block}"

    def edit(self, summand: int) -> None:
        """Make the middle kernel another one, in all three projects; each summand has its own images."""
        number = self.kernels // 2
        for folder in (self.kiln, self.ninja, self.stock):
            if folder.exists():
                text = KERNEL.format(number=number, summand=summand)
                (folder / f"kernels/k{number}.py").write_text(text, "utf-8")


@cache
def graph_of(settings: Settings) -> Graph:
    """The graph that the benchmarks share: 10,000 variants of 100 kernels, built by all three."""
    blocks, scales = ((128, 256), (1,)) if settings.quick else ((128, 256, 512, 1024, 2048), tuple(range(1, 21)))
    folder = settings.scratch / "graph"
    remove(folder)  # what is left of an attempt that failed
    graph = Graph(folder=folder, kernels=10 if settings.quick else 100, blocks=blocks, scales=scales)
    make_kiln(graph)
    _make_ninja(graph)
    _make_stock(graph)
    return graph


def large_graph(settings: Settings) -> Graph:
    """100,000 variants of 1,000 kernels, built by Kiln."""
    kernels = 20 if settings.quick else 1000
    graph = Graph(
        folder=settings.scratch / "large",
        kernels=kernels,
        blocks=(128, 256, 512, 1024, 2048),
        scales=tuple(range(1, 21)) if not settings.quick else (1,),
    )
    make_kiln(graph)
    return graph


def make_kiln(graph: Graph) -> None:
    """Write Kiln's project, and have it built."""
    measured([sys.executable, "-m", "kiln", "init", graph.kiln], graph.folder.parent)
    for path in (graph.kiln / "kernels").iterdir():
        path.unlink()
    _write_sources(graph, graph.kiln)
    measured([sys.executable, Path(__file__)], graph.kiln)
    # A build that asks all: it finds nothing to do, and writes down for the next one what it went by.
    measured(doit(*KINDS), graph.kiln, nothing_to_do(graph))


def nothing_to_do(graph: Graph) -> str:
    """What Kiln says of a graph where nothing is to do."""
    return f"0 built, {len(KINDS) * graph.variants} up to date"


def _write_sources(graph: Graph, folder: Path) -> None:
    (folder / "kernels").mkdir(parents=True, exist_ok=True)
    for number in range(graph.kernels):
        (folder / f"kernels/k{number}.py").write_text(KERNEL.format(number=number, summand=number), "utf-8")
    blocks, scales = list(graph.blocks), list(graph.scales)
    entries = [ENTRY.format(number=number, blocks=blocks, scales=scales) for number in range(graph.kernels)]
    head = f"version: 1\nlibrary: bench\ntargets: [{TARGET}]\nkernels:\n"
    (folder / "kernels.yaml").write_text(head + "".join(entries), "utf-8")


def _make_ninja(graph: Graph) -> None:
    """The graph as build.ninja, built. What it runs costs a shell and nothing else."""
    _write_sources(graph, graph.ninja)
    lines = ["rule make", "  command = for o in $out; do : > $$o; done", ""]
    for kernel in range(graph.kernels):
        for name in graph.names(kernel):
            image = f"images/{TARGET}/{name}.cubin"
            facts = f"images/{TARGET}/{name}.facts.json"
            lines += [
                f"build {image} {facts}: make kernels/k{kernel}.py kernels.yaml",
                f"build reports/{TARGET}/{name}.json: make {facts}",
                f"build objects/{name}.o: make {image}",
            ]
    (graph.ninja / "build.ninja").write_text("\n".join(lines) + "\n", "utf-8")
    measured([program("ninja")], graph.ninja)


def _make_stock(graph: Graph) -> None:
    """The graph as a plain dodo.py, built."""
    _write_sources(graph, graph.stock)
    text = STOCK_DODO.format(kernels=graph.kernels, scales=graph.scales, blocks=graph.blocks, target=TARGET)
    (graph.stock / "dodo.py").write_text(text, "utf-8")
    measured(doit(), graph.stock)


def fill() -> None:
    """Write and record the outputs of all images' steps of the project in the current folder."""
    import kiln.doit_plugin.loader  # before kiln.graph, which doit's own loader must not run
    import kiln.graph
    from kiln.doit_plugin.build_folder import BUILD_FOLDER, MANIFEST, PRIVATE_FOLDER, STATE
    from kiln.doit_plugin.rules import collect
    from kiln.engine.rows import Output, Row
    from kiln.engine.state import State
    from kiln.library import Library

    root = Path(BUILD_FOLDER).absolute()
    state = State(root / PRIVATE_FOLDER / STATE)
    library = Library.load(Path(MANIFEST), root, state)
    for rule in collect(vars(kiln.graph)):
        for name, make in rule.steps(library) if rule.kind in KINDS else ():
            step = make()
            outputs = []
            for output in step.outputs:
                path = root / output
                path.parent.mkdir(parents=True, exist_ok=True)
                data = output.encode()
                path.write_bytes(data)
                ctime = path.lstat().st_ctime_ns
                digest = hashlib.sha256(data).hexdigest()
                outputs.append(Output(path=output, size=len(data), ctime_ns=ctime, sha256=digest))
            row = Row(components=dict(step.inputs()), outputs=tuple(outputs), seconds=0.1, peak_memory=100 << 20)
            state.record(name, row)
    state.commit_files()
    state.close()


if __name__ == "__main__":
    fill()

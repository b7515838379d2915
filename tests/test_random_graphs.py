"""Random graphs and random edits: a build runs exactly what a naive full check says, and leaves exactly those bytes.

The rules are random, and make small files; slices, manifest, loader, run command, outline, state, cache and pool are
those of every build. In most projects the rules pass for Kiln's own, so that the outline of the last build vouches for
their steps; in the others it vouches for none.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from doit.doit_cmd import DoitMain

import kiln.doit_plugin.run
import kiln.library  # both are imported once, here, rather than in each of the builds
from kiln.doit_plugin import rules
from kiln.engine import pool
from kiln.engine.rows import Row
from kiln.engine.state import State
from naive_build import Naive, Plan, Record
from on_demand import sized
from project import Project
from random_rules import BROKEN, Kind, name_of

GRAPHS, STEPS = sized((6, 12), (60, 40))
"""how many projects, and how many times each is edited and built"""
TESTS = str(Path(__file__).parent)

NAMES = ("alpha", "beta", "gamma", "delta", "epsilon")
KERNELS = ("one", "two", "three")
TARGETS = ("sm_80", "gfx942")
HELPERS = ("helper_a", "helper_b")
WORD = "KILN_TEST_WORD"
NO_ANSWER = 70

KERNEL = """\
import triton
import triton.language as tl
{imported}

@triton.jit
def {name}_kernel(output_ptr, input_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(input_ptr + offsets, mask=mask){comment}
    tl.store(output_ptr + offsets, x * {factor}, mask=mask)
"""

ENTRY = """\
  {name}:
    source: kernels/{name}.py
    function: {name}_kernel
    dtypes: [fp32]
    blocks: {blocks}
    targets: {targets}
    name: {name}_{{dtype}}_{{block}}
    signature: "*{{dtype}}:16, *{{dtype}}:16, i32"
    grid: ["cdiv(n_elements, BLOCK_SIZE)"]
    options: {{num_warps: {warps}}}
"""

DODO = """\
from kiln.doit_plugin.rules import rule
from random_rules import Kind, step

KINDS = {{kind.name: kind for kind in map(Kind.from_json, {kinds!r})}}
"""

RULE = """\

{name}_version = {version}


@rule("{pattern}")
def {name}(library, *subject):
    \"\"\"some files\"\"\"
    return step(library, KINDS, "{name}", {name}_version, *subject)
"""


@dataclass(kw_only=True)
class Kernel:
    """A kernel of a random project, as it is declared and written now."""

    factor: int = 2
    helper: str | None = None
    comment: str = ""
    blocks: list[int] = field(default_factory=lambda: [128])
    targets: list[str] = field(default_factory=lambda: list(TARGETS))
    warps: int = 4
    is_declared: bool = True


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a build said."""

    code: int | None
    """None for one that was killed"""
    results: Mapping[str, set[str]]
    """built, cached, failed, not_tried -> the names of steps"""
    loads: Sequence[Sequence[str] | None]
    """each time that the manifest was read: the kernels, None for all"""
    text: str


class World:
    """A random project that is edited and built."""

    def __init__(self, chance: random.Random, folder: Path) -> None:
        self.chance = chance
        self.project = Project(folder=folder)
        self.cache = folder.with_name(f"{folder.name}.cache")
        self.kinds = random_kinds(chance)
        self.versions = dict.fromkeys(self.kinds, 0)
        self.is_trusted = chance.random() < 0.8
        self.kernels = {name: Kernel(helper=chance.choice([None, *HELPERS])) for name in KERNELS}
        self.targets = list(TARGETS)
        self.variables: dict[str, str] = {}
        self.broken: set[str] = set()
        self.records: Mapping[str, Record] = {}
        self.kept: set[Any] = set()
        """what the cache must have"""
        self.maybe: set[Any] = set()
        """what it may have"""
        self.history: list[str] = []
        for name in HELPERS:
            self.write_helper(name, 1)
        for name in ("data/a.txt", "data/b.txt", "tools/cc", "tools/ld"):
            self.project.write(name, f"{name} 0\n")
        self.write_all()

    def targets_of(self, kernel: Kernel) -> list[str]:
        """What a kernel is built for: some of the library's targets."""
        return [target for target in self.targets if target in kernel.targets] or self.targets

    def names(self) -> list[str]:
        """The names of all steps."""
        images = [
            f"{name}_fp32_{block}@{target}"
            for name, kernel in self.kernels.items()
            if kernel.is_declared
            for block in kernel.blocks
            for target in self.targets_of(kernel)
        ]
        subjects = {"image": images, "target": self.targets, "library": [""]}
        return [name_of(kind, subject) for kind in self.kinds.values() for subject in subjects[kind.per]]

    # -- files

    def write_all(self) -> None:
        """Write the manifest, the kernels, and the rules."""
        entries = [
            ENTRY.format(
                name=name,
                blocks=kernel.blocks,
                targets=self.targets_of(kernel),
                warps=kernel.warps,
            )
            for name, kernel in self.kernels.items()
            if kernel.is_declared
        ]
        head = f"version: 1\nlibrary: scratch\ntargets: {self.targets}\nkernels:\n"
        self.rewrite("kernels.yaml", head + "".join(entries))
        for name, kernel in self.kernels.items():
            helper = kernel.helper
            text = KERNEL.format(
                name=name,
                imported=f"from {helper} import FACTOR\n" if helper else "",
                comment=kernel.comment,
                factor=f"{kernel.factor}{' * FACTOR' if helper else ''}",
            )
            self.rewrite(f"kernels/{name}.py", text)
        dodo = DODO.format(kinds=[kind.to_json() for kind in self.kinds.values()])
        for name, kind in self.kinds.items():
            dodo += RULE.format(name=name, version=self.versions[name], pattern=kind.pattern)
        self.rewrite("dodo.py", dodo)
        self.rewrite(BROKEN, json.dumps(sorted(self.broken)))

    def rewrite(self, name: str, text: str) -> None:
        """Write a file whose text is another one; now and then with the time stamp that it had."""
        path = self.project.folder / name
        found = path.stat() if path.exists() else None
        if found is None or path.read_text("utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            if found is not None and self.chance.random() < 0.5:
                os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))

    def write_helper(self, name: str, value: int) -> None:
        self.rewrite(f"{name}.py", f"import triton.language as tl\n\nFACTOR: tl.constexpr = tl.constexpr({value})\n")

    def made(self) -> list[Path]:
        """What was built, in order."""
        return sorted(path for path in (self.project.folder / "build/made").rglob("*") if not path.is_dir())

    # -- edits: each says what it did

    def edit_kernel(self) -> str:
        name = self.chance.choice(KERNELS)
        kernel = self.kernels[name]
        what = self.chance.choice(["factor", "factor", "helper", "comment"])
        if what == "factor":
            kernel.factor = self.chance.randrange(2, 4)
        elif what == "helper":
            kernel.helper = self.chance.choice([None, *HELPERS])
        else:
            kernel.comment = self.chance.choice(["", "  # why"])
        return f"{what} of {name}"

    def edit_helper(self) -> str:
        name = self.chance.choice(HELPERS)
        self.write_helper(name, self.chance.randrange(2))
        return name

    def edit_manifest(self) -> str:
        name = self.chance.choice(KERNELS)
        kernel = self.kernels[name]
        what = self.chance.choice(["warps", "blocks", "targets", "is_declared", "library"])
        if what == "warps":
            kernel.warps = self.chance.choice([2, 4])
        elif what == "blocks":
            kernel.blocks = self.chance.choice([[128], [256], [128, 256], [256, 128]])
        elif what == "targets":
            kernel.targets = self.chance.choice([["sm_80"], ["gfx942"], list(TARGETS)])
        elif what == "is_declared":
            kernel.is_declared = not kernel.is_declared or sum(each.is_declared for each in self.kernels.values()) == 1
        else:
            self.targets = self.chance.choice([["sm_80"], list(TARGETS), list(TARGETS)])
        declared = {target for each in self.kernels.values() if each.is_declared for target in self.targets_of(each)}
        if not set(self.targets) <= declared:
            # Each of the library's targets needs a kernel.
            kernel.is_declared, kernel.targets = True, list(TARGETS)
        return f"{what} of {name}"

    def edit_input(self) -> str:
        name = self.chance.choice(["data/a.txt", "data/b.txt", "tools/cc", "tools/ld"])
        path = self.project.folder / name
        if self.chance.random() < 0.15:
            path.unlink(missing_ok=True)
            return f"no {name}"
        self.rewrite(name, f"{name} {self.chance.randrange(2)}\n")
        return name

    def edit_variable(self) -> str:
        self.variables[WORD] = self.chance.choice("ab")
        return WORD

    def edit_rule(self) -> str:
        name = self.chance.choice([*self.kinds])
        self.versions[name] = self.chance.randrange(3)
        return f"rule {name}"

    def touch(self) -> str:
        files = [path for path in self.project.folder.rglob("*") if path.is_file() and ".kiln" not in path.parts]
        for path in self.chance.sample(files, min(3, len(files))):
            path.touch()
        return "touch"

    def damage(self) -> str:
        made = [path for path in self.made() if not path.is_symlink()]
        if not made:
            return "nothing"
        path = self.chance.choice(made)
        data, found = path.read_bytes(), path.stat()
        how = self.chance.choice(["flip", "flip", "flip", "delete", "cut", "empty", "link", "rewrite", "swap"])
        if how == "flip":
            path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
            os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
        elif how == "delete":
            path.unlink()
        elif how in ("cut", "empty"):
            path.write_bytes(data[: len(data) // 2] if how == "cut" else b"")
        elif how == "link":
            aside = self.project.folder / "aside"
            aside.write_bytes(data)
            path.unlink()
            path.symlink_to(aside)
        elif how == "rewrite":
            path.write_bytes(data)
        else:
            path.write_bytes(self.chance.choice(made).read_bytes())
        return f"{how} {path.name}"

    def lose(self) -> str:
        """What Kiln keeps for itself, or all that was built."""
        what = self.chance.choice(["outline", "outline", "state.sqlite", ".", "."])
        if what == ".":
            shutil.rmtree(self.project.folder / "build", ignore_errors=True)
        else:
            (self.project.folder / "build/.kiln" / what).unlink(missing_ok=True)
        if what != "outline":
            self.records = {}
        return f"lose {what}"

    def break_steps(self) -> str:
        self.broken = set(self.chance.choices(self.names(), k=3))
        return f"broken {sorted(self.broken)}"

    def mend_steps(self) -> str:
        self.broken = set()
        return "mend"

    def break_first(self) -> str:
        """Break a step that others come after."""
        self.broken = {self.names()[0]}
        return f"broken {sorted(self.broken)}"

    def clean(self) -> str:
        shutil.rmtree(self.project.folder / "build")
        self.records = {}
        return "clean"

    OPENING: tuple[Callable[[World], str], ...] = (break_first, mend_steps, clean)
    """What every history begins with, each with a build of all: chance alone may leave it out."""

    EDITS: tuple[tuple[Callable[[World], str], int], ...] = (
        (edit_kernel, 6),
        (edit_helper, 4),
        (edit_manifest, 3),
        (edit_input, 3),
        (edit_variable, 1),
        (edit_rule, 1),
        (touch, 1),
        (damage, 8),
        (lose, 2),
        (break_steps, 4),
        (mend_steps, 2),
    )

    def edit(self) -> None:
        """Make one random edit; now and then none, or two."""
        edits, weights = zip(*self.EDITS, strict=True)
        for change in self.chance.choices(edits, weights, k=self.chance.choice([0, 1, 1, 1, 1, 2])):
            self.history.append(change(self))
        self.write_all()

    def selection(self) -> list[str]:
        """What is asked of the next build."""
        if self.chance.random() < 0.5:
            return []
        names = self.chance.choices(self.names(), k=self.chance.choice([1, 1, 2]))
        cuts: list[Callable[[str], str]] = [
            str,
            lambda name: name.partition("@")[0],
            lambda name: name.partition(":")[0],
        ]
        return [self.chance.choice(cuts)(name) for name in names]

    # -- builds

    def plan(self, selection: Sequence[str]) -> Plan:
        """What a naive check says, from nothing: in a process of its own."""

        def ask() -> Plan:
            return Naive(self.kinds, self.records, self.broken).plan(selection)

        return self.in_a_process(ask)

    def build(self, selection: Sequence[str], *, with_cache: bool, kill_after: int | None = None) -> Told:
        """Run doit, and kill it as soon as so many steps have ended, or a moment later."""
        outputs = [self.project.folder.with_name(f"{self.project.folder.name}.{name}") for name in ("json", "errors")]
        loads: list[Sequence[str] | None] = []

        def run() -> tuple[int, list[Sequence[str] | None]]:
            for descriptor, path in enumerate(outputs, 1):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
            sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # pytest's are captured
            sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # likewise
            os.environ["KILN_CACHE"] = str(self.cache) if with_cache else "off"
            os.environ["PYTHONPATH"] = TESTS
            # The jobs of this test: the product hands no PYTHONPATH on.
            pool.ENVIRONMENT = (*pool.ENVIRONMENT, "PYTHONPATH")
            if self.is_trusted:
                rules._GRAPH = self.project.folder / "dodo.py"
            read = kiln.library.read_manifest

            def counted(path: Path, only: Sequence[str] | None = None) -> Any:
                loads.append(None if only is None else sorted(only))
                return read(path, only)

            kiln.library.read_manifest = counted  # type: ignore[assignment]  # in this process alone
            code = DoitMain().run(["-n", "2", "--json", *selection])
            sys.stdout.flush()
            sys.stderr.flush()
            return code, loads

        outputs[0].write_bytes(b"")
        busy = self.project.folder / "build/.kiln/tmp"

        def is_due() -> bool:
            ended = outputs[0].read_bytes().count(b'"step_ended"')
            return kill_after is not None and busy.exists() and ended >= kill_after

        answer = self.in_a_process(run, None if kill_after is None else is_due)
        told, errors = (path.read_text("utf-8") for path in outputs)
        # The last line of a build that is killed may be cut short.
        lines = [json.loads(line) for line in told.splitlines(keepends=True) if line.endswith("\n")]
        ended = [line for line in lines if line["event"] == "step_ended"]
        results = {
            result: {line["name"] for line in ended if line["result"] == result}
            for result in ("built", "cached", "failed", "not_tried")
        }
        code, loads = answer if answer is not None else (None, [])
        return Told(code=code, results=results, loads=loads, text=told + errors)

    def in_a_process(self, function: Callable[[], Any], is_due: Callable[[], bool] | None = None) -> Any:
        """What the function gives in a fork of this process, in the project's folder.

        None when it is killed first, which it is once that `is_due`.
        """
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = NO_ANSWER
            try:
                os.close(reader)
                os.chdir(self.project.folder)
                os.environ.update(self.variables)
                answer = pickle.dumps(function())
                with os.fdopen(writer, "wb") as file:
                    file.write(answer)
                code = 0
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(code)
        os.close(writer)
        if is_due is not None:
            pause = self.chance.uniform(0, 0.02)
            while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None and not is_due():
                time.sleep(0.001)
            time.sleep(pause)
            os.kill(pid, signal.SIGKILL)
        with os.fdopen(reader, "rb") as file:
            data = file.read()
        _, status = os.waitpid(pid, 0)
        if is_due is None:
            assert status == 0, self.history
        return pickle.loads(data) if status == 0 else None

    def rows(self) -> dict[str, Row]:
        """What the state has of each step."""
        path = self.project.folder / "build/.kiln/state.sqlite"
        return dict(State(path).rows.items()) if path.exists() else {}

    def check(self, plan: Plan, told: Told, selection: Sequence[str], *, with_cache: bool) -> None:
        """Hold a build that ended against what the naive check said before it, and remember it."""
        results = told.results
        what = "\n".join([*self.history, f"doit {selection}", told.text, *map(str, self.kinds.values())])
        assert results["built"] | results["cached"] == plan.ran, what
        assert results["failed"] == plan.failed, what
        assert results["not_tried"] == plan.not_tried, what
        assert told.code == (1 if plan.failed else 0), what
        for name in plan.ran | plan.fresh:
            for path, data in plan.records[name].outputs.items():
                assert (self.project.folder / "build" / path).read_bytes() == data, (name, path, what)
        there = {path.relative_to(self.project.folder / "build").as_posix() for path in self.made()}
        assert there <= plan.outputs, what
        # What a killed build left is removed by the next that has something to do.
        assert not (plan.ran and (self.project.folder / "build/.kiln/tmp").exists()), what
        if with_cache:
            for name in plan.ran:
                key = plan.keys.get(name)
                if key is None or key not in self.maybe:
                    others = [plan.keys.get(other) for other in plan.ran - {name}]
                    assert name in results["built"] or (key is not None and key in others), (name, what)
                elif key in self.kept:
                    assert name in results["cached"], (name, what)
            self.kept |= set(plan.keys.values())
            self.maybe |= set(plan.keys.values())
        else:
            assert not results["cached"], what
        self.records = plan.records

    def check_killed(self, plan: Plan, before: Mapping[str, Row], *, with_cache: bool) -> int:
        """The same for one that was killed: what it recorded, it had to run. How many that are."""
        after = self.rows()
        moved = {name: row for name, row in after.items() if row != before.get(name)}
        ran, failed = ({name for name, row in moved.items() if row.valid is valid} for valid in (True, False))
        assert ran <= plan.ran, (ran - plan.ran, self.history)
        assert failed <= plan.failed, (failed - plan.failed, self.history)
        chosen = {name: (plan.records if name in moved else self.records)[name] for name in after}
        for name in ran:
            for path, data in chosen[name].outputs.items():
                assert (self.project.folder / "build" / path).read_bytes() == data, (name, path)
        self.records = chosen
        if with_cache:
            self.maybe |= set(plan.keys.values())
        return len(moved)


def random_kinds(chance: random.Random) -> dict[str, Kind]:
    """Kinds of steps, each after some that stand before it."""
    kinds: dict[str, Kind] = {}
    for number, name in enumerate(NAMES[: chance.randrange(3, len(NAMES) + 1)]):
        per = "image" if number == 0 else chance.choice(["image", "image", "image", "target", "library"])
        earlier = [*kinds]
        if per == "image" and chance.random() < 0.9:
            # As in Kiln's own graph. Of what comes after others' steps the outline knows nothing.
            earlier = [other.name for other in kinds.values() if other.per == "image"]
        after = tuple(chance.sample(earlier, min(len(earlier), chance.choice([1, 1, 2]))))
        kinds[name] = Kind(
            name=name,
            per=per,
            after=after,
            outputs=chance.choice([1, 1, 2]),
            values=chance.choice([None, None, 1, 2, 3]),
            is_cached=chance.random() < 0.8,
            reads_source=per == "image" and (number == 0 or chance.random() < 0.3),
            data=chance.choice([None, None, "data/a.txt", "data/b.txt"]),
            variable=chance.choice([None, None, WORD]),
            tool=chance.choice([None, "tools/cc", "tools/ld"]),
            rides=per == "image" and [kinds[each].per for each in after] == ["image"] and chance.random() < 0.7,
        )
    return kinds


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the settings of a new one."""
    project = Project.create(tmp_path_factory.mktemp("random") / "template")
    for name in ("dodo.py", "kernels.yaml"):
        (project.folder / name).unlink()
    shutil.rmtree(project.folder / "kernels")
    return project.folder


def test_a_build_runs_exactly_what_a_naive_full_check_says(template: Path, tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for seed in range(GRAPHS):
        chance = random.Random(seed)
        shutil.copytree(template, tmp_path / f"world{seed}")
        world = World(chance, tmp_path / f"world{seed}")
        world.history.append(f"seed {seed}, {'own rules' if world.is_trusted else 'foreign rules'}")
        for number in range(STEPS):
            is_opening = number < len(World.OPENING)
            if is_opening:
                world.history.append(World.OPENING[number](world))
                world.write_all()
            else:
                world.edit()
            selection = [] if is_opening else world.selection()
            # What fails in a child does not where the cache has it.
            with_cache = not world.broken and (is_opening or chance.random() < 0.75)
            plan = world.plan(selection)
            if plan.ran and not is_opening and chance.random() < 0.25:
                rows = world.rows()
                told = world.build(selection, with_cache=with_cache, kill_after=chance.randrange(3))
                if told.code is None:
                    world.history.append(f"killed doit {selection}")
                    seen["killed with work done"] += bool(world.check_killed(plan, rows, with_cache=with_cache))
                    continue
            else:
                told = world.build(selection, with_cache=with_cache)
            world.history.append(f"doit {selection}{' with the cache' if with_cache else ''}: {told.loads}")
            world.check(plan, told, selection, with_cache=with_cache)
            seen["nothing read"] += not told.loads
            seen["some kernels read"] += any(loaded is not None for loaded in told.loads)
            seen["all kernels read"] += None in told.loads
            for result, names in told.results.items():
                seen[result] += len(names)
            seen["fresh"] += len(plan.fresh)
            seen["rode"] += len(world.project.rode()) if told.results["built"] else 0
    # All that can happen has happened, or the rest says little.
    assert not {name for name in _HAPPENS if not seen[name]}, seen


_HAPPENS = (
    "nothing read",
    "some kernels read",
    "all kernels read",
    "built",
    "cached",
    "failed",
    "not_tried",
    "fresh",
    "rode",
    "killed with work done",
)

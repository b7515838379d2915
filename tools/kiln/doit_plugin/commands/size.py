"""doit's command `size`: what the images that are built use, as a table by kernel and target."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from doit.cmd_base import DoitCmdBase
from doit.exceptions import InvalidCommand

from kiln.binaries.facts import Facts
from kiln.doit_plugin.loader import KilnLoader
from kiln.doit_plugin.reporting.wording import columns, size_text
from kiln.doit_plugin.tasks import Freshness
from kiln.errors import did_you_mean
from kiln.library import Library
from kiln.manifest.model import Image

SCHEMA = 1
"""version of what --json prints"""

State = Literal["built", "stale", "not built"]

_BY = {
    "name": "by",
    "short": "",
    "long": "by",
    "type": str,
    "default": "kernel",
    "choices": (("kernel", "one line a kernel and target"), ("variant", "one line an image")),
    "help": "what a line of the table stands for",
}
_JSON = {
    "name": "json",
    "short": "",
    "long": "json",
    "type": bool,
    "default": False,
    "help": "print every selected image as JSON, sizes in bytes, null for what is not known",
}
_CRATE = {
    "name": "crate",
    "short": "",
    "long": "crate",
    "type": bool,
    "default": False,
    "help": "print how large the Rust crate is when Cargo packs it, by target, and how to split one that is too large",
}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One image of the manifest, and what it uses where it is built and up to date."""

    image: Image
    state: State
    facts: Facts | None
    """None unless the state is `built`"""


class Size(DoitCmdBase):  # type: ignore[misc]  # doit has no types
    """Prints, and builds nothing. Images that the next build makes anew are named, and not counted."""

    name = "size"
    doc_purpose = "show how large the built images are, and what they use of registers and memory"
    doc_usage = "[KERNEL|TARGET|VARIANT|IMAGE ...]"
    doc_description = (
        "Names select images: of several kernels, variants and images those of any, of these those for one of the "
        "targets. `regs` is registers a thread, `spills` and `stack` bytes a thread, `shared` bytes a block; each is "
        "the largest of the images of a line, and a dash where an image does not tell, as a PTX."
    )
    cmd_options = (_BY, _JSON, _CRATE)

    def _execute(self, by: str, json: bool, crate: bool, pos_args: Sequence[str]) -> int:
        loader = self.loader
        if not isinstance(loader, KilnLoader) or loader.library is None:
            raise InvalidCommand("dodo.py has no rules of Kiln's, and so there are no images")
        library = loader.library
        if crate:
            if pos_args:
                raise InvalidCommand(f"--crate is about the whole crate, and takes no names: {pos_args[0]!r}")
            self.outstream.write(_crate_text(loader, library, as_json=json))
            return 0
        selected = [_measured(loader, library, image) for image in select(library.images, pos_args)]
        text = as_json(selected) if json else as_table(selected, by=by)
        self.outstream.write(text)
        return 0


def select(images: Sequence[Image], names: Iterable[str]) -> list[Image]:
    """The images that some names mean, all without any. Raises InvalidCommand for a name that means nothing."""
    kernels, targets, others = set[str](), set[str](), set[str]()
    known_kernels = {image.variant.kernel.key for image in images}
    known_targets = {image.target for image in images}
    known = {image.variant.id for image in images} | {image.id for image in images}
    for name in names:
        if name.startswith("-"):
            raise InvalidCommand(f"{name} stands behind a name: write options in front of all names")
        found = False
        for kind, wanted in ((known_kernels, kernels), (known_targets, targets), (known, others)):
            if name in kind:
                wanted.add(name)
                found = True
        if not found:
            every = sorted(known_kernels | known_targets | known)
            hint = did_you_mean(name, every) or f"there are the kernels {', '.join(sorted(known_kernels))}"
            raise InvalidCommand(f"there is no kernel, target, variant or image {name!r}: {hint}")
    chosen = [
        image
        for image in images
        if (not targets or image.target in targets)
        and (
            not (kernels or others)
            or image.variant.kernel.key in kernels
            or not others.isdisjoint((image.variant.id, image.id))
        )
    ]
    if not chosen:
        raise InvalidCommand(
            f"nothing is selected: {', '.join(sorted(kernels | others))} is not built for {', '.join(sorted(targets))}"
        )
    return chosen


def _crate_text(loader: KilnLoader, library: Library, *, as_json: bool) -> str:
    """Raises InvalidCommand where the crate is not what a build would leave as it is."""
    if not all(_is_fresh(loader, name) for name in _with_what_it_needs(loader, "crate")):
        raise InvalidCommand("the crate is not built, or not up to date: `doit crate` builds it")
    # It compresses, which the table does not.
    from kiln.doit_plugin.commands.crate_size import crate_as_json, crate_as_table
    from kiln.packaging.crate_parts import LIMIT, parts_of

    parts = parts_of(library.manifest, library.build / "rust" / library.manifest.library)
    show = crate_as_json if as_json else crate_as_table
    return show(library.manifest, parts, LIMIT)


def _with_what_it_needs(loader: KilnLoader, name: str) -> Iterator[str]:
    """A step, and all before it."""
    known, waiting = {name}, [name]
    while waiting:
        step = waiting.pop()
        yield step
        after = loader.makers[step][1]().after if step in loader.makers else ()
        waiting += [each for each in after if each not in known]
        known.update(after)


def _is_fresh(loader: KilnLoader, name: str) -> bool:
    """Whether a build would leave a step as it is; a dodo.py may have rules for some kinds alone."""
    if name not in loader.makers:
        return False
    assert loader.build is not None  # it comes with the library
    return Freshness(loader.build, name, loader.makers[name][1]())()


def _measured(loader: KilnLoader, library: Library, image: Image) -> Measured:
    name, path = f"compile:{image.id}", library.build / library.facts_path(image)
    row = library.state.rows.get(name)
    if row is None or not path.exists():
        return Measured(image=image, state="not built", facts=None)
    if not _is_fresh(loader, name):
        return Measured(image=image, state="stale", facts=None)
    return Measured(image=image, state="built", facts=Facts.from_json(path.read_text("utf-8")))


def as_json(selected: Iterable[Measured]) -> str:
    """Every image in order of declaration, ending with a newline."""
    images = [
        {
            "image": each.image.id,
            "kernel": each.image.variant.kernel.key,
            "variant": each.image.variant.id,
            "target": each.image.target,
            "state": each.state,
            "uses": each.facts.used if each.facts is not None else None,
        }
        for each in selected
    ]
    return json.dumps({"schema": SCHEMA, "images": images}, indent=1) + "\n"


def as_table(selected: Sequence[Measured], *, by: str) -> str:
    """Lines for people: by kernel and target or by variant, then totals by target, then what is left out and why."""
    built = [each for each in selected if each.facts is not None]
    rows: list[list[str]] = []
    if built:
        head = "kernel" if by == "kernel" else "variant"
        rows.append([head, "target", "images", "total", "largest", "regs", "spills", "stack", "shared"])
        rows += _rows(built, lambda each: each.image.variant.kernel.key if by == "kernel" else each.image.variant.id)
        rows += _totals(selected, built) if len(rows) > 2 else []
    return "\n".join([*columns(rows, names=2), *_left_out(selected, bool(built))]) + "\n"


def _rows(built: Sequence[Measured], key: Callable[[Measured], str]) -> list[list[str]]:
    """A line for each name and target, the name on its first line only."""
    rows = []
    for name, group in groupby(built, key):
        members, shown = list(group), name
        for target in dict.fromkeys(each.image.target for each in members):
            rows.append(_row(shown, target, [each for each in members if each.image.target == target]))
            shown = ""
    return rows


def _totals(selected: Sequence[Measured], built: Sequence[Measured]) -> list[list[str]]:
    """An empty line, a line for each target, and one for all where there are several."""
    targets = [
        target
        for target in dict.fromkeys(each.image.target for each in selected)
        if any(each.image.target == target for each in built)
    ]
    rows = [[], *(_row("all", target, [each for each in built if each.image.target == target]) for target in targets)]
    return [*rows, _row("all", "all", built)] if len(targets) > 1 else rows


def _row(name: str, target: str, members: Sequence[Measured]) -> list[str]:
    used = [each.facts.used for each in members if each.facts is not None]
    most = {field: _most([each[field] for each in used]) for field in used[0]}
    total = sum(each["size"] or 0 for each in used)
    regs = "-" if most["registers"] is None else str(most["registers"])
    sizes = [_bytes(most[field]) for field in ("spills", "stack", "shared")]
    return [name, target, str(len(members)), _bytes(total), _bytes(most["size"]), regs, *sizes]


def _most(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return max(known) if known else None


def _bytes(count: int | None) -> str:
    return "-" if count is None else size_text(count)


def _left_out(selected: Sequence[Measured], is_table: bool) -> list[str]:
    """What is not in the table, and what to do about it."""
    lines = []
    for state, why in (("stale", "not up to date, and not counted"), ("not built", "not built")):
        ids = [each.image.id for each in selected if each.state == state]
        if ids:
            more = [f"and {len(ids) - 8} more"] if len(ids) > 8 else []
            lines.append(f"{why}: {len(ids)} of {len(selected)} images; `doit` builds them")
            lines += textwrap.wrap(
                ", ".join([*ids[:8], *more]),
                100,
                initial_indent="    ",
                subsequent_indent="    ",
                break_on_hyphens=False,
            )
    return ["", *lines] if lines and is_table else lines

"""Rules of random graphs, for a dodo.py: real slices, files, variables and tools go in, and small files come out.

What a step makes follows from its inputs alone, and often it is the same for other inputs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kiln import files
from kiln.engine.step import Built, Call, Step
from kiln.errors import KilnError

if TYPE_CHECKING:
    from kiln.library import Library

BROKEN = "broken.json"
"""in the project: the names of steps that fail, and nobody's input"""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What the steps of one kind are like."""

    name: str
    per: str
    """image, target or library: what there is a step for"""
    after: tuple[str, ...]
    """the kinds that its steps come after, as far as these are about the same"""
    outputs: int
    values: int | None
    """how many different things a step may make; None for as many as there are inputs"""
    is_cached: bool
    reads_source: bool
    """the slice of the image's kernel, with all that its variant declares"""
    data: str | None
    """a file of the project"""
    variable: str | None
    tool: str | None
    rides: bool
    """its steps ride on those of the one kind that they come after; that is about the same image"""

    @property
    def pattern(self) -> str:
        """Of its rule."""
        return self.name if self.per == "library" else f"{self.name}:<{self.per}>"

    def to_json(self) -> dict[str, Any]:
        """What `from_json` takes."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Kind:
        return cls(**{**value, "after": tuple(value["after"])})


def name_of(kind: Kind, subject: str) -> str:
    """A step's name: alpha:one_fp32_128@sm_80, beta:sm_80, gamma."""
    return kind.name if kind.per == "library" else f"{kind.name}:{subject}"


def outputs_of(kind: Kind, name: str) -> tuple[str, ...]:
    """What a step makes, below the build folder."""
    return tuple(f"made/{name.replace(':', '/')}.{number}" for number in range(kind.outputs))


def made(kind: Kind, inputs: Mapping[str, str], read: Sequence[str]) -> list[str]:
    """What a step writes, from its inputs and from what it reads of the steps that it comes after."""
    own = {name: value for name, value in inputs.items() if name != "rule" and not name.startswith("made by ")}
    value = int(hashlib.sha256(json.dumps([sorted(own.items()), list(read)]).encode()).hexdigest(), 16)
    text = str(value if kind.values is None else value % kind.values)
    return [f"{kind.name} {number} {text}\n" * 40 for number in range(kind.outputs)]


def make(kind: dict[str, Any], inputs: dict[str, str], read: list[Path], name: str, broken: str, staging: Path) -> None:
    """The child's side of a step."""
    texts = [path.read_text("utf-8") for path in read]
    if name in json.loads(Path(broken).read_text("utf-8")):
        raise KilnError(f"{name} is broken")
    own = Kind.from_json(kind)
    for output, text in zip(outputs_of(own, name), made(own, inputs, texts), strict=True):
        path = staging / output
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def before(library: Library, kinds: Mapping[str, Kind], kind: Kind, subject: str) -> dict[str, list[str]]:
    """kind -> the names of the steps of it that a step comes after"""
    found: dict[str, list[str]] = {}
    for other in map(kinds.__getitem__, kind.after):
        if other.per == "library":
            subjects = [""]
        elif other.per == "target":
            subjects = list(library.manifest.targets) if kind.per == "library" else [subject.rpartition("@")[2]]
        elif kind.per == "image":
            subjects = [subject]
        else:
            images = library.images if kind.per == "library" else library.images_for(subject)
            subjects = [image.id for image in images]
        found[other.name] = [name_of(other, each) for each in subjects]
    return found


def step(library: Library, kinds: Mapping[str, Kind], name: str, version: int, *subject: Any) -> Step:
    """The step of a kind that is about an image, a target, or all."""
    kind = kinds[name]
    about = "" if not subject else subject[0] if kind.per == "target" else subject[0].id
    own = name_of(kind, about)
    others = before(library, kinds, kind, about)
    asked: dict[str, str] = {}

    def inputs() -> Mapping[str, str]:
        # Two versions of a rule in a row make the same.
        found = {"version": str(version // 2)}
        if kind.reads_source:
            # Not where steps run: there this module is imported as well.
            from kiln.compilers.request import components

            found |= components(library.request(subject[0]))
        if kind.data is not None:
            found["data"] = files.read(Path(kind.data)).decode()
        if kind.variable is not None:
            found["variable"] = files.variable(kind.variable) or ""
        if kind.tool is not None:
            found["tool"] = library.state.files.of(Path(kind.tool).absolute())
        asked.clear()
        asked.update(found)
        if kind.rides:
            # Of what a step is to ride on, the digest of each file by itself.
            return found | {
                f"made by {each}: {output}": library.output(each, output)
                for other, names in others.items()
                for each in names
                for output in outputs_of(kinds[other], each)
            }
        return found | {f"made by {other}": library.outputs(names) for other, names in others.items()}

    return Step(
        after=tuple(name for names in others.values() for name in names),
        rides=kind.rides,
        inputs=inputs,
        call=lambda: Call(
            function="random_rules:make",
            arguments={
                "kind": kind.to_json(),
                "inputs": dict(asked),
                "read": [
                    Built(output)
                    for other, names in others.items()
                    for each in names
                    for output in outputs_of(kinds[other], each)
                ],
                "name": own,
                "broken": str(Path(BROKEN).absolute()),
            },
        ),
        outputs=outputs_of(kind, own),
        cached=tuple(str(number) for number in range(kind.outputs)) if kind.is_cached else (),
    )

"""A step: one unit of work with named inputs and declared outputs. The engine does not know what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def kind_of(name: str) -> str:
    """The kind of step that a name begins with: `compile` of `compile:<image>`. Steps of one kind do alike work."""
    return name.partition(":")[0]


Found = Mapping[str, Sequence[str]]
"""What a call found out that it reads: the name of an input -> the names of what that input is over."""


@dataclass(frozen=True)
class Built:
    """A file of the build, anywhere among the arguments of a call: the function gets its Path.

    That is `path` below the build folder or, for a call that rides along, where the file is before it is published.
    """

    path: str
    """relative to the build folder, with forward slashes"""

    def __reduce__(self) -> tuple[type[Built], tuple[str]]:
        """As a call, so that whoever reads it can have something else called."""
        return Built, (self.path,)


@dataclass(frozen=True, kw_only=True)
class Call:
    """A function to run in a child process of its own: `function(**arguments, staging=<empty folder>)`.

    It is named, not passed, so that the parent of a build that has nothing to do never imports it. It writes each
    output of its step below `staging`, under the output's relative path. What it found out that it reads it returns
    as a mapping, see `Step.found`; any other value is dropped. It raises KilnError for what people should read;
    anything else is shown with its traceback.
    """

    function: str
    """`package.module:function`"""
    arguments: Mapping[str, Any]
    """must pickle; data only"""
    preload: tuple[str, ...] = ()
    """modules that the fork server imports once, beside the function's own, before it forks the child"""
    environment: Mapping[str, str] = field(default_factory=dict)
    """added to the small environment that every child gets"""
    seconds: float = 1800.0
    """wall-clock limit: a compiler that hangs costs its own step only"""
    memory: int = 24 << 30
    """limit of the child's address space in bytes (LLVM maps far more than it touches)"""


@dataclass(frozen=True, kw_only=True)
class Text:
    """What the digest of a named input is over, as people read it."""

    body: str
    """lines of source; of a list a line for each entry: a name, a tab, and a digest or a short value, if any"""
    place: str | None = None
    """the file that it stands in"""
    lines: Sequence[int] = ()
    """of each line of the body, its number there; empty where they count from 1"""
    is_list: bool = False


@dataclass(frozen=True, kw_only=True)
class Step:
    """One unit of work. Stale when an input's digest or an output's bytes are not what was recorded."""

    inputs: Callable[[], Mapping[str, str]]
    """named components -> digest or short value; asked when the steps it comes `after` have ended"""
    found: Callable[[Found], Mapping[str, str]] = lambda found: {}
    """Digests of what only a run can tell that it reads, such as the headers that a compiler opened, by the names that
    the last run returned: inputs like the others. Asked when a step has ended, and before it is taken to be fresh."""
    call: Callable[[], Call]
    """asked only when the step is stale"""
    outputs: tuple[str, ...]
    """relative to the build folder, with forward slashes"""
    cached: tuple[str, ...] = ()
    """The role of each output, in their order, for a step whose outputs go to the cache: `("image", "facts")`. What it
    makes must follow from its inputs and these words alone: whoever has the same gets the same bytes, under whatever
    names. Empty for a step that makes nothing that others could use."""
    after: tuple[str, ...] = ()
    """names of the tasks that must have ended well before this one starts"""
    rides: bool = False
    """Short work on what the one step that it comes `after` makes: done in that step's child too, when that runs.

    Its call names those files as `Built`, and its inputs have the digest of each as it was published, by itself: by
    that it is told which inputs were to change meanwhile. What is done with it then is as if it had run by itself."""
    sources: tuple[Path, ...] = ()
    """files that people edit and that this step reads, for listings"""
    origin: tuple[str, ...] = ()
    """where people declared this work, for the head of a failure: `kernels.yaml:9:3`, `kernels/softmax.py:7`"""
    text: Callable[[str, str, Found], Text | None] = lambda name, digest, found: None
    """What an input is over, by its name, its digest, and what the run found: kept with the record when the step has
    run, so that people can be shown what changed since. None for what has no such text. Nothing depends on it."""
    warning: Callable[[], str | None] = lambda: None
    """what people should know of work like this, however well it ends; asked only when the step runs"""

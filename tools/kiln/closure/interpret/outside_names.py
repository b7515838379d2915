"""What code outside the project gives, as the interpreter knows it: the target for probes, tables for number formats.

Nothing is imported but the parts of Python's library that only compute, and the machine that builds is never asked.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import importlib.util
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kiln.closure import packages, triton_names
from kiln.closure.interpret.answers import (
    ABSENT,
    ANSWERED,
    CALLS,
    NO_SUCH_DEVICE,
    TARGETS,
    TRUE,
    VALUES,
    UndeclaredVariable,
    is_has_triton,
)
from kiln.closure.interpret.number_formats import format_of
from kiln.closure.interpret.sizes import bounded, check_call, items_of
from kiln.closure.interpret.values import (
    FunctionValue,
    LocalFunction,
    Method,
    Once,
    OutsideValue,
    Partial,
    Raised,
    Undecided,
    VersionValue,
    is_plain,
    plain,
)
from kiln.closure.world import ARCH, BACKEND, PYTHON, TRITON_VERSION, WARP_SIZE, World, environment_fact

_PLAIN_CALLS = {
    "dataclasses",
    "fractions",
    "itertools",
    "math",
    "operator",
    "re",
    "string",
    "copy",
}
_IMPORTED_ANYWAY = frozenset(
    {
        "abc",
        "ast",
        "collections",
        "contextlib",
        "enum",
        "functools",
        "importlib",
        "inspect",
        "json",
        "os",
        "platform",
        "sys",
        "types",
        "typing",
        "warnings",
    }
)
"""modules that every process of a build has imported: looking at what they have changes nothing"""
_IN_PLACE = re.compile(r"operator\.(delitem|setitem|i(add|and|concat|\w*shift|\w*div|matmul|mod|mul|or|pow|sub|xor))")
"""functions that may change what they are given"""
_CALL_BACK = {"functools.reduce", "itertools.starmap", "itertools.filterfalse"}


_CALLABLE = (FunctionValue, LocalFunction, Method, OutsideValue, Partial)
"""values that Python's own functions cannot call"""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A value that is kept, with what was asked to find it."""

    value: object
    asked: frozenset[str]
    refused: frozenset[str]


class OutsideNames:
    """Answers for one run of the interpreter; `asked` collects what was asked for, in the words of Closure.asked."""

    def __init__(self, world: World, asked: set[str], items: Callable[[object], list[object]]) -> None:
        self.world: World = world
        self.asked: set[str] = asked
        self.refused: set[str] = set()
        """the names that were answered, and that no slice can have"""
        self._items = items

    def told(self, fact: str, value: object) -> object:
        """A fact of the world, taken down as asked for."""
        self.asked.add(fact)
        return value

    def noted(self, run: Callable[[], object]) -> Found:
        """The result of `run`, with what it asks."""
        asked, refused = self.asked, self.refused
        self.asked, self.refused = set(), set()
        try:
            value = run()
            return Found(value=value, asked=frozenset(self.asked), refused=frozenset(self.refused))
        finally:
            asked |= self.asked
            refused |= self.refused
            self.asked, self.refused = asked, refused

    def again(self, found: Found) -> object:
        """A value that is used once more: whoever uses it asks what was asked for it."""
        self.asked |= found.asked
        self.refused |= found.refused
        return found.value

    # -- imports

    def exists(self, dotted: str) -> bool | None:
        """Whether an import finds a module, or a name in it; None where that cannot be told."""
        top, _, rest = dotted.partition(".")
        if top == "triton":
            return self._triton_has(rest) if rest else True
        if top in sys.stdlib_module_names:
            found = _standard_has(dotted)
            if found is False:
                self.asked.add(PYTHON)
            return found
        if any(known.startswith(f"{dotted}.") for known in ANSWERED):
            # It can be asked something, although it is not there.
            return True
        return any(self._answers(name) for name in (dotted, f"{dotted}()"))

    def _triton_has(self, path: str) -> bool | None:
        if self.world.triton_folder is None:
            return None
        found = triton_names.has(self.world.triton_folder, tuple(path.split(".")))
        if found is False:
            self.asked.add(TRITON_VERSION)
        return found

    def _answers(self, dotted: str) -> bool:
        """Whether the table has something for a name of a foreign package."""
        if dotted.endswith("()"):
            dotted = dotted[:-2]
            return dotted in CALLS or dotted in TRUE or dotted in NO_SUCH_DEVICE or is_has_triton(dotted)
        return dotted in VALUES or format_of(dotted) is not None

    # -- values

    def known_as(self, dotted: str) -> str:
        """The name under which the tables know it: `triton.Config` for `triton.runtime.autotuner.Config`."""
        return _canonical(dotted)

    def value(self, dotted: str) -> object:
        """What a name of another package stands for."""
        dotted = _canonical(dotted)
        for target in TARGETS:
            if dotted.startswith(f"{target}."):
                return self._of_target(dotted.removeprefix(f"{target}."))
        if packages.refusal(dotted.partition("()")[0]) is not None:
            self.refused.add(dotted)
        if dotted in VALUES:
            return VALUES[dotted](self)
        module, _, name = dotted.rpartition(".")
        if module == "math" and name in ("pi", "e", "tau", "inf", "nan"):
            return getattr(importlib.import_module("math"), name)
        if module == "string" and name in packages.COMPUTING["string"] and name.islower():
            return getattr(importlib.import_module("string"), name)
        if name == "itemsize" and (known := format_of(module)) is not None:
            return known.bits // 8
        if (
            (module == "triton" or module.startswith("triton."))
            and "()" not in module
            and self._triton_has(dotted.partition(".")[2]) is False
        ):
            raise Raised(AttributeError, f"Triton {self.world.triton_version} has no {dotted}")
        if dotted.partition(".")[0] in (*sys.stdlib_module_names, "builtins") and "()" not in dotted:
            self._check_standard(dotted)
        return OutsideValue(dotted=dotted)

    def _check_standard(self, dotted: str) -> None:
        """What Python's library or a builtin does not have raises in the code, which may be there to catch that."""
        if _standard_has(dotted) is False:
            self.asked.add(PYTHON)
            module, _, name = dotted.rpartition(".")
            raise Raised(AttributeError, f"{module} has no {name!r}")

    def _of_target(self, name: str) -> object:
        if name == "backend":
            return self.backend()
        if name == "arch":
            return self.told(ARCH, self.world.arch)
        if name == "warp_size":
            return self.told(WARP_SIZE, self.world.warp_size)
        raise Undecided(f"the target has no {name!r} that is known before the run")

    def backend(self) -> str:
        """cuda or hip"""
        self.asked.add(BACKEND)
        return self.world.backend

    def capability(self) -> tuple[int, int]:
        """See World.capability."""
        self.asked.add(ARCH)
        return self.world.capability

    # -- attributes of answers

    def attribute(self, value: OutsideValue, name: str) -> object:
        """`value.name`"""
        return self.value(f"{value.dotted}.{name}")

    def has(self, value: OutsideValue, name: str) -> bool:
        """`hasattr(value, name)`"""
        dotted = f"{_canonical(value.dotted)}.{name}"
        if dotted in ABSENT:
            return False
        known = self.exists(dotted) if "()" not in dotted else None
        if known is None or (not known and not dotted.startswith("triton.")):
            raise Undecided(f"whether {value.dotted} has {name!r} is not known before the run")
        self.asked.add(TRITON_VERSION if dotted.startswith("triton.") else PYTHON)
        return known

    # -- environment

    def variable(self, name: object, default: object = None) -> object:
        """A variable that kernels.yaml declares; None or the default when it is declared to be unset."""
        if not isinstance(name, str):
            raise Undecided("the name of a variable of the environment is not known before the run")
        if name not in self.world.environment:
            raise UndeclaredVariable(name)
        self.asked.add(environment_fact(name))
        value = self.world.environment[name]
        return default if value is None else value

    # -- calls

    def call(
        self,
        dotted: str,
        positional: Sequence[object],
        keywords: Mapping[str, object],
        call_back: Callable[[object, Sequence[object]], object],
    ) -> object:
        """The result of a call of something outside; `call_back` calls what the arguments hold."""
        dotted = _canonical(dotted)
        if dotted in TRUE or is_has_triton(dotted):
            return True
        if dotted in NO_SUCH_DEVICE:
            return False
        if dotted in CALLS:
            return CALLS[dotted](self, *positional, **keywords)
        if f"{dotted}()" in TARGETS:
            return OutsideValue(dotted=TARGETS[0])
        if dotted in _CALL_BACK:
            function, items, *rest = positional
            return _called_back(dotted, lambda *given: call_back(function, given), self._items(items), rest)
        if dotted == "functools.partial":
            return Partial(function=positional[0], positional=tuple(positional[1:]), keywords=dict(keywords))
        module, _, name = dotted.rpartition(".")
        if module.partition(".")[0] in _PLAIN_CALLS and name in packages.COMPUTING.get(module, ()):
            return _plain_call(getattr(importlib.import_module(module), name), dotted, positional, keywords)
        if dotted == "itertools.chain.from_iterable":
            return Once(item for items in self._items(positional[0]) for item in self._items(items))
        raise Undecided(f"what {dotted}() gives is not known before the run")


def _canonical(dotted: str) -> str:
    """The name under which the tables know something that several modules of a package have."""
    for prefix, known in _RENAMED.items():
        if dotted == prefix or dotted.startswith((f"{prefix}.", f"{prefix}(")):
            return known + dotted.removeprefix(prefix)
    return dotted


_RENAMED = {
    "triton.language.core": "triton.language",
    "triton.language.target_info.driver": "triton.runtime.driver",
    "triton.runtime.driver.driver": "triton.runtime.driver",
    "triton.runtime.autotuner.Config": "triton.Config",
    "triton.runtime.Config": "triton.Config",
    "triton.runtime.jit.constexpr_function": "triton.constexpr_function",
    "torch._inductor.runtime.triton_compat.triton": "triton",
}


def _standard_has(dotted: str) -> bool | None:
    """Whether this Python's library has a module, or a name in one that may be imported to look; builtins too."""
    words = dotted.split(".")
    if words[0] == "builtins" and len(words) == 3:
        return hasattr(getattr(builtins, words[1], None), words[2])
    for depth in (2, 1):
        module = ".".join(words[:depth])
        if (module in packages.COMPUTING or module in _IMPORTED_ANYWAY) and len(words) > depth:
            found = importlib.import_module(module)
            if hasattr(found, words[depth]):
                return True
            below = f"{module}.{words[depth]}"
            return hasattr(found, "__path__") and importlib.util.find_spec(below) is not None
    return True if len(words) == 1 else None


def _plain_call(
    function: Callable[..., object], dotted: str, positional: Sequence[object], keywords: Mapping[str, object]
) -> object:
    given = [item.taken() if isinstance(item, Once) else plain(item) for item in positional]
    named = {name: plain(item) for name, item in keywords.items()}
    versions = dotted.startswith("operator.") and all(isinstance(item, VersionValue) for item in given)
    holds_any = dotted.startswith(("itertools.", "copy."))
    callbacks = any(isinstance(item, _CALLABLE) for item in [*given, *named.values()])
    if callbacks or not (versions or holds_any or all(map(is_plain, [*given, *named.values()]))):
        raise Undecided(f"what {dotted}() is given is not known before the run")
    if dotted in ("itertools.count", "itertools.cycle") or (dotted == "itertools.repeat" and len(given) < 2):
        raise Undecided(f"{dotted}() never ends")
    if _IN_PLACE.fullmatch(dotted):
        raise Undecided(f"{dotted}() may change what it is given, and is not followed")
    check_call(dotted, given, named)
    result = function(*given, **named)
    return Once(items_of(result), *given) if dotted.startswith("itertools.") else bounded(result)  # type: ignore[arg-type]  # an iterator, by its name


def _called_back(
    dotted: str, function: Callable[..., object], items: Iterable[object], rest: Sequence[object]
) -> object:
    if dotted == "functools.reduce":
        return functools.reduce(function, items, *rest)
    if dotted == "itertools.starmap":
        return Once(itertools.starmap(function, items))  # type: ignore[arg-type]  # others raise, as in Python
    return Once(item for item in items if not function(item))

"""Python's builtins and the methods of its own containers, texts and numbers, as the interpreter calls them."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kiln.closure import packages
from kiln.closure.interpret.operations import binary, run_native
from kiln.closure.interpret.sizes import LONGEST, bounded, check_call, check_method, check_power
from kiln.closure.interpret.values import (
    ClassValue,
    ConstexprValue,
    FunctionValue,
    LocalFunction,
    Method,
    Once,
    OutsideValue,
    Partial,
    Raised,
    SomeValue,
    Undecided,
    VersionValue,
    is_plain,
    plain,
)

if TYPE_CHECKING:
    from kiln.closure.interpret.interpreter import Interpreter


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_METHODS: dict[type, frozenset[str]] = {
    dict: _words("clear copy fromkeys get items keys pop popitem setdefault update values"),
    list: _words("append clear copy count extend index insert pop remove reverse sort"),
    set: _words(
        """add clear copy difference difference_update discard intersection isdisjoint issubset issuperset pop remove
        symmetric_difference union update"""
    ),
    frozenset: _words("copy difference intersection isdisjoint issubset issuperset symmetric_difference union"),
    tuple: frozenset({"count", "index"}),
    str: _words(
        """capitalize casefold count endswith find format index isalnum isalpha isascii isdecimal isdigit isidentifier
        islower isnumeric isspace istitle isupper join ljust lower lstrip partition removeprefix removesuffix replace
        rfind rindex rjust rpartition rsplit rstrip split splitlines startswith strip swapcase title upper
        zfill"""
    ),
    int: frozenset({"bit_count", "bit_length", "conjugate"}),
    float: frozenset({"hex", "is_integer"}),
    range: frozenset({"count", "index"}),
    re.Match: frozenset({"end", "group", "groupdict", "groups", "span", "start"}),
    re.Pattern: frozenset({"findall", "fullmatch", "match", "search", "split", "sub"}),
}
"""type -> its methods that may be called"""

_TYPES: dict[str, type] = {
    "bool": bool,
    "bytes": bytes,
    "complex": complex,
    "dict": dict,
    "float": float,
    "frozenset": frozenset,
    "int": int,
    "list": list,
    "range": range,
    "set": set,
    "slice": slice,
    "str": str,
    "tuple": tuple,
}
_PLAIN: dict[str, Callable[..., object]] = {
    name: function
    for function in (abs, ascii, bin, chr, divmod, format, hex, oct, ord, pow, repr, round)
    for name in (function.__name__,)
}
"""builtins of plain values"""

EXCEPTIONS: dict[str, type[BaseException]] = {
    error.__name__: error
    for error in (
        ArithmeticError,
        AssertionError,
        AttributeError,
        BaseException,
        Exception,
        ImportError,
        IndexError,
        KeyError,
        LookupError,
        ModuleNotFoundError,
        NameError,
        NotImplementedError,
        OSError,
        OverflowError,
        RuntimeError,
        StopIteration,
        TypeError,
        ValueError,
        ZeroDivisionError,
    )
}
NAMES = (
    frozenset(_TYPES)
    | frozenset(_PLAIN)
    | frozenset(EXCEPTIONS)
    | _words("""all any callable enumerate filter getattr hasattr isinstance issubclass len map max min next iter print
        reversed sorted sum type zip""")
)
"""the builtins that the interpreter knows"""


class Builtins:
    """Calls builtins and methods for one run of the interpreter."""

    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter

    def call(self, name: str, positional: Sequence[object], keywords: Mapping[str, object]) -> object:
        """The result of a builtin."""
        special: Callable[..., object] | None = getattr(self, f"_{name}", None)
        if special is not None:
            return special(*positional, **keywords)
        if name not in _TYPES and name not in _PLAIN:
            raise Undecided(f"what {name}() gives is not followed")
        given = [plain(item) for item in positional]
        named = {key: plain(item) for key, item in keywords.items()}
        if name in _TYPES and name not in ("bool", "bytes", "complex", "float", "int", "range", "slice", "str"):
            return _TYPES[name](*(self.items(item) if type(item) is not dict else item for item in given), **named)
        if name in ("float", "int") and isinstance(given[0] if given else 0, SomeValue):
            return given[0]
        if not all(map(is_plain, [*given, *named.values()])):
            raise Undecided(f"what {name}() is given is not known before the run")
        function = _TYPES.get(name) or _PLAIN[name]
        if name == "pow":
            check_power(given)
        check_call(name, given, named)
        return run_native(lambda: function(*given, **named))

    def items(self, value: object) -> list[object]:
        """The elements of something that can be iterated over."""
        value = plain(value)
        if isinstance(value, Once):
            return value.taken()
        if isinstance(value, (list, tuple, set, frozenset, dict, str, range)) or is_view(value):
            if isinstance(value, range) and len(value) > LONGEST:
                raise Undecided(f"a loop over {len(value)} numbers is longer than any that is worth following")
            if isinstance(value, (set, frozenset)):
                # The order of a set is chance, for texts at least.
                return sorted(value, key=lambda item: (type(item).__name__, repr(item)))
            assert isinstance(value, Iterable)
            return list(value)
        raise Undecided("what is iterated over is not known before the run")

    def truth(self, value: object) -> bool:
        """Whether a value counts as true."""
        value = plain(value)
        if isinstance(value, SomeValue):
            if value.is_true is None:
                raise Undecided(f"whether {value.what} counts as true is not known before the run")
            return value.is_true
        if isinstance(value, OutsideValue):
            if "()" in value.dotted and "get_current_target()" not in value.dotted:
                raise Undecided(f"whether {value.dotted} counts as true is not known before the run")
            return True
        return isinstance(value, Once) or bool(value)

    def method(self, owner: object, name: str, positional: Sequence[object], keywords: Mapping[str, object]) -> object:
        """`owner.name(...)` for an owner of Python's own types."""
        known = next((methods for kind, methods in _METHODS.items() if isinstance(owner, kind)), frozenset())
        if name not in known:
            raise Undecided(f"the method {name!r} of a {type(owner).__name__} is not one that can be followed")
        if name in packages.CHANGING_METHODS:
            self._interpreter.changing(owner)
        if isinstance(owner, list) and name == "sort":
            owner[:] = self._sorted(owner, **keywords)  # type: ignore[arg-type]  # others raise, as in Python
            return None
        given = [plain(item) if not isinstance(owner, (list, dict, set)) else item for item in positional]
        if name in ("extend", "update", "union", "difference", "intersection", "join") and not isinstance(owner, dict):
            given = [self.items(item) for item in given]
        if not isinstance(owner, (list, dict, set, tuple)) and not all(map(is_plain, [*given, *keywords.values()])):
            raise Undecided(f"what {name}() is given is not known before the run")
        check_method(owner, name, [*given, *keywords.values()])
        result = run_native(lambda: getattr(owner, name)(*given, **keywords))
        bounded(owner)
        return result

    # -- builtins that take functions, or values of all kinds

    def _all(self, items: object) -> bool:
        return all(self.truth(item) for item in self.items(items))

    def _any(self, items: object) -> bool:
        return any(self.truth(item) for item in self.items(items))

    def _bool(self, value: object = False) -> bool:
        return self.truth(value)

    def _callable(self, value: object) -> bool:
        if isinstance(value, (OutsideValue, SomeValue)):
            raise Undecided("whether it can be called is not known before the run")
        return isinstance(value, (FunctionValue, LocalFunction, Method, Partial, ClassValue))

    def _enumerate(self, items: object, start: int = 0) -> Once:
        return Once(enumerate(self.items(items), start), items)

    def _filter(self, function: object, items: object) -> Once:
        called = (lambda item: item) if function is None else (lambda item: self._interpreter.apply(function, [item]))
        return Once((item for item in self.items(items) if self.truth(called(item))), items)

    def _getattr(self, value: object, name: str, *default: object) -> object:
        if default and not self._hasattr(value, name):
            return default[0]
        return self._interpreter.attribute(value, name)

    def _hasattr(self, value: object, name: str) -> bool:
        return self._interpreter.has_attribute(value, name)

    def _isinstance(self, value: object, kinds: object) -> bool:
        return any(self._is_of(value, kind) for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))

    def _is_of(self, value: object, kind: object) -> bool:
        if kind == OutsideValue(dotted="triton.language.constexpr"):
            return isinstance(value, ConstexprValue)
        if isinstance(kind, OutsideValue) and kind.dotted.startswith("builtins."):
            known = _TYPES.get(kind.dotted.removeprefix("builtins."))
            if known is not None and (is_plain(value) or isinstance(value, (list, dict, set, tuple))):
                return isinstance(value, known) and not isinstance(value, Once)
            if known is not None and not isinstance(value, SomeValue):
                return False
        elif isinstance(kind, OutsideValue) and is_plain(value) and not kind.dotted.startswith(("numbers.", "typing.")):
            return False
        raise Undecided("of which type the value is is not known before the run")

    def _issubclass(self, value: object, kinds: object) -> bool:
        raise Undecided("how classes are derived is not followed")

    def _iter(self, items: object) -> Once:
        return items if isinstance(items, Once) else Once(self.items(items), items)

    def _len(self, value: object) -> int:
        return len(self.items(value))

    def _map(self, function: object, *items: object) -> Once:
        every = zip(*map(self.items, items), strict=False)
        return Once((self._interpreter.apply(function, given) for given in every), *items)

    def _max(self, *values: object, **keywords: object) -> object:
        return self._extreme(max, values, keywords)

    def _min(self, *values: object, **keywords: object) -> object:
        return self._extreme(min, values, keywords)

    def _extreme(
        self, function: Callable[..., object], values: Sequence[object], keywords: Mapping[str, object]
    ) -> object:
        items = list(values) if len(values) > 1 else self.items(values[0])
        if not items and "default" in keywords:
            return keywords["default"]
        key = keywords.get("key")
        by = [self._plain(item if key is None else self._interpreter.apply(key, [item])) for item in items]
        place = run_native(lambda: function(range(len(items)), key=lambda number: by[number]))
        assert isinstance(place, int)
        return items[place]

    def _next(self, items: object, *default: object) -> object:
        if not isinstance(items, Once):
            raise Undecided("what next() is given is not known before the run")
        left = items.taken()
        items.is_used = False
        if left:
            return items.pop(0)
        if default:
            return default[0]
        raise Raised(StopIteration, "")

    def _print(self, *values: object, **keywords: object) -> None:
        return None

    def _reversed(self, items: object) -> Once:
        return Once(reversed(self.items(items)), items)

    def _sorted(self, items: object, *, key: object = None, reverse: bool = False) -> list[object]:
        found = self.items(items)
        # What cannot be compared raises, as in Python.
        by: list[Any] = [self._plain(item if key is None else self._interpreter.apply(key, [item])) for item in found]
        order = run_native(lambda: sorted(range(len(found)), key=lambda number: by[number], reverse=reverse))
        return [found[number] for number in order]

    def _str(self, value: object = "") -> str:
        value = plain(value)
        if not is_plain(value):
            raise Undecided("what a value reads like as text is not known before the run")
        return str(value)

    def _sum(self, items: object, start: object = 0) -> object:
        total = start
        for item in self.items(items):
            total = binary(operator.add, total, item)
        return total

    def _type(self, value: object) -> object:
        raise Undecided("types as values are not followed")

    def _zip(self, *items: object, strict: bool = False) -> Once:
        found = [self.items(item) for item in items]
        return run_native(lambda: Once(zip(*found, strict=strict), *items))

    def _plain(self, value: object) -> object:
        value = plain(value)
        if not is_plain(value) and not isinstance(value, VersionValue):
            raise Undecided("a value that is compared is not known before the run")
        return value


def is_view(value: object) -> bool:
    """Whether a value is what `dict.items()` and the like give."""
    return type(value).__name__ in ("dict_keys", "dict_values", "dict_items")

"""What is known of Python's own library, of its builtins and of Triton: static tables, so that nothing is imported."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from kiln.manifest import installed


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_COMPUTES = {
    "__future__": "annotations",
    "abc": "ABC ABCMeta abstractclassmethod abstractmethod abstractproperty abstractstaticmethod",
    "bisect": "bisect bisect_left bisect_right insort insort_left insort_right",
    "cmath": """acos acosh asin asinh atan atanh cos cosh e exp inf infj isclose isfinite isinf isnan log log10 nan nanj
        phase pi polar rect sin sinh sqrt tan tanh tau""",
    "collections": "ChainMap Counter OrderedDict UserDict UserList UserString defaultdict deque namedtuple",
    "collections.abc": """AsyncGenerator AsyncIterable AsyncIterator Awaitable Buffer ByteString Callable Collection
        Container Coroutine Generator Hashable ItemsView Iterable Iterator KeysView Mapping MappingView MutableMapping
        MutableSequence MutableSet Reversible Sequence Set Sized ValuesView""",
    "copy": "copy deepcopy replace",
    "dataclasses": """Field FrozenInstanceError InitVar KW_ONLY MISSING asdict astuple dataclass field fields
        is_dataclass make_dataclass replace""",
    "decimal": """Context Decimal DecimalException DecimalTuple DivisionByZero InvalidOperation ROUND_05UP ROUND_CEILING
        ROUND_DOWN ROUND_FLOOR ROUND_HALF_DOWN ROUND_HALF_EVEN ROUND_HALF_UP ROUND_UP""",
    "enum": """CONFORM CONTINUOUS EJECT Enum EnumCheck EnumDict EnumMeta EnumType Flag FlagBoundary IntEnum IntFlag KEEP
        NAMED_FLAGS ReprEnum STRICT StrEnum UNIQUE auto member nonmember property unique verify""",
    "fractions": "Fraction",
    "functools": """cache cached_property cmp_to_key lru_cache partial partialmethod reduce singledispatch
        singledispatchmethod total_ordering update_wrapper wraps""",
    "heapq": "heapify heappop heappush heappushpop heapreplace merge nlargest nsmallest",
    "itertools": """accumulate batched chain combinations combinations_with_replacement compress count cycle dropwhile
        filterfalse groupby islice pairwise permutations product repeat starmap takewhile tee zip_longest""",
    "math": """acos acosh asin asinh atan atan2 atanh cbrt ceil comb copysign cos cosh degrees dist e erf erfc exp exp2
        expm1 fabs factorial floor fma fmod frexp fsum gamma gcd hypot inf isclose isfinite isinf isnan isqrt lcm ldexp
        lgamma log log10 log1p log2 modf nan nextafter perm pi pow prod radians remainder sin sinh sqrt sumprod tan tanh
        tau trunc ulp""",
    "numbers": "Complex Integral Number Rational Real",
    "operator": """abs add and_ attrgetter concat contains countOf delitem eq floordiv ge getitem gt iadd iand iconcat
        ifloordiv ilshift imatmul imod imul index indexOf inv invert ior ipow irshift is_ is_not isub itemgetter
        itruediv ixor le length_hint lshift lt matmul methodcaller mod mul ne neg not_ or_ pos pow rshift setitem sub
        truediv truth xor""",
    "re": """A ASCII DOTALL I IGNORECASE M MULTILINE Match NOFLAG Pattern RegexFlag S U UNICODE VERBOSE X compile error
        escape findall finditer fullmatch match search split sub subn""",
    "string": """Formatter Template ascii_letters ascii_lowercase ascii_uppercase capwords digits hexdigits octdigits
        printable punctuation whitespace""",
    "struct": "Struct calcsize error iter_unpack pack pack_into unpack unpack_from",
    "textwrap": "TextWrapper dedent fill indent shorten wrap",
    "types": "DynamicClassAttribute EllipsisType GenericAlias MappingProxyType NoneType SimpleNamespace UnionType",
    "typing": """AbstractSet Annotated Any AnyStr Callable ClassVar Collection Concatenate Container Counter DefaultDict
        Deque Dict Final ForwardRef FrozenSet Generator Generic Hashable Iterable Iterator KeysView List Literal
        LiteralString Mapping MutableMapping MutableSequence MutableSet NamedTuple Never NewType NoReturn NotRequired
        Optional OrderedDict ParamSpec Pattern Protocol ReadOnly Required Reversible Self Sequence Set Sized
        SupportsAbs SupportsFloat SupportsIndex SupportsInt TYPE_CHECKING Text Tuple Type TypeAlias TypeGuard TypeIs
        TypeVar TypeVarTuple TypedDict Union Unpack ValuesView cast dataclass_transform final get_args get_origin
        no_type_check overload override runtime_checkable""",
}
"""module -> its names that give the same result on every machine, and are no modules

Many modules hold others (`dataclasses.sys`, `enum.bltns`), and through them the environment, the files and the clock of
the machine that builds; so names are allowed one by one. Random numbers and the settings of a process are left out.
"""
COMPUTING = {module: _words(names) for module, names in _COMPUTES.items()}

_HOST_PROBES = (
    "triton._C",
    "triton._internal_testing",
    "triton.backends",
    "triton.knobs",
    "triton.language.target_info",
    "triton.runtime",
    "triton.testing",
)
"""parts of Triton that ask the build machine's driver or environment"""

HARMLESS = frozenset({"__future__", "math", "random", "typing"})
"""modules of Python that parts of Triton have under that name, or that have a namesake there, and that do no harm"""

_NOT_TRITON = {"driver", "knobs"} | sys.stdlib_module_names - HARMLESS
"""what modules of Triton have imported for themselves"""

_DECORATORS = frozenset(
    {
        "triton.runtime.JITFunction",
        "triton.runtime.jit",
        "triton.runtime.jit.JITFunction",
        "triton.runtime.jit.constexpr_function",
        "triton.runtime.jit.jit",
    }
)
"""what may be taken from triton.runtime all the same"""

RUN_TIME = frozenset({"__import__", "compile", "eval", "exec", "globals", "locals", "vars"})
"""builtins that reach code and names which no reading of the source can tell"""

READS_MACHINE = frozenset({"breakpoint", "input", "open"})
"""builtins that reach files and people, who are no part of any fingerprint"""

BY_CHANCE = frozenset({"hash", "id"})
"""builtins whose result differs from run to run, or from one Python to the next"""

OF_THE_MODULE = frozenset({"__build_class__", "__doc__", "__loader__", "__name__", "__package__", "__spec__"})
"""names that every module has, with a value of its own"""

OF_THE_TEXT = frozenset(
    {
        "__code__",
        "__dict__",
        "__doc__",
        "__file__",
        "__globals__",
        "__module__",
        "__mro__",
        "__subclasses__",
        "co_firstlineno",
        "def_file_col_number",
        "def_file_line_number",
        "raw_src",
        "starting_line_number",
        "tb_lineno",
    }
)
"""names that tell of texts, lines and places, which a slice does not keep and its digest does not cover"""


def is_foreign(name: str) -> bool:
    """Whether a dotted name is of a package that is neither Triton nor part of Python."""
    top = name.partition(".")[0]
    return top != "triton" and top not in sys.stdlib_module_names


@dataclass(frozen=True, kw_only=True)
class Refusal:
    reason: str
    remedy: str | None = None
    """what to do, where it is not to write the value into the file"""
    is_by_value: bool = False
    """whether a run could tell what is needed"""


_FOREIGN = Refusal(
    reason="it is neither Triton nor a file of this project, and need not be installed where kernels are built"
)
_ABSENT = Refusal(
    reason="it is neither Triton, nor a file of this project or of its roots, nor an installed package in Python",
    remedy="install it into the Python that runs Kiln, declare its folder under `roots`, or write the value out",
)
_PROBE = Refusal(
    reason="it asks the machine that builds",
    remedy="make it a tl.constexpr parameter of the kernel, or write the target's value into the file",
)
_MACHINE = Refusal(reason="it can read the machine that builds, and an image must not depend on that")
_EVENTS = Refusal(
    reason="what it does hangs on what happens while the file runs, which cannot be read off the source",
    remedy="write the statements without it: a `try:` around an import is understood",
)
_UNKNOWN = Refusal(reason="it is not among the names that are known to give the same on every machine")
_AS_VALUE = Refusal(
    reason="a module is used as a value, and what is read off it then cannot be seen",
    remedy="read the names that are needed off the module where they are used",
    is_by_value=True,
)


def refusal(name: str) -> Refusal | None:
    """Why a kernel must not need `name`, the dotted name of a module outside the project or of something in it."""
    if is_foreign(name):
        return _ABSENT if installed.is_candidate(name.partition(".")[0]) else _FOREIGN
    words = name.split(".")
    if words[0] == "triton":
        probes = any(name == probe or name.startswith(f"{probe}.") for probe in _HOST_PROBES)
        if (probes or _NOT_TRITON.intersection(words)) and name not in _DECORATORS:
            return _PROBE
        return _AS_VALUE if name == "triton" else None
    depth = 2 if ".".join(words[:2]) in COMPUTING and len(words) > 1 else 1
    names = COMPUTING.get(".".join(words[:depth]))
    if names is None:
        return _EVENTS if words[0] == "contextlib" else _MACHINE
    if len(words) == depth:
        return _AS_VALUE
    if words[depth] not in names or any(word.startswith("_") for word in words[depth + 1 :]):
        return _UNKNOWN
    return None


def is_useful(module: str) -> bool:
    """Whether something of a module may be needed, by its dotted name."""
    return module.partition(".")[0] == "triton" or module in COMPUTING


CHANGING_METHODS = frozenset(
    {
        "__delattr__",
        "__delitem__",
        "__iadd__",
        "__setattr__",
        "__setitem__",
        "add",
        "append",
        "appendleft",
        "clear",
        "difference_update",
        "discard",
        "extend",
        "extendleft",
        "insert",
        "intersection_update",
        "move_to_end",
        "pop",
        "popitem",
        "popleft",
        "remove",
        "reverse",
        "rotate",
        "setdefault",
        "sort",
        "subtract",
        "symmetric_difference_update",
        "update",
    }
)
"""methods of Python's own containers that change the object that they are called on"""

READING_METHODS = _words(
    """as_integer_ratio bit_count bit_length capitalize casefold copy count decode difference elements encode endswith
    find format fromkeys get hex index intersection is_integer isalnum isalpha isdigit isdisjoint isidentifier islower
    issubset issuperset isupper items join keys ljust lower lstrip most_common partition replace rfind rjust rpartition
    rsplit rstrip split splitlines startswith strip title tobytes total translate union upper values zfill"""
)
"""methods of Python's own containers, texts and numbers that leave the object as it is"""

READING_BUILTINS = _words(
    """abs all any ascii bin bool bytes callable chr classmethod complex divmod float format hasattr hash hex id
    int isinstance issubclass len memoryview oct ord pow print property range repr round slice staticmethod str super"""
)
"""builtins whose result does not lead to what they were given"""

LEADING_BUILTINS = frozenset({"getattr", "iter", "max", "min", "next", "object", "sum", "type", "vars"})
"""builtins whose result may be what they were given, or a part of it; of others it is something new that holds that"""

_CHANGING = (
    "bisect.insort",
    "dataclasses.dataclass",
    "functools.total_ordering",
    "heapq.heap",
    "operator.delitem",
    "operator.setitem",
    "random.shuffle",
    *(
        f"operator.i{word}"
        for word in _words("add and concat floordiv lshift matmul mod mul or pow rshift sub truediv xor")
    ),
)
"""beginnings of the dotted names of functions that change what they are given"""

_CALLING = (
    "collections.defaultdict",
    "concurrent.",
    "dataclasses.field",
    "functools.reduce",
    "itertools.",
    "multiprocessing.",
    "threading.",
    "timeit.",
)
"""beginnings of the names of those that call what they are given"""

_LEAVES = frozenset({"einops", "numpy", "packaging", "torch", "triton", "typing_extensions"})
"""packages, beside Python's library, whose functions leave Python's own containers and classes as they were given them;
what they keep of a function they call later, when the library is used"""

_HOLDS = frozenset({"collections", "copy", "dataclasses", "functools", "itertools", "types", "typing"})
"""those that give something new, which holds what they were given"""

_COPIES = frozenset({"functools.update_wrapper", "functools.wraps"})
"""those of them that take over no more than names"""

_LEADS = ("contextlib.", "functools.reduce", "operator.", "typing.cast")
"""beginnings of the names of functions that give what they were given, or a part of it"""


_ANYTHING = (
    "gc.",
    "importlib.import_module",
    "importlib.reload",
    "inspect.currentframe",
    "inspect.getmodule",
    "inspect.stack",
    "sys._getframe",
    "sys.modules",
)


def changes_arguments(name: str) -> bool:
    """Whether the function with that dotted name, outside the project, changes the objects that it is given."""
    return name.startswith(_CHANGING)


def calls_methods(name: str) -> bool:
    """Whether it calls methods of what it is given, or gives something that does, by names that are given as text."""
    return name in ("operator.attrgetter", "operator.methodcaller")


def calls_arguments(name: str) -> bool:
    """Whether it may call a function that it is given, before the module that gives it is loaded."""
    return name.startswith(_CALLING) or not is_understood(name)


def leads_to_arguments(name: str) -> bool:
    """Whether its result may be what it was given, or a part of that."""
    return name.startswith(_LEADS) or not is_understood(name)


def holds_arguments(name: str) -> bool:
    """Whether its result may be something new that holds what it was given."""
    return name.partition(".")[0] in _HOLDS and name not in _COPIES


def is_understood(name: str) -> bool:
    """Whether anything is known of it; if not, it may do all of the above."""
    top = name.partition(".")[0]
    return top in _LEAVES or top in sys.stdlib_module_names


def gives_anything(name: str) -> bool:
    """Whether it leads to modules by their names, which may be text that is made at run time."""
    return name.startswith(_ANYTHING)

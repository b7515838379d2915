"""What may be a name: it becomes a symbol in C, C++ and Rust, a macro, a file and a task, so it must suit them all."""

from __future__ import annotations

import re

from kiln.errors import ManifestError, Position
from kiln.manifest.wording import show

MAX_LENGTH = 120
"""characters: library, variant and target together stay under the 255 bytes of a file name"""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# ISO/IEC 9899:2018 (C17), 6.4.1.
C_KEYWORDS = _words(
    """auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    _Alignas _Alignof _Atomic _Bool _Complex _Generic _Imaginary _Noreturn _Static_assert _Thread_local"""
)

# ISO/IEC 14882:2020 (C++20), 5.11, with the alternative tokens of 5.5.
CPP_KEYWORDS = _words(
    """alignas alignof asm auto bool break case catch char char8_t char16_t char32_t class concept const consteval
    constexpr constinit const_cast continue co_await co_return co_yield decltype default delete do double dynamic_cast
    else enum explicit export extern false float for friend goto if inline int long mutable namespace new noexcept
    nullptr operator private protected public register reinterpret_cast requires return short signed sizeof static
    static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename union
    unsigned using virtual void volatile wchar_t while
    and and_eq bitand bitor compl not not_eq or or_eq xor xor_eq"""
)

# The Rust Reference, "Keywords": strict and reserved ones up to the 2021 edition. Weak ones may be identifiers.
RUST_KEYWORDS = _words(
    """as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move
    mut pub ref return self Self static struct super trait true type unsafe use where while
    abstract become box do final macro override priv try typeof unsized virtual yield"""
)

# What Rust's 2024 edition and C23 keep besides: no package of Kiln's minds, but programs that use one may.
LATER_KEYWORDS = frozenset({"gen", "typeof_unqual"})

# A crate of one of these names shadows, or is shadowed by, what every Rust program links; or it has the name of a crate
# that it depends on with a feature.
RUST_CRATES = frozenset({"alloc", "core", "cudarc", "cust", "half", "proc_macro", "std", "test"})

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

NAME_RULE = "a letter, then letters, digits and single underscores, all ASCII, with none at the end"
PARAMETER_RULE = "a letter or underscore, then letters, digits and underscores, all ASCII"


def check_name(name: str, position: Position, what: str) -> None:
    """Refuse what cannot name a library, kernel, variant or group; `what` says which, as in `the name of a variant`.

    Raises ManifestError at `position`.
    """
    _check_length(name, position, what)
    if _NAME.fullmatch(name) is None:
        raise _refusal(name, position, what, _odd_character(name, first_letter_only=True), NAME_RULE)
    if "__" in name:
        raise _refusal(
            name, position, what, "two underscores together separate variant and target in symbols", NAME_RULE
        )
    if name.endswith("_"):
        raise _refusal(name, position, what, "it ends with an underscore", NAME_RULE)
    _check_keyword(name, position, what)


TAKEN = frozenset({"image", "launch", "variant"})
"""What no variant can be called, promises apart: the C package has functions of its own that would share a name with
one of the variant's, as kernels_image_grid does."""


def check_base(name: str, position: Position) -> None:
    """Refuse what cannot name a variant without its promises. Raises ManifestError at `position`."""
    if name in TAKEN:
        why = "the C package has functions of that name itself"
        raise _refusal(name, position, "a variant's name", why, f"another name than {', '.join(sorted(TAKEN))}")


def check_library(name: str, position: Position) -> None:
    """Refuse what cannot name a library. Raises ManifestError at `position`."""
    check_name(name, position, "a library's name")
    if name in RUST_CRATES:
        why = "Rust has a crate of that name, and the library becomes a crate, which may depend on that one"
        raise _refusal(name, position, "a library's name", why, "any other name")
    if is_macro(name):
        raise _refusal(
            name, position, "a library's name", "it is a macro of C's headers or compilers", "any other name"
        )


def check_argument(name: str, position: Position, what: str) -> None:
    """Refuse what cannot name a kernel's argument. A keyword can: structs call it by another name, see `member_name`.

    Raises ManifestError at `position`.
    """
    _check_length(name, position, what)
    if _IDENTIFIER.fullmatch(name) is None:
        raise _refusal(name, position, what, _odd_character(name, first_letter_only=False), PARAMETER_RULE)
    if not name.strip("_") or name.startswith("__"):
        why = "names that start with two underscores, or hold nothing else, belong to the compilers"
        raise _refusal(name, position, what, why, PARAMETER_RULE)


def check_parameter(name: str, position: Position, what: str) -> None:
    """Refuse what cannot be a member of a struct in C, C++ and Rust as it stands: a launch input's name.

    Raises ManifestError at `position`.
    """
    check_argument(name, position, what)
    _check_keyword(name, position, what)
    if is_macro(name):
        raise _refusal(name, position, what, "it is a macro of C's headers or compilers", PARAMETER_RULE)


def member_name(name: str) -> str:
    """What structs call an argument or a launch input, in C, C++ and Rust alike.

    That is its own name; one that a language keeps for itself gets an underscore behind it: `do_` for do. Kernels are
    often somebody else's, so that their arguments cannot be renamed.
    """
    return f"{name}_" if _languages(name) or name in LATER_KEYWORDS or is_macro(name) else name


def is_macro(name: str) -> bool:
    """Whether the C preprocessor replaces a name where a generated header is used."""
    return name in MACROS or re.fullmatch(r"U?INT(8|16|32|64|MAX|PTR)_(MAX|MIN|C)", name) is not None


MACROS = frozenset({"NULL", "EOF", "errno", "stdin", "stdout", "stderr", "linux", "unix", "I", "assert", "offsetof"})
"""Those that come with names of their own, and not in rows as INT8_MAX: a struct cannot have such a member."""


def fold(name: str) -> str:
    """What two names must not share: macros are upper case, and some file systems do not tell cases apart."""
    return name.lower()


def _check_length(name: str, position: Position, what: str) -> None:
    if not name:
        raise _refusal(name, position, what, "it is empty", NAME_RULE)
    if len(name) > MAX_LENGTH:
        raise _refusal(name, position, what, "it is too long", f"at most {MAX_LENGTH} characters")


def _languages(name: str) -> list[str]:
    """Those that have it for a keyword."""
    known = (("C", C_KEYWORDS), ("C++", CPP_KEYWORDS), ("Rust", RUST_KEYWORDS))
    return [language for language, keywords in known if name in keywords]


def _check_keyword(name: str, position: Position, what: str) -> None:
    languages = _languages(name)
    if languages:
        spoken = " and ".join([", ".join(languages[:-1]), languages[-1]] if len(languages) > 1 else languages)
        raise _refusal(name, position, what, f"it is a keyword of {spoken}", "a name that no language keeps for itself")


def _odd_character(name: str, *, first_letter_only: bool) -> str:
    allowed = re.compile(r"[A-Za-z0-9_]")
    for index, character in enumerate(name, 1):
        if allowed.match(character) is None:
            return f"its character {index} is {_describe(character)}"
    return "it starts with a digit" if name[0].isdigit() or not first_letter_only else "it starts with an underscore"


def _describe(character: str) -> str:
    """`'-'` or `'\\u0430' (CYRILLIC SMALL LETTER A)`: a look-alike shows what it is."""
    if character.isascii():
        return ascii(character)
    import unicodedata  # only a refused name needs it

    return f"{character!a} ({unicodedata.name(character, 'unnamed')})"


def _refusal(name: str, position: Position, what: str, why: str, expected: str) -> ManifestError:
    near = re.sub(r"[-. _]+", "_", name).strip("_")
    # The names of folders and packages have hyphens and dots.
    meant = near != name and expected == NAME_RULE and _NAME.fullmatch(near) is not None and not _languages(near)
    return ManifestError(
        f"{show(name)} cannot be {what}: {why}",
        where=position,
        expected=expected,
        actual=show(name),
        remedy=f"did you mean {near!r}?" if meant else "choose another name",
    )

"""What a launch gives a kernel's parameters, guessed from how they are used, called and passed: values and types."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from kiln.closure import jit
from kiln.closure.entry import written
from kiln.manifest.dtypes import DTYPES, dtype_called
from kiln.manifest.schema import OPTIONS
from kiln.manifest.value_types import FILL_IN
from kiln.project.foreign_file import Found
from kiln.project.kernel_use import Use, Uses
from kiln.project.launch_code import DESCRIPTOR, INTEGER, NOTHING, POINTER, REAL, TRUTH, Launch, Passed
from kiln.project.yaml_text import yaml_text, yaml_value

_POINTER_NAME = re.compile(r"(?i)(?:^|_)(?:ptrs?|pointer)(?:_|$)|ptr$")
_REAL_NAME = re.compile(
    r"(?i)(?:^|_)(?:eps|epsilon|scale|alpha|beta|gamma|theta|lr|p|prob|rate|dropout|momentum|temperature|softcap|cap|"
    r"decay|limit|smoothing|weight|factor|norm|coef|threshold)(?:_|$)"
)
_INDEX_NAME = re.compile(
    r"(?i)(?:ind(?:ex|ices)|idx|ids?|labels?|targets?|slots?|(?:block|page)_?tables?|seqlens?|offsets?|lens?)(?:_|$|ptr)"
)
_INDEX_32 = re.compile(r"(?i)seqlens?|table|slots?|offsets?|lens?")
_STATISTIC_NAME = re.compile(r"(?i)(?:^|_)(?:lse|mean|rstd|rms|var|delta|logsumexp|loss|max|sum)(?:_|$)|rstd|rms")
_BLOCK_NAME = re.compile(r"BLOCK|BLK|TILE|^B[A-Z]{0,2}$|^B[_A-Z]*\d*$")


@dataclass(frozen=True, kw_only=True)
class Guess:
    """A value as kernels.yaml has it, and what a person should know of it."""

    text: str
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class Guesses:
    """The guesses for one kernel."""

    found: Found
    function: str
    node: ast.FunctionDef
    uses: Uses
    launch: Launch | None

    def is_constant(self, name: str) -> bool:
        """Whether a parameter is annotated as a constexpr."""
        return any(argument.arg == name and self._is_constexpr(argument) for argument in self._parameters())

    def _parameters(self) -> list[ast.arg]:
        return [*self.node.args.posonlyargs, *self.node.args.args, *self.node.args.kwonlyargs]

    def _is_constexpr(self, argument: ast.arg) -> bool:
        if argument.annotation is None:
            return False
        known = self.found.project.canonical(self.found.module, argument.annotation, needed=True)
        return known in jit.CONSTEXPR or "constexpr" in ast.unparse(argument.annotation)

    def _defaults(self) -> dict[str, ast.expr]:
        arguments = self.node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        found = dict(zip([item.arg for item in positional[::-1]], arguments.defaults[::-1], strict=False))
        named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        return found | {item.arg: default for item, default in named if default is not None}

    def constants(self, given: set[str]) -> tuple[dict[str, Guess], dict[str, Guess]]:
        """Constants and block sizes, without those that are `given` by configurations and heuristics."""
        constants: dict[str, Guess] = {}
        blocks: dict[str, Guess] = {}
        defaults = self._defaults()
        names = [argument.arg for argument in self._parameters() if self._is_constexpr(argument)]
        sizes = [name for name in names if self._is_size(name)]
        for name in names:
            if name in given or name in OPTIONS:
                continue
            passed = self.launch.passed.get(name) if self.launch is not None else None
            if passed is None and name in defaults:
                continue
            if name in sizes and _BLOCK_NAME.search(name):
                blocks[name] = self._constant(name, passed, len(sizes))
            else:
                constants[name] = self._constant(name, passed, len(sizes))
        for name in self._factory_parameters():
            constants[name] = Guess(text=FILL_IN, note="of the function that makes the kernel")
        for name, passed in (self.launch.passed if self.launch is not None else {}).items():
            if passed.kind == NOTHING and name not in names:
                constants[name] = Guess(text="null", note="as it is launched; take it out to pass a pointer")
        return constants, blocks

    def _factory_parameters(self) -> list[str]:
        """The parameters without defaults of the functions around the kernel."""
        around = written([unit.node for unit in self.found.module.units], self.function)[:-1]
        return [
            argument.arg
            for node in around
            if isinstance(node, ast.FunctionDef)
            for argument in node.args.args[: len(node.args.args) - len(node.args.defaults)]
        ]

    def _is_size(self, name: str) -> bool:
        use = self.uses.of[name]
        return use.extent or (bool(_BLOCK_NAME.search(name)) and not use.truth and not use.texts)

    def _constant(self, name: str, passed: Passed | None, sizes: int) -> Guess:
        use = self.uses.of[name]
        if passed is not None and passed.literal is not None:
            return Guess(text=yaml_value(passed.literal), note="as it is launched")
        if passed is not None and passed.kind == NOTHING:
            return Guess(text="null", note="as it is launched")
        function = self._function(passed)
        if function is not None:
            return Guess(text=f"{{function: {function}}}", note="as it is launched")
        if use.called:
            return Guess(text=FILL_IN, note="the name of a jitted function of the file, as {function: relu}")
        if use.dtype and not use.integer:
            return Guess(text='{dtype: "{dtype}"}', note="guessed: the variant's own")
        if use.texts:
            return Guess(
                text=yaml_text(use.texts[0]), note=f"guessed: the kernel compares it with {_listed(use.texts)}"
            )
        if use.unrolled:
            return Guess(text="4", note="guessed: a loop is written out as often")
        if use.extent or self._is_size(name):
            return Guess(text="1024" if sizes == 1 else "64" if sizes < 4 else "16", note="guessed: a power of two")
        return self._switch_or_number(name, use, passed)

    def _switch_or_number(self, name: str, use: Use, passed: Passed | None) -> Guess:
        counts = use.integer or use.real or (passed is not None and passed.kind == INTEGER)
        if (use.truth and not use.integer) or (passed is not None and passed.kind == TRUTH):
            return Guess(text="false", note="guessed: make it an axis to build both")
        if re.match(
            r"(?i)(?:has|is|use|enable|with|store|return|need|apply|even|do|output|save|load|causal)(?:_|$)", name
        ):
            return Guess(text="false", note="guessed: make it an axis to build both")
        if "STAGES" in name.upper():
            return Guess(text="2", note="guessed")
        if "GROUP" in name.upper():
            return Guess(text="8", note="guessed")
        if use.numbers:
            return Guess(text=str(use.numbers[0]), note=f"guessed: the kernel compares it with {_listed(use.numbers)}")
        if use.maybe_none:
            return Guess(text="null", note="guessed: the kernel asks whether it is None")
        if passed is not None and passed.kind == REAL:
            return Guess(text="1.0", note="guessed")
        if (
            counts
            or not use.mentioned
            or re.search(r"(?i)size|dim|stride|num|len|head|chunk|offset|count|step|^n_|^[A-Z]{1,3}$", name)
        ):
            return Guess(text="64", note="guessed: a size or a count")
        return Guess(text=FILL_IN, note="nothing tells what it is")

    def _function(self, passed: Passed | None) -> str | None:
        """The jitted function of the file that a launch passes."""
        if passed is None or not isinstance(passed.node, ast.Name):
            return None
        units = self.found.module.binding(passed.node.id)
        return passed.node.id if units and isinstance(units[-1].node, ast.FunctionDef) else None

    def argument(self, name: str) -> Guess:
        """The type of an argument, in the words of a signature."""
        use = self.uses.of[name]
        annotation = self._annotation(name)
        if annotation is not None:
            return Guess(text=annotation)
        passed = self.launch.passed.get(name) if self.launch is not None else None
        kind = passed.kind if passed is not None else None
        if use.descriptor or kind == DESCRIPTOR:
            return Guess(text="tensordesc<{dtype}>", note="check: a tensor descriptor made by the host")
        if use.pointer or (kind == POINTER) or (kind is None and _POINTER_NAME.search(name)):
            return self._pointer(name, use, passed)
        default = self._defaults().get(name)
        if kind is None and isinstance(default, ast.Constant):
            kind = {bool: TRUTH, int: INTEGER, float: REAL}.get(type(default.value))
        if kind == REAL or (kind is None and not use.integer and (use.real or _REAL_NAME.search(name))):
            return Guess(text="fp32", note=None if kind == REAL else "guessed")
        if kind == TRUTH:
            return Guess(text="i1")
        note = None if kind == INTEGER or use.integer else "check: nothing tells what it is"
        if kind is None and re.search(r"(?i)seed", name):
            note = "guessed: i64 for a seed of 64 bits"
        return Guess(text="i32", note=note)

    def _annotation(self, name: str) -> str | None:
        """The type that an annotation says."""
        annotation = next(argument.annotation for argument in self._parameters() if argument.arg == name)
        if annotation is None:
            return None
        text = annotation.value if isinstance(annotation, ast.Constant) else ast.unparse(annotation)
        if not isinstance(text, str):
            return None
        word = text.rpartition(".")[2]
        return "i32" if word == "int" else dtype_called(word)

    def _pointer(self, name: str, use: Use, passed: Passed | None) -> Guess:
        maybe = " (it may be None: set it to null under `constants` to leave it out)"
        more = maybe if use.maybe_none or (passed is not None and passed.maybe_none) else ""
        if passed is not None and passed.dtype in DTYPES:
            return Guess(text=f"*{passed.dtype}", note=f"as it is allocated{more}" if more else None)
        if use.holds_index or _INDEX_NAME.search(name):
            dtype = "i32" if _INDEX_32.search(name) else "i64"
            return Guess(text=f"*{dtype}", note=f"guessed: it holds indices{more}")
        if use.holds_truth and "mask" in name.lower():
            return Guess(text="*i1", note=f"guessed: it holds a mask{more}")
        if _STATISTIC_NAME.search(name):
            return Guess(text="*fp32", note=f"guessed: a statistic{more}")
        return Guess(text="*{dtype}", note=more.strip() or None)


def _listed(values: Sequence[object]) -> str:
    return " and ".join(dict.fromkeys(repr(value) for value in values))

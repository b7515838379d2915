"""`kiln import`: the entry for kernels.yaml of a kernel that somebody else wrote, as far as its file tells it."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kiln.closure import jit
from kiln.closure.decisions import settle
from kiln.closure.slice import cut
from kiln.closure.tuning.autotune import Tuning, find_definition, read_tuning
from kiln.closure.world import World
from kiln.errors import ClosureError, ManifestError, Position
from kiln.manifest.dtypes import DTYPES
from kiln.manifest.from_source import autotuned_blocks
from kiln.manifest.json_schema import MODELINE
from kiln.manifest.names import check_name
from kiln.manifest.schema import OPTIONS
from kiln.manifest.value_types import FILL_IN
from kiln.project.foreign_file import Found, full_name
from kiln.project.grid_text import grid_of
from kiln.project.kernel_use import Use, Uses, names_of, uses
from kiln.project.launch_code import INTEGER, NOTHING, POINTER, REAL, TRUTH, Launch, Passed, find_launch
from kiln.project.yaml_text import yaml_expression, yaml_text, yaml_value

_SCALARS = {"int": "i32", "float": "fp32", "bool": "i1"}
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


@dataclass(kw_only=True)
class Entry:
    """What is printed."""

    lines: list[str] = field(default_factory=list)
    """of the kernel, under `kernels:`"""
    roots: dict[str, str] = field(default_factory=dict)
    """that the entry needs declared"""
    checks: int = 0
    """places that say what to check"""
    blanks: int = 0
    """places that are to be filled in"""


def import_kernel(found: Found, function: str, worlds: Mapping[str, World], key: str | None = None) -> Entry:
    """The entry for a function of a file; `worlds` has the targets that configurations are read for.

    Raises ImportKernelError when the file has no such function.
    """
    name = full_name(found.module, function)
    project = settle(found.project, found.module.path, name, next(iter(worlds.values())))
    found = replace(found, project=project, module=project.open(found.module.path))
    definition = find_definition(found.module, name)
    assert definition is not None
    kernel = _Kernel(
        found=found,
        function=name,
        node=definition,
        key=key or _key(function),
        uses=uses(found.project, found.module, definition),
        launch=find_launch(found.module, name, names_of(definition)),
        worlds=worlds,
    )
    return kernel.entry()


def obstacle(found: Found, function: str, world: World) -> ClosureError | None:
    """What keeps a build from cutting the kernel out of its file as it stands, if something does."""
    folders = found.project.folders
    try:
        cut(
            found.module.path,
            full_name(found.module, function),
            root=folders.root,
            roots=folders.others,
            world=world,
            where=None,
        )
    except ClosureError as error:
        return error
    return None


def whole_file(entry: Entry, library: str, targets: Sequence[str]) -> str:
    """A kernels.yaml that declares the kernel alone."""
    head = [MODELINE.rstrip(), "version: 1", f"library: {library}", f"targets: [{', '.join(targets)}]"]
    if entry.roots:
        head += ["roots:", *(f"  {name}: {folder}" for name, folder in entry.roots.items())]
    return "\n".join([*head, "kernels:", *entry.lines])


def _key(function: str) -> str:
    """A kernel's name from its function's: softmax for _softmax_kernel."""
    name = re.sub(r"_+", "_", function.rpartition(".")[2]).strip("_")
    shorter = re.sub(r"(?i)^(?:triton_)?(.*?)(?:_(?:kernel|jit|triton))*$", r"\1", name)
    for candidate in (shorter, name, f"{name}_kernel"):
        try:
            check_name(candidate, Position(file="kernels.yaml", line=1), "a kernel's name")
        except ManifestError:
            continue
        return candidate
    return "kernel"


@dataclass(frozen=True, kw_only=True)
class _Guess:
    """A value as kernels.yaml has it, and what a person should know of it."""

    text: str
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class _Kernel:
    found: Found
    function: str
    node: ast.FunctionDef
    key: str
    uses: Uses
    launch: Launch | None
    worlds: Mapping[str, World]
    result: Entry = field(default_factory=Entry)

    # -- the entry

    def entry(self) -> Entry:
        self.result.roots.update(self.found.roots)
        tuning, trouble = self._tuning()
        tuned = list(tuning.configurations[0].constants) if tuning is not None and tuning.configurations else []
        tuned_options = tuning is not None and bool(tuning.configurations)
        computed = self._heuristics()
        constants, blocks = self._constants({*tuned, *computed})
        arguments = {
            name: self._argument(name)
            for name in names_of(self.node)
            if not self._is_constant(name) and name not in constants and name not in tuned
        }
        integers = {name for name, guess in arguments.items() if re.fullmatch(r"[iu](?:8|16|32|64)", guess.text)}
        numbers = {name for name, guess in {**constants, **blocks}.items() if re.fullmatch(r"-?\d+", guess.text)}
        grid = grid_of(self.launch, integers | numbers | set(tuned), set(names_of(self.node)), self.uses.dimensions)

        where = "no launch in the file" if self.launch is None else f"launched at line {self.launch.line}"
        self._line(0, f"{self.key}:", f"{self.function}, {where}")
        for name, text in self.found.keys.items():
            self._line(1, f"{name}: {yaml_text(text)}")
        self._line(1, f"function: {self.function}")
        self._line(1, f"dtypes: [{'fp16' if self.uses.computes_in_fp32 else 'fp32'}]", "guessed: list those to build")
        has_blocks = self._blocks(blocks, tuning, trouble)
        if constants:
            self._line(1, "constants:")
            for name, guess in constants.items():
                self._line(2, f"{name}: {guess.text}", guess.note)
        for name in computed:
            self._comment(1, f"{name} is derived from the source's @triton.heuristics; a constant of that name wins")
        self._line(1, f"name: {self.key}_{{dtype}}{'_{block}' if has_blocks else ''}")
        for name, guess in arguments.items():
            if guess.note is not None:
                self._comment(1, f"{name}: {guess.text}  {guess.note}", check=True)
        signature = ", ".join(guess.text for guess in arguments.values())
        self._line(1, f'signature: "{signature}"', "add :16 where callers pass what is divisible by 16")
        if self.launch is not None and self.launch.options and not tuned_options:
            listed = ", ".join(f"{name}: {yaml_value(value)}" for name, value in self.launch.options.items())
            self._line(1, f"options: {{{listed}}}")
        if grid.inputs:
            listed = ", ".join(f"{name}: i32" for name in grid.inputs)
            self._line(1, f"inputs: {{{listed}}}", "check: the launch computes the grid with these")
        self._line(1, f"grid: [{', '.join(yaml_expression(extent) for extent in grid.extents)}]")
        return self.result

    def _line(self, depth: int, text: str, note: str | None = None) -> None:
        self.result.lines.append(f"{'  ' * (depth + 1)}{text}{f'  # {note}' if note else ''}")
        self.result.checks += note is not None and note.startswith(("guessed", "check"))
        self.result.blanks += FILL_IN in text

    def _comment(self, depth: int, text: str, *, check: bool = False) -> None:
        indent = "  " * (depth + 1)
        self.result.lines += textwrap.wrap(text, 120, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}#   ")
        self.result.checks += check

    # -- tuning

    def _tuning(self) -> tuple[Tuning | None, str | None]:
        """What the source tunes over; or, where it does and that cannot be told, why not."""
        try:
            return read_tuning(self.found.project, self.found.module, self.function, self.worlds), None
        except ClosureError as error:
            words = ("@triton.autotune", "autotune")
            decorators = " ".join(ast.unparse(decorator) for decorator in self.node.decorator_list)
            return None, f"{error.where}: {error.what}" if any(word in decorators for word in words) else None

    def _heuristics(self) -> list[str]:
        """The parameters that `@triton.heuristics` computes, as far as its text names them."""
        names: list[str] = []
        for decorator in self.node.decorator_list:
            if not isinstance(decorator, ast.Call):
                continue
            canonical = self.found.project.canonical(self.found.module, decorator.func, needed=True) or ""
            if canonical in jit.TUNING and canonical.endswith("heuristics"):
                values = [*decorator.args, *(keyword.value for keyword in decorator.keywords)]
                maps = [part for value in values for part in ast.walk(value) if isinstance(part, ast.Dict)]
                names += [str(key.value) for part in maps for key in part.keys if isinstance(key, ast.Constant)]
        return [name for name in names if name in names_of(self.node)]

    def _blocks(self, blocks: Mapping[str, _Guess], tuning: Tuning | None, trouble: str | None) -> bool:
        """Print the blocks, and tell whether there are any: a kernel that takes no size has none."""
        if trouble is not None:
            self._comment(1, f"check: the source tunes this kernel, and its configurations cannot be told: {trouble}")
            self.result.checks += 1
        if tuning is not None and tuning.configurations:
            if not tuning.obligations and not blocks:
                self._line(1, "blocks: autotune", f"{len(tuning.configurations)} configurations")
            else:
                self._written_blocks(tuning, blocks)
            return True
        names = list(blocks)
        if names == ["BLOCK_SIZE"]:
            self._line(1, f"blocks: [{blocks['BLOCK_SIZE'].text}]", blocks["BLOCK_SIZE"].note)
        elif names:
            listed = ", ".join(f"{name}: {guess.text}" for name, guess in blocks.items())
            notes = dict.fromkeys(guess.note for guess in blocks.values() if guess.note)
            self._line(1, f"blocks: [{{{listed}}}]", "; ".join(notes) or None)
        return bool(names)

    def _written_blocks(self, tuning: Tuning, blocks: Mapping[str, _Guess]) -> None:
        for obligation in {each.name: each for each in tuning.obligations}.values():
            self._comment(
                1, f"check: the source tunes with {obligation.name}: {obligation.meaning}. Do that at launches"
            )
            self.result.checks += 1
        self._line(1, "blocks:")
        where = Position(file=self.found.module.file, line=self.node.lineno)
        try:
            listed = autotuned_blocks(tuning.configurations, "blocks", where, list(self.worlds))
        except ManifestError as error:
            self._comment(2, f"check: {error.what}")
            return
        for block, configuration in zip(listed, tuning.configurations, strict=True):
            values = {**configuration.constants, **configuration.options}
            own = ", ".join(f"{name}: {yaml_value(value)}" for name, value in values.items())
            more = "".join(f", {name}: {guess.text}" for name, guess in blocks.items())
            note = f"for {', '.join(block.targets)} only" if block.targets is not None else None
            self._line(2, f"- {{tag: {yaml_text(block.tag)}, {own}{more}}}", note)

    # -- constants

    def _is_constant(self, name: str) -> bool:
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

    def _constants(self, given: set[str]) -> tuple[dict[str, _Guess], dict[str, _Guess]]:
        """Constants and block sizes, without those that are `given` by configurations and heuristics."""
        constants: dict[str, _Guess] = {}
        blocks: dict[str, _Guess] = {}
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
            constants[name] = _Guess(text=FILL_IN, note="of the function that makes the kernel")
        for name, passed in (self.launch.passed if self.launch is not None else {}).items():
            if passed.kind == NOTHING and name not in names:
                constants[name] = _Guess(text="null", note="as it is launched; take it out to pass a pointer")
        return constants, blocks

    def _factory_parameters(self) -> list[str]:
        """The parameters without defaults of the functions around the kernel."""
        words = self.function.split(".")[:-1]
        around = [find_definition(self.found.module, ".".join(words[: count + 1])) for count in range(len(words))]
        return [
            argument.arg
            for node in around
            if node is not None
            for argument in node.args.args[: len(node.args.args) - len(node.args.defaults)]
        ]

    def _is_size(self, name: str) -> bool:
        use = self.uses.of[name]
        return use.extent or (bool(_BLOCK_NAME.search(name)) and not use.truth and not use.texts)

    def _constant(self, name: str, passed: Passed | None, sizes: int) -> _Guess:
        use = self.uses.of[name]
        if passed is not None and passed.literal is not None:
            return _Guess(text=yaml_value(passed.literal), note="as it is launched")
        if passed is not None and passed.kind == NOTHING:
            return _Guess(text="null", note="as it is launched")
        function = self._function(passed)
        if function is not None:
            return _Guess(text=f"{{function: {function}}}", note="as it is launched")
        if use.called:
            return _Guess(text=FILL_IN, note="the name of a jitted function of the file, as {function: relu}")
        if use.dtype and not use.integer:
            return _Guess(text='{dtype: "{dtype}"}', note="guessed: the variant's own")
        if use.texts:
            return _Guess(
                text=yaml_text(use.texts[0]), note=f"guessed: the kernel compares it with {_listed(use.texts)}"
            )
        if use.unrolled:
            return _Guess(text="4", note="guessed: a loop is written out as often")
        if use.extent or self._is_size(name):
            return _Guess(text="1024" if sizes == 1 else "64" if sizes < 4 else "16", note="guessed: a power of two")
        return self._switch_or_number(name, use, passed)

    def _switch_or_number(self, name: str, use: Use, passed: Passed | None) -> _Guess:
        counts = use.integer or use.real or (passed is not None and passed.kind == INTEGER)
        if (use.truth and not use.integer) or (passed is not None and passed.kind == TRUTH):
            return _Guess(text="false", note="guessed: make it an axis to build both")
        if re.match(
            r"(?i)(?:has|is|use|enable|with|store|return|need|apply|even|do|output|save|load|causal)(?:_|$)", name
        ):
            return _Guess(text="false", note="guessed: make it an axis to build both")
        if "STAGES" in name.upper():
            return _Guess(text="2", note="guessed")
        if "GROUP" in name.upper():
            return _Guess(text="8", note="guessed")
        if use.numbers:
            return _Guess(text=str(use.numbers[0]), note=f"guessed: the kernel compares it with {_listed(use.numbers)}")
        if use.maybe_none:
            return _Guess(text="null", note="guessed: the kernel asks whether it is None")
        if passed is not None and passed.kind == REAL:
            return _Guess(text="1.0", note="guessed")
        if (
            counts
            or not use.mentioned
            or re.search(r"(?i)size|dim|stride|num|len|head|chunk|offset|count|step|^n_|^[A-Z]{1,3}$", name)
        ):
            return _Guess(text="64", note="guessed: a size or a count")
        return _Guess(text=FILL_IN, note="nothing tells what it is")

    def _function(self, passed: Passed | None) -> str | None:
        """The jitted function of the file that a launch passes."""
        if passed is None or not isinstance(passed.node, ast.Name):
            return None
        units = self.found.module.binding(passed.node.id)
        return passed.node.id if units and isinstance(units[-1].node, ast.FunctionDef) else None

    # -- arguments

    def _argument(self, name: str) -> _Guess:
        use = self.uses.of[name]
        annotation = self._annotation(name)
        if annotation is not None:
            return _Guess(text=annotation)
        passed = self.launch.passed.get(name) if self.launch is not None else None
        kind = passed.kind if passed is not None else None
        if use.descriptor:
            return _Guess(text="tensordesc<{dtype}>", note="check: a tensor descriptor made by the host")
        if use.pointer or (kind == POINTER) or (kind is None and _POINTER_NAME.search(name)):
            return self._pointer(name, use, passed)
        default = self._defaults().get(name)
        if kind is None and isinstance(default, ast.Constant):
            kind = {bool: TRUTH, int: INTEGER, float: REAL}.get(type(default.value))
        if kind == REAL or (kind is None and not use.integer and (use.real or _REAL_NAME.search(name))):
            return _Guess(text="fp32", note=None if kind == REAL else "guessed")
        if kind == TRUTH:
            return _Guess(text="i1")
        note = None if kind == INTEGER or use.integer else "check: nothing tells what it is"
        if kind is None and re.search(r"(?i)seed", name):
            note = "guessed: i64 for a seed of 64 bits"
        return _Guess(text="i32", note=note)

    def _annotation(self, name: str) -> str | None:
        """The type that an annotation says."""
        annotation = next(argument.annotation for argument in self._parameters() if argument.arg == name)
        if annotation is None:
            return None
        text = annotation.value if isinstance(annotation, ast.Constant) else ast.unparse(annotation)
        if not isinstance(text, str):
            return None
        word = text.rpartition(".")[2]
        if word in _SCALARS:
            return _SCALARS[word]
        named = {f"{kind}{bits}": f"{kind[0]}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
        named |= {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64", "int1": "i1"}
        return named.get(word)

    def _pointer(self, name: str, use: Use, passed: Passed | None) -> _Guess:
        maybe = " (it may be None: set it to null under `constants` to leave it out)"
        more = maybe if use.maybe_none or (passed is not None and passed.maybe_none) else ""
        if passed is not None and passed.dtype in DTYPES:
            return _Guess(text=f"*{passed.dtype}", note=f"as it is allocated{more}" if more else None)
        if use.holds_index or _INDEX_NAME.search(name):
            dtype = "i32" if _INDEX_32.search(name) else "i64"
            return _Guess(text=f"*{dtype}", note=f"guessed: it holds indices{more}")
        if use.holds_truth and "mask" in name.lower():
            return _Guess(text="*i1", note=f"guessed: it holds a mask{more}")
        if _STATISTIC_NAME.search(name):
            return _Guess(text="*fp32", note=f"guessed: a statistic{more}")
        return _Guess(text="*{dtype}", note=more.strip() or None)


def _listed(values: Sequence[object]) -> str:
    return " and ".join(dict.fromkeys(repr(value) for value in values))

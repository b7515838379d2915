"""`kiln import`: the entry for kernels.yaml of a kernel that somebody else wrote, as far as its file tells it."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from kiln.closure import jit
from kiln.closure.decisions import settle
from kiln.closure.slice import cut
from kiln.closure.tuning.autotune import Tuning, find_tuned, read_tuning
from kiln.closure.world import World
from kiln.errors import ClosureError, ManifestError, Position
from kiln.manifest.choices import check_variable
from kiln.manifest.from_source import autotuned_blocks
from kiln.manifest.json_schema import MODELINE
from kiln.manifest.names import check_argument, check_name
from kiln.manifest.schema import OPTIONS
from kiln.manifest.text_checks import check_python_function
from kiln.manifest.value_types import FILL_IN
from kiln.project.foreign_file import Found, ImportKernelError, full_name
from kiln.project.grid_text import grid_of
from kiln.project.guesses import Guess, Guesses
from kiln.project.kernel_use import Uses, names_of, uses
from kiln.project.launch_code import Launch, differences, find_launches
from kiln.project.yaml_text import yaml_expression, yaml_text, yaml_value


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

    Raises ImportKernelError when the file has no such function, and when `key` is no name for a kernel.
    """
    name = full_name(found.module, function)
    project = settle(found.project, found.module.path, name, next(iter(worlds.values())))
    found = replace(found, project=project, module=project.open(found.module.path))
    tuned = find_tuned(found.project, found.module, name)
    assert tuned is not None and tuned.module is found.module
    definition = tuned.definition
    kernel = _Kernel(
        found=found,
        function=name,
        node=definition,
        key=_key(function) if key is None else _checked(key),
        uses=uses(found.project, found.module, definition),
        launches=find_launches(found.module, name, names_of(definition)),
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


def _checked(key: str) -> str:
    try:
        check_name(key, Position(file="--key", line=1), "a kernel's name")
    except ManifestError as error:
        raise ImportKernelError(
            error.what, where="--key", expected=error.expected, actual=error.actual, remedy=error.remedy
        ) from None
    return key


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
class _Kernel:
    found: Found
    function: str
    node: ast.FunctionDef
    key: str
    uses: Uses
    launches: Sequence[Launch]
    """the one that passes most of the parameters first"""
    worlds: Mapping[str, World]
    result: Entry = field(default_factory=Entry)

    @property
    def launch(self) -> Launch | None:
        return self.launches[0] if self.launches else None

    # -- the entry

    def entry(self) -> Entry:
        self.result.roots.update(self.found.roots)
        guesses = Guesses(found=self.found, function=self.function, node=self.node, uses=self.uses, launch=self.launch)
        tuning, trouble = self._tuning()
        tuned = list(tuning.configurations[0].constants) if tuning is not None and tuning.configurations else []
        tuned_options = tuning is not None and bool(tuning.configurations)
        computed = self._heuristics()
        constants, blocks = guesses.constants({*tuned, *computed})
        arguments = {
            name: guesses.argument(name)
            for name in names_of(self.node)
            if not guesses.is_constant(name) and name not in constants and name not in tuned
        }
        integers = {name for name, guess in arguments.items() if re.fullmatch(r"[iu](?:8|16|32|64)", guess.text)}
        numbers = {name for name, guess in {**constants, **blocks}.items() if re.fullmatch(r"-?\d+", guess.text)}
        grid = grid_of(self.launch, integers | numbers | set(tuned), set(names_of(self.node)), self.uses.dimensions)

        where = "no launch in the file" if self.launch is None else f"launched at line {self.launch.line}"
        self._line(0, f"{yaml_text(self.key)}:", f"{self.function}, {where}")
        for refused in self._refused(arguments, [*constants, *blocks]):
            self._comment(1, f"check: a build refuses this: {refused}", check=True)
        for name, text in self.found.keys.items():
            self._line(1, f"{name}: {yaml_text(text)}")
        self._line(1, f"function: {self.function}")
        self._line(1, f"dtypes: [{'fp16' if self.uses.computes_in_fp32 else 'fp32'}]", "guessed: list those to build")
        has_blocks = self._blocks(blocks, tuning, trouble)
        if constants:
            self._line(1, "constants:")
            for name, guess in constants.items():
                self._line(2, f"{yaml_text(name)}: {guess.text}", guess.note)
        for other in self.launches[1:]:
            unlike = differences(self.launches[0], other, [*constants, *blocks])
            if unlike:
                said = ", ".join(f"{name} = {text}" for name, text in unlike.items())
                self._comment(1, f"check: line {other.line} launches it with {said}", check=True)
        for name in computed:
            if name in OPTIONS and name not in names_of(self.node):
                self._comment(1, f"check: @triton.heuristics chooses {name}: say it under `options`", check=True)
            else:
                self._comment(
                    1, f"{name} is derived from the source's @triton.heuristics; a constant of that name wins"
                )
        self._line(1, f"name: {self.key}_{{dtype}}{'_{block}' if has_blocks else ''}")
        for name, guess in arguments.items():
            if guess.note is not None:
                self._comment(1, f"{name}: {guess.text}  {guess.note}", check=True)
        signature = ", ".join(guess.text for guess in arguments.values())
        self._line(1, f'signature: "{signature}"', "add :16 where callers pass what is divisible by 16")
        if self.launch is not None and self.launch.options and not tuned_options:
            listed = ", ".join(f"{name}: {yaml_value(value)}" for name, value in self.launch.options.items())
            self._line(1, f"options: {{{listed}}}")
        if self.launch is not None and not tuned_options:
            for name, text in self.launch.computed.items():
                self._comment(1, f"check: the launch computes {name}, as {text}: say it under `options`", check=True)
        if grid.inputs:
            listed = ", ".join(f"{name}: i32" for name in grid.inputs)
            self._line(1, f"inputs: {{{listed}}}", "check: the launch computes the grid with these")
        self._line(1, f"grid: [{', '.join(yaml_expression(extent) for extent in grid.extents)}]")
        return self.result

    def _refused(self, arguments: Iterable[str], constants: Iterable[str]) -> Iterator[str]:
        """What kernels.yaml cannot say of the kernel, because of a name in its source."""
        at = self.found.module.position(self.node)
        checks: list[Callable[[], None]] = [lambda: check_python_function(self.function, at)]
        checks += [partial(check_argument, name, at, "the name of a kernel argument") for name in arguments]
        checks += [partial(check_variable, name, at, "a constant") for name in constants]
        for check in checks:
            try:
                check()
            except ManifestError as error:
                yield error.what

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
        """The parameters and compiler options that `@triton.heuristics` computes, as far as its text names them."""
        names: list[str] = []
        for decorator in self.node.decorator_list:
            if not isinstance(decorator, ast.Call):
                continue
            canonical = self.found.project.canonical(self.found.module, decorator.func, needed=True) or ""
            if canonical in jit.TUNING and canonical.endswith("heuristics"):
                values = [*decorator.args, *(keyword.value for keyword in decorator.keywords)]
                maps = [part for value in values for part in ast.walk(value) if isinstance(part, ast.Dict)]
                names += [str(key.value) for part in maps for key in part.keys if isinstance(key, ast.Constant)]
        return [name for name in names if name in names_of(self.node) or name in OPTIONS]

    def _blocks(self, blocks: Mapping[str, Guess], tuning: Tuning | None, trouble: str | None) -> bool:
        """Print the blocks, and tell whether there are any: a kernel that takes no size has none."""
        if trouble is not None:
            self._comment(1, f"check: the source tunes this kernel, and its configurations cannot be told: {trouble}")
            self.result.checks += 1
        if tuning is not None and tuning.configurations:
            tags, trouble = self._tags(tuning)
            if not tuning.obligations and not blocks and trouble is None:
                self._line(1, "blocks: autotune", f"{len(tuning.configurations)} configurations")
            else:
                self._written_blocks(tuning, blocks, tags, trouble)
            return True
        names = list(blocks)
        if names == ["BLOCK_SIZE"]:
            self._line(1, f"blocks: [{blocks['BLOCK_SIZE'].text}]", blocks["BLOCK_SIZE"].note)
        elif names:
            listed = ", ".join(f"{yaml_text(name)}: {guess.text}" for name, guess in blocks.items())
            notes = dict.fromkeys(guess.note for guess in blocks.values() if guess.note)
            self._line(1, f"blocks: [{{{listed}}}]", "; ".join(notes) or None)
        return bool(names)

    def _tags(self, tuning: Tuning) -> tuple[list[str], str | None]:
        """The tags of the configurations; or numbers, where `blocks: autotune` cannot make any, and why it cannot."""
        where = Position(file=self.found.module.file, line=self.node.lineno)
        try:
            listed = autotuned_blocks(tuning.configurations, "blocks", where, list(self.worlds))
        except ManifestError as error:
            return [f"c{number}" for number in range(1, len(tuning.configurations) + 1)], error.what
        return [block.tag for block in listed], None

    def _written_blocks(
        self, tuning: Tuning, blocks: Mapping[str, Guess], tags: Sequence[str], trouble: str | None
    ) -> None:
        for obligation in {each.name: each for each in tuning.obligations}.values():
            self._comment(
                1, f"check: the source tunes with {obligation.name}: {obligation.meaning}. Do that at launches"
            )
            self.result.checks += 1
        self._line(1, "blocks:")
        if trouble is not None:
            self._comment(2, f"check: written out, since {trouble}", check=True)
        for tag, configuration in zip(tags, tuning.configurations, strict=True):
            values = {**configuration.constants, **configuration.options}
            own = ", ".join(f"{yaml_text(name)}: {yaml_value(value)}" for name, value in values.items())
            more = "".join(f", {yaml_text(name)}: {guess.text}" for name, guess in blocks.items())
            note = f"for {', '.join(configuration.targets)} only" if configuration.targets is not None else None
            self._line(2, f"- {{tag: {yaml_text(tag)}, {own}{more}}}", note)

"""A CUDA C++ source with all files of the project that it may include: what is compiled, and nothing else of it.

The compiler sees these files alone, in a folder of its own. Which of them it opens depends on macros, so it says that
itself; what it opened, and where each include of those could have led, is what an image depends on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kiln.closure.cuda_layout import CompiledText, compiled_texts
from kiln.closure.cuda_neighbours import without_other_kernels
from kiln.closure.cuda_text import Include, KernelText, includes, kernels_called, with_plain_line_ends, without_comments
from kiln.closure.function_parameters import FunctionParameter
from kiln.closure.roots import Roots
from kiln.digests import digest_bytes, digest_json
from kiln.errors import ClosureError, Position
from kiln.files import Memo, is_file, read


@dataclass(frozen=True, kw_only=True)
class CudaFile:
    """One file of the project."""

    path: Path
    name: str
    """the same on every machine: kernels/reduce.cu, ../third_party/flash/tile.cuh"""
    text: str
    """without its comments; lines and columns are the file's"""

    @cached_property
    def includes(self) -> tuple[Include, ...]:
        return includes(self.text)


@dataclass(frozen=True, kw_only=True)
class CudaSource:
    """A kernel's function, and the files that it is compiled from. Pickles."""

    function: str
    """without namespace and template arguments"""
    position: Position
    """of the function"""
    parameters: tuple[FunctionParameter, ...]
    template: str
    """template <typename T, int N>; empty for none"""
    scope: str
    """the namespaces that the function stands in: ns::inner::"""
    name: str
    """of the kernel's own file"""
    files: Mapping[str, CompiledText]
    """by name, its own first"""
    roots: tuple[str, ...]
    """the folders, relative to the project's, that includes are looked up in, in order"""

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """What is compiled of each file, by name."""
        return {name: digest_bytes(file.data) for name, file in self.files.items()}


class CudaFiles:
    """The CUDA C++ files of a project, each read once: a build sees one state of them.

    A quoted include is looked up beside the file that has it, and in the folder of kernels.yaml; both kinds then in the
    declared roots, and at last among the headers of toolkit and system, which are no files of the project.
    """

    def __init__(self, root: Path, roots: tuple[str, ...] = ()) -> None:
        self._folders = Roots(root=root, others=roots)
        self._roots = roots
        self._files: Memo[Path, CudaFile] = Memo()
        self._candidates: Memo[tuple[str, Include], tuple[CudaFile, ...]] = Memo()
        self._reached: Memo[Path, dict[str, CudaFile]] = Memo()

    def source(
        self, path: Path, function: str, where: Position, defines: Mapping[str, str], *, as_written: bool = False
    ) -> CudaSource:
        """The source of `function`, which stands in the file `path` or in one that it includes.

        `function` may have a namespace and template arguments. `where` is the place that names it. `defines` are the
        macros that kernels.yaml gives a text: what they name, the files do. `as_written`, lines and columns of what is
        compiled are the author's. Raises ClosureError when no or more than one function has that name, and for an
        include that leads out of the project.
        """
        files = self.reached(path)
        name = function.partition("<")[0].strip().rpartition("::")[2]
        file, kernel = _find(files.values(), name, where)
        macros = "".join(f"#define {name} {text}\n" for name, text in defines.items())
        needed = without_other_kernels([*(each.text for each in files.values()), macros], function)
        texts = compiled_texts(needed, as_written=as_written)
        return CudaSource(
            function=name,
            position=Position(file=file.name, line=kernel.line),
            parameters=tuple(_parameters(file, kernel)),
            template=kernel.template,
            scope=kernel.scope,
            name=next(iter(files)),
            files=dict(zip(files, texts[:-1], strict=True)),
            roots=self._roots,
        )

    def reached(self, path: Path) -> dict[str, CudaFile]:
        """The file and all that it may include, by name. Raises ClosureError and OSError."""
        return self._reached.get(path, lambda: self._follow(path))

    def _follow(self, path: Path) -> dict[str, CudaFile]:
        first = self._open(path)
        found = {first.name: first}
        waiting = [first]
        while waiting:
            file = waiting.pop()
            for include in file.includes:
                for other in self.candidates(file, include):
                    if other.name not in found:
                        found[other.name] = other
                        waiting.append(other)
        return found

    def candidates(self, file: CudaFile, include: Include) -> tuple[CudaFile, ...]:
        """The files of the project that an include can mean, the one that is looked at first in front."""
        return self._candidates.get((file.name, include), lambda: tuple(self._look_up(file, include)))

    def lookups(self, path: Path, names: Iterable[str]) -> str:
        """Digest of where each include of some of the files that `path` reaches leads: files come and go, too."""
        return digest_json(self.leads(path, names))

    def leads(self, path: Path, names: Iterable[str]) -> dict[str, list[tuple[str, list[str]]]]:
        """By file, what each include of it is, and the files that it can mean."""
        files = self.reached(path)
        return {
            name: [
                (include.path, [each.name for each in self.candidates(files[name], include)])
                for include in files[name].includes
            ]
            for name in names
            if name in files
        }

    def _look_up(self, file: CudaFile, include: Include) -> Iterator[CudaFile]:
        where = Position(file=file.name, line=include.line)
        if include.path.startswith("/"):
            raise ClosureError(
                f"the include of {include.path} leads to one machine's file",
                where=where,
                expected="a path relative to the file, to the folder of kernels.yaml or to one of its `roots`",
                actual=include.path,
                remedy="declare the folder under `roots`, and include the file relative to it",
            )
        bases = self._folders.bases
        quoted = [file.path.parent, bases[0].folder] if include.is_quoted else []
        for folder in dict.fromkeys([*quoted, *(base.folder for base in bases[1:])]):
            path = Path(os.path.normpath(folder / include.path))
            if not is_file(path):
                continue
            base = self._folders.base_of(path)
            if base is None or base.is_installed:
                raise ClosureError(
                    f"the include of {include.path} leads out of the project",
                    where=where,
                    expected="a file in the folder of kernels.yaml or in one of its `roots`",
                    actual=str(path),
                    remedy="declare its folder under `roots`, and include the file relative to it",
                )
            yield self._open(path)

    def _open(self, path: Path) -> CudaFile:
        return self._files.get(path, lambda: self._read(path))

    def _read(self, path: Path) -> CudaFile:
        text = read(path).decode("utf-8", "surrogateescape").removeprefix("\ufeff")
        return CudaFile(path=path, name=self._folders.name(path), text=without_comments(with_plain_line_ends(text)))


def _find(files: Iterable[CudaFile], name: str, where: Position) -> tuple[CudaFile, KernelText]:
    found = [(file, kernel) for file in files for kernel in kernels_called(file.text, name)]
    if not found:
        raise ClosureError(
            f"there is no kernel {name}",
            where=where,
            expected=f"a function `__global__ void {name}(...)`, spelled out in the source or in what it includes",
            actual=f"none in {', '.join(file.name for file in files)}",
            remedy="correct `function`; a kernel that macros make must be written out",
        )
    written = [each for each in found if each[1].is_definition] or found
    if len({kernel.names for _, kernel in written}) > 1:
        raise ClosureError(
            f"{name} is the name of several kernels with different parameters",
            where=where,
            expected="one kernel of that name, or parameters that are called the same in all",
            actual="; ".join(f"{file.name}:{kernel.line}: {', '.join(kernel.parameters)}" for file, kernel in written),
            remedy="rename one of them",
        )
    return written[0]


def _parameters(file: CudaFile, kernel: KernelText) -> Iterator[FunctionParameter]:
    for index, (name, text) in enumerate(zip(kernel.names, kernel.parameters, strict=True)):
        if name is None:
            raise ClosureError(
                f"parameter {index + 1} of the kernel has no name",
                where=Position(file=file.name, line=kernel.line),
                expected="a name for each parameter: callers and `grid` know arguments by it",
                actual=text,
                remedy="name it in the function's definition",
            )
        yield FunctionParameter(name=name, is_constexpr=False, has_default=False, annotation=text)

"""What the inputs of a library's steps are, as people read it: the source of a function, the files of a tool.

Asked when a step is recorded, for digests that are new, and when somebody asks what changed: so nothing here is asked
of a build that has nothing to do, and nothing that is built depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kiln.closure.digest import lines_of
from kiln.closure.slice import Closure
from kiln.compilers.nvcc_found import INCLUDE, LOOKUPS
from kiln.digests import digest_json
from kiln.engine.step import Found, Text
from kiln.files import FOR_ALL, asked_by
from kiln.library import Library
from kiln.manifest.interface import Interface
from kiln.manifest.model import Image
from kiln.packaging.inventory import inventory_of

_CLOSURE, _SOURCE = "closure ", "source "
"""how the names of inputs begin that are over a part of a slice, and over a file in CUDA C++"""
_SHORT = 12
"""hex digits of a digest in a list"""


def input_text(
    library: Library, images: Sequence[Image], after: Sequence[str], name: str, digest: str, found: Found
) -> Text | None:
    """What an input of a step is over, by its name and its digest; None for what no text is known of.

    The step is one of some `images`, comes after the tasks `after`, and its run `found` what else it reads. Raises
    KilnError where that cannot be had.
    """
    if len(images) == 1:
        image = images[0]
        is_cuda = image.variant.kernel.cuda is not None
        text = _cuda_text(library, image, name, found) if is_cuda else _triton_text(library, image, name)
        if text is not None:
            return text
        if name == "arguments":
            return _arguments(library.interface(image))
    return _tool_text(library, name, digest) or _package_text(library, images, after, name, digest)


def _triton_text(library: Library, image: Image, name: str) -> Text | None:
    if name == "closure":
        closure = library.closure(image)
        parts = [f"{each.file}:\n{_squeezed(each.text)}" for each in closure.modules]
        return Text(body="".join((f"function {closure.function}\n", *parts)))
    if name == "lines":
        return Text(body="".join(f"{module.file}:\n{module.text}" for module in library.closure(image).modules))
    if name.startswith(_CLOSURE):
        closure, part = library.closure(image), name.removeprefix(_CLOSURE)
        if part in closure.asked:
            return Text(body=f"{library.world(image).answer(part)}\n")
        return _part(closure, part)
    return None


def _part(closure: Closure, part: str) -> Text | None:
    """What is behind a component of a closure: a whole file, or what binds a name of one."""
    for module in closure.modules:
        if part == module.file:
            return Text(body=module.text, place=module.file)
        if part.startswith(f"{module.file}:") and module.is_slice:
            found = lines_of(module.text, module.file, part.removeprefix(f"{module.file}:"))
            body = "".join(f"{line}\n" for _, line in found)
            return Text(body=body, place=module.file, lines=[number for number, _ in found]) if found else None
    return None


def _squeezed(text: str) -> str:
    """Without the empty lines in place of what a slice leaves out."""
    return "".join(f"{line}\n" for line in text.splitlines() if line.strip())


def _cuda_text(library: Library, image: Image, name: str, found: Found) -> Text | None:
    if name == LOOKUPS:
        leads = library.cuda.leads(image, found.get(LOOKUPS, ()))
        return _list(
            (f"{include} in {file}", ", then ".join(files) or "no file of the project")
            for file, includes in leads.items()
            for include, files in includes
        )
    if name == "roots":
        return _list((root, "") for root in library.cuda.source(image).roots)
    if not name.startswith((_SOURCE, INCLUDE)):
        return None
    file = name.partition(" ")[2]
    compiled = library.cuda.source(image).files.get(file)
    return None if compiled is None else Text(body=compiled.text, place=file)


def _arguments(interface: Interface) -> Text:
    promises = {argument: f":{argument.promise}" if argument.promise else "" for argument in interface.arguments}
    return _list((argument.name, f"{argument.type}{promise}") for argument, promise in promises.items())


def _tool_text(library: Library, name: str, digest: str) -> Text | None:
    """A program or a library by its path, and what consists of several files by their digests."""
    files = library.state.files
    listed, path = files.list_of(digest), files.path_of(digest)
    if listed is not None:
        return _digests(listed)
    if path is None or path.is_relative_to(library.build):
        return None
    with asked_by(FOR_ALL):
        is_tritons = "triton" in path.parts and path.is_relative_to(library.triton.folder)
        version = f" of Triton {library.triton.version}" if is_tritons else ""
    return Text(body=f"{path}{version}\n")


def _package_text(
    library: Library, images: Sequence[Image], after: Sequence[str], name: str, digest: str
) -> Text | None:
    """What is over many images or many outputs, where it is what the digest is of."""
    if name == "facts":
        facts = {image.id: library.output(f"compile:{image.id}", library.facts_path(image)) for image in images}
        return _digests(facts) if digest_json(list(facts.values())) == digest else None
    if name == "declarations":
        said = {image.id: library.packages.declaration(image) for image in images}
        return _digests(said) if digest_json([[image.target, said[image.id]] for image in images]) == digest else None
    if name == "bundled":
        built = {image.target: library.output(f"compile:{image.id}", library.image_path(image)) for image in images}
        return _digests(built) if digest_json(built) == digest else None
    if name == "bundles":
        paths = library.onnxruntime_bundles
        made = {variant: library.output(f"bundle:{variant}", path) for variant, path in paths.items()}
        return _digests(made) if digest_json(made) == digest else None
    if name == "objects" and library.outputs(after) == digest:
        rows = [row for task in after if (row := library.state.rows.get(task)) is not None]
        return _digests({output.path: output.sha256 for row in rows for output in row.outputs})
    if name == "parameters":
        measured = [library.packages.parameters(image) for image in images]
        shown = {image.id: digest_json(each) for image, each in zip(images, measured, strict=True)}
        return _digests(shown) if digest_json(measured) == digest else None
    if name == "groups":
        groups = [[group, list(variants)] for group, variants in inventory_of(images).groups]
        said = {group: ", ".join(variants) for group, variants in inventory_of(images).groups}
        return _list(said.items()) if digest_json(groups) == digest else None
    if name == "images" and digest_json([[image.variant.id, image.target] for image in images]) == digest:
        return _list((image.id, "") for image in images)
    return None


def _digests(digests: Mapping[str, str]) -> Text:
    return _list((name, digest[:_SHORT]) for name, digest in digests.items())


def _list(lines: Iterable[tuple[str, str]]) -> Text:
    return Text(body="".join(f"{name}\t{value}\n" for name, value in lines), is_list=True)

"""What of a library goes to ONNX Runtime: the section `onnxruntime` of kernels.yaml."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kiln.errors import ManifestError, Position, did_you_mean
from kiln.manifest.files import ManifestFile, entries_of
from kiln.manifest.model import FATBIN, Kernel, OnnxRuntime
from kiln.manifest.targets import NATIVE, LibraryTargets
from kiln.manifest.wording import show
from kiln.manifest.yaml_nodes import List

SECTION = "onnxruntime"


def read_onnxruntime(
    file: ManifestFile, library: LibraryTargets, kernels: Iterable[Kernel] | None
) -> OnnxRuntime | None:
    """The section of the manifest's first file; None where it has none.

    `kernels` are all that there are; with None, its list of them is known to be right. Raises ManifestError for a
    target that the library is not built for, and for kernels that there are not, or not for that target.
    """
    given: Mapping[str, Any] | None = file.values[SECTION]
    if given is None:
        return None
    entries = entries_of(file.entries[SECTION].value)
    target = _target(given["target"], entries["target"].value.position, library)
    if target == FATBIN and kernels is not None and all(kernel.bundle != FATBIN for kernel in kernels):
        raise ManifestError(
            f"`{SECTION}.target` is {FATBIN}, and no kernel's images are bundled",
            where=entries["target"].value.position,
            expected=f"a library or kernels with `bundle: {FATBIN}`",
            actual="images that stay separate",
            remedy=f"write `bundle: {FATBIN}` for the library, or name one of its targets here",
        )
    names: tuple[str, ...] | None = given.get("kernels")
    if names is not None and kernels is not None:
        node = entries["kernels"].value
        assert isinstance(node, List)
        known = {kernel.key: kernel for kernel in kernels}
        for name, item in zip(names, node.items, strict=True):
            _check_kernel(name, item.position, target, known)
    return OnnxRuntime(target=target, kernels=names, position=file.entries[SECTION].key.position)


def _target(name: str, position: Position, library: LibraryTargets) -> str:
    what = f"{SECTION}.target"
    if name == FATBIN:
        return name
    if name == NATIVE and len(library.native) > 1:
        raise ManifestError(
            f"`{what}` is one target, and the GPUs of this machine are of several kinds",
            where=position,
            expected=f"one of {', '.join(library.native)}",
            actual=NATIVE,
            remedy="name the one that ONNX Runtime is to run on",
        )
    if name == NATIVE and library.native:
        return library.native[0]
    if name not in library.names:
        known = [*library.names, *([NATIVE] if library.native else []), FATBIN]
        raise ManifestError(
            f"`{what}` is {show(name)}, which the library is not built for",
            where=position,
            expected=f"one of {', '.join(known)}",
            actual=show(name),
            remedy=did_you_mean(name, known) or "add it to the library's `targets`",
        )
    return name


def _check_kernel(name: str, position: Position, target: str, known: Mapping[str, Kernel]) -> None:
    what = f"{SECTION}.kernels"
    if name not in known:
        raise ManifestError(
            f"`{what}` holds {show(name)}, and there is no such kernel",
            where=position,
            expected=f"kernels among {', '.join(known)}",
            actual=show(name),
            remedy=did_you_mean(name, known) or "remove it here, or declare it",
        )
    if target == FATBIN:
        _check_bundled(what, name, position, known[name])
    elif target not in known[name].targets:
        raise ManifestError(
            f"`{what}` holds {show(name)}, which is not built for {target}",
            where=position,
            expected=f"kernels whose `targets` have {target}",
            actual=f"{name} is built for {', '.join(known[name].targets)}",
            remedy=f"add {target} to the kernel's `targets`, or remove it here",
        )


def _check_bundled(what: str, name: str, position: Position, kernel: Kernel) -> None:
    if kernel.bundle != FATBIN:
        raise ManifestError(
            f"`{what}` holds {show(name)}, whose images are not bundled",
            where=position,
            expected=f"kernels with `bundle: {FATBIN}`, for `{SECTION}.target` is {FATBIN}",
            actual=f"{name} has `bundle: {kernel.bundle}`",
            remedy=f"write `bundle: {FATBIN}` for the kernel, or remove it here",
        )

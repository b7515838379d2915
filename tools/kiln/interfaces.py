"""What the images of a manifest are compiled from: closures and interfaces, each found once for all that share it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kiln.closure.bind import bind, check_alike
from kiln.closure.resolve import Project
from kiln.closure.slice import Closure, cut
from kiln.closure.tuning.heuristics import Heuristics
from kiln.closure.world import World, of_target
from kiln.errors import KilnError
from kiln.manifest.constants import functions_of
from kiln.manifest.interface import Interface
from kiln.manifest.model import Image, Manifest

T = TypeVar("T")


class Interfaces:
    """Closures and interfaces of a manifest's images."""

    def __init__(self, manifest: Manifest, world: Callable[[Image], World]) -> None:
        """`world` says what the code of an image may ask of the machine that it runs on."""
        self._manifest = manifest
        self._world = world
        self._roots = tuple(manifest.roots.values())
        self._closures: dict[tuple[str, tuple[str, ...]], dict[str, Closure]] = {}
        """by kernel and functions, then by target"""
        self._heuristics: dict[tuple[str, str], Heuristics] = {}
        """by kernel and target"""
        self._interfaces: dict[tuple[str, str, str], Interface] = {}
        """by variant, digest of the closure, and target or, where that makes no difference, nothing"""
        self._first: dict[str, tuple[str, Interface]] = {}
        """by variant: a target, and its interface"""
        self._failed: dict[tuple[str, str, str], KilnError] = {}
        """what could not be found, which may have taken long: every step of an image asks for it"""

    def _remembered(self, key: tuple[str, str, str], find: Callable[[], T]) -> T:
        """What `find` finds, unless that has failed before."""
        if key in self._failed:
            raise self._failed[key]
        try:
            return find()
        except KilnError as error:
            self._failed[key] = error
            raise

    def closure(self, image: Image) -> Closure:
        """The slice that the image is compiled from. Raises ClosureError.

        It is cut once for all images of a kernel that get the same functions as constants, and once for each of their
        targets where the source asks what it is built for.
        """
        variant = image.variant
        kernel = variant.kernel
        functions = functions_of([*variant.constants.values(), *variant.axes.values()])
        known = self._closures.setdefault((kernel.key, functions), {})
        if image.target not in known:
            other = next(iter(known.values()), None)
            if other is not None and not any(map(of_target, other.asked)):
                return other
            known[image.target] = self._remembered(
                (kernel.key, ",".join(functions), image.target),
                lambda: cut(
                    kernel.source,
                    kernel.function,
                    root=self._manifest.root,
                    roots=self._roots,
                    functions=functions,
                    world=self._world(image),
                    where=kernel.positions.get("function", kernel.position),
                ),
            )
        return known[image.target]

    def interface(self, image: Image) -> Interface:
        """What a caller of the image's variant passes; the same on all of its targets.

        Raises ClosureError, and ManifestError when signature and function disagree, or two targets do.
        """
        return self._remembered(("interface", image.variant.id, image.target), lambda: self._found(image))

    def _found(self, image: Image) -> Interface:
        variant, closure = image.variant, self.closure(image)
        keys = [(variant.id, closure.digest, target) for target in ("", image.target)]
        for key in keys:
            if key in self._interfaces:
                return self._interfaces[key]
        heuristics = self._heuristics_of(image)
        interface = bind(variant, closure, heuristics)
        self._interfaces[keys[any(map(of_target, heuristics.asked))]] = interface
        first = self._first.setdefault(variant.id, (image.target, interface))
        check_alike(variant, {first[0]: first[1], image.target: interface})
        return interface

    def _heuristics_of(self, image: Image) -> Heuristics:
        kernel = image.variant.kernel
        key = (kernel.key, image.target)
        if key not in self._heuristics:
            # Each kernel with a project of its own: what is remembered there was asked for one of them.
            project = Project(root=self._manifest.root, roots=self._roots)
            self._heuristics[key] = Heuristics(project, kernel.source, kernel.function, self._world(image))
        return self._heuristics[key]

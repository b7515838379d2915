"""Joins manifest, closure and toolchain: reads what a manifest leaves to source files, for the targets of a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kiln.closure.decisions import settle
from kiln.closure.resolve import Project
from kiln.closure.tuning.autotune import configurations
from kiln.closure.tuning.function_table import function_table
from kiln.closure.world import World
from kiln.errors import ClosureError, Position
from kiln.manifest.from_source import Configuration, SourcePlace
from kiln.manifest.model import TableRow
from kiln.toolchain.targets import Target, find
from kiln.toolchain.tools import Triton, find_triton


def world_of(target: Target, triton: Triton, environment: Mapping[str, str | None]) -> World:
    """What code may ask of the machine that an image for `target` runs on."""
    return World(
        backend="cuda" if target.vendor == "nvidia" else "hip",
        arch=target.arch,
        warp_size=target.warp_size,
        triton_version=triton.version,
        environment=environment,
        triton_folder=triton.folder,
    )


def worlds_of(targets: Mapping[str, Position], environment: Mapping[str, str | None]) -> dict[str, World]:
    """The worlds of targets, by name. Raises ManifestError at a target's place for one that there is not."""
    triton = find_triton()
    return {name: world_of(find(name, at), triton, environment) for name, at in targets.items()}


@dataclass(frozen=True, kw_only=True)
class StaticReader:
    """The reader of a build: manifest.from_source.SourceReader over the closure's interpreter."""

    def configurations(
        self, place: SourcePlace, function: str, targets: Mapping[str, Position]
    ) -> tuple[Configuration, ...]:
        worlds = worlds_of(targets, place.environment)
        settled = {name: settle(_project(place), place.source, function, world) for name, world in worlds.items()}
        first, *others = settled
        for other in others:
            if settled[other].decided != settled[first].decided:
                raise ClosureError(
                    f"{function} is another function for {other} than for {first}, and so may be what it is tuned over",
                    where=place.where,
                    expected="one definition for all targets of the kernel",
                    remedy="declare a kernel for each, with `targets`, or write the blocks out",
                )
        project = settled[first]
        return configurations(project, project.open(place.source), function, worlds)

    def function_table(self, place: SourcePlace, targets: Mapping[str, Position]) -> tuple[TableRow, ...]:
        project = _project(place)
        return function_table(project, project.open(place.source), worlds_of(targets, place.environment))


def _project(place: SourcePlace) -> Project:
    return Project(root=place.root, roots=tuple(place.roots.values()))

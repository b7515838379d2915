"""A build folder and builds in it, and steps that write texts: for the engine's tests."""

from __future__ import annotations

from pathlib import Path

from kiln.engine.build import Build, Finished
from kiln.engine.state import State
from kiln.engine.step import Call, Step


class Tree:
    """A build folder, and builds in it; each is one run of doit."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "build"
        self.private = self.root / ".kiln"
        self.state_path = self.private / "state.sqlite"

    def build(self, size: int = 2) -> Build:
        return Build(state=State(self.state_path), root=self.root, folder=self.private, size=size)

    def run(self, steps: dict[str, Step]) -> dict[str, Finished]:
        """Sweep, run what is stale, and say how it ended."""
        with self.build() as build:
            build.sweep(set(steps))
            finished = {}
            for name, step in steps.items():
                if not build.status(name, step).fresh:
                    build.start(name, step)
                    finished[name] = build.finish()
            build.state.commit_files()
            build.state.close()
        return finished

    def reasons(self, name: str, step: Step) -> tuple[str, ...]:
        return self.build().status(name, step).reasons

    @property
    def files(self) -> dict[str, str]:
        found = [path for path in self.root.rglob("*") if path.is_file() and self.private not in path.parents]
        return {path.relative_to(self.root).as_posix(): path.read_text("utf-8") for path in found}


def writing(files: dict[str, str], **inputs: str) -> Step:
    """A step that writes texts."""
    return Step(
        inputs=lambda: {"content": digest_text(files), **inputs},
        call=lambda: Call(function="engine_jobs:write", arguments={"files": files}),
        outputs=tuple(files),
    )


def digest_text(files: dict[str, str]) -> str:
    return "+".join(files.values())

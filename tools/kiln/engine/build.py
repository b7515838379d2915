"""A build: asks which steps are stale, runs those in the pool, publishes what they make, records each as it ends."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from kiln.engine.forkserver import Ended
from kiln.engine.pool import Pool
from kiln.engine.publish import make_folder, publish, remove
from kiln.engine.state import Row, State
from kiln.engine.status import Status, check
from kiln.engine.step import Step
from kiln.errors import KilnError


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A step that ran: `error` is None when its outputs are published and recorded."""

    name: str
    error: KilnError | None
    trace: str | None
    log: Path | None
    """where the failed step's whole output is kept"""
    output: str
    seconds: float


class Build:
    """Runs steps whose outputs lie below `root`. `folder`, below it, is private: lock, temporary files, logs."""

    def __init__(self, *, state: State, root: Path, folder: Path, size: int) -> None:
        self.state = state
        self.root = root
        self._folder = folder
        self._statuses: dict[str, Status] = {}
        self._running: dict[str, tuple[Step, Status]] = {}
        self._pool = Pool(size=size, root=folder, temp=folder / "tmp")

    def __enter__(self) -> Build:
        # Another build may have held the lock until now.
        self.state.refresh()
        self._statuses.clear()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.close()

    @property
    def lock(self) -> Path:
        """The file that `lock.build_lock` takes for this build folder."""
        return self._folder / "lock"

    def sweep(self, known: set[str], outputs: Callable[[], set[str]] = set) -> list[str]:
        """Forget the steps that are not `known` any more, with all that they published, and clear old temporary files.

        Where the record of earlier builds is lost, what they left is told by its name: what is none of the `outputs` of
        known steps, in the folders that those write to. Returns the names of the steps that are gone.
        """
        # A folder that cannot be removed is in nobody's way: each job's has a name of its own.
        shutil.rmtree(self._folder / "tmp", ignore_errors=True)
        gone = [name for name in self.state.rows if name not in known]
        kept = {output.path for name, row in self.state.rows.items() if name in known for output in row.outputs}
        for name in gone:
            row = self.state.rows[name]
            remove(self.root, [output.path for output in row.outputs if output.path not in kept])
            self.state.drop(name)
        if self.state.warnings or not self.state.rows:
            self._remove_strangers(outputs())
        return gone

    def _remove_strangers(self, outputs: set[str]) -> None:
        for folder in {output.partition("/")[0] for output in outputs if "/" in output}:
            top = self.root / folder
            if top.is_dir() and not top.is_symlink():
                found = {path.relative_to(self.root).as_posix() for path in top.rglob("*") if not path.is_dir()}
                remove(self.root, found - outputs)

    @property
    def size(self) -> int:
        """How many steps run at once."""
        return self._pool.size

    @size.setter
    def size(self, size: int) -> None:
        self._pool.size = size

    @property
    def free(self) -> bool:
        """Whether another step may start now."""
        return self._pool.free

    @property
    def running(self) -> int:
        """How many steps have started and not finished."""
        return len(self._running)

    def status(self, name: str, step: Step) -> Status:
        """Whether the step is fresh. Asked once a build; a step that finishes is asked anew."""
        if name not in self._statuses:
            self._statuses[name] = check(step, self.state.rows.get(name), self.root, self.state.files)
        return self._statuses[name]

    def start(self, name: str, step: Step) -> None:
        """Start a step in a child. Raises KilnError when its inputs cannot be had."""
        status = self.status(name, step)
        before = (self.state.rows.get(name) for name in step.after)
        reads = {self.root / output.path: output.sha256 for row in before if row for output in row.outputs}
        # What is recorded in the end is what was asked here: an edit during the run makes the step stale again.
        self._pool.start(name, step.call(), reads)
        self._running[name] = (step, status)

    def finish(self) -> Finished:
        """The next step that ends: published and recorded, or failed with nothing of it published."""
        ended = self._pool.wait()
        step, status = self._running.pop(ended.name)
        self._statuses.pop(ended.name, None)
        error = ended.error
        try:
            if error is None:
                outputs = publish(self._pool.staging(ended.name), self.root, step.outputs)
                self._remove_leftovers(ended.name, step)
                self.state.record(
                    ended.name,
                    Row(
                        components=self._components(ended, step, status),
                        found=ended.found,
                        outputs=outputs,
                        seconds=ended.seconds,
                        peak_memory=ended.peak_memory,
                    ),
                )
        except KilnError as failure:
            error = failure
        finally:
            self._pool.release(ended.name)
        if error is not None:
            # A full disk must not hide the failure that is being reported; what it can do to a row is to keep it.
            with suppress(KilnError):
                self.fail(ended.name)
        return Finished(
            name=ended.name,
            error=error,
            trace=ended.trace,
            log=self._keep_log(ended, failed=error is not None),
            output=ended.output,
            seconds=ended.seconds,
        )

    def _components(self, ended: Ended, step: Step, status: Status) -> Mapping[str, str]:
        """The step's inputs as the run had them: those that were asked before it, and those that it found out."""
        row = self.state.rows.get(ended.name)
        earlier = row.found if row is not None else {}
        asked = {name: digest for name, digest in status.components.items() if name not in earlier}
        return {**asked, **(step.found(ended.found) if ended.found else {})}

    def fail(self, name: str) -> None:
        """Record that the step is not fresh, whatever it was before."""
        self._statuses.pop(name, None)
        self.state.invalidate(name)

    def _remove_leftovers(self, name: str, step: Step) -> None:
        """Remove what the step made before and makes no more, unless another step makes it now."""
        before = self.state.rows.get(name)
        left = {output.path for output in before.outputs} - set(step.outputs) if before else set()
        if left:
            others = (row for other, row in self.state.rows.items() if other != name)
            remove(self.root, left - {output.path for row in others for output in row.outputs})

    def _keep_log(self, ended: Ended, *, failed: bool) -> Path | None:
        """Keep what a failed step printed; the log of an earlier failure goes, whatever happened now."""
        name = f"logs/{ended.name.replace(':', '/')}.log"
        text = ended.output + (f"\n{ended.trace}" if ended.trace else "")
        path = self._folder / name
        try:
            remove(self._folder, [name])
            if not failed or not text.strip():
                return None
            make_folder(self._folder, path.parent)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except (OSError, KilnError):
            return None
        return path

"""A build: asks which steps are stale, runs those in the pool, publishes what they make, records each as it ends."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from kiln.digests import is_digest
from kiln.engine.cache import Counts, Entry, StepCache, note_counts
from kiln.engine.jobs import Ended
from kiln.engine.leftovers import remove, remove_former, remove_unknown
from kiln.engine.machine import free_memory
from kiln.engine.pool import Pool
from kiln.engine.publish import make_folder, publish, publish_bytes
from kiln.engine.riding import Ahead, Rider, asked_beforehand
from kiln.engine.rows import Output, Row
from kiln.engine.schedule import Schedule
from kiln.engine.state import State
from kiln.engine.status import Status, check
from kiln.engine.step import Found, Step
from kiln.engine.trace import TRACE, Recorder
from kiln.errors import KilnError

_MEMORY = 0.9
"""the part of the free memory that steps may be expected to take; the rest is for what nobody expected"""
_KEPT_EVERY = 2.0
"""seconds between visits to the cache: each begins with a look at all files that digests were made of"""


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
    peak_memory: int
    """bytes"""


@dataclass(frozen=True, kw_only=True)
class _Running:
    """A step that has started."""

    step: Step
    status: Status
    riders: Mapping[str, Rider]


class Build:
    """Runs steps whose outputs lie below `root`. `folder`, below it, is private: lock, temporary files, logs.

    A `cache` may be set before the build is entered; its store is whoever set it's to close.
    """

    cache: StepCache | None = None

    def __init__(self, *, state: State, root: Path, folder: Path, size: int) -> None:
        self.state = state
        self.root = root
        self._folder = folder
        self.vouched: set[str] = set()
        """steps that are fresh by the outline of the last build; nothing of theirs is asked"""
        self._statuses: dict[str, Status] = {}
        self._running: dict[str, _Running] = {}
        self._ahead: dict[str, Ahead] = {}
        self._temp = folder / "tmp"
        self._pool = Pool(size=size, root=root, temp=self._temp)
        self._waiting: Schedule | None = None
        self._kept = 0.0
        self._is_restoring = False
        self._trace = Recorder(folder / TRACE, lambda: self._pool.size)

    def __enter__(self) -> Build:
        # Another build may have held the lock until now.
        self.state.refresh()
        self._statuses.clear()
        self._ahead.clear()
        self._waiting = None
        self._is_restoring = False
        self._trace.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.close()
        self._trace.close()
        if self.cache is not None:
            self.cache.flush()
            if self.cache.counts != Counts():
                note_counts(self._folder, self.cache.counts)

    @property
    def lock(self) -> Path:
        """The file that `lock.build_lock` takes for this build folder."""
        return self._folder / "lock"

    def sweep(self, known: set[str], outputs: Callable[[], set[str]] = set) -> list[str]:
        """Clear old temporary files, and what steps left that are not `known` any more: see `leftovers.remove_unknown`.

        Returns the names of the steps that are gone.
        """
        self.clear()
        return remove_unknown(self.state, self.root, known, outputs)

    def clear(self) -> None:
        """Clear old temporary files alone."""
        # A folder that cannot be removed is in nobody's way: each job's has a name of its own.
        shutil.rmtree(self._temp, ignore_errors=True)

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
        row = self.state.rows.get(name)
        if name in self.vouched and row is not None:
            return Status(components=row.components, reasons=())
        if name not in self._statuses:
            self._statuses[name] = check(step, self.state.rows.get(name), self.root, self.state.files)
        return self._statuses[name]

    def wait_for(self, name: str) -> None:
        """Let a stale step wait for its turn: `next` says when it may start."""
        self._schedule.add(name)

    def next(self) -> str | None:
        """The waiting step that should start now, which waits no more; None when none may.

        The longest goes first, as far as recorded times tell, and only while what steps took before fits into memory.
        """
        if not self.free or self._waiting is None or not self._waiting:
            return None
        return self._waiting.next(self._running)

    def stop_waiting(self) -> None:
        """Start no step any more of those that wait."""
        if self._waiting is not None:
            self._waiting.clear()

    @property
    def _schedule(self) -> Schedule:
        if self._waiting is None:
            free = free_memory()
            self._waiting = Schedule(self.state.rows, None if free is None else int(free * _MEMORY))
        return self._waiting

    def restore(self, name: str, step: Step) -> bool:
        """Publish and record what the cache has of a stale step; False when it has nothing. Raises KilnError."""
        if self.cache is None or not step.cached:
            return False
        began = time.monotonic()
        hit = self.cache.get(step, self._asked(name, self.status(name, step)))
        if hit is None:
            return False
        staging = self._temp / "restored"
        if not self._is_restoring:
            make_folder(self._folder, staging)
            self._is_restoring = True
        contents = {output: hit.entry.files[role] for role, output in zip(step.cached, step.outputs, strict=True)}
        outputs = publish_bytes(contents, staging, self.root)
        # The digests that led to the entry, and no later ones: an edit in between makes the step stale.
        self._record(name, step, hit.inputs, hit.found, outputs, hit.entry)
        self._trace.restored(name, began, outputs)
        return True

    def start(self, name: str, step: Step, riders: Mapping[str, Step] | None = None) -> None:
        """Start a step in a child. Raises KilnError when its inputs cannot be had.

        The `riders` ride on it: what its child makes of them waits for their turn, see `finish_ahead`.
        """
        status = self.status(name, step)
        before = (self.state.rows.get(name) for name in step.after)
        reads = {self.root / output.path: output.sha256 for row in before if row for output in row.outputs}
        taken = asked_beforehand(riders or {})
        # What is recorded in the end is what was asked here: an edit during the run makes the step stale again.
        call, asked = step.call(), time.monotonic()
        calls = {other: rider.call for other, rider in taken.items()}
        self._pool.start(name, call, reads, outputs=step.outputs, riders=calls)
        self._running[name] = _Running(step=step, status=status, riders=taken)
        self._trace.start(name, asked)
        # Before the first step can end, a server starts and imports compilers: time for what takes long.
        self.state.read()

    def finish(self, on_free: Callable[[], None] = lambda: None) -> Finished:
        """The next step that ends: published and recorded, or failed with nothing of it published.

        When its child ended well, `on_free` is called before that: the place in the pool is free, and another step may
        start while what this one made is put in place.
        """
        ended = self._pool.wait()
        running = self._running.pop(ended.name)
        self._statuses.pop(ended.name, None)
        self._trace.leave(ended.name)
        if ended.error is None:
            on_free()
        error = ended.error
        outputs: tuple[Output, ...] = ()
        is_recorded = False
        try:
            if error is None:
                outputs = self._keep(running.step, running.status, ended)
                is_recorded = True
        except KilnError as failure:
            error = failure
        finally:
            self._pool.release(ended.name, at_once=not is_recorded)
            slot = self._trace.end(ended, outputs, failed=not is_recorded)
        rode = {each.name: each for each in ended.rode if each.error is None and is_recorded}
        for name, rider in running.riders.items():
            if name in rode:
                self._ahead[name] = Ahead(
                    rider=rider, ended=rode[name], under=ended.name, staged=ended.staged, slot=slot
                )
            else:
                self._pool.release(name, at_once=not is_recorded)
        self._visit_cache()
        if error is not None:
            # A full disk must not hide the failure that is being reported; what it can do to a row is to keep it.
            with suppress(KilnError):
                self.fail(ended.name)
        return self._finished(ended, error)

    def finish_ahead(self, name: str, step: Step) -> Finished | None:
        """Publish and record a stale step whose work was done in the child of the step that it rides on.

        None where it was not, where it did not go well, or where what it was made of is not what a run would go by now:
        then the step is to run, and is told of as if nothing had ridden along.
        """
        ahead = self._ahead.get(name)
        if ahead is None:
            return None
        outputs: tuple[Output, ...] | None = None
        # Whatever goes wrong here, with the step or with the disk, a run meets again, and tells.
        with suppress(Exception):
            status = self.status(name, step)
            if ahead.is_still_asked(step, self._asked(name, status), self.state.rows.get(ahead.under)):
                outputs = self._keep(step, status, ahead.ended)
                self._trace.rode(ahead.ended, ahead.slot, outputs)
        self.drop_ahead(name)
        return None if outputs is None else self._finished(ahead.ended, None)

    def drop_ahead(self, name: str) -> None:
        """Make nothing of a step's work that was done in the child of another; there may be none."""
        if self._ahead.pop(name, None) is not None:
            self._pool.release(name)

    def _keep(self, step: Step, status: Status, ended: Ended) -> tuple[Output, ...]:
        """Publish what a step has made, record it, and have the cache keep it. Raises KilnError."""
        # What was asked before the run, and what the run found out.
        found = step.found(ended.found) if ended.found else {}
        components = {**self._asked(ended.name, status), **found}
        outputs = publish(self._pool.staging(ended.name), self.root, step.outputs)
        row = self._record(ended.name, step, components, ended.found, outputs, ended)
        if self._waiting is not None:
            self._waiting.learn(ended.name, row)
        if self.cache is not None:
            self.cache.keep(step, row)
        return outputs

    def _finished(self, ended: Ended, error: KilnError | None) -> Finished:
        return Finished(
            name=ended.name,
            error=error,
            trace=ended.trace,
            log=self._keep_log(ended, failed=error is not None),
            output=ended.output,
            seconds=ended.seconds,
            peak_memory=ended.peak_memory,
        )

    @property
    def has_finished(self) -> bool:
        """Whether `finish` would return at once."""
        return self._pool.has_ended

    def finishes_within(self, seconds: float | None, wake: int | None = None) -> bool:
        """Whether `finish` would return at once, by then; None stands for ever, and a step must be running then.

        That `wake`, a file descriptor, can be read from ends it as well.
        """
        return self._pool.ends_within(seconds, wake)

    def end_children(self) -> None:
        """End what still runs. What it would have made is not published."""
        self._pool.close()

    def _record(
        self,
        name: str,
        step: Step,
        components: Mapping[str, str],
        found: Found,
        outputs: tuple[Output, ...],
        cost: Ended | Entry,
    ) -> Row:
        """Record a step whose outputs are published, and remove what it made before and makes no more."""
        remove_former(self.state, self.root, name, step)
        row = Row(
            components=components,
            found=found,
            outputs=outputs,
            seconds=cost.seconds,
            peak_memory=cost.peak_memory,
        )
        self._keep_texts(step, row)
        self.state.record(name, row)
        self._statuses.pop(name, None)
        return row

    def _keep_texts(self, step: Step, row: Row) -> None:
        """Keep what a step's inputs were, as far as no step had them before."""
        texts: dict[str, str] = {}
        for name, digest in row.components.items():
            if is_digest(digest) and self.state.lacks_text(digest):
                # What cannot be shown later is no reason to fail now, whatever a rule of the project's own raises.
                with suppress(Exception):
                    text = step.text(name, digest, row.found)
                    if text is not None:
                        texts[digest] = text.body
        self.state.keep_texts(texts)

    def _asked(self, name: str, status: Status) -> Mapping[str, str]:
        """The step's inputs without those that its last run found out."""
        row = self.state.rows.get(name)
        earlier = row.found if row is not None else {}
        return {name: digest for name, digest in status.components.items() if name not in earlier}

    def _visit_cache(self) -> None:
        if self.cache is not None and time.monotonic() - self._kept > _KEPT_EVERY:
            self.cache.flush()
            self._kept = time.monotonic()

    def fail(self, name: str) -> None:
        """Record that the step is not fresh, whatever it was before."""
        self._statuses.pop(name, None)
        self.state.invalidate(name)

    def _keep_log(self, ended: Ended, *, failed: bool) -> Path | None:
        """Keep what a failed step printed; the log of an earlier failure goes, whatever happened now."""
        name = f"logs/{ended.name.replace(':', '/')}.log"
        text = ended.output + (f"\n{ended.trace}" if ended.trace else "")
        path = self._folder / name
        if not failed and not os.path.lexists(path):
            return None
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

"""doit's own values (of tasks that users add) and its `forget` and `ignore`, kept in the build's state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kiln.engine.state import State


class StateBackend:
    """The doit backend `kiln`: a view of `engine.state.State`. Every value is on disk when the call returns."""

    desc = "Kiln's state: one commit a task, nothing lost when a build is killed"

    def __init__(self, name: str, codec: Any, module_name: str | None = None) -> None:
        self.name = name
        self.state = State(Path(name))

    def get(self, task_id: str, key: str) -> Any:
        """A task's value, or None."""
        return self.state.notes.get(task_id, {}).get(key)

    def set(self, task_id: str, key: str, value: Any) -> None:
        """Keep a task's value."""
        self.state.note(task_id, key, value)

    def in_(self, task_id: str) -> bool:
        """Whether anything is known of the task."""
        return task_id in self.state.notes or task_id in self.state.rows

    def remove(self, task_id: str) -> None:
        """Forget a task: it runs again next time. The files of a step stay known, so that they can be cleaned up."""
        self.state.drop_notes(task_id)
        self.state.invalidate(task_id)

    def remove_all(self) -> None:
        """Forget every task."""
        for name in [*self.state.notes, *self.state.rows]:
            self.remove(name)

    def dump(self) -> None:
        """doit calls this at the end of a command; all values were written when they were set."""
        self.state.close()

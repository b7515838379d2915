"""doit's command `lock`: writes kiln.lock, the tools that releases are made with, or holds it against those here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from doit.cmd_base import DoitCmdBase
from doit.exceptions import InvalidCommand

from kiln.digests import FileDigests
from kiln.doit_plugin.build_folder import MANIFEST
from kiln.doit_plugin.loader import KilnLoader
from kiln.errors import KilnError

_CHECK = {
    "section": "Kiln",
    "name": "check",
    "short": "",
    "long": "check",
    "type": bool,
    "default": False,
    "help": "write nothing; end with exit code 1 where the tools here are not those of the lock",
}


class Lock(DoitCmdBase):  # type: ignore[misc]  # doit has no types
    """Locks the tools of this machine. No task is loaded for that, and every tool is read anew."""

    name = "lock"
    doc_purpose = "write kiln.lock: the tools that releases are made with, by version and content"
    doc_usage = ""
    doc_description = (
        "`doit release` refuses compilers that are not those of kiln.lock, which lies beside kernels.yaml and is "
        "committed. The lock has an entry for each kind of machine and Python: those of others stay as they are. Tools "
        "of the host are recorded in it, and nothing is refused for them."
    )
    cmd_options = (_CHECK,)

    def execute(self, params: Any, args: list[str]) -> int:
        """Write the lock, and say what changed. Raises InvalidCommand."""
        if args:
            raise InvalidCommand(f"lock takes no tasks: {args[0]!r}")
        if not isinstance(self.loader, KilnLoader):
            raise InvalidCommand("lock needs the loader kiln: see [tool.doit] in pyproject.toml, or doit.cfg")
        if params.get("targets") is not None:
            raise InvalidCommand("the lock has the tools of all targets: leave --targets out")
        self.loader.setup(params)
        try:
            return self._lock(is_check=params["check"])
        except KilnError as error:
            raise InvalidCommand(str(error)) from error

    def _lock(self, *, is_check: bool) -> int:
        # doit imports this module in every build, which has no use for these.
        from kiln.library import read_manifest
        from kiln.release.refusals import check_targets, lock_of
        from kiln.toolchain.identity import LEVELS, identify
        from kiln.toolchain.lock import (
            changes,
            other_versions,
            read_lock,
            this_machine,
            unlocked,
            with_entry,
            write_lock,
        )

        manifest, machine = read_manifest(Path(MANIFEST)), this_machine()
        check_targets(manifest)
        path = lock_of(manifest)
        before, tools = read_lock(path), identify(manifest, FileDigests({}))
        after = with_entry(before, machine, tools)
        is_new = before is None or machine not in before.device
        device, host = ([] if before is None or is_new else changes(before, after, machine, each) for each in LEVELS)
        count = f"{len(after.device[machine])} that make images, {len(after.host[machine])} of the host"
        if is_check and (before is None or unlocked(before, machine, tools)):
            said = "has no tools for" if is_new else "has other tools for"
            self._say(f"{path} {said} {machine}, which this machine and its Python are", device)
            return 1
        if is_check or before == after:
            self._say(f"{path} has the tools of this machine, {machine}: {count}", [*device, *host])
            return 0
        write_lock(path, after)
        self._say(f"{'added' if is_new else 'changed'} the tools of {machine} in {path}: {count}", [*device, *host])
        for words in other_versions(after, machine):
            self._say(f"{words}: run `doit lock` there too")
        return 0

    def _say(self, head: str, lines: Sequence[str] = ()) -> None:
        self.outstream.write("".join(f"{line}\n" for line in (head, *(f"  {line}" for line in lines))))

"""doit's command `verify`: hashes what earlier builds published, whatever its time stamps say."""

from __future__ import annotations

from doit.cmd_base import DoitCmdBase
from doit.control import TaskControl
from doit.exceptions import InvalidCommand

from kiln.doit_plugin.build_folder import warn
from kiln.doit_plugin.loader import KilnLoader
from kiln.doit_plugin.selection import selected
from kiln.engine.publish import faults


class Verify(DoitCmdBase):  # type: ignore[misc]  # doit has no types
    """Reports each output that is not what was built, and makes its step stale; nothing else is changed."""

    name = "verify"
    doc_purpose = "hash what was built, and report what is damaged or missing"
    doc_usage = "[TASK ...]"
    doc_description = (
        "A build takes an output to be what it was while its size and the time of its last change are. `verify` reads "
        "every byte. What is not as it was built is made anew by the next build. The exit code is 0 when all that was "
        "asked for is there as it was built, and 1 otherwise."
    )
    cmd_options = ()

    def _execute(self, pos_args: list[str]) -> int:
        loader = self.loader
        if not isinstance(loader, KilnLoader) or loader.build is None:
            raise InvalidCommand("this dodo.py has no rules of Kiln's, and so nothing that can be verified")
        state, root = loader.build.state, loader.build.root
        names = selected(TaskControl(self.task_list), pos_args) if pos_args else list(state.rows)
        # A step that failed or was forgotten is stale already, and its outputs are those of some run before.
        rows = {name: state.rows[name] for name in names if name in state.rows and state.rows[name].valid}
        for warning in state.untold():
            warn(warning)
        outputs = sum(len(row.outputs) for row in rows.values())
        bad = 0
        for name, row in rows.items():
            found = list(faults(root, row.outputs))
            if found:
                bad += len(found)
                lines = [f"DAMAGED {name}", *(f"  {line}" for fault in found for line in str(fault).splitlines())]
                self.outstream.write("\n".join(lines) + "\n")
                state.invalidate(name)
        self.dep_manager.close()
        for warning in state.untold():
            warn(warning)
        text = f"{outputs - bad} of {outputs} outputs of {len(rows)} steps are what was built"
        if bad:
            text += "; the next doit makes the others anew"
        unknown = len(names) - len(rows)
        if unknown:
            text += f"; nothing is known of {unknown} steps, which failed, were forgotten or never ran"
        self.outstream.write(f"{text}\n")
        return 0 if rows and not bad and not unknown else 1

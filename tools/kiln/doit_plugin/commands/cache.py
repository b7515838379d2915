"""doit's command `cache`: where the cache is, what is in it, and what it gave."""

from __future__ import annotations

import json
import os
from typing import Any

from doit.cmd_base import DoitCmdBase
from doit.exceptions import InvalidCommand

from kiln.doit_plugin.loader import KilnLoader
from kiln.doit_plugin.reporting.wording import size_text
from kiln.engine.cache import Counts, read_counts
from kiln.engine.local_cache import FOLDER_VARIABLE, LocalCache, settings
from kiln.errors import KilnError, os_failure

_CLEAR = {
    "section": "Kiln",
    "name": "clear",
    "short": "",
    "long": "clear",
    "type": bool,
    "default": False,
    "help": "remove all entries",
}
_JSON = {**_CLEAR, "name": "as_json", "long": "json", "help": "print one JSON object"}


class Cache(DoitCmdBase):  # type: ignore[misc]  # doit has no types
    """Shows the cache, or clears it. No task is loaded for that."""

    name = "cache"
    doc_purpose = "show the cache of what earlier builds made, or clear it"
    doc_usage = ""
    doc_description = (
        "Builds of all projects share the cache. KILN_CACHE names its folder, or is `off`; KILN_CACHE_SIZE is its "
        "limit, such as 500M or 5G. What was used least goes first. `doit --no-cache` builds without it."
    )
    cmd_options = (_CLEAR, _JSON)

    def execute(self, params: Any, args: list[str]) -> int:
        """Print what there is. Raises InvalidCommand."""
        if args:
            raise InvalidCommand(f"cache takes no tasks: {args[0]!r}")
        try:
            where = settings(os.environ)
            cache = None if where is None else LocalCache(where, warn=lambda text: None)
            if cache is not None and params["clear"]:
                self._print(params["as_json"], {"folder": str(cache.folder), "removed": cache.clear()})
            else:
                self._print(params["as_json"], self._shown(cache, params))
        except OSError as error:
            assert where is not None
            unnamed = OSError(error.errno, error.strerror)
            raise InvalidCommand(str(os_failure("the cache cannot be used", unnamed, where.folder))) from error
        except KilnError as error:
            raise InvalidCommand(str(error)) from error
        return 0

    def _shown(self, cache: LocalCache | None, params: Any) -> dict[str, Any]:
        if cache is None:
            return {"folder": None}
        last = None
        if isinstance(self.loader, KilnLoader):
            self.loader.setup(params)
            last = read_counts(self.loader.private_folder())
        summary = cache.summary()
        return {
            "folder": str(cache.folder),
            "entries": summary.entries,
            "bytes": summary.size,
            "limit": cache.limit,
            "last_build": None if last is None else {"hits": last.hits, "misses": last.misses},
            "all": {"hits": summary.counts.hits, "misses": summary.counts.misses},
        }

    def _print(self, as_json: bool, shown: dict[str, Any]) -> None:
        if as_json:
            text = json.dumps(shown)
        elif shown["folder"] is None:
            text = f"the cache is off: {FOLDER_VARIABLE} says so, or there is no home folder"
        elif "removed" in shown:
            text = f"removed {shown['removed']} entries from {shown['folder']}"
        else:
            last, size = shown["last_build"], size_text(shown["bytes"])
            text = "\n".join(
                (
                    f"folder      {shown['folder']}",
                    f"entries     {shown['entries']}, {size} of at most {size_text(shown['limit'])}",
                    f"last build  {_counts(Counts(**last)) if last else 'none here has asked it'}",
                    f"all builds  {_counts(Counts(**shown['all']))}, since it was cleared",
                )
            )
        self.outstream.write(text + "\n")


def _counts(counts: Counts) -> str:
    share = f" ({100 * counts.hits // (counts.hits + counts.misses)} %)" if counts.hits else ""
    return f"{counts.hits} hits{share}, {counts.misses} misses"

"""A budget that no image can be held against: a PTX has no registers yet, no spills and no stack."""

from __future__ import annotations

from collections.abc import Sequence

from kiln.errors import ManifestError
from kiln.manifest.model import Budget, Kernel, Manifest
from kiln.toolchain.targets import TARGETS

_OF_CODE = ("registers", "spills", "stack")
"""what only the driver that compiles a PTX decides"""


def check_budgets(manifest: Manifest) -> None:
    """Refuse a budget of what only code has, where all that it is for is PTX; all targets are known ones.

    A budget for every target is held against the images of the others. Raises ManifestError at the limit.
    """
    for kernel in manifest.kernels:
        for what in _OF_CODE:
            for target, budget in kernel.budgets.get(what, {}).items():
                targets = _targets(manifest, kernel, budget, target)
                if all(TARGETS[name].kind == "ptx" for name in targets):
                    raise ManifestError(
                        f"the budget {budget.name} is held against nothing: a PTX has no {what} until a driver "
                        "compiles it",
                        where=budget.position,
                        expected=f"a budget of {what} for targets that are built as code, such as sm_80 or gfx942",
                        actual=f"it is for {', '.join(targets)}",
                        remedy="remove it, or build for the GPU itself too and give that the budget",
                    )


def _targets(manifest: Manifest, kernel: Kernel, budget: Budget, target: str) -> Sequence[str]:
    """The targets that a budget is for; `target` is one of them."""
    if budget.name.endswith(f".{target}"):
        return (target,)
    return manifest.targets if budget.name.startswith("budgets.") else kernel.targets

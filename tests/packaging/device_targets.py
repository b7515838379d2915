"""Which targets' images a device takes, best first: what the runtimes of all languages have to agree on."""

from __future__ import annotations

TARGETS = (
    *("sm_80", "sm_86", "sm_87", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_100f"),
    *("compute_75", "compute_80", "compute_90a", "compute_100", "compute_100f"),
    *("gfx942", "gfx942:xnack-", "gfx942:sramecc+:xnack-", "gfx9420"),
)

KINDS = {"s": "cubin", "c": "ptx", "g": "hsaco"}
"""by the first letter of a target"""

TAKES = {
    "sm_75": ["compute_75"],
    "sm_80": ["sm_80", "compute_80", "compute_75"],
    "sm_86": ["sm_86", "sm_80", "compute_80", "compute_75"],
    "sm_87": ["sm_87", "compute_80", "compute_75"],
    "sm_89": ["sm_86", "sm_80", "compute_80", "compute_75"],
    "sm_90": ["sm_90a", "sm_90", "compute_90a", "compute_80", "compute_75"],
    "sm_100": ["sm_100a", "sm_100f", "sm_100", "compute_100f", "compute_100", "compute_80", "compute_75"],
    "sm_103": ["sm_100f", "sm_100", "compute_100f", "compute_100", "compute_80", "compute_75"],
    "sm_110": ["compute_100", "compute_80", "compute_75"],
    "sm_120": ["compute_100", "compute_80", "compute_75"],
    "gfx942:sramecc+:xnack-": ["gfx942", "gfx942:xnack-", "gfx942:sramecc+:xnack-"],
    "gfx942:sramecc+:xnack+": ["gfx942"],
    "gfx90a": [],
}
"""device -> targets"""

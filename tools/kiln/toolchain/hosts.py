"""The hosts that libraries are linked on, in the words of each tool.

Sources: `objcopy --info` of GNU binutils for BFD names and architectures; System V ABI, "Object Files", with its x86-64
and AArch64 supplements for the machine numbers.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Host:
    """A machine that libraries are linked on."""

    triplet: str
    """as kernels.yaml names it, and as the names of cross tools begin: x86_64-linux-gnu"""
    bfd: str
    """objcopy's word for its object format"""
    architecture: str
    """objcopy's word for its instruction set"""
    machine: int
    """e_machine of its ELF files"""


HOSTS: dict[str, Host] = {
    host.triplet: host
    for host in (
        Host(triplet="x86_64-linux-gnu", bfd="elf64-x86-64", architecture="i386:x86-64", machine=62),
        Host(triplet="aarch64-linux-gnu", bfd="elf64-littleaarch64", architecture="aarch64", machine=183),
    )
}
"""by triplet; kernels.yaml takes the same names, see `manifest.schema.HOSTS`"""

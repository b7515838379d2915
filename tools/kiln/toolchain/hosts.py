"""The hosts that libraries are linked on, in the words of each tool.

Sources: `objcopy --info` of GNU binutils for BFD names and architectures; System V ABI, "Object Files", with its x86-64
and AArch64 supplements for the machine numbers and the GNU properties of control-flow protection; the manuals of gcc
and clang for the flags; Debian for the names of its packages.
"""

from __future__ import annotations

import os
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
    protection_flag: str
    """what makes a C compiler write code that runs under control-flow protection; machines without it run it too"""
    protection_property: int
    """the GNU property that says so of an object; a program has the bits that all its objects have"""
    code_protection: int
    """its bits for what is compiled with the flag: BTI and PAC, or IBT and SHSTK"""
    data_protection: int
    """its bits for an object without code, which stands in the way of none of them"""
    debian: str
    """Debian's name for the machine, as packages have it"""

    @property
    def is_this_machine(self) -> bool:
        """Whether tools without a prefix are for this host."""
        return self.triplet.split("-")[0] == os.uname().machine

    def package(self, name: str) -> str:
        """Debian's package for this host of what is called binutils, gcc or libc6-dev on such a machine itself."""
        if self.is_this_machine:
            return name
        if name == "libc6-dev":
            return f"{name}-{self.debian}-cross"
        return f"{name}-{self.triplet}".replace("_", "-")


HOSTS: dict[str, Host] = {
    host.triplet: host
    for host in (
        Host(
            triplet="x86_64-linux-gnu",
            bfd="elf64-x86-64",
            architecture="i386:x86-64",
            machine=62,
            protection_flag="-fcf-protection=full",
            protection_property=0xC0000002,
            code_protection=0b11,
            data_protection=0b11,
            debian="amd64",
        ),
        Host(
            triplet="aarch64-linux-gnu",
            bfd="elf64-littleaarch64",
            architecture="aarch64",
            machine=183,
            protection_flag="-mbranch-protection=standard",
            protection_property=0xC0000000,
            code_protection=0b11,
            # The third is GCS, which newer compilers add to what the flag means.
            data_protection=0b111,
            debian="arm64",
        ),
    )
}
"""by triplet; kernels.yaml takes the same names, see `manifest.schema.HOSTS`"""


def machine_name(machine: int) -> str:
    """What e_machine stands for, to a reader: `aarch64-linux-gnu (ELF machine 183)`."""
    names = [host.triplet for host in HOSTS.values() if host.machine == machine]
    return f"{names[0]} (ELF machine {machine})" if names else f"ELF machine {machine}"

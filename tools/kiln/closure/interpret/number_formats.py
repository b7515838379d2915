"""The limits of number formats, as `torch.finfo`, `torch.iinfo` and their namesakes of NumPy give them.

Sources: IEEE 754 for fp16, fp32 and fp64; bfloat16 is fp32 with 8 bits of significand; the OCP 8-bit floating point
specification 1.0 for e4m3 (no infinity, so one exponent more) and e5m2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, kw_only=True)
class FloatFormat:
    """What `finfo` of a format tells."""

    bits: int
    digits: int
    """of the significand, with the hidden bit"""
    max: float
    tiny: float
    """the smallest number above 0 with a full significand"""
    words: ClassVar[frozenset[str]] = frozenset({"bits", "eps", "max", "min", "smallest_normal", "tiny"})

    @property
    def min(self) -> float:
        return -self.max

    @property
    def eps(self) -> float:
        """from 1 to the next number"""
        return 2.0 ** (1 - self.digits)

    @property
    def smallest_normal(self) -> float:
        return self.tiny


@dataclass(frozen=True, kw_only=True)
class IntegerFormat:
    """What `iinfo` of a format tells."""

    bits: int
    signed: bool
    words: ClassVar[frozenset[str]] = frozenset({"bits", "max", "min"})

    @property
    def max(self) -> int:
        return (1 << (self.bits - self.signed)) - 1

    @property
    def min(self) -> int:
        return -(1 << (self.bits - 1)) if self.signed else 0


FORMATS: dict[str, FloatFormat | IntegerFormat] = {
    "float64": FloatFormat(bits=64, digits=53, max=float.fromhex("0x1.fffffffffffffp+1023"), tiny=2.0**-1022),
    "float32": FloatFormat(bits=32, digits=24, max=float.fromhex("0x1.fffffep+127"), tiny=2.0**-126),
    "float16": FloatFormat(bits=16, digits=11, max=65504.0, tiny=2.0**-14),
    "bfloat16": FloatFormat(bits=16, digits=8, max=float.fromhex("0x1.fep+127"), tiny=2.0**-126),
    "float8_e4m3fn": FloatFormat(bits=8, digits=4, max=448.0, tiny=2.0**-6),
    "float8_e4m3fnuz": FloatFormat(bits=8, digits=4, max=240.0, tiny=2.0**-7),
    "float8_e5m2": FloatFormat(bits=8, digits=3, max=57344.0, tiny=2.0**-14),
    "float8_e5m2fnuz": FloatFormat(bits=8, digits=3, max=57344.0, tiny=2.0**-15),
    **{f"int{bits}": IntegerFormat(bits=bits, signed=True) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": IntegerFormat(bits=bits, signed=False) for bits in (8, 16, 32, 64)},
}
"""name, as torch has it -> format"""

_OTHER_NAMES = {
    "double": "float64",
    "float": "float32",
    "half": "float16",
    "long": "int64",
    "int": "int32",
    "short": "int16",
    "single": "float32",
}


def torch_name(dotted: str) -> str | None:
    """`float16` for `torch.half`, `numpy.float16` and the like; None for what is no number format of theirs."""
    package, _, name = dotted.partition(".")
    if package not in ("torch", "numpy") or "." in name:
        return None
    if package == "torch":
        name = _OTHER_NAMES.get(name, name)
    return name if name in FORMATS else None


def format_of(dotted: str) -> FloatFormat | IntegerFormat | None:
    """The format of `torch.float16` or `numpy.float16`."""
    name = torch_name(dotted)
    return FORMATS[name] if name is not None else None

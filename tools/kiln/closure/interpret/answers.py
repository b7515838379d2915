"""Tables of what is answered for names of other packages: probes of the target, number formats, versions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from kiln.closure import packages
from kiln.closure.interpret.number_formats import FORMATS, FloatFormat, IntegerFormat, format_of
from kiln.closure.interpret.values import (
    ConstexprValue,
    OutsideValue,
    Raised,
    SomeValue,
    Undecided,
    VersionValue,
    plain,
)
from kiln.closure.world import ARCH, PYTHON, TRITON_VERSION, WARP_SIZE

if TYPE_CHECKING:
    from kiln.closure.interpret.outside_names import OutsideNames

TARGETS = (
    "triton.runtime.driver.active.get_current_target()",
    "triton.language.target_info.current_target()",
)
"""what gives the target, as the interpreter names the results of calls"""
NO_SUCH_DEVICE = frozenset(
    {
        "torch.backends.mps.is_available",
        "torch.mps.is_available",
        "torch.mtia.is_available",
        "torch.xpu.is_available",
    }
)
TRUE = frozenset({"torch.cuda.is_available", "torch.cuda.is_initialized"})
"""probes that hold for each target, and those that hold for none"""


class UndeclaredVariable(Undecided):
    """A variable of the environment is read that kernels.yaml does not declare."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the environment variable {name} is read, and `environment:` in kernels.yaml does not have it"
        )
        self.name = name


def is_has_triton(dotted: str) -> bool:
    """Whether a name is one of those under which torch tells whether there is a Triton."""
    return dotted.partition(".")[0] == "torch" and dotted.rpartition(".")[2] in ("has_triton", "has_triton_package")


def _limits(kind: type[FloatFormat] | type[IntegerFormat]) -> Callable[..., object]:
    def limits(outside: OutsideNames, of: object = None, **keywords: object) -> object:
        of = plain(keywords.get("dtype", keywords.get("type", of)))
        name = of.dotted if isinstance(of, OutsideValue) else of if isinstance(of, str) else ""
        found = format_of(name) or FORMATS.get(name)
        if not isinstance(found, kind):
            raise Undecided("the number format is not one whose limits are known")
        return found

    return limits


def _version(outside: OutsideNames, text: object) -> object:
    text = plain(text)
    if not isinstance(text, str):
        raise Undecided("the text of a version is not known before the run")
    try:
        return VersionValue.parse(text)
    except ValueError as error:
        raise Undecided(str(error)) from None


def _distribution_version(outside: OutsideNames, name: object) -> object:
    if name != "triton":
        raise Undecided(f"the version of {name} is not known before the run")
    return outside.value("triton.__version__")


def _cdiv(outside: OutsideNames, x: object, y: object) -> object:
    return _of_integers(lambda a, b: (a + b - 1) // b, x, y)


def _next_power_of_2(outside: OutsideNames, n: object) -> object:
    return _of_integers(_power_of_2, n)


def _power_of_2(n: int) -> int:
    """As triton.next_power_of_2 computes it, for 64 bits; 0 for 0."""
    n -= 1
    for shift in (1, 2, 4, 8, 16, 32):
        n |= n >> shift
    return n + 1


def _of_integers(function: Callable[..., int], *values: object) -> object:
    given = [plain(value) for value in values]
    if not all(isinstance(value, int) for value in given):
        raise Undecided("it computes with a number that is not known before the run")
    result = function(*given)
    return ConstexprValue(value=result) if any(isinstance(value, ConstexprValue) for value in values) else result


def _capability_geq(outside: OutsideNames, major: object, minor: object = 0) -> object:
    if outside.backend() != "cuda":
        return False
    outside.asked.add(ARCH)
    assert isinstance(outside.world.arch, int)
    assert isinstance(major, int) and isinstance(minor, int)
    return outside.world.arch >= major * 10 + minor


def _is_arch(*names: str) -> Callable[..., object]:
    def is_arch(outside: OutsideNames) -> object:
        outside.asked.add(ARCH)
        return outside.world.arch in names

    return is_arch


def _properties(outside: OutsideNames, device: object = None) -> object:
    return OutsideValue(dotted="torch.cuda.get_device_properties()")


def _find_spec(outside: OutsideNames, name: object, package: object = None) -> object:
    if name == "triton":
        return SomeValue(what="the place of Triton", is_true=True)
    raise Undecided(f"whether {name} is installed where the kernel runs is not known")


def _import_module(outside: OutsideNames, name: object, package: object = None) -> object:
    if not isinstance(name, str) or name.startswith("."):
        raise Undecided("which module is imported is not followed")
    if not packages.is_foreign(name) and not name.startswith("triton"):
        raise Undecided("which module is imported is not followed")
    if outside.exists(name) is False:
        raise Raised(ModuleNotFoundError, f"there is no {name} where kernels are built")
    return outside.value(name)


def _environment_item(outside: OutsideNames, name: object) -> object:
    value = outside.variable(name)
    if value is None:
        raise Raised(KeyError, f"{name!r}: kernels.yaml declares that it is not set")
    return value


def _python_version(outside: OutsideNames) -> object:
    outside.asked.add(PYTHON)
    return ".".join(map(str, sys.version_info[:3]))


CALLS: dict[str, Callable[..., object]] = {
    "importlib.import_module": _import_module,
    "importlib.metadata.version": _distribution_version,
    "importlib.util.find_spec": _find_spec,
    "numpy.finfo": _limits(FloatFormat),
    "numpy.iinfo": _limits(IntegerFormat),
    "os.environ.__contains__": lambda outside, name: outside.variable(name) is not None,
    "os.environ.__getitem__": _environment_item,
    "os.environ.get": lambda outside, key, default=None: outside.variable(key, default),
    "os.getenv": lambda outside, key, default=None: outside.variable(key, default),
    "packaging.version.Version": _version,
    "packaging.version.parse": _version,
    "platform.python_version": _python_version,
    "platform.system": lambda outside: "Linux",
    "torch.cuda.get_device_capability": lambda outside, device=None: outside.capability(),
    "torch.cuda.get_device_properties": _properties,
    "torch.cuda.is_bf16_supported": lambda outside, *_, **__: (
        outside.backend() == "hip" or outside.capability() >= (8, 0)
    ),
    "torch.finfo": _limits(FloatFormat),
    "torch.iinfo": _limits(IntegerFormat),
    "triton._internal_testing.is_cuda": lambda outside: outside.backend() == "cuda",
    "triton._internal_testing.is_hip": lambda outside: outside.backend() == "hip",
    "triton._internal_testing.is_interpreter": lambda outside: False,
    "triton.cdiv": _cdiv,
    "triton.language.cdiv": _cdiv,
    "triton.language.target_info.cuda_capability_geq": _capability_geq,
    "triton.language.target_info.is_cuda": lambda outside: outside.backend() == "cuda",
    "triton.language.target_info.is_hip": lambda outside: outside.backend() == "hip",
    "triton.language.target_info.is_hip_cdna3": _is_arch("gfx942"),
    "triton.language.target_info.is_hip_cdna4": _is_arch("gfx950"),
    "triton.next_power_of_2": _next_power_of_2,
}
"""dotted name -> what a call gives, from (OutsideNames, *positional, **keywords)"""

VALUES: dict[str, Callable[[OutsideNames], object]] = {
    "os.name": lambda outside: "posix",
    "sys.maxsize": lambda outside: 2**63 - 1,
    "sys.platform": lambda outside: "linux",
    "sys.version_info": lambda outside: outside.told(PYTHON, sys.version_info),
    "torch.cuda.get_device_properties().gcnArchName": lambda outside: outside.told(ARCH, outside.world.arch),
    "torch.cuda.get_device_properties().major": lambda outside: outside.capability()[0],
    "torch.cuda.get_device_properties().minor": lambda outside: outside.capability()[1],
    "torch.cuda.get_device_properties().warp_size": lambda outside: outside.told(WARP_SIZE, outside.world.warp_size),
    "torch.version.cuda": lambda outside: (
        SomeValue(what="the version of CUDA", is_true=True) if outside.backend() == "cuda" else None
    ),
    "torch.version.hip": lambda outside: (
        SomeValue(what="the version of ROCm", is_true=True) if outside.backend() == "hip" else None
    ),
    "torch.version.xpu": lambda outside: None,
    "triton.__version__": lambda outside: outside.told(TRITON_VERSION, outside.world.triton_version),
    "triton.knobs.runtime.interpret": lambda outside: False,
    "typing.TYPE_CHECKING": lambda outside: False,
}
ABSENT = frozenset({"torch.npu", "torch.xpu", "torch.mlu", "torch.musa", "torch.version.xpu"})
"""what torch does not have where it was built for the GPUs that Kiln builds for"""

ANSWERED = frozenset({"torch.utils._triton.has_triton", *CALLS, *VALUES, *TRUE, *NO_SUCH_DEVICE})

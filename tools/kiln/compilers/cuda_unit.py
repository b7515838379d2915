"""The file that nvcc is given: macros, the kernel's source, the types of its parameters as checks, and its address.

The address makes the compiler instantiate the template and write down the symbol that it gives to the instance.
"""

from __future__ import annotations

from kiln.compilers.cuda_request import CPP, CudaRequest
from kiln.manifest.dtypes import DTYPES
from kiln.manifest.interface import Argument

ENTRY = "kiln_entry"
"""the variable that holds the kernel's address"""

KERNEL = "kiln_kernel"
"""the kernel's type, on a line of its own: an error there is about `function`, one below about the signature"""

_TRAITS = """\
#include <type_traits>
struct __half;
struct __nv_bfloat16;
namespace kiln {
template <class F> struct parameters;
template <class... A> struct parameters<void (*)(A...)> { enum { count = sizeof...(A) }; };
template <int N, class F> struct parameter;
template <int N, class A, class... B> struct parameter<N, void (*)(A, B...)> : parameter<N - 1, void (*)(B...)> {};
template <class A, class... B> struct parameter<0, void (*)(A, B...)> { typedef A type; };
template <class T> struct target { typedef typename std::remove_cv<typename std::remove_pointer<T>::type>::type type; };
template <class T, class U> struct is { enum { value = std::is_same<T, U>::value }; };
template <class T, int N> struct is_integer {
    enum { value = (std::is_integral<T>::value || std::is_enum<T>::value) && sizeof(T) == N };
};
template <class T> struct is_number {
    enum { value = std::is_arithmetic<T>::value || is<T, __half>::value || is<T, __nv_bfloat16>::value };
};
template <class T, int N> struct has_size { enum { value = sizeof(T) == N }; };
}
"""
"""in C++14, the oldest that kernels may be written in"""


def unit(request: CudaRequest) -> str:
    """The text of the file; line numbers of the kernel's own source are its own."""
    defines = [f"#define {name} {text}".rstrip() for name, text in request.defines.items()]
    arguments = request.interface.arguments
    checks = [
        f"typedef decltype(&{request.function}) {KERNEL};",
        f"static_assert(kiln::parameters<{KERNEL}>::count == {len(arguments)}, "
        f'"{request.source.function} takes another number of parameters than the signature has, {len(arguments)}");',
    ]
    checks += [_check(index, argument, request) for index, argument in enumerate(arguments)]
    address = f'extern "C" {{ __device__ const void *{ENTRY} = (const void *)&{request.function}; }}'
    return "\n".join([*defines, f'#include "{request.source.name}"', _TRAITS, *checks, address, ""])


def function_line(request: CudaRequest) -> int:
    """The line of the file on which the compiler looks for the kernel."""
    return next(at for at, line in enumerate(unit(request).split("\n"), 1) if line.endswith(f") {KERNEL};"))


def _check(index: int, argument: Argument, request: CudaRequest) -> str:
    type_ = f"kiln::parameter<{index}, {KERNEL}>::type"
    pointer = argument.type.startswith("*")
    condition = _points(f"kiln::target<{type_}>::type", argument.type[1:]) if pointer else _scalar(type_, argument.type)
    if pointer:
        condition = f"std::is_pointer<{type_}>::value && ({condition})"
    written = request.source.parameters[index].annotation or ""
    said = written.replace("\\", "\\\\").replace('"', '\\"')
    message = f"argument {index + 1}, '{said}', is {argument.type} in the signature"
    return f'static_assert({condition}, "{message}");'


def _scalar(type_: str, dtype: str) -> str:
    """Whether a parameter is passed as a dtype is: the same kind and size; only its bits for what C has no word for."""
    if dtype in ("fp32", "fp64"):
        return f"kiln::is<{type_}, {CPP[dtype]}>::value"
    if dtype[0] in "iu":
        return f"kiln::is_integer<{type_}, {_size(dtype)}>::value"
    return f"kiln::has_size<{type_}, {_size(dtype)}>::value"


def _points(type_: str, dtype: str) -> str:
    """Whether a pointer can lead to elements of a dtype. It may to bytes, to bits of the size, void and vectors."""
    other = f"!kiln::is_number<{type_}>::value"
    if dtype in ("fp32", "fp64"):
        return f"{other} || kiln::is<{type_}, {CPP[dtype]}>::value || kiln::is_integer<{type_}, 1>::value"
    bits = f"{other} || kiln::is_integer<{type_}, {_size(dtype)}>::value || kiln::is_integer<{type_}, 1>::value"
    if dtype in ("fp16", "bf16"):
        bits += f" || kiln::is<{type_}, {CPP[dtype]}>::value"
    return bits


def _size(dtype: str) -> int:
    return DTYPES[dtype].size

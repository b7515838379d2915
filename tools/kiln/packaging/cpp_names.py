"""The names of the C++ layer: its files, and what a library's namespace calls variants, groups and kernels."""

from __future__ import annotations

from kiln.manifest.names import is_macro

RESERVED = frozenset(
    [
        "DataTypeName",
        "argument_view",
        "bf16",
        "choice",
        "choose",
        "constant_view",
        "describe_device",
        "detail",
        "device_ptr",
        "dtype_of",
        "error",
        "explain_choice",
        "failure",
        "find_group",
        "find_image",
        "find_variant",
        "fp16",
        "fp8e4b15",
        "fp8e4b8",
        "fp8e4nv",
        "fp8e5",
        "fp8e5b16",
        "group_view",
        "groups",
        "image_view",
        "images",
        "launch",
        "launch_options",
        "load",
        "or_throw",
        "parameter_view",
        "preload",
        "preload_all",
        "result",
        "scratch_guard",
        "span",
        "stream",
        "unload",
        "unload_guard",
        "variant_view",
        "variants",
    ]
)
"""What the fixed headers declare in a library's namespace."""

_HIDING = frozenset({"std"})
"""What the generated header calls by its short name, besides."""


def cpp_name(name: str) -> str:
    """What the namespace calls a variant, a group or a kernel: its own name, or `launch_` for launch.

    No declared name ends with an underscore, so that the name is free. C's macros are no names in C++ either.
    """
    return f"{name}_" if name in RESERVED or name in _HIDING or is_macro(name) else name


def runtime_files(library: str) -> dict[str, str]:
    """The fixed headers as a library has them -> as they are below runtime/c."""
    return {
        f"include/{library}/{library}_{name}.hpp": f"include/kiln/kiln_{name}.hpp"
        for name in ("types", "views", "runtime")
    }


def library_header(library: str) -> str:
    """The header that consumers include."""
    return f"include/{library}/{library}.hpp"


def header_files(library: str) -> tuple[str, ...]:
    """What `cpp_package.render_cpp_header` writes."""
    return (library_header(library), *runtime_files(library))

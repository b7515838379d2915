"""The names of the C package: symbols, files, and members of archives."""

from __future__ import annotations

from collections.abc import Iterable


def image_symbol(library: str, variant: str, target: str) -> str:
    """C symbol of an image's record, such as kernels_softmax_fp16_2048__sm_90a.

    Declared names never hold two underscores in a row, so no two images of a library share one.
    """
    return f"{library}_{variant}__{target}"


def data_symbol(symbol: str) -> str:
    """C symbol of the first byte of the data of the image whose record is `symbol`."""
    return f"{symbol}_data"


def data_end_symbol(symbol: str) -> str:
    """C symbol of the byte after the last of an image's data; the NUL that ends a PTX lies before it."""
    return f"{symbol}_data_end"


def table_symbol(library: str, target: str) -> str:
    """C symbol of the table of one target's images, such as kernels__sm_90a."""
    return f"{library}__{target}"


def macro_prefix(library: str) -> str:
    """What the library's macros and enumeration constants begin with, such as KERNELS."""
    return library.upper()


def data_member(variant: str, target: str) -> str:
    """Archive member that holds one image's data."""
    return f"{variant}__{target}.data.o"


def record_member(variant: str, target: str) -> str:
    """Archive member that holds one image's record."""
    return f"{variant}__{target}.record.o"


def table_member(target: str) -> str:
    """Archive member that holds the table of one target's images."""
    return f"table__{target}.o"


def registry_member(target: str | None) -> str:
    """Archive member that holds the registry: of the whole library, or of one target's archive."""
    return "registry.o" if target is None else f"registry__{target}.o"


def runtime_members(library: str) -> dict[str, str]:
    """Archive members that hold the fixed runtime, each with a symbol that it defines."""
    return {
        "lookup.o": f"{library}_image_find",
        "sha256.o": f"{library}_sha256",
        "verify.o": f"{library}_image_verify",
    }


def source_of(member: str) -> str:
    """The C file that an object is compiled from."""
    return f"{member.removesuffix('.o')}.c"


def runtime_files(library: str) -> dict[str, str]:
    """The fixed sources as a library has them -> as they are below runtime/c. The header under include/ is public."""
    return {
        f"include/{library}/{library}_image.h": "include/kiln/kiln_image.h",
        "src/internal.h": "src/internal.h",
        **{f"src/{source_of(member)}": f"src/{source_of(member)}" for member in runtime_members(library)},
    }


def library_header(library: str) -> str:
    """The header that consumers include; none of the fixed sources can have its name."""
    return f"include/{library}/{library}.h"


def table_members(images: Iterable[tuple[str, str]], library: str) -> tuple[str, ...]:
    """What `c_objects.make_tables` writes."""
    targets = dict.fromkeys(target for _, target in images)
    return (
        *runtime_members(library),
        registry_member(None),
        *(name for target in targets for name in (table_member(target), registry_member(target))),
    )


def archive_name(library: str, target: str | None) -> str:
    """libkernels.a, or libkernels_sm_90a.a with one target's images only."""
    return f"lib{library}.a" if target is None else f"lib{library}_{target}.a"


def archive_members(images: Iterable[tuple[str, str]], library: str, target: str | None) -> tuple[str, ...]:
    """What an archive holds, in order: `images` are (variant, target) in order of declaration.

    With a `target`, only its images, its table and its own registry; else those of the whole library.
    """
    chosen = [(variant, built_for) for variant, built_for in images if target in (None, built_for)]
    targets = dict.fromkeys(built_for for _, built_for in chosen)
    return (
        *runtime_members(library),
        registry_member(target),
        *(table_member(name) for name in targets),
        *(member for image in chosen for member in (record_member(*image), data_member(*image))),
    )


def header_files(library: str) -> tuple[str, ...]:
    """What `c_package.render_header` writes: public headers under include/, runtime sources under src/."""
    return (library_header(library), *runtime_files(library))

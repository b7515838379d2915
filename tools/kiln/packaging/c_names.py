"""The names of the C package: symbols, files, and members of archives."""

from __future__ import annotations

from kiln.manifest.model import FATBIN
from kiln.packaging.inventory import Inventory


def image_symbol(library: str, variant: str, target: str) -> str:
    """C symbol of an image's record, such as kernels_softmax_fp16_2048__sm_90a.

    Declared names never hold two underscores in a row, so no two images of a library share one.
    """
    return f"{library}_{variant}__{target}"


def own_symbol(symbol: str) -> str:
    """Hidden symbol of the same record as `symbol`, by which the library itself refers to it.

    A linker resolves it. What a shared library exports is left to the loader, which looks each up by its name.
    """
    return f"{symbol}__own"


def anchor_symbol(library: str) -> str:
    """Hidden symbol that records give their distance to: see the runtime's records.c."""
    return f"{library}_anchor"


def data_symbol(symbol: str) -> str:
    """C symbol of the first byte of the data of the image whose record is `symbol`."""
    return f"{symbol}_data"


def data_end_symbol(symbol: str) -> str:
    """C symbol of the byte after the last of an image's data; the NUL that ends a PTX lies before it."""
    return f"{symbol}_data_end"


def content_symbol(symbol: str, sha256: str) -> str:
    """A second C symbol of the same byte, for the linker to see whether an archive has the image with that digest.

    `sha256`, in hexadecimal, is of the image as it was measured, without the NUL that ends a PTX.
    """
    return f"{data_symbol(symbol)}_{sha256[:16]}"


def bundle_symbol(library: str, variant: str) -> str:
    """What the C symbols of a variant's fat binary begin with, as those of an image's data: no target is called so."""
    return image_symbol(library, variant, FATBIN)


def table_symbol(library: str, target: str) -> str:
    """C symbol of the table of one target's images, such as kernels__sm_90a."""
    return f"{library}__{target}"


def variant_symbol(library: str, variant: str) -> str:
    """C symbol of a variant, such as kernels_softmax_fp16_2048__variant: no target is called so."""
    return f"{library}_{variant}__variant"


def group_symbol(library: str, group: str) -> str:
    """C symbol of a group, such as kernels_softmax_fp16__group: no target is called so."""
    return f"{library}_{group}__group"


def macro_prefix(library: str) -> str:
    """What the library's macros and enumeration constants begin with, such as KERNELS."""
    return library.upper()


def data_member(variant: str, target: str) -> str:
    """Archive member that holds one image's data."""
    return f"{variant}__{target}.data.o"


def bundle_member(variant: str) -> str:
    """Archive member that holds a variant's fat binary."""
    return data_member(variant, FATBIN)


def record_member(variant: str, target: str) -> str:
    """Archive member that holds one image's record."""
    return f"{variant}__{target}.record.o"


def table_member(target: str) -> str:
    """Archive member that holds the table of one target's images."""
    return f"table__{target}.o"


def registry_member(target: str | None) -> str:
    """Archive member that holds the registry: of the whole library, or of one target's archive."""
    return "registry.o" if target is None else f"registry__{target}.o"


def catalog_member(target: str | None) -> str:
    """Archive member that lists variants and groups: of the whole library, or of one target's archive."""
    return "catalog.o" if target is None else f"catalog__{target}.o"


def variant_member(variant: str, target: str | None) -> str:
    """Archive member that holds a variant, for the archive of the whole library or of one target.

    They differ by what they pull in: the images of other targets are weak references in the archive of one.
    """
    return f"{variant}.variant.o" if target is None else f"{variant}__{target}.variant.o"


def group_member(group: str, target: str | None) -> str:
    """Archive member that holds a group, for the archive of the whole library or of one target.

    Every archive has every group, be it without a variant: a launch by dtype names them all.
    """
    return f"{group}.group.o" if target is None else f"{group}__{target}.group.o"


def launch_members(inventory: Inventory) -> tuple[str, ...]:
    """What `c_launch_objects.make_variants` writes."""
    archives = (None, *inventory.targets)
    return (
        *(variant_member(name, target) for target in archives for name in inventory.variants_for(target)),
        *(group_member(name, target) for target in archives for name, _ in inventory.groups),
    )


def runtime_members(library: str) -> dict[str, str]:
    """Archive members that hold the fixed runtime, each with a symbol that it defines."""
    return {
        "lookup.o": f"{library}_image_find",
        "sha256.o": f"{library}_sha256",
        "verify.o": f"{library}_image_verify",
        "records.o": f"{library}_image_data",
        "status.o": f"{library}_last_error",
        "driver.o": f"{library}_use_driver",
        "symbols.o": f"{library}_open_library",
        "cuda.o": f"{library}_cuda_driver",
        "hip.o": f"{library}_hip_driver",
        "target.o": f"{library}_explain_choice",
        "load.o": f"{library}_load",
        "launch.o": f"{library}_launch",
        "pointers.o": f"{library}_check_pointers",
        "choose.o": f"{library}_choose",
        "find.o": f"{library}_variant_find",
        "choice_file.o": f"{library}_merge_choices",
        "choices.o": f"{library}_load_choices",
        "tuner.o": f"{library}_tune",
    }


def source_of(member: str) -> str:
    """The file that an object is made from: C, or assembly for an image's record."""
    return f"{member.removesuffix('.o')}{'.s' if member.endswith('.record.o') else '.c'}"


def runtime_files(library: str) -> dict[str, str]:
    """The fixed sources as a library has them -> as they are below runtime/c. The headers under include/ are public."""
    return {
        **{
            f"include/{library}/{library}_{name}.h": f"include/kiln/kiln_{name}.h"
            for name in ("image", "status", "driver", "launch", "tuner")
        },
        "src/internal.h": "src/internal.h",
        "src/symbols.h": "src/symbols.h",
        "src/choices.h": "src/choices.h",
        **{f"src/{source_of(member)}": f"src/{source_of(member)}" for member in runtime_members(library)},
        # What takes the place of all others where a program is built without kernels: no archive has it.
        "src/disabled.c": "src/disabled.c",
    }


def library_header(library: str) -> str:
    """The header that consumers include; none of the fixed sources can have its name."""
    return f"include/{library}/{library}.h"


def table_members(inventory: Inventory, library: str) -> tuple[str, ...]:
    """What `c_objects.make_tables` writes."""
    return (
        *runtime_members(library),
        *(name for target in (None, *inventory.targets) for name in (registry_member(target), catalog_member(target))),
        *(table_member(target) for target in inventory.targets),
    )


def archive_name(library: str, target: str | None) -> str:
    """libkernels.a, or libkernels_sm_90a.a with one target's images only."""
    return f"lib{library}.a" if target is None else f"lib{library}_{target}.a"


def archive_members(inventory: Inventory, library: str, target: str | None) -> tuple[str, ...]:
    """What an archive holds, in order.

    With a `target`, only its images, its table and its own registry; else those of the whole library, in which fat
    binaries take the place of the images that they have as they are.
    """
    chosen = [image for image in inventory.images if target in (None, image[1])]
    targets = inventory.targets if target is None else (target,)
    within = inventory.embedded if target is None else frozenset()
    return (
        *runtime_members(library),
        registry_member(target),
        catalog_member(target),
        *(table_member(name) for name in targets),
        *(group_member(name, target) for name, _ in inventory.groups),
        *(variant_member(name, target) for name in inventory.variants_for(target)),
        *(bundle_member(variant) for variant, _ in (inventory.bundles if target is None else ())),
        *(
            member
            for image in chosen
            for member in (record_member(*image), *(() if image in within else (data_member(*image),)))
        ),
    )


def header_files(library: str) -> tuple[str, ...]:
    """What `c_package.render_header` writes: public headers under include/, runtime sources under src/."""
    return (library_header(library), *runtime_files(library))

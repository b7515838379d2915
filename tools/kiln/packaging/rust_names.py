"""The names of the Rust crate: its files, and the static of each image. A build with nothing to do imports this."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kiln.packaging.rust_include import INCLUDE

if TYPE_CHECKING:
    # To say which files a crate has takes no manifest at hand.
    from kiln.manifest.model import Image, Manifest

RUNTIME = Path(__file__).parent / "runtime" / "rust"
"""the fixed Rust sources, which go into every crate as they are"""

RUNTIME_SOURCES = (
    "adapters/cudarc.rs",
    "adapters/cust.rs",
    "adapters/mod.rs",
    "check.rs",
    "choices.rs",
    "device.rs",
    "driver/cuda.rs",
    "driver/hip.rs",
    "driver/load.rs",
    "driver/mod.rs",
    "error.rs",
    "extent.rs",
    "foreign.rs",
    "half.rs",
    "image.rs",
    "kernel.rs",
    "launch.rs",
    "lib.rs",
    "library.rs",
    "lookup.rs",
    "memory.rs",
    "params.rs",
    "pointer.rs",
    "pointer_checks.rs",
    "refused.rs",
    "select.rs",
    "sha256.rs",
    "variant.rs",
)
"""their names there, and under src/ in the crate"""


def image_file(image: Image) -> str:
    """Where the crate keeps an image, such as images/sm_90a/softmax_fp16_2048.cubin."""
    # A build that has nothing to do imports this module and names no image: it starts without these.
    from kiln.binaries.facts import SUFFIX
    from kiln.toolchain.targets import TARGETS

    return f"images/{image.target}/{image.variant.id}{SUFFIX[TARGETS[image.target].kind]}"


def variant_file(variant: str) -> str:
    """The source file of the module of a variant, or of arguments that variants share."""
    return f"src/variants/{variant}.rs"


def group_file(group: str) -> str:
    """The source file of the module of a group."""
    return f"src/groups/{group}.rs"


def modules(manifest: Manifest) -> tuple[str, ...]:
    """The modules under `variants`: one a variant, and one for arguments that no variant has under their own name."""
    return tuple(dict.fromkeys(name for variant in manifest.variants for name in (variant.base, variant.id)))


def static(target: str) -> str:
    """The static that describes a variant's image for a target, in the variant's module."""
    return target.upper()


def crate_files(manifest: Manifest) -> tuple[str, ...]:
    """Every file that `rust_crate.render_crate` writes, relative to the crate's folder."""
    return (
        "Cargo.toml",
        "README.md",
        INCLUDE,
        *(f"src/{source}" for source in RUNTIME_SOURCES),
        "src/arithmetic.rs",
        "src/groups/mod.rs",
        *dict.fromkeys(group_file(variant.group) for variant in manifest.variants),
        "src/tables.rs",
        "src/variants/mod.rs",
        *(variant_file(name) for name in modules(manifest)),
        *(image_file(image) for image in manifest.images),
    )

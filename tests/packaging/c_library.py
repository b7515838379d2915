"""Builds a C package out of records, and programs on top of it, for the tests of the C side."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kiln.packaging import c_names
from kiln.packaging.archive import make_archive
from kiln.packaging.c_launch_objects import make_variants
from kiln.packaging.c_objects import make_records, make_tables
from kiln.packaging.c_package import render_header
from kiln.packaging.cpp_package import render_cpp_header
from kiln.packaging.inventory import inventory_of
from kiln.packaging.objcopy import make_object
from kiln.packaging.record import Record
from softmax_images import make_manifest

HOST = "x86_64-linux-gnu"
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")

DESCRIBE = """#include <kernels/kernels.h>
#include <inttypes.h>
#include <stdio.h>

static const char *text(const char *t) { return t ? t : "-"; }

int main(void) {
    for (size_t i = 0; i < kernels_image_count(); i++) {
        const struct kernels_image *m = kernels_image_at(i);
        const struct kernels_parameter *parameters = kernels_image_parameters(m);
        const struct kernels_constant *constants = kernels_image_constants(m);
        printf("%s %s %s %s %s %s %s %s %d\\n", kernels_image_id(m), kernels_image_kernel(m), kernels_image_variant(m),
               kernels_image_group(m), kernels_image_dtype(m), kernels_image_block(m), kernels_image_target(m),
               kernels_image_entry(m), (int)m->kind);
        printf("%zu ", m->size);
        for (size_t k = 0; k < 32; k++) printf("%02x", (unsigned)m->sha256[k]);
        printf(" terminated %d\\n", m->kind == KERNELS_KIND_PTX && ((const char *)kernels_image_data(m))[m->size] == 0);
        for (uint32_t k = 0; k < m->parameter_count; k++) {
            const struct kernels_parameter *p = &parameters[k];
            printf("%s|%s|%d|%" PRIu32 "|%" PRIu32 "|%" PRIu32 "\\n", kernels_parameter_name(p),
                   kernels_parameter_type(p), (int)p->role, p->offset, p->size, p->promise);
        }
        for (uint32_t k = 0; k < m->constant_count; k++)
            printf("%s=%s=%" PRId64 "\\n", kernels_constant_name(&constants[k]), kernels_constant_text(&constants[k]),
                   constants[k].value);
        printf("%" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 "\\n", m->parameter_bytes, m->threads,
               m->warps, m->warps_requested, m->warp_size);
        printf("%" PRIu32 " %" PRIu32 " %" PRIu32 " %d %d\\n", m->cluster[0], m->cluster[1], m->cluster[2],
               m->cooperative, m->pdl);
        printf("%" PRIu32 " %" PRIu32 " %" PRIu64 " %" PRIu32 " %" PRIu64 " %" PRIu32 "\\n", m->shared_static,
               m->shared_dynamic, m->global_scratch_bytes, m->global_scratch_align, m->profile_scratch_bytes,
               m->profile_scratch_align);
        printf("%" PRId32 " %" PRId32 " %" PRId32 " %" PRId32 "\\n", m->registers, m->scalar_registers,
               m->spills, m->stack);
        printf("%s %s %s %s %s\\n", text(kernels_image_ptx_isa(m)), kernels_image_grid(m, 0), kernels_image_grid(m, 1),
               kernels_image_grid(m, 2), text(kernels_image_select(m)));
    }
    return 0;
}
"""
"""Prints every record of a library named kernels: all members, one line for each group of them."""


def tool(name: str) -> Path:
    found = shutil.which(name)
    assert found, f"the tests need {name}"
    return Path(found)


@dataclass(frozen=True, kw_only=True)
class Package:
    """include/, src/, lib/ and obj/ of a built package."""

    folder: Path
    library: str

    @property
    def include(self) -> Path:
        return self.folder / "include"

    def archive(self, target: str | None = None) -> Path:
        return self.folder / "lib" / c_names.archive_name(self.library, target)


def build_package(records: Sequence[Record], folder: Path, library: str = "kernels") -> Package:
    """The whole package: headers and runtime sources, every object, and every archive."""
    objects, archives = folder / "obj", folder / "lib"
    objects.mkdir(parents=True)
    archives.mkdir()
    manifest = make_manifest(list(records), library)
    render_header(records, manifest, folder)
    render_cpp_header(records, manifest, folder)
    for record in records:
        variant, target = record.image.variant.id, record.image.target
        make_object(
            image=record.path,
            kind=record.facts.kind,
            symbol=c_names.image_symbol(library, variant, target),
            host=HOST,
            objcopy=tool("objcopy"),
            staging=objects,
            output=c_names.data_member(variant, target),
        )
    inventory = inventory_of(record.image for record in records)
    make_records(records=records, library=library, host=HOST, cc=tool("gcc"), staging=objects)
    make_variants(records=records, library=library, host=HOST, cc=tool("gcc"), staging=objects)
    make_tables(inventory=inventory, library=library, host=HOST, cc=tool("gcc"), staging=objects)
    for target in (None, *inventory.targets):
        members = [(name, objects / name) for name in c_names.archive_members(inventory, library, target)]
        make_archive(members=members, ar=tool("ar"), staging=archives, output=c_names.archive_name(library, target))
    return Package(folder=folder, library=library)


def compile_program(source: str, output: Path, *arguments: str | Path, compiler: str = "gcc") -> Path:
    """Compile and link C (or C++) text; `arguments` follow the source, as archives must."""
    language = "c++" if "++" in compiler else "c"
    default = () if language == "c++" else ("-std=c99",)
    command = [
        compiler,
        *default,
        *WARNINGS,
        "-x",
        language,
        "-",
        "-x",
        "none",
        *map(str, arguments),
        "-o",
        str(output),
    ]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return output


def run(program: Path, *arguments: str, stdin: bytes = b"") -> str:
    """What a program prints; it must succeed."""
    done = subprocess.run([str(program), *arguments], input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")
    return done.stdout.decode()


def symbols(binary: Path, *options: str) -> set[str]:
    """The symbols that a program, object or archive defines; with `-g`, those that other objects see."""
    command = ["nm", "--defined-only", *options, str(binary)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in lines.splitlines() if line.strip() and not line.endswith(":")}


def accepts(source: str, compiler: str, standard: str, *arguments: str | Path) -> str:
    """What a compiler says against a text; nothing when it takes it without a warning."""
    language = "c++" if "++" in standard else "c"
    command = [compiler, f"-std={standard}", *WARNINGS, *map(str, arguments), "-fsyntax-only", "-x", language, "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True, check=False).stderr


def standards() -> list[tuple[str, str]]:
    """Every compiler here with every standard that headers are written for."""
    found = [name for name in ("gcc", "clang") if shutil.which(name)]
    return [(name, standard) for name in found for standard in ("c99", "c11", "c17", "c++17", "c++20")]

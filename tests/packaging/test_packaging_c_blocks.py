"""Records as blocks without pointers: what a compiler reads of them, what a loader has to do, and what copies say."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from c_library import Package, accepts, build_package, compile_program, run
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection

from kiln.packaging import c_blocks
from kiln.packaging.c_blocks import EXTENT, GROUP, IMAGE, Layout, Outside, Row, Rows, block
from kiln.packaging.record import Record
from kiln.packaging.templates import environment

R_X86_64_COPY, R_X86_64_RELATIVE = 5, 8

COUNTS = """#include <kernels/kernels.h>
int main(void) { return !(kernels_image_count() > 0 && kernels_variant_count() > 0); }
"""

TEXTS = ['"', "\\", "?" * 3 + "/", "%d\n\t", "Grün \U0001f525", "\x7f\x01" + "9", "*/ /*", ""]


def relocations(binary: Path) -> Counter[int]:
    """What a loader has to do when a program starts or a shared library is opened: types of relocations."""
    with binary.open("rb") as file:
        sections = [section for section in ELFFile(file).iter_sections() if isinstance(section, RelocationSection)]
        return Counter(entry["r_info_type"] for section in sections for entry in section.iter_relocations())


@pytest.fixture(scope="module")
def half(records: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Package:
    """The package of the first variant alone: half of the images of `package`."""
    return build_package(records[:4], tmp_path_factory.mktemp("half") / "c")


@pytest.mark.parametrize("kind", ["program", "shared library"])
def test_relocations_are_entries_of_lists(package: Package, half: Package, tmp_path: Path, kind: str) -> None:
    """None belongs to a record. One more variant of four images in a group of its own adds: each image in the registry
    and among the variant's; the variant in the catalog and in its group; the group in the catalog. A whole archive has
    each image in its target's table, too. Nothing is looked up by name."""
    made = []
    for number, each in enumerate((half, package)):
        output = tmp_path / f"made{number}"
        if kind == "program":
            compile_program(COUNTS, output, "-fPIE", "-pie", "-I", each.include, each.archive())
            run(output)
        else:
            whole = ("-Wl,--whole-archive", each.archive(), "-Wl,--no-whole-archive")
            subprocess.run(["gcc", "-shared", *map(str, whole), "-o", str(output)], check=True)
        made.append(relocations(output))
    added = made[1] - made[0]
    assert added == {R_X86_64_RELATIVE: 4 * 2 + 3 + (4 if kind == "shared library" else 0)}
    assert not made[0] - made[1]


COPIES = """#include <kernels/kernels.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    const struct kernels_image *copy = &kernels_softmax_fp16_2048__sm_90a;
    const struct kernels_image *own = kernels_image_find("softmax_fp16_2048", "sm_90a");
    const struct kernels_variant *variant = &kernels_softmax_fp16_2048__variant;
    const struct kernels_softmax_fp16_args args = { .n_cols = 2000, .n_rows = 3 };
    unsigned char buffer[kernels_softmax_fp16_2048_buffer_bytes];
    uint32_t grid[3];
    printf("%s %s %s\\n", kernels_image_id(copy), kernels_parameter_name(&kernels_image_parameters(copy)[4]),
           kernels_constant_text(kernels_image_constants(copy)));
    if (kernels_image_data(copy) != kernels_image_data(own) || !kernels_image_verify(copy)) return 1;
    const struct kernels_image *next = kernels_image_find("softmax_fp16_2048", "compute_80");
    if (kernels_group_next("softmax_fp16", NULL, copy) != next) return 2;
    if (kernels_variant_images(variant)[1] != own) return 3;
    if (kernels_variant_grid(variant, &args, grid) != KERNELS_GRID_OK) return 7;
    kernels_variant_pack(variant, &args, buffer);
    if (grid[0] != 3 || memcmp(buffer + 24, &args.n_cols, 4) != 0) return 4;
    if (!kernels_variant_selects(variant, &args) || kernels_variant_broken(variant, &args) >= 0) return 5;
    if (kernels_group_variants(&kernels_softmax_fp16__group)[0] != kernels_variant_find("softmax_fp16_2048")) return 6;
    return 0;
}
"""


@pytest.mark.parametrize("mode", ["-pie", "-no-pie", "-fPIC"])
def test_a_program_may_have_copies_of_a_shared_librarys_records(package: Package, tmp_path: Path, mode: str) -> None:
    """A linker gives such a program a copy of what it names, but for one that is compiled as libraries are."""
    shared = tmp_path / "libengine.so"
    whole = ("-Wl,--whole-archive", str(package.archive()), "-Wl,--no-whole-archive")
    subprocess.run(["gcc", "-shared", *whole, "-o", str(shared)], check=True)
    flags = {"-pie": ("-fPIE", "-pie"), "-no-pie": ("-fno-pie", "-no-pie"), "-fPIC": ("-fPIC", "-pie")}[mode]
    arguments = [*flags, "-I", package.include, shared, f"-Wl,-rpath,{tmp_path}"]
    program = compile_program(COPIES, tmp_path / "program", *arguments)
    assert run(program) == "softmax_fp16_2048@sm_90a n_cols 2048\n"
    assert relocations(program)[R_X86_64_COPY] == (0 if mode == "-fPIC" else 3)


@pytest.mark.parametrize("compiler", [name for name in ("gcc", "clang") if shutil.which(name)])
def test_texts_are_what_they_were(package: Package, tmp_path: Path, compiler: str) -> None:
    """Whatever they hold, of both assemblers; a text that stands twice lies there once, and lists behind the struct."""
    extents: list[Row] = [
        {"name_at": text, "offset": number, "size": 4, "is_signed": number % 2} for number, text in enumerate(TEXTS)
    ]
    lines = block(
        "kernels_test",
        "kernels_own",
        GROUP,
        {
            **{member.name: 0 for member in GROUP.members},
            "variants_at": Outside("kernels_test_far"),
            "extent_count": len(TEXTS),
            "extents_at": Rows(EXTENT, extents),
            "name_at": TEXTS[0],
            "is_uniform": True,
        },
    )
    far = [".globl kernels_test_far", "kernels_test_far:", ".long 7", '.section .note.GNU-stack, "", %progbits', ""]
    (tmp_path / "record.s").write_text("\n".join(['.section .rodata, "a", %progbits', *lines, *far]))
    source = f"""#include <kernels/kernels.h>
#include <stdio.h>
extern const struct kernels_group kernels_test;
extern const int kernels_test_far;
int main(void)
{{
    const struct kernels_extent *extents = kernels_group_extents(&kernels_test);
    for (uint32_t i = 0; i < kernels_test.extent_count; i++) {{
        fwrite(kernels_extent_name(&extents[i]), 1, strlen(kernels_extent_name(&extents[i])) + 1, stdout);
        if (extents[i].offset != i || extents[i].size != 4 || extents[i].is_signed != (i % 2 != 0)) return 1;
    }}
    return !(kernels_test.is_uniform && kernels_test.extent_count == {len(TEXTS)}
        && kernels_group_name(&kernels_test) == kernels_extent_name(&extents[0])
        && (const char *)&kernels_test + kernels_test.variants_at == (const char *)&kernels_test_far);
}}
"""
    arguments = ("-I", package.include, "-x", "assembler", tmp_path / "record.s")
    program = compile_program(source, tmp_path / "program", *arguments, compiler=compiler)
    assert run(program).split("\0")[:-1] == TEXTS


def test_values_are_those_of_the_struct() -> None:
    values = {member.name: 0 for member in reversed(GROUP.members)}
    with pytest.raises(ValueError, match="the values are not those of struct group: is_uniform, "):
        block("a", "b", GROUP, values)


def test_the_compiler_holds_layouts_to_the_headers(package: Package) -> None:
    """A member that the generator has elsewhere than the headers stops the build, and is named."""
    wrong = [
        dataclasses.replace(layout, declared=(*layout.declared[:-1], (layout.declared[-1][0], 8, 1)))
        for layout in c_blocks.LAYOUTS
    ]

    def said(layouts: Sequence[Layout]) -> str:
        values = {"library": "kernels", "macro": "KERNELS", "images": [{"symbol": "kernels_a", "weak": False}]}
        text = environment().get_template("c/registry.c.j2").render(**values, layouts=layouts)
        return accepts(text, "gcc", "c99", "-I", package.include, "-I", package.folder / "src")

    assert said(c_blocks.LAYOUTS) == ""
    refused = said(wrong)
    for layout in wrong:
        assert f"layout_{layout.struct}_{layout.members[-1].name}" in refused


def test_a_launch_reads_one_line_of_a_cache() -> None:
    """What the drivers' launches read of an image: all of it in its first 64 bytes, which records are aligned to."""
    read = {"threads", "shared_dynamic", "parameter_bytes", "cluster", "cooperative", "pdl"}
    read |= {"global_scratch_bytes", "profile_scratch_bytes"}
    assert {member.name for member in IMAGE.members if member.offset + member.size * member.count <= 64} >= read
    assert c_blocks.ALIGNMENT == 64

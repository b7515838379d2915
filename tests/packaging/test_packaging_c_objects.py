"""Records, tables and archives as a linker and a program see them."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from c_library import (
    DESCRIBE,
    HOST,
    WARNINGS,
    Package,
    accepts,
    build_package,
    compile_program,
    run,
    standards,
    symbols,
    tool,
)
from elftools.elf.elffile import ELFFile

from kiln.errors import PackagingError
from kiln.packaging import c_names
from kiln.packaging.archive import read_archive
from kiln.packaging.c_launch_objects import make_variants
from kiln.packaging.c_objects import make_records, make_tables
from kiln.packaging.inventory import Inventory, inventory_of
from kiln.packaging.record import Record

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "c" / "walk.c"


def described(record: Record) -> list[str]:
    """What DESCRIBE has to print of a record."""
    image, facts = record.image, record.facts
    variant = image.variant
    kinds, roles = {"cubin": 1, "ptx": 2, "hsaco": 3}, {"user": 1, "global_scratch": 2, "profile_scratch": 3}
    words = {"*": "void *", "i": "int32_t"}
    named = [(argument.name, words[argument.type[0]], argument.promise or 0) for argument in record.interface.arguments]
    named += [(parameter.role, "void *", 0) for parameter in facts.parameters if parameter.role != "user"]

    def known(value: int | None) -> int:
        return -1 if value is None else value

    return [
        f"{image.id} softmax {variant.id} {variant.group} {variant.dtype} {variant.block} {image.target}"
        f" {facts.entry} {kinds[facts.kind]}",
        f"{facts.size} {facts.sha256} terminated {int(facts.kind == 'ptx')}",
        *(
            f"{name}|{word}|{roles[parameter.role]}|{parameter.offset}|{parameter.size}|{promise}"
            for (name, word, promise), parameter in zip(named, facts.parameters, strict=True)
        ),
        f"BLOCK_SIZE={variant.block}={variant.block}",
        f"{facts.parameter_bytes} {facts.threads} {facts.warps} {variant.options['num_warps']} {facts.warp_size}",
        f"{' '.join(map(str, facts.cluster))} {int(facts.cooperative)} {int(facts.pdl)}",
        f"{facts.shared_static} {facts.shared_dynamic} {facts.global_scratch_bytes} {facts.global_scratch_align}"
        f" {facts.profile_scratch_bytes} {facts.profile_scratch_align}",
        f"{known(facts.registers)} {known(facts.scalar_registers)} {known(facts.spills)} {known(facts.stack)}",
        f"{facts.ptx_isa or '-'} n_rows 1 1 n_cols <= BLOCK_SIZE",
    ]


def inventory(records: list[Record]) -> Inventory:
    return inventory_of(record.image for record in records)


def linked_images(program: Path) -> set[str]:
    """The image data that a program holds."""
    return {name for name in symbols(program) if name.endswith("_data") and "__" in name}


def symbol_of(record: Record) -> str:
    return c_names.image_symbol("kernels", record.image.variant.id, record.image.target)


def test_a_program_reads_every_record(records: list[Record], package: Package, tmp_path: Path) -> None:
    """What the tables say equals what was measured and declared, for every image, in order of declaration."""
    program = compile_program(DESCRIBE, tmp_path / "describe", "-I", package.include, package.archive())
    assert run(program).splitlines() == [line for record in records for line in described(record)]


def test_a_record_links_its_own_image_only(records: list[Record], package: Package, tmp_path: Path) -> None:
    """Checking its digest pulls in no more."""
    record = records[2]
    source = f"""#include <kernels/kernels.h>
int main(void) {{ return !kernels_image_verify(&{symbol_of(record)}); }}
"""
    program = compile_program(source, tmp_path / "one", "-I", package.include, package.archive())
    run(program)
    assert linked_images(program) == {f"{symbol_of(record)}_data"}
    assert "kernels_registry" not in symbols(program)


def test_a_table_links_the_images_of_its_target(records: list[Record], package: Package, tmp_path: Path) -> None:
    source = """#include <kernels/kernels.h>
#include <stdio.h>
int main(void) {
    for (size_t i = 0; i < kernels__sm_90a.count; i++) puts(kernels_image_id(kernels__sm_90a.images[i]));
    return 0;
}
"""
    program = compile_program(source, tmp_path / "table", "-I", package.include, package.archive())
    chosen = [record for record in records if record.image.target == "sm_90a"]
    assert run(program).split() == [record.image.id for record in chosen]
    assert linked_images(program) == {f"{symbol_of(record)}_data" for record in chosen}


def test_a_lookup_links_every_image(records: list[Record], package: Package, tmp_path: Path) -> None:
    source = """#include <kernels/kernels.h>
#include <stdio.h>
int main(void) {
    const struct kernels_image *found = kernels_image_find("softmax_fp16_2048", "gfx942");
    if (!found) return 1;
    puts(kernels_image_id(found));
    for (const struct kernels_image *i = NULL; (i = kernels_group_next("softmax_fp32", NULL, i)) != NULL;)
        puts(kernels_image_id(i));
    return 0;
}
"""
    program = compile_program(source, tmp_path / "lookup", "-I", package.include, package.archive())
    fp32 = [record.image.id for record in records if record.image.variant.group == "softmax_fp32"]
    assert run(program).split() == ["softmax_fp16_2048@gfx942", *fp32]
    assert linked_images(program) == {f"{symbol_of(record)}_data" for record in records}


IDS = """#include <kernels/kernels.h>
#include <stdio.h>
int main(void) {
    for (size_t i = 0; i < kernels_image_count(); i++) puts(kernels_image_id(kernels_image_at(i)));
    return 0;
}
"""


@pytest.mark.parametrize("mode", ["-pie", "-no-pie"])
@pytest.mark.parametrize(
    ("linked", "listed"),
    [
        (["sm_80"], {"sm_80"}),
        (["sm_80", "gfx942"], {"sm_80"}),
        (["sm_80", "+gfx942"], {"sm_80", "gfx942"}),
        (["gfx942", "+sm_80"], {"sm_80", "gfx942"}),
        (["+compute_80", "+sm_90a", "sm_80"], {"compute_80", "sm_90a"}),
        (["sm_80", None], {"sm_80"}),
        ([None, "sm_80"], {"sm_80", "sm_90a", "compute_80", "gfx942"}),
    ],
    ids=["one", "two", "two, one named", "the other way round", "two named, one not", "one, then all", "all, then one"],
)
def test_archives_of_targets_link_together(
    records: list[Record], package: Package, tmp_path: Path, mode: str, linked: list[str | None], listed: set[str]
) -> None:
    """The first one's registry lists its own images and those of targets that are named to the linker (`+`)."""
    arguments: list[str | Path] = []
    for target in linked:
        if target and target.startswith("+"):
            arguments.append(f"-Wl,-u,{c_names.table_symbol('kernels', target[1:])}")
        arguments.append(package.archive(target and target.lstrip("+")))
    flags = (mode, "-fPIE" if mode == "-pie" else "-fno-pie")
    program = compile_program(IDS, tmp_path / "ids", "-I", package.include, *flags, *arguments)
    expected = [record.image for record in records if record.image.target in listed]
    assert run(program).split() == [image.id for image in expected]
    assert len(linked_images(program)) == len(expected)


def test_a_shared_library_takes_an_archive_in(records: list[Record], package: Package, tmp_path: Path) -> None:
    """Weak references to targets that are not linked are null there too; the runtime's own names are not exported."""
    shared = tmp_path / "libengine.so"
    wanted = [f"-Wl,-u,kernels_{name}" for name in ("image_count", "image_verify")]
    command = ["gcc", "-shared", "-o", shared, *wanted, package.archive("sm_80"), "-Wl,-z,text", "-Wl,--no-undefined"]
    subprocess.run(command, check=True)
    library = ctypes.CDLL(str(shared))
    assert library.kernels_image_count() == sum(record.image.target == "sm_80" for record in records)
    dynamic = subprocess.run(["nm", "-D", "--defined-only", shared], capture_output=True, text=True, check=True).stdout
    assert "kernels_image_count" in dynamic
    assert "kernels_registry" not in dynamic
    assert "kernels_sha256" not in dynamic


def test_the_whole_archive_links(package: Package, tmp_path: Path) -> None:
    """As consumers do who look symbols up at run time: no two members define the same."""
    arguments = ("-Wl,--whole-archive", package.archive(), "-Wl,--no-whole-archive")
    run(compile_program(IDS, tmp_path / "whole", "-I", package.include, *arguments))


@pytest.mark.parametrize("name", ["mine", "image", "kernels_image", "kernels_library"])
def test_two_libraries_in_one_program(records: list[Record], package: Package, tmp_path: Path, name: str) -> None:
    """Headers, runtimes and tables of two libraries of the same kernels do not meet, whatever their names are."""
    other = build_package(records[:2], tmp_path / "other", library=name)
    source = f"""#include <kernels/kernels.h>
#include <{name}/{name}.h>
int main(void) {{ return !(kernels_image_count() == 8 && {name}_image_count() == 2
    && kernels_image_verify(kernels_image_at(7)) && {name}_image_verify(&{name}_softmax_fp32_1024__sm_90a)); }}
"""
    arguments = ("-I", package.include, "-I", other.include, package.archive(), other.archive())
    run(compile_program(source, tmp_path / "two", *arguments))
    assert not symbols(other.archive(), "-g") & symbols(package.archive(), "-g")
    assert all(symbol.startswith(f"{name}_") for symbol in symbols(other.archive(), "-g"))


def test_a_cpp_program(records: list[Record], package: Package, tmp_path: Path) -> None:
    source = """#include <kernels/kernels.h>
int main() {
    kernels_softmax_fp16_2048_args args{};
    args.n_cols = 2048;
    const kernels_image *image = &kernels_softmax_fp16_2048__sm_80;
    return !(kernels_softmax_fp16_2048_selects(&args) && kernels_image_verify(image));
}
"""
    arguments = ("-std=c++17", "-I", package.include, package.archive())
    run(compile_program(source, tmp_path / "cpp", *arguments, compiler="g++"))


def walk(package: Package, folder: Path, *flags: str) -> Path:
    folder.mkdir(exist_ok=True)
    program = folder / "walk"
    arguments = ["-std=c99", *WARNINGS, *flags, "-I", package.include, EXAMPLE, package.archive(), "-o", program]
    subprocess.run(["gcc", *map(str, arguments)], check=True)
    return program


def test_the_example_checks_every_image(records: list[Record], package: Package, tmp_path: Path) -> None:
    printed = run(walk(package, tmp_path)).splitlines()
    assert printed == [
        f"{record.image.id} {record.facts.kind} {record.facts.size} {record.facts.sha256} ok" for record in records
    ]


@pytest.mark.parametrize(("compiler", "standard"), [pair for pair in standards() if "++" not in pair[1]])
def test_the_example_compiles_without_a_warning(package: Package, compiler: str, standard: str) -> None:
    assert accepts(EXAMPLE.read_text(), compiler, standard, "-I", package.include) == ""


def test_the_example_notices_a_changed_byte(records: list[Record], package: Package, tmp_path: Path) -> None:
    """One bit of one image is flipped in the linked program."""
    program = walk(package, tmp_path)
    data = bytearray(program.read_bytes())
    image = records[3].path.read_bytes()
    at = data.index(image)
    data[at + len(image) // 2] ^= 0x10
    program.write_bytes(data)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert [line.split()[0] for line in done.stdout.splitlines() if line.endswith("DAMAGED")] == [records[3].image.id]


def test_a_linked_program_is_safe(records: list[Record], package: Package, tmp_path: Path) -> None:
    """Image data and records lie aligned to 64 in a segment that is only readable, with no relocation; and the stack is
    not executable."""
    with walk(package, tmp_path).open("rb") as file:
        elf = ELFFile(file)
        segments = [
            (segment["p_type"], segment["p_flags"], segment["p_vaddr"], segment["p_memsz"])
            for segment in elf.iter_segments()
        ]
        table = {symbol.name: symbol["st_value"] for symbol in elf.get_section_by_name(".symtab").iter_symbols()}

    def within(address: int, type: str) -> list[int]:
        return [flags for kind, flags, start, size in segments if kind == type and start <= address < start + size]

    read_only, read_write = 4, 6
    for name in (name for record in records for name in (symbol_of(record), f"{symbol_of(record)}_data")):
        assert table[name] % 64 == 0
        assert within(table[name], "PT_LOAD") == [read_only]
        assert within(table[name], "PT_GNU_RELRO") == []
    assert [flags for kind, flags, *_ in segments if kind == "PT_GNU_STACK"] == [read_write]


def test_a_program_keeps_its_control_flow_protection(package: Package, tmp_path: Path) -> None:
    """A linker gives it to a program whose objects all have it; the first one without would be an error here."""
    library = tmp_path / "libengine.so"
    whole = ("-Wl,--whole-archive", package.archive(), "-Wl,--no-whole-archive", "-Wl,-z,cet-report=error")
    subprocess.run(["gcc", "-shared", "-nostdlib", *map(str, whole), "-o", str(library)], check=True)
    notes = subprocess.run(["readelf", "-n", library], capture_output=True, text=True, check=True).stdout
    assert "x86 feature: IBT, SHSTK" in notes


WITH_STATE = {"status.o", "driver.o", "cuda.o", "hip.o", "target.o", "load.o", "launch.o"}
WITH_STATE |= {"choose.o", "choice_file.o", "choices.o", "tuner.o"}
"""members of the runtime that keep something between calls"""


def test_no_object_runs_before_main_or_holds_initialised_state(package: Package) -> None:
    """No constructor. What is writable is so only until it is relocated; but for what variants and the runtime know of
    the driver, which is zero at the start and takes no bytes of the file."""
    members, _ = read_archive(package.archive().read_bytes())
    for member in members:
        path = package.folder / "obj" / member.name
        with path.open("rb") as file:
            sections = [(s.name, s["sh_flags"], s["sh_size"]) for s in ELFFile(file).iter_sections()]
        writable = {name for name, flags, size in sections if flags & 1 and size}
        state = {".bss", ".tbss"} if member.name in WITH_STATE else set()
        state |= {".bss"} if member.name.endswith((".variant.o", ".group.o")) else set()
        assert writable - state <= {".data.rel.ro", ".data.rel.ro.local"}, (member.name, writable)
        assert not {name for name, _, _ in sections} & {".init_array", ".ctors", ".fini_array"}


def test_same_bytes_wherever_it_is_built(records: list[Record], package: Package, tmp_path: Path) -> None:
    """Another folder with a space and a non-ASCII letter, another umask, time zone, locale and image path."""
    folder = tmp_path / "zwei Wörter"
    folder.mkdir()
    copies = []
    for index, record in enumerate(records):
        copy = folder / f"{index}.bin"
        shutil.copyfile(record.path, copy)
        copies.append(Record(image=record.image, facts=record.facts, interface=record.interface, path=copy))
    umask = os.umask(0o077)
    saved = {name: os.environ.get(name) for name in ("TZ", "LC_ALL", "CPATH")}
    os.environ.update(TZ="Asia/Kathmandu", LC_ALL="tr_TR.UTF-8", CPATH=str(tmp_path))
    try:
        other = build_package(copies, folder / "package")
    finally:
        os.umask(umask)
        for name, value in saved.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    files = sorted(path.relative_to(package.folder) for path in package.folder.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(other.folder) for path in other.folder.rglob("*") if path.is_file())
    assert len(files) > 30
    for name in files:
        ours = (package.folder / name).read_bytes()
        assert ours == (other.folder / name).read_bytes(), name
        assert str(tmp_path.parent).encode() not in ours


def test_records_of_sixty_images_take_seconds(records: list[Record], tmp_path: Path) -> None:
    """One translation unit an image is affordable: processor time, not time on the clock, for machines are shared."""
    many = [records[index % len(records)] for index in range(60)]
    before = os.times()
    started = time.perf_counter()
    for start in range(0, 60, len(records)):
        make_records(many[start : start + len(records)], "kernels", HOST, tool("gcc"), tmp_path)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    assert used < 3, f"{used:.1f} s of processor time in {time.perf_counter() - started:.1f} s"


def fake(folder: Path, script: str) -> Path:
    path = folder / "cc"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("exit 0", "softmax_fp32_1024__sm_80.record.o is not what was asked for: the object file cannot be read"),
        ("for f in *.s; do : > ${f%.s}.o; done", "this is no ELF file"),
        ('gcc "$@" && truncate -s -1 *.record.o', "the file is cut short"),
        ("sed -i 's/__sm_80/__sm_81/g' *.s; gcc \"$@\"", "lacks its symbol"),
        ('gcc "$@" && objcopy --remove-section .note.GNU-stack *.record.o', "would make the stack of every program"),
        (
            'gcc "$@" && objcopy --remove-section .note.gnu.property *.record.o',
            "would take control-flow protection (-fcf-protection=full) from every",
        ),
    ],
    ids=["nothing", "empty", "cut short", "symbol gone", "executable stack", "unprotected"],
)
def test_believes_no_exit_code(records: list[Record], tmp_path: Path, script: str, what: str) -> None:
    staging = tmp_path / "staging"
    staging.mkdir()
    with pytest.raises(PackagingError) as caught:
        make_records(records[:1], "kernels", HOST, fake(tmp_path, script), staging)
    assert what in str(caught.value)
    assert list(staging.iterdir()) == []


def test_a_compiler_for_another_host(records: list[Record], tmp_path: Path) -> None:
    """It does not know the host's flags; one that takes them all the same is found out by what it made."""
    with pytest.raises(PackagingError) as caught:
        make_records(records[:1], "kernels", "aarch64-linux-gnu", tool("gcc"), tmp_path)
    assert "gcc could not compile the tables of kernels for aarch64-linux-gnu: exit code 1" in str(caught.value)
    assert "point CC to a recent gcc or clang for aarch64-linux-gnu, or unset CC" in (caught.value.remedy or "")
    script = 'for word; do shift; [ "$word" = -mbranch-protection=standard ] || set -- "$@" "$word"; done; gcc "$@"'
    with pytest.raises(PackagingError) as caught:
        make_records(records[:1], "kernels", "aarch64-linux-gnu", fake(tmp_path, script), tmp_path)
    assert str(caught.value).count("the object is for another machine than the library's host") == 1
    assert caught.value.expected == "aarch64-linux-gnu (ELF machine 183)"
    assert caught.value.actual == "x86_64-linux-gnu (ELF machine 62)"
    assert "point CC to a compiler for that host" in (caught.value.remedy or "")


def test_tells_what_the_compiler_says(records: list[Record], tmp_path: Path) -> None:
    script = 'gcc -include gone.h "$@"'
    with pytest.raises(PackagingError) as caught:
        make_tables(inventory(records), "kernels", HOST, fake(tmp_path, script), tmp_path)
    assert "cc could not compile the tables of kernels for x86_64-linux-gnu: exit code 1" in str(caught.value)
    assert "gone.h: No such file or directory" in str(caught.value)
    assert caught.value.remedy is None


def test_a_compiler_without_the_c_library(records: list[Record], tmp_path: Path) -> None:
    """As a cross compiler can be installed: variants need its types alone, the runtime its functions too."""
    without = 'gcc -nostdinc -isystem "$(gcc -print-file-name=include)" "$@"'
    with pytest.raises(PackagingError) as caught:
        make_tables(inventory(records), "kernels", HOST, fake(tmp_path, without), tmp_path)
    with pytest.raises(PackagingError) as first:
        make_variants(records[:4], "kernels", HOST, fake(tmp_path, without), tmp_path)
    assert first.value.remedy == caught.value.remedy
    assert caught.value.remedy == (
        "install the headers of the C library for x86_64-linux-gnu (Debian, Ubuntu: apt-get install libc6-dev)"
    )


def test_tables_without_images(tmp_path: Path) -> None:
    with pytest.raises(PackagingError, match="there are no images"):
        make_tables(inventory([]), "kernels", HOST, tool("gcc"), tmp_path)

"""The whole package for aarch64, made on another machine: read with readelf, linked, and run in an emulator.

The same project is built for x86-64 too: what is not for the host must be the same, and what programs read of it.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from c_library import DESCRIBE, compile_program, run

from kiln.digests import FileDigests
from kiln.packaging import c_names
from kiln.packaging.archive import read_archive
from kiln.toolchain.hosts import HOSTS
from kiln.toolchain.tools import HostTools
from optional_tools import require
from project import KERNEL, Project

HOST = "aarch64-linux-gnu"
SYSTEM = f"/usr/{HOST}"
"""where Debian has the loader and the libraries of programs for the host"""

MANIFEST = f"""\
version: 1
library: kernels
host: {HOST}
targets: [sm_80, gfx942]
kernels:
  scale:
    source: kernels/scale.py
    function: scale_kernel
    dtypes: [fp32]
    blocks: [128, 256]
    name: scale_{{dtype}}_{{block}}
    group: scale_{{dtype}}
    signature: "*{{dtype}}:16, *{{dtype}}:16, i32"
    grid: ["cdiv(n_elements, BLOCK_SIZE)"]
    select: n_elements >= 1000
  mix:
    source: kernels/mix.py
    function: mix_kernel
    dtypes: [fp16]
    blocks: [128]
    name: mix_{{dtype}}_{{block}}
    signature: "*{{dtype}}:16, i8, fp32, i1, i64, i16"
    inputs: {{rows: i32}}
    grid: ["cdiv(length, BLOCK_SIZE)", "max(rows, 2)"]
    select: step < 0 and length > 1
"""

MIX = """\
import triton
import triton.language as tl


@triton.jit
def mix_kernel(out_ptr, step, factor, negate, length, offset, BLOCK_SIZE: tl.constexpr):
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = at * step * factor + offset
    tl.store(out_ptr + at, tl.where(negate, -x, x), mask=at < length)
"""

USE = """#include <kernels/kernels.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void print_ids(const char *target)
{
    const struct kernels_image *image = NULL;
    while ((image = kernels_group_next("scale_fp32", target, image)) != NULL) printf("%s ", kernels_image_id(image));
    printf("\\n");
}

int main(int count, char **words)
{
    if (count == 3) { /* the bytes of one image */
        const struct kernels_image *image = kernels_image_find(words[1], words[2]);
        return image == NULL || fwrite(kernels_image_data(image), 1, image->size, stdout) != image->size;
    }
    printf("abi %d, %d images\\n", kernels_abi_version() == KERNELS_ABI_VERSION, (int)kernels_image_count());
    for (size_t i = 0; i < kernels_image_count(); i++) {
        const struct kernels_image *image = kernels_image_at(i);
        printf("%s %d %d %d\\n", kernels_image_id(image), kernels_image_verify(image),
               (int)((uintptr_t)kernels_image_data(image) % 64),
               kernels_image_find(kernels_image_variant(image), kernels_image_target(image)) == image);
    }
    printf("none %d\\n", kernels_image_find("scale_fp32_512", "sm_80") == NULL);
    print_ids(NULL);
    print_ids("gfx942");

    struct kernels_mix_fp16_128_args mix;
    memset(&mix, 0, sizeof mix);
    mix.out_ptr = (void *)(uintptr_t)0x1122334455667780u;
    mix.step = -3;
    mix.factor = 1.5f;
    mix.negate = 1;
    mix.length = 0x100000001;
    mix.offset = -2;
    mix.rows = 7;
    unsigned char buffer[kernels_mix_fp16_128_buffer_bytes];
    kernels_mix_fp16_128_pack(&mix, buffer);
    for (size_t i = 0; i < sizeof buffer; i++) printf("%02x", (unsigned)buffer[i]);
    uint32_t grid[3] = {0, 0, 0};
    printf("\\ngrid %d", (int)kernels_mix_fp16_128_grid(&mix, grid));
    printf(" %" PRIu32 " %" PRIu32 " %" PRIu32 "\\n", grid[0], grid[1], grid[2]);
    printf("selects %d", kernels_mix_fp16_128_selects(&mix));
    mix.step = 3;
    printf(" %d\\n", kernels_mix_fp16_128_selects(&mix));
    mix.length = INT64_MAX;
    printf("grid %d\\n", (int)kernels_mix_fp16_128_grid(&mix, grid));
    printf("%d %s", kernels_mix_fp16_128_specialize(&mix), kernels_mix_fp16_128_variant(0));
    mix.out_ptr = (void *)(uintptr_t)8;
    printf(" %d\\n", kernels_mix_fp16_128_specialize(&mix));
    return 0;
}
"""
"""C and C++ alike; with a variant and a target it writes that image's bytes instead."""

IDS = [
    f"{variant}@{target}"
    for variant in ("scale_fp32_128", "scale_fp32_256", "mix_fp16_128")
    for target in ("sm_80", "gfx942")
]

USED = "\n".join(
    [
        "abi 1, 6 images",
        *(f"{name} 1 0 1" for name in IDS),
        "none 1",
        " ".join(name for name in IDS if "scale" in name) + " ",
        " ".join(name for name in IDS if "scale" in name and "gfx942" in name) + " ",
        # Triton appends two pointers to scratch memory, which are null.
        struct.pack("<Qbxxxf?xxxxxxxqhxxxxxxQQ", 0x1122334455667780, -3, 1.5, True, 0x100000001, -2, 0, 0).hex(),
        "grid 0 33554433 7 1",
        "selects 1 0",
        "grid 2",
        "0 mix_fp16_128 -1",
        "",
    ]
)


@dataclass(frozen=True, kw_only=True)
class Cross:
    """The project built for aarch64, the same for x86-64, and the tools for the first."""

    project: Project
    native: Project
    cc: str
    cxx: str
    readelf: Path
    emulator: Path

    @property
    def build(self) -> Path:
        return self.project.folder / "build"

    @property
    def archive(self) -> Path:
        return self.build / "lib" / "libkernels.a"

    def link(self, output: Path, *arguments: str | Path, source: str = USE, cxx: bool = False) -> Path:
        """A program for aarch64; every warning is an error."""
        compiler = self.cxx if cxx else self.cc
        return compile_program(source, output, "-I", self.build / "include", *arguments, compiler=compiler)

    def run(self, program: Path, *words: str) -> bytes:
        """What a program for aarch64 prints; it must succeed."""
        done = subprocess.run([self.emulator, "-L", SYSTEM, program, *words], capture_output=True, check=False)
        assert done.returncode == 0, done
        return done.stdout

    def read(self, *words: str | Path) -> str:
        """What readelf says; it must have nothing to warn of."""
        done = subprocess.run([self.readelf, "-W", *words], capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return done.stdout


@pytest.fixture(scope="module")
def cross(tmp_path_factory: pytest.TempPathFactory) -> Cross:
    def tool(name: str, package: str) -> Path:
        return require(name, package=package, claim="aarch64")

    cc = tool(f"{HOST}-gcc", "gcc-aarch64-linux-gnu")
    cxx = tool(f"{HOST}-g++", "g++-aarch64-linux-gnu")
    readelf = tool(f"{HOST}-readelf", "binutils-aarch64-linux-gnu")
    emulator = tool("qemu-aarch64", "qemu-user")
    folder = tmp_path_factory.mktemp("aarch64")
    project = Project.create(folder / "cross", manifest=MANIFEST, scale=KERNEL, mix=MIX)
    project.doit().expect("0 failed")
    native = Project(folder=shutil.copytree(project.folder, folder / "native", symlinks=True))
    native.edit("kernels.yaml", f"host: {HOST}", "host: x86_64-linux-gnu")
    again = native.doit().expect("0 failed")
    assert {kind: len(again.ran(kind)) for kind in ("compile", "validate", "objcopy")} == {
        "compile": 0,
        "validate": 0,
        "objcopy": 6,
    }, "the host is none of an image's inputs, and one of a host object's"
    return Cross(project=project, native=native, cc=str(cc), cxx=str(cxx), readelf=readelf, emulator=emulator)


def test_only_objects_and_archives_are_for_the_host(cross: Cross) -> None:
    """Images, facts, headers, sources and the crate are those of the build for x86-64, to the byte; CMake is told the
    host too."""
    names = cross.project.files()
    assert names == cross.native.files()
    differ = {
        name
        for name in names
        if (cross.build / name).read_bytes() != (cross.native.folder / "build" / name).read_bytes()
    }
    assert differ == {
        name for name in names if name.startswith("objects/") or name.endswith((".a", "ConfigVersion.cmake"))
    }
    assert {"rust/kernels/src/lib.rs", "include/kernels/kernels.h", "images/sm_80/mix_fp16_128.cubin"} < names - differ


def test_every_object_is_for_the_host(cross: Cross) -> None:
    """And every member of an archive is one of them."""
    objects = sorted((cross.build / "objects").iterdir())
    # Data and record of each image; three variants and two groups for each archive, and what is one for each archive.
    assert len(objects) == 6 * 2 + 3 * 3 + 2 * 3 + 2 * 3 + 2 + len(c_names.runtime_members("kernels"))
    for path in objects:
        header = cross.read("-h", path)
        assert re.search(r"Type: +REL \(", header) and re.search(r"Machine: +AArch64\n", header), header
        assert re.search(r"Flags: +0x0\n", header)
        # Name, type, size, flags, alignment.
        shape = re.compile(
            r"^ +\[ *\d+\] (\S+) +([A-Z_]+) +[0-9a-f]{16} [0-9a-f]{6} ([0-9a-f]{6}) \S+ +([A-Za-z]*) +\d+ +\d+ +(\d+)$",
            re.M,
        )
        sections = {
            name: (kind, size, flags, align) for name, kind, size, flags, align in shape.findall(cross.read("-S", path))
        }
        assert sections[".note.GNU-stack"] == ("PROGBITS", "000000", "", "1")
        assert "AArch64 feature: BTI, PAC" in cross.read("-n", path)
        filled = {name for name, (_, size, flags, _) in sections.items() if "W" in flags and size != "000000"}
        assert filled <= {".data.rel.ro", ".data.rel.ro.local", ".bss", ".tbss"}
        if path.name.endswith(".data.o"):
            assert sections[".rodata"][2:] == ("A", "64")
    for archive in (cross.build / "lib").glob("*.a"):
        members, has_index = read_archive(archive.read_bytes())
        assert has_index and len(members) > 6
        for member in members:
            assert member.data == (cross.build / "objects" / member.name).read_bytes()
        assert {"AArch64"} == set(re.findall(r"Machine: +(.*)", cross.read("-h", archive)))


def test_no_object_holds_a_path(cross: Cross) -> None:
    for path in (cross.build / "objects").iterdir():
        data = path.read_bytes()
        for found in (str(cross.project.folder), str(Path.home()), os.environ.get("TMPDIR", "/tmp"), "/usr/"):
            assert found.encode() not in data, (path.name, found)


@pytest.mark.parametrize("flags", [("-static",), ("-static-pie",), ("-no-pie",), ("-pie",)], ids=" ".join)
def test_a_program_in_c(cross: Cross, tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Names, groups, buffers, grids and conditions, and each embedded image is the file on disk."""
    program = cross.link(tmp_path / "use", cross.archive, *flags)
    assert cross.run(program).decode() == USED
    for name in IDS if flags == ("-static",) else IDS[:1]:
        variant, target = name.split("@")
        suffix = {"sm_80": "cubin", "gfx942": "hsaco"}[target]
        data = (cross.build / "images" / target / f"{variant}.{suffix}").read_bytes()
        assert cross.run(program, variant, target) == data
    segments = cross.read("-l", program)
    assert re.search(r"GNU_STACK .* RW +0x", segments) and not re.search(r"LOAD .* RWE ", segments)


@pytest.mark.parametrize("standard", ["c++17", "c++20"])
def test_a_program_in_cpp(cross: Cross, tmp_path: Path, standard: str) -> None:
    program = cross.link(tmp_path / "use", cross.archive, f"-std={standard}", cxx=True)
    assert cross.run(program).decode() == USED


@pytest.mark.parametrize("flags", [("-static",), ("-static-pie",), ("-pie",)], ids=" ".join)
def test_one_targets_archive(cross: Cross, tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Its registry refers weakly to images that are not linked: these are null, also where no loader resolves them."""
    program = cross.link(tmp_path / "use", cross.build / "lib" / "libkernels_gfx942.a", *flags)
    printed = cross.run(program).decode().splitlines()
    assert printed[:4] == ["abi 1, 3 images", *(f"{name} 1 0 1" for name in IDS if "gfx942" in name)]


def test_a_shared_object_takes_the_archive_in(cross: Cross, tmp_path: Path) -> None:
    """Whole, without relocations in what is only readable; a program reads the same out of it."""
    library = tmp_path / "libengine.so"
    whole = (
        "-Wl,--whole-archive",
        cross.archive,
        "-Wl,--no-whole-archive",
        "-Wl,-z,text,-z,defs",
        "-Wl,--fatal-warnings",
    )
    subprocess.run([cross.cc, "-shared", *map(str, whole), "-o", library], check=True)
    assert "TEXTREL" not in cross.read("-d", library)
    program = cross.link(tmp_path / "use", library, f"-Wl,-rpath,{tmp_path}")
    assert cross.run(program).decode() == USED


def test_programs_keep_their_control_flow_protection(cross: Cross, tmp_path: Path) -> None:
    """A linker gives it to a program whose objects all have it, and can be told to complain of the first without."""
    library = tmp_path / "libengine.so"
    whole = ("-Wl,--whole-archive", cross.archive, "-Wl,--no-whole-archive")
    # Without what Debian's C library puts into each program, which lacks it.
    alone = ("-nostdlib", "-Wl,-z,force-bti", "-Wl,--fatal-warnings")
    subprocess.run([cross.cc, "-shared", *alone, *map(str, whole), "-o", library], check=True)
    assert "AArch64 feature: BTI, PAC" in cross.read("-n", library)


def test_programs_for_both_hosts_read_the_same(cross: Cross, tmp_path: Path) -> None:
    native = cross.native.folder / "build"
    ours = compile_program(DESCRIBE, tmp_path / "native", "-I", native / "include", native / "lib" / "libkernels.a")
    theirs = cross.link(tmp_path / "describe", cross.archive, source=DESCRIBE)
    printed = cross.run(theirs).decode()
    assert printed == run(ours) and printed.count("terminated 0") == len(IDS)


def test_the_cross_compiler_is_known_by_its_own_parts(cross: Cross) -> None:
    """cc1 and the assembler are found where the driver has them, and are not this machine's."""
    ours, theirs = (HostTools(host=host).compiler_components(FileDigests({})) for host in HOSTS)
    assert ours.keys() == theirs.keys() == {"cc", "cc1", "as"}
    assert not set(ours.values()) & set(theirs.values())

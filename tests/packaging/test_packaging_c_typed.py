"""The typed launches of a built package: what they pull in, what reaches the driver, and what they say."""

from __future__ import annotations

import dataclasses
import re
import struct
import subprocess
from pathlib import Path

import pytest
from c_library import Package, accepts, build_package, compile_program, run, symbols

from c_doubles import DOUBLES, Doubles
from kiln.manifest.names import TAKEN
from kiln.packaging import c_names
from kiln.packaging.c_view import view_fronts, view_groups
from kiln.packaging.record import Record
from kiln.packaging.weak_references import weakened
from softmax_images import REPOSITORY, make_kernel

DRIVER = ("-I", DOUBLES, "-ldl", "-lpthread")


def link(source: str, output: Path, package: Package, *archives: Path | str, compiler: str = "gcc") -> Path:
    standard = ("-std=c++17",) if compiler == "g++" else ()
    return compile_program(
        source, output, *standard, "-I", package.include, *(archives or [package.archive()]), *DRIVER, compiler=compiler
    )


def linked(program: Path) -> set[str]:
    """The images that a program holds."""
    data = [name for name in symbols(program) if name.endswith("_data") and "__" in name]
    return {name.removeprefix("kernels_").removesuffix("_data") for name in data}


LAUNCH = """#include <kernels/kernels.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Makes a context current as the driver's double has it, and prints what the double was asked, but for cuInit. */
static void with_context(int (*body)(void))
{
    static int context[2];
    void *library = dlopen("libcuda.so.1", RTLD_LAZY);
    int (*set)(void *);
    void *found = dlsym(library, "cuCtxSetCurrent");
    memcpy(&set, &found, sizeof found);
    set(context);
    printf("%d\\n", body());
    const char *(*asked)(void);
    found = dlsym(library, "double_asked");
    memcpy(&asked, &found, sizeof found);
    puts(asked());
    if (kernels_last_error()->status != 0) puts(kernels_last_error()->detail);
}
"""


def launches(text: str) -> list[str]:
    """What the double noted of launches, from the device on: an image's data is no text."""
    return [line[line.index(" on ") + 1 :] for line in text.splitlines() if line.startswith("launch ")]


ALL_WAYS = f"""{LAUNCH}
static int body(void)
{{
    struct kernels_softmax_fp16_2048_args one = {{ (void *)0x1000, (void *)0x2000, 7, 8, 2000, 3 }};
    struct kernels_softmax_fp16_args any = {{ (void *)0x1000, (void *)0x2000, 7, 8, 2000, 3 }};
    struct kernels_softmax_args front = {{ (void *)0x1000, (void *)0x2000, 7, 8, 2000, 3 }};
    struct CUstream_st *stream = (struct CUstream_st *)0x5;
    struct kernels_choice choice;
    int status = kernels_softmax_fp16_2048_launch(&one, stream);
    status |= kernels_softmax_fp16_launch(&any, stream);
    status |= kernels_softmax_launch(KERNELS_DTYPE_FP16, &front, stream);
    status |= kernels_launch_variant(kernels_variant_find("softmax_fp16_2048"), &one, stream);
    status |= kernels_launch_group(kernels_group_find("softmax_fp16"), &any, stream);
    status |= kernels_softmax_fp16_choose(&any, &choice) | (choice.grid[0] != 3);
    status |= kernels_launch_variant(choice.variant, &any, stream);
    status |= kernels_softmax_choose(KERNELS_DTYPE_FP16, &front, &choice) | (choice.image->threads != 256);
    status |= kernels_variant_count() != 2 || kernels_group_count() != 2 || kernels_variant_at(1) != choice.variant;
    const struct kernels_argument *last = &kernels_variant_arguments(choice.variant)[5];
    status |= strcmp(kernels_argument_name(last), "n_rows") | strcmp(kernels_argument_type(last), "i32");
    status |= !last->is_input | (last->offset != 28);
    if (kernels_softmax_launch(KERNELS_DTYPE_BF16, &front, stream) != KERNELS_ERROR_INVALID_ARGUMENT) status = 99;
    return status;
}}

int main(void) {{ with_context(body); return kernels_unload(); }}
"""


@pytest.mark.parametrize("compiler", ["gcc", "g++"])
def test_every_way_to_launch(package: Package, doubles: Doubles, tmp_path: Path, compiler: str) -> None:
    """One variant, a group, a kernel's dtypes, by name and by choice: the same launch reaches the driver."""
    done = doubles.run("cuda", link(ALL_WAYS, tmp_path / "ways", package, compiler=compiler))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("0\n"), done.stdout
    buffer = struct.pack("<QQiiiiQQ", 0x1000, 0x2000, 7, 8, 2000, 0, 0, 0).hex()
    expected = f"on 0 grid 3,1,1 block 256,1,1 shared 32 stream 0x5 [{buffer}]"
    assert launches(done.stdout) == [expected] * 6
    assert "there is no such group, or the kernel has no such dtype" in done.stdout


def test_a_launch_links_its_own_images(package: Package, tmp_path: Path) -> None:
    """A variant's those of the variant, a group's those of the group, a front's those of its groups."""
    calls = {
        "kernels_softmax_fp16_2048_launch((const void *)0, 0)": {"softmax_fp16_2048"},
        "kernels_softmax_fp32_launch((const void *)0, 0)": {"softmax_fp32_1024"},
        "kernels_softmax_launch(KERNELS_DTYPE_FP16, (const void *)0, 0)": {"softmax_fp16_2048", "softmax_fp32_1024"},
        "kernels_preload_all()": {"softmax_fp16_2048", "softmax_fp32_1024"},
    }
    for index, (call, variants) in enumerate(calls.items()):
        source = f"#include <kernels/kernels.h>\nint main(void) {{ return {call} == 0; }}\n"
        program = link(source, tmp_path / str(index), package)
        targets = ("sm_80", "sm_90a", "compute_80", "gfx942")
        assert linked(program) == {f"{variant}__{target}" for variant in variants for target in targets}
        assert "kernels_registry" not in symbols(program)


ONE = f"""{LAUNCH}
static int body(void)
{{
    struct kernels_softmax_fp16_args any = {{ (void *)0x1000, (void *)0x2000, 7, 8, 2000, 3 }};
    return kernels_softmax_fp16_launch(&any, 0);
}}

int main(void) {{ with_context(body); return 0; }}
"""


def test_archives_of_one_target(package: Package, doubles: Doubles, tmp_path: Path) -> None:
    """A launch takes the images that are linked, and says of others that there is none."""
    ninety, eighty = package.archive("sm_90a"), package.archive("sm_80")
    program = link(ONE, tmp_path / "ninety", package, ninety)
    assert linked(program) == {"softmax_fp16_2048__sm_90a"}
    assert len(launches(doubles.run("cuda", program).stdout)) == 1
    program = link(ONE, tmp_path / "eighty", package, eighty)
    assert linked(program) == {"softmax_fp16_2048__sm_80"}
    said = doubles.run("cuda", program).stdout
    assert said.startswith("-9\n")
    assert "softmax_fp16_2048 for device 0 (sm_90):\n  sm_80: the device has another major" in said
    # The second archive's images come with its table, which is named.
    program = link(ONE, tmp_path / "both", package, "-Wl,-u,kernels__sm_90a", eighty, ninety)
    assert len(launches(doubles.run("cuda", program).stdout)) == 1


def test_catalogs_of_one_target(records: list[Record], doubles: Doubles, tmp_path: Path) -> None:
    """Lookups of an archive have the variants and groups that are built for its target."""
    kept = [record for record in records if record.image.target == "sm_80" or record.image.variant.dtype == "fp16"]
    package = build_package(kept, tmp_path / "package")
    source = """#include <kernels/kernels.h>
#include <stdio.h>
int main(void) {
    for (size_t i = 0; i < kernels_variant_count(); i++) puts(kernels_variant_name(kernels_variant_at(i)));
    for (size_t i = 0; i < kernels_group_count(); i++) puts(kernels_group_name(kernels_group_at(i)));
    return 0;
}
"""
    assert run(link(source, tmp_path / "a", package, package.archive("sm_90a"))).split() == [
        "softmax_fp16_2048",
        "softmax_fp16",
    ]
    assert run(link(source, tmp_path / "b", package, package.archive("sm_80"))).split() == [
        "softmax_fp32_1024",
        "softmax_fp16_2048",
        "softmax_fp32",
        "softmax_fp16",
    ]
    # A launch by dtype names a group that is not built for the target: it links, and says that there is no image.
    source_of_front = f"""{LAUNCH}
static int body(void)
{{
    struct kernels_softmax_args front = {{ (void *)0x1000, (void *)0x2000, 7, 8, 1000, 3 }};
    if (kernels_softmax_launch(KERNELS_DTYPE_FP16, &front, 0) != 0) return 1;
    return kernels_softmax_launch(KERNELS_DTYPE_FP32, &front, 0);
}}

int main(void) {{ with_context(body); return 0; }}
"""
    program = link(source_of_front, tmp_path / "front", package, package.archive("sm_90a"))
    said = doubles.run("cuda", program).stdout
    assert said.startswith("-9\n")
    assert "the program has linked no image of softmax_fp32" in said
    assert linked(program) == {"softmax_fp16_2048__sm_90a"}
    assert run(link(source, tmp_path / "c", package)).split() == [
        "softmax_fp32_1024",
        "softmax_fp16_2048",
        "softmax_fp32",
        "softmax_fp16",
    ]


def test_a_shared_library_hides_what_is_its_own(package: Package, tmp_path: Path) -> None:
    """Of launches too: only the functions and objects of the headers are exported."""
    shared = tmp_path / "libengine.so"
    whole = ("-Wl,--whole-archive", package.archive(), "-Wl,--no-whole-archive")
    command = ["gcc", "-shared", "-o", shared, *whole, "-Wl,-z,text", "-Wl,--no-undefined", "-ldl", "-lpthread"]
    subprocess.run(list(map(str, command)), check=True)
    done = subprocess.run(["nm", "-D", "--defined-only", shared], capture_output=True, text=True, check=True)
    exported = {line.split()[-1] for line in done.stdout.splitlines()}
    headers = "".join(path.read_text() for path in (package.include / "kernels").iterdir())
    functions = {name for name in exported if not name.endswith(("_data", "_data_end")) and "__" not in name}
    assert len(functions) > 25
    assert {name for name in functions if f"{name}(" not in headers} == set()


def test_a_disabled_program_links_no_kernel(package: Package, tmp_path: Path) -> None:
    """The runtime's sources with the library's macro take the place of the archive."""
    source = """#include <kernels/kernels.h>
#include <stdio.h>
int main(void) {
    struct kernels_softmax_fp16_args any = { 0, 0, 0, 0, 0, 0 };
    struct kernels_softmax_fp16_2048_args one = { 0, 0, 0, 0, 0, 0 };
    struct kernels_softmax_args front = { 0, 0, 0, 0, 0, 0 };
    struct kernels_choice choice;
    printf("%d %d %d %d\\n", kernels_softmax_fp16_launch(&any, 0), kernels_softmax_fp16_2048_launch(&one, 0),
           kernels_softmax_launch(KERNELS_DTYPE_FP16, &front, 0), kernels_softmax_fp16_choose(&any, &choice));
    return 0;
}
"""
    main = tmp_path / "main.c"
    main.write_text(source)
    program = tmp_path / "program"
    sources = sorted((package.folder / "src").glob("*.c"))
    command = ["gcc", "-std=c99", "-DKERNELS_DISABLED", "-I", package.include, "-I", package.folder / "src", main]
    subprocess.run(list(map(str, [*command, *sources, "-o", program])), check=True)
    assert run(program) == "-2 -2 -2 -2\n"
    assert linked(program) == set()


def promising(records: list[Record]) -> list[Record]:
    """Of each image two: one of a variant with no promises besides that of the other, which share their base."""
    pairs = []
    for record in records:
        variant = record.image.variant
        bare = dataclasses.replace(variant, id=f"{variant.id}_bare")
        arguments = tuple(dataclasses.replace(item, promise=None) for item in record.interface.arguments)
        pairs.append(record)
        pairs.append(
            dataclasses.replace(
                record,
                image=dataclasses.replace(record.image, variant=bare),
                interface=dataclasses.replace(record.interface, arguments=arguments),
            )
        )
    return sorted(pairs, key=lambda each: (each.image.variant.base, each.image.variant.id))


def test_a_base_takes_the_variant_whose_promises_hold(records: list[Record], doubles: Doubles, tmp_path: Path) -> None:
    package = build_package(promising(records[:4]), tmp_path / "package")
    source = f"""{LAUNCH}
static int body(void)
{{
    struct kernels_softmax_fp32_1024_args args = {{ (void *)0x1000, (void *)0x2008, 7, 8, 1000, 3 }};
    int status = kernels_softmax_fp32_1024_launch(&args, 0);
    status |= kernels_softmax_fp32_1024_bare_launch(&args, 0);
    if (kernels_launch_variant(&kernels_softmax_fp32_1024__variant, &args, 0) != KERNELS_ERROR_MISALIGNED) status = 99;
    return status;
}}

int main(void) {{ with_context(body); return 0; }}
"""
    said = doubles.run("cuda", link(source, tmp_path / "base", package)).stdout
    assert said.startswith("0\n")
    assert len(launches(said)) == 2
    assert "the address input_ptr of softmax_fp32_1024 is not a multiple of 16 bytes" in said


def test_groups_that_take_different_structs(records: list[Record], doubles: Doubles, tmp_path: Path) -> None:
    """They have no typed launch; their variants have, and each argument struct is what it was."""
    other = []
    for record in records[4:]:
        arguments = list(record.interface.arguments)
        arguments[0] = dataclasses.replace(arguments[0], name="to_ptr")
        variant = dataclasses.replace(
            record.image.variant, group="softmax_fp32", kernel=make_kernel(tensors={}, key="other")
        )
        interface = dataclasses.replace(record.interface, arguments=tuple(arguments))
        image = dataclasses.replace(record.image, variant=variant)
        other.append(dataclasses.replace(record, image=image, interface=interface))
    mixed = [*records[:4], *other]
    (group,) = view_groups("kernels", mixed)
    assert (group.name, group.is_uniform, group.members) == ("softmax_fp32", False, [])
    assert view_fronts("kernels", mixed) == ()
    package = build_package(mixed, tmp_path / "package")
    header = (package.include / "kernels" / "kernels.h").read_text()
    assert "kernels_softmax_fp32_launch" not in header
    source = f"""{LAUNCH}
static int body(void)
{{
    struct kernels_softmax_fp16_2048_args args = {{ (void *)0x1000, (void *)0x2000, 7, 8, 2000, 3 }};
    args.to_ptr = (void *)0x3000;
    return kernels_softmax_fp16_2048_launch(&args, 0) + kernels_launch_group(&kernels_softmax_fp32__group, &args, 0);
}}

int main(void) {{ with_context(body); return 0; }}
"""
    said = doubles.run("cuda", link(source, tmp_path / "mixed", package)).stdout
    assert said.startswith("-1\n")
    assert "the variants of softmax_fp32 take different argument structs: launch one of them" in said


@pytest.mark.parametrize(
    ("group", "names"),
    [("softmax_{dtype}", ["softmax"]), ("{dtype}_softmax", ["softmax"]), ("softmax_{block}", []), ("softmax", [])],
)
def test_what_a_front_is_called(records: list[Record], group: str, names: list[str]) -> None:
    """Like its groups without the dtype; and where they do not say it, or it is taken, there is none."""
    changed = []
    for record in records:
        variant = record.image.variant
        filled = group.format(dtype=variant.dtype, block=variant.block)
        kernel = make_kernel(group=group)
        image = dataclasses.replace(record.image, variant=dataclasses.replace(variant, group=filled, kernel=kernel))
        changed.append(dataclasses.replace(record, image=image))
    fronts = view_fronts("kernels", changed)
    assert [front.name for front in fronts] == names
    for front in fronts:
        assert [constant for constant, _ in front.groups] == ["KERNELS_DTYPE_FP32", "KERNELS_DTYPE_FP16"]
        assert front.members[0].comment == "device address, [n_rows, n_cols]"
    taken = [
        dataclasses.replace(
            record,
            image=dataclasses.replace(
                record.image, variant=dataclasses.replace(record.image.variant, id="Softmax", base="Softmax")
            ),
        )
        for record in changed[:4]
    ]
    assert view_fronts("kernels", [*taken, *changed[4:]]) == ()


def test_names_that_the_runtime_has_itself(package: Package) -> None:
    """A base of such a name would declare a function twice, and is refused at load; no other name does."""
    header = (package.include / "kernels" / "kernels.h").read_text()
    fixed = "".join(path.read_text() for path in (package.include / "kernels").glob("kernels_*.h"))
    ends = {
        name.removeprefix("kernels_softmax_fp16_2048_")
        for name in re.findall(r"(kernels_softmax_fp16_2048_\w+)\(", header)
    }
    ends |= {name.removeprefix("kernels_softmax_") for name in re.findall(r"(kernels_softmax_[a-z]+)\(", header)}
    assert ends >= {"launch", "choose", "for", "variant", "pack"}
    taken = {
        name.removeprefix("kernels_").removesuffix(f"_{end}")
        for name in re.findall(r"\b(kernels_\w+)\(", fixed)
        for end in ends
        if name.endswith(f"_{end}") and name != f"kernels_{end}"
    }
    assert taken == TAKEN


@pytest.mark.parametrize("page", ["c.md", "choices.md"])
def test_what_the_pages_name_is_there(package: Package, page: str) -> None:
    """Functions, constants and files of the library, in the words of its headers, its sources and the linker."""
    files = [path for folder in (package.include, package.folder / "src") for path in folder.rglob("*.[ch]")]
    there = {word for path in files for word in re.findall(r"\w+", path.read_text())} | {path.stem for path in files}
    named = set(re.findall(r"\b(?:kernels|KERNELS)_\w+", (REPOSITORY / "docs" / page).read_text("utf-8")))
    assert len(named) > 10
    assert named - there == set()


def test_the_first_lines_of_the_page_compile(package: Package) -> None:
    page = (REPOSITORY / "docs/c.md").read_text("utf-8")
    include, *statements = re.findall(r"^ {4}(.*)$", page[: page.index("    cc -I")], re.MULTILINE)
    source = "\n".join(
        [
            "#include <stdio.h>",
            include,
            "int page(void *y, void *x, int n, int rows, struct CUstream_st *stream);",
            "int page(void *y, void *x, int n, int rows, struct CUstream_st *stream)",
            "{",
            *statements,
            "return status;",
            "}",
        ]
    )
    assert accepts(source, "gcc", "c99", "-I", package.include) == ""


UNIT = """extern const int one WEAK, two;
const int *const both[] = { &one, &two };
"""


def test_weak_references(package: Package, tmp_path: Path) -> None:
    """What is made weak is what was named, and the compiler's own weak references have the same entries."""
    objects = package.folder / "obj"
    strong = (objects / c_names.variant_member("softmax_fp16_2048", None)).read_bytes()
    weak = (objects / c_names.variant_member("softmax_fp16_2048", "sm_80")).read_bytes()
    assert sum(a != b for a, b in zip(strong, weak, strict=True)) == 3
    path = tmp_path / "weak.o"
    path.write_bytes(weak)
    listed = subprocess.run(["nm", "--undefined-only", path], capture_output=True, text=True, check=True).stdout
    assert {tuple(line.split()) for line in listed.splitlines() if "__" in line} == {
        ("U", "kernels_softmax_fp16_2048__sm_80__own"),
        *(("w", f"kernels_softmax_fp16_2048__{target}__own") for target in ("sm_90a", "compute_80", "gfx942")),
    }
    made = {}
    for name, word in (("strong", ""), ("weak", "__attribute__((weak))")):
        command = ["gcc", "-c", "-fPIC", "-x", "c", "-", f"-DWEAK={word}", "-o", tmp_path / f"{name}.o"]
        subprocess.run(list(map(str, command)), input=UNIT, text=True, check=True)
        made[name] = (tmp_path / f"{name}.o").read_bytes()
    assert made["strong"] != made["weak"] == weakened(made["strong"], ["one", "three"])
    assert weakened(strong, []) == strong
    for damaged in (b"", b"\x7fELF\x01\x01", strong[:64], strong[:-200]):
        with pytest.raises(ValueError, match=r"it (is no ELF file|ends too early)"):
            weakened(damaged, ["a"])

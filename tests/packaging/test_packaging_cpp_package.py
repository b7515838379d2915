"""The C++ layer: compilers take it, and it refuses what types can tell to be wrong; its launches reach the driver."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import re
import shutil
import struct
import subprocess
import textwrap
from pathlib import Path

import pytest
from c_library import WARNINGS, Package, build_package, compile_program, run, symbols

from c_doubles import DOUBLES, Doubles
from kiln.binaries.facts import Parameter
from kiln.manifest.dtypes import DTYPES
from kiln.manifest.interface import Argument
from kiln.manifest.names import MACROS
from kiln.packaging import cpp_names
from kiln.packaging.c_package import render_header
from kiln.packaging.cpp_package import render_cpp_header
from kiln.packaging.record import Record
from softmax_images import REPOSITORY, expression, make_kernel, make_manifest

USE = "#include <kernels/kernels.hpp>\n"
WITHOUT = ("-fno-exceptions", "-fno-rtti")
STANDARDS = [
    (compiler, standard)
    for compiler in ("g++", "clang++")
    if shutil.which(compiler)
    for standard in ("c++17", "c++20", "c++2b")
]
DRIVER = ("-I", DOUBLES, "-ldl", "-lpthread")


def said(source: str, include: Path, *options: str | Path, compiler: str = "g++", standard: str = "c++17") -> str:
    """What a compiler says against a text; nothing when it takes it without a warning."""
    command = [compiler, f"-std={standard}", *WARNINGS, "-Wshadow", "-Wsign-conversion", "-I", include, *options]
    command += ["-fsyntax-only", "-x", "c++", "-"]
    return subprocess.run(
        list(map(str, command)),
        input=source,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    ).stderr


def link(source: str, output: Path, package: Package, *options: str | Path) -> Path:
    return compile_program(
        source, output, "-std=c++17", *options, "-I", package.include, package.archive(), *DRIVER, compiler="g++"
    )


def render(records: list[Record], folder: Path) -> Path:
    """The folder of headers."""
    manifest = make_manifest(records)
    render_header(records, manifest, folder)
    render_cpp_header(records, manifest, folder)
    return folder / "include"


EVERYTHING = f"""{USE}{USE}
#include <vector>

std::size_t all(kernels::stream on);
std::size_t all(kernels::stream on)
{{
    kernels::softmax<float> call = {{}};
    call.n_rows = 1;
    std::size_t count = 0;
    for (const kernels::image_view image : kernels::images()) count += image.id().size() + image.data().size();
    for (const kernels::variant_view variant : kernels::variants()) count += variant.arguments().size();
    for (const kernels::group_view group : kernels::groups()) count += group.variants().size();
    if (const kernels::error error = kernels::launch(call, on)) count += error.detail().size();
    if (const auto choice = kernels::choose(call)) count += choice->variant.name().size();
    if (const auto handles = kernels::load(*kernels::find_variant("a"))) count += handles->function != nullptr;
    if (kernels::preload<kernels::softmax_fp32_1024>()) count++;
    count += kernels::explain_choice(*kernels::variants<kernels::softmax<float>>().begin()).size();
    return count;
}}
"""


@pytest.mark.parametrize("options", [(), WITHOUT], ids=["plain", "without exceptions"])
@pytest.mark.parametrize(("compiler", "standard"), STANDARDS)
def test_compiles_without_a_warning(package: Package, compiler: str, standard: str, options: tuple[str, ...]) -> None:
    assert said(EVERYTHING, package.include, *options, compiler=compiler, standard=standard) == ""


def test_writes_the_files_that_it_names(records: list[Record], tmp_path: Path) -> None:
    render_cpp_header(records, make_manifest(records), tmp_path)
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert written == set(cpp_names.header_files("kernels"))
    assert not any("kiln" in path.read_text() for path in (tmp_path / "include/kernels").iterdir())


LAUNCH = f"""{USE}
#include <dlfcn.h>
#include <cstdio>
#include <cstring>

static void find(const char *name, void *function)
{{
    void *found = dlsym(dlopen("libcuda.so.1", RTLD_LAZY), name);
    std::memcpy(function, &found, sizeof found);
}}

/* A context of the double is current while it lives, and it prints what the double was asked. */
struct Driver {{
    Driver()
    {{
        static int context[2];
        int (*set)(void *);
        find("cuCtxSetCurrent", &set);
        set(context);
    }}
    ~Driver()
    {{
        const char *(*asked)();
        find("double_asked", &asked);
        std::puts(asked());
    }}
}};
"""


def launches(text: str) -> list[str]:
    """What the double noted of launches, from the device on: an image's data is no text."""
    return [line[line.index(" on ") + 1 :] for line in text.splitlines() if line.startswith("launch ")]


BUFFER = struct.pack("<QQiiiiQQ", 0x1000, 0x2000, 7, 8, 2000, 0, 0, 0).hex()
NOTED = f"on 0 grid 3,1,1 block 256,1,1 shared 32 stream 0x5 [{BUFFER}]"
"""the launch of softmax_fp16_2048 that the programs make"""

ALL_WAYS = f"""{LAUNCH}
int main()
{{
    using kernels::device_ptr;
    using kernels::fp16;
    const Driver driver;
    const kernels::unload_guard unloads;
    const device_ptr<fp16> x(static_cast<void *>(reinterpret_cast<char *>(0x1000)));
    const device_ptr<fp16> y(0x2000ULL);
    auto *const cuda = reinterpret_cast<CUstream_st *>(5);
    auto *const hip = reinterpret_cast<ihipStream_t *>(5);

    const kernels::softmax_fp16_2048 one {{ x, y, 7, 8, 2000, 3 }};
    const kernels::softmax_fp16 any {{ x, y, 7, 8, 2000, 3 }};
    const kernels::softmax<fp16> front = any;
    const kernels_softmax_fp16_2048_args one_in_c = {{ x.get(), y.get(), 7, 8, 2000, 3 }};
    const kernels_softmax_fp16_args any_in_c = {{ x.get(), y.get(), 7, 8, 2000, 3 }};

    int wrong = 0;
    wrong |= launch(one, cuda).status() | launch(any, hip).status() | launch(front, cuda).status();
    wrong |= kernels::launch(one_in_c, cuda).status() | kernels::launch(any_in_c, cuda).status();
    wrong |= kernels::launch(*kernels::find_variant("softmax_fp16_2048"), &one, {{ cuda }}).status();
    wrong |= kernels::launch(*kernels::find_group("softmax_fp16"), &any, cuda).status();
    const auto choice = kernels::choose(any);
    wrong |= !choice || choice->variant.name() != "softmax_fp16_2048" || choice->image->target() != "sm_90a";
    wrong |= choice->grid != std::array<std::uint32_t, 3>{{ 3, 1, 1 }};
    kernels::launch_options options;
    options.on = cuda;
    options.image = choice->image;
    wrong |= kernels::launch(choice->variant, &any, options).status();
    options.grid = {{ 4, 5, 6 }};
    wrong |= kernels::launch(choice->variant, &any, options).status();
    wrong |= kernels::or_throw(kernels::choose(any_in_c)).image != choice->image;
    wrong |= kernels::or_throw(kernels::load(choice->variant)).image != &choice->image->c();
    wrong |= kernels::or_throw(kernels::describe_device()).capability != 90;
    wrong |= kernels::explain_choice(choice->variant).find("sm_90a") == std::string::npos;
    return wrong;
}}
"""


def test_every_way_to_launch(package: Package, doubles: Doubles, tmp_path: Path) -> None:
    """A variant, a group, a type, by name, by choice, and with structs of C: the same launch reaches the driver."""
    done = doubles.run("cuda", link(ALL_WAYS, tmp_path / "ways", package))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    *same, other = launches(done.stdout)
    assert same == [NOTED] * 8
    assert other == NOTED.replace("3,1,1", "4,5,6")
    # The guard goes before the driver does.
    assert [line for line in done.stdout.splitlines() if line.startswith("drop ")]


def test_streams_default_to_the_default_stream(package: Package, doubles: Doubles, tmp_path: Path) -> None:
    source = f"""{LAUNCH}
int main()
{{
    const Driver driver;
    kernels::softmax<float> call;
    call.n_rows = 1;
    return launch(call).status() | launch(call, nullptr).status() | launch(call, {{}}).status();
}}
"""
    done = doubles.run("cuda", link(source, tmp_path / "streams", package, *WITHOUT))
    assert done.returncode == 0
    assert ["stream (nil) " in line for line in launches(done.stdout)] == [True] * 3


def test_a_launch_links_its_own_images(package: Package, tmp_path: Path) -> None:
    """As in C, with no help of an optimizer."""
    calls = {
        "launch(kernels::softmax_fp16_2048())": {"softmax_fp16_2048"},
        "launch(kernels::softmax<float>())": {"softmax_fp32_1024"},
        "kernels::preload<kernels::softmax<kernels::fp16>>()": {"softmax_fp16_2048"},
        "kernels::preload_all()": {"softmax_fp16_2048", "softmax_fp32_1024"},
    }
    for index, (call, variants) in enumerate(calls.items()):
        program = link(f"{USE}int main() {{ return {call}.status(); }}\n", tmp_path / str(index), package, "-O0")
        data = [name for name in symbols(program) if name.endswith("_data")]
        found = {name.removeprefix("kernels_").removesuffix("_data") for name in data}
        targets = ("sm_80", "sm_90a", "compute_80", "gfx942")
        assert {name for name in found if "softmax" in name} == {
            f"{variant}__{target}" for variant in variants for target in targets
        }


ERRORS = f"""{USE}
#include <cstdio>
#include <type_traits>

static void show(kernels::error error)
{{
    std::printf("%d %d|%.*s|%.*s\\n", error ? 1 : 0, error.status(), static_cast<int>(error.name().size()),
                error.name().data(), static_cast<int>(error.detail().size()), error.detail().data());
}}

int main()
{{
    kernels::softmax<float> call;
    show(launch(call));
    call.n_rows = 1;
    call.n_cols = 2000;
    const kernels::error refused = launch(call);
    show(refused);
    show(choose(call).error());
    try {{
        or_throw(refused);
    }} catch (const std::runtime_error &error) {{
        std::puts(error.what());
    }}
    call.n_cols = 1000;
    call.input_ptr = kernels::device_ptr<float>(0x1008ULL);
    show(launch(call));
    /* What another failure has overwritten is told in general words. */
    show(refused);
    show(kernels::launch(kernels_softmax_fp32_args {{}}));
    static_assert(std::is_nothrow_move_constructible_v<kernels::result<kernels::choice>>);
    return kernels::find_group("softmax").has_value() + kernels::find_variant(std::string(300, 'a')).has_value();
}}
"""


def test_what_errors_say(package: Package, doubles: Doubles, tmp_path: Path) -> None:
    done = doubles.run("none", link(ERRORS, tmp_path / "errors", package))
    refused = "softmax_fp32_1024 serves a call when n_cols <= BLOCK_SIZE, which does not hold"
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert lines[0].startswith("0 0|KERNELS_SUCCESS|")
    assert lines[1] == lines[2] == f"1 -11|KERNELS_ERROR_NOT_SELECTED|{refused}"
    assert lines[3] == f"KERNELS_ERROR_NOT_SELECTED: {refused}"
    assert lines[4].startswith("1 -12|KERNELS_ERROR_MISALIGNED|the address input_ptr of softmax_fp32_1024 is not")
    assert lines[5].startswith("1 -11|KERNELS_ERROR_NOT_SELECTED|") and refused not in lines[5]
    assert lines[6].startswith("0 0|")


REFUSED = {
    "launch(call);": "nodiscard",
    "(void)launch(call, 5);": "no matching function|cannot convert|invalid conversion",
    "kernels::unload_guard();": "nodiscard",
    "kernels::softmax<double> other;": "the kernel was not built for elements of this type",
    "kernels::softmax<std::string> other;": "the kernel was not built for elements of this type",
    "call.input_ptr = static_cast<double *>(nullptr);": "no match for|no viable",
    "call.input_ptr = static_cast<void *>(nullptr);": "no match for|no viable",
    "call.input_ptr = kernels::device_ptr<kernels::fp16>();": "no match for|no viable",
    "call.input_ptr = 0x1000ULL;": "no match for|no viable",
    "(void)kernels::device_ptr<float>(static_cast<double *>(nullptr));": "no matching",
    "(void)kernels::device_ptr<float>(0x1000);": "no matching",
    "(void)(kernels::device_ptr<void>() + 1);": "the address of anything has no elements",
    "(void)kernels::choose(kernels::softmax_fp32_1024());": "no matching",
    "(void)kernels::launch(std::string());": "no matching",
    "int status = kernels::launch(call); (void)status;": "cannot convert|no viable",
}


@pytest.mark.parametrize("statement", REFUSED)
def test_what_types_refuse(package: Package, statement: str) -> None:
    source = f"{USE}void body();\nvoid body()\n{{\n    kernels::softmax<float> call;\n    (void)call;\n%s\n}}\n"
    assert re.search(REFUSED[statement], said(source % statement, package.include))


def headers_of(vendor: str) -> Path:
    """The headers of nvidia or amd, which come with Triton."""
    spec = importlib.util.find_spec("triton")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "backends" / vendor / "include"


POINTERS = """
void body(const __half *halves, __nv_bfloat16 *bfloat, __nv_fp8_e4m3 *e4m3, __nv_fp8_e5m2 *e5m2, cudaStream_t stream);
void body(const __half *halves, __nv_bfloat16 *bfloat, __nv_fp8_e4m3 *e4m3, __nv_fp8_e5m2 *e5m2, cudaStream_t stream)
{
    kernels::softmax<__half> call;
    call.input_ptr = halves;
    call.output_ptr = const_cast<__half *>(halves);
    if (launch(call, stream) || launch(call, cudaStreamPerThread)) return;
    const kernels::device_ptr<kernels::bf16> bf16 = bfloat;
    const kernels::device_ptr<kernels::fp8e4nv> fp8e4nv = e4m3;
    const kernels::device_ptr<__nv_fp8_e5m2> back = kernels::device_ptr<kernels::fp8e5>(e5m2);
    const kernels::device_ptr<void> any[] = { bf16, fp8e4nv, back, halves };
    if (any[0] == bf16) return;
}
static_assert(std::is_same_v<kernels::softmax<__half>, kernels::softmax_fp16>);
static_assert(kernels::DataTypeName<__half> == "fp16" && kernels::DataTypeName<const __nv_bfloat16> == "bf16");
static_assert(sizeof(__half) == sizeof(kernels::fp16) && alignof(__half) == alignof(kernels::fp16));
"""


TARGET = "#define NV_IF_ELSE_TARGET(...)\n#define NV_IF_TARGET(...)\n"
"""nv/target, a header of the toolkit that Triton does not bring: bodies of functions are left out, and no type is"""


def test_cudas_own_types_are_taken(package: Package, tmp_path: Path) -> None:
    """Whether its headers are included before or behind the library's."""
    (tmp_path / "nv").mkdir()
    (tmp_path / "nv/target").write_text(TARGET)
    cuda = "".join(f"#include <{name}.h>\n" for name in ("cuda_fp16", "cuda_bf16", "cuda_fp8", "cuda_runtime_api"))
    for head in (cuda + USE, USE + cuda):
        assert said(head + POINTERS, package.include, "-isystem", headers_of("nvidia"), "-isystem", tmp_path) == ""


def test_hips_own_types_are_taken(package: Package) -> None:
    """Streams as its headers have them. Triton does not bring hip_bf16.h, which declares what stands here for it."""
    source = f"""#include <hip/hip_runtime_api.h>
#define _HIP_INCLUDE_HIP_AMD_DETAIL_HIP_BF16_H_
struct __hip_bfloat16;
{USE}
void body(hipStream_t stream, __hip_bfloat16 *bfloat, const __half *halves);
void body(hipStream_t stream, __hip_bfloat16 *bfloat, const __half *halves)
{{
    kernels::softmax<__half> call;
    call.input_ptr = halves;
    const kernels::device_ptr<kernels::bf16> bf16 = bfloat;
    if (launch(call, stream) || bf16) return;
}}
"""
    assert said(source, package.include, "-D__HIP_PLATFORM_AMD__", "-isystem", headers_of("amd")) == ""


def test_types_of_ones_own(package: Package, tmp_path: Path) -> None:
    source = f"""{USE}
#include <cstdio>
struct Half {{ unsigned short bits; }};
template <> inline constexpr std::string_view kernels::DataTypeName<Half> = "fp16";
static_assert(std::is_same_v<kernels::softmax<Half>, kernels::softmax_fp16>);
int main()
{{
    Half rows[3];
    kernels::device_ptr<kernels::fp16> x = rows;
    const kernels::device_ptr<const Half> same = x;
    x = x + 2;
    return x.get() == rows + 2 && same.get() == rows && x && !kernels::device_ptr<int>() ? 0 : 1;
}}
"""
    run(link(source, tmp_path / "own", package))


def test_every_dtype_has_its_name_and_its_type(package: Package) -> None:
    """In the words of kernels.yaml, with the constant and the size that C has."""
    lines = ["#include <cstdint>"]
    for dtype in DTYPES.values():
        constant = f"KERNELS_DTYPE_{dtype.name.upper()}"
        own = dtype.name in cpp_names.RESERVED
        type = f"kernels::{dtype.name}" if own else dtype.c
        assert own or not dtype.name.startswith(("fp8", "fp16", "bf"))
        lines += [
            f'static_assert(kernels::DataTypeName<{type}> == "{dtype.name}" && sizeof({type}) == {dtype.size});',
            f"static_assert(kernels::dtype_of<{type}> == {constant} && alignof({type}) == {dtype.size});",
        ]
    header = (package.include / "kernels/kernels_launch.h").read_text()
    assert len(re.findall(r"^ *KERNELS_DTYPE_\w+ = ", header, re.MULTILINE)) == len(DTYPES)
    lines += [f'static_assert(kernels::DataTypeName<{type}> == "");' for type in ("char", "void *", "std::string")]
    lines += ['static_assert(kernels::DataTypeName<long long> == "i64" && kernels::DataTypeName<long> == "i64");']
    assert said(USE + "\n".join(lines) + "\n", package.include) == ""


RANGES = f"""{USE}
#include <cstdio>
#if __cplusplus >= 202002L
#include <ranges>
using variants = decltype(kernels::variants());
static_assert(std::ranges::forward_range<variants> && std::ranges::sized_range<variants>);
static_assert(std::ranges::contiguous_range<kernels::span<const std::byte>>);
#endif

static void put(std::string_view text) {{ std::printf("%.*s ", static_cast<int>(text.size()), text.data()); }}

int main()
{{
    for (const auto image : kernels::images()) {{
        put(image.id());
        put(image.ptx_isa());
        if (!image.verify() || image->size != image.data().size() || image.parameters().size() != 7) return 1;
        if (image.constants()[0].name() != "BLOCK_SIZE" || image.constants()[0].text() != image.block()) return 2;
    }}
    for (const auto group : kernels::groups()) {{
        std::printf("\\n");
        put(group.name());
        for (const auto variant : group.variants()) {{
            put(variant.name());
            put(variant.select());
            for (const auto argument : variant.arguments()) put(argument.type());
            for (const auto image : variant.images()) put(image.target());
        }}
    }}
    const auto images = kernels::images();
    const auto by_name = kernels::find_image("softmax_fp16_2048", "sm_90a");
    const auto variants = kernels::variants<kernels::softmax_fp16>();
    return images.size() == 8 && !images.empty() && *std::next(images.begin(), 5) == by_name && variants.size() == 1
            && kernels::variants<kernels::softmax_fp16_2048>().size() == 1
            && !kernels::find_image("softmax_fp16_2048", "sm_91") ? 0 : 3;
}}
"""


@pytest.mark.parametrize("standard", ["c++17", "c++20"])
def test_ranges(package: Package, tmp_path: Path, standard: str) -> None:
    first, *groups = run(link(RANGES, tmp_path / "ranges", package, f"-std={standard}")).splitlines()
    assert first.split()[0] == "softmax_fp32_1024@sm_80"
    assert re.search(r"softmax_fp32_1024@compute_80 8\.0 ", first)
    types = "*fp16 *fp16 i32 i32 i32 i32"
    assert groups[1].rstrip() == (
        f"softmax_fp16 softmax_fp16_2048 n_cols <= BLOCK_SIZE {types} sm_80 sm_90a compute_80 gfx942"
    )


def test_what_is_not_linked_is_passed_over(package: Package, tmp_path: Path) -> None:
    source = f"""{USE}
#include <cstdio>
int main()
{{
    for (const auto image : (*kernels::variants().begin()).images()) std::printf("%s\\n", image.target().data());
    return kernels::group_view(kernels_softmax_fp16__group).variants().empty();
}}
"""
    archive = package.archive("sm_90a")
    program = compile_program(
        source, tmp_path / "one", "-std=c++17", "-I", package.include, archive, *DRIVER, compiler="g++"
    )
    assert run(program).split() == ["sm_90a"]


def test_scratch_memory_and_its_guard(records: list[Record], doubles: Doubles, tmp_path: Path) -> None:
    wanting = [
        dataclasses.replace(
            record, facts=dataclasses.replace(record.facts, global_scratch_bytes=64, global_scratch_align=128)
        )
        for record in records[:4]
    ]
    package = build_package(wanting, tmp_path / "package")
    source = f"""{LAUNCH}
struct Arena {{
    int live = 0;
    void *allocate(std::size_t bytes, std::size_t align, kernels::stream on, std::int32_t device)
    {{
        live++;
        const bool as_asked = bytes == 192 && align == 128 && device == 0 && on.get() != nullptr;
        return as_asked ? reinterpret_cast<char *>(0x8000) : nullptr;
    }}
    void release(void *, kernels::stream, std::int32_t) {{ live += 10; }}
}};

int main()
{{
    const Driver driver;
    Arena arena;
    kernels::softmax<float> call;
    call.n_rows = 3;
    auto *const on = reinterpret_cast<CUstream_st *>(5);
    if (launch(call, on).status() != KERNELS_ERROR_SCRATCH_NEEDED) return 1;
    {{
        const kernels::scratch_guard guard(arena);
        if (launch(call, on)) return 2;
    }}
    return launch(call, on).status() != KERNELS_ERROR_SCRATCH_NEEDED || arena.live != 11;
}}
"""
    done = doubles.run("cuda", link(source, tmp_path / "scratch", package))
    assert done.returncode == 0, done.stdout
    assert len(launches(done.stdout)) == 1


def test_a_disabled_program_links_no_kernel(package: Package, tmp_path: Path) -> None:
    source = f"""{USE}
int main()
{{
    const bool all = launch(kernels::softmax<float>()).status() == KERNELS_ERROR_DISABLED
        && launch(kernels::softmax_fp32_1024()).status() == KERNELS_ERROR_DISABLED
        && kernels::preload<kernels::softmax<float>>().status() == KERNELS_ERROR_DISABLED
        && kernels::variants<kernels::softmax_fp32_1024>().empty() && kernels::images().empty();
    return all ? 0 : 1;
}}
"""
    objects = []
    for path in sorted((package.folder / "src").glob("*.c")):
        objects.append(tmp_path / f"{path.stem}.o")
        command = ["gcc", "-std=c99", "-DKERNELS_DISABLED", "-I", package.include, "-I", path.parent, "-c", path]
        subprocess.run(list(map(str, [*command, "-o", objects[-1]])), check=True)
    program = compile_program(
        source, tmp_path / "off", "-std=c++17", "-DKERNELS_DISABLED", "-I", package.include, *objects, compiler="g++"
    )
    run(program)
    assert not [name for name in symbols(program) if name.endswith("_data") and "__" in name]


def named(record: Record, name: str) -> Record:
    """The record as that of a variant, and of a group, of another name."""
    kernel = make_kernel(group=f"{name}_{{dtype}}")
    variant = dataclasses.replace(
        record.image.variant, id=name, base=name, group=f"{name}_{record.image.variant.dtype}", kernel=kernel
    )
    return dataclasses.replace(record, image=dataclasses.replace(record.image, variant=variant))


def declared_names() -> set[str]:
    """What the fixed headers declare at the level of the namespace."""
    found = set()
    for name in cpp_names.runtime_files("kernels").values():
        text = (Path(cpp_names.__file__).parent / "runtime/c" / name).read_text("utf-8")
        spaces = re.findall(r"^namespace (?:kiln|(detail)) \{\n(.*?)^(?=namespace |\} // namespace)", text, re.S | re.M)
        for detail, body in spaces:
            found |= {"detail"} if detail else set(_declared(body))
        # What stands between two parts of detail is of the namespace too.
        for body in re.findall(r"^\} // namespace detail\n(.*?)^(?=namespace |\} // namespace)", text, re.S | re.M):
            found |= set(_declared(body))
    return found


def _declared(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if line and not line.startswith((" ", "}", "{", "#", "/*", "template"))]
    pattern = r"(?:class|struct|using)(?: \[\[nodiscard\]\])? (\w+)|.*?\b(\w+)(?:\(|(?:<.*>)? = )"
    matches = [re.match(pattern, line) for line in lines]
    return [next(filter(None, match.groups())) for match in matches if match]


def test_the_namespace_has_what_it_is_said_to_have() -> None:
    assert declared_names() == cpp_names.RESERVED


def test_kernels_may_be_called_like_what_the_namespace_has(records: list[Record], tmp_path: Path) -> None:
    """They get an underscore, and nothing is hidden."""
    names = [*sorted(cpp_names.RESERVED - {"launch"}), "std", "int32_t", "kernels", "kernels_variant", "call", "text"]
    include = render([named(records[0], name) for name in names], tmp_path)
    source = "kernels::error_ one;\nkernels::std_ other;\nkernels::kernels third;\nkernels::int32_t fourth;\n"
    assert said(f"{USE}{source}", include) == ""


def test_kernels_may_be_called_like_macros(records: list[Record], tmp_path: Path) -> None:
    """Of C's headers, and of compilers that were told of no standard."""
    names = [*sorted(MACROS), "INT8_MAX"]
    include = render([named(records[0], name) for name in names], tmp_path)
    before = "".join(f"#include <{header}>\n" for header in ("cassert", "cerrno", "cstdio", "climits", "complex.h"))
    source = "kernels::errno_ one;\nkernels::linux_ other;\n"
    assert said(f"{before}{USE}{source}", include, standard="gnu++17") == ""


def test_a_kernel_that_is_called_like_any_other_macro_is_named(records: list[Record], tmp_path: Path) -> None:
    """Where there is such a macro; without it, it is a name as any other."""
    include = render([named(record, name) for record, name in zip(records, ("M_PI", "GEMM"), strict=False)], tmp_path)
    refused = said(f"#include <cmath>\n{USE}", include, standard="gnu++17")
    assert '#error "M_PI is a macro here, and a kernel of kernels is called so: rename it in kernels.yaml' in refused
    assert "GEMM" not in refused
    assert said(f"#include <cmath>\n#undef M_PI\n{USE}kernels::M_PI one;\nkernels::GEMM other;\n", include) == ""


def test_arguments_may_be_called_like_their_types(records: list[Record], tmp_path: Path) -> None:
    """Every type of argument, with names that would hide what the next member is of."""
    types = {name: f"*{name}" for name in DTYPES} | {f"{name}_value": name for name in DTYPES}
    types |= {"device_ptr": "*fp16", "std": "i32", "kernels": "*i32", "deep": "**fp32", "call": "i1", "last": "*bf16"}
    parameters, end = [], 0
    for type in types.values():
        size = 8 if type.startswith("*") else DTYPES[type].size
        offset = -(-end // size) * size
        parameters.append(Parameter(offset=offset, size=size, role="user"))
        end = offset + size
    record = records[0]
    interface = dataclasses.replace(
        record.interface, arguments=tuple(Argument(name=n, type=t, promise=None) for n, t in types.items())
    )
    facts = dataclasses.replace(record.facts, parameters=tuple(parameters), parameter_bytes=end)
    kernel = make_kernel(tensors={}, select=None)
    variant = dataclasses.replace(record.image.variant, kernel=kernel)
    image = dataclasses.replace(record.image, variant=variant)
    include = render([Record(image=image, facts=facts, interface=interface, path=record.path)], tmp_path)
    source = f"""{USE}
kernels::device_ptr<kernels::fp16> take(const kernels::softmax_fp32 &call);
kernels::device_ptr<kernels::fp16> take(const kernels::softmax_fp32 &call)
{{
    return call.i32_value == 0 && !call.i1_value && call.fp8e5_value.bits == 0 ? call.device_ptr : nullptr;
}}
"""
    assert said(source, include) == ""
    assert re.search(r"^    ::kernels::device_ptr<void> deep;", (include / "kernels/kernels.hpp").read_text(), re.M)


def test_a_kernel_without_arguments(records: list[Record], tmp_path: Path) -> None:
    record = records[0]
    kernel = make_kernel(tensors={}, select=None, inputs={}, grid=(expression("4"),) * 3)
    image = dataclasses.replace(record.image, variant=dataclasses.replace(record.image.variant, kernel=kernel))
    facts = dataclasses.replace(record.facts, parameters=(), parameter_bytes=0)
    interface = dataclasses.replace(record.interface, arguments=())
    include = render([Record(image=image, facts=facts, interface=interface, path=record.path)], tmp_path)
    source = "void body();\nvoid body() { if (launch(kernels::softmax<float>())) return; }\n"
    assert said(USE + source, include) == ""


def test_two_libraries_in_one_program(records: list[Record], package: Package, tmp_path: Path) -> None:
    manifest = make_manifest(records, "other")
    render_header(records, manifest, tmp_path)
    render_cpp_header(records, manifest, tmp_path)
    source = f"""#include <other/other.hpp>
{USE}
bool same(float *x);
bool same(float *x)
{{
    const other::softmax<float> one {{ x, x, 1, 1, 1, 1 }};
    const kernels::softmax<float> two {{ x, x, 1, 1, 1, 1 }};
    return launch(one).status() == launch(two).status();
}}
"""
    assert said(source, package.include, "-I", tmp_path / "include") == ""


PAGE_NEEDS = f"""{USE}
#include <cstdio>
using cudaStream_t = CUstream_st *;
struct MyHalf {{ unsigned short bits; }};
"""


def test_the_page_about_it_compiles(package: Package) -> None:
    """What docs/cpp.md shows: declarations as they stand, and statements in a function."""
    page = (REPOSITORY / "docs/cpp.md").read_text("utf-8")
    blocks = [textwrap.dedent(block) for block in re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", page, re.MULTILINE)]
    parts = [part for block in blocks for part in block.strip().split("\n\n")]
    declarations = [part for part in parts if part.startswith(("#include", "template", "struct"))]
    statements = [part for part in parts if part not in declarations]
    assert (len(declarations), len(statements)) == (4, 5)
    body = "".join(f"{{\n{statement}\n}}\n" for statement in statements)
    source = f"""{PAGE_NEEDS}{chr(10).join(declarations)}
void page(float *y, const float *x, std::int32_t rows, std::int32_t columns, cudaStream_t stream, void *address);
void page(float *y, const float *x, std::int32_t rows, std::int32_t columns, cudaStream_t stream, void *address)
{{
    kernels::softmax<float> call;
    {body}
    softmax<MyHalf>(nullptr, nullptr, rows, columns, stream);
}}
"""
    unused = ("-Wno-unused-variable", "-Wno-unused-but-set-variable")
    assert said(source, package.include, *unused, standard="c++20") == ""

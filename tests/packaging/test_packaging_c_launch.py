"""The runtime's launches, as the sources stand in the repository, sanitized and with drivers that compute nothing."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest
from c_library import accepts, standards
from case_programs import INCLUDES, RUNTIME, SOURCES, CasePrograms
from device_targets import KINDS, TAKES, TARGETS

from c_doubles import Doubles
from kiln.manifest.dtypes import DTYPES
from kiln.toolchain import ptx_isa

CASES = [
    ("first_use", "cuda"),
    ("refused_calls", "cuda"),
    ("options", "cuda"),
    ("groups_choose", "cuda"),
    ("lookups", "none"),
    ("two_devices", "cuda"),
    ("two_contexts", "cuda"),
    ("two_contexts", "cuda before 12.0"),
    ("threads", "cuda"),
    ("threads", "cuda before 12.0"),
    ("missing_library", "none"),
    ("missing_symbol", "cuda without a function"),
    ("failing_driver", "cuda"),
    ("ptx", "cuda"),
    ("forked", "cuda"),
    ("attributes", "cuda"),
    ("attributes_of_an_older_driver", "cuda before 11.8"),
    ("scratch", "cuda"),
    ("checked", "cuda"),
    ("hooked", "cuda"),
    ("captured", "cuda"),
    ("captured", "cuda before 12.0"),
    ("preloaded", "cuda"),
    ("own_table", "cuda"),
    ("a_driver_that_forks", "cuda"),
    ("measuring", "cuda"),
    ("measuring", "hip"),
    ("hip", "hip"),
    ("no_gpu_of_nvidia", "cuda and hip"),
    ("stub", "cuda and hip"),
    ("no_gpu_at_all", "cuda"),
    ("no_memory", "cuda"),
    ("bundled", "cuda"),
    ("bundled_otherwise", "cuda"),
    ("bundled_in_vain", "cuda"),
    ("bundled_devices", "cuda"),
    ("bundled_devices", "cuda before 12.0"),
    ("bundled_for_others", "cuda"),
    ("bundled_for_others", "hip"),
]
"""a case of launch_cases.c, and the driver that it runs with"""


@pytest.fixture(scope="module")
def program(case_programs: CasePrograms) -> Path:
    return case_programs.of("launch", "address,undefined")


@pytest.mark.parametrize(("case", "driver"), CASES, ids=[f"{case}, {driver}" for case, driver in CASES])
def test_launches(program: Path, doubles: Doubles, case: str, driver: str) -> None:
    libraries = {"cuda": "libcuda.so.1", "hip": "libamdhip64.so"}
    done = doubles.run(driver, program, case, DOUBLE=libraries.get(driver, ""))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_threads_do_not_race(case_programs: CasePrograms, doubles: Doubles) -> None:
    """Eight threads make the first use of two variants at once, with failures between."""
    raced = case_programs.of("launch", "thread")
    for driver in ("cuda", "cuda before 12.0"):
        for case in ("threads", "bundled_threads"):
            done = doubles.run(driver, raced, case)
            assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_choice_explained(program: Path, doubles: Doubles) -> None:
    done = doubles.run("cuda", program, "explained")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "aligned for device 0 (sm_90):",
        "  sm_80: the device has another major version",
        "  sm_90a: the device takes it",
        "  compute_80: the device takes it",
        "  gfx942: it is for another vendor's GPUs",
        "used is sm_90a",
    ]


def test_the_environment_allows_one_target(program: Path, doubles: Doubles) -> None:
    """As a library named kiln: the variable is the library's own."""
    done = doubles.run("cuda", program, "explained", KILN_TARGET="compute_80")
    assert done.returncode == 0
    assert done.stdout.splitlines()[2:] == [
        "  sm_90a: KILN_TARGET allows compute_80 alone",
        "  compute_80: the device takes it",
        "  gfx942: KILN_TARGET allows compute_80 alone",
        "used is compute_80",
    ]


def test_one_target_is_not_taken_out_of_a_fat_binary(program: Path, doubles: Doubles) -> None:
    done = doubles.run("cuda", program, "bundled_alone", KILN_TARGET="compute_80")
    assert done.returncode == 0 and done.stdout.splitlines()[:2] == ["cuInit", "load aligned@compute_80"]
    explained = doubles.run("cuda", program, "bundled_explained", KILN_TARGET="compute_80")
    assert explained.stdout.splitlines()[-1] == "used is compute_80"


def test_the_choice_in_a_fat_binary_explained(program: Path, doubles: Doubles) -> None:
    done = doubles.run("cuda", program, "bundled_explained")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "used is sm_90a, unless the driver takes another one out of the fat binary"


NO_IMAGE, TOO_OLD = -9, -5


@pytest.mark.parametrize(("device", "takes"), TAKES.items())
def test_what_a_device_takes(program: Path, doubles: Doubles, device: str, takes: list[str]) -> None:
    """Best first: exact code, code for the family, plain cubins from the newest, PTX from the newest."""
    lines = "".join(f"{KINDS[target[0]]} {target} 7.0 {device} 13000\n" for target in TARGETS)
    done = doubles.run("none", program, "judged", stdin=lines)
    ranks = dict(zip(TARGETS, (int(line.split()[0]) for line in done.stdout.splitlines()), strict=True))
    found = sorted((target for target in TARGETS if ranks[target] > 0), key=lambda target: -ranks[target])
    assert found == takes
    assert {rank for rank in ranks.values() if rank <= 0} <= {NO_IMAGE}


def test_the_driver_that_a_ptx_needs(program: Path, doubles: Doubles) -> None:
    """The table in C is the one that the build tells oldest drivers by."""
    lines, expected = [], []
    for isa, (release, _) in ptx_isa._CUDA.items():
        major, minor = map(int, release.split("."))
        version = 1000 * major + 10 * minor
        before = version - 10 if minor else 1000 * (major - 1) + 90
        lines += [f"ptx compute_80 {isa} sm_90 {version}", f"ptx compute_80 {isa} sm_90 {before}"]
        expected += [True, False]
    for isa, version, fits in (("9.7", 13070, True), ("9.7", 13060, False), ("10.0", 13000, True), ("-", 11000, True)):
        lines.append(f"ptx compute_80 {isa} sm_90 {version}")
        expected.append(fits)
    done = doubles.run("none", program, "judged", stdin="\n".join(lines))
    codes = [int(line.split()[0]) for line in done.stdout.splitlines()]
    assert [code > 0 for code in codes] == expected
    assert {code for code in codes if code <= 0} == {TOO_OLD}


def triton_include(vendor: str) -> Path:
    """Headers that Triton brings along."""
    found = importlib.util.find_spec("triton")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent / "backends" / vendor / "include"


def constants(source: str) -> list[str]:
    """The names that the C file gives to numbers of the vendor's header."""
    text = (RUNTIME / "src" / source).read_text()
    return re.findall(r"^    ((?:CU|hip)\w+) = \d+,?$", text, re.MULTILINE)


def beside_the_header(header: str, source: str, types: list[str], checks: str) -> str:
    """C that includes the vendor's header, and then the runtime's file with other names for all that both declare."""
    names = constants(source)
    assert len(names) > 10
    return "\n".join(
        [
            f"#include <{header}>",
            *(f"enum {{ real_{name} = (int){name} }};" for name in names),
            *(f"typedef {name} real_{name};" for name in types),
            *(f"#define {name} our_{name}" for name in [*names, *types]),
            f'#include "{source}"',
            *(f'_Static_assert((int)our_{name} == (int)real_{name}, "{name}");' for name in names),
            checks,
        ]
    )


def same_layout(type: str, *members: str) -> str:
    checks = [f"sizeof(our_{type}) == sizeof(real_{type})"]
    checks += [f"offsetof(our_{type}, {member}) == offsetof(real_{type}, {member})" for member in members]
    return "\n".join(f'_Static_assert({check}, "{type}");' for check in checks)


def test_what_is_written_down_of_cuda() -> None:
    """Numbers, structs and the names of functions are those of NVIDIA's own header."""
    include = triton_include("nvidia")
    checks = same_layout("CUlaunchAttribute", "id", "value.clusterDim.y", "value.cooperative")
    checks += same_layout("CUlaunchConfig", "gridDimX", "blockDimX", "sharedMemBytes", "hStream", "attrs", "numAttrs")
    text = beside_the_header("cuda.h", "cuda.c", ["CUlaunchAttribute", "CUlaunchConfig"], checks)
    command = ["gcc", "-std=gnu11", "-w", "-isystem", include, *INCLUDES, "-fsyntax-only", "-x", "c", "-"]
    done = subprocess.run(list(map(str, command)), input=text, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    header = (include / "cuda.h").read_text()
    functions = re.findall(r'\{ "(cu\w+)", ', (RUNTIME / "src" / "cuda.c").read_text())
    assert len(functions) > 20
    assert [name for name in functions if not re.search(rf"\b{name}\b", header)] == []
    # The header renames what has a newer version: such a name must not be resolved without it.
    renamed = dict(re.findall(r"^#define (cu\w+) +(cu\w+)$", header, re.MULTILINE))
    newer = [name for name in functions if name in renamed]
    assert newer == ["cuEventElapsedTime"], "times are asked of every driver alike, and the older one has them too"


def test_what_is_written_down_of_hip() -> None:
    include = triton_include("amd")
    checks = same_layout("hipPointerAttribute_t", "type", "device", "isManaged")
    checks += """
_Static_assert(offsetof(our_hipDeviceProp_tR0600, name) == offsetof(real_hipDeviceProp_tR0600, name), "");
_Static_assert(offsetof(our_hipDeviceProp_tR0600, gcnArchName) == offsetof(real_hipDeviceProp_tR0600, gcnArchName), "");
_Static_assert(sizeof(our_hipDeviceProp_tR0600) >= sizeof(real_hipDeviceProp_tR0600), "");
_Static_assert(sizeof ((real_hipDeviceProp_tR0600 *)0)->gcnArchName == 256, "");
"""
    types = [
        "hipPointerAttribute_t",
        "hipDeviceProp_tR0600",
        "hipModule_t",
        "hipFunction_t",
        "hipStream_t",
        "hipEvent_t",
    ]
    text = beside_the_header("hip/hip_runtime_api.h", "hip.c", types, checks)
    command = ["gcc", "-std=gnu11", "-w", "-D__HIP_PLATFORM_AMD__", "-isystem", include, *INCLUDES]
    done = subprocess.run(
        [*map(str, command), "-fsyntax-only", "-x", "c", "-"], input=text, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    header = (include / "hip" / "hip_runtime_api.h").read_text()
    functions = re.findall(r'\{ "(hip\w+)", ', (RUNTIME / "src" / "hip.c").read_text())
    assert len(functions) > 20
    assert [name for name in functions if not re.search(rf"\b{name}\b", header)] == []


def test_dtypes_have_a_number() -> None:
    """In the order of the table, which grows at its end: programs have the numbers compiled in."""
    text = (RUNTIME / "include" / "kiln" / "kiln_launch.h").read_text()
    assert re.findall(r"KILN_DTYPE_(\w+) = (\d+)", text) == [
        (name.upper(), str(place)) for place, name in enumerate(DTYPES, 1)
    ]


@pytest.mark.parametrize(("compiler", "standard"), standards())
def test_headers_compile_without_a_warning(compiler: str, standard: str) -> None:
    text = "".join(f"#include <kiln/kiln_{name}.h>\n" for name in ("launch", "driver", "status", "image", "tuner"))
    assert accepts(text, compiler, standard, *INCLUDES) == ""


@pytest.mark.parametrize(("compiler", "standard"), [pair for pair in standards() if "++" not in pair[1]])
def test_disabled_sources_compile_without_a_warning(compiler: str, standard: str) -> None:
    for source in [*SOURCES, RUNTIME / "src" / "disabled.c"]:
        assert accepts(source.read_text(), compiler, standard, "-DKILN_DISABLED", *INCLUDES) == ""


def test_a_disabled_library_says_so(tmp_path: Path) -> None:
    """Its sources alone make a program, with no image and no driver; every call of the headers is there."""
    declared = "".join(
        (RUNTIME / "include" / "kiln" / f"kiln_{name}.h").read_text() for name in ("launch", "driver", "tuner")
    )
    # What reads a variant's record needs a variant, and a library without kernels has none.
    found = re.findall(r"^int (kiln_(?!variant_)\w+)\(([^;]*?)\);", declared, re.MULTILINE | re.DOTALL)
    assert len(found) == 19
    calls = []
    for name, parameters in found:
        zeros = ", ".join("0" for each in parameters.split(",") if each.strip() != "void")
        calls.append(f'if ({name}({zeros}) != KILN_ERROR_DISABLED) return printf("{name}\\n");')
    text = f"""#include <kiln/kiln_tuner.h>
#include <stdio.h>
int main(void) {{
    {" ".join(calls)}
    kiln_set_checks(KILN_CHECKS_POINTERS);
    kiln_set_scratch_allocator(NULL);
    kiln_set_launch_hook(NULL);
    if (kiln_variant_count() + kiln_group_count() + kiln_image_count() != 0) return 1;
    if (kiln_variant_at(0) || kiln_variant_find("a") || kiln_group_at(0) || kiln_group_find("a")) return 2;
    if (kiln_image_at(0) || kiln_image_find("a", "b") || kiln_group_next("a", "b", NULL)) return 3;
    if (kiln_cuda_driver() || kiln_hip_driver()) return 4;
    kiln_forget_choices();
    if (kiln_choice_count() != 0) return 5;
    size_t count = 7;
    if (kiln_tune(NULL, NULL, NULL, NULL, 0, &count) != KILN_ERROR_DISABLED || count != 0) return 6;
    puts(kiln_last_error()->detail);
    return 0;
}}
"""
    program, main = tmp_path / "program", tmp_path / "main.c"
    main.write_text(text)
    command = ["gcc", "-std=c99", "-DKILN_DISABLED", *INCLUDES, main, *SOURCES, RUNTIME / "src" / "disabled.c"]
    subprocess.run([*map(str, command), "-o", str(program)], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "this library was compiled with KILN_DISABLED, and has no kernels\n")

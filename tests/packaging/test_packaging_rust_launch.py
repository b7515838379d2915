"""Programs that launch from the Rust crate, with drivers that compute nothing; how images are chosen for a device."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from device_targets import KINDS, TAKES, TARGETS
from rust_crates import Cargo, add_programs, driver_records, render

from c_doubles import Doubles
from kiln.packaging.record import Record
from kiln.packaging.rust_names import RUNTIME
from kiln.toolchain import ptx_isa

CASES = [
    ("first_use", "cuda"),
    ("first_use", "cuda before 12.0"),
    ("refused_calls", "cuda"),
    ("folded_value", "cuda"),
    ("missing_library", "none"),
    ("missing_symbol", "cuda without a function"),
    ("no_such_device", "cuda"),
    ("driver_too_old", "cuda"),
    ("driver_too_old_by_its_own_word", "cuda"),
    ("no_image", "cuda"),
    ("two_devices", "cuda"),
    ("two_contexts", "cuda"),
    ("two_contexts", "cuda before 12.0"),
    ("wrong_context", "cuda"),
    ("out_of_memory", "cuda"),
    ("refused_by_the_driver", "cuda"),
    ("bad_pointers", "cuda"),
    ("bad_pointers_of_hip", "hip"),
    ("loads_of_two_images", "cuda"),
    ("loads_of_two_images", "cuda before 12.0"),
    ("threads", "cuda"),
    ("threads", "cuda before 12.0"),
    ("forked", "cuda"),
    ("forked_before", "cuda"),
    ("scratch", "cuda"),
    ("attributes", "cuda"),
    ("wide_clusters", "cuda"),
    ("wide_clusters", "cuda before 12.0"),
    ("attributes_of_an_older_driver", "cuda before 11.8"),
    ("captured loads", "cuda"),
    ("captured fails", "cuda before 12.0"),
    ("raw_parameters", "none"),
    ("hip", "hip"),
    ("no_gpu_of_nvidia", "cuda and hip"),
]
"""a case of tests/rust/driver_cases.rs, and the driver that it runs with"""


@pytest.fixture(scope="module")
def crate(records: list[Record], folded: list[Record], cargo: Cargo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The crate with the programs of tests/rust as its examples, which are built."""
    made = render(driver_records(records, folded), tmp_path_factory.mktemp("project"))
    add_programs(made, "driver_cases", "selection")
    cargo(made, "build", "-q", "--offline", "--features", "hip", "--examples")
    return made


@pytest.fixture(scope="module")
def program(crate: Path, cargo: Cargo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of the cases: a copy, for other crates have one of the same name."""
    assert crate.exists()
    return Path(shutil.copy(cargo.program("driver_cases"), tmp_path_factory.mktemp("programs")))


@pytest.mark.parametrize(("case", "driver"), CASES, ids=[f"{case}, {driver}" for case, driver in CASES])
def test_launches(program: Path, doubles: Doubles, case: str, driver: str) -> None:
    library = "libamdhip64.so" if driver == "hip" else "libcuda.so.1"
    done = doubles.run(driver, program, *case.split(), DOUBLE=library)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_selection_explained(program: Path, doubles: Doubles) -> None:
    done = doubles.run("cuda", program, "explained")
    assert done.stdout.splitlines() == [
        "softmax_fp32_1024 for device 0 (sm_90):",
        "  sm_80: the device has another major version",
        "  sm_90a: the device takes it",
        "  compute_80: the device takes it",
        "  gfx942: it is for another vendor's GPUs",
        "used is sm_90a",
        "sm_90a",
    ]
    done = doubles.run("cuda", program, "explained", KERNELS_TARGET="compute_80")
    assert done.stdout.splitlines()[2:] == [
        "  sm_90a: compute_80 alone is allowed, by the program or by KERNELS_TARGET",
        "  compute_80: the device takes it",
        "  gfx942: compute_80 alone is allowed, by the program or by KERNELS_TARGET",
        "used is compute_80",
        "compute_80",
    ]


def choice(records: list[Record], variant: str, digest: str = "", **words: str) -> str:
    """A line of a file of choices, for rows of 513 to 1024 columns."""
    found = next(r.facts.sha256 for r in records if r.image.target == "sm_90a" and r.image.variant.dtype == "fp32")
    values = {
        "library": "kernels",
        "group": "softmax_fp32",
        "device": "NVIDIA_H100__80_GB_",
        "shape": "n_cols:1024,n_rows:4",
        "variant": variant,
        "target": "sm_90a",
        "sha256": digest or found,
        "nanoseconds": "7",
        **words,
    }
    return " ".join(f"{name}={value}" for name, value in values.items())


def test_what_the_tuner_chose_is_launched(
    program: Path, doubles: Doubles, records: list[Record], tmp_path: Path
) -> None:
    lines = [
        choice(records, "softmax_fp32_2048"),
        "# a remark",
        "what is this",
        choice(records, "softmax_fp32_2048", library="others"),
        choice(records, "softmax_fp32_1024", shape="n_cols:512,n_rows:4"),
    ]
    good, outdated, newer = (tmp_path / name for name in ("good", "outdated", "newer"))
    good.write_text("\n".join(["kernel-choices 1", *lines, ""]))
    outdated.write_text(f"kernel-choices 1\r\n{choice(records, 'softmax_fp32_2048', digest='0' * 64)}\r\n")
    newer.write_text("kernel-choices 2\n")
    done = doubles.run("cuda", program, "choices", str(good), str(outdated), str(newer))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("device", "takes"), TAKES.items())
def test_what_a_device_takes(crate: Path, cargo: Cargo, doubles: Doubles, device: str, takes: list[str]) -> None:
    """The table that the runtime in C is held against too."""
    assert crate.exists()
    lines = "".join(f"{KINDS[target[0]]} {target} 7.0 {device} 13000\n" for target in TARGETS)
    done = doubles.run("none", cargo.program("selection"), stdin=lines)
    ranks = {
        target: int(line) for target, line in zip(TARGETS, done.stdout.splitlines(), strict=True) if line.isdecimal()
    }
    assert sorted(ranks, key=lambda target: -ranks[target]) == takes


def test_why_a_device_does_not_take_an_image(crate: Path, cargo: Cargo, doubles: Doubles) -> None:
    assert crate.exists()
    cases = {
        "cubin sm_90a - sm_100 13000": "it is for that architecture alone",
        "cubin sm_100f - sm_90 13000": "the device is not of that family",
        "cubin sm_80 - sm_90 13000": "the device has another major version",
        "cubin sm_86 - sm_80 13000": "the device is older",
        "cubin sm_80 - sm_87 13000": "Tegra's 8.7 and the others of 8.x do not run each other's code",
        "cubin sm_87 - sm_89 13000": "Tegra's 8.7 and the others of 8.x do not run each other's code",
        "hsaco gfx942 - sm_90 13000": "it is for another vendor's GPUs",
        "cubin sm_90 - gfx942 13000": "it is for another vendor's GPUs",
        "hsaco gfx90a:xnack+ - gfx90a:sramecc+:xnack- 13000": "the device is not xnack+",
        "ptx compute_80 8.7 sm_90 12060": "it is PTX of ISA 8.7, which drivers know since CUDA 12.8, and the driver is "
        "of CUDA 12.6",
    }
    done = doubles.run("none", cargo.program("selection"), stdin="\n".join(cases))
    assert dict(zip(cases, done.stdout.splitlines(), strict=True)) == cases


def test_the_driver_that_a_ptx_needs() -> None:
    """The table is the one that the build tells oldest drivers by."""
    table = re.findall(r"^    \((\d+), (\d+)\),$", (RUNTIME / "select.rs").read_text(), re.MULTILINE)
    assert table == [(isa.replace(".", ""), cuda.replace(".", "")) for isa, (cuda, _) in ptx_isa._CUDA.items()]


DAMAGE = {
    "sm_80": (0, b"\x7fELG", "it is no ELF file"),
    "sm_90a": (48, b"\x50\x50", "its ELF header says architecture 80"),
    "compute_80": (None, b".target sm_80", "its .target is not that of its record"),
    "gfx942": (18, b"\xbe\0", "its ELF header says machine 190, not 224"),
}
"""target -> where bytes of its image are changed, to what, and what is said of it"""


def test_an_image_that_was_changed_is_noticed_before_a_driver_sees_it(
    records: list[Record], folded: list[Record], cargo: Cargo, doubles: Doubles, tmp_path: Path
) -> None:
    crate = render(driver_records(records, folded), tmp_path)
    add_programs(crate, "driver_cases")
    build = ("build", "-q", "--offline", "--features", "hip", "--example", "driver_cases")
    paths = {path.parent.name: path for path in crate.glob("images/*/softmax_fp32_1024.*")}
    assert set(paths) == set(DAMAGE)
    whole = {target: path.read_bytes() for target, path in paths.items()}

    for target, (place, new, _) in DAMAGE.items():
        at = whole[target].index(new) + len(new) if place is None else place
        new = b"x" if place is None else new
        paths[target].write_bytes(whole[target][:at] + new + whole[target][at + len(new) :])
    cargo(crate, *build)
    done = doubles.run("cuda and hip", cargo.program("driver_cases"), "flawed", DOUBLE="libcuda.so.1")
    assert done.stdout.splitlines() == [
        f"the image softmax_fp32_1024@{target} is not as it was built: {flaw}; build the crate anew <- {flaw}"
        for target, (_, _, flaw) in DAMAGE.items()
    ]

    # What no header shows, a digest does.
    for target, path in paths.items():
        middle = whole[target].rindex(b"softmax")
        path.write_bytes(whole[target][:middle] + b"x" + whole[target][middle + 1 :])
    cargo(crate, *build)
    done = doubles.run("cuda and hip", cargo.program("driver_cases"), "flawed", DOUBLE="libcuda.so.1")
    assert done.stdout.splitlines() == [f"{target} is taken" for target in DAMAGE]
    done = doubles.run("cuda and hip", cargo.program("driver_cases"), "flawed", "verify", DOUBLE="libcuda.so.1")
    assert done.stdout.count("its bytes do not have the SHA-256 of its record; build the crate anew") == len(DAMAGE)

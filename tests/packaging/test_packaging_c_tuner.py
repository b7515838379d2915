"""The tuner, as its sources stand in the repository, sanitized, with a driver whose launches take what a test says."""

from __future__ import annotations

from pathlib import Path

import pytest
from c_library import Package, compile_program, symbols
from case_programs import CasePrograms

from c_doubles import DOUBLES, Doubles
from kiln.packaging.c_view import view_groups
from kiln.packaging.choice_files import bucket_of, read_choices
from kiln.packaging.record import Record

CASES = (
    "measured",
    "median",
    "warm",
    "failing_candidates",
    "refused_calls",
    "reset",
    "out_of_time",
    "first_use",
    "devices",
    "files",
    "bad_files",
    "shapes",
    "many_buckets",
    "threads",
    "no_memory",
)


@pytest.fixture
def _in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_in_its_folder")
@pytest.mark.parametrize("case", CASES)
def test_tuner(tune_cases: Path, doubles: Doubles, case: str) -> None:
    done = doubles.run("cuda", tune_cases, case)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.usefixtures("_in_its_folder")
def test_tuner_on_amd(tune_cases: Path, doubles: Doubles) -> None:
    done = doubles.run("hip", tune_cases, "amd")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.usefixtures("_in_its_folder")
def test_threads_do_not_race(case_programs: CasePrograms, doubles: Doubles) -> None:
    """Six threads meet new buckets, measure them, and read and write files meanwhile."""
    done = doubles.run("cuda", case_programs.of("tune", "thread"), "threads")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_shapes_are_told_apart_by(records: list[Record]) -> None:
    """The integers of grid, select and tensors, launch inputs with them, and no stride."""
    for group in view_groups("kernels", records):
        assert [(each.name, each.offset, each.size, each.is_signed) for each in group.extents] == [
            ("n_cols", 24, 4, True),
            ("n_rows", 28, 4, True),
        ]


TUNE = """#include <kernels/kernels.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    struct kernels_softmax_fp16_args args = { (void *)0x7000, (void *)0x8000, 2000, 2000, 2000, 37 };
    struct kernels_timing timings[4];
    size_t count = 0;
    int context[2] = { 0, 0 };
    void *library = dlopen("libcuda.so.1", RTLD_LAZY);
    int (*set)(void *);
    void *found = dlsym(library, "cuCtxSetCurrent");
    memcpy(&set, &found, sizeof found);
    set(context);
    int status = kernels_softmax_fp16_tune(&args, NULL, timings, 4, &count);
    printf("%d %zu %s %s\\n", status, count, kernels_variant_name(timings[0].variant),
        kernels_image_target(timings[0].image));
    for (size_t i = 0; i < 32; i++) printf("%02x", (unsigned)timings[0].image->sha256[i]);
    printf("\\n%d %d\\n", kernels_enable_tuner(KERNELS_TUNER_USE, NULL), kernels_softmax_fp16_launch(&args, NULL));
    printf("%d %zu\\n", kernels_save_choices("choices"), kernels_choice_count());
    return 0;
}
"""


@pytest.mark.usefixtures("_in_its_folder")
def test_a_group_of_a_built_library(package: Package, tmp_path: Path, doubles: Doubles) -> None:
    """What it remembers names the library, the shape's integers, and the image by its digest."""
    sources = ("-I", package.include, package.archive(), "-I", DOUBLES, "-ldl", "-lpthread")
    program = compile_program(TUNE, tmp_path / "program", *sources)
    done = doubles.run("cuda", program)
    first, digest, *rest = done.stdout.splitlines()
    assert (first, rest) == ("0 1 softmax_fp16_2048 sm_90a", ["0 0", "0 1"])
    (choice,) = read_choices(tmp_path / "choices")
    assert (choice.library, choice.group, choice.device) == ("kernels", "softmax_fp16", "NVIDIA_H100__80_GB_")
    assert choice.shape == (("n_cols", bucket_of(2000)), ("n_rows", bucket_of(37)))
    assert (choice.variant, choice.target, choice.sha256) == ("softmax_fp16_2048", "sm_90a", digest)


def test_a_program_that_does_not_tune_links_no_tuner(package: Package, tmp_path: Path) -> None:
    text = """#include <kernels/kernels.h>
int main(void) {
    struct kernels_softmax_fp16_args args = { 0, 0, 1, 1, 1, 0 };
    return kernels_softmax_fp16_launch(&args, 0);
}
"""
    flags = ("-I", package.include, package.archive(), "-ldl", "-lpthread")
    program = compile_program(text, tmp_path / "program", *flags)
    assert "kernels_launch_group" in symbols(program)
    assert not {"kernels_tune", "kernels_load_choices", "kernels_merge_choices"} & symbols(program)

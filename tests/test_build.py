"""Whole builds of a small project, as its user types them: what runs again after which edit, and what is left over."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from project import KERNEL, MANIFEST, REPOSITORY, Project

IMAGES = {f"scale_fp32_{block}@{target}" for block in (128, 256) for target in ("sm_80", "gfx942")}


def contents(project: Project) -> dict[str, bytes]:
    """Every published file of a build."""
    return {name: (project.folder / "build" / name).read_bytes() for name in project.files()}


def test_first_build_makes_every_image_and_package(built: Project) -> None:
    files = built.files()
    assert {name for name in files if name.startswith("images/") and not name.endswith(".json")} == {
        f"images/{target}/scale_fp32_{block}.{suffix}"
        for block in (128, 256)
        for target, suffix in (("sm_80", "cubin"), ("gfx942", "hsaco"))
    }
    expected = {"lib/libscratch.a", "lib/libscratch_sm_80.a", "lib/libscratch_gfx942.a"}
    expected |= {"include/scratch/scratch.h", "rust/scratch/Cargo.toml", "reports/sm_80/scale_fp32_128.json"}
    assert expected <= files


def test_second_build_runs_nothing_and_imports_no_compiler(built: Project) -> None:
    result = built.run_python("-X", "importtime", "-m", "doit").expect(r"^0 built, \d+ up to date, 0 failed")
    imported = {line.split("|")[-1].strip().split(".")[0] for line in result.output.splitlines() if "|" in line}
    assert "doit" in imported
    assert not imported & {"triton", "jinja2", "elftools", "msgpack", "numpy"}


def test_body_edit_rebuilds_the_kernels_images_only(built: Project) -> None:
    built.write("kernels/other.py", KERNEL.replace("scale_kernel", "other_kernel"))
    other = MANIFEST.partition("kernels:\n")[2].replace("scale", "other").replace("[128, 256]", "[128]")
    built.write("kernels.yaml", MANIFEST + other)
    assert set(built.doit().expect().ran("compile")) == {"other_fp32_128@sm_80", "other_fp32_128@gfx942"}
    built.edit("kernels/scale.py", "x * 2", "x * 3")
    assert set(built.doit().expect().ran("compile")) == IMAGES


def test_what_is_launched_depends_on_parameters_and_not_on_code(built: Project) -> None:
    """A program's side of a kernel, objects and headers, is made again for parameters and what is declared of it."""
    built.edit("kernels/scale.py", "x * 2", "x * 3")
    output = built.doit().expect().output
    assert re.search(r"^\[\d+/\d+\] archive:sm_80$", output, re.MULTILINE)
    assert re.search(r"^\[\d+/\d+\] crate$", output, re.MULTILINE)
    assert not re.search(r"^\[\d+/\d+\] (variants|header:\w+)$", output, re.MULTILINE)
    built.edit("kernels.yaml", "grid: [", "select: n_elements > 0\n    grid: [")
    built.doit("explain", "variants").expect(r"^  what kernels\.yaml and the sources declare changed")
    built.doit().expect(*(rf"^\[\d+/\d+\] {name}$" for name in ("variants", "header:c", "header:cpp")))


def test_one_more_block_builds_its_images_only(built: Project) -> None:
    built.edit("kernels.yaml", "[128, 256]", "[128, 256, 512]")
    result = built.doit().expect()
    assert set(result.ran("compile")) == {"scale_fp32_512@sm_80", "scale_fp32_512@gfx942"}


def test_lines_inserted_above_a_declaration_rebuild_nothing(built: Project) -> None:
    built.edit("kernels.yaml", "kernels:\n", "# what is built\n\nkernels:\n")
    assert built.doit().expect().counts["built"] == 0


def test_the_order_of_targets_reaches_the_packages(tmp_path: Path) -> None:
    """Also where no kernel is built for two of them, and so no image changes its place."""
    entry = MANIFEST.partition("kernels:\n")[2].replace("blocks: [128, 256]", "blocks: [128]")
    first, second = (entry.replace("dtypes:", f"targets: [{target}]\n    dtypes:") for target in ("sm_86", "sm_80"))
    second = second.replace("  scale:", "  other:").replace("scale_{", "other_{")
    manifest = MANIFEST.partition("kernels:\n")[0].replace("gfx942", "sm_86") + f"kernels:\n{first}{second}"
    project = Project.create(tmp_path / "project", manifest=manifest)
    project.doit("header", "crate").expect()
    project.edit("kernels.yaml", "sm_80, sm_86", "sm_86, sm_80")
    assert project.doit("header", "crate").expect().counts["built"] == 3
    clean = Project.create(tmp_path / "clean", manifest=project.read("kernels.yaml"))
    clean.doit("header", "crate").expect()
    for name in ("include/scratch/scratch.h", "rust/scratch/Cargo.toml"):
        assert project.read(f"build/{name}") == clean.read(f"build/{name}")


def test_an_option_rebuilds_the_images_whose_value_changed(built: Project) -> None:
    built.edit("kernels.yaml", "    grid:", '    options: {num_warps: "4 if block <= 128 else 8"}\n    grid:')
    assert set(built.doit().expect().ran("compile")) == {"scale_fp32_256@sm_80", "scale_fp32_256@gfx942"}


OUTPUTS = (
    "images/sm_80/scale_fp32_128.cubin",
    "images/gfx942/scale_fp32_128.facts.json",
    "objects/scale_fp32_128__sm_80.data.o",
    "lib/libscratch.a",
    "include/scratch/scratch.h",
    "rust/scratch/src/lib.rs",
)
"""files of six steps"""


def flipped(whole: bytes) -> bytes:
    """The same but for one bit in the middle."""
    middle = len(whole) // 2
    return whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_damaged_output_is_noticed_and_rebuilt(built: Project, name: str) -> None:
    path = built.folder / "build" / name
    whole = path.read_bytes()
    path.write_bytes(flipped(whole))
    assert built.doit().expect().counts["built"] == 1
    assert path.read_bytes() == whole


@pytest.mark.parametrize("damage", ["truncated", "flipped", "emptied", "deleted"])
def test_each_of_several_damaged_outputs_is_noticed_and_rebuilt(built: Project, damage: str) -> None:
    """The step of each runs, and no other: those that come before it in the graph make the bytes that they made."""
    before = contents(built)
    for path in (built.folder / "build" / name for name in OUTPUTS):
        whole = path.read_bytes()
        if damage == "deleted":
            path.unlink()
        else:
            path.write_bytes({"truncated": whole[: len(whole) // 2], "flipped": flipped(whole), "emptied": b""}[damage])
    assert built.doit().expect().counts["built"] == len(OUTPUTS)
    assert contents(built) == before


def test_a_lost_or_unreadable_state_costs_a_rebuild_and_nothing_else(built: Project) -> None:
    before = contents(built)
    (built.folder / "build/.kiln/state.sqlite").write_bytes(b"not a database" * 100)
    built.doit().expect("cannot be read", r"^\d+ built, 0 up to date, 0 failed")
    assert contents(built) == before
    assert built.doit().expect().counts["built"] == 0


def test_a_kernel_that_does_not_compile_fails_alone(built: Project) -> None:
    """Its block names both files' lines and the source line, and not the whole PTX; what is sound is built."""
    bad = KERNEL.replace("scale_kernel", "bad_kernel").replace("x * 2", "x + tl.arange(0, 64)")
    built.write("kernels/bad.py", bad)
    declared = MANIFEST.partition("kernels:\n")[2].replace("scale", "bad")
    built.write("kernels.yaml", MANIFEST.replace("[128, 256]", "[128, 512]") + declared)
    result = built.doit().expect(
        r"^FAILED compile:bad_fp32_128@(sm_80|gfx942)$",
        r"kernels/bad\.py:10:36: ValueError: .*incompatible dimensions",
        r"^  stage: front end$",
        r"^ +tl\.store\(output_ptr \+ offsets, x \+ tl\.arange\(0, 64\), mask=mask\)$",
        r"declared: kernels\.yaml:14:3",
        r"reproduce: doit -v 2 compile:bad_fp32_128@(sm_80|gfx942)$",
        r" 4 failed",
        code=1,
    )
    assert set(result.ran("compile")) == {"scale_fp32_512@sm_80", "scale_fp32_512@gfx942"}
    assert len(result.output.splitlines()) < 60
    assert not [name for name in built.files("build/images") if "bad" in name]
    built.doit("-v", "2", "compile:bad_fp32_128@sm_80").expect("incompatible dimensions", code=1)
    elsewhere = ("--build-dir", "an other", "--targets", "sm_80")
    told = r"reproduce: doit --build-dir 'an other' --targets sm_80 -v 2 compile:bad_fp32_128@sm_80$"
    built.doit(*elsewhere, "compile:bad_fp32_128").expect(told, code=1)
    built.edit("kernels/bad.py", "tl.arange(0, 64)", "1")
    built.doit().expect(r"0 failed")


def test_an_error_of_ptxas_is_shown_without_its_ptx(built: Project) -> None:
    assembly = 'tl.inline_asm_elementwise("bogus.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)'
    built.edit("kernels/scale.py", "x * 2", assembly)
    result = built.doit().expect("ptxas refused", "instruction: 'bogus'", "stage: cubin", r"log: \S+\.log", code=1)
    assert ".visible .entry" not in result.output
    log = built.read("build/.kiln/logs/compile/scale_fp32_128@sm_80.log")
    assert ".visible .entry" in log


def test_assembly_for_another_machine_is_refused(built: Project) -> None:
    """LLVM may print the error and go on: the image must not be kept."""
    assembly = 'tl.inline_asm_elementwise("add.f32 $0, $1, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)'
    built.edit("kernels/scale.py", "x * 2", assembly)
    result = built.doit("compile").expect(r"FAILED compile:scale_fp32_128@gfx942", "error", code=1)
    assert set(result.ran("compile")) == {"scale_fp32_128@sm_80", "scale_fp32_256@sm_80"}


def test_a_variant_and_an_image_can_be_built_alone(tmp_path: Path) -> None:
    project = Project.create(tmp_path / "scratch")
    result = project.doit("compile:scale_fp32_256@gfx942").expect()
    assert result.ran("compile") == ["scale_fp32_256@gfx942"]
    result = project.doit("compile:scale_fp32_256").expect()
    assert result.ran("compile") == ["scale_fp32_256@sm_80"]
    assert project.files("build/images") == {
        f"{target}/scale_fp32_256.{suffix}"
        for target, kind in (("sm_80", "cubin"), ("gfx942", "hsaco"))
        for suffix in (kind, "facts.json")
    }


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("compile:scale_fp32_512",), "did you mean 'compile:scale_fp32_128'|did you mean 'compile:scale_fp32_256'"),
        (("compile:scale_fp32_256@sm_81",), "did you mean 'compile:scale_fp32_256@sm_80'"),
        (("complie",), "did you mean 'compile'"),
        (("info", "archve:all"), "did you mean 'archive:all'"),
        (("clean", "crat"), "did you mean 'crate'"),
        (("nothing_like_it*",), "matches no task"),
    ],
)
def test_a_wrong_name_is_refused_with_what_comes_near(built: Project, arguments: tuple[str, ...], hint: str) -> None:
    built.doit(*arguments).expect(hint, code=3)


def test_list_and_info(built: Project) -> None:
    built.doit("list").expect("^compile ", "^archive ", "^crate ", "^header ")
    built.doit("list", "--all", "-s").expect("^U compile:scale_fp32_128@sm_80 ", "^U compile:scale_fp32_128 ")
    shown = ("up-to-date", r"scale_fp32_128\.cubin", r"kernels\.yaml:5:3")
    built.doit("info", "compile:scale_fp32_128@sm_80").expect(*shown)
    built.edit("kernels/scale.py", "x * 2", "x * 4")
    built.doit("list", "--all", "-s").expect("^R compile:scale_fp32_128@sm_80 ")
    built.doit("info", "compile:scale_fp32_128@sm_80").expect("closure .*scale_kernel changed", code=1)


def test_listing_writes_nothing(tmp_path: Path) -> None:
    project = Project.create(tmp_path / "scratch")
    project.doit("list", "--all", "-s").expect()
    project.doit("info", "crate").expect(code=1)
    assert not (project.folder / "build").exists()


def test_forget_runs_a_variant_again_and_changes_no_byte(built: Project) -> None:
    before = contents(built)
    built.doit("forget", "compile:scale_fp32_128").expect()
    result = built.doit().expect()
    assert set(result.ran("compile")) == {"scale_fp32_128@sm_80", "scale_fp32_128@gfx942"}
    assert result.counts["built"] == 2, "the same bytes came out, so nothing downstream may run"
    assert contents(built) == before


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("forget", "say what to forget: the names of tasks, or --all"),
        ("dumpdb", "`doit list --all -s` shows what is up"),
    ],
)
def test_a_command_that_needs_more_says_so(built: Project, command: str, message: str) -> None:
    result = built.doit(command).expect(message, code=3)
    assert "Traceback" not in result.output
    assert built.doit().expect().counts["built"] == 0


def test_clean_removes_what_it_names(built: Project) -> None:
    built.doit("clean", "--dry-run", "compile:scale_fp32_128").expect("scale_fp32_128.cubin")
    assert built.doit().expect().counts["built"] == 0
    built.doit("clean", "compile:scale_fp32_128").expect()
    assert not [name for name in built.files("build/images") if "128" in name]
    built.doit("clean").expect()
    assert built.files() == set()
    assert set(built.doit().expect().ran("compile")) == IMAGES


def test_doits_own_options_keep_their_meaning(built: Project) -> None:
    assert built.doit("-n", "1", "-a", "compile:scale_fp32_128@sm_80").expect().counts["built"] == 1
    built.doit("-r", "json", "compile").expect('"name": "compile:scale_fp32_128@sm_80"')
    built.doit("-r", "console", "-a", "crate").expect(r"^\.  crate")
    built.edit("kernels/scale.py", "x * 2", "x.nothing()")
    assert built.doit("-n", "1", "--no-continue").expect(code=1).counts["failed"] == 1


def test_tasks_of_a_users_own_run_beside_kilns(built: Project) -> None:
    """A plain doit task that needs the archive waits for it, runs once, and runs again when the archive changed."""
    task = """

def task_weight():
    return {
        "actions": ["wc -c < build/lib/libscratch.a > size.txt"],
        "file_dep": ["build/lib/libscratch.a"],
        "targets": ["size.txt"],
    }
"""
    built.write("dodo.py", built.read("dodo.py") + task)
    built.doit("weight").expect(r"^\.  weight")
    size = built.read("size.txt")
    built.doit("weight").expect("^-- weight")
    built.edit("kernels.yaml", "[128, 256]", "[128]")
    built.doit("weight").expect(r"^\.  weight")
    assert int(built.read("size.txt")) < int(size)


def test_the_callers_environment_changes_no_byte(built: Project) -> None:
    before = contents(built)
    hostile = {
        "TRITON_PTXAS_PATH": "/nowhere/ptxas",
        "PTXAS_OPTIONS": "--opt-level 0",
        "DISABLE_PTXAS_OPT": "1",
        "TRITON_DISABLE_LINE_INFO": "0",
        "TRITON_INTERPRET": "1",
        "TRITON_CACHE_DIR": str(built.folder / "cache"),
        "AMDGCN_USE_BUFFER_OPS": "0",
        "LD_PRELOAD": "/nowhere/lib.so",
        "PYTHONHASHSEED": "7",
        "LC_ALL": "tr_TR.UTF-8",
        "TZ": "Pacific/Apia",
        "SOURCE_DATE_EPOCH": "1",
        "HOME": "/nowhere",
    }
    built.doit("-a", **hostile).expect(r"0 failed")
    assert contents(built) == before
    assert not (built.folder / "cache").exists()


def test_the_place_of_the_project_changes_no_byte(built: Project, tmp_path: Path) -> None:
    elsewhere = Project.create(tmp_path / "a b ü" / "scratch", manifest=built.read("kernels.yaml"))
    elsewhere.doit().expect()
    assert contents(elsewhere) == contents(built)


def test_killed_at_any_instant_the_next_build_ends_the_same(built: Project, tmp_path: Path) -> None:
    """kill -9 at several moments: no process stays, what was finished is kept, and the result is a clean build's."""
    project = Project.create(tmp_path / "killed")
    kept: list[int] = []
    for delay in (0.3, 0.7, 1.0, 1.3, 1.6):
        process = start(project)
        time.sleep(delay)
        process.kill()
        process.wait()
        assert not processes_left_in(project.folder)
        kept.append(len(project.files("build/images")) if (project.folder / "build/images").exists() else 0)
    assert kept == sorted(kept)
    result = project.doit().expect()
    assert result.counts["built"] + result.counts["up to date"] == built.doit().counts["up to date"]
    assert contents(project) == contents(built)
    assert not (project.folder / "build/.kiln/tmp").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    project = Project.create(tmp_path / "scratch")
    process = start(project)
    deadline = time.monotonic() + 20
    while not (project.folder / "build/.kiln/tmp").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    assert process.wait(timeout=20) != 0
    assert not processes_left_in(project.folder)
    assert not (project.folder / "build/.kiln/tmp").exists()
    project.doit().expect("0 failed")


def test_a_second_build_waits_for_the_first(built: Project) -> None:
    built.edit("kernels/scale.py", "x * 2", "x * 5")
    first = start(built)
    deadline = time.monotonic() + 20
    while not (built.folder / "build/.kiln/tmp").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    second = built.doit().expect("another build is running", f"process {first.pid}", r"^0 built")
    assert first.wait(timeout=60) == 0
    assert second.counts["built"] == 0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("blocks:", "blokcs:", r"kernels\.yaml:9:5: .*blokcs"),
        ("[sm_80, gfx942]", "[sm_80, gfx924]", r"kernels\.yaml:3:18: unknown target 'gfx924'"),
        ("[sm_80, gfx942]", "[sm_90]", r"kernels\.yaml:3:11: the kernel scale .* cannot be built for sm_90"),
        ("[sm_80, gfx942]", "[gfx1030]", r"kernels\.yaml:3:11: the kernel scale cannot be built for gfx1030: Triton"),
    ],
)
def test_a_wrong_manifest_stops_everything_before_it_starts(built: Project, old: str, new: str, message: str) -> None:
    before = contents(built)
    built.edit("kernels.yaml", old, new)
    built.doit().expect(message, "remedy: ", code=3)
    built.doit("list").expect(message, code=3)
    assert contents(built) == before


def test_a_lost_state_leaves_no_file_of_what_is_gone(built: Project) -> None:
    (built.folder / "build/.kiln/state.sqlite").unlink()
    built.edit("kernels.yaml", "[128, 256]", "[128]")
    built.doit().expect("0 failed")
    assert not [name for name in built.files() if "_256" in name]


def test_a_damaged_image_with_its_old_time_stamp_is_noticed(built: Project) -> None:
    """As rsync or cp would leave it: size and time stamp are the old ones, and the bytes are not."""
    image = built.folder / "build/images/sm_80/scale_fp32_128.cubin"
    stat = image.stat()
    data = image.read_bytes()
    image.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(image, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert built.doit().expect().ran("compile") == ["scale_fp32_128@sm_80"]
    assert image.read_bytes() == data


def test_separators_that_end_no_line_of_python_change_no_image(built: Project) -> None:
    """str.splitlines() takes a form feed or U+2028 for a line's end, Python does not: the right lines are compiled."""
    before = contents(built)
    other = "@triton.jit\ndef other(x):\n    # \x0c \u2028 \x85\n    return x * 3\n\n\n"
    source = KERNEL.replace("@triton.jit", other + "@triton.jit").replace("    mask =", "    # \x0c\n    mask =")
    built.write("kernels/scale.py", source.replace("\n\n\n@triton", "\n\x0c\n@triton"))
    built.doit("forget", "compile").expect()
    assert set(built.doit().expect().ran("compile")) == IMAGES
    assert contents(built) == before


def test_a_triton_folder_of_the_project_is_none_of_the_builds(built: Project) -> None:
    built.write("triton/__init__.py", "raise RuntimeError('not this one')")
    built.edit("kernels/scale.py", "x * 2", "x * 9")
    assert set(built.doit().expect().ran("compile")) == IMAGES


def test_an_edited_rule_runs_its_steps_and_no_others(built: Project) -> None:
    rule = """

from kiln.doit_plugin.rules import rule
from kiln.engine.step import Call, Step


@rule("weight")
def weight(library):
    \"\"\"how large the archive is\"\"\"
    return Step(
        after=("archive:all",),
        inputs=lambda: {"archive": library.outputs(["archive:all"])},
        call=lambda: Call(
            function="kiln.package_jobs:archive",
            arguments={
                "members": [("one.o", library.build / "objects/registry.o")],
                "ar": library.host_tools.ar,
                "output": NAME,
            },
        ),
        outputs=(NAME,),
    )


NAME = "extra/one.a"
"""
    built.write("dodo.py", built.read("dodo.py") + rule)
    assert built.doit().expect("weight").counts["built"] == 1
    built.edit("dodo.py", "NAME = ", "# where it goes\nNAME = ")
    assert built.doit().expect().counts["built"] == 0
    built.edit("dodo.py", '("one.o"', '("two.o"')
    assert built.doit().expect().counts["built"] == 1
    built.edit("dodo.py", "extra/one.a", "extra/two.a")
    assert built.doit().expect().counts["built"] == 1
    assert {name for name in built.files() if name.startswith("extra/")} == {"extra/two.a"}


def test_a_fault_in_one_rule_costs_its_steps_only(built: Project) -> None:
    broken = """

from kiln.doit_plugin.rules import rule
from kiln.engine.step import Step


@rule("broken")
def broken(library):
    \"\"\"a rule with a fault\"\"\"
    return Step(inputs=lambda: {"x": 1 / 0}, call=lambda: None, outputs=("x",))
"""
    built.write("dodo.py", built.read("dodo.py") + broken)
    built.edit("kernels/scale.py", "x * 2", "x * 7")
    result = built.doit().expect("FAILED broken", "ZeroDivisionError", r"dodo\.py", "1 failed", code=1)
    assert set(result.ran("compile")) == IMAGES
    built.doit("list", "-s").expect("^R broken")


def test_clean_waits_for_a_build(built: Project) -> None:
    built.edit("kernels/scale.py", "x * 2", "x * 5")
    first = start(built)
    deadline = time.monotonic() + 20
    while not (built.folder / "build/.kiln/tmp").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    built.doit("clean").expect("another build is running", f"process {first.pid}")
    assert first.wait(timeout=60) == 0
    assert built.files() == set()


def test_an_option_that_the_target_cannot_serve_is_refused_where_it_stands(built: Project) -> None:
    built.edit("kernels.yaml", "    grid:", "    options: {num_ctas: 2}\n    grid:")
    built.doit("compile").expect(r"kernels\.yaml:13:15: scale_fp32_128 cannot be built for sm_80: .*clusters", code=3)


def test_what_a_kernel_prints_is_no_error_of_the_compiler(built: Project) -> None:
    built.edit("kernels/scale.py", "    mask =", '    tl.static_print("relative error: small")\n    mask =')
    built.doit("compile").expect("0 failed")
    built.doit("-a", "-v", "2", "compile:scale_fp32_128@sm_80").expect("relative error: small")


def test_a_users_task_that_fails_is_in_the_summary(built: Project) -> None:
    task = """

def task_mine():
    return {"actions": ["false"]}
"""
    built.write("dodo.py", built.read("dodo.py") + task)
    built.doit().expect(r"0 failed, 1 other tasks failed \(mine\)", code=1)


def test_the_same_fault_of_many_variants_is_shown_once(built: Project) -> None:
    built.edit("kernels.yaml", "*{dtype}:16, i32", "*{dtype}:16")
    result = built.doit("compile").expect("is also that of", "4 failed", code=1)
    assert result.output.count("FAILED") == 1


def test_doit_without_kilns_settings_says_so(built: Project) -> None:
    """From another folder doit reads none of the project's settings, and its own loader would do nothing, silently."""
    (built.folder / "elsewhere").mkdir()
    elsewhere = Project(folder=built.folder / "elsewhere")
    elsewhere.doit("-f", "../dodo.py").expect("^ERROR: doit runs without Kiln's loader", "own folder", code=3)


def test_a_number_of_jobs_below_one_is_refused(built: Project) -> None:
    built.doit("-n", "0").expect("1 or more", code=3)


def test_a_failed_step_leaves_what_stands_after_it_alone(built: Project) -> None:
    """`forget` makes a step stale, not its successors: whether they run shows when it has run."""
    built.doit("forget", "compile:scale_fp32_128").expect()
    built.doit("list", "--all", "-s").expect(
        "^R compile:scale_fp32_128@sm_80", "^U objcopy:scale_fp32_128@sm_80", "^U crate"
    )


def start(project: Project) -> subprocess.Popen[bytes]:
    """Start a build and return at once."""
    return subprocess.Popen(
        [sys.executable, "-m", "doit"],
        cwd=project.folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "tools")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # A shell that runs the tests in the background has them ignore Ctrl-C, and what they start would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def processes_left_in(folder: Path) -> list[int]:
    """Those that do not end within seconds: a fork server that is just starting notices late that it is alone."""
    deadline = time.monotonic() + 10
    while processes_in(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    return processes_in(folder)


def processes_in(folder: Path) -> list[int]:
    """Processes whose working folder lies in `folder`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                place = (entry / "cwd").readlink()
            except OSError:
                continue
            if place == folder or folder in place.parents:
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize(("closed", "option"), [(">&-", "-v1"), ("<&- >&- 2>&-", "-v1"), (">&- 2>&-", "--json")])
def test_closed_streams_keep_nothing_from_being_built(built: Project, closed: str, option: str) -> None:
    (built.folder / "build/reports/sm_80/scale_fp32_128.json").unlink()
    built.edit("kernels/scale.py", "x * 2", "x * 2 + 1")
    subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "doit", option, "validate"],
        cwd=built.folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "tools"), "KILN_CACHE": "off"},
        check=True,
        timeout=300,
    )
    assert built.doit("validate").expect().counts["built"] == 0


def test_what_a_users_task_depends_on_is_there_whatever_is_selected(built: Project) -> None:
    own = """

        def task_publish():
            return {"actions": ["true"], "task_dep": ["archive:all", "compile"], "verbosity": 0}


        def task_put():
            return {"actions": ["true"], "setup": ["header:c"], "verbosity": 0}
        """
    built.write("dodo.py", f"{built.read('dodo.py')}\n{textwrap.dedent(own)}")
    (built.folder / "build/reports/sm_80/scale_fp32_128.json").unlink()
    assert built.doit("validate").expect().counts == {"built": 1, "up to date": 7, "failed": 0}
    built.doit("-s", "objcopy:scale_fp32_128").expect()
    (built.folder / "build/include/scratch/scratch.h").unlink()
    assert built.doit("put").expect().counts == {"built": 1, "up to date": 8, "failed": 0}

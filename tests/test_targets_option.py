"""`doit --targets`: a library for some of its targets, in a folder of its own or in place of the whole one."""

from __future__ import annotations

from project import Project


def test_nothing_is_said_or_made_of_another_target(built: Project) -> None:
    built.doit("--targets", "gfx942", "--build-dir", "small", "cmake").expect("^1 built", " 0 failed")
    assert "sm_80" not in built.read("small/lib/cmake/scratch/scratchTargets.cmake")
    listed = built.doit("list", "--all", "--targets", "gfx942").expect("compile:scale_fp32_128@gfx942").output
    assert "sm_80" not in listed
    # What this option says is part of what the next build goes by.
    built.doit("--targets", "gfx942", "--build-dir", "small", "cmake").expect("^0 built, 1 up to date")
    built.doit("--targets", "sm_80", "--build-dir", "small", "cmake").expect("^1 built")


def test_the_same_folder_follows_what_is_asked(built: Project) -> None:
    whole = {name: (built.folder / "build" / name).read_bytes() for name in built.files()}
    built.doit("--targets", "sm_80").expect("0 failed")
    assert not [name for name in built.files() if "gfx942" in name]
    assert "gfx942" not in built.read("build/include/scratch/scratch.h")
    assert sorted(built.doit().expect("0 failed").ran("compile")) == ["scale_fp32_128@gfx942", "scale_fp32_256@gfx942"]
    assert {name: (built.folder / "build" / name).read_bytes() for name in built.files()} == whole


def test_a_name_that_is_no_target_is_refused(built: Project) -> None:
    before = built.files()
    built.doit("--targets", "gfx94").expect("--targets: .* 'gfx94'", "did you mean 'gfx942'", code=3)
    built.doit("--targets", "sm_80,").expect("a target without a name", code=3)
    assert built.files() == before

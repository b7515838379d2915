"""Each fault is found, named by field, expected and actual; a right image passes every check."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from binaries_images import USER_SIZES, Built, expected

from kiln.binaries.checks import Finding, check_clean, check_image, check_limits, natural_offsets, require
from kiln.binaries.facts import Facts
from kiln.errors import ImageError
from kiln.toolchain.targets import TARGETS

RELEASED = ["sm_80", "sm_90a", "sm_120a", "compute_80", "gfx942", "gfx1100"]


def one(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, findings
    return findings[0]


def parameter_changed(facts: Facts, index: int, **changes: Any) -> Facts:
    parameters = list(facts.parameters)
    parameters[index] = replace(parameters[index], **changes)
    return replace(facts, parameters=tuple(parameters))


@pytest.mark.parametrize("name", RELEASED)
def test_a_right_image_passes_every_check(images: dict[str, Built], name: str) -> None:
    built = images[name]
    assert check_image(built.facts, expected(name)) == []
    assert check_limits(built.facts, TARGETS[name]) == []
    assert check_clean(built.data, built.kind) == []


@pytest.mark.parametrize(
    ("name", "target", "wanted", "actual"),
    [
        ("sm_80", "sm_86", "sm_86", "sm_80"),
        ("sm_90a", "sm_120a", "sm_120a", "sm_90a"),
        ("gfx942", "gfx950", "gfx950", "gfx942"),
        ("xnack", "gfx942", "gfx942", "gfx942:xnack-"),
        ("compute_80", "compute_89", "compute_89", "compute_80"),
    ],
)
def test_wrong_architecture(images: dict[str, Built], name: str, target: str, wanted: str, actual: str) -> None:
    finding = one(check_image(images[name].facts, expected(target)))
    assert (finding.field, finding.expected, finding.actual) == ("arch", wanted, actual)


def test_the_suffix_is_part_of_the_architecture(images: dict[str, Built]) -> None:
    finding = one(check_image(replace(images["sm_90a"].facts, arch="sm_90"), expected("sm_90a")))
    assert (finding.field, finding.expected, finding.actual) == ("arch", "sm_90a", "sm_90")


def test_wrong_kind(images: dict[str, Built]) -> None:
    fields = {finding.field for finding in check_image(images["compute_80"].facts, expected("sm_80"))}
    assert fields == {"kind", "arch"}


@pytest.mark.parametrize("name", RELEASED)
def test_wrong_entry(images: dict[str, Built], name: str) -> None:
    finding = one(check_image(images[name].facts, expected(name, entry="softmax")))
    assert (finding.field, finding.expected, finding.actual) == ("entry", "softmax", "softmax_kernel")


@pytest.mark.parametrize("name", RELEASED)
def test_a_parameter_of_another_size_than_declared(images: dict[str, Built], name: str) -> None:
    """i64 declared where the kernel takes i32: its size is wrong, and what follows lies elsewhere."""
    findings = check_image(images[name].facts, expected(name, parameters=(8, 8, 4, 8, 4)))
    assert (findings[0].field, findings[0].expected, findings[0].actual) == ("parameters[3].size", "8 bytes", "4 bytes")
    assert ("parameters[3].offset", "24", "20") in {
        (finding.field, finding.expected, finding.actual) for finding in findings
    }


@pytest.mark.parametrize("name", ["sm_90a", "compute_80", "gfx942"])
def test_another_number_of_parameters_than_declared(images: dict[str, Built], name: str) -> None:
    findings = check_image(images[name].facts, expected(name, parameters=(*USER_SIZES, 4)))
    assert (findings[0].field, findings[0].expected, findings[0].actual) == ("parameters", "6 from the signature", "5")


@pytest.mark.parametrize("name", ["sm_90a", "gfx942"])
def test_scratch_pointers_are_checked_too(images: dict[str, Built], name: str) -> None:
    finding = one(check_image(parameter_changed(images[name].facts, 6, offset=44), expected(name)))
    assert finding.field == "parameters[6] (profile_scratch).offset"
    assert (finding.expected, finding.actual) == ("40", "44")


@pytest.mark.parametrize(
    ("name", "size", "passes"),
    [("sm_90a", 48, True), ("sm_90a", 44, False), ("sm_90a", 56, False), ("gfx942", 56, True), ("gfx942", 44, False)],
)
def test_size_of_the_parameter_buffer(images: dict[str, Built], name: str, size: int, passes: bool) -> None:
    findings = check_image(replace(images[name].facts, parameter_bytes=size), expected(name))
    assert [finding.field for finding in findings] == ([] if passes else ["parameter_bytes"])


@pytest.mark.parametrize("name", ["sm_80", "compute_80"])
def test_threads_must_be_warps_times_warp_size(images: dict[str, Built], name: str) -> None:
    finding = one(check_image(replace(images[name].facts, warps=8), expected(name)))
    assert (finding.field, finding.expected, finding.actual) == ("threads", "256: 8 warps of 32", "128")


def test_warps_may_be_added_but_not_taken_away(images: dict[str, Built]) -> None:
    facts = images["sm_90a"].facts
    assert check_image(replace(facts, warps=8, threads=256), expected("sm_90a", warps=4)) == []
    finding = one(check_image(facts, expected("sm_90a", warps=8)))
    assert (finding.field, finding.expected, finding.actual) == ("warps", "at least 8", "4")


def test_wrong_warp_size(images: dict[str, Built]) -> None:
    finding = one(check_image(replace(images["gfx942"].facts, warp_size=32, warps=8), expected("gfx942")))
    assert (finding.field, finding.expected, finding.actual) == ("warp_size", "64 on gfx942", "32")


def test_2048_threads_on_nvidia(images: dict[str, Built]) -> None:
    """num_warps=64 compiles without a word, for a block that no GPU can run."""
    facts = images["threads"].facts
    assert check_image(facts, expected("sm_80", warps=64)) == []
    finding = one(check_limits(facts, TARGETS["sm_80"]))
    assert (finding.field, finding.expected, finding.actual) == ("threads", "at most 1024 on sm_80", "2048")
    assert finding.remedy == "lower num_warps to 32 or less"


def test_2048_threads_on_amd(images: dict[str, Built]) -> None:
    """LLVM caps what the image demands, so the two ends do not meet."""
    finding = one(check_image(images["threads_amd"].facts, expected("gfx942", warps=32)))
    assert (finding.field, finding.expected, finding.actual) == ("threads", "2048: 32 warps of 64", "1024")
    assert finding.remedy == "lower num_warps to 16 or less"


@pytest.mark.parametrize(
    ("name", "limit"),
    [("sm_80", 166912), ("sm_90a", 232448), ("sm_120a", 101376), ("compute_80", 166912), ("gfx942", 65536)],
)
def test_240_kib_of_shared_memory(images: dict[str, Built], name: str, limit: int) -> None:
    """Static and dynamic count together, to the byte."""
    facts = images[name].facts
    finding = one(check_limits(replace(facts, shared_dynamic=240 * 1024), TARGETS[name]))
    assert finding.field == "shared_static + shared_dynamic"
    assert finding.expected == f"at most {limit} bytes on {name}"
    assert finding.actual == "245760 bytes: 0 static and 245760 dynamic"
    assert check_limits(replace(facts, shared_static=512, shared_dynamic=limit - 512), TARGETS[name]) == []
    assert check_limits(replace(facts, shared_static=512, shared_dynamic=limit - 511), TARGETS[name]) != []


@pytest.mark.parametrize(
    ("registers", "threads", "launches"),
    [
        (64, 1024, True),
        (65, 896, True),
        (65, 992, False),
        (72, 896, True),
        (73, 800, False),
        (80, 768, True),
        (129, 384, True),
        (129, 480, False),
        (168, 384, True),
        (169, 384, False),
    ],
)
def test_registers_as_an_h200_deals_them_out(
    images: dict[str, Built], registers: int, threads: int, launches: bool
) -> None:
    """Each row is a launch that an H200 accepted or refused; 73 x 800 would fit if only the product counted."""
    facts = replace(images["sm_90a"].facts, registers=registers, threads=threads, warps=threads // 32)
    findings = check_limits(facts, TARGETS["sm_90a"])
    assert [finding.field for finding in findings] == ([] if launches else ["registers"])


@pytest.mark.parametrize("name", ["lines_sm_90a", "lines_sm_120a", "lines_compute_80", "lines_gfx942"])
def test_line_info_is_not_clean(images: dict[str, Built], name: str) -> None:
    """A build with line info holds debug sections, and the folder that the kernel was compiled in."""
    built = images[name]
    debug, paths = check_clean(built.data, built.kind)
    assert (debug.field, paths.field) == ("debug", "paths")
    assert ".debug_frame" not in debug.actual.split(", ")
    assert "/kernels" in paths.actual


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/home/jürgen/kernels/a.py", "/home/jürgen/kernels/a.py"),
        ("C:\\Users\\someone\\a.cu", "C:\\Users\\someone\\a.cu"),
        ("-O2 -I/opt/some/include", "/opt/some/include"),
        ("see https://example.org/some/page", None),
        ("lib/some/file.py and 1/2 and a//b", None),
        ("/<kiln>/kernels/softmax.py", None),
    ],
)
def test_what_counts_as_a_path(images: dict[str, Built], text: str, found: str | None) -> None:
    ptx = images["compute_80"].data + f"// {text}\n}}".encode()
    findings = check_clean(ptx, "ptx")
    assert [finding.actual for finding in findings] == ([] if found is None else [found])


def test_a_path_that_is_no_utf8_is_found_all_the_same(images: dict[str, Built]) -> None:
    """Binary data may stand right behind a path."""
    data = images["sm_90a"].data
    place = data.index(b"Build cuda_")
    data = data[:place] + b"/opt/\xed\xa0\x80z" + data[place + 9 :]
    (finding,) = check_clean(data, "cubin")
    assert finding.field == "paths"
    assert finding.actual.startswith("/opt/")


def test_offsets_follow_alignment() -> None:
    assert natural_offsets((1, 8, 2, 1, 4, 8)) == (0, 8, 16, 18, 20, 24)
    assert natural_offsets(()) == ()


def test_require_tells_all_findings_at_once(images: dict[str, Built]) -> None:
    facts = replace(images["sm_80"].facts, entry="other", shared_dynamic=240 * 1024)
    wanted = expected("sm_80")
    findings = check_image(facts, wanted) + check_limits(facts, wanted.target)
    with pytest.raises(ImageError) as caught:
        require(findings, wanted.image_id)
    text = str(caught.value)
    assert text.startswith("softmax_fp16_2048@sm_80: 2 checks failed\n")
    for words in ("entry: ", "expected: softmax_kernel", "actual: other", "245760 bytes", "at most 166912", "remedy: "):
        assert words in text


def test_require_with_one_finding_or_none(images: dict[str, Built]) -> None:
    facts = replace(images["sm_80"].facts, entry="other")
    with pytest.raises(ImageError) as caught:
        require(check_image(facts, expected("sm_80")), "softmax_fp16_2048@sm_80")
    assert (caught.value.expected, caught.value.actual) == ("softmax_kernel", "other")
    assert str(caught.value).startswith("softmax_fp16_2048@sm_80: entry: the image's kernel has another name\n")
    require([], "softmax_fp16_2048@sm_80")

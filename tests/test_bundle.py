"""`bundle: fatbin` through the whole build: fat binaries, what is stale when, archives, a program that links them."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from c_doubles import Doubles
from kiln.binaries.fatbin import Part, check_fatbin, read_fatbin
from kiln.binaries.host_object import read_host_object
from kiln.packaging.archive import read_archive
from kiln.toolchain.nvcc import find_fatbinary
from project import MANIFEST, Project

TARGETS = ("sm_80", "sm_90a", "compute_80", "gfx942")
NVIDIA = TARGETS[:3]
BUNDLED = MANIFEST.replace(
    "targets: [sm_80, gfx942]\n",
    f"targets: [{', '.join(TARGETS)}]\nbundle: fatbin\nonnxruntime: {{target: fatbin}}\n",
).replace("blocks: [128, 256]", "blocks: [128]")
FATBIN = "build/bundles/scale_fp32_128.fatbin"

PROGRAM = """\
#include <scratch/scratch.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    static const char *(*asked)(void);
    const struct scratch_variant *variant = &scratch_scale_fp32_128__variant;
    const unsigned char *bundle = scratch_variant_bundle(variant);
    const struct scratch_scale_fp32_128_args args = { .n_elements = 0x1000 };
    uint64_t size = 0;
    if (bundle != NULL) memcpy(&size, bundle + 8, sizeof size);
    for (uint32_t i = 0; i < variant->image_count; i++) {
        const struct scratch_image *image = scratch_variant_images(variant)[i];
        if (image == NULL) continue;
        const unsigned char *data = scratch_image_data(image);
        printf("%s whole %d within %d\\n", scratch_image_target(image), scratch_image_verify(image),
               bundle != NULL && data > bundle && data < bundle + size);
    }
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY), *found, *context;
    int (*retain)(void **, int), (*use)(void *);
    memcpy(&retain, (found = dlsym(driver, "cuDevicePrimaryCtxRetain"), &found), sizeof found);
    memcpy(&use, (found = dlsym(driver, "cuCtxSetCurrent"), &found), sizeof found);
    memcpy(&asked, (found = dlsym(driver, "double_asked"), &found), sizeof found);
    retain(&context, 0);
    use(context);
    printf("launch %d\\n", scratch_launch_variant(variant, &args, NULL));
    const char *loaded = strstr(asked(), "load ");
    printf("loaded %s\\n", memcmp(loaded + 5, "P\\xed\\x55\\xba", 4) == 0 ? "a fat binary" : "an image");
    return 0;
}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project.create(tmp_path_factory.mktemp("bundle") / "scratch", manifest=BUNDLED)
    project.doit().expect("0 failed")
    return project


@pytest.fixture
def project(built: Project, tmp_path: Path) -> Project:
    shutil.copytree(built.folder, tmp_path / "copy", symlinks=True)
    return Project(folder=tmp_path / "copy")


def image(project: Project, target: str) -> bytes:
    suffix = {"sm": "cubin", "compute": "ptx"}[target.partition("_")[0]]
    return (project.folder / f"build/images/{target}/scale_fp32_128.{suffix}").read_bytes()


def test_a_fat_binary_has_the_images_for_nvidia(built: Project) -> None:
    entries = read_fatbin((built.folder / FATBIN).read_bytes())
    assert check_fatbin(entries, [Part(target=target, data=image(built, target)) for target in NVIDIA]) == []


def test_an_archive_has_it_in_the_place_of_images(built: Project) -> None:
    """Of the whole library; a PTX is there as it is besides, and one target's archive is as without fat binaries."""
    members, _ = read_archive((built.folder / "build/lib/libscratch.a").read_bytes())
    data = {member.name: member.data for member in members if member.name.endswith(".data.o")}
    assert list(data) == [
        "scale_fp32_128__fatbin.data.o",
        "scale_fp32_128__compute_80.data.o",
        "scale_fp32_128__gfx942.data.o",
    ]
    bundle = read_host_object(data["scale_fp32_128__fatbin.data.o"])
    (section,) = bundle.sections
    assert section.data == (built.folder / FATBIN).read_bytes() and section.alignment == 64
    places = {symbol.name.removeprefix("scratch_scale_fp32_128__"): symbol.value for symbol in bundle.symbols}
    # For the crate with link-static, an image's content is in the name.
    digests = {target: hashlib.sha256(image(built, target)).hexdigest()[:16] for target in NVIDIA[:2]}
    assert places.keys() == {
        *(f"{what}_data{end}" for what in ("fatbin", *digests) for end in ("", "_end")),
        *(f"{target}_data_{digest}" for target, digest in digests.items()),
    }
    for target, digest in digests.items():
        assert places[f"{target}_data_{digest}"] == places[f"{target}_data"]
        assert section.data[places[f"{target}_data"] : places[f"{target}_data_end"]] == image(built, target)
    members, _ = read_archive((built.folder / "build/lib/libscratch_sm_90a.a").read_bytes())
    names = [member.name for member in members if member.name.endswith(".data.o")]
    assert names == ["scale_fp32_128__sm_90a.data.o"]


def test_one_header_for_onnx_runtime_serves_all_targets(built: Project) -> None:
    text = built.read("build/onnxruntime/triton_kernel_infos.h")
    assert '{ "_binary_scale_fp32_128_fatbin_start", "scale_kernel", "scale_fp32", "scale_fp32_128", 4, 0, ' in text
    assert "Made by Kiln of the library scratch, in fat binaries" in text
    ((member,), _) = read_archive((built.folder / "build/onnxruntime/triton_kernel_infos.a").read_bytes())
    made = read_host_object(member.data)
    assert {symbol.name for symbol in made.symbols} == {
        "_binary_scale_fp32_128_fatbin_start",
        "_binary_scale_fp32_128_fatbin_end",
    }
    assert made.sections[0].data == (built.folder / FATBIN).read_bytes()


@pytest.mark.parametrize(
    ("archive", "said"),
    [
        (
            "scratch",
            [
                "sm_80 whole 1 within 1",
                "sm_90a whole 1 within 1",
                "compute_80 whole 1 within 0",
                "gfx942 whole 1 within 0",
                "launch 0",
                "loaded a fat binary",
            ],
        ),
        ("scratch_sm_90a", ["sm_90a whole 1 within 0", "launch 0", "loaded an image"]),
    ],
)
@pytest.mark.parametrize("flags", [("-no-pie", "-fno-pie"), ("-pie", "-fPIE")])
def test_a_program_links_it(
    built: Project, tmp_path: Path, doubles: Doubles, archive: str, said: list[str], flags: tuple[str, ...]
) -> None:
    """And launches it; the data of each record is whole, wherever it lies."""
    (tmp_path / "main.c").write_text(PROGRAM)
    build = built.folder / "build"
    command = ["gcc", "-std=gnu11", *flags, "-I", build / "include", tmp_path / "main.c", "-L", build / "lib"]
    subprocess.run([*map(str, command), f"-l{archive}", "-ldl", "-lpthread", "-o", str(tmp_path / "main")], check=True)
    done = doubles.run("cuda", tmp_path / "main")
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (0, said, "")


def test_what_is_stale_when(project: Project) -> None:
    """Fat binaries follow images, and nothing else follows whether there are any."""
    assert project.doit().expect().counts["built"] == 0
    before = (project.folder / FATBIN).read_bytes()
    # A kernel's own word goes before the library's. Packages are made anew, and images are not.
    project.edit("kernels.yaml", "onnxruntime: {target: fatbin}\n", "")
    project.edit("kernels.yaml", "    grid:", "    bundle: separate\n    grid:")
    project.doit("explain", "variants").expect("which variants have a fat binary")
    done = project.doit().expect("0 failed")
    assert not done.ran("compile") and not done.ran("objcopy") and not done.ran("record")
    assert done.ran("bundle") == []
    assert not any("fatbin" in name for name in project.files())
    members, _ = read_archive((project.folder / "build/lib/libscratch.a").read_bytes())
    assert "scale_fp32_128__sm_80.data.o" in [member.name for member in members]
    # With the library's word gone as well, all is as it is.
    project.edit("kernels.yaml", "    bundle: separate\n", "")
    project.edit("kernels.yaml", "bundle: fatbin\n", "")
    assert "bundle" not in project.doit("list").expect().output
    assert project.doit().expect().counts["built"] == 0
    # Another image is another fat binary.
    project.edit(
        "kernels.yaml", "library: scratch\n", "library: scratch\nbundle: fatbin\nonnxruntime: {target: fatbin}\n"
    )
    project.edit("kernels/scale.py", "x * 2", "x * 3")
    done = project.doit("bundle", "header:onnxruntime").expect("0 failed")
    assert done.ran("compile") and done.ran("bundle") == ["scale_fp32_128"] and done.ran("header") == ["onnxruntime"]
    assert (project.folder / FATBIN).read_bytes() != before


def test_the_same_bytes_in_another_place(built: Project, tmp_path: Path) -> None:
    """Fat binary, object and what ONNX Runtime gets, by a build elsewhere with images from nowhere else."""
    other = Project.create(tmp_path / "somewhere else" / "scratch", manifest=BUNDLED)
    other.doit("bundle", "header:onnxruntime").expect("0 failed")
    for name in (FATBIN, "build/objects/scale_fp32_128__fatbin.data.o", "build/onnxruntime/triton_kernel_infos.a"):
        data = (other.folder / name).read_bytes()
        assert data == (built.folder / name).read_bytes(), name
        assert str(tmp_path).encode() not in data


# -- refused before anything is built


def refused(tmp_path: Path, old: str, new: str, **environment: str) -> str:
    project = Project.create(tmp_path / "scratch", manifest=BUNDLED.replace(old, new))
    done = project.doit("list", **environment)
    print(done.output)
    assert done.code == 3
    return done.output


def test_a_program_that_is_missing(tmp_path: Path) -> None:
    toolkit = tmp_path / "cuda" / "bin"
    toolkit.mkdir(parents=True)
    (toolkit / "nvcc").write_text("#!/bin/sh\n")
    (toolkit / "nvcc").chmod(0o755)
    lacking = refused(tmp_path / "a", "", "", CUDA_HOME=str(tmp_path / "cuda"))
    assert "kernels.yaml:4:9: the CUDA toolkit around nvcc lacks fatbinary, which makes fat binaries" in lacking
    assert "remedy: set CUDA_HOME to the folder of a whole CUDA toolkit; or write `bundle: separate`" in lacking


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("targets: [sm_80, sm_90a, compute_80, gfx942]", "targets: [gfx942]", "4:9: the library has fat binaries, and"),
        ("bundle: fatbin\n", "", "4:23: `onnxruntime.target` is fatbin, and no kernel's images are bundled"),
        ("bundle: fatbin", "bundle: fatbim", "4:9: "),
    ],
)
def test_what_makes_no_sense(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert f"kernels.yaml:{said}" in refused(tmp_path, old, new)


def test_a_kernel_without_a_target_of_nvidia(tmp_path: Path) -> None:
    manifest = MANIFEST.replace("[sm_80, gfx942]", "[gfx942]").replace("    grid:", "    bundle: fatbin\n    grid:")
    done = Project.create(tmp_path / "scratch", manifest=manifest).doit("list").expect(code=3)
    print(done.output)
    assert "kernels.yaml:13:5: the kernel scale has fat binaries, and nothing to put into one" in done.output


def test_a_kernel_for_onnx_runtime_has_to_be_bundled(tmp_path: Path) -> None:
    manifest = BUNDLED.replace("fatbin}\n", "fatbin, kernels: [scale, other]}\n")
    kernel = manifest[manifest.index("  scale:") :].replace("scale_", "other_").replace("  scale:", "  other:")
    kernel = kernel.replace("function: other_kernel", "function: scale_kernel").replace(
        "grid:", "bundle: separate\n    grid:"
    )
    project = Project.create(tmp_path / "scratch", manifest=manifest + kernel)
    done = project.doit("list").expect(code=3)
    print(done.output)
    assert "kernels.yaml:5:48: `onnxruntime.kernels` holds 'other', whose images are not bundled" in done.output


def test_targets_are_narrowed(project: Project) -> None:
    """What a build leaves out is in no fat binary; without any for NVIDIA there is none, nor a header that names it."""
    done = project.doit("--targets", "sm_90a,gfx942", "bundle").expect("0 failed")
    assert done.ran("compile") == [] and done.ran("bundle") == ["scale_fp32_128"]
    data = (project.folder / FATBIN).read_bytes()
    assert [entry.arch for entry in read_fatbin(data)] == ["sm_90a"]
    project.doit("--targets", "gfx942").expect("0 failed")
    assert not any("fatbin" in name or "onnxruntime" in name for name in project.files())


def test_the_program_is_known_by_its_content(project: Project, tmp_path: Path) -> None:
    """Another fatbinary makes fat binaries anew, and nothing else where its bytes are the same."""
    toolkit = tmp_path / "cuda" / "bin"
    toolkit.mkdir(parents=True)
    (toolkit / "nvcc").write_text("#!/bin/sh\n")
    (toolkit / "nvcc").chmod(0o755)
    shutil.copy(find_fatbinary(), toolkit / "fatbinary")
    with (toolkit / "fatbinary").open("ab") as file:
        file.write(b"\0")
    done = project.doit(CUDA_HOME=str(tmp_path / "cuda")).expect("0 failed")
    assert done.counts["built"] == 1 and done.ran("bundle") == ["scale_fp32_128"]

"""The word native: the targets of this machine's GPUs, asked of a driver that a test compiles and of a topology.

The driver is a libcuda.so.1 in C with the calls that Kiln makes, found in front of a real one through LD_LIBRARY_PATH.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kiln.errors import ManifestError, Position
from kiln.toolchain import native
from kiln.toolchain.native import native_targets
from kiln.toolchain.targets import TARGETS
from project import MANIFEST, Project

HERE = Position(file="kernels.yaml", line=3, column=10)

DRIVER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* GPUS: name/major/minor, with commas between. INIT: what cuInit returns, "crash" or "hang". */
static int field(int device, int index, char *out) {
    char text[1024];
    snprintf(text, sizeof text, "%s", getenv("GPUS") ? getenv("GPUS") : "");
    char *rest = text, *gpu = NULL;
    for (int i = 0; i <= device; ++i) gpu = strsep(&rest, ",");
    if (gpu == NULL || *gpu == 0) return 0;
    char *part = NULL;
    for (int i = 0; i <= index; ++i) part = strsep(&gpu, "/");
    snprintf(out, 256, "%s", part);
    return 1;
}
int cuInit(unsigned flags) {
    const char *how = getenv("INIT");
    if (flags != 0) return 1;
    if (how == NULL) return 0;
    if (strcmp(how, "crash") == 0) abort();
    if (strcmp(how, "hang") == 0) sleep(60);
    return atoi(how);
}
int cuDeviceGetCount(int *count) {
    char unused[256];
    for (*count = 0; field(*count, 0, unused); ++*count) {}
    return 0;
}
int cuDeviceGet(int *device, int ordinal) { *device = 100 + ordinal; return 0; }
int cuDeviceGetName(char *name, int size, int device) { return size >= 256 && field(device - 100, 0, name) ? 0 : 1; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    char text[256];
    if ((attribute != 75 && attribute != 76) || !field(device - 100, attribute - 74, text)) return 1;
    *value = atoi(text);
    return 0;
}
int cuGetErrorName(int code, const char **name) {
    *name = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH";
    return code == 803 ? 0 : 1;
}
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the compiled driver."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.c").write_text(DRIVER)
    command = ["cc", "-std=gnu11", "-shared", "-fPIC", "-o", folder / "libcuda.so.1", folder / "driver.c"]
    subprocess.run(command, check=True)
    return folder


@pytest.fixture
def gpus(driver: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment, with the driver in front."""
    paths = [str(driver), os.environ.get("LD_LIBRARY_PATH", "")]
    monkeypatch.setenv("LD_LIBRARY_PATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.delenv("GPUS", raising=False)
    monkeypatch.delenv("INIT", raising=False)
    return monkeypatch


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    """A folder like /sys/class/kfd/kfd/topology/nodes, with a CPU in it."""
    folder = tmp_path / "nodes"
    node(folder, 0, 0)
    return folder


def node(folder: Path, number: int, version: int) -> None:
    (folder / str(number)).mkdir(parents=True)
    lines = ["cpu_cores_count 0", "simd_count 304", f"gfx_target_version {version}", "vendor_id 4098"]
    (folder / str(number) / "properties").write_text("\n".join(lines) + "\n")


def refusal(nodes: Path) -> str:
    with pytest.raises(ManifestError) as caught:
        native_targets(HERE, topology=nodes)
    message = str(caught.value)
    print(message)
    assert message.startswith("kernels.yaml:3:10: `native` stands for the GPUs of this machine")
    return message


@pytest.mark.parametrize(
    ("machine", "targets"),
    [
        ("NVIDIA H200/9/0", ("sm_90a",)),
        ("NVIDIA H200/9/0,NVIDIA H200/9/0", ("sm_90a",)),
        ("RTX 3090/8/6,H100/9/0,RTX 3090/8/6,Tesla T4/7/5", ("sm_86", "sm_90a", "sm_75")),
        ("B300/10/3,RTX 5090/12/0", ("sm_103a", "sm_120a")),
    ],
)
def test_gpus_of_nvidia_in_the_drivers_order(
    gpus: pytest.MonkeyPatch, nodes: Path, machine: str, targets: tuple[str, ...]
) -> None:
    gpus.setenv("GPUS", machine)
    assert native_targets(HERE, topology=nodes) == targets


def test_gpus_of_amd_by_the_topology(gpus: pytest.MonkeyPatch, nodes: Path) -> None:
    """In the order of the nodes' numbers; a node that may not be read, or says nothing, is no GPU of this process."""
    for number, version in ((10, 110000), (2, 90402), (3, 90010), (4, 90402), (5, 120501)):
        node(nodes, number, version)
    (nodes / "5" / "properties").write_text("")
    (nodes / "6").mkdir()
    (nodes / "not_a_number").mkdir()
    gpus.setenv("GPUS", "A100/8/0")
    assert native_targets(HERE, topology=nodes) == ("sm_80", "gfx942", "gfx90a", "gfx1100")


def test_every_exact_target_can_be_found(gpus: pytest.MonkeyPatch, nodes: Path) -> None:
    """Each number of the table comes back as a target of the table, and each gfx."""
    archs = list(dict.fromkeys(target.arch for target in TARGETS.values()))
    numbers = [arch for arch in archs if isinstance(arch, int)]
    names = [arch for arch in archs if isinstance(arch, str)]
    gpus.setenv("GPUS", ",".join(f"GPU/{number // 10}/{number % 10}" for number in numbers))
    for index, name in enumerate(names):
        digits = name.removeprefix("gfx")
        node(nodes, index + 1, int(digits[:-2]) * 10000 + int(digits[-2]) * 100 + int(digits[-1], 16))
    found = native_targets(HERE, topology=nodes)
    assert found == (*(f"sm_{number}{'a' if number >= 90 else ''}" for number in numbers), *names)


def test_no_gpu(gpus: pytest.MonkeyPatch, nodes: Path, tmp_path: Path) -> None:
    """Whether there is no driver, or one that knows no GPU: what was looked at is said."""
    for how in ("0", "100"):
        gpus.setenv("INIT", how)
        message = refusal(nodes)
        assert "libcuda.so.1 knows no GPU" in message
        assert f"no GPU that this process may use in {nodes}" in message
        assert "remedy: write the targets out" in message
    # What stands in front of a driver that this machine may have, and is none.
    (tmp_path / "libcuda.so.1").write_text("no library")
    gpus.setenv("LD_LIBRARY_PATH", str(tmp_path))
    message = refusal(tmp_path / "missing")
    assert "no driver of NVIDIA (" in message
    assert f"no driver of AMD ({tmp_path / 'missing'} is not there)" in message


@pytest.mark.parametrize(
    ("how", "actual"),
    [
        ("803", "cuInit returned 803 (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)"),
        ("4711", "cuInit returned 4711\n"),
        ("crash", "ended by signal 6, asked in a process of its own"),
        ("hang", "no answer within 1 seconds"),
    ],
)
def test_a_driver_that_fails_is_no_machine_without_gpus(
    gpus: pytest.MonkeyPatch, nodes: Path, how: str, actual: str
) -> None:
    """Even where there is a GPU of AMD: one that is there and cannot be asked would be left out without a word."""
    node(nodes, 1, 90402)
    gpus.setenv("GPUS", "NVIDIA H200/9/0")
    gpus.setenv("INIT", how)
    gpus.setattr(native, "TIME_LIMIT", 1)
    message = refusal(nodes)
    assert "NVIDIA's driver does not tell" in message
    assert actual in message


@pytest.mark.parametrize("call", ["cuDeviceGetCount", "cuGetErrorName"])
def test_a_library_that_lacks_a_call(driver: Path, gpus: pytest.MonkeyPatch, tmp_path: Path, call: str) -> None:
    (tmp_path / "driver.c").write_text(DRIVER.replace(f"int {call}(", f"int other_{call}("))
    subprocess.run(
        ["cc", "-std=gnu11", "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", tmp_path / "driver.c"], check=True
    )
    gpus.setenv("LD_LIBRARY_PATH", str(tmp_path))
    gpus.setenv("INIT", "0" if call == "cuDeviceGetCount" else "803")
    assert call in refusal(tmp_path / "missing")


@pytest.mark.parametrize(
    ("machine", "version", "texts"),
    [
        ("Tesla V100/7/0", 0, ["Tesla V100 of compute capability 7.0", "sm_70 would be its target", "sm_75"]),
        ("NVIDIA H200/9/0,Next/15/3", 0, ["Next of compute capability 15.3", "sm_153a", "PTX such as compute_80"]),
        ("", 100301, ["AMD GPU gfx1031", "gfx1031 would be its target", "gfx1030"]),
    ],
)
def test_a_gpu_without_a_target_is_named(
    gpus: pytest.MonkeyPatch, nodes: Path, machine: str, version: int, texts: list[str]
) -> None:
    gpus.setenv("GPUS", machine)
    node(nodes, 1, version)
    message = refusal(nodes)
    assert [text for text in texts if text not in message] == []


def test_the_parent_does_not_load_the_driver(gpus: pytest.MonkeyPatch, nodes: Path) -> None:
    """A process that has called a driver cannot fork safely, and the engine forks."""
    code = (
        "from pathlib import Path; from kiln.errors import Position; from kiln.toolchain.native import native_targets\n"
        f"print(native_targets(Position(file='k', line=1), topology=Path({str(nodes)!r})))\n"
        "assert 'libcuda' not in Path('/proc/self/maps').read_text()\n"
    )
    gpus.setenv("GPUS", "NVIDIA H200/9/0")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "('sm_90a',)\n"), done.stderr


def test_a_build_for_this_machine(gpus: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From the word to the image; a kernel may ask for it too, and a target that is named beside it is one target."""
    gpus.setenv("GPUS", "RTX 3090/8/6,NVIDIA H200/9/0")
    project = Project.create(tmp_path / "p", manifest=MANIFEST.replace("[sm_80, gfx942]", "native"))
    project.doit("compile").expect("4 built, 0 up to date, 0 failed")
    assert {name.split("/")[1] for name in project.files() if name.startswith("images/")} == {"sm_86", "sm_90a"}
    # Another GPU in the same machine: nothing that a build remembers hides it.
    gpus.setenv("GPUS", "RTX 3090/8/6,RTX 4090/8/9")
    project.doit("compile").expect("2 built, 2 up to date, 0 failed")
    gpus.setenv("GPUS", "RTX 3090/8/6,NVIDIA H200/9/0")
    project.edit("kernels.yaml", "targets: native", "targets: [sm_90a, native, gfx942]")
    project.edit("kernels.yaml", "    grid:", "    targets: [gfx942, native]\n    grid:")
    listed = project.doit("list", "--all", "--quiet").expect("compile:scale_fp32_128@sm_90a").output
    words = {word.partition("@")[2] for word in listed.split() if word.startswith("compile:scale_fp32_128@")}
    assert words == {"sm_90a", "sm_86", "gfx942"}


def test_errors_of_a_build_stand_at_the_word(gpus: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gpus.setenv("INIT", "803")
    project = Project.create(tmp_path / "p", manifest=MANIFEST.replace("[sm_80, gfx942]", "[sm_80, native]"))
    project.doit().expect(r"kernels\.yaml:3:18: `native` stands for .*NVIDIA's driver", "returned 803", code=3)
    gpus.delenv("INIT")
    gpus.setenv("GPUS", "NVIDIA H200/9/0")
    project.edit("kernels.yaml", "[sm_80, native]", "[sm_80]")
    project.edit("kernels.yaml", "    grid:", "    targets: native\n    grid:")
    project.doit().expect(r"kernels\.yaml:13:14: .*holds 'native', which the library is not built for", code=3)
    project.edit("kernels.yaml", "targets: native", "targets: natvie")
    project.doit().expect(r"kernels\.yaml:13:14: ", "did you mean 'native'", code=3)

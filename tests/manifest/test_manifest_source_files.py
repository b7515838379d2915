"""Where sources may lie: roots, packages, and the build folder; each refusal with its place."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from test_manifest_files import HEAD, kernel, loaded, refusal, write

from kiln.manifest.loader import load
from kiln.manifest.model import Kernel


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project and the current folder, with a root beside it, and an installed package."""
    folder = tmp_path / "project"
    write(
        tmp_path,
        {
            "project/k.py": "",
            "project/a/k.py": "",
            "third_party/flash/ops/k.py": "",
            "third_party/k.py": "",
            "installed/pack/__init__.py": "",
            "installed/pack/ops/softmax.py": "",
            "installed/single.py": "",
        },
    )
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "installed")])
    return folder


def the_kernel(project: Path, text: str, head: str = HEAD) -> Kernel:
    return loaded(project, {"kernels.yaml": f"{head}kernels:\n{text}"}).kernels[0]


def test_a_source_below_a_root(project: Path) -> None:
    head = f"{HEAD}roots: {{other: a, flash: ../third_party/flash}}\n"
    found = the_kernel(project, kernel("x", source="ops/k.py", root="flash"), head)
    assert found.source == project.parent / "third_party/flash/ops/k.py"
    assert found.source_name == "../third_party/flash/ops/k.py"
    manifest = load(Path("kernels.yaml"))
    assert manifest.roots == {"other": "a", "flash": "../third_party/flash"}
    assert the_kernel(project, kernel("x", source="k.py", root="other"), head).source_name == "a/k.py"


def test_a_root_serves_included_files_too(project: Path) -> None:
    head = f"{HEAD}roots: {{flash: ../third_party/flash}}\ninclude: [a/x.yaml]\n"
    inner = f"version: 1\nkernels:\n{kernel('x', source='ops/k.py', root='flash')}"
    manifest = loaded(project, {"kernels.yaml": head, "a/x.yaml": inner})
    assert manifest.kernels[0].source_name == "../third_party/flash/ops/k.py"


def without_source(key: str, **keys: str) -> str:
    return kernel(key, **keys).replace("    source: k.py\n", "")


def test_a_source_in_an_installed_package(project: Path) -> None:
    found = the_kernel(project, without_source("x", package="pack.ops.softmax"))
    assert found.source == project.parent / "installed/pack/ops/softmax.py"
    assert found.source_name == "site-packages/pack/ops/softmax.py"
    assert the_kernel(project, without_source("x", package="pack")).source_name == "site-packages/pack/__init__.py"
    assert the_kernel(project, without_source("x", package="single")).source_name == "site-packages/single.py"
    assert "pack" not in sys.modules


def test_the_environment_and_the_build_folder_are_kept(project: Path) -> None:
    head = f'{HEAD}environment: {{USE_EXP2: "1", DEBUG: null, EMPTY: ""}}\nbuild: ../out/kernels\n'
    manifest = loaded(project, {"kernels.yaml": f"{head}kernels:\n{kernel('x')}"})
    assert manifest.environment == {"USE_EXP2": "1", "DEBUG": None, "EMPTY": ""}
    assert manifest.build == "../out/kernels"
    plain = loaded(project, {"kernels.yaml": f"{HEAD}kernels:\n{kernel('x')}"})
    assert (plain.environment, plain.build, plain.roots) == ({}, "build", {})


PLAIN = kernel("x")
REFUSED = {
    "an unknown root": (
        "roots: {flash: ../third_party/flash}\n",
        kernel("x", root="flahs"),
        "kernels.yaml:14:11: `kernels.x.root` names no root: 'flahs'",
        "did you mean 'flash'?",
    ),
    "a root that is not declared": (
        "",
        kernel("x", root="flash"),
        "kernels.yaml:13:11: `kernels.x.root` names no root: 'flash'",
        "declare it: `roots: {flash: path/of/the/folder}`",
    ),
    "a root that is not there": (
        "roots: {flash: ../third_party/flesh}\n",
        PLAIN,
        "kernels.yaml:4:16: '../third_party/flesh' cannot be `roots.flash`: no folder is there",
        "correct the path",
    ),
    "a root that is a file": (
        "roots: {f: k.py}\n",
        PLAIN,
        "kernels.yaml:4:12: 'k.py' cannot be `roots.f`",
        "no folder",
    ),
    "the project as a root": (
        "roots: {f: ../project}\n",
        PLAIN,
        "kernels.yaml:4:12: '../project' cannot be `roots.f`: it is the manifest's own folder",
        "files there need no root",
    ),
    "a root that leads back": (
        "roots: {f: ../project/a}\n",
        PLAIN,
        "kernels.yaml:4:12: '../project/a' cannot be `roots.f`: it leads back into the manifest's folder",
        "write a",
    ),
    "two names of one root": (
        "roots: {f: a, g: a}\n",
        PLAIN,
        "kernels.yaml:4:18: 'a' cannot be `roots.g`: it is the root 'f', too",
        "",
    ),
    "an absolute root": (
        "roots: {f: /opt/flash}\n",
        PLAIN,
        "kernels.yaml:4:12: '/opt/flash' cannot be `roots.f`: it is absolute",
        "write it relative to the manifest's folder",
    ),
    "`..` within a root": (
        "roots: {f: ../a/../b}\n",
        PLAIN,
        "kernels.yaml:4:12: '../a/../b' cannot be `roots.f`: `..` stands behind a folder",
        "write the shortest path",
    ),
    "a bad name of a root": ("roots: {a-b: a}\n", PLAIN, "kernels.yaml:4:9: 'a-b' cannot be a root's name", ""),
    "a source out of its root": (
        "roots: {flash: ../third_party/flash}\n",
        kernel("x", source="../k.py", root="flash"),
        "kernels.yaml:7:13: '../k.py' cannot be `kernels.x.source`: it leads out of a folder",
        "declare its own under `roots`",
    ),
    "a source that its root lacks": (
        "roots: {flash: ../third_party/flash}\n",
        kernel("x", source="k.py", root="flash"),
        "kernels.yaml:7:13: the file of `kernels.x.source` does not exist",
        "third_party/flash",
    ),
    "a package that is not installed": (
        "",
        without_source("x", package="nowhere.ops"),
        "kernels.yaml:12:14: `kernels.x.package` is not installed: there is no package nowhere",
        "install nowhere into the Python that runs Kiln",
    ),
    "a module that a package lacks": (
        "",
        without_source("x", package="pack.ops.softmx"),
        "kernels.yaml:12:14: `kernels.x.package` is not installed: pack.ops has no such module",
        "did you mean 'softmax'?",
    ),
    "a module below a file": (
        "",
        without_source("x", package="single.ops"),
        "kernels.yaml:12:14: `kernels.x.package` is not installed: single has no such module",
        "name the module that defines the kernel",
    ),
    "a package that holds no kernels": (
        "",
        without_source("x", package="torch.nn"),
        "kernels.yaml:12:14: `kernels.x.package` cannot be a module of torch: torch is never read",
        "copy the kernel into a file of the project",
    ),
    "a package of Triton": (
        "",
        without_source("x", package="triton.language.core"),
        "kernels.yaml:12:14: `kernels.x.package` cannot be a module of triton: Triton's own functions",
        "copy the kernel into a file of the project",
    ),
    "a module of Python": (
        "",
        without_source("x", package="os"),
        "kernels.yaml:12:14: `kernels.x.package` cannot be a module of os: os is a module of Python itself",
        "copy the kernel into a file of the project",
    ),
    "a path for a package": (
        "",
        without_source("x", package="pack/ops/softmax.py"),
        "kernels.yaml:12:14: 'pack/ops/softmax.py' cannot be the name of a module",
        "for a file, use `source`",
    ),
    "a package and a source": (
        "",
        kernel("x", package="pack"),
        "kernels.yaml:6:5: `kernels.x` has `source` and `package`",
        "remove `source`, or remove `package`",
    ),
    "a package and a root": (
        "roots: {f: a}\n",
        without_source("x", package="pack", root="f"),
        "kernels.yaml:14:5: `kernels.x` has `root` and `package`",
        "",
    ),
    "a number in the environment": (
        "environment: {N: 1}\n",
        PLAIN,
        "kernels.yaml:4:18: wrong value for `environment.N`",
        'quote it: "1"',
    ),
    "a name with = in the environment": (
        'environment: {"A=B": x}\n',
        PLAIN,
        "kernels.yaml:4:15: 'A=B' cannot be the name of a variable",
        "",
    ),
    "a name with a space in the environment": (
        'environment: {"A B": x}\n',
        PLAIN,
        "kernels.yaml:4:15: 'A B' cannot be the name of a variable of the environment",
        "expected: a letter or underscore, then letters, digits and underscores, all ASCII",
    ),
    "a name that starts with a digit in the environment": (
        "environment: {1A: x}\n",
        PLAIN,
        "kernels.yaml:4:15: '1A' cannot be the name of a variable of the environment",
        "",
    ),
    "the project as the build folder": (
        "build: .\n",
        PLAIN,
        "kernels.yaml:4:8: '.' cannot be `build`",
        "",
    ),
    "a folder above as the build folder": (
        "build: ..\n",
        PLAIN,
        "kernels.yaml:4:8: '..' cannot be `build`: it is no folder of its own",
        "write build",
    ),
    "a blank build folder": (
        'build: "\\n"\n',
        PLAIN,
        "kernels.yaml:4:8: '\\n' cannot be `build`: it is no folder of its own",
        "write build",
    ),
    "a build folder below a home folder": (
        "build: ~/x\n",
        PLAIN,
        "kernels.yaml:4:8: '~/x' cannot be `build`: `~` is a shell's word for a home folder",
        "write it relative to the manifest's folder",
    ),
    "a variable that is nothing": ("environment: {A: ~}\n", PLAIN, "kernels.yaml:4:18: wrong value", "write null, or"),
    "an absolute build folder": ("build: /tmp/x\n", PLAIN, "kernels.yaml:4:8: '/tmp/x' cannot be `build`", "relative"),
}


@pytest.mark.parametrize(("top", "text", "head", "detail"), REFUSED.values(), ids=REFUSED)
def test_refused_with_position(project: Path, top: str, text: str, head: str, detail: str) -> None:
    message = refusal(project, {"kernels.yaml": f"{HEAD}{top}kernels:\n{text}"})
    assert message.startswith(head)
    assert detail in message


def test_a_link_out_of_a_root_is_not_followed(project: Path) -> None:
    (project.parent / "third_party/flash/out.py").symlink_to("../k.py")
    head = f"{HEAD}roots: {{flash: ../third_party/flash}}\n"
    text = f"{head}kernels:\n{kernel('x', source='out.py', root='flash')}"
    message = refusal(project, {"kernels.yaml": text})
    assert message.startswith("kernels.yaml:7:13: the file of `kernels.x.source` lies outside the root 'flash'")

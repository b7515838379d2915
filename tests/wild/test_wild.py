"""Kernels in the shapes that they have in the wild: built with nothing but Kiln's own needs installed, and compared
with images of the whole files, which Python imports with stubs for what is missing."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from kiln.engine.state import State
from kiln.library import Library
from kiln.manifest.constants import DTypeConstant, FunctionConstant
from kiln.manifest.model import Image
from project import REPOSITORY, Result

HERE = Path(__file__).parent
NEEDS = ("doit", "jinja2", "markupsafe", "msgpack", "pyelftools", "pyyaml", "triton")
"""the packages of a machine that builds: Kiln's dependencies and theirs"""
ABSENT = ("torch", "numpy", "einops", "apex")
TARGETS: dict[str, tuple[str, int | str, int]] = {"sm_90a": ("cuda", 90, 32), "gfx942": ("hip", "gfx942", 64)}
WHOLE = ["runtime/histogram.py", "runtime/generated.py"]
"""files whose names only a run of them makes"""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A Python with NEEDS and the package `wildkernels` installed, and a project to build with it."""

    python: Path
    project: Path

    def run(self, *arguments: str, **environment: str) -> Result:
        """Run the Python in the project, with the repository's kiln importable and nothing else of this process."""
        done = subprocess.run(
            [self.python, *arguments],
            cwd=self.project,
            env={"PATH": os.environ["PATH"], "HOME": str(self.project), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=240,
        )
        return Result(code=done.returncode, output=done.stdout)

    def doit(self, *arguments: str) -> Result:
        return self.run("-m", "doit", *arguments, PYTHONPATH=str(REPOSITORY / "tools"))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    folder = tmp_path_factory.mktemp("wild")
    venv.create(folder / "venv", symlinks=True, with_pip=False)
    python = folder / "venv/bin/python"
    [site] = (folder / "venv/lib").glob("python*/site-packages")
    for name in NEEDS:
        for top in {PurePosixPath(file).parts[0] for file in importlib.metadata.files(name) or ()} - {".."}:
            if not (site / top).exists():
                (site / top).symlink_to(importlib.metadata.distribution(name).locate_file(top))
    shutil.copytree(HERE / "site", site, dirs_exist_ok=True)
    machine = Machine(python=python, project=folder / "project")
    machine.project.mkdir()
    machine.run("-m", "kiln", "init", ".", PYTHONPATH=str(REPOSITORY / "tools")).expect()
    shutil.rmtree(machine.project / "kernels")
    shutil.copytree(HERE / "project", machine.project, dirs_exist_ok=True)
    shutil.copytree(HERE / "third", folder / "third")
    return machine


@pytest.fixture(scope="module")
def built(machine: Machine) -> Result:
    return machine.doit()


@pytest.fixture(scope="module")
def library(machine: Machine) -> Iterator[Library]:
    """What kernels.yaml declares, read in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE / "site"))
        build = machine.project / "elsewhere"
        yield Library.load(machine.project / "kernels.yaml", build, State(build / "state.sqlite"))


@dataclass(frozen=True, kw_only=True)
class Whole:
    """What `whole_module.py` made of one target's images."""

    images: dict[str, bytes]
    """by id of the variant"""
    configurations: dict[str, list[list[dict[str, Any]]]]
    """by kernel: constants and options of each, as Triton's autotuner has them"""


@pytest.fixture(scope="module")
def whole(
    machine: Machine, library: Library, built: Result, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Whole]:
    """Both targets at once: each is a process of its own. `built` has come first, so as not to take its time."""
    folder = tmp_path_factory.mktemp("whole")
    running: dict[str, subprocess.Popen[str]] = {}
    for name, target in TARGETS.items():
        (folder / name).mkdir()
        roots = [machine.project, machine.project / "../third/flash"]
        jobs = {
            "target": target,
            "roots": [str(root.resolve()) for root in roots],
            "images": [job(library, image) for image in library.images_for(name)],
        }
        (folder / f"{name}.json").write_text(json.dumps(jobs))
        running[name] = subprocess.Popen(
            [machine.python, HERE / "whole_module.py", folder / f"{name}.json", folder / name],
            cwd=folder,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(folder),
                "PYTHONDONTWRITEBYTECODE": "1",
                "TRITON_CACHE_DIR": str(folder / f"cache_{name}"),
                "TRITON_DISABLE_LINE_INFO": "1",
                "WILD_CONV_SILU": "0",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    made = {}
    for name, process in running.items():
        output, _ = process.communicate(timeout=240)
        assert process.returncode == 0, output
        images = {path.name: path.read_bytes() for path in (folder / name).iterdir() if path.suffix != ".json"}
        configurations = json.loads((folder / name / "configurations.json").read_text())
        made[name] = Whole(images=images, configurations=configurations)
    return made


def job(library: Library, image: Image) -> dict[str, Any]:
    """One image as the declaration has it, for a program that knows nothing of Kiln."""
    variant, kernel = image.variant, image.variant.kernel
    return {
        "id": variant.id,
        "kernel": kernel.key,
        "module": module_of(library, image),
        "function": kernel.function,
        "signature": [[item.path, item.type, item.promise] for item in variant.signature.items],
        "promises": dict(variant.promises.promises),
        "constants": {name: plain(value) for name, value in {**variant.constants, **variant.axes}.items()},
        "options": dict(variant.options),
        "names": {dotted(module.file): module.name for module in library.closure(image).modules},
    }


def module_of(library: Library, image: Image) -> str:
    """The module of an image's source, as Python imports it."""
    source = image.variant.kernel.source.resolve()
    roots = (library.manifest.root, library.manifest.root / "../third/flash", HERE / "site")
    root = next(root.resolve() for root in roots if source.is_relative_to(root.resolve()))
    return dotted(source.relative_to(root).as_posix())


def dotted(file: str) -> str:
    return file.removesuffix(".py").replace("/", ".")


def plain(value: object) -> Any:
    """A constant as JSON has it, and as kernels.yaml does."""
    if isinstance(value, tuple):
        return [plain(member) for member in value]
    if isinstance(value, DTypeConstant):
        return {"dtype": value.name}
    return {"function": value.name} if isinstance(value, FunctionConstant) else value


def test_the_machine_lacks_what_the_kernels_import(machine: Machine) -> None:
    program = f"import importlib.util as u; print([name for name in {ABSENT} if u.find_spec(name) is not None])"
    assert machine.run("-c", program).expect().output == "[]\n"


def test_every_kernel_is_built_for_its_targets(library: Library, built: Result, machine: Machine) -> None:
    built.expect(" 0 failed")
    assert len(library.manifest.kernels) >= 40
    assert set(built.ran("compile")) == {image.id for image in library.images}
    assert all((machine.project / "build" / library.image_path(image)).stat().st_size for image in library.images)


def test_each_image_equals_that_of_the_whole_file(
    library: Library, built: Result, machine: Machine, whole: dict[str, Whole]
) -> None:
    different = [
        image.id
        for image in library.images
        if (machine.project / "build" / library.image_path(image)).read_bytes()
        != whole[image.target].images[image.variant.id]
    ]
    assert different == []


def test_tuned_kernels_have_the_configurations_that_triton_has(library: Library, whole: dict[str, Whole]) -> None:
    """In order, for each target its own: what asks for the machine gets another answer there."""
    tuned = {kernel for name in TARGETS for kernel in whole[name].configurations}
    assert tuned == {"matmul", "flash"}
    for name in TARGETS:
        for kernel, expected in whole[name].configurations.items():
            variants = [image.variant for image in library.images_for(name) if image.variant.kernel.key == kernel]
            assert [
                [
                    {key: variant.constants[key] for key in constants},
                    {key: variant.options[key] for key in options},
                ]
                for variant, (constants, options) in zip(variants, expected, strict=True)
            ] == expected


def test_only_what_must_be_run_is_imported_whole_and_that_is_told(built: Result) -> None:
    warned = re.findall(r"^kiln: warning: (\S+) is imported as it stands", built.output, re.MULTILINE)
    assert sorted(warned) == sorted(WHOLE)


def test_a_second_build_runs_nothing(built: Result, machine: Machine) -> None:
    machine.doit().expect("^0 built")

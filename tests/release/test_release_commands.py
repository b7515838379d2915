"""The commands in buildinfo.json are those that run: each is held against what the tools of a build are given."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import cuda_project
from kiln.release.commands import Command, commands, environments
from kiln.release.plan import ReleasePlan
from release_project import create

RECORDER = """\
import json, os, sys
with open(sys.argv[1], "a") as log:
    log.write(json.dumps([sys.argv[2], sys.argv[3:], dict(os.environ)]) + "\\n")
"""
OF_BASH = {"PWD", "SHLVL", "_", "OLDPWD"}
"""variables that the recording script itself has"""
PRIVATE = {"TMPDIR", "HOME"}
"""those that lead to private folders, which commands leave out"""


@dataclass(frozen=True, kw_only=True)
class Called:
    """One call of a tool."""

    tool: str
    arguments: list[str]
    environment: Mapping[str, str]

    def fits(self, command: Command) -> bool:
        """Whether it is the command, words in <> aside."""
        words = re.escape("\n".join(command.arguments))
        # These two stand for any number of words.
        for several in ("<flags of the kernel>", "<-I and each root>"):
            words = words.replace(re.escape(f"{several}\n"), "(?:[^\n]*\n)*?")
        return (
            self.tool == command.tool
            and re.fullmatch(re.sub("<.*?>", "[^\n]+", words), "\n".join(self.arguments)) is not None
        )


@pytest.fixture(scope="module")
def called(tmp_path_factory: pytest.TempPathFactory) -> list[Called]:
    """What the tools are given that a build of the project calls, by scripts in their place; questions aside."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "recorder.py").write_text(RECORDER)
    record = f"{sys.executable} -I {folder}/recorder.py {folder}/log"
    environment = {"CUDA_HOME": cuda_project.fake(folder / "toolkit", f'{record} nvcc "$@"\nexec "$REAL" "$@"')}
    real = (folder / "toolkit/bin/fatbinary").resolve()
    (folder / "toolkit/bin/fatbinary").unlink()
    scripts = [(folder / "toolkit/bin/fatbinary", "fatbinary", real)]
    for name, tool, variable in (("objcopy", "objcopy", "OBJCOPY"), ("ar", "ar", "AR"), ("gcc", "cc", "CC")):
        scripts.append((folder / name, tool, Path(str(shutil.which(name)))))
        environment[variable] = str(folder / name)
    for path, tool, program in scripts:
        path.write_text(f'#!/bin/bash\n{record} {tool} "$@"\nexec {program} "$@"\n')
        path.chmod(0o755)
    create(folder / "project", **environment)
    lines = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    calls = [Called(tool=tool, arguments=arguments, environment=found) for tool, arguments, found in lines]
    work = {"-c", "-MD", "-ptx", "-cubin", "-I", "--compress=false"}
    # nvcc runs a host compiler too, by arguments of its own.
    return [call for call in calls if work & set(call.arguments) and "-E" not in call.arguments]


def test_every_call_is_one_of_the_commands_and_every_command_is_called(called: list[Called], plan: ReleasePlan) -> None:
    found = [command for command in commands(plan) if command.tool != "triton"]
    assert [call for call in called if not any(call.fits(command) for command in found)] == []
    assert [command for command in found if not any(call.fits(command) for call in called)] == []
    assert {call.tool for call in called} == {"nvcc", "fatbinary", "objcopy", "cc", "ar"}


def test_the_environment_is_what_is_said(called: list[Called], plan: ReleasePlan) -> None:
    for call in called:
        said = environments()[next(command for command in commands(plan) if call.fits(command)).environment]
        own = {name: value for name, value in call.environment.items() if name not in OF_BASH | PRIVATE}
        assert own.keys() == {*said.passed, *said.fixed}, call.tool
        assert {name: own[name] for name in said.fixed} == said.fixed


def test_a_release_without_cuda_has_no_commands_of_nvcc(plan: ReleasePlan) -> None:
    """Nor of what else it is made without."""
    declared = tuple(each for each in plan.declared if each.image.variant.kernel.cuda is None)
    files = tuple(file for file in plan.files if file.step != "header:onnxruntime")
    tools = {command.tool for command in commands(replace(plan, declared=declared, files=files))}
    assert tools == {"triton", "objcopy", "cc", "ar"}

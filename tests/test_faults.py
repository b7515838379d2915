"""Faults in what people write, each really injected into a project and built with doit: what is refused, what is
rebuilt, and what is left alone."""

from __future__ import annotations

import base64
import json
import os
import re
import resource
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import pytest

from project import KERNEL, MANIFEST, Project

Case = TypeVar("Case")

IMAGES = {f"scale_fp32_{block}@{target}" for block in (128, 256) for target in ("sm_80", "gfx942")}


def contents(project: Project) -> dict[str, bytes]:
    """Every published file of a build."""
    return {name: (project.folder / "build" / name).read_bytes() for name in project.files()}


# -- what cannot change an image: 0 compiles


NEIGHBOUR = """\


@triton.jit
def neighbour(x_ptr):
    tl.store(x_ptr, 1.0)


def launch(x):
    import torch

    return torch.empty_like(x)
"""

HARMLESS = {
    "a comment": ("    mask = offsets", "    # a comment\n    mask = offsets"),
    "a docstring": ("    offsets = tl.program_id", '    """Doubles."""\n    offsets = tl.program_id'),
    "lines above": ("import triton\n", '"""A module."""\n\nimport os\nimport triton\n\nUNUSED = 3\n'),
    "blanks": ("x * 2", "(x  *  2)"),
    "a statement over several lines": (
        "input_ptr + offsets, mask=mask)",
        "\n        input_ptr + offsets,\n        mask=mask,\n    )",
    ),
    "a trailing newline": ("x * 2, mask=mask)\n", "x * 2, mask=mask)\n\n\n"),
}


@pytest.mark.parametrize(("old", "new"), HARMLESS.values(), ids=HARMLESS)
def test_comment_and_formatting_edits_rebuild_nothing(built: Project, old: str, new: str) -> None:
    built.edit("kernels/scale.py", old, new)
    assert built.doit().expect().counts["built"] == 0


def test_touching_every_file_rebuilds_nothing(built: Project) -> None:
    """Into the past and into the future."""
    for seconds in (0, 4_000_000_000):
        for path in built.folder.rglob("*"):
            if path.is_file() and ".kiln" not in path.parts:
                os.utime(path, (seconds, seconds))
        assert built.doit().expect().counts["built"] == 0


def test_edits_of_a_neighbour_function_rebuild_nothing(built: Project) -> None:
    built.write("kernels/scale.py", KERNEL + NEIGHBOUR)
    assert built.doit().expect().counts["built"] == 0
    built.edit("kernels/scale.py", "tl.store(x_ptr, 1.0)", "tl.store(x_ptr, 2.0)")
    assert built.doit().expect().counts["built"] == 0
    built.edit("kernels/scale.py", "def launch(x):", "def launch(x, y):")
    assert built.doit().expect().counts["built"] == 0


# -- what can: exactly its users


SHARED = """\
import triton
import triton.language as tl

from kernels.numbers import BIAS, Settings

FACTOR = tl.constexpr(2.0)
POWER = 2
UNUSED = tl.constexpr(1)


@triton.jit
def scaled(x, power: tl.constexpr = POWER):
    for _ in tl.static_range(power):
        x = x * FACTOR
    return x


@triton.jit
def biased(x):
    return x + BIAS


SHIFT = tl.constexpr(Settings.SHIFT)
"""

NUMBERS = """\
import torch
import triton.language as tl

BIAS = tl.constexpr(0.5)
OTHER = torch.zeros(3)


class Settings:
    SHIFT = 3
    WIDTH = 64
"""


def user(name: str, imports: str, value: str) -> str:
    """A kernel that stores `value` of each x."""
    text = KERNEL.replace("scale_kernel", f"{name}_kernel").replace("x * 2", value)
    return text.replace("\n\n\n@", f"\n\nfrom kernels import shared\nfrom kernels.shared import {imports}\n\n\n@", 1)


USERS = {
    "one": user("one", "scaled", "scaled(x)"),
    "two": user("two", "biased as b", "b(x) + shared.SHIFT"),
    "both": user("both", "biased, scaled", "scaled(biased(x))"),
}

EDITS = {
    "a helper's body": ("shared", "x = x * FACTOR", "x = x / FACTOR", {"one", "both"}),
    "a helper's default by name": ("shared", "POWER = 2", "POWER = 3", {"one", "both"}),
    "a helper's constant": ("shared", "constexpr(2.0)", "constexpr(3.0)", {"one", "both"}),
    "another helper's body": ("shared", "return x + BIAS", "return x - BIAS", {"two", "both"}),
    "a constant of a third file": ("numbers", "constexpr(0.5)", "constexpr(0.25)", {"two", "both"}),
    "a constant that is read through its module": ("shared", "Settings.SHIFT)", "Settings.SHIFT + 1)", {"two"}),
    "a constant that a class holds": ("numbers", "SHIFT = 3", "SHIFT = 4", {"two"}),
    "a constant that nobody reads": ("shared", "UNUSED = tl.constexpr(1)", "UNUSED = tl.constexpr(2)", set()),
    "another constant of the class": ("numbers", "WIDTH = 64", "WIDTH = 32", set()),
    "another name of the third file": ("numbers", "torch.zeros(3)", "torch.ones(3)", set()),
    "what an import stands for": ("two", "biased as b", "scaled as b", {"two"}),
}


def test_an_edit_of_a_helper_or_a_constant_rebuilds_exactly_its_users(tmp_path: Path) -> None:
    """One edit after the other, in one tree."""
    scale = MANIFEST.partition("kernels:\n")[2].replace("[128, 256]", "[128]")
    manifest = MANIFEST.replace("[sm_80, gfx942]", "[sm_80]").partition("kernels:\n")[0]
    manifest += "kernels:\n" + "".join(scale.replace("scale", name) for name in USERS)
    files = {**USERS, "shared": SHARED, "numbers": NUMBERS}
    project = Project.create(tmp_path / "scratch", manifest=manifest, **files)
    assert len(project.doit("compile").expect().ran("compile")) == len(USERS)
    for what, (file, old, new, users) in EDITS.items():
        project.edit(f"kernels/{file}.py", old, new)
        ran = project.doit("compile").expect().ran("compile")
        assert set(ran) == {f"{name}_fp32_128@sm_80" for name in users}, what


# -- what is gone from kernels.yaml is gone everywhere


MORE = """\
version: 1
library: scratch
targets: [sm_80, gfx942, sm_89]
kernels:
  scale:
    source: kernels/scale.py
    function: scale_kernel
    dtypes: [fp32, fp16]
    blocks: [128, 256, 512]
    exclude: [{dtype: fp16, block: [128]}]
    name: scale_{dtype}_{block}
    group: scale_{dtype}
    signature: "*{dtype}:16, *{dtype}:16, i32"
    grid: ["cdiv(n_elements, BLOCK_SIZE)"]
  halved:
    source: kernels/scale.py
    function: scale_kernel
    dtypes: [fp32]
    blocks: [64]
    name: halved_{block}
    signature: "*{dtype}:16, *{dtype}:16, i32"
    grid: ["cdiv(n_elements, BLOCK_SIZE)"]
"""

# in this order: what is replaced, with what, and the word that must be gone
REMOVALS = {
    "a target": (", sm_89]", "]", "sm_89"),
    "a block": (", 512]\n", "]\n", "scale_fp32_512"),
    "a variant, by exclusion": ("block: [128]}", "block: [128, 256]}", "scale_fp16"),
    "a kernel": (MORE[MORE.index("  halved:") :], "", "halved"),
}


def test_what_is_removed_is_gone_from_every_package_and_from_disk(built: Project) -> None:
    """More is declared and built, then taken away piece by piece; what is left in the end is what was there before."""
    before = contents(built)
    built.write("kernels.yaml", MORE)
    built.doit().expect("0 failed")
    for what, (old, new, word) in REMOVALS.items():
        assert mentions(built, word), what
        built.edit("kernels.yaml", old, new)
        assert built.doit().expect().ran("compile") == [], what
        assert mentions(built, word) == [], what
    assert not (built.folder / "build/images/sm_89").exists()
    built.write("kernels.yaml", MANIFEST)
    built.doit().expect()
    assert contents(built) == before


def test_a_variant_of_another_name_leaves_nothing_of_the_old_one(built: Project) -> None:
    before = contents(built)
    built.edit("kernels.yaml", "name: scale_{dtype}", "name: scaled_{dtype}")
    built.edit("kernels.yaml", "group: scale_{dtype}", "group: scaled_{dtype}")
    built.doit().expect()
    assert mentions(built, "scale_fp32") == []
    built.write("kernels.yaml", MANIFEST)
    built.doit().expect()
    assert contents(built) == before


def mentions(project: Project, word: str) -> list[str]:
    """Where a word is found in a build: names of files and of archives' members, and what headers and crate say."""
    found = [name for name in project.files() if word in name]
    for name in project.files():
        path = project.folder / "build" / name
        if name.endswith(".a"):
            members = subprocess.run(["ar", "t", path], capture_output=True, text=True, check=True).stdout.split()
            symbols = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout.split()
            found += [f"{name}({member})" for member in {*members, *symbols} if word in member]
        elif name.startswith(("include/", "rust/", "src/")) and path.suffix not in (".cubin", ".hsaco"):
            found += [f"{name}:{line}" for line in path.read_text().splitlines() if word in line]
    return found


# -- YAML that is no plain data


BOMB = "a: &a [x]\n" + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{f'*{chr(97 + n)},' * 9}]\n" for n in range(12))


def edited(old: str, new: str) -> bytes:
    assert MANIFEST.count(old) == 1
    return MANIFEST.replace(old, new).encode()


# the file, line:column, words of the message
YAML: dict[str, tuple[bytes, str, list[str]]] = {
    "a duplicate key": (
        edited("    blocks", "    dtypes: [fp16]\n    blocks"),
        "9:5",
        ["'dtypes' twice|'dtypes'.*twice", "line 8"],
    ),
    "a duplicate kernel": (MANIFEST.encode() + b"  scale: {}\n", "14:3", ["'scale'", "twice"]),
    "an alias bomb": (BOMB.encode() + MANIFEST.encode(), "1:4", ["anchor"]),
    "an alias": (edited('"*{dtype}:16, *{dtype}:16, i32"', "*fp32, i32"), "12:16", ["alias", "quotes"]),
    "a merge key": (edited("    source:", "    <<: {}\n    source:"), "6:5", ["merge key"]),
    "a deep nest": (edited("[128, 256]", "[" * 100_000 + "]" * 100_000), "9:1010", ["nested too deeply"]),
    "deep blocks": (b"".join(b" " * n + b"a:\n" for n in range(1400)), "33:33", ["nested too deeply"]),
    "a tag": (edited("library: scratch", "library: !!python/object/apply:os.system ['id']"), "2:10", ["a tag"]),
    "no": (edited("library: scratch", "library: no"), "2:10", ["truth value 'no'", 'quote it: "no"']),
    "on": (edited("scale_kernel", "on"), "7:15", ["truth value 'on'", 'quote it: "on"']),
    "no as a key": (edited("  scale:\n", "  no:\n"), "5:3", ["truth value: 'no'|truth value 'no'"]),
    "1.10": (edited("library: scratch", "library: 1.10"), "2:10", ["number '1.10'", 'quote it: "1.10"']),
    "a version of 1.10": (edited("version: 1", "version: 1.10"), "1:10", ["number '1.10'"]),
    "10 MB": (MANIFEST.encode() + b"# more\n" * 1_500_000, "1:1", ["too large", "under `include`"]),
    "a byte order mark": (b"\xef\xbb\xbf" + MANIFEST.encode(), "1:1", ["byte order mark"]),
    "UTF-16": (MANIFEST.encode("utf-16"), "1:1", ["byte order mark"]),
    "NUL": (edited("scale_kernel", "scale\0kernel"), "7:20", [r"U\+0000"]),
    "an escape to NUL": (edited("scale_kernel", '"scale\\0kernel"'), "7:15", [r"x00"]),
    "bad UTF-8": (edited("scale_kernel", "scale_kernel # ü").replace("ü".encode(), b"\xfc"), "7:30", ["not UTF-8"]),
    "an overlong encoding": (edited("scale_kernel", "sc@le").replace(b"@", b"\xc0\xaf"), "7:17", ["not UTF-8"]),
}


@pytest.mark.parametrize("case", YAML)
def test_yaml_that_is_no_plain_data_is_refused_at_its_place_and_at_once(yaml_project: Project, case: str) -> None:
    data, place, words = YAML[case]
    (yaml_project.folder / "kernels.yaml").write_bytes(data)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = yaml_project.doit().expect(rf"^ERROR: kernels\.yaml:{place}: ", *words, code=3)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # The processor's time rather than the clock's: other work on the machine is no fault of the reader.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1
    assert len(result.output) < 1000
    assert "Traceback" not in result.output
    assert not (yaml_project.folder / "build").exists()


@pytest.fixture(scope="module")
def yaml_project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project that was never built."""
    return Project.create(tmp_path_factory.mktemp("yaml") / "scratch")


# -- names that reach into shells, paths, compilers and readers


NAMES = {
    "up": "../x",
    "root": "/x",
    "command": "a;id",
    "substitution": "$(id)",
    "newline": "a\nb",
    "double quote": 'a"b',
    "single quote": "a'b",
    "end of comment": "*/",
    "C keyword": "int",
    "Rust keyword": "fn",
    "long": "x" * 300,
    "look-alike": "s\u0441ale",
    "full width": "\uff53cale",
    "dash": "a-b",
}

LIBRARY_KEYS = "library: scratch\n"
KERNEL_KEYS = "    name: scale_{dtype}_{block}\n"
# what is replaced in the manifest, with what; NAME is where the bad name goes
PLACES = {
    "library": (LIBRARY_KEYS, "library: NAME\n"),
    "kernel": ("  scale:\n", "  NAME:\n"),
    "variant": (KERNEL_KEYS, "    name: NAME\n"),
    "group": ("    group: scale_{dtype}\n", "    group: NAME\n"),
    "function": ("    function: scale_kernel\n", "    function: NAME\n"),
    "input": ("    grid:", "    inputs: {NAME: i32}\n    grid:"),
    "axis": (KERNEL_KEYS, "    axes: {NAME: [1]}\n" + KERNEL_KEYS),
    "word of an axis": (KERNEL_KEYS, "    axes: {MODE: {NAME: 1}}\n    name: scale_{dtype}_{block}_{MODE}\n"),
    "tag of a block": ("    blocks: [128, 256]", "    blocks: [{tag: NAME, BLOCK_SIZE: 128}]"),
    "tag of promises": (KERNEL_KEYS, "    promises: [{tag: NAME, n_elements: 16}]\n" + KERNEL_KEYS),
    "source": ("    source: kernels/scale.py\n", "    source: NAME\n"),
    "package": ("    source: kernels/scale.py\n", "    package: NAME\n"),
    "root": (LIBRARY_KEYS, LIBRARY_KEYS + "roots: {NAME: kernels}\n"),
    "included file": (LIBRARY_KEYS, LIBRARY_KEYS + "include: [NAME]\n"),
}

HARMLESS_THERE = {
    # Parts of names: what stands around them makes them whole.
    "word of an axis": {"C keyword", "Rust keyword"},
    "tag of a block": {"C keyword", "Rust keyword"},
    "tag of promises": {"C keyword", "Rust keyword"},
    # Python's names: only text in what is packaged. That the file has no such function is that kernel's own failure.
    "function": {"C keyword", "Rust keyword", "long"},
    "axis": {"C keyword", "Rust keyword", "long"},
}


def named(place: str, name: str) -> bytes:
    """The manifest with a name at a place, in double quotes as YAML escapes it."""
    old, new = PLACES[place]
    return edited(old, new.replace("NAME", json.dumps(name)))


def test_bad_names_are_refused_before_any_file_is_written(yaml_project: Project, tmp_path: Path) -> None:
    """Every bad name at every place for one, through doit: each time exit code 3, the place, and no file."""
    cases = {
        (place, kind): named(place, name)
        for place in PLACES
        for kind, name in NAMES.items()
        if kind not in HARMLESS_THERE.get(place, ())
    }
    for (place, kind), (code, output) in run_each(yaml_project, cases, tmp_path).items():
        what = f"{kind} as the name of a {place}:\n{output}"
        assert code == 3, what
        assert re.search(r"^ERROR: kernels\.yaml:\d+:\d+: ", output), what
        assert re.search(r"^  (expected|actual|remedy): ", output, re.MULTILINE), what
        assert output.isascii() and "Traceback" not in output, what
        assert max(len(line) for line in output.splitlines()) < 500, what


def test_names_that_become_equal_are_refused(yaml_project: Project, tmp_path: Path) -> None:
    """A dash is refused, so that only upper and lower case are left to take for one another."""
    second = MANIFEST.partition("kernels:\n")[2].replace("  scale:", "  Scale:")

    def words(*names: str) -> str:
        axis = ", ".join(f"{name}: {number}" for number, name in enumerate(names))
        text = MANIFEST.replace("name: scale_{dtype}_{block}", "name: scale_{MODE}_{block}")
        return text.replace("    name:", f"    axes: {{MODE: {{{axis}}}}}\n    name:")

    cases = {
        "the kernels 'scale' and 'Scale' differ in upper and lower case only": MANIFEST + second,
        "`kernels.scale.axes.MODE` holds 'A_B' twice": words("a_b", "A_B"),
        "a value of `kernels.scale.axes.MODE` cannot stand in names": words("a_b", "a-b"),
    }
    manifests = {message: text.encode() for message, text in cases.items()}
    for message, (code, output) in run_each(yaml_project, manifests, tmp_path).items():
        assert code == 3, output
        assert re.search(rf"^ERROR: kernels\.yaml:\d+:\d+: {message}\n  expected: ", output), output


def test_bad_names_of_arguments_are_refused_before_any_image_is_made(yaml_project: Project) -> None:
    """The kernel's own file says them; Python takes more letters for a name than C and Rust do."""
    yaml_project.write("kernels.yaml", MANIFEST)
    for name, words in {
        "x" * 300: "too long",
        "s\u0441ale": "CYRILLIC SMALL LETTER ES",
        "__a": "belong to the compilers",
    }.items():
        yaml_project.write("kernels/scale.py", KERNEL.replace("n_elements", name))
        yaml_project.edit("kernels.yaml", "cdiv(n_elements, BLOCK_SIZE)", "1")
        result = yaml_project.doit("compile").expect(r"kernels/scale\.py:\d+:\d+: ", words, code=1)
        assert result.output.isascii()
        assert yaml_project.files("build/images") == set()
        yaml_project.write("kernels.yaml", MANIFEST)


# -- files that misbehave when Python imports them


SOUND = MANIFEST.partition("kernels:\n")[2].replace("scale", "sound").replace("[128, 256]", "[64]")

OUTSIDE = {
    "raises": "raise RuntimeError('imported')",
    "prints": "print('error: imported', flush=True)",
    "exits": "import sys; sys.exit(7)",
    "ends the process": "import os; os._exit(7)",
    "lacks a module": "import torch, einops.layers.torch",
    "never ends": "while True: pass",
}


def test_what_a_file_does_besides_its_kernel_does_not_run(built: Project) -> None:
    """No image is rebuilt either: none of it is the kernel's."""
    for what, line in OUTSIDE.items():
        built.write("kernels/scale.py", f"{line}\n{KERNEL}\n{line}\n")
        assert built.doit().expect().counts["built"] == 0, what


INSIDE = {
    "raises": ("raise RuntimeError('not ' + 'now')", ["raises RuntimeError", "actual: RuntimeError: not now"]),
    "exits": ("raise SystemExit('enough')", ["raises SystemExit", "actual: SystemExit: enough"]),
    "never comes back": ("return factor()", ["raises RecursionError", "called from kernels/bad.py:5, in factor"]),
    "kills itself": ("import os; os.kill(os.getpid(), 9)", [r"^  kernels/bad\.py:5:16: the kernel needs 'os.kill'"]),
}


@pytest.mark.parametrize(("line", "words"), INSIDE.values(), ids=INSIDE)
def test_a_file_whose_constants_misbehave_fails_alone(built: Project, line: str, words: list[str]) -> None:
    """Its images fail with the line and the calls that led there; what is sound is built."""
    text = KERNEL.replace("scale_kernel", "bad_kernel").replace("x * 2", "x * FACTOR")
    made = f"\n\ndef factor():\n    {line}\n\nFACTOR = tl.constexpr(factor())\n"
    built.write("kernels/bad.py", text.replace("\n\n\n@", f"{made}\n\n@", 1))
    built.write("kernels/sound.py", KERNEL.replace("scale_kernel", "sound_kernel"))
    declared = MANIFEST.partition("kernels:\n")[2]
    built.write("kernels.yaml", MANIFEST + declared.replace("scale", "bad") + SOUND)
    result = built.doit("compile").expect(
        r"^FAILED compile:bad_fp32_128@", r"kernels/bad\.py:5", *words, " 4 failed", code=1
    )
    assert set(result.ran("compile")) == {"sound_fp32_64@sm_80", "sound_fp32_64@gfx942"}
    assert not [name for name in built.files("build/images") if "bad" in name]


def test_what_a_constant_prints_disturbs_nothing(built: Project) -> None:
    made = "def factor():\n    print('error: a joke')\n    return 2\n\nFACTOR = tl.constexpr(factor())\n"
    built.write("kernels/scale.py", KERNEL.replace("x * 2", "x * FACTOR").replace("\n\n\n@", f"\n{made}\n\n@", 1))
    assert set(built.doit().expect().ran("compile")) == IMAGES


IMPORTED = {
    "raises": ("raise RuntimeError('imported')", ["raises RuntimeError", "actual: RuntimeError: imported"]),
    "exits": ("import sys; sys.exit(7)", ["raises SystemExit", "actual: SystemExit: 7"]),
    "lacks a module": ("import torch", ["raises ModuleNotFoundError", "No module named 'torch'"]),
    "never comes back": ("side()", ["raises RecursionError", r"\.\.\. \d+ more calls"]),
}


def test_a_file_that_misbehaves_while_it_is_imported_whole_fails_alone(tmp_path: Path) -> None:
    """Why it was imported is told as well; what is sound is built, and what a file prints disturbs nothing."""
    one = MANIFEST.replace("[128, 256]", "[128]").replace("[sm_80, gfx942]", "[sm_80]")
    project = Project.create(tmp_path / "scratch", manifest=one + SOUND, scale="", sound="")
    bad = KERNEL.replace("x * 2", "x * FACTOR")
    for number, (line, words) in enumerate(IMPORTED.values()):
        head = f'globals()["FACTOR"] = tl.constexpr(2)\n\n\ndef side():\n    {line}\n\n\nside()\n'
        project.write("kernels/scale.py", bad.replace("\n\n\n@", f"\n\n{head}\n\n@", 1))
        project.write("kernels/sound.py", KERNEL.replace("scale_kernel", "sound_kernel").replace("* 2", f"* {number}"))
        result = project.doit("compile").expect(
            r"^FAILED compile:scale_fp32_128@sm_80$",
            r"^  kernels/scale\.py:8:1: importing kernels/scale\.py for scale_kernel raises",
            r"called from kernels/scale\.py:11, in <module>",
            r"could not be cut out of it:\n +kernels/scale\.py:19:40: the name 'FACTOR' is not defined",
            *words,
            " 1 failed",
            code=1,
        )
        assert result.ran("compile") == ["sound_fp32_64@sm_80"]
        assert len(result.output.splitlines()) < 40
    project.edit("kernels/scale.py", "    side()", "    import os; os._exit(0)")
    project.doit("compile").expect("ended with exit code 0 and left no result", code=1)
    project.edit("kernels/scale.py", "    import os; os._exit(0)", "    print('error: a joke', flush=True)")
    assert project.doit("compile").expect("^kiln: warning: ").ran("compile") == ["scale_fp32_128@sm_80"]


RUNNER = """\
import base64, json, os, sys
from pathlib import Path

# What each child would import anew.
import kiln.doit_plugin.loader, kiln.doit_plugin.run, kiln.graph, kiln.library
from doit.doit_cmd import DoitMain

results = []
for text in json.loads(Path(sys.argv[1]).read_text()):
    Path("kernels.yaml").write_bytes(base64.b64decode(text))
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(write, 1)
        os.dup2(write, 2)
        code = DoitMain().run([])
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    os.close(write)
    with open(read, encoding="utf-8", errors="backslashreplace") as stream:
        output = stream.read()
    results.append((os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), output))
print(json.dumps(results))
"""


def run_each(project: Project, manifests: Mapping[Case, bytes], folder: Path) -> dict[Case, tuple[int, str]]:
    """What doit says to each manifest, in a child of one process that has imported it; it must not write a file."""
    before = set(project.folder.rglob("*"))
    cases = folder / "cases.json"
    cases.write_text(json.dumps([base64.b64encode(data).decode() for data in manifests.values()]))
    done = project.run_python("-c", RUNNER, str(cases)).expect()
    results: list[tuple[int, str]] = [(code, output) for code, output in json.loads(done.output)]
    found = dict(zip(manifests, results, strict=True))
    assert set(project.folder.rglob("*")) == before, [case for case, (code, _) in found.items() if code != 3]
    return found

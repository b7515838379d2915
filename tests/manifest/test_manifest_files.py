"""A manifest in several files: order, paths, defaults, and what is refused, with its place."""

from __future__ import annotations

import json
from pathlib import Path

import fastjsonschema
import pytest
from test_manifest_json_schema import data

from kiln.errors import ManifestError
from kiln.manifest.json_schema import json_schema
from kiln.manifest.loader import load
from kiln.manifest.model import Manifest
from kiln.manifest.yaml_tree import read_yaml

HEAD = "version: 1\nlibrary: kernels\ntargets: [sm_80]\n"


def kernel(key: str, source: str = "k.py", **keys: str) -> str:
    said = {
        "source": source,
        "function": "f",
        "dtypes": "[fp32]",
        "blocks": "[64]",
        "name": f"{key}_{{block}}",
        "signature": '"*{dtype}"',
        "grid": "[1]",
        **keys,
    }
    return f"  {key}:\n" + "".join(f"    {name}: {value}\n" for name, value in said.items())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project, and the current folder, with k.py in it and in each of its folders a and a/b."""
    monkeypatch.chdir(tmp_path)
    for name in ("k.py", "a/k.py", "a/b/k.py"):
        write(tmp_path, {name: ""})
    return tmp_path


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def loaded(folder: Path, files: dict[str, str]) -> Manifest:
    write(folder, files)
    return load(Path("kernels.yaml"))


def refusal(folder: Path, files: dict[str, str]) -> str:
    with pytest.raises(ManifestError) as caught:
        loaded(folder, files)
    print(caught.value)
    return str(caught.value)


def test_kernels_come_in_the_order_of_the_files(folder: Path) -> None:
    manifest = loaded(
        folder,
        {
            "kernels.yaml": f"{HEAD}include: [a/kernels.yaml, c.yaml]\nkernels:\n{kernel('last')}{kernel('first')}",
            "a/kernels.yaml": f"version: 1\nkernels:\n{kernel('inner')}include: [b/more.yml]\n",
            "a/b/more.yml": f"version: 1\nkernels:\n{kernel('innermost', reference='k.py:g')}",
            "c.yaml": f"version: 1\nkernels:\n{kernel('beside')}",
        },
    )
    assert [each.key for each in manifest.kernels] == ["last", "first", "inner", "innermost", "beside"]
    assert manifest.files == tuple(
        folder / name for name in ("kernels.yaml", "a/kernels.yaml", "a/b/more.yml", "c.yaml")
    )
    innermost = manifest.kernels[3]
    assert (innermost.source, innermost.source_name) == (folder / "a/b/k.py", "a/b/k.py")
    assert innermost.reference == "a/b/k.py:g"
    assert str(innermost.position) == "a/b/more.yml:3:3"
    assert manifest.root == folder


def test_defaults_go_over_those_of_the_including_file(folder: Path) -> None:
    manifest = loaded(
        folder,
        {
            "kernels.yaml": f"{HEAD}defaults: {{num_warps: 2, num_stages: 5}}\ninclude: [a/kernels.yaml]\n",
            "a/kernels.yaml": "version: 1\ndefaults: {num_warps: 8}\ninclude: [b/kernels.yaml]\n",
            "a/b/kernels.yaml": f"version: 1\nkernels:\n{kernel('x')}{kernel('y', options='{num_warps: 16}')}",
        },
    )
    options = [variant.options for variant in manifest.variants]
    assert [(each["num_warps"], each["num_stages"]) for each in options] == [(8, 5), (16, 5)]


REFUSED = {
    "a file that is not there": (
        {"kernels.yaml": f"{HEAD}include: [a/kernel.yaml]\n"},
        "kernels.yaml:4:11: the file of `include` does not exist",
        "a/kernel.yaml",
    ),
    "a path out of the project": (
        {"kernels.yaml": f"{HEAD}include: [../kernels.yaml]\n"},
        "kernels.yaml:4:11: '../kernels.yaml' cannot be `include[0]`: it leads out of a folder",
        "",
    ),
    "no YAML file": (
        {"kernels.yaml": f"{HEAD}include: [a/k.py]\n"},
        "kernels.yaml:4:11: `include[0]` is no YAML file",
        ".yaml or .yml",
    ),
    "itself": (
        {"kernels.yaml": f"{HEAD}include: [kernels.yaml]\n"},
        "kernels.yaml:4:11: 'kernels.yaml' is included twice, or includes itself",
        "it is the file that all begins with",
    ),
    "a circle": (
        {
            "kernels.yaml": f"{HEAD}include: [a/x.yaml]\n",
            "a/x.yaml": "version: 1\ninclude: [y.yaml]\n",
            "a/y.yaml": "version: 1\ninclude: [x.yaml]\n",
        },
        "a/y.yaml:2:11: 'x.yaml' is included twice, or includes itself",
        "it is included at kernels.yaml:4:11",
    ),
    "one file by two others": (
        {
            "kernels.yaml": f"{HEAD}include: [a/x.yaml, a/y.yaml]\n",
            "a/x.yaml": f"version: 1\nkernels:\n{kernel('x')}",
            "a/y.yaml": "version: 1\ninclude: [x.yaml]\n",
        },
        "a/y.yaml:2:11: 'x.yaml' is included twice, or includes itself",
        "it is included at kernels.yaml:4:11",
    ),
    "a kernel twice": (
        {
            "kernels.yaml": f"{HEAD}include: [a/x.yaml]\nkernels:\n{kernel('x')}",
            "a/x.yaml": f"version: 1\nkernels:\n{kernel('x', name='other_{block}')}",
        },
        "a/x.yaml:3:3: the kernel 'x' is declared twice",
        "the first is at kernels.yaml:6:3",
    ),
    "kernels that differ in case": (
        {
            "kernels.yaml": f"{HEAD}include: [a/x.yaml]\nkernels:\n{kernel('x')}",
            "a/x.yaml": f"version: 1\nkernels:\n{kernel('X', name='other_{block}')}",
        },
        "a/x.yaml:3:3: the kernels 'x' and 'X' differ in upper and lower case only",
        "the first is at kernels.yaml:6:3",
    ),
    "two variants of one name": (
        {
            "kernels.yaml": f"{HEAD}include: [a/x.yaml]\nkernels:\n{kernel('x')}",
            "a/x.yaml": f"version: 1\nkernels:\n{kernel('y', name='x_{block}')}",
        },
        "a/x.yaml:8:5: 'x_64' is the name of two variants, of kernels 'x' and 'y'",
        "",
    ),
    "a key of the first file": (
        {"kernels.yaml": f"{HEAD}include: [a/x.yaml]\n", "a/x.yaml": "version: 1\ntargets: [sm_80]\n"},
        "a/x.yaml:2:1: the key 'targets' cannot stand in a file that another one includes",
        "write it in the file that includes this one",
    ),
    "a kernel in the wrong place": (
        {"kernels.yaml": f"{HEAD}include: [a/x.yaml]\n", "a/x.yaml": f"version: 1\n{kernel('x')[2:]}"},
        "a/x.yaml:2:1: unknown key 'x' in the file",
        "indent it under `kernels:`",
    ),
    "another version": (
        {"kernels.yaml": f"{HEAD}include: [a/x.yaml]\n", "a/x.yaml": "version: 2\n"},
        "a/x.yaml:1:10: the file has another version than this Kiln reads",
        "version 1",
    ),
    "no version": (
        {"kernels.yaml": f"{HEAD}include: [a/x.yaml]\n", "a/x.yaml": f"kernels:\n{kernel('x')}"},
        "a/x.yaml:1:1: the file lacks the key `version`",
        "",
    ),
    "no YAML": (
        {"kernels.yaml": f"{HEAD}include: [a/x.yaml]\n", "a/x.yaml": "version: 1\nkernels: {\n"},
        "a/x.yaml:3:1: not valid YAML: a value is missing here",
        "",
    ),
    "an included file without anything": (
        {"kernels.yaml": f"{HEAD}include: [a/x.yaml]\n", "a/x.yaml": "version: 1\n"},
        "a/x.yaml:1:1: the file lacks the key `kernels`",
        "or `include:` in its place",
    ),
    "neither kernels nor include": (
        {"kernels.yaml": HEAD},
        "kernels.yaml:1:1: the file lacks the key `kernels`",
        "remedy: add `kernels:`, a map from a name to a map with the keys source, function, dtypes, name, signature, "
        "grid, and others where they are wanted, or `include:` in its place",
    ),
    "a source that is beside the first file": (
        {
            "kernels.yaml": f"{HEAD}include: [a/x.yaml]\n",
            "a/x.yaml": f"version: 1\nkernels:\n{kernel('x', source='kernels/k.py')}",
            "kernels/k.py": "",
        },
        "a/x.yaml:4:13: the file of `kernels.x.source` does not exist",
        "",
    ),
}


@pytest.mark.parametrize(("files", "head", "detail"), REFUSED.values(), ids=REFUSED)
def test_refused_with_position(folder: Path, files: dict[str, str], head: str, detail: str) -> None:
    message = refusal(folder, files)
    assert message.startswith(head)
    assert detail in message


def test_a_link_out_of_the_project_is_not_followed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "x.yaml").write_text(f"version: 1\nkernels:\n{kernel('x')}")
    (folder / "a/x.yaml").symlink_to(outside / "x.yaml")
    message = refusal(folder, {"kernels.yaml": f"{HEAD}include: [a/x.yaml]\n"})
    assert message.startswith("kernels.yaml:4:11: the file of `include` lies outside the manifest's folder")


def test_editors_take_both_kinds_of_files() -> None:
    """One schema for both: `library` and `targets` come together, or not at all."""
    validate = fastjsonschema.compile(json.loads(json_schema()))
    included = f"version: 1\nkernels:\n{kernel('x')}"
    for text in (included, f"{HEAD}{included.removeprefix('version: 1')}", f"{HEAD}include: [a.yaml]\n"):
        validate(data(read_yaml(text.encode(), "kernels.yaml")))
    with pytest.raises(fastjsonschema.JsonSchemaValueException):
        validate(data(read_yaml(f"version: 1\nlibrary: x\nkernels:\n{kernel('x')}".encode(), "kernels.yaml")))

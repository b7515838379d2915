"""The section `crate`: what it reads to, and each thing that can be wrong, with file, line and column."""

from __future__ import annotations

from pathlib import Path

import pytest

from kiln.errors import ManifestError
from kiln.manifest import crate
from kiln.manifest.json_schema import schema_of
from kiln.manifest.loader import load
from kiln.manifest.model import Manifest
from kiln.manifest.yaml_tree import read_yaml

TEXT = """\
version: 1
library: l
targets: [sm_80]
crate: SECTION
kernels:
  soft:
    source: k.py
    function: f
    dtypes: [fp32]
    name: "soft_{dtype}"
    signature: "*{dtype}"
    grid: [1]
"""


def read(folder: Path, section: str) -> Manifest:
    (folder / "k.py").touch()
    (folder / "kernels.yaml").write_text(TEXT.replace("SECTION", section))
    return load(folder / "kernels.yaml")


def test_what_is_given_is_kept_as_it_stands(tmp_path: Path) -> None:
    assert read(tmp_path, "{}").crate == {}
    given = (
        '{repository: https://e.org/k.git, license: MIT OR Apache-2.0, description: "k: «all»", homepage: http://e.org}'
    )
    assert read(tmp_path, given).crate == {
        "license": "MIT OR Apache-2.0",
        "description": "k: «all»",
        "repository": "https://e.org/k.git",
        "homepage": "http://e.org",
    }


@pytest.mark.parametrize(
    "license",
    ["Apache-2.0", "(MIT OR Apache-2.0) AND BSD-3-Clause", "GPL-2.0+ WITH Classpath-exception-2.0", "LicenseRef-own"],
)
def test_licenses_are_expressions(tmp_path: Path, license: str) -> None:
    assert read(tmp_path, f"{{license: {license}}}").crate == {"license": license}


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("{licence: MIT}", ["4:9", "unknown key 'licence'", "did you mean 'license'?"]),
        ("MIT", ["4:8", "keys among license, description, repository, homepage"]),
        ("{license: 2}", ["4:18", 'quote it: "2"']),
        ("{license: Apache 2.0}", ["4:18", "no license that Cargo knows", "did you mean 'Apache-2.0'?"]),
        ("{license: MIT/Apache-2.0}", ["4:18", "write MIT OR Apache-2.0"]),
        ("{license: MIT OR}", ["4:18", "an SPDX expression"]),
        ("{license: (MIT}", ["4:18", "an SPDX expression"]),
        ('{license: ""}', ["4:18", "an SPDX expression"]),
        ("{repository: git@e.org:k}", ["4:21", "`crate.repository` is no address on the web", "https://"]),
        ("{homepage: https://e.org/a b}", ["4:19", "`crate.homepage` is no address"]),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, section: str, words: list[str]) -> None:
    with pytest.raises(ManifestError) as caught:
        read(tmp_path, section)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("name", crate.KEYS)
def test_every_key_has_an_example_that_the_reader_takes(name: str) -> None:
    key = crate.KEYS[name]
    assert key.type.read(read_yaml(key.example.encode(), "kernels.yaml"), name) == key.example
    assert schema_of(key.type)["type"] == "string"

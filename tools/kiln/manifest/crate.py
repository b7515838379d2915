"""What the Rust crate says of itself in its Cargo.toml: the section `crate` of kernels.yaml."""

from __future__ import annotations

import re

from kiln.errors import ManifestError, Position
from kiln.manifest.compound_types import Key
from kiln.manifest.value_types import Text
from kiln.manifest.wording import show

# SPDX Specification, annex "SPDX license expressions", as Cargo takes it: identifiers, operators and parentheses.
_TERM = r"[A-Za-z0-9.+-]+"
_LICENSE = re.compile(rf"{_TERM}(?: (?:AND|OR|WITH) {_TERM})*")
_ADDRESS = re.compile(r"https?://[^\s/]+\S*")


def _license(text: str, position: Position, what: str) -> None:
    if _LICENSE.fullmatch(re.sub(r"\((?=\S)|(?<=\S)\)", "", text)) and text.count("(") == text.count(")"):
        return
    remedy = "https://spdx.org/licenses has the names of licenses"
    if "/" in text:
        remedy = f"write {' OR '.join(part.strip() for part in text.split('/'))}"
    elif _LICENSE.fullmatch(text.strip().replace(" ", "-")):
        remedy = f"did you mean {text.strip().replace(' ', '-')!r}? {remedy}"
    raise ManifestError(
        f"{show(text)} is no license that Cargo knows",
        where=position,
        expected="an SPDX expression, such as Apache-2.0 or MIT OR Apache-2.0",
        actual=show(text),
        remedy=remedy,
    )


def _address(text: str, position: Position, what: str) -> None:
    if _ADDRESS.fullmatch(text) is None:
        raise ManifestError(
            f"`{what}` is no address on the web",
            where=position,
            expected="an address that begins with https://",
            actual=show(text),
        )


KEYS: dict[str, Key] = {
    "license": Key(
        type=Text(words="an SPDX expression, such as Apache-2.0", check=_license),
        doc="the license of the kernels, which is their authors' to choose: registries ask for one",
        example="MIT OR Apache-2.0",
    ),
    "description": Key(
        type=Text(),
        doc="one line on what the crate is; without it, that these are kernels of the library",
        example="Softmax and attention for GPUs",
    ),
    "repository": Key(
        type=Text(words="an address", check=_address),
        doc="where the kernels are developed",
        example="https://example.org/kernels.git",
    ),
    "homepage": Key(
        type=Text(words="an address", check=_address),
        doc="the page of the library on the web",
        example="https://example.org/kernels",
    ),
}

"""docs/manifest.md, the reference of kernels.yaml: made of the same tables as the reader."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from kiln.manifest import budgets, crate, expression
from kiln.manifest.compound_types import Key, MapOf, Section
from kiln.manifest.json_schema import FILE, MODELINE
from kiln.manifest.schema import KERNEL, ONNXRUNTIME, OPTIONS, RELEASE, TOP

_WIDTH = 120

_HEAD = f"""\
# kernels.yaml

<!-- Made with `kiln manifest-docs > docs/manifest.md` from the tables that the reader uses; edits are lost. -->

What each key takes and means. A file that says anything else is refused before anything is built, with line and column
of what is wrong. Paths are relative to the file. Anchors, aliases, tags and duplicate keys are refused; so is a plain
word that some YAML readers take for something else than text, such as `no` and `1.10`: quote it.

## In an editor

An editor with a YAML language server completes and checks the file when its first line is

    {MODELINE.strip()}

and `{FILE}` lies beside it. `kiln init` writes both; `kiln schema > {FILE}` makes the schema anew, after an
update of Kiln, say. The schema knows keys, types and ranges; the reader knows more.

## Which variants there are, and their order

A kernel has a variant for each of its dtypes, each value of each of its axes, each of its blocks where it has any, less
those that `exclude` drops, and each of its `promises`, and an image of each for each of its targets. Order of
declaration is order of output: kernels as they stand in the file; dtypes outermost, then the axes as they stand under
`axes`, then blocks, promises innermost; of each variant the targets as they stand in the library's `targets`. Names of
variants must differ in more than upper and lower case: each of dtype, axes and block that has more than one value has
its placeholder in `name`, and what is promised stands behind it.

A kernel with everything:

    kernels:
      attention:
        source: kernels/attention.py
        function: attention_kernel
        dtypes: [fp16, bf16]
        axes: {{HEAD_DIM: [64, 128], CAUSAL: {{causal: true, full: false}}}}
        blocks:
          - {{tag: 128x64, BLOCK_M: 128, BLOCK_N: 64, num_warps: 8}}
          - {{BLOCK_M: 64, BLOCK_N: 64}}                       # its tag is 64x64
        constants: {{ACTIVATION: none, EVEN: {{expression: "HEAD_DIM % BLOCK_N == 0"}}, OUT: {{dtype: "{{dtype}}"}}}}
        exclude: [{{HEAD_DIM: 128, block: 128x64}}]
        targets: [sm_90a, gfx942]
        name: attention_{{dtype}}_{{HEAD_DIM}}_{{CAUSAL}}_{{block}} # attention_fp16_64_causal_128x64
        signature: "*{{dtype}}:16, *{{dtype}}:16, i32"
        promises: [{{n: 16}}, {{}}]                              # attention_fp16_64_causal_128x64_n16, and without _n16
        options: {{num_stages: "3 if HEAD_DIM <= 64 else 2"}}
        grid: ["cdiv(n, BLOCK_M)"]
"""


def reference_page() -> str:
    """The page's text, in Markdown, ending with a newline."""
    parts = [
        _HEAD,
        _section("The file", "", TOP),
        _section("A kernel", "Under `kernels`, a name and these keys.", KERNEL),
        _section(
            "Compiler options",
            "Under `defaults`; under a kernel's `options`, over those; in a block that is a map, over both. Each is "
            "a value or an expression over `block` (where blocks are integers), constants and axes.",
            OPTIONS,
        ),
        _section(
            "Budgets",
            "Under the library's `budgets` for all kernels; under a kernel's for its own images, over those. Each is a "
            "number, or an expression over `block` (where blocks are integers), constants and axes; or a map from "
            "targets to such values, for the targets in it alone. `validate` holds the facts of each image against "
            "them. What is not known of an image, as registers, spills and stack of a PTX, is not held against it, and "
            "its report says so; where all that such a budget is for is PTX, it is refused.",
            budgets.KEYS,
        ),
        _section(
            "The Rust crate",
            "Under the library's `crate`. `docs/rust.md` says how a crate is published. An edit of these makes the "
            "crate anew, and compiles nothing.",
            crate.KEYS,
        ),
        _section(
            "For ONNX Runtime",
            "Under the library's `onnxruntime`. `docs/onnxruntime.md` says what is made, and how it is linked.",
            ONNXRUNTIME,
        ),
        _section(
            "Releases",
            "Under the library's `release`. `docs/release.md` says what a release is, and how it is made and verified.",
            RELEASE,
        ),
        f"## Expressions\n\n{_language()}",
    ]
    return "\n".join(parts)


def _section(title: str, text: str, keys: Mapping[str, Key]) -> str:
    lines = [f"## {title}", ""]
    if text:
        lines += [*textwrap.wrap(text, _WIDTH, break_on_hyphens=False), ""]
    for name, key in keys.items():
        lines += _key(name, key)
    return "\n".join(lines)


def _key(name: str, key: Key) -> list[str]:
    need = "needed" if key.required else "may be left out"
    if key.unless:
        others = " and ".join(f"`{name}`" for name in key.unless)
        need = f"needed without {others}" if key.required else need
        need += "" if key.beside else f", refused with {'them' if key.required else others}"
    if not key.required and isinstance(key.default, bool | int | str):
        need = f"`{str(key.default).lower()}` when left out"
    said = f"{key.doc[0].upper()}{key.doc[1:]}. Takes {_takes(key)}."
    return [
        f"### `{name}` ({need})",
        "",
        *textwrap.wrap(said, _WIDTH, break_on_hyphens=False, break_long_words=False),
        "",
        f"    {name}: {key.example}",
        "",
    ]


def _takes(key: Key) -> str:
    if isinstance(key.type, Section):
        return "a map with the keys below"
    if isinstance(key.type, MapOf) and isinstance(key.type.value, Section):
        return f"a map from {key.type.key.words} to a map with the keys below"
    return key.type.words


def _language() -> str:
    """What the expression module says of the language, without its headline."""
    said = expression.__doc__ or ""
    return said.partition("\n\n")[2]

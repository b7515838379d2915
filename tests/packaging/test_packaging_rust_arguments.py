"""The arguments of the Rust crate: they lie in memory as those of C do, and what is no call does not compile."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from c_library import compile_program, run
from rust_crates import RUST, Cargo, add_example, driver_records, odd_records, render

from kiln.packaging.c_package import render_header
from kiln.packaging.groups import groups_of
from kiln.packaging.record import Record
from kiln.packaging.rust_view import view_structs
from softmax_images import make_manifest

UI = RUST / "ui"


def structs(records: list[Record]) -> Iterator[tuple[str, str, list[str]]]:
    """Each argument struct: its module in Rust, its name in C, and its fields."""
    fields = {}
    for struct in view_structs(records):
        names = [field.name for field in struct.fields]
        fields.update({variant.id: names for variant in struct.variants})
        yield f"variants::{struct.base}", struct.base, names
    for group in groups_of(records):
        assert group.is_uniform
        yield f"groups::{group.name}", group.name, fields[group.variants[0].id]


@pytest.mark.parametrize("library", ["kernels", "Odd_Kernels"])
def test_arguments_lie_in_memory_as_those_of_c_do(
    records: list[Record], folded: list[Record], cargo: Cargo, tmp_path: Path, library: str
) -> None:
    """Both compilers are asked for the size of every struct and the offset and size of every field."""
    used = driver_records(records, folded) if library == "kernels" else odd_records(records)
    crate = render(used, tmp_path, library)
    render_header(used, make_manifest(used, library), tmp_path / "c")
    rust, c = [], []
    for module, name, fields in structs(used):
        type, struct = f"{library}::{module}::Args", f"struct {library}_{name}_args"
        rust.append(f'println!("{name} {{}} {{}}", size_of::<{type}>(), align_of::<{type}>());')
        c.append(f'printf("{name} %zu %zu\\n", sizeof({struct}), _Alignof({struct}));')
        for each in fields:
            offset, size = f"offset_of!({type}, {each})", f"of(|args: &{type}| args.{each})"
            rust.append(f'println!("{name}.{each} {{}} {{}}", {offset}, {size});')
            offset, size = f"offsetof({struct}, {each})", f"sizeof((({struct} *)0)->{each})"
            c.append(f'printf("{name}.{each} %zu %zu\\n", {offset}, {size});')
    add_example(crate, "layout", RUST_LAYOUT.replace("BODY", "\n".join(rust)))
    ended = cargo(crate, "run", "-q", "--offline", "--no-default-features", "--example", "layout")
    text = C_LAYOUT.replace("LIBRARY", library).replace("BODY", "\n".join(c))
    program = compile_program(text, tmp_path / "layout", "-std=c11", "-I", tmp_path / "c/include")
    assert ended.stdout == run(program)
    assert len(ended.stdout.splitlines()) == sum(1 + len(fields) for _, _, fields in structs(used))


RUST_LAYOUT = """use std::mem::{align_of, offset_of, size_of};

fn of<A, F>(_: impl Fn(&A) -> F) -> usize {
    size_of::<F>()
}

fn main() {
    BODY
}
"""

C_LAYOUT = """#include <LIBRARY/LIBRARY.h>
#include <stdio.h>

int main(void) {
    BODY
    return 0;
}
"""


def expected_error(path: Path) -> str:
    return path.read_text().splitlines()[0].removeprefix("//! ")


def test_what_is_no_call_does_not_compile(
    records: list[Record], folded: list[Record], cargo: Cargo, tmp_path: Path
) -> None:
    """tests/rust/ui: each file says in its first line what the compiler has to say of it, and that alone."""
    crate = render(driver_records(records, folded), tmp_path)
    shutil.copytree(UI, crate / "examples")
    words = ("check", "-q", "--offline", "--examples", "--keep-going", "--message-format=json")
    told: dict[str, list[str]] = {path.stem: [] for path in UI.glob("*.rs")}
    assert len(told) >= 10
    for line in cargo(crate, *words, expect=101).stdout.splitlines():
        message = json.loads(line)
        found = message.get("message", {})
        if message["reason"] == "compiler-message" and found["level"] == "error" and found["spans"]:
            code = f"{found['code']['code']}: " if found["code"] else ""
            told[message["target"]["name"]].append(code + found["message"])
    for name, messages in told.items():
        expected = expected_error(UI / f"{name}.rs")
        assert messages, f"{name} compiles"
        code, _, words_of_it = expected.rpartition(": ")
        assert all(message.startswith(code) for message in messages), (name, messages)
        assert any(words_of_it in message for message in messages), (name, messages)


def test_what_is_a_call_compiles(records: list[Record], folded: list[Record], cargo: Cargo, tmp_path: Path) -> None:
    """Those files again, with what is wrong with them mended: nothing else was."""
    crate = render(driver_records(records, folded), tmp_path)
    mended = {
        "too_few_arguments": ("        n_cols: 1,\n", "        n_cols: 1,\n        n_rows: 1,\n"),
        "too_many_arguments": ("        n_planes: 1,\n", ""),
        "wrong_width": ("1_i64", "1"),
        "wrong_element": ("::<kernels::F16>", ""),
        "address_without_a_type": ("output_ptr: address", "output_ptr: DevicePtr::new(address)"),
        "other_kernel": ("args: &alone_fp32_1024::Args", "args: &softmax_fp32_1024::Args"),
        "current_context_is_unsafe": (
            "    Library::for_current_context()",
            "    unsafe { Library::for_current_context() }",
        ),
        "launch_is_unsafe": ("kernel.launch(args, Stream::DEFAULT)", "unsafe { kernel.launch(args, Stream::DEFAULT) }"),
    }
    for name, (wrong, right) in mended.items():
        text = (UI / f"{name}.rs").read_text()
        assert wrong in text, name
        add_example(crate, name, text.replace(wrong, right))
    cargo(crate, "check", "-q", "--offline", "--examples")

"""Strict YAML: what is refused, where exactly, how fast, and the same with and without libyaml."""

from __future__ import annotations

import time

import pytest
import yaml

from kiln.errors import ManifestError
from kiln.manifest.yaml_nodes import List, Map, Node, Scalar, other_type
from kiln.manifest.yaml_tree import read_yaml

LOADERS = {"libyaml": yaml.CBaseLoader, "python": yaml.BaseLoader}


def plain(node: Node) -> object:
    """A tree as dicts, lists and texts."""
    if isinstance(node, Map):
        return {entry.key.text: plain(entry.value) for entry in node.entries}
    return [plain(item) for item in node.items] if isinstance(node, List) else node.text


@pytest.mark.parametrize("loader", LOADERS.values(), ids=LOADERS)
def test_tree_keeps_text_style_and_positions(loader: object) -> None:
    root = read_yaml(
        "a: 1e-5\r\nü: ['no', on]\n'c':\n  - {d: >\n    x}\n".replace(" >\n    x", ' "x"').encode(), "f", loader
    )
    assert plain(root) == {"a": "1e-5", "ü": ["no", "on"], "c": [{"d": "x"}]}
    assert isinstance(root, Map)
    second = root.entries[1].value
    assert isinstance(second, List)
    quoted, bare = second.items
    assert isinstance(quoted, Scalar) and isinstance(bare, Scalar)
    assert (quoted.plain, bare.plain) == (False, True)
    assert [str(node.position) for node in (second, quoted, bare)] == ["f:2:4", "f:2:5", "f:2:11"]
    assert str(root.entries[2].key.position) == "f:3:1"


@pytest.mark.parametrize("loader", LOADERS.values(), ids=LOADERS)
def test_one_document_may_be_marked(loader: object) -> None:
    assert plain(read_yaml(b"---\na: 1\n...\n", "f", loader)) == {"a": "1"}


# bytes, line:column, words of the message
BAD: dict[str, tuple[bytes, str, list[str]]] = {
    "utf-8 mark": (b"\xef\xbb\xbfa: 1\n", "1:1", ["byte order mark", "without BOM"]),
    "utf-16 mark": ("a: 1\n".encode("utf-16"), "1:1", ["byte order mark"]),
    "bad utf-8": ("a: ü\nb: ü".encode() + b"\xff\n", "2:5", ["not UTF-8", "0xff"]),
    "cut utf-8": (b"a: \xc3", "1:4", ["not UTF-8", "0xc3"]),
    "surrogate in utf-8": (b"a: \xed\xa0\x80\n", "1:4", ["not UTF-8"]),
    "nul": (b"a: 1\nb: \x00\n", "2:4", ["U+0000"]),
    "escape character": (b"a: \x1b[31m\n", "1:4", ["U+001B"]),
    "delete": (b"a: x\x7f\n", "1:5", ["U+007F"]),
    "next line": ("a: x\u0085b: 1\n".encode(), "1:5", ["U+0085"]),
    "line separator": ("a: x\u2028b: 1\n".encode(), "1:5", ["U+2028"]),
    "right to left": ("a: \u202ex\n".encode(), "1:4", ["U+202E"]),
    "lone carriage return": (b"a: 1\rb: 2\n", "1:5", ["U+000D", "CR LF"]),
    "tab": (b"a:\n\tb: 1\n", "2:1", ["a tab", "spaces"]),
    "directive": (b"%YAML 1.1\n---\na: 1\n", "1:1", ["directive"]),
    "anchor": (b"a: &x 1\n", "1:4", ["an anchor", "`defaults`"]),
    "anchor on a map": (b"a: &x\n  b: 1\n", "1:4", ["an anchor"]),
    "alias": (b"a: 1\nb: *a\n", "2:4", ["an alias"]),
    "alias as a key": (b"*a : 1\n", "1:1", ["an alias"]),
    "signature without quotes": (b"signature: *fp32:16, i32\n", "1:12", ["an alias", "in quotes"]),
    "merge key": (b"a:\n  <<: {b: 1}\n", "2:3", ["a merge key", "`defaults`"]),
    "tag": (b"a: !!int 1\n", "1:4", ["a tag"]),
    "python tag": (b"a: !!python/object/apply:os.system ['id']\n", "1:4", ["a tag"]),
    "local tag": (b"a: !x 1\n", "1:4", ["a tag"]),
    "empty tag": (b"a: ! x\n", "1:4", ["a tag"]),
    "verbatim tag": (b"a: !<x\n", "1:4", ["a tag"]),
    "tag on a list": (b"a: !!set [1]\n", "1:4", ["a tag"]),
    "duplicate key": (b"a: 1\nb: 2\n'a': 3\n", "3:1", ["'a'", "twice", "line 1, column 1"]),
    "duplicate key in flow": (b"x: {a: 1, a: 2}\n", "1:11", ["'a'", "twice", "line 1, column 5"]),
    "number as a key": (b"1: x\n", "1:1", ["not text", "a number: '1'", "quote it"]),
    "boolean as a key": (b"a:\n  no: x\n", "2:3", ["not text", "a truth value: 'no'"]),
    "nothing as a key": (b"? \n: x\n", "1:2", ["not text", "nothing"]),
    "list as a key": (b"? [a]\n: x\n", "1:3", ["not text", "a list or a map"]),
    "map as a key": (b"{a: 1}: x\n", "1:1", ["not text", "a list or a map"]),
    "second document": (b"a: 1\n---\nb: 2\n", "2:1", ["a second document"]),
    "text after the end": (b"a: 1\n...\nb: 2\n", "3:1", ["a second document"]),
    "two roots": (b"[1]\n[2]\n", "2:1", ["a second document"]),
    "empty": (b"", "1:1", ["empty"]),
    "comments only": (b"# nothing\n", "1:1", ["empty"]),
    "deep": (b"a: " + b"[" * 32 + b"]" * 32, "1:35", ["nested too deeply", "32"]),
    "open list": (b"a: [1, 2\nb: 3\n", "1:4", ["not valid YAML", "not closed"]),
    "open map": (b"a: {x: 1\n", "1:4", ["not valid YAML", "not closed"]),
    "wrong bracket": (b"a: {x: 1, y: 2]\n", "1:4", ["not closed"]),
    "open quote": (b'b: 1\na: "abc\n', "2:4", ["quote", "never closed"]),
    "open single quote": (b"a: 'abc\n", "1:4", ["quote", "never closed"]),
    "quote over a document": (b"a: 'abc\n---\n'\n", "1:4", ["quote", "never closed"]),
    "two colons": (b"a: b: c\n", "1:5", ["a colon", "quote a text"]),
    "deeper": (b"a:\n  b: 1\n   c: 2\n", "3:5", ["a colon", "indentation"]),
    "less deep": (b"a:\n    b: 1\n  c: 2\n", "3:3", ["indentation"]),
    "no colon": (b"a: 1\nb\nc: 2\n", "2:1", ["neither a key"]),
    "list then map": (b"- a\nb: 1\n", "2:1", ["indentation"]),
    "pattern without quotes": (b"name: {dtype}_x\n", "1:14", ["quote a text that starts with a bracket, a brace"]),
    "text after a quote": (b"a: 'x' y\n", "1:8", ["not continue"]),
    "at": (b"a: @x\n", "1:4", ["cannot start", "'@x'"]),
    "no item": (b"a: [1,,2]\n", "1:7", ["missing"]),
    "stray bracket": (b"a: ]\n", "1:4", ["missing"]),
    "block header": (b"a: |x\n  b\n", "1:4", ["block of text"]),
    "unknown escape": (b'a: "\\q"\n', "1:4", ["wrong escape", "single quotes"]),
    "short escape": (b'a: "\\xZZ"\n', "1:4", ["wrong escape"]),
    "surrogate": (b'a: "\\ud800"\n', "1:4", ["wrong escape"]),
}


@pytest.mark.parametrize("loader", LOADERS.values(), ids=LOADERS)
@pytest.mark.parametrize("case", BAD)
def test_refused_with_position(case: str, loader: object) -> None:
    data, place, words = BAD[case]
    with pytest.raises(ManifestError) as caught:
        read_yaml(data, "kernels.yaml", loader)
    message = str(caught.value)
    assert message.startswith(f"kernels.yaml:{place}: ")
    assert message.isascii()
    assert [word for word in words if word not in message] == []


@pytest.mark.parametrize("case", BAD)
def test_same_message_without_libyaml(case: str) -> None:
    messages = set()
    for loader in LOADERS.values():
        with pytest.raises(ManifestError) as caught:
            read_yaml(BAD[case][0], "f", loader)
        messages.add(str(caught.value))
    assert len(messages) == 1


BOMB = "a: &a [x]\n" + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{f'*{chr(97 + n)},' * 9}]\n" for n in range(12))

FLOODS: dict[str, tuple[bytes, str, str]] = {
    "alias bomb": (BOMB.encode(), "1:4", "an anchor"),
    "deep list": (b"[" * 2**20, "1:1001", "nested too deeply"),
    "deep list over lines": (b"[\n" * 2**19, "33:1", "nested too deeply"),
    "deep map": (b"a: " + b"{a: " * 2**17, "1:128", "nested too deeply"),
    "deep block": (b"".join(b" " * n + b"a:\n" for n in range(1400)), "33:33", "nested too deeply"),
    "deep dashes": (b"- " * 2**19, "1:65", "nested too deeply"),
    "ten megabytes": (b"a: 1\n" * 2**21, "1:1", "too large"),
    "a long key": (b"x" * (2**20 - 8) + b": 1\n", "1:1048569", "a colon"),
    "a long number as a key": (b"? " + b"1" * (2**20 - 8) + b"\n: 1\n", "1:3", "a number"),
    "a number that is none": (b"? " + b"1" * (2**20 - 9) + b"x\n: [a\n", "2:3", "not closed"),
    "a long line of quotes": (b"a: " + b"'" * (2**20 - 5), "1:4", "never closed"),
}


@pytest.mark.parametrize("case", FLOODS)
def test_refused_in_under_a_second(case: str) -> None:
    data, place, words = FLOODS[case]
    start = time.perf_counter()
    with pytest.raises(ManifestError) as caught:
        read_yaml(data, "f")
    elapsed = time.perf_counter() - start
    message = str(caught.value)
    assert message.startswith(f"f:{place}: ") and words in message
    assert len(message) < 1000
    assert elapsed < 1


def _first(data: str) -> Scalar:
    root = read_yaml(data.encode(), "f")
    assert isinstance(root, List) and isinstance(root.items[0], Scalar)
    return root.items[0]


OTHER = (
    *("no", "No", "NO", "yes", "on", "off", "true", "True", "FALSE", "null", "~", "<<", "="),
    *("1", "-1", "+1", "1.10", "1e5", "1e-5", ".5", "1.", "0x1f", "0b1", "0o7", "1_000", "12:30:45", ".inf", ".nan"),
    *("2024-01-01", "2024-01-01 10:00:00"),
)


@pytest.mark.parametrize("text", OTHER)
def test_taken_for_something_else_than_text(text: str) -> None:
    assert other_type(_first(f"- {text}")) is not None
    assert other_type(_first(f"- '{text}'")) is None


def test_nothing_is_no_text() -> None:
    assert other_type(_first("-")) == "nothing"
    assert other_type(_first("- ''")) is None


@pytest.mark.parametrize(
    "text", ["y", "n", "N", "none", "nope", "fp16", "128x64", "1.2.3", "1e", "e5", "0x", "v1.10", "a=b"]
)
def test_plain_text(text: str) -> None:
    assert other_type(_first(f"[{text}]")) is None

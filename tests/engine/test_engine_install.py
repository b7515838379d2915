"""What is installed below a prefix: whole, for all to read, nobody else's file, and nothing left from before."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kiln.digests import digest_bytes
from kiln.engine.install import Installed, install
from kiln.engine.rows import Output
from kiln.errors import StateError

LISTING = "share/scratch/installed.json"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "build").mkdir()
    return tmp_path / "build"


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    return tmp_path / "prefix"


def put(root: Path, prefix: Path, files: dict[str, str], listing: str = LISTING) -> Installed:
    """Install files, name below the prefix -> content, as outputs of a build."""
    outputs = {}
    for name, text in files.items():
        path = root / name.replace("/", "-")
        path.write_text(text)
        data = path.read_bytes()
        outputs[name] = Output(path=path.name, size=len(data), ctime_ns=0, sha256=digest_bytes(data))
    return install(outputs, root, prefix, listing)


def there(prefix: Path) -> set[str]:
    return {path.relative_to(prefix).as_posix() for path in prefix.rglob("*") if not path.is_dir()}


def test_an_installation_follows_the_one_before(root: Path, prefix: Path) -> None:
    first = put(root, prefix, {"lib/a.a": "a", "lib/old/b.a": "b", "include/c.h": "c"})
    assert first == Installed(added=["lib/a.a", "lib/old/b.a", "include/c.h"], changed=[], same=[], removed=[])
    before = (prefix / "include/c.h").stat()
    second = put(root, prefix, {"lib/a.a": "A", "include/c.h": "c", "lib/new.a": "n"})
    assert second == Installed(added=["lib/new.a"], changed=["lib/a.a"], same=["include/c.h"], removed=["lib/old/b.a"])
    assert there(prefix) == {"lib/a.a", "include/c.h", "lib/new.a", LISTING}
    assert (prefix / "lib/a.a").read_text() == "A"
    # With its time stamp, so that nobody compiles anew; and the folder that is empty now is gone.
    assert (prefix / "include/c.h").stat().st_mtime_ns == before.st_mtime_ns
    assert not (prefix / "lib/old").exists()


def test_all_may_read_it_whatever_the_umask(root: Path, prefix: Path) -> None:
    old = os.umask(0o077)
    try:
        put(root, prefix, {"lib/a/b.a": "b"})
    finally:
        os.umask(old)
    modes = {path.relative_to(prefix).as_posix(): path.stat().st_mode & 0o777 for path in prefix.rglob("*")}
    assert modes == {
        "lib": 0o755,
        "lib/a": 0o755,
        "lib/a/b.a": 0o644,
        "share": 0o755,
        "share/scratch": 0o755,
        LISTING: 0o644,
    }
    assert prefix.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_what_somebody_else_put_there_stays(root: Path, prefix: Path, kind: str) -> None:
    put(root, prefix, {"lib/mine.a": "1"})
    taken = prefix / "lib/taken.a"
    if kind == "file":
        taken.write_text("theirs")
    elif kind == "link":
        taken.symlink_to("nowhere")
    else:
        taken.mkdir()
    with pytest.raises(StateError) as failure:
        put(root, prefix, {"lib/mine.a": "2", "lib/taken.a": "2"})
    text = str(failure.value)
    assert text.startswith(f"{taken}: the prefix has files that no installation of this library put there")
    assert "remove them, or name another prefix" in text
    assert (prefix / "lib/mine.a").read_text() == "1"
    assert os.path.lexists(taken)


def test_two_libraries_share_a_prefix(root: Path, prefix: Path) -> None:
    other = "share/other/installed.json"
    put(root, prefix, {"lib/a.a": "a"})
    put(root, prefix, {"lib/b.a": "b"}, other)
    put(root, prefix, {})
    assert there(prefix) == {"lib/b.a", other, LISTING}
    with pytest.raises(StateError, match=r"lib/b\.a"):
        put(root, prefix, {"lib/b.a": "mine"})


def test_what_was_stopped_half_way_goes_on(root: Path, prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is in place is listed by then."""
    put(root, prefix, {"lib/old.a": "old", "lib/a.a": "1"})
    moves: list[Path] = []
    replace = Path.replace

    def stop(self: Path, target: Path) -> Path:
        if len(moves) == 3:
            raise KeyboardInterrupt
        moves.append(target)
        return replace(self, target)

    files = {"lib/a.a": "2", "lib/b.a": "2", "lib/c.a": "2"}
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", stop)
        with pytest.raises(KeyboardInterrupt):
            put(root, prefix, files)
    assert there(prefix) == {"lib/old.a", "lib/a.a", "lib/b.a", LISTING}
    done = put(root, prefix, files)
    assert done == Installed(added=["lib/c.a"], changed=[], same=["lib/a.a", "lib/b.a"], removed=["lib/old.a"])


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        json.dumps({"schema": 2, "files": []}),
        json.dumps({"schema": 1, "files": "lib"}),
        json.dumps({"schema": 1, "files": ["../victim"]}),
        json.dumps({"schema": 1, "files": ["/etc/passwd"]}),
    ],
)
def test_a_list_that_no_installation_wrote_is_refused(root: Path, prefix: Path, content: str) -> None:
    put(root, prefix, {"lib/a.a": "a"})
    victim = prefix.parent / "victim"
    victim.write_text("here")
    (prefix / LISTING).write_text(content)
    with pytest.raises(StateError, match="no list of what was installed"):
        put(root, prefix, {"lib/b.a": "b"})
    assert victim.exists() and there(prefix) == {"lib/a.a", LISTING}


@pytest.mark.parametrize(("harm", "said"), [("damage", "is not what was built"), ("remove", "that was built is gone")])
def test_what_is_not_what_was_built_is_not_installed(root: Path, prefix: Path, harm: str, said: str) -> None:
    put(root, prefix, {"lib/a.a": "a"})
    path = root / "lib-b.a"
    output = Output(path=path.name, size=3, ctime_ns=0, sha256=digest_bytes(b"bbb"))
    if harm == "damage":
        path.write_text("bbx")
    with pytest.raises(StateError, match=said):
        install({"lib/b.a": output}, root, prefix, LISTING)
    assert there(prefix) == {"lib/a.a", LISTING}


def test_a_file_where_a_folder_is_needed_is_named(root: Path, prefix: Path) -> None:
    prefix.mkdir()
    (prefix / "lib").write_text("a file")
    with pytest.raises(StateError, match=r"prefix/lib: the library cannot be installed: File exists"):
        put(root, prefix, {"lib/a.a": "a"})

"""What the jobs of these tests do in their children; see `engine_helpers.pool`."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import NoReturn

from kiln.errors import CompileError, KilnError, Position
from kiln.stages import timed


class OwnError(KilnError):
    """A kind of error that the parent has never imported."""


class _Unsendable:
    def __str__(self) -> str:
        return "here"

    def __reduce__(self) -> NoReturn:
        raise TypeError("not to be sent")


def nothing(staging: Path) -> None:
    """Make nothing."""


def write(files: dict[str, str], staging: Path) -> None:
    """Write texts below the staging folder."""
    for name, text in files.items():
        path = staging / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def sleep(pause: float, staging: Path) -> None:
    """Take some time."""
    time.sleep(pause)


def meet(own: str, other: str, staging: Path) -> None:
    """Make one file, and wait until somebody else has made another."""
    Path(own).touch()
    end = time.monotonic() + 60
    while not Path(other).exists():
        if time.monotonic() > end:
            raise KilnError(f"nobody made {other}")
        time.sleep(0.01)


def copy(source: str, name: str, pause: float, staging: Path) -> None:
    """Write what a file holds, some time after it was read."""
    text = Path(source).read_text("utf-8")
    time.sleep(pause)
    write({name: text}, staging)


def fail_loudly(staging: Path) -> None:
    """Print, and raise what people should read."""
    print("what the compiler said")
    raise CompileError("it does not compile")


def fail_with_all_parts(staging: Path) -> None:
    """Raise what people should read."""
    raise CompileError(
        "it does not compile",
        where=Position(file="kernels/a.py", line=7, column=3),
        expected="one thing",
        actual="another",
        remedy="mend it",
    )


def fail_with_own_error(staging: Path) -> None:
    """Raise a kind of KilnError that only this module has."""
    raise OwnError("only here", where="there", remedy="know me")


def fail_with_unsendable_part(staging: Path) -> None:
    """Raise a KilnError with parts of the wrong types."""
    raise KilnError("what", where=_Unsendable(), actual=7)  # type: ignore[arg-type]  # that is the test


def divide(staging: Path) -> None:
    """Raise what is nobody's message."""
    _ = 1 // 0


def leave(code: int, staging: Path) -> None:
    """Call sys.exit, as kernel files do."""
    sys.exit(code)


def leave_at_once(code: int, staging: Path) -> None:
    """End the process past Python, after the outputs were written: an exit code of 0 is no proof."""
    (staging / "out.txt").write_text("half", "utf-8")
    os._exit(code)


def crash(staging: Path) -> None:
    """Crash as LLVM does."""
    print("about to crash")
    ctypes.string_at(0)


def kill_self(number: int, staging: Path) -> None:
    """Die of a signal."""
    os.kill(os.getpid(), number)
    time.sleep(10)


def end_in_a_stage(how: str, staging: Path) -> None:
    """Go through one stage, and fail, die or hang in one within the next."""
    with timed("front end"):
        pass
    with timed("llir"), timed("a stage with a long name"):
        if how == "fail":
            raise CompileError("it failed")
        if how == "hang":
            time.sleep(60)
        if how == "die":
            os.abort()
    with timed("check"):
        raise CompileError("it failed", stage="own")


def abort_for_memory(staging: Path) -> None:
    """Do what C++ does when an allocation fails."""
    os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n")
    os.kill(os.getpid(), signal.SIGABRT)
    time.sleep(10)


def allocate(size: int, staging: Path) -> None:
    """Ask for `size` bytes."""
    bytearray(size)


def exhaust(staging: Path) -> None:
    """Take all memory that there is, in pieces so small that none is left for a report."""
    taken: tuple[object, ...] = ()
    for size in (1 << 20, 1 << 10, 64, 1):
        with suppress(MemoryError) if size > 1 else nullcontext():
            while True:
                taken = (taken, bytearray(size))


def take_memory(group: str, size: int, staging: Path) -> None:
    """Go into a cgroup, and fill memory there."""
    Path(group).write_text(str(os.getpid()), "utf-8")
    bytearray(b"x") * size


def hang(numbers: str, staging: Path) -> None:
    """Start a process that sleeps, write down its number and the own one, and hang."""
    child = subprocess.Popen(["sleep", "300"])
    new = Path(f"{numbers}.new")
    new.write_text(f"{os.getpid()} {child.pid}", "utf-8")
    new.rename(numbers)
    child.wait()


def leave_a_process(numbers: str, staging: Path) -> None:
    """Return, and leave a process running."""
    child = subprocess.Popen(["sleep", "300"])
    Path(numbers).write_text(f"{child.pid}", "utf-8")


def speak(staging: Path) -> None:
    """Print in each way that there is."""
    print("from Python")
    subprocess.run(["sh", "-c", "echo from a tool; echo its complaint >&2"], check=True)
    print("Python again")
    os.write(1, b"past Python\n")


def shout(size: int, staging: Path) -> None:
    """Print `size` bytes between two words."""
    os.write(1, b"first\n")
    block = b"x" * (1 << 20)
    for _ in range(size >> 20):
        os.write(1, block)
    os.write(1, b"\nlast\n")


def fill(size: int, staging: Path) -> None:
    """Write a file of `size` bytes."""
    (staging / "large").write_bytes(b"x" * size)


def count_descriptors(files: str, staging: Path) -> None:
    """Write how many file descriptors this child and the server have."""
    counts = [len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in (os.getpid(), os.getppid())]
    Path(files).write_text(" ".join(map(str, counts)), "utf-8")


def take(data: bytes, staging: Path) -> None:
    """Take a large argument, and print much before failing."""
    os.write(1, b"y" * (2 << 20))
    raise KilnError("z" * (1 << 20))


def include(source: str, name: str, staging: Path) -> dict[str, list[str]]:
    """Write what the files hold that the file `source` lists, and tell which they are."""
    names = Path(source).read_text("utf-8").split()
    write({name: "".join(Path(each).read_text("utf-8") for each in names)}, staging)
    return {f"include {Path(each).name}": [each] for each in names}


def return_a_number(staging: Path) -> int:
    """Return what is no finding."""
    write({"out/a": "a"}, staging)
    return 3


def surroundings(name: str, words: str, size: int, staging: Path) -> None:
    """Print, fill memory, and write the environment and the current folder."""
    print(words)
    bytearray(b"x") * size
    write({name: "\n".join([*(f"{key}={value}" for key, value in os.environ.items()), str(Path.cwd())])}, staging)
    os.environ["LEFT"] = "by the one before"


def keep_memory(name: str, kept: int, tool: int, staging: Path) -> None:
    """Keep so many bytes until the process ends, and run a tool that takes so many more than it takes to start."""
    KEPT.append(bytearray(b"x") * kept)
    subprocess.run([sys.executable, "-c", f"bytearray(b'x') * {tool}"], check=True)
    write({name: "kept"}, staging)


KEPT: list[bytearray] = []


def join(sources: list[tuple[str, Path]], name: str, staging: Path) -> None:
    """Write what some files hold, whose paths are deep in the arguments."""
    write({name: "".join(path.read_text("utf-8") for _, path in sources)}, staging)


def fill_up(staging: Path) -> None:
    """Meet the end of the disk."""
    Path("/dev/full").write_bytes(b"x" * 10_000)

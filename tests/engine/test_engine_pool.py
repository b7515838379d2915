"""Jobs in children: how each can end, and what is left of it."""

from __future__ import annotations

import os
import pickle
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import TOOLS, alive, can_mount, children, numbers_in, on_a_small_disk, wait_until

from kiln.digests import digest_file
from kiln.engine import forkserver
from kiln.engine.jobs import Ended
from kiln.engine.pool import Pool
from kiln.engine.step import Call
from kiln.errors import CompileError, KilnError, MemoryLimitError, Position, StateError


def call(function: str, **settings: Any) -> Call:
    """A call of engine_jobs; settings named like a field of Call are that, others are arguments."""
    fields = {name: settings.pop(name) for name in ("preload", "environment", "seconds", "memory") if name in settings}
    return Call(function=f"engine_jobs:{function}", arguments=settings, **fields)


def run(pool: Pool, function: str, **settings: Any) -> Ended:
    """Run one job to its end."""
    pool.start("job", call(function, **settings))
    try:
        return pool.wait()
    finally:
        pool.release("job")


def failure(ended: Ended) -> KilnError:
    """The error of a job that must have failed."""
    assert ended.error is not None
    return ended.error


# -- how a job ends ----------------------------------------------------------------------------------------------------


def test_a_job_writes_below_staging(pool: Pool) -> None:
    pool.start("job", call("write", files={"lib/ünicode name.txt": "text"}))
    ended = pool.wait()
    assert (ended.name, ended.error, ended.trace, ended.output) == ("job", None, None, "")
    assert ended.seconds > 0
    assert 1 << 20 < ended.peak_memory < 1 << 30
    assert (pool.staging("job") / "lib/ünicode name.txt").read_text("utf-8") == "text"


def test_an_error_for_people_crosses_with_all_its_parts(pool: Pool) -> None:
    error = failure(run(pool, "fail_with_all_parts"))
    assert type(error) is CompileError
    assert error.where == Position(file="kernels/a.py", line=7, column=3)
    assert (error.what, error.expected, error.actual, error.remedy) == (
        "it does not compile",
        "one thing",
        "another",
        "mend it",
    )


def test_a_kind_of_error_that_the_parent_does_not_know_becomes_a_plain_one(pool: Pool) -> None:
    """Unpickled as it is, it would end the parent with an ImportError."""
    ended = run(pool, "fail_with_own_error")
    assert type(ended.error) is KilnError
    assert str(ended.error) == "there: only here\n  remedy: know me"
    assert ended.trace is None


def test_parts_of_an_error_that_cannot_be_sent_become_text(pool: Pool) -> None:
    assert str(run(pool, "fail_with_unsendable_part").error) == "here: what\n  actual: 7"


def test_any_other_exception_comes_with_its_traceback(pool: Pool) -> None:
    ended = run(pool, "divide")
    assert "ZeroDivisionError" in str(ended.error)
    assert ended.trace is not None
    assert "engine_jobs.py" in ended.trace
    assert "1 // 0" in ended.trace


@pytest.mark.parametrize("code", [0, 3])
def test_sys_exit_is_a_failure(pool: Pool, code: int) -> None:
    ended = run(pool, "leave", code=code)
    assert str(ended.error) == f"SystemExit: {code}"
    assert ended.trace is not None


@pytest.mark.parametrize("code", [0, 3])
def test_a_process_that_ends_past_python_is_a_failure_whatever_its_exit_code(pool: Pool, code: int) -> None:
    error = failure(run(pool, "leave_at_once", code=code))
    assert f"ended with exit code {code} and left no result" in error.what
    assert error.remedy


def test_a_segmentation_fault_costs_its_job_only(pool: Pool) -> None:
    pool.start("crashes", call("crash"))
    pool.start("works", call("nothing"))
    ended = {ended.name: ended for ended in (pool.wait(), pool.wait())}
    assert "killed by signal 11 (SIGSEGV)" in failure(ended["crashes"]).what
    assert ended["crashes"].output == "about to crash\n"
    assert ended["works"].error is None


def test_a_kill_hints_at_memory(pool: Pool) -> None:
    error = failure(run(pool, "kill_self", number=int(signal.SIGKILL)))
    assert "killed by signal 9 (SIGKILL)" in error.what
    assert "smaller -n" in str(error.remedy)
    assert "MiB" in str(error.actual)


def test_a_job_that_memory_ran_out_for_says_how_much_it_had(make_pool: Callable[..., Pool]) -> None:
    """A limit around the build kills a job: the kernel counts that, and so it is told from somebody's own SIGKILL."""
    top = Path("/sys/fs/cgroup")
    is_version_1 = (top / "memory").is_dir()
    group = (top / "memory" if is_version_1 else top) / f"kiln-test-{os.getpid()}"
    limit = group / ("memory.limit_in_bytes" if is_version_1 else "memory.max")
    with cgroup(group, limit, 200 << 20) as join:
        if join is None:
            # Where no group can be made, the count is all that stands between the two words.
            killings = forkserver._Killings()
            killings._seen = -1
            assert killings.more()
            assert not killings.more()
            return
        error = failure(run(make_pool(), "take_memory", group=str(join), size=400 << 20))
    assert isinstance(error, MemoryLimitError)
    assert error.what.startswith("out of memory: the kernel killed its process")
    said = re.fullmatch(r"its largest process had (\d+) MiB", str(error.actual))
    assert said is not None
    assert 150 < int(said[1]) < 300, "the limit, and what it had before it came under that"
    assert "smaller -n" in str(error.remedy)


@contextmanager
def cgroup(group: Path, limit: Path, size: int) -> Iterator[Path | None]:
    """A cgroup with a limit of `size` bytes: the file that takes the numbers of processes to be in it, or None."""
    try:
        group.mkdir()
    except OSError:
        yield None
        return
    try:
        try:
            limit.write_text(str(size))
        except OSError:
            yield None
            return
        yield group / "cgroup.procs"
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text().strip())
        group.rmdir()


@pytest.mark.parametrize(
    ("how", "stage"),
    [
        ("fail", "a stage with a long name"),
        ("die", "a stage with a l"),
        ("hang", "a stage with a l"),
        ("go on", "own"),
    ],
)
def test_a_failure_names_its_stage_also_when_the_process_is_gone(pool: Pool, how: str, stage: str) -> None:
    assert failure(run(pool, "end_in_a_stage", how=how, seconds=0.5)).stage == stage


def test_a_failure_outside_of_every_stage_names_none(pool: Pool) -> None:
    assert failure(run(pool, "crash")).stage is None


def test_an_interrupted_start_leaves_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception between the start of the process and its entry: it ends by itself when the pool is closed."""
    started: list[subprocess.Popen[bytes]] = []

    real = subprocess.Popen

    def popen(*arguments: Any, **keywords: Any) -> None:
        started.append(real(*arguments, **keywords))
        raise KeyboardInterrupt

    monkeypatch.setattr("kiln.engine.pool.subprocess.Popen", popen)
    with pytest.raises(KeyboardInterrupt), Pool(size=1, root=tmp_path, temp=tmp_path / "tmp") as pool:
        pool.start("job", call("nothing"))
    assert started[0].wait(10) == 0


def test_a_signal_without_a_name_is_named_by_its_number(pool: Pool) -> None:
    assert "killed by signal 40 (40)" in failure(run(pool, "kill_self", number=40)).what


def test_the_time_limit_kills_all_that_the_job_started(pool: Pool, tmp_path: Path) -> None:
    numbers = tmp_path / "numbers"
    started = time.monotonic()
    ended = run(pool, "hang", numbers=str(numbers), seconds=0.5)
    assert 0.5 <= time.monotonic() - started < 5
    assert "ran past its time limit of 0.5 s" in failure(ended).what
    child, grandchild = numbers_in(numbers)
    assert not alive(child)
    wait_until(lambda: not alive(grandchild))


def test_a_process_that_a_job_leaves_behind_ends_with_it(pool: Pool, tmp_path: Path) -> None:
    assert run(pool, "leave_a_process", numbers=str(tmp_path / "numbers")).error is None
    (left,) = numbers_in(tmp_path / "numbers")
    wait_until(lambda: not alive(left))


def test_the_memory_limit_is_named(pool: Pool) -> None:
    error = failure(run(pool, "allocate", size=4 << 30, memory=2 << 30))
    assert error.what == "out of memory: its limit is 2048 MiB"
    assert "MiB" in str(error.actual)
    assert error.remedy
    assert run(pool, "allocate", size=1 << 20, memory=2 << 30).error is None


def test_a_job_that_took_all_its_memory_can_still_say_so(pool: Pool) -> None:
    assert failure(run(pool, "exhaust", memory=256 << 20)).what == "out of memory: its limit is 256 MiB"


def test_an_abort_for_want_of_memory_is_named_so(pool: Pool) -> None:
    """A failed allocation in C++ ends in SIGABRT, and in what it prints."""
    assert failure(run(pool, "abort_for_memory", memory=2 << 30)).what == "out of memory: its limit is 2048 MiB"


def test_a_module_that_cannot_be_imported_fails_its_job_only(pool: Pool, tmp_path: Path) -> None:
    ended = run(pool, "nothing", preload=("no_such_module",))
    assert "no_such_module cannot be imported" in failure(ended).what
    assert "ModuleNotFoundError" in str(ended.trace)
    assert run(pool, "nothing").error is None


def test_a_function_that_is_not_there_fails_its_job(pool: Pool) -> None:
    assert "has no attribute 'no_such_function'" in failure(run(pool, "no_such_function")).what


def test_an_argument_that_cannot_be_sent_is_refused_and_leaves_nothing(pool: Pool, tmp_path: Path) -> None:
    with pytest.raises(KilnError, match=r"an argument of engine_jobs:nothing cannot be sent"):
        pool.start("job", call("nothing", data=lambda: None))
    assert pool.running == 0
    assert run(pool, "nothing").error is None


def test_an_argument_that_cannot_be_read_fails_its_job_only(pool: Pool) -> None:
    pool.start("job", call("nothing", data=InChild("raise ValueError('unreadable')")))
    assert "ValueError: unreadable" in failure(pool.wait()).what
    pool.release("job")
    assert run(pool, "nothing").error is None


def test_waiting_for_no_job_is_a_mistake(pool: Pool) -> None:
    """It would wait for ever."""
    with pytest.raises(RuntimeError, match="no job is running"):
        pool.wait()


# -- output ------------------------------------------------------------------------------------------------------------


def test_all_output_is_caught_in_order(pool: Pool, capfd: pytest.CaptureFixture[str]) -> None:
    ended = run(pool, "speak")
    assert ended.output == "from Python\nfrom a tool\nits complaint\nPython again\npast Python\n"
    assert capfd.readouterr() == ("", "")


def test_a_flood_of_output_is_cut_in_the_middle(pool: Pool) -> None:
    ended = run(pool, "shout", size=100 << 20)
    assert ended.error is None
    assert len(ended.output) < (1 << 20) + 100
    assert ended.output.startswith("first\n")
    assert ended.output.endswith("\nlast\n")
    assert f"\n... {(100 << 20) + 12 - (1 << 20)} bytes left out ...\n" in ended.output


def test_large_jobs_and_large_answers_do_not_wait_for_each_other(make_pool: Callable[..., Pool]) -> None:
    """The parent sends while the server answers: if both blocked on a full pipe, this would never end."""
    pool = make_pool(8)
    for index in range(8):
        pool.start(f"job{index}", call("take", data=b"x" * (8 << 20)))
        time.sleep(0.05)
    for _ in range(8):
        assert failure(pool.wait()).what == "z" * (1 << 20)


# -- surroundings ------------------------------------------------------------------------------------------------------


class InChild:
    """An argument that runs Python source where it is unpickled: in the child, with the product's own server."""

    def __init__(self, source: str) -> None:
        self._source = source

    def __reduce__(self) -> Any:
        return exec, (self._source,)


HOSTILE = {
    "LD_PRELOAD": "/tmp/no-such-library.so",
    "PTXAS_OPTIONS": "-O0",
    "NVCC_APPEND_FLAGS": "-G",
    "TRITON_CACHE_DIR": "/tmp/elsewhere",
    "TRITON_PTXAS_PATH": "/bin/false",
    "PYTHONPATH": "/tmp/elsewhere",
    "PYTHONHASHSEED": "7",
    "LANG": "tr_TR.UTF-8",
    "TMPDIR": "/tmp",
}


def test_the_environment_is_clean_and_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing of the caller's environment arrives but PATH; a module in its current folder is not imported."""
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "signal.py").write_text("raise SystemExit('the wrong module')", "utf-8")
    monkeypatch.chdir(tmp_path)
    found = tmp_path / "found"
    source = (
        "import os, pickle, sys, tempfile\n"
        f"file = open({str(found)!r}, 'wb')\n"
        "found = (dict(os.environ), os.getcwd(), tempfile.gettempdir(), sys.path, hash('kiln'), os.getsid(0))\n"
        "pickle.dump(found, file)\n"
        "file.close()"
    )
    with Pool(size=1, root=tmp_path / "build", temp=tmp_path / "build" / "tmp") as pool:
        settings = {"KILN_TEST": "given"}
        pool.start(
            "job", Call(function="types:SimpleNamespace", arguments={"a": InChild(source)}, environment=settings)
        )
        assert pool.wait().error is None
        folder = pool.staging("job").parent
    environment, current, temporary, path, hashed, session = pickle.loads(found.read_bytes())
    assert environment == {
        "PATH": os.environ["PATH"],
        "LC_ALL": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(folder / "tmp"),
        "HOME": str(folder / "home"),
        "KILN_LOG": str(folder / "log"),
        "KILN_TEST": "given",
    }
    assert (current, temporary) == (str(folder / "tmp"), str(folder / "tmp"))
    assert not {"", ".", str(tmp_path), "/tmp/elsewhere"} & set(path)
    again = subprocess.run(
        [sys.executable, "-c", "print(hash('kiln'))"],
        env={"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert hashed == int(again.stdout), "sets would have another order in every build"
    assert session != os.getsid(0)
    assert capfd.readouterr() == ("", "")


def test_folders_are_removed(pool: Pool, tmp_path: Path) -> None:
    temp = tmp_path / "build" / "tmp"
    pool.start("job", call("write", files={"a": "x"}))
    pool.wait()
    assert len(list(temp.iterdir())) == 1
    pool.release("job")
    wait_until(lambda: list(temp.iterdir()) == [])
    pool.close()
    assert not temp.exists()


def test_closing_ends_what_runs_and_removes_its_folders(pool: Pool, tmp_path: Path) -> None:
    pool.start("job", call("hang", numbers=str(tmp_path / "numbers")))
    running = numbers_in(tmp_path / "numbers")
    started = time.monotonic()
    pool.close()
    assert time.monotonic() - started < 2
    wait_until(lambda: not any(map(alive, running)))
    assert not (tmp_path / "build" / "tmp").exists()


def test_nothing_is_started_before_the_first_job(make_pool: Callable[..., Pool]) -> None:
    before = children()
    pool = make_pool()
    assert pool.free
    assert children() == before
    run(pool, "nothing")
    assert len(children() - before) == 1
    pool.close()
    assert children() == before


def test_whether_one_has_ended_is_told_without_waiting(pool: Pool) -> None:
    assert not pool.has_ended
    pool.start("job", call("sleep", pause=0.5))
    assert not pool.has_ended
    wait_until(lambda: pool.has_ended)
    assert pool.wait().name == "job"
    pool.release("job")
    assert not pool.has_ended


def test_many_jobs_keep_their_names_and_leak_nothing(make_pool: Callable[..., Pool], tmp_path: Path) -> None:
    pool = make_pool(4)
    numbers = tmp_path / "counts"

    def counts() -> list[int]:
        run(pool, "count_descriptors", files=str(numbers))
        return [*numbers_in(numbers), len(list(Path("/proc/self/fd").iterdir()))]

    before = counts()
    waiting = [f"job{index}" for index in range(200)]
    ended = 0
    while waiting or pool.running:
        while waiting and pool.free:
            name = waiting.pop()
            pool.start(name, call("write", files={name: name}))
        done = pool.wait()
        assert done.error is None
        assert [path.name for path in pool.staging(done.name).iterdir()] == [done.name]
        pool.release(done.name)
        ended += 1
    assert ended == 200
    # The remover has folders open while it is at them.
    wait_until(lambda: counts() == before)


# -- violent ends ------------------------------------------------------------------------------------------------------

PARENT = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tools!r})
from kiln.engine import pool
pool.ENVIRONMENT = ("PATH", "PYTHONPATH")
from kiln.engine.step import Call
root = Path({root!r})
jobs = pool.Pool(size=2, root=root, temp=root / "tmp")
for name in "ab":
    jobs.start(name, Call(function="engine_jobs:hang", arguments={{"numbers": str(root / name)}}))
(root / "server").write_text(str(jobs._server.pid))
time.sleep(300)
"""


def test_a_killed_parent_leaves_no_process(tmp_path: Path, own_jobs: None) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT.format(tools=str(TOOLS), root=str(tmp_path))])
    try:
        running = [number for name in ("a", "b", "server") for number in numbers_in(tmp_path / name)]
        assert len(running) == 5
        assert all(map(alive, running))
    finally:
        parent.kill()
        parent.wait()
    wait_until(lambda: not any(map(alive, running)), seconds=2)


def test_a_killed_server_takes_all_along_and_is_a_clear_error(pool: Pool, tmp_path: Path) -> None:
    before = children()
    pool.start("a", call("hang", numbers=str(tmp_path / "a")))
    pool.start("b", call("sleep", pause=300))
    running = numbers_in(tmp_path / "a")
    (server,) = children() - before
    os.kill(server, signal.SIGKILL)
    with pytest.raises(KilnError) as caught:
        pool.wait()
    assert caught.value.what == "the process that runs the compilers died"
    assert caught.value.actual == "it was killed by SIGKILL"
    assert "finished work is kept" in str(caught.value.remedy)
    wait_until(lambda: not any(map(alive, running)), seconds=2)
    with pytest.raises(KilnError, match="the process that runs the compilers died"):
        pool.start("c", call("nothing"))
    assert pool.running == 2
    pool.close()
    assert not (tmp_path / "build" / "tmp").exists()


def test_an_interrupt_on_the_terminal_does_not_reach_server_and_children(pool: Pool) -> None:
    """The parent decides what Ctrl-C means; a child that dies first would look like a failed compile."""
    before = children()
    run(pool, "nothing")
    pool.start("job", call("sleep", pause=0.3))
    (server,) = children() - before
    assert os.getpgid(server) != os.getpgid(0)
    os.kill(server, signal.SIGINT)
    assert pool.wait().error is None


def test_no_process_to_be_had_fails_the_job_only(pool: Pool) -> None:
    """Descriptors run out before processes do, and are taken from the server here; it goes on once there are some."""
    before = children()
    run(pool, "nothing")
    (server,) = children() - before
    limits = resource.prlimit(server, resource.RLIMIT_NOFILE)
    resource.prlimit(server, resource.RLIMIT_NOFILE, (5, limits[1]))
    error = failure(run(pool, "nothing"))
    assert isinstance(error, StateError)
    assert error.what == "no process can be started for it: Too many open files"
    resource.prlimit(server, resource.RLIMIT_NOFILE, limits)
    assert run(pool, "nothing").error is None


ON_A_SMALL_DISK = """
import sys
from pathlib import Path
from kiln.engine import pool
pool.ENVIRONMENT = ("PATH", "PYTHONPATH")
from kiln.engine.step import Call
root = Path(sys.argv[1])
with pool.Pool(size=1, root=root, temp=root / "tmp") as jobs:
    for size in (1 << 20, 1000):
        jobs.start("job", Call(function="engine_jobs:fill", arguments={"size": size}))
        ended = jobs.wait()
        print(ended.error)
        jobs.release("job", at_once=True)
"""


def test_a_full_disk_is_named(tmp_path: Path, pool: Pool) -> None:
    """With the file and a remedy, and the next job finds the room that the failed one took."""
    if can_mount():
        done = on_a_small_disk(tmp_path, ON_A_SMALL_DISK, str(tmp_path))
        where, what, remedy, last = done.stdout.replace(": no space", ":\nno space").splitlines()
        assert where.startswith(str(tmp_path / "tmp"))
        assert what.startswith("no space left on the disk: a step cannot write its files")
        assert remedy == "  remedy: make room there and run again; finished work is kept"
        assert last == "None"
        return
    # Where no disk can be made: /dev/full is one that is always full.
    pool.start("job", call("nothing", data=InChild("open('/dev/full', 'w').write('x' * 10000)")))
    assert "no space left on the disk: a step cannot write its files" in failure(pool.wait()).what


def test_a_job_does_not_work_on_from_a_file_that_was_changed(pool: Pool, tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.write_bytes(b"what was published")
    reads = {made: digest_file(made)}
    made.write_bytes(b"something else")
    pool.start("late", Call(function="engine_jobs:nothing", arguments={}), reads)
    error = pool.wait().error
    pool.release("late")
    assert error is not None
    assert "not what an earlier step made" in str(error)
    assert str(error).startswith(f"{made}: ")

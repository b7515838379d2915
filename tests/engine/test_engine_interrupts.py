"""Signals are noted, never raised in the middle of something. Each is sent to a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from project import REPOSITORY

HEAD = """
import os, select, signal, sys, time, weakref
from kiln.engine.interrupts import Interrupts, as_python_does, leave_at_once

def say(text):
    print(text, flush=True)
"""


def run(body: str, *signals: tuple[signal.Signals, str], nohup: bool = False) -> tuple[int, str]:
    """Run a program; send it each signal when it has printed the text that stands beside. Its exit code and output."""
    process = subprocess.Popen(
        [sys.executable, "-c", HEAD + body],
        env={"PYTHONPATH": str(REPOSITORY / "tools")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Whoever runs the tests in the background may hand down that it is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN if nohup else signal.SIG_DFL),
    )
    assert process.stdout is not None
    output = ""
    for number, text in signals:
        while text not in output:
            line = process.stdout.readline()
            assert line, output
            output += line
        process.send_signal(number)
    rest, _ = process.communicate(timeout=30)
    return process.returncode, output + rest


def test_a_signal_is_noted_and_wakes_who_waits() -> None:
    body = """
interrupts = Interrupts(); interrupts.watch()
say("ready")
print(select.select([interrupts.wake], [], [], 20)[0] == [interrupts.wake], interrupts.number)
try:
    interrupts.check()
except KeyboardInterrupt:
    print("stopped")
"""
    code, output = run(body, (signal.SIGINT, "ready"))
    assert (code, output.splitlines()) == (0, ["ready", "True 2", "stopped"])


def test_none_is_lost_where_python_would_swallow_an_exception() -> None:
    """A KeyboardInterrupt that is raised in a weak reference's callback is printed and forgotten."""
    body = """
interrupts = Interrupts(); interrupts.watch()
class Thing: pass
thing = Thing()
def gone(_):
    say("ready")
    time.sleep(0.5)
reference = weakref.ref(thing, gone)
del thing
print(interrupts.number)
"""
    assert run(body, (signal.SIGTERM, "ready")) == (0, "ready\n15\n")


def test_other_peoples_code_is_interrupted_as_ever() -> None:
    body = """
interrupts = Interrupts(); interrupts.watch()
try:
    with interrupts.raising():
        say("ready")
        time.sleep(60)
except KeyboardInterrupt:
    print("raised", interrupts.number)
say("again")
time.sleep(0.3)
print("whole")
"""
    code, output = run(body, (signal.SIGINT, "ready"), (signal.SIGINT, "again"))
    assert (code, output.splitlines()) == (0, ["ready", "raised 2", "again", "whole"])


def test_a_build_that_does_not_end_is_ended_by_another_press_later() -> None:
    body = """
import kiln.engine.interrupts as module
module._PATIENCE = 0.5
interrupts = Interrupts(); interrupts.watch()
say("ready")
time.sleep(0.3)
say("second")
time.sleep(0.7)
say("third")
time.sleep(60)
"""
    code, output = run(body, *((signal.SIGINT, text) for text in ("ready", "second", "third")))
    assert code == 130
    assert output.splitlines()[-1] == "kiln: ended at once; what was finished is kept"


def test_what_is_ignored_stays_ignored() -> None:
    """A shell starts a job with `&` like that."""
    body = """
leave_at_once()
interrupts = Interrupts(); interrupts.watch()
say("ready")
time.sleep(0.3)
print(interrupts.number)
"""
    assert run(body, (signal.SIGINT, "ready"), nohup=True) == (0, "ready\nNone\n")


@pytest.mark.parametrize(("body", "code", "text"), [
    ("leave_at_once()", 130, "\nkiln: stopped\n"),
    ("leave_at_once(); as_python_does()", -2, "KeyboardInterrupt"),
])  # fmt: skip
def test_before_anything_is_begun_the_process_leaves(body: str, code: int, text: str) -> None:
    began = time.monotonic()
    ended, output = run(f"{body}; say('ready'); time.sleep(60)", (signal.SIGINT, "ready"))
    assert ended == code and text in output
    assert time.monotonic() - began < 10


def test_who_is_leaving_takes_no_more_signals_and_who_is_not_is_as_before() -> None:
    body = """
for interrupted in (False, True):
    before = signal.getsignal(signal.SIGINT)
    interrupts = Interrupts(); interrupts.watch()
    if interrupted:
        os.kill(os.getpid(), signal.SIGINT)
    interrupts.leave()
    print(signal.getsignal(signal.SIGINT) is before)
say("ready")
time.sleep(0.3)
print("whole")
"""
    assert run(body, (signal.SIGINT, "ready")) == (0, "True\nFalse\nready\nwhole\n")

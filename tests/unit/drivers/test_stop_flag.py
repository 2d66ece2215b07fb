"""A stop flag that a signal handler sets at whatever moment it interrupts."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from rackready.drivers import process
from rackready.drivers.stop_flag import StopFlag

_AT_EACH_MOMENT = """
import signal, sys, threading
from rackready.drivers.stop_flag import StopFlag
moments = [0]

def interrupted(flag, number):
    signal.signal(signal.SIGUSR1, lambda *_: flag.set())
    seen = [0]

    def trace(frame, event, argument):
        if frame.f_code.co_name in {"wait", "is_set"} or seen[0]:
            seen[0] += 1
            if seen[0] == number:
                signal.raise_signal(signal.SIGUSR1)
        return trace

    sys.settrace(trace)
    flag.wait(0.01)
    sys.settrace(None)
    return seen[0] >= number

kind = {"StopFlag": StopFlag, "Event": threading.Event}[sys.argv[1]]
number = 1
while interrupted(kind(), number):
    print(number, flush=True)
    number += 1
"""


def _waits(kind: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", _AT_EACH_MOMENT, kind], stdout=subprocess.PIPE, text=True)


def test_a_handler_may_set_it_at_each_moment_of_a_wait() -> None:
    with _waits("StopFlag") as child:
        moments, _ = child.communicate(timeout=120)
    assert (child.returncode, len(moments.split()) > 5) == (0, True)


def test_an_event_stands_still_at_such_a_moment() -> None:
    """The twin, which shows that the test above can fail."""
    with _waits("Event") as child:
        assert child.stdout is not None
        assert child.stdout.readline(), "it has begun"
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(timeout=3)
        child.kill()


def test_a_wait_ends_when_another_thread_sets_it() -> None:
    flag = StopFlag()
    threading.Timer(0.1, flag.set).start()
    assert flag.wait(60)
    flag.clear()
    began = time.monotonic()
    assert not flag.wait(0.1)
    assert time.monotonic() - began >= 0.1


def test_a_second_signal_kills_while_the_first_one_is_looked_at() -> None:
    """Its handler takes the lock that the interrupted thread holds."""

    def interrupted() -> None:
        with process._live_lock:
            process.kill_all_children()

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(timeout=60)
    assert not thread.is_alive()

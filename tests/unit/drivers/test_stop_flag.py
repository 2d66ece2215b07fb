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
    number += 1
print(number)
"""


@pytest.mark.parametrize(("kind", "stands_still"), [("StopFlag", False), ("Event", True)])
def test_a_handler_may_set_it_at_each_moment_of_a_wait(kind: str, stands_still: bool) -> None:  # noqa: FBT001 - a table
    """A ``threading.Event`` stands still for ever: the twin that shows that the test can fail."""
    command = [sys.executable, "-c", _AT_EACH_MOMENT, kind]
    if stands_still:
        with pytest.raises(subprocess.TimeoutExpired):
            subprocess.run(command, timeout=5, check=True)
    else:
        found = subprocess.run(command, timeout=60, check=True, capture_output=True, text=True)
        assert int(found.stdout) > 5


def test_a_wait_ends_when_another_thread_sets_it() -> None:
    flag = StopFlag()
    threading.Timer(0.1, flag.set).start()
    assert flag.wait(60)
    flag.clear()
    began = time.monotonic()
    assert not flag.wait(0.1)
    assert time.monotonic() - began >= 0.1


def test_a_second_signal_kills_while_the_first_one_is_looked_at() -> None:
    """The handler takes the lock that the interrupted thread holds."""
    with process._live_lock:
        process.kill_all_children()

"""One controller at a time."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rackready.ledger.lock import ControllerBusyError, ControllerLock, is_held

HOLD = """
import sys, time
from pathlib import Path
from rackready.ledger.lock import ControllerLock
with ControllerLock(Path(sys.argv[1]), "rackready deploy --env x", Path(sys.argv[1]).with_name("state.sqlite")):
    print("held", flush=True)
    time.sleep(60)
"""


def hold(path: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def test_second_controller_is_told_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "controller.lock"
    child = hold(path)
    try:
        with pytest.raises(ControllerBusyError) as caught, ControllerLock(path, "me", path.with_name("state.sqlite")):
            pass
        assert f"Expected: none Actual: pid {child.pid} (`rackready deploy --env x`, for 0 min)" in str(caught.value)
    finally:
        child.kill()
        child.wait()


def test_lock_of_a_killed_controller_is_free(tmp_path: Path) -> None:
    path = tmp_path / "controller.lock"
    child = hold(path)
    child.kill()
    child.wait()
    with ControllerLock(path, "me", path.with_name("state.sqlite")):
        pass


def test_lock_is_not_inherited_by_children(tmp_path: Path) -> None:
    path = tmp_path / "controller.lock"
    with ControllerLock(path, "me", path.with_name("state.sqlite")):
        child = subprocess.Popen(["sleep", "30"], close_fds=False)
    try:
        with ControllerLock(path, "again", path.with_name("state.sqlite")):
            assert os.getpid()
    finally:
        child.kill()
        child.wait()


def test_who_only_looks_keeps_no_controller_out(tmp_path: Path) -> None:
    path = tmp_path / "controller.lock"
    assert not is_held(path, path.with_name("state.sqlite"))
    with ControllerLock(path, "me", path.with_name("state.sqlite")):
        assert is_held(path, path.with_name("state.sqlite"))
    assert not is_held(path, path.with_name("state.sqlite"))
    looks = path.open("rb")
    fcntl.flock(looks, fcntl.LOCK_SH)
    threading.Timer(0.1, looks.close).start()
    with ControllerLock(path, "me", path.with_name("state.sqlite")):
        assert is_held(path, path.with_name("state.sqlite"))

"""Tools that mount things end with the process that started them, although they ignore signals."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rackready.drivers import contained
from tests.waiting import until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a tool has mounts of its own")
_STUBBORN = """
trap "" TERM INT HUP
mount -t tmpfs none {mount}
(trap "" TERM INT HUP; setsid sleep 987654 & wait) &
touch $TMPDIR/begun
wait
"""
"""As mmdebstrap: it ignores signals while its child works, which is in a session of its own."""
_STARTER = """
import sys
from pathlib import Path
from rackready.drivers import contained
folder = Path(sys.argv[1])
contained.run(["sh", "-c", sys.argv[2]], log=folder / "log", scratch=folder, timeout_s=600)
"""


def of(mark: Path) -> list[str]:
    """Return the processes whose TMPDIR is a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environ = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if f"TMPDIR={mark}".encode() in environ:
                found.append(entry.name)
    return found


def test_a_tool_has_its_exit_code_and_its_output(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    script = "echo pid $$; echo err >&2; cat; test -d /proc/$RR_STARTER || echo sees no process of others; exit 7"
    env = {"RR_STARTER": str(os.getpid())}
    assert contained.run(["sh", "-c", script], log=log, scratch=tmp_path, timeout_s=60, env=env) == 7
    assert log.read_text() == "before\npid 1\nerr\nsees no process of others\n"


def test_at_its_limit_all_that_it_started_ends(tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    script = _STUBBORN.format(mount=mount)
    assert contained.run(["sh", "-c", script], log=tmp_path / "log", scratch=tmp_path, timeout_s=1) is None
    until(lambda: not of(tmp_path))
    assert str(mount) not in Path("/proc/mounts").read_text()


@pytest.mark.parametrize("ends", ["kill", "terminate"])
def test_it_ends_with_the_process_that_started_it(tmp_path: Path, ends: str) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    argv = [sys.executable, "-c", _STARTER, str(tmp_path), _STUBBORN.format(mount=mount)]
    with subprocess.Popen(argv) as starter:
        until((tmp_path / "begun").exists)
        assert len(of(tmp_path)) > 2, "unshare, the tool and its child"
        assert str(mount) not in Path("/proc/mounts").read_text()
        getattr(starter, ends)()
    until(lambda: not of(tmp_path))

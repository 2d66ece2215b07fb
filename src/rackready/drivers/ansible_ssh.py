"""A folder for Ansible's shared SSH connections, so that none outlives its run, even a killed one."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rackready.drivers.process import start_ticks
from rackready.paths import private_dir

_LONGEST = 104 - 28
"""A socket's path may have 104 characters on every system; Ansible's name and OpenSSH's suffix take 28 of them."""

_numbers = itertools.count()


@contextmanager
def connections(state: Path) -> Iterator[dict[str, str]]:
    """Yield the environment variable that names this run's folder; close its connections at the end.

    Connections that killed runs left are closed first. A folder's name holds the process that made it and when that
    process began.
    """
    parent = private_dir(state / "cp")
    for left in parent.iterdir():
        pid, _, rest = left.name.partition("-")
        if pid.isdigit() and start_ticks(int(pid)) != int(rest.partition("-")[0] or 0):
            _close(left)
    folder = parent / f"{os.getpid()}-{start_ticks(os.getpid())}-{next(_numbers)}"
    if len(str(folder)) > _LONGEST:
        yield {}
        return
    private_dir(folder)
    try:
        yield {"ANSIBLE_SSH_CONTROL_PATH_DIR": str(folder)}
    finally:
        _close(folder)


def _close(folder: Path) -> None:
    for socket in folder.iterdir():
        argv = ["ssh", "-F", "none", "-o", f"ControlPath={socket}", "-O", "exit", "none"]
        subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=10,
            check=False,
        )
    shutil.rmtree(folder, ignore_errors=True)

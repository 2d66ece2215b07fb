"""A folder for Ansible's shared SSH connections, so that none outlives its run, even a killed one."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rackready.design.ssh_words import JUMP_SOCKET
from rackready.drivers.marked_processes import JUMP_MASTER
from rackready.drivers.process import start_ticks
from rackready.paths import private_dir

_LONGEST = 104 - 28
"""A socket's path may have 104 characters on every system; Ansible's name and OpenSSH's suffix take 28 of them."""

_JUMP_S = 30.0
"""For a login on the jump host, which answered a moment before."""
_numbers = itertools.count()
_log = logging.getLogger(__name__)


@contextmanager
def connections(state: Path, jump: Sequence[str] = ()) -> Iterator[dict[str, str]]:
    """Yield the environment variables that name this run's folder; close its connections at the end.

    ``jump``: ssh's arguments for a login on the jump host. One connection to it is opened first, and every node's goes
    through that one: sshd drops some of many logins at once (MaxStartups, sshd_config(5)). If it cannot be opened, each
    node's connection opens its own.

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
        yield {"ANSIBLE_SSH_CONTROL_PATH_DIR": str(folder), **_shared(folder / "jump", jump)}
    finally:
        _close(folder)


def _shared(socket: Path, jump: Sequence[str]) -> dict[str, str]:
    """Open a connection to the jump host in the background; return the variable that names its socket."""
    if not jump:
        return {}
    argv = [*JUMP_MASTER, str(socket), *jump]
    code = _run(argv, timeout_s=_JUMP_S)
    if code != 0:
        _log.warning("the jump host: ssh -M ended with exit code %s: each node opens a connection of its own", code)
        return {}
    return {JUMP_SOCKET: str(socket)}


def _run(argv: list[str], *, timeout_s: float) -> int | None:
    """Run a program that may stay in the background, and return its exit code, None if it took too long."""
    null = subprocess.DEVNULL
    try:
        return subprocess.run(argv, stdin=null, stdout=null, stderr=null, timeout=timeout_s, check=False).returncode
    except subprocess.TimeoutExpired:
        return None


def _close(folder: Path) -> None:
    for socket in folder.iterdir():
        _run(["ssh", "-F", "none", "-o", f"ControlPath={socket}", "-O", "exit", "none"], timeout_s=10)
    shutil.rmtree(folder, ignore_errors=True)

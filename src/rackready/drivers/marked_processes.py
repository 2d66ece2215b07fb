"""Search for our own processes by a mark in their environment, in whatever session they are.

Ansible's workers create sessions of their own (ansible-core 2.19 calls setsid in each). Ending the session of a killed
run would leave them at work, with the SSH connections that they opened.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import signal
import time
from collections.abc import Callable
from pathlib import Path

from rackready.ledger.work_tables import CLAIM

JUMP_MASTER = ("ssh", "-M", "-N", "-f", "-S")
"""Opens a connection to a jump host in the background, to be shared; its socket follows."""
VARIABLE = "RACKREADY_SESSION"
_GONE_WITHIN_S = 2.0
"""Seconds for the kernel to end a killed process: one in an uninterruptible wait must not block us."""


def project_mark(database: Path) -> str:
    """Return the prefix of the marks of all children that work for this ledger; no other checkout has it."""
    folder = database.resolve().parent
    found = folder.stat()
    return hashlib.sha256(f"{folder}/{database.name} {found.st_dev} {found.st_ino}".encode()).hexdigest()[:16]


def claim_mark(project: str, token: int | str) -> str:
    """Return the prefix of the marks of everything that works under a worker's claim."""
    return f"{project}.t{token}"


def child_mark(project: str) -> str:
    """Return a mark for one child and everything that it starts."""
    token = os.environ.get(CLAIM)
    return f"{project if token is None else claim_mark(project, token)}.{secrets.token_hex(6)}"


def marked(mark: str) -> list[int]:
    """Return the live processes of our user with that mark (or project's mark), without our ancestors and us."""
    spared = _line_of(os.getpid())
    out = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in spared:
            value = _value(entry)
            if value == mark or value.startswith(f"{mark}."):
                out.append(int(entry.name))
    return out


def masters(state: Path) -> list[int]:
    """Return our OpenSSH processes that hold shared connections with sockets below a state folder.

    A process for Ansible's connections to nodes writes its title, which names the socket, over its environment, and so
    over the mark. One for the jump host keeps its command line.
    """
    opened = "\0".join(JUMP_MASTER)
    places = (state, state.resolve())  # Ansible follows links on the way
    titles = tuple(f"{begin}{place}/cp/".encode() for place in places for begin in ("ssh: ", f"{opened}\0"))
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _command(entry).startswith(titles)
    ]


def end_all(find: Callable[[], list[int]]) -> None:
    """SIGKILL what ``find`` returns until it returns nothing: a dying process may still start another one."""
    deadline = time.monotonic() + _GONE_WITHIN_S
    while (pids := find()) and time.monotonic() < deadline:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)


def stat_fields(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat behind the command name, None when the process is gone.

    They are [state, ppid, pgrp, session, ...].
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text[text.rfind(")") + 2 :].split()


def name_of(pid: int) -> str:
    """Return the name of a process's program, "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _value(process: Path) -> str:
    """Return the mark of a process, "" when it has none, is another user's, or is dead."""
    try:
        if process.stat().st_uid != os.geteuid():
            return ""
        environment = (process / "environ").read_bytes()
    except OSError:
        return ""
    start = f"{VARIABLE}=".encode()
    found = next((item for item in environment.split(b"\0") if item.startswith(start)), start)
    fields = stat_fields(int(process.name))
    return "" if fields is None or fields[0] == "Z" else found.removeprefix(start).decode("ascii", "replace")


def _command(process: Path) -> bytes:
    """Return the command line of a process of our own user, empty when it is another's or dead."""
    try:
        return (process / "cmdline").read_bytes() if process.stat().st_uid == os.geteuid() else b""
    except OSError:
        return b""


def _line_of(pid: int) -> set[int]:
    """Return a process and its ancestors."""
    out: set[int] = set()
    while pid > 0 and pid not in out:
        out.add(pid)
        fields = stat_fields(pid)
        pid = int(fields[1]) if fields else 0
    return out

"""End every process of the session whose leader's pid is in a file: TERM, then KILL.

Sent to python3 on standard input. Arguments: the pid file, or ``--others RUN`` for every pid file of other runs.
Removes the files. A session that is gone already is no error.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
import time


def members(session: int) -> list[int]:
    """Return the live processes of a session."""
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as file:  # noqa: PTH123
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(name))
    return found


def send(session: int, number: int) -> None:
    """Signal every member."""
    for pid in members(session):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def main(path: str) -> int:
    """End the session."""
    try:
        with open(path) as file:  # noqa: PTH123
            session = int(file.read())
    except (OSError, ValueError):
        return 0
    send(session, signal.SIGTERM)
    for _ in range(30):
        if not members(session):
            break
        time.sleep(0.1)
    send(session, signal.SIGKILL)
    try:
        os.unlink(path)  # noqa: PTH108
    except OSError:
        return 0
    return 0


def others(run: str) -> list[str]:
    """Return the pid files of other runs: regular files of our own user alone, since anybody may write to /tmp."""
    found = []
    for name in os.listdir("/tmp"):  # noqa: PTH208, S108
        path = "/tmp/" + name  # noqa: S108
        if not name.startswith(".rackready-") or name.startswith(".rackready-" + run + "-"):
            continue
        try:
            seen = os.lstat(path)
        except OSError:
            continue
        if stat.S_ISREG(seen.st_mode) and seen.st_uid == os.geteuid():
            found.append(path)
    return found


if __name__ == "__main__":
    for each in others(sys.argv[2]) if sys.argv[1] == "--others" else [sys.argv[1]]:
        main(each)

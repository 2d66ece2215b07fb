"""Ends every process of the session whose leader's pid stands in a file: TERM, then KILL. Sent to python3 on standard input.

Arguments: the pid file. Removes the file. A session that is gone already is no error.
"""

from __future__ import annotations

import os
import signal
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

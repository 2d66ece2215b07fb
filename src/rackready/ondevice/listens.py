"""Exits 0 when something listens on a TCP port of this node, else 1. Sent to python3 on standard input; argument: the port.

It reads the kernel's table: connecting would use up the one client that a perftest server waits for.
"""

from __future__ import annotations

import sys

LISTEN = "0A"


def listens(port: int) -> bool:
    """Whether a socket of this network namespace listens on the port."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as file:  # noqa: PTH123
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue
        if any(row[3] == LISTEN and int(row[1].rpartition(":")[2], 16) == port for row in rows):
            return True
    return False


if __name__ == "__main__":
    sys.exit(0 if listens(int(sys.argv[1])) else 1)

"""Exit 0 as soon as something listens on a TCP port of this node, 1 when nothing did in time.

Sent to python3 on standard input; arguments: port, seconds to wait. It reads the kernel's table: connecting would use
up the one client that a perftest server waits for.
"""

from __future__ import annotations

import sys
import time

LISTEN = "0A"


def listens(port: int) -> bool:
    """Return whether a socket of this network namespace listens on the port."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as file:  # noqa: PTH123
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue
        if any(row[3] == LISTEN and int(row[1].rpartition(":")[2], 16) == port for row in rows):
            return True
    return False


def main(port: int, wait_s: float) -> int:
    """Check every tenth of a second, at least once."""
    deadline = time.monotonic() + wait_s
    while not listens(port):
        if time.monotonic() >= deadline:
            return 1
        time.sleep(0.1)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2])))

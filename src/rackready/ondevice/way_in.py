"""The way into a node: interfaces with a default route, that of this SSH session, and the route to its client."""

from __future__ import annotations

import os
import re
from pathlib import Path

from .command import Run
from .rail_claims import read


class WayIn:
    """What must stay as it is while rails change. ``connection``: SSH_CONNECTION, read from the processes above."""

    def __init__(self, run: Run, connection: str | None = None) -> None:
        self._run = run
        self.client, self.server = _ends(ssh_connection() if connection is None else connection)

    def interfaces(self) -> set[str]:
        """Return the interfaces with a default route in the main table, and the one with SSH's address."""
        routes = [self._out("ip", version, "route", "show", "default") for version in ("-4", "-6")]
        found = {name for text in routes for name in re.findall(r"\bdev (\S+)", text)}
        lines = self._out("ip", "-oneline", "address", "show").splitlines()
        return found | {line.split()[1] for line in lines if self.server and f" {self.server}/" in line}

    def state(self) -> str:
        """Return addresses, routes and the way back as text, to compare."""
        parts = []
        for name in sorted(self.interfaces()):
            lines = self._out("ip", "-oneline", "address", "show", "dev", name)
            parts.append(f"{name} {' '.join(sorted(re.findall(r'inet6? ([0-9a-f.:/]+)', lines)))}")
            routes = self._out("ip", "-4", "route", "show", "dev", name).splitlines()
            parts += sorted(" ".join(line.split()) for line in routes)
        if self.client:
            back = re.search(r"(?:via \S+ )?dev \S+", self._out("ip", "route", "get", self.client))
            parts.append(f"to {self.client} {back[0] if back else 'nothing'}")
        return ", ".join(parts)

    def _out(self, *argv: str) -> str:
        done = self._run(argv)
        return done.out if done.returncode == 0 else ""


def ssh_connection() -> str:
    """Return SSH_CONNECTION of the nearest process above that has it; sudo takes it from its own programs."""
    pid = os.getpid()
    while pid > 1:
        found = re.search(r"(?:^|\0)SSH_CONNECTION=([^\0]*)", read(Path(f"/proc/{pid}/environ")))
        if found:
            return found[1]
        parent = re.search(r"^PPid:\s*(\d+)", read(Path(f"/proc/{pid}/status")), re.MULTILINE)
        pid = int(parent[1]) if parent else 0
    return ""


def _ends(connection: str) -> tuple[str, str]:
    """Return addresses of client and server (sshd(8): client address and port, server address and port)."""
    parts = connection.split()
    return (parts[0], parts[2]) if len(parts) == 4 else ("", "")  # noqa: PLR2004 - four words, see above

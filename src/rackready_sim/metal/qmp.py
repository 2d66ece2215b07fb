"""QEMU's control protocol (docs/interop/qmp-spec.txt of QEMU 7.2): commands, and the events of one machine."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from rackready_sim.errors import describe

_ANSWER_S = 20.0
MONITOR, COMMANDS = "events.sock", "commands.sock"
"""Sockets in a machine's folder: one for its events, one for commands."""


class Qmp:
    """One connection. QEMU serves one client for each socket at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_ANSWER_S)
        try:
            _connect(self._socket, path)
            self._lines = self._socket.makefile("r", encoding="utf-8")
            self._next()
            self.command("qmp_capabilities")
        except (OSError, ValueError) as error:
            self._socket.close()
            raise describe(str(path), "QEMU answers", str(error), "See the log of the machine.") from error

    def __enter__(self) -> Self:
        """Return the connection."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._lines.close()
        self._socket.close()

    def command(self, name: str, /, **arguments: Any) -> Any:  # noqa: ANN401 - JSON
        """Run a command and return its result. Raise SimError if QEMU refuses it or is gone."""
        document = {"execute": name, **({"arguments": arguments} if arguments else {})}
        try:
            self._socket.sendall(json.dumps(document).encode() + b"\n")
            while True:
                answer = self._next()
                if "return" in answer:
                    return answer["return"]
                if "error" in answer:
                    raise describe(f"{self._path}: {name}", "done", answer["error"]["desc"], "See the machine's log.")
        except (OSError, ValueError) as error:
            raise describe(f"{self._path}: {name}", "an answer", str(error), "See the machine's log.") from error

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield events until QEMU ends."""
        self._socket.settimeout(None)
        while True:
            try:
                answer = self._next()
            except (OSError, ValueError):
                return
            if "event" in answer:
                yield answer

    def _next(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line:
            message = "QEMU closed the connection"
            raise ConnectionError(message)
        found: dict[str, Any] = json.loads(line)
        return found


def _connect(client: socket.socket, path: Path) -> None:
    """Connect by way of the folder's descriptor: an address holds 107 bytes, and a checkout may lie deeper."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        client.connect(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)

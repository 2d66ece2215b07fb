"""One stream per node: a long-lived SSH session in which the node tells what happens (``ondevice.watch_node``)."""

from __future__ import annotations

import inspect
import json
import random
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

import paramiko

from rackready.drivers.ssh import errors
from rackready.drivers.ssh.session import connect, meet, translated
from rackready.drivers.ssh.target import SshTarget
from rackready.model.problems import RackreadyError, quoted
from rackready.ondevice import watch_node

BEAT_S = 10
"""Time between two signs of life of a node, s."""
_CONNECT_S = 15.0
_FIRST_S, _MOST_S = 2.0, 120.0
"""Pause before a lost stream is connected again: it doubles up to the second, s. Our judgement: 500 nodes behind a
switch that restarts come back within minutes and do not all come at once."""
_LONGEST = 1 << 20
"""Bytes of a line that are kept: a node's longest line is 70 kB."""
_DIALS = threading.BoundedSemaphore(16)
"""Connections that are opened at once: a login costs the controller some 70 ms of CPU. Our judgement."""


@dataclass(frozen=True, slots=True)
class StreamItem:
    """What a stream brings: a document of the node, or the news that it began or ended.

    ``at``: controller's time; ``tick``: its monotonic clock, which nobody sets.
    """

    node: str
    kind: str
    at: float
    document: dict[str, Any]
    tick: float = field(default_factory=time.monotonic)


class Lines(Protocol):
    """Opens a node's stream: yields its lines to the end. Raises RackreadyError, and TimeoutError for silence."""

    def __call__(self, node: str, wanted: dict[str, Any]) -> Iterator[str]:
        """Yield lines."""
        ...


class SshLines:
    """Streams over SSH."""

    def __init__(self, targets: Callable[[str], SshTarget], silent_s: float) -> None:
        self._targets = targets
        self._silent_s = silent_s

    def __call__(self, node: str, wanted: dict[str, Any]) -> Iterator[str]:
        """Yield the lines of a node's program. Raises SshError, and TimeoutError when it is silent."""
        target = self._targets(node)
        with _DIALS:
            meet(target.jump, _CONNECT_S)
            client = connect(target, timeout_s=_CONNECT_S)
        with closing(client):
            yield from self._lines(target, client, wanted)

    def _lines(self, target: SshTarget, client: paramiko.SSHClient, wanted: dict[str, Any]) -> Iterator[str]:
        try:
            channel = _start(target, client, wanted)
            channel.settimeout(self._silent_s)
            rest = b""
            while chunk := channel.recv(65536):
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > _LONGEST:
                    rest = b""
                yield from (line.decode("utf-8", "replace") for line in lines)
        except TimeoutError as error:
            raise TimeoutError(f"silent for {self._silent_s:.0f} s") from error
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise translated(target, error, _CONNECT_S) from error
        said = channel.recv_stderr(4096).decode("utf-8", "replace") if channel.recv_stderr_ready() else ""
        raise errors.lost(target.where, " ".join(said.split())[-300:] or "its program ended")


def _start(target: SshTarget, client: paramiko.SSHClient, wanted: dict[str, Any]) -> paramiko.Channel:
    transport = client.get_transport()
    if transport is None:
        raise paramiko.SSHException("the connection closed at once")
    channel = transport.open_session(timeout=_CONNECT_S)
    argv = ["python3", "-u", "-", json.dumps(wanted)]
    line, first = target.sudo.command(argv) if target.sudo else (shlex.join(argv), "")
    channel.exec_command(line)
    channel.sendall((first + inspect.getsource(watch_node)).encode())
    channel.shutdown_write()
    return channel


class NodeStream(threading.Thread):
    """Keeps the stream of one node open, and brings every line. ``put`` blocks while its reader is busy.

    So memory is bounded: the node's program waits, and its journal keeps what comes.
    """

    def __init__(
        self,
        node: str,
        lines: Lines,
        wanted: Callable[[], dict[str, Any]],
        put: Callable[[StreamItem], None],
        *,
        once: bool = False,
    ) -> None:
        super().__init__(name=f"watch {node}", daemon=True)
        self._node, self._lines, self._wanted, self._put, self._once = node, lines, wanted, put, once
        self._cursor = ""
        self.over = threading.Event()

    def run(self) -> None:
        """Read the stream, and connect again with a growing pause, until ``over`` is set."""
        pause = 0.0
        while not self.over.wait(pause):
            begun = time.monotonic()
            why = self._read()
            if self.over.is_set():
                return
            self._bring("lost", {"why": why})
            if self._once:
                return
            lived = time.monotonic() - begun > _MOST_S
            pause = _FIRST_S if lived or not pause else min(_MOST_S, pause * 2)
            pause *= random.uniform(0.75, 1.25)  # noqa: S311 - spreads the connections

    def _read(self) -> str:
        """Bring every line, and return why there are no more."""
        try:
            wanted = self._wanted()
            for line in self._lines(self._node, wanted | ({"cursor": self._cursor} if self._cursor else {})):
                if self.over.is_set():
                    return "not watched any more"
                document = _document(line)
                self._cursor = (document.get("log") or document.get("beat") or {}).get("cursor") or self._cursor
                if "end" in document:
                    return "" if document.get("code") == 0 else str(document["end"])
                self._bring("line", document)
        except TimeoutError as error:
            return str(error)
        except RackreadyError as error:
            return quoted(str(error))
        except Exception as error:  # noqa: BLE001 - one bad node must not end the watch of the others
            return f"{type(error).__name__}: {error}"
        return "its program ended"

    def _bring(self, kind: str, document: dict[str, Any]) -> None:
        self._put(StreamItem(self._node, kind, time.time(), document))


def _document(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}

"""Commands on nodes over SSH, each with a time limit; nothing is left running on the node.

Each command leads its own session on the node; a file there holds the session's number. The whole session is ended at
a time-out, at the end of a run and when the operator stops.
"""

from __future__ import annotations

import inspect
import logging
import secrets
import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import paramiko

from rackready.drivers.process import OUTPUT_LIMIT, STOP, Interrupted
from rackready.drivers.ssh import errors
from rackready.drivers.ssh.command import LOGGED, Shell
from rackready.drivers.ssh.session import active, connect, meet, translated
from rackready.drivers.ssh.sudo import as_user
from rackready.drivers.ssh.target import SshTarget
from rackready.model.problems import RackreadyError
from rackready.ondevice import end_session

_CONNECT_S = 15.0
_POLL_S = 0.05
_GRACE_S = 10.0
_SESSIONS = 8
_AGAIN_S = 0.25
RUN_ID = secrets.token_hex(4)
"""Marks what this process leaves on nodes while it works, so that a later run can tell leftovers from its own work."""
_log = logging.getLogger(__name__)
_WRAP = 'umask 077; f=$1; t=$2; shift 2; echo $$ >"$f"; timeout -k 5 "$t" "$@"; c=$?; rm -f "$f"; exit $c'
_SWEEP = r"""
[ "$(id -u)" != 0 ] || rm -f /etc/sudoers.d/zzz-rackready-launch-*
for base in "${XDG_RUNTIME_DIR:-/run}" /tmp; do
  for d in "$base"/rackready-launch.*; do [ -O "$d" ] && [ -d "$d" ] && [ ! -L "$d" ] && rm -rf "$d"; done
done
f=$HOME/.ssh/authorized_keys
[ -f "$f" ] && grep -q 'rackready-launch-' "$f" || exit 0
t=$(mktemp "$f.XXXXXX") && { grep -v 'rackready-launch-' "$f" > "$t"; chmod 600 "$t"; cat "$t" > "$f"; rm -f "$t"; }
"""


class UnreachableError(RackreadyError):
    """A node cannot be used; the text gives the reason, without a final period: it is quoted in other messages."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a command: ``exit_code`` is None when it was killed or the connection was lost.

    ``reached`` is False when no login succeeded: nothing is known of the node then.
    """

    exit_code: int | None
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool = False
    failure: str = ""
    reached: bool = True


class Runner(Protocol):
    """Runs commands on a machine: ``drivers.remote.Remote`` or ``drivers.local.Local``."""

    def run(self, node: str, argv: Sequence[str], *, stdin: str = "", timeout_s: float) -> Answer:
        """Run a command to its end; never raises for what the machine does."""


@dataclass(slots=True)
class _Line:
    """One connection and how many sessions it carries."""

    client: paramiko.SSHClient
    sessions: int = 0

    def transport(self) -> paramiko.Transport:
        transport = self.client.get_transport()
        if transport is None:
            raise paramiko.SSHException("the connection closed at once")
        return transport


class Remote:
    """Connections to nodes, kept until closed. Thread-safe.

    A node gets another connection when sshd's limit of sessions (MaxSessions, 10) is near.
    """

    def __init__(self, targets: Mapping[str, SshTarget]) -> None:
        self._targets = dict(targets)
        self._lines: dict[str, list[_Line]] = {name: [] for name in targets}
        self._locks = {name: threading.Lock() for name in targets}

    def run(
        self,
        node: str,
        argv: Sequence[str],
        *,
        stdin: str = "",
        env: Mapping[str, str] | None = None,
        timeout_s: float,
        cleaning: bool = False,
    ) -> Answer:
        """Run a command to its end. Never raises for what the node does; raises Interrupted when the operator stops.

        ``cleaning``: the command removes something of ours, so it runs to its end even then.
        """
        begun = time.monotonic()
        try:
            job = self.start(node, argv, stdin=stdin, env=env, timeout_s=timeout_s)
        except UnreachableError as error:
            _log.info("%s", error)
            return Answer(None, "", "", time.monotonic() - begun, failure=str(error), reached=False)
        try:
            answer = job.wait(timeout_s, cleaning=cleaning)
        finally:
            job.end()
        _log.debug(
            "%s: %s%s: %s in %.1f s",
            node,
            " ".join(shlex.join(argv).split())[:LOGGED],
            " < script" if stdin else "",
            _ended(answer),
            answer.seconds,
        )
        return answer

    def start(
        self, node: str, argv: Sequence[str], *, stdin: str = "", env: Mapping[str, str] | None = None, timeout_s: float
    ) -> Job:
        """Start a command and return at once. Raises UnreachableError."""
        mark = f"/tmp/.rackready-{RUN_ID}-{secrets.token_hex(12)}"  # noqa: S108
        words = [*(("env", *(f"{name}={value}" for name, value in env.items())) if env else ()), *argv]
        wrapped = ["setsid", "-w", "sh", "-c", _WRAP, "rackready", mark, f"{timeout_s + _GRACE_S:.0f}", *words]
        place, channel = self._open(node)
        try:
            self._send(node, channel, wrapped, stdin)
        except (OSError, paramiko.SSHException) as error:
            channel.close()
            self.give_back(node, place)
            raise _unreachable(errors.lost(self._targets[node].where, errors.reason(error))) from error
        return Job(self, node, mark, channel, place)

    def _send(self, node: str, channel: paramiko.Channel, argv: list[str], stdin: str) -> None:
        """Start a command as root on an open session, with all of its standard input."""
        sudo = self._targets[node].sudo
        line, first = sudo.command(argv) if sudo else (shlex.join(argv), "")
        channel.exec_command(line)
        if first or stdin:
            channel.sendall((first + stdin).encode())
        channel.shutdown_write()

    def sweep(self, node: str) -> Answer:
        """End and remove what a killed run left on a node: its commands, launch keys and their folders.

        Call it under the controller lock.
        """
        ended = self.run(node, ("python3", "-", "--others", RUN_ID), stdin=inspect.getsource(end_session), timeout_s=30)
        if ended.exit_code != 0:
            return ended
        swept, target = self.run(node, ("sh", "-c", _SWEEP), timeout_s=30), self._targets[node]
        if target.sudo is None or swept.exit_code != 0:
            return swept
        return self.run(node, as_user(target.user, ("sh", "-c", _SWEEP)), timeout_s=30)

    def close(self) -> None:
        """Close every connection."""
        for lines in self._lines.values():
            for line in lines:
                line.client.close()
            lines.clear()

    def end_session(self, node: str, mark: str) -> None:
        """End the session whose leader's pid is in the file ``mark`` on a node.

        A node that cannot be reached ends it by its own time limit.
        """
        try:
            place, channel = self._open(node)
        except UnreachableError:
            return
        try:
            channel.settimeout(_GRACE_S)
            self._send(node, channel, ["python3", "-", mark], inspect.getsource(end_session))
            while channel.recv(4096):
                continue
        except (OSError, paramiko.SSHException):
            return  # `timeout` on the node ends the command without us
        finally:
            channel.close()
            self.give_back(node, place)

    def _open(self, node: str) -> tuple[_Line, paramiko.Channel]:
        """Return a new session and the connection that carries it. Raises UnreachableError.

        A busy server still counts sessions that we closed (sshd's MaxSessions): a refused session is requested again
        for a while.
        """
        deadline = time.monotonic() + _CONNECT_S
        while True:
            try:
                return self._open_once(node)
            except errors.SshBusyError as error:
                if time.monotonic() > deadline:
                    raise _unreachable(error) from error
                time.sleep(_AGAIN_S)
            except errors.SshError as error:
                raise _unreachable(error) from error

    def _open_once(self, node: str) -> tuple[_Line, paramiko.Channel]:
        line = self._line(node)
        try:
            return line, line.transport().open_session(timeout=_CONNECT_S)
        except (OSError, EOFError, paramiko.SSHException) as error:
            self.give_back(node, line)
            raise translated(self._targets[node], error, _CONNECT_S) from error

    def _line(self, node: str) -> _Line:
        with self._locks[node]:
            lines = self._lines[node]
            lines[:] = [line for line in lines if active(line.client)]
            free = next((line for line in lines if line.sessions < _SESSIONS), None)
            if free is None:
                free = _Line(self._connect(node))
                lines.append(free)
            free.sessions += 1
            return free

    def _connect(self, node: str) -> paramiko.SSHClient:
        """Return a connection on which the user becomes root: sudo is tried once on each. Raises SshError."""
        target = self._targets[node]
        meet(target.jump, _CONNECT_S)
        client = connect(target, timeout_s=_CONNECT_S)
        if target.sudo is None:
            return client
        try:
            line, first = target.sudo.trial()
            tried = Shell(client, target.where, errors.CHECK_HOST).run(line, timeout_s=_CONNECT_S, stdin=first)
        except BaseException:
            client.close()
            raise
        if tried.exit_code != 0:
            client.close()
            raise target.sudo.refused(target.where, target.user, tried.stderr)
        return client

    def give_back(self, node: str, line: _Line | None) -> None:
        """Free a session's place on its connection."""
        if line is not None:
            with self._locks[node]:
                line.sessions -= 1


def _unreachable(error: errors.SshError) -> UnreachableError:
    unreachable = UnreachableError(str(error).rstrip("."))
    unreachable.messages = error.messages
    return unreachable


def _ended(answer: Answer) -> str:
    """Return how a command ended, for the log."""
    return answer.failure or (
        "killed at its time limit" if answer.timed_out else f"exit {answer.exit_code}, {len(answer.stdout)} characters"
    )


class Job:
    """One command that runs on a node."""

    def __init__(self, remote: Remote, node: str, mark: str, channel: paramiko.Channel, place: _Line) -> None:
        self._remote = remote
        self._node = node
        self._mark = mark
        self._channel = channel
        self._place: _Line | None = place
        self._out = bytearray()
        self._err = bytearray()
        self._begun = time.monotonic()
        self._ended = False

    def alive(self) -> bool:
        """Whether the command still runs, as far as is known here."""
        self._drain()
        return not self._channel.exit_status_ready() and not self._channel.closed

    def wait(self, timeout_s: float, *, cleaning: bool = False) -> Answer:
        """Return the answer, at the time limit with ``timed_out``.

        Raises Interrupted when the operator stops (not while cleaning).
        """
        deadline = time.monotonic() + timeout_s
        while self.alive():
            if STOP.is_set() and not cleaning:
                self.end()
                raise Interrupted
            if time.monotonic() > deadline or len(self._out) + len(self._err) > OUTPUT_LIMIT:
                too_much = len(self._out) + len(self._err) > OUTPUT_LIMIT
                self.end()
                return self._answer(
                    None,
                    timed_out=not too_much,
                    failure=f"more than {OUTPUT_LIMIT >> 20} MiB of output" if too_much else "",
                )
            time.sleep(_POLL_S)
        self._drain(last=True)
        code = self._channel.recv_exit_status() if self._channel.exit_status_ready() else -1
        self._ended = True
        if code < 0:
            return self._answer(None, failure="the connection was lost before the command ended")
        return self._answer(code)

    def end(self) -> None:
        """End the command with everything that it started, unless it ended by itself."""
        if not self._ended:
            self._ended = True
            self._drain()
            self._remote.end_session(self._node, self._mark)
            self._drain()
        self._channel.close()
        self._remote.give_back(self._node, self._place)
        self._place = None

    def so_far(self) -> Answer:
        """Return the output up to now."""
        self._drain()
        return self._answer(self._channel.recv_exit_status() if self._channel.exit_status_ready() else None)

    def _answer(self, code: int | None, *, timed_out: bool = False, failure: str = "") -> Answer:
        return Answer(
            code,
            self._out.decode(errors="replace"),
            self._err.decode(errors="replace"),
            time.monotonic() - self._begun,
            timed_out,
            failure,
        )

    def _drain(self, *, last: bool = False) -> None:
        if last:
            self._channel.settimeout(2.0)
            for recv, sink in ((self._channel.recv, self._out), (self._channel.recv_stderr, self._err)):
                try:
                    while chunk := recv(65536):
                        sink.extend(chunk)
                except TimeoutError:
                    continue
            return
        while self._channel.recv_ready():
            self._out.extend(self._channel.recv(65536))
        while self._channel.recv_stderr_ready():
            self._err.extend(self._channel.recv_stderr(65536))

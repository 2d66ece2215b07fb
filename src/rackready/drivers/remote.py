"""Runs commands on nodes over SSH: pinned host keys, a time limit each, and nothing left running behind.

Every command leads a session of its own on the node, whose number stands in a file there; at a time-out, at the end of
a run and when the operator stops, that whole session is ended.
"""

from __future__ import annotations

import inspect
import logging
import secrets
import shlex
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import paramiko

from rackready.drivers import ssh
from rackready.drivers.process import OUTPUT_LIMIT, STOP, Interrupted
from rackready.model.problems import RackreadyError
from rackready.ondevice import end_session

_CONNECT_S = 15.0
_POLL_S = 0.05
_GRACE_S = 10.0
_SESSIONS = 8
_AGAIN_S = 0.25
_NOT_PINNED = "not found in known_hosts"
"""What paramiko's RejectPolicy says of a host without a pinned key (paramiko/client.py)."""
_RUN = secrets.token_hex(4)
"""Names this process in what it leaves on nodes while it works, so that a later run can tell leftovers from its own work."""
_KEEPALIVE_S = 15
_log = logging.getLogger(__name__)
_LOGGED = 400  # characters of a command that the log keeps
logging.getLogger("paramiko").setLevel(
    logging.CRITICAL
)  # what fails is in the answer; paramiko would say it a second time, on our output
_WRAP = 'umask 077; f=$1; t=$2; shift 2; echo $$ >"$f"; timeout -k 5 "$t" "$@"; c=$?; rm -f "$f"; exit $c'


class UnreachableError(RackreadyError):
    """A node does not let us in; the text says why."""


class _RefusedError(UnreachableError):
    """The connection stands, and the server opens no further session on it now."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command left: ``exit_code`` is None when it was killed or the connection was lost."""

    exit_code: int | None
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool = False
    failure: str = ""
    reached: bool = True
    """False: no login came about, so nothing is known of the node."""


@dataclass(frozen=True, slots=True)
class Host:
    """Where a node's SSH answers."""

    name: str
    address: str
    port: int
    user: str
    private_key: Path


@dataclass(slots=True)
class _Line:
    """One connection and how many sessions it carries."""

    client: paramiko.SSHClient
    sessions: int = 0

    def active(self) -> bool:
        transport = self.client.get_transport()
        return transport is not None and transport.is_active()

    def transport(self) -> paramiko.Transport:
        transport = self.client.get_transport()
        if transport is None:
            raise paramiko.SSHException("the connection closed at once")
        return transport


class Remote:
    """Connections to nodes, kept until closed; a node gets another one when sshd's limit of sessions (MaxSessions, 10) is near. Thread-safe."""

    def __init__(self, hosts: Mapping[str, Host], known_hosts: Path) -> None:
        self._hosts = dict(hosts)
        self._known_hosts = known_hosts
        self._lines: dict[str, list[_Line]] = {name: [] for name in hosts}
        self._locks = {name: threading.Lock() for name in hosts}

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

        ``cleaning``: it takes back something of ours, so it is carried through even then.
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
            " ".join(shlex.join(argv).split())[:_LOGGED],
            " < script" if stdin else "",
            _ended(answer),
            answer.seconds,
        )
        return answer

    def start(
        self, node: str, argv: Sequence[str], *, stdin: str = "", env: Mapping[str, str] | None = None, timeout_s: float
    ) -> Job:
        """Start a command and return at once. Raises UnreachableError."""
        mark = f"/tmp/.rackready-{_RUN}-{secrets.token_hex(12)}"  # noqa: S108
        words = [*(("env", *(f"{name}={value}" for name, value in env.items())) if env else ()), *argv]
        line = shlex.join(["setsid", "-w", "sh", "-c", _WRAP, "rackready", mark, f"{timeout_s + _GRACE_S:.0f}", *words])
        place, channel = self._open(node)
        try:
            channel.exec_command(line)
            if stdin:
                channel.sendall(stdin.encode())
            channel.shutdown_write()
        except (OSError, paramiko.SSHException) as error:
            channel.close()
            self.give_back(node, place)
            raise UnreachableError(f"{node}: the connection was lost ({error})") from error
        return Job(self, node, mark, channel, place)

    def sweep(self, node: str) -> Answer:
        """End and remove what a killed run left on a node: its commands, launch keys and their folders. Call it under the controller lock."""
        ended = self.run(node, ("python3", "-", "--others", _RUN), stdin=inspect.getsource(end_session), timeout_s=30)
        if ended.exit_code != 0:
            return ended
        return self.run(node, ("sh", "-c", _SWEEP), timeout_s=30)

    def close(self) -> None:
        """Close every connection."""
        for lines in self._lines.values():
            for line in lines:
                line.client.close()
            lines.clear()

    def end_session(self, node: str, mark: str) -> None:
        """End the session whose leader's pid stands in the file ``mark`` on a node. A node that is gone ends it by its own time limit."""
        try:
            place, channel = self._open(node)
        except UnreachableError:
            return
        try:
            channel.settimeout(_GRACE_S)
            channel.exec_command(shlex.join(["python3", "-", mark]))
            channel.sendall(inspect.getsource(end_session).encode())
            channel.shutdown_write()
            while channel.recv(4096):
                continue
        except (OSError, paramiko.SSHException):
            return  # `timeout` on the node ends the command without us
        finally:
            channel.close()
            self.give_back(node, place)

    def _open(self, node: str) -> tuple[_Line, paramiko.Channel]:
        """Return a new session and the connection that it takes a place of. Raises UnreachableError.

        A server that is busy still counts sessions that we closed (sshd's MaxSessions): a refused session is asked for
        again for a while.
        """
        deadline = time.monotonic() + _CONNECT_S
        while True:
            try:
                return self._open_once(node)
            except _RefusedError as error:
                if time.monotonic() > deadline:
                    raise UnreachableError(str(error)) from error
                time.sleep(_AGAIN_S)

    def _open_once(self, node: str) -> tuple[_Line, paramiko.Channel]:
        line: _Line | None = None
        try:
            line = self._line(node)
            return line, line.transport().open_session(timeout=_CONNECT_S)
        except paramiko.BadHostKeyException as error:
            raise UnreachableError(_changed(node, error)) from error
        except paramiko.AuthenticationException as error:
            raise UnreachableError(f"{node}: SSH refuses our key for user {self._hosts[node].user}") from error
        except (OSError, EOFError, paramiko.SSHException) as error:
            self.give_back(node, line)
            if _NOT_PINNED in str(error):
                raise UnreachableError(_unpinned(node, self._known_hosts)) from error
            reason = str(error) or error.__class__.__name__
            kind = _RefusedError if isinstance(error, paramiko.ChannelException) else UnreachableError
            raise kind(
                f"{node}: SSH to {self._hosts[node].address}:{self._hosts[node].port} failed ({reason})"
            ) from error

    def _line(self, node: str) -> _Line:
        with self._locks[node]:
            lines = self._lines[node]
            lines[:] = [line for line in lines if line.active()]
            free = next((line for line in lines if line.sessions < _SESSIONS), None)
            if free is None:
                free = _Line(self._connect(self._hosts[node]))
                lines.append(free)
            free.sessions += 1
            return free

    def give_back(self, node: str, line: _Line | None) -> None:
        """Free a session's place on its connection."""
        if line is not None:
            with self._locks[node]:
                line.sessions -= 1

    def _connect(self, host: Host) -> paramiko.SSHClient:
        target = ssh.SshTarget(host.name, host.address, host.port, host.user, host.private_key, self._known_hosts)
        return ssh.connect(target, timeout_s=_CONNECT_S, keepalive_s=_KEEPALIVE_S)


def _ended(answer: Answer) -> str:
    """Return how a command ended, for the log."""
    return answer.failure or (
        "killed at its time limit" if answer.timed_out else f"exit {answer.exit_code}, {len(answer.stdout)} characters"
    )


def _changed(node: str, error: paramiko.BadHostKeyException) -> str:
    expected, actual = ssh.fingerprint(error.expected_key), ssh.fingerprint(error.key)
    return (
        f"{node}: SSH host key changed, no login was tried - Expected: {expected} Actual: {actual}. "
        f"{ssh.way_out(node)}".rstrip(".")
    )


def _unpinned(node: str, known_hosts: Path) -> str:
    return (
        f"{node}: SSH host key, no login was tried - Expected: one pinned in {known_hosts} Actual: none. "
        f"{ssh.way_out(node)}".rstrip(".")
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
        """Return the answer, at the time limit with ``timed_out``. Raises Interrupted when the operator stops (not while cleaning)."""
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
        """End the command with everything that it started; nothing happens when it ended by itself."""
        if not self._ended:
            self._ended = True
            self._drain()
            self._remote.end_session(self._node, self._mark)
            self._drain()
        self._channel.close()
        self._remote.give_back(self._node, self._place)
        self._place = None

    def so_far(self) -> Answer:
        """Return what it said up to now."""
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


_PREPARE = r"""
set -eu
umask 077
base=${XDG_RUNTIME_DIR:-/run}
[ -w "$base" ] || base=/tmp
d=$(mktemp -d "$base/rackready-launch.XXXXXX")
ssh-keygen -q -t ed25519 -N '' -C "$1" -f "$d/id"
cat > "$d/known_hosts"
printf '%s\n' "$d"
cat "$d/id.pub"
"""
_ADMIT = r"""
set -eu
umask 077
mkdir -p "$HOME/.ssh"
f=$HOME/.ssh/authorized_keys
touch "$f"
printf 'restrict,from="%s" %s\n' "$1" "$2" >> "$f"
"""
_SWEEP = r"""
for base in "${XDG_RUNTIME_DIR:-/run}" /tmp; do
  for d in "$base"/rackready-launch.*; do [ -O "$d" ] && [ -d "$d" ] && [ ! -L "$d" ] && rm -rf "$d"; done
done
f=$HOME/.ssh/authorized_keys
[ -f "$f" ] && grep -q 'rackready-launch-' "$f" || exit 0
t=$(mktemp "$f.XXXXXX") && { grep -v 'rackready-launch-' "$f" > "$t"; chmod 600 "$t"; cat "$t" > "$f"; rm -f "$t"; }
"""
_EXPEL = r"""
f=$HOME/.ssh/authorized_keys
[ -f "$f" ] || exit 0
t=$(mktemp "$f.XXXXXX") && { grep -v -F -- "$1" "$f" > "$t"; chmod 600 "$t"; cat "$t" > "$f"; rm -f "$t"; }
"""


@dataclass(frozen=True, slots=True)
class LaunchKey:
    """Folder on the head node with a key (``id``) and pinned host keys (``known_hosts``)."""

    folder: str

    @property
    def ssh_options(self) -> str:
        """Options for ssh on the head node."""
        pinned = f"-o UserKnownHostsFile={self.folder}/known_hosts -o StrictHostKeyChecking=yes"
        return f"-i {self.folder}/id -o IdentitiesOnly=yes {pinned} -o BatchMode=yes -o ConnectTimeout=10"


@contextmanager
def launch_key(
    remote: Remote, head: str, head_address: str, peers: Sequence[str], known_hosts: Path
) -> Iterator[LaunchKey]:
    """Let the head node log in to its peers while MPI runs, and no longer.

    The private key is made on the head node and never leaves it; peers take it from the head's address only. Raises
    UnreachableError when a node does not take part.
    """
    name = f"rackready-launch-{_RUN}-{secrets.token_hex(8)}"
    pinned = known_hosts.read_text(encoding="utf-8") if known_hosts.exists() else ""
    made = _must(remote, head, ("sh", "-c", _PREPARE, "rackready", name), stdin=pinned or "\n")
    folder, public = made.stdout.strip().splitlines()[:2]
    try:
        for peer in peers:
            _must(remote, peer, ("sh", "-c", _ADMIT, "rackready", head_address, public))
        yield LaunchKey(folder)
    finally:
        for peer in peers:
            remote.run(peer, ("sh", "-c", _EXPEL, "rackready", name), timeout_s=30, cleaning=True)
        remote.run(head, ("rm", "-rf", folder), timeout_s=30, cleaning=True)


def _must(remote: Remote, node: str, argv: Sequence[str], *, stdin: str = "") -> Answer:
    answer = remote.run(node, argv, stdin=stdin, timeout_s=30)
    if answer.exit_code != 0:
        message = (
            f"{node}: preparing the MPI launch failed ({answer.failure or answer.stderr.strip() or answer.exit_code})"
        )
        raise UnreachableError(message)
    return answer

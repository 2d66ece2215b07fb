"""Jump hosts: one SSH connection to each in a process, which carries the connections to the hosts behind it.

sshd limits the connections that have not logged in yet (MaxStartups) and the sessions on one connection (MaxSessions).
Forwarded connections (direct-tcpip, RFC 4254, 7.2) are neither: one connection carries them all.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import paramiko

from rackready.drivers.ssh import errors
from rackready.drivers.ssh.target import SshTarget

_PROHIBITED, _CONNECT_FAILED = 1, 2
"""Reasons for which a channel is not opened (RFC 4254, 5.1)."""
_SOURCE = ("127.0.0.1", 0)
"""Where a forwarded connection comes from: sshd only logs it."""


@dataclass(slots=True)
class _Hop:
    """The connection to a jump host, and the last try that failed."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    client: paramiko.SSHClient | None = None
    failure: errors.SshError | None = None
    failed_at: float = 0.0


Connect = Callable[[SshTarget, float], paramiko.SSHClient]
"""How a connection to a jump host is opened, within a time limit in seconds."""


class Hops:
    """The connections to jump hosts of this process. Thread-safe."""

    def __init__(self) -> None:
        self._hops: dict[tuple[SshTarget, int], _Hop] = {}
        self._lock = threading.Lock()

    def transport(self, jump: SshTarget, timeout_s: float, connect: Connect) -> paramiko.Transport:
        """Return the connection to a jump host, opened unless it is open. Raises SshError.

        Threads that wait for one try share its failure: each would wait as long again otherwise.
        """
        asked = time.monotonic()
        with self._lock:
            hop = self._hops.setdefault((jump, os.getpid()), _Hop())  # a forked process cannot use its parent's
        with hop.lock:
            if (open_already := _transport(hop.client)) is not None:
                return open_already
            if hop.failure is not None and hop.failed_at >= asked:
                raise hop.failure
            try:
                hop.client = connect(jump, timeout_s)
            except errors.SshError as error:
                hop.failure, hop.failed_at = _of_jump(jump, error, timeout_s), time.monotonic()
                raise hop.failure from error
            if (opened := _transport(hop.client)) is None:
                raise errors.jump_silent(jump.where, timeout_s, "the connection closed at once")
            return opened

    def channel(self, target: SshTarget, jump: SshTarget, timeout_s: float, connect: Connect) -> paramiko.Channel:
        """Return a connection to a host's SSH port that its jump host opened. Raises SshError."""
        transport = self.transport(jump, timeout_s, connect)
        try:
            return transport.open_channel("direct-tcpip", (target.address, target.port), _SOURCE, timeout=timeout_s)
        except paramiko.ChannelException as error:
            if error.code == _PROHIBITED:
                raise errors.jump_forbids(jump.where, jump.user, f"{target.address}:{target.port}") from error
            actual = "not reachable" if error.code == _CONNECT_FAILED else errors.reason(error)
            raise errors.beyond_jump(target.where, jump.where, timeout_s, actual) from error
        except (OSError, EOFError, paramiko.SSHException) as error:
            if not transport.is_active():
                raise errors.jump_silent(jump.where, timeout_s, f"lost ({errors.reason(error)})") from error
            raise errors.beyond_jump(target.where, jump.where, timeout_s, "no answer (time-out)") from error

    def close(self) -> None:
        """Close every connection to a jump host."""
        with self._lock:
            for hop in self._hops.values():
                if hop.client is not None:
                    hop.client.close()
            self._hops.clear()


def _transport(client: paramiko.SSHClient | None) -> paramiko.Transport | None:
    """Return a client's connection while it is open, as far as is known here."""
    transport = client.get_transport() if client is not None else None
    return transport if transport is not None and transport.is_active() else None


def _of_jump(jump: SshTarget, error: errors.SshError, timeout_s: float) -> errors.SshError:
    """Return the error as one about the jump host: a host that does not answer is not the node."""
    if isinstance(error, errors.SshTimeoutError):
        return errors.jump_silent(jump.where, timeout_s, error.actual)
    return error

"""SSH connections: dial, check the host key, log in; the one place that translates paramiko's exceptions."""

from __future__ import annotations

import enum
import logging
import socket
import time

import paramiko

from rackready.drivers.ssh import errors
from rackready.drivers.ssh.pins import fingerprint, load_pins, pinned, text_of
from rackready.drivers.ssh.target import SshTarget

KEEPALIVE_S = 15
"""Between signs of life: less than the minutes after which firewalls and servers end silent sessions. Our judgement."""

logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # our errors name the cause; paramiko would print it again
_log = logging.getLogger(__name__)


class NewKey(enum.Enum):
    """What to do with a host key that is not the pinned one."""

    REFUSE = "refuse any key that is not pinned"
    FIRST = "accept any key of a host without a pin"
    REPLACE = "accept any key: the host was just reinstalled"


def connect(
    target: SshTarget, *, timeout_s: float, dial_s: float | None = None, new_key: NewKey = NewKey.REFUSE
) -> paramiko.SSHClient:
    """Return a session with a host, its key checked against the pins; no agent and no other key is used.

    ``timeout_s`` limits each step (connect, banner, login), ``dial_s`` the TCP connection alone. Raises SshError.
    """
    begun = time.monotonic()
    credential = target.login.options(target.where)
    client = paramiko.SSHClient()
    check_keys(client, target, new_key)
    try:
        client.connect(
            target.address,
            port=target.port,
            username=target.user,
            sock=dial(target, dial_s or timeout_s),
            timeout=timeout_s,
            banner_timeout=timeout_s,
            auth_timeout=timeout_s,
            look_for_keys=False,
            allow_agent=False,
            **credential,
        )
    except (OSError, EOFError, paramiko.SSHException) as error:
        client.close()
        raise translated(target, error, timeout_s) from error
    except errors.SshError:
        client.close()
        raise
    transport = client.get_transport()
    if transport is not None:
        transport.set_keepalive(KEEPALIVE_S)
    opened(target, begun)
    return client


def dial(target: SshTarget, timeout_s: float) -> socket.socket:
    """Return a TCP connection to a host's SSH port. Raises OSError."""
    return socket.create_connection((target.address, target.port), timeout=timeout_s)


def check_keys(client: paramiko.SSHClient, target: SshTarget, new_key: NewKey = NewKey.REFUSE) -> None:
    """Make a client check the host's key against the pins, and follow ``new_key`` for a host without one."""
    if new_key is not NewKey.REPLACE:
        load_pins(client, target.known_hosts)
    client.set_missing_host_key_policy(_Policy(target, new_key))


def translated(target: SshTarget, error: BaseException, timeout_s: float) -> errors.SshError:
    """Return the error of ours for an exception of paramiko or of the socket."""
    if isinstance(error, errors.SshError):
        return error
    if isinstance(error, paramiko.BadHostKeyException):
        expected, actual = fingerprint(error.expected_key), fingerprint(error.key)
        return errors.key_changed(target.where, expected, actual, target.accept_name)
    if isinstance(error, paramiko.AuthenticationException):
        return target.login.refused(target.where, target.user)
    if isinstance(error, paramiko.ChannelException):
        return errors.busy(target.where, errors.reason(error))
    return errors.no_answer(target.where, timeout_s, errors.reason(error))


def opened(target: SshTarget, begun: float) -> None:
    """Log that a connection is open; ``begun`` is when it was asked for (time.monotonic)."""
    _log.info("%s: SSH connection opened as %s in %.1f s", target.where, target.user, time.monotonic() - begun)


def active(client: paramiko.SSHClient) -> bool:
    """Whether a client's connection is open, as far as is known here."""
    transport = client.get_transport()
    return transport is not None and transport.is_active()


class _Policy(paramiko.MissingHostKeyPolicy):
    """Decides about a host for which no usable pin was loaded."""

    def __init__(self, target: SshTarget, new_key: NewKey) -> None:
        self._target, self._new_key = target, new_key

    def missing_host_key(self, _client: paramiko.SSHClient, _hostname: str, key: paramiko.PKey) -> None:
        """Return for a key that is accepted. Raises HostKeyChangedError and HostKeyNotPinnedError."""
        target = self._target
        if self._new_key is NewKey.REPLACE:
            return
        damaged = pinned(target.known_hosts, target.host)  # a pin that was not loaded is one that cannot be read
        if damaged and damaged != text_of(key):
            raise errors.key_changed(target.where, fingerprint(damaged), fingerprint(key), target.accept_name)
        if self._new_key is NewKey.REFUSE:
            raise errors.not_pinned(target.where, target.known_hosts, target.accept_name)

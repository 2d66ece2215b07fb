"""SSH connections: dial, check the host key, log in; the one place that translates paramiko's exceptions."""

from __future__ import annotations

import atexit
import enum
import logging
import socket
import time

import paramiko

from rackready.drivers.ssh import errors
from rackready.drivers.ssh.jump import Hops
from rackready.drivers.ssh.pins import fingerprint, load_pins, pin, pinned, text_of
from rackready.drivers.ssh.target import SshTarget

DIAL_S = 10.0
"""For a TCP connection to a host that nobody is starting. Linux repeats its first packet after 1, 3 and 7 s (initial
time-out 1 s, RFC 6298, 2.1; doubled, tcp(7), tcp_syn_retries): four tries."""
KEEPALIVE_S = 15
"""Between signs of life: less than the minutes after which firewalls and servers end silent sessions. Our judgement."""

logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # our errors name the cause; paramiko would print it again
_log = logging.getLogger(__name__)
_HOPS = Hops()
close_jumps = _HOPS.close
"""Close every connection to a jump host. The hosts behind it are lost with it."""
atexit.register(close_jumps)


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


def dial(target: SshTarget, timeout_s: float) -> socket.socket | paramiko.Channel:
    """Return a connection to a host's SSH port, through its jump host if it has one.

    Raises NoConnectionError, and SshError for what happens at or beyond the jump host.
    """
    if target.jump is not None:
        return _HOPS.channel(target, target.jump, timeout_s, _to_jump)
    try:
        return socket.create_connection((target.address, target.port), timeout=timeout_s)
    except OSError as error:
        raise errors.no_connection(target.where, timeout_s, errors.reason(error)) from error


def trouble_at_jump(target: SshTarget, timeout_s: float) -> str:
    """Return why a host cannot be reached through its jump host; "" if it can, or if it has none."""
    if target.jump is None:
        return ""
    try:
        dial(target, timeout_s).close()
    except errors.SshError as error:
        return str(error)
    return ""


def meet(jump: SshTarget | None, timeout_s: float) -> None:
    """Connect to a jump host, and pin its key unless one is pinned. Raises SshError."""
    if jump is not None:
        _HOPS.transport(jump, timeout_s, _first_contact)


def _to_jump(jump: SshTarget, timeout_s: float) -> paramiko.SSHClient:
    return connect(jump, timeout_s=timeout_s)


def _first_contact(jump: SshTarget, timeout_s: float) -> paramiko.SSHClient:
    before = pinned(jump.known_hosts, jump.host)
    client = connect(jump, timeout_s=timeout_s, new_key=NewKey.FIRST)
    transport = client.get_transport()
    if not before and transport is not None:
        key = text_of(transport.get_remote_server_key())
        pin(jump.known_hosts, jump.host, key)
        _log.info("%s: pinned the host key that it showed at first contact (%s)", jump.where, fingerprint(key))
    return client


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

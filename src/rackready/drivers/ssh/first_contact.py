"""First contact with a host: wait until it answers, read its host key, pin it.

A key is trusted at first sight; a key that differs from the pinned one is refused.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import paramiko

from rackready.drivers.process import check_stop
from rackready.drivers.ssh import errors
from rackready.drivers.ssh.command import Shell
from rackready.drivers.ssh.pins import fingerprint, pin, pinned, prefer, text_of
from rackready.drivers.ssh.session import DIAL_S, NewKey, connect, dial, meet
from rackready.drivers.ssh.target import SshTarget

PATIENCE_S = 60.0
"""Seconds for which a host that does not answer is asked again: it may be booting."""
_DIAL_S = 5.0
_BANNER_S = 15.0
_LOGIN_PATIENCE_S = 20.0
"""Seconds for which a refused login is tried again: while a host boots, sshd may answer before its users can log in.

A jump host that does not answer is tried for as long.
"""
_BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
_LOOK_AT_CONSOLE = "Look at the node's console through its BMC, and at its address in the site file; then run again."
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What first contact found: the host key ("ssh-ed25519 AAAA...") and the running kernel's boot id."""

    host_key: str
    boot_id: str


def wait_and_pin(
    target: SshTarget, *, timeout_s: float, reinstalled: bool = False, proceed: Callable[[], None] = lambda: None
) -> HostFacts:
    """Wait at most ``timeout_s`` seconds until the node accepts the login; pin its host key, return it and the boot id.

    ``reinstalled``: the operating system was just installed, so a key other than the pinned one is expected and
    replaces it. ``proceed`` is called between tries and may raise to stop. Raises SshError.
    """
    begun = time.monotonic()
    target.login.options(target.where)  # a private key that cannot be used is an error at once
    refused_since: float | None = None
    while True:
        proceed()
        try:
            meet(target.jump, _BANNER_S)
            return _contact(target, NewKey.REPLACE if reinstalled else NewKey.FIRST)
        except (errors.HostKeyChangedError, errors.JumpForbidsError):
            raise
        except (errors.SshLoginError, errors.JumpSilentError) as error:
            refused_since = refused_since or time.monotonic()
            if time.monotonic() - refused_since > min(_LOGIN_PATIENCE_S, timeout_s):
                raise
            last: errors.SshError = error
        except errors.SshError as error:
            refused_since, last = None, error
        if time.monotonic() - begun > timeout_s:
            raise errors.no_answer(target.where, timeout_s, last.actual, _LOOK_AT_CONSOLE) from last
        time.sleep(1.0)


def _contact(target: SshTarget, new_key: NewKey) -> HostFacts:
    with connect(target, timeout_s=_BANNER_S, dial_s=_DIAL_S, new_key=new_key) as client:
        transport = client.get_transport()
        if transport is None:
            raise errors.no_answer(target.where, _BANNER_S, "the connection closed at once")
        host_key = text_of(transport.get_remote_server_key())
        done = Shell(client, target.where, errors.CHECK_HOST).run(_BOOT_ID, timeout_s=_BANNER_S)
    if done.exit_code != 0 or not done.stdout.strip():
        raise errors.no_answer(target.where, _BANNER_S, f"`{_BOOT_ID}` returned nothing")
    pin(target.known_hosts, target.host, host_key)
    return HostFacts(host_key, done.stdout.strip())


def pin_at_first_contact(target: SshTarget, *, patience_s: float = PATIENCE_S) -> str:
    """Pin the host's key unless one is pinned; return a note when this call pinned it, else an empty text.

    A host that does not answer is asked again, see ``shown_key``. Raises SshTimeoutError.
    """
    if pinned(target.known_hosts, target.host):
        return ""
    key = shown_key(target, patience_s=patience_s)
    pin(target.known_hosts, target.host, key)
    note = f"pinned the host key that {target.name} showed at first contact ({fingerprint(key)})"
    _log.info("%s: %s", target.where, note)
    return note


def shown_key(target: SshTarget, *, expected: str = "", patience_s: float = 0.0) -> str:
    """Return the key that a host shows now ("ssh-ed25519 AAAA..."), without a login.

    Of several kinds, it is the kind of ``expected``, the pinned key. A host that takes a connection and shows no key is
    asked again for ``patience_s`` seconds, one that takes none for ``DIAL_S``. Raises SshTimeoutError.
    """
    begun = time.monotonic()
    deadline = begun + patience_s
    while True:
        try:
            with dial(target, DIAL_S) as connection, paramiko.Transport(connection) as transport:
                return _key_of(transport, expected)
        except errors.SshTimeoutError:  # no connection to it, to its jump host, or from there to it
            check_stop()
            if time.monotonic() >= min(deadline, begun + DIAL_S):
                raise
            time.sleep(1.0)
        except (OSError, EOFError, paramiko.SSHException) as error:
            check_stop()
            if time.monotonic() > deadline:
                raise errors.no_answer(target.where, max(patience_s, _BANNER_S), errors.reason(error)) from error
            time.sleep(1.0)


def _key_of(transport: paramiko.Transport, expected: str) -> str:
    prefer(transport, expected)
    transport.start_client(timeout=_BANNER_S)
    return text_of(transport.get_remote_server_key())

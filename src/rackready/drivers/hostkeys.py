"""First contact with hosts that are not ours to install (switches, the scheduler's controller): their key is pinned, and that is said."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import paramiko

from rackready.drivers import ssh
from rackready.drivers.process import check_stop
from rackready.model.problems import RackreadyError

PATIENCE_S = 60.0
"""Seconds for which a host that does not answer is asked again: it may be booting."""
_TIMEOUT_S = 15.0


SCHEDULER = "scheduler"
"""The name under which `rackready hostkey accept` takes the scheduler's controller."""


class HostKeyError(RackreadyError):
    """A host's key could not be read."""


def known_name(host: str, port: int) -> str:
    """Return the name under which OpenSSH and paramiko look a host up: ``[host]:port`` unless the port is 22."""
    return host if port == 22 else f"[{host}]:{port}"  # noqa: PLR2004 - SSH's own port


def pin_at_first_contact(known_hosts: Path, host: str, port: int, name: str, *, patience_s: float = PATIENCE_S) -> str:
    """Make sure that a key of the host is pinned; return what to say when this call pinned it, else an empty text.

    A host that is just booting is waited for, ``patience_s`` seconds. Raises HostKeyError when it shows no key.
    """
    where = known_name(host, port)
    if ssh.pinned(known_hosts, where):
        return ""
    key = shown_key(host, port, name, patience_s=patience_s)
    ssh.pin(known_hosts, where, key)
    return f"pinned the host key that {name} showed at first contact ({ssh.fingerprint(key)})"


def shown_key(host: str, port: int, name: str, *, expected: str = "", patience_s: float = 0.0) -> str:
    """Return the key that a host shows now ("ssh-ed25519 AAAA..."); of several kinds that of ``expected``, the pinned key. Nobody logs in.

    A host that does not answer is asked again for ``patience_s`` seconds. Raises HostKeyError when it shows no key.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            with (
                socket.create_connection((host, port), timeout=_TIMEOUT_S) as connection,
                paramiko.Transport(connection) as transport,
            ):
                ssh.prefer(transport, expected)
                transport.start_client(timeout=_TIMEOUT_S)
                return ssh.text_of(transport.get_remote_server_key())
        except (OSError, EOFError, paramiko.SSHException) as error:
            check_stop()
            if time.monotonic() < deadline:
                time.sleep(1.0)
                continue
            reason = str(error) or error.__class__.__name__
            wanted = f"an answer within {patience_s or _TIMEOUT_S:.0f} s"
            message = (
                f"{name} ({host}:{port}): no SSH service - Expected: {wanted} Actual: {reason}. "
                "Check its power, network and address."
            )
            raise HostKeyError(message) from error

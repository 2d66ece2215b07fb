"""First contact with a node over SSH: wait until it answers, read its host key, pin it, read its boot id.

Host keys are pinned into the environment's own ``known_hosts`` (OpenSSH's format, so Ansible and every later connection
check against it). A key is trusted at first sight; one that differs from the pinned key is refused.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import socket
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import paramiko

from rackready import files
from rackready.model.problems import RackreadyError

_log = logging.getLogger(__name__)

_CONNECT_S = 5.0
_BANNER_S = 15.0
_LOGIN_PATIENCE_S = 20.0
"""Seconds for which a refused login is tried again: while a host boots, sshd may answer before its users can log in."""
_BOOT_ID = "cat /proc/sys/kernel/random/boot_id"


class SshError(RackreadyError):
    """A node cannot be used over SSH."""


class SshTimeoutError(SshError):
    """SSH did not answer in time."""


class HostKeyChangedError(SshError):
    """The node shows another host key than the pinned one."""


class SshLoginError(SshError):
    """The node does not let us in."""


@dataclass(frozen=True, slots=True)
class SshTarget:
    """Where and how to log in. ``private_key`` is an OpenSSH private key file without a passphrase, ``known_hosts`` holds the pins."""

    node: str
    address: str
    port: int
    user: str
    private_key: Path
    known_hosts: Path

    @property
    def where(self) -> str:
        """Node and address, for messages."""
        return f"{self.node} {self.address}:{self.port}"

    @property
    def host(self) -> str:
        """The host's name in known_hosts: OpenSSH writes the port only when it is not 22."""
        return self.address if self.port == 22 else f"[{self.address}]:{self.port}"  # noqa: PLR2004 - SSH's own port


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What first contact found: the host key ("ssh-ed25519 AAAA...") and the running kernel's boot id."""

    host_key: str
    boot_id: str


def wait_and_pin(
    target: SshTarget, *, timeout_s: float, reinstalled: bool = False, proceed: Callable[[], None] = lambda: None
) -> HostFacts:
    """Wait at most ``timeout_s`` seconds until the node lets us in; pin its host key and return it with the boot id.

    ``reinstalled`` says that the operating system was just installed anew, so that another key than the pinned one is
    expected and takes its place. ``proceed`` is called between tries and may raise to stop. Raises SshError.
    """
    begun = time.monotonic()
    key = read_private_key(target.where, target.private_key)
    refused_since: float | None = None
    while True:
        proceed()
        last: Exception
        try:
            facts = _contact(target, key, "" if reinstalled else pinned(target.known_hosts, target.host))
            pin(target.known_hosts, target.host, facts.host_key)
        except paramiko.AuthenticationException as error:
            refused_since = refused_since or time.monotonic()
            if time.monotonic() - refused_since > min(_LOGIN_PATIENCE_S, timeout_s):
                raise _refused(target) from error
            last = error
        except (OSError, EOFError, paramiko.SSHException) as error:
            last = error
        else:
            return facts
        if time.monotonic() - begun > timeout_s:
            text = (
                f"{target.where}: SSH - Expected: an answer within {timeout_s:.0f} s Actual: {_words(last)}. "
                "Look at the node's console through its BMC, and at its address in the site file; then run again."
            )
            raise SshTimeoutError(text) from last
        time.sleep(1.0)


def _contact(target: SshTarget, key: paramiko.PKey, expected: str) -> HostFacts:
    sock = socket.create_connection((target.address, target.port), timeout=_CONNECT_S)
    transport = paramiko.Transport(sock)
    try:
        transport.banner_timeout = transport.auth_timeout = _BANNER_S
        prefer(transport, expected)
        transport.start_client(timeout=_BANNER_S)
        host_key = text_of(transport.get_remote_server_key())
        if expected and host_key != expected:
            raise _changed(target, expected, host_key)
        transport.auth_publickey(target.user, key)
        return HostFacts(host_key, _run(transport, _BOOT_ID))
    finally:
        transport.close()


def _run(transport: paramiko.Transport, command: str) -> str:
    channel = transport.open_session(timeout=_BANNER_S)
    channel.settimeout(_BANNER_S)
    channel.exec_command(command)
    with channel.makefile("rb") as stream:
        out = stream.read()
    if channel.recv_exit_status() != 0 or not out.strip():
        message = f"`{command}` gave nothing"
        raise paramiko.SSHException(message)
    return str(out.decode("ascii", "replace").strip())


def prefer(transport: paramiko.Transport, expected: str) -> None:
    """Ask for the kind of key that is pinned, so that a host that has gained another kind is not taken for a stranger."""
    kind = expected.split(" ", 1)[0]
    kinds = ["rsa-sha2-512", "rsa-sha2-256"] if kind == "ssh-rsa" else [kind]
    options = transport.get_security_options()
    known = list(options.key_types)
    options.key_types = [item for item in kinds if item in known] + [item for item in known if item not in kinds]


def pinned(known_hosts: Path, host: str) -> str:
    """Return the key pinned for a host of known_hosts ("ssh-ed25519 AAAA..."), "" when there is none."""
    for line in _lines(known_hosts):
        name, _, key = line.partition(" ")
        if name == host:
            return " ".join(key.split()[:2])
    return ""


def pin(known_hosts: Path, host: str, key: str) -> None:
    """Pin a key for a host in place of any other; the file is replaced as a whole, under a lock, and readable by its owner alone."""
    fd = os.open(known_hosts.with_name(known_hosts.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        if pinned(known_hosts, host) == key:
            return
        kept = [line for line in _lines(known_hosts) if line.partition(" ")[0] != host]
        files.replace(known_hosts, ("\n".join([*kept, f"{host} {key}"]) + "\n").encode(errors="surrogateescape"))
    finally:
        os.close(fd)


def _lines(known_hosts: Path) -> list[str]:
    """Return the lines of the pins; bytes that are no text stay what they are when the lines are written again."""
    return (
        known_hosts.read_text(encoding="utf-8", errors="surrogateescape").splitlines() if known_hosts.exists() else []
    )


def load_pins(client: paramiko.SSHClient, known_hosts: Path) -> None:
    """Let a client know the pinned keys. A damaged line pins nothing, as for OpenSSH: its host is refused, and all others go on."""
    for line in _lines(known_hosts):
        try:
            entry = paramiko.hostkeys.HostKeyEntry.from_line(line)
        except (paramiko.SSHException, paramiko.hostkeys.InvalidHostKey, ValueError):
            continue
        if entry is not None and entry.key is not None:
            for name in entry.hostnames or []:
                client.get_host_keys().add(name, entry.key.get_name(), entry.key)


def connect(target: SshTarget, *, timeout_s: float, keepalive_s: int) -> paramiko.SSHClient:
    """Return a session with a host whose key is pinned: no other key is accepted, and no agent is asked.

    Raises paramiko.BadHostKeyException, paramiko.SSHException and OSError: whoever connects knows what the host is for,
    and says so.
    """
    client = paramiko.SSHClient()
    load_pins(client, target.known_hosts)
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    client.connect(
        target.address,
        port=target.port,
        username=target.user,
        pkey=paramiko.PKey.from_path(target.private_key),
        timeout=timeout_s,
        banner_timeout=timeout_s,
        auth_timeout=timeout_s,
        look_for_keys=False,
        allow_agent=False,
    )
    transport = client.get_transport()
    if transport is not None:
        transport.set_keepalive(keepalive_s)
    _log.info("%s: SSH session as %s", target.where, target.user)
    return client


def way_out(name: str) -> str:
    """Return the next step for a host whose key is not the pinned one, or is not pinned: the same in every message."""
    accept = f"`rackready hostkey accept {name}` shows both keys and pins the new one"
    return f"If it was installed anew, or the pinned key was lost, {accept}; if not, find out who answers there."


def read_private_key(where: str, path: Path) -> paramiko.PKey:
    """Return the controller's key for a login at ``where``. Raises SshLoginError when it cannot be used: no node is at fault then."""
    try:
        return paramiko.PKey.from_path(path)
    except (OSError, ValueError, TypeError, paramiko.SSHException, paramiko.pkey.UnknownKeyType) as error:
        text = (
            f"{where}: private key {path} - Expected: an OpenSSH private key without passphrase "
            f"Actual: {getattr(error, 'strerror', None) or _words(error)}. "
            "Correct access.private_key in the site file."
        )
        raise SshLoginError(text) from error


def text_of(key: paramiko.PKey) -> str:
    """Return a key as known_hosts holds it: its kind, and the key in base64."""
    return f"{key.get_name()} {b64encode(key.asbytes()).decode('ascii')}"


def _refused(target: SshTarget) -> SshLoginError:
    return SshLoginError(
        f"{target.where}: SSH refused the login of {target.user} - Expected: {target.private_key} opens it "
        "Actual: key refused. "
        f"Put its public key into the authorized_keys of {target.user} on the node, or correct access in the site file."
    )


def _changed(target: SshTarget, expected: str, found: str) -> HostKeyChangedError:
    return HostKeyChangedError(
        f"{target.where}: SSH host key changed, no login was tried - Expected: {fingerprint(expected)} "
        f"Actual: {fingerprint(found)}. {way_out(target.node)}"
    )


def fingerprint(key: str | paramiko.PKey) -> str:
    """Return a host key as `ssh-keygen -l` names it: its kind, and SHA256: with the digest in base64 without padding (OpenSSH, sshkey.c)."""
    kind, _, blob = (key if isinstance(key, str) else text_of(key)).partition(" ")
    try:
        digest = hashlib.sha256(b64decode(blob, validate=True)).digest()
    except ValueError:
        return f"{kind} (damaged, no key)"
    return f"{kind} SHA256:{b64encode(digest).decode('ascii').rstrip('=')}"


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer (time-out)"
    return str(error) or type(error).__name__

"""Pinned host keys: the environment's own known_hosts, in OpenSSH's format.

Ansible and every connection of ours check against this file.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from base64 import b64decode, b64encode
from pathlib import Path

import paramiko

from rackready import files
from rackready.paths import private_dir


def known_name(address: str, port: int) -> str:
    """Return a host's name in known_hosts: OpenSSH and paramiko write the port only when it is not 22."""
    return address if port == 22 else f"[{address}]:{port}"  # noqa: PLR2004 - SSH's own port


def pinned(known_hosts: Path, host: str) -> str:
    """Return the key pinned for a host of known_hosts ("ssh-ed25519 AAAA..."), "" when there is none."""
    for line in _lines(known_hosts):
        name, _, key = line.partition(" ")
        if name == host:
            return " ".join(key.split()[:2])
    return ""


def all_pinned(known_hosts: Path) -> dict[str, str]:
    """Return host -> pinned key of every host of known_hosts, as ``pinned`` does for one."""
    out: dict[str, str] = {}
    for line in _lines(known_hosts):
        name, _, key = line.partition(" ")
        out.setdefault(name, " ".join(key.split()[:2]))
    return out


def pin(known_hosts: Path, host: str, key: str) -> None:
    """Pin a key for a host in place of any other.

    The file is replaced as a whole, under a lock, and readable by its owner alone.
    """
    private_dir(known_hosts.parent)
    fd = os.open(known_hosts.with_name(known_hosts.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        if pinned(known_hosts, host) == key:
            return
        kept = [line for line in _lines(known_hosts) if line.partition(" ")[0] != host]
        files.replace(known_hosts, ("\n".join([*kept, f"{host} {key}"]) + "\n").encode(errors="surrogateescape"))
    finally:
        os.close(fd)


def load_pins(client: paramiko.SSHClient, known_hosts: Path) -> None:
    """Load the pinned keys into a client.

    A damaged line pins nothing, as in OpenSSH: its host is refused, all others are usable.
    """
    for line in _lines(known_hosts):
        try:
            entry = paramiko.hostkeys.HostKeyEntry.from_line(line)
        except (paramiko.SSHException, paramiko.hostkeys.InvalidHostKey, ValueError):
            continue
        if entry is not None and entry.key is not None:
            for name in entry.hostnames or []:
                client.get_host_keys().add(name, entry.key.get_name(), entry.key)


def prefer(transport: paramiko.Transport, expected: str) -> None:
    """Ask a host for the kind of key that is pinned: one that gained another kind must not look like a changed key."""
    kind = expected.split(" ", 1)[0]
    kinds = ["rsa-sha2-512", "rsa-sha2-256"] if kind == "ssh-rsa" else [kind]
    options = transport.get_security_options()
    known = list(options.key_types)
    options.key_types = [item for item in kinds if item in known] + [item for item in known if item not in kinds]


def text_of(key: paramiko.PKey) -> str:
    """Return a key as known_hosts holds it: its kind, and the key in base64."""
    return f"{key.get_name()} {b64encode(key.asbytes()).decode('ascii')}"


def fingerprint(key: str | paramiko.PKey) -> str:
    """Return a host key as `ssh-keygen -l` prints it.

    Its kind, and SHA256: with the digest in base64 without padding (OpenSSH, sshkey.c).
    """
    kind, _, blob = (key if isinstance(key, str) else text_of(key)).partition(" ")
    try:
        digest = hashlib.sha256(b64decode(blob, validate=True)).digest()
    except ValueError:
        return f"{kind} (damaged, no key)"
    return f"{kind} SHA256:{b64encode(digest).decode('ascii').rstrip('=')}"


def _lines(known_hosts: Path) -> list[str]:
    """Return the lines of the pins; bytes that are no text are written back unchanged."""
    if not known_hosts.exists():
        return []
    return known_hosts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()

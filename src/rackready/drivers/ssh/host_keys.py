"""SSH host keys that the controller makes for nodes that it installs: their first contact needs no trust."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from rackready import files
from rackready.design.imaging import HostKey
from rackready.paths import private_dir

Private = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey

_KINDS: dict[str, Callable[[], Private]] = {
    "ed25519": ed25519.Ed25519PrivateKey.generate,
    "ecdsa": lambda: ec.generate_private_key(ec.SECP256R1()),
}
"""Kinds by their names in cloud-init's ``ssh_keys``. The first is pinned; RSA is left out, no OpenSSH needs it."""


def host_keys(folder: Path, node: str) -> list[HostKey]:
    """Return the host keys of a node, made at the first call; each is a file with mode 0600 in a private folder.

    Raises OSError.
    """
    private_dir(folder)
    return [_key(folder / f"{node}_{kind}", kind) for kind in _KINDS]


def _key(path: Path, kind: str) -> HostKey:
    if not path.exists():
        files.create(path, _written(_KINDS[kind]()))  # the first of several processes wins
    text = path.read_bytes()
    public = serialization.load_ssh_private_key(text, password=None).public_key()
    line = public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return HostKey(kind, text.decode(), line.decode())


def _written(key: Private) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )

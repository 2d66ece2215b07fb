"""Makes the key with which the controller logs in to nodes."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat


def put_key(path: Path) -> None:
    """Make the controller's key."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = ed25519.Ed25519PrivateKey.generate()
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))

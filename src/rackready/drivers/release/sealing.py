"""Variables of a node on the wire: sealed with a key that only this node and the controller have.

The seal has no random part, so equal variables are the same object. The nonce is a keyed digest of what is sealed:
two contents under one key have two nonces, up to a collision of 96 bits (the construction of RFC 8452, SIV).
"""

from __future__ import annotations

import hashlib
import hmac
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from rackready import files
from rackready.drivers.release.error import ReleaseError
from rackready.paths import EnvPaths, private_dir

_BYTES = 32
NONCE = 12
"""Bytes before the ciphertext (NIST SP 800-38D, 8.2.1)."""


class SealError(ReleaseError):
    """Sealed variables do not open: another key, another node, or somebody changed them."""


def master_key(paths: EnvPaths, *, make: bool = True) -> bytes:
    """Return the key of an environment from which the keys of nodes follow; the first call makes it (``make``).

    Raises OSError, and SealError for a damaged file, or a missing one that is not to be made.
    """
    path = paths.state / "pull.key"
    if make:
        private_dir(path.parent)
        files.create(path, os.urandom(_BYTES))
    key, mode = (path.read_bytes(), path.stat().st_mode & 0o777) if path.exists() else (b"", 0)
    if len(key) != _BYTES or mode & 0o077:
        raise SealError(
            path,
            "key of the nodes' variables",
            expected=f"{_BYTES} bytes, mode 0600",
            actual=f"{len(key)} bytes, mode {mode:04o}" if mode else "no file",
            next_step="Restore it; or remove it, then build again: the next run gives every node a new key.",
        )
    return key


def node_key(master: bytes, node: str, machine: str) -> bytes:
    """Return the key of a node. Another machine of that name (fingerprint of its SSH host key) has another one."""
    return hmac.new(master, b"node-key|" + node.encode() + b"|" + machine.encode(), hashlib.sha256).digest()


def sealed(key: bytes, node: str, content: bytes) -> bytes:
    """Return a content for one node alone: nonce, then ciphertext."""
    bound = _bound(node)
    nonce = hmac.new(key, b"nonce|" + bound + b"|" + content, hashlib.sha256).digest()[:NONCE]
    return nonce + AESGCM(key).encrypt(nonce, content, bound)


def opened(key: bytes, node: str, data: bytes) -> bytes:
    """Return what was sealed for a node. Raises SealError."""
    try:
        return AESGCM(key).decrypt(data[:NONCE], data[NONCE:], _bound(node))
    except (InvalidTag, ValueError) as error:
        raise SealError(
            node,
            "sealed variables",
            expected="sealed with the key of this node",
            actual="they do not open",
            next_step="Run `rackready release build`.",
        ) from error


def _bound(node: str) -> bytes:
    return b"rackready-sealed|" + node.encode()

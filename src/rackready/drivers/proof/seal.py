"""Seals what a play recorded: arguments of roles may hold secrets, so the record is encrypted and bound to its node."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from rackready import files
from rackready.paths import private_dir

_BYTES = 32
_NONCE = 12
"""Bytes, as NIST SP 800-38D (8.2.1) recommends for GCM."""


class SealBrokenError(Exception):
    """A sealed record cannot be opened: another key, another node or release, or somebody changed it."""


class Seal:
    """The key of one environment, in a file that only its owner reads: made once, unless it was copied here before."""

    def __init__(self, path: Path) -> None:
        private_dir(path.parent)
        files.create(path, os.urandom(_BYTES))
        self._key = path.read_bytes()
        if len(self._key) != _BYTES:  # a torn file: what was sealed with it is lost, and nodes are played
            files.replace(path, os.urandom(_BYTES))
            self._key = path.read_bytes()

    @property
    def name(self) -> str:
        """Return a name of the key, which tells it from others and nothing about it."""
        return self.key("name").hex()[:16]

    def key(self, purpose: str) -> bytes:
        """Return a key for one purpose."""
        return hmac.new(self._key, purpose.encode(), hashlib.sha256).digest()

    def sealed(self, document: Mapping[str, Any], bound: str) -> bytes:
        """Return a document, compressed and encrypted. It opens only with the same ``bound``."""
        nonce = os.urandom(_NONCE)
        data = zlib.compress(json.dumps(document, sort_keys=True).encode(), 6)
        return nonce + AESGCM(self.key("seal")).encrypt(nonce, data, bound.encode())

    def opened(self, data: bytes, bound: str) -> dict[str, Any]:
        """Return the document. Raises SealBrokenError."""
        try:
            text = zlib.decompress(AESGCM(self.key("seal")).decrypt(data[:_NONCE], data[_NONCE:], bound.encode()))
            document = json.loads(text)
        except (InvalidTag, ValueError, zlib.error) as error:
            raise SealBrokenError from error
        if not isinstance(document, dict):
            raise SealBrokenError
        return document

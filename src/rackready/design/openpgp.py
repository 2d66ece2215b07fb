"""Fingerprints of the primary keys in a file of OpenPGP public keys, without gpg.

RFC 9580: packet headers in 4.2, key packets in 5.5.2, fingerprints in 5.5.4, ASCII armor in 6.2.
"""

from __future__ import annotations

import base64
import hashlib
import re
from binascii import Error
from collections.abc import Iterator

_PUBLIC_KEY = 6
"""Tag of the packet with a primary public key."""
_BEGIN, _END = "-----BEGIN PGP PUBLIC KEY BLOCK-----", "-----END PGP PUBLIC KEY BLOCK-----"
_NEW_FORMAT, _ANY_PACKET = 0x40, 0x80
_V4, _V6 = 4, 6


def fingerprints(data: bytes) -> list[str]:
    """Return the fingerprints of the primary keys, in upper case and in their order. Raises ValueError for no key."""
    found = [text for block in _blocks(data) for tag, body in _packets(block) if (text := _fingerprint(tag, body))]
    if not found:
        message = "no OpenPGP public key"
        raise ValueError(message)
    return found


def _fingerprint(tag: int, body: bytes) -> str:
    """Return the fingerprint of a key packet; empty for other packets, and for versions before 4."""
    if tag != _PUBLIC_KEY or not body:
        return ""
    if body[0] == _V4:
        head = b"\x99" + len(body).to_bytes(2, "big")
        return hashlib.sha1(head + body, usedforsecurity=False).hexdigest().upper()
    if body[0] == _V6:
        return hashlib.sha256(b"\x9b" + len(body).to_bytes(4, "big") + body).hexdigest().upper()
    return ""


def _blocks(data: bytes) -> list[bytes]:
    """Return the binary packets of a file: of every armored block, or the file itself."""
    text = data.decode("ascii", errors="replace")
    if _BEGIN not in text:
        return [data]
    inside = (part.partition(_END)[0] for part in text.split(_BEGIN)[1:])
    return [_dearmored(part) for part in inside]


def _dearmored(part: str) -> bytes:
    """Return the data of an armored block, without its headers and its checksum, a line that begins with "="."""
    body = re.split(r"\r?\n[ \t]*\r?\n", part, maxsplit=1)[-1]
    lines = [line.strip() for line in body.splitlines()]
    try:
        return base64.b64decode("".join(line for line in lines if not line.startswith("=")), validate=True)
    except Error as error:
        message = f"ASCII armor cannot be read: {error}"
        raise ValueError(message) from error


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (tag, body) of each packet; ends at the first byte that begins none."""
    place = 0
    while place < len(data) and data[place] & _ANY_PACKET:
        first = data[place]
        try:
            tag, start, size = _new(data, place) if first & _NEW_FORMAT else _old(data, place)
        except IndexError:
            return
        yield tag, data[start : start + size]
        place = start + size


def _new(data: bytes, place: int) -> tuple[int, int, int]:
    """Return tag, start and length of a packet with a header of the OpenPGP format (4.2.1)."""
    tag, octet = data[place] & 0x3F, data[place + 1]
    if octet < 192:  # noqa: PLR2004 - lengths of one octet
        return tag, place + 2, octet
    if octet < 224:  # noqa: PLR2004 - lengths of two octets
        return tag, place + 3, ((octet - 192) << 8) + data[place + 2] + 192
    return tag, place + 6, int.from_bytes(data[place + 2 : place + 6], "big")


def _old(data: bytes, place: int) -> tuple[int, int, int]:
    """Return tag, start and length of a packet with a header of the legacy format (4.2.2)."""
    tag, kind = (data[place] & 0x3C) >> 2, data[place] & 3
    if kind == 3:  # noqa: PLR2004 - a length that lasts to the end
        return tag, place + 1, len(data) - place - 1
    octets = 1 << kind
    start = place + 1 + octets
    return tag, start, int.from_bytes(data[place + 1 : start], "big")

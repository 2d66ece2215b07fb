"""Ask a network whether a DHCP server answers there: one DISCOVER for a made-up machine (RFC 2131)."""

from __future__ import annotations

import secrets
import socket
import struct
import time
from ipaddress import IPv4Address

_SERVER_PORT, _CLIENT_PORT = 67, 68
_COOKIE = b"\x63\x82\x53\x63"
_TYPE, _SERVER_ID, _END, _PAD = 53, 54, 255, 0
_DISCOVER, _OFFER = 1, 2
_BROADCAST_FLAG = 0x8000
_OPTIONS_AT = 240
"""Where options begin: 236 bytes of BOOTP and the cookie."""
WAIT_S = 3.0
"""Seconds for an answer; servers that look for the address in use first (ping) take one or two."""


def dhcp_servers(interface: str, wait_s: float = WAIT_S) -> list[IPv4Address]:
    """Return the DHCP servers that make an offer on an interface; none is taken. Raises OSError (needs root)."""
    mac = b"\x02" + secrets.token_bytes(5)
    transaction = secrets.token_bytes(4)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        sock.bind(("", _CLIENT_PORT))
        sock.sendto(discover(transaction, mac), ("255.255.255.255", _SERVER_PORT))
        return sorted(_offers(sock, transaction, time.monotonic() + wait_s))


def discover(transaction: bytes, mac: bytes) -> bytes:
    """Return a DISCOVER whose answer is broadcast."""
    head = struct.pack("!BBBB4sHH16x16s192x", 1, 1, 6, 0, transaction, 0, _BROADCAST_FLAG, mac)
    return (head + _COOKIE + bytes([_TYPE, 1, _DISCOVER, _END])).ljust(300, b"\0")


def _offers(sock: socket.socket, transaction: bytes, until: float) -> set[IPv4Address]:
    found = set()
    while (left := until - time.monotonic()) > 0:
        sock.settimeout(left)
        try:
            data, (sender, _) = sock.recvfrom(4096)
        except TimeoutError:
            break
        options = _options(data)
        if data[4:8] == transaction and options.get(_TYPE) == bytes([_OFFER]):
            named = options.get(_SERVER_ID, b"")
            found.add(IPv4Address(named) if len(named) == len(IPv4Address(0).packed) else IPv4Address(sender))
    return found


def _options(data: bytes) -> dict[int, bytes]:
    """Return the options of a DHCP message; what is cut off is left out."""
    out: dict[int, bytes] = {}
    at = _OPTIONS_AT
    while at < len(data) and data[at] != _END:
        if data[at] == _PAD:
            at += 1
            continue
        if at + 1 >= len(data):
            break
        out[data[at]] = data[at + 2 : at + 2 + data[at + 1]]
        at += 2 + data[at + 1]
    return out

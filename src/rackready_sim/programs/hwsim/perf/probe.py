"""Test on the network whether a peer can be reached from one interface with frames of a given size."""

from __future__ import annotations

import os
import select
import socket
import struct
import time

_ECHO_REQUEST, _ECHO_REPLY = 8, 0
_IP_MTU_DISCOVER, _IP_PMTUDISC_DO = 10, 2
_HEADERS = 28


def reachable(netdev: str, address: str, payload: int, timeout_s: float = 1.5) -> bool:
    """Send an unfragmented echo request of ``payload`` bytes from one interface; return whether it came back."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as handle:
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, netdev.encode() + b"\0")
        handle.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        ident = (os.getpid() ^ hash((netdev, address))) & 0xFFFF
        end = time.monotonic() + timeout_s
        sequence = 0
        while time.monotonic() < end:
            sequence += 1
            try:
                handle.sendto(_packet(ident, sequence, payload), (address, 0))
            except OSError:
                return False
            if _answered(handle, ident, min(end, time.monotonic() + 0.5)):
                return True
    return False


def _packet(ident: int, sequence: int, payload: int) -> bytes:
    body = bytes(max(0, payload))
    head = struct.pack("!BBHHH", _ECHO_REQUEST, 0, 0, ident, sequence)
    return struct.pack("!BBHHH", _ECHO_REQUEST, 0, _checksum(head + body), ident, sequence) + body


def _answered(handle: socket.socket, ident: int, until: float) -> bool:
    while (left := until - time.monotonic()) > 0:
        if not select.select([handle], [], [], left)[0]:
            return False
        raw = handle.recv(65535)
        at = (raw[0] & 0xF) * 4
        kind, _code, _sum, found = struct.unpack_from("!BBHH", raw, at)
        if kind == _ECHO_REPLY and found == ident:
            return True
    return False


def _checksum(raw: bytes) -> int:
    padded = raw + b"\0" * (len(raw) % 2)
    total: int = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF

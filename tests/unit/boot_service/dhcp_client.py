"""The DHCP client of a machine's firmware, as far as a server answers by it (RFC 2131, 2132, 4578)."""

from __future__ import annotations

import secrets
import socket
import time
from dataclasses import dataclass
from ipaddress import IPv4Address

COOKIE = bytes([99, 130, 83, 99])
WAIT_S = 1.5
"""Long enough for dnsmasq on the same machine, which answers within milliseconds."""


@dataclass(frozen=True)
class Firmware:
    """Who asks: option 93, and the texts of options 60 and 77."""

    arch: int
    vendor: str
    user: str = ""


PXE = Firmware(7, "PXEClient:Arch:00007:UNDI:003001")
PXE_EBC = Firmware(9, "PXEClient:Arch:00009:UNDI:003001")
HTTP = Firmware(16, "HTTPClient:Arch:00016:UNDI:003001")
IPXE = Firmware(7, "PXEClient:Arch:00007:UNDI:003010", "iPXE")
BIOS = Firmware(0, "PXEClient:Arch:00000:UNDI:002001")


@dataclass(frozen=True)
class Answer:
    """What a server said."""

    kind: int
    address: IPv4Address
    server: IPv4Address
    file: str
    options: dict[int, bytes]


def ask(
    interface: str,
    mac: str,
    firmware: Firmware,
    *,
    offer: Answer | None = None,
    to: tuple[str, int] = ("255.255.255.255", 67),
) -> Answer | None:
    """Send a DISCOVER (with ``offer``: the REQUEST for it), and return the first answer, None without one.

    ``to``: address and port of the server; port 4011 is that of a boot server beside a DHCP server.
    """
    transaction = secrets.token_bytes(4)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        sock.bind(("", 68))
        sock.sendto(message(transaction, mac, firmware, offer), to)
        until = time.monotonic() + WAIT_S
        while (left := until - time.monotonic()) > 0:
            sock.settimeout(left)
            try:
                data = sock.recv(4096)
            except TimeoutError:
                return None
            if data[4:8] == transaction and data[0] == 2:
                return read(data)
    return None


def message(transaction: bytes, mac: str, firmware: Firmware, offer: Answer | None) -> bytes:
    head = bytes([1, 1, 6, 0]) + transaction + bytes([0, 1, 0x80, 0]) + bytes(16)
    hardware = bytes.fromhex(mac.replace(":", "")).ljust(16, b"\0")
    options = {53: bytes([3 if offer else 1]), 55: bytes([1, 3, 6, 43, 60, 66, 67])}
    options |= {60: firmware.vendor.encode(), 93: firmware.arch.to_bytes(2, "big"), 94: bytes([1, 3, 16])}
    options |= {97: b"\0" + bytes(16), 57: (1472).to_bytes(2, "big")}
    if firmware.user:
        options[77] = firmware.user.encode()
    if offer:
        options |= {50: offer.address.packed, 54: offer.options[54]}
    return (
        head + hardware + bytes(192) + COOKIE + b"".join(bytes([k, len(v)]) + v for k, v in options.items()) + b"\xff"
    )


def read(data: bytes) -> Answer:
    assert data[236:240] == COOKIE
    options, at = {}, 240
    while data[at] != 255:
        if data[at] == 0:
            at += 1
            continue
        options[data[at]] = data[at + 2 : at + 2 + data[at + 1]]
        at += 2 + data[at + 1]
    file = options.get(67) or data[108:236].split(b"\0")[0]
    return Answer(
        options[53][0],
        IPv4Address(data[16:20]),
        IPv4Address(data[20:24]),
        file.rstrip(b"\0").decode(),
        options,
    )

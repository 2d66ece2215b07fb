"""The path between two NICs: ask the switch at the other end of the cable how it forwards to a peer.

The question is a frame with a local ethertype. A real switch queues, marks and drops by itself. Here no data move: a
test tells the switch what it sent, and the switch counts it on its ports and reports what it did. If no switch answers,
the path is good.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import time
from typing import Any

from .. import paths

Facts = dict[str, Any]
ETHERTYPE = 0x88B5
"""IEEE 802 local experimental ethertype 1."""
_ANSWER_S = 0.6
_HEAD = 14


def mac(text: str) -> bytes:
    """Return the six bytes of an Ethernet address."""
    return bytes.fromhex(text.replace(":", ""))


def frame(target: bytes, source: bytes, message: Facts) -> bytes:
    """Return a frame; its body carries its own length, because short frames are padded."""
    body = json.dumps(message).encode()
    return target + source + struct.pack("!HH", ETHERTYPE, len(body)) + body


def message(raw: bytes) -> Facts:
    """Return the body of a frame. Raise ValueError if it has none."""
    length = struct.unpack("!H", raw[_HEAD : _HEAD + 2])[0]
    found: Facts = json.loads(raw[_HEAD + 2 : _HEAD + 2 + length])
    return found


def neighbour(netdev: str, address: str) -> bytes | None:
    """Return the Ethernet address of a peer that was reached before; None if the kernel does not know it."""
    table = paths.at("/proc/net/arp")
    for line in table.read_text().splitlines()[1:] if table.exists() else []:
        fields = line.split()
        if fields[0] == address and fields[5] == netdev and fields[3] != "00:00:00:00:00:00":
            return mac(fields[3])
    return None


def _gateway(netdev: str, address: str) -> str:
    """Return the router through which an interface reaches a peer of another subnet, empty if there is none."""
    done = subprocess.run(
        ["ip", "-json", "route", "get", address, "oif", netdev], check=False, capture_output=True, text=True
    )
    found = json.loads(done.stdout or "[]")
    return str(found[0].get("gateway", "")) if found else ""


def talk(netdev: str, address: str, told: Facts) -> Facts:
    """Send the switch a message about traffic to a peer; return its answer, empty if there is none."""
    target = neighbour(netdev, address) or neighbour(netdev, _gateway(netdev, address))
    if target is None:
        return {}
    try:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE)) as handle:
            handle.bind((netdev, ETHERTYPE))
            own = handle.getsockname()[4]
            handle.send(frame(target, own, {**told, "to": address, "from": own.hex()}))
            return _answer(handle, own)
    except OSError:
        return {}


def _answer(handle: socket.socket, own: bytes) -> Facts:
    end = time.monotonic() + _ANSWER_S
    while (left := end - time.monotonic()) > 0:
        handle.settimeout(left)
        try:
            raw = handle.recv(4096)
        except TimeoutError:
            break
        if raw[:6] == own:
            found = message(raw)
            if "answer" in found:
                answer: Facts = found["answer"]
                return answer
    return {}

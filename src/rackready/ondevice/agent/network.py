"""Brings up the network card that the firmware booted from, with an address by DHCP."""

from __future__ import annotations

import time
from pathlib import Path

from .errors import ImagingError
from .host import Host, say

_CARD_S = 60.0
_TRIES = 5
_UDHCPC = ("--now", "--quit", "--foreground", "--retries=8", "--timeout=3", "--script=/etc/udhcpc.script")
"""Leaves after about half a minute without an answer, which covers a port in spanning tree's listening state."""


def bring_up(host: Host, mac: str, *, pause: float = 1.0) -> str:
    """Return the interface with the MAC address, when it has an address.

    Raises ImagingError without such a card after 60 s, or without an answer of DHCP after five rounds.
    """
    interface = _interface(host, mac, pause)
    host.must("ip", "link", "set", interface, "up")
    for _ in range(_TRIES):
        done = host.call(("busybox", "udhcpc", f"--interface={interface}", *_UDHCPC))
        if done.code == 0:
            say(f"network: {interface} {mac} has an address by DHCP")
            return interface
        say(f"network: no answer of DHCP on {interface}: {done.err.strip()[-200:]}")
    raise ImagingError(
        "network",
        f"{interface} ({mac})",
        expected="an address by DHCP",
        actual="no answer",
        next_step="Check cable and VLAN.",
    )


def _interface(host: Host, mac: str, pause: float) -> str:
    ends = time.monotonic() + _CARD_S * min(pause, 1.0)
    while True:
        cards = {path.name: host.read(f"/sys/class/net/{path.name}/address") for path in _cards(host)}
        found = sorted(name for name, address in cards.items() if address.lower() == mac)
        if found:
            return found[0]
        if time.monotonic() >= ends:
            known = ", ".join(f"{name} {address}" for name, address in sorted(cards.items()) if name != "lo") or "none"
            raise ImagingError(
                "network",
                f"network card {mac} (BOOTIF)",
                expected="present",
                actual=known,
                next_step="The ramdisk may lack the card's driver or firmware.",
            )
        time.sleep(pause)


def _cards(host: Host) -> list[Path]:
    folder = host.path("/sys/class/net")
    return sorted(folder.iterdir()) if folder.is_dir() else []

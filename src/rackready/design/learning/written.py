"""Words and numbers of a learned profile."""

from __future__ import annotations

from collections import Counter

from rackready.design.learning.parts import Drive, Nic
from rackready.model.printable import visible

_IDEMA = (97_696_368, 1_953_504, 50)
"""IDEMA LBA1-03: a drive of G GB has 97,696,368 + 1,953,504 x (G - 50) sectors of 512 bytes."""


def capacities(drives: list[Drive]) -> dict[int, int]:
    """Return nominal capacity, GB -> number of drives."""
    return dict(sorted(Counter(_nominal(drive.bytes) for drive in drives).items()))


def _nominal(size: int) -> int:
    base, step, offset = _IDEMA
    whole, rest = divmod(size // 512 - base, step)
    return round(size / 1e9) if rest else whole + offset


def described(nic: Nic) -> str:
    """Return what identifies a card, for a comment."""
    macs = ", ".join(f"{netdev.name} {netdev.mac or 'no MAC'}" for netdev in nic.netdevs) or "no interface"
    words = [nic.pci, macs, *nic.rdma, *(f"{name} {value}" for name, value in (("board", nic.board),) if value)]
    return ", ".join([*words, *([f"firmware {nic.firmware}"] if nic.firmware else [])])


def one_line(text: str) -> str:
    """Return a text for a comment: firmware may name its parts with anything, and a new line would be no comment."""
    return visible(" ".join(text.split()))


def quoted(text: str) -> str:
    """Return a PCI address as YAML text: it has colons."""
    return f'"{text}"'

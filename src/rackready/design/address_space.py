"""IPv4 address space: ranges that hosts of a site may use, and ranges that belong to others."""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import IPv4Network

_NOBODYS = {
    IPv4Network("0.0.0.0/8"): "this network (RFC 1122, 3.2.1.3)",
    IPv4Network("224.0.0.0/4"): "multicast (RFC 5771)",
    IPv4Network("240.0.0.0/4"): "reserved (RFC 1112, 4)",
}
_LINK_LOCAL = {IPv4Network("169.254.0.0/16"): "link-local (RFC 3927): no router passes it on"}
_LOOPBACK = {IPv4Network("127.0.0.0/8"): "loopback (RFC 1122, 3.2.1.3): it never leaves a host"}

SITES_OWN = tuple(
    IPv4Network(text)
    for text in (
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "100.64.0.0/10",
        "198.18.0.0/15",
        "192.0.2.0/24",
        "198.51.100.0/24",
        "203.0.113.0/24",
    )
)
"""Private (RFC 1918), shared (RFC 6598), benchmark (RFC 2544) and documentation (RFC 5737) space: not public."""


Span = tuple[int, int]
"""First and last address as numbers.

25,000 addresses are each compared with every range, and numbers are ten times as fast as networks.
"""


def span(network: IPv4Network) -> Span:
    """Return the span of a network."""
    return int(network.network_address), int(network.broadcast_address)


_UNUSABLE = [(*span(network), why) for network, why in (_NOBODYS | _LINK_LOCAL).items()]
_LOOP = [(*span(network), why) for network, why in _LOOPBACK.items()]
_OWN = [span(network) for network in (*SITES_OWN, *_LOOPBACK)]


def unusable(space: Span, *, loopback: bool) -> str:
    """Return why no host of a site can have an address in this range; empty if one may.

    ``loopback``: also exclude addresses of the controller itself.

    A single address of 127/8 may lead to a tunnel or a simulated rack; a pool may not contain one.
    """
    first, last = space
    return next(
        (why for low, high, why in (*_UNUSABLE, *(_LOOP if loopback else ())) if first <= high and low <= last), ""
    )


def foreign(space: Span, held: Collection[Span]) -> bool:
    """Return whether part of this range is public and not listed as space that the site holds."""
    first, last = space
    return not any(low <= first and last <= high for low, high in (*_OWN, *held))

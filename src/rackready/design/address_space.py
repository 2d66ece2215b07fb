"""What IPv4 space is for: which of it hosts of a site can have, and which belongs to others."""

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
"""Private (RFC 1918), shared (RFC 6598), for benchmarks (RFC 2544) and for documentation (RFC 5737): nobody on the internet has an address of it."""


Span = tuple[int, int]
"""First and last address as numbers: of 25,000 addresses each is compared with every space, and numbers are ten times as fast as networks."""


def span(network: IPv4Network) -> Span:
    """Return the span of a network."""
    return int(network.network_address), int(network.broadcast_address)


_UNUSABLE = [(*span(network), why) for network, why in (_NOBODYS | _LINK_LOCAL).items()]
_LOOP = [(*span(network), why) for network, why in _LOOPBACK.items()]
_OWN = [span(network) for network in (*SITES_OWN, *_LOOPBACK)]


def unusable(space: Span, *, loopback: bool) -> str:
    """Return why no host of a site can have an address of this space; empty when one may. ``loopback``: addresses of the controller itself are none either.

    A single address of 127/8 may be where a tunnel or a simulated rack leads; a pool may not.
    """
    first, last = space
    return next(
        (why for low, high, why in (*_UNUSABLE, *(_LOOP if loopback else ())) if first <= high and low <= last), ""
    )


def foreign(space: Span, held: Collection[Span]) -> bool:
    """Say whether some of this space is public, and not of what the site says that it holds."""
    first, last = space
    return not any(low <= first and last <= high for low, high in (*_OWN, *held))

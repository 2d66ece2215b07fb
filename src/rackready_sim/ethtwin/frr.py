"""The configuration of FRR for one switch of the twin: the underlay as every switch system gets it from the plan.

RFC 7938: eBGP, one session per cable, all paths. Words: docs.frrouting.org 8.4, "BGP", "BFD" and "Route Maps".
"""

from __future__ import annotations

from collections.abc import Iterator

from rackready_sim.ethtwin.underlay import Port, Router

_PATHS = 64
"""As Cumulus Linux writes it: user guide 5.15, "Troubleshooting BGP"."""
_RETRY_S = 1
"""Seconds until BGP tries again to connect; FRR's datacenter profile waits 10. It only shortens the rehearsal."""


def text(router: Router, bfd_ms: int) -> str:
    """Return frr.conf of one switch. ``bfd_ms``: interval of BFD, ms."""
    lines = [
        "frr defaults datacenter",
        f"hostname {router.name}",
        # Debian's zebra 8.4 loses paths of its nexthop groups when a cable flaps: BGP has all, the kernel some.
        "no zebra nexthop kernel enable",
        "!",
        "bfd",
        " profile underlay",
        f"  detect-multiplier {router.routing.bfd_multiplier}",
        f"  transmit-interval {bfd_ms}",
        f"  receive-interval {bfd_ms}",
        " exit",
        "exit",
        "!",
        *_interfaces(router),
        *(f"ip prefix-list OWN seq {5 * place} permit {own}" for place, own in enumerate(router.prefixes, 1)),
        "!",
        "route-map OWN permit 10",
        " match ip address prefix-list OWN",
        "exit",
        "!",
        *_bgp(router),
    ]
    return "\n".join([*lines, "line vty", "!", ""])


def gateway_interface(vlan: int) -> str:
    """Return the interface of the twin that stands for a rail's VLAN."""
    return f"vlan{vlan}"


def _interfaces(router: Router) -> Iterator[str]:
    yield from ("interface lo", f" ip address {router.routing.loopback}/32", "exit", "!")
    for gateway in router.gateways:
        yield from (f"interface {gateway_interface(gateway.vlan)}", f" ip address {gateway.address}", "exit", "!")
    for port in router.ports:
        if port.address:
            yield from (f"interface {port.interface}", f" ip address {port.address}", "exit", "!")


def _bgp(router: Router) -> Iterator[str]:
    yield f"router bgp {router.routing.asn}"
    yield f" bgp router-id {router.routing.loopback}"
    yield " bgp bestpath as-path multipath-relax"
    for port in router.ports:
        yield from _session(port)
    yield from (
        " address-family ipv4 unicast",
        "  redistribute connected route-map OWN",
        f"  maximum-paths {_PATHS}",
        " exit-address-family",
        "exit",
        "!",
    )


def _session(port: Port) -> Iterator[str]:
    peer = port.peer_address or port.interface
    kind = "" if port.peer_address else "interface "
    yield f" neighbor {peer} {kind}remote-as {port.peer_asn}"
    yield f" neighbor {peer} bfd profile underlay"
    yield f" neighbor {peer} timers connect {_RETRY_S}"

"""The text of /etc/frr/frr.conf, which NVUE writes from its settings of BGP, BFD and routing policy.

Sources: user guide of Cumulus Linux 5.15 (BGP, BFD, Route Filtering), whose examples show the frr.conf of each setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from . import grammar, schema
from .schema import Setting

_HEAD = (
    "frr defaults datacenter",
    "log syslog informational",
    "service integrated-vtysh-config",
)
_PATHS = 64
"""User guide, "Troubleshooting BGP": multipaths ebgp 64."""

Tree = dict[str, Any]


def routed(settings: set[Setting]) -> bool:
    """Return whether BGP runs: it has an AS number, and is off nowhere."""
    asn = _below(schema.tree(settings), "router", "bgp").get("autonomous-system")
    off = grammar.disabled(settings, "router", "bgp") or grammar.disabled(settings, "vrf", "default", "router", "bgp")
    return bool(asn) and not off


def daemons(settings: set[Setting]) -> str:
    """Return /etc/frr/daemons. Before 5.15 BFD needs no switch of its own."""
    bfd = grammar.enabled(settings, "router", "bfd") or not grammar.says_state()
    return (
        f"bgpd=yes\nbfdd={'yes' if bfd else 'no'}\nvtysh_enable=yes\n"
        'zebra_options="-A 127.0.0.1 -s 90000000"\nbgpd_options="-A 127.0.0.1"\nbfdd_options="-A 127.0.0.1"\n'
    )


def flaw(settings: set[Setting]) -> str:
    """Return why FRR cannot run with these settings, empty if it can: a name that nothing defines, or no remote AS."""
    tree = schema.tree(settings)
    bgp = _below(tree, "vrf", "default", "router", "bgp")
    groups, profiles = bgp.get("peer-group", {}), _below(tree, "router", "bfd", "profile")
    peers = {**groups, **bgp.get("neighbor", {})}
    for name, peer in peers.items():
        group = peer.get("peer-group")
        if group is not None and group not in groups:
            return f"vrf default router bgp neighbor {name} peer-group: '{group}' does not exist"
        if name not in groups and "remote-as" not in {**groups.get(group, {}), **peer}:
            return f"vrf default router bgp neighbor {name}: remote-as is required"
        profile = _below(peer, "bfd").get("profile")
        if profile is not None and profile not in profiles:
            return f"router bfd profile {profile} does not exist"
    chosen = _connected(bgp).get("route-map")
    if chosen is not None and chosen not in _below(tree, "router", "policy", "route-map"):
        return f"router policy route-map {chosen} does not exist"
    return ""


def text(settings: set[Setting], hostname: str) -> str:
    """Return the whole file."""
    tree = schema.tree(settings)
    lines = [*_HEAD, f"hostname {hostname}", "!", *_bfd(_below(tree, "router", "bfd", "profile"))]
    lines += _prefix_lists(_below(tree, "router", "policy", "prefix-list"))
    lines += _route_maps(_below(tree, "router", "policy", "route-map"))
    main, vrfs = _below(tree, "router", "bgp"), tree.get("vrf", {})
    tenants = {name: vrf for name, vrf in sorted(vrfs.items()) if name != "default"}
    lines += [line for name, vrf in tenants.items() for line in _vni(name, _below(vrf, "evpn", "vni"))]
    lines += _bgp(main, _below(vrfs, "default", "router", "bgp"), vni=_on(_below(tree, "evpn"), default=False))
    lines += [line for name, vrf in tenants.items() for line in _tenant(name, main, _below(vrf, "router", "bgp"))]
    return "\n".join([*lines, "line vty", "!", ""])


def _below(tree: Tree, *path: str) -> Tree:
    node: Any = tree
    for word in path:
        node = node.get(word, {})
    found: Tree = node
    return found


def _on(tree: Tree, *, default: bool) -> bool:
    word = tree.get("state", tree.get("enable"))
    return default if word is None else word in {"enabled", "on"}


def _bfd(profiles: Tree) -> Iterator[str]:
    if not profiles:
        return
    yield "bfd"
    for name, profile in sorted(profiles.items()):
        yield f" profile {name}"
        yield f"  detect-multiplier {profile.get('detect-multiplier', 3)}"
        yield f"  transmit-interval {profile.get('min-tx-interval', 300)}"
        yield f"  receive-interval {profile.get('min-rx-interval', 300)}"
        if profile.get("passive-mode") == "enabled":
            yield "  passive-mode"
        if profile.get("shutdown") == "enabled":
            yield "  shutdown"
        yield " exit"
    yield "exit"
    yield "!"


def _prefix_lists(lists: Tree) -> Iterator[str]:
    for name, one in sorted(lists.items()):
        for rule, words in sorted(one.get("rule", {}).items(), key=lambda item: int(item[0])):
            for prefix, lengths in words.get("match", {}).items():
                line = f"ip prefix-list {name} seq {rule} {words.get('action', 'permit')} {prefix}"
                line += f" ge {lengths['min-prefix-len']}" if "min-prefix-len" in lengths else ""
                yield line + (f" le {lengths['max-prefix-len']}" if "max-prefix-len" in lengths else "")
    if lists:
        yield "!"


def _route_maps(maps: Tree) -> Iterator[str]:
    for name, one in sorted(maps.items()):
        for rule, words in sorted(one.get("rule", {}).items(), key=lambda item: int(item[0])):
            yield f"route-map {name} {words.get('action', 'permit')} {rule}"
            match = words.get("match", {})
            if "interface" in match:
                yield f" match interface {match['interface']}"
            if "ip-prefix-list" in match:
                yield f" match ip address prefix-list {match['ip-prefix-list']}"
            yield "exit"
            yield "!"


def _connected(bgp: Tree) -> Tree:
    return _below(bgp, "address-family", "ipv4-unicast", "redistribute", "connected")


def _vni(name: str, numbers: Tree) -> list[str]:
    return [line for number in sorted(numbers) for line in (f"vrf {name}", f" vni {number}", "exit-vrf", "!")]


def _tenant(name: str, main: Tree, vrf: Tree) -> Iterator[str]:
    """Yield the routes of a tenant's VRF, as "Inter-subnet Routing" shows them: type 5 with its L3VNI."""
    if not vrf:
        return
    yield f"router bgp {vrf.get('autonomous-system', main['autonomous-system'])} vrf {name}"
    if "router-id" in vrf:
        yield f" bgp router-id {vrf['router-id']}"
    if _below(vrf, "path-selection", "multipath").get("aspath-ignore") in {"enabled", "on"}:
        yield " bgp bestpath as-path multipath-relax"
    yield " !"
    yield from _family(vrf, {})
    if _on(_below(vrf, "address-family", "ipv4-unicast", "route-export", "to-evpn"), default=False):
        yield from (" !", " address-family l2vpn evpn", "  advertise ipv4 unicast", " exit-address-family")
    yield "exit"
    yield "!"


def _evpn(vrf: Tree, peers: Tree, *, vni: bool) -> Iterator[str]:
    """Yield the address family of EVPN. A switch without VNIs of its own passes its routes on."""
    if not _on(_below(vrf, "address-family", "l2vpn-evpn"), default=False):
        return
    yield " !"
    yield " address-family l2vpn evpn"
    for name, peer in sorted(peers.items()):
        if _on(_below(peer, "address-family", "l2vpn-evpn"), default=False):
            yield f"  neighbor {name} activate"
    if vni:
        yield "  advertise-all-vni"
    yield " exit-address-family"


def _bgp(main: Tree, vrf: Tree, *, vni: bool = False) -> Iterator[str]:
    yield f"router bgp {vrf.get('autonomous-system', main['autonomous-system'])}"
    router_id = vrf.get("router-id", main.get("router-id"))
    if router_id:
        yield f" bgp router-id {router_id}"
    if _below(vrf, "path-selection", "multipath").get("aspath-ignore") in {"enabled", "on"}:
        yield " bgp bestpath as-path multipath-relax"
    groups, peers = vrf.get("peer-group", {}), vrf.get("neighbor", {})
    for name, group in sorted(groups.items()):
        yield f" neighbor {name} peer-group"
        yield from _peer(name, group)
    for name, peer in sorted(peers.items()):
        yield from _neighbor(name, peer)
    yield " !"
    yield from _family(vrf, {**groups, **peers})
    yield from _evpn(vrf, {**groups, **peers}, vni=vni)
    yield "exit"
    yield "!"


def _neighbor(name: str, peer: Tree) -> Iterator[str]:
    """Yield the lines of a neighbor: an interface if it is unnumbered, else an address."""
    group = peer.get("peer-group")
    if peer.get("type", "numbered") == "unnumbered" or name.startswith("swp"):
        yield f" neighbor {name} interface" + (f" peer-group {group}" if group else "")
        yield from _peer(name, peer)
        return
    own = list(_peer(name, peer))
    if group:
        yield f" neighbor {name} peer-group {group}"
    yield from own


def _peer(name: str, peer: Tree) -> Iterator[str]:
    words = f" neighbor {name}"
    if "remote-as" in peer:
        yield f"{words} remote-as {peer['remote-as']}"
    if "description" in peer:
        yield f"{words} description {peer['description']}"
    bfd = peer.get("bfd", {})
    if "profile" in bfd:
        yield f"{words} bfd profile {bfd['profile']}"
    elif _on(bfd, default=False):
        rx, tx = bfd.get("min-rx-interval", 300), bfd.get("min-tx-interval", 300)
        yield f"{words} bfd {bfd.get('detect-multiplier', 3)} {rx} {tx}"
    if "update-source" in peer:
        yield f"{words} update-source {peer['update-source']}"
    if "multihop-ttl" in peer:
        yield f"{words} ebgp-multihop {peer['multihop-ttl']}"


def _family(vrf: Tree, peers: Tree) -> Iterable[str]:
    family = _below(vrf, "address-family", "ipv4-unicast")
    if not _on(family, default=True):
        return [*(f" no neighbor {name} activate" for name in sorted(peers))]
    lines = [" address-family ipv4 unicast"]
    connected = _connected(vrf)
    if _on(connected, default=False):
        chosen = connected.get("route-map", "none")
        lines.append("  redistribute connected" + ("" if chosen == "none" else f" route-map {chosen}"))
    lines.append(f"  maximum-paths {_below(family, 'multipaths').get('ebgp', _PATHS)}")
    for name, peer in sorted(peers.items()):
        if not _on(_below(peer, "address-family", "ipv4-unicast"), default=True):
            lines.append(f"  no neighbor {name} activate")
    return [*lines, " exit-address-family"]

"""BGP of a SONiC switch: what of it a patch does not apply, and the prefixes that the switch announces. Pure.

bgpd's main configuration (`router bgp`, `network`, `maximum-paths`) is rendered when the container `bgp` starts
(sonic-buildimage @086b03bd70 dockers/docker-fpm-frr: docker_init.sh, frr/bgpd/bgpd.main.conf.j2). bgpcfgd follows
neighbours only: with a new AS number or address their sessions come up, and announce nothing before a restart.
"""

from __future__ import annotations

from collections.abc import Iterable

from rackready import printed_json
from rackready.drivers.switch.sonic_text import parse_line
from rackready.format_error import FormatError

RESTART = "systemctl reset-failed bgp; systemctl restart bgp"
"""bgp.service starts at most three times in 20 minutes (files/build_templates/per_namespace/bgp.service.j2)."""
ANNOUNCED = ("docker", "exec", "bgp", "vtysh", "-c", "show bgp ipv4 unicast json")
"""The host's own `vtysh` enters the container, too (dockers/docker-fpm-frr/base_image_files/vtysh)."""
_TABLES = frozenset({"LOOPBACK_INTERFACE", "VLAN_INTERFACE"})
_OWN = "(unspec)"
"""Peer of a route that the switch originates (FRRouting bgpd/bgp_route.c, route_vty_out: `peerId` of peer_self)."""


def needs_restart(commands: Iterable[str]) -> bool:
    """Whether commands change something that bgpd reads at its start only."""
    lines = [parse_line(command) for command in commands]
    return any(line.table in _TABLES or line.field == "bgp_asn" for line in lines)


def parse_announced(text: str) -> frozenset[str]:
    """Return the prefixes that the switch originates itself and that are valid. Raises FormatError.

    FRR prints an empty object where it has no BGP instance (bgpd/bgp_route.c, bgp_show).
    """
    document = printed_json.load(text)
    routes = document.get("routes", {}) if isinstance(document, dict) else None
    if not isinstance(routes, dict):
        raise FormatError("no BGP table: it has no object `routes`")
    return frozenset(prefix for prefix, paths in routes.items() if any(map(_is_own, paths)))


def _is_own(path: object) -> bool:
    return isinstance(path, dict) and path.get("peerId") == _OWN and path.get("valid") is True

"""SONiC's container `bgp`: its configuration is rendered from CONFIG_DB when it starts, and stays until then.

Source: sonic-buildimage @086b03bd70 dockers/docker-fpm-frr: docker_init.sh, frr/bgpd/bgpd.main.conf.j2 (blocks bgp_init
and vlan_advertisement). Output: FRRouting bgpd/bgp_route.c, as far as it is about the switch's own routes.
"""

from __future__ import annotations

import ipaddress
import json
import sys
from typing import Any

from ... import paths, store
from . import db

_STARTED = "/run/sonic/bgp.json"
_SHOW = ["vtysh", "-c", "show bgp ipv4 unicast json"]


def main(_argv: list[str]) -> int:
    """Start the container, as `systemctl restart bgp` does."""
    start()
    return 0


def start() -> None:
    """Keep what bgpd announces from now on."""
    store.write(paths.at(_STARTED), json.dumps(networks(db.read())))


def networks(config: db.Config) -> list[str]:
    """Return the prefixes of the lines `network`; none without an AS number."""
    asn = str(config.get("DEVICE_METADATA", {}).get("localhost", {}).get("bgp_asn", "none"))
    if asn.lower() in {"none", "null"}:
        return []
    loopbacks = [address for name, address in _addresses(config, "LOOPBACK_INTERFACE") if name == "Loopback0"]
    vlans = [address for _, address in _addresses(config, "VLAN_INTERFACE")]
    return [*(f"{address.ip}/32" for address in loopbacks[:1]), *(str(address.network) for address in vlans)]


def _addresses(config: db.Config, table: str) -> list[tuple[str, ipaddress.IPv4Interface]]:
    found = [key.partition("|") for key in config.get(table, {}) if "|" in key and ":" not in key]
    return [(name, ipaddress.IPv4Interface(address)) for name, _, address in found]


def container(words: list[str]) -> int:
    """Run a program in the container."""
    if not paths.at(_STARTED).exists():
        sys.stderr.write("Error response from daemon: container bgp is not running\n")
        return 1
    if words != _SHOW:
        sys.stdout.write("% Unknown command.\n")
        return 1
    prefixes: list[str] = json.loads(paths.at(_STARTED).read_text())
    print(
        json.dumps(
            {"vrfName": "default", "routes": {prefix: [_path(prefix)] for prefix in prefixes}} if prefixes else {}
        )
    )
    return 0


def _path(prefix: str) -> dict[str, Any]:
    nexthop = {"ip": "0.0.0.0", "afi": "ipv4", "used": True}  # noqa: S104 - FRR's word for the switch itself
    own = {"valid": True, "bestpath": True, "network": prefix, "weight": 32768, "peerId": "(unspec)", "path": ""}
    return own | {"origin": "IGP", "nexthops": [nexthop]}

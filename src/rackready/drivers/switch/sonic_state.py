"""State of a SONiC switch from its databases: what its daemons made of the configuration. Pure.

APPL_DB's PORT_TABLE has the operational state (sonic-utilities @691b1bbc4 scripts/intfutil reads it there),
VLAN_TABLE and VLAN_MEMBER_TABLE what vlanmgrd made of VLANs, BUFFER_PG_TABLE the headroom that the buffer manager gave
(sonic-swss @e6b0c5b5d cfgmgr/buffermgr.cpp: profiles pg_lossless_<speed>_<length>_profile). RoCE is what the ports with
our mark agree on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rackready.design.switches import MARK
from rackready.drivers.switch.base import PortState, RoceState, SwitchState
from rackready.drivers.switch.sonic_text import Config
from rackready.drivers.switch.sonic_wanted import covers
from rackready.format_error import FormatError

PATTERNS = ("PORT_TABLE:Ethernet*", "VLAN_TABLE:*", "VLAN_MEMBER_TABLE:*", "BUFFER_PG_TABLE:*")
Hashes = Mapping[str, Mapping[str, str]]


def state_of(config: Config, found: Hashes) -> SwitchState:
    """Return the switch's state from CONFIG_DB and APPL_DB. Raises FormatError for a port without its fields."""
    vlans = _vlans(found)
    ports = {
        name: replace(_port(name, fields, vlans.get(name)), watchdog=_watched(config, name))
        for key, fields in found.items()
        for table, _, name in [key.partition(":")]
        if table == "PORT_TABLE"
    }
    if not ports:
        raise FormatError("APPL_DB has no port: swss has not started")
    return SwitchState(ports, _roce(config, found, ports), gateway_mtu=_gateways(found))


def aliases(config: Config) -> dict[str, str]:
    """Return alias -> port, where they differ. Raises FormatError for an alias that means several ports."""
    found: dict[str, str] = {}
    for port, fields in config.get("PORT", {}).items():
        alias = str(fields.get("alias", ""))
        if not alias or alias == port:
            continue
        if alias in found or alias in config["PORT"]:
            raise FormatError(f"alias {alias} of {port} is that of {found.get(alias, alias)}, too")
        found[alias] = port
    return found


def _port(name: str, fields: Mapping[str, str], vlan: int | None) -> PortState:
    mtu, admin, oper = (fields.get(field, "") for field in ("mtu", "admin_status", "oper_status"))
    if not mtu.isdigit() or admin not in {"up", "down"} or oper not in {"up", "down", ""}:
        raise FormatError(f"PORT_TABLE:{name}: mtu {mtu!r}, admin_status {admin!r}, oper_status {oper!r}")
    return PortState(admin == "up", oper == "up", int(mtu), vlan)


def _watched(config: Config, name: str) -> bool:
    """Whether the PFC watchdog is set for every lossless priority of a port.

    pfcwdorch follows `pfcwd_sw_enable`, not `pfc_enable` (sonic-swss @e6b0c5b5d orchagent/pfcwdorch.cpp).
    """
    maps = config.get("PORT_QOS_MAP", {}).get(name, {})
    lossless = _priorities(maps)
    return name in config.get("PFC_WD", {}) and bool(lossless) and lossless <= _priorities(maps, "pfcwd_sw_enable")


def _gateways(found: Hashes) -> dict[int, int]:
    """Return VLAN -> MTU: orchagent gives it to the VLAN's router interface (sonic-swss orchagent/portsorch.cpp)."""
    vlans = {key.removeprefix("VLAN_TABLE:Vlan"): fields.get("mtu", "") for key, fields in found.items()}
    return {int(vlan): int(mtu) for vlan, mtu in vlans.items() if vlan.isdigit() and mtu.isdigit()}


def _vlans(found: Hashes) -> dict[str, int]:
    out = {}
    for key, fields in found.items():
        table, _, rest = key.partition(":")
        vlan, _, port = rest.partition(":")
        number = vlan.removeprefix("Vlan")
        if table == "VLAN_MEMBER_TABLE" and fields.get("tagging_mode") == "untagged" and number.isdigit():
            out[port] = int(number)
    return out


def _roce(config: Config, found: Hashes, ports: Mapping[str, PortState]) -> RoceState:
    ours = [name for name, fields in config["PORT"].items() if str(fields.get("description", "")).endswith(MARK)]
    maps = {name: config.get("PORT_QOS_MAP", {}).get(name, {}) for name in ours}
    lossless = {name: _priorities(fields) for name, fields in maps.items()}
    if not any(lossless.values()):
        return RoceState("off", frozenset(), trusts_dscp=False)
    everywhere = frozenset.intersection(*lossless.values())
    differs = sorted(name for name, one in lossless.items() if one != everywhere)
    without = sorted(
        name for name in ours if name in ports and ports[name].admin_up and not _headroom(name, lossless, found)
    )
    mode = "lossless"
    if differs:
        mode = f"other priorities on {', '.join(differs)}"
    elif without:
        mode = f"no headroom on {', '.join(without)}"
    mappings = [_mapping(config, fields) for fields in maps.values()]
    same = set.intersection(*(set(one.items()) for one in mappings))
    return RoceState(mode, everywhere, trusts_dscp=all(mappings), dscp_priority=dict(same))


def _priorities(fields: Mapping[str, object], field: str = "pfc_enable") -> frozenset[int]:
    return frozenset(int(one) for one in str(fields.get(field, "")).split(",") if one.isdigit())


def _headroom(port: str, lossless: Mapping[str, frozenset[int]], found: Hashes) -> bool:
    """Whether the buffer manager gave a port's lossless groups a lossless profile."""
    profiles = {
        key.removeprefix("BUFFER_PG_TABLE:").replace(":", "|"): fields.get("profile", "")
        for key, fields in found.items()
        if key.startswith(f"BUFFER_PG_TABLE:{port}:")
    }
    return all(
        any(covers(key, port, priority) and "pg_lossless_" in profile for key, profile in profiles.items())
        for priority in lossless[port]
    )


def _mapping(config: Config, fields: Mapping[str, str]) -> dict[int, int]:
    name = fields.get("dscp_to_tc_map", "")
    entries = config.get("DSCP_TO_TC_MAP", {}).get(name, {})
    return {int(dscp): int(priority) for dscp, priority in entries.items()}

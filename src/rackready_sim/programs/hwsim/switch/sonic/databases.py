"""What SONiC's daemons write for others to read: APPL_DB, STATE_DB and COUNTERS_DB, computed from CONFIG_DB and ports.

Names of counters: sonic-utilities @691b1bbc4 scripts/pfcstat, queuestat, wredstat, pg-drop, portstat.py. Which queues
and groups the maps name: sonic-swss @e6b0c5b5d orchagent/flexcounterorch.cpp (getQueueConfigurations,
getPgConfigurations): those with a buffer, where `create_only_config_db_buffers` is set. By default queues 0 to 6 and
group 0 have one (sonic-buildimage files/build_templates/buffers_config.j2); queue 7 is the host's (sonic-swss PR 3334).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import store
from .. import apply
from . import db

Hashes = dict[str, dict[str, str]]
Counted = dict[str, dict[str, dict[str, Any]]]
_NUMBERS = range(8)
_GROUP_DROPS = "SAI_INGRESS_PRIORITY_GROUP_STAT_DROPPED_PACKETS"


def config_db() -> Hashes:
    """Return CONFIG_DB; an entry without fields has the field NULL."""
    return {
        f"{table}|{key}": {name: str(value) for name, value in fields.items()} or {"NULL": "NULL"}
        for table, entries in db.read().items()
        for key, fields in entries.items()
    }


def appl_db() -> Hashes:
    """Return the ports, VLANs and their members, and the lossless priority groups.

    A VLAN has 9100 bytes unless CONFIG_DB has another MTU (sonic-swss @e6b0c5b5d cfgmgr/vlanmgr.cpp).
    """
    config, links = db.read(), apply.links()
    out: Hashes = {
        f"VLAN_TABLE:{name}": {"admin_status": "up", "mtu": str(fields.get("mtu", 9100)), "host_ifname": ""}
        for name, fields in config.get("VLAN", {}).items()
    }
    for name, port in db.ports(config).items():
        oper = "up" if links.get(name, {}).get("operstate") == "UP" else "down"
        admin = "up" if port["up"] else "down"
        own = {key: str(value) for key, value in config["PORT"][name].items()}
        out[f"PORT_TABLE:{name}"] = {**own, "admin_status": admin, "mtu": str(port["mtu"]), "oper_status": oper}
        if port["vlan"]:
            out[f"VLAN_MEMBER_TABLE:Vlan{port['vlan']}:{name}"] = {"tagging_mode": "untagged"}
        for priority in sorted(db.lossless(config, name)):
            out[f"BUFFER_PG_TABLE:{name}:{priority}"] = {"profile": db.headroom(config, name, priority)}
    return out


def state_db() -> Hashes:
    """Return what the ports can do, and the BGP sessions that the hardware state has: the rack's leafs run no FRR."""
    able = {"state": "ok", "supported_fecs": "none,rs,fc,auto", "supported_speeds": "400000,200000,100000,800000"}
    sessions: dict[str, str] = store.hardware().get("bgp", {})
    return {f"PORT_TABLE|{name}": dict(able) for name in db.read().get("PORT", {})} | {
        f"NEIGH_STATE_TABLE|{peer}": {"state": state, "peerType": "e-BGP"} for peer, state in sessions.items()
    }


def counters_db() -> Hashes:
    """Return the counters of ports, queues and priority groups, and the maps to them."""
    config, every = db.read(), counters()
    ports = list(config.get("PORT", {}))
    out: Hashes = {f"COUNTERS_{kind}_NAME_MAP": {} for kind in ("PORT", "QUEUE", "PG")}
    for place, port in enumerate(ports):
        _add(out, "PORT", port, f"oid:0x1000000{place:06x}", port_counters(port, every))
        some = config["DEVICE_METADATA"]["localhost"].get("create_only_config_db_buffers") == "true"
        for number in _NUMBERS:
            oid = f"oid:0x15{place:06x}{number:02x}"
            _add(out, "QUEUE", f"{port}:{number}", oid, _queue(every, port, number))
        for number in sorted({0} | db.lossless(config, port)) if some else _NUMBERS:
            drops = _count(every, port, f"in-{number}", "rx-buffer-discards")
            _add(out, "PG", f"{port}:{number}", f"oid:0x1a{place:06x}{number:02x}", {_GROUP_DROPS: drops})
    return out


def counters() -> Counted:
    """Return what the switch counted since power-on, by port and group."""
    found: Counted = store.runtime()["counters"]
    return found


def _count(every: Counted, port: str, group: str, name: str) -> int:
    return int(every.get(port, {}).get(group, {}).get(name, 0))


def _add(out: Hashes, kind: str, name: str, oid: str, counters: dict[str, Any]) -> None:
    out[f"COUNTERS_{kind}_NAME_MAP"][name] = oid
    out[f"COUNTERS:{oid}"] = {key: str(value) for key, value in counters.items()}


def port_counters(port: str, counted: Counted | None = None) -> dict[str, Any]:
    """Return a port's own counters; ``counted``: those of all ports, where the caller has them already."""
    every = counters() if counted is None else counted
    own = {
        f"SAI_PORT_STAT_IF_{way}_{what}": _count(every, port, "stats", f"{way.lower()}-{name}")
        for way in ("IN", "OUT")
        for what, name in (("ERRORS", "errors"), ("DISCARDS", "drops"))
    }
    for number in _NUMBERS:
        for way in ("rx", "tx"):
            name = f"SAI_PORT_STAT_PFC_{number}_{way.upper()}_PKTS"
            own[name] = _count(every, port, f"pfc-{number}", f"{way}-pause-frames")
    return own


def _queue(every: Counted, port: str, number: int) -> dict[str, Any]:
    group = f"out-{number}"
    return {
        "SAI_QUEUE_STAT_BYTES": _count(every, port, group, "tx-bytes"),
        "SAI_QUEUE_STAT_DROPPED_PACKETS": _count(every, port, group, "wred-discards"),
        "SAI_QUEUE_STAT_PACKETS": _count(every, port, group, "tx-frames"),
        "SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS": _count(every, port, group, "ecn-marked-frames"),
    }


ALL: dict[str, Callable[[], Hashes]] = {
    "APPL_DB": appl_db,
    "CONFIG_DB": config_db,
    "COUNTERS_DB": counters_db,
    "STATE_DB": state_db,
}

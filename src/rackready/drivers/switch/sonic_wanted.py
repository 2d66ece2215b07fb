"""The tables of CONFIG_DB for one switch, from its intent and what the switch has already. Pure.

Ours are the maps, schedulers and profiles named ``rackready...``; AZURE, of SONiC's templates, is never changed.
Names and limits: sonic-buildimage @086b03bd70 src/sonic-yang-models. Structure of the QoS tables: its
files/build_templates/qos_config.j2. Weights 50 and 50 with a strict queue for CNP: NVIDIA's preset for lossless RoCE,
as its guide to RoCE prints it.
"""

from __future__ import annotations

from typing import Any

from rackready.design import ecn
from rackready.design.ecn import EcnThresholds
from rackready.design.switches import PortConfig, Routing, SwitchConfig
from rackready.drivers.switch.sonic_owned import OWN
from rackready.drivers.switch.sonic_text import Config

_DSCPS, _CLASSES = 64, 8
_PER_CLASS = 8
"""DSCPs of one class selector (RFC 2474): hosts, too, map eight DSCPs to each priority unless told otherwise, and both
ends must agree."""
_CABLE = "40m"
"""Longest link that headroom is kept for, where the switch has no length: a row of racks.

NVIDIA's pg_profile_lookup.ini of SN5600 (sonic-buildimage @086b03bd70) has 5m, 40m and 300m for every rate.
"""
_WRED_PROBABILITY = "5"
"""Per cent: SONiC's own (qos_config.j2, AZURE_LOSSLESS)."""
_WATCHDOG = {"action": "drop", "detection_time": "200", "restoration_time": "200"}
"""Defaults of `pfcwd start_default`, in ms (sonic-utilities @691b1bbc4 pfcwd/main.py)."""
_FEC = {"rs": "rs", "fc": "fc", "off": "none"}
_TO_MBPS = 1000
_TIMERS = {"keepalive": "3", "holdtime": "9"}
"""Seconds. bgpcfgd has no BFD for these neighbours, so its own 60 and 180 are too slow; 3 and 9 are FRR's data centre
defaults (FRR manual, `frr defaults datacenter`)."""
_STRICT, _DATA, _REST = f"{OWN}_cnp", f"{OWN}_data", f"{OWN}_rest"


def is_nvidia(have: Config) -> bool:
    """Whether the switch has an NVIDIA chip: its platform is named x86_64-mlnx_... or x86_64-nvidia_..."""
    return metadata(have).get("platform", "").startswith(("x86_64-mlnx_", "x86_64-nvidia_"))


def metadata(have: Config) -> dict[str, str]:
    """Return DEVICE_METADATA|localhost."""
    return have.get("DEVICE_METADATA", {}).get("localhost", {})


def wanted(config: SwitchConfig, have: Config) -> Config:
    """Return the tables that the switch should have; ``have`` is what it has now."""
    tables = (
        _vlans(config)
        | {"PORT": {port.name: _port(port) for port in config.ports}}
        | _maps(config, is_nvidia(have))
        | _queues(config, have)
        | {"CABLE_LENGTH": _lengths(config, have)}
        | {"PFC_WD": {port.name: dict(_WATCHDOG) for port in config.ports}}
        | {"BUFFER_PG": _groups(config, have)}
        | (_routes(config, config.routing) if config.routing is not None else {})
    )
    return {table: entries for table, entries in tables.items() if entries}


def _vlans(config: SwitchConfig) -> Config:
    members = {
        f"Vlan{port.vlan}|{port.name}": {"tagging_mode": "untagged"} for port in config.ports if port.vlan is not None
    }
    out: Config = {"VLAN": {f"Vlan{vlan}": {"vlanid": str(vlan)} for vlan in config.vlans}, "VLAN_MEMBER": members}
    out["VLAN_INTERFACE"] = {}
    for gateway in config.gateways:
        # without it 9100 (sonic-swss @e6b0c5b5d cfgmgr/vlanmgr.cpp, DEFAULT_MTU_STR), less than the ports have
        out["VLAN"][f"Vlan{gateway.vlan}"]["mtu"] = str(config.ports[0].mtu)
        out["VLAN_INTERFACE"] |= {f"Vlan{gateway.vlan}": {}, f"Vlan{gateway.vlan}|{gateway.address}": {}}
    return out


def _port(port: PortConfig) -> dict[str, str]:
    out = {"admin_status": "up", "description": port.description, "mtu": str(port.mtu)}
    if port.speed is not None:
        out["speed"] = str(port.speed * _TO_MBPS)
    if port.fec is not None:
        out["fec"] = _FEC[port.fec]
    return out


def _maps(config: SwitchConfig, nvidia: bool) -> Config:  # noqa: FBT001 - one fact of the switch
    qos, same = config.qos, {str(one): str(one) for one in range(_CLASSES)}
    lossless = [str(priority) for priority, on in enumerate(qos.pfc) if on]
    classes = {str(dscp): str(qos.dscp_to_priority.get(dscp, dscp // _PER_CLASS)) for dscp in range(_DSCPS)}
    groups = {one: one if one in lossless else "0" for one in same}
    ports = {"dscp_to_tc_map": OWN, "tc_to_pg_map": OWN, "tc_to_queue_map": OWN, "pfc_to_queue_map": OWN}
    out: Config = {
        "DSCP_TO_TC_MAP": {OWN: classes},
        "TC_TO_PRIORITY_GROUP_MAP": {OWN: groups},
        "TC_TO_QUEUE_MAP": {OWN: dict(same)},
        "MAP_PFC_PRIORITY_TO_QUEUE": {OWN: dict(same)},
    }
    if nvidia:  # qos_config.j2 has this map for NVIDIA and Barefoot chips only
        out["PFC_PRIORITY_TO_PRIORITY_GROUP_MAP"] = {OWN: {one: one for one in lossless}}
        ports["pfc_to_pg_map"] = OWN
    ports |= {"pfc_enable": ",".join(lossless), "pfcwd_sw_enable": ",".join(lossless)}
    out["PORT_QOS_MAP"] = {port.name: dict(ports) for port in config.ports}
    return out


def _queues(config: SwitchConfig, have: Config) -> Config:
    qos = config.qos
    queues: dict[str, dict[str, Any]] = {}
    profiles: dict[str, dict[str, Any]] = {}
    for port in config.ports:
        rate = _rate(port, have)
        profile = f"{OWN}_{rate}g"
        profiles[profile] = _wred(ecn.sonic(rate, qos.ecn))
        queues[f"{port.name}|0"] = {"scheduler": _REST}
        queues[f"{port.name}|{qos.priority}"] = {"scheduler": _DATA, "wred_profile": profile}
        queues[f"{port.name}|{qos.cnp_priority}"] = {"scheduler": _STRICT}
    schedulers: dict[str, dict[str, Any]] = {
        _REST: {"type": "DWRR", "weight": "50"},
        _DATA: {"type": "DWRR", "weight": "50"},
        _STRICT: {"type": "STRICT"},
    }
    return {"SCHEDULER": schedulers, "WRED_PROFILE": dict(sorted(profiles.items())), "QUEUE": queues}


def _rate(port: PortConfig, have: Config) -> int:
    """Return a port's rate in Gb/s: the site's, else the one that the switch has."""
    return port.speed or int(have["PORT"][port.name]["speed"]) // _TO_MBPS


def _wred(thresholds: EcnThresholds) -> dict[str, Any]:
    low, high = str(thresholds.low), str(thresholds.high)
    out = {"ecn": "ecn_all"}
    for colour in ("green", "yellow", "red"):
        out |= {
            f"wred_{colour}_enable": "true",
            f"{colour}_min_threshold": low,
            f"{colour}_max_threshold": high,
            f"{colour}_drop_probability": _WRED_PROBABILITY,
        }
    return out


def _lengths(config: SwitchConfig, have: Config) -> dict[str, dict[str, Any]]:
    """Return the cable lengths: those of the switch stay, because its headroom was computed from them."""
    there = have.get("CABLE_LENGTH", {}).get("AZURE", {})
    lengths = {port.name: there.get(port.name, "0m") for port in config.ports}
    return {"AZURE": {port: _CABLE if length == "0m" else length for port, length in lengths.items()}}


def _groups(config: SwitchConfig, have: Config) -> dict[str, dict[str, Any]]:
    """Return the lossless priority groups, where the switch computes headroom itself (buffer model dynamic).

    A group that the switch has already, alone or in a range, stays. Source: sonic-swss @e6b0c5b5d
    cfgmgr/buffermgrdyn.cpp: a lossless group has the profile NULL.
    """
    if metadata(have).get("buffer_model") != "dynamic":
        return {}
    there = list(have.get("BUFFER_PG", {}))
    return {
        f"{port.name}|{config.qos.priority}": {"profile": "NULL"}
        for port in config.ports
        if not any(
            covers(key, port.name, config.qos.priority) and key != f"{port.name}|{config.qos.priority}" for key in there
        )
    }


def covers(key: str, port: str, number: int) -> bool:
    """Whether a key such as ``Ethernet0|3-4`` is of a port and contains a queue or group."""
    names, _, numbers = key.rpartition("|")
    first, _, last = numbers.partition("-")
    return port in names.split(",") and first.isdigit() and int(first) <= number <= int(last or first)


def _routes(config: SwitchConfig, routing: Routing) -> Config:
    """Return numbered eBGP for bgpcfgd.

    It announces the networks of LOOPBACK_INTERFACE and VLAN_INTERFACE, and uses up to 64 paths (sonic-buildimage
    dockers/docker-fpm-frr/frr/bgpd/bgpd.main.conf.j2).
    """
    out: Config = {"DEVICE_METADATA": {"localhost": {"bgp_asn": str(routing.asn)}}, "INTERFACE": {}, "BGP_NEIGHBOR": {}}
    for port in config.ports:
        if not port.address:
            continue
        out["INTERFACE"] |= {port.name: {}, f"{port.name}|{port.address}": {}}
        out["BGP_NEIGHBOR"][port.peer_address.split("/")[0]] = {
            "admin_status": "up",
            "asn": str(port.peer_asn),
            "local_addr": port.address.split("/")[0],
            "name": port.peer,
            **_TIMERS,
        }
    if routing.loopback:
        address = routing.loopback if "/" in routing.loopback else f"{routing.loopback}/32"
        out["LOOPBACK_INTERFACE"] = {"Loopback0": {}, f"Loopback0|{address}": {}}
    return out

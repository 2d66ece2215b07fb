"""Checks of SONiC's YANG models, of the tables that a switch of a RoCE fabric has.

Source: sonic-buildimage @086b03bd70 src/sonic-yang-models/yang-models: types, mandatory leaves, references and must
rules. The texts of must rules are the models'.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any

from .db import Config

_WITHOUT_FIELDS = {"INTERFACE", "LOOPBACK_INTERFACE", "VLAN_INTERFACE"}
_MAPS = {
    "dscp_to_tc_map": "DSCP_TO_TC_MAP",
    "pfc_to_pg_map": "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP",
    "pfc_to_queue_map": "MAP_PFC_PRIORITY_TO_QUEUE",
    "tc_to_pg_map": "TC_TO_PRIORITY_GROUP_MAP",
    "tc_to_queue_map": "TC_TO_QUEUE_MAP",
}
_PRIORITIES = r"[0-7](,[0-7])*"
_FIELDS = {
    "BGP_NEIGHBOR": {
        "admin_status": "up|down", "asn": r"\d+", "holdtime": r"\d+", "keepalive": r"\d+", "local_addr": r"[\d.:a-f]+",
        "name": ".+", "nhopself": "[01]", "rrclient": "[01]",
    },
    "BREAKOUT_CFG": {"brkout_mode": ".+"},
    "BUFFER_PG": {"profile": ".+"},
    "BUFFER_POOL": {"mode": "static|dynamic", "size": r"\d+", "type": "ingress|egress|both", "xoff": r"\d+"},
    "PFC_WD": {"POLL_INTERVAL": r"\d+", "action": "drop|forward|alert", "detection_time": r"\d+",
        "pfc_stat_history": "enable|disable", "restoration_time": r"\d+"},
    "PORT": {
        "admin_status": "up|down", "alias": ".+", "autoneg": "on|off", "description": ".{0,255}",
        "fec": "rs|fc|none|auto", "index": r"\d+", "lanes": r"\d+(,\d+)*", "mtu": r"\d+", "speed": r"\d+",
    },
    "PORT_QOS_MAP": {**dict.fromkeys(_MAPS, ".+"), "pfc_enable": _PRIORITIES, "pfcwd_sw_enable": _PRIORITIES},
    "QUEUE": {"scheduler": ".+", "wred_profile": ".+"},
    "SCHEDULER": {"type": "DWRR|WRR|STRICT", "weight": r"\d+"},
    "VLAN": {"mtu": r"\d+", "vlanid": r"\d+"},
    "VLAN_MEMBER": {"tagging_mode": "tagged|untagged|priority_tagged"},
    "WRED_PROFILE": {
        "ecn": "ecn_none|ecn_green|ecn_yellow|ecn_red|ecn_green_yellow|ecn_green_red|ecn_yellow_red|ecn_all",
        **{f"wred_{colour}_enable": "true|false" for colour in ("green", "yellow", "red")},
        **{f"{colour}_{end}_threshold": r"\d+" for colour in ("green", "yellow", "red") for end in ("min", "max")},
        **{f"{colour}_drop_probability": r"\d+" for colour in ("green", "yellow", "red")},
    },
}  # fmt: skip
_NUMBERED = {
    "DSCP_TO_TC_MAP": ("[0-9]|[1-5][0-9]|6[0-3]", "[0-9]|1[0-5]"),
    "MAP_PFC_PRIORITY_TO_QUEUE": ("[0-7]", "[0-7]"),
    "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP": ("[0-7]", "[0-7]"),
    "TC_TO_PRIORITY_GROUP_MAP": ("[0-9]|1[0-5]", "[0-7]"),
    "TC_TO_QUEUE_MAP": ("[0-9]|1[0-5]", "[0-9]|1[0-9]|20"),
}
_OTHERS = {"CABLE_LENGTH", "DEVICE_METADATA", "VERSIONS", *_WITHOUT_FIELDS}
_RANGES = {
    ("PORT", "mtu"): (68, 9216),
    ("PORT", "speed"): (1, 1_600_000),
    ("SCHEDULER", "weight"): (1, 100),
    ("PFC_WD", "detection_time"): (100, 5000),
    ("PFC_WD", "restoration_time"): (100, 60000),
    ("PFC_WD", "POLL_INTERVAL"): (100, 1000),
    ("VLAN", "mtu"): (1, 9216),
    ("VLAN", "vlanid"): (2, 4094),
}


def modelled(table: str) -> bool:
    """Return whether a table has a model."""
    return table in _FIELDS or table in _NUMBERED or table in _OTHERS


def problem(config: Config) -> str:
    """Return the first thing that the models refuse; empty for none."""
    return next(_problems(config), "")


def _problems(config: Config) -> Iterator[str]:
    for table, entries in config.items():
        for key, fields in entries.items():
            yield from _fields(table, key, fields)
    yield from _ports(config)
    yield from _vlans(config)
    yield from _qos(config)
    yield from _watchdog(config)
    yield from _addresses(config)


def _fields(table: str, key: str, fields: dict[str, Any]) -> Iterator[str]:
    known = _FIELDS.get(table)
    for field, value in fields.items():
        where = f"{table}|{key} {field}"
        if table in _NUMBERED:
            name, number = _NUMBERED[table]
            if not re.fullmatch(name, field) or not re.fullmatch(number, str(value)):
                yield f'Value "{value}" does not satisfy the constraint of {where}'
        elif known is not None and field not in known:
            yield f'All Keys are not parsed in {table}\ndict_keys(["{field}"])'
        elif known is not None and not re.fullmatch(known[field], str(value)):
            yield f'Value "{value}" does not satisfy the constraint of {where}'
        low, high = _RANGES.get((table, field), (0, 0))
        if high and str(value).isdigit() and not low <= int(value) <= high:
            yield f'Value "{value}" does not satisfy the constraint "{low}..{high}" ({where})'


def _ports(config: Config) -> Iterator[str]:
    for name, fields in config.get("PORT", {}).items():
        for leaf in ("lanes", "speed"):
            if leaf not in fields:
                yield f'Missing required element "{leaf}" in "PORT_LIST" ({name})'


def _vlans(config: Config) -> Iterator[str]:
    routed = {key.split("|")[0] for key in config.get("INTERFACE", {})}
    untagged: list[str] = []
    for name, fields in config.get("VLAN", {}).items():
        if fields.get("vlanid", name.removeprefix("Vlan")) != name.removeprefix("Vlan"):
            yield "The vlanid must correspond to the VLAN name"
    for key, fields in config.get("VLAN_MEMBER", {}).items():
        vlan, _, port = key.partition("|")
        if vlan not in config.get("VLAN", {}) or port not in config.get("PORT", {}):
            yield f'Leafref of "{key}" in VLAN_MEMBER has no target'
        if "tagging_mode" not in fields:
            yield f'Missing required element "tagging_mode" in "VLAN_MEMBER_LIST" ({key})'
        if port in routed:
            yield f"Port is a router interface. ({key})"
        if fields.get("tagging_mode") == "untagged":
            untagged.append(port)
    for port in untagged:
        if untagged.count(port) > 1:
            yield f"Port can be untagged in at most one VLAN. ({port})"


def _qos(config: Config) -> Iterator[str]:
    for port, fields in config.get("PORT_QOS_MAP", {}).items():
        if port != "global" and port not in config.get("PORT", {}):
            yield f'Leafref "{port}" in PORT_QOS_MAP has no target'
        for field, table in _MAPS.items():
            if field in fields and fields[field] not in config.get(table, {}):
                yield f'Leafref value "{fields[field]}" of {table} has no target'
    for key, fields in config.get("QUEUE", {}).items():
        for field, table in (("scheduler", "SCHEDULER"), ("wred_profile", "WRED_PROFILE")):
            if field in fields and fields[field] not in config.get(table, {}):
                yield f'Leafref value "{fields[field]}" of QUEUE|{key} has no target'
    yield from _thresholds(config)


def _thresholds(config: Config) -> Iterator[str]:
    for fields in config.get("WRED_PROFILE", {}).values():
        for colour in ("green", "yellow", "red"):
            low, high = (int(fields.get(f"{colour}_{end}_threshold", 0)) for end in ("min", "max"))
            if high < low:
                yield f"{colour.capitalize()} max threshold must be greater than or equal to min threshold"


def _watchdog(config: Config) -> Iterator[str]:
    poll = int(config.get("PFC_WD", {}).get("GLOBAL", {}).get("POLL_INTERVAL", 0))
    for port, fields in config.get("PFC_WD", {}).items():
        if port not in {"GLOBAL", *config.get("PORT", {})}:
            yield "Invalid interface name"
        for field in ("detection_time", "restoration_time"):
            if field in fields and int(fields[field]) < poll:
                yield f"{field} must be greater than or equal to POLL_INTERVAL"


def _addresses(config: Config) -> Iterator[str]:
    for table in _WITHOUT_FIELDS:
        entries = config.get(table, {})
        for key in entries:
            name, _, address = key.partition("|")
            if address and name not in entries:
                yield f'Must condition "(current() = ../../{table}_LIST[name=current()]/name)" not satisfied ({key})'
            if address and not _is_interface(address):
                yield f'Value "{address}" does not satisfy the type of ip-prefix ({table})'


def _is_interface(text: str) -> bool:
    try:
        ipaddress.ip_interface(text)
    except ValueError:
        return False
    return True

"""SONiC's databases: CONFIG_DB in a file that a boot empties, APPL_DB, STATE_DB and COUNTERS_DB derived from it.

A boot loads /etc/sonic/config_db.json. The factory configuration has the tables of sonic-buildimage @086b03bd70 for
SN5600: ports of platform.json, HwSKU, AZURE's cable lengths, and the dynamic buffer model of NVIDIA's platforms, which
ship `create_only_config_db_buffers` (sonic-buildimage PRs 17006, 22225).
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ... import paths, store

Config = dict[str, dict[str, dict[str, Any]]]
SAVED = "/etc/sonic/config_db.json"
_RUNNING = "/run/sonic/config_db.json"
_LANES = 8


def boot() -> bool:
    """Load the saved configuration once after power-on; a new switch gets its factory configuration.

    Return whether it was loaded now.
    """
    if paths.at(_RUNNING).exists():
        return False
    saved = paths.at(SAVED)
    if not saved.exists():
        saved.parent.mkdir(parents=True, exist_ok=True)
        store.write(saved, dumps(factory()))
    load()
    return True


def load() -> None:
    """Replace CONFIG_DB by the saved configuration."""
    with change() as config:
        config.clear()
        config.update(json.loads(paths.at(SAVED).read_text()))


def read() -> Config:
    """Return CONFIG_DB."""
    path = paths.at(_RUNNING)
    found: Config = json.loads(path.read_text()) if path.exists() else {}
    return found


@contextmanager
def change() -> Iterator[Config]:
    """Yield CONFIG_DB for one write: Redis serves one command at a time."""
    path = paths.at(_RUNNING)
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        config = read()
        yield config
        store.write(path, dumps(config))


def dumps(config: Config) -> str:
    """Return CONFIG_DB as `sonic-cfggen -d --print-data` prints it."""
    return json.dumps(config, indent=4, sort_keys=True) + "\n"


def factory() -> Config:
    """Return the configuration of a new switch."""
    state = store.hardware()
    names = list(state["ports"])
    ports = {
        name: {
            "admin_status": "down",
            "alias": f"etp{place + 1}",
            "index": str(place + 1),
            "lanes": ",".join(str(place * _LANES + lane) for lane in range(_LANES)),
            "mtu": "9100",
            "speed": str(state["ports"][name]["rate_gbps"] * 1000),
        }
        for place, name in enumerate(names)
    }
    device = {
        "buffer_model": "dynamic",
        "create_only_config_db_buffers": "true",
        "hostname": state["switch"],
        "hwsku": "ACS-SN5600",
        "mac": state["platform"]["mac"],
        "platform": "x86_64-nvidia_sn5600-r0",
        "type": "ToRRouter",
    }
    return {
        "BUFFER_POOL": {"ingress_lossless_pool": {"mode": "dynamic", "type": "ingress"}},
        "CABLE_LENGTH": {"AZURE": dict.fromkeys(names, "5m")},
        "DEVICE_METADATA": {"localhost": device},
        "LOOPBACK_INTERFACE": {"Loopback0": {}},
        "PORT": ports,
        "VERSIONS": {"DATABASE": {"VERSION": "version_202511_01"}},
    }


def ports(config: Config) -> dict[str, dict[str, Any]]:
    """Return the wanted state of each port: up, MTU in bytes, access VLAN or None."""
    out: dict[str, dict[str, Any]] = {
        name: {"up": fields.get("admin_status") == "up", "mtu": int(fields.get("mtu", 9100)), "vlan": None}
        for name, fields in config.get("PORT", {}).items()
    }
    for key, fields in config.get("VLAN_MEMBER", {}).items():
        vlan, _, port = key.partition("|")
        if port in out and fields.get("tagging_mode") == "untagged":
            out[port]["vlan"] = int(vlan.removeprefix("Vlan"))
    return out


def lossless(config: Config, port: str) -> set[int]:
    """Return a port's lossless priorities that have headroom."""
    enabled = str(config.get("PORT_QOS_MAP", {}).get(port, {}).get("pfc_enable", ""))
    return {int(one) for one in enabled.split(",") if one.isdigit() and headroom(config, port, int(one))}


def headroom(config: Config, port: str, priority: int) -> str:
    """Return the profile that the buffer manager gives a lossless group; empty without one.

    Source: sonic-swss @e6b0c5b5d cfgmgr/buffermgrdyn.cpp: the group's profile is NULL, its port is up and has a length.
    """
    length = config.get("CABLE_LENGTH", {}).get("AZURE", {}).get(port, "0m")
    fields = config.get("PORT", {}).get(port, {})
    for key, group in config.get("BUFFER_PG", {}).items():
        name, _, numbers = key.rpartition("|")
        first, _, last = numbers.partition("-")
        inside = name == port and int(first) <= priority <= int(last or first)
        if inside and group.get("profile") == "NULL" and length != "0m" and fields.get("admin_status") == "up":
            return f"pg_lossless_{fields['speed']}_{length}_profile"
    return ""

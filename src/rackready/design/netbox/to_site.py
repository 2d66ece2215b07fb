"""A site file from the data in NetBox. Missing facts are listed, never guessed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rackready.design.netbox.compare import ends, plain
from rackready.model.problems import RackreadyError
from rackready.profiles import loader

Row = Mapping[str, Any]

UNKNOWN_SECTIONS = (
    "access: user and key for logins on nodes",
    "software: set and mirror",
    "fabric: kind, rails with VLAN and subnet",
    "gates: set",
    "handover: scheduler or file",
)
"""Parts of a site file that NetBox has no place for."""


@dataclass(frozen=True, slots=True)
class Imported:
    """``document``: the site as YAML data; ``missing``: facts to fill in; ``left_out``: unused objects, and why."""

    document: dict[str, Any]
    missing: tuple[str, ...]
    left_out: tuple[str, ...]


def site_of(name: str, found: Mapping[str, list[dict[str, Any]]], node_role: str) -> Imported:
    """Return the site that racks, devices and cables describe.

    Devices of ``node_role`` are nodes; those of a known switch model are switches.

    Raises RackreadyError for several racks with one name (in different locations of a site), because the rack of a
    device would be a guess.
    """
    _each_once(name, found["dcim.racks"])
    racks = {
        rack["name"]: {"name": rack["name"], "height_u": int(rack["u_height"]), "nodes": []}
        for rack in found["dcim.racks"]
    }
    missing, left_out = list(UNKNOWN_SECTIONS), []
    switches: list[dict[str, Any]] = []
    platforms: dict[str, str] = {}
    for device in sorted(found["dcim.devices"], key=lambda item: str(item["name"])):
        if not device["name"]:
            left_out.append(f"device {device['id']}: has no name")
            continue
        model = device["device_type"]["model"]
        if device["role"]["slug"] == node_role and device.get("rack"):
            racks[device["rack"]["name"]]["nodes"].append(_node(device, missing))
            platforms[device["name"]] = model
        elif model in loader.known("switch"):
            switches.append(_switch(device, missing))
        else:
            left_out.append(
                f"device {device['name']}: role {device['role']['slug']}, model {model}: neither a node in a rack "
                "nor a known switch model"
            )
    links, trouble = _links(found["dcim.cables"], platforms, {switch["name"] for switch in switches})
    empty = [rack for rack in racks if not racks[rack]["nodes"]]
    document = {
        "schema": "rackready/site/v1",
        "name": name,
        "racks": list(racks.values()),
        "switches": switches,
        "links": links,
    }
    left_out += [f"rack {rack}: kept, but has no nodes" for rack in empty]
    return Imported(document, tuple(missing), tuple(left_out + trouble))


def _each_once(site: str, racks: Iterable[Row]) -> None:
    counted = Counter(rack["name"] for rack in racks)
    twice = sorted(name for name, count in counted.items() if count > 1)
    if twice:
        raise RackreadyError(
            f"site {site} in NetBox",
            f"rack {', '.join(twice)}",
            expected="one rack of that name",
            actual="several",
            next_step="Rename them there, location by location.",
        )


def _node(device: Row, missing: list[str]) -> dict[str, Any]:
    name, model = device["name"], device["device_type"]["model"]
    out: dict[str, Any] = {"name": name, "platform": model}
    if model not in loader.known("platform"):
        missing.append(f"node {name}: platform: {model} has no profile in profiles/platform")
    out |= _present(
        {
            "unit": plain(device.get("position")),
            "serial": device.get("serial") or None,
            "address": _host(device.get("primary_ip4")),
        }
    )
    missing += [
        f"node {name}: {what}"
        for what, field in (("serial", "serial"), ("address (primary_ip4)", "address"))
        if field not in out
    ]
    bmc = _host(device.get("oob_ip"))
    if bmc is None:
        missing.append(f"node {name}: address of the BMC (oob_ip)")
    else:
        out["bmc"] = {"address": bmc}
    missing.append(f"node {name}: bmc.password")
    return out


def _switch(device: Row, missing: list[str]) -> dict[str, Any]:
    name = device["name"]
    out: dict[str, Any] = {"name": name, "model": device["device_type"]["model"]}
    place = device.get("rack") or {}
    out |= _present(
        {"rack": place.get("name"), "unit": plain(device.get("position")), "address": _host(device.get("primary_ip4"))}
    )
    if "address" not in out:
        missing.append(f"switch {name}: address (primary_ip4)")
    missing += [f"switch {name}: os", f"switch {name}: password"]
    return out


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def _host(address: Row | None) -> str | None:
    return str(address["address"]).partition("/")[0] if address else None


def _links(
    cables: Iterable[Row], platforms: Mapping[str, str], switches: set[str]
) -> tuple[list[dict[str, str]], list[str]]:
    out, trouble = [], []
    for cable in cables:
        both = ends(cable)
        if both is None:
            trouble.append(f"cable {cable['id']}: does not connect two interfaces")
            continue
        near, far = sorted(both, key=lambda end: end[0] in switches)
        rail = _rails(platforms.get(near[0], "")).get(near[1])
        if rail is None or far[0] not in switches:
            trouble.append(
                f"cable {cable['id']}: {' '.join(near)} to {' '.join(far)}: not from a compute NIC of a node to a "
                "switch"
            )
            continue
        out.append({"node": near[0], "rails": str(rail), "switch": far[0], "ports": far[1]})
    return sorted(out, key=lambda link: (link["node"], int(link["rails"]))), trouble


def _rails(platform: str) -> dict[str, int]:
    """Return the rail of every compute interface of a server model by its name."""
    return (
        {nic.netdev: nic.rail for nic in loader.platform(platform).nics} if platform in loader.known("platform") else {}
    )

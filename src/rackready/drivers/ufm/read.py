"""Reads UFM's documents: version, ports, links, partitions, alarms. Every other shape is refused.

Shapes: NVIDIA UFM Enterprise REST API Guide 6.20 to 6.22, pages "UFM Version REST API", "Ports REST API", "Links REST
API", "PKey GUIDs Rest API" and "Alarms REST API"; NVIDIA/bare-metal-manager-core @7778162cf,
crates/api/src/ib/ufmclient/mod.rs. Cable data (``cable_info``), counters of links and ``resources/systems`` have no
shape that was published to the end, so they are not read: ports name their systems.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rackready.drivers.ib.text import LANE_GBPS
from rackready.drivers.ufm.errors import UfmError, unknown

MINIMUM = (6, 17)
"""Oldest version with these shapes: alarms of 6.16 have other fields, and `pkeys/add` came with 6.15."""
_VERSION = re.compile(r"(\d+)\.(\d+)[.-]")
_PORT = re.compile(r"([0-9a-f]{16})_(\d+)")
_WIDTH = re.compile(r"(?:IB_)?(\d+)x")
_KEY = re.compile(r"0x[0-9a-f]{1,4}")
_NONE = ("N/A", "", None)
LINKED = "Link Up"
"""physical_state of a port with a link."""
Kind = Literal["switch", "ca", "router"]
_KINDS: dict[str, Kind] = {"Switch IB Port": "switch", "Computer IB Port": "ca"}


@dataclass(frozen=True, slots=True)
class UfmPort:
    """One port. ``name``: GUID of the port, for a switch of its node, '_' and its number. ``peer``: such a name."""

    name: str
    guid: int
    number: int
    kind: Kind
    system: str
    system_name: str
    description: str
    """Of its node: '<host> <HCA>'; for a switch '<name>:<port>'."""
    physical: str
    logical: str
    lid: int
    width: int = 0
    """Lanes; 0 without a link."""
    speed: str = ""
    """``NDR``; empty without a link."""
    peer: str = ""


@dataclass(frozen=True, slots=True)
class UfmPartition:
    """One partition. ``members``: port GUID -> whether it is a full member; ``first``: those with the key at index 0.

    ``default_full``: of the default partition, whether ports that are not listed are full members; None: not told.
    """

    key: int
    name: str
    members: Mapping[int, bool]
    default_full: bool | None = None
    first: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Alarm:
    """One alarm. ``object``: name of a port, or GUID of a system."""

    object: str
    severity: str
    name: str
    reason: str


def read_version(document: Any) -> str:  # noqa: ANN401 - JSON
    """Return UFM's version. Raises UfmError below ``MINIMUM``, UfmAnswerError for another shape."""
    text = document.get("ufm_release_version") if isinstance(document, dict) else None
    found = _VERSION.match(text) if isinstance(text, str) else None
    if found is None or not isinstance(text, str):
        raise unknown("app/ufm_version", "ufm_release_version, like 6.22.1-7", document)
    if (int(found[1]), int(found[2])) < MINIMUM:
        raise UfmError(
            "UFM app/ufm_version",
            expected=f"{MINIMUM[0]}.{MINIMUM[1]} or newer",
            actual=text,
            next_step="Update UFM, or set subnet_manager: external.",
        )
    return text


def read_ports(document: Any) -> dict[str, UfmPort]:  # noqa: ANN401 - JSON
    """Return name -> port. Raises UfmAnswerError for an unknown shape, a port given twice, or no port."""
    out: dict[str, UfmPort] = {}
    for item in _list("resources/ports", document):
        port = _port(item)
        if out.setdefault(port.name, port) is not port:
            raise unknown("resources/ports", "each port once", port.name)
    return out


def _port(item: Mapping[str, Any]) -> UfmPort:
    of = "resources/ports"
    name, description = _text(of, item, "name"), _text(of, item, "description")
    found = _PORT.fullmatch(name)
    kind = _KINDS.get(description, "router" if description.endswith(" IB Port") else None)
    if kind is None:
        raise unknown(of, "a port of InfiniBand", description)
    if found is None or (kind == "ca" and found[1] != _text(of, item, "guid")):
        raise unknown(of, "a name of the port's GUID and number", f"{name}, guid {item.get('guid')}")
    physical, logical = _text(of, item, "physical_state"), _text(of, item, "logical_state")
    width, speed = (_width(item), _speed(item)) if physical == LINKED else (0, "")
    peer = item.get("peer")
    if peer not in _NONE and not (isinstance(peer, str) and _PORT.fullmatch(peer)):
        raise unknown(of, "the peer's GUID and number, or N/A", peer)
    lid = item.get("lid")
    return UfmPort(
        name,
        int(found[1], 16),
        int(found[2]),
        kind,
        _text(of, item, "systemID"),
        _text(of, item, "system_name"),
        _text(of, item, "node_description"),
        physical,
        logical,
        lid if isinstance(lid, int) else 0,
        width,
        speed,
        "" if peer in _NONE else str(peer),
    )


def _width(item: Mapping[str, Any]) -> int:
    found = _WIDTH.fullmatch(str(item.get("active_width")))
    if found is None:
        raise unknown("resources/ports", "active_width of a port with a link, like 4x", item.get("active_width"))
    return int(found[1])


def _speed(item: Mapping[str, Any]) -> str:
    speed = item.get("active_speed")
    if not isinstance(speed, str) or speed not in LANE_GBPS:
        raise unknown("resources/ports", f"active_speed of {', '.join(LANE_GBPS)}", speed)
    return speed


def read_links(document: Any) -> tuple[tuple[str, str], ...]:  # noqa: ANN401 - JSON
    """Return the names of both ports of each link.

    The link's own name has the ports; source_guid and destination_guid are GUIDs of systems (page "Links REST API").
    Raises UfmAnswerError for an unknown shape, a link given twice, or no link.
    """
    out: dict[frozenset[str], tuple[str, str]] = {}
    for item in _list("resources/links", document):
        near, colon, far = _text("resources/links", item, "name").partition(":")
        ends = frozenset({near, far})
        if not colon or not _PORT.fullmatch(near) or not _PORT.fullmatch(far) or ends in out or near == far:
            raise unknown("resources/links", "each link once, named by the ports of its ends", item.get("name"))
        out[ends] = (near, far)
    return tuple(out.values())


def read_partitions(document: Any) -> dict[int, UfmPartition]:  # noqa: ANN401 - JSON
    """Return key -> partition, of ``resources/pkeys?guids_data=true``.

    Raises UfmAnswerError for an unknown shape, and without the default partition, which UFM always has.
    """
    of = "resources/pkeys"
    if not isinstance(document, dict):
        raise unknown(of, "partitions by key", document)
    out = {}
    for text, item in document.items():
        if not _KEY.fullmatch(text) or not isinstance(item, dict):
            raise unknown(of, "a partition for each key", text)
        key = int(text, 16)
        default = item.get("membership")
        full = None if default is None else _full(default)
        members = _members(item.get("guids"))
        first = frozenset(int(own["guid"], 16) for own in item["guids"] if own.get("index0") is True)
        out[key] = UfmPartition(key, _text(of, item, "partition"), members, full, first)
    if 0x7FFF not in out:  # noqa: PLR2004 - the default partition's key
        raise unknown(of, "0x7fff among the keys", ", ".join(document) or "no key")
    return out


def _members(guids: Any) -> dict[int, bool]:  # noqa: ANN401 - JSON
    if not isinstance(guids, list):
        raise unknown("resources/pkeys", "a list of guids", guids)
    out: dict[int, bool] = {}
    for item in guids:
        guid = item.get("guid") if isinstance(item, dict) else None
        if not isinstance(guid, str) or not re.fullmatch(r"(?:0x)?[0-9a-f]{16}", guid) or int(guid, 16) in out:
            raise unknown("resources/pkeys", "each port GUID once", item)
        out[int(guid, 16)] = _full(item.get("membership"))
    return out


def _full(membership: Any) -> bool:  # noqa: ANN401 - JSON
    if membership not in {"full", "limited"}:
        raise unknown("resources/pkeys", "membership full or limited", membership)
    return bool(membership == "full")


def read_alarms(document: Any) -> tuple[Alarm, ...]:  # noqa: ANN401 - JSON
    """Return all alarms; there may be none. Raises UfmAnswerError for an unknown shape."""
    of = "app/alarms"
    items = _list(of, document, empty=True)
    fields = ("object_name", "severity", "name", "reason")
    return tuple(Alarm(*(_text(of, item, field) for field in fields)) for item in items)


def _list(of: str, document: Any, *, empty: bool = False) -> list[dict[str, Any]]:  # noqa: ANN401 - JSON
    if not isinstance(document, list) or not all(isinstance(item, dict) for item in document):
        raise unknown(of, "a list", document)
    if not document and not empty:
        raise unknown(of, "at least one entry", "an empty list")
    return document


def _text(of: str, item: Mapping[str, Any], field: str) -> str:
    found = item.get(field)
    if not isinstance(found, str):
        raise unknown(of, f"{field} as text", found if field in item else f"no {field}")
    return found

"""Neighbours by LLDP as Arista EOS and Cisco NX-OS print them in JSON. Pure.

Published: napalm @ee70e634 test/eos/mocked_data/test_get_lldp_neighbors_detail; NetApp/harvest @7a7ba3df
cmd/collectors/{arista,cisco}/plugins/lldp/testdata; Netests/netests @387243f3 tests/features/src/outputs/lldp/nxos.
A document of another shape is refused: an unknown name of a field must not look like a port without a neighbour.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rackready.drivers.switch.base import Neighbour
from rackready.format_error import FormatError

NOBODY = "ERROR: No neighbour information"
"""What NX-OS prints instead of a document (cisco.nxos, module nxos_facts)."""
_MAC = re.compile(r"([0-9a-f]{1,4})\.([0-9a-f]{1,4})\.([0-9a-f]{1,4})", re.IGNORECASE)
_ABSENT = {"null", "not advertised"}
_TYPES = {
    "interfaceName": "ifname",
    "macAddress": "mac",
    "Interface Name": "ifname",
    "Mac Address": "mac",
    "Locally Assigned": "local",
}
Heard = dict[str, list[Neighbour]]


def of_eos(document: Mapping[str, Any]) -> Heard:
    """Return port -> its neighbours, of `show lldp neighbors detail | json`. Raises FormatError."""
    found: Heard = {}
    for port, entry in _object(document, "lldpNeighbors").items():
        items = _object({port: entry}, port).get("lldpNeighborInfo")
        if not isinstance(items, list):
            raise FormatError(f"{port}: no list `lldpNeighborInfo`")
        for item in items:
            far = _object(_object({port: item}, port), "neighborInterfaceInfo")
            kind, name = _port(_text(far, "interfaceIdType"), _text(far, "interfaceId").strip('"'))
            about, system = str(far.get("interfaceDescription", "")), str(item.get("systemName", ""))
            neighbour = Neighbour(system, colons(_text(item, "chassisId")), name, kind, about)
            found.setdefault(port, []).append(neighbour)
    return found


def of_nxos(document: Mapping[str, Any]) -> Heard:
    """Return port -> its neighbours, of `show lldp neighbors detail | json`. Raises FormatError.

    One row comes without a list, and ``neigh_count`` has their number: fewer rows are not the whole answer.
    """
    listed = _object(document, "TABLE_nbor_detail").get("ROW_nbor_detail")
    rows = [listed] if isinstance(listed, dict) else listed
    if not isinstance(rows, list) or not rows:
        raise FormatError("no rows `ROW_nbor_detail`")
    if "neigh_count" in document and str(document["neigh_count"]) != str(len(rows)):
        raise FormatError(f"{len(rows)} neighbours of {document['neigh_count']}")
    found: Heard = {}
    for row in rows:
        one = _object({"ROW_nbor_detail": row}, "ROW_nbor_detail")
        kind, name = _port(_text(one, "port_type"), _text(one, "port_id"))
        about, system = _sent(one, "port_desc"), _sent(one, "sys_name")
        neighbour = Neighbour(system, colons(_text(one, "chassis_id")), name, kind, about)
        found.setdefault(long_name(_text(one, "l_port_id")), []).append(neighbour)
    return found


def long_name(port: str) -> str:
    """Return a port of NX-OS by its name in the configuration: Eth1/1 is Ethernet1/1."""
    return re.sub(r"^Eth(?=\d)", "Ethernet", port)


def short_name(port: str) -> str:
    """Return a port as NX-OS prints it in tables, and as older releases send it."""
    return re.sub(r"^Ethernet(?=\d)", "Eth", port)


def colons(text: str) -> str:
    """Return a MAC address of three groups as nodes write theirs; other texts as they are.

    EOS drops leading zeros of the first group (napalm, issue 903).
    """
    match = _MAC.fullmatch(text)
    if match is None:
        return text
    digits = "".join(group.zfill(4) for group in match.groups()).lower()
    return ":".join(digits[at : at + 2] for at in range(0, 12, 2))


def _port(kind: str, name: str) -> tuple[str, str]:
    """Return type and number of a port as lldpd has them."""
    known = _TYPES.get(kind, kind)
    return known, colons(name) if known == "mac" else name


def _object(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = parent.get(key)
    if not isinstance(found, dict):
        raise FormatError(f"no object `{key}`; keys: {', '.join(sorted(map(str, parent))) or 'none'}")
    return found


def _text(parent: Mapping[str, Any], key: str) -> str:
    found = parent.get(key)
    if not isinstance(found, str) or not found:
        raise FormatError(f"a neighbour without `{key}`")
    return found


def _sent(parent: Mapping[str, Any], key: str) -> str:
    """Return a field that the neighbour may leave out."""
    found = parent.get(key)
    if not isinstance(found, str):
        raise FormatError(f"a neighbour without `{key}`")
    return "" if found in _ABSENT else found

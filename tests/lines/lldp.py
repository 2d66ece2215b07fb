"""What simulated command lines print of their neighbours by LLDP, in JSON: written from captures, before the readers.

EOS: napalm @ee70e634 test/eos/mocked_data/test_get_lldp_neighbors_detail (normal, issue1153: names of interfaces are in
quotes, MAC addresses have dots; issue903: a leading zero is lost), NetApp/harvest @7a7ba3df
cmd/collectors/arista/plugins/lldp/testdata/lldp.json (ports without a neighbour have an empty list).
NX-OS: NetApp/harvest @7a7ba3df cmd/collectors/cisco/plugins/lldp/testdata (nothing is "null" or "not advertised"; ports
are short), Netests/netests @387243f3 tests/features/src/outputs/lldp/nxos (one row comes without a list); without any
neighbour: cisco.nxos, module nxos_facts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

NOBODY = "ERROR: No neighbour information\n"
_EOS = {"ifname": "interfaceName", "mac": "macAddress", "local": "local"}
_NXOS = {"ifname": "Interface Name", "mac": "Mac Address", "local": "Locally Assigned"}


@dataclass(frozen=True)
class Heard:
    """One neighbour as it sends itself; MAC addresses with colons, ``port_type`` of ifname, mac, local."""

    system: str
    chassis: str
    port: str
    port_type: str = "ifname"
    description: str = ""


def dotted(text: str) -> str:
    """Return a MAC address as both systems print it; other texts as they are."""
    digits = text.replace(":", "")
    return ".".join(digits[at : at + 4] for at in (0, 4, 8)) if len(digits) == 12 and text.count(":") == 5 else text


def eos(ports: Iterable[str], heard: Mapping[str, Sequence[Heard]]) -> dict[str, object]:
    """Return the document of `show lldp neighbors detail | json`."""
    return {
        "lldpNeighbors": {
            port: {"lldpNeighborInfo": [_eos(one) for one in heard.get(port, ())]} for port in sorted({*ports, *heard})
        }
    }


def _eos(one: Heard) -> dict[str, object]:
    number = dotted(one.port) if one.port_type == "mac" else f'"{one.port}"'
    return {
        "systemCapabilities": {"bridge": True, "router": True},
        "lastChangeTime": 1764813866.0986342,
        "neighborInterfaceInfo": {
            "interfaceIdType": _EOS[one.port_type],
            "interfaceId": number,
            "interfaceDescription": one.description or one.port,
            "unknownTlvs": [],
            "vlanNames": {},
        },
        "neighborDiscoveryTime": 1764813866.0986342,
        "lastContactTime": 1780584102.9415388,
        "chassisId": dotted(one.chassis),
        "systemName": one.system,
        "systemDescription": "Debian GNU/Linux 12 (bookworm) Linux 6.1.0 x86_64",
        "ttl": 120,
        "managementAddresses": [],
        "chassisIdType": "macAddress",
    }


def nxos(heard: Mapping[str, Sequence[Heard]]) -> str:
    """Return what `show lldp neighbors detail | json` prints."""
    rows = [_nxos(port, one) for port, items in heard.items() for one in items]
    if not rows:
        return NOBODY
    table = {"ROW_nbor_detail": rows[0] if len(rows) == 1 else rows}
    return json.dumps({"neigh_hdr": "neigh_hdr", "TABLE_nbor_detail": table, "neigh_count": str(len(rows))})


def _nxos(port: str, one: Heard) -> dict[str, str]:
    return {
        "chassis_type": "Mac Address",
        "chassis_id": dotted(one.chassis),
        "port_type": _NXOS[one.port_type],
        "port_id": dotted(one.port),
        "l_port_id": port.replace("Ethernet", "Eth"),
        "port_desc": one.description or "null",
        "sys_name": one.system or "not advertised",
        "sys_desc": "Debian GNU/Linux 12 (bookworm) Linux 6.1.0 x86_64",
        "ttl": "114",
        "system_capability": "S",
        "enabled_capability": "S",
        "mgmt_addr_type": "Address not advertised",
        "mgmt_addr": "not advertised",
        "mgmt_addr_ipv6_type": "Address not advertised",
        "mgmt_addr_ipv6": "not advertised",
        "vlan_id": "not advertised",
    }

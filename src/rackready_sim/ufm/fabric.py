"""Answers of UFM about ports, links, partitions and alarms of a fabric.

Shapes: NVIDIA UFM Enterprise REST API Guide 6.22.1, pages "UFM Version REST API", "Ports REST API", "Links REST API",
"PKey GUIDs Rest API", "Jobs REST API", and 6.19.6, page "Alarms REST API". What the pages' examples do not show is from
programs that read a real UFM: NVIDIA/bare-metal-manager-core @7778162cf crates/api/src/ib/ufmclient/mod.rs (ports,
partitions with their GUIDs, "{}" for what is not there), Mellanox/ufm_sdk_3.0 @3e96418e
plugins/pdr_deterministic_plugin (kinds of ports, ``peer``).
"""

from __future__ import annotations

from typing import Any

State = dict[str, Any]
DEFAULT = 0x7FFF
_SPEEDS = {40: "QDR", 56: "FDR", 100: "EDR", 200: "HDR", 400: "NDR", 800: "XDR"}
"""Rate of four lanes, Gb/s, to the name of the speed (InfiniBand Architecture Specification vol. 2)."""


class Fabric:
    """The fabric as UFM sees it. ``state``: of ib_hardware.build_state; ``pulled``: GUIDs of HCAs without a link.

    ``default``: membership of all ports in the default partition (gv.cfg: default_membership).
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.pulled: set[str] = set()
        self.speeds: dict[str, str] = {}
        self.states: dict[str, str] = {}
        self.alarms: list[State] = []
        self.default = "limited"
        self.partitions: dict[int, State] = {
            DEFAULT: {"partition": "management", "ip_over_ib": True, "guids": {}},
        }

    def ports(self) -> list[State]:
        """Return every port of the fabric: of switches with and without a link, and of HCAs."""
        by_end = {(hca["switch"], hca["port"]): hca for hca in self.state["hcas"]}
        out = [
            self._switch_port(switch, number, by_end.get((switch["name"], number)))
            for switch in self.state["switches"]
            for number in range(1, switch["ports"] + 1)
        ]
        return out + [self._hca_port(hca) for hca in self.state["hcas"]]

    def _switch_port(self, switch: State, number: int, hca: State | None) -> State:
        linked = hca is not None and hca["guid"] not in self.pulled
        own = {
            "description": "Switch IB Port",
            "number": number,
            "external_number": number,
            "path": f"default(1) / Switch: {switch['name']} / {number}",
            "tier": 1,
            "dname": str(number),
            "systemID": switch["guid"],
            "system_name": switch["name"],
            "node_description": f"{switch['name']}:{number}",
            "guid": switch["guid"],
            "name": f"{switch['guid']}_{number}",
            "lid": 1,
        }
        return own | self._link(hca if linked else None, _port_name(hca) if linked and hca is not None else "N/A")

    def _hca_port(self, hca: State) -> State:
        host, _, device = hca["description"].partition(" ")
        switch = self._switch(hca["switch"])
        linked = hca["guid"] not in self.pulled
        own = {
            "description": "Computer IB Port",
            "number": 1,
            "external_number": 1,
            "path": f"default(1) / Computer: {host} / {device}",
            "tier": 4,
            "dname": device,
            "systemID": hca["guid"],
            "system_name": host,
            "node_description": hca["description"],
            "guid": port_guid(hca),
            "name": _port_name(hca),
            "lid": 2 if linked else 0,
        }
        return own | self._link(hca if linked else None, f"{switch['guid']}_{hca['port']}" if linked else "N/A")

    def _link(self, hca: State | None, peer: str) -> State:
        """Return what both kinds of ports have. Without a link, speed and width are null."""
        common = {
            "mirror": "disable",
            "mtu": 4096,
            "severity": "Info",
            "high_ber_severity": "N/A",
            "capabilities": ["reset", "healthy_operations", "disable", "get_cables_info"],
            "peer": peer,
        }
        if hca is None:
            return common | {
                "physical_state": "Polling",
                "logical_state": "Down",
                "active_speed": None,
                "active_width": None,
                "peer_port_dname": "N/A",
            }
        return common | {
            "physical_state": "Link Up",
            "logical_state": self.states.get(hca["guid"], "Active"),
            "active_speed": self.speeds.get(hca["guid"], _SPEEDS[hca["rate"]]),
            "active_width": "4x",
            "peer_port_dname": peer.partition("_")[2],
        }

    def links(self) -> list[State]:
        """Return every link once. source_guid and destination_guid are GUIDs of systems, the name has ports."""
        out = []
        for hca in self.state["hcas"]:
            if hca["guid"] in self.pulled:
                continue
            switch = self._switch(hca["switch"])
            near, far = _port_name(hca), f"{switch['guid']}_{hca['port']}"
            out.append(
                {
                    "source_guid": hca["guid"],
                    "source_port": "1",
                    "source_port_dname": hca["description"].partition(" ")[2],
                    "source_port_name": near,
                    "source_port_node_description": hca["description"],
                    "destination_guid": switch["guid"],
                    "destination_port": str(hca["port"]),
                    "destination_port_dname": str(hca["port"]),
                    "destination_port_name": far,
                    "destination_port_node_description": f"{switch['name']}:{hca['port']}",
                    "width": "4x",
                    "severity": "Info",
                    "name": f"{near}:{far}",
                    "capabilities": ["collect_system_dump"],
                }
            )
        return out

    def _switch(self, name: str) -> State:
        return next(switch for switch in self.state["switches"] if switch["name"] == name)

    def partition(self, key: int, *, guids: bool) -> State:
        """Return one partition, or {} if there is none: UFM answers so with code 200."""
        own = self.partitions.get(key)
        if own is None:
            return {}
        found = {"partition": own["partition"], "ip_over_ib": own["ip_over_ib"]}
        if guids:
            found["guids"] = [
                {"guid": guid, "index0": member["index0"], "membership": member["membership"]}
                for guid, member in sorted(own["guids"].items())
            ]
            if key == DEFAULT:
                found["membership"] = self.default
        return found

    def add(self, key: int, *, ip_over_ib: bool) -> None:
        """Create a partition without members."""
        name = f"api_pkey_0x{key:x}"
        self.partitions.setdefault(key, {"partition": name, "ip_over_ib": ip_over_ib, "guids": {}})

    def join(self, key: int, members: dict[str, str], *, index0: bool) -> None:
        """Add members, or change their membership."""
        self.add(key, ip_over_ib=True)
        for guid, membership in members.items():
            self.partitions[key]["guids"][guid] = {"index0": index0, "membership": membership}

    def leave(self, key: int, guids: list[str]) -> None:
        """Remove members. The partition stays."""
        for guid in guids:
            self.partitions[key]["guids"].pop(guid, None)


def port_guid(hca: State) -> str:
    """Return the GUID of an HCA's port: the one after its node's, as ibsim gives it."""
    return f"{int(hca['guid'], 16) + 1:016x}"


def _port_name(hca: State) -> str:
    return f"{port_guid(hca)}_1"

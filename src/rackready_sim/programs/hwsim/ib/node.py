"""The node's side of the subnet: tell the switches of its ports, and keep what they say for sysfs and programs."""

from __future__ import annotations

import json
import socket
from typing import Any

from .. import paths, store
from ..nic import nv

State = dict[str, Any]
SERVER = "ibfabric"
"""Name of the machine with the switches, in the site's name server."""
SERVER_PORT = 7060
PORTS = "/run/hw/ib.json"
_ANSWER_S = 10.0
DOWN: State = {
    "state": "Down",
    "phys": "Polling",
    "lid": "0",
    "smlid": "0",
    "width": "4x",
    "speed": "50G",
    "subnet": "",
}


def is_cabled(nic: State) -> bool:
    """Return whether the NIC's cable leads to an InfiniBand switch."""
    return nic.get("fabric") == "infiniband"


def guid(nic: State) -> str:
    """Return the node GUID of the NIC's HCA, 16 hex digits."""
    return str(nic["guid"]).replace(":", "")


def ports() -> dict[str, State]:
    """Return node GUID to the port as the switches reported it last."""
    path = paths.at(PORTS)
    found: dict[str, State] = json.loads(path.read_text()) if path.exists() else {}
    return found


def port(nic: State) -> State:
    """Return the port of a NIC; a NIC that works as Ethernet, or has no report yet, has no link."""
    if not nv.is_infiniband(nic):
        return DOWN
    return ports().get(guid(nic), DOWN)


def active(nic: State) -> bool:
    """Return whether the port is Active: it has its link, and a subnet manager configured it."""
    return bool(port(nic)["state"] == "Active")


def reachable(one: State, other: State) -> bool:
    """Return whether two ports can exchange data: both are Active, in one subnet. Inputs: ``ib`` of nic_facts."""
    return bool(one["state"] == other["state"] == "Active" and one["subnet"] and one["subnet"] == other["subnet"])


def share_partition(one: State, other: State) -> bool:
    """Return whether data of two ports pass by the keys at index 0: the same one, and not limited at both ends.

    Programs use that index unless they are told another one (perftest: pkey_index 0; NCCL: NCCL_IB_PKEY 0). A packet
    with another key is dropped without a word (InfiniBand Architecture Specification vol. 1, 10.9). A key that could
    not be read forbids nothing.
    """
    keys = [int(end["key"], 16) for end in (one, other) if end.get("key")]
    return len(keys) < 2 or (keys[0] & 0x7FFF == keys[1] & 0x7FFF and bool((keys[0] | keys[1]) & 0x8000))  # noqa: PLR2004


class Link:
    """The connection to the switches. It closes with the machine's power, as the light goes out."""

    def __init__(self) -> None:
        self._line: socket.socket | None = None

    def step(self, nics: list[State]) -> bool:
        """Tell the switches of the node's ports and keep their answer; return whether a port changed."""
        mine = [nic for nic in nics if is_cabled(nic)]
        if not mine:
            return False
        try:
            found = self._ask({guid(nic): self._told(nic, mine) for nic in mine})
        except (OSError, ValueError):
            if self._line is not None:
                self._line.close()
            self._line, found = None, {}
        if found == ports():
            return False
        store.write(paths.at(PORTS), json.dumps(found))
        return True

    @staticmethod
    def _told(nic: State, nics: list[State]) -> State:
        """Return whether a port offers a link, and in whose place its cable is."""
        other = next((item for item in nics if item["rail"] == nic.get("crossed")), nic)
        return {"up": nic["link"] == "up" and nv.is_infiniband(nic), "cable": guid(other)}

    def _ask(self, told: State) -> dict[str, State]:
        if self._line is None:
            self._line = socket.create_connection((SERVER, SERVER_PORT), timeout=_ANSWER_S)
        self._line.sendall(json.dumps(told).encode() + b"\n")
        raw = b""
        while not raw.endswith(b"\n"):
            part = self._line.recv(65536)
            if not part:
                raise OSError(SERVER)
            raw += part
        found: dict[str, State] = json.loads(raw)
        return found

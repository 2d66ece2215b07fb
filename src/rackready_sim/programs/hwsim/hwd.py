"""Running devices of the machine: links follow their cables, and device errors reach the kernel log."""

from __future__ import annotations

import time

from . import ctk, firmware, kmsg, machine, paths, pcitree, rdmatree, store
from .host import tree as hosttree
from .ib import node as ib
from .switch import apply as switch

_PERIOD_S = 1.0
Port = tuple[bool, "str | None", str]
"""Whether the link is up, the interface's IPv4 address, and the report of InfiniBand's switches: inputs of an RDMA
device's files."""


def main(_argv: list[str]) -> int:
    """Follow the hardware state until stopped; a switch follows its configuration."""
    if "switch" in store.hardware():
        return switch.serve()
    devices = Devices()
    while True:
        devices.step()
        time.sleep(_PERIOD_S)


class Devices:
    """Last seen state of the devices. Only changes are processed, because every machine does this all the time."""

    def __init__(self) -> None:
        self._file = _signature()
        self._state = store.hardware()
        self._reported = len(self._state["xids"])
        self._ports: dict[str, Port] = {}
        self._switches = ib.Link()
        hosttree.services(self._state)
        hosttree.foreign(self._state)

    def step(self) -> None:
        """Do one round."""
        file = _signature()
        if file != self._file:
            self._file = file
            self._changed(store.hardware())
        present = [nic for nic in self._state["nics"] if machine.present(nic, self._state)]
        self._switches.step(present)
        for nic in present:
            seen = str(sorted(ib.port(nic).items())) if ib.is_cabled(nic) else ""
            port = (machine.carrier(nic), rdmatree.ipv4(nic["netdev"]), seen)
            if self._ports.get(nic["rdma_device"]) != port:
                self._ports[nic["rdma_device"]] = port
                _follow(nic)

    def _changed(self, state: store.State) -> None:
        for xid in state["xids"][self._reported :]:
            kmsg.say(firmware.xid_line(xid["pci"], xid["code"], xid.get("text", "")))
        for sxid in state.get("sxids", [])[len(self._state.get("sxids", [])) :]:
            kmsg.say(firmware.sxid_line(sxid))
        if state != self._state:
            pcitree.write(state)
            ctk.refresh()
            hosttree.write(state)
            hosttree.follow(state, self._state)
            hosttree.services(state)
            hosttree.foreign(state)
        self._reported, self._state, self._ports = len(state["xids"]), state, {}


def _signature() -> tuple[int, ...]:
    """Return a value that changes whenever the hardware state is written, or an RDMA device renamed."""
    files = [path for path in (paths.at("/opt/hw/state.json"), paths.at(store.RENAMED)) if path.exists()]
    seen = [path.stat() for path in files]
    return tuple(part for found in seen for part in (found.st_mtime_ns, found.st_ino, found.st_size))


def _follow(nic: store.State) -> None:
    if rdmatree.refresh(nic):
        up = machine.carrier(nic)
        rdmatree.log_link(nic, up=up)
        rdmatree.add(nic, {"link_downed": 0 if up else 1})

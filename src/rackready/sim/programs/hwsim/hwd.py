"""The machine's devices while it runs: links come and go with their cables, and device errors reach the kernel log."""

from __future__ import annotations

import time
from typing import Any

from . import ctk, firmware, kmsg, machine, pcitree, rdmatree, store
from .host import tree as hosttree
from .switch import apply as switch

_PERIOD_S = 1.0


def main(_argv: list[str]) -> int:
    """Follow the hardware state until stopped; a switch follows its configuration."""
    if "switch" in store.hardware():
        return switch.serve()
    seen = len(store.hardware()["xids"])
    last = store.hardware()
    while True:
        seen, last = step(seen, last)
        time.sleep(_PERIOD_S)


def step(seen: int, last: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Do one round; return how many Xids were reported and the state that was seen."""
    state = store.hardware()
    for nic in machine.nics():
        if rdmatree.refresh(nic):
            up = machine.carrier(nic)
            kmsg.say(f"mlx5_core {nic['pci']} {nic['netdev']}: Link {'up' if up else 'down'}")
            rdmatree.add(nic, {"link_downed": 0 if up else 1})
    for xid in state["xids"][seen:]:
        kmsg.say(firmware.xid_line(xid["pci"], xid["code"], xid.get("text", "")))
    for sxid in state.get("sxids", [])[len(last.get("sxids", [])) :]:
        kmsg.say(firmware.sxid_line(sxid))
    if state != last:
        pcitree.write(state)
        ctk.refresh()
        hosttree.write(state)
        hosttree.follow(state, last)
    hosttree.services(state)
    return len(state["xids"]), state

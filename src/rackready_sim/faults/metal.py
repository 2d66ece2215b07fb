"""Faults of bare-metal nodes: boot overrides, late or missing answers of the BMC, disks, and the boot port's link."""

from __future__ import annotations

import time

from rackready_sim.faults.base import Fault, FaultError, State, part


def _metal(state: State) -> State:
    found: State | None = state.get("metal")
    if found is None:
        raise FaultError(
            f"{state.get('node', 'node')} metal",
            expected="a bare-metal node",
            actual="a container",
            next_step="Create the rack with `rackready sim up --metal N`, and name one of its first N nodes.",
        )
    return found


def _override(state: State) -> None:
    _metal(state)["override"] = "ignored"


def _lag(state: State, seconds: float) -> None:
    _metal(state)["power_lag_s"] = seconds


def _span(state: State, what: str, after: float, seconds: float) -> None:
    begin = time.time() + after
    state["bmc"][what] = [begin, begin + seconds]


def _busy(state: State, after: float, seconds: float) -> None:
    _span(state, "busy", after, seconds)


def _restart(state: State, after: float, seconds: float) -> None:
    _span(state, "restarting", after, seconds)


def _disk(state: State, disk: int) -> State:
    return part({"disks": _metal(state)["disks"], "node": state.get("node")}, "disks", disk, "id")


def _data(state: State, disk: int) -> None:
    _disk(state, disk)["holds"] = "gpt and ext4"


def _missing(state: State, disk: int) -> None:
    _disk(state, disk)["present"] = False


def _link(state: State) -> None:
    _metal(state)["nic"]["link"] = "down"


_SPAN = {"after": 0.0, "seconds": 30.0}

FAULTS = (
    Fault(
        "override-ignored", "boot", "the BMC accepts a boot override, and the firmware does not follow it", _override
    ),
    Fault("power-lag", "boot", "the BMC reports a change of power so many seconds late", _lag, {"seconds": 10.0}),
    Fault("bmc-busy", "boot", "the BMC answers 503 for a while", _busy, dict(_SPAN)),
    Fault(
        "bmc-restarts", "boot", "the BMC restarts: no answers for a while, its sessions are gone", _restart, dict(_SPAN)
    ),
    Fault(
        "disk-has-data", "boot", "a disk holds a partition table and a file system", _data, {"disk": 0}, at_boot=True
    ),
    Fault("disk-missing", "boot", "a disk is not seen", _missing, {"disk": 0}, at_boot=True),
    Fault("boot-link-down", "boot", "the port that the node boots from has no link", _link),
)

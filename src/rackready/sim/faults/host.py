"""Faults of the host around the GPUs."""

from __future__ import annotations

from rackready.sim.faults.base import Fault, State


def _management_down(state: State) -> None:
    state["management"]["link"] = "down"


def _nouveau(state: State) -> None:
    state["nouveau"] = True


_R1 = "node/gpu/validation/dcgm-r1"

FAULTS = (
    Fault("host-unreachable", "management", "the cable of the host's management network is out: it boots, and nobody reaches it", _management_down),
    Fault("nouveau-loaded", "driver", "nouveau is bound at boot unless it is denied", _nouveau, {}, _R1, at_boot=True),
)

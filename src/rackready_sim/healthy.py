"""Hardware of a machine as it is without any fault."""

from __future__ import annotations

from typing import Any

from rackready_sim import hardware, ib_hardware
from rackready_sim.definition import Definition
from rackready_sim.metal import state as metal_state


def healthy(defined: Definition, name: str) -> dict[str, Any]:
    """Return the hardware state of a node, a switch, or the machine that stands for InfiniBand switches."""
    role = defined.plan.machines[name].role
    if role == "fabric":
        return ib_hardware.build_state(defined.site)
    if name in defined.plan.metal:
        return {**hardware.build_state(defined.site, name), "metal": metal_state.build(defined.site, name)}
    if role == "node":
        return hardware.build_state(defined.site, name)
    return hardware.build_switch_state(defined.site, name)

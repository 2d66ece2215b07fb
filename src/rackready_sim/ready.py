"""Wait until the machines that are always on answer: after `up`, a deploy can start."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from rackready_sim.errors import describe
from rackready_sim.plan import FABRIC_PORT, MIRROR_PORT, Machine, RackPlan

_PERIOD_S = 0.2
_CONNECT_S = 1.0
SSH_PORT = 22


def wait(plan: RackPlan, seconds: float = 90.0, probe: Callable[[str, int], bool] | None = None) -> None:
    """Return when mirror, switches and the scheduler's host answer. Raise SimError with those that do not in time."""
    answers = probe or _answers
    deadline = time.monotonic() + seconds
    waiting = [machine for machine in plan.machines.values() if machine.role != "node"]
    while waiting := [machine for machine in waiting if not answers(machine.address, _port(machine))]:
        if time.monotonic() > deadline:
            names = ", ".join(f"{machine.name} ({machine.address}:{_port(machine)})" for machine in waiting)
            hint = f"See `podman logs {waiting[0].container}`, then run `rackready sim up` again."
            raise describe("the simulated rack", f"all of it answers within {seconds:.0f} s", f"silent: {names}", hint)
        time.sleep(_PERIOD_S)


def _port(machine: Machine) -> int:
    return {"mirror": MIRROR_PORT, "fabric": FABRIC_PORT}.get(machine.role, SSH_PORT)


def _answers(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=_CONNECT_S):
            return True
    except OSError:
        return False

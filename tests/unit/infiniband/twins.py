"""Runs a twin with faults for tests."""

from __future__ import annotations

from pathlib import Path

from rackready.drivers.ib.cabling import check_cabling
from rackready.drivers.ib.discover import read_ibnetdiscover
from rackready.drivers.ib.planned import IbPlan
from rackready.model.outcome import Finding
from rackready_sim.ibtwin import ibsim
from rackready_sim.ibtwin.losses import sweep
from rackready_sim.ibtwin.topology import as_declared, twin_of
from tests.unit.infiniband.cabling_faults import Fault, Faults

LACKING = ibsim.missing()
REASON = f"the fabric twin needs {', '.join(LACKING)}: `make setup-dev` as root installs them"


def twenty_faults(plan: IbPlan, folder: Path, seed: int) -> tuple[list[Finding], list[Fault], list[Finding]]:
    """Return the findings before the faults, the faults, and the findings with all of them, under opensm."""
    whole = twin_of(plan)
    with ibsim.running(whole, folder, whole.adapters[max(whole.adapters)]) as sim:
        sweep(sim, "updn")
        healthy = check_cabling(as_declared(plan), read_ibnetdiscover(sim.run("ibnetdiscover").stdout))
    twin = twin_of(plan)
    faults = Faults(twin, seed).twenty()
    for fault in faults:
        if fault.before is not None:
            fault.before()
    # Attach to an adapter that no fault takes away: the last node is none of the three that are absent or exchanged.
    with ibsim.running(twin, folder, _untouched(plan, twin.adapters, faults)) as sim:
        sweep(sim, "updn")
        for fault in faults:
            if fault.console:
                sim.tell(*fault.console)
        sweep(sim, "updn")
        found = check_cabling(as_declared(plan), read_ibnetdiscover(sim.run("ibnetdiscover").stdout))
    return healthy, faults, found


def _untouched(plan: IbPlan, adapters: dict, faults: list[Fault]) -> str:  # type: ignore[type-arg]
    words = {word for fault in faults for word in fault.words}
    return next(
        node
        for end, node in sorted(adapters.items(), reverse=True)
        if str(end) not in words and end.device not in words and end.device not in plan.ports
    )

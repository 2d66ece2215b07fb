"""Rails that the fabric phase could not measure, peers for single-node rail checks, and switches without cables."""

from __future__ import annotations

from dataclasses import replace

from rackready.design.wiring import cables, trunk_ends
from rackready.drivers.switch.apply import OPERATION
from rackready.drivers.switch.configure import run_switches
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.site import Site
from rackready.model.state import NodeState, at_least
from rackready.paths import EnvPaths


def proven(result: NodeResult, unmeasured: list[str]) -> NodeResult:
    """Return a result with the rails on which no peer answered: they were not measured, so the fabric is no pass."""
    if not unmeasured:
        return result
    data = {**result.data, "unmeasured": unmeasured}
    outcome = Outcome.SKIP if result.outcome is Outcome.PASS else result.outcome
    return replace(
        result, outcome=outcome, message=f"{result.message}; not measured: {'; '.join(unmeasured)}", data=data
    )


def known_up(ctx: PhaseContext, names: list[str], without: list[str]) -> list[str]:
    """Return the nodes whose fabric passed before, ``without`` those that are configured now: peers for rail checks."""
    with Ledger.open(EnvPaths(ctx.root, ctx.env).database) as ledger:
        states = {row.name: row.state for row in ledger.states()}
    return [
        name
        for name in names
        if name not in without and at_least(states.get(name, NodeState.DECLARED), NodeState.CONNECTED)
    ]


def clear_idle(ctx: PhaseContext, site: Site) -> None:
    """Remove our configuration from switches on which no cable of the site ends any more.

    No node waits for it: an event reports a failure, and the next run tries again.
    """
    if ctx.check:
        return
    cabled = {*(switch for switch, _ in cables(site).values()), *trunk_ends(site)}
    with Ledger.open(EnvPaths(ctx.root, ctx.env).database) as ledger:
        idle = [
            switch.name
            for switch in site.switches
            if switch.name not in cabled and ledger.latest(switch.name, OPERATION) is not None
        ]
        for name, result in run_switches(ctx, idle).items() if idle else ():
            ledger.event(
                ctx.campaign,
                name,
                "fabric",
                f"no cable ends on it any more: {result.message}",
                "ok" if result.outcome is Outcome.PASS else "error",
            )

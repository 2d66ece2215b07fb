"""The phases: what each calls, whether it takes batches or the whole wave, and the state that a node reaches by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from rackready.campaign.evidence_check import run_where_needed
from rackready.campaign.rails import clear_idle, known_up, proven
from rackready.design.facts import node_facts
from rackready.design.site import load_site
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.state import NodeState

Results = dict[str, NodeResult]
Runner = Callable[[PhaseContext, list[str]], Results]

_NO_BASELINE = "passed through: firmware and BIOS are not compared with a baseline yet"
_NO_PARTS = "passed through: parts are compared by the inventory gate after the driver is installed"


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase. ``reaches`` lists the states that a pass takes the node through, each with the note that the record keeps."""

    run: Runner
    whole_wave: bool
    holds: NodeState
    """What still holds of a node that was further when this phase goes wrong on it."""
    reaches: tuple[tuple[NodeState, str], ...]
    fail_quarantines: bool = True
    touches: bool = True
    """A change made by it voids evidence measured before: the node is not the same any more."""


def _provision(ctx: PhaseContext, nodes: list[str]) -> Results:
    from rackready.stacks.phase import run_provision  # noqa: PLC0415 - the Pulumi SDK takes a second to import

    return run_provision(ctx, nodes)


def _install(ctx: PhaseContext, nodes: list[str]) -> Results:
    from rackready.drivers.ansible import run_playbook  # noqa: PLC0415

    return run_playbook(ctx, "install.yml", nodes)


def _fabric(ctx: PhaseContext, nodes: list[str]) -> Results:
    """Configure the switches that these nodes are cabled to, then the nodes' NICs, then hold both ends of every cable against each other.

    A bad switch spoils only the nodes behind it.
    """
    from rackready.drivers.ansible import run_playbook  # noqa: PLC0415
    from rackready.drivers.switch.phase import run_switches  # noqa: PLC0415

    site = load_site(ctx.env, root=ctx.root)
    behind = {name: sorted({nic.switch for nic in node_facts(site, name).nics if nic.switch}) for name in nodes}
    switches = run_switches(ctx, sorted({switch for names in behind.values() for switch in names}))
    clear_idle(ctx, site)
    out: Results = {}
    for name in nodes:
        bad = [switches[switch] for switch in behind[name] if switches[switch].outcome is not Outcome.PASS]
        if bad:
            out[name] = NodeResult(Outcome.ERROR, bad[0].message)
    known = {"host_roce_known_peers": known_up(ctx, [node.name for node in site.nodes()], nodes)}
    hosts = run_playbook(ctx, "fabric.yml", [name for name in nodes if name not in out], known)
    for name, result in hosts.items():
        out[name] = replace(result, changed=result.changed or any(switches[switch].changed for switch in behind[name]))
    return out if ctx.check else out | _agreement(ctx, {name: out[name] for name in hosts if out[name].outcome is Outcome.PASS})


def _agreement(ctx: PhaseContext, done: Results) -> Results:
    from rackready.drivers.switch.agreement import verify_fabric  # noqa: PLC0415

    verified = verify_fabric(ctx, list(done)) if done else {}
    return {name: proven(replace(found, changed=done[name].changed), done[name].data.get("unmeasured", [])) for name, found in verified.items()}


def _optimize(ctx: PhaseContext, nodes: list[str]) -> Results:
    from rackready.drivers.ansible import run_playbook  # noqa: PLC0415

    return run_playbook(ctx, "optimize.yml", nodes)


def _certify(ctx: PhaseContext, nodes: list[str]) -> Results:
    from rackready.handover.certify import run_certify  # noqa: PLC0415

    return run_certify(ctx, nodes)


def _handover(ctx: PhaseContext, nodes: list[str]) -> Results:
    from rackready.handover.phase import run_handover  # noqa: PLC0415

    return run_handover(ctx, nodes)


PHASES: dict[str, Phase] = {
    "provision": Phase(
        _provision,
        whole_wave=True,
        holds=NodeState.DECLARED,
        reaches=((NodeState.REACHABLE, ""), (NodeState.INVENTORIED, _NO_PARTS), (NodeState.BASELINED, _NO_BASELINE), (NodeState.PROVISIONED, "")),
    ),
    "install": Phase(_install, whole_wave=False, holds=NodeState.PROVISIONED, reaches=((NodeState.INSTALLED, ""),), fail_quarantines=False),
    "fabric": Phase(_fabric, whole_wave=True, holds=NodeState.INSTALLED, reaches=((NodeState.CONNECTED, ""),), fail_quarantines=False),
    "validate": Phase(run_where_needed, whole_wave=True, holds=NodeState.CONNECTED, reaches=((NodeState.VALIDATED, ""),), touches=False),
    "optimize": Phase(_optimize, whole_wave=False, holds=NodeState.VALIDATED, reaches=((NodeState.OPTIMIZED, ""),), fail_quarantines=False),
    "revalidate": Phase(run_where_needed, whole_wave=True, holds=NodeState.OPTIMIZED, reaches=(), touches=False),
    "certify": Phase(_certify, whole_wave=True, holds=NodeState.OPTIMIZED, reaches=((NodeState.CERTIFIED, ""),), fail_quarantines=False, touches=False),
    "handover": Phase(_handover, whole_wave=True, holds=NodeState.CERTIFIED, reaches=((NodeState.READY, ""),), fail_quarantines=False, touches=False),
}

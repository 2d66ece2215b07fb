"""The phases: the call of each, whether it takes batches or the whole wave, and the states that a node reaches."""

from __future__ import annotations

from dataclasses import dataclass

from rackready.campaign.drained_phase import Results, Runner, run_drained
from rackready.campaign.evidence_check import run_before_optimize, run_where_needed
from rackready.model.phase import PhaseContext
from rackready.model.state import NodeState


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase. ``reaches``: the states that a pass takes the node through; its result has the notes on them."""

    run: Runner
    whole_wave: bool
    holds: NodeState
    """The state that is left to a node that was further when this phase goes wrong on it."""
    reaches: tuple[NodeState, ...]
    fail_quarantines: bool = True
    touches: bool = True
    """Whether it may change the node. A change voids earlier evidence, because the node has changed."""


def _provision(ctx: PhaseContext, nodes: list[str]) -> Results:
    from rackready.campaign.before_provision import run_prepared  # noqa: PLC0415
    from rackready.campaign.erase import run_erasing  # noqa: PLC0415
    from rackready.stacks.provision import run_provision  # noqa: PLC0415 - the Pulumi SDK takes a second to import

    return run_prepared(ctx, nodes, lambda own, due: run_erasing(own, run_provision, due))


def _take_out(ctx: PhaseContext, nodes: list[str]) -> Results:
    from rackready.campaign.upgrade.take_out import run_take_out  # noqa: PLC0415

    return run_take_out(ctx, nodes)


def _install(ctx: PhaseContext, nodes: list[str]) -> Results:
    from rackready.campaign.drift.applied import tuned  # noqa: PLC0415
    from rackready.campaign.proof import Played  # noqa: PLC0415
    from rackready.campaign.pull.run import runner  # noqa: PLC0415
    from rackready.campaign.reboot import run_with_reboot  # noqa: PLC0415

    before = tuned(ctx, nodes)
    play = Played("install.yml", lambda own: {"rackready_tuned": [node for node in before if node in own]})
    run = runner(ctx, "install", play)
    return run_with_reboot(ctx, lambda ctx, nodes: run_drained(ctx, "install", run, nodes), nodes)


def _baseline(ctx: PhaseContext, nodes: list[str]) -> Results:
    from rackready.campaign.baseline import run_baseline_drained  # noqa: PLC0415

    return run_baseline_drained(ctx, nodes)


def _fabric(ctx: PhaseContext, nodes: list[str]) -> Results:
    from rackready.campaign.fabric import run_fabric_drained  # noqa: PLC0415

    return run_fabric_drained(ctx, nodes)


def _optimize(ctx: PhaseContext, nodes: list[str]) -> Results:
    from rackready.campaign.proof import Played  # noqa: PLC0415
    from rackready.campaign.pull.run import runner  # noqa: PLC0415

    return run_drained(ctx, "optimize", runner(ctx, "optimize", Played("optimize.yml")), nodes)


def _certify(ctx: PhaseContext, nodes: list[str]) -> Results:
    from rackready.handover.certify import run_certify  # noqa: PLC0415

    return run_certify(ctx, nodes)


def _handover(ctx: PhaseContext, nodes: list[str]) -> Results:
    from rackready.handover.run import run_handover  # noqa: PLC0415

    return run_handover(ctx, nodes)


def _verify(ctx: PhaseContext, nodes: list[str]) -> Results:
    from rackready.handover.verify import run_verify  # noqa: PLC0415

    return run_verify(ctx, nodes)


PHASES: dict[str, Phase] = {
    "provision": Phase(
        _provision,
        whole_wave=True,
        holds=NodeState.DECLARED,
        reaches=(
            NodeState.REACHABLE,
            NodeState.INVENTORIED,
            NodeState.BASELINED,
            NodeState.PROVISIONED,
        ),
    ),
    "take-out": Phase(
        _take_out,
        whole_wave=True,
        holds=NodeState.CERTIFIED,
        reaches=(),
        fail_quarantines=False,
        touches=False,
    ),
    "install": Phase(
        _install,
        whole_wave=False,
        holds=NodeState.PROVISIONED,
        reaches=(NodeState.INSTALLED,),
        fail_quarantines=False,
    ),
    "baseline": Phase(
        _baseline,
        whole_wave=True,
        holds=NodeState.INSTALLED,
        reaches=(),
        fail_quarantines=False,
    ),
    "fabric": Phase(
        _fabric,
        whole_wave=True,
        holds=NodeState.INSTALLED,
        reaches=(NodeState.CONNECTED,),
        fail_quarantines=False,
    ),
    "validate": Phase(
        run_before_optimize,
        whole_wave=True,
        holds=NodeState.CONNECTED,
        reaches=(NodeState.VALIDATED,),
        touches=False,
    ),
    "optimize": Phase(
        _optimize,
        whole_wave=False,
        holds=NodeState.VALIDATED,
        reaches=(NodeState.OPTIMIZED,),
        fail_quarantines=False,
    ),
    "revalidate": Phase(run_where_needed, whole_wave=True, holds=NodeState.OPTIMIZED, reaches=(), touches=False),
    "certify": Phase(
        _certify,
        whole_wave=True,
        holds=NodeState.OPTIMIZED,
        reaches=(NodeState.CERTIFIED,),
        fail_quarantines=False,
        touches=False,
    ),
    "handover": Phase(
        _handover,
        whole_wave=True,
        holds=NodeState.CERTIFIED,
        reaches=(NodeState.READY,),
        fail_quarantines=False,
        touches=False,
    ),
    "verify": Phase(_verify, whole_wave=False, holds=NodeState.CONNECTED, reaches=(), touches=False),
}

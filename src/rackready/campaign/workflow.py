"""The durable steps of a campaign: waves, phases, batches.

Steps return results, so that a resumed campaign continues where it stopped. Raise ``CAMPAIGN_ABI`` with every change of
the order or the arguments of steps.
"""

from __future__ import annotations

from typing import Any

from dbos import DBOS

from rackready.campaign.phase_table import PHASES
from rackready.campaign.request import CampaignRequest
from rackready.campaign.step import run_phase
from rackready.model.outcome import CONTINUES
from rackready.model.phase import PLAN

QUEUE = "rackready-batches"
BATCHES_AT_ONCE = 2

POLL_S = 0.1
"""How often the engine looks for batches to begin and for their results, s."""

_PERCENT = 100


@DBOS.step(name="phase")
def phase_step(request: dict[str, Any], phase: str, nodes: list[str]) -> dict[str, dict[str, Any]]:
    """One tool run for a batch of nodes."""
    return run_phase(CampaignRequest.load(request), phase, nodes)


@DBOS.workflow(name="batch")
def batch_workflow(request: dict[str, Any], phase: str, nodes: list[str]) -> dict[str, dict[str, Any]]:
    """One batch of one phase, on the queue."""
    return phase_step(request, phase, nodes)


@DBOS.workflow(name="campaign")
def campaign_workflow(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Take every node through the phases, wave by wave. Return node -> its last result, with the phase of it."""
    request = CampaignRequest.load(data)
    out: dict[str, dict[str, Any]] = {}
    for wave in request.waves():
        results = _wave(request, data, list(wave))
        out |= results
        bad = sum(1 for result in results.values() if result["outcome"] not in CONTINUES)
        if bad * _PERCENT > request.stop_above_pct * len(wave):
            break
    return out


def _wave(request: CampaignRequest, data: dict[str, Any], nodes: list[str]) -> dict[str, dict[str, Any]]:
    last: dict[str, dict[str, Any]] = {}
    changed: dict[str, bool] = dict.fromkeys(nodes, False)
    plans: dict[str, dict[str, Any]] = {node: {} for node in nodes}
    for phase in request.phases:
        if not nodes:
            break
        batches = [tuple(nodes)] if PHASES[phase].whole_wave else request.batches(nodes)
        handles = [DBOS.enqueue_workflow(QUEUE, batch_workflow, data, phase, list(batch)) for batch in batches]
        for handle in handles:
            for node, result in handle.get_result(polling_interval_sec=POLL_S).items():
                changed[node] = changed[node] or result["changed"]
                if PLAN in result:
                    plans[node][phase] = result[PLAN]
                last[node] = {**result, "phase": phase, "changed": changed[node]}
                if plans[node]:
                    last[node][PLAN] = plans[node]
        nodes = [node for node in nodes if last[node]["outcome"] in CONTINUES]
    return last

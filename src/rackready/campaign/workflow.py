"""The durable steps of a campaign: waves, phases, batches.

Steps return results, so that a resumed campaign continues where it stopped. Raise ``CAMPAIGN_ABI`` with every change of
the order or the arguments of steps.
"""

from __future__ import annotations

import time
from typing import Any

from dbos import DBOS

from rackready.campaign.failure_kinds import kinds
from rackready.campaign.phase_table import PHASES
from rackready.campaign.request import CampaignRequest
from rackready.campaign.step import run_phase
from rackready.campaign.stop_request import StopRequest, look
from rackready.evidence.store import EvidenceStore
from rackready.ledger.store import Ledger
from rackready.model.outcome import CONTINUES
from rackready.model.phase import PLAN

QUEUE = "rackready-batches"

POLL_S = 0.1
"""How often the engine looks for batches to begin and for their results in the first seconds of a new phase, s."""

_OFTEN = 50
_LEAST_S, _MOST_S = 0.02, 0.5
"""It looks so many times while a batch works, within these limits, s. A look costs some milliseconds (judgement)."""

_PERCENT = 100

Results = dict[str, dict[str, Any]]
"""Node -> its last result, with the phase of it."""


class Pace:
    """How often to look for batches of the present phase: seldom for an hour's work, at once for a moment's."""

    def __init__(self) -> None:
        self._known: dict[str, float] = {}
        self.turn_to("")

    def took(self, phase: str, seconds: float) -> None:
        """Note how long a batch of a phase took."""
        self._known[phase] = seconds

    def turn_to(self, phase: str) -> None:
        """Note that a phase begins."""
        self._phase, self._begun = phase, time.monotonic()

    @property
    def seconds(self) -> float:
        """Time between two looks now, s. Batches of a new phase take at least as long as the first has taken so far."""
        known = self._known.get(self._phase)
        least = POLL_S if known is None else _LEAST_S
        takes = time.monotonic() - self._begun if known is None else known
        return min(_MOST_S, max(least, takes / _OFTEN))


pace = Pace()


@DBOS.step(name="phase")
def phase_step(request: dict[str, Any], phase: str, nodes: list[str]) -> dict[str, dict[str, Any]]:
    """One tool run for a batch of nodes. ``request``: without the nodes of the campaign."""
    began = time.monotonic()
    results = run_phase(CampaignRequest.load(request), phase, nodes)
    pace.took(phase, time.monotonic() - began)
    return results


@DBOS.workflow(name="batch")
def batch_workflow(request: dict[str, Any], phase: str, nodes: list[str]) -> dict[str, dict[str, Any]]:
    """One batch of one phase, on the queue."""
    return phase_step(request, phase, nodes)


@DBOS.step(name="asked")
def asked_step(request: dict[str, Any]) -> str:
    """Return what a second terminal asks of the campaign: pause, abort or nothing."""
    paths = CampaignRequest.load(request).paths
    return look(paths.deploy_request).value


@DBOS.step(name="kinds")
def kinds_step(request: dict[str, Any], results: Results) -> list[str]:
    """Return what went wrong in a wave, by code."""
    campaign = CampaignRequest.load(request)
    with Ledger.read_only(campaign.paths.database) as ledger:
        store = EvidenceStore.open(ledger, campaign.paths.raw)
        return sorted({kind for node in results for kind in kinds(node, results[node], campaign.campaign, store)})


@DBOS.workflow(name="campaign")
def campaign_workflow(data: dict[str, Any]) -> dict[str, Any]:
    """Take every node through the phases, wave by wave.

    Returns ``nodes``, the results; ``asked``, what a second terminal ended it with; ``stopped``, why it ended early.
    """
    request = CampaignRequest.load(data)
    out: Results = {}
    seen: set[str] = set()
    waves = request.waves()
    lean = {**data, "nodes": []}
    for number, wave in enumerate(waves, 1):
        asked, results = _wave(request, lean, list(wave))
        out |= results
        if asked is not StopRequest.NOTHING:
            return {"nodes": out, "asked": asked.value, "stopped": f"asked by another terminal to {asked.value}"}
        reasons = _reasons(request, lean, f"wave {number}", len(wave), results, seen)
        if reasons and number < len(waves):
            return {"nodes": out, "asked": "", "stopped": "; ".join(reasons)}
    return {"nodes": out, "asked": "", "stopped": ""}


def _reasons(
    request: CampaignRequest, data: dict[str, Any], wave: str, size: int, results: Results, seen: set[str]
) -> list[str]:
    """Return why no further wave may begin after this one, and add its kinds of failure to those that were seen."""
    bad = {node: result for node, result in results.items() if result["outcome"] not in CONTINUES}
    out = []
    if request.stop_at_new_kind and bad:
        new = sorted(set(kinds_step(data, bad)) - seen)
        seen.update(new)
        out += [f"new kind of failure in {wave}: {', '.join(new)}"] if new else []
    if len(bad) * _PERCENT > request.stop_above_pct * size:
        out.append(f"{len(bad)} of {size} nodes of {wave} failed, more than {request.stop_above_pct} %")
    return out


def _wave(request: CampaignRequest, data: dict[str, Any], nodes: list[str]) -> tuple[StopRequest, Results]:
    """Take nodes through the phases. ``data``: each batch gets it; 12,500 names in each would be hundreds of MiB."""
    last: Results = {}
    changed: dict[str, bool] = dict.fromkeys(nodes, False)
    plans: dict[str, dict[str, Any]] = {node: {} for node in nodes}
    for phase in request.phases:
        if not nodes:
            break
        asked = StopRequest(asked_step(data)) if request.can_pause else StopRequest.NOTHING
        if asked is not StopRequest.NOTHING:
            return asked, last
        batches = [tuple(nodes)] if PHASES[phase].whole_wave else request.batches(nodes)
        pace.turn_to(phase)
        handles = [DBOS.enqueue_workflow(QUEUE, batch_workflow, data, phase, list(batch)) for batch in batches]
        for handle in handles:
            for node, result in handle.get_result(polling_interval_sec=pace.seconds).items():
                changed[node] = changed[node] or result["changed"]
                if PLAN in result:
                    plans[node][phase] = result[PLAN]
                last[node] = {**result, "phase": phase, "changed": changed[node]}
                if plans[node]:
                    last[node][PLAN] = plans[node]
        nodes = [node for node in nodes if last[node]["outcome"] in CONTINUES]
    return StopRequest.NOTHING, last

"""rackready's own metrics: states of nodes, the newest campaign, results of gates, and what the plan expects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rackready import __version__
from rackready.design.endpoints import unit_of
from rackready.design.facts import node_facts
from rackready.design.handover_of import handover_site, part_of
from rackready.design.monitoring.condition import AWAY_STATES
from rackready.evidence.store import EvidenceStore
from rackready.ledger.store import NodeRow
from rackready.model.outcome import Outcome
from rackready.model.site import Node, Rack, Site
from rackready.model.state import NodeState
from rackready.render.exposition import Labels, MetricFamily

_BYTES = 1e9 / 8
"""Bytes/s of 1 Gb/s, as node_exporter counts rates."""


def metrics(
    site: Site,
    rows: Mapping[str, NodeRow],
    store: EvidenceStore | None,
    campaign: Mapping[str, Any] | None,
    now: float,
) -> list[MetricFamily]:
    """Return all metrics. ``rows``: node -> its state; a node without one is declared. ``now``: seconds since 1970."""
    written = MetricFamily("rackready_metrics_timestamp_seconds", "When these metrics were written.")
    written.add(now, {"site": site.name})
    version = MetricFamily("rackready_info", "Version of rackready.")
    version.add(1, {"site": site.name, "version": __version__})
    return [written, version, *_states(site, rows), *_expected(site, rows), *_campaign(site, campaign)] + (
        list(_evidence(site, store)) if store is not None else []
    )


def _nodes(site: Site) -> Iterator[tuple[Node, Labels]]:
    for rack in site.racks:
        for node in rack.nodes:
            yield node, _place(site, rack, node)


def _place(site: Site, rack: Rack, node: Node) -> dict[str, str]:
    return {"site": site.name, "rack": rack.name, "unit": str(unit_of(site, rack)), "node": node.name}


def _state(rows: Mapping[str, NodeRow], node: str) -> NodeState:
    return rows[node].state if node in rows else NodeState.DECLARED


def _states(site: Site, rows: Mapping[str, NodeRow]) -> Iterator[MetricFamily]:
    state = MetricFamily("rackready_node_state", "State of the node: 1 for the state that it has, no other is listed.")
    since = MetricFamily("rackready_node_state_since_timestamp_seconds", "Since when the node has its state.")
    scheduler = MetricFamily("rackready_node_scheduler_info", "Scheduler of the node; part: of several, its own one.")
    for node, place in _nodes(site):
        seen = handover_site(site, node.name)
        scheduler.add(1, {**place, "scheduler": seen.handover.kind, "part": part_of(seen)})
        state.add(1, {**place, "state": _state(rows, node.name).value})
        if node.name in rows:
            since.add(rows[node.name].since, place)
    yield from (state, since, scheduler)


def _expected(site: Site, rows: Mapping[str, NodeRow]) -> Iterator[MetricFamily]:
    """Yield what the plan expects of each node that has been connected, and is not away."""
    gpus = MetricFamily("rackready_node_gpus_expected", "GPUs of the node's server model.")
    rails = MetricFamily("rackready_rail_info", "Planned rails: RDMA device, switch and its port.")
    rates = MetricFamily("rackready_rail_rate_bytes_per_second", "Planned rate of the rail.")
    for node, place in _nodes(site):
        if _state(rows, node.name) in AWAY_STATES:
            continue
        facts = node_facts(site, node.name)
        gpus.add(facts.platform.gpus, place)
        for nic in facts.nics:
            if not nic.rdma_device:
                continue
            own = {"rail": str(nic.rail), "device": nic.rdma_device, "switch": nic.switch, "switch_port": nic.port}
            rails.add(1, {**place, **own})
            rates.add(nic.rate * _BYTES, {**place, **own})
    yield from (gpus, rails, rates)


def _campaign(site: Site, campaign: Mapping[str, Any] | None) -> Iterator[MetricFamily]:
    """Yield the newest campaign. ``status`` is as `rackready status` shows it."""
    if campaign is None:
        return
    own = {"site": site.name, "campaign": campaign["id"], "kind": campaign["kind"]}
    status = MetricFamily("rackready_campaign_status", "Status of the newest campaign: 1 for the one that it has.")
    status.add(1, {**own, "status": campaign["status"]})
    begun = MetricFamily("rackready_campaign_begun_timestamp_seconds", "When the newest campaign began.")
    begun.add(campaign["begun"], own)
    ended = MetricFamily("rackready_campaign_ended_timestamp_seconds", "When the newest campaign ended.")
    if campaign["ended"] is not None:
        ended.add(campaign["ended"], own)
    yield from (status, begun, ended)


def _evidence(site: Site, store: EvidenceStore) -> Iterator[MetricFamily]:
    results = MetricFamily("rackready_node_gate_results", "Gates of the node by the outcome of their last record.")
    newest = MetricFamily("rackready_node_evidence_timestamp_seconds", "When the node was measured last.")
    for node, place in _nodes(site):
        records = store.concluded(node.name)
        if not records:
            continue
        found = Counter(record.verdict.outcome for record in records.values())
        for outcome in Outcome:
            results.add(found[outcome], {**place, "outcome": outcome.value})
        newest.add(max(record.finished for record in records.values()).timestamp(), place)
    yield from (results, newest)

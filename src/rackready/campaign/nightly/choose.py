"""Which nodes a night takes next: due and idle ones, oldest evidence first, within its share of every group."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rackready.campaign.upgrade.order import circles
from rackready.design.handover_of import by_scheduler
from rackready.drivers.scheduler.places import places
from rackready.drivers.scheduler.registry import adapter_for, reader_for
from rackready.evidence.store import EvidenceStore
from rackready.gates.engine.registry import gate
from rackready.ledger.store import Ledger
from rackready.model.evidence import EvidenceRecord
from rackready.model.outcome import Outcome
from rackready.model.problems import RackreadyError, quoted
from rackready.model.profile import GateSetEntry
from rackready.model.site import Site
from rackready.paths import EnvPaths

FRESH_S = 12 * 3600.0
"""A node whose gates under load ran within this time is not due. Judgement: it is half of a day, so a second run in the
same night measures nobody twice, and the next night measures everybody."""

_MEASURED = frozenset({Outcome.PASS, Outcome.FAIL, Outcome.SKIP})
_LEAST, _TARGETS = 2048, 64
"""Targets that are read: nodes, and runs between them, of which a node has one for each rail and partner."""


def measured_at(
    store: EvidenceStore, entries: Sequence[GateSetEntry], nodes: Sequence[str], *, tried: bool = False
) -> dict[str, float]:
    """Return when each node was last measured under load by every one of these gates (s since 1970), 0.0 for never.

    Gates that only look do not count: every deploy runs them. A gate that no node ever ran does not count either: it
    measures nothing here. An error is no measurement; with ``tried`` it counts, so that a node whose program is missing
    is not the first of every night.
    """
    oldest = dict.fromkeys(nodes, float("inf"))
    for loads in (entry.id for entry in entries if not gate(entry.id, {}).looks):
        newest = newest_of(store, loads, nodes)
        for node in nodes if newest else ():
            record = newest.get(node)
            done = record is not None and (tried or record.verdict.outcome in _MEASURED)
            oldest[node] = min(oldest[node], record.finished.timestamp() if record is not None and done else 0.0)
    return {node: 0.0 if at == float("inf") else at for node, at in oldest.items()}


def newest_of(store: EvidenceStore, gate_id: str, nodes: Sequence[str]) -> dict[str, EvidenceRecord]:
    """Return target -> the newest record of a gate, for so many targets that every node is among them."""
    return store.newest(gate_id, most=max(_LEAST, _TARGETS * len(nodes)))


def groups(site: Site) -> dict[str, frozenset[str]]:
    """Return the groups of which a night takes a share at once: the fleet, racks, tenants, and schedulers."""
    racks = {f"rack {rack.name}": frozenset(node.name for node in rack.nodes) for rack in site.racks}
    return {"the fleet": frozenset(node.name for node in site.nodes()), **racks, **circles(site)}


def batch(
    waiting: Sequence[str], idle: Collection[str], serving: Collection[str], site: Site, share_pct: int
) -> list[str]:
    """Return the next nodes of ``waiting``, in its order: idle ones, never more than the share of any of their groups.

    ``serving``: the nodes in production. Of every group, one node may always be taken: else a small one never was.
    """
    members = groups(site)
    room = {name: max(1, len(names & set(serving)) * share_pct // 100) for name, names in members.items()}
    chosen: list[str] = []
    for node in (node for node in waiting if node in idle):
        mine = [name for name, names in members.items() if node in names]
        if all(room[name] > 0 for name in mine):
            chosen.append(node)
            for name in mine:
                room[name] -= 1
    return chosen


def why_not_idle(
    site: Site, paths: EnvPaths, ledger: Ledger, nodes: Sequence[str], within_s: float, *, reads: bool = False
) -> dict[str, str | RackreadyError]:
    """Return why each node is not idle by its scheduler, "" for an idle one, or the error of asking.

    ``reads``: connecting writes nothing.
    """
    out: dict[str, str | RackreadyError] = {}
    twice = _elsewhere(site, ledger, nodes)
    for view in by_scheduler(site, [node for node in nodes if node not in twice]):
        try:
            with (reader_for if reads else adapter_for)(view.site, paths) as adapter:
                if adapter.knows_jobs:
                    out |= dict(adapter.not_idle(view.nodes, within_s))
                else:
                    out |= dict.fromkeys(view.nodes, "its handover is a file, which knows of no jobs")
        except RackreadyError as error:
            out |= dict.fromkeys(view.nodes, error)
    return out | twice


def _elsewhere(site: Site, ledger: Ledger, nodes: Sequence[str]) -> dict[str, str | RackreadyError]:
    """Return the nodes that may run jobs of a scheduler that the site gave them away from."""
    own = {node: view.called for view in by_scheduler(site, nodes) for node in view.nodes}
    return {
        node: f"it may still be in {view.called}: `rackready deploy` moves it"
        for view in places(site, ledger, nodes)
        for node in view.nodes
        if view.called != own[node]
    }


def split(answers: Mapping[str, str | RackreadyError]) -> tuple[set[str], dict[str, str], dict[str, str]]:
    """Return the idle nodes, node -> why it is not idle, and node -> why that is not known."""
    unknown = {node: quoted(str(answer)) for node, answer in answers.items() if isinstance(answer, RackreadyError)}
    busy = {node: answer for node, answer in answers.items() if isinstance(answer, str) and answer}
    idle = {node for node in answers if node not in unknown and node not in busy}
    return idle, busy, unknown

"""The schedulers in which a node may run jobs: its own, and the one to which it was handed over before it moved.

A site with several schedulers may be edited while its nodes are in production. The ledger knows to which scheduler a
node was handed over. It is drained there before anything is done to it, and before the other one offers it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rackready.design.handover_of import HandoverView, by_scheduler, handover_site, handover_views, part_of, place_of
from rackready.drivers.scheduler.base import PREFIX, LostNodeError, SchedulerError, UnknownNodeError
from rackready.drivers.scheduler.slurm_text import of_registration
from rackready.ledger.store import Ledger, LedgerEntry
from rackready.model.commands import repair
from rackready.model.kubernetes import KubernetesHandover
from rackready.model.problems import Message
from rackready.model.several import SeveralHandover
from rackready.model.site import Site

RELEASE, DRAIN = "scheduler-release", "scheduler-drain"
"""Operations of the ledger."""

PART, PLACE, NAME = "part", "scheduler", "called"
"""In the ledger entry of a release, among what was observed: part of the site, its scheduler, the node's name there."""


@dataclass(frozen=True, slots=True)
class HandedTo:
    """The scheduler to which a node was handed over last. ``place`` is empty where an older version did it."""

    part: str
    place: str
    current: bool
    """Whether the node was not repaired since."""
    name: str = ""
    """Its name there; "" where it is that of the site."""

    @property
    def called(self) -> str:
        """Return it in words."""
        return f"part {self.part} ({self.place})" if self.part else self.place or "a scheduler"


def where(site: Site, node: str) -> dict[str, str]:
    """Return what the ledger keeps of the scheduler that a node is handed over to."""
    seen = handover_site(site, node)
    own = seen.handover.node_name(node) if isinstance(seen.handover, KubernetesHandover) else node
    return {PART: part_of(seen), PLACE: place_of(seen), **({NAME: own} if own != node else {})}


def handed_to(ledger: Ledger, node: str) -> HandedTo | None:
    """Return the scheduler to which a node was handed over last, or was about to be; None if it never was."""
    found = [entry for entry in ledger.entries(node) if entry.operation == RELEASE and entry.status != "failed"]
    if not found:
        return None
    seen = found[-1].observed
    current = found[-1].epoch == ledger.epoch(node)
    return HandedTo(str(seen.get(PART, "")), str(seen.get(PLACE, "")), current, str(seen.get(NAME, "")))


def drained_by_us(entries: Iterable[LedgerEntry], place: str) -> bool:
    """Return whether the last drain that the ledger knows of a node, after its last release, is rackready's.

    ``entries``: those of the node, oldest first. Drains in another scheduler than ``place`` do not count. A drain that
    changed nothing shows whose reason the node had.
    """
    ours = False
    for entry in entries:
        if entry.operation == RELEASE and entry.status != "failed":
            ours = False
        elif entry.operation == DRAIN and entry.status == "done" and entry.observed.get(PLACE, place) == place:
            found = str(entry.observed.get("reason", ""))
            kept = ours and of_registration(found)  # slurmctld wrote over ours
            ours = bool(entry.result.get("changed")) or found.startswith(PREFIX) or kept
    return ours


def record_drain(ledger: Ledger, node: str, wanted: str, observed: Mapping[str, object], *, changed: bool) -> None:
    """Record a drain of a node that is in its scheduler already. ``observed``: its reason before, and the place."""
    entry = ledger.begin(node, DRAIN, drain_digest(wanted), dict(observed))
    ledger.done(entry.token, {"changed": changed})


def drain_digest(reason: str) -> str:
    """Return what the ledger keeps of a drain's reason: SHA-256, hex."""
    return hashlib.sha256(reason.encode()).hexdigest()


def earlier(site: Site, record: HandedTo, node: str) -> list[Site]:
    """Return the other schedulers of the site in which a node may still be, as their nodes see the site.

    Where the record names none of them, it may be in each.
    """
    if not isinstance(site.handover, SeveralHandover):
        return []
    views = [view.site for view in handover_views(site)]
    own = handover_site(site, node)
    same = [view for view in views if place_of(view) == record.place] or [
        view for view in views if record.part and part_of(view) == record.part
    ]
    return [view for view in same or views if part_of(view) != part_of(own)]


def stranded(site: Site, ledger: Ledger, node: str) -> Message | None:
    """Return why a node cannot be looked for: it was handed over to a scheduler that the site no longer names."""
    record = handed_to(ledger, node)
    if record is None or not record.place or not record.current:
        return None
    views = [view.site for view in handover_views(site)]
    if not isinstance(site.handover, SeveralHandover) and not record.part:
        return None  # the only scheduler has another address now, as its owner wants it
    if any(place_of(view) == record.place or part_of(view) == record.part != "" for view in views):
        return None
    return Message(
        node,
        f"handed over to {record.called}",
        expected="a scheduler that the site names, so that it can be drained there",
        actual=", ".join(place_of(view) for view in views),
        next_step="Nothing was changed. Put that scheduler back into the site and drain the node; or drain it there by "
        f"hand, wait for its jobs, then run {repair(node)}.",
    )


def absence(site: Site, ledger: Ledger, node: str, error: UnknownNodeError) -> SchedulerError:
    """Return ``error`` where a scheduler that does not know a node runs no jobs on it, else that the node is lost.

    Kubernetes is asked by a name that the site file makes. A node that was handed over to it may run pods under its
    former name, or in the cluster of another context, until a repair says that it does not. ``site``: as the nodes of
    the scheduler see it.
    """
    handover, record = site.handover, handed_to(ledger, node)
    if not isinstance(handover, KubernetesHandover) or record is None or not record.current:
        return error
    if not _was_here(site, handover, record):
        return error
    return LostNodeError(
        node,
        f"handed over to {record.called}{f' as {record.name or node}' if record.place else ''}",
        expected=f"a Node for it in {place_of(site)}, so that its pods are known",
        actual=f"no Node {handover.node_name(node)}",
        next_step="Nothing was changed: its pods may run under another name or in another cluster. Correct "
        "node_suffix, node_names or context of handover. If it was taken out of the cluster, run "
        f"{repair(node)}, then run again.",
    )


def _was_here(site: Site, handover: KubernetesHandover, record: HandedTo) -> bool:
    """Return whether a node was handed over to this cluster, as far as the ledger knows.

    A site with one scheduler may name its cluster in other words since.
    """
    if record.place and not record.place.startswith(f"{handover.kind} "):
        return False
    if site.part is None:
        return True
    return place_of(site) == record.place or part_of(site) == record.part


def moved(site: Site, ledger: Ledger, nodes: Iterable[str]) -> list[HandoverView]:
    """Return the schedulers in which nodes may still be since the site gave them to another, each with those nodes."""
    if not isinstance(site.handover, SeveralHandover):
        return []
    held: dict[str, dict[str, str]] = {}
    for node in nodes:
        record = handed_to(ledger, node)
        for view in earlier(site, record, node) if record is not None else ():
            held.setdefault(part_of(view), {})[node] = record.name if record is not None else ""
    return [
        HandoverView(_with_names(view.site, held[view.called]), tuple(held[view.called]))
        for view in handover_views(site)
        if view.called in held
    ]


def _with_names(site: Site, names: Mapping[str, str]) -> Site:
    """Return the site with the names that nodes had in a cluster: the site file may have lost them with the move."""
    handover = site.handover
    kept = {node: name for node, name in names.items() if name}
    if not isinstance(handover, KubernetesHandover) or not kept:
        return site
    own = handover.model_copy(update={"node_names": {**handover.node_names, **kept}})
    return site.model_copy(update={"handover": own})


def twice_in(views: Iterable[HandoverView]) -> frozenset[str]:
    """Return the nodes that are in more than one of these schedulers."""
    times = Counter(node for view in views for node in view.nodes)
    return frozenset(node for node, count in times.items() if count > 1)


def places(site: Site, ledger: Ledger, nodes: Sequence[str]) -> list[HandoverView]:
    """Return every scheduler in which these nodes may run jobs: first where they were, then their own."""
    return [*moved(site, ledger, nodes), *by_scheduler(site, nodes)]

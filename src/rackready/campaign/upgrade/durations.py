"""How long a node takes, from the ledger: the latest nodes that were installed with changes and handed over."""

from __future__ import annotations

from dataclasses import dataclass

from rackready.ledger.store import CHANGE, Ledger

_CAMPAIGNS = 20
"""Campaigns that are read, newest first."""
_FIRST, _LAST = "install", "handover"
KIND = "upgrade"
_KINDS = (KIND, "deploy")
"""Campaigns that say something; an upgrade says more than a first deploy."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The longest time of a node from the begin of its change until it was handed over, s, and where it is from.

    ``whole``: the operator stated it for a whole wave, its way back included.
    """

    seconds: float
    source: str
    whole: bool = False

    @property
    def wave_s(self) -> float:
        """Return the longest that a wave may work: the way back is the same work again."""
        return self.seconds if self.whole else 2 * self.seconds


def expected(ledger: Ledger) -> Expected | None:
    """Return the longest duration in the newest upgrade, else deploy, that changed nodes; None if none did."""
    rows = [row for row in ledger.campaign_heads() if row["kind"] in _KINDS][:_CAMPAIGNS]
    for kind in _KINDS:
        for row in rows:
            if row["kind"] == kind and (found := _of_campaign(ledger, row["id"])):
                return Expected(max(found), f"longest of {len(found)} nodes in campaign {row['id']}")
    return None


def _of_campaign(ledger: Ledger, campaign: str) -> list[float]:
    begun: dict[str, float] = {}
    ended: dict[str, float] = {}
    for event in ledger.progress(campaign):
        if event.phase == _FIRST:
            begun.setdefault(event.node, event.at)
        if event.phase == _LAST and event.level == "ok":
            ended[event.node] = event.at
    return [ended[node] - at for node, at in begun.items() if node in ended and _changed(ledger, node, at, ended[node])]


def _changed(ledger: Ledger, node: str, begun: float, ended: float) -> bool:
    """Return whether the install phase changed the node in that time."""
    return any(
        entry.operation == CHANGE and entry.desired == _FIRST and entry.status == "done" and begun - 1 <= entry.begun
        for entry in ledger.entries(node)
        if entry.begun <= ended
    )

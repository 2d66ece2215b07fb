"""Checks of ``gates``: skips and kill switches name existing gates and nodes, and a kill switch ends soon."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

from rackready.design.check_names import members
from rackready.design.site_flaws import Flaw, Subject
from rackready.model.site import Site
from rackready.profiles import loader

LONGEST_DAYS = 90
"""How far ahead a kill switch may end.

Our judgement: no gate should be off for longer than a quarter without a new decision.
"""

_SHOWN = 3
"""Number of nodes that a message lists."""


def today() -> date:
    """Return the date by which kill switches are judged, in UTC."""
    return datetime.now(UTC).date()


def check_gates(subject: Subject) -> list[Flaw]:
    """Return problems with skips, kill switches and additional gates."""
    site = subject.site
    if site.gates.set not in loader.known("gate_sets"):
        return []
    ids = [entry.id for entry in loader.gates_of(site.gates)]
    nodes = {node.name for node in site.nodes()}
    out: list[Flaw] = []
    for k, skip in enumerate(site.gates.skip):
        out += _unknown(site, ids, skip.gate, ("gates", "skip", k, "gate"))
        out += members(skip.nodes, nodes, ("gates", "skip", k, "nodes"), "node", subject.lost.of("nodes"))[1]
    if not subject.lost.any("skip"):  # the message names positions, which must be those in the file
        out += _skipped_twice(site)
    return [*out, *_disabled(site, ids), *_twice(site)]


def _twice(site: Site) -> Iterator[Flaw]:
    seen: set[str] = set()
    for k, entry in enumerate(site.gates.also):
        if entry.id in seen:
            yield Flaw(("gates", "also", k, "id"), f"gate {entry.id} is given twice.", "Keep one of the two.")
        seen.add(entry.id)


def _skipped_twice(site: Site) -> Iterator[Flaw]:
    """Yield skips of a gate on nodes that an earlier skip already covers: only one of the two reasons would be read."""
    for k, skip in enumerate(site.gates.skip):
        for before, other in enumerate(site.gates.skip[:k]):
            both = sorted(skip.names & other.names) if skip.gate == other.gate else []
            if both:
                where = ", ".join(both[:_SHOWN]) + (f" and {len(both) - _SHOWN} more" if len(both) > _SHOWN else "")
                yield Flaw.of(
                    ("gates", "skip", k, "nodes"),
                    f"gate {skip.gate} is skipped twice on {where}",
                    "Keep one of the two.",
                    expected="one reason",
                    actual=f"another in gates.skip[{before}]",
                    reads=(("gates", "skip", before, "nodes"),),
                )


def _unknown(site: Site, ids: list[str], gate: str, loc: tuple[str | int, ...]) -> Iterator[Flaw]:
    if gate in ids:
        return
    # Gates outside the site's own set can be run by name, with the same skips.
    every = {entry.id for name in loader.known("gate_sets") for entry in loader.gate_set(name).gates}
    if gate not in every:
        yield Flaw.of(
            loc,
            f"gate {gate} is in no gate set",
            "Correct it.",
            expected=f"one of {', '.join(ids)} (set {site.gates.set}), or a gate of another set",
            reads=(("gates", "set"),),
        )


def _disabled(site: Site, ids: list[str]) -> Iterator[Flaw]:
    seen: set[str] = set()
    last = today() + timedelta(days=LONGEST_DAYS)
    for k, item in enumerate(site.gates.disabled):
        yield from _unknown(site, ids, item.gate, ("gates", "disabled", k, "gate"))
        if item.gate in seen:
            yield Flaw(("gates", "disabled", k, "gate"), f"gate {item.gate} is disabled twice.", "Keep one of the two.")
        seen.add(item.gate)
        if item.until > last:
            yield Flaw.of(
                ("gates", "disabled", k, "until"),
                f"gate {item.gate} is disabled until {item.until}",
                "Set an earlier date and review the gate then.",
                expected=f"{last} or before (at most {LONGEST_DAYS} days ahead)",
            )


def warnings(site: Site, day: date) -> list[str]:
    """Return notes on entries of the site file that have expired. They do not invalidate it."""
    return [
        f"gates.disabled[{place}]: the kill switch of {item.gate} ended on {item.until}; the gate runs again. "
        f"Remove the entry, or have {item.by} renew it with a new date and reason."
        for place, item in enumerate(site.gates.disabled)
        if item.until < day
    ]

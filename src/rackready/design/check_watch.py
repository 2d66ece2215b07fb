"""Checks the conditions that a site lets drain, or forbids to: they must be those of the table of alerts."""

from __future__ import annotations

from rackready.design.monitoring.condition import Act
from rackready.design.monitoring.conditions import conditions
from rackready.design.site_flaws import Flaw, Loc, Subject


def check_watch(subject: Subject) -> list[Flaw]:
    """Return a flaw for each name that is no condition of that kind."""
    watch = subject.site.watch
    return [
        *_unknown("never_drain", watch.never_drain, Act.DRAIN, "drain"),
        *_unknown("also_drain", watch.also_drain, Act.TICKET, "only open a ticket"),
    ]


def _unknown(key: str, names: list[str], act: Act, words: str) -> list[Flaw]:
    known = sorted(condition.id for condition in conditions() if condition.watch is act) if names else []
    out = []
    for number, name in enumerate(names):
        loc: Loc = ("watch", key, number)
        if name not in known:
            out.append(
                Flaw.of(
                    loc,
                    f"{name} is not a condition of this kind",
                    "Take it from docs/reference/alerts.md.",
                    expected=f"one of those that {words} by default: {', '.join(known)}",
                    actual=name,
                )
            )
    return out

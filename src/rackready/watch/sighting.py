"""A sighting: one condition of the table of alerts, seen on one part of a node."""

from __future__ import annotations

from dataclasses import dataclass

from rackready.design.monitoring.condition import Act, Condition
from rackready.design.monitoring.conditions import by_id
from rackready.model.watch import Watch


@dataclass(frozen=True, slots=True)
class Sighting:
    """What was seen. ``part``: as findings name it. ``slot``: its place. ``after_s``: it must hold so long to count."""

    condition: str
    part: str
    actual: str
    slot: str = ""
    after_s: int = 0

    @property
    def about(self) -> Condition:
        """Return the condition."""
        return by_id()[self.condition]

    def reason(self, node: str) -> str:
        """Return the reason of a drain: the condition's id comes first, as in alerts and tickets."""
        return f"{self.condition}: {node} {self.part}: {self.actual}"


def act_of(condition: str, settings: Watch) -> Act:
    """Return what to do about a condition at this site."""
    act = by_id()[condition].watch
    if act is Act.DRAIN and condition in settings.never_drain:
        return Act.TICKET
    return Act.DRAIN if act is Act.TICKET and condition in settings.also_drain else act

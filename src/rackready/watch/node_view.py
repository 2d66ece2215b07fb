"""What the watch knows of one node: turns its lines into faults to record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from rackready.design.facts import NodeFacts
from rackready.design.monitoring.condition import Act
from rackready.model.evidence import Fingerprint
from rackready.model.watch import Watch
from rackready.watch import kernel, readings
from rackready.watch.sighting import Sighting, act_of
from rackready.watch.store import Seen

Document = dict[str, Any]
_LOOKS = 2
_AGAIN_S = 300.0
"""A state that asks for a drain and stays is told again after so long, s: its node is not drained, or not by us."""


@dataclass
class NodeView:
    """One node. ``certified``: its last fingerprint. Its clock is brought to that of the controller by every beat."""

    facts: NodeFacts
    settings: Watch
    certified: Fingerprint | None = None
    cursor: str = ""
    boot_id: str = ""
    _ahead_s: float = 0.0
    _latest: dict[str, Document] = field(default_factory=dict)
    _shown: dict[str, dict[tuple[str, str], tuple[float, Sighting]]] = field(default_factory=dict)
    _told: dict[tuple[str, str], float] = field(default_factory=dict)

    @property
    def node(self) -> str:
        """Return its name."""
        return self.facts.node.name

    def line(self, document: Document, now: float, tick: float | None = None) -> list[Seen]:
        """Return what to record because of one line. ``now``: the controller's time, s since 1970.

        ``tick``: the same on a clock that nobody sets, by which it is judged how long something held.
        """
        tick = now if tick is None else tick
        if "begin" in document:
            return self._begin(document, now)
        if "beat" in document:
            self._ahead_s = now - document.get("at", now - self._ahead_s)
            self.cursor = document["beat"]["cursor"] or self.cursor
            return self.due(now, tick)
        if "log" in document:
            return [self._log(document["log"], now)]
        for name in ("gpus", "links", "ports"):
            if name in document:
                return self._reading(name, document[name], now, tick)
        return []

    def _begin(self, document: Document, now: float) -> list[Seen]:
        self._ahead_s = now - document["at"]
        before, self.boot_id = self.boot_id, document["boot"]
        self._latest.clear()
        self._shown.clear()
        self._told.clear()
        if before and before != self.boot_id:
            return [self._seen(Sighting("NodeRebooted", "node", "booted since it was watched last"), now)]
        return []

    def _log(self, entry: Document, now: float) -> Seen:
        """Return the fault of a line, with the place in the journal behind it; without a condition: the place alone."""
        at = min(float(entry["at"]) + self._ahead_s, now)
        self.cursor = entry["cursor"]
        found = kernel.sighting(self.facts, entry["text"])
        if found is None:
            return Seen(self.node, "", "", "", "", at=at, boot_id=entry["boot"], cursor=entry["cursor"])
        return self._seen(found, at, entry["boot"], entry["cursor"])

    def _reading(self, name: str, reading: Document, now: float, tick: float) -> list[Seen]:
        before = self._latest.get(name)
        self._latest[name] = reading
        found = {(one.condition, one.part): self._lasting(name, one) for one in self._sightings(name, reading, before)}
        old = self._shown.get(name, {})
        self._shown[name] = {key: (old[key][0] if key in old else tick, one) for key, one in found.items()}
        for key in old.keys() - found.keys():
            self._told.pop(key, None)
        return self.due(now, tick)

    def _sightings(self, name: str, reading: Document, before: Document | None) -> Iterator[Sighting]:
        if name == "gpus":
            return readings.of_gpus(self.facts, reading, self.certified)
        if name == "links":
            return readings.of_links(self.facts, reading, self._latest.get("gpus"))
        return readings.of_ports(self.facts, reading, before)

    def _lasting(self, name: str, found: Sighting) -> Sighting:
        """Return a sighting that must last with a time in which a second look at it has come, however seldom we look.

        A reading that is as before is not told again.
        """
        every_s = self.settings.port_poll_s if name == "ports" else self.settings.gpu_poll_s
        return replace(found, after_s=max(found.after_s, _LOOKS * every_s)) if found.after_s else found

    def due(self, now: float, tick: float) -> list[Seen]:
        """Return the faults of readings that held as long as their condition asks for.

        Each once; one that asks for a drain again and again, since a node that it drains is not watched any more.
        """
        out = []
        for key, (since, found) in _all(self._shown.values()):
            told = self._told.get(key)
            again = told is not None and tick - told >= _AGAIN_S and self._drains(found)
            if (told is None and tick - since >= found.after_s) or again:
                self._told[key] = tick
                out.append(self._seen(found, now))
        return out

    def _drains(self, found: Sighting) -> bool:
        return act_of(found.condition, self.settings) is Act.DRAIN

    def unsettled(self) -> list[Sighting]:
        """Return what readings show that did not hold long enough yet."""
        return [found for key, (_, found) in _all(self._shown.values()) if key not in self._told]

    def _seen(self, found: Sighting, at: float, boot_id: str = "", cursor: str = "") -> Seen:
        act = act_of(found.condition, self.settings)
        return Seen(
            self.node,
            found.condition,
            found.part,
            found.actual,
            act.value,
            found.slot,
            at,
            boot_id or self.boot_id,
            cursor,
        )


def _all(
    shown: Iterable[dict[tuple[str, str], tuple[float, Sighting]]],
) -> Iterator[tuple[tuple[str, str], tuple[float, Sighting]]]:
    for part in shown:
        yield from part.items()

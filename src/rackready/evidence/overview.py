"""The content of the page: everything of a small site; a map of a large one, and details of what did not pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rackready.evidence import overview_tables
from rackready.evidence.distribution import describe, picture
from rackready.evidence.faults import ASIDE, Faults, places
from rackready.evidence.node_page import NodePage
from rackready.evidence.node_report import Document
from rackready.evidence.store import EMPTY
from rackready.evidence.units import Units
from rackready.ledger.store import FAILED
from rackready.model.outcome import CONTINUES
from rackready.model.site import Site

DETAILED = 128
"""Larger sites get a page with every node in its map, and details of so many nodes and runs that did not pass."""
MOST_EVENTS = 2000
"""Lines of progress on the page of such a site: the first that warn."""
BAD_FIRST = ("fail", "error", "not_run", "skip", "pass")
"""Outcomes in the order of counts."""
_WARNS = frozenset({"warn", FAILED, "error"})


@dataclass(slots=True)
class Overview:
    """Gathers the content of the page, node by node and run by run, in memory that does not grow with outputs.

    ``count``: nodes of the site.
    """

    count: int
    units: Units = field(default_factory=Units)
    names: list[str] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)
    cells: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Node -> (state, outcome)."""
    listed: list[NodePage] = field(default_factory=list)
    shown: list[Document] = field(default_factory=list)
    runs: list[Document] = field(default_factory=list)
    bad_runs: int = 0
    events: list[Document] = field(default_factory=list)
    told: int = 0
    """Lines of progress in all."""
    gates: dict[str, Counter[str]] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)
    _pairs: list[Document] = field(default_factory=list)

    @property
    def small(self) -> bool:
        """Return whether the page shows everything."""
        return self.count <= DETAILED

    def node(self, found: NodePage) -> None:
        """Add a node."""
        self.names.append(found.name)
        self.states[found.state] += 1
        self.cells[found.name] = (found.state, found.outcome)
        self.faults.node(found)
        for gate, outcome in found.gates:
            self.gates.setdefault(gate, Counter())[outcome] += 1
        if self.small or _needy(found.outcome, found.state):
            self.listed.append(replace(found, document=None))
            if found.document is not None and len(self.shown) < DETAILED:
                self.shown.append(found.document)

    def run(self, entry: Document) -> None:
        """Add a run over several nodes."""
        bad = entry["outcome"] not in CONTINUES
        self.bad_runs += bad
        self.units.run(entry)
        if self.small or (bad and len(self.runs) < DETAILED):
            self.runs.append(entry)
        if entry["gate"].startswith("pair/") and len(set(entry["nodes"])) == overview_tables.PAIR:
            self._pairs.append(
                {key: entry[key] for key in ("gate", "nodes", "target", "outcome", "metrics", "criteria")}
            )

    def event(self, found: Document) -> None:
        """Add a line of progress."""
        self.told += 1
        if self.small or (found["level"] in _WARNS and len(self.events) < MOST_EVENTS):
            self.events.append(found)

    def outcomes(self) -> Counter[str]:
        """Return the number of nodes by outcome."""
        return Counter(outcome for _, outcome in self.cells.values())

    def aside(self) -> int:
        """Return how many nodes are set aside, whatever their gates report."""
        return sum(state in ASIDE for state, _ in self.cells.values())

    def summary(self) -> dict[str, int]:
        """Return the number of nodes by state."""
        return dict(sorted(self.states.items()))

    def racks(self, site: Site) -> list[dict[str, Any]]:
        """Return the map."""
        return overview_tables.racks(
            site, [{"name": name, "state": state, "outcome": outcome} for name, (state, outcome) in self.cells.items()]
        )

    def wanted(self) -> list[str]:
        """Return the hashes of raw outputs for the page: those that did not pass, then all others of a small site."""
        records = [item for node in self.shown for item in node["gates"]] + self.runs
        bad = [item for item in records if item["outcome"] not in CONTINUES]
        found = (raw for item in bad + (records if self.small else []) for raw in item["raw"])
        return [digest for raw in found for digest in (raw["stdout_sha256"], raw["stderr_sha256"]) if digest != EMPTY]

    def page(self, racks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the data for the templates. ``racks``: the map."""
        where = places(racks)
        listed = [found for found in self.listed if _needy(found.outcome, found.state)]
        needy = {found.name for found in listed}
        return {
            "count": self.count,
            "small": self.small,
            "faults": self.faults.page(racks),
            "bad_racks": [rack for rack in racks if any(cell["name"] in needy for cell in rack["cells"])],
            "good_racks": [rack for rack in racks if all(cell["name"] not in needy for cell in rack["cells"])],
            "where": where,
            "listed": listed,
            "well": [found for found in self.listed if not _needy(found.outcome, found.state)],
            "needy": needy,
            "aside": {found.name for found in listed if found.outcome in CONTINUES},
            "shown": sorted(self.shown, key=lambda node: not _needy(node["outcome"], node["state"])),
            "linked": {node["name"] for node in self.shown},
            "table": overview_tables.gate_table(self.shown),
            "bad_gates": self._counted(bad=True),
            "good_gates": self._counted(bad=False),
            "bad_first": BAD_FIRST,
            "outcomes": {name: found for name in BAD_FIRST if (found := self.outcomes()[name])},
            "pairs": overview_tables.pairs(self._pairs),
            "strips": self._strips(),
            "runs": self.runs,
            "events": self.events,
            "told": self.told,
            "runs_left": self.bad_runs - len(self.runs) if not self.small else 0,
            "bad_runs": self.bad_runs,
        }

    def _counted(self, *, bad: bool) -> list[dict[str, Any]]:
        """Return the gates that some node did not pass, or the others, with the number of nodes by outcome."""
        found = [(gate, counts) for gate, counts in self.gates.items() if self._not_passed(gate) is bad]
        return [{"gate": gate, "outcomes": {name: counts[name] for name in BAD_FIRST}} for gate, counts in found]

    def _strips(self) -> list[dict[str, Any]]:
        """Return the distributions by gate. Those with a value beyond a bound are ``bad`` and come first."""
        found: dict[str, dict[str, Any]] = {}
        for strip in self.units.strips(self.names):
            group = found.setdefault(strip.gate, {"gate": strip.gate, "bad": False, "apart": 0, "strips": []})
            group["bad"] = group["bad"] or bool(strip.split()[1])
            group["strips"].append(drawn := {**describe(strip), "picture": picture(strip)})
            group["apart"] += drawn["apart_count"]
        return sorted(found.values(), key=lambda group: not group["bad"])

    def _not_passed(self, gate: str) -> bool:
        return any(found for outcome, found in self.gates.get(gate, {}).items() if outcome not in CONTINUES)


def _needy(outcome: str, state: str) -> bool:
    """Return whether a node needs attention."""
    return outcome not in CONTINUES or state in ASIDE

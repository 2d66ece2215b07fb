"""The faults at a campaign's end, for the top of its report: each kind of finding once, with its nodes and next step.

They are gathered node by node, in memory that does not grow with the site: of a finding that thousands have, the first
places are kept and the rest counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rackready.evidence.node_page import NodePage
from rackready.evidence.node_report import JUDGING
from rackready.evidence.worst import NodeFault, Where, WorstNodes, racks_alike
from rackready.model.commands import repair
from rackready.model.outcome import CONTINUES, Outcome
from rackready.model.place import part_of, stored
from rackready.model.state import NodeState

MOST_GROUPS = 100
"""Kinds of findings on the page."""
MOST_PLACES = 60
"""Places of a kind of finding on the page."""
MOST_PARTS = 6
"""Parts of a node with one finding that are named."""
ASIDE = frozenset({NodeState.QUARANTINED.value, NodeState.STUCK.value, NodeState.REPAIR.value})
"""States in which a node needs attention, whatever its gates report."""

PENDING = "pending"
"""In place of an outcome: a pass that no bound could judge."""
_PROVEN = frozenset({NodeState.CERTIFIED.value, NodeState.READY.value})
"""States that a node reaches only when every required gate was judged."""

_RANK = (Outcome.FAIL.value, Outcome.ERROR.value, *sorted(ASIDE), PENDING, Outcome.NOT_RUN.value)
_LEVELS = ("sanity", "validation", "performance", "stress")
"""Third part of a gate's id. What a look finds is mostly the cause of what a measurement finds."""
_COVERAGE = "coverage"
_ON = "Correct what the phase reports, then run `rackready deploy`."
"""Without a limit: a node alone has no partner where it must be measured again."""
_REPAIR = f"When it is repaired, run {repair()}, then `rackready deploy`."
_RMA = "When it is back, run `rackready rma NODE --returned --reason '...'`, then `rackready deploy`."
_BACK = {
    NodeState.QUARANTINED.value: _REPAIR,
    NodeState.STUCK.value: _REPAIR,
    NodeState.REPAIR.value: _RMA,
}
"""State of a node that is set aside -> its way back."""
_JUDGE = "Measure at least 16 identical nodes, or give the profile a reference with its source."

_DUE = "Run `rackready validate`: it measures what is due. The node's evidence gives the reason for each gate."
Key = tuple[str, str, str, str]
"""Outcome, gate, title and code of a kind of finding. Gate and code are empty where no gate found it."""


_VOID: Key = (Outcome.NOT_RUN.value, "", "required gates without evidence that counts", "")


@dataclass(slots=True)
class FaultPlace:
    """One node with a finding, and those of its parts that show the same."""

    node: str
    expected: str
    actual: str
    next_step: str
    parts: list[str] = field(default_factory=list)
    count: int = 0
    """Parts in all."""


@dataclass(slots=True)
class FaultGroup:
    """One kind of finding of one gate. ``outcome``: of its records, or the state of a node without any."""

    outcome: str
    gate: str
    what: str
    code: str
    places: list[FaultPlace] = field(default_factory=list)
    nodes: int = 0
    last: str = ""
    unexplained: bool = False
    """Whether some of its nodes have nothing else that failed."""

    def add(self, place: FaultPlace, part: str) -> None:
        """Add a finding; ``part``: empty for the node as a whole."""
        self.nodes += self.last != place.node
        self.last = place.node
        same = next((known for known in reversed(self.places) if _same(known, place)), None)
        if same is None:
            if len(self.places) >= MOST_PLACES:
                return
            self.places.append(same := place)
        same.count += 1
        if part and part not in same.parts and len(same.parts) < MOST_PARTS:
            same.parts.append(part)

    @property
    def left(self) -> int:
        """Return how many of its nodes are not kept."""
        return self.nodes - len({place.node for place in self.places})

    @property
    def follows(self) -> bool:
        """Return whether nothing was measured here on nodes of which something failed: repair that first."""
        return not self.unexplained and (self.gate == _COVERAGE or self.outcome == Outcome.NOT_RUN.value)

    @property
    def rank(self) -> tuple[bool, bool, int, int, int, str]:
        """Return a sort key: the worst first, then causes before consequences, then the most frequent.

        What follows from the rest and parts that were not measured come last.
        """
        return (
            self.follows,
            self.gate == _COVERAGE,
            _RANK.index(self.outcome) if self.outcome in _RANK else len(_RANK),
            next((place for place, level in enumerate(_LEVELS) if f"/{level}/" in self.gate), 0),
            -self.nodes,
            self.what,
        )


def _same(one: FaultPlace, other: FaultPlace) -> bool:
    return (one.node, one.expected, one.actual, one.next_step) == (
        other.node,
        other.expected,
        other.actual,
        other.next_step,
    )


@dataclass(slots=True)
class Faults:
    """Gathers the faults."""

    groups: dict[Key, FaultGroup] = field(default_factory=dict)
    nodes: int = 0
    """Nodes that need attention."""
    worst: WorstNodes = field(default_factory=WorstNodes)
    _explained: bool = False
    """Whether something failed on the node that is being added."""

    def node(self, found: NodePage) -> None:
        """Add a node, in the site's order."""
        count = self._pending(found)
        if found.outcome in CONTINUES and found.state not in ASIDE:
            return
        self.nodes += 1
        phase = _failed_phase(found)
        by_records = phase is not None and phase["phase"] in JUDGING
        own = [*_own(found), *([] if phase is None or by_records else [_of_phase(phase)])]
        self._explained = bool(own)
        if own:
            self.worst.add(found.name, own)
        if found.document is not None and found.document["gates"]:
            count += sum(self._record(found.name, item) for item in found.document["gates"])
            count += self._coverage(found.name, found.document["coverage"])
        if phase is not None and not (by_records and count):
            self._result(found.name, phase)
            count += 1
        if not count:
            self._alone(found)

    def _pending(self, found: NodePage) -> int:
        """Add the passes that no bound could judge, and return how many. Those of a certified node do not matter."""
        pending = () if found.state in _PROVEN else found.pending
        for gate in pending:
            self._add(
                (PENDING, "", "gates that no bound could judge", ""),
                FaultPlace(found.name, "a bound that judges", "none for this platform", _JUDGE),
                gate,
            )
        return len(pending)

    def _alone(self, found: NodePage) -> None:
        """Add a node without a record against it."""
        if found.state in ASIDE:
            outcome, what, step = found.state, "set aside without a finding of a gate", _BACK[found.state]
        else:
            outcome, what = found.outcome, "no gate has measured it"
            step = "" if found.reason else _again(found.name)
        self._add((outcome, "", what, ""), FaultPlace(found.name, "", found.reason, step), "")

    def _record(self, name: str, item: Mapping[str, Any]) -> int:
        """Add the findings of a record that is not a pass, and return 1, or 0 for a pass."""
        if item["outcome"] in CONTINUES:
            return 0
        if item.get("void"):
            self._add(_VOID, FaultPlace(name, "a pass that counts", "none", _DUE), item["gate"])
            return 1
        for finding in item["findings"]:
            place = FaultPlace(name, finding["expected"], finding["actual"], finding["next_step"])
            self._add(
                (item["outcome"], item["gate"], finding["what"], finding.get("code", "")),
                place,
                _inside(name, finding),
            )
        if not item["findings"]:
            self._add(
                (item["outcome"], item["gate"], item["title"], ""),
                FaultPlace(name, "a result", item["note"] or item["outcome"], _again(name)),
                "",
            )
        return 1

    def _result(self, name: str, result: Mapping[str, Any]) -> None:
        """Add the failed result of a phase."""
        key = (result["outcome"], "", _not_passed(result), "")
        self._add(key, FaultPlace(name, "", result["message"] or result["outcome"], _ON), "")

    def _coverage(self, name: str, coverage: Mapping[str, Any]) -> int:
        """Add the parts that no gate measured, and return 1, or 0 when there are none."""
        if coverage["outcome"] in CONTINUES:
            return 0
        if coverage.get("void"):
            self._add(_VOID, FaultPlace(name, "a pass that counts", "none", _DUE), _COVERAGE)
            return 1
        parts = [part if (own := part_of(part, name)) is None else own for part in coverage["unmeasured"]] or [""]
        what = "parts that no gate measured" if coverage["unmeasured"] else "not measured to the end"
        for part in parts:
            self._add(
                (coverage["outcome"], _COVERAGE, what, ""),
                FaultPlace(name, "a measurement of every part", "none", _again(name)),
                part,
            )
        return 1

    def _add(self, key: Key, place: FaultPlace, part: str) -> None:
        group = self.groups.setdefault(key, FaultGroup(*key))
        group.add(place, part)
        group.unexplained = group.unexplained or not self._explained

    def page(self, racks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the data of the page. ``racks``: the map."""
        where = places(racks)
        groups = sorted(self.groups.values(), key=lambda group: group.rank)
        shown = [_shown(group, where) for group in groups[:MOST_GROUPS]]
        own = [group for group in shown if not group["follows"]]
        alike = racks_alike(own, racks)
        return {
            "nodes": self.nodes,
            "groups": shown,
            "left": len(groups[MOST_GROUPS:]),
            "begin": {"racks": alike, "nodes": self.worst.rows(alike, where) if len(own) > 1 else []},
        }


def _shown(group: FaultGroup, where: Mapping[str, Where]) -> dict[str, Any]:
    steps = {place.next_step for place in group.places}
    alike = len({(place.expected, place.actual, place.next_step, tuple(place.parts)) for place in group.places}) == 1
    return {
        "outcome": group.outcome,
        "gate": group.gate,
        "what": group.what,
        "code": group.code,
        "nodes": group.nodes,
        "left": group.left,
        "follows": group.follows,
        "next_step": steps.pop() if len(steps) == 1 else "",
        "alike": _place(group.places[0], where) if alike and len(group.places) > 1 else None,
        "racks": _by_rack(group, where),
        "places": [_place(place, where) for place in group.places],
    }


def _by_rack(group: FaultGroup, where: Mapping[str, Where]) -> dict[str, list[dict[str, Any]]]:
    """Return the nodes of a group by rack, with their units."""
    out: dict[str, list[dict[str, Any]]] = {}
    for node in dict.fromkeys(place.node for place in group.places):
        rack, unit = where.get(node, ("", None))
        out.setdefault(rack, []).append({"node": node, "unit": unit})
    return out


def _place(place: FaultPlace, where: Mapping[str, Where]) -> dict[str, Any]:
    rack, unit = where.get(place.node, ("", None))
    more = place.count - len(place.parts) if place.parts else 0
    about = {"rack": rack, "unit": unit, "parts": place.parts, "more": more}
    return {
        "node": place.node,
        **about,
        "expected": place.expected,
        "actual": place.actual,
        "next_step": place.next_step,
    }


def _own(found: NodePage) -> list[NodeFault]:
    """Return the kinds of findings of a node: what failed first, then what could not be measured."""
    out: dict[tuple[str, str], NodeFault] = {}
    items = found.document["gates"] if found.document is not None else ()
    for outcome in (Outcome.FAIL.value, Outcome.ERROR.value):
        for item in items:
            if item["outcome"] != outcome:
                continue
            for finding in item["findings"]:
                key, part = (finding["what"], finding.get("code", "")), stored(finding).part
                known = out.get(key)
                parts = (*(known.parts if known else ()), *([part] if part else []))
                out[key] = NodeFault(outcome, *key, finding["next_step"], tuple(dict.fromkeys(parts)))
    return list(out.values())


def _inside(node: str, finding: Mapping[str, Any]) -> str:
    """Return the place of a finding for readers, without the node's own name."""
    place = stored(finding)
    return place.inside if place.node == node else str(place)


def _failed_phase(found: NodePage) -> Mapping[str, Any] | None:
    """Return the node's result of the campaign's last phase, None without one or when it passed.

    The reasons of a judging phase are the node's records, if it has records against it.
    """
    result = None if found.document is None else found.document["result"]
    return None if result is None or result["outcome"] in CONTINUES else result


def _of_phase(result: Mapping[str, Any]) -> NodeFault:
    return NodeFault(result["outcome"], _not_passed(result), "", _ON, ())


def _not_passed(result: Mapping[str, Any]) -> str:
    return f"phase {result['phase']} did not pass"


def _again(node: str) -> str:
    return f"Run `rackready validate --limit {node}`."


def places(racks: Sequence[Mapping[str, Any]]) -> dict[str, Where]:
    """Return rack and unit of each node of a map."""
    return dict(_places(racks))


def _places(racks: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Where]]:
    for rack in racks:
        for cell in rack["cells"]:
            yield cell["name"], (rack["name"], cell["unit"])

"""Coverage: which parts of a node were measured, by which gate, and which were not. Nothing is assumed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rackready.design.facts import NodeFacts
from rackready.design.names import listed
from rackready.gates.base import Gate
from rackready.gates.judging.finding_kinds import ErrorKind
from rackready.model.outcome import Outcome, Verdict

UNMEASURED_HELD_UP = ErrorKind(
    "coverage-held-up",
    "not measured",
    meaning="Parts of the node were not measured, because the gates that measure them did not run.",
    next_step="Fix what kept {gates} from running: their own findings give the reason.",
)
UNMEASURED = ErrorKind(
    "coverage-unmeasured",
    "not measured",
    meaning="No gate measured these parts of the node, so nobody knows whether they are good.",
    next_step="The report shows which gate did not measure them. Run it, or skip it with a reason (site.yml "
    "gates.skip).",
)


def expected(facts: NodeFacts) -> dict[str, list[str]]:
    """Return every part of a node that must be measured, by kind."""
    name = facts.node.name
    gpus = range(facts.platform.gpus)
    links = range(facts.gpu.nvlink.links) if facts.gpu.nvlink else range(0)
    return {
        "node": [name],
        "gpu": [f"{name}/gpu{gpu}" for gpu in gpus],
        "nvlink": [f"{name}/gpu{gpu}/nvlink{link}" for gpu in gpus for link in links],
        "nic": [f"{name}/{nic.rdma_device}" for nic in facts.nics],
        "rail": [f"{name}/rail{nic.rail}" for nic in facts.nics],
        "cable": [f"{name}/rail{nic.rail}/cable" for nic in facts.nics if nic.switch],
    }


@dataclass(frozen=True, slots=True)
class Coverage:
    """Coverage of one node: part -> gates that measured it, unmeasured parts, and parts left out by a declared skip."""

    node: str
    measured: dict[str, list[str]]
    unmeasured: list[str]
    skipped: dict[str, str]
    held_up: tuple[str, ...] = ()
    """Gates that would have measured the unmeasured parts but did not run; their own findings give the reason."""

    def counts(self, facts: NodeFacts) -> dict[str, tuple[int, int]]:
        """Return kind -> (measured, expected)."""
        return {
            kind: (sum(1 for part in parts if part in self.measured), len(parts))
            for kind, parts in expected(facts).items()
            if parts
        }


def of_node(
    facts: NodeFacts, verdicts: Mapping[str, Sequence[Verdict]], gates: Iterable[Gate], skipped: Mapping[str, str]
) -> Coverage:
    """Return the coverage of a node: the parts its verdicts measured, compared with those the gates should measure.

    ``verdicts``: gate id -> verdicts of this node. ``skipped``: gate id -> reason. A part that only skipped gates would
    have measured counts as skipped, not as unmeasured.
    """
    gates = list(gates)
    parts = expected(facts)
    by: dict[str, list[str]] = defaultdict(list)
    for gate_id, items in verdicts.items():
        for part in {part for verdict in items for part in verdict.measured}:
            by[part].append(gate_id)
    left_out: dict[str, str] = {}
    unmeasured: list[str] = []
    waiting = {
        gate_id
        for gate_id, items in verdicts.items()
        if items and all(verdict.outcome is Outcome.NOT_RUN for verdict in items)
    }
    held_up: dict[str, None] = {}
    for kind, members in parts.items():
        covering = [gate for gate in gates if kind in gate.covers]
        all_skipped = bool(covering) and all(gate.id in skipped for gate in covering)
        for part in members:
            if part in by:
                continue
            if all_skipped:
                left_out[part] = "; ".join(f"{gate.id}: {skipped[gate.id]}" for gate in covering)
            else:
                unmeasured.append(part)
                held_up.update(dict.fromkeys(gate.id for gate in covering if gate.id in waiting))
    own = {part: sorted(by[part]) for members in parts.values() for part in members if part in by}
    return Coverage(facts.node.name, own, unmeasured, left_out, tuple(held_up))


def about(coverage: Coverage, facts: NodeFacts) -> dict[str, object]:
    """Return the inputs of the record of coverage."""
    return {
        "title": "Every part was measured by some gate.",
        "counts": coverage.counts(facts),
        "measured_by": coverage.measured,
        "unmeasured": coverage.unmeasured,
        "skipped": coverage.skipped,
    }


def verdict(coverage: Coverage) -> Verdict:
    """Return the verdict of coverage: an unmeasured part is an error, never a pass."""
    findings = []
    if coverage.unmeasured:
        shown = listed(coverage.unmeasured)
        findings.append(
            (UNMEASURED_HELD_UP if coverage.held_up else UNMEASURED).found(
                coverage.node,
                "every part measured by some gate",
                f"{len(coverage.unmeasured)} unmeasured: {shown}",
                gates=", ".join(coverage.held_up),
            )
        )
    outcome = Outcome.ERROR if findings or not coverage.measured else Outcome.PASS
    note = "; ".join(sorted({f"left out by declared skip of {reason}" for reason in coverage.skipped.values()})) or None
    return Verdict(outcome=outcome, findings=findings, measured=sorted(coverage.measured), note=note)

"""The plan of the validate phase: nodes that keep their evidence, are looked at, measured or refused, and partners."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from rackready.campaign.drained_phase import Results
from rackready.model.commands import repair
from rackready.model.outcome import Outcome, Verdict
from rackready.model.phase import PLAN, NodeResult

LOOKED_BEFORE = "looked at by this run already; its evidence counts"
MEASURED = "is being measured under load"
"""Reason with which a node in production is drained before gates load it."""


class EvidenceStep(StrEnum):
    """What the phase does with one node."""

    KEEP = "keep"
    """Nothing is due: this run looked at it already, and its evidence counts."""
    LOOK = "look"
    """Only gates that read are due: they load nothing and run on nodes in production, too."""
    MEASURE = "measure"
    """Evidence under load is missing, void or too old."""
    LATER = "later"
    """Evidence under load is due, but optimize changes the node first: it is looked at now, and measured after that."""
    REFUSE = "refuse"
    """A fail is on record for the node as it is now: re-measuring until it passes would hide a fault."""
    LEAVE = "leave"
    """Its parts cannot be read, or the scheduler does not tell whether jobs run on it: an error, nothing is done."""


@dataclass(frozen=True, slots=True)
class NodeEvidence:
    """The evidence on record for a node as it is now."""

    node: str
    why: str
    """Why it must be measured under load. Empty: its evidence under load is complete and counts."""
    kept: Mapping[str, Verdict]
    """Gate -> the verdict that counts: the gate is not run again."""
    failed: str = ""
    """The fail on record since the node was last changed or repaired."""
    unseen: bool = False
    """Whether gates that only read are due."""

    def due(self, gates: Iterable[str]) -> set[str]:
        """Return those of the gates that must run on it."""
        return {name for name in gates if name not in self.kept} if self.why or self.unseen else set()

    @property
    def step(self) -> EvidenceStep:
        """Return what the evidence alone asks for."""
        if self.failed:
            return EvidenceStep.REFUSE
        if self.why:
            return EvidenceStep.MEASURE
        return EvidenceStep.LOOK if self.unseen else EvidenceStep.KEEP


@dataclass(frozen=True, slots=True)
class EvidenceReadings:
    """Everything that the plan depends on, as it was read."""

    evidence: tuple[NodeEvidence, ...]
    unreadable: Results = field(default_factory=dict)
    """Node whose parts cannot be read any more -> the error."""
    looked: Results = field(default_factory=dict)
    """Node -> the result of this run's look at it. A dry run looks at nothing."""
    min_nodes: Mapping[str, int] = field(default_factory=dict)
    """Gate of the site's set -> nodes that it needs, at least for the gates that are due on nodes to be measured."""
    busy: frozenset[str] = frozenset()
    """Nodes in production among those to be measured and their possible partners."""
    unknown: Results = field(default_factory=dict)
    """Nodes whose job state is unknown -> the error."""
    ready: frozenset[str] = frozenset()
    """Nodes that are handed over by our own record: they serve as partners last."""
    later: bool = False
    """Whether optimize comes first, so that no node is loaded now."""
    lent: tuple[str, ...] = ()
    """Nodes that a killed run drained as partners and that are still drained for that."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """Node -> the part of the site whose scheduler it has; "" where the site has one scheduler."""

    def part(self, node: str) -> str:
        """Return the part of a node. Nodes are measured together, and lent to each other, only within one."""
        return self.parts.get(node, "")

    def at(self, step: EvidenceStep) -> list[NodeEvidence]:
        """Return the evidence of the nodes whose evidence asks for this step."""
        return [item for item in self.evidence if item.step is step]


@dataclass(frozen=True, slots=True)
class Measurement:
    """What is carried out once the nodes of ``EvidencePlan.drain`` are drained."""

    measure: Mapping[str, Mapping[str, Verdict]]
    """Node that is measured -> the verdicts that count already."""
    partners: tuple[str, ...]
    """Nodes that serve as the other end without being judged."""
    lend: Mapping[str, str]
    """Partner in production -> the reason with which it is drained. All of them are handed over again at the end."""
    absent: Results
    """Partners that do not serve, because the scheduler does not tell whether jobs run on them."""
    missing: int
    """Missing partners of due gates."""
    missing_in: Mapping[str, int] = field(default_factory=dict)
    """The same by part of the site."""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """The plan for one node, as a dry run shows it."""

    step: EvidenceStep
    why: str = ""
    drain: str = ""
    """Reason with which the node is drained first. Empty: it is not in production."""
    partners: tuple[str, ...] = ()
    partners_missing: int = 0
    partner_of: tuple[str, ...] = ()
    hand_back: bool = False
    """Whether the node is handed over again at the end."""
    part: str = ""
    """The part of the site with whose nodes alone it is measured together; "" where the site has one scheduler."""

    def plain(self) -> dict[str, Any]:
        """Return it as JSON types."""
        out = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}
        return out if self.part else {key: value for key, value in out.items() if key != "part"}


@dataclass(frozen=True, slots=True)
class EvidencePlan:
    """What the phase does, and with which nodes."""

    seen: EvidenceReadings
    nodes: Mapping[str, tuple[EvidenceStep, str]]
    """Node -> its step, and why."""
    drain: Mapping[str, str]
    """Node in production that is to be measured -> the reason with which it is drained first."""
    give_back: tuple[str, ...]
    """Partners of a killed run that are handed over again, whatever else is done."""

    def settled(self) -> Results:
        """Return the results of the nodes that are not measured."""
        seen = self.seen
        kept = {item.node: NodeResult(Outcome.PASS, LOOKED_BEFORE) for item in seen.at(EvidenceStep.KEEP)}
        refused = {
            item.node: NodeResult(Outcome.FAIL, self.nodes[item.node][1]) for item in seen.at(EvidenceStep.REFUSE)
        }
        unknown = {
            item.node: seen.unknown[item.node] for item in seen.at(EvidenceStep.MEASURE) if item.node in seen.unknown
        }
        return kept | refused | seen.unreadable | unknown | seen.looked

    def after(self, kept: Results) -> Measurement:
        """Return what is carried out when the nodes of ``drain`` are drained; those in ``kept`` keep their jobs."""
        seen = self.seen
        able = [item for item in _measured(seen) if item.node not in kept]
        chosen: list[str] = []
        reasons: dict[str, str] = {}
        missing = {}
        for part, inside in _by_part(seen, able).items():
            short = max(_needed(seen, inside) - len(inside), 0)
            some = [node for node in candidates(seen) if seen.part(node) == part][:short]
            missing[part] = short - sum(node not in seen.unknown for node in some)
            chosen += some
            reasons |= dict.fromkeys(some, partner_reason(item.node for item in inside))
        absent = {node: seen.unknown[node] for node in chosen if node in seen.unknown}
        partners = tuple(node for node in chosen if node not in absent)
        lend = {node: reasons[node] for node in partners if node in seen.busy}
        work = {item.node: item.kept for item in able}
        return Measurement(work, partners, lend, absent, sum(missing.values()), missing)

    def rows(self) -> dict[str, NodePlan]:
        """Return the plan node by node, as it goes when every drained node becomes empty."""
        work = self.after({})

        def here(nodes: Iterable[str], node: str) -> tuple[str, ...]:
            return tuple(other for other in nodes if self.seen.part(other) == self.seen.part(node))

        return {
            node: NodePlan(
                step,
                why,
                drain=self.drain.get(node, work.lend.get(node, "")),
                partners=here(work.partners, node) if node in work.measure else (),
                partners_missing=work.missing_in.get(self.seen.part(node), 0) if node in work.measure else 0,
                partner_of=here(work.measure, node) if node in work.partners else (),
                hand_back=node in work.lend or node in self.give_back,
                part=self.seen.part(node),
            )
            for node, (step, why) in self.nodes.items()
        }


def plan(seen: EvidenceReadings) -> EvidencePlan:
    """Return the plan for what was seen."""
    measured = {item.node for item in _measured(seen)}
    nodes = {item.node: _step(seen, item) for item in seen.evidence}
    nodes |= {node: (EvidenceStep.LEAVE, result.message) for node, result in seen.unreadable.items()}
    drain = {node: MEASURED for node in nodes if node in measured and node in seen.busy}
    fit = set(candidates(seen))
    return EvidencePlan(seen, nodes, drain, tuple(node for node in seen.lent if node in fit))


def _step(seen: EvidenceReadings, item: NodeEvidence) -> tuple[EvidenceStep, str]:
    match item.step:
        case EvidenceStep.REFUSE:
            step = f"once it is repaired, run {repair(item.node)}"
            return EvidenceStep.REFUSE, f"{item.failed} (a fail on record is not measured again: {step})"
        case EvidenceStep.MEASURE if seen.later:
            return EvidenceStep.LATER, item.why
        case EvidenceStep.MEASURE if item.node in seen.unknown:
            return EvidenceStep.LEAVE, seen.unknown[item.node].message
        case EvidenceStep.MEASURE:
            return EvidenceStep.MEASURE, item.why
        case other:
            return other, ""


def _measured(seen: EvidenceReadings) -> list[NodeEvidence]:
    return [item for item in seen.at(EvidenceStep.MEASURE) if item.node not in seen.unknown and not seen.later]


def _by_part(seen: EvidenceReadings, items: Iterable[NodeEvidence]) -> dict[str, list[NodeEvidence]]:
    """Return part -> its nodes among these, in their order."""
    out: dict[str, list[NodeEvidence]] = {}
    for item in items:
        out.setdefault(seen.part(item.node), []).append(item)
    return out


def _needed(seen: EvidenceReadings, measured: Iterable[NodeEvidence]) -> int:
    """Return how many nodes the due gates need together."""
    due = set[str]().union(*(item.due(seen.min_nodes) for item in measured))
    return max((seen.min_nodes[name] for name in due), default=1)


def candidates(seen: EvidenceReadings) -> list[str]:
    """Return the nodes that may serve as partners, those handed over last: their evidence counts, their look passed."""
    fit = [
        item.node
        for item in seen.evidence
        if item.step in {EvidenceStep.KEEP, EvidenceStep.LOOK}
        and (item.node not in seen.looked or seen.looked[item.node].outcome is Outcome.PASS)
    ]
    return sorted(fit, key=lambda node: node in seen.ready)


def possible_partners(seen: EvidenceReadings) -> list[str]:
    """Return the candidates that may be needed, however many of the nodes in production keep their jobs."""
    out: list[str] = []
    for part, inside in _by_part(seen, _measured(seen)).items():
        sure = sum(1 for item in inside if item.node not in seen.busy)
        fit = [node for node in candidates(seen) if seen.part(node) == part]
        out += fit[: max(_needed(seen, inside) - max(sure, 1), 0)]
    return out


def partner_reason(nodes: Iterable[str]) -> str:
    """Return the reason with which a partner is drained. It is for people: the ledger knows what the drain is for."""
    return f"partner in the measurement of {', '.join(nodes)}"


def dry_results(found: EvidencePlan) -> Results:
    """Return the results of a dry run: the plan in words, and as data."""
    settled = found.settled()
    out = {}
    for node, row in found.rows().items():
        result = settled.get(node) or _would(row)
        words = "; ".join([result.message, *_beside(row)])
        out[node] = replace(result, message=words, data=result.data | {PLAN: row.plain()})
    return out


def _would(row: NodePlan) -> NodeResult:
    if row.step is EvidenceStep.MEASURE:
        return NodeResult(Outcome.NOT_RUN, f"would be measured under load: {row.why}")
    if row.step is EvidenceStep.LATER:
        return NodeResult(Outcome.NOT_RUN, f"would be looked at, and measured under load after optimize: {row.why}")
    return NodeResult(Outcome.PASS, "would be looked at again; its evidence under load still counts")


def _beside(row: NodePlan) -> list[str]:
    """Return what else would be done with a node."""
    out = []
    if row.step is EvidenceStep.MEASURE:
        out += [f"would be drained first: {row.drain}"] if row.drain else []
        out += [f"gates of several nodes: with nodes of part {row.part} only"] if row.part else []
        out += [f"partners: {', '.join(row.partners)}"] if row.partners else []
        out += [f"partners missing: {row.partners_missing}"] if row.partners_missing else []
    if row.partner_of:
        verb = "be drained as" if row.drain else "serve as"
        out.append(f"would {verb} a partner in the measurement of {', '.join(row.partner_of)}")
    return [*out, "would be handed over again at the end"] if row.hand_back else out

"""Looks at nodes: runs every gate that only reads, on nodes in production, too."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from rackready.design.check_gates import today
from rackready.evidence.store import EvidenceStore
from rackready.gates.engine.stage_state import Kept
from rackready.gates.engine.validate import connect, gate_entries, run_gates
from rackready.gates.records.fingerprint import gather
from rackready.gates.records.node_parts import PartsReading, see, with_parts
from rackready.handover.policy import LOOK_S, Decision, light, looks
from rackready.ledger.store import Ledger
from rackready.model.evidence import EvidenceRecord, Fingerprint
from rackready.model.outcome import Finding, Outcome, Verdict
from rackready.model.phase import NOTE, NodeResult, PhaseContext
from rackready.model.profile import GateSetEntry
from rackready.model.site import Site
from rackready.paths import EnvPaths

_SEEN = "looked at again: {checks} checks passed; evidence under load still counts"
_FIRST = "{checks} checks passed; to be measured under load after optimize, which changes the node"


def fingerprints(
    ctx: PhaseContext, site: Site, nodes: Sequence[str]
) -> tuple[dict[str, Fingerprint | Finding], dict[str, PartsReading | Finding]]:
    """Return every node's fingerprint and its parts, or why they cannot be read.

    Both are read now, unless this campaign just read the parts. Parts of a node without a fingerprint are not read.
    """
    paths = EnvPaths(ctx.root, ctx.env)
    with Ledger.open(paths.database) as ledger:
        with connect(site, paths, nodes) as (connection, _launcher):
            prints = gather(connection, site, nodes)
            readable = [node for node, found in prints.items() if isinstance(found, Fingerprint)]
            seen = see(connection, site, EvidenceStore.open(ledger, paths.raw), ledger, ctx.campaign, readable, LOOK_S)
        return with_parts(prints, ledger), seen


def unseen(decision: Decision) -> bool:
    """Return whether a look is due."""
    return any(light(gate) for gate in decision.objections)


def to_load(entries: Sequence[GateSetEntry], decision: Decision) -> str:
    """Return why a node must be measured under load, "" when at most a look is due."""
    due = (
        decision.objections[entry.id]
        for entry in entries
        if entry.required and entry.id in decision.objections and not light(entry.id)
    )
    return next(due, "")


def counting_verdicts(records: Mapping[str, EvidenceRecord], decision: Decision) -> dict[str, Verdict]:
    """Return gate -> the verdict that counts: the gate is not run again."""
    return {name: record.verdict for name, record in records.items() if name in decision.counting}


def look(ctx: PhaseContext, counts: Kept) -> dict[str, NodeResult]:
    """Run the due gates on nodes that need only a look. Events report only gates that do not pass.

    ``counts``: node -> the verdicts that count already; these gates are not run.
    """
    if not counts:
        return {}
    found = run_gates(ctx, list(counts), kept=counts, quiet=True)
    return {node: _with_count(result, _SEEN, before=counts[node]) for node, result in found.items()}


def look_first(ctx: PhaseContext, site: Site, counts: Kept) -> dict[str, NodeResult]:
    """Run the due gates that look on nodes that are measured later; parameters as of ``look``."""
    if not counts:
        return {}
    found = {
        node: _with_count(result, _FIRST)
        for node, result in run_gates(ctx, list(counts), only=looking(site), kept=counts).items()
    }
    return {
        node: replace(result, data=result.data | {NOTE: result.message}) if result.outcome is Outcome.PASS else result
        for node, result in found.items()
    }


def look_after(ctx: PhaseContext, site: Site, nodes: Sequence[str]) -> dict[str, NodeResult]:
    """Run the gates that look on nodes that were just loaded: load leaves Xids, ECC errors and flapping links behind.

    Return the results of the nodes where they do not pass.
    """
    only = looking(site)
    found = run_gates(ctx, list(nodes), only=only, quiet=True) if nodes and only else {}
    return {node: result for node, result in found.items() if result.outcome is not Outcome.PASS}


def looking(site: Site, node: str = "") -> list[str]:
    """Return the gates of the site's set that look; with ``node``, only those that the site does not skip there."""
    skipped = site.gates.skipped(node, today()) if node else {}
    return [entry.id for entry in gate_entries(site, None) if looks(entry.id) and entry.id not in skipped]


def _with_count(result: NodeResult, words: str, before: Collection[str] = ()) -> NodeResult:
    """Return a pass with the number of looks that passed, without those of ``before``."""
    if result.outcome is not Outcome.PASS:
        return result
    gates = result.data.get("gates", {})
    passed = [gate for gate, outcome in gates.items() if outcome == "pass" and looks(gate) and gate not in before]
    return replace(result, message=words.format(checks=len(passed)))

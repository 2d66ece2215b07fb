"""Verifies certificates: looks at each node as it is now, and compares its certificate with what was seen."""

from __future__ import annotations

from rackready.design.pinned import site_of
from rackready.evidence.store import EvidenceStore
from rackready.gates.records.fingerprint import Unreached
from rackready.gates.records.node_parts import PartsReading
from rackready.handover.certificate import require
from rackready.handover.certify import Desk, entries
from rackready.handover.keys import keys_of
from rackready.handover.policy import light
from rackready.handover.read_only_gates import counting_verdicts, fingerprints, look, to_load
from rackready.handover.record_digests import altered, unproven
from rackready.handover.returned import kept_out
from rackready.ledger.store import Ledger
from rackready.model.evidence import Fingerprint
from rackready.model.outcome import Finding, Outcome
from rackready.model.phase import UNTOUCHED, NodeResult, PhaseContext
from rackready.model.problems import RackreadyError, quoted
from rackready.paths import EnvPaths

_AGAIN = "Run `rackready deploy`: it measures again what is void, and certifies the node."


def run_verify(ctx: PhaseContext, nodes: list[str]) -> dict[str, NodeResult]:
    """Look at every node, in production or not, and return whether its certificate counts. Nothing is loaded.

    A finding of a look is a fail like any other. A certificate that is missing, damaged or of another state of the node
    is an error.
    """
    site = site_of(ctx)
    paths = EnvPaths(ctx.root, ctx.env)
    prints, parts = fingerprints(ctx, site, nodes)
    out = {node: _unread(found) for node, found in [*prints.items(), *parts.items()] if isinstance(found, Finding)}
    able = {node: found for node, found in prints.items() if node not in out and isinstance(found, Fingerprint)}
    with Ledger.open(paths.database) as ledger:
        desk = Desk(ctx, site, paths, ledger, EvidenceStore.read_only(ledger, paths.raw))
        counts = {}
        for node, found in able.items():
            decision, records = desk.decided(node, found)
            # A look does not run gates that load, whether they count or not. `_verified` reports those that do not.
            rest = {gate: record.verdict for gate, record in records.items() if not light(gate)}
            counts[node] = {**rest, **counting_verdicts(records, decision)}
        looked = look(ctx, counts)
        return out | {node: _verified(desk, node, able[node], parts[node], result) for node, result in looked.items()}


def _unread(found: Finding) -> NodeResult:
    """Return the result of a node whose fingerprint or parts could not be read.

    A node without a login stays as it is, in production or not: nothing is known about it.
    """
    if isinstance(found, Unreached):
        return NodeResult(Outcome.ERROR, str(found), data={UNTOUCHED: True}, touched=False)
    return NodeResult(Outcome.ERROR, str(found))


def _verified(
    desk: Desk, node: str, found: Fingerprint, seen: PartsReading | Finding, looked: NodeResult
) -> NodeResult:
    """Return the result of a look and the certificate together. A fail of the look comes first."""
    kept = kept_out(desk.ledger, node, found)
    if looked.outcome is Outcome.FAIL or kept is not None:
        return looked if looked.outcome is Outcome.FAIL else NodeResult(Outcome.ERROR, str(kept))
    try:
        certificate = require(keys_of(desk.site, desk.paths), node, found)
    except RackreadyError as error:
        return NodeResult(Outcome.ERROR, str(error))
    then = certificate.predicate.get("parts", "")
    if isinstance(seen, PartsReading) and then != seen.digest:
        what = "; ".join(seen.changed) or f"list of parts {seen.digest[:12]}, certified {then[:12] or 'none'}"
        return NodeResult(
            Outcome.ERROR,
            f"{node}: certificate - Expected: made for the parts that it has now Actual: {what}. {_AGAIN}",
        )
    changed = altered(desk.store, certificate.statement)
    decision, _records = desk.decided(node, found)
    why = to_load(entries(desk.site), decision)
    if changed or why:
        text = (
            "; ".join(changed) or f"{node}: certificate - Expected: its evidence counts Actual: {quoted(why)} {_AGAIN}"
        )
        return NodeResult(Outcome.ERROR, text)
    if looked.outcome is not Outcome.PASS:
        return looked
    left = unproven(certificate.statement)
    return NodeResult(
        Outcome.PASS,
        f"certificate of {certificate.predicate['issued']} counts: {looked.message}{f'; {left}' if left else ''}",
        data={"certificate": certificate.digest},
    )

"""Merge of several verdicts about one node."""

from __future__ import annotations

from collections.abc import Sequence

from rackready.gates.judging.finding_kinds import ErrorKind
from rackready.model.outcome import Outcome, Verdict, worst

NO_VERDICT = ErrorKind(
    "no-verdict",
    "no verdict",
    meaning="A gate left no verdict for a node. That is a defect of rackready, and not a pass.",
    next_step="Report a bug.",
)


def merged(verdicts: Sequence[Verdict]) -> Verdict:
    """Return one verdict for several about one node: the worst outcome, all findings; an error if there are none."""
    if not verdicts:
        return Verdict(outcome=Outcome.ERROR, findings=[NO_VERDICT.found("gate", "one", "none")])
    if len(verdicts) == 1:
        return verdicts[0]
    outcome = worst([verdict.outcome for verdict in verdicts])
    notes = list(dict.fromkeys(verdict.note for verdict in verdicts if verdict.note))
    transports = list(dict.fromkeys(verdict.transport for verdict in verdicts if verdict.transport))
    return Verdict(
        outcome=outcome,
        findings=sorted(
            (finding for verdict in verdicts for finding in verdict.findings), key=lambda finding: finding.where
        ),
        metrics=[metric for verdict in verdicts for metric in verdict.metrics],
        criteria=list({item.model_dump_json(): item for verdict in verdicts for item in verdict.criteria}.values()),
        measured=sorted({part for verdict in verdicts for part in verdict.measured}),
        blamed=sorted({node for verdict in verdicts for node in verdict.blamed}),
        transport="; ".join(transports) or None,
        fleet_pending=any(verdict.fleet_pending for verdict in verdicts),
        note="; ".join(notes) or None,
    )

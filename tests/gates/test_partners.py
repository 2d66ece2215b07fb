"""What a bad run says of the end that it does not name."""

from __future__ import annotations

from rackready.gates.base import Done
from rackready.gates.registry import gate
from rackready.model.outcome import Outcome
from tests.gates.support import outputs, rack
from tests.gates.test_ib_latency import FORTH3, WRITE, links, said


def test_a_node_whose_only_partner_is_bad_was_not_measured() -> None:
    """What was found on the other end is no fault of its own; what was found on itself stays."""
    known = rack(2)
    found = gate(WRITE)
    (run,) = found.plan(known, list(known.nodes))
    down = said() | {"link-second": links(mlx5_4="1: DOWN")}
    verdict = found.evaluate(known, run, outputs(run, down))
    by_node = found.attribute(known, [Done(run, verdict)])
    assert (by_node["node02"][0].outcome, by_node["node02"][0].findings[0].what) == (Outcome.FAIL, "link down")
    [other] = by_node["node01"]
    assert [str(finding) for finding in other.findings] == [
        (
            "node01: not measured - Expected: a partner with a good link Actual: its only partner node02 is bad. "
            "Repair node02, or run the gate with another partner."
        )
    ]
    assert (other.outcome, other.blamed, len(other.measured)) == (Outcome.ERROR, [], 28)
    both = verdict.model_copy(update={"findings": [*verdict.findings, *(one.model_copy(update={"where": FORTH3}) for one in verdict.findings)]})
    [own] = found.attribute(known, [Done(run, both)])["node01"]
    assert (own.outcome, [finding.where for finding in own.findings]) == (Outcome.FAIL, [FORTH3])

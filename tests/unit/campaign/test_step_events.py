"""The last event of a phase on a node carries the outcome, which the live table counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.campaign import step
from rackready.campaign.request import DEPLOY, CampaignRequest
from rackready.ledger.batch import batch
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import NOTE, PLAN, NodeResult
from rackready.model.state import NodeState
from rackready.paths import EnvPaths


@pytest.mark.parametrize(
    ("outcome", "level"),
    [(Outcome.PASS, "ok"), (Outcome.SKIP, "ok"), (Outcome.FAIL, "fail"), (Outcome.ERROR, "error")],
)
def test_the_level_of_a_phases_last_event_is_its_outcome(tmp_path: Path, outcome: Outcome, level: str) -> None:
    request = CampaignRequest("c1", "sim", str(tmp_path), "install", ("install",), ("node01",), 8, (1,), 100, "", True)  # noqa: FBT003
    with Ledger.open(EnvPaths(tmp_path, "sim").database) as ledger:
        with batch(ledger, ["node01"]) as records:
            step._record(records, request, "install", "node01", NodeResult(outcome, "words"))
        assert [(event.level, event.text) for event in ledger.events("c1")] == [(level, "words")]


def test_what_is_still_due_is_the_state_s_reason_in_a_second_run_too(tmp_path: Path) -> None:
    request = CampaignRequest("c1", "sim", str(tmp_path), "deploy", DEPLOY, ("node01",), 8, (1,), 100, "")
    due = NodeResult(Outcome.PASS, "35 checks passed", data={NOTE: "to be measured under load"})
    with Ledger.open(EnvPaths(tmp_path, "sim").database) as ledger:
        for _ in range(2):
            step._begin(ledger, request, "validate", ["node01"])
            with batch(ledger, ["node01"]) as records:
                step._record(records, request, "validate", "node01", due)
            row = ledger.state("node01")
            assert row is not None
            assert (row.state, row.reason) == (NodeState.VALIDATED, "to be measured under load")


@pytest.mark.parametrize(("phase", "planned"), [("fabric", True), ("install", False)])
def test_a_node_that_is_not_provisioned_has_a_row_in_the_fabrics_dry_run(
    tmp_path: Path, phase: str, *, planned: bool
) -> None:
    request = CampaignRequest("c1", "sim", str(tmp_path), phase, (phase,), ("node01",), 8, (1,), 100, "", True)  # noqa: FBT003
    result = step.run_phase(request, phase, ["node01"])["node01"]
    words = f"what {phase} would change can be seen once the node is provisioned"
    assert (result["outcome"], result["message"], PLAN in result) == ("skip", words, planned)
    if planned:
        assert (result[PLAN]["step"], result[PLAN]["why"], result[PLAN]["switches"]) == ("unseen", words, [])

"""Gates of the BMC within a stage: nodes side by side, with what the last pass saw.

One bad BMC delays no other node.
"""

from __future__ import annotations

from pathlib import Path

from rackready.model.outcome import Outcome
from rackready.model.profile import GateSetEntry
from rackready_sim import faults
from tests.gates.redfish_world import FakeBmcs, broken, healthy
from tests.gates.stage import fingerprint_of, site_with, stage_of

SUPPLIES, EVENTS = "bmc/power/sanity/supplies", "bmc/log/sanity/events"
PRINTS = {"Print a node's identity": fingerprint_of}
NODES = ["node01", "node02"]


def entries(*ids: str) -> list[GateSetEntry]:
    return [GateSetEntry(id=item) for item in ids]


def test_a_bad_supply_is_that_nodes_alone(tmp_path: Path, bmcs_of_the_stage: FakeBmcs) -> None:
    bmcs_of_the_stage.states["node02"] = broken("psu-failed")
    results = stage_of(tmp_path, PRINTS, NODES, site_with(2)).run(NODES, [], entries(SUPPLIES), full_set=False)
    assert {node: result.outcome for node, result in results.items()} == {
        "node01": Outcome.PASS,
        "node02": Outcome.FAIL,
    }
    assert results["node02"].message.startswith("node02 psu PSU2: power supply not working")
    assert sorted(bmcs_of_the_stage.asked) == [("node01", "GET"), ("node02", "GET")]


def test_a_log_that_somebody_cleared_is_found_against_the_pass_before(
    tmp_path: Path, bmcs_of_the_stage: FakeBmcs
) -> None:
    site = site_with(2)
    first = stage_of(tmp_path, PRINTS, NODES, site).run(NODES, [], entries(EVENTS), full_set=False)
    assert {result.outcome for result in first.values()} == {Outcome.PASS}
    state = healthy()
    faults.inject(state, "sel-cleared")
    bmcs_of_the_stage.states["node01"] = state
    later = stage_of(tmp_path, PRINTS, NODES, site, campaign="c2").run(NODES, [], entries(EVENTS), full_set=False)
    assert {node: result.outcome for node, result in later.items()} == {"node01": Outcome.ERROR, "node02": Outcome.PASS}
    assert "log cleared since the last pass" in later["node01"].message

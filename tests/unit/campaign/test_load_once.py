"""When the validate phase looks, and when it loads: once in a first deploy, after optimize."""

from __future__ import annotations

import pytest

from rackready.handover.read_only_gates import looking
from rackready.model.operations import DeclaredSkip
from rackready.model.outcome import Outcome
from rackready.model.phase import NOTE, NodeResult
from tests.unit.campaign.test_evidence_check import NODES, Rack, rack

__all__ = ["rack"]


def test_a_first_deploy_loads_a_node_once_after_optimize(rack: Rack) -> None:
    rack.busy = set(NODES)
    rack.sees["node02"] = NodeResult(Outcome.FAIL, "node02 gpu2: NVLink down")
    found = rack.before_optimize("validate", "optimize", "revalidate")
    words = f"{len(rack.lights())} checks passed; to be measured under load after optimize, which changes the node"
    first = found["node01"]
    assert (first.outcome, first.message, first.data[NOTE]) == (Outcome.PASS, words, words)
    assert found["node02"] == rack.sees["node02"]
    assert rack.looked == [dict.fromkeys(NODES, rack.lights())]
    assert (rack.runs, rack.taken) == ([], {}), "nothing was loaded, and nobody drained"
    rack.run("node01")
    assert rack.runs[0][0] == ["node01"], "revalidate measures it"


@pytest.mark.parametrize(
    ("phases", "tuned"),
    [(("validate",), []), (("validate", "optimize"), ["node02"]), (("provision", "validate"), [])],
    ids=["validate alone", "one was optimized before", "no optimize"],
)
def test_what_optimize_does_not_change_is_measured_at_once(
    rack: Rack, phases: tuple[str, ...], tuned: list[str]
) -> None:
    for node in tuned:
        rack.ledger.done(rack.ledger.begin(node, "install:optimize.yml", "d", {}).token, {})
    found = rack.before_optimize(*phases)
    assert {result.outcome for result in found.values()} == {Outcome.PASS}
    assert rack.runs[0][0] == NODES


def test_what_load_left_behind_is_looked_for_on_every_node_that_passed(rack: Rack) -> None:
    rack.sees_after["node02"] = NodeResult(Outcome.FAIL, "node02 gpu1: Xid 63 - Expected: none")
    found = rack.run()
    assert rack.after == NODES
    assert found["node01"].outcome is Outcome.PASS
    assert found["node02"] == rack.sees_after["node02"]


def test_a_node_whose_looks_are_all_skipped_is_measured_at_once(rack: Rack) -> None:
    skips = [DeclaredSkip(gate=gate, nodes=["node02"], reason="no such part here") for gate in rack.lights()]
    gates = rack.site.gates.model_copy(update={"skip": skips})
    site = rack.site.model_copy(update={"gates": gates})
    assert looking(site, "node01")
    assert not looking(site, "node02")


def test_a_dry_run_looks_at_nothing(rack: Rack) -> None:
    rack.measured("node01", by="c0")
    found = rack.run("node01", check=True)["node01"]
    assert (found.outcome, found.message) == (
        Outcome.PASS,
        "would be looked at again; its evidence under load still counts",
    )
    assert rack.looked == []

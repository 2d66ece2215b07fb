"""A declared skip of every gate: never run, shown with its reason, refused without one, and over after its day."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rackready.design.check_gates import today
from rackready.design.site import parse_site
from rackready.design.yaml import read_yaml
from rackready.evidence.junit import junit
from rackready.evidence.report import build, render
from rackready.evidence.store import EvidenceStore
from rackready.gates.engine.registry import all_gates
from rackready.gates.engine.validate import Stage, gate_entries
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult
from rackready.model.problems import SiteInvalidError
from rackready.model.site import Site
from rackready.paths import EnvPaths
from tests.gates.fake import FakeConnection
from tests.gates.stage import ROOT, fingerprint_of

EVERY = list(all_gates())
NODE = "node01"


def reason(gate: str) -> str:
    return f"<{gate.rpartition('/')[2]}> waits for a part that is on order"


def site_of(**gates: Any) -> Site:
    """The simulated rack's site with every gate that there is."""
    document = read_yaml(ROOT / "inventories/sim/site.yml")
    named = {entry.id for entry in gate_entries(parse_site(document, source="site.yml", base=ROOT), None)}
    also = [{"id": gate} for gate in EVERY if gate not in named]
    return parse_site({**document, "gates": {**document["gates"], "also": also, **gates}}, source="site.yml", base=ROOT)


class Skipped:
    """A stage over one node on which every gate is skipped, and what is reported of it."""

    def __init__(self, folder: Path) -> None:
        self.site = site_of(skip=[{"gate": gate, "nodes": [NODE], "reason": reason(gate)} for gate in EVERY])
        paths = EnvPaths(folder, "sim")
        ledger = Ledger.open(paths.database)
        ledger.put_campaign("c1", env="sim", kind="validate", nodes=[NODE], site_digest="", abi="1", status="running")
        self.store = EvidenceStore.open(ledger, paths.raw)
        self.connection = FakeConnection({"Print a node's identity": fingerprint_of})
        stage = Stage.begin(self.site, self.connection, None, self.store, ledger, "c1", [NODE])
        self.result: NodeResult = stage.run([NODE], [], gate_entries(self.site, None), full_set=True)[NODE]
        self.report = build(self.site, paths, "c1")
        self.page = render(self.report)
        self.cases = {case.get("name"): case for case in ET.fromstring(junit(self.report)).iter("testcase")}  # noqa: S314 - written a line above


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Skipped:
    return Skipped(tmp_path_factory.mktemp("skipped"))


@pytest.mark.parametrize("gate", EVERY)
def test_a_skipped_gate_is_shown_with_its_reason_everywhere(played: Skipped, gate: str) -> None:
    assert played.result.data["gates"][gate] == "skip"
    [record] = played.store.records(gate=gate)
    assert (record.verdict.outcome, record.verdict.note, record.raw) == (Outcome.SKIP, reason(gate), [])
    entry = next(
        entry
        for node in played.report["nodes"]
        if node["name"] == NODE
        for entry in node["gates"]
        if entry["gate"] == gate
    )
    assert (entry["outcome"], entry["note"]) == ("skip", reason(gate))
    assert {"gate": gate, "nodes": [NODE], "reason": reason(gate)}.items() <= next(
        one for one in played.report["declared_skips"] if one["gate"] == gate
    ).items()
    told = played.cases[f"{gate.rpartition('/')[2]} [{NODE}]"].find("skipped")
    assert told is not None
    assert told.get("message") == reason(gate)
    assert f"<code>{gate}</code>" in played.page
    assert reason(gate).replace("<", "&lt;").replace(">", "&gt;") in played.page


def test_a_node_on_which_everything_is_skipped_is_not_good(played: Skipped) -> None:
    words = (
        "node01: nothing was run - Expected: at least one gate Actual: none. Check the gate set and the site's skips."
    )
    assert (played.result.outcome, played.result.message) == (Outcome.ERROR, words)
    assert [words for _, words in played.connection.calls if "Print a node's identity" not in words] == []


@pytest.mark.parametrize("gate", EVERY)
def test_a_skip_without_a_reason_is_refused(gate: str) -> None:
    short = "Expected: at least 10 characters Actual: 'broken'. Correct it."
    for given, says in (({}, "is required and missing. Add it."), ({"reason": "broken"}, short)):
        with pytest.raises(SiteInvalidError) as refused:
            site_of(skip=[{"gate": gate, "nodes": [NODE], **given}])
        assert [str(problem) for problem in refused.value.problems] == [f"gates.skip[0].reason: {says}"]


@pytest.mark.parametrize("gate", EVERY)
def test_a_gate_that_is_switched_off_runs_again_after_its_day(gate: str) -> None:
    last = today()
    gates = site_of(
        disabled=[{"gate": gate, "until": str(last), "by": "storage team", "reason": "false alarms with DCGM 4.6.1"}]
    ).gates
    assert gates.skipped(NODE, last) == {
        gate: f"switched off until {last} by storage team: false alarms with DCGM 4.6.1"
    }
    assert gates.skipped(NODE, last + timedelta(days=1)) == {}

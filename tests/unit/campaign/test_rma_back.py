"""A node comes back: parts compared, a third return retired, peers' gates void, and kills."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from rackready.campaign.rma import back
from rackready.campaign.rma.back import CameBack, come_back
from rackready.campaign.rma.case import Case
from rackready.campaign.rma.leave import RmaRefusedError
from rackready.campaign.rma.parts import NodePart
from rackready.campaign.rma.peers import Peer, beside_at_switch, in_domain, measured_with
from rackready.design.site import load_site
from rackready.evidence.store import EvidenceStore
from rackready.handover.policy import decide
from rackready.handover.returned import kept_out, open_case, retired_part
from rackready.ledger.part_history import (
    ACCUSED,
    RETIRED,
    RETURNED,
    SENT,
    GateVoid,
    PartEvent,
    append,
    events_of,
    void_since,
)
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import PhaseContext
from rackready.model.profile import GateSetEntry
from rackready.model.site import Site
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.unit.handover.evidence import NOW, T0, fingerprint, record

ROOT = Path(__file__).resolve().parents[3]
PAIR = "pair/fabric/performance/ib-write-bw"
GPU2, GPU3 = NodePart("gpu", "gpu2", "1650"), NodePart("gpu", "gpu3", "1651")
Quiet = Callable[[str], None]


class Home:
    """A site that hands over to a file, node01 with an open case, and the parts that it has."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        (root / "inventories/sim").mkdir(parents=True)
        raw = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
        raw["handover"] = {"kind": "file", "path": str(root / "ready.txt")}
        (root / "inventories/sim/site.yml").write_text(yaml.safe_dump(raw), encoding="utf-8")
        (root / "ready.txt").write_text("node02\n", encoding="utf-8")
        self.ctx, self.paths = PhaseContext("sim", root, "rma-1"), EnvPaths(root, "sim")
        self.parts, self.unread = [GPU2, GPU3], list[str]()
        self.beside = [Peer("node02", ["measured with node01"], {PAIR})]
        patch.setattr(back, "_parts_now", lambda *_: (self.parts, self.unread))
        patch.setattr(back, "peers", lambda *_: self.beside)
        self.count = 0

    def ledger(self) -> Ledger:
        return Ledger.open(self.paths.database)

    def leave(self, *accused: NodePart, node: str = "node01") -> Case:
        self.count += 1
        with self.ledger() as ledger:
            ledger.set_state(node, NodeState.REPAIR, "rma: x")
            case = Case.begin(ledger, self.paths, node, "x")
            case = Case(f"{case.id}-{self.count}", node, case.begun, "x", case.base)
            last = ledger.latest(node, "rma", every_epoch=True)
            assert last is not None
            ledger.done(last.token)
            ledger.begin(node, "rma", case.id, {"reason": "x"})
            rows = [(SENT, part) for part in self.parts] + [(ACCUSED, part) for part in accused]
            now = time.time()
            append(ledger, [PartEvent(now, case.id, node, event, p.kind, p.serial, p.place) for event, p in rows])
        return case

    def back(self, node: str = "node01") -> CameBack:
        return come_back(self.ctx, node, "swapped", lambda _line: None)

    def told(self, serial: str) -> list[str]:
        with self.ledger() as ledger:
            return [event.event for event in events_of(ledger, serials=[serial])]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    return Home(tmp_path, monkeypatch)


def test_a_replaced_part_is_named_and_the_node_is_reachable(home: Home) -> None:
    case = home.leave(GPU2)
    home.parts = [NodePart("gpu", "gpu2", "1999"), GPU3, NodePart("psu", "psu PSU0", "P1")]
    found = home.back()
    assert found.comparison.lines() == [
        "gpu gpu2: 1650 was replaced by 1999",
        "not compared: psu: its serials were read only now",
    ]
    assert (found.epoch, found.refused) == (2, [])
    with home.ledger() as ledger:
        row = ledger.state("node01")
        assert row is not None
        assert (row.state, row.reason) == (NodeState.REACHABLE, f"back from its vendor: swapped ({case.id})")
        assert kept_out(ledger, "node01") is None
        assert ledger.last_change("node01").at > case.begun


def test_a_single_part_that_went_and_came_needs_no_name(home: Home) -> None:
    home.leave(GPU2)
    home.parts = [NodePart("gpu", "GPU_SXM_3", "1999"), NodePart("gpu", "GPU_SXM_4", "1651")]
    assert home.back().comparison.lines() == ["gpu gpu2: 1650 was replaced by 1999"]
    home.leave()
    home.parts = [NodePart("gpu", "gpu2", "1"), NodePart("gpu", "gpu3", "2")]
    assert home.back().comparison.lines() == [
        "gpu GPU_SXM_3: 1999 is gone",
        "gpu GPU_SXM_4: 1651 is gone",
        "gpu gpu2: 1 is new",
        "gpu gpu3: 2 is new",
    ]


def test_the_same_part_again_is_told_and_counted(home: Home) -> None:
    home.leave(GPU2)
    found = home.back()
    assert found.comparison.lines() == ["gpu gpu2: accused, and the same part is there again: 1650, return 1 of 3"]
    assert home.told("1650") == [SENT, ACCUSED, "listed", RETURNED]
    assert home.told("1651") == [SENT, "listed"], "a part that nobody accused does not return"


def test_a_part_that_returns_for_the_third_time_keeps_the_node_out(home: Home) -> None:
    for _ in range(2):
        home.leave(GPU2)
        assert home.back().epoch > 0
    case = home.leave(GPU2)
    found = home.back()
    assert (found.epoch, found.peers) == (0, [])
    text = str(found.refused[0])
    assert text.startswith("node01: gpu 1650 - Expected: a part that did not return three times Actual: ")
    assert [text.count(f"{word} at node01 gpu2 (node01-") for word in (ACCUSED, RETURNED, RETIRED)] == [3, 3, 1]
    assert text.endswith("Have it replaced by another one, then run `rackready rma node01 --returned --reason ...`.")
    with home.ledger() as ledger:
        row = ledger.state("node01")
        assert row is not None
        assert (row.state, row.reason) == (NodeState.REPAIR, f"rma: retired part 1650 ({case.id})")
        assert open_case(ledger, "node01") is not None
    assert home.back().epoch == 0, "asked again, nothing is counted twice"
    assert home.told("1650").count(RETURNED) == 3
    assert home.told("1650").count(RETIRED) == 1

    home.parts = [NodePart("gpu", "gpu2", "1999"), GPU3]
    assert home.back().epoch > 0
    with home.ledger() as ledger:
        assert kept_out(ledger, "node01") is None


def test_a_retired_gpu_is_refused_in_any_node(home: Home) -> None:
    with home.ledger() as ledger:
        event = PartEvent(1.0, "c", "node01", RETIRED, "gpu", "G1", "gpu2")
        append(ledger, [event])
        refused = kept_out(ledger, "node03", fingerprint(node="node03", gpus=["G0", "G1"]))
        assert str(refused).startswith(
            "node03: gpu G1 - Expected: a part that did not return three times Actual: "
            "1970-01-01 00:00 UTC retired at node01 gpu2 (c). "
        )
        assert retired_part(ledger, "node03", fingerprint(node="node03", gpus=["G0"])) is None


def test_a_part_accused_in_one_node_returns_in_another(home: Home) -> None:
    home.leave(GPU2)
    home.parts = [GPU3]
    home.back()
    home.parts = [NodePart("gpu", "gpu0", "1700")]
    home.leave(node="node03")
    home.parts = [NodePart("gpu", "gpu0", "1650")]
    found = home.back("node03")
    assert found.comparison.lines() == [
        "gpu gpu0: 1700 was replaced by 1650",
        "gpu gpu0: accused, and the same part is there again: 1650, return 1 of 3",
    ]


def test_a_part_that_was_not_read_before_it_left_does_not_return_for_that(home: Home) -> None:
    home.leave(GPU2)
    assert home.back().comparison.same[0]["returns"] == 1
    parts = home.parts
    for _ in range(3):  # neither node nor BMC answered: nothing was read before it left
        home.parts = []
        home.leave()
        home.parts = parts
        assert home.back().epoch > 0
    assert home.told("1650").count(RETURNED) == 1
    home.parts = []
    home.leave(node="node03")
    home.parts = parts
    assert home.back("node03").comparison.same[0]["returns"] == 2, "a spare that came with the return"


def test_without_a_case_nothing_comes_back(home: Home) -> None:
    with pytest.raises(RmaRefusedError) as error:
        home.back()
    assert str(error.value) == (
        "node01 - Expected: an open case Actual: none. "
        "If it was repaired in its place, run `rackready repair node01 --reason '...'`."
    )


@pytest.mark.parametrize("point", ["begin_anew", "end"])
def test_after_a_kill_on_the_way_back_nothing_counts_twice(
    home: Home, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    home.leave(GPU2)
    with monkeypatch.context() as patch:
        patch.setattr(back, point, _exit)
        with pytest.raises(SystemExit):
            home.back()
    with home.ledger() as ledger:
        assert kept_out(ledger, "node01") is not None, "not back before everything is recorded"
    assert home.back().epoch >= 2
    assert home.told("1650").count(RETURNED) == 1


def _exit(*_: object, **__: object) -> None:
    raise SystemExit


def test_a_peer_in_production_stays_and_owes_its_gates_when_it_leaves(home: Home) -> None:
    with home.ledger() as ledger:
        ledger.set_state("node02", NodeState.READY)
    home.leave()
    found = home.back()
    assert (found.peers[0].node, found.in_production) == ("node02", ["node02"])
    assert (home.paths.root / "ready.txt").read_text().splitlines() == ["node02"], "it is not drained"
    with home.ledger() as ledger:
        assert void_since(ledger, "node02") == {}
        ledger.set_state("node02", NodeState.CERTIFIED, "drained: install changes it")
        void = void_since(ledger, "node02")[PAIR]
        assert void.why == "node01 came back from its vendor (measured with node01)"


def test_who_was_measured_with_the_node(home: Home) -> None:
    with home.ledger() as ledger:
        store = EvidenceStore.open(ledger, home.paths.raw)
        run = record(PAIR)
        both = [fingerprint(), fingerprint(node="node02")]
        store.append(
            run.model_copy(update={"target": "node01+node02", "nodes": ["node01", "node02"], "fingerprints": both})
        )
        own = record(PAIR, minutes=1)
        for node, campaign in (("node02", "c1"), ("node03", "c1")):
            store.append(
                own.model_copy(update={"id": f"1{node}", "target": node, "nodes": [node], "campaign": campaign})
            )
        assert measured_with(store, "node01") == [("node02", PAIR)]
        later = own.model_copy(update={"id": "2", "target": "node02", "nodes": ["node02"], "campaign": "c2"})
        store.append(later)
        assert measured_with(store, "node01") == [], "measured anew since, with another"


def example(name: str) -> Site:
    return load_site("x", site_file=ROOT / f"inventories/examples/{name}.yml", root=ROOT)


def test_a_module_of_two_ports_makes_two_nodes_peers() -> None:
    site = example("h100-1su-infiniband")
    node = site.nodes()[0].name
    beside = list(beside_at_switch(site, node))
    assert {other for other, _ in beside} == {site.nodes()[1].name}
    assert len({place for _, place in beside}) == 8, "one for each rail"
    assert in_domain(site, node) == []
    sim = load_site("sim")
    assert list(beside_at_switch(sim, "node01")) == []


def test_the_trays_of_an_nvlink_domain_are_peers() -> None:
    site = example("gb200-nvl72-8-racks")
    node = site.nodes()[0].name
    found = in_domain(site, node)
    assert len(found) == 17
    assert {site.rack_of(other).name for other in found} == {site.rack_of(node).name}


def test_a_domain_has_the_nodes_that_its_names_stand_for(tmp_path: Path) -> None:
    raw = yaml.safe_load((ROOT / "inventories/examples/gb200-nvl72-8-racks.yml").read_text(encoding="utf-8"))
    file = tmp_path / "site.yml"
    domains = [{"name": "one", "nodes": ["r01-c[01-17]", "r01-c18"]}]
    file.write_text(yaml.safe_dump(raw | {"nvlink_domains": domains}), encoding="utf-8")
    site = load_site("x", site_file=file, root=ROOT)
    assert in_domain(site, "r01-c18") == [f"r01-c{at:02}" for at in range(1, 18)]


def test_a_record_of_before_the_return_does_not_count() -> None:
    entry, found = GateSetEntry(id=PAIR), {PAIR: record(PAIR)}
    moment = NOW.__class__(
        NOW.at, NOW.boot_id, voids={PAIR: GateVoid("node01", PAIR, "node09 came back", T0.timestamp() + 1)}
    )
    (refusal,) = decide("node01", [entry], found, {}, moment).refusals[:1]
    assert refusal.startswith(
        f"node01: {PAIR} - Expected: measured since node09 came back Actual: measured before it. "
    )
    earlier = NOW.__class__(NOW.at, NOW.boot_id, voids={PAIR: GateVoid("node01", PAIR, "x", T0.timestamp())})
    assert decide("node01", [entry], found, {}, earlier).allowed
    assert found[PAIR].verdict.outcome is Outcome.PASS

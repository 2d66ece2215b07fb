"""The validate phase carried out: looks, missing, void, old and pre-boot evidence, partners, and fails on record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rackready.campaign import evidence_check, evidence_reader
from rackready.campaign.evidence_check import run_before_optimize, run_where_needed
from rackready.campaign.evidence_plan import LOOKED_BEFORE as SEEN
from rackready.design.facts import desired_digest
from rackready.design.site import load_site
from rackready.drivers.process import Interrupted
from rackready.drivers.scheduler.base import SchedulerNode
from rackready.evidence.store import EvidenceStore, new_id
from rackready.gates.records.node_parts import PartsReading
from rackready.handover import read_only_gates as looking
from rackready.handover.certify import entries
from rackready.handover.policy import looks
from rackready.handover.run import DRAIN, PARTNER_OF, RELEASE
from rackready.ledger.store import Ledger
from rackready.model.evidence import EvidenceRecord, Fingerprint
from rackready.model.outcome import Finding, Outcome, Verdict
from rackready.model.phase import PLAN, NodeResult, PhaseContext
from rackready.model.state import NodeState
from rackready.paths import EnvPaths

ROOT = Path(__file__).resolve().parents[3]
NODES = ["node01", "node02"]
R3, PAIR, RING = (
    "node/gpu/validation/dcgm-r3",
    "pair/fabric/performance/ib-write-bw",
    "cluster/fabric/performance/nccl-all-reduce-ring",
)
KEPT = NodeResult(Outcome.ERROR, "jobs run on it", touched=False)


@dataclass
class Rack:
    """Nodes with complete evidence of boot b1, and what is done to them."""

    ctx: PhaseContext
    boots: dict[str, str] = field(default_factory=lambda: dict.fromkeys(NODES, "b1"))
    busy: set[str] = field(default_factory=set)
    keep: set[str] = field(default_factory=set)
    unread: set[str] = field(default_factory=set)
    hidden: set[str] = field(default_factory=set)
    """Nodes whose parts cannot be read any more."""
    runs: list[tuple[list[str], list[str], dict[str, set[str]]]] = field(default_factory=list)
    """Nodes, partners, and per node the gates that were due, of every call of the gates."""
    looked: list[dict[str, set[str]]] = field(default_factory=list)
    """Per node the gates that were due, of every look."""
    sees: dict[str, NodeResult] = field(default_factory=dict)
    """Findings of a check per node; a pass by default."""
    sees_after: dict[str, NodeResult] = field(default_factory=dict)
    """The same of looks at nodes that were just loaded; ``after``: these nodes."""
    after: list[str] = field(default_factory=list)
    taken: dict[str, str] = field(default_factory=dict)
    partner_of: dict[str, list[str]] = field(default_factory=dict)
    """Partner that was lent -> the nodes that were measured with it."""
    returned: list[str] = field(default_factory=list)
    back: NodeResult = field(default_factory=lambda: NodeResult(Outcome.PASS))

    def __post_init__(self) -> None:
        self.site = load_site("sim", root=self.ctx.root)
        self.paths = EnvPaths(self.ctx.root, "sim")
        self.ledger = Ledger.open(self.paths.database)
        self.store = EvidenceStore.open(self.ledger, self.paths.raw)

    def measured(
        self,
        node: str,
        gate: str = "",
        *,
        outcome: Outcome = Outcome.PASS,
        hours_ago: float = 0.3,
        findings: Sequence[Finding] = (),
        by: str = "c1",
    ) -> None:
        """Append evidence of all gates that decide, or of one."""
        at = datetime.now(UTC) - timedelta(hours=hours_ago)
        for entry in entries(self.site):
            if gate in {"", entry.id}:
                verdict = Verdict(outcome=outcome, findings=list(findings))
                prints = [self.prints(node)]
                self.store.append(
                    EvidenceRecord(
                        id=new_id(), campaign=by, gate=entry.id, target=node, nodes=[node], fingerprints=prints,
                        verdict=verdict,
                        rackready_version="0", started=at, finished=at,
                    )
                )  # fmt: skip

    def prints(self, node: str) -> Fingerprint:
        return Fingerprint(
            node=node, chassis_serial="S", gpus=["G"], nics=["n"], driver="580", vbios=["96"], nic_firmware=["28"],
            kernel="6.1",
            desired_digest=desired_digest(self.site, node), boot_id=self.boots[node],
        )  # fmt: skip

    def before_optimize(self, *phases: str) -> dict[str, NodeResult]:
        return run_before_optimize(PhaseContext("sim", self.ctx.root, "c1", phases=phases), NODES)

    def run(
        self, *nodes: str, again: bool = False, check: bool = False, beside: tuple[str, ...] = ()
    ) -> dict[str, NodeResult]:
        ctx = PhaseContext("sim", self.ctx.root, "c1", check=check, again=again, beside=beside)
        return run_where_needed(ctx, list(nodes or NODES))

    def due(self) -> dict[str, set[str]]:
        assert len(self.runs) == 1
        return self.runs[0][2]

    def fingerprints(self, _site: object, _paths: object, nodes: list[str]) -> dict[str, Fingerprint | Finding]:
        lost = Finding(where="x", what="SSH", expected="an answer", actual="none", next_step="Look.")
        return {node: lost if node in self.unread else self.prints(node) for node in nodes}

    def seen_now(
        self, _ctx: object, site: object, nodes: list[str]
    ) -> tuple[dict[str, Fingerprint | Finding], dict[str, PartsReading | Finding]]:
        unsaid = Finding(
            where="x",
            what="parts that were seen before cannot be read",
            expected="drives",
            actual="drives: lsblk: exit 1",
            next_step="Look.",
        )
        return self.fingerprints(site, None, nodes), {
            node: unsaid if node in self.hidden else PartsReading("d") for node in nodes if node not in self.unread
        }

    def gates(
        self, _ctx: object, nodes: list[str], *, partners: Sequence[str], kept: Mapping[str, Mapping[str, Verdict]]
    ) -> dict[str, NodeResult]:
        ids = [entry.id for entry in entries(self.site)]
        self.runs.append(
            (nodes, list(partners), {node: {name for name in ids if name not in kept[node]} for node in nodes})
        )
        return {node: NodeResult(Outcome.PASS) for node in nodes}

    def look(
        self,
        _ctx: object,
        nodes: list[str],
        *,
        kept: Mapping[str, Mapping[str, Verdict]] | None = None,
        quiet: bool = False,
        only: Sequence[str] = (),
    ) -> dict[str, NodeResult]:
        if kept is None:
            assert set(only) == self.lights()
            self.after += nodes
            return {node: self.sees_after.get(node, NodeResult(Outcome.PASS)) for node in nodes}
        assert quiet or only, "a look at nodes on which nothing is wrong has nothing to say"
        ids = [*only] or [entry.id for entry in entries(self.site)]
        self.looked.append({node: {name for name in ids if name not in kept[node]} for node in nodes})
        return {
            node: self.sees.get(node, NodeResult(Outcome.PASS, data={"gates": dict.fromkeys(ids, "pass")}))
            for node in nodes
        }

    def lights(self) -> set[str]:
        return {entry.id for entry in entries(self.site) if looks(entry.id)}

    def in_production(self, _ctx: object, nodes: list[str]) -> tuple[list[str], dict[str, NodeResult]]:
        return [node for node in nodes if node in self.busy], {}

    def take_out(
        self, _ctx: object, reasons: dict[str, str], *, partner_of: Sequence[str] = ()
    ) -> dict[str, NodeResult]:
        self.taken |= reasons
        if partner_of:
            self.partner_of |= {node: list(partner_of) for node in reasons}
        return {node: KEPT for node in reasons if node in self.keep}

    def handover(self, _ctx: object, nodes: list[str]) -> dict[str, NodeResult]:
        self.returned += nodes
        return dict.fromkeys(nodes, self.back)


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rack:
    (tmp_path / "inventories/sim").mkdir(parents=True)
    (tmp_path / "inventories/sim/site.yml").write_bytes((ROOT / "inventories/sim/site.yml").read_bytes())
    made = Rack(PhaseContext("sim", tmp_path, "c1"))
    monkeypatch.setattr(evidence_reader, "fingerprints", made.fingerprints)
    monkeypatch.setattr(evidence_reader, "seen_now", made.seen_now)
    monkeypatch.setattr(evidence_reader, "in_production", made.in_production)
    monkeypatch.setattr(evidence_check, "run_gates", made.gates)
    monkeypatch.setattr(evidence_check, "take_out", made.take_out)
    monkeypatch.setattr(evidence_check, "run_handover", made.handover)
    monkeypatch.setattr(looking, "run_gates", made.look)
    return made


def test_every_run_looks_again_at_nodes_in_production_and_drains_nobody(rack: Rack) -> None:
    for node in NODES:
        rack.measured(node, by="c0")
    rack.busy = set(NODES)
    words = f"looked at again: {len(rack.lights())} checks passed; evidence under load still counts"
    assert {node: (result.outcome, result.message) for node, result in rack.run().items()} == dict.fromkeys(
        NODES, (Outcome.PASS, words)
    )
    assert rack.looked == [dict.fromkeys(NODES, rack.lights())]
    assert len(rack.lights()) >= 32
    assert (rack.runs, rack.taken) == ([], {})


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.ERROR])
def test_what_a_look_finds_decides_and_such_a_node_is_no_partner(rack: Rack, outcome: Outcome) -> None:
    for node in NODES:
        rack.measured(node, by="c0")
    rack.measured("node01", R3, hours_ago=2161)
    rack.sees["node02"] = NodeResult(outcome, "node02 gpu2: NVLink down - Expected: 18 links active Actual: 17.")
    assert rack.run()["node02"] == rack.sees["node02"]
    assert rack.runs[0][:2] == (["node01"], [])


def test_one_run_looks_once(rack: Rack) -> None:
    for node in NODES:
        rack.measured(node)
    assert {node: (result.outcome, result.message) for node, result in rack.run().items()} == dict.fromkeys(
        NODES, (Outcome.PASS, SEEN)
    )
    assert (rack.runs, rack.looked) == ([], [])


def test_a_look_of_this_run_that_is_old_is_made_again(rack: Rack) -> None:
    """A wave may take hours to measure, and a campaign that was cut off is gone on with days later."""
    rack.measured("node01", hours_ago=0.6)
    rack.run("node01")
    assert rack.looked == [{"node01": rack.lights()}]


def test_a_node_without_evidence_gets_every_gate(rack: Rack) -> None:
    assert set(rack.run()) == set(NODES)
    assert rack.due() == {node: {entry.id for entry in entries(rack.site)} for node in NODES}


def test_a_reboot_makes_only_the_gates_due_that_say_so(rack: Rack) -> None:
    for node in NODES:
        rack.measured(node)
    rack.boots["node02"] = "b2"
    results = rack.run()
    assert results["node01"].message == SEEN
    after_boot = {entry.id for entry in entries(rack.site) if entry.after_boot}
    assert rack.due() == {"node02": after_boot}
    assert rack.runs[0][1] == ["node01"], "a pair gate is due: it needs the other end"
    texts = [event.text for event in rack.ledger.events("c1")]
    words = "Expected: measured since the node's last boot Actual: measured before it. Run `rackready validate`."
    assert texts == [f"to be measured: node02: node/gpu/validation/dcgm-r1 - {words}"]


def test_aged_evidence_is_measured_again_and_needs_no_partner_where_no_pair_is_due(rack: Rack) -> None:
    for node in NODES:
        rack.measured(node)
    rack.measured("node01", R3, hours_ago=2161)
    rack.run()
    assert rack.runs == [(["node01"], [], {"node01": {R3}})]


def test_what_was_changed_is_measured_whole(rack: Rack) -> None:
    for node in NODES:
        rack.measured(node)
    rack.ledger.done(rack.ledger.change_begins("node01", "optimize"), {})
    rack.run()
    assert rack.due() == {"node01": {entry.id for entry in entries(rack.site)}}


def test_again_measures_everything_anew(rack: Rack) -> None:
    for node in NODES:
        rack.measured(node)
    rack.run("node01", again=True)
    assert rack.due() == {"node01": {entry.id for entry in entries(rack.site)}}
    assert [event.text for event in rack.ledger.events("c1")] == [
        "to be measured: node01: --again measures everything again"
    ]


@pytest.mark.parametrize("again", [False, True])
def test_a_fail_on_record_is_not_measured_away(rack: Rack, *, again: bool) -> None:
    for node in NODES:
        rack.measured(node)
    bad = Finding(
        where="node02 gpu2", what="NVLink down", expected="18 links", actual="17", next_step="Reseat the board."
    )
    rack.measured("node02", R3, outcome=Outcome.FAIL, hours_ago=0.1, findings=[bad])
    rack.boots["node02"] = "b2"
    result = rack.run(again=again)["node02"]
    assert result.outcome is Outcome.FAIL
    assert result.message == (
        "node02 gpu2: NVLink down - Expected: 18 links Actual: 17. Reseat the board. "
        "(a fail on record is not measured again: once it is repaired, run `rackready repair node02 --reason '...'`)"
    )
    assert all("node02" not in [*nodes, *partners] for nodes, partners, _ in rack.runs)


@pytest.mark.parametrize("ago", [0.2, -8.0], ids=["in time", "the clock was ahead"])
def test_a_pass_after_a_fail_does_not_hide_it(rack: Rack, ago: float) -> None:
    """`rackready gate run`, run until it passes, is no repair."""
    bad = Finding(
        where="node02 gpu2", what="NVLink down", expected="18 links", actual="17", next_step="Reseat the board."
    )
    rack.measured("node02")
    rack.measured("node02", R3, outcome=Outcome.FAIL, hours_ago=ago, findings=[bad])
    rack.measured("node02", R3, hours_ago=0.1)
    found = rack.run("node02")["node02"]
    assert (found.outcome, found.message[:24]) == (Outcome.FAIL, "node02 gpu2: NVLink down")
    rack.ledger.done(rack.ledger.change_begins("node02", "repair"))
    assert rack.run("node02")["node02"].outcome is Outcome.PASS, (
        "measured again: evidence from before the repair does not count"
    )
    assert rack.due()["node02"] >= {R3}


def test_a_node_in_production_is_taken_out_before_it_is_measured(rack: Rack) -> None:
    rack.busy = {"node01"}
    rack.run()
    assert rack.taken == {"node01": "is being measured under load"}
    assert rack.runs[0][0] == NODES


def test_a_node_that_keeps_its_jobs_is_left_alone(rack: Rack) -> None:
    rack.busy, rack.keep = {"node01"}, {"node01"}
    assert rack.run()["node01"] == KEPT
    assert rack.runs[0][0] == ["node02"]


def test_no_gate_is_called_when_no_node_could_be_drained(rack: Rack) -> None:
    rack.busy, rack.keep = set(NODES), set(NODES)
    assert rack.run() == dict.fromkeys(NODES, KEPT)
    assert rack.runs == []


def test_a_partner_in_production_is_lent_and_given_back(rack: Rack) -> None:
    rack.measured("node02")
    rack.busy = {"node02"}
    rack.run()
    assert rack.taken == {"node02": "partner in the measurement of node01"}
    assert rack.partner_of == {"node02": ["node01"]}
    assert (rack.runs[0][1], rack.returned) == (["node02"], ["node02"])
    row = rack.ledger.state("node02")
    assert row is not None
    assert row.state is NodeState.READY


def test_a_partner_that_cannot_be_given_back_is_said(rack: Rack) -> None:
    rack.measured("node02")
    rack.busy, rack.back = {"node02"}, NodeResult(Outcome.ERROR, "node02: no answer.")
    rack.run("node02", "node01")
    assert (
        rack.ledger.events("c1")[-1].text
        == "served as a partner and could not be handed over again: node02: no answer."
    )
    assert rack.ledger.state("node02") is None, "it is not said to be ready"


def test_a_partner_that_keeps_its_jobs_does_not_serve(rack: Rack) -> None:
    rack.measured("node02")
    rack.busy, rack.keep = {"node02"}, {"node02"}
    rack.run()
    assert (rack.runs[0][1], rack.returned) == ([], ["node02"]), "it was drained for nothing: it is on offer again"
    assert "does not serve as a partner: jobs run on it" in [
        event.text for event in rack.ledger.events("c1") if event.node == "node02"
    ]


@pytest.mark.parametrize("error", [RuntimeError, Interrupted])
def test_a_partner_is_given_back_when_the_gates_raise(
    rack: Rack, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def gates(*_args: object, **_more: object) -> dict[str, NodeResult]:
        raise error

    monkeypatch.setattr(evidence_check, "run_gates", gates)
    rack.measured("node02")
    rack.busy = {"node02"}
    with pytest.raises(error):
        rack.run()
    assert rack.returned == ["node02"]


OURS = "rackready: partner in the measurement of node03"


@pytest.mark.parametrize(
    ("observed", "reason", "returned"),
    [
        ({PARTNER_OF: ["node03"]}, "rackready: whatever people read", ["node02"]),
        ({PARTNER_OF: []}, OURS, []),
        ({PARTNER_OF: ["node03"]}, "bad PSU, maria", []),
        ({}, OURS, []),
        ({}, "rackready: quarantined: broken", []),
        ({}, "bad PSU, maria", []),
    ],
    ids=["lent", "drained for itself", "taken over by somebody", "nothing recorded", "quarantined", "foreign"],
)
@pytest.mark.parametrize("ended", [True, False])
def test_a_partner_that_a_killed_run_left_drained_is_given_back(
    rack: Rack,
    monkeypatch: pytest.MonkeyPatch,
    observed: dict[str, list[str]],
    reason: str,
    returned: list[str],
    *,
    ended: bool,
) -> None:
    class Shown:
        def show(self, node: str) -> SchedulerNode:
            return SchedulerNode(node, "IDLE+DRAIN", usable=False, drained=True, down=False, reason=reason)

    monkeypatch.setattr(evidence_reader, "adapter_for", lambda _site, _paths: nullcontext(Shown()))
    for node in NODES:
        rack.measured(node)
    drain = rack.ledger.begin("node02", DRAIN, "d", observed)
    if ended:
        rack.ledger.done(drain.token)
    assert rack.run()["node02"].message == SEEN
    assert rack.returned == returned


def test_a_partner_that_was_handed_over_since_is_not_asked_about(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        evidence_reader, "adapter_for", lambda _site, _paths: pytest.fail("nobody is to be asked about")
    )
    for node in NODES:
        rack.measured(node)
    rack.ledger.done(rack.ledger.begin("node02", DRAIN, "d", {PARTNER_OF: ["node01"]}).token)
    rack.ledger.done(rack.ledger.begin("node02", RELEASE, "c", {}).token)
    rack.run()
    assert rack.returned == []


def test_a_dry_run_shows_the_plan_and_carries_out_none_of_it(rack: Rack) -> None:
    rack.measured("node02", by="c0")
    rack.busy = set(NODES)
    out = rack.run(check=True)
    assert [out[node].data[PLAN]["step"] for node in NODES] == ["measure", "look"]
    assert out["node01"].message.endswith(
        "; would be drained first: is being measured under load; partners: node02; partners missing: 1"
    )
    assert out["node02"].message == (
        "would be looked at again; its evidence under load still counts; would be drained as a partner in the "
        "measurement of node01; would be handed over again at the end"
    )
    assert (rack.runs, rack.looked, rack.taken, rack.returned) == ([], [], {}, [])


def test_a_node_that_cannot_be_read_is_said(rack: Rack) -> None:
    rack.unread = {"node01"}
    rack.run("node01")
    assert [event.text for event in rack.ledger.events("c1")] == [
        "to be measured: its fingerprint could not be read (x: SSH - Expected: an answer Actual: none. Look.)"
    ]


def test_a_node_whose_parts_cannot_be_seen_any_more_is_no_pass_and_not_loaded(rack: Rack) -> None:
    rack.measured("node01", by="c0")
    rack.hidden = {"node01"}
    found = rack.run("node01")["node01"]
    assert found == NodeResult(
        Outcome.ERROR,
        "x: parts that were seen before cannot be read - Expected: drives Actual: drives: lsblk: exit 1. Look.",
    )
    assert (rack.runs, rack.looked, rack.taken) == ([], [], {})


def test_a_dry_run_shows_what_would_be_measured_and_drains_nobody(rack: Rack) -> None:
    rack.busy = set(NODES)
    found = rack.run("node01", check=True)["node01"]
    assert found.outcome is Outcome.NOT_RUN
    assert found.message.startswith(
        "would be measured under load: node01: node/gpu/validation/dcgm-r1 - "
        "Expected: pass, measured on the node as it is now"
    )
    assert (rack.runs, rack.taken) == ([], {})


def test_evidence_of_a_node_is_read_once(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    rack.measured("node01")
    read: list[str] = []
    valid = EvidenceStore.valid

    def counted(self: EvidenceStore, node: str, *rest: object) -> dict[str, EvidenceRecord]:
        read.append(node)
        return valid(self, node, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(EvidenceStore, "valid", counted)
    rack.run("node01")
    assert read == ["node01"]

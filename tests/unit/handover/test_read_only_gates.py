"""Certifying and verifying: a node that this run did not look at is looked at first, and what is seen decides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NoReturn

import pytest

from rackready.design.facts import desired_digest
from rackready.design.site import load_site
from rackready.evidence.store import EvidenceStore, new_id
from rackready.gates.records.fingerprint import Unreached
from rackready.gates.records.node_parts import SEEN, PartsReading
from rackready.handover import certify, verify
from rackready.handover.certify import entries, run_certify
from rackready.handover.dsse import SignatureError
from rackready.handover.keys import Keys
from rackready.handover.policy import looks
from rackready.handover.returned import HAND_BACK
from rackready.handover.verify import run_verify
from rackready.ledger.store import Ledger
from rackready.model.evidence import EvidenceRecord, Fingerprint
from rackready.model.outcome import Finding, Outcome, Verdict
from rackready.model.phase import UNTOUCHED, NodeResult, PhaseContext
from rackready.paths import EnvPaths

ROOT = Path(__file__).resolve().parents[3]
R3 = "node/gpu/validation/dcgm-r3"
BAD = NodeResult(Outcome.FAIL, "node01 gpu2: NVLink down - Expected: 18 links active Actual: 17.")


@dataclass
class Rack:
    """One node with evidence, and what is seen of it."""

    root: Path
    look: NodeResult | None = None
    """What a look finds; None: a pass, which is recorded."""
    driver: str = "580"
    parts: str = "d1"
    seen: PartsReading | Finding = field(default_factory=lambda: PartsReading("d1"))
    looked: int = 0

    def __post_init__(self) -> None:
        self.site = load_site("sim", root=self.root)
        self.paths = EnvPaths(self.root, "sim")
        self.ledger = Ledger.open(self.paths.database)
        self.store = EvidenceStore.open(self.ledger, self.paths.raw)
        self.ledger.done(self.ledger.begin("node01", SEEN, self.parts, {}).token, {})

    def print(self) -> Fingerprint:
        return Fingerprint(
            node="node01", chassis_serial="S", gpus=["G"], nics=["n"], driver=self.driver, vbios=["96"],
            nic_firmware=["28"], kernel="6.1",
            desired_digest=desired_digest(self.site, "node01"), boot_id="b", parts=self.parts,
        )  # fmt: skip

    def measured(self, campaign: str, *, only_looks: bool = False, without: str = "") -> None:
        at = datetime.now(UTC) - timedelta(minutes=1)
        for entry in entries(self.site):
            if entry.id != without and (looks(entry.id) or not only_looks):
                verdict = Verdict(outcome=Outcome.PASS)
                prints = [self.print()]
                self.store.append(
                    EvidenceRecord(
                        id=new_id(), campaign=campaign, gate=entry.id, target="node01", nodes=["node01"],
                        fingerprints=prints, verdict=verdict,
                        rackready_version="0", started=at, finished=at,
                    )
                )  # fmt: skip

    def seen_now(
        self, _ctx: object, _site: object, _nodes: list[str]
    ) -> tuple[dict[str, Fingerprint | Finding], dict[str, PartsReading | Finding]]:
        return {"node01": self.print()}, {"node01": self.seen}

    def looking(self, ctx: PhaseContext, counts: Mapping[str, Mapping[str, Verdict]]) -> dict[str, NodeResult]:
        if "node01" not in counts:
            return {}
        assert not any(looks(gate) for gate in counts["node01"]), "every look is made anew"
        self.looked += 1
        if self.look is not None:
            return {"node01": self.look}
        self.measured(ctx.campaign, only_looks=True)
        return {"node01": NodeResult(Outcome.PASS, "looked at again: 35 checks passed")}

    def certify(self, campaign: str = "c2") -> NodeResult:
        return run_certify(PhaseContext("sim", self.root, campaign), ["node01"])["node01"]

    def verify(self, campaign: str = "c3") -> NodeResult:
        return run_verify(PhaseContext("sim", self.root, campaign), ["node01"])["node01"]


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rack:
    (tmp_path / "inventories/sim").mkdir(parents=True)
    (tmp_path / "inventories/sim/site.yml").write_bytes((ROOT / "inventories/sim/site.yml").read_bytes())
    made = Rack(tmp_path)
    for module, name in ((certify, "seen_now"), (verify, "fingerprints")):
        monkeypatch.setattr(module, name, made.seen_now)
    for module in (certify, verify):
        monkeypatch.setattr(module, "look", made.looking)
    return made


def test_a_handover_alone_looks_first(rack: Rack) -> None:
    rack.measured("c1")
    found = rack.certify()
    assert (found.outcome, found.message) == (Outcome.PASS, f"certified: {len(entries(rack.site))} gates passed")
    assert rack.looked == 1


def test_a_deploy_that_just_looked_does_not_look_again(rack: Rack) -> None:
    rack.measured("c2")
    assert (rack.certify().outcome, rack.looked) == (Outcome.PASS, 0)


def test_what_the_look_finds_refuses_the_certificate(rack: Rack) -> None:
    rack.measured("c1")
    rack.look = BAD
    assert rack.certify() == BAD
    assert not (Keys(rack.paths).folder / "node01.json").exists()


def test_evidence_under_load_that_is_missing_is_no_look_s_to_bring(rack: Rack) -> None:
    rack.measured("c1", without=R3)
    found = rack.certify()
    assert (found.outcome, rack.looked) == (Outcome.FAIL, 0)
    assert (
        f"node01: {R3} - Expected: pass, measured on the node as it is now Actual: no such evidence." in found.message
    )


def test_a_certificate_with_a_bad_signature_is_issued_anew_and_that_is_told(rack: Rack) -> None:
    rack.measured("c2")
    rack.certify()
    path = Keys(rack.paths).folder / "node01.json"
    envelope = json.loads(path.read_text())
    envelope["signatures"][0]["sig"] = "AAAA"
    path.write_text(json.dumps(envelope))
    found = rack.certify()
    assert found.changed
    assert (
        f"certified: {len(entries(rack.site))} gates passed; made again, since the one on file did not count: "
        "node01: certificate - Expected: signed by key " in (found.message)
    )


def test_a_certificate_counts_for_what_is_seen_again(rack: Rack) -> None:
    rack.measured("c2")
    rack.certify()
    found = rack.verify()
    assert found.outcome is Outcome.PASS
    assert found.message.endswith(" counts: looked at again: 35 checks passed")
    assert rack.looked == 1


def test_a_look_s_fail_comes_before_what_the_certificate_says(rack: Rack) -> None:
    rack.look = BAD
    assert rack.verify() == BAD


def test_a_node_without_a_certificate_is_an_error(rack: Rack) -> None:
    rack.measured("c2")
    found = rack.verify()
    assert found.outcome is Outcome.ERROR
    assert found.message.endswith("Actual: no such file. Validate and certify the node again.")


def test_another_driver_voids_it(rack: Rack) -> None:
    rack.measured("c2")
    rack.certify()
    rack.driver = "590"
    assert rack.verify().message == (
        "node01: certificate - Expected: made for the node as it is now Actual: driver was 580, is 590. "
        "It does not count any more. "
        "Validate and certify the node again."
    )


def test_another_part_voids_it_and_is_named(rack: Rack) -> None:
    rack.measured("c2")
    rack.certify()
    rack.seen = PartsReading("d2", ("memory module DIMM_P0_C1 was 64 GB A, is 64 GB B",))
    again = "Run `rackready deploy`: it measures again what is void, and certifies the node."
    assert rack.verify() == NodeResult(
        Outcome.ERROR,
        "node01: certificate - Expected: made for the parts that it has now "
        f"Actual: memory module DIMM_P0_C1 was 64 GB A, is 64 GB B. {again}",
    )
    rack.seen = PartsReading("d2")
    assert f"Actual: list of parts d2, certified d1. {again}" in rack.verify("c4").message, "said again by every run"


def test_evidence_that_aged_voids_it(rack: Rack) -> None:
    rack.measured("c2")
    rack.certify()
    rack.ledger.done(rack.ledger.change_begins("node01", "install"), {})
    found = rack.verify()
    assert found.outcome is Outcome.ERROR
    assert (
        "certificate - Expected: its evidence counts Actual: node01: node/gpu/validation/dcgm-r1: "
        "measured before it (expected: measured after the node's last change). " in found.message
    )


def test_a_node_that_cannot_be_asked_stays_as_it_is(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    """A management network that is away must not take good nodes out of production."""
    unread = Unreached(
        where="node01", what="not read", expected="its facts", actual="no route to host", next_step="Look."
    )
    monkeypatch.setattr(verify, "fingerprints", lambda *_: ({"node01": unread}, {}))
    assert rack.verify() == NodeResult(Outcome.ERROR, str(unread), data={UNTOUCHED: True}, touched=False)


def test_a_node_that_answers_and_does_not_say_what_it_is_is_an_error(
    rack: Rack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver is not loaded, or hangs: such a node must not stay on offer."""
    unread = Finding(
        where="node01",
        what="fingerprint unreadable",
        expected="driver",
        actual="no GPU, driver, kernel or boot id in it",
        next_step="Look.",
    )
    monkeypatch.setattr(verify, "fingerprints", lambda *_: ({"node01": unread}, {}))
    assert rack.verify() == NodeResult(Outcome.ERROR, str(unread))


def test_parts_that_cannot_be_read_are_an_error(rack: Rack) -> None:
    rack.seen = Finding(
        where="node01",
        what="parts that were seen before cannot be read",
        expected="drives",
        actual="lsblk: exit 1",
        next_step="Look.",
    )
    for found in (rack.verify(), rack.certify()):
        assert (found.outcome, found.message[:7]) == (Outcome.ERROR, "node01:")
    assert rack.looked == 0


def unsigned(*_: object) -> NoReturn:
    raise SignatureError("certificates.agent_key", expected="x", actual="no ssh-agent", next_step="Start it.")


def test_a_key_that_does_not_sign_is_an_error_of_the_node_that_needs_it(
    rack: Rack, monkeypatch: pytest.MonkeyPatch
) -> None:
    rack.measured("c1")
    monkeypatch.setattr(Keys, "signer", unsigned)
    found = rack.certify()
    assert (found.outcome, UNTOUCHED in found.data) == (Outcome.ERROR, False), "it has no certificate: drained"
    assert found.message == "certificates.agent_key - Expected: x Actual: no ssh-agent. Start it."


def test_a_node_whose_certificate_still_counts_stays_on_offer_without_the_key(
    rack: Rack, monkeypatch: pytest.MonkeyPatch
) -> None:
    rack.measured("c1")
    assert rack.certify().outcome is Outcome.PASS
    rack.measured("c9")
    monkeypatch.setattr(Keys, "signer", unsigned)
    found = rack.certify("c10")
    assert (found.outcome, found.data, found.touched) == (Outcome.ERROR, {UNTOUCHED: True}, False)
    assert found.message.endswith("Start it. Its certificate on file still counts, so it stays as it is.")


def test_a_full_disk_is_an_error_of_its_node(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    rack.measured("c1")
    monkeypatch.setattr(certify, "issue", full)
    assert rack.certify().message == "node01: certificate: [Errno 28] No space left on device"


def test_an_open_return_voids_the_certificate(rack: Rack) -> None:
    rack.measured("c1")
    assert rack.certify().outcome is Outcome.PASS
    rack.ledger.begin("node01", HAND_BACK, "lease ended", {})
    found = rack.verify()
    assert (found.outcome, found.message.split(" - ")[0]) == (Outcome.ERROR, "node01: return from its tenant")

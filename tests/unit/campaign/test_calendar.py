"""What is due: each rule from its records, what counts as done, and what has no day."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from rackready.campaign.calendar.due import Calendar
from rackready.campaign.calendar.rules import RULES, DueItem
from rackready.design.site import load_site
from rackready.drivers.bmc_password import BMC_PASSWORD
from rackready.evidence.store import EvidenceStore
from rackready.ledger.drift import append_runs
from rackready.model.outcome import Outcome
from rackready.model.state import NodeState
from tests.unit.campaign.night_world import GEMM, NODES, NOW, World, made

TODAY = date(2026, 12, 1)
PAIR = "pair/fabric/performance/ib-write-bw"
SUBJECT = {"country": "CH", "state": "ZH", "city": "Zurich", "organization": "x", "unit": "y"}
Due = Callable[..., list[DueItem]]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return made(tmp_path, monkeypatch)


@pytest.fixture
def due(world: World) -> Due:
    """Return a function that gives the items of one rule."""

    def items(rule: str, until: date = date(2030, 1, 1)) -> list[DueItem]:
        with world.ledger() as ledger:
            site = load_site("t", root=world.root)
            found = Calendar(site, ledger, EvidenceStore.open(ledger, world.paths.raw), NOW).items(until)
        return [item for item in found if item.rule.id == rule]

    return items


def edit(world: World, **changes: Any) -> None:
    path = world.root / "inventories/t/site.yml"
    raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    path.write_text(yaml.safe_dump({**raw, **changes}), encoding="utf-8")


def days(items: list[DueItem]) -> dict[str, tuple[date | None, date]]:
    return {item.name: (item.last, item.due) for item in items}


def test_the_nightly_set_is_due_a_day_after_its_gates_under_load(world: World, due: Due) -> None:
    world.evidence("node01", 1)
    world.evidence("node02", 50)
    found = days(due("nightly"))
    assert found["node01"] == (TODAY, date(2026, 12, 2))
    assert found["node02"] == (date(2026, 11, 29), date(2026, 11, 30))
    assert found["node03"] == (None, TODAY)
    assert [item.name for item in due("nightly") if item.overdue(TODAY)] == ["node02"]


def test_an_error_is_no_measurement(world: World, due: Due) -> None:
    world.evidence("node01", 1)
    world.put("node01", GEMM, Outcome.ERROR)
    assert days(due("nightly"))["node01"] == (None, TODAY)


def test_the_quarterly_set_counts_by_its_oldest_gate_that_validation_runs(world: World, due: Due) -> None:
    world.evidence("node01", 24 * 10, gate="node/gpu/performance/nvbandwidth")
    world.evidence("node01", 24 * 100, gate=PAIR)
    world.evidence("node02", 24 * 30, gate=PAIR)
    world.evidence("node02", 24 * 20, gate="node/gpu/performance/nvbandwidth")
    world.evidence("node03", 1, gate="pair/fabric/performance/ib-write-bw-host")  # a hand-back ran it: not in the set
    found = days(due("quarterly"))
    assert found["node01"] == (date(2026, 8, 23), date(2026, 8, 23) + timedelta(days=91))
    assert found["node02"] == (date(2026, 11, 1), date(2026, 11, 1) + timedelta(days=91))
    assert found["node01"][1] < TODAY < found["node02"][1]


def test_nodes_out_of_production_are_not_due(world: World, due: Due) -> None:
    with world.ledger() as ledger:
        ledger.set_state("node01", NodeState.QUARANTINED, "bad")
    assert set(days(due("nightly"))) == set(NODES[1:])
    assert set(days(due("quarterly"))) == set(NODES[1:])


def test_evidence_is_due_on_the_day_on_which_its_first_gate_is_too_old(world: World, due: Due) -> None:
    world.evidence("node01", 24, gate="node/gpu/validation/dcgm-r3")
    world.evidence("node01", 48, gate=GEMM)
    (item,) = due("evidence")
    assert (item.name, item.last, item.why) == ("node01", date(2026, 11, 29), GEMM)
    assert item.due > TODAY
    world.put("node01", GEMM, Outcome.FAIL)
    (item,) = due("evidence")
    assert item.why == "node/gpu/validation/dcgm-r3", "a fail does not age"


def test_a_comparison_with_the_plan_counts_only_where_it_was_asked(world: World, due: Due) -> None:
    with world.ledger() as ledger:
        for run, ago, asked in (("d1", 9, True), ("d2", 1, False)):
            append_runs(ledger, run, NOW - ago * 86400, "", [{"name": "node01", "items": [], "asked": asked}])
    found = days(due("weekly"))
    assert found["node01"] == (date(2026, 11, 22), date(2026, 11, 29))
    assert found["leaf01"] == (None, TODAY)


def test_firmware_that_failed_is_due_since_then(world: World, due: Due) -> None:
    gate = "group/host/validation/firmware"
    world.put("node01", gate, Outcome.FAIL, at=datetime.fromtimestamp(NOW - 5 * 86400, UTC))
    world.put("node02", gate, Outcome.PASS)
    assert days(due("firmware")) == {"node01": (date(2026, 11, 26), date(2026, 11, 26))}


def test_a_password_has_a_day_only_where_rackready_set_it(world: World, due: Due) -> None:
    assert due("bmc-password") == []
    with world.ledger() as ledger:
        ledger.done(ledger.begin("node01", BMC_PASSWORD, "x", {}).token)
        ledger.begin("node02", BMC_PASSWORD, "x", {})  # begun, and not ended
        entry = ledger.latest("node01", BMC_PASSWORD)
    assert entry is not None
    assert entry.ended is not None
    day = datetime.fromtimestamp(entry.ended, UTC).date()
    edit_bmcs(world)
    assert days(due("bmc-password")) == {"node01": (day, day + timedelta(days=365))}


def edit_bmcs(world: World) -> None:
    """Give the nodes BMCs: the simulated rack learns theirs when it comes up."""
    path = world.root / "inventories/t/site.yml"
    raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    for number, node in enumerate(raw["racks"][0]["nodes"]):
        node.setdefault("bmc", {}).update({"address": f"192.0.2.{number + 1}"})
    path.write_text(yaml.safe_dump(raw), encoding="utf-8")


def test_the_ca_of_the_bmcs_is_due_before_it_expires(world: World, due: Due) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")])
    built = x509.CertificateBuilder(name, name, key.public_key(), 1)
    built = built.not_valid_before(datetime(2026, 1, 1, tzinfo=UTC)).not_valid_after(datetime(2027, 3, 31, tzinfo=UTC))
    file = world.root / "ca.pem"
    file.write_bytes(built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    edit(world, bmc_authority={"certificate": str(file), "subject": dict(SUBJECT)})
    (item,) = due("bmc-ca")
    assert (item.due, item.why) == (date(2027, 3, 1), "expires on 2027-03-31")
    file.write_text("no certificate", encoding="utf-8")
    (item,) = due("bmc-ca")
    assert item.due == TODAY
    assert item.why.startswith("it cannot be read: ")


def test_a_gate_that_is_off_has_its_last_day(world: World, due: Due) -> None:
    off = {"gate": GEMM, "until": "2026-12-20", "by": "fleet team", "reason": "waits for a fixed program"}
    raw = yaml.safe_load((world.root / "inventories/t/site.yml").read_text(encoding="utf-8"))
    edit(world, gates={**raw.get("gates", {}), "disabled": [off]})
    (item,) = due("kill-switch")
    assert (item.name, item.due) == (GEMM, date(2026, 12, 20))


def test_work_that_interrupts_names_the_next_window(world: World, due: Due) -> None:
    edit(world, maintenance=[{"name": "tuesday", "days": ["tue"], "start": "22:00", "hours": 4}])
    assert {item.window for item in due("quarterly")} == {"tuesday 2026-12-01T22:00Z"}
    assert {item.window for item in due("nightly")} == {""}


def test_what_is_due_later_is_left_out(world: World, due: Due) -> None:
    world.evidence("node01", 1)
    assert "node01" not in days(due("nightly", TODAY))
    assert "node01" in days(due("nightly", date(2026, 12, 2)))


def test_every_rule_says_what_does_it_and_why() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert all(rule.does and rule.source for rule in RULES)

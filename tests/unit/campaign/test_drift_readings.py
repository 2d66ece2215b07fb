"""What no role manages: fingerprint, parts and settings that gates read. Nothing is recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rackready.campaign.drift import readings
from rackready.campaign.drift.applied import PHASES, Applied
from rackready.campaign.drift.found import DriftReading
from rackready.campaign.drift.readings import Compared, compare_readings
from rackready.design.site import load_site
from rackready.evidence.store import EvidenceStore
from rackready.gates.base import FinishedRun, Gate, Run
from rackready.gates.gpu.ecc import ECC_MODE, ECC_UNCORRECTED
from rackready.gates.gpu.settings import COMPUTE_MODE, PERSISTENCE, POWER_LIMIT
from rackready.handover.certificate import issue
from rackready.handover.keys import keys_of
from rackready.ledger.store import Ledger
from rackready.model.drift import DriftItem
from rackready.model.evidence import Fingerprint
from rackready.model.outcome import Finding, Outcome, Verdict
from rackready.paths import EnvPaths

ROOT = Path(__file__).resolve().parents[3]
BEFORE = Fingerprint(
    node="node01",
    chassis_serial="S1",
    gpus=["G0", "G1"],
    nics=["mlx5_0=1"],
    driver="580.173.02",
    vbios=["96.00", "96.00"],
    nic_firmware=["28.43"],
    kernel="6.8.0-1",
    desired_digest="d1",
    boot_id="b1",
)


@dataclass
class World:
    """One node, and how it answers. ``verdicts``: gate -> its verdict; every other gate passes."""

    around: Compared
    now: Fingerprint | Finding = BEFORE
    parts: Any = field(default_factory=list)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)

    def gate(self, gate: Gate, nodes: list[str]) -> list[FinishedRun]:
        self.ran.append(gate.id)
        verdict = self.verdicts.get(gate.id, Verdict(outcome=Outcome.PASS))
        return [FinishedRun(Run(id="r", target="node01", nodes=tuple(nodes), commands=()), verdict)]

    def ask(self, *phases: str) -> DriftReading:
        found = {"node01": DriftReading()}
        compare_readings(self.around, {"node01": Applied(phases or PHASES)}, found)
        return found["node01"]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    paths = EnvPaths(tmp_path, "sim")
    ledger = Ledger.open(paths.database)
    site = load_site("sim", root=ROOT, site_file=ROOT / "inventories/sim/site.yml")
    made = World(Compared(site, paths, ledger, EvidenceStore.read_only(ledger, paths.raw)))

    @contextmanager
    def connect(*_: object) -> Iterator[tuple[None, None]]:
        yield None, None

    monkeypatch.setattr(readings, "connect", connect)
    monkeypatch.setattr(readings, "gather", lambda *_: {"node01": made.now})
    monkeypatch.setattr(readings, "compare", lambda *_: {"node01": made.parts})
    monkeypatch.setattr(readings, "Runner", lambda *_args, **_more: made)
    return made


def certified(world: World) -> None:
    subject = [{"name": "node01", "digest": {"sha256": "x"}}]
    predicate = {"fingerprint": BEFORE.identity(), "gates": []}
    kinds = {
        "_type": "https://in-toto.io/Statement/v1",
        "predicateType": "https://github.com/rackready/rackready/node-certificate/v1",
    }
    issue(keys_of(world.around.site, world.around.paths), {**kinds, "subject": subject, "predicate": predicate})


def fail(*findings: Finding) -> Verdict:
    return Verdict(outcome=Outcome.FAIL, findings=list(findings))


def rows(items: list[DriftItem]) -> list[tuple[str, str, str, str]]:
    return [(item.kind.value, item.name, item.expected, item.actual) for item in items]


def test_a_node_as_it_was_has_no_item_and_nothing_is_recorded(world: World) -> None:
    certified(world)
    assert world.ask() == DriftReading(boot_id="b1")
    assert "node/host/sanity/kernel-settings" in world.ran
    assert "group/host/validation/firmware" not in world.ran, "without a baseline it compares nodes with each other"
    assert not {gate for gate in world.ran if "/performance/" in gate or "/stress/" in gate}
    assert world.around.ledger.entries() == []


def test_a_changed_fingerprint_names_only_what_differs(world: World) -> None:
    certified(world)
    world.now = BEFORE.model_copy(
        update={
            "gpus": ["G0", "G9"],
            "vbios": ["96.00", "97.00"],
            "nics": [],
            "kernel": "6.8.0-2",
            "desired_digest": "d2",
        }
    )
    found = world.ask()
    assert rows(found.items) == [
        ("part", "gpus", "G1", "G9"),
        ("part", "nics", "mlx5_0=1", "none"),
        ("firmware", "vbios", "96.00", "97.00"),
        ("kernel", "kernel", "6.8.0-1", "6.8.0-2"),
    ], "another desired state is the site's, not the node's"
    assert {item.phase for item in found.items} == {""}


def test_without_a_certificate_it_is_said_that_there_was_nothing_to_compare_with(world: World) -> None:
    found = world.ask()
    assert found.notes == ["no certificate: serials, firmware and kernel were not compared with a deploy"]
    assert found.not_asked == []


def test_a_node_whose_identity_or_parts_cannot_be_read_was_not_asked(world: World) -> None:
    world.now = Finding(where="node01", what="fingerprint", expected="one", actual="none", next_step="Look.")
    world.parts = Finding(where="node01", what="parts", expected="a list", actual="none", next_step="Look.")
    assert world.ask().not_asked == [str(world.now), str(world.parts)]


def test_parts_are_items(world: World) -> None:
    certified(world)
    world.parts = [("BIOS", "1.06", "1.05"), ("drive S2", "", "SAMSUNG"), ("memory module A1", "64 GB", "")]
    assert rows(world.ask().items) == [
        ("firmware", "BIOS", "1.06", "1.05"),
        ("part", "drive S2", "absent", "SAMSUNG"),
        ("part", "memory module A1", "64 GB", "absent"),
    ]


def test_findings_of_gates_are_items_but_health_and_what_a_role_compares(world: World) -> None:
    certified(world)
    world.verdicts = {
        "node/gpu/sanity/ecc": fail(
            ECC_MODE.found("node01 gpu2", "Enabled", "Disabled"),
            ECC_UNCORRECTED.found("node01 gpu2", "0", "7", what="DRAM"),
        ),
        "node/gpu/sanity/settings": fail(
            POWER_LIMIT.found("node01 gpu3", "700 W", "600 W", wanted=700.0),
            PERSISTENCE.found("node01 gpu3", "Enabled", "Disabled"),
            COMPUTE_MODE.found("node01 gpu3", "Default", "Prohibited", mode="DEFAULT"),
        ),
    }
    assert rows(world.ask().items) == [
        ("gpu", "gpu3 compute mode", "Default", "Prohibited"),
        ("gpu", "gpu2 ECC mode", "Enabled", "Disabled"),
    ]
    before_optimize = rows(world.ask("install").items)
    assert ("gpu", "gpu3 power limit", "700 W", "600 W") in before_optimize, "no role compares it yet"


def test_a_gate_that_could_not_judge_was_not_asked(world: World) -> None:
    certified(world)
    finding = Finding(where="node01", what="dmidecode", expected="x", actual="y", next_step="Look.")
    world.verdicts = {"node/host/sanity/kernel-settings": Verdict(outcome=Outcome.ERROR, findings=[finding])}
    assert world.ask().not_asked == [str(finding)]


def test_a_node_without_a_driver_is_not_read(world: World) -> None:
    assert world.ask("fabric") == DriftReading()
    assert world.ran == []

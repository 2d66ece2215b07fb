"""Drains whose reason slurmctld replaced by its text for a registration: the ledger says whose they were."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from rackready.drivers.scheduler import registry
from rackready.drivers.scheduler.places import PLACE, record_drain
from rackready.drivers.scheduler.slurm import SlurmAdapter
from rackready.handover.run import drain_nodes, offer_nodes
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.paths import EnvPaths
from tests.unit.handover.test_production import Scene, scene

__all__ = ["scene"]

LOW = "Low RealMemory (reported:1 < 100.00% of configured:2)"


@dataclass
class Slurmctld:
    """One node, with its reason and who set it."""

    reason: str = ""
    by: str = "root"
    invalid: bool = False
    sent: list[str] = field(default_factory=list)

    def register(self) -> None:
        """It registered with too little once, and has all of it again."""
        self.reason, self.by = LOW, "slurm"

    def person(self, reason: str) -> None:
        """Somebody drains the node, or resumes it with an empty reason."""
        self.reason, self.by = reason, "ann"

    def run(self, command: str) -> tuple[int, str, str]:
        if command == "scontrol show config":
            return 0, "SlurmUser               = slurm(64030)\n", ""
        if command.startswith("scontrol show reservation"):
            return 0, "No reservations in the system\n", ""
        if command.startswith("scontrol show node"):
            state = "IDLE" + "+DRAIN" * bool(self.reason) + "+INVALID_REG" * self.invalid
            end = f" Reason={self.reason} [{self.by}@2026-11-21T11:38:21]" if self.reason else ""
            return 0, f"NodeName=node03 Arch=x86_64 State={state} Partitions=gpu{end}\n", ""
        self.sent.append(command)
        found = re.search(r"Reason=\'(.*)\'", command)
        self.reason, self.by = (found[1] if found else ""), "root"
        return 0, "", ""


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Slurmctld:
    controller = Slurmctld()

    def adapter(*_: Any) -> SlurmAdapter:
        return SlurmAdapter(controller.run, "here", patience_s=0)

    monkeypatch.setitem(registry.ADAPTERS, "slurm", adapter)
    return controller


def drain(scene: Scene, reason: str = "gate failed") -> None:
    assert drain_nodes(scene.ctx, ["node03"], {"node03": reason})["node03"].outcome is Outcome.PASS


def offered(scene: Scene, digest: str = "d") -> Outcome:
    found = offer_nodes(scene.ctx, EnvPaths(scene.ctx.root, "sim"), ["node03"], {"node03": digest})["node03"]
    if found.outcome is Outcome.ERROR:
        assert "node03: drained in Slurm by slurm - " in found.message
    return found.outcome


def test_a_drain_of_ours_ends_also_under_slurmctlds_words(scene: Scene, slurm: Slurmctld) -> None:
    drain(scene)
    slurm.register()
    assert offered(scene) is Outcome.PASS
    assert slurm.sent[-1] == "scontrol update NodeName=node03 State=RESUME"


def test_a_later_finding_does_not_hide_that_the_drain_is_ours(scene: Scene, slurm: Slurmctld) -> None:
    drain(scene)
    slurm.register()
    drain(scene, "another gate failed")
    assert offered(scene) is Outcome.PASS


def test_a_refusal_leaves_the_drain_ours(scene: Scene, slurm: Slurmctld) -> None:
    """It changed nothing: the next run, with another certificate after a repair, goes on."""
    drain(scene)
    slurm.register()
    slurm.invalid = True
    assert offered(scene) is Outcome.ERROR
    slurm.invalid = False
    assert offered(scene, "another") is Outcome.PASS


def test_a_persons_drain_of_a_node_in_production_stays(scene: Scene, slurm: Slurmctld) -> None:
    drain(scene)
    assert offered(scene) is Outcome.PASS
    slurm.person("disk swap, ask Ann")
    slurm.register()
    assert offered(scene) is Outcome.ERROR
    assert slurm.reason == LOW


def test_a_persons_drain_of_a_node_that_was_never_ours_stays(scene: Scene, slurm: Slurmctld) -> None:
    slurm.person("disk swap, ask Ann")
    drain(scene)
    slurm.register()
    assert offered(scene) is Outcome.ERROR


def test_a_persons_drain_that_rackready_saw_over_its_own_stays(scene: Scene, slurm: Slurmctld) -> None:
    drain(scene)
    slurm.person("disk swap, ask Ann")
    drain(scene, "another gate failed")
    slurm.register()
    assert offered(scene) is Outcome.ERROR


def test_a_persons_drain_that_was_seen_with_the_same_reason_stays(scene: Scene, slurm: Slurmctld) -> None:
    drain(scene)
    slurm.person("disk swap, ask Ann")
    drain(scene)
    slurm.register()
    assert offered(scene) is Outcome.ERROR


def test_a_drain_of_ours_that_was_lifted_by_hand_is_over(scene: Scene, slurm: Slurmctld) -> None:
    assert offered(scene) is Outcome.PASS
    drain(scene)
    slurm.person("")  # `State=RESUME`
    assert offered(scene) is Outcome.PASS, "on offer already"
    slurm.person("disk swap, ask Ann")
    slurm.register()
    assert offered(scene) is Outcome.ERROR


def test_a_drain_in_another_scheduler_is_none_here(scene: Scene, slurm: Slurmctld) -> None:
    with Ledger.open(EnvPaths(scene.ctx.root, "sim").database) as ledger:
        record_drain(ledger, "node03", "moved", {PLACE: "Kubernetes prod"}, changed=True)
    slurm.register()
    assert offered(scene) is Outcome.ERROR


def test_a_drain_of_the_watch_is_ours(scene: Scene, slurm: Slurmctld) -> None:
    with Ledger.open(EnvPaths(scene.ctx.root, "sim").database) as ledger:
        record_drain(ledger, "node03", "rackready: GPU fell off the bus", {}, changed=True)
    slurm.register()
    assert offered(scene) is Outcome.PASS

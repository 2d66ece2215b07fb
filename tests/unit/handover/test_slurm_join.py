"""Nodes that Slurm does not know yet, where rackready writes Slurm's files: joined, drained, and in a dry run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from rackready.drivers.scheduler.base import SchedulerAdapter, SchedulerError, SchedulerNode, UnknownNodeError
from rackready.drivers.scheduler.slurm import SlurmAdapter
from rackready.handover import run, slurm_apply
from rackready.model.evidence import Fingerprint
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.slurm_files import SlurmFiles
from tests.gates.test_launchers import Cluster, left

ROOT = Path(__file__).resolve().parents[3]


class Empty(SchedulerAdapter):
    """A cluster that knows no node."""

    def show(self, node: str) -> SchedulerNode:
        raise UnknownNodeError(node, "unknown to Slurm", expected="a NodeName line", actual="none")

    def drain(self, node: str, reason: str) -> bool:
        raise AssertionError(node, reason)

    def release(self, node: str) -> bool:
        raise AssertionError(node)

    def jobs(self, node: str) -> list[Any]:
        raise AssertionError(node)

    def close(self) -> None:
        pass


def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ours: bool, check: bool = False) -> PhaseContext:
    document = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
    if ours:
        document["handover"]["files"] = {"folder": "/etc/slurm"}
    (tmp_path / "inventories/sim").mkdir(parents=True)
    (tmp_path / "inventories/sim/site.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
    monkeypatch.setattr(run, "adapter_for", lambda *_: Empty())
    return PhaseContext("sim", tmp_path, "c", check=check)


@pytest.mark.parametrize(
    ("ours", "outcome", "text"),
    [
        (True, Outcome.PASS, "node01: not in Slurm, so no job can start on it"),
        (False, Outcome.ERROR, "node01: unknown to Slurm - Expected: a NodeName line Actual: none."),
    ],
)
def test_a_node_that_never_entered_our_files_needs_no_drain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ours: bool, outcome: Outcome, text: str
) -> None:
    found = run.drain_nodes(context(tmp_path, monkeypatch, ours=ours), ["node01"], {"node01": "quarantined: x"})
    assert (found["node01"].outcome, found["node01"].message) == (outcome, text)


@pytest.mark.parametrize(("ours", "outcome"), [(True, Outcome.PASS), (False, Outcome.ERROR)])
def test_a_dry_run_says_that_it_would_enter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ours: bool, outcome: Outcome
) -> None:
    ctx = context(tmp_path, monkeypatch, ours=ours, check=True)
    found = run.offer_nodes(ctx, run.EnvPaths(tmp_path, "sim"), ["node01"], {"node01": "d"})
    assert found["node01"].outcome is outcome
    if ours:
        assert found["node01"].message == "node01: would be added to Slurm's files and released"


def test_only_nodes_that_entered_join_and_the_change_is_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = context(tmp_path, monkeypatch, ours=True)
    entered = {
        "node01": NodeResult(Outcome.PASS, "Slurm's files: changed: slurm.conf", changed=True),
        "node02": NodeResult(Outcome.ERROR, "node02: parts for Slurm's files - ..."),
    }
    played: list[str] = []
    given: list[Mapping[str, object]] = []

    def play(_ctx: object, _book: str, nodes: list[str], more: Mapping[str, object]) -> dict[str, NodeResult]:
        played.extend(nodes)
        given.append(more)
        return {node: NodeResult(Outcome.PASS, data={"changes": ["slurmd"]}) for node in nodes}

    controllers = {"slurm_node_controllers": ["10.0.0.5", "10.0.0.6"]}
    monkeypatch.setattr(slurm_apply, "bring", lambda *_, **__: entered)
    monkeypatch.setattr(slurm_apply, "controller_vars", lambda *_: controllers)
    monkeypatch.setattr(run, "run_playbook", play)
    found = run._join(ctx, run.site_of(ctx), dict.fromkeys(["node01", "node02"], Fingerprint.model_construct()))
    assert played == ["node01"]
    assert controllers.items() <= given[0].items()
    assert found["node01"].changed
    assert found["node01"].data["changes"] == ["Slurm's files: changed: slurm.conf", "slurmd"]
    assert found["node02"].outcome is Outcome.ERROR


def test_a_cluster_that_refuses_the_files_gets_no_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = context(tmp_path, monkeypatch, ours=True)

    def refuse(*_: object, **__: object) -> dict[str, NodeResult]:
        raise SchedulerError("Slurm controller", "/etc/slurm", expected="x", actual="y", next_step="Correct it.")

    monkeypatch.setattr(slurm_apply, "bring", refuse)
    monkeypatch.setattr(run, "run_playbook", lambda *_: pytest.fail("no node may join"))
    found = run._join(ctx, run.site_of(ctx), dict.fromkeys(["node01", "node02"], Fingerprint.model_construct()))
    assert {node: result.message for node, result in found.items()} == dict.fromkeys(
        ["node01", "node02"], "Slurm controller: /etc/slurm - Expected: x Actual: y. Correct it."
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SlurmctldHost=ctl1\n", ["ctl1"]),
        ("SlurmctldHost=ctl1(10.0.0.5)\nslurmctldhost = ctl2(10.0.0.6)\n", ["10.0.0.5", "10.0.0.6"]),
        ("Include hosts.conf\n", ["10.0.0.5", "ctl2"]),
        ("ClusterName=x\n", []),
    ],
)
def test_the_controllers_are_those_of_slurm_conf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, found: list[str]
) -> None:
    files = {"slurm.conf": text, "hosts.conf": "SlurmctldHost=ctl1(10.0.0.5)\nSlurmctldHost=ctl2\n"}
    cluster = SimpleNamespace(look=lambda: SimpleNamespace(files=files))
    monkeypatch.setattr(slurm_apply, "controller", lambda *_: nullcontext((cluster, None)))
    ctx = context(tmp_path, monkeypatch, ours=True)
    assert run.controller_vars(run.site_of(ctx), run.EnvPaths(tmp_path, "sim")) == {"slurm_node_controllers": found}


@pytest.mark.parametrize("files", [None, {"folder": "/etc/slurm", "distribution": "classic"}])
def test_where_slurmd_asks_no_controller_or_rackready_reads_no_files_none_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str] | None
) -> None:
    site = run.site_of(context(tmp_path, monkeypatch, ours=False))
    handover = site.handover.model_copy(update={"files": SlurmFiles.model_validate(files) if files else None})
    monkeypatch.setattr(slurm_apply, "controller", lambda *_: pytest.fail("asked"))
    assert run.controller_vars(site.model_copy(update={"handover": handover}), run.EnvPaths(tmp_path, "sim")) == {}


@pytest.mark.parametrize("check", [False, True])
def test_a_node_that_is_offered_leaves_the_reservation_of_a_killed_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, check: bool
) -> None:
    """Slurm shows it as usable, but starts no job of users on it."""
    cluster = Cluster(node02="rackready: held")
    cluster.reservations = left()
    ctx = context(tmp_path, monkeypatch, ours=False, check=check)
    monkeypatch.setattr(run, "adapter_for", lambda *_: SlurmAdapter(cluster.run, "here"))
    found = run.offer_nodes(ctx, run.EnvPaths(tmp_path, "sim"), ["node01"], {"node01": "d"})
    assert found["node01"].outcome is Outcome.PASS
    done = [] if check else ["State=DRAIN", "ReservationName=rackready-node01", "State=RESUME"]
    assert [command.split()[3 if "update" in command else 2] for command in cluster.said] == done
    assert cluster.drained == {"node02": "rackready: held"}

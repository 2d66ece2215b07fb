"""Several schedulers at once: each node goes to its own, one that is away stops nobody else, a kill is resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.drivers.scheduler.base import Job
from rackready.drivers.scheduler.places import RELEASE
from rackready.handover.offer import keep_off
from rackready.handover.production import in_production, take_out
from rackready.handover.run import drain_nodes
from rackready.model.outcome import Outcome
from rackready.model.state import NodeState
from tests.unit.handover.several_schedulers import HELD, KilledError, Site, made, parts
from tests.unit.handover.test_production import IDLE

ALL = ("node01", "node02", "node03", "node04")
AWAY = "slurm - Expected: an answer Actual: none. Start it."


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return made(tmp_path, monkeypatch)


def messages(site: Site, *nodes: str) -> dict[str, tuple[str, str]]:
    return {node: (found.outcome.value, found.message) for node, found in site.hand_over(*nodes).items()}


def test_each_node_is_handed_over_to_its_own_scheduler(site: Site) -> None:
    assert messages(site, *ALL) == {
        "node01": ("pass", "node01: released (IDLE)"),
        "node02": ("pass", "node02: released (IDLE)"),
        "node03": ("pass", "node03: released (IDLE)"),
        "node04": ("pass", "node04: released (ready)"),
    }
    assert site.played == [["node01", "node02"]], "only the nodes of Slurm join it"
    assert [now.usable for now in (site.slurm.nodes["node01"], site.kube.nodes["node03"])] == [True, True]
    assert site.file().show("node04").usable
    assert not site.file().show("node01").usable
    assert [
        (entry.node, entry.observed["part"], entry.observed["scheduler"].split()[0])
        for entry in site.ledger.entries()
        if entry.operation == RELEASE
    ] == [
        ("node01", "slurm", "slurm"),
        ("node02", "slurm", "slurm"),
        ("node03", "kubernetes", "kubernetes"),
        ("node04", "file", "file"),
    ]


def test_a_second_run_changes_nothing_and_asks_no_other_scheduler(site: Site) -> None:
    site.hand_over(*ALL)
    entries = len(site.ledger.entries())
    site.slurm.asked.clear()
    site.kube.asked.clear()
    again = site.hand_over(*ALL)
    assert {found.message.partition(": ")[2] for found in again.values()} == {
        "on offer already (IDLE)",
        "on offer already (ready)",
    }
    assert not any(found.changed for found in again.values())
    assert len(site.ledger.entries()) == entries
    assert {node for _, node in site.slurm.asked} == {"node01", "node02"}
    assert {node for _, node in site.kube.asked} == {"node03"}


def test_a_scheduler_that_is_away_is_an_error_of_its_own_nodes_only(site: Site) -> None:
    site.slurm.away = True
    found = messages(site, *ALL)
    assert found["node01"] == found["node02"] == ("error", AWAY)
    assert found["node03"] == ("pass", "node03: released (IDLE)")
    assert found["node04"] == ("pass", "node04: released (ready)")
    told = [event.text for event in site.ledger.events("c1") if event.node == "node03"]
    assert told == [
        (
            "part slurm (slurm 192.0.2.5:22) did not tell whether it offers the node: slurm - Expected: an answer "
            "Actual: none. Start it."
        )
    ]


def test_a_munge_key_that_cannot_be_read_is_an_error_of_its_own_nodes_only(site: Site) -> None:
    slurm, *others = parts(site.ready)
    slurm["handover"] = slurm["handover"] | {"munge_key": {"vault": "/absent/keys.yml#munge"}}
    site.write(slurm, *others)
    found = messages(site, *ALL)
    assert found["node01"] == found["node02"]
    assert found["node01"][0] == "error"
    assert "/absent/keys.yml" in found["node01"][1]
    assert found["node03"] == ("pass", "node03: released (IDLE)")
    assert found["node04"] == ("pass", "node04: released (ready)")


def test_a_run_that_is_killed_between_two_schedulers_goes_on_where_it_stopped(site: Site) -> None:
    site.kube.dies = {"node03"}
    with pytest.raises(KilledError):
        site.hand_over(*ALL)
    assert site.slurm.nodes["node02"].usable
    assert site.kube.nodes["node03"] is HELD
    site.kube.dies = set()
    site.slurm.asked.clear()
    assert {node: found.outcome for node, found in site.hand_over(*ALL).items()} == dict.fromkeys(ALL, Outcome.PASS)
    assert ("release", "node01") not in site.slurm.asked, "what happened is not done again"
    assert site.kube.nodes["node03"].usable
    assert site.file().show("node04").usable
    assert {entry.status for entry in site.ledger.entries("node03")} == {"failed", "done"}


def test_nodes_in_production_are_those_of_either_scheduler(site: Site) -> None:
    site.hand_over(*ALL)
    site.kube.away = True
    busy, unknown = in_production(site.ctx, ALL)
    assert busy == ["node01", "node02", "node04"]
    assert unknown["node03"].message == (
        "node03: jobs on it - Expected: known from the scheduler Actual: kubernetes: none (expected: an answer). Start "
        "it. Nothing was changed. Run again once it answers."
    )


def test_nodes_are_drained_and_awaited_where_they_run(site: Site) -> None:
    site.hand_over(*ALL)
    site.slurm.running = {"node01": [Job("7", "ann", "gpu", "train")]}
    site.slurm.ends = {"node01": 1}
    assert take_out(site.ctx, dict.fromkeys(ALL, "install is about to change: x")) == {}
    reasons = {site.slurm.nodes["node01"].reason, site.kube.nodes["node03"].reason, site.file().show("node04").reason}
    assert reasons == {"rackready: install is about to change: x"}
    assert site.slurm.looks["node01"] == 2


def test_a_drain_goes_through_where_the_other_scheduler_is_away(site: Site) -> None:
    site.hand_over(*ALL)
    site.slurm.away = True
    found = drain_nodes(site.ctx, list(ALL), dict.fromkeys(ALL, "x"))
    assert {node: result.outcome.value for node, result in found.items()} == {
        "node01": "error",
        "node02": "error",
        "node03": "pass",
        "node04": "pass",
    }


def test_a_quarantined_node_on_offer_is_drained_though_the_other_scheduler_is_silent(site: Site) -> None:
    for node in ("node01", "node03"):
        site.ledger.set_state(node, NodeState.QUARANTINED, "NVLink down")
    site.kube.nodes["node03"] = IDLE
    site.slurm.away = True
    found = keep_off(site.ctx)
    assert found.drained == ("node03",)
    assert site.kube.nodes["node03"].reason == "rackready: quarantined: NVLink down"
    assert found.lines[-1] == f"node01: unknown whether it is on offer in the scheduler: {AWAY}"


def test_a_dry_run_changes_no_scheduler(site: Site) -> None:
    found = site.hand_over(*ALL, check=True)
    assert {node: result.message for node, result in found.items()} == {
        node: f"{node}: would be released" for node in ALL
    }
    assert not site.slurm.nodes["node01"].usable
    assert not site.ready.exists()

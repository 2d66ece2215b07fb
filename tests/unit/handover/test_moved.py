"""A node that the site file gives to another scheduler while it is in production: it is never on offer in both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rackready.drivers.scheduler.base import Job
from rackready.drivers.scheduler.places import PART, PLACE, RELEASE, handed_to, moved
from rackready.gates.bmc.guard import refusal
from rackready.handover import production, retire
from rackready.handover.offer import keep_off
from rackready.handover.production import in_production
from rackready.handover.run import drain_nodes
from rackready.model.kubernetes import KubernetesHandover
from rackready.model.outcome import Outcome
from rackready.model.phase import DRAINED, UNTOUCHED, NodeResult
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.unit.handover.several_schedulers import HELD, Site, made, parts
from tests.unit.handover.test_production import DOWN, IDLE

TRAIN = Job("7", "ann", "gpu", "train")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """node02 is in production in Slurm, and the site file gives it to Kubernetes since."""
    monkeypatch.setattr(production, "_POLL_S", 0.0)
    found = made(tmp_path, monkeypatch)
    found.hand_over("node02")
    found.write(*parts(found.ready, slurm="node01", kube="node[02-03]"))
    found.kube.strange -= {"node02"}
    found.kube.nodes["node02"] = HELD
    return found


def place(site: Site, node: str) -> str:
    found = handed_to(site.ledger, node)
    return found.part if found is not None else ""


def test_it_is_drained_where_it_was_before_the_other_offers_it(site: Site) -> None:
    assert site.hand_over("node02")["node02"].message == "node02: released (IDLE)"
    assert site.slurm.nodes["node02"].reason == "rackready: moves from part slurm to part kubernetes"
    assert site.kube.nodes["node02"].usable
    assert place(site, "node02") == "kubernetes"
    site.slurm.asked.clear()
    site.hand_over("node02")
    assert site.slurm.asked == [], "it is settled: Slurm is not asked again"


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(
    ("looked", "actual"),
    [
        (
            NodeResult(Outcome.PASS, changed=True, data={"changes": ["containerd: CDI"]}),
            "install is about to change: containerd: CDI",
        ),
        (NodeResult(Outcome.ERROR, "no answer"), "its dry run failed: no answer"),
    ],
)
def test_a_node_that_install_did_not_prepare_for_its_new_kind_of_scheduler_stays(
    site: Site,
    looked: NodeResult,
    actual: str,
    check: bool,  # noqa: FBT001 - a dry run tells the same
) -> None:
    site.installs["node02"] = looked
    found = site.hand_over("node02", check=check)["node02"]
    assert (found.outcome, found.data, found.touched) == (Outcome.ERROR, {UNTOUCHED: True}, False)
    assert found.message == (
        f"node02: install for kubernetes - Expected: done, before it leaves slurm Actual: {actual}. "
        "Nothing was changed. Run `rackready deploy --env sim --limit node02`: it installs first."
    )
    assert (site.slurm.nodes["node02"].usable, site.kube.nodes["node02"].usable) == (True, False)
    site.installs.clear()
    assert site.hand_over("node02")["node02"].message == "node02: released (IDLE)"


def test_its_jobs_there_keep_it_from_the_other(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(production, "_POLL_S", 0.0)
    site.slurm.running = {"node02": [TRAIN]}
    site.write(*_patient(parts(site.ready, slurm="node01", kube="node[02-03]"), 0))
    found = site.hand_over("node02")["node02"]
    assert (found.outcome, found.data, found.message) == (
        Outcome.ERROR,
        {DRAINED: True},
        (
            "node02: jobs run on it - Expected: none within 0 s of draining it Actual: 7 (ann, train). Nothing was "
            "changed, and it stays drained so that it empties: wait and run again, or end 7."
        ),
    )
    assert site.slurm.nodes["node02"].drained
    assert not site.kube.nodes["node02"].usable
    site.slurm.running = {}
    assert site.hand_over("node02")["node02"].outcome is Outcome.PASS


def test_a_node_that_others_offered_in_its_new_part_is_held_while_its_jobs_go_on_in_the_old(site: Site) -> None:
    site.kube.nodes["node02"] = IDLE
    site.slurm.running = {"node02": [TRAIN]}
    site.write(*_patient(parts(site.ready, slurm="node01", kube="node[02-03]"), 0))
    assert site.hand_over("node02")["node02"].outcome is Outcome.ERROR
    assert not any(cluster.nodes["node02"].usable for cluster in (site.slurm, site.kube))
    site.slurm.running = {}
    assert site.hand_over("node02")["node02"].message == "node02: released (IDLE)"
    assert [cluster.nodes["node02"].usable for cluster in (site.slurm, site.kube)] == [False, True]


def test_a_node_that_may_come_back_there_by_itself_is_drained_there(site: Site) -> None:
    site.slurm.nodes["node02"] = DOWN
    assert site.hand_over("node02")["node02"].outcome is Outcome.PASS
    assert site.slurm.nodes["node02"].drained


def test_a_node_that_jobs_use_where_it_belongs_now_is_left_to_them(site: Site) -> None:
    """Records of older versions name no scheduler. Nodes that run jobs in their own must not be drained for that."""
    site.ledger.done(site.ledger.begin("node03", RELEASE, "certificate of node03", {}).token, {})
    site.kube.nodes["node03"] = IDLE
    site.kube.running = {"node03": [TRAIN]}
    assert site.hand_over("node03")["node03"].message == "node03: on offer already (IDLE)"
    assert ("drain", "node03") not in site.kube.asked


def _patient(found: list[dict[str, Any]], seconds: int) -> list[dict[str, Any]]:
    return [
        item
        | {"handover": item["handover"] | ({"drain_wait_s": seconds} if item["handover"]["kind"] != "file" else {})}
        for item in found
    ]


def test_a_scheduler_that_is_away_keeps_the_nodes_that_it_may_still_run(site: Site) -> None:
    site.slurm.away = True
    found = site.hand_over("node02", "node03")
    assert found["node02"].message == (
        "node02: jobs on it - Expected: known from the scheduler Actual: slurm: none (expected: an answer). Start it. "
        "Nothing was changed. Run again once it answers."
    )
    assert found["node02"].data == {UNTOUCHED: True}
    assert site.kube.nodes["node02"] is HELD
    assert found["node03"].outcome is Outcome.PASS


def test_a_phase_finds_it_in_production_and_a_drain_drains_it_in_both(site: Site) -> None:
    assert in_production(site.ctx, ["node02"]) == (["node02"], {})
    assert drain_nodes(site.ctx, ["node02"], {"node02": "x"})["node02"].outcome is Outcome.PASS
    assert (site.slurm.nodes["node02"].reason, site.kube.nodes["node02"].reason) == ("rackready: x", "rackready: x")
    assert in_production(site.ctx, ["node02"]) == ([], {})


def test_a_drain_is_no_error_where_only_the_earlier_scheduler_knows_it(site: Site) -> None:
    site.kube.strange |= {"node02"}
    assert drain_nodes(site.ctx, ["node02"], {"node02": "x"})["node02"].outcome is Outcome.PASS
    assert site.slurm.nodes["node02"].drained


def test_power_cycles_and_retirement_ask_the_earlier_scheduler_too(site: Site) -> None:
    paths = EnvPaths(site.ctx.root, "sim")
    whole = production.site_of(site.ctx)
    assert refusal(whole, site.ledger, paths, "node02") == "the scheduler may start jobs on it"
    site.slurm.nodes["node02"] = HELD
    assert refusal(whole, site.ledger, paths, "node02") == ""
    site.slurm.running = {"node02": [TRAIN]}
    assert refusal(whole, site.ledger, paths, "node02") == "job 7 of ann runs on it"
    assert retire.look(site.ctx, "node02").jobs == [TRAIN]
    site.slurm.nodes["node02"] = IDLE
    assert retire.look(site.ctx, "node02").usable


def test_a_quarantined_node_is_kept_off_the_earlier_scheduler_too(site: Site) -> None:
    site.ledger.set_state("node02", NodeState.QUARANTINED, "NVLink down")
    assert keep_off(site.ctx).drained == ("node02",)
    assert site.slurm.nodes["node02"].reason == "rackready: quarantined: NVLink down"


def test_a_dry_run_tells_the_drain_and_does_nothing(site: Site) -> None:
    found = site.hand_over("node02", check=True)["node02"]
    assert found.message == "node02: would be drained first, then released: moves from part slurm to part kubernetes"
    assert site.slurm.nodes["node02"].usable


def test_a_node_that_was_handed_over_by_an_older_version_is_looked_for_everywhere(site: Site) -> None:
    site.ledger.done(site.ledger.begin("node03", RELEASE, "digest", {"state": "IDLE", "reason": ""}).token, {})
    site.slurm.strange -= {"node03"}
    site.slurm.nodes["node03"] = IDLE
    assert site.hand_over("node03")["node03"].outcome is Outcome.PASS
    assert site.slurm.nodes["node03"].drained
    assert place(site, "node03") == "kubernetes"


def test_a_node_on_offer_already_gets_its_place_recorded_all_the_same(site: Site) -> None:
    site.ledger.done(site.ledger.begin("node03", RELEASE, "certificate of node03", {}).token, {})
    site.kube.nodes["node03"] = IDLE
    assert site.hand_over("node03")["node03"].message == "node03: on offer already (IDLE)"
    assert place(site, "node03") == "kubernetes"


def test_a_node_that_others_offer_in_the_other_scheduler_is_not_offered(site: Site) -> None:
    site.slurm.strange -= {"node03"}
    site.slurm.nodes["node03"] = IDLE
    found = site.hand_over("node03")["node03"]
    assert (found.outcome, found.data, found.message) == (
        Outcome.ERROR,
        {},
        (
            "node03: offered by part slurm (slurm 192.0.2.5:22) - Expected: offered by its own part kubernetes "
            "(kubernetes gpu of /kube/config) only Actual: IDLE. It was not offered. Drain it there or take it out of "
            "that cluster; or name it in that part."
        ),
    )
    assert site.slurm.nodes["node03"].usable, "rackready never handed it over: it is others' there"
    assert site.kube.nodes["node03"] is HELD


def test_a_scheduler_that_the_site_no_longer_names_holds_its_nodes(site: Site) -> None:
    gone = {PART: "old", PLACE: "slurm 192.0.2.77:22"}
    site.ledger.done(site.ledger.begin("node03", RELEASE, "digest", gone).token, {})
    text = (
        "node03: handed over to part old (slurm 192.0.2.77:22) - Expected: a scheduler that the site names, so that it "
        "can be drained there Actual: slurm 192.0.2.5:22, kubernetes gpu of /kube/config, file "
        f"{site.ready}. Nothing was changed. Put that scheduler back into the site and drain the node; or drain it "
        "there by hand, wait for its jobs, then run `rackready repair node03 --reason '...'`."
    )
    assert site.hand_over("node03")["node03"].message == text
    assert in_production(site.ctx, ["node03"])[1]["node03"].message == text
    assert site.kube.nodes["node03"] is HELD
    site.ledger.raise_epoch("node03", "repaired")
    assert site.hand_over("node03")["node03"].outcome is Outcome.PASS


def test_it_is_looked_for_under_the_name_that_it_had_there(site: Site) -> None:
    named = parts(site.ready, slurm="node01", kube="node[02-03]")
    named[1]["handover"] = named[1]["handover"] | {"node_names": {"node03": "gpu-c"}}
    site.write(*named)
    site.hand_over("node03")
    site.write(*parts(site.ready, slurm="node[01,03]", kube="node02"))  # its entry went with it
    (view,) = moved(production.site_of(site.ctx), site.ledger, ["node03"])
    assert isinstance(view.site.handover, KubernetesHandover)
    assert (view.called, view.site.handover.node_name("node03")) == ("kubernetes", "gpu-c")


def test_a_part_that_got_another_name_is_the_same_scheduler(site: Site) -> None:
    site.hand_over("node01", "node03")
    site.kube.asked.clear()
    renamed = parts(site.ready, slurm="node[01-02]", kube="node03")
    renamed[0]["name"] = "batch"
    site.write(*renamed)
    assert site.hand_over("node01")["node01"].message == "node01: on offer already (IDLE)"
    assert site.kube.asked == []
    assert place(site, "node01") == "batch"

"""The workflow records what `abi.yml` declares for its CAMPAIGN_ABI, so a pending campaign can be replayed."""

from __future__ import annotations

import base64
import inspect
import pickle
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.campaign import workflow
from rackready.campaign.abi import CAMPAIGN_ABI
from rackready.campaign.request import CampaignRequest
from rackready.paths import EnvPaths
from tests import forked

HERE = Path(__file__).parent
DECLARED: dict[str, Any] = yaml.safe_load((HERE / "abi.yml").read_text(encoding="utf-8"))
RAISE = "the steps of a campaign changed: raise CAMPAIGN_ABI and add the new shape to abi.yml"


def test_every_abi_is_declared() -> None:
    assert sorted(DECLARED, key=int) == [str(number) for number in range(1, int(CAMPAIGN_ABI) + 1)]


def test_a_campaign_records_the_steps_of_its_abi(tmp_path: Path) -> None:
    """Step numbers, names, arguments and queue, as DBOS finds them when it replays a pending campaign."""
    child = forked.start([HERE / "fake_site.py", tmp_path, "run"])
    text, _ = child.communicate()
    assert child.returncode == 0, text
    assert recorded(EnvPaths(tmp_path, "x").workflows) == DECLARED[CAMPAIGN_ABI]["recorded"], RAISE


def recorded(database: Path) -> list[str]:
    """Return the steps of the campaign, then the different steps of its batches."""
    with sqlite3.connect(database) as tables:
        rows = tables.execute(
            "SELECT w.name, o.function_id, o.function_name, child.queue_name, i.inputs"
            " FROM operation_outputs o JOIN workflow_status w USING (workflow_uuid)"
            " LEFT JOIN workflow_status child"
            "   ON child.workflow_uuid = o.child_workflow_id AND child.name = o.function_name"
            " LEFT JOIN workflow_input i ON i.workflow_uuid = child.workflow_uuid"
            " ORDER BY w.name DESC, o.function_id, o.workflow_uuid"
        ).fetchall()
        versions = {version for (version,) in tables.execute("SELECT application_version FROM workflow_status")}
    assert versions == {f"abi-{CAMPAIGN_ABI}"}
    return list(
        dict.fromkeys(f"{name} {number} {step}{call(queue, inputs)}" for name, number, step, queue, inputs in rows)
    )


def call(queue: str | None, inputs: str | None) -> str:
    if inputs is None:
        return ""
    (request, phase, nodes), named = pickle.loads(base64.b64decode(inputs)).values()  # noqa: S301 - our own database
    assert (CampaignRequest.load(request).plain(), named) == (request, {})
    without = "" if request["nodes"] else " without nodes"
    return f"(request{without}, {phase}, {' '.join(nodes)}) on {queue}"


def test_waves_and_batches_come_in_the_order_of_their_abi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enqueued: list[str] = []

    class Handle:
        def __init__(self, nodes: list[str]) -> None:
            self.nodes = nodes

        def get_result(self, **_: object) -> dict[str, dict[str, Any]]:
            return {
                node: {"outcome": "fail" if node == "node02" else "pass", "message": "", "changed": False}
                for node in self.nodes
            }

    def enqueue(queue: str, work: Callable[..., Any], data: dict[str, Any], phase: str, nodes: list[str]) -> Handle:
        assert (queue, work, data) == (workflow.QUEUE, workflow.batch_workflow, {**request, "nodes": []})
        enqueued.append(f"{phase} {' '.join(nodes)}")
        return Handle(nodes)

    monkeypatch.setattr(workflow.DBOS, "enqueue_workflow", enqueue)
    request = CampaignRequest(
        campaign="c1", env="x", root=str(tmp_path), kind="deploy", phases=("provision", "install", "fabric"),
        nodes=("node01", "node02", "node03", "node04"),
        batch_size=2, wave_sizes=(3, 1), stop_above_pct=50, site_digest="d",
    ).plain()  # fmt: skip
    inspect.unwrap(workflow.campaign_workflow)(request)
    assert enqueued == DECLARED[CAMPAIGN_ABI]["waves"], RAISE


def test_the_plans_of_all_phases_of_a_dry_run_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Handle:
        def __init__(self, phase: str) -> None:
            self.phase = phase

        def get_result(self, **_: object) -> dict[str, dict[str, Any]]:
            plan = {} if self.phase == "optimize" else {"plan": {"step": self.phase}}
            return {"node01": {"outcome": "pass", "message": "", "changed": False} | plan}

    monkeypatch.setattr(workflow.DBOS, "enqueue_workflow", lambda _queue, _work, _data, phase, _nodes: Handle(phase))
    request = CampaignRequest(
        campaign="c1", env="x", root=str(tmp_path), kind="deploy", phases=("fabric", "validate", "optimize"),
        nodes=("node01",), batch_size=2, wave_sizes=(1,), stop_above_pct=50, site_digest="d", check=True,
    ).plain()  # fmt: skip
    (row,) = inspect.unwrap(workflow.campaign_workflow)(request)["nodes"].values()
    assert row["plan"] == {"fabric": {"step": "fabric"}, "validate": {"step": "validate"}}


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("campaign", workflow.campaign_workflow),
        ("batch", workflow.batch_workflow),
        ("phase", workflow.phase_step),
        ("asked", workflow.asked_step),
        ("kinds", workflow.kinds_step),
    ],
)
def test_functions_take_the_arguments_of_their_abi(name: str, work: Callable[..., Any]) -> None:
    assert list(inspect.signature(work).parameters) == DECLARED[CAMPAIGN_ABI]["parameters"][name], RAISE


def test_a_campaign_of_the_abi_before_goes_on_from_the_ledger(tmp_path: Path) -> None:
    """Its batches on record have every node in their arguments: they are not replayed, and nothing of them is lost."""
    program = [HERE / "fake_site.py", tmp_path]
    forked.start([*program, "die:fabric"]).communicate()
    database = EnvPaths(tmp_path, "x").database.file
    with sqlite3.connect(database) as tables:
        assert tables.execute("UPDATE campaigns SET abi = '1'").rowcount == 1
    child = forked.start([*program, "run"])
    done, _ = child.communicate()
    assert child.returncode == 0, done
    assert "is not resumed (it was made by another version of rackready): a new one continues" in done
    assert "ROW node02 ready handover pass" in done


def test_it_looks_seldom_for_long_work_and_often_for_short_work() -> None:
    pace = workflow.Pace()
    looks = [pace.seconds]
    for seconds in (0.001, 10.0, 3600.0):
        pace.took("install", seconds)
        pace.turn_to("install")
        looks.append(pace.seconds)
    pace.turn_to("fabric")
    assert [*looks, pace.seconds] == [0.1, 0.02, 0.2, 0.5, 0.1]


def test_it_looks_more_seldom_the_longer_the_first_batch_of_a_phase_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(workflow.time, "monotonic", lambda: now[0])
    pace = workflow.Pace()
    pace.turn_to("install")
    looks = []
    for seconds in (0.0, 5.0, 15.0, 60.0):
        now[0] = 1000.0 + seconds
        looks.append(pace.seconds)
    pace.turn_to("fabric")
    assert [*looks, pace.seconds] == [0.1, 0.1, 0.3, 0.5, 0.1]

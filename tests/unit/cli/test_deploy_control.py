"""`rackready deploy --pause|--resume|--abort|--failed-only`: what is asked, what is refused, which nodes are taken."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackready.campaign.stop_request import StopRequest, look
from rackready.cli import deploy_control as control
from rackready.cli.campaign_run import require_not_paused
from rackready.cli.output import Format
from rackready.ledger.lock import ControllerLock
from rackready.ledger.store import Ledger
from rackready.model.problems import RackreadyError
from rackready.paths import EnvPaths


@pytest.fixture
def paths(tmp_path: Path) -> EnvPaths:
    return EnvPaths(tmp_path, "x")


def result(outcome: str = "pass", phase: str = "handover") -> dict[str, Any]:
    return {"outcome": outcome, "phase": phase, "message": "", "changed": False}


def deployed(paths: EnvPaths, status: str, kind: str = "deploy", **results: dict[str, Any]) -> None:
    with Ledger.open(paths.database) as ledger:
        nodes = ["n1", "n2", "n3", "n4"]
        summary = {"request": {}, "results": results} if status != "running" else {"request": {}}
        ledger.put_campaign(f"c-{kind}", env="x", kind=kind, nodes=nodes, site_digest="d", abi="2", status=status)
        ledger.put_campaign(f"c-{kind}", summary=summary)


def status(paths: EnvPaths) -> str:
    with Ledger.read_only(paths.database) as ledger:
        return str(next(row["status"] for row in ledger.campaigns() if row["kind"] == "deploy"))


def refusal(run: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(RackreadyError) as caught:
        run(*arguments)
    return str(caught.value)


def test_a_running_deploy_is_asked(paths: EnvPaths) -> None:
    deployed(paths, "running")
    with ControllerLock(paths.lock, "rackready deploy", paths.database):
        assert control.ask(paths, StopRequest.PAUSE) == (
            "campaign c-deploy: asked to pause; it does so after the phase under way"
        )
        assert look(paths.deploy_request) is StopRequest.PAUSE
        assert control.end(paths).endswith("asked to abort; it does so after the phase under way")
        assert look(paths.deploy_request) is StopRequest.ABORT


@pytest.mark.parametrize(("before", "actual"), [("", "none"), ("finished", "c-deploy: finished")])
def test_without_a_running_deploy_nothing_is_asked(paths: EnvPaths, before: str, actual: str) -> None:
    if before:
        deployed(paths, before)
    assert refusal(control.ask, paths, StopRequest.PAUSE) == (
        f"deploy --pause - Expected: a deploy that runs Actual: {actual}. There is nothing to do."
    )
    assert not paths.deploy_request.exists()


def test_a_deploy_whose_controller_is_gone_does_not_run(paths: EnvPaths) -> None:
    deployed(paths, "running")
    assert "a deploy that runs Actual: c-deploy: running" in refusal(control.ask, paths, StopRequest.ABORT)


def test_a_paused_deploy_refuses_a_plain_one_until_it_is_ended(
    paths: EnvPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    deployed(paths, "paused")
    assert refusal(require_not_paused, paths) == (
        "campaign c-deploy - Expected: no deploy that is paused Actual: paused. "
        "Go on with `rackready deploy --resume`, or end it with --abort."
    )
    control.tell(paths, Format.JSON, abort=True)
    assert json.loads(capsys.readouterr().out) == {
        "env": "x", "asked": "abort", "what": "campaign c-deploy: aborted; its nodes keep their states",
    }  # fmt: skip
    assert status(paths) == "aborted"
    require_not_paused(paths)


def test_another_phase_since_does_not_hide_a_paused_deploy(paths: EnvPaths) -> None:
    deployed(paths, "paused")
    deployed(paths, "finished", kind="install")
    assert "paused" in refusal(require_not_paused, paths)


def test_resume_takes_the_nodes_of_the_paused_deploy(paths: EnvPaths) -> None:
    deployed(paths, "paused", n1=result())
    assert control.paused(paths) == ["n1", "n2", "n3", "n4"]
    assert status(paths) == "paused", "a run that is refused before it begins changes nothing"


def test_resume_needs_a_paused_deploy(paths: EnvPaths) -> None:
    deployed(paths, "finished")
    assert refusal(control.paused, paths) == (
        "deploy --resume - Expected: a deploy that is paused Actual: c-deploy: finished. Begin one: `rackready deploy`."
    )


def test_failed_only_takes_what_was_tried_and_did_not_come_through(paths: EnvPaths) -> None:
    deployed(paths, "finished", n1=result(), n2=result("fail", "validate"), n3=result("pass", "install"))
    assert control.failed(paths) == ["n2", "n3"], "n4 was not reached, so it did not fail"


def test_failed_only_without_a_failure_is_refused(paths: EnvPaths) -> None:
    deployed(paths, "finished", n1=result())
    assert refusal(control.failed, paths) == (
        "deploy --failed-only - Expected: nodes that failed Actual: none in c-deploy. There is nothing to do."
    )


def test_failed_only_needs_a_deploy_that_ended(paths: EnvPaths) -> None:
    deployed(paths, "running")
    assert "a deploy that ended Actual: c-deploy: running" in refusal(control.failed, paths)


def test_options_that_exclude_each_other() -> None:
    assert refusal(control.one_of, [("--limit", "n1"), ("--pause", True), ("--abort", False)]) == (
        "deploy - Expected: one of --limit, --pause, --abort Actual: --limit, --pause. Give one."
    )
    with pytest.raises(RackreadyError) as caught:
        control.require_alone("--pause", check=True, erase=["n1"], full=True)
    assert str(caught.value) == (
        "deploy --pause - Expected: --pause alone Actual: --check, --erase, --full. Leave them out."
    )

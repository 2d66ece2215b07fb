"""What a campaign command records: a deploy what it applied, without failed nodes; other phases and checks nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from rackready.campaign.controller import Finished
from rackready.campaign.request import DEPLOY, DRY, CampaignRequest
from rackready.cli import campaign_run
from rackready.cli.output import Format
from rackready.ledger.applied import FILE, AppliedError, read
from rackready.ledger.store import Ledger
from rackready.model.state import NodeState
from rackready.paths import EnvPaths, private_dir
from tests.unit.cli.test_commands import project, rackready

__all__ = ["project"]

NODES = {f"node0{number}" for number in range(1, 5)}


def ran(
    project: Path, monkeypatch: pytest.MonkeyPatch, kind: str, *, check: bool = False, failed: str = ""
) -> set[str]:
    """Run a command whose campaign is replaced by its result; return the keys of what is recorded as applied."""

    def campaign(paths: EnvPaths, request: CampaignRequest, **_: Any) -> Finished:
        ledger = Ledger.open(paths.database)
        for node in request.nodes:
            ledger.set_state(node, NodeState.QUARANTINED if node == failed else NodeState.READY)
        ledger.put_campaign(
            request.campaign,
            env="lab",
            kind=kind,
            nodes=list(request.nodes),
            site_digest="d",
            abi="1",
            status="finished",
        )
        ledger.close()
        good = {"outcome": "pass", "message": "", "changed": True, "phase": "handover"}
        bad = {"outcome": "fail", "message": "bad", "changed": True, "phase": "validate"}
        return Finished(
            request.campaign, {node: bad if node == failed else good for node in request.nodes}, resumed=False
        )

    monkeypatch.setenv("RACKREADY_ROOT", str(project))
    monkeypatch.setattr(campaign_run, "run_campaign", campaign)
    with pytest.raises(typer.Exit) as left:
        campaign_run.run(kind, DRY if check else DEPLOY, env="lab", limit="", check=check, output=Format.JSON)
    assert left.value.exit_code == (1 if failed else 0)
    return set(read(EnvPaths(project, "lab").state).facts)


def test_deploy_records_what_it_applied(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ran(project, monkeypatch, "deploy") == {
        *(f"node {name}" for name in NODES),
        "switch leaf01",
        "switch leaf02",
    }


def test_failed_node_is_not_recorded(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ran(project, monkeypatch, "deploy", failed="node03") == {
        *(f"node {name}" for name in NODES - {"node03"}),
        "switch leaf01",
        "switch leaf02",
    }


@pytest.mark.parametrize("kind", ["provision", "install", "fabric", "validate", "optimize", "handover"])
def test_single_phases_record_nothing(project: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    assert ran(project, monkeypatch, kind) == set()


def test_check_records_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ran(project, monkeypatch, "deploy", check=True) == set()


def damage(path: Path) -> str:
    path.write_bytes(b"no gzip")
    return (
        f"{path} - Expected: the record of an earlier deploy (rackready/applied/v1) "
        f"Actual: BadGzipFile: Not a gzipped file (b'no'). {REMOVE}"
    )


def forbid(path: Path) -> str:
    path.mkdir()
    return (
        f"{path} - Expected: the record of an earlier deploy (rackready/applied/v1) "
        f"Actual: IsADirectoryError: [Errno 21] Is a directory: '{path}'. {REMOVE}"
    )


REMOVE = "Remove it: the next deploy records everything again. Until then all is shown as added."


@pytest.mark.parametrize("spoil", [damage, forbid])
def test_what_cannot_be_recorded_is_said_and_spoils_no_good_deploy(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], spoil: Callable[[Path], str]
) -> None:
    state = private_dir(EnvPaths(project, "lab").state)
    why = spoil(state / FILE)
    with pytest.raises(AppliedError):
        ran(project, monkeypatch, "deploy")
    told = capsys.readouterr()
    assert told.err == f"could not record what was applied: {why}\n"
    assert {row["name"] for row in json.loads(told.out)["nodes"]} == NODES
    assert Path(json.loads(told.out)["report_html"]).exists()


def test_full_disk_while_recording_is_said_and_spoils_no_good_deploy(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(campaign_run, "record_applied", full)
    assert ran(project, monkeypatch, "deploy") == set()
    told = capsys.readouterr()
    assert told.err == "could not record what was applied: [Errno 28] No space left on device\n"
    assert json.loads(told.out)["campaign"]


@pytest.mark.parametrize(
    ("limit", "check", "again", "words"),
    [
        ("", False, False, "rackready validate --env lab"),
        ("node01, node02", False, True, "rackready validate --env lab --limit 'node01, node02' --again"),
        ("node01", True, False, "rackready validate --env lab --limit node01 --check"),
    ],
)
def test_the_command_is_told_with_its_options(limit: str, check: bool, again: bool, words: str) -> None:  # noqa: FBT001 - a table
    assert campaign_run.command_words("validate", env="lab", limit=limit, check=check, again=again) == words


def test_a_key_that_the_controller_lacks_is_refused_before_any_node_is_asked(project: Path) -> None:
    key = project / ".rackready/sim/keys/id_ed25519"
    key.unlink()
    for command in (("deploy",), ("certificate", "verify")):
        done = rackready(project, *command, "--env", "lab")
        says = "an OpenSSH private key without passphrase Actual: No such file or directory"
        assert (done.returncode, done.stderr) == (
            2,
            f"this controller: private key {key} - Expected: {says}. Correct access.private_key in the site file.\n",
        )

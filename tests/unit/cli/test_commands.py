"""Commands as a user calls them: exit codes, one JSON document on standard output, nothing touched when refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rackready.cli import main
from rackready.ledger.lock import ControllerLock
from rackready.ledger.store import Ledger
from rackready.model.state import NodeState
from rackready.paths import EnvPaths, private_dir
from tests import forked
from tests.postgres import PostgresServer, name_of
from tests.unit.cli.keys import put_key

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "inventories/lab").mkdir(parents=True)
    shutil.copy(ROOT / "inventories/sim/site.yml", tmp_path / "inventories/lab/site.yml")
    put_key(tmp_path / ".rackready/sim/keys/id_ed25519")
    return tmp_path


def rackready(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "RACKREADY_ROOT": str(project), "COLUMNS": "200"}
    environment.pop("ENV", None)
    return forked.rackready(*arguments, env=environment, cwd=project)


def spoil(project: Path) -> None:
    path = project / "inventories/lab/site.yml"
    site = yaml.safe_load(path.read_text(encoding="utf-8"))
    nodes = site["racks"][0]["nodes"]
    nodes[1]["colour"] = "red"
    nodes[2]["address"] = nodes[0]["address"]
    site["links"][3]["ports"] = "swp65-swp68"
    site["software"]["driver_branch"] = 470
    path.write_text(yaml.safe_dump(site), encoding="utf-8")


@pytest.mark.parametrize("command", ["deploy", "install", "provision", "validate"])
def test_bad_site_file_lists_everything_exits_2_and_touches_nothing(project: Path, command: str) -> None:
    spoil(project)
    done = rackready(project, command, "--env", "lab")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "4 problems; nothing was changed." in done.stderr
    for path in ("links[3].ports", "racks[0].nodes[1].colour", "racks[0].nodes[2].address", "software.driver_branch"):
        assert f"  {path}: " in done.stderr
    assert not (project / ".rackready/lab/state.sqlite").exists()


def test_bad_site_file_as_json(project: Path) -> None:
    spoil(project)
    done = rackready(project, "deploy", "--env", "lab", "--output", "json")
    assert done.returncode == 2
    assert [item["path"] for item in json.loads(done.stdout)["problems"]] == [
        "links[3].ports",
        "racks[0].nodes[1].colour",
        "racks[0].nodes[2].address",
        "software.driver_branch",
    ]


def test_status_before_anything_was_deployed(project: Path) -> None:
    done = rackready(project, "status", "--env", "lab", "--output", "json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [node["name"] for node in document["nodes"]] == ["node01", "node02", "node03", "node04"]
    assert {node["state"] for node in document["nodes"]} == {"declared"}
    assert not (project / ".rackready/lab/state.sqlite").exists(), "status makes nothing"


def test_repair_brings_a_quarantined_node_back_in_a_new_epoch(project: Path) -> None:
    (project / ".rackready/lab").mkdir(parents=True)
    ledger = Ledger.open(project / ".rackready/lab/state.sqlite")
    ledger.set_state("node03", NodeState.QUARANTINED, "gpu2: NVLink down")
    without_scheduler(project)
    done = rackready(project, "repair", "node03", "--reason", "baseboard replaced", "--env", "lab", "--output", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "name": "node03",
        "state": "reachable",
        "epoch": 2,
        "reason": "repaired: baseboard replaced",
    }
    row = ledger.state("node03")
    assert row is not None
    assert (row.state, row.epoch) == (NodeState.REACHABLE, 2)


def handed_to_a_file(project: Path, ready: str) -> Path:
    path = project / "inventories/lab/site.yml"
    site = yaml.safe_load(path.read_text(encoding="utf-8"))
    site["handover"] = {"kind": "file", "path": str(project / ready)}
    path.write_text(yaml.safe_dump(site), encoding="utf-8")
    (project / ".rackready/lab").mkdir(parents=True)
    return project / ready


def test_repair_of_a_node_on_offer_holds_it_first(project: Path) -> None:
    listed = handed_to_a_file(project, "ready.txt")
    listed.write_text("node02\nnode03\n", encoding="utf-8")
    Ledger.open(project / ".rackready/lab/state.sqlite").set_state("node03", NodeState.READY)
    done = rackready(project, "repair", "node03", "--reason", "GPU 2 replaced", "--env", "lab")
    assert done.returncode == 0, done.stderr
    assert listed.read_text(encoding="utf-8").splitlines()[1:] == [
        "node02",
        "# node03: rackready: repaired: GPU 2 replaced",
    ]


def test_repair_of_a_node_that_cannot_be_held_records_nothing(project: Path) -> None:
    handed_to_a_file(project, "a_folder").mkdir()
    ledger = Ledger.open(project / ".rackready/lab/state.sqlite")
    ledger.set_state("node03", NodeState.READY)
    done = rackready(project, "repair", "node03", "--reason", "x", "--env", "lab")
    assert done.returncode == 2
    assert (
        "node03 is ready and offered to jobs: nothing was recorded. Run again when the scheduler can drain it."
        in done.stderr
    )
    row = ledger.state("node03")
    assert row is not None
    assert (row.state, row.epoch) == (NodeState.READY, 1)


def test_repair_of_a_node_of_a_campaign_that_was_cut_off(project: Path) -> None:
    """Gone on with, the campaign would leave out what it did on the node before the repair."""
    (project / ".rackready/lab").mkdir(parents=True)
    ledger = Ledger.open(project / ".rackready/lab/state.sqlite")
    for campaign, nodes in (("c1", ["node01", "node02"]), ("c2", ["node03", "node04"])):
        ledger.put_campaign(
            campaign, env="lab", kind="deploy", nodes=nodes, site_digest="d", abi="1", status="interrupted"
        )
    ledger.set_state("node03", NodeState.INSTALLED)
    without_scheduler(project)
    done = rackready(project, "repair", "node03", "--reason", "x", "--env", "lab")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "campaign c2 was cut off and is not resumed: node03 repeats every phase\n"
    assert {row["id"]: row["status"] for row in ledger.campaigns()} == {"c1": "interrupted", "c2": "superseded"}


def test_repair_of_a_node_that_was_never_taken_up_claims_nothing_of_it(project: Path) -> None:
    done = rackready(project, "repair", "node03", "--reason", "x", "--env", "lab")
    assert done.returncode == 2
    assert (
        done.stderr
        == "node03 - Expected: a deployment record Actual: none. Run `rackready deploy --env lab --limit node03` "
        "first.\n"
    )
    assert not (project / ".rackready/lab/state.sqlite").exists()


@pytest.mark.parametrize("command", ["repair", "retire"])
def test_an_empty_reason_is_refused(project: Path, command: str) -> None:
    done = rackready(project, command, "node03", "--reason", " \n", "--env", "lab")
    assert (done.returncode, done.stderr) == (
        2,
        "--reason - Expected: a reason in words Actual: none. Give one: it is recorded.\n",
    )


def campaign_of(project: Path, status: str) -> EnvPaths:
    paths = EnvPaths(project, "lab")
    ledger = Ledger.open(paths.database)
    ledger.put_campaign("c1", env="lab", kind="deploy", nodes=["node01"], site_digest="d", abi="1", status=status)
    return paths


def shown(project: Path) -> tuple[str, str]:
    document = json.loads(rackready(project, "status", "--env", "lab", "--output", "json").stdout)
    return document["campaign"]["status"], rackready(project, "status", "--env", "lab").stdout.splitlines()[-1]


def test_status_tells_a_campaign_that_runs_from_one_whose_controller_was_killed(project: Path) -> None:
    paths = campaign_of(project, "running")
    with ControllerLock(paths.lock, "rackready deploy --env lab", paths.database):
        status, last = shown(project)
    assert (status, "to continue" in last) == ("running", False)
    assert shown(project) == (
        "cut off",
        "campaign c1 was cut off: run the same command (deploy) to continue where it stopped",
    )


def test_an_import_does_not_hide_that_a_deploy_was_cut_off(project: Path) -> None:
    paths = campaign_of(project, "interrupted")
    Ledger.open(paths.database).put_campaign(
        "i1", env="lab", kind="import", nodes=["node01"], site_digest="", abi="", status="finished"
    )
    assert shown(project) == (
        "interrupted",
        "campaign c1 was interrupted: run the same command (deploy) to continue where it stopped",
    )


def test_status_of_a_finished_campaign_says_no_more(project: Path) -> None:
    campaign_of(project, "finished")
    status, last = shown(project)
    assert (status, "to continue" in last) == ("finished", False)


def test_a_damaged_ledger_is_no_full_disk(project: Path) -> None:
    paths = EnvPaths(project, "lab")
    private_dir(paths.state)
    paths.database.file.write_bytes(b"not a database, and long enough to be looked at as one")
    done = rackready(project, "deploy", "--env", "lab")
    assert done.returncode == 2
    assert "Actual: file is not a database. Run `rackready doctor --env lab`: it shows the next step." in done.stderr


def test_states_and_campaigns_of_another_machine_are_shown(
    postgres: PostgresServer, project: Path, tmp_path: Path
) -> None:
    elsewhere = EnvPaths(tmp_path / "elsewhere", "lab")
    postgres.settings(elsewhere.root, name=name_of(postgres.database(project)))
    done = rackready(project, "status", "--env", "lab", "--output", "json")
    assert (done.returncode, json.loads(done.stdout)["campaign"]) == (0, None), done.stderr
    with ControllerLock(elsewhere.lock, "rackready deploy", elsewhere.database):
        ledger = Ledger.open(elsewhere.database)
        ledger.set_state("node02", NodeState.INSTALLED)
        ledger.put_campaign("c1", env="lab", kind="deploy", nodes=["node02"], site_digest="", abi="", status="running")
        shown = json.loads(rackready(project, "status", "--env", "lab", "--output", "json").stdout)
        assert shown["campaign"] == {"id": "c1", "kind": "deploy", "status": "running"}
        assert shown["nodes"][1]["state"] == "installed"
    cut_off = rackready(project, "status", "--env", "lab", "--output", "json")
    assert json.loads(cut_off.stdout)["campaign"]["status"] == "cut off"
    assert not (project / ".rackready/lab/state.sqlite").exists()


@pytest.mark.parametrize("command", ["status", "deploy"])
def test_server_that_does_not_answer_is_said(postgres: PostgresServer, project: Path, command: str) -> None:
    postgres.settings(project, host=str(project), password=None)
    done = rackready(project, command, "--env", "lab")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        f"PostgreSQL database rackready on {project}:{postgres.port}: the ledger cannot be read - "
        "Expected: a database that can be reached" in done.stderr
    )
    assert (
        f"Start the server, or correct host and port in {project}/inventories/lab/database.yml, then run again."
        in done.stderr
    )
    assert "Traceback" not in done.stderr


def test_repair_of_an_unknown_node_is_refused(project: Path) -> None:
    done = rackready(project, "repair", "node9", "--reason", "x", "--env", "lab")
    assert done.returncode == 2
    assert done.stderr == (
        "node9 - Expected: one of node01, node02, node03, node04 Actual: no such node. Correct the name: "
        "`rackready status --env lab` lists the nodes.\n"
    )


def test_unknown_limit_is_refused(project: Path) -> None:
    done = rackready(project, "deploy", "--env", "lab", "--limit", "node01,node7")
    assert done.returncode == 2
    assert (
        "--limit node01,node7 - Expected: some of node[01-04] Actual: node7. Correct the name: "
        "`rackready status --env lab` lists the nodes." in done.stderr
    )


def test_quarantined_node_is_left_alone_by_a_mere_repeat(project: Path) -> None:
    (project / ".rackready/lab").mkdir(parents=True)
    ledger = Ledger.open(project / ".rackready/lab/state.sqlite")
    ledger.set_state("node03", NodeState.QUARANTINED, "node03 gpu2: NVLink down")
    without_scheduler(project)
    done = rackready(project, "deploy", "--env", "lab", "--limit", "node03", "--output", "json")
    assert done.returncode == 1, done.stderr
    assert "rackready repair node03 --reason" in done.stderr
    assert json.loads(done.stdout)["nodes"] == [
        {
            "name": "node03",
            "state": "quarantined",
            "phase": "",
            "outcome": "fail",
            "changed": False,
            "reason": "node03 gpu2: NVLink down",
        }
    ]


def test_unknown_environment(project: Path) -> None:
    done = rackready(project, "status", "--env", "prod")
    assert done.returncode == 2
    assert "no such file. Name an environment with --env: lab." in done.stderr


def test_schema_is_one_json_document(project: Path) -> None:
    done = rackready(project, "schema")
    assert done.returncode == 0
    assert json.loads(done.stdout)["properties"]["schema"]["const"] == "rackready/site/v1"


def test_outside_a_checkout(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in {"RACKREADY_ROOT", "ENV"}}
    moved = "import pathlib, rackready.paths as p; p._PACKAGE = pathlib.Path('/nowhere/x/rackready')"
    code = f"{moved}; from rackready.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "status"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "no site repository found - Expected: a folder with inventories/NAME/site.yml, here or above "
        f"Actual: none above {tmp_path}. cd into it, or set RACKREADY_ROOT. "
        "To begin one here: `mkdir -p inventories && cp -r /nowhere/inventories/example inventories/NAME`\n"
    )


def without_scheduler(project: Path) -> None:
    path = project / "inventories/lab/site.yml"
    site = yaml.safe_load(path.read_text(encoding="utf-8"))
    site["handover"] = {"kind": "file", "path": "ready.txt"}
    path.write_text(yaml.safe_dump(site), encoding="utf-8")


def test_retire_without_yes_shows_and_touches_nothing(project: Path) -> None:
    without_scheduler(project)
    done = rackready(project, "retire", "node03", "--reason", "sold to  nobody", "--env", "lab", "--output", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "name": "node03",
        "done": False,
        "steps": [
            "node03: declared",
            "would be drained in the scheduler: rackready: retired: sold to nobody",
            "was not powered on by rackready: its power stays as it is",
            "would be retired: sold to nobody",
        ],
    }
    text = rackready(project, "retire", "node03", "--reason", "sold", "--env", "lab")
    assert text.stdout.splitlines()[-1] == "nothing was changed. Add --yes to retire the node"
    assert not (project / ".rackready/lab/state.sqlite").exists()
    assert not (project / "ready.txt").exists()


@pytest.mark.parametrize("words", [(), ("--yes",)])
def test_retire_of_an_unknown_node_is_refused(project: Path, words: tuple[str, ...]) -> None:
    without_scheduler(project)
    done = rackready(project, "retire", "node9", "--reason", "x", "--env", "lab", *words)
    assert done.returncode == 2
    assert done.stderr == (
        "node9 - Expected: one of node01, node02, node03, node04 Actual: no such node. Correct the name: "
        "`rackready status --env lab` lists the nodes.\n"
    )
    assert not (project / ".rackready/lab/state.sqlite").exists()


def test_retire_needs_a_reason(project: Path) -> None:
    done = rackready(project, "retire", "node01", "--yes", "--env", "lab")
    assert done.returncode == 2
    assert "Missing option '--reason'" in done.stderr


def test_a_retired_node_is_left_out_and_that_is_said(project: Path) -> None:
    (project / ".rackready/lab").mkdir(parents=True)
    ledger = Ledger.open(project / ".rackready/lab/state.sqlite")
    ledger.set_state("node03", NodeState.RETIRED, "sold")
    without_scheduler(project)
    done = rackready(project, "deploy", "--env", "lab", "--limit", "node03", "--output", "json")
    assert done.returncode == 0, done.stderr
    assert (
        "node03 is retired (sold) and left out. Remove it from the site file; "
        "to bring it back: `rackready repair node03 --reason" in done.stderr
    )
    assert json.loads(done.stdout)["nodes"] == [
        {"name": "node03", "state": "retired", "phase": "", "outcome": "skip", "changed": False, "reason": "sold"}
    ]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("repair", "node01"), "Missing option '--reason'."),
        (("status", "--colour"), "No such option: --colour"),
        (("nonsense",), "No such command 'nonsense'."),
        (("status", "--output", "xml"), "Invalid value for '--output'"),
    ],
)
def test_a_wrong_call_is_refused_in_words_and_is_no_defect(project: Path, words: tuple[str, ...], text: str) -> None:
    done = rackready(project, *words)
    assert done.returncode == 2
    assert done.stderr.startswith(text), done.stderr
    command = "rackready" if words[0] == "nonsense" else f"rackready {words[0]}"
    assert done.stderr.endswith(f"See `{command} --help`.\n")
    assert "Traceback" not in done.stderr


def test_a_reader_that_leaves_is_no_full_disk_and_no_bad_node(project: Path) -> None:
    argv = [sys.executable, "-m", "rackready", "status", "--env", "lab"]
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        argv,
        stdout=write_end,
        stderr=subprocess.PIPE,
        env={**os.environ, "RACKREADY_ROOT": str(project)},
        timeout=60,
        check=False,
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (2, b"")


def test_ctrl_c_before_anything_was_begun_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_arguments: list[str]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "build", interrupted)
    text = "stopped. Nothing is lost: run the same command again. What was recorded counts."
    assert main.run(["status"]) == (130, True)
    assert capsys.readouterr() == ("", f"{text}\n")
    assert main.run(["status", "--output", "json"]) == (130, True)
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert (said.err, document["error"], document["code"]) == (f"{text}\n", text, "stopped")


def test_a_defect_is_shown_whole_and_looks_like_no_bad_node(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "build", lambda _arguments: 1 / 0)
    assert main.run(["status", "--output", "json"]) == (2, True)
    said = capsys.readouterr()
    text = (
        "defect in rackready - Expected: none Actual: ZeroDivisionError: division by zero. Report it with this output."
    )
    document = json.loads(said.out)
    assert (document["error"], document["code"], document["where"]) == (text, "defect", "defect in rackready")
    assert said.err.startswith("Traceback")
    assert said.err.endswith(f"ZeroDivisionError: division by zero\n{text}\n")


STUCK = """
import threading, time
from rackready.cli import main
threading.Thread(target=time.sleep, args=(300,)).start()
print(main.run(["status", "--nothing"]).code, flush=True)
main.main()
"""


def test_an_error_ends_the_process_whatever_threads_it_left_but_not_who_called_within_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STUCK, "status", "--nothing"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (2, "2\n")


def test_a_report_is_one_json_document_and_says_by_its_exit_code_what_did_not_pass(project: Path) -> None:
    ledger = Ledger.open(EnvPaths(project, "lab").database)
    ledger.put_campaign("c1", env="lab", kind="validate", nodes=[], site_digest="", abi="1", status="ended")
    ledger.close()
    done = rackready(project, "report", "--env", "lab", "--output", "json", "--junit", str(project / "here.xml"))
    found = json.loads(done.stdout)
    assert (done.returncode, found["campaign"]["id"], {node["outcome"] for node in found["nodes"]}) == (
        1,
        "c1",
        {"not_run"},
    )
    assert (project / "here.xml").read_text(encoding="utf-8").startswith("<?xml")
    again = rackready(project, "report", "c1", "--env", "lab", "--again")
    assert (again.returncode, [Path(line).name for line in again.stdout.splitlines()]) == (
        1,
        ["c1.again.html", "c1.again.json", "c1.again.junit.xml"],
    )

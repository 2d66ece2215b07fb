"""Campaigns as whole processes: killed, interrupted, with bad nodes, with defects of our own."""

from __future__ import annotations

import fcntl
import signal
import sys
import termios
from pathlib import Path

import pytest

from rackready.campaign import controller
from rackready.campaign.request import DEPLOY, CampaignRequest
from rackready.campaign.summary import document, exit_code, summarise
from rackready.ledger.store import CHANGE, Ledger
from rackready.model.state import NodeState
from tests import forked
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = Path(__file__).with_name("fake_site.py")
SHELL = 'exec "$@"'
PIPE_BYTES = 60_000
"""So much in a pipe of 64 KiB is more than all lines of a run, and less than the line of ``full``."""


def start(root: Path, mode: str, digest: str = "d", *, shell: str = "") -> forked.Child:
    return forked.start([PROGRAM, root, mode, digest], on=["sh", "-c", shell, "sh"] if shell else [])


def run(root: Path, mode: str, digest: str = "d") -> tuple[int, str]:
    child = start(root, mode, digest)
    text, _ = child.communicate(timeout=120)
    return child.wait(), text


def did(root: Path) -> list[str]:
    return (root / "did.log").read_text(encoding="utf-8").splitlines()


def began(root: Path, phase: str) -> bool:
    return (root / "did.log").exists() and any(line.startswith(phase) for line in did(root))


def waiting(child: forked.Child) -> int:
    """Bytes that a program has written and that nobody has read."""
    assert child.stdout is not None
    return int.from_bytes(fcntl.ioctl(child.stdout.fileno(), termios.FIONREAD, bytes(4)), sys.byteorder)


def test_all_phases_in_order_and_batches(tmp_path: Path) -> None:
    code, text = run(tmp_path, "run")
    assert code == 0, text
    lines = did(tmp_path)
    assert [line.split()[0] for line in lines] == [
        "provision",
        "install",
        "install",
        "fabric",
        "validate",
        "optimize",
        "optimize",
        "revalidate",
        "certify",
        "handover",
    ]
    assert {line for line in lines if line.startswith("install")} == {"install node01,node02", "install node03"}
    assert text.count("ROW") == 3
    assert "ROW node02 ready handover pass" in text


@pytest.mark.parametrize("phase", DEPLOY)
def test_killed_in_a_phase_it_goes_on_there(tmp_path: Path, phase: str) -> None:
    code, _ = run(tmp_path, f"die:{phase}")
    assert code == -signal.SIGKILL
    before = did(tmp_path)
    code, text = run(tmp_path, "run")
    assert code == 0, text
    assert "which was cut off" in text
    again = did(tmp_path)[len(before) :]
    assert again[0].startswith(phase)
    finished = set(before[: -2 if phase in {"install", "optimize"} else -1])
    assert not finished & set(again), "a finished step ran twice"


def test_changed_site_is_not_resumed_but_begun_anew_and_said(tmp_path: Path) -> None:
    run(tmp_path, "die:fabric")
    code, text = run(tmp_path, "run", "other")
    assert code == 0, text
    assert "is not resumed (the site or what was asked for has changed since)" in text
    assert did(tmp_path).count("provision node01,node02,node03") == 2


@pytest.mark.parametrize(
    "shell", [SHELL, 'trap "" INT TERM; exec "$@"'], ids=["in the foreground", "in a background that ignores it"]
)
def test_ctrl_c_stops_within_seconds_and_the_next_run_goes_on(tmp_path: Path, shell: str) -> None:
    """A shell without job control starts background commands with SIGINT ignored: the controller still handles it."""
    child = start(tmp_path, "hang:fabric", shell=shell)
    until(lambda: began(tmp_path, "fabric"))
    child.send_signal(signal.SIGINT)
    text, _ = child.communicate(timeout=60)
    assert child.returncode == 130, text
    assert "stopped. Nothing is lost: `make deploy ENV=x` continues where it stopped." in text
    code, text = run(tmp_path, "run")
    assert code == 0, text
    assert did(tmp_path).count("provision node01,node02,node03") == 1


def test_ctrl_c_while_a_terminal_stands_still_stops_it_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that prints fails where it interrupted a print that waits for its reader."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    child = start(tmp_path, "full:fabric", shell=SHELL)
    until(lambda: waiting(child) > PIPE_BYTES)
    child.send_signal(signal.SIGINT)
    text, _ = child.communicate(timeout=60)
    assert (child.returncode, "SAY stopping: what runs is asked to end" in text) == (130, True), text[-2000:]
    assert "." * 200_000 in text
    assert "stopped. Nothing is lost: `make deploy ENV=x` continues where it stopped." in text


def test_a_terminal_that_is_gone_stops_it_as_ctrl_c_does(tmp_path: Path) -> None:
    child = start(tmp_path, "hang:fabric")
    until(lambda: began(tmp_path, "fabric"))
    child.send_signal(signal.SIGHUP)
    try:
        text, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert (child.returncode, "continues where it stopped" in text) == (130, True), text


@pytest.mark.parametrize(
    ("mode", "error"),
    [
        ("deaf:validate", "BrokenPipeError: [Errno 32] Broken pipe"),
        ("torn:install", "LedgerError: the ledger cannot be written"),
    ],
    ids=["nobody takes its output any more", "one batch cannot be recorded while another works"],
)
def test_an_error_of_the_controller_ends_all_work_before_the_next_may_begin(
    tmp_path: Path, mode: str, error: str
) -> None:
    child = start(tmp_path, mode)
    try:
        text, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert error in text
    assert (tmp_path / "ended.log").read_text(encoding="utf-8") == f"{mode.partition(':')[2]} held\n"
    code, text = run(tmp_path, "run")
    assert code == 0, text
    assert did(tmp_path).count("provision node01,node02,node03") == (1 if mode.startswith("deaf") else 2)


def words(kind: str, *options: str, check: bool = False) -> str:
    request = CampaignRequest("c", "prod", "/", kind, (kind,), ("node01",), 8, (1,), 100, "d", check)
    return str(controller.stop_error(request, " ".join(["rackready", kind, "--env", "prod", *options])))


def test_a_stop_names_the_very_command_that_goes_on() -> None:
    """Without its options it would be another campaign: of every node, and no dry run."""
    assert words("deploy") == "stopped. Nothing is lost: `make deploy ENV=prod` continues where it stopped."
    assert (
        words("install", "--limit", "node01")
        == "stopped. Nothing is lost: `rackready install --env prod --limit node01` continues where it stopped."
    )
    assert (
        words("deploy", "--limit", "node01")
        == "stopped. Nothing is lost: `rackready deploy --env prod --limit node01` continues where it stopped."
    )


def test_a_dry_run_that_is_stopped_points_to_no_real_one() -> None:
    assert (
        words("deploy", "--check", check=True)
        == "stopped. It was a dry run: nothing was changed. `rackready deploy --env prod --check` looks again."
    )


def test_failed_node_is_quarantined_and_the_others_go_on(tmp_path: Path) -> None:
    code, text = run(tmp_path, "fail:validate:node02")
    assert code == 1
    assert "ROW node02 quarantined validate fail node02 gpu2: broken - Expected: 18 Actual: 17. Replace it." in text
    assert "ROW node01 ready handover pass" in text
    assert "optimize node01" in " ".join(did(tmp_path))


def test_error_keeps_the_state_and_is_not_a_pass(tmp_path: Path) -> None:
    code, text = run(tmp_path, "error:install:node03")
    assert code == 1
    assert "ROW node03 provisioned install error" in text


def test_node_without_a_result_is_an_error(tmp_path: Path) -> None:
    code, text = run(tmp_path, "silent:validate:node01")
    assert code == 1
    assert (
        "ROW node01 connected validate error validate: no result - Expected: one for every node Actual: none." in text
    )


def test_defect_of_ours_is_an_error_with_its_log(tmp_path: Path) -> None:
    code, text = run(tmp_path, "defect:fabric")
    assert code == 1
    assert "fabric: defect in rackready - Expected: a result Actual: ZeroDivisionError" in text
    (log,) = (tmp_path / ".rackready/x/logs").rglob("rackready.log")
    assert "\n  ZeroDivisionError\n" in log.read_text(encoding="utf-8")


def test_second_controller_is_refused(tmp_path: Path) -> None:
    first = start(tmp_path, "hang:provision")
    until(lambda: began(tmp_path, "provision"))
    code, text = run(tmp_path, "run")
    first.kill()
    first.wait()
    assert code != 0
    assert "another controller works on this site" in text
    assert did(tmp_path) == ["provision node01,node02,node03"]


def test_summary_of_nothing_is_no_success(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "s.sqlite")
    assert exit_code([]) == 1
    rows = summarise(ledger, ["node01"], {})
    assert rows[0].outcome == "not_run"
    assert rows[0].state == NodeState.DECLARED.value
    assert exit_code(rows) == 1


def test_the_plan_of_a_dry_run_is_in_the_document_and_only_there(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "s.sqlite")
    result = {"outcome": "pass", "message": "m", "changed": False, "phase": "validate"}
    rows = summarise(
        ledger, ["node01", "node02"], {"node01": result | {"plan": {"validate": {"step": "look"}}}, "node02": result}
    )
    shown = document("c1", rows, seconds=1.0, resumed=False)["nodes"]
    assert (shown[0]["plan"], "plan" in shown[1]) == ({"validate": {"step": "look"}}, False)


def test_what_the_last_phase_found_is_in_the_document_with_its_code(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "s.sqlite")
    result = {"outcome": "fail", "message": "m", "changed": False, "phase": "fabric", "findings": [{"code": "c"}]}
    (shown,) = document("c1", summarise(ledger, ["node01"], {"node01": result}), seconds=1.0, resumed=False)["nodes"]
    assert shown["findings"] == [{"code": "c"}]


def test_a_node_drained_by_an_earlier_wave_that_the_campaign_never_came_to_is_said(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "s.sqlite")
    ledger.set_state("node02", NodeState.CERTIFIED, "drained: fabric is about to change: its ports on leaf01")
    rows = summarise(ledger, ["node01", "node02"], {})
    assert [row.reason for row in rows] == [
        "the campaign did not reach this node",
        "the campaign did not reach this node; drained: fabric is about to change: its ports on leaf01",
    ]


def test_change_that_was_cut_off_counts_as_a_change(tmp_path: Path) -> None:
    """Evidence from before a touch whose end nobody knows is about another node."""
    run(tmp_path, "die:optimize")
    ledger = Ledger.open(tmp_path / ".rackready/x/state.sqlite")
    cut_off = {
        name: ledger.last_change(name).at
        for name in ("node01", "node02", "node03")
        if (last := ledger.latest(name, CHANGE)) and last.status == "intent"
    }
    assert cut_off, "batches run side by side: whichever came to the phase first"
    run(tmp_path, "run")
    assert all(ledger.last_change(name).at > before > 0 for name, before in cut_off.items())
    assert [entry for entry in ledger.entries() if entry.status == "intent"] == []


def test_unchanged_phase_leaves_evidence_valid(tmp_path: Path) -> None:
    run(tmp_path, "run")
    ledger = Ledger.open(tmp_path / ".rackready/x/state.sqlite")
    last = [entry for entry in ledger.entries("node01") if entry.operation == "changed" and entry.status == "done"]
    assert [entry.desired for entry in last] == ["install"], "only install says that it changed something"


@pytest.mark.parametrize(
    ("mode", "state"),
    [
        ("error:install:node03", "provisioned"),
        ("error:provision:node03", "declared"),
        ("fail:handover:node03", "certified"),
    ],
)
def test_ready_node_that_goes_wrong_is_not_ready_any_more(tmp_path: Path, mode: str, state: str) -> None:
    run(tmp_path, "run")
    code, text = run(tmp_path, mode)
    assert code == 1
    assert f"ROW node03 {state} " in text


def test_ready_node_that_its_jobs_keep_is_not_on_offer_and_its_evidence_stands(tmp_path: Path) -> None:
    run(tmp_path, "run")
    code, text = run(tmp_path, "untouched:provision:node03")
    assert code == 1
    assert "ROW node03 certified provision error node03: jobs run on it" in text
    assert "could not be drained in the scheduler" not in text, "it is drained already: its reason stays"
    ledger = Ledger.open(tmp_path / ".rackready/x/state.sqlite")
    last = [entry for entry in ledger.entries("node03") if entry.operation == "changed"][-1]
    assert (last.desired, last.status) == ("provision", "failed"), "nothing was done to it"


def test_ready_node_that_is_changed_is_back_where_the_change_leaves_it(tmp_path: Path) -> None:
    run(tmp_path, "run")
    code, text = run(tmp_path, "die:fabric")
    assert code == -signal.SIGKILL, text
    states = {row.name: row.state for row in Ledger.open(tmp_path / ".rackready/x/state.sqlite").states()}
    assert set(states.values()) == {NodeState.INSTALLED}, "what came after the install is to be proven anew"

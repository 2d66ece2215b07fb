"""The check of nodes in Slurm's files: written beside what others wrote, and only when every node has the program."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from rackready.drivers.remote import Answer
from rackready.drivers.scheduler.base import SchedulerError
from rackready.handover import run, slurm_apply
from rackready.handover import slurm_checks as on_nodes
from rackready.handover.slurm_apply import candidate, waits
from rackready.handover.slurm_checks import check_vars, lacking
from rackready.ledger.store import Ledger
from rackready.model.evidence import Fingerprint
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.slurm_files import SlurmChecks
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from rackready.render import slurm_files as render
from tests.unit.handover.test_slurm_apply import PARTS, THEIRS, WHERE, FakeController, cluster, site_with

PROGRAM = "/usr/local/lib/rackready/slurm-check"
LINES = [
    f"Prolog={PROGRAM}",
    f"Epilog={PROGRAM}",
    f"HealthCheckProgram={PROGRAM}",
    "PrologFlags=Alloc",
    "SchedulerParameters=nohold_on_prolog_fail",
    "PrologEpilogTimeout=60",
    "HealthCheckInterval=300",
    "HealthCheckNodeState=IDLE,CYCLE",
]
CHECKS: dict[str, Any] = {"checks": {}}


def settings(files: Any) -> list[str]:  # noqa: ANN401 - of a Candidate
    return str(files["rackready_nodes.conf"]).splitlines()[1:]


def test_slurm_runs_the_check_around_jobs_and_on_idle_nodes(tmp_path: Path) -> None:
    found = candidate(site_with(tmp_path, CHECKS), cluster(), WHERE, {"node01": PARTS})
    assert settings(found.files)[:9] == ["GresTypes=gpu", *LINES]


def test_without_checks_nothing_of_them_is_written(tmp_path: Path) -> None:
    found = candidate(site_with(tmp_path), cluster(), WHERE, {"node01": PARTS})
    assert not set(settings(found.files)) & set(LINES)


@pytest.mark.parametrize(
    ("checks", "wanted"),
    [
        ({"at": ["health"], "interval_s": 120}, ["HealthCheckInterval=120"]),
        ({"at": ["epilog"], "limit_s": 50}, [f"Epilog={PROGRAM}", "PrologEpilogTimeout=80"]),
    ],
)
def test_only_what_the_site_wants_is_written(tmp_path: Path, checks: dict[str, Any], wanted: list[str]) -> None:
    found = settings(candidate(site_with(tmp_path, {"checks": checks}), cluster(), WHERE, {"node01": PARTS}).files)
    assert set(wanted) <= set(found)
    assert not [line for line in found if line.startswith("Prolog=")]
    assert "SchedulerParameters=nohold_on_prolog_fail" not in found


@pytest.mark.parametrize(
    ("theirs", "gone"),
    [
        ("PrologFlags=X11", "PrologFlags=Alloc"),
        ("SchedulerParameters=bf_window=10,nohold_on_prolog_fail", "SchedulerParameters=nohold_on_prolog_fail"),
        ("HealthCheckInterval=60", "HealthCheckInterval=300"),
        ("PrologSlurmctld=/etc/slurm/ctl.sh", "PrologEpilogTimeout=60"),
        (f"Prolog={PROGRAM}", f"Prolog={PROGRAM}"),
    ],
)
def test_a_setting_of_others_stays(tmp_path: Path, theirs: str, gone: str) -> None:
    now = cluster({"slurm.conf": f"{THEIRS}{theirs}\n"})
    found = settings(candidate(site_with(tmp_path, CHECKS), now, WHERE, {"node01": PARTS}).files)
    assert gone not in found
    assert len(set(LINES) & set(found)) == len(LINES) - 1


CUT = (
    WHERE
    + " slurm.conf: {} - Expected: at least 30 s (handover.files.checks.limit_s) Actual: {} s. Raise it, or lower "
    "handover.files.checks.limit_s: Slurm drains a node whose prolog or epilog it cut off."
)


@pytest.mark.parametrize(
    ("theirs", "text"),
    [
        (
            "Prolog=/etc/slurm/prolog.sh",
            (
                f"{WHERE} slurm.conf: Prolog - Expected: {PROGRAM}, or not set Actual: /etc/slurm/prolog.sh. Let that "
                f"program call {PROGRAM} and take prolog out of handover.files.checks.at, or remove the line."
            ),
        ),
        (
            'Epilog = "/etc/slurm/epi log.sh"',
            (
                f"{WHERE} slurm.conf: Epilog - Expected: {PROGRAM}, or not set Actual: /etc/slurm/epi log.sh. Let that "
                f"program call {PROGRAM} and take epilog out of handover.files.checks.at, or remove the line."
            ),
        ),
        (
            "HealthCheckProgram=/usr/sbin/nhc",
            (
                f"{WHERE} slurm.conf: HealthCheckProgram - Expected: {PROGRAM}, or not set Actual: /usr/sbin/nhc. Let "
                f"that "
                f"program call {PROGRAM} and take health out of handover.files.checks.at, or remove the line."
            ),
        ),
        (
            "SchedulerParameters=bf_window=10",
            (
                f"{WHERE} slurm.conf: SchedulerParameters - Expected: nohold_on_prolog_fail among them Actual: "
                "bf_window=10. Add it: else Slurm holds a job whose prolog found a fault."
            ),
        ),
        (
            "HealthCheckInterval=0",
            (
                f"{WHERE} slurm.conf: HealthCheckInterval - Expected: not 0, which turns the health check off Actual: "
                f"0. "
                "Remove the line, or take health out of handover.files.checks.at."
            ),
        ),
        (
            "PrologFlags=contain,RunInJob",
            (
                f"{WHERE} slurm.conf: PrologFlags - Expected: without RunInJob Actual: contain,RunInJob. Remove it, or "
                "take prolog and epilog out of handover.files.checks.at: with it they run inside the job, where "
                "ConstrainDevices hides GPUs that are not the job's."
            ),
        ),
        (
            "PrologFlags=Serial,DeferBatch",
            (
                f"{WHERE} slurm.conf: PrologFlags - Expected: Alloc among them Actual: Serial,DeferBatch. Add it: else "
                "Slurm checks a node only when the job's first step starts there."
            ),
        ),
        ("PrologEpilogTimeout = 29", CUT.format("PrologEpilogTimeout", 29)),
        ("PrologEpilogTimeout=300\nEpilogTimeout=5\nPrologTimeout=30", CUT.format("EpilogTimeout", 5)),
        (
            "NodeName=cpu[1-3] CPUs=4",
            (
                f"{WHERE} slurm.conf: NodeName of cpu[1-3] - Expected: only nodes that rackready hands over: Slurm "
                f"runs "
                f"prolog and epilog on every node Actual: defined by somebody else. Put {PROGRAM} and its file "
                "/etc/rackready/slurm-check.json on them and set handover.files.checks.others, or take prolog and "
                "epilog "
                "out of handover.files.checks.at."
            ),
        ),
    ],
)
def test_what_cannot_run_beside_others_is_refused(tmp_path: Path, theirs: str, text: str) -> None:
    now = cluster({"slurm.conf": f"{THEIRS}{theirs}\n"})
    with pytest.raises(SchedulerError) as caught:
        candidate(site_with(tmp_path, CHECKS), now, WHERE, {"node01": PARTS})
    assert str(caught.value) == text
    assert candidate(site_with(tmp_path), now, WHERE, {"node01": PARTS}).files


@pytest.mark.parametrize(
    ("theirs", "checks"),
    [
        ("PrologFlags=RunInJob", {"at": ["health"]}),
        ("PrologFlags=Serial", {"at": ["epilog"]}),
        *[(f"PrologFlags=Serial,{flag}", {}) for flag in ("ALLOC", "Contain", "X11", "NoHold", "ForceRequeueOnFail")],
        ("PrologEpilogTimeout=30", {}),
        ("PrologEpilogTimeout=INFINITE", {}),
        ("PrologEpilogTimeout=5", {"at": ["health"]}),
        ("PrologEpilogTimeout=5\nPrologTimeout=60", {"at": ["prolog"]}),
        ("EpilogTimeout=5", {"at": ["prolog"]}),
    ],
)
def test_flags_and_times_of_others_that_do_not_hinder_are_fine(
    tmp_path: Path, theirs: str, checks: dict[str, Any]
) -> None:
    now = cluster({"slurm.conf": f"{THEIRS}{theirs}\n"})
    assert candidate(site_with(tmp_path, {"checks": checks}), now, WHERE, {"node01": PARTS}).files


@pytest.mark.parametrize("checks", [{"others": True}, {"at": ["health"]}])
def test_nodes_of_others_are_no_obstacle_once_their_owner_is_ready(tmp_path: Path, checks: dict[str, Any]) -> None:
    now = cluster({"slurm.conf": f"{THEIRS}NodeName=cpu[1-3] CPUs=4\n"})
    assert candidate(site_with(tmp_path, {"checks": checks}), now, WHERE, {"node01": PARTS}).files


@pytest.mark.parametrize(
    ("checks", "text"),
    [
        ({"filesystems": ["var"]}, "file system var - Expected: a path from the root, e.g. /var"),
        ({"at": ["prolog", "prolog"]}, "checks at prolog, prolog - Expected: each once"),
        ({"at": []}, "at least 1 item"),
        ({"limit_s": 60}, "less than or equal to 50"),
        ({"limit_s": 5}, "greater than or equal to 15"),
    ],
)
def test_a_wrong_check_is_refused(checks: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match="validation error") as caught:
        SlurmChecks.model_validate(checks)
    assert text in str(caught.value)


# --- nodes in production first ----------------------------------------------------------------------------------------


class Nodes:
    """Nodes, on some of which the program finds nothing."""

    def __init__(self, *good: str) -> None:
        self.good = good
        self.asked: list[str] = []
        self.limits: set[float] = set()

    def run(self, node: str, argv: Sequence[str], *, stdin: str = "", timeout_s: float) -> Answer:
        del stdin
        # An executable file is not enough: the program may fail on every node.
        if argv != [PROGRAM, "--look"]:
            return Answer(0, "", "", 0.1)
        self.asked.append(node)
        self.limits.add(timeout_s)
        return Answer(0 if node in self.good else 1, "", "", 0.1)


def test_a_node_on_which_the_program_does_not_pass_lacks_it() -> None:
    nodes = Nodes("node01")
    assert lacking(nodes, ["node01", "node02"], ["node01", "node02"], SlurmChecks(limit_s=50)) == ("node02",)
    assert sorted(nodes.asked) == ["node01", "node02"]
    assert nodes.limits == {80}


def test_a_node_out_of_the_site_lacks_it_unless_its_owner_answers_for_it() -> None:
    nodes = Nodes("node01")
    assert lacking(nodes, ["node01", "old01"], ["node01"]) == ("old01",)
    assert lacking(nodes, ["node01", "old01"], ["node01"], SlurmChecks(others=True)) == ()
    assert set(nodes.asked) == {"node01"}


WAITS = (
    "Slurm's checks - Expected: `slurm-check --look` finds nothing on every node in production Actual: not so on {}. "
    "Slurm runs it nowhere yet, since it would drain such a node."
)


def test_slurm_runs_the_check_nowhere_while_a_node_in_production_lacks_it(tmp_path: Path) -> None:
    before = candidate(site_with(tmp_path), cluster(), WHERE, {"node01": PARTS})
    now = cluster(dict(before.settled), known=frozenset({"node01"}))
    site = site_with(tmp_path, CHECKS)
    assert slurm_apply._lacking(site, Nodes("node01"), now) == ()  # type: ignore[arg-type]
    assert slurm_apply._lacking(site, Nodes(), now) == ("node01",)  # type: ignore[arg-type]
    held = candidate(site, now, WHERE, {"node01": PARTS}, ("node01",))
    assert held.files == {}
    assert waits(held) == (
        WAITS.format("node01") + " Run `rackready handover` for node01, or `rackready retire` for one that is gone."
    )
    found = candidate(site, now, WHERE, {"node01": PARTS})
    assert set(LINES) <= set(settings(found.files))
    assert (found.reload, waits(found)) == ("reconfigure", "")


def test_a_node_that_is_out_of_service_does_not_keep_the_check_off(tmp_path: Path) -> None:
    # It is drained, and gets the program when it is handed over again.
    before = candidate(site_with(tmp_path), cluster(), WHERE, {"node01": PARTS, "node02": PARTS, "node03": PARTS})
    now = cluster(dict(before.settled), known=frozenset({"node01", "node02", "node03"}))
    site, paths = site_with(tmp_path, CHECKS), EnvPaths(tmp_path, "one")
    assert on_nodes.out_of_service(paths) == frozenset()
    with Ledger.open(paths.database) as ledger:
        ledger.set_state("node01", NodeState.READY)
        ledger.set_state("node02", NodeState.QUARANTINED)
        ledger.set_state("node03", NodeState.RETIRED)
    nodes, out = Nodes("node01"), on_nodes.out_of_service(paths)
    assert slurm_apply._lacking(site, nodes, now, out) == ()  # type: ignore[arg-type]
    assert nodes.asked == ["node01"]


def test_handover_asks_no_node_that_is_out_of_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = candidate(site_with(tmp_path), cluster(), WHERE, {"node01": PARTS, "node02": PARTS})
    paths, nodes = EnvPaths(tmp_path, "one"), Nodes("node01")
    with Ledger.open(paths.database) as ledger:
        ledger.set_state("node02", NodeState.QUARANTINED)
    made = FakeController(cluster(dict(before.settled), known=frozenset({"node01", "node02"})))
    monkeypatch.setattr(slurm_apply, "controller", lambda *_: nullcontext((made, nodes)))
    monkeypatch.setattr(slurm_apply, "read_parts", lambda *_: {"node01": PARTS})
    found = slurm_apply.bring(site_with(tmp_path, CHECKS), paths, ["node01"], check=True)
    assert found["node01"].data == {}
    assert found["node01"].message == "Slurm's files: would change: rackready_nodes.conf"
    assert nodes.asked == ["node01"]


def test_of_a_node_that_left_the_site_it_says_what_to_do(tmp_path: Path) -> None:
    line = "NodeName=old01 NodeAddr=192.0.2.9 Sockets=2\n"
    files = {"rackready_nodes.conf": f"{render.HEAD}\n{line}"}
    now = cluster(files, known=frozenset({"old01"}))
    site = site_with(tmp_path, CHECKS)
    assert slurm_apply._lacking(site, Nodes("old01"), now) == ("old01",)  # type: ignore[arg-type]
    held = candidate(site, now, WHERE, {}, ("node01", "old01"))
    assert waits(held) == (
        WAITS.format("node01,old01")
        + " Run `rackready handover` for node01, or `rackready retire` for one that is gone. The site does not name "
        "old01: delete the line in Slurm's files, or set handover.files.checks.others."
    )
    others = site_with(tmp_path, {"checks": {"others": True}})
    assert slurm_apply._lacking(others, Nodes(), now) == ()  # type: ignore[arg-type]


def test_once_slurm_runs_it_no_node_is_asked_again(tmp_path: Path) -> None:
    site = site_with(tmp_path, CHECKS)
    now = cluster(dict(candidate(site, cluster(), WHERE, {"node01": PARTS}).settled), known=frozenset({"node01"}))
    nodes = Nodes()
    assert slurm_apply._lacking(site, nodes, now) == ()  # type: ignore[arg-type]
    assert nodes.asked == []
    assert candidate(site, now, WHERE, {}).files == {}


def fingerprint(node: str) -> Fingerprint:
    return Fingerprint(
        node=node, chassis_serial="c", gpus=["1"], nics=[], driver="580.1", vbios=[], nic_firmware=[], kernel="6.1",
        desired_digest="d",
    )  # fmt: skip


def test_the_role_gets_the_program_and_what_each_node_must_have(tmp_path: Path) -> None:
    paths = EnvPaths(tmp_path, "one")
    found = check_vars(site_with(tmp_path, {"checks": {"limit_s": 20}}), paths, {"node01": fingerprint("node01")})
    assert Path(found["slurm_node_check_program"]).read_text().startswith("#!/usr/bin/python3 -I\n")
    expected = found["slurm_node_check_expected"]
    assert list(expected) == ["node01"]
    assert (expected["node01"]["gpus"], expected["node01"]["limit_s"]) == (["1"], 20)
    assert check_vars(site_with(tmp_path), paths, {"node01": fingerprint("node01")}) == {}


def test_where_nodes_lack_it_the_files_come_again_after_the_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site_with(tmp_path, CHECKS)
    ctx = PhaseContext("one", tmp_path, "c", check=False)
    order: list[str] = []

    def bring(_site: object, _paths: object, nodes: list[str], *, check: bool) -> dict[str, NodeResult]:
        del check
        order.append(f"files {','.join(nodes)}")
        first = len(order) == 1
        data = {"lacking": ["node01"]} if first else {}
        words = "waits" if first else "changed"
        return {node: NodeResult(Outcome.PASS, words, changed=not first, data=data) for node in nodes}

    def play(_ctx: object, _book: str, nodes: list[str], more: dict[str, Any]) -> dict[str, NodeResult]:
        order.append(f"role {','.join(nodes)}")
        assert set(more["slurm_node_check_expected"]) == set(nodes)
        bad = NodeResult(Outcome.FAIL, "no")
        return {node: bad if node == "node02" else NodeResult(Outcome.PASS) for node in nodes}

    monkeypatch.setattr(slurm_apply, "bring", bring)
    monkeypatch.setattr(slurm_apply, "controller_vars", lambda *_: {})
    monkeypatch.setattr(run, "run_playbook", play)
    monkeypatch.setattr(run, "_cluster_vars", lambda *_: {"slurm_node_releases": ["22.05"]})
    found = run._join(ctx, site, {node: fingerprint(node) for node in ("node01", "node02")})
    assert order == ["files node01,node02", "role node01,node02", "files node01"]
    assert found["node01"].data["changes"] == ["changed", "waits"]
    assert found["node02"].outcome is Outcome.FAIL


def test_the_head_of_our_file_says_who_replaces_it() -> None:
    assert render.HEAD.startswith("# Written by rackready")

"""The Slurm adapter against what a real slurmctld 22.05.8 printed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rackready.drivers.scheduler.base import Job, JobsUnknownError, NotOursError, SchedulerError, UnknownNodeError
from rackready.drivers.scheduler.slurm import SlurmAdapter
from rackready.drivers.scheduler.slurm_text import expand_hosts, parse_jobs, parse_node

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures/captured/slurm"


def recorded(name: str) -> str:
    return (FIXTURES / f"22.05.8_scontrol_show_node_{name}.txt").read_text(encoding="utf-8")


@dataclass
class Controller:
    """Answers `show` with a recorded text, and moves to the next one when the node is updated."""

    now: str
    then: str = ""
    refuses: str = ""
    sent: list[str] = field(default_factory=list)
    reason: str = ""
    """Reason and author in place of the recorded ones, e.g. hung [root@2026-11-21T11:35:38]."""
    slurm_user: str = "slurm(64030)"

    def run(self, command: str) -> tuple[int, str, str]:
        if command.startswith("scontrol show node"):
            text = recorded(self.now)
            return 0, re.sub(r"Reason=.*", f"Reason={self.reason}", text) if self.reason else text, ""
        if command == "scontrol show config":
            return 0, f"SlurmUser               = {self.slurm_user}\n" if self.slurm_user else "", ""
        self.sent.append(command)
        if self.refuses:
            return 1, "", self.refuses
        self.now = self.then or self.now
        return 0, "", ""


def adapter(controller: Controller) -> SlurmAdapter:
    return SlurmAdapter(controller.run, "10.0.0.5:22", patience_s=0)


@pytest.mark.parametrize(
    ("name", "state", "usable", "drained", "reason", "by"),
    [
        ("initial", "UNKNOWN+DRAIN", False, True, "rackready: not handed over yet", ""),
        ("registered", "IDLE+DRAIN", False, True, "rackready: not handed over yet", ""),
        ("resumed", "IDLE", True, False, "", ""),
        ("mixed", "MIXED", True, False, "", ""),
        (
            "drained_ours",
            "IDLE+DRAIN",
            False,
            True,
            "rackready: node01 gpu2: NVLink down - Expected: 18 links Actual: 17",
            "root",
        ),
        ("drained_theirs", "IDLE+DRAIN+NOT_RESPONDING", False, True, "bad PSU [ticket 4711], maria", "root"),
        ("draining", "MIXED+DRAIN", False, True, "rackready: x", "root"),
        ("down_theirs", "DOWN", False, False, "hung", "root"),
        ("resumed_dead", "IDLE+NOT_RESPONDING", False, False, "", ""),
        ("not_responding", "DOWN+NOT_RESPONDING", False, False, "Not responding", "slurm"),
    ],
)
def test_recorded_states(name: str, state: str, *, usable: bool, drained: bool, reason: str, by: str) -> None:
    node = parse_node(recorded(name))
    assert (node.name, node.state, node.usable, node.drained, node.reason, node.by) == (
        "node01",
        state,
        usable,
        drained,
        reason,
        by,
    )


@pytest.mark.parametrize("text", ["", "slurm_load_node error: Unable to contact slurm controller", "NodeName=node01"])
def test_what_is_no_node_is_refused(text: str) -> None:
    with pytest.raises(SchedulerError, match=r"`scontrol show node` - Expected: NodeName=\.\.\. State=\.\.\. Actual: "):
        parse_node(text)


def test_release_resumes_what_we_drained() -> None:
    controller = Controller("drained_ours", "resumed")
    assert adapter(controller).release("node01")
    assert controller.sent == ["scontrol update NodeName=node01 State=RESUME"]


def test_release_of_a_usable_node_changes_nothing() -> None:
    controller = Controller("mixed")
    assert not adapter(controller).release("node01")
    assert controller.sent == []


@pytest.mark.parametrize(
    ("name", "who", "reason"),
    [("drained_theirs", "root", "bad PSU [ticket 4711], maria"), ("down_theirs", "root", "hung")],
)
def test_release_never_undoes_somebody_else(name: str, who: str, reason: str) -> None:
    controller = Controller(name)
    with pytest.raises(NotOursError) as caught:
        adapter(controller).release("node01")
    assert str(caught.value) == (
        f"node01: drained in Slurm by {who} - Expected: a reason that begins with 'rackready:' Actual: {reason!r}. "
        "rackready never undoes somebody else's drain: when it is settled, `scontrol update NodeName=node01 "
        "State=RESUME`."
    )
    assert controller.sent == []


@pytest.mark.parametrize(
    "text",
    [
        *("Not responding", "Node unexpectedly rebooted", "ResumeTimeout reached"),
        "Node unexpectedly rebooted : Not responding",
    ],
)
@pytest.mark.parametrize(
    ("by", "slurm_user"),
    [("slurm", "slurm(64030)"), ("svc_slurm", "svc_slurm(901)"), ("901", "svc_slurm(901)"), ("root", "root(0)")],
)
def test_release_brings_back_what_slurmctld_itself_set_down(text: str, by: str, slurm_user: str) -> None:
    controller = Controller("not_responding", "resumed", reason=f"{text} [{by}@2026-11-21T11:38:21]")
    controller.slurm_user = slurm_user
    assert adapter(controller).release("node01")


@pytest.mark.parametrize(
    ("name", "reason", "by", "slurm_user"),
    [
        ("down_theirs", "hung", "root", "root(0)"),
        ("down_theirs", "hung", "slurm", "slurm(64030)"),
        ("not_responding", "bad PSU : Not responding", "slurm", "slurm(64030)"),
        ("down_theirs", "Not responding", "maria", "slurm(64030)"),
        ("down_theirs", "Not responding", "slurm", "svc_slurm(901)"),
        ("drained_theirs", "Not responding", "slurm", "slurm(64030)"),
    ],
)
def test_neither_the_author_nor_the_text_alone_is_slurmctlds(name: str, reason: str, by: str, slurm_user: str) -> None:
    controller = Controller(name, "resumed", reason=f"{reason} [{by}@2026-11-21T11:38:21]", slurm_user=slurm_user)
    with pytest.raises(NotOursError, match=f"node01: drained in Slurm by {by} - "):
        adapter(controller).release("node01")
    assert controller.sent == []


REGISTERED = (
    "gres/gpu count reported lower than configured (7 < 8), Low RealMemory (reported:1 < 100.00% of configured:2)"
)


@pytest.mark.parametrize(
    "text",
    [
        *("Low socket*core*thread count", "Low CPUs", "Low TmpDisk", "Low CPUs, Low TmpDisk", REGISTERED),
        f"Not responding : {REGISTERED}",
    ],
)
def test_release_brings_back_what_slurmctld_drained_for_a_registration_that_is_right_now(text: str) -> None:
    """It writes its reason over ours, too (src/slurmctld/node_mgr.c, validate_node_specs)."""
    controller = Controller("drained_ours", "resumed", reason=f"{text} [slurm@2026-11-21T11:38:21]")
    assert adapter(controller).release("node01", drained_by_us=True)


def test_a_drain_whose_reason_slurmctld_replaced_may_be_a_persons() -> None:
    controller = Controller("drained_ours", "resumed", reason="Low RealMemory [slurm@2026-11-21T11:38:21]")
    with pytest.raises(NotOursError) as caught:
        adapter(controller).release("node01")
    assert str(caught.value) == (
        "node01: drained in Slurm by slurm - Expected: a reason that begins with 'rackready:' "
        "Actual: 'Low RealMemory'. slurmctld writes this over any reason, and no drain of rackready's is on record: "
        "if nobody holds it back, `scontrol update NodeName=node01 State=RESUME`."
    )
    assert controller.sent == []


@pytest.mark.parametrize(
    ("text", "by", "state"),
    [
        ("Low CPUs", "root", "IDLE+DRAIN"),
        ("Low CPUs", "slurm", "IDLE+DRAIN+INVALID_REG"),
        ("Low CPUs, ask Ann", "slurm", "IDLE+DRAIN"),
        ("bad PSU : Low CPUs", "slurm", "IDLE+DRAIN"),
        ("Prolog error", "slurm", "IDLE+DRAIN"),
    ],
)
def test_another_drain_of_slurmctld_stays(text: str, by: str, state: str) -> None:
    controller = Controller("drained_ours", "resumed", reason=f"{text} [{by}@2026-11-21T11:38:21]")

    def run(command: str) -> tuple[int, str, str]:
        code, out, err = controller.run(command)
        return code, re.sub(r"State=\S+", f"State={state}", out), err

    with pytest.raises(NotOursError, match=f"node01: drained in Slurm by {by} - "):
        SlurmAdapter(run, "here", patience_s=0).release("node01", drained_by_us=True)
    assert controller.sent == []


def test_a_config_without_slurmuser_resumes_nothing() -> None:
    controller = Controller("not_responding", slurm_user="")
    with pytest.raises(SchedulerError) as caught:
        adapter(controller).release("node01")
    assert str(caught.value) == (
        "10.0.0.5:22: `scontrol show config` - Expected: SlurmUser = slurm(64030) Actual: nothing. "
        "Check that slurmctld runs there."
    )
    assert controller.sent == []


def test_release_that_does_not_come_up_is_said() -> None:
    controller = Controller("registered", "not_responding")
    with pytest.raises(SchedulerError) as caught:
        adapter(controller).release("node01")
    assert str(caught.value) == (
        "node01: resumed in Slurm - Expected: IDLE within 0 s Actual: DOWN+NOT_RESPONDING, Not responding. "
        "Look at slurmd on the node: `journalctl -u slurmd`."
    )


def test_drain_carries_our_prefix_on_one_line() -> None:
    controller = Controller("resumed", "drained_ours")
    assert adapter(controller).drain("node01", "gpu2: NVLink\ndown; rm -rf /")
    assert controller.sent == [
        "scontrol update NodeName=node01 State=DRAIN Reason='rackready: gpu2: NVLink down; rm -rf /'"
    ]


def test_drain_repeated_changes_nothing() -> None:
    controller = Controller("draining")
    assert not adapter(controller).drain("node01", "x")
    assert controller.sent == []


def test_drain_leaves_somebody_elses_reason() -> None:
    controller = Controller("drained_theirs")
    assert not adapter(controller).drain("node01", "gate failed")
    assert controller.sent == []


def test_an_unknown_node_is_named() -> None:
    unknown = SlurmAdapter(lambda _command: (1, "Node node09 not found\n", ""), "10.0.0.5:22")
    with pytest.raises(UnknownNodeError) as caught:
        unknown.show("node09")
    assert str(caught.value) == (
        "node09: unknown to Slurm on 10.0.0.5:22 - Expected: a NodeName line for it in slurm.conf "
        "Actual: Node node09 not found. Add it, then run again."
    )


def test_a_controller_that_is_down_is_not_taken_for_an_unknown_node() -> None:
    words = (FIXTURES / "22.05.8_scontrol_no_controller.txt").read_text(encoding="utf-8")
    down = SlurmAdapter(lambda _command: (1, "", words), "10.0.0.5:22")
    with pytest.raises(SchedulerError) as caught:
        down.show("node01")
    assert not isinstance(caught.value, UnknownNodeError)
    assert str(caught.value) == (
        "node01: `scontrol show node` on 10.0.0.5:22 - Expected: the node's state "
        "Actual: slurm_load_node error: Unable to contact slurm controller (connect failure). "
        "Check that slurmctld runs there."
    )


def test_a_controller_without_scontrol_is_not_taken_for_an_unknown_node() -> None:
    bare = SlurmAdapter(lambda _command: (127, "", "bash: line 1: scontrol: command not found\n"), "10.0.0.5:22")
    with pytest.raises(SchedulerError) as caught:
        bare.show("node01")
    assert not isinstance(caught.value, UnknownNodeError)
    assert str(caught.value) == (
        "node01: `scontrol show node` on 10.0.0.5:22 - Expected: the node's state "
        "Actual: bash: line 1: scontrol: command not found. Check that slurmctld runs there."
    )


def test_a_node_that_came_back_by_itself_is_as_good() -> None:
    texts = iter([recorded("registered"), recorded("resumed")])

    def run(command: str) -> tuple[int, str, str]:
        return (
            (0, next(texts), "") if "show" in command else (1, "", "slurm_update error: Invalid node state specified")
        )

    assert not SlurmAdapter(run, "10.0.0.5:22", patience_s=0).release("node01")


def test_a_refused_update_says_why() -> None:
    controller = Controller("registered", refuses="slurm_update error: Invalid user id\n")
    with pytest.raises(
        SchedulerError,
        match=r"`scontrol update State=RESUME` on 10.0.0.5:22 - Expected: accepted "
        r"Actual: slurm_update error: Invalid user id\.",
    ):
        adapter(controller).release("node01")


def test_jobs_of_a_node_are_those_that_have_started() -> None:
    asked: list[str] = []

    def run(command: str) -> tuple[int, str, str]:
        asked.append(command)
        return 0, (FIXTURES / "22.05.8_squeue_jobs.txt").read_text(encoding="utf-8"), ""

    assert SlurmAdapter(run, "10.0.0.5:22").jobs("node01") == [Job("1", "root", "gpu", "train")]
    assert asked == ["squeue --all --noheader --nodelist=node01 --format='%i|%u|%P|%T|%j'"]


def says(squeue: str, node: str) -> SlurmAdapter:
    return SlurmAdapter(lambda command: (0, squeue if command.startswith("squeue") else node, ""), "10.0.0.5:22")


@pytest.mark.parametrize("state", ["MIXED+DRAIN", "ALLOCATED+DRAIN", "IDLE+COMPLETING+DRAIN", "MIXED"])
def test_a_node_whose_jobs_squeue_does_not_show_is_not_taken_for_empty(state: str) -> None:
    node = recorded("draining").replace("State=MIXED+DRAIN", f"State={state}")
    assert f"State={state} " in node
    with pytest.raises(JobsUnknownError) as caught:
        says("", node).jobs("node01")
    assert str(caught.value) == (
        "node01: jobs on 10.0.0.5:22 - Expected: squeue and scontrol agree "
        f"Actual: squeue shows no job, scontrol reports {state}. "
        "Run again when no job starts or ends; if it stays so, let the user of handover see all jobs "
        "(PrivateData in slurm.conf)."
    )


@pytest.mark.parametrize("name", ["drained_ours", "registered", "resumed", "not_responding", "initial"])
def test_a_node_that_both_call_empty_is_empty(name: str) -> None:
    assert says("8|root|gpu|PENDING|next\n", recorded(name)).jobs("node01") == []


def test_tasks_of_an_array_and_jobs_that_are_ending_hold_the_node_too() -> None:
    text = "12_10|ann|gpu|RUNNING|sweep|lr=0.1\n12_9|ann|gpu|COMPLETING|sweep|lr=0.1\n7|root|gpu|SUSPENDED|train\n"
    assert [(job.id, job.name) for job in parse_jobs(text)] == [
        ("7", "train"),
        ("12_9", "sweep|lr=0.1"),
        ("12_10", "sweep|lr=0.1"),
    ]


def test_a_node_without_jobs_has_none() -> None:
    assert parse_jobs("") == []


@pytest.mark.parametrize("text", ["JOBID PARTITION NAME", "7|root|gpu|RUNNING"])
def test_what_is_no_job_is_refused(text: str) -> None:
    with pytest.raises(SchedulerError) as caught:
        parse_jobs(text)
    assert str(caught.value) == (
        f"`squeue` - Expected: lines of %i|%u|%P|%T|%j Actual: {text!r}. Run it on the controller; "
        "its release may print another format."
    )


def test_jobs_that_cannot_be_asked_for_are_not_taken_for_none() -> None:
    words = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
    with pytest.raises(JobsUnknownError) as caught:
        SlurmAdapter(lambda _command: (1, "", words), "10.0.0.5:22").jobs("node01")
    assert str(caught.value) == (
        "node01: `squeue --nodelist` on 10.0.0.5:22 - Expected: the node's jobs "
        "Actual: slurm_load_jobs error: Unable to contact slurm controller (connect failure). "
        "Check that slurmctld runs there."
    )


def asked_together(
    squeue: str, states: dict[str, str], *, code: int = 0
) -> tuple[dict[str, list[Job] | SchedulerError], list[str]]:
    """Return the answers about node01 to node03 when all are queried at once, and the queries."""
    sent: list[str] = []

    def run(command: str) -> tuple[int, str, str]:
        sent.append(command)
        if command.startswith("squeue"):
            return (
                (code, squeue, "slurm_load_jobs error: Invalid node name")
                if "," in command.split("nodelist=")[1].split(maxsplit=1)[0]
                else (0, "", "")
            )
        names = command.split()[3].split(",")
        rows = [
            recorded("draining")
            .replace("NodeName=node01", f"NodeName={name}")
            .replace("State=MIXED+DRAIN", f"State={states[name]}")
            for name in names
        ]
        return 0, "".join(rows), ""

    return dict(SlurmAdapter(run, "10.0.0.5:22").jobs_of(["node01", "node02", "node03"])), sent


def test_jobs_of_many_nodes_are_asked_for_at_once() -> None:
    text = "node[01-02]|8|root|gpu|RUNNING|train\nnode02|7|ann|gpu|COMPLETING|a|b\n|9|ann|gpu|PENDING|next\n"
    found, sent = asked_together(text, {"node01": "MIXED+DRAIN", "node02": "MIXED+DRAIN", "node03": "IDLE+DRAIN"})
    train = Job("8", "root", "gpu", "train")
    assert found == {"node01": [train], "node02": [Job("7", "ann", "gpu", "a|b"), train], "node03": []}
    assert sent == [
        "squeue --all --noheader --nodelist=node01,node02,node03 --format='%N|%i|%u|%P|%T|%j'",
        "scontrol show node node01,node02,node03 --oneliner",
    ]


def test_of_many_nodes_one_whose_jobs_are_not_shown_is_not_taken_for_empty() -> None:
    found, _ = asked_together(
        "node01|8|root|gpu|RUNNING|train\n",
        {"node01": "MIXED+DRAIN", "node02": "ALLOCATED+DRAIN", "node03": "IDLE+DRAIN"},
    )
    assert isinstance(found["node02"], JobsUnknownError)
    assert "squeue shows no job, scontrol reports ALLOCATED+DRAIN" in str(found["node02"])
    assert (found["node01"], found["node03"]) == ([Job("8", "root", "gpu", "train")], [])


@pytest.mark.parametrize(("text", "code"), [("", 1), ("node[01-|8|root|gpu|RUNNING|train\n", 0), ("no job\n", 0)])
def test_what_is_not_sure_of_many_nodes_is_asked_of_each(text: str, code: int) -> None:
    found, sent = asked_together(text, dict.fromkeys(["node01", "node02", "node03"], "IDLE+DRAIN"), code=code)
    assert found == {"node01": [], "node02": [], "node03": []}
    assert [command.split("nodelist=")[1].split(maxsplit=1)[0] for command in sent if command.startswith("squeue")][
        1:
    ] == ["node01", "node02", "node03"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("node01", ["node01"]),
        ("node[01-03,07],login1", ["login1", "node01", "node02", "node03", "node07"]),
        ("r[1-2]n[08-10]x", ["r1n08x", "r1n09x", "r1n10x", "r2n08x", "r2n09x", "r2n10x"]),
    ],
)
def test_host_lists_are_read_as_slurm_writes_them(text: str, names: list[str]) -> None:
    assert sorted(expand_hosts(text)) == names


@pytest.mark.parametrize("text", ["node[a-b]", "node[1-]", "node[1-99999999]", "node[]", "node[01-02"])
def test_what_is_no_host_list_is_refused(text: str) -> None:
    with pytest.raises(SchedulerError, match=r"`squeue` - Expected: a host list such as node\[01-04\] Actual: 'node\["):
        expand_hosts(text)


def test_what_to_do_about_jobs_that_stay_is_told() -> None:
    jobs = [Job("7", "root", "gpu", "train"), Job("12_3", "ann", "gpu", "sweep")]
    assert adapter(Controller("idle")).how_to_end(jobs) == ("wait and run again, or end them with `scancel 7 12_3`.")


def test_jobs_of_a_node_are_requeued_and_those_that_refuse_are_named() -> None:
    sent: list[str] = []

    def run(command: str) -> tuple[int, str, str]:
        sent.append(command)
        if command.startswith("squeue"):
            return 0, "41|ann|gpu|R|train\n42|bob|gpu|R|shell\n".replace("|R", "|RUNNING"), ""
        refused = "Requested operation is presently disabled for job 42"
        return (1, "", f"{refused}\n") if command.endswith(" 42") else (0, "", "")

    told = SlurmAdapter(run, "10.0.0.5:22").requeue("node01")
    assert sent[1:] == ["scontrol requeue 41", "scontrol requeue 42"]
    assert told == [
        "job 41 (ann, train) requeued",
        "job 42 (bob, shell) not requeued: Requested operation is presently disabled for job 42",
    ]

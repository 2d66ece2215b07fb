"""Results per node from recorded events, and the run around them."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackready.drivers import ansible
from rackready.drivers.ansible import run_playbook
from rackready.drivers.ansible_events import Events, collect
from rackready.drivers.process import ChildResult, Interrupted
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import PhaseContext
from rackready.paths import EnvPaths

ROOT = Path(__file__).resolve().parents[3]
NODES = ["node01", "node02"]


def event(
    kind: str, host: str = "", task: str = "install | Install exact version", role: str = "nvidia_driver", **res: Any
) -> str:
    return json.dumps({"event": kind, "host": host, "task": task, "role": role, "res": res})


def stats(**kinds: dict[str, int]) -> str:
    return json.dumps(
        {
            "event": "playbook_on_stats",
            **{kind: kinds.get(kind, {}) for kind in ("ok", "changed", "failures", "dark", "processed")},
        }
    )


def judge(*lines: str, nodes: list[str] | None = None) -> tuple[Events, list[tuple[str, str, str]]]:
    told: list[tuple[str, str, str]] = []
    events = Events(
        "install", nodes or NODES, "/logs/install.log", lambda node, text, level: told.append((node, text, level))
    )
    return collect(lines, events), told


BOTH = {"node01": 1, "node02": 1}
CHECK = {"expected": "GPUs", "actual": "none", "next_step": "Look."}


def test_unchanged_and_changed_nodes_pass_with_their_counts() -> None:
    events, told = judge(
        event("runner_on_start", "node01"),
        event("runner_on_ok", "node02", changed=True, notes=["waited for process 77, which held dpkg's lock"]),
        stats(ok={"node01": 9, "node02": 8}, changed={"node02": 1}, processed=BOTH),
    )
    one, two = events.result("node01"), events.result("node02")
    assert (one.outcome, one.changed, one.data) == (Outcome.PASS, False, {"changed": 0, "ok": 9})
    assert (two.outcome, two.changed, two.data) == (
        Outcome.PASS,
        True,
        {"changed": 1, "ok": 8, "changes": ["nvidia_driver : install | Install exact version"]},
    )
    assert told == [
        ("node01", "role nvidia_driver", "detail"),
        ("node02", "waited for process 77, which held dpkg's lock", "warn"),
        ("node02", "changed: nvidia_driver : install | Install exact version", "detail"),
    ]


def test_a_dry_run_names_what_would_change() -> None:
    told: list[str] = []
    events = Events("optimize", NODES, "/logs/optimize.log", lambda _node, text, _level: told.append(text), check=True)
    collect(
        [event("runner_on_ok", "node02", changed=True), stats(ok=BOTH, changed={"node02": 1}, processed=BOTH)], events
    )
    assert told == ["would change: nvidia_driver : install | Install exact version"]
    assert events.result("node02").data["changes"] == ["nvidia_driver : install | Install exact version"]
    assert "changes" not in events.result("node01").data


def test_what_differs_is_kept_and_told_where_a_task_says_it() -> None:
    found = ["enp26s0np0 MTU 1500, wanted 9000", "enp60s0np0 MTU 1500, wanted 9000"]
    events, told = judge(
        event("runner_on_ok", "node02", changed=True, differs=found),
        stats(ok=BOTH, changed={"node02": 1}, processed=BOTH),
    )
    assert events.result("node02").data["differs"] == found
    assert told == [
        ("node02", f"changed: nvidia_driver : install | Install exact version ({'; '.join(found)})", "detail")
    ]


def test_typed_differences_are_kept_with_their_role_and_task_and_told_in_words() -> None:
    item = {"kind": "nic", "name": "e1 MTU", "expected": "9000", "actual": "1500"}
    package = {"kind": "package", "name": "libnccl2", "expected": "2 held", "actual": "1"}
    events, told = judge(
        event("runner_on_ok", "node02", changed=True, drift=[item, package]),
        stats(ok=BOTH, changed={"node02": 1}, processed=BOTH),
    )
    data = events.result("node02").data
    where = {"role": "nvidia_driver", "task": "install | Install exact version"}
    assert data["items"] == [item | where, package | where]
    assert data["differs"] == ["e1 MTU 1500, wanted 9000"]
    assert told[-1][1].endswith("(e1 MTU 1500, wanted 9000)")


def test_a_failed_task_that_a_rescue_took_over_is_kept_and_so_are_later_differences() -> None:
    words = "Expected: GPUs Actual: none."
    item = {"kind": "unit", "name": "a.service", "expected": "enabled", "actual": "disabled"}
    events, _ = judge(
        event("runner_on_failed", "node02", msg=words),
        event("runner_on_ok", "node02", role="dcgm", task="service | Start", changed=True, drift=[item]),
        stats(ok=BOTH, changed={"node02": 1}, processed=BOTH),
    )
    data = events.result("node02").data
    task = {"role": "nvidia_driver", "task": "install | Install exact version"}
    assert data["broken"] == [task | {"message": words}]
    assert data["items"] == [item | {"role": "dcgm", "task": "service | Start"}]


def test_failed_task_names_node_phase_task_and_reason() -> None:
    words = "Expected: package lists signed by the mirror's key Actual: EXPKEYSIG 1234 rackready. Renew it."
    events, told = judge(
        event("runner_on_failed", "node02", msg=words, check=CHECK),
        stats(ok=BOTH, failures={"node02": 1}, processed=BOTH),
    )
    assert events.result("node01").outcome is Outcome.PASS
    bad = events.result("node02")
    assert bad.outcome is Outcome.FAIL
    assert bad.message == f'node02: install: task "nvidia_driver : install | Install exact version" failed - {words}'
    assert told[-1] == ("node02", bad.message, "error")


@pytest.mark.parametrize("words", ["Expected: GPUs Actual: none. Look.", "GPUs are wanted, none is there. Look."])
def test_a_check_is_told_from_other_failures_by_its_data_and_not_by_its_words(words: str) -> None:
    events, _ = judge(
        event("runner_on_failed", "node01", msg=words, check=CHECK),
        event("runner_on_failed", "node02", msg=words),
        stats(failures=BOTH, processed=BOTH),
    )
    ours, foreign = events.result("node01"), events.result("node02")
    assert ours.message.endswith(f"failed - {words}")
    assert ours.data["broken"][0]["check"] == CHECK
    assert foreign.message.endswith(
        f"failed - Expected: the task succeeds Actual: {words.rstrip('.')}. See /logs/install.log."
    )
    assert "check" not in foreign.data["broken"][0]


def test_a_check_with_a_loop_keeps_the_values_of_its_first_bad_round() -> None:
    rounds = [
        event("runner_item_on_failed", "node01", msg=f"round {one}", check=CHECK | {"actual": one}) for one in "ab"
    ]
    last = event("runner_on_failed", "node01", msg="One or more items failed")
    events, _ = judge(*rounds, last, stats(failures={"node01": 1}, processed=BOTH))
    result = events.result("node01")
    assert result.message.endswith("failed - round a; round b")
    assert result.data["broken"][0]["check"]["actual"] == "a"


@pytest.mark.parametrize(
    ("res", "actual"),
    [
        (
            {"msg": "non-zero return code", "stderr": "first\nmodprobe: FATAL: Module nvidia not found\n"},
            "modprobe: FATAL: Module nvidia not found",
        ),
        ({"msg": "non-zero return code", "stderr": "", "stdout": "said on stdout\n"}, "said on stdout"),
        ({"msg": "Could not find the unit"}, "Could not find the unit"),
        ({"censored": "the output has been hidden", "msg": "hunter2"}, "the result is kept secret (no_log)"),
        ({}, "no message"),
    ],
)
def test_reason_of_a_task_without_our_words(res: dict[str, Any], actual: str) -> None:
    events, _ = judge(event("runner_on_failed", "node02", **res), stats(failures={"node02": 1}, processed=BOTH))
    message = events.result("node02").message
    assert message.endswith(f"failed - Expected: the task succeeds Actual: {actual}. See /logs/install.log.")
    assert "hunter2" not in message


def test_full_disk_of_a_node_is_told_apart_from_a_broken_module() -> None:
    trace = "Traceback\n  File x\nOSError: [Errno 28] No space left on device"
    events, _ = judge(
        event("runner_on_failed", "node02", msg="MODULE FAILURE: see stdout", stderr=trace),
        stats(failures={"node02": 1}, processed=BOTH),
    )
    assert (
        "Expected: room on the node's disk Actual: No space left on device. Free disk space on the node"
        in events.result("node02").message
    )


def test_items_of_a_loop_are_all_named_once() -> None:
    events, _ = judge(
        event("runner_item_on_failed", "node01", msg="non-zero return code", stderr="bad a"),
        event("runner_item_on_failed", "node01", msg="non-zero return code", stderr="bad b"),
        event("runner_item_on_failed", "node01", msg="non-zero return code", stderr="bad a"),
        event("runner_on_failed", "node01", msg="One or more items failed"),
        stats(failures={"node01": 1}, processed=BOTH),
    )
    assert "Actual: bad a; bad b. See" in events.result("node01").message


@pytest.mark.parametrize(
    ("words", "step"),
    [
        (
            "Failed to connect to the host via ssh: connect to host 10.0.0.2 port 22: No route to host",
            "Check that the node is up",
        ),
        (
            "Failed to connect to the host via ssh: Host key verification failed.",
            "its pin was lost, `rackready hostkey accept node02` shows both keys and pins",
        ),
    ],
)
def test_unreachable_node_is_an_error(words: str, step: str) -> None:
    events, _ = judge(
        event("runner_on_unreachable", "node02", msg=words), stats(ok={"node01": 3}, dark={"node02": 1}, processed=BOTH)
    )
    bad = events.result("node02")
    assert bad.outcome is Outcome.ERROR
    assert bad.message.startswith(
        "node02: install: cannot log in - Expected: SSH answers with the pinned host key Actual: Failed to connect"
    )
    assert step in bad.message
    assert events.result("node01").outcome is Outcome.PASS


def test_module_s_own_words_about_a_full_disk_win_over_ansible_s_exception() -> None:
    """ansible-core 2.19 adds an exception to whatever a module says when it fails."""
    words = (
        "Expected: room on the node's disk for the packages Actual: No space left on device (/var/cache/apt has 0 "
        "MiB free of 2 MiB). Free disk space."
    )
    failed = event("runner_on_failed", "node02", msg=words, check=CHECK, exception="(traceback unavailable)")
    events, _ = judge(failed, stats(ok={"node01": 3}, failures={"node02": 1}, processed=BOTH))
    assert events.result("node02").message.endswith(f"failed - {words}")


NO_FOLDER = (
    "Failed to create temporary directory. In some cases, you may have been able to authenticate and did not have "
    "permissions on the target directory. "
    'Consider changing the remote tmp path in ansible.cfg to a path rooted in "/tmp". '
    'Failed command was: ( umask 77 && mkdir -p "..." ), exited with result 1'
)


def test_node_without_room_for_a_temporary_folder_is_not_called_unreachable() -> None:
    events, _ = judge(
        event("runner_on_unreachable", "node02", msg=NO_FOLDER),
        stats(ok={"node01": 3}, dark={"node02": 1}, processed=BOTH),
    )
    bad = events.result("node02")
    assert bad.outcome is Outcome.ERROR
    assert bad.message == (
        "node02: install: no temporary folder - Expected: one in the login's home directory "
        "Actual: Failed to create temporary directory. "
        "Check whether that disk is full or read-only (`df -h ~` on the node), then run again."
    )


def test_missing_node_is_an_error_though_the_rest_went_well() -> None:
    events, _ = judge(stats(ok={"node01": 3}, processed={"node01": 1}))
    assert events.result("node01").outcome is Outcome.PASS
    missing = events.result("node02")
    assert missing.outcome is Outcome.ERROR
    assert (
        "node02: install: no result - Expected: Ansible reports every requested node "
        "Actual: nothing about it" in missing.message
    )


def test_run_without_any_result_carries_ansible_s_last_error() -> None:
    events, _ = judge(
        json.dumps({"event": "output", "text": "[ERROR]: Completely failed to parse inventory source"}),
        "not json",
        '"a string"',
        "[1]",
    )
    for node in NODES:
        assert "Actual: [ERROR]: Completely failed to parse inventory source. See" in events.result(node).message


def test_full_disk_of_the_controller_says_so() -> None:
    events, _ = judge("OSError: [Errno 28] No space left on device: '/x/job_events'")
    assert "Free disk space on the controller" in events.result("node01").message


def test_failure_counted_but_never_said_is_an_error_not_a_pass() -> None:
    events, _ = judge(stats(ok=BOTH, failures={"node01": 1}, processed=BOTH))
    assert events.result("node01").outcome is Outcome.ERROR


def test_timed_out_node_says_so() -> None:
    events, _ = judge()
    assert "the run took too long and was ended" in events.result("node01", timed_out=True).message


def test_strangers_are_seen() -> None:
    events, _ = judge(stats(ok=BOTH, processed={**BOTH, "node09": 1}))
    assert events.strangers() == ["node09"]


# the run around it
# -----------------------------------------------------------------------------------------------------

Child = Callable[..., ChildResult]


@pytest.fixture
def ctx(tmp_path: Path) -> PhaseContext:
    env = tmp_path / "inventories/sim"
    env.mkdir(parents=True)
    (env / "site.yml").write_text((ROOT / "inventories/sim/site.yml").read_text())
    return PhaseContext("sim", tmp_path, "c1")


def worker(monkeypatch: pytest.MonkeyPatch, *lines: str, timed_out: bool = False) -> dict[str, Any]:
    seen: dict[str, Any] = {}

    def child(argv: list[str], **given: Any) -> ChildResult:
        seen.update(given, argv=argv, request=json.loads(given["stdin_text"]))
        file = next(word for word in seen["request"]["argv"] if word.startswith("@"))[1:]
        seen.update(
            vars=json.loads(Path(file).read_text()), vars_file=Path(file), mode=stat.S_IMODE(Path(file).stat().st_mode)
        )
        for line in lines:
            given["on_line"](line)
        return ChildResult(0, timed_out, 1.0)

    monkeypatch.setattr(ansible, "run_child", child)
    return seen


def ledger_of(ctx: PhaseContext) -> Ledger:
    return Ledger.open(EnvPaths(ctx.root, ctx.env).database)


def test_intent_and_end_are_recorded_per_node(ctx: PhaseContext, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = worker(
        monkeypatch,
        event("runner_on_failed", "node02", msg="no"),
        stats(ok={"node01": 3}, failures={"node02": 1}, processed=BOTH),
    )
    results = run_playbook(ctx, "install.yml", ["node01", "node02", "node03"])
    assert [results[node].outcome for node in results] == [Outcome.PASS, Outcome.FAIL, Outcome.ERROR]
    entries = {entry.node: entry for entry in ledger_of(ctx).entries()}
    assert {node: (entry.operation, entry.status) for node, entry in entries.items()} == {
        "node01": ("install:install.yml", "done"),
        "node02": ("install:install.yml", "failed"),
        "node03": ("install:install.yml", "intent"),
    }
    assert seen["vars"]["rackready_tokens"] == {node: entry.token for node, entry in entries.items()}
    assert seen["mode"] == 0o600
    assert not seen["vars_file"].exists()


def test_interrupted_run_is_said_aloud_and_superseded(ctx: PhaseContext, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any, **__: Any) -> ChildResult:
        raise Interrupted

    monkeypatch.setattr(ansible, "run_child", stopped)
    with pytest.raises(Interrupted):
        run_playbook(ctx, "install.yml", ["node01"])
    assert ledger_of(ctx).entries()[0].status == "intent"
    worker(monkeypatch, stats(ok={"node01": 3}, processed={"node01": 1}))
    run_playbook(ctx, "install.yml", ["node01"])
    assert [entry.status for entry in ledger_of(ctx).entries()] == ["failed", "done"]
    assert "an earlier run was interrupted here" in ledger_of(ctx).events("c1")[0].text


def test_only_the_nodes_asked_for_and_only_a_small_environment(
    ctx: PhaseContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "secret")
    seen = worker(monkeypatch, stats(processed=BOTH))
    run_playbook(ctx, "install.yml", NODES, {"x": 1}, ["driver"])
    argv = seen["request"]["argv"]
    assert argv[argv.index("--limit") + 1] == "node01,node02"
    assert argv[argv.index("--tags") + 1] == "driver"
    assert argv[argv.index("-i") + 1] == str(ctx.root / "inventories/sim")
    assert argv[-1] == str(ROOT / "playbooks/install.yml"), "the code's own, whatever the site repository has"
    assert "--check" not in argv
    assert seen["vars"]["x"] == 1
    assert "PULUMI_CONFIG_PASSPHRASE" not in seen["env"]
    assert seen["env"]["ANSIBLE_HOST_KEY_CHECKING"] == "True"
    assert seen["ledger"] is not None


def test_a_home_that_cannot_be_written_is_no_hindrance(
    ctx: PhaseContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As for a service with ProtectHome=read-only: ansible-core's own temporary folder is ~/.ansible/tmp."""
    code = tmp_path / "code"
    (code / "playbooks").mkdir(parents=True)
    for name in ("ansible.cfg", "plugins", "roles", "src"):
        (code / name).symlink_to(ROOT / name)
    play = "- hosts: all\n  connection: local\n  gather_facts: false\n  tasks: [{ansible.builtin.debug: {msg: x}}]\n"
    (code / "playbooks/try.yml").write_text(play)
    monkeypatch.setattr(ansible, "shipped", lambda: code)
    monkeypatch.setenv("HOME", "/proc/nobody")
    result = run_playbook(ctx, "try.yml", ["node01"])["node01"]
    assert (result.outcome, result.message) == (Outcome.PASS, "")


def test_dry_run_records_nothing(ctx: PhaseContext, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = worker(monkeypatch, stats(processed=BOTH))
    run_playbook(PhaseContext(ctx.env, ctx.root, ctx.campaign, check=True), "install.yml", NODES)
    assert "--check" in seen["request"]["argv"]
    assert ledger_of(ctx).entries() == []


def test_full_controller_disk_is_one_clear_error_per_node(ctx: PhaseContext, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> ChildResult:
        raise OSError(28, "No space left on device", "/x.log")

    monkeypatch.setattr(ansible, "run_child", full)
    result = run_playbook(ctx, "install.yml", ["node01"])["node01"]
    assert result.outcome is Outcome.ERROR
    assert "node01: install: Ansible could not be started" in result.message
    assert "Actual: No space left on device (/x.log). Free disk space on the controller" in result.message


def test_time_out_reaches_the_result(ctx: PhaseContext, monkeypatch: pytest.MonkeyPatch) -> None:
    worker(monkeypatch, timed_out=True)
    assert "took too long" in run_playbook(ctx, "install.yml", ["node01"])["node01"].message


def test_no_nodes_is_no_run(ctx: PhaseContext, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = worker(monkeypatch)
    assert run_playbook(ctx, "install.yml", []) == {}
    assert seen == {}

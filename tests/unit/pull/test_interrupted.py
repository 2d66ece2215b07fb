"""The pull agent when it is killed, runs twice, or has no controller: once only, and no report is lost."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rackready.ondevice.pull import play, report
from rackready.ondevice.pull.places import Places
from rackready.ondevice.pull.problem import PullProblem
from tests.unit.pull.world import NODE, SYSTEM_PYTHON, World
from tests.waiting import until


def plays_until(world: World) -> Path:
    """Order a play that ends once the returned file is there."""
    go_on = world.tmp / "go-on"
    world.order(5, **world.make(world.stub(until=str(go_on))))
    return go_on


def killed(world: World) -> None:
    """Start the agent, and kill it alone as soon as its play runs."""
    child = world.start()
    until(world.played)
    child.kill()
    child.communicate(timeout=120)


def test_killed_in_its_play_it_goes_on_and_ends_what_was_left(world: World) -> None:
    world.order(5, **world.make(world.stub(sleep=300)))
    killed(world)
    assert world.state_of()["state"] == "begun"
    (left,) = play._marked(Places(state=world.state))
    world.order(5, **world.make())
    code, lines = world.agent()
    assert code == 0
    assert f"node01: ended what an earlier run left: {Path(SYSTEM_PYTHON).resolve().name} ({left})" in lines
    assert "node01: order 5 was started and not ended here: it continues" in lines
    assert world.played() == ["apply", "apply"]
    assert world.report("5-apply").failure is None
    assert list(world.run_folder.iterdir()) == []


def test_a_begun_order_that_expired_is_not_applied_again(world: World) -> None:
    order = world.order(5, **world.make(world.stub(sleep=300)))
    killed(world)
    world.write_order(world.envelope({**order, "expires": int(time.time()) - 1}))
    assert "Expected: an order that is still valid" in world.said()
    assert world.played() == ["apply"]
    assert world.state_of()["state"] == "done"


def test_a_revoked_order_is_not_applied_after_a_kill(world: World) -> None:
    world.order(5, **world.make(world.stub(sleep=300)))
    killed(world)
    world.order(6, mode="check")
    assert world.agent()[0] == 0
    assert world.played() == ["apply", "check"]
    assert world.stored() == ["6-check"]


def test_killed_after_its_report_was_written_it_does_not_apply_again(world: World) -> None:
    world.order(5)
    port = world.away()
    kept = world.state.parent / "kept"
    world.serve(port)
    world.install()
    assert world.agent()[0] == 0
    # As a kill between the report and the state leaves it: the report is kept, and the state says "begun".
    kept.mkdir()
    done = world.state_of()
    body = (world.reports / NODE / "5-apply.json").read_text()
    kept_report = '{"final": true, "site": "5f2c-ledger", "body": ' + body + "}"
    (world.state / "outbox/5-apply.json").write_text(kept_report)
    (world.state / "state.json").write_text(str({**done, "state": "begun"}).replace("'", '"'))
    assert world.agent()[0] == 0
    assert world.played() == ["apply", "check"]
    assert world.state_of()["state"] == "done"


@pytest.mark.parametrize("delay_s", [0.05, 0.15, 0.25, 0.4, 0.6])
def test_killed_at_any_moment_the_next_run_does_the_order(world: World, delay_s: float) -> None:
    world.order(5, **world.make(world.stub(sleep=1)))
    child = world.start()
    time.sleep(delay_s)
    child.kill()
    child.communicate(timeout=120)
    code, lines = world.agent()
    assert code == 0, lines
    assert world.state_of() | {"release": ""} == {
        "site": "5f2c-ledger",
        "sequence": 5,
        "mode": "apply",
        "state": "done",
        "release": "",
    }
    assert world.report("5-apply").exit_code == 0
    assert world.played().count("apply") in {1, 2}
    assert list((world.state / "releases").glob(".new-*")) == []
    assert list((world.state / "objects").glob(".*")) == []


def test_stopped_by_systemd_it_ends_the_play_and_goes_on_later(world: World) -> None:
    world.order(5, **world.make(world.stub(sleep=300)))
    child = world.start()
    until(world.played)
    child.terminate()
    child.communicate(timeout=120)
    assert child.returncode == 128 + signal.SIGTERM
    assert play._marked(Places(state=world.state)) == []
    assert world.state_of()["state"] == "begun"


def test_a_play_that_takes_too_long_is_ended_with_all_that_it_started(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.state.mkdir()
    monkeypatch.setattr(play, "_GRACE_S", 0.2)
    grandchild = (
        "import subprocess, sys, time; subprocess.Popen(['sleep', '300'], start_new_session=True); time.sleep(300)"
    )
    log = world.tmp / "log"
    places = Places(state=world.state)
    code = play._drive(places, [sys.executable, "-c", grandchild], "{}", log, 1.0)
    assert code == -signal.SIGTERM
    assert play._marked(places) == []


def test_a_second_run_leaves_with_its_reason(world: World) -> None:
    go_on = plays_until(world)
    first = world.start()
    until(world.played)
    code, lines = world.agent()
    busy = f"Expected: no other run on this node Actual: process {first.pid} is at work."
    step = "Wait for its end: `systemctl status rackready-pull.service`."
    assert (code, lines) == (
        75,
        [f"agent - {busy} {step}"],
    )
    second = world.start("--wait", "120")
    go_on.touch()
    second.communicate(timeout=120)
    assert second.returncode == 0, "one that may wait follows"
    first.communicate(timeout=120)
    assert first.returncode == 0
    assert world.played() == ["apply", "check"]


def test_an_order_that_comes_during_a_run_is_done_by_the_same_run(world: World) -> None:
    go_on = plays_until(world)
    first = world.start()
    until(world.played)
    world.order(6)
    go_on.touch()
    out, _ = first.communicate(timeout=120)
    assert "node01: apply of order 6 ended with 0" in out.splitlines()
    assert world.played() == ["apply", "apply"]


def test_without_its_controller_a_node_keeps_its_report(world: World) -> None:
    world.gives_up_soon()
    go_on = plays_until(world)
    child = world.start()
    until(world.played)
    port = world.away()
    go_on.touch()
    out, _ = child.communicate(timeout=60)
    url = f"{world.url}/reports/node01/5-apply"
    step = "On the controller, look whether `rackready release serve` runs and its port is open to this node."
    words = f"Expected: an answer of the controller Actual: [Errno 111] Connection refused. {step}"
    assert f"node01: {url} - {words}" in out.splitlines()
    assert child.returncode == 3
    assert (world.state / "outbox/5-apply.json").exists()
    world.serve(port)
    assert world.agent()[0] == 0
    assert world.stored() == ["5-apply", "5-check"]
    assert world.report("5-apply").failure is None


def test_a_report_that_is_refused_for_good_holds_no_other_back(world: World) -> None:
    world.order(5)
    line = world.known.pop(NODE)
    code, lines = world.agent()
    words = "Expected: the report is accepted Actual: HTTP 403: node01: no node of this site with a pinned host key."
    assert any(words in text for text in lines)
    assert code == 0
    assert (world.state / "outbox/5-apply.refused").exists()
    world.known[NODE] = line
    assert world.agent()[0] == 0
    assert world.stored() == ["5-check"]


def test_a_disk_without_room_is_told_before_anything_is_fetched(world: World) -> None:
    huge = 1 << 30
    world.order(5, **world.make(files=[{"sha256": f"{number:064x}", "size": huge} for number in range(4000)]))
    said = world.said()
    free = shutil.disk_usage(world.state).free
    assert said.startswith("node01: disk - Expected: 4096")
    assert f" MiB for the release Actual: {free >> 20}"[:-2] in said
    assert said.endswith(
        f"Free disk space on the node below {world.state}, then run the phase again on the controller."
    )
    assert world.report("5-apply").failure.code == "disk-full"  # type: ignore[union-attr]
    assert world.played() == []


def test_without_room_for_its_report_nothing_is_applied(world: World) -> None:
    world.order(5)
    argv = ["bash", "-c", 'ulimit -f 64; trap "" XFSZ; exec "$@"', "sh", *world.argv()]
    words = "Expected: 9 MiB for the report of its play Actual: File too large; nothing was applied."
    step = f"Look at the node's disk below {world.state}, then run the phase again on the controller."
    done = subprocess.run(argv, cwd=world.tmp / "agent", capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 3
    assert done.stdout.splitlines()[-2:] == [f"node01: disk - {words} {step}", "node01: apply of order 5 refused"]
    assert world.played() == []
    assert not (world.state / "outbox/.room").exists()
    assert world.report("5-apply").failure.code == "disk"  # type: ignore[union-attr]
    assert world.agent()[0] == 0
    assert world.played() == ["check"], "the controller has that report: it ended the order"


def test_without_room_for_the_report_of_a_refusal_the_order_can_still_be_applied(world: World) -> None:
    world.order(5, **world.make(padding=os.urandom(4000).hex()))
    argv = ["bash", "-c", 'ulimit -f 0; trap "" XFSZ; exec "$@"', "sh", *world.argv()]
    done = subprocess.run(argv, cwd=world.tmp / "agent", capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 3, done.stdout
    assert world.stored() == []
    assert not (world.state / "state.json").exists()
    assert world.agent()[0] == 0
    assert world.played() == ["apply"]


def test_a_full_disk_is_said_so_before_a_play(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    places = Places(world.etc, world.state, world.run_folder, world.ssh)
    places.make()
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(PullProblem) as refused:
        report.reserve(places, NODE)
    assert str(refused.value) == (
        "node01: disk - Expected: 9 MiB for the report of its play Actual: no space left on device; nothing was "
        f"applied. Free disk space on the node below {world.state}, then run the phase again on the controller."
    )
    assert refused.value.code == "disk-full"


def test_a_disk_that_a_play_filled_has_room_for_its_report(world: World) -> None:
    """The space is taken before the play, and the report is written into it: no other file may use it meanwhile."""
    world.gives_up_soon()
    go_on = plays_until(world)
    child = world.start()
    until(world.played)
    room = (world.state / "outbox/.room").stat()
    assert room.st_blocks * 512 >= report.LARGEST
    port = world.away()
    go_on.touch()
    child.communicate(timeout=60)
    kept = (world.state / "outbox/5-apply.json").stat()
    assert (kept.st_ino, kept.st_size < 10_000) == (room.st_ino, True)
    assert [file.name for file in (world.state / "outbox").iterdir()] == ["5-apply.json"]
    world.serve(port)
    assert world.agent()[0] == 0
    assert world.report("5-apply").failure is None


def test_a_disk_that_fills_up_is_no_fault_of_the_network(world: World) -> None:
    """A file size limit, as a quota sets one, ends writing like a full disk."""
    world.order(5, **world.make(world.stub(padding=os.urandom(40000).hex())))
    argv = ["bash", "-c", 'ulimit -f 16; trap "" XFSZ; exec "$@"', "sh", *world.argv()]
    done = subprocess.run(argv, cwd=world.tmp / "agent", capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 3
    assert "node01: disk - Expected: a disk that can be written Actual: File too large" in done.stdout
    assert world.agent()[0] == 0

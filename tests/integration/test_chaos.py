"""The pure parts of the chaos rounds: points follow from the seed, and failures are told from successes."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import deque
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rackready.campaign.request import DEPLOY
from rackready.drivers.marked_processes import VARIABLE, child_mark, project_mark
from tests.integration import chaos
from tests.integration.aftermath import installed_twice, left_on, orphans, power_problems
from tests.integration.chaos import (
    EVENTS,
    LENGTHS_S,
    Point,
    Record,
    Round,
    Seen,
    Strike,
    count_in,
    draw,
    has_come,
    is_past,
    under_way,
)

EVERY = dict.fromkeys(DEPLOY, 3)


def test_same_seed_draws_the_same_points() -> None:
    assert draw(7, EVERY) == draw(7, EVERY)
    assert draw(7, EVERY) != draw(8, EVERY)


@pytest.mark.parametrize("seed", range(50))
def test_points_come_in_the_order_of_phases_and_lie_within_them(seed: int) -> None:
    points = draw(seed, EVERY)
    assert [point.phase for point in points] == [phase for phase in DEPLOY for _ in range(3)]
    for point in points:
        assert 0 <= point.delay_s <= LENGTHS_S[point.phase] / 2
        assert 0 <= point.event <= max(4, EVENTS[point.phase] // 4)
        assert bool(point.event) != bool(point.delay_s), "one or the other"
    assert all(point.event for point in points[::3]), (
        "the first of a phase waits for a line of progress, not for a clock"
    )


def test_both_kinds_of_points_are_drawn() -> None:
    assert {bool(point.event) for seed in range(20) for point in draw(seed, EVERY)} == {True, False}


def test_measured_lengths_name_every_phase() -> None:
    assert list(LENGTHS_S) == list(EVENTS) == list(DEPLOY)


def test_a_point_says_where_it_is() -> None:
    assert str(Point("install", event=3)) == "install at event 3"
    assert str(Point("fabric", delay_s=1.5)) == "fabric 1.50 s after it begins"
    assert str(Point("install", event=3, number=signal.SIGINT)) == "install at event 3, SIGINT"


SEEN = [
    Seen(1, "provision", "begins"),
    Seen(2, "provision", "unchanged"),
    Seen(3, "revalidate", "begins"),
    Seen(4, "validate", "node/gpu/... passed"),
]


def test_phase_under_way_is_the_one_that_began_last() -> None:
    assert under_way(SEEN) == "revalidate", "its measurements carry another name"
    assert under_way(SEEN[:2]) == "provision"
    assert under_way([]) == ""


def test_lines_are_counted_from_the_beginning_of_the_phase() -> None:
    assert count_in(SEEN, "revalidate") == 2
    assert count_in(SEEN, "install") == 0


@pytest.mark.parametrize(
    ("phase", "now", "past"),
    [
        ("provision", "install", True),
        ("install", "install", False),
        ("fabric", "install", False),
        ("install", "", False),
    ],
)
def test_phase_is_past_when_a_later_one_is_under_way(phase: str, now: str, past: bool) -> None:  # noqa: FBT001 - an expected value
    assert is_past(phase, now) is past


def test_a_point_has_come_at_its_line_or_after_its_delay() -> None:
    assert has_come(Point("revalidate", event=2), SEEN, 0.0)
    assert not has_come(Point("revalidate", event=3), SEEN, 0.0)
    assert has_come(Point("revalidate", delay_s=1.0), SEEN, 1.0)
    assert not has_come(Point("revalidate", delay_s=1.0), SEEN, 0.9)


def test_only_kills_that_landed_count_as_hits() -> None:
    kill, stop = Point("install", event=1), Point("fabric", event=1, number=signal.SIGINT)
    record = Record(
        [
            Strike(kill, "install", -9, 0.1),
            Strike(kill, "", 0, 0.1),
            Strike(kill, "fabric", -9, 0.1),
            Strike(stop, "validate", 130, 3.0),
        ]
    )
    assert record.hits() == {"install": 1, "fabric": 1}
    assert record.spared() == ["provision", "validate", "optimize", "revalidate", "certify", "handover"]


def power(*nodes: str, action: str = "on") -> list[dict[str, Any]]:
    return [{"node": node, "action": action} for node in nodes]


def test_powered_on_twice_or_never_is_found() -> None:
    four = power("node01", "node02", "node03", "node04")
    assert power_problems(four) == []
    assert power_problems(four + power("node02", action="ForceRestart")) == ["node02 was powered on 2 times"]
    assert power_problems(four[:3]) == ["node04 was powered on 0 times"]
    assert power_problems(four + power("node02", action="off")) == []


def test_package_installed_twice_is_found() -> None:
    line = "2026-01-01 00:00:00 install {}:amd64 <none> 1.0\n2026-01-01 00:00:01 status installed {}:amd64 1.0\n"
    assert installed_twice(line.format("a", "a") + line.format("b", "b")) == {}
    assert installed_twice(line.format("a", "a") * 2 + line.format("b", "b")) == {"a:amd64": 2}


def renamed(pid: int, title: bytes, within_s: float = 60) -> None:
    """Wait until a process has taken its new title."""
    deadline = time.monotonic() + within_s
    while not Path(f"/proc/{pid}/cmdline").read_bytes().startswith(title):
        assert time.monotonic() < deadline, f"no title {title!r} within {within_s} s"
        time.sleep(0.02)


def test_command_left_at_work_on_a_node_is_found_and_the_search_itself_is_not() -> None:
    here = SimpleNamespace(
        ssh=lambda _, command: subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False).stdout
    )
    left = subprocess.Popen(["bash", "-c", "exec -a '/usr/bin/apt-get install nothing' sleep 60"])
    try:
        renamed(left.pid, b"/usr/bin/apt-get")
        found = left_on(here, "node01")  # type: ignore[arg-type]
    finally:
        left.kill()
        left.wait()
    assert f"{left.pid} /usr/bin/apt-get install nothing 60" in found
    assert not any("pgrep" in line for line in found)


@pytest.mark.parametrize(("marked", "root"), [(True, False), (False, True)])
def test_process_left_on_the_controller_is_found_by_its_mark_and_by_its_root(
    tmp_path: Path,
    marked: bool,  # noqa: FBT001 - table
    root: bool,  # noqa: FBT001 - table
) -> None:
    project = SimpleNamespace(
        root=tmp_path, paths=SimpleNamespace(database=SimpleNamespace(file=tmp_path / "state.sqlite"))
    )
    env = (
        {**os.environ}
        | ({VARIABLE: child_mark(project_mark(tmp_path / "state.sqlite"))} if marked else {})
        | ({"RACKREADY_ROOT": str(tmp_path)} if root else {})
    )
    left = subprocess.Popen(["bash", "-c", "exec -a 'ansible-playbook x.yml' sleep 60"], env=env)
    other = subprocess.Popen(["bash", "-c", "exec -a 'ansible-playbook y.yml' sleep 60"])
    try:
        renamed(left.pid, b"ansible")
        assert orphans(project) == {left.pid: "ansible-playbook x.yml 60"}  # type: ignore[arg-type]
    finally:
        for child in (left, other):
            child.kill()
            child.wait()


DEPLOYS = """
import json, sqlite3, sys, time
from pathlib import Path
root, turns = Path(sys.argv[1]), json.loads(sys.argv[2])
ledger = sqlite3.connect(root / "state.sqlite", isolation_level=None, timeout=30)
for phase in sys.argv[3:]:
    if not (root / phase).exists():
        times = len(list(root.glob(f"{phase}.*")))
        (root / f"{phase}.{times}").touch()
        ledger.execute("INSERT INTO events (phase, text) VALUES (?, 'begins')", (phase,))
        time.sleep(60 if times in turns.get(phase, []) else 0.05)
        ledger.execute("INSERT INTO events (phase, text) VALUES (?, 'unchanged')", (phase,))
        (root / phase).touch()
for phase in sys.argv[3:]:
    (root / phase).unlink()
"""
"""A deploy that continues in the phase where it was killed; ``turns``: at which of its starts a phase awaits a kill."""


class Rehearsal:
    """A project without a rack."""

    def __init__(self, root: Path, turns: dict[str, list[int]]) -> None:
        self.root = root
        self.turns = json.dumps(turns)
        self.paths = SimpleNamespace(database=SimpleNamespace(file=root / "state.sqlite"))
        ledger = sqlite3.connect(self.paths.database.file)
        ledger.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, phase TEXT, text TEXT)")
        ledger.close()

    def start(self, *_: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", DEPLOYS, str(self.root), self.turns, *DEPLOY], stdout=subprocess.PIPE, text=True
        )

    def json(self, *_: str) -> tuple[int, Any]:
        child = self.start()
        child.communicate()
        return child.returncode, {"nodes": [{"name": "node01", "state": "ready"}]}

    def progress(self) -> str:
        return "nothing was said"


def play(root: Path, points: list[Point], turns: dict[str, list[int]]) -> tuple[Record, list[str]]:
    said: list[str] = []
    return Round(Rehearsal(root, turns), said.append).play(points), said  # type: ignore[arg-type]


def test_every_point_is_struck_and_then_the_deploy_ends(tmp_path: Path) -> None:
    points = [Point(phase, event=1) for phase in DEPLOY] + [Point("handover", delay_s=0.05)]
    record, said = play(tmp_path, points, {phase: [0] for phase in DEPLOY} | {"handover": [0, 1]})
    assert record.hits() == dict.fromkeys(DEPLOY, 1) | {"handover": 2}
    assert {strike.code for strike in record.strikes} == {-signal.SIGKILL}
    assert (record.missed, record.code, record.nodes) == ([], 0, {"node01": "ready"})
    assert said[0] == "provision at event 1: landed in provision"
    assert said[-1] == "deploy ends with 0: {'node01': 'ready'}"


def test_point_that_never_comes_is_missed_and_its_phase_hit_in_another_campaign(tmp_path: Path) -> None:
    never = [Point("fabric", event=99), Point("handover", delay_s=99.0)]
    struck = [Point(phase, event=1) for phase in DEPLOY if phase not in {"fabric", "handover"}]
    record, _ = play(
        tmp_path,
        [*struck[:2], never[0], *struck[2:], never[1]],
        {phase: [0] for phase in DEPLOY} | {"fabric": [1], "handover": [1]},
    )
    assert record.missed == never
    assert record.spared() == []
    assert [strike.landed for strike in record.strikes][-2:] == ["fabric", "handover"]
    assert record.code == 0


def test_hook_comes_before_the_blow_while_the_deploy_lives(tmp_path: Path) -> None:
    lived = []
    rehearsal = Rehearsal(tmp_path, {"install": [0]})
    Round(rehearsal, lambda _: None, before=lambda point, child: lived.append((str(point), child.poll())))._campaign(  # type: ignore[arg-type]
        deque([Point("install", event=1)])
    )
    assert lived == [("install at event 1", None)]


@pytest.mark.parametrize(
    ("wrong", "code", "last"), [([], 0, "everything holds"), (["node01 is lost"], 1, "1 things do not hold")]
)
def test_rounds_say_their_seed_every_blow_and_what_does_not_hold(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wrong: list[str], code: int, last: str
) -> None:
    """The command as `make chaos` calls it, on a rack that is none."""
    closed = []

    class Rack(Rehearsal):
        def __init__(self, root: Path) -> None:
            root.mkdir()
            super().__init__(root, {phase: [0] for phase in DEPLOY})

        def run(self, *_: str) -> tuple[int, str]:
            return 0, ""

        def close(self) -> None:
            closed.append(self.root.name)

    monkeypatch.setattr(chaos, "Project", Rack)
    monkeypatch.setattr(chaos, "cannot_run", lambda: "")
    monkeypatch.setattr(chaos, "held_image", lambda _: nullcontext())
    monkeypatch.setattr(
        chaos, "draw", lambda seed, counts: [Point(phase, event=1) for phase in counts] if seed in {5, 6} else []
    )
    monkeypatch.setattr(chaos.aftermath, "problems", lambda _: wrong)
    monkeypatch.setattr(sys, "argv", ["chaos", "--rounds", "2", "--seed", "5", "--points", "1"])
    assert chaos.main() == code
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "chaos: seed 5, 1 points a phase (again: make chaos SEED=5 ARGS='--points 1')"
    assert "handover at event 1: landed in handover" in said
    assert said[-1] == f"chaos: seed 6: {last}"
    assert closed == ["seed-5", "seed-6"]


def test_without_root_or_tools_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(chaos, "cannot_run", lambda: "podman not installed: run `make setup-sim`")
    monkeypatch.setattr(sys, "argv", ["chaos"])
    assert chaos.main() == 2
    assert capsys.readouterr().out == "chaos: podman not installed: run `make setup-sim`\n"

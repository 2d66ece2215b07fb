"""Kill the controller at seeded points of one deploy on a new simulated rack: the deploy must still end well.

``python -m tests.integration.chaos --rounds N --seed S`` (``make chaos``) plays rounds; tests/integration/test_kill.py
plays one with a fixed seed. Each kill is printed, and the seed alone draws the same points again. With ``--workers N``
it kills workers and the database instead, and pulls cables (``worker_round``).
"""

from __future__ import annotations

import argparse
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rackready.campaign.request import DEPLOY
from tests.forked import Child
from tests.integration import aftermath, worker_round
from tests.integration.project import Project, cannot_run, held_image

POLL_S = 0.02
NODES = 4
"""Nodes of the rack: a phase begins with a line for each."""

WITHIN_S = 1200.0
"""Longest wait for one point."""

LENGTHS_S: Mapping[str, float] = {
    "provision": 12.0,
    "install": 58.0,
    "fabric": 30.0,
    "validate": 14.0,
    "optimize": 9.0,
    "revalidate": 188.0,
    "certify": 0.8,
    "handover": 14.0,
}
"""Seconds of each phase on a new simulated rack with 2 cores: measured beside no other work, in a deploy of 327 s."""

EVENTS: Mapping[str, int] = {
    "provision": 20,
    "install": 184,
    "fabric": 36,
    "validate": 292,
    "optimize": 32,
    "revalidate": 540,
    "certify": 8,
    "handover": 24,
}
"""Lines of progress in each phase of the same deploy."""


@dataclass(frozen=True, slots=True)
class Point:
    """When to kill: at progress line ``event`` of a phase, or ``delay_s`` after the phase begins (``event`` 0)."""

    phase: str
    event: int = 0
    delay_s: float = 0.0
    number: int = signal.SIGKILL

    def __str__(self) -> str:
        """Say it as a person would."""
        when = f"at event {self.event}" if self.event else f"{self.delay_s:.2f} s after it begins"
        return f"{self.phase} {when}{'' if self.number == signal.SIGKILL else ', ' + signal.Signals(self.number).name}"


@dataclass(frozen=True, slots=True)
class Seen:
    """One line of progress: its number in the ledger, its phase, what it says."""

    id: int
    phase: str
    text: str


@dataclass(frozen=True, slots=True)
class Strike:
    """One kill: the point, the phase it hit ("" after the deploy), how the process ended, and after what time."""

    point: Point
    landed: str
    code: int | None
    seconds: float


@dataclass
class Record:
    """What happened in one round."""

    strikes: list[Strike] = field(default_factory=list)
    missed: list[Point] = field(default_factory=list)
    code: int = -1
    nodes: dict[str, str] = field(default_factory=dict)

    def hits(self) -> Counter[str]:
        """Return how often each phase was hit with SIGKILL."""
        return Counter(
            strike.landed for strike in self.strikes if strike.landed and strike.point.number == signal.SIGKILL
        )

    def spared(self) -> list[str]:
        """Return the phases that were never hit, in order."""
        return [phase for phase in DEPLOY if not self.hits()[phase]]


def draw(
    seed: int,
    counts: Mapping[str, int],
    *,
    lengths: Mapping[str, float] = LENGTHS_S,
    events: Mapping[str, int] = EVENTS,
) -> list[Point]:
    """Return points in the order of phases, ``counts[phase]`` each.

    The first of a phase is a line of progress in its first quarter, so that it surely lands there. A killed phase
    begins anew with less left to do: delays of later points are drawn from a length that is halved each time.
    """
    dice = random.Random(seed)  # noqa: S311 - repeatable, not secret
    out = []
    for phase in DEPLOY:
        for number in range(counts.get(phase, 0)):
            by_event = number == 0 or dice.random() < 0.5
            if by_event:
                out.append(Point(phase, event=dice.randint(NODES, max(NODES, events[phase] // 4))))
            else:
                out.append(Point(phase, delay_s=round(dice.uniform(0, lengths[phase] * 0.5**number), 2)))
    return out


def under_way(seen: Sequence[Seen]) -> str:
    """Return the phase that began last, "" before the first."""
    return next((event.phase for event in reversed(seen) if event.text == "begins"), "")


def count_in(seen: Sequence[Seen], phase: str) -> int:
    """Return how many lines of progress came since a phase began (lines of measurements carry another phase's name)."""
    begun = next(
        (index for index, event in enumerate(seen) if event.phase == phase and event.text == "begins"), len(seen)
    )
    return len(seen) - begun


def is_past(phase: str, now: str) -> bool:
    """Whether a campaign at the phase ``now`` will not come to ``phase`` any more."""
    return bool(now) and DEPLOY.index(now) > DEPLOY.index(phase)


class Watch:
    """Reads the ledger's progress as it comes, beside the controller that writes it."""

    def __init__(self, project: Project) -> None:
        self._path = project.paths.database.file
        self._after = max((row.id for row in self._read(0)), default=0)
        self.seen: list[Seen] = []

    def look(self) -> list[Seen]:
        """Return everything since the start of this watch."""
        new = self._read(self._after)
        self._after = max((row.id for row in new), default=self._after)
        self.seen += new
        return self.seen

    def _read(self, after: int) -> list[Seen]:
        if not self._path.exists():
            return []
        connection = sqlite3.connect(f"file:{self._path}?mode=ro", uri=True, timeout=30)
        try:
            return [
                Seen(*row)
                for row in connection.execute("SELECT id, phase, text FROM events WHERE id > ? ORDER BY id", (after,))
            ]
        finally:
            connection.close()


class Round:
    """One deploy on a rack, struck at each point in turn and started again each time."""

    def __init__(
        self,
        project: Project,
        say: Callable[[str], None],
        before: Callable[[Point, Child], None] | None = None,
    ) -> None:
        self.project = project
        self.say = say
        self.before = before
        self.record = Record()

    def play(self, points: Iterable[Point]) -> Record:
        """Kill at every point, then let a deploy end.

        A phase that no point hit is killed at its first line of progress, in a campaign of its own.
        """
        over = self._campaign(deque(points))
        for _ in range(2):
            if spared := self.record.spared():
                if not over:
                    self._finish()
                over = self._campaign(deque(Point(phase, event=1) for phase in spared))
        self._finish()
        return self.record

    def _campaign(self, points: deque[Point]) -> bool:
        """Kill at the points, in order, until none is left or the campaign has ended; return whether it has ended."""
        while points:
            child, watch = self.project.start("deploy"), Watch(self.project)
            try:
                point = self._wait(child, watch, points)
                if point is None:
                    self.record.missed += points
                    return True
                self._strike(child, watch, point)
            finally:
                child.kill()
                child.communicate()
        return False

    def _wait(self, child: Child, watch: Watch, points: deque[Point]) -> Point | None:
        """Return the point that is due, without points of phases that are over; None when the deploy ended first."""
        began: dict[str, float] = {}
        deadline = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            ended = child.poll() is not None
            seen = watch.look()
            now = under_way(seen)
            began.setdefault(now, time.monotonic())
            while points and is_past(points[0].phase, now):
                self.record.missed.append(points.popleft())
            if points and points[0].phase == now and has_come(points[0], seen, time.monotonic() - began[now]):
                return points.popleft()
            if ended:
                return None
            time.sleep(POLL_S)
        raise TimeoutError(f"{points[0] if points else 'the end'} never came: {self.project.progress()[-3000:]}")

    def _strike(self, child: Child, watch: Watch, point: Point) -> None:
        if self.before:
            self.before(point, child)
        over, at = child.poll() is not None, time.monotonic()
        child.send_signal(point.number)
        child.communicate(timeout=60)
        landed = "" if over else under_way(watch.look())
        self.record.strikes.append(Strike(point, landed, child.returncode, time.monotonic() - at))
        self.say(f"{point}: {'it was over already' if over else f'landed in {landed}'}")

    def _finish(self) -> None:
        code, document = self.project.json("deploy")
        self.record.code = code
        self.record.nodes = {row["name"]: row["state"] for row in document.get("nodes", [])}
        self.say(f"deploy ends with {code}: {self.record.nodes}")


def has_come(point: Point, seen: Sequence[Seen], elapsed_s: float) -> bool:
    """Whether it is time to strike, ``elapsed_s`` after the phase of the point began."""
    return count_in(seen, point.phase) >= point.event if point.event else elapsed_s >= point.delay_s


def main() -> int:
    """Play rounds on racks of their own; returns 1 when anything did not hold in one of them."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1, help="racks that are deployed and struck, one after the other")
    parser.add_argument(
        "--seed",
        type=int,
        default=None,
        help="seed of the first round (each next one: one more); default: drawn, and said",
    )
    parser.add_argument("--points", type=int, default=3, help="kills in each phase")
    parser.add_argument(
        "--workers",
        type=int,
        default=0,
        help="deploy with so many workers on a real PostgreSQL, each in a network namespace; kill these and the "
        "database, and pull cables",
    )
    parser.add_argument("--nodes", type=int, default=NODES, help="nodes of the rack, with --workers: 2 to 32")
    parser.add_argument("--every", type=float, default=20.0, help="a worker is killed so often, s, with --workers")
    parser.add_argument(
        "--partition", type=float, default=60.0, help="how long a cable is out, s, with --workers: beyond a lease"
    )
    wanted = parser.parse_args()
    if reason := cannot_run():
        say(f"chaos: {reason}")
        return 2
    seed = random.SystemRandom().randrange(10**6) if wanted.seed is None else wanted.seed
    with tempfile.TemporaryDirectory(prefix="rackready-chaos-") as folder, held_image(Path(folder) / "image"):
        seeds = range(seed, seed + wanted.rounds)
        if wanted.workers:
            found = [worker_round.play(Path(folder), one, wanted, say, told) for one in seeds]
        else:
            found = [_round(Path(folder), one, wanted.points) for one in seeds]
    return 1 if any(found) else 0


def _round(folder: Path, seed: int, each: int) -> list[str]:
    """Play one round and say what came of it. Returns what did not hold."""
    say(f"chaos: seed {seed}, {each} points a phase (again: make chaos SEED={seed} ARGS='--points {each}')")
    project = Project(folder / f"seed-{seed}")
    try:
        code, text = project.run("sim", "up")
        if code:
            return told(seed, [f"the simulated rack did not come up: {text}{project.progress()}"])
        record = Round(project, say).play(draw(seed, dict.fromkeys(DEPLOY, each)))
        say(f"chaos: kills by phase: {dict(record.hits())}; missed: {'; '.join(map(str, record.missed)) or 'none'}")
        wrong = [f"the last deploy ended with {record.code}"] * bool(record.code) + [
            f"{phase} was never hit" for phase in record.spared()
        ]
        return told(seed, wrong + aftermath.problems(project))
    finally:
        project.close()


def told(seed: int, wrong: list[str]) -> list[str]:
    for text in wrong:
        say(f"chaos: seed {seed}: {text}")
    say(f"chaos: seed {seed}: {f'{len(wrong)} things do not hold' if wrong else 'everything holds'}")
    return wrong


def say(text: str) -> None:
    """Print a line at once: a round takes minutes."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

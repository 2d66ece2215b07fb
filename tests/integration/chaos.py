"""Killing the controller at points drawn from a seed: one deploy on a fresh simulated rack, killed again and again, must still end well.

``python -m tests.integration.chaos --rounds N --seed S`` (``make chaos``) plays rounds; tests/integration/test_kill.py plays one
with a fixed seed. Each kill is printed, and the seed alone draws the same points again.
"""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rackready.campaign.request import DEPLOY
from tests.integration.project import Project

POLL_S = 0.02
WITHIN_S = 600.0
"""Longest wait for one point."""

LENGTHS_S: Mapping[str, float] = {
    "provision": 10.0,
    "install": 60.0,
    "fabric": 25.0,
    "validate": 25.0,
    "optimize": 15.0,
    "revalidate": 20.0,
    "certify": 1.0,
    "handover": 15.0,
}
"""Length of each phase on a fresh simulated rack, in seconds: measured on 2 cores with nothing else to do."""

EVENTS: Mapping[str, int] = {"provision": 12, "install": 60, "fabric": 20, "validate": 20, "optimize": 12, "revalidate": 20, "certify": 4, "handover": 12}
"""Lines of progress in each phase of the same deploy."""


@dataclass(frozen=True, slots=True)
class Point:
    """When to strike: at the ``event``-th line of progress of a phase, or ``delay_s`` after the phase begins (``event`` 0)."""

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
    """One blow: the point, the phase that was under way ("" when the deploy was over), how the process ended and after how many seconds."""

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
        return Counter(strike.landed for strike in self.strikes if strike.landed and strike.point.number == signal.SIGKILL)

    def spared(self) -> list[str]:
        """Return the phases that were never hit, in order."""
        return [phase for phase in DEPLOY if not self.hits()[phase]]


def draw(seed: int, counts: Mapping[str, int], *, lengths: Mapping[str, float] = LENGTHS_S, events: Mapping[str, int] = EVENTS) -> list[Point]:
    """Return points in the order of phases, ``counts[phase]`` each. The first of a phase comes early, so that it surely lands there.

    A killed phase begins anew with less left to do: later points of a phase are drawn from a length that shrinks to half each time.
    """
    dice = random.Random(seed)  # noqa: S311 - repeatable, not secret
    out = []
    for phase in DEPLOY:
        for number in range(counts.get(phase, 0)):
            share = 0.5**number
            if number == 0:
                out.append(Point(phase, event=dice.randint(1, max(1, events[phase] // 4))))
            elif dice.random() < 0.5:
                out.append(Point(phase, event=dice.randint(1, max(1, int(events[phase] * share)))))
            else:
                out.append(Point(phase, delay_s=round(dice.uniform(0, lengths[phase] * share), 2)))
    return out


def under_way(seen: Sequence[Seen]) -> str:
    """Return the phase that began last, "" before the first."""
    return next((event.phase for event in reversed(seen) if event.text == "begins"), "")


def count_in(seen: Sequence[Seen], phase: str) -> int:
    """Return how many lines of progress came since a phase began (lines of measurements carry another phase's name)."""
    begun = next((index for index, event in enumerate(seen) if event.phase == phase and event.text == "begins"), len(seen))
    return len(seen) - begun


def is_past(phase: str, now: str) -> bool:
    """Whether a campaign at the phase ``now`` will not come to ``phase`` any more."""
    return bool(now) and DEPLOY.index(now) > DEPLOY.index(phase)


class Watch:
    """Reads the ledger's progress as it comes, beside the controller that writes it."""

    def __init__(self, project: Project) -> None:
        self._path = project.paths.database
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
            return [Seen(*row) for row in connection.execute("SELECT id, phase, text FROM events WHERE id > ? ORDER BY id", (after,))]
        finally:
            connection.close()


class Round:
    """One deploy on a rack, struck at each point in turn and started again each time."""

    def __init__(self, project: Project, say: Callable[[str], None], before: Callable[[Point, subprocess.Popen[str]], None] | None = None) -> None:
        self.project = project
        self.say = say
        self.before = before
        self.record = Record()

    def play(self, points: Iterable[Point]) -> Record:
        """Strike at every point; a phase that was spared is hit at its first word in a campaign of its own; then let a deploy end."""
        self._campaign(deque(points))
        for _ in range(2):
            if spared := self.record.spared():
                self._finish()
                self._campaign(deque(Point(phase, event=1) for phase in spared))
        self._finish()
        return self.record

    def _campaign(self, points: deque[Point]) -> None:
        """Strike at the points, in order, until they are used up or the campaign has come to its end."""
        while points:
            child, watch = self.project.start("deploy"), Watch(self.project)
            try:
                point = self._wait(child, watch, points)
                if point is None:
                    break
                self._strike(child, watch, point)
            finally:
                child.kill()
                child.communicate()
        self.record.missed += points

    def _wait(self, child: subprocess.Popen[str], watch: Watch, points: deque[Point]) -> Point | None:
        """Return the point that has come; points whose phase is over are left out. None when the deploy ended before."""
        began: dict[str, float] = {}
        deadline = time.monotonic() + WITHIN_S
        while points and time.monotonic() < deadline:
            ended = child.poll() is not None
            seen = watch.look()
            now = under_way(seen)
            began.setdefault(now, time.monotonic())
            while points and is_past(points[0].phase, now):
                self.record.missed.append(points.popleft())
            if points and points[0].phase == now and _has_come(points[0], seen, began[now]):
                return points.popleft()
            if ended:
                return None
            time.sleep(POLL_S)
        if points:
            raise TimeoutError(f"{points[0]} never came: {self.project.progress()[-3000:]}")
        return None

    def _strike(self, child: subprocess.Popen[str], watch: Watch, point: Point) -> None:
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


def _has_come(point: Point, seen: Sequence[Seen], begun: float) -> bool:
    if point.event:
        return count_in(seen, point.phase) >= point.event
    return time.monotonic() - begun >= point.delay_s


def interrupted(points: list[Point], phase: str) -> list[Point]:
    """Return the points with the last one of a phase made a Ctrl-C."""
    last = max(index for index, point in enumerate(points) if point.phase == phase)
    return [replace(point, number=signal.SIGINT) if index == last else point for index, point in enumerate(points)]

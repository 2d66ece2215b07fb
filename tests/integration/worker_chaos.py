"""Kill workers, restart the database and pull cables in one deploy with several workers on a real PostgreSQL.

``python -m tests.integration.chaos --workers N`` (``make chaos WORKERS=N``) plays it. A killed worker is started again
with its name, as systemd would. A deploy that stops, because the database went, is started again.

With ``nets`` each worker, and the database, is a machine of its own: a network namespace, and a folder of state.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rackready.drivers.marked_processes import claim_mark, end_all, marked, project_mark
from rackready.ledger.store import Ledger
from tests.forked import Child
from tests.integration.project import Project
from tests.integration.worker_nets import CONTROLLER, DATABASE, Nets, is_dead
from tests.postgres import PostgresServer, name_of

PHASES = ("install", "validate", "optimize", "revalidate")
"""Phases that go to workers here."""
LEASE_S = 20
PARTITION_S = 60.0
WITHIN_S = 3000.0
"""Longest wait for the end of a deploy."""
DELAYS_S = {"install": 20.0, "validate": 6.0, "optimize": 4.0, "revalidate": 60.0}
"""Latest strike after a batch of the phase was taken, s: well within the phase on a new rack with 2 cores (chaos)."""
RUNS = 8
"""Most deploys of a round: a restart of the database, or a cut, ends one."""
_ENDS_S = 90.0
"""How long a controller that is cut off may take to stop."""
_BACK_S = 60.0
"""How long a worker may take to say that the database answers again."""
_MOUNTED = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
_RUNNING = (
    "SELECT work.phase, work.nodes, claims.token, claims.worker FROM claims JOIN work ON work.id = claims.work "
    "WHERE claims.ended IS NULL AND claims.until > extract(epoch FROM clock_timestamp()) ORDER BY token"
)


@dataclass(frozen=True, slots=True)
class Blow:
    """A strike: in which phase, how long after a batch of it was taken, and at what.

    ``worker``: its main process is killed. ``machine``: everything that works under its claim, too. ``database``: the
    server is killed, and started again. ``cut``: a worker loses the database alone. ``apart``: a worker loses the
    nodes, too. ``controller``: it loses the database.
    """

    phase: str
    delay_s: float
    at: str

    def __str__(self) -> str:
        """Say it as a person would."""
        return f"{self.at} in {self.phase}, {self.delay_s:.1f} s after a batch was taken"


@dataclass(frozen=True, slots=True)
class Running:
    """A batch at work: its phase and nodes, the claim, who has it."""

    phase: str
    nodes: tuple[str, ...]
    token: int
    worker: str


@dataclass
class Cut:
    """A worker whose cable is out: since when, with which claim, and whether its work was seen to end in time."""

    name: str
    token: int
    at: float
    looked: bool = False


@dataclass
class Struck:
    """What happened in a round."""

    landed: list[Blow] = field(default_factory=list)
    missed: list[Blow] = field(default_factory=list)
    kills: list[str] = field(default_factory=list)
    """Kills by the clock: the worker, how, and what it did."""
    wrong: list[str] = field(default_factory=list)
    code: int = -1


def draw(seed: int, *, cuts: bool = False) -> list[Blow]:
    """Return the blows of a seed, in the order of phases: at least a worker, a machine and the database.

    ``cuts``: the database and cables instead; workers are killed by the clock.
    """
    dice = random.Random(seed)  # noqa: S311 - repeatable, not secret
    phases = ["install", "install", "validate", "optimize", "revalidate"]
    if cuts:
        phases, targets = ["install", "install", "revalidate", "revalidate"], ["cut", "database", "controller", "apart"]
    else:
        targets = ["machine", "database", "worker", "worker", dice.choice(("worker", "machine"))]
    return [
        Blow(phase, round(dice.uniform(0, DELAYS_S[phase]), 1), at) for phase, at in zip(phases, targets, strict=True)
    ]


class WorkerRound:
    """One deploy with workers. Use it as a context: it ends its workers and its database.

    ``every_s``: kill one worker at random so often; 0: only as the blows say. ``partition_s``: how long a cable is out.
    """

    def __init__(  # noqa: PLR0913 - what a round is made of
        self,
        project: Project,
        count: int,
        say: Callable[[str], None],
        seed: int,
        *,
        nets: Nets | None = None,
        every_s: float = 0.0,
        partition_s: float = PARTITION_S,
    ) -> None:
        self.project, self.say, self.nets = project, say, nets
        self.every_s, self.partition_s = every_s, partition_s
        self.server = (
            PostgresServer.begin(nets.inside(DATABASE), nets.addresses[DATABASE]) if nets else PostgresServer.begin()
        )
        self.struck = Struck()
        self._names = names_of(count)
        self._workers: dict[str, Child] = {}
        self._dice = random.Random(seed)  # noqa: S311 - repeatable, not secret
        self._cuts: list[Cut] = []
        self._cut_off_at = 0.0
        """When the controller's cable was pulled, 0: it is in."""
        self._next_kill = 0.0
        raw = project.root / "outputs"
        use = {"phases": list(PHASES), "lease_s": LEASE_S, "wait_s": 600, "attempts": 20}
        way = self.server.over_tcp() if nets else {}
        self.database = self.server.database(project.root, project.env, raw_outputs=str(raw), workers=use, **way)

    def close(self) -> None:
        """End the workers and the server."""
        for child in self._workers.values():
            if child.poll() is None:
                child.terminate()
        for child in self._workers.values():
            try:
                child.wait(timeout=60)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self.server.close()

    def stop_workers(self) -> None:
        """Stop the workers in order."""
        for child in self._workers.values():
            child.terminate()
        for child in self._workers.values():
            child.wait(timeout=120)

    def told(self, name: str) -> str:
        """Return what a worker said, all its processes."""
        return self._out(name).read_text(encoding="utf-8")

    def play(self, blows: Iterable[Blow]) -> Struck:
        """Deploy, strike at each point that comes, and start again what stopped, until a deploy ends well."""
        for name in self._names:
            self._start(name)
        left = deque(blows)
        for _ in range(RUNS):
            child = self.project.start("deploy")
            restarted = self._beside(child, left)
            text, _ = child.communicate(timeout=120)
            self.struck.code = child.returncode
            self.say(f"deploy ends with {child.returncode}{': it had lost the database' if restarted else ''}")
            if child.returncode == 0:
                self.say(f"nodes: {self._states()}")
                break
            if not restarted:
                self.say(text[-2000:])
                break
        while self._cuts:
            self._mend()
            time.sleep(0.2)
        self.struck.missed += left
        return self.struck

    def _states(self) -> dict[str, str]:
        with Ledger.read_only(self.database) as ledger:
            return {row.name: row.state.value for row in ledger.states()}

    def _beside(self, child: Child, left: deque[Blow]) -> bool:
        """Strike while a deploy runs. Return whether it lost the database by that."""
        deadline, lost = time.monotonic() + WITHIN_S, False
        taken: dict[str, float] = {}
        while child.poll() is None or self._cut_off_at:
            now = time.monotonic()
            if now > deadline:
                child.send_signal(signal.SIGINT)
                raise TimeoutError(self.project.progress()[-3000:])
            running = self._running()
            self._kill_by_the_clock(running, now)
            self._mend()
            if self._cut_off_at:
                self._reconnect(child, now)
            elif left and not lost:
                lost = self._look(running, left, taken)
            time.sleep(0.2)
        return lost

    def _look(self, running: list[Running], left: deque[Blow], taken: dict[str, float]) -> bool:
        """Strike if it is time. Return whether the controller loses the database by that."""
        now = time.monotonic()
        for row in running:
            taken.setdefault(row.phase, now)
        while left and any(PHASES.index(phase) > PHASES.index(left[0].phase) for phase in taken):
            self.struck.missed.append(left.popleft())
        if not left or left[0].phase not in taken or now < taken[left[0].phase] + left[0].delay_s:
            return False
        apart = {cut.name for cut in self._cuts}
        due = [row for row in running if row.phase == left[0].phase and row.worker not in apart]
        if not due:
            return False
        blow = left.popleft()
        self.struck.landed.append(blow)
        self._strike(blow, self._dice.choice(due))
        self.say(f"{blow}: struck")
        taken.pop(blow.phase)
        return blow.at in {"database", "controller"}

    def _strike(self, blow: Blow, row: Running) -> None:
        if blow.at == "database":
            self.server.kill()
            time.sleep(1)
            self.server.start()
        elif blow.at in {"worker", "machine"}:
            self._kill(row.worker, row, whole=blow.at == "machine")
        elif blow.at == "controller":
            self._machines.cut(CONTROLLER)
            self._cut_off_at = time.monotonic()
        else:
            self._machines.cut(row.worker, whole=blow.at == "apart")
            self._cuts.append(Cut(row.worker, row.token, time.monotonic()))
            self.say(f"{row.worker} is cut off with {row.phase} of {', '.join(row.nodes)} (token {row.token})")

    def _reconnect(self, child: Child, now: float) -> None:
        """Put the controller's cable back when the partition is over; by then it must have stopped by itself."""
        if now < self._cut_off_at + max(self.partition_s, _ENDS_S if child.poll() is None else 0.0):
            return
        if child.poll() is None:
            self.struck.wrong.append(f"the controller still ran {now - self._cut_off_at:.0f} s after it was cut off")
        self._machines.heal(CONTROLLER)
        self._cut_off_at = 0.0
        self.say("the controller's cable is back")

    def _mend(self) -> None:
        """Look after workers that are cut off: their work ends before the lease, and they write nothing later."""
        for cut in list(self._cuts):
            away = time.monotonic() - cut.at
            if away > LEASE_S and not cut.looked:
                cut.looked = True
                still = self._still_at_work(cut.name)
                self.struck.wrong += [f"{cut.name}, cut off for {away:.0f} s, still runs {text}" for text in still]
            if away > self.partition_s:
                self._cuts.remove(cut)
                self._heal(cut)

    def _heal(self, cut: Cut) -> None:
        """Put a worker's cables back. Its claim must be over, and the worker must take part again."""
        held = {row.token for row in self._running()}
        said = len(self.told(cut.name))
        self._machines.heal(cut.name)
        deadline = time.monotonic() + _BACK_S
        while '"answers again"' not in self.told(cut.name)[said:] and time.monotonic() < deadline:
            time.sleep(0.2)
        if time.monotonic() > deadline:
            self.struck.wrong.append(f"{cut.name} did not come back: {self.told(cut.name)[said:][-500:]}")
        ends = dict(self.server.sql("SELECT token, how FROM claims", name_of(self.database)))
        how = ends[cut.token]
        if cut.token in held or how != "expired":
            self.struck.wrong.append(f"claim {cut.token} of {cut.name} ended as {how or 'held'}, not expired")
        self.say(f"{cut.name} is back: its claim {cut.token} is {how}")

    def _still_at_work(self, name: str) -> list[str]:
        """Return the programs on a machine that is cut off, but the worker and idle SSH connections."""
        out = []
        for pid in self._machines.processes(name):
            text = Path(f"/proc/{pid}/cmdline")
            if pid == self._workers[name].pid or is_dead(pid) or not text.exists():
                continue
            command = text.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
            if not command.startswith("ssh: "):
                out.append(command[:120])
        return out

    def _kill_by_the_clock(self, running: list[Running], now: float) -> None:
        """Kill one worker at random if it is time; the first time follows the first batch."""
        if not self.every_s or not (running or self._next_kill):
            return
        self._next_kill = self._next_kill or now + self.every_s
        if now < self._next_kill:
            return
        self._next_kill = now + self.every_s
        apart = {cut.name for cut in self._cuts}
        name = self._dice.choice([name for name in self._names if name not in apart])
        whole = self._dice.random() < 0.5
        row = next((row for row in running if row.worker == name), None)
        did = f"{row.phase} of {', '.join(row.nodes)} (token {row.token})" if row else "nothing"
        self.struck.kills.append(f"{'machine' if whole else 'worker'} {name}: {did}")
        self._kill(name, row, whole=whole)

    def _running(self) -> list[Running]:
        name = name_of(self.database)
        if self.server.sql("SELECT to_regclass('claims')", name)[0][0] is None:
            return []
        return [
            Running(phase, tuple(nodes), token, worker)
            for phase, nodes, token, worker in self.server.sql(_RUNNING, name)
        ]

    def _kill(self, name: str, row: Running | None, *, whole: bool) -> None:
        child = self._workers[name]
        child.kill()
        if whole and self.nets is not None:
            self.nets.kill_all(name)
        elif whole and row is not None:
            mark = claim_mark(project_mark(self.database.file), row.token)
            end_all(lambda: marked(mark))
        child.wait()
        did = f"had {row.phase} of {', '.join(row.nodes)} (token {row.token})" if row else "did nothing"
        self.say(f"{name} is killed{' with its machine' if whole else ''}: it {did}")
        self._start(name)

    @property
    def _machines(self) -> Nets:
        assert self.nets is not None, "cables need machines"
        return self.nets

    def _out(self, name: str) -> Path:
        return self.project.root / f"{name}.out"

    def _start(self, name: str) -> None:
        """Start a worker; on a machine of its own, with state of its own."""
        begin: list[str] = []
        if self.nets is not None:
            own = self.project.root / "machines" / name
            for folder in (own, self.project.paths.state):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            begin = [*self.nets.inside(name), "sh", "-c", _MOUNTED, "sh", str(own), str(self.project.paths.state)]
        self._workers[name] = self.project.start_worker(name, self._out(name), begin)


def names_of(count: int) -> list[str]:
    """Return the names of the workers."""
    return [f"w{number}" for number in range(1, count + 1)]

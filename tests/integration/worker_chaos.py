"""Kill workers, and restart the database, at seeded points of one deploy with several workers on a real PostgreSQL.

``python -m tests.integration.chaos --workers N`` (``make chaos WORKERS=N``) plays it. A killed worker is started again
with its name, as systemd would. A deploy that stops, because the database went, is started again.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rackready.drivers.marks import claim_mark, end_all, marked, project_mark
from rackready.evidence.raw_outputs import EMPTY, RawOutputs
from rackready.evidence.store import EvidenceStore
from rackready.ledger.store import Ledger
from rackready.ledger.work import open_batches
from rackready.ledger.work_tables import RUNNING
from tests.integration.project import Project
from tests.postgres import PostgresServer, name_of

PHASES = ("install", "validate", "optimize", "revalidate")
"""Phases that go to workers here."""
LEASE_S = 20
WITHIN_S = 1500.0
"""Longest wait for the end of a deploy."""
DELAYS_S = {"install": 20.0, "validate": 6.0, "optimize": 4.0, "revalidate": 60.0}
"""Latest strike after a batch of the phase was taken, s: well within the phase on a new rack with 2 cores (chaos)."""
RUNS = 6
"""Most deploys of a round: a restart of the database ends one."""


@dataclass(frozen=True, slots=True)
class Blow:
    """A strike: in which phase, how long after a batch of it was taken, and at what.

    ``worker``: its main process is killed. ``machine``: everything that works under its claim, too. ``database``: the
    server is stopped as by a crash, and started again.
    """

    phase: str
    delay_s: float
    at: str

    def __str__(self) -> str:
        """Say it as a person would."""
        return f"{self.at} in {self.phase}, {self.delay_s:.1f} s after a batch was taken"


@dataclass
class Struck:
    """What happened in a round."""

    landed: list[Blow] = field(default_factory=list)
    missed: list[Blow] = field(default_factory=list)
    code: int = -1


def draw(seed: int) -> list[Blow]:
    """Return the blows of a seed, in the order of phases: at least a worker, a machine and the database."""
    dice = random.Random(seed)  # noqa: S311 - repeatable, not secret
    targets = ["machine", "database", "worker", dice.choice(("worker", "machine"))]
    out = [
        Blow(phase, round(dice.uniform(0, DELAYS_S[phase]), 1), at)
        for phase, at in zip(("install", "install", "optimize", "revalidate"), targets, strict=True)
    ]
    return [*out[:2], Blow("validate", round(dice.uniform(0, DELAYS_S["validate"]), 1), "worker"), *out[2:]]


class WorkerRound:
    """One deploy with workers. Use it as a context: it ends its workers and its database."""

    def __init__(self, project: Project, count: int, say: Callable[[str], None], seed: int) -> None:
        self.project, self.say = project, say
        self.server = PostgresServer.begin()
        self.struck = Struck()
        self._names = [f"w{number}" for number in range(1, count + 1)]
        self._workers: dict[str, subprocess.Popen[str]] = {}
        self._dice = random.Random(seed)  # noqa: S311 - repeatable, not secret
        raw = project.root / "outputs"
        use = {"phases": list(PHASES), "lease_s": LEASE_S, "wait_s": 600, "attempts": 10}
        self.database = self.server.database(project.root, project.env, raw_outputs=str(raw), workers=use)

    def close(self) -> None:
        """End the workers and the server."""
        for child in self._workers.values():
            if child.poll() is None:
                child.terminate()
        for child in self._workers.values():
            try:
                child.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                child.kill()
                child.communicate()
        self.server.close()

    def stop_workers(self) -> None:
        """Stop the workers in order."""
        for child in self._workers.values():
            child.terminate()
        for child in self._workers.values():
            child.communicate(timeout=120)

    def play(self, blows: Sequence[Blow]) -> Struck:
        """Deploy, strike at each point that comes, and start again what stopped, until a deploy ends well."""
        for name in self._names:
            self._start(name)
        left = list(blows)
        for _ in range(RUNS):
            child = self.project.start("deploy")
            restarted = self._beside(child, left)
            text, _ = child.communicate(timeout=120)
            self.struck.code = child.returncode
            self.say(f"deploy ends with {child.returncode}{': the database was restarted' if restarted else ''}")
            if child.returncode == 0:
                self.say(f"nodes: {self._states()}")
                break
            if not restarted:
                self.say(text[-2000:])
                break
        self.struck.missed += left
        return self.struck

    def _states(self) -> dict[str, str]:
        with Ledger.read_only(self.database) as ledger:
            return {row.name: row.state.value for row in ledger.states()}

    def _beside(self, child: subprocess.Popen[str], left: list[Blow]) -> bool:
        """Strike while a deploy runs. Return whether the database was restarted."""
        deadline, restarted = time.monotonic() + WITHIN_S, False
        taken: dict[str, float] = {}
        while child.poll() is None:
            if time.monotonic() > deadline:
                child.send_signal(signal.SIGINT)
                raise TimeoutError(self.project.progress()[-3000:])
            if left and not restarted:
                restarted = self._look(left, taken)
            time.sleep(0.2)
        return restarted

    def _look(self, left: list[Blow], taken: dict[str, float]) -> bool:
        """Strike if it is time. Return whether the database was restarted."""
        running = self._running()
        now = time.monotonic()
        for row in running:
            taken.setdefault(row.phase, now)
        while left and any(PHASES.index(phase) > PHASES.index(left[0].phase) for phase in taken):
            self.struck.missed.append(left.pop(0))
        if not left or left[0].phase not in taken or now < taken[left[0].phase] + left[0].delay_s:
            return False
        due = [row for row in running if row.phase == left[0].phase]
        if not due:
            return False
        blow = left.pop(0)
        self.struck.landed.append(blow)
        if blow.at == "database":
            self.server.stop()
            time.sleep(1)
            self.server.start()
        else:
            self._kill(self._dice.choice(due), whole=blow.at == "machine")
        self.say(f"{blow}: struck")
        taken.pop(blow.phase)
        return blow.at == "database"

    def _running(self) -> list[Any]:
        if not Ledger.exists(self.database):
            return []
        with Ledger.read_only(self.database) as ledger:
            return [row for row in open_batches(ledger) if row.state == RUNNING and row.worker is not None]

    def _kill(self, row: Any, *, whole: bool) -> None:  # noqa: ANN401 - a row
        child = self._workers[row.worker]
        child.kill()
        if whole:
            mark = claim_mark(project_mark(self.database.file), row.token)
            end_all(lambda: marked(mark))
        child.communicate()
        self.say(f"{row.worker} had {row.phase} of {', '.join(row.nodes)} (token {row.token})")
        self._start(row.worker)

    def _start(self, name: str) -> None:
        self._workers[name] = self.project.start("worker", "--name", name)


def problems(made: WorkerRound) -> list[str]:
    """Return what of the queue and of the evidence does not hold at the end. Workers are stopped."""
    sql = made.server.sql
    name = name_of(made.database)
    out = [f"claim {row[0]} is still open" for row in sql("SELECT token FROM claims WHERE ended IS NULL", name)]
    states = "SELECT id, state FROM work WHERE state NOT IN ('done', 'withdrawn', 'lost')"
    out += [f"batch {row[0]} is {row[1]}" for row in sql(states, name)]
    twice = "SELECT node, operation, desired, count(*) FROM operations WHERE status = 'intent' GROUP BY 1, 2, 3"
    out += [f"open intent: {row[0]} {row[1]}" for row in sql(twice, name)]
    doers = {row[0] for row in sql("SELECT DISTINCT worker FROM claims WHERE how = 'done'", name)}
    out += [] if len(doers) > 1 else [f"only {', '.join(doers) or 'nobody'} finished a batch"]
    return out + lost_evidence(made.project)


def lost_evidence(project: Project) -> list[str]:
    """Return the outputs on record that are not as they were written."""
    with Ledger.read_only(project.paths.database) as ledger:
        store = EvidenceStore.read_only(ledger, project.paths.raw)
        outputs = RawOutputs(ledger, project.paths.raw)
        records = store.records()
        raws = [raw for record in records for raw in record.raw]
        digests = {raw.stdout_sha256 for raw in raws} | {raw.stderr_sha256 for raw in raws}
        out = [] if records else ["no evidence is on record"]
        faults = ((digest, outputs.fault(digest)) for digest in sorted(digests - {EMPTY}))
        return out + [f"output {digest} is lost: {why}" for digest, why in faults if why]

"""A Slurm cluster that answers in the captured formats, and a site whose nodes are in production on it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from rackready.campaign.nightly import leftovers, night
from rackready.campaign.nightly.marks import TAKEN
from rackready.campaign.nightly.night import Night, NightOrder, Shift
from rackready.drivers.scheduler import registry
from rackready.drivers.scheduler.places import RELEASE
from rackready.drivers.scheduler.slurm import SlurmAdapter
from rackready.evidence.store import EvidenceStore, new_id
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome, Verdict
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.unit.handover.evidence import record

ROOT = Path(__file__).resolve().parents[3]
FIXTURES = ROOT / "tests/fixtures/captured/slurm"
NODES = ("node01", "node02", "node03", "node04")
GEMM = "node/gpu/performance/gemm"
NOW = datetime(2026, 12, 1, 2, 0, tzinfo=UTC).timestamp()
MINE = "rackready: nightly-1: measured while idle"
HELD = (
    "ReservationName={} StartTime={} EndTime=2027-11-28T01:00:00 Duration=365-00:00:00 Nodes={} NodeCnt=1 "
    "CoreCnt=224 Features=(null) PartitionName=(null) Flags={} TRES=cpu=224 Users={} Groups=(null) Accounts=(null) "
    "Licenses=(null) State={} BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)"
)
"""A line of `scontrol show reservation --oneliner`, as tests/gates/test_launchers.py has it."""


@dataclass
class Cluster:
    """slurmctld. ``state``, ``jobs``: by node; ``dies_after``: number of the command after which the run is killed."""

    reason: dict[str, str] = field(default_factory=dict)
    flags: dict[str, str] = field(default_factory=dict)
    jobs: dict[str, str] = field(default_factory=dict)
    reservations: list[str] = field(default_factory=list)
    on_drain: Callable[[str], None] = lambda _node: None
    silent: bool = False
    said: list[str] = field(default_factory=list)

    def run(self, command: str) -> tuple[int, str, str]:
        if self.silent:
            return 1, "", "slurm_load_node error: Unable to contact slurm controller (connect failure)"
        words = shlex.split(command)
        if command.startswith("date"):
            return 0, "2026-12-01T02:00:00\n", ""
        if command.startswith("scontrol show node"):
            return 0, "\n".join(self._line(node) for node in words[3].split(",")), ""
        if command.startswith("scontrol show reservation"):
            return 0, "\n".join(self.reservations) or "No reservations in the system\n", ""
        if command.startswith("squeue"):
            return 0, self._squeue(command), ""
        return self.change(command)

    def _line(self, node: str) -> str:
        text = (FIXTURES / "22.05.8_scontrol_show_node_resumed.txt").read_text(encoding="utf-8").strip()
        base = "MIXED" if node in self.jobs else "IDLE"
        state = base + ("+DRAIN" if node in self.reason else "") + self.flags.get(node, "")
        end = f" Reason={self.reason[node]} [root@2026-12-01T02:00:00]" if node in self.reason else ""
        return text.replace("node01", node).replace("State=IDLE", f"State={state}") + end

    def _squeue(self, command: str) -> str:
        asked = re.findall(r"--nodelist=(\S+)", command)[0].strip("'").split(",")
        placed = "%N|" in command
        lines = [(node, f"{job}|ann|gpu|RUNNING|train") for node, job in self.jobs.items() if node in asked]
        return "\n".join(f"{node}|{line}" if placed else line for node, line in lines)

    def change(self, command: str) -> tuple[int, str, str]:
        self.said.append(command)
        words = shlex.split(command)
        if command.startswith("scontrol delete"):
            name = words[2].partition("=")[2]
            self.reservations = [line for line in self.reservations if f"ReservationName={name} " not in line]
            return 0, "", ""
        node = words[2].partition("=")[2]
        if words[3] == "State=DRAIN":
            self.reason[node] = words[4].partition("=")[2]
            self.on_drain(node)
        else:
            self.reason.pop(node, None)
        return 0, "", ""


@dataclass
class World:
    """One night at a time over the site of the simulated rack."""

    root: Path
    cluster: Cluster
    gives: dict[str, Outcome] = field(default_factory=dict)
    measured: list[list[str]] = field(default_factory=list)
    during: Callable[[Sequence[str]], None] = lambda _nodes: None
    swept: list[str] = field(default_factory=list)
    dirty: str = ""
    now: float = NOW
    faulty: dict[str, str] = field(default_factory=dict)

    @property
    def paths(self) -> EnvPaths:
        return EnvPaths(self.root, "t")

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        with Ledger.open(self.paths.database) as ledger:
            yield ledger

    def states(self) -> dict[str, str]:
        with self.ledger() as ledger:
            return {row.name: row.state.value for row in ledger.states()}

    def marks(self) -> list[tuple[str, str]]:
        with self.ledger() as ledger:
            return [
                (one.node, str(one.result.get("outcome", one.status)))
                for one in ledger.entries()
                if one.operation == TAKEN
            ]

    def evidence(self, node: str, hours_ago: float, gate: str = GEMM) -> None:
        """Record a pass of a gate under load."""
        at = datetime.fromtimestamp(self.now - hours_ago * 3600, UTC)
        self.put(node, gate, Outcome.PASS, at=at)

    def put(self, node: str, gate: str, outcome: Outcome, *, campaign: str = "c", at: datetime | None = None) -> None:
        moment = at or datetime.fromtimestamp(self.now, UTC)
        made = record(gate).model_copy(
            update={
                "id": new_id(),
                "campaign": campaign,
                "target": node,
                "nodes": [node],
                "started": moment,
                "finished": moment,
                "verdict": Verdict(outcome=outcome),
            }
        )
        with self.ledger() as ledger:
            EvidenceStore.open(ledger, self.paths.raw).append(made)

    def night(
        self,
        number: int = 1,
        *,
        share: int = 100,
        hours: float = 4.0,
        nodes: Sequence[str] = NODES,
        again: bool = False,
    ) -> Night:
        order = NightOrder(nodes, "nightly", share, hours * 3600, again)
        ctx = PhaseContext("t", self.root, f"nightly-{number}")
        return Shift(ctx, order, lambda _text: None, lambda: self.faulty, lambda: self.now).run()

    def run_set(self, ctx: PhaseContext, nodes: Sequence[str], wanted: str) -> dict[str, NodeResult]:
        assert wanted == "nightly"
        self.measured.append(list(nodes))
        self.now += 600
        self.during(nodes)
        out = {}
        for node in nodes:
            outcome = self.gives.get(node, Outcome.PASS)
            self.put(node, GEMM, outcome, campaign=ctx.campaign)
            out[node] = NodeResult(outcome, "" if outcome is Outcome.PASS else f"{node} gpu2: slow")
        return out

    @contextmanager
    def connect(self, _site: object, _paths: object, _nodes: object) -> Iterator[tuple[object, object]]:
        def sweep(node: str) -> SimpleNamespace:
            self.swept.append(node)
            return SimpleNamespace(exit_code=255 if self.dirty else 0, failure=self.dirty, stderr="")

        yield SimpleNamespace(sweep=sweep), None


def made(root: Path, patch: pytest.MonkeyPatch) -> World:
    """Return a world whose four nodes are in production, and idle."""
    (root / "inventories/t").mkdir(parents=True)
    (root / "inventories/t/site.yml").write_bytes((ROOT / "inventories/sim/site.yml").read_bytes())
    world = World(root, Cluster())
    patch.setitem(
        registry.ADAPTERS, "slurm", lambda _handover, _paths: SlurmAdapter(world.cluster.run, "here", patience_s=0)
    )
    patch.setitem(
        registry.READERS, "slurm", lambda _handover, _paths: SlurmAdapter(world.cluster.run, "here", patience_s=0)
    )
    patch.setattr(night, "run_set", world.run_set)
    patch.setattr(leftovers, "connect", world.connect)

    @contextmanager
    def no_mps(*_: object) -> Iterator[None]:
        yield

    patch.setattr(leftovers, "without_mps", no_mps)
    with world.ledger() as ledger:
        for node in NODES:
            ledger.set_state(node, NodeState.READY, phase="handover", campaign="deploy-1")
            ledger.done(ledger.begin(node, RELEASE, "ab" * 32, {}).token)
    return world


class Killed(BaseException):
    """SIGKILL: nothing after it runs, so the test takes away what would."""


def kill(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Die while nodes are measured: nothing is put back."""

    def die(_nodes: Sequence[str]) -> None:
        raise Killed

    world.during = die
    with monkeypatch.context() as patch:
        patch.setattr("rackready.campaign.nightly.night.Shift._settle", lambda *_: None)
        with pytest.raises(Killed):
            world.night()
    world.during = lambda _nodes: None

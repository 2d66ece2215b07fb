"""A site whose nodes have three schedulers: two in memory, and a real list of ready nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.drivers.scheduler import registry
from rackready.drivers.scheduler.base import NotOursError, SchedulerAdapter, SchedulerError, SchedulerNode
from rackready.drivers.scheduler.file import FileAdapter
from rackready.handover import other_schedulers, run
from rackready.handover.run import run_handover
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.paths import EnvPaths
from tests.unit.design.several_sites import KUBERNETES, SLURM, document, part
from tests.unit.handover.evidence import fingerprint
from tests.unit.handover.test_production import IDLE, Cluster

HELD = SchedulerNode("", "IDLE+DRAIN", usable=False, drained=True, down=False, reason="rackready: new", by="root")


class KilledError(BaseException):
    """The controller was killed. A BaseException: nothing of ours catches it."""


@dataclass
class Both(Cluster):
    """A scheduler in memory that also releases. ``away``: it does not answer; ``dies``: nodes at which it is killed."""

    away: bool = False
    dies: set[str] = field(default_factory=set)
    asked: list[tuple[str, str]] = field(default_factory=list)

    def show(self, node: str) -> SchedulerNode:
        self.asked.append(("show", node))
        return super().show(node)

    def drain(self, node: str, reason: str) -> bool:
        self.asked.append(("drain", node))
        return super().drain(node, reason)

    def release(self, node: str) -> bool:
        if node in self.dies:
            raise KilledError
        self.asked.append(("release", node))
        if self.nodes[node].drained and not self.nodes[node].ours:
            raise NotOursError(node, "drained by others")
        self.nodes[node] = IDLE
        return True


@dataclass
class Site:
    """The site, its ledger and its schedulers."""

    ctx: PhaseContext
    ledger: Ledger
    slurm: Both
    kube: Both
    ready: Path
    played: list[list[str]] = field(default_factory=list)
    installs: dict[str, NodeResult] = field(default_factory=dict)

    def write(self, *parts: dict[str, Any]) -> None:
        """Write the site file with these parts."""
        path = self.ctx.root / "inventories/sim/site.yml"
        path.write_text(yaml.safe_dump(document(*parts)), encoding="utf-8")

    def hand_over(self, *nodes: str, check: bool = False) -> dict[str, NodeResult]:
        """Hand over nodes that are certified."""
        ctx = PhaseContext("sim", self.ctx.root, "c1", check=check) if check else self.ctx
        return run_handover(ctx, list(nodes))

    def file(self) -> FileAdapter:
        """Return the list of ready nodes."""
        return FileAdapter(self.ready)


def parts(
    ready: Path, slurm: str = "node[01-02]", kube: str = "node03", listed: str = "node04"
) -> list[dict[str, Any]]:
    """Return the parts of the site."""
    return [part(slurm, SLURM), part(kube, KUBERNETES), part(listed, {"kind": "file", "path": str(ready)})]


def made(root: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Return the site in a folder."""
    (root / "inventories/sim").mkdir(parents=True)
    slurm = Both({"node01": HELD, "node02": HELD}, strange={"node03", "node04"})
    kube = Both({"node03": HELD}, strange={"node01", "node02", "node04"})
    for kind, cluster in (("slurm", slurm), ("kubernetes", kube)):
        monkeypatch.setitem(registry.ADAPTERS, kind, lambda *_, one=cluster, kind=kind: _connected(one, kind))
        monkeypatch.setitem(registry.READERS, kind, lambda *_, one=cluster, kind=kind: _connected(one, kind))
    found = Site(
        PhaseContext("sim", root, "c1"), Ledger.open(EnvPaths(root, "sim").database), slurm, kube, root / "ready.txt"
    )
    found.write(*parts(found.ready))

    def install(ctx: PhaseContext, name: str, nodes: Sequence[str]) -> dict[str, NodeResult]:
        assert (ctx.check, name) == (True, "install.yml")
        return {node: found.installs.get(node, NodeResult(Outcome.PASS)) for node in nodes}

    def play(_ctx: PhaseContext, _name: str, nodes: Sequence[str], _variables: object) -> dict[str, NodeResult]:
        found.played.append(list(nodes))
        return {node: NodeResult(Outcome.PASS) for node in nodes}

    monkeypatch.setattr(run, "run_playbook", play)
    monkeypatch.setattr(other_schedulers, "run_playbook", install)
    monkeypatch.setattr(run, "keys_of", lambda *_: None)
    monkeypatch.setattr(
        run, "fingerprints", lambda _site, _paths, nodes: {node: fingerprint(node=node) for node in nodes}
    )
    monkeypatch.setattr(run, "_certified", lambda _keys, node, _found: (f"certificate of {node}", None))
    return found


def _connected(cluster: Both, kind: str) -> SchedulerAdapter:
    if cluster.away:
        raise SchedulerError(kind, expected="an answer", actual="none", next_step="Start it.")
    return cluster

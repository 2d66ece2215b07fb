"""The fault matrix: every fault of the simulated rack that names a gate is put into a node's hardware, and the gate is really run there.

``python -m tests.integration.fault_matrix`` (``make fault-matrix``) plays all of them on one rack and prints the table; with
``--write FILE`` the table is written as Markdown. ``--healthy N`` then has every gate judge N healthy nodes that differ in what healthy
nodes differ in: none may raise a false alarm. Faults of one gate are played together, one a node, so that the whole takes minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from rackready.design.facts import node_facts
from rackready.design.site import load_site
from rackready.gates.registry import all_gates
from rackready.sim.faults import FAULTS, Fault
from rackready.sim.rack import Rack
from tests.integration.matrix_nodes import NODES, boot, healthy_state
from tests.integration.project import Project, cannot_run, held_image

CAUGHT = frozenset({"fail", "error"})
PREPARE = ("provision", "install", "fabric")
"""What makes a node measurable; it is not handed over, so gates that load it are not refused."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One fault on one node, and what the gate must name."""

    fault: Fault
    node: str
    params: Mapping[str, Any]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the words of which one must stand in the findings: the part as people call it."""
        if "gpu" in self.params:
            return (f"{self.node} gpu{self.params['gpu']}", f"gpu{self.params['gpu']}")
        if "nic" in self.params:
            return (f"rail {self.params['nic']}", f"rail{self.params['nic']}", *_devices(self.node, int(self.params["nic"])))
        return (self.node,)


@dataclass(slots=True)
class Result:
    """What became of a trial."""

    trial: Trial
    outcome: str
    findings: list[str]
    wrong: str = ""

    @property
    def named(self) -> str:
        """Return the finding that names the part, else the first one."""
        return next((text for text in self.findings if any(word in text for word in self.trial.names)), self.findings[0] if self.findings else "")


@dataclass(slots=True)
class Table:
    """Results so far, and false alarms of healthy nodes."""

    results: list[Result] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)
    healthy: int = 0
    seconds: float = 0.0

    def wrong(self) -> list[Result]:
        """Return the trials that were not caught, or not named."""
        return [item for item in self.results if item.wrong]


def trials(wanted: Iterable[str] | None = None) -> dict[str, list[Trial]]:
    """Return gate -> trials of the faults that name it, one node after the other; all faults, or those ``wanted``."""
    chosen = set(wanted) if wanted is not None else set(FAULTS)
    out: dict[str, list[Trial]] = {}
    for place, fault in enumerate(fault for fault in FAULTS.values() if fault.caught_by and fault.name in chosen):
        params = {key: _spread(key, value, place) for key, value in fault.params.items()}
        here = out.setdefault(fault.caught_by, [])
        here.append(Trial(fault, NODES[len(here) % len(NODES)], params))
    return out


def _spread(key: str, value: Any, place: int) -> Any:  # noqa: ANN401 - a parameter is a number or a word
    """Another part each time: a gate that always blames the first would not be found out otherwise."""
    if key == "gpu":
        return place * 3 % 8
    return 1 + place * 3 % 8 if key == "nic" else value


def _devices(node: str, rail: int) -> tuple[str, ...]:
    return tuple(name for nic in node_facts(load_site("sim"), node).nics if nic.rail == rail for name in (nic.rdma_device, nic.netdev))


def rounds(here: Sequence[Trial], gate: str) -> Iterator[list[Trial]]:
    """Yield trials that may be played together: one a node; of a gate over several nodes, one at a time."""
    size = len(NODES) if gate.startswith(("node/", "bmc/")) else 1
    queue = iter(here)
    while chunk := list(islice(queue, size)):
        yield chunk


class Player:
    """Plays trials on one rack."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.rack = Rack(project.root)
        self.table = Table()

    def prepare(self) -> None:
        """Take the nodes as far as being measurable. Raises RuntimeError with what was said."""
        for phase in PREPARE:
            code, _ = self.project.run(phase)
            if code != 0:
                raise RuntimeError(f"{phase} ended with {code}: {self.project.progress()[-2000:]}")

    def play(self, gates: Mapping[str, list[Trial]]) -> None:
        """Play every trial and check that each gate passes again on the repaired nodes."""
        for gate, here in gates.items():
            for chunk in rounds(here, gate):
                self._round(gate, chunk)
            self._repaired(gate)

    def _round(self, gate: str, chunk: Sequence[Trial]) -> None:
        if all_gates()[gate].since_last_pass:  # it judges what is new since a pass, so there must be one
            self._run(gate, [trial.node for trial in chunk])
        for trial in chunk:
            self.rack.inject(trial.node, trial.fault.name, **trial.params)
        at_boot = [trial.node for trial in chunk if trial.fault.at_boot]
        boot(self.project, at_boot)
        try:
            found = self._run(gate, [trial.node for trial in chunk])
        finally:
            for trial in chunk:
                self.rack.clear(trial.node)
            boot(self.project, at_boot)
        for trial in chunk:
            self._judge(trial, found.get(trial.node, {}))

    def _judge(self, trial: Trial, said: Mapping[str, Any]) -> None:
        result = Result(trial, str(said.get("outcome", "not_run")), list(said.get("findings", [])) or [str(said.get("message", ""))])
        if result.outcome not in CAUGHT:
            result.wrong = f"not caught: {result.outcome}"
        elif not any(word in text for text in result.findings for word in trial.names):
            result.wrong = f"the part is not named: expected one of {', '.join(trial.names)}"
        self.table.results.append(result)
        say(f"{'WRONG ' if result.wrong else ''}{trial.fault.name} on {trial.node}: {result.outcome}: {result.named} {result.wrong}")

    def _repaired(self, gate: str) -> None:
        for node, said in self._run(gate, NODES).items():
            if said["outcome"] not in {"pass", "skip"}:
                self.table.alarms.append(f"{node}, repaired: {gate}: {said['outcome']}: {said['message']}")

    def _run(self, gate: str, nodes: Sequence[str]) -> dict[str, Any]:
        """Run one gate. A gate over several nodes needs all of them; what it says of each comes back."""
        members = NODES if not gate.startswith(("node/", "bmc/")) else nodes
        code, text = self.project.run("gate", "run", gate, *(word for node in members for word in ("--node", node)), "--output", "json")
        if not text.strip():
            return {node: {"outcome": "not_run", "message": f"no answer, exit code {code}: {self.project.progress()[-500:]}"} for node in members}
        found: dict[str, Any] = json.loads(text)["nodes"]
        return found

    def calm(self, gates: Sequence[str], count: int) -> None:
        """Have the gates judge ``count`` healthy nodes, a rack's worth at a time."""
        for first in range(0, count, len(NODES)):
            for place, node in enumerate(NODES):
                state = self.rack.store.state(node)
                self.rack.store.write_state(node, healthy_state(state, first + place))
            for gate in gates:
                for node, said in self._run(gate, NODES).items():
                    if said["outcome"] not in {"pass", "skip"}:
                        self.table.alarms.append(f"healthy node {first + NODES.index(node)} ({node}): {gate}: {said['outcome']}: {said['message']}")
            self.table.healthy += len(NODES)
            say(f"{self.table.healthy} healthy nodes judged, {len(self.table.alarms)} false alarms")
        for node in NODES:
            self.rack.clear(node)


def markdown(table: Table) -> str:
    """Return the table as people read it."""
    lines = [
        "# Fault matrix",
        "",
        "Made by `make fault-matrix`: each fault was put into the hardware state of a node of the simulated rack, and the gate was run there.",
        "The last column quotes the gate's finding.",
        "",
        "| layer | fault | gate | outcome | finding |",
        "|---|---|---|---|---|",
    ]
    for item in sorted(table.results, key=lambda item: (item.trial.fault.layer, item.trial.fault.name)):
        fault, words = item.trial.fault, item.named.replace("|", "\\|").replace("\n", " ")
        lines.append(
            f"| {fault.layer} | {fault.name}: {fault.description} | `{fault.caught_by}` | {item.outcome}{f' ({item.wrong})' if item.wrong else ''} | {words} |"
        )
    caught = len(table.results) - len(table.wrong())
    lines += ["", f"{caught} of {len(table.results)} faults caught and named; {table.healthy} healthy nodes judged, {len(table.alarms)} false alarms."]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Play the matrix; exit code 1 when a fault was missed or a healthy node was blamed."""
    parser = argparse.ArgumentParser(prog="make fault-matrix", description=__doc__.splitlines()[0])
    parser.add_argument("--fault", action="append", help="play this fault only; may be given several times")
    parser.add_argument("--healthy", type=int, default=0, help="healthy nodes to judge afterwards")
    parser.add_argument("--write", type=Path, help="file for the table, Markdown")
    chosen = parser.parse_args()
    if reason := cannot_run():
        say(f"fault-matrix: not run: {reason}")
        return 2
    with tempfile.TemporaryDirectory(prefix="rackready-matrix-") as folder, held_image(Path(folder) / "build"):
        table = play(Path(folder), trials(chosen.fault), chosen.healthy)
    say(markdown(table))
    say("\n".join(table.alarms))
    if chosen.write:
        chosen.write.write_text(markdown(table), encoding="utf-8")
    say(f"{table.seconds:.0f} s")
    return 1 if table.wrong() or table.alarms else 0


def play(folder: Path, gates: Mapping[str, list[Trial]], healthy: int) -> Table:
    """Play on a rack of its own, which comes down again."""
    unknown = sorted(set(gates) - set(all_gates()))
    if unknown:
        raise SystemExit(f"fault-matrix: faults name gates that do not exist: {', '.join(unknown)}")
    began = time.monotonic()
    project = Project(folder / "clone")
    try:
        code, text = project.run("sim", "up")
        if code != 0:
            raise SystemExit(text + project.progress())
        player = Player(project)
        player.prepare()
        player.play(gates)
        if healthy:
            player.calm([gate for gate in all_gates() if gate in gates], healthy)
        player.table.seconds = time.monotonic() - began
        return player.table
    finally:
        project.close()


def say(text: str) -> None:
    """Print at once: a run takes minutes."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

"""The fault matrix: inject every simulated fault that names a gate, and run that gate on the node.

``python -m tests.integration.fault_matrix`` (``make fault-matrix``) plays all of them on one rack and prints the table;
with ``--write FILE`` the table is written as Markdown. ``--healthy N`` then has every gate judge N healthy nodes that
differ in what healthy nodes differ in: none may raise a false alarm. Faults that a check of one node sees are played
four at a time, one a node, and all checks run; faults that need a measurement are played gate by gate. ``--racks N``
racks take the work from one queue (default: one for each core).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from rackready.design.facts import node_facts
from rackready.design.site import load_site
from rackready.gates.engine.registry import all_gates
from rackready.gates.engine.registry import gate as make_gate
from rackready.model.evidence import EvidenceRecord
from rackready.model.outcome import Outcome, worst
from rackready_sim.faults import FAULTS, Fault
from rackready_sim.rack import Rack
from tests.integration.matrix_nodes import LOADS, NODES, boot, healthy_state, shorten
from tests.integration.project import Project, cannot_run, held_image, one_at_a_time

CAUGHT = frozenset({"fail", "error"})
PREPARE = ("provision", "install", "fabric")
"""What makes a node measurable; it is not handed over, so gates that load it are not refused."""


SWITCH = "leaf01"
"""Where faults of switches go: its ports swp1 to swp4 hold rails 1 to 4 of the first node."""

LEFT_OUT = {"bmc/power/stress/cycles": "ten power cycles a node: healthy nodes are judged by its unit tests"}
"""Gates that do not judge the healthy nodes, and why."""

SELDOM = dict.fromkeys(("cluster/fabric/stress/incast", *LOADS), 5)
"""Gates that judge the healthy nodes of every so many-th rack: they take minutes, where the others take seconds."""

Work = Sequence[Sequence["Trial"]] | int
"""What a rack does at once: rounds of one kind, or healthy nodes from this one on."""
_ROUNDS = 5
"""Rounds of one kind that a rack takes from the queue at once: the repaired nodes are judged after them."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One fault on one node (or on the switch that it hangs on), and what the gate must name."""

    fault: Fault
    node: str
    params: Mapping[str, Any]

    @property
    def target(self) -> str:
        """Return the machine whose hardware the fault is in."""
        return SWITCH if self.fault.layer == "switch" else self.node

    @property
    def names(self) -> tuple[str, ...]:
        """Return the words of which one must stand in the findings: the part as people call it."""
        if "gpu" in self.params:
            return (f"{self.node} gpu{self.params['gpu']}", f"gpu{self.params['gpu']}")
        if "nic" in self.params:
            return (
                f"rail {self.params['nic']}",
                f"rail{self.params['nic']}",
                *_devices(self.node, int(self.params["nic"])),
            )
        if "port" in self.params:
            rail = int(str(self.params["port"]).removeprefix("swp"))
            return (f"{SWITCH} {self.params['port']}", f"{self.node} rail{rail}", *_devices(self.node, rail))
        return (self.target,)

    def is_named(self, finding: str) -> bool:
        """Whether a finding names the part: of this very machine, not its neighbour's."""
        return any(word in finding for word in self.names) and (self.node in finding or self.target in finding)


@dataclass(frozen=True, slots=True)
class Said:
    """What one gate said of one node."""

    outcome: str
    findings: list[str]


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
        return next(filter(self.trial.is_named, self.findings), self.findings[0] if self.findings else "")


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


def trials(wanted: Iterable[str] | None = None) -> list[list[Trial]]:
    """Return rounds of trials that are played together; of all faults that name a gate, or of those ``wanted``.

    Checks of one node: four faults a round, those that need a boot by themselves. A gate over several nodes: one fault
    a round.
    """
    chosen = set(wanted) if wanted is not None else set(FAULTS)
    queues: dict[tuple[str, bool], list[Trial]] = {}
    for place, fault in enumerate(fault for fault in FAULTS.values() if fault.caught_by and fault.name in chosen):
        params = {key: _spread(key, value, place) for key, value in fault.params.items()}
        here = queues.setdefault(("" if is_check(fault.caught_by) else fault.caught_by, fault.at_boot), [])
        here.append(
            Trial(fault, NODES[len(here) % len(NODES)] if make_gate(fault.caught_by).single_node else NODES[0], params)
        )
    return [list(chunk) for _, here in sorted(queues.items()) for chunk in _together(here)]


def is_check(gate: str) -> bool:
    """Return whether a gate checks one node and can share a round: it only reads, and needs no earlier state."""
    made = make_gate(gate)
    return made.single_node and made.level == "sanity" and not made.since_last_pass


def _together(here: Sequence[Trial]) -> Iterator[list[Trial]]:
    """Yield trials one a node."""
    queue = iter(here)
    while chunk := list(islice(queue, len(NODES) if make_gate(here[0].fault.caught_by).single_node else 1)):
        yield chunk


def _spread(key: str, value: Any, place: int) -> Any:  # noqa: ANN401 - a parameter is a number or a word
    """Another part each time: a gate that always blames the first would not be found out otherwise."""
    if key == "gpu":
        return place * 3 % 8
    if key == "port":
        return f"swp{1 + place % 4}"
    return 1 + place * 3 % 8 if key == "nic" else value


def _devices(node: str, rail: int) -> tuple[str, ...]:
    return tuple(
        name
        for nic in node_facts(load_site("sim"), node).nics
        if nic.rail == rail
        for name in (nic.rdma_device, nic.netdev)
    )


class Player:
    """Plays trials on one rack."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.rack = Rack(project.root)
        self.table = Table()
        self._booted = False

    def prepare(self) -> None:
        """Take the rack up, and its nodes as far as being measurable. Raises RuntimeError with what was said."""
        with one_at_a_time():
            self._must("sim", "up")
        for phase in PREPARE:
            self._must(phase)

    def _must(self, *arguments: str) -> None:
        code, text = self.project.run(*arguments)
        if code != 0:
            raise RuntimeError(
                f"{' '.join(arguments)} ended with {code}: {text[-2000:]}{self.project.progress()[-2000:]}"
            )

    def take(self, work: deque[Work]) -> None:
        """Do work as long as there is any."""
        while (here := _next(work)) is not None:
            if isinstance(here, int):
                self.calm(here)
            else:
                self.job(here)

    def play(self, rounds: Sequence[Sequence[Trial]]) -> None:
        """Play every trial."""
        for here in jobs(rounds):
            self.job(here)

    def job(self, here: Sequence[Sequence[Trial]]) -> None:
        """Play rounds of one kind. After them the repaired nodes must pass again."""
        self._booted = False
        gates = list(dict.fromkeys(trial.fault.caught_by for chunk in here for trial in chunk))
        say(f"{kind(here[0])}: {sum(map(len, here))} faults in {len(here)} rounds")
        for chunk in here:
            self._round(gates, chunk)
        if any(map(is_check, gates)):  # the kernel's log tells of faults until the next boot, as on hardware
            boot(self.project, NODES)
        self._healthy([gate for gate in gates if gate not in LEFT_OUT], "repaired")

    def _round(self, gates: Sequence[str], chunk: Sequence[Trial]) -> None:
        nodes = [trial.node for trial in chunk]
        if make_gate(gates[0]).since_last_pass:  # it judges what is new since a pass, so there must be one
            self._run(gates, nodes)
        for trial in chunk:
            self.rack.inject(trial.target, trial.fault.name, **trial.params)
        at_boot = [trial.node for trial in chunk if trial.fault.at_boot]
        boot(self.project, at_boot)
        try:
            found = self._run(gates, nodes)
        finally:
            for trial in chunk:
                self.rack.clear(trial.target)
            boot(self.project, at_boot)
        for trial in chunk:
            self._judge(trial, found.get((trial.fault.caught_by, trial.node)))

    def _judge(self, trial: Trial, said: Said | None) -> None:
        result = Result(
            trial, said.outcome if said else "not_run", said.findings if said else [self.project.progress()[-300:]]
        )
        if result.outcome not in CAUGHT:
            result.wrong = f"not caught: {result.outcome}"
        elif not any(map(trial.is_named, result.findings)):
            result.wrong = f"the part is not named: expected one of {', '.join(trial.names)}"
        self.table.results.append(result)
        say(
            f"{'WRONG ' if result.wrong else ''}{trial.fault.name} on {trial.target}: {result.outcome}: "
            f"{result.named} {result.wrong}"
        )

    def _healthy(self, gates: Sequence[str], which: str) -> None:
        """Have all nodes pass; whatever else a gate says of one is a false alarm."""
        if not gates:
            return
        found = self._run(gates, NODES)
        for gate, node in ((gate, node) for gate in gates for node in NODES):
            said = found.get((gate, node), Said("not_run", []))
            if said.outcome not in {"pass", "skip"}:
                self.table.alarms.append(f"{which} {node}: {gate}: {said.outcome}: {'; '.join(said.findings)}")
                say(f"FALSE ALARM {self.table.alarms[-1]}")

    def _run(self, gates: Sequence[str], nodes: Sequence[str]) -> dict[tuple[str, str], Said]:
        """Run gates; return (gate, node) -> what the evidence shows, or why the node was not measured.

        A gate over several nodes needs all of them.
        """
        members = nodes if all(make_gate(gate).single_node for gate in gates) else NODES
        _, text = self.project.run(
            "gate", "run", *gates, *(word for node in members for word in ("--node", node)), "--output", "json"
        )
        if not text.strip():
            say(f"no answer: {self.project.progress()[-1000:]}")
            return {}
        document = json.loads(text)
        refused = {
            (gate, node): Said(said["outcome"], [said["message"]])
            for gate in gates
            for node, said in document["nodes"].items()
            if not said.get("gates")
        }
        return refused | said_of(self.project.evidence(document["campaign"]))

    def calm(self, first: int) -> None:
        """Have the gates judge healthy nodes, a rack's worth, ``first`` and those after it."""
        if not self._booted:  # links that went down for a fault count until the next boot
            boot(self.project, NODES)
            self._booted = True
        for place, node in enumerate(NODES):
            self.rack.clear(node)
            self.rack.store.write_state(node, healthy_state(self.rack.store.state(node), first + place))
        self._healthy(judging(first // len(NODES)), f"healthy node {first} and the next three,")
        self.table.healthy += len(NODES)
        say(
            f"healthy nodes {first} to {first + len(NODES) - 1} judged, {len(self.table.alarms)} false alarms on "
            "this rack"
        )
        for node in NODES:
            self.rack.clear(node)


def kind(chunk: Sequence[Trial]) -> str:
    """Return what is played together: all checks, or one gate."""
    gate = chunk[0].fault.caught_by
    return "checks" if is_check(gate) else gate


def jobs(rounds: Sequence[Sequence[Trial]]) -> list[list[Sequence[Trial]]]:
    """Return the rounds as racks take them: some of one kind."""
    out = []
    for _, chunks in groupby(rounds, key=kind):
        queue = iter(chunks)
        while here := list(islice(queue, _ROUNDS)):
            out.append(here)
    return out


def judging(number: int) -> list[str]:
    """Return the gates that judge the healthy nodes of the ``number``-th rack: all that a fault is for."""
    wanted = {fault.caught_by for fault in FAULTS.values()}
    return [
        gate for gate in all_gates() if gate in wanted and gate not in LEFT_OUT and number % SELDOM.get(gate, 1) == 0
    ]


def said_of(records: Sequence[EvidenceRecord]) -> dict[tuple[str, str], Said]:
    """Return (gate, node) -> the worst outcome that records of one run hold of a node, and all findings."""
    out: dict[tuple[str, str], Said] = {}
    for record in records:
        for node in record.nodes:
            before = out.get((record.gate, node))
            outcomes = [Outcome(before.outcome)] if before else []
            findings = list(before.findings) if before else []
            out[record.gate, node] = Said(
                worst([*outcomes, record.verdict.outcome]).value,
                findings + [str(item) for item in record.verdict.findings],
            )
    return out


def markdown(table: Table) -> str:
    """Return the table as people read it."""
    lines = [
        "# Fault matrix",
        "",
        (
            "Made by `make fault-matrix`: each fault was put into the hardware state of a node of the simulated rack, "
            "and the gate was run there."
        ),
        "The last column quotes the gate's finding.",
        "",
        "| layer | fault | gate | outcome | finding |",
        "|---|---|---|---|---|",
    ]
    for item in sorted(table.results, key=lambda item: (item.trial.fault.layer, item.trial.fault.name)):
        fault, words = item.trial.fault, item.named.replace("|", "\\|").replace("\n", " ")
        lines.append(
            f"| {fault.layer} | {fault.name}: {fault.description} | `{fault.caught_by}` | "
            f"{item.outcome}{f' ({item.wrong})' if item.wrong else ''} | {words} |"
        )
    caught = len(table.results) - len(table.wrong())
    lines += [
        "",
        (
            f"{caught} of {len(table.results)} faults caught and named; {table.healthy} healthy nodes judged, "
            f"{len(table.alarms)} false alarms."
        ),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Play the matrix; exit code 1 when a fault was missed or a healthy node was blamed."""
    parser = argparse.ArgumentParser(prog="make fault-matrix", description=__doc__.splitlines()[0])
    parser.add_argument("--fault", action="append", help="play this fault only; may be given several times")
    parser.add_argument("--healthy", type=int, default=0, help="healthy nodes to judge afterwards")
    parser.add_argument("--no-faults", action="store_true", help="judge healthy nodes only")
    parser.add_argument("--racks", type=int, default=os.cpu_count() or 1, help="racks that work side by side")
    parser.add_argument("--write", type=Path, help="file for the table, Markdown")
    chosen = parser.parse_args()
    if reason := cannot_run():
        say(f"fault-matrix: not run: {reason}")
        return 2
    with tempfile.TemporaryDirectory(prefix="rackready-matrix-") as folder, held_image(Path(folder) / "build"):
        table = play(Path(folder), [] if chosen.no_faults else trials(chosen.fault), chosen.healthy, chosen.racks)
    say(markdown(table))
    say("\n".join(table.alarms))
    if chosen.write:
        chosen.write.write_text(markdown(table), encoding="utf-8")
    say(f"{table.seconds:.0f} s")
    return 1 if table.wrong() or table.alarms else 0


def play(folder: Path, rounds: Sequence[Sequence[Trial]], healthy: int, racks: int) -> Table:
    """Play on separate racks side by side, and take them down. A rack that fails ends the whole run."""
    began = time.monotonic()
    work: deque[Work] = deque([*jobs(rounds), *range(0, healthy, len(NODES))])
    with ThreadPoolExecutor(max_workers=racks) as pool:
        tables = list(pool.map(lambda number: _rack(folder / f"rack{number}", work), range(min(racks, len(work)))))
    return Table(
        [result for table in tables for result in table.results],
        [alarm for table in tables for alarm in table.alarms],
        sum(table.healthy for table in tables),
        time.monotonic() - began,
    )


def _rack(root: Path, work: deque[Work]) -> Table:
    """Take one rack up, do work as long as there is any, and take it down again."""
    project = Project(root)
    shorten(project.paths.site_file)
    player = Player(project)
    try:
        player.prepare()
        player.take(work)
    except BaseException:
        work.clear()
        raise
    finally:
        project.close()
    return player.table


def _next(work: deque[Work]) -> Work | None:
    try:
        return work.popleft()
    except IndexError:  # another rack took the last
        return None


def say(text: str) -> None:
    """Print at once: a run takes minutes."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

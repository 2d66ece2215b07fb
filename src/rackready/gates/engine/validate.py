"""The validate phase: gates over a batch of nodes, from cheap to dear, each with evidence; then coverage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from rackready.design.check_gates import today, warnings
from rackready.design.pinned import site_of
from rackready.drivers.remote import Remote
from rackready.drivers.ssh.target import node_target
from rackready.evidence.store import EvidenceStore
from rackready.gates.base import Gate
from rackready.gates.bmc.connection import sites_of
from rackready.gates.bmc.cycles import PowerCycles
from rackready.gates.bmc.guard import bmcs, cycler
from rackready.gates.bmc.interrupted import give_back
from rackready.gates.engine.connections import Machines
from rackready.gates.engine.fleet_stage import judge_fleet
from rackready.gates.engine.launch import launcher
from rackready.gates.engine.recorder import PHASE, Recorder, not_run, skipped
from rackready.gates.engine.registry import gate as make_gate
from rackready.gates.engine.runner import Connection, Launcher, Runner
from rackready.gates.engine.single_node import NODE_WORKERS, Pace, in_levels, run_alone
from rackready.gates.engine.site_facts import site_facts
from rackready.gates.engine.stage_state import Board, Kept
from rackready.gates.judging.conclude import conclude
from rackready.gates.judging.last_pass import last_passes
from rackready.gates.judging.merge import merged
from rackready.gates.records.damaged import set_aside
from rackready.gates.records.fingerprint import gather
from rackready.gates.records.node_parts import with_parts
from rackready.ledger.store import Ledger
from rackready.model.evidence import Fingerprint
from rackready.model.outcome import Finding, Outcome, Verdict
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.profile import GateSetEntry
from rackready.model.site import Site
from rackready.paths import EnvPaths
from rackready.profiles import loader

__all__ = ["Kept", "Stage", "connect", "gate_entries", "run_gates"]


def run_gates(
    ctx: PhaseContext,
    nodes: list[str],
    *,
    only: list[str] | None = None,
    partners: Sequence[str] = (),
    kept: Kept | None = None,
    quiet: bool = False,
) -> dict[str, NodeResult]:
    """Run the site's gate set (or ``only`` these gates) on nodes, and return what it means for each.

    ``partners`` are nodes that may serve as the other end of pair and cluster gates without being judged themselves;
    ``kept`` says which gates count already and are not run, node by node: coverage and the result are over both.
    ``quiet``: tell only what does not pass. Raises RackreadyError for a site or gate set that cannot be used,
    Interrupted when the operator stops.
    """
    site = site_of(ctx)
    paths = EnvPaths(ctx.root, ctx.env)
    entries = gate_entries(site, only)
    if ctx.check:
        return {node: NodeResult(Outcome.NOT_RUN, f"would run {len(entries)} gates") for node in nodes}
    with stages(ctx, site, paths, [*nodes, *partners], entries) as begin:
        stage = begin([*nodes, *partners])
        stage.board.recorder.quiet = quiet
        return stage.run(nodes, partners, entries, whole=only is None, kept=kept or {})


@contextmanager
def stages(
    ctx: PhaseContext, site: Site, paths: EnvPaths, nodes: Sequence[str], entries: Sequence[GateSetEntry]
) -> Iterator[Callable[[Sequence[str]], Stage]]:
    """Open the way to nodes and the stores; the caller begins stages of these gates over those nodes. What a killed run left on them is ended first.

    Power that it took is given back only to those whose power may be cycled again: another gate touches no node that
    somebody may be working at.
    """
    with connect(site, paths, nodes) as (connection, launcher), Ledger.open(paths.database) as ledger:
        store = EvidenceStore.open(ledger, paths.raw)
        if any(entry.id == PowerCycles.id for entry in entries):
            mine = [node for node in nodes if PowerCycles.id not in site.gates.skipped(node, today())]
            give_back(cycler(site, ledger, ctx.campaign, lambda _node: ""), connection, sites_of(site), mine)
        _sweep(connection, ledger, ctx.campaign, nodes)
        yield lambda some: Stage.begin(site, connection, launcher, store, ledger, ctx.campaign, some, paths)


def _sweep(remote: Remote, ledger: Ledger, campaign: str, nodes: Sequence[str]) -> None:
    """End what a killed run left on the nodes: a diagnostic that still runs would spoil every measurement beside it."""
    with ThreadPoolExecutor(max_workers=max(1, min(len(nodes), NODE_WORKERS))) as pool:
        for node, answer in zip(nodes, pool.map(remote.sweep, nodes), strict=True):
            if answer.exit_code != 0:
                said = answer.failure or answer.stderr.strip() or f"exit {answer.exit_code}"
                ledger.event(
                    campaign, node, "validate", f"leftovers of earlier runs could not be looked for: {said}", "warn"
                )


def gate_entries(site: Site, only: Sequence[str] | None) -> list[GateSetEntry]:
    """Return the entries of the site's gate set, or those of ``only`` (with the set's inputs where the set has them)."""
    entries = {entry.id: entry for entry in loader.gates_of(site.gates)}
    if only is None:
        return list(entries.values())
    return [entries.get(wanted) or GateSetEntry.model_validate({"id": wanted}) for wanted in only]


@contextmanager
def connect(site: Site, paths: EnvPaths, nodes: Sequence[str]) -> Iterator[tuple[Remote, Launcher]]:
    """Open the way to nodes over SSH."""
    hosts = {name: node_target(site, name, paths.known_hosts) for name in nodes}
    remote = Machines(hosts, site, paths)
    try:
        yield remote, launcher(site, paths, remote, hosts)
    finally:
        remote.close()


@dataclass(slots=True)
class Stage:
    """One run of a gate set."""

    board: Board
    runner: Runner
    pace: Pace = field(default_factory=Pace)

    @classmethod
    def begin(  # noqa: PLR0913, PLR0917 - what a stage needs of its surroundings
        cls,
        site: Site,
        connection: Connection,
        launcher: Launcher | None,
        store: EvidenceStore,
        ledger: Ledger,
        campaign: str,
        nodes: Sequence[str],
        paths: EnvPaths | None = None,
    ) -> Stage:
        """Take the fingerprint of every node and make ready to run."""
        prints = with_parts(gather(connection, site, nodes), ledger)
        facts = site_facts(site, nodes, last_passes(store, ledger, nodes, prints))
        set_aside(store, ledger, campaign, PHASE)
        recorder = Recorder(
            store, ledger, campaign, {name: found for name, found in prints.items() if isinstance(found, Fingerprint)}
        )
        runner = Runner(connection, facts, recorder.attempt, launcher, bmc=bmcs(site, ledger, campaign, paths))
        return cls(Board(site, facts, recorder, prints), runner)

    def run(
        self,
        nodes: Sequence[str],
        partners: Sequence[str],
        entries: Sequence[GateSetEntry],
        *,
        whole: bool,
        kept: Kept | None = None,
    ) -> dict[str, NodeResult]:
        """Run everything that is not kept, and conclude per node."""
        board = self.board
        board.keep(kept or {})
        gates = {entry.id: make_gate(entry.id, entry.inputs) for entry in entries}
        required = {entry.id for entry in entries if entry.required}
        alone = [gate for gate in gates.values() if gate.alone]
        board.order = [gate.id for level in in_levels(alone) for gate in level] + [
            gate.id for gate in gates.values() if not gate.alone
        ]
        self._say_first(nodes)
        known = [node for node in nodes if not isinstance(board.prints[node], Finding)]
        run_alone(board, self.runner, alone, known, required, self.pace)
        for entry in entries:
            if gates[entry.id].alone:
                judge_fleet(board, gates[entry.id], entry, nodes)
        for entry in entries:
            if not gates[entry.id].alone:
                self._group_gate(gates[entry.id], nodes, partners, required)
                judge_fleet(board, gates[entry.id], entry, nodes)
        return {node: conclude(board, node, list(gates.values()), required, whole=whole) for node in nodes}

    def _say_first(self, nodes: Sequence[str]) -> None:
        """Say what cannot be measured at all, and what the site file says that holds no longer."""
        for text in warnings(self.board.site, self.board.day):
            for node in nodes[:1]:
                self.board.recorder.say(node, text, Outcome.NOT_RUN)
        for node in nodes:
            if isinstance(found := self.board.prints[node], Finding):
                self.board.recorder.say(node, str(found), Outcome.ERROR)

    def _group_gate(self, gate: Gate, nodes: Sequence[str], partners: Sequence[str], required: set[str]) -> None:
        """Run a gate over the nodes that passed everything so far; then, where the gate bears it, over those that did not, with good ones as partners.

        Apart, since a bad node would make its partners look bad. A node whose own evidence counts takes part like a
        partner: what it has stands.
        """
        board = self.board
        judged = [node for node in nodes if gate.id not in board.kept.get(node, {})]
        if not judged:
            return
        able, notes = self._able(gate, nodes, partners, required)
        later = self._later(gate, judged, [*nodes, *partners], required)
        for node in (
            node for node in judged if node in notes and node not in later
        ):  # partners are not judged: what they have stands
            board.note(gate.id, node, notes[node])
        if set(able) & set(judged):
            self._over(gate, able, {node: None for node in judged if node in able})
        if later:
            helpers = [node for node in able if node not in later][
                : len(later) + 1
            ]  # one for each, and a third to tell two ends apart
            self._over(
                gate,
                [*later, *helpers],
                {node: notes[node] if board.first_bad(node, required) == "" else None for node in later},
            )

    def _over(self, gate: Gate, nodes: Sequence[str], judged: Mapping[str, Verdict | None]) -> None:
        """Run a gate over nodes and record what it means for those judged. One with a verdict of its own here only gains by a pass: else that stands."""
        board = self.board
        for node in nodes:
            board.begins(gate, node)
        done = self.runner.gate(gate, nodes)
        by_node = gate.attribute(board.facts, done)
        for node, instead in judged.items():
            found = by_node.get(node, [])
            if instead is not None and merged(found).outcome is not Outcome.PASS:
                board.note(gate.id, node, instead)
                continue
            board.verdicts[node][gate.id] = found
            runs = sorted(item.run.id for item in done if node in item.run.nodes)
            board.recorder.concluded(gate, node, merged(found), runs)

    def _later(self, gate: Gate, judged: Sequence[str], everybody: Sequence[str], required: set[str]) -> list[str]:
        """Return the nodes to measure after the good ones: those that failed another gate and may be loaded, and good ones that have no other partner."""
        board = self.board
        if not gate.after_fail:
            return []
        free = [node for node in everybody if gate.id not in board.skips(node) and not board.stopped_by(node, required)]
        good = [node for node in free if not board.first_bad(node, required)]
        bad = [node for node in free if node in judged and board.first_bad(node, required)]
        lonely = [node for node in good if node in judged] if len(good) < gate.min_nodes else []
        return [*bad, *lonely] if bad and len(bad) + len(good) >= gate.min_nodes else []

    def _able(
        self, gate: Gate, nodes: Sequence[str], partners: Sequence[str], required: set[str]
    ) -> tuple[list[str], dict[str, Verdict]]:
        """Return the nodes that can take part, and what is said of the others."""
        board = self.board
        able: list[str] = []
        notes: dict[str, Verdict] = {}
        failed: dict[str, str] = {}
        for node in [*nodes, *partners]:
            if reason := board.skips(node).get(gate.id, ""):
                notes[node] = skipped(reason)
            elif bad := board.first_bad(node, required):
                failed[node] = bad
                notes[node] = not_run(node, gate.id, f"{bad} did not pass", "Repair that first.")
            else:
                able.append(node)
        if len(able) >= gate.min_nodes:
            return able, notes
        words = f"it needs {gate.min_nodes} nodes, {len(able)} of {len(nodes) + len(partners)} can take part"
        step = "Deploy it together with more nodes, or declare the skip with its reason in site.yml (gates.skip)."
        if failed:
            words += f": {', '.join(f'{node} did not pass {bad}' for node, bad in failed.items())}"
            step = f"Repair {', '.join(failed)}, then run the same command again."
        return [], notes | {node: not_run(node, gate.id, words, step) for node in able}

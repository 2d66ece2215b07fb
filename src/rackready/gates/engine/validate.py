"""The validate phase: gates over a batch of nodes, cheap ones first, each with evidence; then coverage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from rackready.design.check_gates import today, warnings
from rackready.design.handover_of import by_scheduler, part_of
from rackready.design.pinned import site_of
from rackready.drivers.remote import Remote
from rackready.drivers.scheduler.kube_job import KubeJobs
from rackready.drivers.ssh.target import node_target
from rackready.evidence.store import EvidenceStore
from rackready.gates.base import REGISTRY, Gate
from rackready.gates.bmc.connection import sites_of
from rackready.gates.bmc.cycles import PowerCycles
from rackready.gates.bmc.guard import bmcs, cycler
from rackready.gates.bmc.interrupted import give_back
from rackready.gates.engine.connections import Machines
from rackready.gates.engine.fleet_stage import judge_fleet
from rackready.gates.engine.launch import launcher
from rackready.gates.engine.mps_pause import without_mps
from rackready.gates.engine.recorder import PHASE, Recorder, not_run
from rackready.gates.engine.registry import gate as make_gate
from rackready.gates.engine.runner import Connection, Launcher, Runner
from rackready.gates.engine.single_node import NODE_WORKERS, Pace, in_levels, run_alone
from rackready.gates.engine.site_facts import of_part, site_facts
from rackready.gates.engine.stage_state import Kept, StageState
from rackready.gates.judging.conclude import conclude
from rackready.gates.judging.last_pass import last_passes
from rackready.gates.judging.merge import merged
from rackready.gates.records.damaged import set_aside
from rackready.gates.records.fingerprint import gather
from rackready.gates.records.node_parts import with_parts
from rackready.ledger.store import Ledger
from rackready.model.evidence import Fingerprint
from rackready.model.kubernetes import KubernetesHandover
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
    """Run the site's gate set (or ``only`` these gates) on nodes, and return the result of each node.

    ``partners``: nodes that may be the other end in pair and cluster gates, and are not judged themselves. ``kept``:
    per node, gates whose evidence still counts and that are not run; coverage and result include them. ``quiet``: log
    only what does not pass. Raise RackreadyError for a site or gate set that cannot be used, Interrupted if the
    operator stops.
    """
    site = site_of(ctx)
    paths = EnvPaths(ctx.root, ctx.env)
    entries = gate_entries(site, only)
    if ctx.check:
        return {node: NodeResult(Outcome.NOT_RUN, f"would run {len(entries)} gates") for node in nodes}
    with stages(ctx, site, paths, [*nodes, *partners], entries, kept) as begin:
        stage = begin([*nodes, *partners])
        stage.state.recorder.quiet = quiet
        return stage.run(nodes, partners, entries, full_set=only is None, kept=kept or {})


@contextmanager
def stages(
    ctx: PhaseContext,
    site: Site,
    paths: EnvPaths,
    nodes: Sequence[str],
    entries: Sequence[GateSetEntry],
    kept: Kept | None = None,
) -> Iterator[Callable[[Sequence[str]], Stage]]:
    """Connect to the nodes, open the stores, and yield the function that begins stages of these gates.

    MPS stands still meanwhile on nodes that a gate loads: not where every gate that does is ``kept``.
    End what a killed run left on the nodes first. Restore power that it took only to nodes whose power may be cycled
    again: any other gate must not touch a node that somebody may be working on.
    """
    with connect(site, paths, nodes) as (connection, launcher), Ledger.open(paths.database) as ledger:
        store = EvidenceStore.open(ledger, paths.raw)
        if any(entry.id == PowerCycles.id for entry in entries):
            mine = [node for node in nodes if PowerCycles.id not in site.gates.skipped(node, today())]
            give_back(cycler(site, ledger, ctx.campaign, lambda _node: ""), connection, sites_of(site), mine)
        _sweep(connection, ledger, ctx.campaign, nodes)
        loaded = [node for node in nodes if any(_loads(entry, node, kept or {}) for entry in entries)]

        def tell(node: str, found: Finding) -> None:
            ledger.event(ctx.campaign, node, "validate", str(found), "error")

        with without_mps(connection, loaded, tell) as hindered:
            yield lambda chosen: Stage.begin(
                site, connection, launcher, store, ledger, ctx.campaign, chosen, paths
            ).without(hindered)


def _loads(entry: GateSetEntry, node: str, kept: Kept) -> bool:
    return not REGISTRY[entry.id].looks and entry.id not in kept.get(node, {})


def _sweep(remote: Remote, ledger: Ledger, campaign: str, nodes: Sequence[str]) -> None:
    """Stop processes left by a killed run on the nodes: a diagnostic that still runs would disturb measurements."""
    with ThreadPoolExecutor(max_workers=max(1, min(len(nodes), NODE_WORKERS))) as pool:
        for node, answer in zip(nodes, pool.map(remote.sweep, nodes), strict=True):
            if answer.exit_code != 0:
                reason = answer.failure or answer.stderr.strip() or f"exit {answer.exit_code}"
                ledger.event(
                    campaign, node, "validate", f"could not look for leftovers of earlier runs: {reason}", "warn"
                )


def gate_entries(site: Site, only: Sequence[str] | None) -> list[GateSetEntry]:
    """Return the entries of the site's gate set, or those of ``only`` (with the set's inputs, if it has any)."""
    entries = {entry.id: entry for entry in loader.gates_of(site.gates)}
    if only is None:
        return list(entries.values())
    return [entries.get(wanted) or GateSetEntry.model_validate({"id": wanted}) for wanted in only]


@contextmanager
def connect(site: Site, paths: EnvPaths, nodes: Sequence[str]) -> Iterator[tuple[Remote, Launcher]]:
    """Connect to nodes over SSH, and yield the connection and the launcher."""
    hosts = {name: node_target(site, name, paths.known_hosts) for name in nodes}
    remote = Machines(hosts, site, paths)
    try:
        yield remote, launcher(site, paths, remote, hosts)
    finally:
        remote.close()


def jobs_of(site: Site) -> KubeJobs | None:
    """Return how jobs are run in the site's Kubernetes cluster; None without one."""
    return KubeJobs(site.handover) if isinstance(site.handover, KubernetesHandover) else None


@dataclass(slots=True)
class Stage:
    """One run of gates over nodes."""

    state: StageState
    runner: Runner
    pace: Pace = field(default_factory=Pace)

    @classmethod
    def begin(  # noqa: PLR0913, PLR0917 - everything that a stage needs
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
        """Return a stage that is ready to run, with the fingerprint of every node."""
        prints = with_parts(gather(connection, site, nodes), ledger)
        facts = site_facts(site, nodes, last_passes(store, ledger, nodes, prints))
        set_aside(store, ledger, campaign, PHASE)
        recorder = Recorder(
            store, ledger, campaign, {name: found for name, found in prints.items() if isinstance(found, Fingerprint)}
        )
        runner = Runner(
            connection,
            facts,
            recorder.attempt,
            launcher,
            bmc=bmcs(site, ledger, campaign, paths),
            cluster=jobs_of(site),
        )
        return cls(StageState(site, facts, recorder, prints), runner)

    def without(self, hindered: Mapping[str, Finding]) -> Stage:
        """Return the stage; a node with a finding is not measured."""
        self.state.prints = {**self.state.prints, **hindered}
        return self

    def run(
        self,
        nodes: Sequence[str],
        partners: Sequence[str],
        entries: Sequence[GateSetEntry],
        *,
        full_set: bool,
        kept: Kept | None = None,
    ) -> dict[str, NodeResult]:
        """Run every gate that is not kept, and return the result of each node."""
        state = self.state
        state.keep(kept or {})
        gates = {entry.id: make_gate(entry.id, entry.inputs) for entry in entries}
        required = {entry.id for entry in entries if entry.required}
        alone = [gate for gate in gates.values() if gate.single_node]
        state.order = [gate.id for level in in_levels(alone) for gate in level] + [
            gate.id for gate in gates.values() if not gate.single_node
        ]
        self._warn(nodes)
        known = [node for node in nodes if not isinstance(state.prints[node], Finding)]
        run_alone(state, self.runner, alone, known, required, self.pace)
        for entry in entries:
            if gates[entry.id].single_node:
                judge_fleet(state, gates[entry.id], entry, nodes)
        for entry in entries:
            if not gates[entry.id].single_node:
                self._group_gate(gates[entry.id], nodes, partners, required)
                judge_fleet(state, gates[entry.id], entry, nodes)
        return {node: conclude(state, node, list(gates.values()), required, full_set=full_set) for node in nodes}

    def _warn(self, nodes: Sequence[str]) -> None:
        """Log nodes that cannot be measured at all, and entries of the site file that no longer apply."""
        for text in warnings(self.state.site, self.state.day):
            for node in nodes[:1]:
                self.state.recorder.progress(node, text, Outcome.NOT_RUN)
        for node in nodes:
            if isinstance(found := self.state.prints[node], Finding):
                self.state.recorder.progress(node, str(found), Outcome.ERROR)

    def _group_gate(self, gate: Gate, nodes: Sequence[str], partners: Sequence[str], required: set[str]) -> None:
        """Run a gate over the nodes that passed everything so far, then over the others if the gate allows it.

        The others run separately, with good nodes as partners: a bad node would make its partners look bad. A node
        whose own evidence counts takes part like a partner, and its verdict stays.
        """
        for view in by_scheduler(self.state.site, [*nodes, *partners]):
            here = frozenset(view.nodes)
            inside = [[node for node in some if node in here] for some in (nodes, partners)]
            self._in_part(gate, inside[0], inside[1], required, view.site)

    def _in_part(
        self, gate: Gate, nodes: Sequence[str], partners: Sequence[str], required: set[str], site: Site
    ) -> None:
        """Run a gate over nodes of one scheduler. ``site``: the site as they see it."""
        state = self.state
        judged = [node for node in nodes if gate.id not in state.kept.get(node, {})]
        if not judged:
            return
        able, notes = self._able(gate, nodes, partners, required)
        later = self._later(gate, judged, [*nodes, *partners], required)
        for node in (node for node in judged if node in notes and node not in later):
            state.note(gate.id, node, notes[node])
        if set(able) & set(judged):
            self._over(gate, able, {node: None for node in judged if node in able}, site)
        if later:
            # One helper for each, and one more to tell two ends apart.
            helpers = [node for node in able if node not in later][: len(later) + 1]
            self._over(
                gate,
                [*later, *helpers],
                {node: notes[node] if state.first_bad(node, required) == "" else None for node in later},
                site,
            )

    def _over(self, gate: Gate, nodes: Sequence[str], judged: Mapping[str, Verdict | None], site: Site) -> None:
        """Run a gate over nodes and record the conclusions for those judged.

        ``judged``: node -> its verdict so far, which only a pass replaces; None if it has none.
        """
        state = self.state
        for node in nodes:
            state.begins(gate, node)
        runner = self.runner
        if site.part is not None:
            runner = replace(runner, facts=of_part(state.facts, site), cluster=jobs_of(site))
        done = runner.gate(gate, nodes)
        by_node = gate.attribute(runner.facts, done)
        for node, before in judged.items():
            found = by_node.get(node, [])
            if before is not None and merged(found).outcome is not Outcome.PASS:
                state.note(gate.id, node, before)
                continue
            state.verdicts[node][gate.id] = found
            runs = sorted(item.run.id for item in done if node in item.run.nodes)
            state.recorder.concluded(gate, node, merged(found), runs)

    def _later(self, gate: Gate, judged: Sequence[str], everybody: Sequence[str], required: set[str]) -> list[str]:
        """Return the nodes to measure after the good ones.

        These are the nodes that failed another gate and may be loaded, and good nodes without another partner.
        """
        state = self.state
        if not gate.after_fail:
            return []
        free = [node for node in everybody if gate.id not in state.skips(node) and not state.stopped_by(node, required)]
        good = [node for node in free if not state.first_bad(node, required)]
        bad = [node for node in free if node in judged and state.first_bad(node, required)]
        lonely = [node for node in good if node in judged] if len(good) < gate.min_nodes else []
        return [*bad, *lonely] if bad and len(bad) + len(good) >= gate.min_nodes else []

    def _able(
        self, gate: Gate, nodes: Sequence[str], partners: Sequence[str], required: set[str]
    ) -> tuple[list[str], dict[str, Verdict]]:
        """Return the nodes that can take part, and the verdicts of the others."""
        state = self.state
        able: list[str] = []
        notes: dict[str, Verdict] = {}
        failed: dict[str, str] = {}
        for node in [*nodes, *partners]:
            bad = state.first_bad(node, required)
            left_out = state.left_out(gate, node, bad)
            if left_out is None:
                able.append(node)
                continue
            notes[node] = left_out
            if left_out.outcome is Outcome.NOT_RUN:
                failed[node] = bad
        if len(able) >= gate.min_nodes:
            return able, notes
        words = f"it needs {gate.min_nodes} nodes, {len(able)} of {len(nodes) + len(partners)} can take part"
        if part := part_of(state.site, [*nodes, *partners][0]):
            words += f"; nodes of part {part} are measured with nodes of that part only"
        step = "Deploy it together with more nodes, or declare the skip with its reason in site.yml (gates.skip)."
        if failed:
            words += f": {', '.join(f'{node} did not pass {bad}' for node, bad in failed.items())}"
            step = f"Repair {', '.join(failed)}, then run the same command again."
        return [], notes | {node: not_run(node, gate.id, words, step) for node in able}

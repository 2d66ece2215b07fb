"""One drift run: asks nodes and switches, adds since when each item differs, and records what it found."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from rackready.campaign.drift.applied import PHASES, Applied, applied
from rackready.campaign.drift.found import DriftReading
from rackready.campaign.drift.keys import compare_keys
from rackready.campaign.drift.readings import Compared, compare_readings
from rackready.campaign.drift.roles import compare_roles
from rackready.campaign.drift.since import utc, with_history
from rackready.campaign.drift.switches import compare_switches
from rackready.campaign.drift.ufm import compare_ufm
from rackready.campaign.log_file import logged
from rackready.design.facts import desired_digest, node_facts
from rackready.design.pinned import pin
from rackready.drivers.process import reap
from rackready.evidence.store import EvidenceStore
from rackready.ledger.drift import append_runs
from rackready.ledger.lock import ControllerLock
from rackready.ledger.store import Ledger
from rackready.model.drift import DriftReport, WhenSeen
from rackready.model.phase import PhaseContext
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.model.state import NodeState
from rackready.paths import EnvPaths

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DriftRun:
    """A drift run that ended. ``left_out``: retired nodes, which are not asked."""

    run: str
    at: float
    seconds: float
    reports: Sequence[DriftReport]
    left_out: Sequence[str]

    @property
    def asked(self) -> bool:
        """Return whether everything that was applied could be compared."""
        return all(report.asked for report in self.reports)

    @property
    def drifted(self) -> bool:
        """Return whether anything differs."""
        return any(report.items for report in self.reports)

    @property
    def exit_code(self) -> int:
        """Return 2 when not everything could be asked, else 1 for drift, else 0."""
        return 2 if not self.asked else int(self.drifted)


def drift_run(
    ctx: PhaseContext,
    site: Site,
    nodes: Sequence[str],
    command: str,
    say: Callable[[str], None],
    *,
    verbose: bool = False,
) -> DriftRun:
    """Ask these nodes and the switches that they are cabled to. Raises ControllerBusyError, and RackreadyError.

    ``verbose``: also say what the log of the run gets.

    Under the controller's lock: a deploy that runs at the same time would look like drift.
    """
    paths = EnvPaths(ctx.root, ctx.env)
    if not Ledger.exists(paths.database):
        raise RackreadyError(
            f"drift --env {ctx.env}",
            expected="nodes that rackready deployed",
            actual="no record of any",
            next_step=f"Run `rackready deploy --env {ctx.env}` first.",
        )
    begun = time.time()
    with (
        ControllerLock(paths.lock, command, paths.database),
        logged(paths, ctx.campaign, say if verbose else None),
        Ledger.open(paths.database) as ledger,
    ):
        _log.info("%s: begins", command)
        ctx = replace(ctx, site_digest=pin(paths, site))
        for line in reap(ledger):
            say(line)
        states = {row.name: row.state for row in ledger.states()}
        retired = [node for node in nodes if states.get(node) is NodeState.RETIRED]
        asked = [node for node in nodes if node not in retired]
        now = WhenSeen(run=ctx.campaign, at=utc(begun))
        reports = _Asking(replace(ctx, check=True), site, paths, ledger, now, states).reports(asked)
        append_runs(
            ledger, ctx.campaign, begun, ctx.site_digest, [report.model_dump(mode="json") for report in reports]
        )
    return DriftRun(ctx.campaign, begun, time.time() - begun, reports, retired)


def new_run() -> str:
    """Return a new id of a drift run; it sorts by time."""
    return f"drift-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(3)}"


@dataclass(frozen=True, slots=True)
class _Asking:
    """The nodes and switches of one run, and what it takes to ask them."""

    ctx: PhaseContext
    site: Site
    paths: EnvPaths
    ledger: Ledger
    now: WhenSeen
    states: Mapping[str, NodeState]

    def reports(self, nodes: Sequence[str]) -> list[DriftReport]:
        """Return a report for each node, then for each switch that one of them is cabled to."""
        done = {node: applied(self.ledger, node) for node in nodes}
        found = {node: DriftReading() for node in nodes}
        self._nodes(done, found)
        behind = self._behind(nodes)
        switches = {name: DriftReading() for name in sorted(behind)}
        compare_switches(self.site, self.paths, self.ledger, switches)
        out = [self._report(name, found[name], done[name], [name]) for name in nodes]
        return out + [self._report(name, switches[name], None, behind[name]) for name in switches]

    def _nodes(self, done: Mapping[str, Applied], found: Mapping[str, DriftReading]) -> None:
        ready = {}
        for node, item in done.items():
            if item.phases:
                ready[node] = item
                found[node].notes += self._notes(node, item)
            else:
                step = f"Run `rackready deploy --env {self.ctx.env} --limit {node}` first."
                found[node].not_asked.append(f"{node}: nothing was applied to it yet. {step}")
        able = compare_keys(self.site, self.paths, {node: found[node] for node in ready})
        size = self.site.campaign.batch_size
        around = Compared(self.site, self.paths, self.ledger, EvidenceStore.read_only(self.ledger, self.paths.raw))
        for start in range(0, len(able), size):
            batch = {node: ready[node] for node in able[start : start + size]}
            compare_roles(self.ctx, self.site, batch, found)
            compare_readings(around, batch, found)
            compare_ufm(self.paths, self.site, batch, found)

    def _notes(self, node: str, done: Applied) -> list[str]:
        """Return what a reader should know before the items: phases that never ran, a site file edited since."""
        later = [phase for phase in PHASES if phase not in done.phases]
        out = [f"not compared, because never applied: {', '.join(later)}"] if later else []
        if done.desired != desired_digest(self.site, node):
            step = f"`rackready plan --env {self.ctx.env}` shows what."
            out.append(f"the site file changed since the last apply: some items may come from that. {step}")
        return out

    def _behind(self, nodes: Sequence[str]) -> dict[str, list[str]]:
        """Return switch -> those of the nodes that are cabled to it."""
        out: dict[str, list[str]] = {}
        for node in nodes:
            for switch in sorted({nic.switch for nic in node_facts(self.site, node).nics if nic.switch_os}):
                out.setdefault(switch, []).append(node)
        return out

    def _report(self, name: str, found: DriftReading, done: Applied | None, nodes: Sequence[str]) -> DriftReport:
        items = with_history(self.ledger, name, nodes, found.items, self.now)
        step = self._step(name, nodes)
        return DriftReport(
            name=name,
            target="node" if done is not None else "switch",
            asked=not found.not_asked,
            compared=list(done.phases) if done is not None else ["fabric"],
            items=[item if item.next_step else item.model_copy(update={"next_step": step}) for item in items],
            not_asked=found.not_asked,
            notes=found.notes,
            boot_id=found.boot_id,
        )

    def _step(self, name: str, nodes: Sequence[str]) -> str:
        """Return the command that puts items right. A deploy leaves nodes in quarantine alone."""
        deploy = f"`rackready deploy --env {self.ctx.env} --limit {','.join(nodes)}`"
        if self.states.get(name) is NodeState.QUARANTINED:
            repair = f"`rackready repair {name} --env {self.ctx.env} --reason '...'`"
            return f"It is in quarantine. When it is repaired, run {repair}, then {deploy}."
        return f"{deploy} puts it right."

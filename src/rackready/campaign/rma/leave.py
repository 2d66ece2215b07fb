"""A node leaves for its vendor: drained, everything gathered, packed with a summary, and recorded as out for repair.

Nothing is changed on the node but what the operator's field diagnostic does. A run that was killed is repeated by the
same command: it goes on with the collectors that have not ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rackready.campaign.rma import field_diagnostic, nvdebug, on_bmc, on_node, stored
from rackready.campaign.rma.archive import pack
from rackready.campaign.rma.case import Case, Gathered
from rackready.campaign.rma.gathering import Collector, Desk, run
from rackready.campaign.rma.scrubbed import hidden_in
from rackready.campaign.rma.summary import as_json, as_markdown, made
from rackready.design.pinned import site_of
from rackready.drivers.remote import Remote, Runner
from rackready.drivers.remote_copy import why
from rackready.drivers.ssh.target import node_target
from rackready.handover.production import in_production, take_out
from rackready.ledger.part_history import ACCUSED, SENT, PartEvent, append, events_of, now
from rackready.ledger.store import Ledger
from rackready.model.commands import repair
from rackready.model.near import CORRECT, hosts_among
from rackready.model.phase import PhaseContext
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.model.state import NodeState
from rackready.paths import EnvPaths

_REACH_S = 60.0
"""How long a node may take to answer at all, s. Judgement: logins are slow where the GPU driver hangs."""


class RmaRefusedError(RackreadyError):
    """The node may not leave or come back now. Nothing was gathered or recorded of it."""


def collectors(site: Site) -> list[Collector]:
    """Return every collector in the order in which it runs: the diagnostic last, since it may hang the node."""
    return [
        *stored.COLLECTORS,
        *on_bmc.COLLECTORS,
        *on_node.COLLECTORS,
        nvdebug.collector(site.rma.nvdebug),
        field_diagnostic.collector(site.rma.field_diagnostic),
    ]


@dataclass(slots=True)
class Leave:
    """One node that leaves. ``without``: collectors that the operator leaves out."""

    ctx: PhaseContext
    node: str
    without: Sequence[str] = ()
    ticket: Path | None = None
    site: Site = field(init=False)
    paths: EnvPaths = field(init=False)

    def __post_init__(self) -> None:
        """Refuse a node or a collector that does not exist, and a ticket that cannot be read."""
        self.site, self.paths = site_of(self.ctx), EnvPaths(self.ctx.root, self.ctx.env)
        require_node(self.site, self.node)
        known = [item.name for item in collectors(self.site)]
        for name in self.without:
            if name not in known:
                raise RmaRefusedError(
                    f"--without {name}",
                    expected=f"one of {', '.join(known)}",
                    actual=name,
                    next_step="Correct it.",
                )
        if self.ticket is not None and not self.ticket.is_file():
            raise RmaRefusedError(
                f"--ticket {self.ticket}", expected="a JSON file", actual="none", next_step="Correct the path."
            )

    def require_state(self) -> NodeState:
        """Return the node's state. Refuses one that was never deployed, or is retired."""
        if not Ledger.exists(self.paths.database):
            row = None
        else:
            with Ledger.read_only(self.paths.database) as ledger:
                row = ledger.state(self.node)
        if row is None:
            step = f"Run `rackready deploy --env {self.ctx.env} --limit {self.node}` first."
            raise RmaRefusedError(self.node, expected="a deployment record", actual="none", next_step=step)
        if row.state is NodeState.RETIRED:
            raise RmaRefusedError(
                self.node,
                expected="a node that comes back",
                actual=f"retired ({row.reason})",
                next_step=f"Run {repair(self.node)} first, if it is to come back.",
            )
        return row.state

    def plan(self) -> list[dict[str, Any]]:
        """Return what would be gathered, in order: name, what, by, the time limit (s), and why it would be left out."""
        before: dict[str, Gathered] = {}
        if Ledger.exists(self.paths.database):
            with Ledger.read_only(self.paths.database) as ledger:
                case = Case.open_of(ledger, self.paths, self.node)
            before = case.results() if case is not None else {}
        rma, rows = self.site.rma, []
        absent = {field_diagnostic.NAME: rma.field_diagnostic, nvdebug.NAME: rma.nvdebug, stored.TICKET: self.ticket}
        for item in collectors(self.site):
            left = "--without" if item.name in self.without else ""
            if item.name in absent and absent[item.name] is None:
                left = left or ("no --ticket" if item.name == stored.TICKET else "not in the site file")
            gathered = item.name in before and not before[item.name].reason
            rows.append(
                {
                    "name": item.name,
                    "what": item.what,
                    "by": item.by,
                    "limit_s": item.limit_s,
                    "left_out": left,
                    "gathered_before": gathered,
                }
            )
        return rows

    def gather(self, reason: str) -> tuple[Case, dict[str, Any]]:
        """Drain the node, gather, pack, and record it. Returns the case and its summary. Call it under the lock.

        Raises RmaRefusedError when jobs stay on the node, Interrupted when the operator stops.
        """
        self.require_state()
        with Ledger.open(self.paths.database) as ledger:
            case = self._begin(ledger, reason)
            for campaign in ledger.supersede(self.node):
                self._tell(ledger, f"campaign {campaign} was cut off and is not resumed: the node goes to its vendor")
            ledger.set_state(self.node, NodeState.REPAIR, f"rma: {case.reason} ({case.id})", phase="rma")
            with connected(self.ctx, self.site, self.paths, ledger, case, self.ticket) as desk:
                wanted = collectors(self.site)
                results = run(desk, wanted, self.without)
                document = hidden_in(made(desk, wanted, results), desk.secrets())
            pack(case, results, {"SUMMARY.json": as_json(document), "SUMMARY.md": as_markdown(document)})
            _record(ledger, case, document)
            self._tell(ledger, f"packed: {case.archive}", "ok")
        return case, document

    def _begin(self, ledger: Ledger, reason: str) -> Case:
        """Begin the case and drain the node. A node that jobs keep has not left, unless its case was open before."""
        earlier = Case.open_of(ledger, self.paths, self.node)
        case = Case.begin(ledger, self.paths, self.node, reason)
        try:
            failed = take_out(self.ctx, {self.node: f"rma: {reason}"}).get(self.node)
        except BaseException:  # stopped by the operator while jobs ended, among others
            if earlier is None:
                end(ledger, self.node, {"outcome": "not begun"})
            raise
        if failed is None:
            return case
        busy, unknown = in_production(self.ctx, [self.node])
        if not busy and not unknown:
            self._tell(ledger, f"not drained, and taken as free of jobs: {failed.message}", "warn")
            return case
        if earlier is None:
            end(ledger, self.node, {"outcome": "not begun"})
        raise RmaRefusedError(failed.message)

    def _tell(self, ledger: Ledger, text: str, level: str = "info") -> None:
        ledger.event(self.ctx.campaign, self.node, "rma", text, level)


def require_node(site: Site, node: str) -> None:
    """Refuse a name that the site does not have."""
    known = [item.name for item in site.nodes()]
    if node not in known:
        raise RmaRefusedError(
            node, expected=f"one of {hosts_among(known, node)}", actual="no such node", next_step=CORRECT
        )


def end(ledger: Ledger, node: str, result: dict[str, Any]) -> None:
    """End the open case of a node."""
    from rackready.handover.returned import RMA  # noqa: PLC0415 - beside its only use

    last = ledger.latest(node, RMA, every_epoch=True)
    if last is not None and last.status == "intent":
        ledger.done(last.token, result)


@contextmanager
def connected(
    ctx: PhaseContext, site: Site, paths: EnvPaths, ledger: Ledger, case: Case, ticket: Path | None = None
) -> Iterator[Desk]:
    """Yield a desk with a connection to the node; one that does not answer is noted in it, once for all collectors."""
    remote = node_runner(site, paths, case.node)
    try:
        answer = remote.run(case.node, ["true"], timeout_s=_REACH_S)
        unreached = "" if answer.exit_code == 0 else f"the node does not answer over SSH: {why(answer)}"
        if not unreached and isinstance(remote, Remote):
            remote.sweep(case.node)
        yield Desk(ctx, site, paths, ledger, case, remote, unreached, ticket)
    finally:
        if isinstance(remote, Remote):
            remote.close()


def node_runner(site: Site, paths: EnvPaths, node: str) -> Runner:
    """Return what runs commands on the node."""
    return Remote({node: node_target(site, node, paths.known_hosts)})


def _record(ledger: Ledger, case: Case, document: dict[str, Any]) -> None:
    """Record the parts with which the node leaves, and those accused; once for each case."""
    past = [event for event in events_of(ledger, node=case.node) if event.case == case.id]
    known = {(event.event, event.kind, event.serial) for event in past}
    accused = {(item["kind"], item["place"]): ", ".join(item["by_finding"]) for item in document["accused"]}
    events = []
    for part in document["parts"]:
        place = part["kind"], part["place"]
        for event in (SENT, ACCUSED) if place in accused else (SENT,):
            if part["serial"] and (event, part["kind"], part["serial"]) not in known:
                why_so = accused[place] if event == ACCUSED else ""
                words = (part["kind"], part["serial"], part["place"], part["number"], why_so)
                events.append(PartEvent(now(), case.id, case.node, event, *words))
    append(ledger, events)

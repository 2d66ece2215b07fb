"""A new system on a switch: one of those that share a node at a time, and the next only when its rails are proven.

No switch driver installs a system: the vendor's own means do that, between two commands. rackready gives the order,
empties the nodes, and afterwards proves their rails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rackready.design.names import listed
from rackready.design.pinned import site_of
from rackready.design.wiring import fabric_links
from rackready.drivers.switch.waves import waves
from rackready.handover.production import in_production, take_out
from rackready.ledger.store import Ledger, LedgerEntry
from rackready.model.near import hosts_among
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.problems import Message, RackreadyError
from rackready.model.site import Site
from rackready.model.state import NodeState, at_least
from rackready.paths import EnvPaths

OPERATION = "switch-system"
"""The ledger's operation: begun when the nodes behind the switch are empty, done when their rails are proven."""
PROOF = ("fabric", "validate", "optimize", "revalidate", "certify", "handover")
"""The phases that prove the rails of the nodes behind a switch, and bring them back."""


@dataclass(frozen=True, slots=True)
class SwitchStep:
    """One switch in order. ``cut``: node -> rails that it loses meanwhile; ``whole``: nodes that keep none."""

    switch: str
    system: str
    tier: str
    cut: Mapping[str, tuple[int, ...]]
    whole: tuple[str, ...]


def order(site: Site) -> list[SwitchStep]:
    """Return the switches in the order of their upgrade: from the top down, one at a time."""
    known = {switch.name: switch for switch in site.switches}
    names = [name for wave in waves(site, known, 1) for name in wave]
    return [step_of(site, name) for name in names]


def step_of(site: Site, name: str) -> SwitchStep:
    """Return what the upgrade of a switch means to nodes. Raises RackreadyError for an unknown name."""
    known = {switch.name: switch for switch in site.switches}
    if name not in known:
        raise RackreadyError(
            "--switch",
            expected=f"one of {hosts_among(sorted(known), name)}",
            actual=name,
            next_step="Correct the name.",
        )
    cut: dict[str, list[int]] = {}
    rails: dict[str, int] = {}
    nodes = {node.name for node in site.nodes()}
    for node, rail, _, switch, _ in fabric_links(site):
        if node not in nodes:
            continue
        rails[node] = rails.get(node, 0) + 1
        if switch == name:
            cut.setdefault(node, []).append(rail)
    whole = tuple(sorted(node for node, lost in cut.items() if len(lost) == rails[node]))
    return SwitchStep(
        name,
        known[name].os,
        "leaf" if cut else "upper",
        {node: tuple(sorted(lost)) for node, lost in cut.items()},
        whole,
    )


class SwitchUpgrade:
    """The upgrade of one switch. Call it under the controller lock; every method raises RackreadyError."""

    def __init__(self, ctx: PhaseContext, name: str) -> None:
        self.ctx, self.site = ctx, site_of(ctx)
        self.paths = EnvPaths(ctx.root, ctx.env)
        self.step = step_of(self.site, name)

    def begin(self, tell: Callable[[str], None]) -> list[str]:
        """Empty the nodes behind the switch and record that its upgrade begins; return these nodes.

        ``tell`` gets a line for each campaign that this ends.
        """
        with Ledger.open(self.paths.database) as ledger:
            if self._open(ledger, self.step.switch) is None:
                self._require_free(ledger)
            nodes = self._in_use(ledger)
            kept = self._empty(nodes)
            if kept:
                raise RackreadyError.of(
                    [
                        Message(node, f"switch {self.step.switch} waits", next_step=one.message)
                        for node, one in kept.items()
                    ]
                )
            # Recorded steps would be replayed and the new system never configured. Above the leafs all nodes count.
            for campaign in ledger.supersede(*(self.step.cut or [node.name for node in self.site.nodes()])):
                tell(f"campaign {campaign} was cut off and is not resumed: {self.step.switch} gets another system")
            if self._open(ledger, self.step.switch) is None:
                ledger.begin(self.step.switch, OPERATION, self.step.system, {"nodes": nodes})
            for node in nodes:  # what was measured before is about rails through the old system
                ledger.done(ledger.change_begins(node, OPERATION))
                row = ledger.state(node)
                if row is not None:
                    reason = f"switch {self.step.switch} gets another system"
                    ledger.set_state(node, NodeState.INSTALLED, reason, phase=OPERATION, campaign=self.ctx.campaign)
        return nodes

    def nodes(self) -> list[str]:
        """Return the nodes whose rails are to be proven now."""
        with Ledger.open(self.paths.database) as ledger:
            entry = self._open(ledger, self.step.switch)
        if entry is None:
            step = f"Begin with `rackready upgrade --switch {self.step.switch}`."
            raise RackreadyError(
                self.step.switch, "upgrade of its system", expected="begun", actual="not begun", next_step=step
            )
        return list(entry.observed["nodes"])

    def end(self) -> list[str]:
        """Record the proof when every node behind the switch is ready again; return the nodes that are not."""
        with Ledger.open(self.paths.database) as ledger:
            entry = self._open(ledger, self.step.switch)
            ready = {row.name for row in ledger.states() if row.state is NodeState.READY}
            left = [node for node in self.nodes() if node not in ready]
            if entry is not None and not left:
                ledger.done(entry.token, {"proven": list(entry.observed["nodes"])})
        return left

    def _open(self, ledger: Ledger, switch: str) -> LedgerEntry | None:
        last = ledger.latest(switch, OPERATION, every_epoch=True)
        return last if last is not None and last.status == "intent" else None

    def _require_free(self, ledger: Ledger) -> None:
        """Refuse while another switch of a node behind this one is not proven: the node would lose rails twice."""
        found = []
        for other in ledger.interrupted(OPERATION):
            both = sorted(self.step.cut.keys() & step_of(self.site, other).cut.keys())
            entry = self._open(ledger, other)
            if both and entry is not None:
                begun = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(entry.begun))
                step = f"Run `rackready upgrade --switch {other} --done` first."
                expected, actual = f"proven: {listed(both)} would lose rails twice", f"open since {begun}"
                found.append(Message(self.step.switch, f"rails through {other}", expected, actual, step))
        if found:
            raise RackreadyError.of(found)

    def _in_use(self, ledger: Ledger) -> list[str]:
        """Return the nodes behind the switch that are installed and in use: the others have no proof to lose."""
        installed = {row.name for row in ledger.states() if at_least(row.state, NodeState.INSTALLED)}
        return [node for node in self.step.cut if node in installed]

    def _empty(self, nodes: Sequence[str]) -> dict[str, NodeResult]:
        busy, unknown = in_production(self.ctx, nodes)
        reason = f"switch {self.step.switch} gets another system"
        kept = unknown | take_out(self.ctx, dict.fromkeys(busy, reason))
        return {node: result for node, result in kept.items() if result.outcome is not Outcome.PASS}

"""The plan of an upgrade: its nodes, what changes on each, the waves, and who is left out and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rackready.campaign.upgrade.changes import Changes, NodeChanges
from rackready.campaign.upgrade.durations import Expected
from rackready.campaign.upgrade.order import Order
from rackready.design.node_sets import NodeSet, choice_of, regrouped
from rackready.design.node_sets import with_sets as seen_with
from rackready.ledger.store import NodeRow
from rackready.model.commands import repair
from rackready.model.near import among
from rackready.model.problems import Message, RackreadyError
from rackready.model.site import Site
from rackready.model.state import LIFE, NodeState, at_least
from rackready.model.upgrade import ENDED_BADLY, NodeRecord, NodeStep, SetChoice, UpgradeRecord
from rackready.profiles import loader


@dataclass(frozen=True, slots=True)
class UpgradePlan:
    """What an upgrade would do. ``left_out``: node -> why."""

    to: SetChoice
    nodes: Mapping[str, NodeRecord]
    changes: Mapping[str, NodeChanges]
    waves: tuple[tuple[str, ...], ...]
    left_out: Mapping[str, str]
    expected: Expected | None

    def document(self) -> dict[str, Any]:
        """Return it as JSON types."""
        number = {node: place for place, wave in enumerate(self.waves, 1) for node in wave}
        rows = [
            {
                "name": node,
                "wave": number.get(node),
                "from": record.former.model_dump(),
                "changes": [asdict(change) for change in self.changes[node].packages],
                "reboot": self.changes[node].reboot,
                "reboot_reason": self.changes[node].why,
                "expected_seconds": round(self.expected.seconds) if self.expected else None,
            }
            for node, record in self.nodes.items()
        ]
        source = self.expected.source if self.expected else "not measured"
        return {
            "to": self.to.model_dump(),
            "nodes": rows,
            "waves": [list(wave) for wave in self.waves],
            "left_out": dict(self.left_out),
            "expected_source": source,
        }


@dataclass(frozen=True, slots=True)
class Fleet:
    """What is known of the nodes. ``written``: the site as its file says; ``sets``: what upgrades moved."""

    written: Site
    sets: Mapping[str, NodeSet]
    states: Mapping[str, NodeRow]

    @property
    def seen(self) -> Site:
        """Return the site with every node's present set."""
        return seen_with(self.written, self.sets)

    @property
    def serving(self) -> set[str]:
        """Return the nodes in service, as the ledger has them."""
        return {name for name, row in self.states.items() if row.state is NodeState.READY}


def target(site: Site, name: str, branch: int | None) -> SetChoice:
    """Return the set to move to. Raises RackreadyError if it is not known, or has no such branch."""
    known = loader.known("software")
    if name not in known:
        step = "Correct it, or add it to the site's profiles (docs/howto/profiles.md)."
        raise RackreadyError("--to", expected=f"one of {among(known, name)}", actual=name, next_step=step)
    branches = sorted(loader.software(name).driver)
    if branch is not None and branch not in branches:
        expected = f"one of {', '.join(map(str, branches))}"
        raise RackreadyError("--branch", expected=expected, actual=branch, next_step="Correct it.")
    own = branch if branch is not None else site.software.driver_branch
    return SetChoice(set=name, branch=own if own in branches else None)


def members(
    fleet: Fleet, chosen: Sequence[str], to: SetChoice, earlier: UpgradeRecord | None = None
) -> tuple[dict[str, NodeRecord], dict[str, str]]:
    """Return the nodes of a new upgrade, and why the others are left out.

    ``earlier``: only its nodes that ended badly, with the former sets that it knew (``--failed-only``).
    """
    nodes: dict[str, NodeRecord] = {}
    left: dict[str, str] = {}
    seen, system = fleet.seen, loader.software(to.set).os
    again = set(earlier.named(*ENDED_BADLY)) if earlier is not None else set(chosen)
    for node in chosen:
        if node not in again:
            continue
        former = choice_of(seen, node)
        if earlier is not None and former == to:  # it is on record with the new set, and did not come up
            former = earlier.nodes[node].former
        why = _unfit(fleet.states.get(node), former, to, loader.software(former.set).os, system)
        if why:
            left[node] = why
        else:
            nodes[node] = NodeRecord(former=former, written=choice_of(fleet.written, node))
    return nodes, left


def _unfit(row: NodeRow | None, former: SetChoice, to: SetChoice, runs: str, system: str) -> str:
    if former == to:
        return f"is on {to} already"
    if runs != system:
        return f"runs {runs}, and {to} is for {system}"
    if row is not None and row.state not in LIFE:
        return f"is {row.state.value}: {row.reason}. Repair it first: {repair(row.name)}"
    state = row.state if row is not None else NodeState.DECLARED
    if not at_least(state, NodeState.PROVISIONED):
        return f"is {state.value}: `rackready deploy` it first"
    return ""


def out_of_use(fleet: Fleet, left_out: Mapping[str, str]) -> dict[str, NodeRecord]:
    """Return the records of nodes that the upgrade misses because they are in quarantine or at their vendor."""
    seen, found = fleet.seen, dict[str, NodeRecord]()
    for node, why in left_out.items():
        row = fleet.states.get(node)
        if row is not None and row.state in {NodeState.QUARANTINED, NodeState.STUCK, NodeState.REPAIR}:
            choice = choice_of(seen, node)
            found[node] = NodeRecord(
                step=NodeStep.LEFT_OUT, former=choice, written=choice_of(fleet.written, node), reason=why
            )
    return found


def waves(site: Site, nodes: Sequence[str], serving: set[str]) -> tuple[tuple[tuple[str, ...], ...], dict[str, str]]:
    """Return the waves as they come if every node returns to service, and the nodes that no wave can take."""
    order, left, out = Order(site), list(nodes), list[tuple[str, ...]]()
    while left:
        wave = order.next(left, serving, first=not out)
        if not wave.nodes:
            return tuple(out), dict(wave.held)
        out.append(wave.nodes)
        left = [node for node in left if node not in wave.nodes]
    return tuple(out), {}


def planned(  # noqa: PLR0913 - what a plan is made of
    fleet: Fleet,
    nodes: Mapping[str, NodeRecord],
    left_out: Mapping[str, str],
    to: SetChoice,
    *,
    root: Path,
    group_vars: Path,
    expected: Expected | None,
) -> UpgradePlan:
    """Return the plan. Raises RackreadyError for a lower driver version without ``software.allow_downgrade``."""
    site = regrouped(fleet.seen, {node: record.former for node, record in nodes.items()})
    changes = Changes(site, root, group_vars)
    found = {node: changes.of(node, to) for node in nodes}
    lower = [(node, change.lower) for node, change in found.items() if change.lower]
    if lower and not fleet.written.software.allow_downgrade:
        node, versions = lower[0]
        step = "Choose a newer set, or set software.allow_downgrade: true."
        problem = Message(node, "driver", "a newer version, or software.allow_downgrade: true", versions, step)
        raise RackreadyError.of([problem])
    order, held = waves(fleet.seen, list(nodes), fleet.serving)
    return UpgradePlan(to, nodes, found, order, {**left_out, **held}, expected)


def settled(record: UpgradeRecord) -> bool:
    """Return whether every node of an upgrade is ready with its new set."""
    return all(node.step is NodeStep.READY for node in record.nodes.values())

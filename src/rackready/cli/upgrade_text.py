"""An upgrade's plan and record as text and as JSON."""

from __future__ import annotations

from typing import Any

from rackready.campaign.upgrade.plan import UpgradePlan
from rackready.cli.output import console, print_reasons, print_table
from rackready.design.names import listed
from rackready.model.upgrade import ENDED_BADLY, OPEN, NodeRecord, NodeStep, UpgradeRecord

_SHOWN = 4
"""Packages that a line names; ``--output json`` has all."""


def show_plan(plan: UpgradePlan) -> None:
    """Print a plan."""
    number = {node: place for place, wave in enumerate(plan.waves, 1) for node in wave}
    rows = []
    for node, record in plan.nodes.items():
        change = plan.changes[node]
        words = [f"{one.package} {one.before or 'none'} -> {one.after or 'none'}" for one in change.packages]
        more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
        time = f"{plan.expected.seconds / 60:.0f} min" if plan.expected else "not measured"
        what = f"{'; '.join(words[:_SHOWN])}{more}" or "no package"
        rows.append(
            (node, str(number.get(node, "-")), str(record.former), what, "yes" if change.reboot else "no", time)
        )
    if rows:
        print_table(("node", "wave", "from", "changes", "reboot", "takes"), rows, words=("changes",))
    for why in dict.fromkeys(plan.changes[node].why for node in plan.nodes):
        console.print(f"reboot: {why}")
    if plan.expected:
        way_back = "" if plan.expected.whole else " and a way back"
        console.print(f"takes: {plan.expected.source}, without the wait for jobs{way_back}")
    for place, wave in enumerate(plan.waves, 1):
        console.print(f"wave {place}{' (canary)' if place == 1 else ''}: {listed(wave)}")
    for node, why in plan.left_out.items():
        console.print(f"left out: {node} {why}")
    console.print(f"{len(rows)} nodes to {plan.to}; nothing was changed")


def show(record: UpgradeRecord) -> None:
    """Print an upgrade's record."""
    rows = [
        (name, str(node.wave or "-"), node.step.value, str(record.to if _is_on_new(node) else node.former))
        for name, node in record.nodes.items()
    ]
    print_table(("node", "wave", "upgrade", "version set"), rows, title=f"upgrade {record.id}")
    print_reasons((name, node.reason) for name, node in record.nodes.items())
    ready = len(record.named(NodeStep.READY))
    console.print(f"{record.state.value}: {ready} of {len(record.nodes)} nodes on {record.to}")
    if record.reason:
        console.print(record.reason)
    if advice := next_step(record):
        console.print(advice)


def _is_on_new(node: NodeRecord) -> bool:
    return node.step in {NodeStep.READY, NodeStep.MOVING} or (node.step is NodeStep.FAILED and not node.back)


def next_step(record: UpgradeRecord) -> str:
    """Return what is left to do."""
    if record.state in OPEN:
        return ""
    branch = f" --branch {record.to.branch}" if record.to.branch is not None else ""
    command = f"rackready upgrade --to {record.to.set}{branch}"
    bad, not_taken = record.named(*ENDED_BADLY), record.named(NodeStep.WAITING)
    steps = [f"{listed(bad)}: `{command} --failed-only` takes them again once repaired"] if bad else []
    steps += [f"{listed(not_taken)}: `{command}` takes them"] if not_taken else []
    done = (
        f"once all nodes of the site are on it, write `set: {record.to.set}` into software of the site file: until "
        "then the ledger keeps these nodes on it"
    )
    return ". ".join(steps) or done


def document(record: UpgradeRecord) -> dict[str, Any]:
    """Return a record as JSON types."""
    found = record.model_dump(mode="json")
    rows = [{"name": name, **row} for name, row in found.pop("nodes").items()]
    return {**found, "nodes": rows, "next_step": next_step(record)}

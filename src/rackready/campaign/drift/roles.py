"""Compares nodes with the roles of the phases that were applied: the roles themselves, in check mode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rackready.campaign.drift.applied import Applied, playbook_of, roles_of
from rackready.campaign.drift.found import DriftReading
from rackready.design.handover_of import HandoverView, by_scheduler
from rackready.drivers.ansible import run_playbook
from rackready.drivers.ansible_items import CHECK, check_of
from rackready.drivers.ib_fabric.guids import kept_guids
from rackready.handover.run import controller_vars, join_vars
from rackready.model.drift import DriftItem, DriftKind
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.paths import EnvPaths, shipped

PLAYBOOK = "drift.yml"
SLURM_NODE = "slurm_node"


def compare_roles(
    ctx: PhaseContext, site: Site, applied: Mapping[str, Applied], found: Mapping[str, DriftReading]
) -> None:
    """Add what the roles of the applied phases would change on each node, in one run per scheduler."""
    wanted = {node: _roles(site, item) for node, item in applied.items()}
    guids = kept_guids(EnvPaths(ctx.root, ctx.env), site)
    for view in by_scheduler(site, wanted):
        try:
            joins = join_vars(view.site.handover)
        except RackreadyError as error:  # the munge key: nodes of other schedulers are compared
            for node in view.nodes:
                found[node].not_asked.append(str(error))
            continue
        variables = {
            **_controllers(ctx, view, wanted, found),
            "rackready_drift_roles": {node: list(wanted[node]) for node in view.nodes},
            "opensm_port_guids": guids,
            **joins,
        }
        for node, result in run_playbook(replace(ctx, check=True), PLAYBOOK, list(view.nodes), variables).items():
            _add(found[node], result, wanted[node])


def _controllers(
    ctx: PhaseContext, view: HandoverView, wanted: Mapping[str, dict[str, str]], found: Mapping[str, DriftReading]
) -> dict[str, list[str]]:
    """Return what the role of Slurm's nodes needs of slurm.conf; leave the role out where that cannot be read."""
    joined = [node for node in view.nodes if SLURM_NODE in wanted[node]]
    try:
        return controller_vars(view.site, EnvPaths(ctx.root, ctx.env)) if joined else {}
    except RackreadyError as error:
        for node in joined:
            del wanted[node][SLURM_NODE]
            found[node].not_asked.append(str(error))
        return {}


def _roles(site: Site, applied: Applied) -> dict[str, str]:
    """Return role -> its phase, in the order of a deploy."""
    return {role: phase for phase in applied.phases for role in roles_of(shipped(), playbook_of(site, phase))}


def _add(found: DriftReading, result: NodeResult, phases: Mapping[str, str]) -> None:
    if result.outcome is Outcome.ERROR:
        found.not_asked.append(result.message)
        return
    for item in _without_followers(result.data.get("items", [])):
        found.items.append(_typed(item, item["role"], phases.get(item["role"], ""), item["task"]))
    for broken in result.data.get("broken", []):
        role, task = str(broken["role"]), str(broken["task"])
        if check := broken.get(CHECK):
            found.items.append(_typed(check_of(task, check), role, phases.get(role, ""), task))
            found.notes.append(f"role {role} stopped at this check ({task}): its later tasks were not compared")
        else:
            found.not_asked.append(f"role {role or 'unknown'} stopped at task {task}: {broken['message']}")


def _without_followers(items: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return items without tasks that follow another difference of their role, such as a restart after a new file."""
    explained = {item["role"] for item in items if item["kind"] != DriftKind.TASK.value}
    return [item for item in items if item["kind"] != DriftKind.TASK.value or item["role"] not in explained]


def _typed(item: Mapping[str, Any], role: str, phase: str, task: str) -> DriftItem:
    return DriftItem(
        kind=DriftKind(item["kind"]),
        name=item["name"],
        expected=item["expected"],
        actual=item["actual"],
        source=f"role {role}",
        phase=phase,
        task=task,
        next_step=str(item.get("next_step", "")),
    )

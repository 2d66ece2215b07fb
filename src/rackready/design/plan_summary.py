"""A plan in figures as plain data: the JSON output, and the source of text and Markdown."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from rackready.design.capacity.cooling_loss import KIND as CDU
from rackready.design.capacity.losses import tally
from rackready.design.diff import PlanDifference
from rackready.design.facts import driver_version
from rackready.design.handover_of import called_in, handover_views
from rackready.design.other_summary import node_ports, other_fabrics
from rackready.design.plan import Plan, switch_models
from rackready.design.software_of import software_views


def summary(
    plan: Plan, against: str | None = None, different: PlanDifference | None = None, not_compared: str = ""
) -> dict[str, Any]:
    """Return the document.

    ``against``: time (UTC) when the last deploy was recorded, None without one; ``different``: changes since then.

    ``not_compared``: why this plan is not compared with the applied state; empty if it is, or if nothing was
    applied.
    """
    site = plan.site
    return {
        "site": site.name,
        "racks": len(site.racks),
        "racks_with_nodes": sum(bool(rack.nodes) for rack in site.racks),
        "nodes": dict(sorted(Counter(f"{node.platform}, {node.kind}" for node in site.nodes()).items())),
        "software": _software(plan),
        "schedulers": _schedulers(plan),
        "devices": dict(sorted(Counter(device.kind for device in site.devices).items())),
        "switches": _switches(plan),
        "switch_names": _switch_names(plan),
        "fabric": _fabric(plan),
        "other_fabrics": other_fabrics(plan),
        "node_ports": node_ports(plan),
        "cables": _cables(plan),
        "power_cords": {line.description: line.needed for line in plan.bom if line.group == "cord"},
        "addresses": _addresses(plan),
        "capacity": _capacity(plan),
        "single_points_of_failure": [*plan.fabric.spof, *_power_spof(plan)],
        "bill_of_materials": [asdict(line) | {"total": line.total} for line in plan.bom],
        "problems": [problem.document() for problem in plan.problems],
        "notes": list(plan.notes),
        "difference": None if different is None else _difference(against, different, not_compared),
    }


def _software(plan: Plan) -> list[dict[str, Any]]:
    """Return every version set of the site with its driver and its nodes."""
    return [
        {
            "group": view.group,
            "set": view.site.software.set,
            "driver": driver_version(view.site),
            "nodes": list(view.nodes),
        }
        for view in software_views(plan.site)
    ]


def _schedulers(plan: Plan) -> list[dict[str, Any]]:
    """Return every scheduler of the site with its nodes and the launcher of their gates."""
    return [
        {
            "part": view.called,
            "scheduler": called_in(view.site),
            "launcher": view.site.gates.launcher,
            "nodes": list(view.nodes),
        }
        for view in handover_views(plan.site)
    ]


def _switches(plan: Plan) -> dict[str, dict[str, int]]:
    """Return tier or role -> model -> number of switches."""
    out: dict[str, dict[str, int]] = {}
    for _, tier, model in switch_models(plan):
        row = out.setdefault(tier, {})
        row[model] = row.get(model, 0) + 1
    return out


def _switch_names(plan: Plan) -> dict[str, list[str]]:
    """Return tier or role -> names: a switch has its login under its name there."""
    out: dict[str, list[str]] = {}
    for name, tier, _ in switch_models(plan):
        out.setdefault(tier, []).append(name)
    return out


def _fabric(plan: Plan) -> dict[str, Any]:
    topology, fabric = plan.site.topology, plan.fabric
    proof = fabric.proof
    return {
        "kind": "written links" if topology is None else topology.kind,
        "link": plan.site.fabric.kind if topology is None else topology.link,
        "oversubscription": None if topology is None else topology.oversubscription,
        "spine_oversubscription": None
        if topology is None or not fabric.counts.get("core")
        else topology.spine_oversubscription,
        "counts": fabric.counts,
        "proved": None if proof is None else proof.ok,
        "tiers": [] if proof is None else [asdict(tier) for tier in proof.tiers],
        "cuts": [] if proof is None else [asdict(cut) for cut in proof.cuts],
        "losses": [loss.text for loss in fabric.losses],
    }


def _cables(plan: Plan) -> dict[str, Any]:
    served = [cable for cable in plan.cables.cables if not cable.choice.problem]
    pieces = [cable.choice for cable in served if cable.is_piece]
    media = Counter([choice.medium for choice in pieces])
    kinds = Counter([cable.run.kind for cable in plan.cables.cables])
    return {
        "listed": len(plan.cables.cables),
        "pieces": len(pieces),
        "without_a_part": len(plan.cables.cables) - len(served),
        "stocked_length_m": round(sum(choice.stock_m for choice in pieces), 1),
        "by_kind": dict(sorted(kinds.items())),
        "by_medium": dict(sorted(media.items())),
    }


def _addresses(plan: Plan) -> dict[str, int]:
    """Return how many addresses of each kind are planned."""
    given = plan.addresses
    return {
        "in_band": sum(bool(node.in_band) for node in given.nodes),
        "bmc": sum(bool(node.oob) for node in given.nodes),
        "storage": sum(bool(node.storage) for node in given.nodes),
        "compute": sum(len(node.nics) for node in given.nodes),
        "dpu": sum(bool(dpu.bmc) + bool(dpu.os) for node in given.nodes for dpu in node.dpus),
        "switch_management": sum(bool(switch.oob) for switch in given.switches),
        "loopback": sum(bool(switch.loopback) for switch in given.switches),
        "as_numbers": len({switch.asn for switch in given.switches if switch.asn}),
        "device": sum(bool(address) for _, address in given.devices),
    }


def _capacity(plan: Plan) -> dict[str, Any]:
    report = plan.capacity
    heaviest = max(report.racks, key=lambda rack: rack.max_w, default=None)
    return asdict(report.totals) | {
        "largest_rack": None
        if heaviest is None
        else {"name": heaviest.name, "max_w": heaviest.max_w, "partial": bool(heaviest.unpublished)},
        "over_with_nothing_lost": report.over_alive,
        "cdu_losses_looked_at": sum(case.kind == CDU for case in report.losses),
        **{f"losses_{name}": count for name, count in asdict(tally(report.losses)).items()},
        "not_published": list(report.not_published),
    }


def _power_spof(plan: Plan) -> list[str]:
    """Return power nodes and CDUs whose loss takes devices down, accepted or not."""
    out = []
    for case in plan.capacity.losses:
        why = f"; accepted: {case.accepted}" if case.accepted else ""
        if case.kind == "node" and case.short:
            out.append(
                f"{case.element}: its loss leaves devices of {len(case.short)} racks without enough supplies{why}."
            )
        elif case.kind == "node" and case.over_feeds:
            out.append(f"{case.element}: its loss puts feeds of {len(case.over_feeds)} racks over their rating{why}.")
        elif case.kind == CDU and case.dark:
            out.append(f"{case.element}: its loss leaves {len(case.dark)} racks without liquid cooling{why}.")
    return out


def _difference(against: str | None, different: PlanDifference, not_compared: str) -> dict[str, Any]:
    return {
        "against": against,
        "not_compared": not_compared,
        "added": list(different.added),
        "changed": {key: [asdict(change) for change in fields] for key, fields in different.changed.items()},
        "removed": list(different.removed),
    }

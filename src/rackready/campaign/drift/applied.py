"""What was applied to a node or switch: only that is compared. The ledger knows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rackready.drivers.switch.apply import OPERATION
from rackready.ledger.store import Ledger, LedgerEntry
from rackready.model.phase import PhaseContext
from rackready.model.site import Site
from rackready.paths import EnvPaths

PHASES = ("install", "fabric", "optimize", "handover")
"""Phases that configure nodes with a playbook of the same name, in the order of a deploy."""
INFINIBAND = "fabric-infiniband"
"""Name of the playbook of the fabric phase on an InfiniBand site."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The phases whose playbook ended well on a node, in its present epoch. ``desired``: digest of the newest run."""

    phases: tuple[str, ...]
    desired: str = ""


def applied(ledger: Ledger, node: str) -> Applied:
    """Return what was applied to a node since it was declared or repaired."""
    epoch = ledger.epoch(node)
    wanted = {f"install:{phase}.yml": phase for phase in PHASES} | {f"install:{INFINIBAND}.yml": "fabric"}
    done = [
        entry
        for entry in ledger.entries(node)
        if entry.operation in wanted and entry.status == "done" and entry.epoch == epoch
    ]
    phases = {wanted[entry.operation] for entry in done}
    return Applied(tuple(phase for phase in PHASES if phase in phases), done[-1].desired if done else "")


def switch_applied(ledger: Ledger, switch: str) -> LedgerEntry | None:
    """Return the newest change that rackready made on a switch and confirmed, None when there is none."""
    done = [entry for entry in ledger.entries(switch) if entry.operation == OPERATION and entry.status == "done"]
    return done[-1] if done else None


def tuned(ctx: PhaseContext, nodes: Sequence[str]) -> list[str]:
    """Return those of the nodes that were optimized: install puts their settings back before gates judge them."""
    with Ledger.open(EnvPaths(ctx.root, ctx.env).database) as ledger:
        return [node for node in nodes if "optimize" in applied(ledger, node).phases]


def playbook_of(site: Site, phase: str) -> str:
    """Return the name of a phase's playbook on this site."""
    return INFINIBAND if phase == "fabric" and site.fabric.kind == "infiniband" else phase


def roles_of(root: Path, phase: str) -> list[str]:
    """Return the roles of a phase, in order, as its playbook lists them. There is no second list.

    A role with a condition is another phase's, put right earlier: it is compared there.
    """
    plays: list[dict[str, Any]] = yaml.safe_load((root / "playbooks" / f"{phase}.yml").read_text(encoding="utf-8"))
    listed = [role for play in plays for role in play.get("roles", [])]
    return [str(role["role"]) for role in listed if "when" not in role]

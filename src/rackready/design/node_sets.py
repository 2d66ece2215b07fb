"""Version sets of nodes that an upgrade moved: the site is seen with them until its file says the same.

The ledger is the record; the file is its copy. A node's set holds while the site file gives the node what it gave when
the upgrade moved it. Where the file gives another one, somebody edited it, and the file decides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rackready import files
from rackready.design.site_inputs import SETS_SCHEMA
from rackready.design.software_of import software_site
from rackready.model.operations import SoftwareGroup
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.model.upgrade import SetChoice
from rackready.paths import private_dir


class NodeSetsDamagedError(RackreadyError):
    """The copy of the nodes' version sets cannot be read."""


@dataclass(frozen=True, slots=True)
class NodeSet:
    """The set of one node, and what the site file gave it when it was moved."""

    now: SetChoice
    written: SetChoice


def read(path: Path) -> dict[str, NodeSet]:
    """Return node -> its set. Raises NodeSetsDamagedError: without it, a node could be taken back to an old version."""
    try:
        return _parsed(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
        raise NodeSetsDamagedError(
            path,
            expected=f"the version sets of upgraded nodes ({SETS_SCHEMA})",
            actual=f"{error.__class__.__name__}, damaged",
            next_step="Remove it, then run `rackready upgrade`: it writes it again from the ledger.",
        ) from error


def _parsed(document: Any) -> dict[str, NodeSet]:  # noqa: ANN401 - a JSON document
    if document["schema"] != SETS_SCHEMA:
        raise ValueError(f"schema {document['schema']}")
    return {
        str(node): NodeSet(SetChoice.model_validate(row["now"]), SetChoice.model_validate(row["written"]))
        for node, row in document["nodes"].items()
    }


def write(path: Path, sets: Mapping[str, NodeSet]) -> None:
    """Replace the file as a whole, where it differs. Raises OSError."""
    rows = {
        node: {"now": found.now.model_dump(), "written": found.written.model_dump()}
        for node, found in sorted(sets.items())
    }
    private_dir(path.parent)
    files.settle(path, (json.dumps({"schema": SETS_SCHEMA, "nodes": rows}, indent=1) + "\n").encode())


def choice_of(site: Site, node: str) -> SetChoice:
    """Return the version set and branch that a site gives a node."""
    software = software_site(site, node).software
    return SetChoice(set=software.set, branch=software.driver_branch)


def with_sets(site: Site, sets: Mapping[str, NodeSet]) -> Site:
    """Return the site as written, with the sets that hold. Nodes that the site does not name any more are left out."""
    known = {node.name for node in site.nodes()}
    return regrouped(
        site,
        {
            node: found.now
            for node, found in sets.items()
            if node in known and choice_of(site, node) == found.written != found.now
        },
    )


def regrouped(site: Site, chosen: Mapping[str, SetChoice]) -> Site:
    """Return the site with these version sets of nodes, each as a group. The same choice gives the same site."""
    moved = {node: choice for node, choice in chosen.items() if choice_of(site, node) != choice}
    if not moved:
        return site
    base = SetChoice(set=site.software.set, branch=site.software.driver_branch)
    wanted = {node.name: moved.get(node.name) or choice_of(site, node.name) for node in site.nodes()}
    mine = [group for group in site.software.groups if not group.name.startswith(_PREFIX)]
    groups, placed = [], set[str]()
    for group in mine:
        own = SetChoice(set=group.set, branch=group.driver_branch)
        names = sorted(name for name in group.names if wanted.get(name) == own)
        placed |= set(names)
        # made anew: a copy would keep the names that the group has computed
        fields = {"name": group.name, "set": group.set, "driver_branch": group.driver_branch}
        groups += [SoftwareGroup.model_validate({**fields, "nodes": names})] if names else []
    left: dict[SetChoice, list[str]] = {}
    for name, choice in wanted.items():
        if name not in placed and choice != base:
            left.setdefault(choice, []).append(name)
    for choice, names in sorted(left.items(), key=lambda pair: str(pair[0])):
        name = f"{_PREFIX}{choice.set}-{choice.branch or 'own'}".replace(".", "-").replace("_", "-")
        groups.append(
            SoftwareGroup(name=name[:63].rstrip("-"), nodes=sorted(names), set=choice.set, driver_branch=choice.branch)
        )
    return site.model_copy(update={"software": site.software.model_copy(update={"groups": groups})})


_PREFIX = "upgraded-"
"""Start of the names of groups that stand for moved nodes."""

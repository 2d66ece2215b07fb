"""Compares switches that the site file lists with those of its topology; `check_other_fabrics` has those of others."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from rackready.design.names import listed
from rackready.design.topology.types import FabricPlan
from rackready.model.problems import Message
from rackready.model.site import Site

_SHOWN = 5


def switch_problems(site: Site, fabric: FabricPlan | None) -> list[Message]:
    """Return listed switches that contradict the plan: of another model than planned, or under a name of no switch.

    A switch is listed beside a topology for its login, so its name decides whose login that is. ``fabric``: that of the
    topology, None without one.
    """
    return [] if fabric is None or not fabric.switches else [*_models(site, fabric), *_names(site, fabric)]


def _models(site: Site, fabric: FabricPlan) -> Iterator[Message]:
    planned = {switch.name: switch.model for switch in fabric.switches}
    for switch in site.switches:
        wanted = planned.get(switch.name, switch.model)
        if wanted != switch.model:
            step = f"Correct model of {switch.name} in switches, or the model in topology."
            yield Message(f"switch {switch.name}", "model", f"{wanted} as planned", switch.model, step)


def _names(site: Site, fabric: FabricPlan) -> Iterator[Message]:
    """Yield compute switches that are neither planned nor in ``links``: they would be switches beside the fabric."""
    planned = [switch.name for switch in fabric.switches]
    known = {*planned, *(link.switch for link in site.links)}
    lost = [switch.name for switch in site.switches if switch.role == "compute" and switch.name not in known]
    if lost:
        taken = {switch.name for switch in site.switches}
        near = get_close_matches(lost[0], [name for name in planned if name not in taken], n=1)
        step = "Correct the names, or set role for switches of other networks."
        said = f"Near {lost[0]}: {near[0]}. {step}" if near else step
        yield Message("switches", listed(lost, _SHOWN), "names of the plan, or in links", "not planned", said)

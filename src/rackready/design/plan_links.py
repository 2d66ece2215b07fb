"""The fabric of a site that lists its links by hand: leafs without a tier above, in the form of a topology."""

from __future__ import annotations

from rackready.design.topology.ports import port_names
from rackready.design.topology.spof import losses
from rackready.design.topology.types import EndpointLink, FabricPlan, TopoSwitch
from rackready.design.wiring import cables
from rackready.model.site import Site
from rackready.profiles import loader


def written_fabric(site: Site) -> FabricPlan:
    """Return the compute switches and links of a checked site as a fabric of one tier.

    Nothing is proved about it, since nothing connects its leafs.
    """
    leafs = [switch for switch in site.switches if switch.role == "compute"]
    switches = tuple(
        TopoSwitch(leaf.name, "leaf", 1, 1, place, leaf.model, len(port_names(loader.switch(leaf.model), 1)))
        for place, leaf in enumerate(leafs, 1)
    )
    models = {leaf.name: leaf.model for leaf in site.switches}
    numbers = {model: _numbers(model) for model in set(models.values())}
    endpoints = tuple(
        EndpointLink(node, rail, 1, switch, numbers[models[switch]].get(port, 0))
        for (node, rail), (switch, port) in cables(site).items()
    )
    lost = losses(switches, endpoints, {}, {}) if endpoints else ()
    counts = {
        "leaf": len(switches),
        "tiers": 1,
        "planes": 1,
        "nodes": len({link.node for link in endpoints}),
        "devices": 0,
        "endpoint_cables": len(endpoints),
    }
    return FabricPlan(switches, endpoints, (), (), counts, tuple(loss.text for loss in lost if loss.cuts_off), lost)


def _numbers(model: str) -> dict[str, int]:
    """Return port name -> port number of a switch model, sub-ports of each breakout included."""
    profile = loader.switch(model)
    return {name: number for ways in (1, *profile.breakout) for number, name in enumerate(port_names(profile, ways), 1)}

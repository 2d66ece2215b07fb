"""Checks of a handover to Kubernetes: every node has a name of its own there, and a driver that can give its GPUs."""

from __future__ import annotations

from rackready.design.check_names import Loc, unknown
from rackready.design.facts import driver_set
from rackready.design.handover_of import handover_places, served
from rackready.design.names import listed
from rackready.design.site_flaws import Flaw, Subject
from rackready.design.software_of import software_views
from rackready.model.kubernetes import KubernetesHandover
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.profiles import loader

_LONGEST = 253
"""Characters of a Node's name: an RFC 1123 subdomain."""
_DRA, _DRA_DOMAINS = "565", "570.158.01"
"""Oldest drivers for GPUs, and for ComputeDomains: dra-driver-nvidia-gpu v0.4.0, docs/prerequisites.md."""


def check_kubernetes(subject: Subject) -> list[Flaw]:
    """Return names of nodes that do not exist, that two nodes share, or that are too long for Kubernetes."""
    return [
        flaw
        for here, site in handover_places(subject.site)
        if isinstance(site.handover, KubernetesHandover)
        for flaw in _cluster(subject, here, site, site.handover)
    ]


def _cluster(subject: Subject, here: Loc, site: Site, handover: KubernetesHandover) -> list[Flaw]:
    names: Loc = (*here, "node_names")
    nodes = [node.name for node in served(site)]
    out: list[Flaw] = []
    known = [node.name for node in subject.site.nodes()]  # one that moved to another part keeps its name until then
    for node in handover.node_names:
        out += unknown(node, known, (*names, node), "node", subject.lost.of("nodes"))
    owner: dict[str, str] = {}
    for node in nodes:
        name = handover.node_name(node)
        before = owner.setdefault(name, node)
        loc = (*names, node) if node in handover.node_names else (*here, "node_suffix")
        if before != node:
            # only a name of its own can be equal to another: the suffix is the same for all
            loc = (*names, node if node in handover.node_names else before)
            out.append(Flaw(loc, f"{before} and {node} have the name {name} in Kubernetes.", "Give each its own."))
        if len(name) > _LONGEST:
            expected, actual = f"at most {_LONGEST} characters", f"{len(name)}"
            out.append(Flaw.of(loc, f"name of {node} in Kubernetes", "Shorten it.", expected=expected, actual=actual))
    return out + _drivers(here, site, handover)


def _drivers(here: Loc, site: Site, handover: KubernetesHandover) -> list[Flaw]:
    """Return drivers that are too old for the DRA driver, each once, with the nodes that have them."""
    if handover.devices != "dra":
        return []
    out = []
    own = {node.name for node in served(site)}
    for view in software_views(site):
        nodes = [name for name in view.nodes if name in own]
        if not nodes:
            continue
        try:
            version = driver_set(view.site).version
        except (KeyError, RackreadyError):
            continue  # the check of the version set reports it
        domains = any(loader.platform(view.site.node(name).platform).runs_imex for name in nodes)
        oldest = _DRA_DOMAINS if domains else _DRA
        if _numbers(version) < _numbers(oldest):
            expected = f"{oldest} or newer for NVIDIA's DRA driver"
            what, step = f"driver of {listed(nodes)}", "Choose another driver (software.set), or device-plugin."
            out.append(Flaw.of((*here, "devices"), what, step, expected=expected, actual=version))
    return out


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))

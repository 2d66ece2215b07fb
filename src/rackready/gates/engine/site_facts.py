"""Facts of a site for gates: its nodes and devices."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from rackready.design.facts import node_facts
from rackready.design.handover_of import by_scheduler, handover_views
from rackready.drivers.scheduler.reserve import PREFIX, USER
from rackready.gates.base import GateFacts, LastPass
from rackready.model.kubernetes import KubernetesHandover
from rackready.model.operations import makes_imex_channel
from rackready.model.site import Site, SlurmHandover


def site_facts(site: Site, nodes: Sequence[str], passed: Mapping[tuple[str, str], LastPass] | None = None) -> GateFacts:
    """Return facts of these nodes of a site. ``passed``: (gate, node) -> last pass, for gates that judge changes.

    Those of a scheduler are of the scheduler of all these nodes; where they have several, ``of_part`` sets them.
    """
    views = by_scheduler(site, nodes)
    found = GateFacts(
        nodes={name: node_facts(site, name) for name in nodes},
        fabric=site.fabric,
        fleet=len(site.nodes()),
        names={node.name: str(node.address) for node in site.nodes()},
        needed=_needed(site),
        launcher=site.gates.launcher,
        passed=passed or {},
        devices=tuple(site.devices),
        liquid=frozenset(
            name for name in nodes if (cooling := site.rack_of(name).cooling) is not None and cooling.kind != "air"
        ),
    )
    return of_part(found, views[0].site) if len(views) == 1 else found


def of_part(facts: GateFacts, site: Site) -> GateFacts:
    """Return the facts with the launcher and the scheduler of one part, by which ``site`` is seen."""
    reservation, user = slurm_jobs(site)
    cluster = site.handover if isinstance(site.handover, KubernetesHandover) else None
    found = replace(facts, launcher=site.gates.launcher, cluster=cluster, reservation=reservation, job_user=user)
    return replace(found, imex_channel=makes_imex_channel(site.handover))


def slurm_jobs(site: Site) -> tuple[str, str]:
    """Return the first part of the reservations' names, and the user, of jobs that gates start in Slurm."""
    if not isinstance(site.handover, SlurmHandover):
        return PREFIX, USER
    return site.handover.validation_reservation, site.handover.validation_user


def _needed(site: Site) -> tuple[str, ...]:
    """Return the hosts that the site refers to by name; an address needs no name server."""
    mirror = site.software.mirror
    urls = [*([mirror.url] if mirror is not None else []), *(item.url for item in site.software.repositories)]
    hosts = [urlsplit(url).hostname or "" for url in urls]
    handovers = [view.site.handover for view in handover_views(site)]
    hosts += [str(handover.controller) for handover in handovers if isinstance(handover, SlurmHandover)]
    return tuple(dict.fromkeys(host for host in hosts if host and not _is_address(host)))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True

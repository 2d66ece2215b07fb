"""Facts of a site for gates: its nodes and devices."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from rackready.design.facts import node_facts
from rackready.drivers.scheduler.reserve import PREFIX, USER
from rackready.gates.base import GateFacts, LastPass
from rackready.model.kubernetes import KubernetesHandover
from rackready.model.site import Site, SlurmHandover


def site_facts(site: Site, nodes: Sequence[str], passed: Mapping[tuple[str, str], LastPass] | None = None) -> GateFacts:
    """Return facts of these nodes of a site. ``passed``: (gate, node) -> last pass, for gates that judge changes."""
    reservation, user = slurm_jobs(site)
    return GateFacts(
        nodes={name: node_facts(site, name) for name in nodes},
        fabric=site.fabric,
        fleet=len(site.nodes()),
        names={node.name: str(node.address) for node in site.nodes()},
        needed=_needed(site),
        launcher=site.gates.launcher,
        cluster=site.handover if isinstance(site.handover, KubernetesHandover) else None,
        reservation=reservation,
        job_user=user,
        passed=passed or {},
        devices=tuple(site.devices),
        liquid=frozenset(
            name for name in nodes if (cooling := site.rack_of(name).cooling) is not None and cooling.kind != "air"
        ),
    )


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
    hosts += [str(site.handover.controller)] if isinstance(site.handover, SlurmHandover) else []
    return tuple(dict.fromkeys(host for host in hosts if host and not _is_address(host)))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True

"""Guard of power cycles: only a node on which no jobs run or may start may lose its power.

The scheduler is asked right before each power cycle.
"""

from __future__ import annotations

from collections.abc import Callable

from rackready.drivers.scheduler.base import UnknownNodeError
from rackready.drivers.scheduler.places import absence, places
from rackready.drivers.scheduler.registry import adapter_for
from rackready.gates.bmc.connection import Bmcs, sites_of
from rackready.gates.bmc.cycle import Cycler
from rackready.gates.bmc.mains import Feeds
from rackready.ledger.store import Ledger
from rackready.model.problems import RackreadyError, quoted
from rackready.model.site import Site
from rackready.model.state import NodeState
from rackready.paths import EnvPaths


def bmcs(site: Site, ledger: Ledger, campaign: str, paths: EnvPaths | None) -> Bmcs:
    """Return the connection to a site's BMCs; without ``paths`` the scheduler is unknown, so no power can be cycled."""
    if paths is None:
        return Bmcs(sites_of(site))
    return Bmcs(sites_of(site), cycler(site, ledger, campaign, lambda node: refusal(site, ledger, paths, node)))


def cycler(site: Site, ledger: Ledger, campaign: str, refuse: Callable[[str], str]) -> Cycler:
    """Return the object that cycles the power of a site's nodes."""
    return Cycler(
        ledger,
        campaign,
        refuse,
        lambda node: site.node(node).serial,
        feeds=Feeds.of_site(site),
        kind=lambda node: site.node(node).serial_kind,
    )


def refusal(site: Site, ledger: Ledger, paths: EnvPaths, node: str) -> str:
    """Return why a node may not lose its power now, or an empty text.

    A node that the scheduler does not know runs none of its jobs, unless it is lost. While the scheduler does not
    answer, only a node that was never ready may lose its power.
    """
    refused = [_refusal(view.site, ledger, paths, node) for view in places(site, ledger, [node])]
    return next(filter(None, refused), "")


def _refusal(site: Site, ledger: Ledger, paths: EnvPaths, node: str) -> str:
    try:
        with adapter_for(site, paths) as adapter:
            now = adapter.show(node)
            if now.usable:
                return "the scheduler may start jobs on it"
            jobs = adapter.jobs(node)
            return f"job {jobs[0].id} of {jobs[0].user} runs on it" if jobs else ""
    except UnknownNodeError as error:
        found = absence(site, ledger, node, error)
        return "" if found is error else f"the scheduler does not know it ({quoted(str(found))})"
    except RackreadyError as error:
        row = ledger.state(node)
        return f"the scheduler does not answer ({error})" if row is not None and row.state is NodeState.READY else ""

"""Nodes in service now: what a wave must not take away from a tenant, or from the scheduler."""

from __future__ import annotations

from collections.abc import Callable, Collection

from rackready.handover.offer import ASK_S, not_asked, offers
from rackready.model.site import Site
from rackready.paths import EnvPaths


def in_service(site: Site, paths: EnvPaths, ready: Collection[str], say: Callable[[str], None]) -> set[str]:
    """Return the ready nodes on which jobs may start: one that somebody else drained, or that is down, serves nobody.

    A node of which its scheduler does not tell counts as in service. That is said; it is asked again before its drain.
    """
    found = offers(site, paths, sorted(ready), limit_s=ASK_S, reads=False)
    for line in not_asked(found.unknown):
        say(f"{line} Counted as in service.")
    return {node for node in ready if node in found.unknown or (node in found.offered and found.offered[node].usable)}

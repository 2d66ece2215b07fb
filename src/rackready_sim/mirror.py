"""Content and server of the package mirror."""

from __future__ import annotations

import importlib

from rackready.model.site import Site
from rackready_sim.plan import MIRROR_PORT, RackPlan
from rackready_sim.store import Store


def url(plan: RackPlan) -> str:
    """Return the mirror's base URL."""
    return f"http://{plan.machines['mirror'].address}:{MIRROR_PORT}"


def build(site: Site, store: Store) -> None:
    """Create the signed repository with the versions of the site; quick if it exists."""
    repo = importlib.import_module("rackready_sim.packages.repo")
    repo.build_repo(site, store.mirror)

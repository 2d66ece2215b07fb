"""Content and server of the package mirror."""

from __future__ import annotations

import importlib

from rackready.model.site import Site
from rackready_sim.plan import MIRROR_PORT, RackPlan
from rackready_sim.store import Store


def url(plan: RackPlan) -> str:
    """Return the mirror's base URL; a repository of several is in a folder of its name."""
    return f"http://{plan.machines['mirror'].address}:{MIRROR_PORT}"


def build(site: Site, store: Store) -> None:
    """Create the signed repositories with the versions of the site; quick if they exist."""
    repo = importlib.import_module("rackready_sim.packages.repo")
    repo.build_repo(site, store.mirror)

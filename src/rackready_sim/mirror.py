"""The package mirror's content, and who serves it."""

from __future__ import annotations

import importlib

from rackready.model.site import Site
from rackready_sim.plan import MIRROR_PORT, Plan
from rackready_sim.store import Store


def url(plan: Plan) -> str:
    """Return the mirror's base URL."""
    return f"http://{plan.machines['mirror'].address}:{MIRROR_PORT}"


def build(site: Site, store: Store) -> None:
    """Make the signed repository of the versions that the site wants; quick when it is there already."""
    repo = importlib.import_module("rackready_sim.packages.repo")
    repo.build_repo(site, store.mirror)

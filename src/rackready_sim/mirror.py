"""Content and server of the package mirror."""

from __future__ import annotations

import importlib
from pathlib import Path

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


def built(folder: Path) -> list[tuple[str, int]]:
    """Return the folders of repositories as they are now: a newly built one is another folder."""
    places = [folder, *sorted(path for path in folder.glob("*") if path.is_dir())]
    return [(str(path), path.stat().st_ino) for path in places if path.exists()]

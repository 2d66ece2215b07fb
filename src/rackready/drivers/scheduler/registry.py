"""Which adapter serves which kind of handover."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rackready.drivers.scheduler.base import SchedulerAdapter
from rackready.drivers.scheduler.file import FileAdapter
from rackready.drivers.scheduler.remote import connect_slurm
from rackready.model.site import Site
from rackready.paths import EnvPaths

ADAPTERS: dict[str, Callable[[Any, EnvPaths], SchedulerAdapter]] = {
    "slurm": connect_slurm,
    "file": lambda handover, _paths: FileAdapter(handover.path),
}


def adapter_for(site: Site, paths: EnvPaths) -> SchedulerAdapter:
    """Return the adapter of the site's handover, connected. Raises SchedulerError when it cannot be reached."""
    return ADAPTERS[site.handover.kind](site.handover, paths)

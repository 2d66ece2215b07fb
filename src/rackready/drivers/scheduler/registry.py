"""Which adapter serves which kind of handover."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rackready.drivers.scheduler.base import SchedulerAdapter
from rackready.drivers.scheduler.file import FileAdapter
from rackready.drivers.scheduler.remote import connect_slurm, read_slurm
from rackready.model.site import Site
from rackready.paths import EnvPaths

ADAPTERS: dict[str, Callable[[Any, EnvPaths], SchedulerAdapter]] = {
    "slurm": connect_slurm,
    "file": lambda handover, _paths: FileAdapter(handover.path),
}

READERS: dict[str, Callable[[Any, EnvPaths], SchedulerAdapter]] = {"slurm": read_slurm}
"""Where connecting itself may write something (a host key at first contact), the way that writes nothing; an adapter that is not here writes nothing."""


def adapter_for(site: Site, paths: EnvPaths) -> SchedulerAdapter:
    """Return the adapter of the site's handover, connected. Raises SchedulerError when it cannot be reached."""
    return ADAPTERS[site.handover.kind](site.handover, paths)


def reader_for(site: Site, paths: EnvPaths) -> SchedulerAdapter:
    """Return the same for a command that only reads: connecting writes nothing. Raises SchedulerError when it cannot be reached so."""
    kind = site.handover.kind
    return READERS.get(kind, ADAPTERS[kind])(site.handover, paths)

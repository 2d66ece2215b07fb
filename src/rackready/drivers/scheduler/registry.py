"""Scheduler adapters by kind of handover; plug-ins by the name of their entry point (``rackready.schedulers``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from rackready.drivers.scheduler.base import SchedulerAdapter, SchedulerError
from rackready.drivers.scheduler.file import FileAdapter
from rackready.drivers.scheduler.kubernetes import connect_kubernetes, read_kubernetes
from rackready.drivers.scheduler.remote import connect_slurm, read_slurm
from rackready.entry_points import SCHEDULERS, PlugIn, named, names
from rackready.model.problems import Problem, RackreadyError
from rackready.model.site import PlugInHandover, Site
from rackready.model.wanted import path_text, steps, values
from rackready.paths import EnvPaths

ADAPTERS: dict[str, Callable[[Any, EnvPaths], SchedulerAdapter]] = {
    "slurm": connect_slurm,
    "kubernetes": connect_kubernetes,
    "file": lambda handover, _paths: FileAdapter(handover.path),
}

READERS: dict[str, Callable[[Any, EnvPaths], SchedulerAdapter]] = {
    "slurm": read_slurm,
    "kubernetes": read_kubernetes,
}
"""Ways to connect that write nothing, for adapters whose normal way may pin a host key or renew a token.

Others never write.
"""


Connect = Callable[[Any, EnvPaths], SchedulerAdapter]
"""Takes the plug-in's settings and returns its adapter, connected. Raises SchedulerError."""


@dataclass(frozen=True, slots=True)
class Scheduler:
    """The object that an entry point names: the model of ``handover.settings``, and how to connect.

    ``read``: a way to connect that writes nothing; None when ``connect`` never writes.
    """

    settings: type[BaseModel]
    connect: Connect
    read: Connect | None = None


def adapter_for(site: Site, paths: EnvPaths) -> SchedulerAdapter:
    """Return the adapter of a site's only scheduler, or that of a part by which the site is seen, connected.

    Raises SchedulerError when it cannot be reached.
    """
    if isinstance(site.handover, PlugInHandover):
        return _connected(site.handover, paths, reads=False)
    return ADAPTERS[site.handover.kind](site.handover, paths)


def reader_for(site: Site, paths: EnvPaths) -> SchedulerAdapter:
    """Return the same for a command that only reads: connecting writes nothing. Raises SchedulerError."""
    if isinstance(site.handover, PlugInHandover):
        return _connected(site.handover, paths, reads=True)
    kind = site.handover.kind
    return READERS.get(kind, ADAPTERS[kind])(site.handover, paths)


def settings_problems(handover: PlugInHandover, here: str = "handover") -> Iterator[Problem]:
    """Yield the problems of a handover to a plug-in's scheduler: unknown name, wrong settings. Raises PlugInError.

    ``here``: its place in the site file.
    """
    plug_in = named(SCHEDULERS, handover.scheduler, handover.scheduler in ADAPTERS)
    if plug_in is None:
        known = ", ".join(names(SCHEDULERS)) or "none is installed"
        yield Problem.of(
            f"{here}.scheduler",
            f"no plug-in serves scheduler {handover.scheduler!r}",
            "Install the package that brings it, or correct the name.",
            expected="one of those installed",
            actual=known,
        )
        return
    try:
        plug_in.load(Scheduler).settings.model_validate(handover.settings)
    except ValidationError as error:
        for item in error.errors(include_url=False, include_input=False):  # the input may be a secret
            where = path_text([f"{here}.settings", *steps(item)])
            yield Problem.of(where, plug_in, "Correct it.", **{"expected": "its settings"} | values(item))


def _connected(handover: PlugInHandover, paths: EnvPaths, *, reads: bool) -> SchedulerAdapter:
    problems = list(settings_problems(handover))
    plug_in = named(SCHEDULERS, handover.scheduler)
    if problems or plug_in is None:
        raise SchedulerError.of(problems)
    scheduler = plug_in.load(Scheduler)
    connect = (scheduler.read if reads else None) or scheduler.connect
    return _adapter(plug_in, connect, scheduler.settings.model_validate(handover.settings), paths)


def _adapter(plug_in: PlugIn, connect: Connect, settings: BaseModel, paths: EnvPaths) -> SchedulerAdapter:
    try:
        adapter = connect(settings, paths)
    except RackreadyError:
        raise
    except Exception as error:  # noqa: BLE001 - reported as the plug-in's error, whatever it is
        plug_in.refuse("it connects, or raises SchedulerError", f"{type(error).__name__}: {error}", error)
    if not isinstance(adapter, SchedulerAdapter):
        plug_in.refuse("connect returns a SchedulerAdapter", f"a {type(adapter).__name__}")
    return adapter

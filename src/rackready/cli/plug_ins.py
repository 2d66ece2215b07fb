"""Commands of plug-ins: entry points of group ``rackready.commands``, each named as its command.

An entry point names a ``typer.Typer`` (a group of commands) or a function (one command). It gets its own name only,
so that it cannot replace another command.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import typer

from rackready import entry_points
from rackready.entry_points import COMMANDS, PlugIn, PlugInError

BROUGHT = {"rehearse": "rackready[sim]", "sim": "rackready[sim]"}
"""Command -> what installs it, for optional packages of rackready."""


def find(name: str, *, ours: bool) -> PlugIn | None:
    """Return the plug-in with that command, or None. ``ours``: rackready itself has a command of that name.

    Raises PlugInError if two have it, or if it is one of ``BROUGHT`` and not installed.
    """
    found = entry_points.named(COMMANDS, name, ours)
    if found is None and not ours and name in BROUGHT:
        step = f"Run: pip install '{BROUGHT[name]}' (in a checkout: make setup)."
        raise PlugInError(
            f"rackready {name}",
            expected=f"a command of {BROUGHT[name]}",
            actual="that is not installed",
            next_step=step,
        )
    return found


def add(app: typer.Typer, plug_in: PlugIn) -> None:
    """Import a plug-in and add its command. Raises PlugInError with its name."""
    command = plug_in.load(object)
    if not isinstance(command, typer.Typer) and not callable(command):
        plug_in.refuse(f"{plug_in.point.value} is a typer.Typer or a function", f"a {type(command).__name__}")
    trial = typer.Typer()
    try:
        _put(trial, plug_in.name, command)
        typer.main.get_command(
            trial
        )  # typer reads the parameters here; an unsupported one must not break the other commands
    except Exception as error:  # noqa: BLE001 - typer's and click's refusals have no common class
        plug_in.refuse("a command that typer supports", f"{type(error).__name__}: {error}", error)
    _put(app, plug_in.name, command)


def add_every(app: typer.Typer, ours: Collection[str]) -> None:
    """Add the commands of all plug-ins. An unusable plug-in gets a command that reports the reason."""
    for name in entry_points.names(COMMANDS):
        try:
            found = find(name, ours=name in ours)
            if found is not None:
                add(app, found)
        except PlugInError as error:
            app.command(
                name,
                help=f"Cannot be used: {error}",
                context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
            )(_raises(error))


def _put(app: typer.Typer, name: str, command: Any) -> None:  # noqa: ANN401 - a Typer or any function
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        app.command(name)(command)


def _raises(error: PlugInError) -> Callable[[], None]:
    def unusable() -> None:
        raise error

    return unusable

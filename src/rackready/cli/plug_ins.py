"""Commands that other packages bring: an entry point of group ``rackready.commands``, named as its command.

It names a ``typer.Typer`` (a group of commands) or a function (one command). It is put under its own name alone, so
that it cannot take another's place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import typer

from rackready import entry_points
from rackready.entry_points import COMMANDS, PlugIn, PlugInError

BROUGHT = {"sim": "rackready[sim]"}
"""Commands of packages of our own that need not be installed, and what installs them."""


def find(name: str, *, ours: bool) -> PlugIn | None:
    """Return the plug-in with that command, None when there is none. ``ours``: rackready itself has a command of that name.

    Raises PlugInError when two have it, or when it is one of ``BROUGHT`` and not installed.
    """
    found = entry_points.named(COMMANDS, name, ours)
    if found is None and not ours and name in BROUGHT:
        step = f"Run: pip install '{BROUGHT[name]}' (in a checkout: make setup)."
        raise PlugInError(
            f"rackready {name} - Expected: a command of {BROUGHT[name]} Actual: that is not installed. {step}"
        )
    return found


def add(app: typer.Typer, plug_in: PlugIn) -> None:
    """Import a plug-in and add its command. Raises PlugInError that names it."""
    command = plug_in.load(object)
    if not isinstance(command, typer.Typer) and not callable(command):
        plug_in.refuse(f"{plug_in.point.value} is a typer.Typer or a function", f"a {type(command).__name__}")
    trial = typer.Typer()
    try:
        _put(trial, plug_in.name, command)
        typer.main.get_command(
            trial
        )  # typer looks at parameters here: what it does not understand must not break the other commands
    except Exception as error:  # noqa: BLE001 - typer's and click's refusals have no common class
        plug_in.refuse("a command that typer understands", f"{type(error).__name__}: {error}", error)
    _put(app, plug_in.name, command)


def add_every(app: typer.Typer, ours: Collection[str]) -> None:
    """Add the command of every plug-in. In place of one that cannot be used stands a command that says why: all others work."""
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

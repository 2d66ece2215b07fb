"""`rackready`: puts the commands together and turns errors into one clear text and an honest exit code."""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import traceback
from itertools import pairwise
from typing import NamedTuple, NoReturn

import click
import typer

from rackready import __version__, entry_points
from rackready.cli import complete, os_errors, plug_ins
from rackready.cli.streams import OUT, open_streams, to_nowhere, tolerant
from rackready.model.printable import visible
from rackready.model.problems import RackreadyError, SiteInvalidError

_MISUSE: tuple[type[Exception], ...] = (
    click.ClickException,
    *(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException" and issubclass(kind, Exception)),
)
"""What a wrong call raises. Newer releases of typer bring a copy of click of their own, whose errors are not click's."""

COMMANDS = {
    "deploy": "deploy",
    **dict.fromkeys(("provision", "install", "fabric", "validate", "optimize", "handover"), "single_phase"),
    "status": "status",
    "report": "report",
    "gate": "gate",
    "evidence": "evidence",
    "certificate": "certificate",
    "repair": "repair",
    "retire": "retire",
    "hostkey": "hostkey",
    "doctor": "doctor",
    "profile": "profile",
    "schema": "schema",
    "import": "import_data",
    "size": "size",
    "plan": "plan",
    "export": "netbox",
    "help": "help",
}
"""Command -> module of this package, which has ``register(app)``. Only the module of the command that is called is imported.

Other packages bring further ones (``plug_ins``)."""


def _root(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:  # noqa: FBT001, FBT003
    if version:
        typer.echo(f"rackready {__version__}")
        raise typer.Exit


def build(arguments: list[str]) -> typer.Typer:
    """Register the command that is called (every command, when none is) and return the application. Raises PlugInError.

    The shell's completion calls without arguments: there, the words that were typed say which command; while it is
    still being typed, names are enough.
    """
    app = typer.Typer(
        name="rackready",
        help="Takes a GPU rack from powered-off metal to production, and proves it.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback(invoke_without_command=True)(_root)
    words = complete.typed()
    called = next((word for word in (arguments if words is None else words) if not word.startswith("-")), "")
    if words is not None and called not in {*COMMANDS, *entry_points.names(entry_points.COMMANDS)}:
        for name in (*COMMANDS, *entry_points.names(entry_points.COMMANDS)):
            app.command(name)(_name_only)
        return app
    plug_in = plug_ins.find(called, ours=called in COMMANDS)
    if plug_in is not None:
        plug_ins.add(app, plug_in)
        return app
    for module in dict.fromkeys([COMMANDS[called]] if called in COMMANDS else COMMANDS.values()):
        importlib.import_module(f"rackready.cli.{module}").register(app)
    if called not in COMMANDS:
        plug_ins.add_every(app, COMMANDS)
    return app


def _name_only() -> None:
    """Stand for a command while its name is completed."""


def main() -> NoReturn:
    """Entry point: calls ``run`` and ends the process."""
    if not open_streams():
        with tolerant(sys.stderr):
            sys.stderr.write(
                f"{OUT} - Expected: open Actual: closed. Nothing was done: send it to a file or to {os.devnull}, "
                "then run again.\n"
            )
        sys.exit(2)
    code, by_error = run(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        with tolerant(stream):
            pass
    if by_error:
        _leave(code)
    sys.exit(code)


class Ended(NamedTuple):
    """How a call ended: its exit code, and whether an error ended it, which may have left threads at work."""

    code: int
    by_error: bool = False


def run(arguments: list[str]) -> Ended:
    """Call one command; the process goes on. Exit codes: 0 pass, 1 fail or error on some node, 2 refused or invalid, 130 interrupted."""
    os.umask(0o077)
    try:
        code = _called(arguments)
        sys.stdout.flush()  # a result that cannot come out is none, and is told here: at the end of the process it would be too late
    except (click.exceptions.Abort, typer.Abort, KeyboardInterrupt):
        with tolerant(sys.stderr):
            sys.stderr.write("stopped. Nothing is lost: the same command goes on from what is recorded.\n")
        return Ended(130, by_error=True)
    except (
        BrokenPipeError
    ):  # nobody reads what we write: the exit code alone is left to say that it did not come to its end
        for stream in (sys.stdout, sys.stderr):
            to_nowhere(stream)
        return Ended(2, by_error=True)
    except Exception as error:  # noqa: BLE001 - the last handler: a defect must not look like a bad node (exit code 1)
        json_wanted = "--output=json" in arguments or ("--output", "json") in pairwise(arguments)
        _refuse(error, json_wanted=json_wanted)
        return Ended(2, by_error=True)
    return Ended(code)


def _called(arguments: list[str]) -> int:
    """Call one command, and return its exit code."""
    try:
        # Outside standalone mode click gives back the code of typer.Exit instead of raising it.
        code = build(arguments)(arguments, prog_name="rackready", standalone_mode=False)
    except (click.exceptions.Exit, typer.Exit) as stop:
        return stop.exit_code
    return code if isinstance(code, int) else 0


def _told(error: Exception) -> RackreadyError:
    """Return an error in our words; what nobody foresaw is a defect."""
    if isinstance(error, RackreadyError):
        return error
    if isinstance(error, _MISUSE):
        text = error.format_message() if hasattr(error, "format_message") else str(error)
        return RackreadyError(f"{text} `rackready --help` says how it is called.")
    if isinstance(error, OSError):
        return os_errors.told(error)
    return _DefectError(f"defect in rackready - Expected: none Actual: {error.__class__.__name__}: {error}. Report it.")


class _DefectError(RackreadyError):
    """What nobody foresaw: it is shown whole."""


def _refuse(error: Exception, *, json_wanted: bool) -> None:
    """Say why. Streams that take nothing any more change no exit code."""
    told = _told(error)
    with tolerant(sys.stderr):
        if isinstance(told, _DefectError):
            traceback.print_exception(error)
        sys.stderr.write(f"{visible(str(told))}\n")
    if not json_wanted or getattr(error, "filename", None) == OUT:
        return
    document: dict[str, object] = {"error": str(told)}
    if isinstance(told, SiteInvalidError):
        document["problems"] = [
            {"path": item.path, "message": item.message, "hint": item.hint} for item in told.problems
        ]
    with tolerant(sys.stdout):
        sys.stdout.write(json.dumps(document, indent=2) + "\n")


def _leave(code: int) -> NoReturn:
    """End the process. Threads of the workflow engine that wait for work which an error ended are never done: it does not wait for them."""
    if any(thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)

"""`rackready`: assembles the commands, and turns errors into one message and an exit code."""

from __future__ import annotations

import gc
import importlib
import inspect
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
from rackready.cli import complete, named_env, os_errors, plug_ins
from rackready.cli.streams import OUT, open_streams, to_nowhere, tolerant
from rackready.model.printable import visible
from rackready.model.problems import RackreadyError, StoppedError

_MISUSE: tuple[type[Exception], ...] = (
    click.ClickException,
    *(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException" and issubclass(kind, Exception)),
)
"""Errors of a wrong call. Newer releases of typer contain their own copy of click, whose errors are not click's."""

_STOPPED = "Nothing is lost: run the same command again. What was recorded counts."

COMMANDS = {
    "deploy": "deploy",
    **dict.fromkeys(("provision", "install", "validate", "optimize", "handover"), "single_phase"),
    "fabric": "fabric",
    "release": "release",
    "drift": "drift",
    "upgrade": "upgrade",
    "mirror": "mirror",
    "image": "image",
    "status": "status",
    "report": "report",
    "gate": "gate",
    "evidence": "evidence",
    "certificate": "certificate",
    "slurm": "slurm",
    "repair": "repair",
    "rma": "rma",
    "hand-back": "hand_back",
    "nightly": "nightly",
    "trend": "trend",
    "calendar": "calendar",
    "watch": "watch",
    "worker": "worker",
    "ticket": "ticket",
    "retire": "retire",
    "hostkey": "hostkey",
    "bmc": "bmc",
    "switch": "switch",
    "baseline": "baseline",
    "boot-service": "boot_service",
    "doctor": "doctor",
    "profile": "profile",
    "schema": "schema",
    "setup": "setup",
    "comment": "comment",
    "import": "import_data",
    "size": "size",
    "plan": "plan",
    "export": "export",
    "help": "help",
}
"""Command -> module of this package with ``register(app)``. Only the module of the called command is imported.

Other packages add further commands (``plug_ins``)."""


def _root(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:  # noqa: FBT001, FBT003
    if version:
        typer.echo(f"rackready {__version__}")
        raise typer.Exit


def build(arguments: list[str]) -> typer.Typer:
    """Return the application with the called command, or with every command when none is called. Raises PlugInError.

    The shell's completion calls without arguments: the typed words name the command. While that word is incomplete,
    names are enough.
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
        lines = complete.commands()
        for name in (*COMMANDS, *entry_points.names(entry_points.COMMANDS)):
            app.command(name, help=lines.get(name, ""))(_name_only)
        return app
    plug_in = plug_ins.find(called, ours=called in COMMANDS)
    if plug_in is not None:
        plug_ins.add(app, plug_in)
        _join_lines(app)
        return app
    if arguments == ["--version"] and words is None:
        return app
    for module in dict.fromkeys([COMMANDS[called]] if called in COMMANDS else COMMANDS.values()):
        importlib.import_module(f"rackready.cli.{module}").register(app)
    if called not in COMMANDS:
        plug_ins.add_every(app, COMMANDS)
    _join_lines(app)
    return app


def _join_lines(app: typer.Typer) -> None:
    """Put each paragraph of the help texts on one line: typer keeps line breaks in all but the first one."""
    for command in app.registered_commands:
        text = command.help or inspect.getdoc(command.callback) or ""
        paragraphs = [item if item.startswith("\b") else " ".join(item.split()) for item in text.split("\n\n")]
        command.help = "\n\n".join(paragraphs) or None
    for group in app.registered_groups:
        if group.typer_instance is not None:
            _join_lines(group.typer_instance)


def _name_only() -> None:
    """Stand in for a command while its name is completed."""


def main() -> NoReturn:
    """Call ``run`` and end the process with its exit code."""
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
    """End of a call: its exit code, and whether an error ended it, which may have left threads running."""

    code: int
    by_error: bool = False


def run(arguments: list[str]) -> Ended:
    """Call one command and return how it ended; the process continues.

    Exit codes: 0 pass, 1 fail or error on some node, 2 refused or invalid, 130 interrupted.
    """
    os.umask(0o077)
    named_env.remember(arguments)
    try:
        code = _called(arguments)
        sys.stdout.flush()  # here, because at the end of the process an error could no longer be reported
    except (click.exceptions.Abort, typer.Abort, KeyboardInterrupt):
        _refuse(StoppedError(what="stopped", next_step=_STOPPED), json_wanted=_json_wanted(arguments))
        return Ended(130, by_error=True)
    except BrokenPipeError:
        return _unread()
    except SystemExit as stop:
        if not _at_closed_pipe(stop):
            raise
        return _unread()
    except Exception as error:  # noqa: BLE001 - the last handler: a defect must not look like a bad node (exit code 1)
        _refuse(_of_installation(arguments, error), json_wanted=_json_wanted(arguments))
        return Ended(2, by_error=True)
    return Ended(code)


def _unread() -> Ended:
    """Return the end of a call whose output nobody reads: only the exit code can report that it is incomplete."""
    for stream in (sys.stdout, sys.stderr):
        to_nowhere(stream)
    return Ended(2, by_error=True)


def _at_closed_pipe(stop: BaseException) -> bool:
    """Return whether a closed pipe made typer or rich end the process. Their exit code 1 would mean a bad node.

    Typer turns EPIPE into exit code 1 outside standalone mode, too (``typer.core._main``), and so does rich on the
    pages of ``--help`` (``rich.console.Console.on_broken_pipe``).
    """
    before = stop.__context__
    return before is not None and (isinstance(before, BrokenPipeError) or _at_closed_pipe(before))


def _json_wanted(arguments: list[str]) -> bool:
    return "--output=json" in arguments or ("--output", "json") in pairwise(arguments)


def _of_installation(arguments: list[str], error: Exception) -> Exception:
    """Return the error of an installation of completion with a message; any other error unchanged."""
    asked = any(word.partition("=")[0] == "--install-completion" for word in arguments)
    return complete.not_installed(error) if asked and isinstance(error, (OSError, RuntimeError)) else error


def _called(arguments: list[str]) -> int:
    """Call one command, and return its exit code."""
    try:
        # Outside standalone mode click returns the code of typer.Exit instead of raising it.
        code = _loaded(arguments)(arguments, prog_name="rackready", standalone_mode=False)
    except (click.exceptions.Exit, typer.Exit) as stop:
        return stop.exit_code
    return code if isinstance(code, int) else 0


def _loaded(arguments: list[str]) -> typer.Typer:
    """Build the application without garbage collection: imports leave no garbage, and looking for it takes a tenth."""
    gc.disable()
    try:
        return build(arguments)
    finally:
        gc.enable()


def _known(error: Exception) -> RackreadyError:
    """Return an error with a message for the operator. An unexpected error is a defect."""
    if isinstance(error, RackreadyError):
        return error
    if isinstance(error, _MISUSE):
        text = error.format_message() if hasattr(error, "format_message") else str(error)
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "rackready"
        return _UsageError(what=text, next_step=f"See `{command} --help`.")
    if isinstance(error, OSError):
        return os_errors.system_call_error(error)
    if (by_disk := os_errors.database_error(error)) is not None:
        return by_disk
    return _DefectError(
        "defect in rackready",
        expected="none",
        actual=f"{error.__class__.__name__}: {error}",
        next_step="Report it with this output.",
    )


class _UsageError(RackreadyError):
    """A wrong call."""

    code = "usage"


class _DefectError(RackreadyError):
    """An unexpected error, shown with its traceback."""

    code = "defect"


def _refuse(error: Exception, *, json_wanted: bool) -> None:
    """Print the error. A stream that accepts no more output does not change the exit code."""
    known = _known(error)
    with tolerant(sys.stderr):
        if isinstance(known, _DefectError):
            traceback.print_exception(error)
        sys.stderr.write(f"{named_env.with_env(visible(str(known)))}\n")
    if not json_wanted or getattr(error, "filename", None) == OUT:
        return
    from rackready.model.refusal import document  # noqa: PLC0415 - only a refusal in JSON needs pydantic

    with tolerant(sys.stdout):
        sys.stdout.write(json.dumps(named_env.in_document(document(known)), indent=2) + "\n")


def _leave(code: int) -> NoReturn:
    """End the process without waiting for threads of the workflow engine: after an error, some of them never end."""
    if any(thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)

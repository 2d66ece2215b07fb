"""`rackready doctor`: checks whether this machine can deploy an environment."""

from __future__ import annotations

import typer

from rackready.cli.doctor_checks import examine
from rackready.cli.doctor_scene import Report
from rackready.cli.output import Env, Format, Output, Verbose, env_paths, print_json, print_table
from rackready.cli.run_log import terminal_log
from rackready.model.outcome import Outcome, worst


def doctor(env: Env = "sim", verbose: Verbose = False, output: Output = Format.TEXT) -> None:  # noqa: FBT002 - a flag
    """Check this machine, its set-up and the site file. Changes nothing.

    Exit codes: 0 ready, 1 a check fails, 2 the site file cannot be used.
    """
    with terminal_log(f"rackready doctor --env {env}", verbose=verbose):
        reports = examine(env_paths(env))
    if output is Format.JSON:
        checks = [{"check": item.check, "outcome": item.outcome, "text": item.text} for item in reports]
        print_json({"env": env, "outcome": _outcome(reports), "checks": checks})
    else:
        _print(env, reports)
    raise typer.Exit(exit_code(reports))


def exit_code(reports: list[Report]) -> int:
    """Return 2 if the site file is refused, 1 if a check failed or could not run, else 0. A skip states its reason."""
    if any(item.refused for item in reports):
        return 2
    return 1 if any(item.outcome in {Outcome.FAIL, Outcome.ERROR} for item in reports) else 0


def _outcome(reports: list[Report]) -> Outcome:
    found = worst([item.outcome for item in reports])
    return Outcome.PASS if found is Outcome.SKIP else found


_COLOURS = {Outcome.PASS: "green", Outcome.FAIL: "red", Outcome.ERROR: "red", Outcome.SKIP: "yellow"}


def _print(env: str, reports: list[Report]) -> None:
    rows = [(item.check, item.outcome.value, item.text) for item in reports]
    colours = {outcome.value: colour for outcome, colour in _COLOURS.items()}
    print_table(
        ("check", "outcome", "result"),
        rows,
        title=f"{env}: is this machine ready?",
        words={"result"},
        style=lambda header, text: colours.get(text, "") if header == "outcome" else "",
    )


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)

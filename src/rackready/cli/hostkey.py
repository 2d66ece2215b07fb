"""`rackready hostkey accept`: shows a host's current key beside the pinned one, and pins it on confirmation."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackready.cli import complete
from rackready.cli.chosen_hosts import require_names_or_all, retired
from rackready.cli.output import Env, Format, Output, Verbose, console, env_paths, print_json, progress
from rackready.cli.run_log import new_run, run_log
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from rackready.drivers.hostkey_accept import Shown
    from rackready.paths import EnvPaths

app = typer.Typer(
    help="Accept SSH host keys of nodes, switches, the scheduler's controller and the jump host.", no_args_is_help=True
)

_EVIDENCE = (
    "A new host key can mean that the node was reinstalled: its fingerprint decides which of its evidence still "
    "counts. `rackready deploy` reads it first."
)
_ACCEPTED, _SAME, _LEFT, _ERROR = "accepted", "unchanged", "left", "error"


def register(parent: typer.Typer) -> None:
    """Add the command group to the application."""
    parent.add_typer(app, name="hostkey")


@app.callback()
def _group() -> None:
    """Keep `accept` as a word: an application with one command would omit it."""


@app.command("accept")
def accept(
    host: Annotated[
        list[str] | None,
        typer.Argument(help="Node, switch, `scheduler` or `jump`; repeatable.", autocompletion=complete.nodes),
    ] = None,
    every: Annotated[  # noqa: FBT002 - a flag
        bool, typer.Option("--all", help="Every host of the site, e.g. when known_hosts was lost.")
    ] = False,
    yes: Annotated[  # noqa: FBT002
        bool,
        typer.Option("--yes", help="Do not ask. Accepts a node's key only if its BMC reports the site's serial."),
    ] = False,
    env: Env = "sim",
    verbose: Verbose = False,  # noqa: FBT002
    output: Output = Format.TEXT,
) -> None:
    """Show the pinned key, the host's current key and the serial from the node's BMC; pin the new key if confirmed.

    Does not log in. Stops if the BMC reports another machine.

    Exit codes: 0 every key is pinned, 1 some are not, 2 refused.
    """
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.drivers.hostkey_accept import look, places  # noqa: PLC0415

    require_names_or_all("hostkey accept", "hosts", host or [], every=every)
    paths = env_paths(env)
    chosen = places(load_site(env, root=paths.root), paths, host or [], leave_out=retired(paths))
    campaign = new_run("hostkey")
    with run_log(paths, campaign, f"rackready hostkey accept --env {env}", verbose=verbose) as log:
        found = look(chosen)
        if output is Format.TEXT:
            _show(found)
        wanted = _confirmed(found, yes=yes)
        rows = _pinned(paths, found, wanted, campaign, yes=yes, env=env)
    if output is Format.JSON:
        print_json({"hosts": rows, "log": log})
    else:
        progress.print(f"log: {log}")
        _say(rows)
    raise typer.Exit(0 if all(row["outcome"] in {_ACCEPTED, _SAME} for row in rows) else 1)


def _show(found: list[Shown]) -> None:
    from rackready.drivers.hostkey_accept import named  # noqa: PLC0415

    for item in (item for item in found if item.differs):
        lines = [
            f"{item.place.name} {item.place.address}:{item.place.port}",
            f"  pinned: {named(item.pinned)}",
            f"  shown:  {named(item.shown)}",
        ]
        for line in [*lines, f"  BMC:    {_bmc(item)}"]:
            console.print(line)


def _bmc(item: Shown) -> str:
    if item.place.kind != "node":
        return f"none: compare the key with what the {item.place.kind}'s own console says"
    return f"not read: {item.bmc}" if item.bmc else f"serial {item.serial}, as in the site file"


def _confirmed(found: list[Shown], *, yes: bool) -> bool:
    """Ask once for all hosts. Raises RackreadyError without a terminal."""
    names = [item.place.name for item in found if item.differs]
    if yes or not names:
        return yes
    if not sys.stdin.isatty():
        expected = "an answer at a terminal, or --yes"
        raise RackreadyError(
            f"hostkey accept {' '.join(names)}",
            expected=expected,
            actual="no terminal",
            next_step="Nothing was pinned: compare the keys, then add --yes.",
        )
    what = f"the key that {names[0]} shows" if len(names) == 1 else f"the {len(names)} keys of {', '.join(names)}"
    progress.print(f"Pin {what}? [y/N] ", end="")
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _pinned(
    paths: EnvPaths,
    found: list[Shown],
    wanted: bool,  # noqa: FBT001 - the answer
    campaign: str,
    *,
    yes: bool,
    env: str,
) -> list[dict[str, Any]]:
    """Pin the accepted keys. Returns a row per host."""
    from rackready.drivers.hostkey_accept import accept as pin  # noqa: PLC0415
    from rackready.ledger.lock import ControllerLock  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415

    able = [item for item in found if item.differs and wanted and not (yes and item.unproven())]
    told: dict[str, str] = {}
    if able:
        with (
            ControllerLock(paths.lock, f"rackready hostkey accept --env {env}", paths.database),
            Ledger.open(paths.database) as ledger,
        ):
            for item in able:
                told[item.place.name] = pin(ledger, item)
                ledger.event(campaign, item.place.name, "hostkey", told[item.place.name], "warn")
    return [_row(item, told.get(item.place.name, ""), yes=yes) for item in found]


def _row(item: Shown, told: str, *, yes: bool) -> dict[str, Any]:
    from rackready.drivers.hostkey_accept import named  # noqa: PLC0415

    outcome, message = _outcome(item, told, yes=yes)
    return {
        "name": item.place.name,
        "kind": item.place.kind,
        "address": item.place.address,
        "port": item.place.port,
        "pinned": named(item.pinned) if item.pinned else None,
        "shown": named(item.shown) if item.shown else None,
        "serial": {"expected": item.wanted or None, "actual": item.serial or None},
        "outcome": outcome,
        "message": message,
    }


def _outcome(item: Shown, told: str, *, yes: bool) -> tuple[str, str]:
    from rackready.drivers.hostkey_accept import named  # noqa: PLC0415

    if told:
        return _ACCEPTED, told
    if item.trouble:
        return _ERROR, item.trouble
    if not item.differs:
        return _SAME, f"{item.place.name}: pinned already, {named(item.shown)}"
    return (_ERROR, item.unproven()) if yes else (_LEFT, f"{item.place.name}: left as it was")


def _say(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        (progress if row["outcome"] == _ERROR else console).print(row["message"])
    if any(row["outcome"] == _ACCEPTED and row["kind"] == "node" for row in rows):
        console.print(_EVIDENCE)

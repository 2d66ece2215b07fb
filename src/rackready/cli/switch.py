"""`rackready switch`: passwords of switches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackready.cli.chosen_hosts import require_names_or_all
from rackready.cli.deploy import Check
from rackready.cli.output import Env, Format, Output, Verbose, console, print_json, progress, working_paths
from rackready.cli.rotation import BAD, ERROR, SAME, in_waves, require_own_places
from rackready.cli.run_log import new_run, run_log
from rackready.model.near import hosts_among
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rackready.model.site import Site, Switch

app = typer.Typer(help="Take switches into use: their passwords.", no_args_is_help=True)


def register(parent: typer.Typer) -> None:
    """Add the command group to the application."""
    parent.add_typer(app, name="switch")


@app.callback()
def _group() -> None:
    """Keep `rotate` as a word: an application with one command would omit it."""


@app.command("rotate")
def rotate(
    switch: Annotated[list[str] | None, typer.Argument(help="Switch; repeatable.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every switch that has a login.")] = False,  # noqa: FBT002
    check: Check = False,  # noqa: FBT002 - a flag
    env: Env = "sim",
    verbose: Verbose = False,  # noqa: FBT002
    output: Output = Format.TEXT,
) -> None:
    """Give each switch's user a new random password, and write it to the place of `switches[].password`.

    rackready stores the new password beside the old one before the switch gets it, and proves it by a second login
    while the first stays open. It changes one switch first, then works in waves, until the site's stop rule ends the
    run. It finishes an interrupted change: it tries the pending password, then the old one, each once.

    Exit codes: 0 every switch has its new password, 1 some have not, 2 refused.
    """
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.drivers.switch.password import Rotation, SwitchPasswordLostError  # noqa: PLC0415
    from rackready.ledger.lock import ControllerLock  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415

    paths = working_paths(env)
    require_names_or_all("switch", "switches", switch or [], every=every)
    site = load_site(env, root=paths.root)
    chosen = _chosen(site, switch or [])
    require_own_places(site, {name: item.password for name, item in chosen.items() if item.password is not None})
    campaign, command = new_run("switch"), f"rackready switch rotate --env {env}"
    if check:
        with run_log(paths, campaign, command, verbose=verbose) as log:
            _end([_looked(item) for item in chosen.values()], output, log)
    with (
        run_log(paths, campaign, command, verbose=verbose) as log,
        ControllerLock(paths.lock, command, paths.database),
        Ledger.open(paths.database) as ledger,
    ):

        def change(name: str, say: Callable[[str], None]) -> None:
            Rotation(ledger, paths, chosen[name], say).run()

        limit = site.campaign.stop_above_pct
        rows = in_waves(list(chosen), change, lost=SwitchPasswordLostError, stop_above_pct=limit)
        for row in rows:
            ledger.event(campaign, row["name"], "switch", row["message"].splitlines()[-1], "warn")
    _end(rows, output, log)


def _chosen(site: Site, names: list[str]) -> dict[str, Switch]:
    known = {item.name: item for item in site.switches if item.password is not None}
    unknown = [name for name in names if name not in known]
    if unknown or not known:
        raise RackreadyError(
            "switch rotate",
            expected=f"a switch with a login: {hosts_among(known, *unknown) if known else 'the site has none'}",
            actual=", ".join(unknown) or "none",
            next_step="Correct the name, or add os, address and password to switches in the site file.",
        )
    return {name: known[name] for name in (names or known)}


def _looked(switch: Switch) -> dict[str, Any]:
    from rackready.drivers.switch.password import look  # noqa: PLC0415

    try:
        return {"name": switch.name, "outcome": SAME, "message": look(switch)}
    except RackreadyError as error:
        return {"name": switch.name, "outcome": ERROR, "message": str(error)}


def _end(rows: list[dict[str, Any]], output: Format, log: Path) -> None:
    if output is Format.JSON:
        print_json({"switches": rows, "log": log})
    else:
        progress.print(f"log: {log}")
        for row in rows:
            (progress if row["outcome"] in BAD else console).print(row["message"])
    raise typer.Exit(1 if any(row["outcome"] in BAD for row in rows) else 0)

"""The command `rackready sim fabric`: the planned InfiniBand fabric in ibsim, under the real opensm."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rackready.cli.output import Env, Format, Output, console, env_paths, print_json, progress
from rackready.design.site import load_site
from rackready_sim.ibtwin.report import UPLINKS, rehearse

SiteFile = Annotated[
    Path | None,
    typer.Option("--site", help="Site file; default: inventories/ENV/site.yml.", show_default=False, dir_okay=False),
]
Engine = Annotated[
    str, typer.Option("--engine", help="Routing engine of opensm: updn, ftree, minhop, ... (opensm(8), -R).")
]
Uplinks = Annotated[
    int, typer.Option("--uplinks", min=0, help="Number of uplinks whose loss is tried; each is one sweep of opensm.")
]


def fabric(
    env: Env = "sim",
    site: SiteFile = None,
    engine: Engine = "updn",
    uplinks: Uplinks = UPLINKS,
    output: Output = Format.TEXT,
) -> None:
    """Rehearse the planned InfiniBand fabric in ibsim under the real opensm: routes, credit loops, balance, losses.

    Nothing of the site is touched. Exit code 1 if something is wrong without any loss.
    """
    found = rehearse(load_site(env, site_file=site, root=env_paths(env).root), engine, uplinks, progress.print)
    if output is Format.JSON:
        print_json(found.document())
    else:
        for line in found.lines():
            console.print(line)
    raise typer.Exit(0 if found.passed else 1)

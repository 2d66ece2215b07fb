"""The command `rackready rehearse`: the whole deploy of a site, scaled down to this machine.

rackready finds it by the entry point ``rehearse`` of group ``rackready.commands``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from rackready.cli.limit import Limit, choose
from rackready.cli.output import Env, Format, Output, Verbose, console, env_paths, print_json, progress
from rackready.design.site import load_site
from rackready.design.yaml import dump_yaml
from rackready_sim.rehearse import machine, stand_in
from rackready_sim.rehearse.notes import beside_file
from rackready_sim.rehearse.run import Rehearsal, Rehearsed, named
from rackready_sim.rehearse.scaled import Scaled, scaled

SiteFile = Annotated[
    Path | None,
    typer.Option(
        "--site", help="Site file; default: inventories/ENV/site.yml.", show_default=False, exists=True, dir_okay=False
    ),
]
StandIn = Annotated[
    list[str],
    typer.Option(
        "--stand-in",
        metavar="HERE=THERE",
        help="What takes the place of a part that the simulated rack does not have, repeatable: PLATFORM=dgx_h100, "
        "SYSTEM=cumulus_nvue, or switches=cumulus_nvue for switches whose system the site does not name.",
    ),
]
Check = Annotated[
    bool, typer.Option("--check", help="Show the rehearsal and what it would not cover. Make nothing; no root needed.")
]
Keep = Annotated[bool, typer.Option("--keep", help="Leave the rack up. The next rehearsal, or `sim down`, removes it.")]


def rehearse(  # noqa: PLR0913, PLR0917 - each is an option of the command
    env: Env = "sim",
    site: SiteFile = None,
    limit: Limit = "",
    stand_ins: StandIn = [],  # noqa: B006 - typer copies it
    check: Check = False,  # noqa: FBT002 - command line flags
    keep: Keep = False,  # noqa: FBT002 - as above
    verbose: Verbose = False,  # noqa: FBT002 - as above
    output: Output = Format.TEXT,
) -> None:
    """Rehearse a site: a smaller one of the same kind, deployed on the simulated rack. Needs root.

    It has the site's platforms, version sets, fabric, gates and scheduler. It reads no secret of the site and connects
    to none of its addresses. The end lists what it could not cover, and why.

    Exit codes: 0 all nodes ready, 1 some are not, 2 refused, 130 stopped.
    """
    root = env_paths(env).root
    loaded = load_site(env, site_file=site, root=root)
    source = (site if site is not None else env_paths(env).site_file).resolve()
    small = scaled(
        loaded,
        most=machine.of_this_machine(),
        stand_ins=stand_in.read(stand_ins),
        limit=choose(loaded, limit) if limit else [],
    )
    small = replace(small, not_covered=(*small.not_covered, *beside_file(source.parent)))
    began = time.monotonic()
    rehearsal = Rehearsal(
        root,
        named(env, site),
        loaded,
        source,
        lambda text: progress.print(f"[{time.monotonic() - began:5.1f} s] {text}"),
    )
    if check:
        _show_plan(small, rehearsal, output)
        return
    done = rehearsal.run(small, keep=keep, verbose=verbose)
    _show(small, rehearsal, done, output)
    raise typer.Exit(done.code)


def _document(small: Scaled, rehearsal: Rehearsal) -> dict[str, Any]:
    return {
        "environment": rehearsal.paths.env,
        "nodes": list(small.nodes),
        "not_covered": [note.plain() for note in small.not_covered],
    }


def _show_plan(small: Scaled, rehearsal: Rehearsal, output: Format) -> None:
    if output is Format.JSON:
        print_json({**_document(small, rehearsal), "site": small.document, "covered": None, "deploy": None})
        return
    console.print(dump_yaml(small.document).rstrip())
    _show_list("not covered", (note.line() for note in small.not_covered))
    console.print(f"nothing was made; without --check, `{rehearsal.paths.env}` is deployed on this machine")


def _show(small: Scaled, rehearsal: Rehearsal, done: Rehearsed, output: Format) -> None:
    if output is Format.JSON:
        found = {
            "covered": done.covered.plain(),
            "deploy": done.deploy,
            "files": list(done.files),
            "seconds": round(done.seconds, 1),
            "kept": done.kept,
        }
        print_json({**_document(small, rehearsal), **found})
        return
    _show_list("covered", done.covered.lines())
    for row in done.deploy.get("nodes", []):
        if row["reason"]:
            console.print(f"{row['name']}: {row['reason']}")
    if "error" in done.deploy:
        console.print(done.deploy["error"])
    _show_list("not covered", (note.line() for note in small.not_covered))
    for name in done.files:
        console.print(f"file: {name}")
    state = (
        f"rack is kept: `rackready sim down --env {rehearsal.paths.env}` removes it" if done.kept else "rack is down"
    )
    console.print(f"rehearsal of {len(small.nodes)} nodes: exit code {done.code}, {done.seconds:.0f} s; {state}")


def _show_list(title: str, lines: Iterable[str]) -> None:
    console.print(f"{title}:")
    for line in lines:
        console.print(f"  {line}")

"""`rackready import netbox` and `rackready export netbox`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rackready.cli.output import Env, Format, Output, Verbose, console, env_paths, print_json
from rackready.cli.run_log import terminal_log
from rackready.design.names import block
from rackready.design.netbox.compare import NetboxStep, steps, taken
from rackready.design.netbox.items import NODE_ROLE, items, slug
from rackready.design.netbox.to_site import Imported, site_of
from rackready.design.plan import Plan, plan_site
from rackready.design.site import load_site
from rackready.design.yaml import dump_yaml
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from rackready.drivers.netbox import Netbox

Url = Annotated[str, typer.Option("--url", envvar="NETBOX_URL", help="Address of NetBox, https://...")]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", help="File with only the API token. Default: the variable NETBOX_TOKEN."),
]

_SHOWN = 50
_TOKEN = re.compile(r"[!-~]+")
"""Visible ASCII, which an HTTP header can carry (RFC 9110, 5.5). Other text would appear in an HTTP library's error."""


def token(file: Path | None) -> str:
    """Return the API token. Raises RackreadyError with the places searched, never with the token."""
    if file is not None:
        try:
            found = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8"
            raise RackreadyError(
                f"--token-file {file}",
                expected="a file that holds the API token",
                actual=reason,
                next_step="Correct the path.",
            ) from error
        where = f"--token-file {file}"
    else:
        found, where = os.environ.get("NETBOX_TOKEN", ""), "environment variable NETBOX_TOKEN"
    if not found:
        raise RackreadyError(
            where,
            expected="an API token of NetBox",
            actual="nothing",
            next_step="Give --token-file FILE, or set NETBOX_TOKEN.",
        )
    if _TOKEN.fullmatch(found) is None:
        # The content is not shown: it may be another secret.
        raise RackreadyError(
            where,
            expected="an API token of NetBox and nothing else",
            actual="several words, or characters that no token has",
            next_step="Correct it.",
        )
    return found


def import_netbox(  # noqa: PLR0913, PLR0917 - each is an option of the command
    site: Annotated[str, typer.Argument(help="Slug of the site in NetBox.")],
    url: Url,
    into: Annotated[Path, typer.Option("--into", help="Site file to write; it must not exist.")],
    token_file: TokenFile = None,
    node_role: Annotated[str, typer.Option("--node-role", help="Slug of the device role of nodes.")] = NODE_ROLE,
    verbose: Verbose = False,  # noqa: FBT002 - a flag
    output: Output = Format.TEXT,
) -> None:
    """Write a first site file from NetBox: racks, nodes, switches, addresses, links.

    Exit codes: 0 written, 2 refused and nothing written.
    """
    from rackready.drivers.netbox import Netbox  # noqa: PLC0415 - only who talks to NetBox pays for its client

    if into.exists():
        raise RackreadyError(
            f"--into {into}",
            expected="a new file",
            actual="it exists",
            next_step="Name another file, and compare the two.",
        )
    with terminal_log(f"rackready import netbox {site}", verbose=verbose):
        found = Netbox(url, token(token_file)).read(site, ("dcim.sites", "dcim.racks", "dcim.devices", "dcim.cables"))
    if not found["dcim.sites"]:
        raise RackreadyError(
            f"site {site} in {url}",
            expected="a site with this slug",
            actual="none",
            next_step="Correct the slug, or the token's permissions.",
        )
    if not found["dcim.racks"]:
        raise RackreadyError(
            f"site {site} in {url}",
            expected="racks",
            actual="none",
            next_step="Add its racks in NetBox, or correct the token's permissions.",
        )
    made = site_of(site, found, node_role)
    with into.open("x", encoding="utf-8") as file:
        file.write(_text(made))
    nodes = sum(len(rack["nodes"]) for rack in made.document["racks"])
    if output is Format.JSON:
        print_json(
            {
                "file": str(into),
                "nodes": nodes,
                "links": len(made.document["links"]),
                "missing": made.missing,
                "left_out": made.left_out,
            }
        )
        return
    console.print(f"{nodes} nodes and {len(made.document['links'])} links written to {into}")
    for title, lines in (("to be filled in", made.missing), ("left out", made.left_out)):
        _show(title, list(lines))


def _text(made: Imported) -> str:
    head = [
        "# From NetBox. Complete by hand what NetBox does not have:",
        *(f"#   {line}" for line in made.missing),
    ]
    return "\n".join(head) + "\n" + dump_yaml(made.document)


def _show(title: str, lines: list[str]) -> None:
    if lines:
        console.print("\n".join(block(title, lines, _SHOWN)))


def export_netbox(
    url: Url,
    env: Env = "sim",
    token_file: TokenFile = None,
    yes: Annotated[  # noqa: FBT002 - a flag
        bool, typer.Option("--yes", help="Write to NetBox. Default: only show the differences.")
    ] = False,
    verbose: Verbose = False,  # noqa: FBT002 - a flag
    output: Output = Format.TEXT,
) -> None:
    """Show parts of the plan that NetBox lacks; with --yes write them. Never deletes.

    Exit codes: 0 nothing to do or written, 1 differences shown, 2 refused.
    """
    from rackready.drivers.netbox import Netbox  # noqa: PLC0415 - only who talks to NetBox pays for its client

    plan = plan_site(load_site(env, root=env_paths(env).root))
    if plan.problems:
        head = f"site {plan.site.name} cannot be exported: its plan has problems; nothing was written."
        raise RackreadyError.of(plan.problems, head=head)
    with terminal_log(f"rackready export netbox --env {env}", verbose=verbose):
        todo = _exported(plan, Netbox(url, token(token_file)), yes=yes)
    if output is Format.JSON:
        print_json({"written": yes, "steps": [step.text for step in todo]})
    else:
        _show("written to NetBox" if yes else "NetBox differs", [step.text for step in todo])
        console.print("no difference" if not todo else "done" if yes else "nothing was written. Add --yes to write it")
    raise typer.Exit(1 if todo and not yes else 0)


def _exported(plan: Plan, netbox: Netbox, *, yes: bool) -> list[NetboxStep]:
    """Return what NetBox lacks, and with ``yes`` write it. Raises RackreadyError, with nothing written."""
    known = netbox.known(slug(plan.site.name))
    wanted = items(plan)
    clashes = taken(wanted, known)
    if clashes:
        raise RackreadyError.of(clashes, head=f"site {plan.site.name} cannot be exported; nothing was written.")
    todo = steps(wanted, known)
    if yes:
        netbox.write(todo, known)
    return todo


def register(app: typer.Typer) -> None:
    """Add `netbox` to `rackready export`."""
    app.command("netbox")(export_netbox)

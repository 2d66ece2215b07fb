"""`rackready provision --show-installer NODE`: the answer file of one node's installer."""

from __future__ import annotations

import typer

from rackready.cli.output import Format, env_paths, print_json
from rackready.model.problems import RackreadyError


def show(env: str, name: str, output: Format, *, alone: bool) -> None:
    """Print the file. Nothing is contacted or changed. ``alone``: no other option restricts the command."""
    from rackready.campaign.installer_file import node_installer_file  # noqa: PLC0415
    from rackready.design.site import load_site  # noqa: PLC0415

    if not alone:
        raise RackreadyError(
            "--show-installer", "prints one file and changes nothing", expected="neither --limit nor --check"
        )
    text = node_installer_file(load_site(env, root=env_paths(env).root), name)
    if output is Format.JSON:
        print_json({"env": env, "node": name, "file": text})
    else:
        typer.echo(text, nl=False)

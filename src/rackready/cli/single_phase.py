"""Each phase by itself: `rackready provision|install|fabric|validate|optimize|handover`, also on a site that others built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from rackready.cli.deploy import Check, Limit, Verbose
from rackready.cli.output import Env, Format, Output

_PHASES: dict[str, tuple[tuple[str, ...], str]] = {
    "provision": (
        ("provision",),
        "Power nodes on through their BMCs; pin the host keys of those that are new to it (Pulumi).",
    ),
    "install": (("install",), "Install and pin driver, fabric manager, CUDA, container toolkit, DCGM (Ansible)."),
    "fabric": (("fabric",), "Configure switches and the nodes' RoCE settings, and read them back."),
    "validate": (("validate",), "Run the gates of the site's set whose evidence is missing, void or too old."),
    "optimize": (("optimize", "revalidate"), "Set power limit and clocks from the profile, then validate again."),
    "handover": (("certify", "handover"), "Certify nodes whose gates passed and hand them to the scheduler."),
}


def register(app: typer.Typer) -> None:
    """Add one command a phase."""
    for name, (phases, text) in _PHASES.items():
        app.command(name, help=text)(validate if name == "validate" else _command(name, phases))


def _command(kind: str, phases: tuple[str, ...]) -> Callable[..., None]:
    def command(
        env: Env = "sim",
        limit: Limit = "",
        check: Check = False,  # noqa: FBT002
        verbose: Verbose = False,  # noqa: FBT002 - as above
        output: Output = Format.TEXT,
    ) -> None:
        from rackready.cli.campaign_run import run  # noqa: PLC0415

        run(kind, phases, env=env, limit=limit, check=check, output=output, verbose=verbose)

    return command


def validate(  # noqa: D103 - its help stands in the table
    env: Env = "sim",
    limit: Limit = "",
    check: Check = False,  # noqa: FBT002 - a command line flag
    again: Annotated[  # noqa: FBT002
        bool,
        typer.Option(
            "--again", help="Measure also what valid evidence spares. A fail on record stays one: `rackready repair`."
        ),
    ] = False,
    verbose: Verbose = False,  # noqa: FBT002
    output: Output = Format.TEXT,
) -> None:
    from rackready.cli.campaign_run import run  # noqa: PLC0415

    run(
        "validate",
        _PHASES["validate"][0],
        env=env,
        limit=limit,
        check=check,
        output=output,
        again=again,
        verbose=verbose,
    )

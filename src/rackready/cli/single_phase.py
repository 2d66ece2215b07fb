"""Single phases: `rackready provision|install|validate|optimize|handover`, also on a site that others built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from rackready.cli.deploy import Check, Erase, Full
from rackready.cli.limit import Limit
from rackready.cli.output import Env, Format, Output, Verbose

_PHASES: dict[str, tuple[tuple[str, ...], str]] = {
    "provision": (
        ("provision",),
        "Image nodes where the site file says so, power them on through their BMCs, and pin host keys (Pulumi).",
    ),
    "install": (("install",), "Install and pin driver, fabric manager, CUDA, container toolkit and DCGM (Ansible)."),
    "validate": (("validate",), "Run the gates of the site's set whose evidence is missing, void or too old."),
    "optimize": (("optimize", "revalidate"), "Set power limits and clocks from the profile, then validate again."),
    "handover": (("certify", "handover"), "Certify nodes whose gates passed, and hand them to the scheduler."),
}


def register(app: typer.Typer) -> None:
    """Add one command per phase."""
    for name, (phases, text) in _PHASES.items():
        own: dict[str, Callable[..., None]] = {
            "provision": provision,
            "install": _provable("install"),
            "validate": validate,
            "optimize": _provable("optimize"),
        }
        app.command(name, help=text)(own.get(name) or _command(name, phases))


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


def provision(  # noqa: D103, PLR0913, PLR0917 - the table has its help; each is an option of the command
    env: Env = "sim",
    limit: Limit = "",
    check: Check = False,  # noqa: FBT002 - a command line flag
    erase: Erase = [],  # noqa: B006 - typer copies it
    show_installer: Annotated[
        str,
        typer.Option(
            "--show-installer",
            metavar="NODE",
            help="Print the answer file for the installer of this node's system; then stop.",
        ),
    ] = "",
    verbose: Verbose = False,  # noqa: FBT002
    output: Output = Format.TEXT,
) -> None:
    if show_installer:
        from rackready.cli.show_installer import show  # noqa: PLC0415

        show(env, show_installer, output, alone=not (limit or check or erase))
        return
    from rackready.cli.campaign_run import run  # noqa: PLC0415

    phases = _PHASES["provision"][0]
    run("provision", phases, env=env, limit=limit, check=check, output=output, erase=erase, verbose=verbose)


def _provable(kind: str) -> Callable[..., None]:
    """Return the command of a phase whose nodes may prove that a play would change nothing."""

    def command(
        env: Env = "sim",
        limit: Limit = "",
        check: Check = False,  # noqa: FBT002 - a command line flag
        full: Full = False,  # noqa: FBT002 - as above
        verbose: Verbose = False,  # noqa: FBT002
        output: Output = Format.TEXT,
    ) -> None:
        from rackready.cli.campaign_run import run  # noqa: PLC0415

        phases = _PHASES[kind][0]
        run(kind, phases, env=env, limit=limit, check=check, output=output, full=full, verbose=verbose)

    return command


def validate(  # noqa: D103 - the table has its help
    env: Env = "sim",
    limit: Limit = "",
    check: Check = False,  # noqa: FBT002 - a command line flag
    again: Annotated[  # noqa: FBT002
        bool,
        typer.Option("--again", help="Also measure gates with valid evidence. A recorded fail stays a fail."),
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

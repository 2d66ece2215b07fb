"""`rackready boot-service`: starts, stops and shows the service from which nodes boot over the network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackready.cli import complete
from rackready.cli.output import Env, Format, Output, Verbose, console, print_json, print_table, progress, working_paths
from rackready.cli.run_log import terminal_log

if TYPE_CHECKING:
    from rackready.drivers.boot_service import BootService, Reports
    from rackready.model.site import Site
    from rackready.paths import EnvPaths

app = typer.Typer(help="Boot nodes over the network while they are provisioned.", no_args_is_help=True)


def register(parent: typer.Typer) -> None:
    """Add the command group to the application."""
    parent.add_typer(app, name="boot-service")


@app.command("start")
def start(env: Env = "sim", verbose: Verbose = False, output: Output = Format.TEXT) -> None:  # noqa: FBT002 - a flag
    """Put boot files in place and start DHCP, TFTP and HTTP; only armed nodes get an answer.

    A running service is updated to match the site file.

    Exit codes: 0 it runs, 2 refused.
    """
    from rackready.stacks import services_run  # noqa: PLC0415

    site, paths = _site(env)
    with _alone(paths, "start", verbose=verbose):
        services_run.up(site, paths)
    _show_state(_service(site, paths), site, output)


@app.command("stop")
def stop(env: Env = "sim", verbose: Verbose = False, output: Output = Format.TEXT) -> None:  # noqa: FBT002 - a flag
    """Stop the daemons. Files and armed nodes stay; `start` continues with them.

    Exit codes: 0 it is stopped, 2 refused.
    """
    site, paths = _site(env)
    service = _service(site, paths)
    if not service.layout.root.exists():
        _show_state(service, site, output)
        return
    with _alone(paths, "stop", verbose=verbose):
        service.stop()
    _show_state(service, site, output)


@app.command("destroy")
def destroy(env: Env = "sim", verbose: Verbose = False, output: Output = Format.TEXT) -> None:  # noqa: FBT002 - a flag
    """Stop the daemons and remove every file of the service, including its authority and all reports.

    Refuses while a node is armed.

    Exit codes: 0 nothing is left, 2 refused.
    """
    from rackready.stacks import services_run  # noqa: PLC0415

    site, paths = _site(env)
    service = _service(site, paths)
    with _alone(paths, "destroy", verbose=verbose):
        services_run.destroy(paths)
        service.remove()  # also what a run made that was killed before the engine recorded it
    _show_state(service, site, output)


@app.command("disarm")
def disarm(
    node: Annotated[str, typer.Argument(help="Node to stop answering.", autocompletion=complete.nodes)],
    env: Env = "sim",
    verbose: Verbose = False,  # noqa: FBT002 - a flag
    output: Output = Format.TEXT,
) -> None:
    """Stop answering a node: removes its plan and token. `provision` does this by itself when it ends.

    Exit codes: 0 it is not armed, 2 refused.
    """
    site, paths = _site(env)
    service = _service(site, paths)
    if not service.layout.root.exists():
        _show_state(service, site, output)
        return
    with _alone(paths, f"disarm {node}", verbose=verbose):
        was = service.disarm(node)
    if output is Format.TEXT:
        progress.print(f"{node}: {'disarmed' if was else 'was not armed'}")
    _show_state(service, site, output)


@app.command("status")
def status(env: Env = "sim", output: Output = Format.TEXT) -> None:
    """Show whether the daemons run and which nodes are armed.

    Exit codes: 0 it runs, 1 it does not, 2 refused.
    """
    site, paths = _site(env)
    service = _service(site, paths)
    _show_state(service, site, output)
    raise typer.Exit(0 if service.running() else 1)


@app.command("show")
def show(
    node: Annotated[str, typer.Argument(help="Node whose reports are shown.", autocompletion=complete.nodes)],
    env: Env = "sim",
    output: Output = Format.TEXT,
) -> None:
    """Show what the imaging agent of a node reported since the node was last armed.

    Exit codes: 0 shown, 2 refused.
    """
    site, paths = _site(env)
    if all(item.name != node for item in site.nodes()):
        from rackready.model.problems import RackreadyError  # noqa: PLC0415

        raise RackreadyError(node, expected="a node of the site", actual="none with this name")
    found = _service(site, paths).reports(node)
    if output is Format.JSON:
        print_json(_document(node, found))
        return
    rows = [
        (
            item.boot,
            f"{item.at:%Y-%m-%d %H:%M:%S}",
            item.step,
            "" if item.percent is None else f"{item.percent} %",
            f"{item.seconds:.1f}",
            item.code,
            item.message,
        )
        for item in found.reports
    ]
    print_table(("boot", "at (its clock)", "step", "written", "s", "code", "message"), rows, words=("message",))
    for line in found.strange:
        progress.print(str(line), style="yellow")


def _document(node: str, found: Reports) -> dict[str, Any]:
    reports = [item.model_dump(mode="json", by_alias=True) for item in found.reports]
    return {"node": node, "reports": reports, "strange": [str(line) for line in found.strange]}


def _site(env: str) -> tuple[Site, EnvPaths]:
    from rackready.design.site import load_site  # noqa: PLC0415

    paths = working_paths(env)
    return load_site(env, root=paths.root), paths


def _service(site: Site, paths: EnvPaths) -> BootService:
    from rackready.stacks.services import boot_service  # noqa: PLC0415

    return boot_service(site, paths)


@contextmanager
def _alone(paths: EnvPaths, action: str, *, verbose: bool) -> Iterator[None]:
    from rackready.ledger.lock import ControllerLock  # noqa: PLC0415

    command = f"rackready boot-service {action} --env {paths.env}"
    with terminal_log(command, verbose=verbose), ControllerLock(paths.lock, command, paths.database):
        yield


def _show_state(service: BootService, site: Site, output: Format) -> None:
    pids, armed, settings = service.pids(), service.armed(), service.settings
    default = site.provisioning.boot if site.provisioning is not None else "disk"
    by_http = any((node.boot or default) == "http" for node in site.nodes())
    problem = service.http_boot_problem() if by_http else None
    if output is Format.JSON:
        print_json(
            {
                "running": service.running(),
                "daemons": pids,
                "armed": armed,
                "address": str(settings.address),
                "interface": settings.interface,
                "http_boot": str(problem) if problem else "",
            }
        )
        return
    for name, pid in pids.items():
        console.print(f"{name}: {f'runs, pid {pid}' if pid else 'does not run'}")
    console.print(f"armed: {', '.join(armed) or 'none'}")
    if problem:
        console.print(str(problem))

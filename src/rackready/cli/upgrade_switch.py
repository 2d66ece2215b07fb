"""`rackready upgrade --switches` and `--switch`: the order of switches, and one switch at a time."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from rackready.cli.output import Format, console, print_json, print_table, progress
from rackready.cli.run_log import new_run
from rackready.design.names import listed
from rackready.model.phase import PhaseContext

if TYPE_CHECKING:
    from rackready.paths import EnvPaths

_BY_HAND = "rackready cannot upgrade a {system} switch: upgrade {switch} with its vendor's tools now, then run"


def show_order(paths: EnvPaths, output: Format) -> None:
    """Print the switches in the order of their upgrade, with the rails that nodes lose meanwhile."""
    from rackready.campaign.upgrade.switch_system import order  # noqa: PLC0415
    from rackready.design.site import load_site  # noqa: PLC0415

    steps = order(load_site(paths.env, root=paths.root))
    if output is Format.JSON:
        print_json({"env": paths.env, "switches": [asdict(step) for step in steps]})
        return
    rows = [
        (str(place), step.switch, step.system, listed(list(step.cut)) or "none", listed(list(step.whole)) or "none")
        for place, step in enumerate(steps, 1)
    ]
    print_table(("order", "switch", "system", "nodes that lose rails", "nodes that lose all rails"), rows)
    console.print("one at a time: the next begins when the rails of its nodes are proven. Nothing was changed")


def begin(paths: EnvPaths, name: str, output: Format) -> None:
    """Empty the nodes behind a switch, and say what comes next."""
    from rackready.campaign.upgrade.switch_system import SwitchUpgrade  # noqa: PLC0415
    from rackready.ledger.lock import ControllerLock  # noqa: PLC0415

    command = f"rackready upgrade --env {paths.env} --switch {name}"
    with ControllerLock(paths.lock, command, paths.database):
        work = SwitchUpgrade(PhaseContext(paths.env, paths.root, new_run("upgrade")), name)
        nodes = work.begin(lambda line: progress.print(line, style="yellow"))
    step = f"{_BY_HAND.format(system=work.step.system, switch=name)} `{command} --done`"
    if output is Format.JSON:
        print_json({"env": paths.env, "switch": name, "nodes": nodes, "next_step": step})
        return
    console.print(f"{name}: {listed(nodes) or 'no node'} behind it: drained and empty")
    console.print(step)


def end(paths: EnvPaths, name: str, output: Format, *, verbose: bool) -> None:
    """Prove the rails of the nodes behind a switch, and hand the nodes over again."""
    from rackready.campaign.summary import exit_code  # noqa: PLC0415
    from rackready.campaign.upgrade.switch_system import PROOF, SwitchUpgrade  # noqa: PLC0415
    from rackready.cli.campaign_run import carried_out, show_result  # noqa: PLC0415
    from rackready.ledger.lock import ControllerLock  # noqa: PLC0415

    command = f"rackready upgrade --env {paths.env} --switch {name} --done"
    work = SwitchUpgrade(PhaseContext(paths.env, paths.root, new_run("upgrade")), name)
    nodes, code, result = work.nodes(), 0, None
    if nodes:
        rows, result = carried_out(
            "upgrade", PROOF, env=paths.env, limit=",".join(nodes), check=False, output=output, verbose=verbose
        )
        code = exit_code(rows)
        if output is not Format.JSON:
            show_result(rows, result)
    with ControllerLock(paths.lock, command, paths.database):
        left = work.end()
    if output is Format.JSON:
        print_json({"env": paths.env, "switch": name, "proven": not left, "not_ready": left, "campaign": result})
    elif left:
        progress.print(f"{name}: {listed(left)} not ready: no other switch of these nodes may begin", style="yellow")
    else:
        console.print(f"{name}: the rails of {listed(nodes) or 'no node'} are proven")
    raise typer.Exit(1 if left else code)

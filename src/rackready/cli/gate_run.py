"""`rackready gate run`: runs gates, or a gate set, on nodes of the site or on this machine."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rackready.cli import complete
from rackready.cli.gate_show import Gpus
from rackready.cli.limit import named
from rackready.cli.output import Env, Format, Output, Verbose, console, print_json, progress, working_paths
from rackready.cli.run_log import new_run, run_log
from rackready.model.host_list import host_list
from rackready.model.outcome import CONTINUES, Outcome, worst
from rackready.model.phase import NodeResult
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from rackready.model.phase import PhaseContext
    from rackready.model.profile import GateSetEntry


def run(  # noqa: PLR0913, PLR0917 - nodes of a site and this machine are told apart by options
    gate_ids: Annotated[
        list[str] | None,
        typer.Argument(
            help="Gate ids, e.g. node/gpu/validation/dcgm-r1; omit with --set.", autocompletion=complete.gates
        ),
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            "--node",
            help="Only these nodes: names or host lists, comma-separated; repeatable. Default: all nodes of the site.",
            autocompletion=complete.node_list,
        ),
    ] = None,
    env: Env = "sim",
    gate_set: Annotated[
        str, typer.Option("--set", help="Run this gate set, e.g. quick.", autocompletion=complete.gate_sets)
    ] = "",
    local: Annotated[bool, typer.Option("--local", help="Run on this machine, without a site file.")] = False,  # noqa: FBT002 - a flag of the command line
    profile: Annotated[
        str,
        typer.Option(
            "--profile",
            help="With --local: server or GPU profile. Default: from the GPUs.",
            autocompletion=complete.machines,
        ),
    ] = "",
    gpus: Gpus = None,
    store: Annotated[Path | None, typer.Option("--store", help="With --local: folder of the evidence.")] = None,
    verbose: Verbose = False,  # noqa: FBT002 - a flag of the command line
    output: Output = Format.TEXT,
) -> None:
    """Run gates, or a gate set, and record the evidence.

    Levels run in order (sanity, validation, performance, stress). A node that fails a level skips the next ones.
    Refuses nodes in production, except for gates of level sanity, which load nothing.

    Exit codes: 0 pass or declared skip, 1 fail, 2 error or not run.
    """
    ids = list(dict.fromkeys(gate_ids or []))
    if bool(ids) == bool(gate_set):
        raise RackreadyError(
            "gate run",
            expected="gate ids, or --set NAME",
            actual="both" if ids else "neither",
            next_step="Give one of them.",
        )
    if not local and (profile or gpus is not None or store is not None):
        raise RackreadyError(
            "gate run",
            "--profile, --gpus and --store",
            expected="--local with them",
            next_step="The site file describes the nodes of a site.",
        )
    if local and node is not None:
        raise RackreadyError(
            "gate run --local --limit",
            expected="no --limit, because --local is this machine",
            next_step="Omit one of the two.",
        )
    campaign = new_run("gate")
    results, log = (
        _here(ids, gate_set, campaign, (profile, gpus, store), verbose=verbose)
        if local
        else _nodes(ids, gate_set, campaign, env, node, verbose=verbose)
    )
    _show(" ".join(ids) or gate_set, campaign, results, log, output)
    raise typer.Exit(_code([result.outcome for result in results.values()]))


def _show(what: str, campaign: str, results: dict[str, NodeResult], log: Path, output: Format) -> None:
    document = {
        "gate": what,
        "campaign": campaign,
        "log": log,
        "nodes": {
            name: {"outcome": result.outcome.value, "message": result.message, **result.data}
            for name, result in results.items()
        },
    }
    if output is Format.JSON:
        print_json(document)
        return
    for name, result in results.items():
        console.print("\n".join(_lines(name, result)))
    progress.print(f"log: {log}")


def _lines(name: str, result: NodeResult) -> list[str]:
    """Return a node's outcome, its gates by outcome where it has several, those without a pass, and every finding."""
    gates: dict[str, str] = result.data.get("gates", {})
    counts = Counter(gates.values())
    shown = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
    bad = [f"  {outcome:<7} {gate}" for gate, outcome in gates.items() if outcome not in CONTINUES]
    findings = result.data.get("findings") or ([result.message] if result.message else [])
    head = f"{name}: {result.outcome.value}" + (f" ({shown})" if len(gates) > 1 else "")
    return [head, *(bad if len(gates) > 1 else []), *(f"  {finding}" for finding in findings)]


def _here(
    ids: list[str], gate_set: str, campaign: str, about: tuple[str, int | None, Path | None], *, verbose: bool
) -> tuple[dict[str, NodeResult], Path]:
    """Run on this machine. Raises RackreadyError, with nothing measured, when its profile is unknown."""
    from rackready.gates.engine import local as this_machine  # noqa: PLC0415
    from rackready.ledger.lock import ControllerLock  # noqa: PLC0415

    profile, gpus, store = about
    entries, what = _entries(ids, gate_set), " ".join(ids) or gate_set
    if gate_set:
        entries = [entry for entry in entries if entry.id.startswith("node/")]
        progress.print(f"of set {gate_set}: the {len(entries)} gates of one node")
    place = this_machine.here(profile or None, gpus)
    paths = this_machine.store_paths(store)
    progress.print(
        f"{what} on this machine, as {place.platform.id} with {place.platform.gpus} GPUs; evidence in {paths.state} ..."
    )
    command = f"rackready gate run {what} --local"
    with ControllerLock(paths.lock, command, paths.database), run_log(paths, campaign, command, verbose=verbose) as log:
        return {place.name: this_machine.run_here(place, paths, entries, campaign)}, log


def _entries(ids: list[str], gate_set: str) -> list[GateSetEntry]:
    from rackready.gates.engine.registry import gate  # noqa: PLC0415
    from rackready.model.profile import GateSetEntry as Entry  # noqa: PLC0415
    from rackready.profiles import loader  # noqa: PLC0415

    if gate_set:
        return list(loader.gate_set(gate_set).gates)
    return [Entry(id=gate(gate_id).id) for gate_id in ids]


def _nodes(
    ids: list[str], gate_set: str, campaign: str, env: str, wanted: list[str] | None, *, verbose: bool
) -> tuple[dict[str, NodeResult], Path]:
    """Run on nodes of the site, with the controller lock."""
    from rackready.design.deployable import require  # noqa: PLC0415
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.gates.engine.set_run import run_set  # noqa: PLC0415
    from rackready.gates.engine.site_check import require_gates  # noqa: PLC0415
    from rackready.gates.engine.validate import run_gates  # noqa: PLC0415
    from rackready.handover.offer import keep_off  # noqa: PLC0415
    from rackready.ledger.lock import ControllerLock  # noqa: PLC0415
    from rackready.model.phase import PhaseContext  # noqa: PLC0415

    paths = working_paths(env)
    site = load_site(env, root=paths.root)
    require_gates(site, str(paths.site_file))
    known = [item.name for item in site.nodes()]
    nodes = known if wanted is None else named(wanted, known, "--limit")
    require(site, nodes, "gate run")
    what = " ".join(ids) or f"--set {gate_set}"
    wanted_ids = [entry.id for entry in _entries(ids, gate_set)]
    progress.print(f"{what} on {host_list(nodes)} ...")
    ctx = PhaseContext(env, paths.root, campaign)
    command = f"rackready gate run {what} --env {env}"
    with ControllerLock(paths.lock, command, paths.database), run_log(paths, campaign, command, verbose=verbose) as log:
        for line in keep_off(ctx).lines:
            progress.print(line, style="yellow")
        _refuse_in_production(ctx, what, wanted_ids, nodes)
        return (run_set(ctx, nodes, gate_set) if gate_set else run_gates(ctx, nodes, only=ids)), log


def _refuse_in_production(ctx: PhaseContext, what: str, ids: list[str], names: list[str]) -> None:
    """Raise RackreadyError if a gate would load nodes where jobs run or may start, or where that is unknown."""
    from rackready.gates.engine.registry import gate  # noqa: PLC0415
    from rackready.handover.production import in_production  # noqa: PLC0415

    if all(gate(gate_id).looks for gate_id in ids):
        return
    busy, unknown = in_production(ctx, names)
    if busy:
        limit = ",".join(busy)
        raise RackreadyError(
            f"gate run {what}",
            "it loads nodes",
            expected="no node in production",
            actual=", ".join(busy),
            next_step=f"Nothing ran. Drain them, or use `rackready validate --again --limit {limit} --env "
            f"{ctx.env}`, which waits for their jobs, or name other nodes with --limit.",
        )
    if unknown:
        raise RackreadyError("\n".join(result.message for result in unknown.values()))


def _code(outcomes: list[Outcome]) -> int:
    if all(outcome in CONTINUES for outcome in outcomes) and outcomes:
        return 0
    return 1 if worst(outcomes) is Outcome.FAIL else 2

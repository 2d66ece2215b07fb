"""`rackready gate`: what gates there are, what they do, and single ones alone: on nodes, or on an output that was captured elsewhere."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from rackready.cli.output import Env, Format, Output, console, env_paths, print_json, progress
from rackready.model.outcome import Outcome, Verdict, worst
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from rackready.model.phase import PhaseContext

app = typer.Typer(help="Gates: list them, run one alone, or judge an output that was captured elsewhere.", no_args_is_help=True)

GateId = Annotated[str, typer.Argument(help="Gate id, e.g. node/gpu/validation/dcgm-r1.")]
_WIDE = 100
_PASSED = frozenset({Outcome.PASS, Outcome.SKIP})
_JUDGED = {Outcome.PASS: 0, Outcome.FAIL: 1}


def register(parent: typer.Typer) -> None:
    """Add the command group to the application."""
    parent.add_typer(app, name="gate")


@app.command("list")
def list_gates(env: Env = "sim", output: Output = Format.TEXT) -> None:
    """List every gate, and whether the site's gate set has it."""
    from rackready.gates.registry import all_gates  # noqa: PLC0415

    wanted = _set_of(env)
    rows = [{"id": gate_id, "title": kind.title(), "covers": sorted(kind.covers), "in_set": gate_id in wanted} for gate_id, kind in all_gates().items()]
    if output is Format.JSON:
        print_json({"gates": rows})
        return
    table = Table("gate", "what a pass says", "measures", f"in {env}'s set")
    for row in rows:
        table.add_row(str(row["id"]), str(row["title"]), ", ".join(str(part) for part in _list(row["covers"])), "yes" if row["in_set"] else "")
    console.print(table)


@app.command()
def show(gate_id: GateId, env: Env = "sim", output: Output = Format.TEXT) -> None:
    """Show a gate's inputs and the commands that it would run on the site's first nodes."""
    from rackready.gates.offline import facts  # noqa: PLC0415
    from rackready.gates.registry import gate  # noqa: PLC0415

    found = gate(gate_id, _inputs(env, gate_id))
    known = facts(_platform(env), max(found.min_nodes, 1))
    runs = found.plan(known, list(known.nodes))
    document = {
        "id": gate_id,
        "title": found.title(),
        "measures": sorted(found.covers),
        "inputs": {name: {"value": getattr(found.inputs, name), "description": field.description} for name, field in type(found.inputs).model_fields.items()},
        "commands": [
            {
                "node": command.node,
                "via": command.via,
                "stage": command.stage,
                "role": command.role,
                "timeout_s": command.timeout_s,
                "argv": list(command.argv),
            }
            for command in runs[0].commands
        ],
        "runs": len(runs),
    }
    if output is Format.JSON:
        print_json(document)
        return
    console.print(f"{gate_id}\n{document['title']}\nmeasures: {', '.join(sorted(found.covers))}", markup=False)
    for name, value in document["inputs"].items():  # type: ignore[attr-defined]
        console.print(f"  input {name} = {value['value']}: {value['description']}", markup=False)
    for command in runs[0].commands:
        words = " ".join(word if len(word) < _WIDE else word.strip().splitlines()[0] + " ..." for word in command.argv)
        console.print(f"  {command.node}{' (its BMC)' if command.via == 'bmc' else ''}: {words}", markup=False)


@app.command()
def explain(gate_id: GateId) -> None:
    """Say what a gate does and how it judges, from its own documentation."""
    import inspect  # noqa: PLC0415

    from rackready.gates.registry import gate  # noqa: PLC0415

    found = gate(gate_id)
    module = inspect.getmodule(type(found))
    parts = [gate_id, inspect.getdoc(type(found)) or "", inspect.getdoc(type(found).evaluate) or "", (module.__doc__ or "").strip() if module else ""]
    console.print("\n\n".join(part for part in parts if part), markup=False)


@app.command()
def run(
    gate_id: GateId,
    node: Annotated[list[str] | None, typer.Option("--node", help="Node; may be given several times. All nodes of the site when left out.")] = None,
    env: Env = "sim",
    output: Output = Format.TEXT,
) -> None:
    """Run one gate on nodes and record the evidence. Exit codes: 0 pass or declared skip, 1 fail, 2 error or not run.

    Nodes in production are refused, but for gates of the level sanity, which load nothing.
    """
    from rackready.design.deployable import require  # noqa: PLC0415
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.gates.phase import run_gates  # noqa: PLC0415
    from rackready.ledger.lock import ControllerLock  # noqa: PLC0415
    from rackready.model.phase import PhaseContext  # noqa: PLC0415

    paths = env_paths(env)
    site = load_site(env, root=paths.root)
    known = [item.name for item in site.nodes()]
    unknown = sorted(set(node or []) - set(known))
    if unknown:
        message = f"--node {', '.join(unknown)} - Expected: one of {', '.join(known)}."
        raise RackreadyError(message)
    require(site, node or known, "gate run")
    progress.print(f"{gate_id} on {', '.join(node or known)} ...", markup=False)
    ctx = PhaseContext(env, paths.root, f"gate-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    with ControllerLock(paths.lock, f"rackready gate run {gate_id} --env {env}"):
        _refuse_in_production(ctx, gate_id, node or known)
        results = run_gates(ctx, node or known, only=[gate_id])
    document = {
        "gate": gate_id,
        "campaign": ctx.campaign,
        "nodes": {name: {"outcome": result.outcome.value, "message": result.message, **result.data} for name, result in results.items()},
    }
    if output is Format.JSON:
        print_json(document)
    else:
        for name, result in results.items():
            console.print(f"{name}: {result.outcome.value}" + (f"\n  {result.message}" if result.message else ""), markup=False)
    raise typer.Exit(_code([result.outcome for result in results.values()]))


def _refuse_in_production(ctx: PhaseContext, gate_id: str, names: list[str]) -> None:
    """Raise RackreadyError when a gate that loads nodes would run where jobs run or may start, or where nobody can say it."""
    from rackready.gates.registry import gate  # noqa: PLC0415
    from rackready.handover.production import in_production  # noqa: PLC0415

    if gate(gate_id).level == "sanity":
        return
    busy, unknown = in_production(ctx, names)
    if busy:
        limit = ",".join(busy)
        message = (
            f"gate run {gate_id}: it loads nodes - Expected: none in production Actual: {', '.join(busy)}. Nothing was run: drain them, "
            f"or `rackready validate --again --limit {limit} --env {ctx.env}`, which waits for their jobs; or name other nodes with --node."
        )
        raise RackreadyError(message)
    if unknown:
        raise RackreadyError("\n".join(result.message for result in unknown.values()))


@app.command()
def evaluate(
    gate_id: GateId,
    captured: Annotated[
        list[str],
        typer.Option(
            "--input",
            help="File with the command's output ('-' for standard input), or KEY=FILE where the gate runs several commands; may be given several times.",
        ),
    ],
    profile: Annotated[str, typer.Option("--profile", help="Platform profile, e.g. dgx_h100.")],
    exit_code: Annotated[int, typer.Option("--exit-code", help="Exit code that the command had.")] = 0,
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Nodes that took part.")] = 1,
    output: Output = Format.TEXT,
) -> None:
    """Judge an output that was captured elsewhere. Needs no site and no connection. Exit codes: 0 pass, 1 fail, 2 error."""
    from rackready.gates.offline import evaluate as judge_captured  # noqa: PLC0415
    from rackready.gates.offline import facts  # noqa: PLC0415
    from rackready.gates.registry import gate  # noqa: PLC0415

    found = gate(gate_id, _offline_inputs(gate_id, captured))
    known = facts(profile, max(found.min_nodes, nodes))
    plan = found.plan(known, list(known.nodes))[0]
    keys = [command.key for command in plan.commands if command.role == "step"]
    verdict = judge_captured(found, known, plan, _texts(captured, keys), exit_code)
    if output is Format.JSON:
        print_json(verdict.model_dump(mode="json"))
    else:
        _print(gate_id, verdict)
    raise typer.Exit(_JUDGED.get(verdict.outcome, 2))


def _texts(captured: list[str], keys: list[str]) -> dict[str, str]:
    """Give files to commands: by name, else in the order of the gate's commands."""
    out: dict[str, str] = {}
    for place, item in enumerate(captured):
        key, sign, path = item.partition("=")
        named = bool(sign) and key in keys
        if not named and place >= len(keys):
            message = f"--input {item} - Expected: at most {len(keys)} files, or KEY=FILE with KEY one of {', '.join(keys)}."
            raise RackreadyError(message)
        out[key if named else keys[place]] = _read(path if named else item)
    return out


def _offline_inputs(gate_id: str, captured: list[str]) -> dict[str, object]:
    """As many launches are judged as were captured: the file says what was run, not the size of a fleet."""
    from rackready.gates.registry import all_gates  # noqa: PLC0415

    kind = all_gates().get(gate_id)
    launches = [item for item in captured if item.partition("=")[0].startswith("launch") or "=" not in item]
    return {"launches": max(1, len(launches))} if kind is not None and "launches" in kind.Inputs.model_fields else {}


def _read(path: str) -> str:
    if path == "-":
        return sys.stdin.read()
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        message = f"--input {path} - Expected: a readable file Actual: {error.strerror}. Correct the path."
        raise RackreadyError(message) from error


def _print(gate_id: str, verdict: Verdict) -> None:
    console.print(f"{gate_id}: {verdict.outcome.value}" + (f" ({verdict.note})" if verdict.note else ""), markup=False)
    for finding in verdict.findings:
        console.print(f"  {finding}", markup=False)
    for metric in verdict.metrics:
        console.print(f"  {metric.name} on {metric.target}: {metric.value:g} {_unit(metric.unit)}".rstrip(), markup=False)
    for bound in verdict.criteria:
        console.print(f"  {bound.label}: {bound.metric} {bound.op.value} {bound.bound:g} {_unit(bound.unit)}".rstrip() + f" ({bound.source})", markup=False)


def _code(outcomes: list[Outcome]) -> int:
    if all(outcome in _PASSED for outcome in outcomes) and outcomes:
        return 0
    return 1 if worst(outcomes) is Outcome.FAIL else 2


def _set_of(env: str) -> dict[str, dict[str, Any]]:
    """Return gate id -> inputs of the site's set; empty when there is no usable site: listing gates needs none."""
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.profiles.loader import gate_set  # noqa: PLC0415

    try:
        site = load_site(env, root=env_paths(env).root)
    except RackreadyError:
        return {}
    return {entry.id: entry.inputs for entry in gate_set(site.gates.set).gates}


def _inputs(env: str, gate_id: str) -> dict[str, Any]:
    return _set_of(env).get(gate_id, {})


def _platform(env: str) -> str:
    from rackready.design.site import load_site  # noqa: PLC0415

    return load_site(env, root=env_paths(env).root).nodes()[0].platform


def _unit(unit: str) -> str:
    """A count has no unit to print."""
    return "" if unit == "1" else unit


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list) else [value]

"""`rackready gate evaluate`: judges outputs captured elsewhere, without a site and without a connection."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rackready.cli import complete
from rackready.cli.captured_facts import About, given_inputs
from rackready.cli.captured_inputs import EXIT_CODE, SECONDS, Texts, command_keys, numbers, split, texts
from rackready.cli.gate_all import evaluate_all
from rackready.cli.gate_show import Gpus
from rackready.cli.output import Format, Output, console, print_json
from rackready.model.choices import FabricKind, NcclNet
from rackready.model.outcome import Outcome, Verdict
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from rackready.gates.base import Gate, GateFacts, Run

_JUDGED = {Outcome.PASS: 0, Outcome.FAIL: 1}


def evaluate(  # noqa: PLR0913, PLR0917 - facts that a captured output does not contain
    captured: Annotated[
        list[str],
        typer.Option(
            "--input",
            help="Output file ('-': standard input), or KEY=FILE with KEY from `gate show`; repeatable.",
        ),
    ],
    gate_id: Annotated[
        str,
        typer.Argument(
            help="Gate id, e.g. node/gpu/validation/dcgm-r1; omit with --all.", autocompletion=complete.gates
        ),
    ] = "",
    every: Annotated[  # noqa: FBT002
        bool,
        typer.Option("--all", help="Judge by every single-node gate that reads these files."),
    ] = False,
    profile: Annotated[
        str,
        typer.Option(
            "--profile", help="Server or GPU profile, e.g. dgx_h100 or h100_sxm.", autocompletion=complete.machines
        ),
    ] = "",
    env: Annotated[
        str, typer.Option("--env", help="Environment of the nodes, with --node, instead of --profile.")
    ] = "",
    site: Annotated[
        Path | None,
        typer.Option("--site", help="Site file of the nodes, with --node, instead of --profile.", dir_okay=False),
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option("--node", help="Node name, in the gate's order; repeatable."),
    ] = None,
    address: Annotated[
        list[str] | None,
        typer.Option(
            "--address",
            help="NODE:HCA=ADDRESS: IPv4 address of a compute NIC. Default: the site's, else 192.168.RAIL.11, .12, ...",
        ),
    ] = None,
    hca: Annotated[
        list[str] | None,
        typer.Option("--hca", help="[NODE:]RAIL=NAME: RDMA device. Default: the profile's."),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="NAME=VALUE: input of the gate from `gate show`, e.g. size=8G.",
            autocompletion=complete.gate_inputs,
        ),
    ] = None,
    exit_code: Annotated[
        list[str] | None, typer.Option("--exit-code", help="Exit code of all commands, or KEY=CODE. Default: 0.")
    ] = None,
    seconds: Annotated[
        list[str] | None,
        typer.Option("--seconds", help="Run time of all commands, s, or KEY=SECONDS; needed for rates."),
    ] = None,
    nodes: Annotated[int | None, typer.Option("--nodes", min=1, help="Number of nodes that took part.")] = None,
    gpus: Gpus = None,
    fabric: Annotated[
        FabricKind | None,
        typer.Option("--fabric", help="Link layer of the compute fabric. Default: the site's, else roce."),
    ] = None,
    nccl_net: Annotated[
        NcclNet | None,
        typer.Option(
            "--nccl-net",
            help="Network plugin that NCCL must use; ofi: EFA. Default: the site's, else ib.",
        ),
    ] = None,
    run: Annotated[
        str,
        typer.Option("--run", help="Run of the gate, from `gate show`. Default: the first."),
    ] = "",
    output: Output = Format.TEXT,
) -> None:
    """Judge outputs captured elsewhere, without a site and without a connection.

    A file without a key goes to the tool that its content shows, else to the gate's commands without a file, in the
    order of `gate show`. When more than one command could have printed it, the call is refused and lists the keys.

    Exit codes: 0 pass, 1 fail (with --all: of any gate), 2 error, not run or an undeclared skip.
    """
    about = About(
        profile, env, site, nodes, tuple(node or ()), gpus, fabric, nccl_net, tuple(hca or ()), tuple(address or ())
    )
    if every:
        _alone(gate_id, {"--set": inputs, "--run": run, "--seconds": seconds})
        known, of_site = about.known(1)
        raise typer.Exit(evaluate_all(known, of_site, captured, exit_code or [], output))
    verdict = _judged(gate_id, about, captured, (inputs or [], run), (exit_code or [], seconds or []))
    if output is Format.JSON:
        print_json(verdict.model_dump(mode="json"))
    else:
        _print(gate_id, verdict)
    raise typer.Exit(_JUDGED.get(verdict.outcome, 2))


def _alone(gate_id: str, options: Mapping[str, object]) -> None:
    """Raise RackreadyError for options that concern one gate, or one of its commands."""
    given = [gate_id] * bool(gate_id) + [name for name, value in options.items() if value]
    if given:
        raise RackreadyError(
            "gate evaluate --all",
            expected="only files",
            actual=f"also {', '.join(given)}",
            next_step="Omit them, or judge by one gate.",
        )


def _judged(
    gate_id: str,
    about: About,
    captured: Sequence[str],
    choice: tuple[Sequence[str], str],
    ended: tuple[Sequence[str], Sequence[str]],
) -> Verdict:
    """Return one gate's verdict. ``choice``: its inputs and its run; ``ended``: exit codes and seconds, as given."""
    from rackready.gates.engine.registry import gate  # noqa: PLC0415

    if not gate_id:
        raise RackreadyError(
            "gate evaluate",
            expected="a gate id, or --all",
            actual="neither",
            next_step="`rackready gate list` shows the ids.",
        )
    known, of_site = about.known(gate(gate_id).min_nodes)
    given = given_inputs(gate_id, choice[0])
    found, plan = _fitting(
        gate_id,
        known,
        captured,
        choice[1],
        ({k: v for k, v in of_site.get(gate_id, {}).items() if k != "launches"}, given),
    )
    if not plan.commands:
        where = about.profile or ", ".join(known.nodes)
        raise RackreadyError(
            f"gate {gate_id}",
            expected=f"a gate with commands on {where}",
            actual="none, because it checks the site file",
            next_step="Use `rackready gate run`.",
        )
    outputs = texts(captured, known, plan)
    return _verdict(
        found,
        known,
        plan,
        outputs,
        (numbers(EXIT_CODE, ended[0], outputs.keys()), numbers(SECONDS, ended[1], outputs.keys())),
    )


def _verdict(
    found: Gate, known: GateFacts, plan: Run, given: Texts, ended: tuple[Mapping[str, float], Mapping[str, float]]
) -> Verdict:
    """Judge outputs, after making documents from tool outputs. A missing fact is an error.

    ``ended``: exit codes and seconds by key.
    """
    from rackready.gates.plain.document_makers import made  # noqa: PLC0415
    from rackready.gates.records.offline import Captured, evaluate  # noqa: PLC0415

    def captured(key: str, text: str) -> Captured:
        return Captured(text, int(ended[0][key]), seconds=ended[1][key])

    plain: dict[str, dict[str, list[Captured]]] = {}
    for command, sources in given.plain.items():
        plain[command] = {}
        for source, items in sources.items():
            plain[command][source] = [captured(key, text) for key, text in items]
    documents, lacks = made(known, plan, plain)
    if lacks:
        return Verdict(outcome=Outcome.ERROR, findings=lacks)
    verdict = evaluate(
        found, known, plan, {**{key: captured(key, text) for key, text in given.commands.items()}, **documents}
    )
    missing = [
        step.key for step in plan.commands if step.role == "step" and step.key not in {*given.commands, *documents}
    ]
    return _with_requests(verdict, missing)


def _run(runs: list[Run], wanted: str) -> Run:
    for run in runs:
        if wanted in {run.id, ""}:
            return run
    raise RackreadyError(
        f"--run {wanted}",
        expected=f"one of {', '.join(run.id for run in runs) or 'none for so few nodes'}",
        actual=wanted,
        next_step="Correct it.",
    )


_Inputs = tuple[Mapping[str, object], Mapping[str, object]]
"""A gate's inputs: the site's, and those of --set."""


def _fitting(gate_id: str, known: GateFacts, captured: Sequence[str], run: str, inputs: _Inputs) -> tuple[Gate, Run]:
    """Return the gate and its run with the fewest launches that have a command for every file."""
    from rackready.gates.engine.registry import gate  # noqa: PLC0415

    best: tuple[int, Gate, Run] | None = None
    for tried in _inputs(gate_id, captured, inputs):
        found = gate(gate_id, tried)
        plan = _run(found.plan(known, list(known.nodes)), run)
        unmatched = _files_without_command(captured, plan)
        if best is None or unmatched < best[0]:
            best = (unmatched, found, plan)
        if not unmatched:
            break
    if best is None:  # _inputs yields at least once
        raise AssertionError(gate_id)
    return best[1], best[2]


_NUMBER = re.compile(r"[0-9]{1,3}$")


def _inputs(gate_id: str, captured: Sequence[str], inputs: _Inputs) -> Iterator[dict[str, object]]:
    """Yield inputs with one launch and more, for gates with launches. No image is needed: the output shows what ran."""
    from rackready.gates.engine.container import Containered  # noqa: PLC0415
    from rackready.gates.engine.registry import all_gates  # noqa: PLC0415

    kind = all_gates()[gate_id]
    fixed: dict[str, object] = {"image": "captured elsewhere"} if issubclass(kind, Containered) else {}
    fixed |= {**inputs[0], **inputs[1]}
    launches = kind.Inputs.model_fields.get("launches")
    if launches is None or inputs[1].get("launches") is not None:
        yield fixed
        return
    named = [
        int(found[0]) + 1 for item in captured if (found := _NUMBER.search(item.partition("=")[0])) and "=" in item
    ]
    most = min(limit.le for limit in launches.metadata if hasattr(limit, "le"))
    for count in range(1, min(max([len(captured), *named]), most) + 1):
        yield {**fixed, "launches": count}


def _files_without_command(captured: Sequence[str], plan: Run) -> int:
    """Return the number of files without a command of the run."""
    keys, every = command_keys(plan)
    given = [split(item, every)[0] for item in captured]
    free = [key for key in keys if key not in given]
    return sum(bool(key) and key not in every for key in given) + max(0, given.count("") - len(free))


def _with_requests(verdict: Verdict, missing: list[str]) -> Verdict:
    """Return the verdict with a request for missing outputs as the next step: nothing runs here, so a rerun is none."""
    from rackready.gates.base import is_missing_output  # noqa: PLC0415

    step = f"Give its output with --input KEY=FILE; without one: {', '.join(missing)}."
    findings = [
        item.model_copy(update={"next_step": step}) if missing and is_missing_output(item) else item
        for item in verdict.findings
    ]
    return verdict.model_copy(update={"findings": findings})


def _print(gate_id: str, verdict: Verdict) -> None:
    console.print(f"{gate_id}: {verdict.outcome.value}" + (f" ({verdict.remarks})" if verdict.remarks else ""))
    for finding in verdict.findings:
        console.print(f"  {finding}")
    for metric in verdict.metrics:
        console.print(f"  {metric.name} on {metric.target}: {metric.value:g} {_unit(metric.unit)}".rstrip())
    for bound in verdict.criteria:
        console.print(
            f"  {bound.label}: {bound.metric} {bound.op.value} {bound.bound:g} {_unit(bound.unit)}".rstrip()
            + f" ({bound.source})"
        )


def _unit(unit: str) -> str:
    """Return the unit to print: none for a count."""
    return "" if unit == "1" else unit

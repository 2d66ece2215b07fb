"""`rackready gate evaluate`: judges outputs that were captured elsewhere. Needs no site and no connection."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rackready.cli.gate_show import GateId, Gpus, facts_for
from rackready.cli.output import Format, Output, console, print_json
from rackready.model.choices import FabricKind, NcclNet
from rackready.model.outcome import Outcome, Verdict
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from rackready.gates.base import Run

_JUDGED = {Outcome.PASS: 0, Outcome.FAIL: 1}


def evaluate(  # noqa: PLR0913, PLR0917 - what an output that was captured elsewhere does not say of itself
    gate_id: GateId,
    captured: Annotated[
        list[str],
        typer.Option(
            "--input",
            help="File with the command's output ('-' for standard input), or KEY=FILE where the gate runs several commands; may be given several times.",
        ),
    ],
    profile: Annotated[str, typer.Option("--profile", help="Server or GPU profile, e.g. dgx_h100 or h100_sxm.")],
    exit_code: Annotated[list[str] | None, typer.Option("--exit-code", help="Exit code of all commands, or KEY=CODE; 0 when left out.")] = None,
    seconds: Annotated[
        list[str] | None, typer.Option("--seconds", help="How long all commands ran, s, or KEY=SECONDS; what is rated by time needs it.")
    ] = None,
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Nodes that took part.")] = 1,
    gpus: Gpus = None,
    fabric: Annotated[FabricKind, typer.Option("--fabric", help="Link layer of the compute fabric.")] = "roce",
    nccl_net: Annotated[NcclNet, typer.Option("--nccl-net", help="Network plugin that NCCL must be seen to use; ofi: aws-ofi-nccl (EFA).")] = "ib",
    run: Annotated[str, typer.Option("--run", help="Which of the gate's runs it was; `gate show` lists them. The first when left out.")] = "",
    output: Output = Format.TEXT,
) -> None:
    """Judge an output that was captured elsewhere. Exit codes: 0 pass, 1 fail, 2 error, not run or a skip that nobody declared."""
    from rackready.gates.offline import Captured  # noqa: PLC0415
    from rackready.gates.offline import evaluate as judge_captured  # noqa: PLC0415
    from rackready.gates.registry import gate  # noqa: PLC0415

    found = gate(gate_id, _inputs(gate_id, captured))
    known = facts_for("", profile, max(found.min_nodes, nodes), gpus)
    known = replace(known, fabric=known.fabric.model_copy(update={"kind": fabric, "nccl_net": nccl_net}))
    plan = _run(found.plan(known, list(known.nodes)), run)
    keys = [command.key for command in plan.commands if command.role != "server"]
    texts = _texts(captured, keys, [command.key for command in plan.commands])
    codes, times = _numbers("--exit-code", exit_code or [], list(texts)), _numbers("--seconds", seconds or [], list(texts))
    verdict = judge_captured(found, known, plan, {key: Captured(text, codes[key], seconds=float(times[key])) for key, text in texts.items()})
    if output is Format.JSON:
        print_json(verdict.model_dump(mode="json"))
    else:
        _print(gate_id, verdict)
    raise typer.Exit(_JUDGED.get(verdict.outcome, 2))


def _run(runs: list[Run], wanted: str) -> Run:
    for run in runs:
        if wanted in {run.id, ""}:
            return run
    raise RackreadyError(f"--run {wanted} - Expected: one of {', '.join(run.id for run in runs) or 'none for so few nodes'}. Correct it.")


def _texts(captured: list[str], keys: list[str], every: list[str]) -> dict[str, str]:
    """Give files to commands: by name, else in the order of the gate's commands (servers only by name). No command has two files."""
    files: dict[str, str] = {}
    place = 0
    for item in captured:
        key, sign, path = item.partition("=")
        named = bool(sign) and key in every
        if not named and place >= len(keys):
            message = f"--input {item} - Expected: at most {len(keys)} files, or KEY=FILE with KEY one of {', '.join(every)}."
            raise RackreadyError(message)
        place += not named
        wanted, file = (key, path) if named else (keys[place - 1], item)
        if wanted in files:
            raise RackreadyError(f"--input {item} - Expected: one file for {wanted} Actual: {files[wanted]} and {file}. Give each output once.")
        files[wanted] = file
    standard = [key for key, file in files.items() if file == "-"]
    if len(standard) > 1:
        raise RackreadyError(f"--input - - Expected: one output from standard input Actual: {', '.join(standard)}. Give files for the others.")
    return {key: _read(file) for key, file in files.items()}


def _numbers(option: str, given: list[str], keys: list[str]) -> dict[str, int]:
    """Return a number for every command that was captured, 0 where none was given."""
    out = dict.fromkeys(keys, 0)
    for item in given:
        key, sign, number = item.rpartition("=")
        if not number.lstrip("-").isdigit() or (sign and key not in keys):
            raise RackreadyError(f"{option} {item} - Expected: a number, or KEY=NUMBER with KEY one of {', '.join(keys)}. Correct it.")
        out |= {key: int(number)} if sign else dict.fromkeys(keys, int(number))
    return out


def _inputs(gate_id: str, captured: list[str]) -> dict[str, object]:
    """As many launches are judged as were captured, and no image is asked for: the file says what was run, not the size of a fleet or the site."""
    from rackready.gates.container import Containered  # noqa: PLC0415
    from rackready.gates.registry import all_gates  # noqa: PLC0415

    kind = all_gates().get(gate_id)
    if kind is not None and issubclass(kind, Containered):
        return {"image": "captured elsewhere"}
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


def _unit(unit: str) -> str:
    """A count has no unit to print."""
    return "" if unit == "1" else unit

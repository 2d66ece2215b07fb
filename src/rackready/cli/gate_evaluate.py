"""`rackready gate evaluate`: judges outputs that were captured elsewhere. Needs no site and no connection."""

from __future__ import annotations

import codecs
import io
import re
import sys
import threading
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, NamedTuple

import typer

from rackready.cli.gate_show import GateId, Gpus, facts_for
from rackready.cli.output import Format, Output, console, print_json, progress
from rackready.model.choices import FabricKind, NcclNet
from rackready.model.outcome import Outcome, Verdict
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from rackready.gates.base import Gate, GateFacts, Run

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

    known = facts_for("", profile, max(gate(gate_id).min_nodes, nodes), gpus)
    known = replace(known, fabric=known.fabric.model_copy(update={"kind": fabric, "nccl_net": nccl_net}))
    found, plan = _fitting(gate_id, known, captured, run)
    if not plan.commands:
        message = f"gate {gate_id} - Expected: a gate with commands on {profile} Actual: none: what it asks stands in a site file. Use `rackready gate run`."
        raise RackreadyError(message)
    texts = _texts(captured, plan)
    codes = _numbers(_EXIT_CODE, exit_code or [], list(texts))
    times = _numbers(_SECONDS, seconds or [], list(texts))
    verdict = judge_captured(found, known, plan, {key: Captured(text, int(codes[key]), seconds=times[key]) for key, text in texts.items()})
    verdict = _asking(verdict, [command.key for command in plan.commands if command.role == "step" and command.key not in texts])
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


def _fitting(gate_id: str, known: GateFacts, captured: list[str], run: str) -> tuple[Gate, Run]:
    """Return the gate and its run with the fewest launches that have a command for every file: how many were made, the files say."""
    from rackready.gates.registry import gate  # noqa: PLC0415

    best: tuple[int, Gate, Run] | None = None
    for inputs in _inputs(gate_id, captured):
        found = gate(gate_id, inputs)
        plan = _run(found.plan(known, list(known.nodes)), run)
        strange = _strangers(captured, plan)
        if best is None or strange < best[0]:
            best = (strange, found, plan)
        if not strange:
            break
    if best is None:  # _inputs yields at least once
        raise AssertionError(gate_id)
    return best[1], best[2]


_NUMBER = re.compile(r"[0-9]{1,3}$")


def _inputs(gate_id: str, captured: list[str]) -> Iterator[dict[str, object]]:
    """Yield inputs with one launch and more, where it makes any. No image is asked for: the file says what was run, not the size of a fleet or the site."""
    from rackready.gates.container import Containered  # noqa: PLC0415
    from rackready.gates.registry import all_gates  # noqa: PLC0415

    kind = all_gates()[gate_id]
    fixed: dict[str, object] = {"image": "captured elsewhere"} if issubclass(kind, Containered) else {}
    launches = kind.Inputs.model_fields.get("launches")
    if launches is None:
        yield fixed
        return
    named = [int(found[0]) + 1 for item in captured if (found := _NUMBER.search(item.partition("=")[0])) and "=" in item]
    most = min(limit.le for limit in launches.metadata if hasattr(limit, "le"))
    for count in range(1, min(max([len(captured), *named]), most) + 1):
        yield {**fixed, "launches": count}


def _split(item: str, every: Collection[str]) -> tuple[str, str]:
    """Return key and path of KEY=FILE. Without a key: a file, which may have a sign of equality in its name."""
    key, sign, path = item.partition("=")
    plain = not sign or (key not in every and Path(item).exists())
    return ("", item) if plain else (key, path)


def _keys(plan: Run) -> tuple[list[str], list[str]]:
    """Return the keys that files without one are for, in the order of the commands, and all keys: what a server printed is given by name only."""
    return [command.key for command in plan.commands if command.role != "server"], [command.key for command in plan.commands]


def _strangers(captured: list[str], plan: Run) -> int:
    """Return for how many of the files the run has no command."""
    keys, every = _keys(plan)
    given = [_split(item, every)[0] for item in captured]
    return sum(bool(key) and key not in every for key in given) + max(0, given.count("") - len(keys))


def _texts(captured: list[str], plan: Run) -> dict[str, str]:
    """Give files to commands: by name, else in the order of the gate's commands. No command has two files."""
    keys, every = _keys(plan)
    rest = iter(keys)
    files: dict[str, str] = {}
    for item in captured:
        key, file = _split(item, every)
        wanted = key or next(rest, "")
        if wanted not in every:
            message = f"--input {item} - Expected: at most {len(keys)} files, or KEY=FILE with KEY one of {', '.join(every)}. Correct it."
            raise RackreadyError(message)
        if wanted in files:
            raise RackreadyError(f"--input {item} - Expected: one file for {wanted} Actual: {files[wanted]} and {file}. Give each output once.")
        files[wanted] = file
    standard = [key for key, file in files.items() if file == "-"]
    if len(standard) > 1:
        raise RackreadyError(f"--input - - Expected: one output from standard input Actual: {', '.join(standard)}. Give files for the others.")
    return {key: _read(file) for key, file in files.items()}


class _Option(NamedTuple):
    """An option with a number for all commands or for one of them."""

    name: str
    kind: str
    value: re.Pattern[str]


_EXIT_CODE = _Option("--exit-code", "a whole number", re.compile(r"-?[0-9]{1,10}"))
_SECONDS = _Option("--seconds", "a number of seconds", re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?"))


def _numbers(option: _Option, given: list[str], keys: list[str]) -> dict[str, float]:
    """Return a number for every command that was captured, 0 where none was given; one for a command goes before one for all of them."""
    told: dict[str, float] = {}
    for item in given:
        key, sign, number = item.rpartition("=")
        if not option.value.fullmatch(number) or (sign and key not in keys):
            raise RackreadyError(f"{option.name} {item} - Expected: {option.kind}, or KEY=NUMBER with KEY one of {', '.join(keys)}. Correct it.")
        if key in told:
            raise RackreadyError(f"{option.name} {item} - Expected: one number for {key or 'all commands'} Actual: another before it. Give each once.")
        told[key] = float(number)
    return dict.fromkeys(keys, told.pop("", 0.0)) | told


def _asking(verdict: Verdict, missing: list[str]) -> Verdict:
    """Ask for the outputs that were not given, where the gate misses them: nothing is run here, so running it again is no next step."""
    from rackready.gates.base import NOT_RUN  # noqa: PLC0415

    step = f"Give its output with --input KEY=FILE; without one: {', '.join(missing)}."
    findings = [item.model_copy(update={"next_step": step}) if missing and item.next_step == NOT_RUN else item for item in verdict.findings]
    return verdict.model_copy(update={"findings": findings})


MOST = 256 << 20
"""Bytes of one output. Ours, judgement: eight times what a command may print over SSH, and still a small part of a controller's memory."""
_BLOCK = 1 << 20
_PATIENCE_S = 5.0
"""How long a file may stay open before it is said that its end is waited for."""


def _read(path: str) -> str:
    """Return an output; '-': from standard input. Raises RackreadyError when it cannot be read, or does not end."""
    waits = threading.Timer(_PATIENCE_S, progress.print, [f"--input {path}: its end is waited for; Ctrl-C stops"])
    waits.daemon = True
    waits.start()
    try:
        if path != "-":
            with Path(path).open("rb") as file:
                return _text(path, file)
        if sys.stdin is None:
            raise RackreadyError("--input - - Expected: standard input that is open Actual: closed. Give a file, or pipe the output in.")
        return _text(path, sys.stdin.buffer)
    except OSError as error:
        message = f"--input {path} - Expected: a readable file Actual: {error.strerror}. Correct the path."
        raise RackreadyError(message) from error
    finally:
        waits.cancel()


def _text(path: str, file: IO[bytes]) -> str:
    """Return what a file holds as text, with plain ends of lines. Raises RackreadyError above ``MOST`` bytes."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
    parts, size = [], 0
    while block := file.read(_BLOCK):
        size += len(block)
        if size > MOST:
            what = f"Expected: at most {MOST >> 20} MiB Actual: more"
            raise RackreadyError(f"--input {path} - {what}. Give what one command of the gate printed: `rackready gate show` lists them.")
        parts.append(decoder.decode(block))
    return "".join([*parts, decoder.decode(b"", final=True)])


def _print(gate_id: str, verdict: Verdict) -> None:
    console.print(f"{gate_id}: {verdict.outcome.value}" + (f" ({verdict.note})" if verdict.note else ""))
    for finding in verdict.findings:
        console.print(f"  {finding}")
    for metric in verdict.metrics:
        console.print(f"  {metric.name} on {metric.target}: {metric.value:g} {_unit(metric.unit)}".rstrip())
    for bound in verdict.criteria:
        console.print(f"  {bound.label}: {bound.metric} {bound.op.value} {bound.bound:g} {_unit(bound.unit)}".rstrip() + f" ({bound.source})")


def _unit(unit: str) -> str:
    """A count has no unit to print."""
    return "" if unit == "1" else unit

"""Documents that describe a gate: its commands, how it judges, and every finding that it declares."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, get_args, get_type_hints

from rackready.gates.base import Command, Gate, GateFacts, Run
from rackready.gates.engine.registry import gate as make_gate
from rackready.gates.judging import common_findings
from rackready.gates.judging.predicted_bounds import UNKNOWN, predicted
from rackready.gates.plain.document_makers import slots
from rackready.model.outcome import Outcome
from rackready.model.problems import RackreadyError
from rackready.model.profile import GateSetEntry
from rackready.profiles import loader

OUTCOMES = {
    "pass": "everything was measured and is as expected",
    "fail": "measured, and not as expected; not measured again until the node is repaired",
    "error": "could not be measured or understood (output missing, cut off or unknown, time-out, contradiction); "
    "retried once; not a pass",
    "skip": "left out by the site file, with a reason (gates.skip) or until a date (gates.disabled); "
    "shown in every report",
    "not_run": "an earlier gate did not pass, or too few nodes can take part; not a pass",
}


def shown(gate: Gate, facts: GateFacts, nodes: Sequence[str]) -> dict[str, Any]:
    """Return what a gate would run on these nodes: the commands of its first run, and how other choices change them.

    ``nothing``: why it would run nothing, otherwise empty. ``left_out`` of a choice: why it would be refused.
    """
    runs = gate.plan(facts, list(nodes))
    return {
        "id": gate.id,
        "title": gate.title(),
        "measures": sorted(gate.covers),
        "inputs": _inputs(gate),
        "runs": [run.id for run in runs],
        "nothing": "" if runs and runs[0].commands else _nothing(gate, facts),
        "commands": [_command(item) for item in runs[0].commands] if runs else [],
        "takes": _takes(facts, runs[0]) if runs else {},
        "variants": [
            made
            for item in _variants(gate, facts, nodes)
            if (made := _variant(item, runs[0]))["commands"] or made["left_out"]
        ]
        if runs
        else [],
    }


def _takes(facts: GateFacts, run: Run) -> dict[str, str]:
    """Return the tool outputs that `gate evaluate` accepts instead of the commands: key -> command that prints it."""
    found = slots(facts, run)
    bare = {(slot.command, slot.source.key): key for key, slot in found.items() if ":" not in key}
    return {
        bare.get((slot.command, slot.source.key), key): slot.source.gives
        for key, slot in found.items()
        if ":" in key and "/" not in key
    }


def _nothing(gate: Gate, facts: GateFacts) -> str:
    """Return why a gate has nothing to run, in its own words if it has any (no image)."""
    verdicts = [verdict for found in gate.attribute(facts, []).values() for verdict in found]
    reasons = [str(finding) for verdict in verdicts for finding in verdict.findings]
    return next(
        iter(reasons),
        "this server model has nothing to measure, or the gate needs a site file (devices, rails)",
    )


def _inputs(gate: Gate) -> dict[str, dict[str, Any]]:
    return {
        name: {"value": getattr(gate.inputs, name), "description": field.description}
        for name, field in type(gate.inputs).model_fields.items()
    }


def _command(item: Command) -> dict[str, Any]:
    return {
        "key": item.key,
        "node": item.node,
        "via": item.via,
        "stage": item.stage,
        "role": item.role,
        "timeout_s": item.timeout_s,
        "argv": list(item.argv),
        "env": dict(item.env),
        "line": line(item),
        "stdin": item.stdin,
    }


def line(item: Command) -> str:
    """Return a command as one can type it, with its environment; a script is shown by its first line."""
    words = item.typed
    if not item.stdin:
        return words
    first = item.stdin.strip().splitlines()[0].strip("\"' ")
    return f"{words} < SCRIPT   # {len(item.stdin.splitlines())} lines: {first}"


@dataclass(frozen=True, slots=True)
class _Choice:
    """Another choice of a launcher or input, with its first run or the reason why it is refused."""

    name: str
    value: str
    run: Run | None = None
    refused: str = ""


def _variants(gate: Gate, facts: GateFacts, nodes: Sequence[str]) -> Iterator[_Choice]:
    """Yield every other choice of a launcher, and of each input that is a choice of words."""
    for name in (field.name for field in fields(GateFacts)):
        for value in _choices(get_type_hints(GateFacts)[name]):
            if value != getattr(facts, name):
                changed: dict[str, Any] = {name: value}
                yield _planned(_Choice(name, value), gate, replace(facts, **changed), nodes)
    for name, field in type(gate.inputs).model_fields.items():
        for value in _choices(field.annotation):
            if value != getattr(gate.inputs, name):
                yield _planned(
                    _Choice(name, value), make_gate(gate.id, {**gate.inputs.model_dump(), name: value}), facts, nodes
                )


def _planned(choice: _Choice, gate: Gate, facts: GateFacts, nodes: Sequence[str]) -> _Choice:
    try:
        runs = gate.plan(facts, list(nodes))
    except RackreadyError as error:  # the choice needs an input that is not given (mpijob: its image)
        return replace(choice, refused=str(error))
    return replace(choice, run=runs[0] if runs else None)


def _choices(annotation: object) -> list[str]:
    words = get_args(annotation)
    return list(words) if words and all(isinstance(word, str) for word in words) else []


def _variant(choice: _Choice, usual: Run) -> dict[str, Any]:
    """Return the commands of another choice that differ from the usual ones."""
    before = {_key(item) for item in usual.commands}
    commands = [_command(item) for item in (choice.run.commands if choice.run else ()) if _key(item) not in before]
    return {"choice": choice.name, "value": choice.value, "commands": commands, "left_out": choice.refused}


def _key(item: Command) -> tuple[object, ...]:
    return (item.node, item.argv, tuple(sorted(item.env.items())), item.stdin)


# how it judges -----------------------------------------------------------------------------------------------------


_LIST = re.compile(r"^(?:[-*] | )", re.MULTILINE)


def explained(gate: Gate, facts: GateFacts) -> dict[str, Any]:
    """Return how a gate judges: documentation, bounds with sources, fleet, findings, and the sets that contain it."""
    found = predicted(gate, facts, list(facts.nodes))
    return {
        "id": gate.id,
        "title": gate.title(),
        "measures": sorted(gate.covers),
        "how": _documentation(gate),
        "inputs": _inputs(gate),
        "of": f"{len(facts.nodes)} x {next(iter(facts.nodes.values())).platform.id}",
        "bounds": [item.model_dump(mode="json") for item in found],
        "no_bounds": "" if found else UNKNOWN,
        "fleet": [
            {"metric": item.name, "effect": item.effect, "sigma": item.sigma, "better": item.better}
            for item in gate.fleet
        ],
        "findings": [
            common_findings.described(item)
            for item in sorted(gate.findings, key=lambda item: item.outcome is not Outcome.FAIL)
        ],
        "every_gate": [common_findings.described(item) for item in common_findings.FINDINGS],
        "outcomes": OUTCOMES,
        "sets": _sets(gate.id),
        "in_no_set": gate.in_no_set,
    }


def _documentation(gate: Gate) -> list[str]:
    """Return the docstrings of the class, its ``evaluate`` and its module, without duplicates."""
    module = inspect.getmodule(type(gate))
    parts = [
        inspect.getdoc(type(gate)),
        inspect.getdoc(type(gate).evaluate),
        inspect.getdoc(module) if module else None,
    ]
    return list(dict.fromkeys(_reflowed(part) for part in parts if part))


def _reflowed(text: str) -> str:
    """Return a docstring with each paragraph on one line and plain code marks. Lists keep their lines."""
    paragraphs = text.split("\n\n")
    joined = [part if _LIST.search(part) else " ".join(part.split()) for part in paragraphs]
    return "\n\n".join(joined).replace("``", "`")


def _sets(gate_id: str) -> list[dict[str, Any]]:
    out = []
    for name in loader.known("gate_sets"):
        entry: GateSetEntry | None = next((item for item in loader.gate_set(name).gates if item.id == gate_id), None)
        if entry is not None:
            out.append(
                {
                    "set": name,
                    "required": entry.required,
                    "after_boot": entry.after_boot,
                    "max_age_hours": entry.max_age_hours,
                }
            )
    return out

"""Errors that NICs' ports counted while a gate loaded them: held by the gates that really send data over them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rackready.gates.host.reading import AGAIN, Limit
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Op
from rackready.ondevice.rdma_counters import ERRORS

SOURCE = "judgement: a link that loses, drops or retrains while it is loaded is not healthy"
STEP = (
    "Clean and reseat cable and module; then swap them with another port's, to see whether the errors move with them."
)
_SUM = Limit("port_errors", Op.LE, 0, "1", SOURCE, label="identity")

Reading = Mapping[str, Any]
"""One device of a document of ``rdma_counters``."""


ERRORS_NOT_COUNTED = ErrorKind(
    "port-errors-not-counted",
    "counters of errors not readable",
    meaning="The port's counters of errors cannot be read, so its errors are not known.",
    next_step=AGAIN,
)
ERRORS_GREW = FailKind(
    "port-errors-grew",
    "{name} grew under load",
    meaning="The port counted errors while it was under load: cable, module or port are bad.",
    next_step=STEP,
)
ERROR_COUNT_UNREADABLE = ErrorKind(
    "port-error-unreadable",
    "{name} not readable",
    meaning="A counter of errors is missing or went back, so nobody knows how many there were.",
    next_step=AGAIN,
)

FINDINGS = (ERRORS_NOT_COUNTED, ERRORS_GREW, ERROR_COUNT_UNREADABLE)


def judge_errors(judge: Judge, node: str, ports: Mapping[str, tuple[Reading, Reading]]) -> None:
    """Hold what the counters of errors of a node's ports (where: before, after) grew by; their sum is the metric. A node whose ports grew is to blame.

    Devices that have no such counters (EFA) are noted.
    """
    without, total, whole = [], 0, True
    for where, (before, after) in ports.items():
        first, last = before.get("errors"), after.get("errors")
        if first == {} and last == {}:
            without.append(where)
            continue
        if not isinstance(first, dict) or not isinstance(last, dict):
            judge.error(where, ERRORS_NOT_COUNTED, "counts before and after", "none")
            whole = False
            continue
        grown = {name: _grown(judge, where, name, first, last) for name in ERRORS}
        whole = whole and None not in grown.values()
        total += sum(grown.get(name) or 0 for name in ERRORS)
        for name, more in grown.items():
            if more:
                judge.fail(where, ERRORS_GREW, "by at most 0", more, name=name)
                judge.blamed.add(node)
    if without:
        judge.remark(f"no counters of errors at {', '.join(without)}")
    if whole and len(without) < len(ports):
        _SUM.holds(judge, node, total)


def _grown(judge: Judge, where: str, name: str, first: Reading, last: Reading) -> int | None:
    before, after = first.get(name), last.get(name)
    if type(before) is int and type(after) is int and after >= before:
        return after - before
    said = f"{'nothing' if before is None else before} before, {'nothing' if after is None else after} after"
    judge.error(where, ERROR_COUNT_UNREADABLE, "a count that does not go back", said, name=name)
    return None

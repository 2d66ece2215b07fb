"""Errors that NICs' ports count while a gate loads them, for gates that send data over them."""

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
"""One device in a document of ``rdma_counters``."""


ERRORS_NOT_COUNTED = ErrorKind(
    "port-errors-not-counted",
    "error counters not readable",
    meaning="The port's error counters cannot be read, so its errors are unknown.",
    next_step=AGAIN,
)
ERRORS_GREW = FailKind(
    "port-errors-grew",
    "{name} grew under load",
    meaning="The port counted errors under load: its cable, its module or the port itself is bad.",
    next_step=STEP,
)
ERROR_COUNT_UNREADABLE = ErrorKind(
    "port-error-unreadable",
    "{name} not readable",
    meaning="An error counter is missing or went back, so the number of errors is unknown.",
    next_step=AGAIN,
)

FINDINGS = (ERRORS_NOT_COUNTED, ERRORS_GREW, ERROR_COUNT_UNREADABLE)


def judge_errors(judge: Judge, node: str, ports: Mapping[str, tuple[Reading, Reading]]) -> None:
    """Judge the growth of the ports' error counters; their sum is the metric.

    ``ports``: place -> its readings before and after. A node whose counters grew is blamed. Devices without such
    counters (EFA) are noted.
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
        judge.remark(f"no error counters at {', '.join(without)}")
    if whole and len(without) < len(ports):
        _SUM.holds(judge, node, total)


def _grown(judge: Judge, where: str, name: str, first: Reading, last: Reading) -> int | None:
    before, after = first.get(name), last.get(name)
    if type(before) is int and type(after) is int and after >= before:
        return after - before
    said = f"{'nothing' if before is None else before} before, {'nothing' if after is None else after} after"
    judge.error(where, ERROR_COUNT_UNREADABLE, "a count that does not go back", said, name=name)
    return None

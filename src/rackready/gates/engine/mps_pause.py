"""Stop MPS while gates measure, because its limits look like GPU faults. Start it again afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from rackready.format_error import FormatError
from rackready.gates.base import trouble
from rackready.gates.engine.runner import Connection, output_of
from rackready.gates.engine.shipped_script import command, document
from rackready.gates.judging.finding_kinds import ErrorKind
from rackready.model.outcome import Finding
from rackready.ondevice import mps_pause as script

_LIMIT_S = 300.0

MPS_NOT_STOPPED = ErrorKind(
    "mps-not-stopped",
    "MPS not stopped",
    meaning="CUDA MPS could not be stopped, so measurements would show its limits. Nothing was measured on the node.",
    next_step="Drain the node and end what uses its GPUs; then run again.",
    by="every run that measures",
)
MPS_NOT_STARTED = ErrorKind(
    "mps-not-started",
    "MPS not started again",
    meaning="CUDA MPS was stopped for measurements and does not run again. Jobs that count on it cannot share a GPU.",
    next_step=f"Check `journalctl -u {script.UNIT}` on the node, then run `rackready optimize`.",
    by="every run that measures",
)
FINDINGS = (MPS_NOT_STOPPED, MPS_NOT_STARTED)


@contextmanager
def without_mps(
    connection: Connection, nodes: Sequence[str], tell: Callable[[str, Finding], None], workers: int = 16
) -> Iterator[dict[str, Finding]]:
    """Stop MPS on nodes while the context lasts; yield node -> finding where it could not be stopped.

    ``tell`` gets a finding for each node where MPS does not start again.
    """

    def each(action: str, kind: ErrorKind) -> dict[str, Finding]:
        with ThreadPoolExecutor(max_workers=max(1, min(len(nodes), workers))) as pool:
            answers = pool.map(lambda node: _one(connection, node, action, kind), nodes)
            return {node: found for node, found in zip(nodes, answers, strict=True) if found is not None}

    try:
        yield each("stop", MPS_NOT_STOPPED)
    finally:
        for node, found in each("start", MPS_NOT_STARTED).items():
            tell(node, found)


def _one(connection: Connection, node: str, action: str, kind: ErrorKind) -> Finding | None:
    asked = command("mps", node, script, action, timeout_s=_LIMIT_S)
    answer = connection.run(node, asked.argv, stdin=asked.stdin, timeout_s=asked.timeout_s)
    if not answer.reached:  # whoever reads the node's identity says so
        return None
    output = output_of(asked, answer)
    if (bad := trouble(output, node, "MPS")) is not None:
        return kind.found(node, f"MPS {action}s", bad.actual)
    try:
        hindered = str(document(output, script.FORMAT)["hindered"])
    except FormatError as error:
        hindered = str(error)
    return kind.found(node, f"MPS {action}s", hindered) if hindered else None

# ruff: noqa: T201 - a program of its own, whose output the tests read
"""A controller with phases of its own that write down what they did: run as a program by the kill tests.

Usage: fake_site.py ROOT MODE. MODE names what happens: ``run``; ``die:PHASE`` (SIGKILL inside that phase);
``ask:PHASE`` (a second terminal asks to pause meanwhile); ``hang:PHASE``; ``fail:PHASE:NODE``;
``error:PHASE:NODE``; ``untouched:PHASE:NODE`` (drained, and kept by its jobs); ``defect:PHASE``;
``silent:PHASE:NODE`` (no result for the node); ``deaf:PHASE`` (nobody takes our output any more once that phase hangs);
``torn:PHASE`` (one batch of it cannot write the ledger while another hangs);
``full:PHASE`` (its first line is longer than a pipe holds, so that it is written only once somebody reads).
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rackready.campaign import controller, phase_table, step, stop_request, workflow
from rackready.campaign.controller import Reporter, run_campaign
from rackready.campaign.drained_phase import Runner
from rackready.campaign.request import DEPLOY, CampaignRequest
from rackready.campaign.summary import exit_code, summarise
from rackready.cli.main import _leave
from rackready.design.names import listed
from rackready.drivers.process import check_stop
from rackready.ledger.batch import Batch
from rackready.ledger.store import EventRow, Ledger, LedgerError
from rackready.model.outcome import Outcome
from rackready.model.phase import DRAINED, NodeResult, PhaseContext
from rackready.paths import EnvPaths

FULL = "the ledger cannot be written - Expected: a writable file Actual: disk full. Free disk space, then run again."
NODES = ("node01", "node02", "node03")


def fake(root: Path, phase: str, mode: str) -> Runner:
    """Return a phase that logs its nodes and does what the mode says."""
    kind, _, rest = mode.partition(":")
    wanted, _, victim = rest.partition(":")

    def run(_ctx: PhaseContext, nodes: list[str]) -> dict[str, NodeResult]:
        with (root / "did.log").open("a", encoding="utf-8") as log:
            log.write(f"{phase} {','.join(nodes)}\n")
        if wanted == phase and kind == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if wanted == phase and (kind in {"hang", "deaf", "full"} or (kind == "torn" and "node03" in nodes)):
            hang(root, phase)
        if wanted == phase and kind == "ask":
            stop_request.put(EnvPaths(root, "x").deploy_request, stop_request.StopRequest.PAUSE)
        while wanted == phase and kind == "torn" and f"{phase} node03" not in (root / "did.log").read_text("utf-8"):
            time.sleep(0.02)  # on a busy machine the other batch begins late
        if wanted == phase and kind == "defect":
            raise ZeroDivisionError
        out = {node: NodeResult(Outcome.PASS, changed=phase == "install") for node in nodes}
        if wanted == phase and victim in nodes:
            spoil(out, kind, victim)
        return out

    return run


def spoil(out: dict[str, NodeResult], kind: str, victim: str) -> None:
    """Change the result of one node as the mode says."""
    if kind == "silent":
        del out[victim]
    elif kind == "untouched":
        out[victim] = NodeResult(Outcome.ERROR, f"{victim}: jobs run on it", data={DRAINED: True}, touched=False)
    elif kind in {"fail", "error"}:
        out[victim] = NodeResult(Outcome(kind), f"{victim} gpu2: broken - Expected: 18 Actual: 17. Replace it.")


def hang(root: Path, phase: str) -> None:
    """Work on until the operator stops it, and write down when it ended."""
    try:
        while True:
            check_stop()
            time.sleep(0.02)
    finally:
        with (root / "ended.log").open("a", encoding="utf-8") as log:
            log.write(f"{phase} {lock_is_free(root)}\n")


def lock_is_free(root: Path) -> str:
    """Say whether another controller could begin now."""
    with EnvPaths(root, "x").lock.open("a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return "held"
    return "free"


def torn(record: Callable[..., None], wanted: str) -> Callable[..., None]:
    """Return a recorder of results that fails for node01 in that phase."""

    def run(ledger: Batch, request: CampaignRequest, phase: str, node: str, result: NodeResult) -> None:
        if (phase, node) == (wanted, "node01"):
            raise LedgerError(FULL)
        record(ledger, request, phase, node, result)

    return run


def show(event: EventRow, nodes: Sequence[str], mode: str) -> None:
    """Print an event, unless nobody listens."""
    if mode == f"deaf:{event.phase}":
        raise BrokenPipeError(32, "Broken pipe")
    if mode == f"full:{event.phase}":
        print("." * 200_000, flush=True)
    print("EVENT", listed(nodes), event.phase, event.text, flush=True)


def say(text: str) -> None:
    """Print a remark."""
    print("SAY", text, flush=True)


def main() -> int:
    """Run one campaign."""
    root, mode = Path(sys.argv[1]), sys.argv[2]
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup, which a controller respects
    controller._POLL_S = workflow.POLL_S = 0.02  # its phases take no time
    for name, phase in list(phase_table.PHASES.items()):
        phase_table.PHASES[name] = replace(phase, run=fake(root, name, mode))
    if mode.startswith("torn:"):
        step._record = torn(step._record, mode.removeprefix("torn:"))
    paths = EnvPaths(root, "x")
    digest = sys.argv[3] if len(sys.argv) > 3 else "d"
    request = CampaignRequest(f"c-{os.getpid()}", "x", str(root), "deploy", DEPLOY, NODES, 2, (3,), 100, digest)
    finished = run_campaign(
        paths,
        request,
        command="rackready deploy --env x",
        reporter=Reporter(say, lambda event, nodes: show(event, nodes, mode), stopped=lambda error: say(str(error))),
    )
    rows = summarise(Ledger.open(paths.database), list(NODES), finished.results)
    for row in rows:
        print("ROW", row.name, row.state, row.phase, row.outcome, row.reason, flush=True)
    return exit_code(rows, finished.stopped)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (LedgerError, OSError) as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        _leave(2)

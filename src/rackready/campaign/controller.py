"""Starts or resumes a campaign under the controller lock, shows its progress, and stops it cleanly on Ctrl-C."""

from __future__ import annotations

import logging
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any, NoReturn

from rackready.campaign import stop_request
from rackready.campaign.abi import CAMPAIGN_ABI
from rackready.campaign.log_file import logged
from rackready.campaign.request import CampaignRequest
from rackready.campaign.resume import forget, why_not
from rackready.campaign.stop_request import StopRequest
from rackready.campaign.tables import TABLES
from rackready.drivers.process import STOP, busy, kill_all_children, reap
from rackready.handover.offer import Kept, keep_off
from rackready.ledger.lock import ControllerLock
from rackready.ledger.store import PAUSED, UNFINISHED, EventRow, Ledger
from rackready.model.problems import StoppedError
from rackready.paths import EnvPaths

_log = logging.getLogger(__name__)

_STOP_WITHIN_S = 28.0
_POLL_S = 0.25
_INTERRUPTED = 130
_FAILED = 2

_ENDED = {StopRequest.NOTHING: "finished", StopRequest.PAUSE: PAUSED, StopRequest.ABORT: "aborted"}
"""Status of a campaign that ended by what was asked of it."""

Say = Callable[[str], None]
Show = Callable[[EventRow, Sequence[str]], None]
"""Takes an event, and the nodes with the same event."""

Record = Callable[..., None]
"""Writes values of the campaign's row in the ledger."""

Leave = Callable[[Record], NoReturn]
"""Ends the process after a stop."""


@dataclass(frozen=True, slots=True)
class Reporter:
    """Shows a campaign to the operator: remarks, events, and last words before a stop ends the process."""

    say: Say
    show: Show
    stopped: Callable[[StoppedError], None]


@dataclass(frozen=True, slots=True)
class Finished:
    """A campaign that ran to its end."""

    campaign: str
    results: dict[str, dict[str, Any]]
    resumed: bool
    stopped: str = ""
    """Why it ended before its last wave; "" if it did not."""
    drained: tuple[str, ...] = ()
    """Nodes in quarantine that the scheduler offered when the campaign began: they are drained again."""


def run_campaign(
    paths: EnvPaths,
    wanted: CampaignRequest,
    *,
    command: str,
    reporter: Reporter,
    verbose: bool = False,
    locked: bool = False,
) -> Finished:
    """Run a campaign to its end, or resume an unfinished one with the same request. Raises ControllerBusyError.

    ``command``: the operator's command with its options. A second controller names it, and it resumes the campaign
    after a stop. ``verbose``: also show what the campaign's log gets at level INFO. ``locked``: the caller holds the
    controller lock, for several campaigns in a row. When the operator stops the
    campaign, the process ends here with 130, after a call of its ``stopped`` with the words about it.
    """
    say = reporter.say
    lock = nullcontext() if locked else ControllerLock(paths.lock, command, paths.database)
    with lock, Ledger.open(paths.database) as ledger:
        ledger.make_owned(TABLES)
        for line in reap(ledger):
            say(line)
        request, resumed = _choose(paths, ledger, wanted, say)
        with logged(paths, request.campaign, say if verbose else None):
            _log.info("%s: %s", command, "resumes" if resumed else "begins")
            kept = _kept_off(request, say)
            leave = partial(_leave, request, command, reporter.stopped)
            finished = _drive(paths, ledger, request, resumed=resumed, leave=leave, say=say, show=reporter.show)
        return replace(finished, drained=kept.drained)


def keep_off_alone(
    paths: EnvPaths, wanted: CampaignRequest, *, command: str, reporter: Reporter, verbose: bool = False
) -> Finished:
    """Drain quarantined nodes that are on offer, when no chosen node can run. Raises ControllerBusyError."""
    del verbose  # there is no progress
    if wanted.check:
        return Finished(wanted.campaign, {}, resumed=False)
    with ControllerLock(paths.lock, command, paths.database):
        return Finished(wanted.campaign, {}, resumed=False, drained=_kept_off(wanted, reporter.say).drained)


def _kept_off(request: CampaignRequest, say: Say) -> Kept:
    kept = keep_off(request.context())
    for line in kept.lines:
        say(line)
    return kept


def _choose(paths: EnvPaths, ledger: Ledger, wanted: CampaignRequest, say: Say) -> tuple[CampaignRequest, bool]:
    """Return the campaign that was cut off when it is the same work; otherwise a new one, and report why.

    A dry run neither resumes nor supersedes anything.
    """
    if wanted.check:
        forget(paths.dry_workflows)
        return wanted, False
    for row in ledger.campaigns(status=UNFINISHED):
        why = why_not(row, wanted, paths)
        if not why:
            say(f"continuing campaign {row['id']}, which was cut off")
            return CampaignRequest.load(row["summary"]["request"]), True
        say(
            f"campaign {row['id']} was cut off and is not resumed ({why}): a new one continues from what the "
            "ledger recorded"
        )
        ledger.put_campaign(row["id"], status="superseded", ended=time.time())
    forget(paths.workflows)
    if wanted.can_pause:
        stop_request.take(paths.deploy_request)  # asked of an earlier deploy
        for row in ledger.campaigns(status={PAUSED}):
            ledger.put_campaign(row["id"], status="superseded")
    summary = {"request": wanted.plain(), "check": wanted.check}
    ledger.put_campaign(
        wanted.campaign,
        env=wanted.env,
        kind=wanted.kind,
        nodes=list(wanted.nodes),
        site_digest=wanted.site_digest,
        abi=CAMPAIGN_ABI,
        status="running",
        summary=summary,
    )
    return wanted, False


def _drive(  # noqa: PLR0913 - the campaign, and the ways to report its progress
    paths: EnvPaths, ledger: Ledger, request: CampaignRequest, *, resumed: bool, leave: Leave, say: Say, show: Show
) -> Finished:
    after = ledger.last_event(request.campaign)
    box: dict[str, Any] = {}
    record, workflows = (
        (_nothing, paths.dry_workflows)
        if request.check
        else (partial(ledger.put_campaign, request.campaign), paths.workflows)
    )
    record(status="running")
    use = ledger.backend.workers
    batches = max(request.batches_at_once, use.batches if use else 0)
    # Signals outside: while an error ends what runs, Ctrl-C and a lost lock must not end this process before that.
    with stop_signals(say) as finish_saying, _engine(workflows, batches, say) as keep_pace:
        waiter = threading.Thread(target=_wait, args=(request, resumed, box), daemon=True)
        waiter.start()
        stop_at: float | None = None
        while waiter.is_alive():
            waiter.join(_POLL_S)
            keep_pace()
            after = _show_new(ledger, request.campaign, after, show)
            if STOP.is_set():
                stop_at = stop_at or time.monotonic() + _STOP_WITHIN_S
                if not (busy() or ledger.open_children()) or time.monotonic() > stop_at:
                    break
        _show_new(ledger, request.campaign, after, show)
        if STOP.is_set() and "results" not in box:
            finish_saying()
            leave(record)
        if "error" in box:
            record(status="superseded", ended=time.time())
            raise box["error"]
    done = box["results"]
    status = _ENDED[StopRequest(done["asked"])]
    summary = {"request": request.plain(), "check": request.check, "results": done["nodes"], "stopped": done["stopped"]}
    record(status=status, ended=time.time(), summary=summary)
    if request.can_pause:
        stop_request.take(paths.deploy_request)
    return Finished(request.campaign, done["nodes"], resumed=resumed, stopped=done["stopped"])


def _nothing(**_values: object) -> None:
    """A dry run leaves no record of itself."""


def _leave(request: CampaignRequest, command: str, stopped: Callable[[StoppedError], None], record: Record) -> NoReturn:
    """Record the stop and end the process at once, still under the lock.

    The engine's threads cannot be ended: they would take up the resumed campaign's work, and refuse it because of STOP.
    """
    kill_all_children()
    record(status="interrupted")
    stopped(stop_error(request, command))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_INTERRUPTED)


def stop_error(request: CampaignRequest, command: str) -> StoppedError:
    """Return the error of a stop, with the command that resumes the campaign: the same one, options included.

    Another choice of nodes would be another campaign, and a dry run must not be taken for the real one.
    """
    if request.check:
        step = f"It was a dry run: nothing was changed. `{command}` looks again."
        return StoppedError(what="stopped", next_step=step)
    again = f"make deploy ENV={request.env}" if command == f"rackready deploy --env {request.env}" else command
    return StoppedError(what="stopped", next_step=f"Nothing is lost: `{again}` continues where it stopped.")


def _show_new(ledger: Ledger, campaign: str, after: int, show: Show) -> int:
    """Show new events. Nodes whose events follow each other with the same text share one line. Return the last id."""
    events = ledger.events(campaign, after)
    for _, same in groupby(events, key=lambda event: (event.phase, event.level, event.text)):
        row = list(same)
        show(row[0], list(dict.fromkeys(event.node for event in row)))
    return events[-1].id if events else after


@contextmanager
def _engine(database: Path, batches: int, say: Say) -> Iterator[Callable[[], None]]:
    """Run dbos on its own SQLite file. Its telemetry is off; it connects to nothing.

    Yields a function that lets its queue look for batches as often as the present phase wants it.

    After an error (of ours, or of one batch while another works), running work is ended before the lock is released.
    The engine's own threads then wait for ever: the command line leaves without them.
    """
    from dbos import DBOS, DBOSConfig  # noqa: PLC0415 - a second of import that `status` need not pay

    from rackready.campaign import workflow  # noqa: PLC0415

    logging.getLogger("dbos").setLevel(logging.CRITICAL)
    database.touch(mode=0o600, exist_ok=True)
    with closing(sqlite3.connect(database, timeout=30)) as file:
        file.execute("PRAGMA journal_mode=WAL")  # it stays so: a commit waits for the disk once, and no reader waits
    config = DBOSConfig(
        name="rackready",
        system_database_url=f"sqlite:///{database}",
        application_version=f"abi-{CAMPAIGN_ABI}",
        executor_id="controller",
        enable_otlp=False,
        log_level="CRITICAL",
        console_log_level="CRITICAL",
    )
    DBOS(config=config)
    DBOS.launch()
    queue = DBOS.register_queue(workflow.QUEUE, concurrency=batches, polling_interval_sec=workflow.pace.seconds)
    looks = workflow.pace.seconds

    def keep_pace() -> None:
        nonlocal looks
        wanted = workflow.pace.seconds
        if not looks / 2 < wanted < looks * 2:  # each change is a commit
            looks = wanted
            queue.set_polling_interval_sec(looks)

    try:
        yield keep_pace
    except BaseException as error:
        _end_work(error, say)
        raise
    if not STOP.is_set():
        DBOS.destroy()


def _end_work(error: BaseException, say: Say) -> None:
    """Stop the steps that run. A step that does not stop must not run beside the next controller: the process ends."""
    STOP.set()
    deadline = time.monotonic() + _STOP_WITHIN_S
    while busy() and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    kill_all_children()
    if busy():
        try:
            say(
                f"{error}: stopped, with work that did not end. "
                "Run the same command again: it continues from what is recorded."
            )
        finally:
            os._exit(_FAILED)


def _wait(request: CampaignRequest, resumed: bool, box: dict[str, Any]) -> None:  # noqa: FBT001 - thread target
    from dbos import DBOS, SetWorkflowID  # noqa: PLC0415

    from rackready.campaign.workflow import campaign_workflow  # noqa: PLC0415

    try:
        known = resumed and DBOS.get_workflow_status(request.campaign) is not None
        if known:
            handle: Any = DBOS.retrieve_workflow(request.campaign)
        else:
            with SetWorkflowID(request.campaign):
                handle = DBOS.start_workflow(campaign_workflow, request.plain())
        box["results"] = handle.get_result(polling_interval_sec=_POLL_S)
    except Exception as error:  # noqa: BLE001 - carried over to the main thread, which raises it
        box["error"] = error


@contextmanager
def stop_signals(say: Say) -> Iterator[Callable[[], None]]:
    """Handle SIGINT, SIGTERM, and SIGHUP of a closed terminal. The first stops within 30 s, a second of its kind kills.

    One of another kind is the same stop, sent by someone less patient: a runner of GitHub sends SIGTERM 7.5 s after
    SIGINT and kills 2.5 s later (actions/runner src/Runner.Sdk/ProcessInvoker.cs). What ends in that time ends well.
    A SIGHUP that is ignored (nohup) stays ignored. A thread says that it stops: a handler that prints fails if it
    interrupted a print. Yields a function that waits until it is said, for a second at most: nobody may read.
    """
    said: SimpleQueue[str] = SimpleQueue()  # its put may interrupt another one
    speaker = threading.Thread(target=_speak, args=(said, say), daemon=True)

    seen: set[int] = set()

    def handler(number: int, _frame: FrameType | None) -> None:
        if number in seen or (STOP.is_set() and not seen):  # nothing seen: an error stops it already
            kill_all_children()
            os._exit(_INTERRUPTED)
        seen.add(number)
        if STOP.is_set():
            return
        STOP.set()
        said.put("stopping: what runs is asked to end, at most 30 s (Ctrl-C again kills it)")

    handled = [
        signal.SIGINT,
        signal.SIGTERM,
        *([signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else []),
    ]

    def finish() -> None:
        said.put("")
        speaker.join(timeout=1.0)

    before = {number: signal.signal(number, handler) for number in handled}
    speaker.start()
    try:
        yield finish
    finally:
        for number, old in before.items():
            signal.signal(number, old)
        finish()


def _speak(said: SimpleQueue[str], say: Say) -> None:
    """Say each text until an empty one comes."""
    for text in iter(said.get, ""):
        with suppress(OSError, ValueError):  # output that is gone, or closed: the main thread's next line meets it, too
            say(text)

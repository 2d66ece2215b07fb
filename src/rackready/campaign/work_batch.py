"""The process in which a worker runs one batch: ``python -m rackready.campaign.work_batch``.

It reads its job (one line of JSON) from standard input, gives signs of life about its claim, and records the result in
the queue. It ends at once, with everything that it started, when its lease may be over or its worker is gone: then
another worker may have the batch.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from rackready.campaign.log_file import logged
from rackready.campaign.request import CampaignRequest
from rackready.drivers.process import STOP, Interrupted, kill_all_children
from rackready.drivers.ssh.pins import pin
from rackready.ledger.store import Ledger, LedgerError
from rackready.ledger.work import Pulse, WorkQueue
from rackready.model.problems import RackreadyError
from rackready.paths import EnvPaths

GIVEN_BACK, TROUBLE, FENCED, ALONE = 130, 4, 5, 6
"""Exit codes: the batch was given back; an error; the lease may be over; the worker is gone."""

_RENEWALS = 6
"""Signs of life within the time of a lease."""
_SAFE = 2 / 3
"""Part of a lease after which a process without a renewal ends itself: the rest is for that end."""
_WATCH_S = 0.1


class Life:
    """The claim while the batch runs: renews it, and ends this process when that does not work."""

    def __init__(self, queue: WorkQueue, token: int) -> None:
        self._queue, self._token = queue, token
        self._lease_s = float(queue.use.lease_s)
        self._good = time.monotonic()
        self._over = threading.Event()

    def begin(self) -> None:
        """Start the threads. Raises Interrupted if the claim is over: this process may have come up late."""
        self._good = time.monotonic()
        if self._queue.renew(self._token) is not Pulse.GO_ON:
            raise Interrupted
        for work in (self._beat, self._watch, self._parent):
            threading.Thread(target=work, daemon=True).start()

    def end(self) -> None:
        """The claim has ended in order."""
        self._over.set()

    def _beat(self) -> None:
        while not self._over.wait(self._lease_s / _RENEWALS):
            at = time.monotonic()
            try:
                pulse = self._queue.renew(self._token)
            except LedgerError:
                continue  # the database is away: the watch decides
            if pulse in {Pulse.GO_ON, Pulse.STOP}:
                self._good = at
            if pulse in {Pulse.STOP, Pulse.ORPHANED}:
                STOP.set()
            if pulse is Pulse.LOST and not self._over.is_set():
                _end_now(FENCED, f"claim {self._token} is over")

    def _watch(self) -> None:
        while not self._over.wait(_WATCH_S):
            silent = time.monotonic() - self._good
            if silent > self._lease_s * _SAFE:
                _end_now(FENCED, f"claim {self._token} was not renewed for {silent:.0f} s of {self._lease_s:.0f} s")

    def _parent(self) -> None:
        """Wait for the end of standard input, which is the end of the worker.

        Not with sys.stdin: its lock, held here while the interpreter ends, would abort the process.
        """
        while os.read(sys.stdin.fileno(), 1024):
            pass
        if self._over.is_set():
            return
        kill_all_children()
        try:
            self._queue.release(self._token, "died", blame=True)
        finally:
            _end_now(ALONE, "the worker is gone")


def _end_now(code: int, why: str) -> NoReturn:
    kill_all_children()
    try:
        sys.stderr.write(f"{why}: what ran is ended\n")
        sys.stderr.flush()
    finally:
        os._exit(code)


def main() -> int:
    """Run the batch of the job, and return an exit code."""
    from rackready.campaign.step import run_here  # noqa: PLC0415 - the tests put phases of their own in its place

    given = sys.stdin.buffer.readline()
    if not given:
        sys.stderr.write("the worker is gone before it gave its batch: the batch is free when its lease ends\n")
        return ALONE
    job: dict[str, Any] = json.loads(given)
    _handle_signals()
    paths = EnvPaths(Path(job["root"]), job["env"])
    request = CampaignRequest.load({**job["request"], "root": job["root"]})
    token = int(job["token"])
    try:
        with Ledger.open(paths.database) as ledger:
            use = ledger.backend.workers
            if use is None:
                return TROUBLE
            queue = WorkQueue(ledger, use)
            life = Life(queue, token)
            try:
                life.begin()
                for host, key in job["pins"].items():
                    pin(paths.known_hosts, host, key)
                with logged(paths, request.campaign):
                    results = run_here(request, job["phase"], job["nodes"])
                life.end()  # nothing runs any more, and the record refuses a claim that is over
                queue.finish(token, results)
            except Interrupted:
                queue.release(token, "given back", blame=False)
                return GIVEN_BACK
            finally:
                life.end()
    except (RackreadyError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return TROUBLE
    return 0


def _handle_signals() -> None:
    def handler(_number: int, _frame: FrameType | None) -> None:
        if STOP.is_set():
            kill_all_children()
            os._exit(GIVEN_BACK)
        STOP.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())

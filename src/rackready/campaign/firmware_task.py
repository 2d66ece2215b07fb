"""One change of a part's firmware, by update or rollback: carried out once, whenever the run before was killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from rackready.drivers import redfish_task, redfish_update
from rackready.drivers.process import check_stop
from rackready.drivers.redfish import Bmc
from rackready.drivers.redfish_errors import BmcError, BmcTlsError, BmcUnreachableError
from rackready.ledger.effect import Observation, run_effect
from rackready.ledger.store import Ledger
from rackready.model.baseline import same_version

_POLL_S = 10.0
AWAY_S = 480.0
"""Longest time of a BMC without an answer, s (OpenStack Ironic's default after an update)."""


@dataclass(frozen=True, slots=True)
class FirmwareTask:
    """``operation`` and ``digest``: its key in the ledger; ``words``: what it is, in errors; ``version``: its end.

    ``before`` returns what is recorded first, ``act`` carries it out and returns what is recorded then.
    """

    operation: str
    digest: str
    words: str
    part: str
    version: str
    before: Callable[[], dict[str, str | None]]
    act: Callable[[], dict[str, str]]

    def carry_out(self, ledger: Ledger, node: str, bmc: Bmc) -> None:
        """Carry it out once. Raises BmcError, also while a task of an earlier run goes on; Interrupted."""
        answered = time.monotonic()

        def observe(_stored: object) -> Observation:
            nonlocal answered
            check_stop()
            try:
                found = self._observed(bmc)
            except (BmcUnreachableError, BmcTlsError):  # it restarts with what an earlier run sent
                if time.monotonic() - answered > AWAY_S:
                    raise
                bmc.forget()
                return Observation.UNKNOWN
            answered = time.monotonic()
            return found

        found = run_effect(
            ledger,
            node,
            self.operation,
            self.digest,
            before=lambda: dict(self.before()),
            observe=observe,
            act=lambda _token: dict(self.act()),
            settle_s=redfish_task.TASK_S,
            poll_s=_POLL_S,
        )
        if found.outcome == "unknown":
            raise BmcError(
                bmc.where,
                self.words,
                expected="the task of an earlier run has ended",
                actual=redfish_task.busy(bmc),
                next_step="Look at the BMC's event log; run again when it has ended.",
            )

    def _observed(self, bmc: Bmc) -> Observation:
        if redfish_task.busy(bmc):  # before the version: a task may end in between
            return Observation.UNKNOWN
        there = same_version(self.version, redfish_update.version(bmc, self.part)) or redfish_task.staged(bmc)
        return Observation.HAPPENED if there else Observation.NOT_HAPPENED

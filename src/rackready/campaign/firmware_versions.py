"""The wait for new versions of firmware, while the BMC may restart and its tasks go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from rackready.drivers import redfish_task, redfish_update
from rackready.drivers.process import check_stop
from rackready.drivers.redfish import Bmc
from rackready.drivers.redfish_errors import BmcError, BmcLoginError, Refusals
from rackready.model.baseline import same_version

HOST_S = 1800.0
"""Longest time from a power cycle to the new version of a part other than the BMC, s, where no task goes on (as long as
dell/iDRAC-Redfish-Scripting e7ba7634, DeviceFirmwareMultipartUploadREDFISH.py, waits for its job)."""


@dataclass(frozen=True, slots=True)
class VersionWait:
    """``open_bmc`` connects to the BMC; ``wanted``: part -> version.

    ``bmc_s``: longest time until the BMC answers again, and has a new version of its own.
    """

    open_bmc: Callable[[], Bmc]
    wanted: Mapping[str, str]
    bmc_s: float
    poll_s: float

    def left(self, awaited: Collection[str] = (), begun: Collection[str] = ()) -> dict[str, str]:
        """Return part -> present version of the parts without the wanted one, after those awaited had their time.

        ``begun``: tasks that a restart carried on. Raises BmcError when one of them fails, or the BMC stays away.
        """
        since = answered = time.monotonic()
        refusals = Refusals()
        while True:
            refusals.pause(check_stop)
            try:
                with self.open_bmc() as bmc:
                    failed = redfish_task.failure(bmc, begun, ", ".join(sorted(awaited)))
                    left = self._left(bmc)
                    late = {part for part in left if part in awaited}
                    over = not late or self._is_late(bmc, late, time.monotonic() - since)
            except BmcError as error:  # it restarts
                if isinstance(error, BmcLoginError):
                    refusals.count(error)
                if time.monotonic() - answered > self.bmc_s:
                    raise
            else:
                if failed is not None:
                    raise failed
                if over:
                    return left
                refusals.reset()
                answered = time.monotonic()
            time.sleep(self.poll_s)

    def _left(self, bmc: Bmc) -> dict[str, str]:
        found = {part: redfish_update.version(bmc, part) for part in self.wanted}
        return {part: now for part, now in found.items() if not same_version(self.wanted[part], now)}

    def _is_late(self, bmc: Bmc, parts: set[str], waited_s: float) -> bool:
        """Whether parts had their time: as long as one update may take, while a task shows that it goes on.

        An iDRAC flashes only after the power cycle, and its task waits until then.
        """
        if parts <= {"bmc"}:
            return waited_s > self.bmc_s
        if waited_s <= HOST_S:
            return False
        return waited_s > redfish_task.TASK_S or not (redfish_task.busy(bmc) or redfish_task.staged(bmc))

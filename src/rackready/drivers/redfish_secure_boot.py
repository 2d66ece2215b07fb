"""Secure Boot of a BMC that changes it by a job of the BIOS: an iDRAC (quirk).

A PATCH makes the job at once, and a restart carries it out; until then the property keeps its value (OpenStack Ironic
7bc6aba7, ironic/drivers/modules/redfish/management.py, _wait_for_secure_boot; bmc-toolbox/bmclib, pull request 471).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sushy import exceptions as faults

from rackready.drivers.redfish import Bmc
from rackready.drivers.redfish_boot import secure_boot_address, secure_boot_of
from rackready.drivers.redfish_errors import BmcError, BmcLoginError, BmcTlsError, mentions
from rackready.drivers.redfish_read import read

_WAIT_S = 900.0
"""Longest time from power-on to the new value, s (ironic/conf/redfish.py, boot_mode_config_timeout)."""
_POLL_S = 15.0
"""As BOOT_MODE_CONFIG_INTERVAL of Ironic's management.py, s."""
_JOBS = "JobService/Jobs/*"
_OF_BIOS = ("ConfigBIOS", "Configure: BIOS")
"""Starts of the name of a job of the BIOS (NVIDIA/libredfish c094c9e6, tests/mockups/dell, JobService/Jobs; newer:
dell/iDRAC-Redfish-Scripting, issue 319)."""
_ENDED = frozenset({"Completed", "Exception", "Cancelled", "CompletedWithErrors", "Failed"})
"""JobState of a job that ended: DSP0268, and the last two of DellJob (tests/mockups/dell, JsonSchemas)."""
_LOOKS = 4
"""Looks in a row that find every job ended and the old value, before that counts: a minute. Our choice: no source says
that the value changes before its job ends."""
_COMMITTED = "SYS011"
"""Message id: a job of the BIOS waits, so nothing else is taken (bmc-toolbox/bmclib, pull request 471)."""


def by_job(bmc: Bmc) -> bool:
    """Return whether this BMC changes Secure Boot by a job. Raises BmcError."""
    return bmc.quirks().has("secure-boot-by-job")


def enabled(bmc: Bmc) -> object:
    """Return SecureBootEnable, None without one. Raises BmcError."""
    address = secure_boot_of(bmc.ask(bmc.system))
    return bmc.get(address).get("SecureBootEnable") if address is not None else None


def order(bmc: Bmc, *, on: bool, proceed: Callable[[], None]) -> None:
    """Have the job made, unless one of the BIOS waits already: there is room for one. Raises BmcError."""
    address = secure_boot_address(bmc)
    if waits(bmc, proceed):
        return
    try:
        bmc.patch(address, {"SecureBootEnable": on})
    except BmcError as error:
        cause = error.__cause__
        if not isinstance(cause, faults.SushyError) or not mentions(cause, _COMMITTED):
            raise


def waits(bmc: Bmc, proceed: Callable[[], None]) -> bool | None:
    """Return whether a job of the BIOS has not ended; None where the BMC lists none, or not all. Raises BmcError."""
    found = read(bmc, (_JOBS,), proceed)
    jobs = [job for job in found.documents.values() if str(job.get("Name", "")).startswith(_OF_BIOS)]
    if any(job.get("JobState") not in _ENDED for job in jobs):
        return True
    return None if found.unread or not jobs else False


def wait(bmc: Bmc, *, on: bool, proceed: Callable[[], None]) -> None:
    """Wait until the BIOS has carried its jobs out; of another one than ours, the value stays as it was.

    Raises BmcError when they have not ended in time.
    """
    deadline, ended = time.monotonic() + _WAIT_S, 0
    while True:
        proceed()
        shown, waiting = _look(bmc, proceed)
        ended = ended + 1 if shown is (not on) and waiting is False else 0
        if (shown is on and not waiting) or ended >= _LOOKS:
            return
        if time.monotonic() > deadline:
            raise not_done(bmc, f"within {_WAIT_S:.0f} s after a restart", on=on, shown=shown)
        time.sleep(_POLL_S)


def not_done(bmc: Bmc, when: str, *, on: bool, shown: object) -> BmcError:
    """Return the error about a job that was not carried out."""
    return BmcError(
        bmc.where,
        "Secure Boot",
        expected=f"SecureBootEnable {on} {when}",
        actual=shown,
        next_step="Look at the BMC's job queue and end what hangs there, then run again.",
    )


def _look(bmc: Bmc, proceed: Callable[[], None]) -> tuple[object, bool | None]:
    """Return SecureBootEnable, and whether a job waits; None where the BMC does not answer: it may be busy."""
    try:
        return enabled(bmc), waits(bmc, proceed)
    except (BmcLoginError, BmcTlsError):
        raise
    except BmcError:
        return None, None

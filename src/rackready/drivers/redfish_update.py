"""Firmware of one machine through UpdateService: versions, the update, and its task.

The file is pushed where the BMC takes one (MultipartHttpPushUri, DSP0266 Software update details), else the BMC fetches
it (SimpleUpdate). A BMC that updates itself goes away for a while, and its task with it: the version decides then.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackready.drivers.redfish_errors import BmcError, BmcLoginError, BmcTlsError, BmcUnreachableError
from rackready.model.baseline import Baseline, FirmwareFile

if TYPE_CHECKING:
    from rackready.drivers.redfish import Bmc

_SERVICE = "/redfish/v1/UpdateService"
_TASKS = "/redfish/v1/TaskService/Tasks"
_POLL_S = 10.0
_PUSH_S = 900.0
"""Longest time for a BMC to take a file, s. Our choice: some hundred MB over a 100 Mb/s port."""
TASK_S = 7200.0
"""Longest time of one update, s (OpenStack Ironic's default)."""
_DONE = frozenset({"Completed"})
_BAD = frozenset({"Exception", "Killed", "Cancelled", "Interrupted"})
"""TaskState values that end a task (DMTF Task schema); every other one goes on."""
_STAGED = frozenset({"Starting", "Pending"})
"""TaskState values of an update that waits for the next boot, where the BMC shows it so (quirk)."""


def wanted_of(baseline: Baseline, part: str) -> str:
    """Return the wanted version of a part, "" for any."""
    return (baseline.bmc if part == "bmc" else baseline.bios if part == "bios" else baseline.firmware.get(part)) or ""


def version(bmc: Bmc, part: str) -> str:
    """Return the version of ``bmc``, ``bios`` or a part of the inventory; "" where the BMC does not tell."""
    if part == "bios":
        return str((bmc.ask(bmc.system).json or {}).get("BiosVersion") or "")
    if part == "bmc":
        system = bmc.ask(bmc.system)
        managers = bmc.ask(lambda: system.managers)
        return str(managers[0].firmware_version or "") if managers else ""
    return str(bmc.get(f"{_SERVICE}/FirmwareInventory/{part}").get("Version") or "")


def differences(bmc: Bmc, baseline: Baseline) -> dict[str, str]:
    """Return part -> present version, of the parts whose version is not the wanted one. Raises BmcError."""
    parts = [name for name in ("bmc", "bios") if wanted_of(baseline, name)] + list(baseline.firmware)
    found = {part: version(bmc, part) for part in parts}
    return {part: now for part, now in found.items() if now != wanted_of(baseline, part)}


def require_file(where: str, file: FirmwareFile) -> None:
    """Raise BmcError unless the file is there with its hash: nothing was sent then."""
    try:
        with file.file.open("rb") as data:
            found = hashlib.file_digest(data, "sha256").hexdigest()
    except OSError as error:
        found = str(error.strerror)
    if found != file.sha256:
        raise BmcError(
            where,
            f"firmware {file.file}",
            expected=f"SHA-256 {file.sha256}",
            actual=found,
            next_step="Get the vendor's file again, or correct baselines in the site file; nothing was updated.",
        )


def busy(bmc: Bmc) -> str:
    """Return the path of a task that still runs, "" without one: maybe an update of a run that was killed."""
    waits = _STAGED if bmc.quirks().has("task-waits-for-boot") else frozenset()
    return next((path for path, state in _tasks(bmc) if state not in _DONE | _BAD | waits), "")


def staged(bmc: Bmc) -> bool:
    """Return whether an update waits for the next boot, where a task shows that."""
    return bmc.quirks().has("task-waits-for-boot") and any(state in _STAGED for _, state in _tasks(bmc))


def _tasks(bmc: Bmc) -> Iterator[tuple[str, str]]:
    """Yield path and state of each task; none without a task service."""
    try:
        members = bmc.get(_TASKS).get("Members") or []
    except BmcError:  # without a task service nothing can be seen to run
        return
    for path in [str(link.get("@odata.id", "")) for link in members if isinstance(link, Mapping)]:
        yield path, str(bmc.get(path).get("TaskState"))


def update(bmc: Bmc, file: FirmwareFile, proceed: Callable[[], None]) -> None:
    """Update a part and wait for the task. Raises BmcError; a lost answer is not repeated.

    ``proceed`` is called while waiting and may raise to stop; the BMC goes on by itself.
    """
    require_file(bmc.where, file)
    targets = [f"{_SERVICE}/FirmwareInventory/{name}" for name in file.targets]
    service = bmc.get(_SERVICE)
    push = str(service.get("MultipartHttpPushUri") or "")
    if push:
        task = _push(bmc, push, file.file, targets)
    elif file.url is not None:
        action = (service.get("Actions") or {}).get("#UpdateService.SimpleUpdate") or {}
        body: dict[str, Any] = {"ImageURI": file.url, "TransferProtocol": file.url.partition(":")[0].upper()}
        task = bmc.post(str(action.get("target", "")), body | ({"Targets": targets} if targets else {}))
    else:
        raise BmcError(
            bmc.where,
            "firmware",
            expected="a BMC that takes a file (MultipartHttpPushUri)",
            actual="none",
            next_step=f"Give url for {file.part} in baselines: the BMC fetches the file from there.",
        )
    if task:
        wait_for_task(bmc, task, file.part, proceed)


def _push(bmc: Bmc, address: str, file: Path, targets: list[str]) -> str:
    with file.open("rb") as data:
        parameters = json.dumps({"Targets": targets} if targets else {})
        form = {
            "UpdateParameters": (None, parameters, "application/json"),
            "UpdateFile": (file.name, data, "application/octet-stream"),
        }
        return bmc.post(address, None, below="/", files=form, timeout=_PUSH_S)


def wait_for_task(bmc: Bmc, task: str, part: str, proceed: Callable[[], None]) -> None:
    """Wait until a task has ended. Raises BmcError with its messages when it failed, or did not end in time."""
    quirks = bmc.quirks()
    missing = max((quirk.tries for quirk in quirks.all("task-missing-tries")), default=1)
    gone = quirks.has("task-gone-is-done") or part == "bmc"
    waits = _STAGED if quirks.has("task-waits-for-boot") and part != "bmc" else frozenset()
    deadline, misses, state = time.monotonic() + TASK_S, 0, "New"
    while time.monotonic() < deadline:
        proceed()
        try:
            found = bmc.get(task)
        except (BmcUnreachableError, BmcTlsError, BmcLoginError):  # it restarts, with its update
            bmc.forget()
        except BmcError:
            misses += 1
            if misses >= missing:
                if gone:
                    return
                raise
        else:
            state = str(found.get("TaskState"))
            if state in _DONE | waits:
                return
            if state in _BAD:
                raise _failed(bmc, task, part, state, found)
        time.sleep(_POLL_S)
    raise BmcError(
        bmc.where,
        f"firmware update of {part}",
        expected=f"the task ends within {TASK_S:.0f} s",
        actual=f"{task} is {state}",
        next_step="Look at the BMC's event log; run again when the task has ended.",
    )


def _failed(bmc: Bmc, task: str, part: str, state: str, found: Mapping[str, Any]) -> BmcError:
    messages = [str(item.get("Message")) for item in found.get("Messages") or [] if isinstance(item, Mapping)]
    return BmcError(
        bmc.where,
        f"firmware update of {part}",
        expected=f"{task} Completed",
        actual=f"{state}: {' '.join(messages) or 'no message'}",
        next_step="Other nodes were not updated. Check that the file is for this model, and the BMC's event log.",
    )

"""How an update goes on at a BMC: by its task, by the monitor of that, or where it names neither by what else it shows.

The answer to the update names the task in its body, in Location, or in a message:

- DSP0266 (Task service) wants the monitor in Location; its answer has the Task as body while that runs;
- OpenBMC's monitor (``Tasks/N/Monitor`` in NVIDIA/bmcweb 7f3a16ae, ``TaskMonitors/N`` in openbmc/bmcweb 7debb892,
  redfish-core/lib/task.hpp, populateResp) answers 204 once when the task ended, well or not, then 404;
- a Supermicro has no Location: the Task is the body (NVIDIA/libredfish c094c9e6, src/supermicro.rs), or on X12 an
  object ``Accepted`` whose messages have the path as argument (bmc-toolbox/bmclib 89df130,
  internal/redfishwrapper/firmware.go, TaskAccepted);
- an iLO 5 before 2.30 names none: ``Oem.Hpe.State`` of UpdateService shows it (proliantutils 03490ef4,
  proliantutils/redfish/resources/update_service.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import requests

from rackready.drivers.redfish_errors import (
    BmcError,
    BmcLoginError,
    BmcRefusedError,
    BmcTlsError,
    BmcUnreachableError,
    Refusals,
)

if TYPE_CHECKING:
    from rackready.drivers.redfish import Bmc

T = TypeVar("T")

SERVICE = "/redfish/v1/UpdateService"
_TASKS = "/redfish/v1/TaskService/Tasks"
_POLL_S = 10.0
TASK_S = 7200.0
"""Longest time of one update, s (OpenStack Ironic's default)."""
_DONE = frozenset({"Completed"})
_BAD = frozenset({"Exception", "Killed", "Cancelled"})
"""TaskState values that end a task (DMTF Task schema); every other one goes on: one that is Interrupted restarts."""
_STAGED = frozenset({"Starting", "Pending"})
"""TaskState values of an update that waits for the next boot, where the BMC shows it so (quirk)."""
_ASKS, _WHOLE = "UserIntervention", 100
"""TaskState and PercentComplete with which an iDRAC ends an update that a restart or an AC cycle makes active
(dell/iDRAC-Redfish-Scripting e7ba7634, DeviceFirmwareMultipartUploadREDFISH.py)."""
_RESTING = frozenset({"", "Idle", "Complete", "Error", "Unknown"})
"""Oem.Hpe.State while nothing is updated; every other value is a step of an update (proliantutils, as above)."""
_ACCEPTED, _NO_CONTENT = 202, 204


@dataclass(frozen=True, slots=True)
class Update:
    """An update that was requested.

    ``before``: what ``update_state`` said before; ``reached``: whether the part has its new version.
    """

    part: str
    before: str
    reached: Callable[[], bool]


def update_state(service: Mapping[str, Any]) -> str:
    """Return what an iLO's UpdateService says of its updates, "" for other BMCs."""
    oem = service.get("Oem")
    hpe = oem.get("Hpe") if isinstance(oem, Mapping) else None
    return str(hpe.get("State") or "") if isinstance(hpe, Mapping) else ""


def busy(bmc: Bmc) -> str:
    """Return the path of what still runs, "" without it: maybe an update of a run that was killed. Raises BmcError."""
    waits = _waits(bmc)
    running = next((path for path, found in _tasks(bmc) if not _ended(found, waits)), "")
    if running:
        return running
    state = update_state(next(_optional(lambda: bmc.get(SERVICE)), {}))
    return f"{SERVICE} ({state})" if state not in _RESTING else ""


def staged(bmc: Bmc) -> bool:
    """Return whether an update waits for the next boot, where a task shows that until then.

    One that asks for a restart (UserIntervention) stays so after it: it proves nothing.
    """
    waits = _waits(bmc)
    return bool(waits) and any(str(found.get("TaskState")) in waits for _, found in _tasks(bmc))


def carried_on(bmc: Bmc) -> list[str]:
    """Return the paths of the tasks that a restart of the host carries on: staged ones, and those that ask for it."""
    waits = _waits(bmc) | {_ASKS}
    return [path for path, found in _tasks(bmc) if str(found.get("TaskState")) in waits]


def failure(bmc: Bmc, tasks: Collection[str], parts: str) -> BmcError | None:
    """Return the error with the BMC's messages of the first of these tasks that failed, None without one."""
    for path in tasks:
        for found in _optional(lambda path=path: bmc.get(path)):  # type: ignore[misc]
            if (state := str(found.get("TaskState"))) in _BAD:
                return _failed(bmc, path, parts, state, found)
    return None


def wait_for_update(bmc: Bmc, answer: requests.Response, update: Update, proceed: Callable[[], None]) -> None:
    """Wait until an update has ended. ``answer``: the BMC's, to its request.

    Raises BmcError with the BMC's messages when it failed, or when it is not known to have ended in time. ``proceed``
    is called while waiting and may raise to stop; the BMC goes on by itself.
    """
    address = named_in(answer)
    watch: _Watch = _Task(bmc, address, update.part) if address else _Unnamed(bmc, update)
    deadline = time.monotonic() + TASK_S
    while time.monotonic() < deadline:
        proceed()
        if watch.ended():
            return
        time.sleep(_POLL_S)
    raise BmcError(
        bmc.where,
        f"firmware update of {update.part}",
        expected=f"it ends within {TASK_S:.0f} s",
        actual=watch.shown(),
        next_step="Cut no power before it has ended. Look at the BMC's event log; run again when it has ended.",
    )


def named_in(answer: requests.Response) -> str:
    """Return the path of the task that an answer names, else that of its monitor; "" for neither."""
    location = str(answer.headers.get("Location", ""))
    path = location if location.startswith("/") else urlsplit(location).path
    body = _json(answer) or {}
    return _task_of(body) or next(_in_messages(body), "") or path


def _task_of(body: Mapping[str, Any]) -> str:
    """Return the path of the Task that a body is, "" for another one."""
    path = str(body.get("@odata.id", ""))
    return path if _is_task(path) else ""


def _is_task(path: str) -> bool:
    return path.startswith(f"{_TASKS}/") and not path.endswith("/Monitor")


def _in_messages(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths of tasks in the arguments of a body's messages."""
    accepted = body.get("Accepted")
    messages = accepted.get("@Message.ExtendedInfo") if isinstance(accepted, Mapping) else None
    for message in messages if isinstance(messages, list) else ():
        given = message.get("MessageArgs") if isinstance(message, Mapping) else None
        yield from (str(item) for item in given or () if str(item).startswith(f"{_TASKS}/"))


def _behind(monitor: str) -> str:
    """Return where the task of a monitor is, by the forms of OpenBMC and iLO; "" for another form."""
    number = monitor.removesuffix("/Monitor").rpartition("/")[2]
    known = (f"{_TASKS}/{number}/Monitor", f"/redfish/v1/TaskService/TaskMonitors/{number}")
    return f"{_TASKS}/{number}" if monitor in known else ""


class _Watch:
    """What shows how an update goes on, while its BMC may restart with it."""

    def __init__(self, bmc: Bmc) -> None:
        self._bmc, self._refusals = bmc, Refusals()

    def ended(self) -> bool:
        """Look once, and return whether the update ended well. Raises BmcError when it failed."""
        if self._refusals.waiting():
            return False
        try:
            done = self.look()
        except (BmcLoginError, BmcRefusedError) as error:
            self._refusals.count(error)
        except (BmcUnreachableError, BmcTlsError):
            pass
        else:
            self._refusals.reset()
            return done
        self._bmc.forget()
        return False

    def look(self) -> bool:
        """Look once, and return whether the update ended well. Raises BmcError, also of a BMC that restarts."""
        raise NotImplementedError

    def shown(self) -> str:
        """Return what was seen last."""
        raise NotImplementedError


class _Task(_Watch):
    """A task, or its monitor until that has named the task or ended."""

    def __init__(self, bmc: Bmc, address: str, part: str) -> None:
        super().__init__(bmc)
        quirks = bmc.quirks()
        self._address, self._part = address, part
        self._missing = max((quirk.tries for quirk in quirks.all("task-missing-tries")), default=1)
        self._gone_is_done = quirks.has("task-gone-is-done") or part == "bmc"
        self._waits = _waits(bmc) if part != "bmc" else frozenset()
        self._state, self._misses = "New", 0

    def shown(self) -> str:
        """Return the state that was seen last."""
        return f"{self._address} is {self._state}"

    def look(self) -> bool:
        """Read it once."""
        try:
            answer = self._bmc.answer(self._address)
        except (BmcUnreachableError, BmcTlsError, BmcLoginError, BmcRefusedError):
            raise
        except BmcError as error:
            return self._missed(error)
        found = _json(answer)
        if found is not None and "TaskState" in found:
            return self._judge(found)
        if answer.status_code == _ACCEPTED:
            return False
        if _is_task(self._address) or (found is None and answer.status_code != _NO_CONTENT):
            return self._missed(_no_task(self._bmc, self._address))
        return not self._step_behind()  # the monitor has ended, and does not say how

    def _judge(self, found: Mapping[str, Any]) -> bool:
        """Return whether a task ended well. Raises BmcError when it failed."""
        self._misses, self._state = 0, str(found.get("TaskState"))
        self._address = _task_of(found) or self._address
        if self._state in _BAD:
            raise _failed(self._bmc, self._address, self._part, self._state, found)
        return _ended(found, self._waits)

    def _step_behind(self) -> bool:
        """Go on with the task whose monitor was read until now; return False where it is not known."""
        task = _behind(self._address)
        self._address = task or self._address
        return bool(task)

    def _missed(self, error: BmcError) -> bool:
        if self._step_behind():
            return False
        self._misses += 1
        if self._misses < self._missing:
            return False
        if self._gone_is_done:
            return True
        raise error


class _Unnamed(_Watch):
    """An update without a task: an iLO shows a state; of other BMCs only the new version shows that it has ended."""

    def __init__(self, bmc: Bmc, update: Update) -> None:
        super().__init__(bmc)
        self._update, self._state, self._moved = update, "", False

    def shown(self) -> str:
        """Return the state that was seen last."""
        named = f"UpdateService is {self._state}" if self._state else "the BMC names no task"
        return f"{named}, and the version is the old one"

    def look(self) -> bool:
        """Read state and version once."""
        service = next(_optional(lambda: self._bmc.get(SERVICE)), None)
        if service is None:
            return False
        self._state = update_state(service)
        self._moved = self._moved or self._state not in _RESTING
        new = self._moved or self._state != self._update.before  # the end of an earlier update stays shown
        if self._state == "Error" and new:
            raise _failed(self._bmc, SERVICE, self._update.part, self._state, _result(service))
        if self._state not in _RESTING:
            return False
        return self._moved or (self._state == "Complete" and new) or any(_optional(self._update.reached))


def _result(service: Mapping[str, Any]) -> dict[str, Any]:
    """Return an iLO's message of its last update as one of a task."""
    result = service["Oem"]["Hpe"].get("Result")
    return {"Messages": [{"Message": result.get("MessageId")}] if isinstance(result, Mapping) else []}


def _waits(bmc: Bmc) -> frozenset[str]:
    return _STAGED if bmc.quirks().has("task-waits-for-boot") else frozenset()


def _ended(found: Mapping[str, Any], waits: frozenset[str]) -> bool:
    """Return whether a task has ended, or waits for what only a restart gives it."""
    state = str(found.get("TaskState"))
    return state in _DONE | _BAD | waits or (state == _ASKS and found.get("PercentComplete") == _WHOLE)


def _tasks(bmc: Bmc) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield path and document of each task; none without a task service. Raises BmcError where none can be seen."""
    for service in _optional(lambda: bmc.get(_TASKS)):
        members = service.get("Members") or []
        for path in [str(link.get("@odata.id", "")) for link in members if isinstance(link, Mapping)]:
            yield path, bmc.get(path)


def _optional(read: Callable[[], T]) -> Iterator[T]:
    """Yield what is read; nothing where the service lacks it. Raises BmcError of a BMC that cannot be asked."""
    try:
        found = read()
    except (BmcUnreachableError, BmcTlsError, BmcLoginError, BmcRefusedError):
        raise
    except BmcError:
        return
    yield found


def _json(answer: requests.Response) -> dict[str, Any] | None:
    """Return the JSON object of an answer, None without one."""
    try:
        found = answer.json()
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _no_task(bmc: Bmc, address: str) -> BmcError:
    return BmcError(
        bmc.where,
        address,
        expected="a task",
        actual="no JSON document",
        next_step="Update the BMC's firmware, or run again.",
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

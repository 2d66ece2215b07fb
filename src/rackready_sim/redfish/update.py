"""UpdateService and TaskService: firmware that is pushed (multipart) or fetched (SimpleUpdate), and its task.

Shapes: NVIDIA/libredfish c094c9e6, tests/mockups: UpdateService of nvidia_viking (MultipartHttpPushUri) and lenovo
(SimpleUpdate), Tasks of nvidia_viking (TaskState Completed and Exception with Messages).

An image of this rack is text (a fetched one: the last part of its URL, with + for blanks; nothing is fetched):
``rackready-sim-firmware PART VERSION``, PART is ``bmc`` or ``bios``. The BMC's version changes when the task ends, and
the BMC restarts with it (OpenStack Ironic 7bc6aba7, ironic/drivers/modules/redfish/firmware.py,
_handle_bmc_update_completion: it may not answer then). The BIOS' version changes with the next boot.
``bmc_service``: ``no_push``: takes no file; ``keeps``: how the version before an update is kept: ``previous``, an entry
that SimpleUpdate installs, as on an iDRAC (tests/mockups/dell; dell/iDRAC-Redfish-Scripting e7ba7634,
DeviceFirmwareRollbackREDFISH.py), ``images``, images of the manager (openbmc/bmcweb 7debb892,
redfish-core/include/utils/sw_utils.hpp and lib/managers.hpp, setActiveFirmwareImage), or ``backup``, an entry that is
only shown (tests/mockups/supermicro, Backup_BIOS);
``waits_for_boot``: the task of a BIOS ends after a boot only, as on an iDRAC (OpenStack Ironic 7bc6aba7,
ironic/drivers/modules/redfish/firmware.py, _handle_bios_task_starting).
``user_intervention``: the task of a BIOS ends as UserIntervention at 100 %, as on an iDRAC (iDRAC-Redfish-Scripting,
DeviceFirmwareMultipartUploadREDFISH.py); ``image_type``: a push needs OemParameters with ImageType, as AMI's MegaRAC
does (pubs.lenovo.com/tsm/bmc_firmware_update); ``uefi``: the inventory has the BIOS version as UEFI and the system has
none, as on a Grace host (tests/mockups/nvidia_gb200); ``page``: members of a page of the inventory; ``device_ids``: it
has an iDRAC's ids (tests/mockups/dell); ``bmc_needs``: what makes the BMC's own firmware active: ``reset`` of the
manager, or ``ac``, a cut of the mains. ``task_at``: where the answer names the task (redfish/accepted.py).
``bmc_faults``: ``task_fails``; ``keeps_version``: a task ends well and nothing has changed; ``update_s``: seconds of an
update (default 0.3).
"""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import flask

from rackready_sim.redfish import accepted
from rackready_sim.redfish.context import NODE
from rackready_sim.redfish.driver import Hardware
from rackready_sim.redfish.misbehave import Misbehaviour
from rackready_sim.redfish.resources import Document, collection, resource
from rackready_sim.store import write_json

_BASE, _TASKS = "/redfish/v1/UpdateService", "/redfish/v1/TaskService/Tasks"
_INVENTORY = f"{_BASE}/FirmwareInventory"
_IDS = {"bmc": "HostBMC_0", "bios": "HostBIOS_0"}
"""Ids of a DGX H100's inventory (mockup nvidia_viking)."""
_MAGIC = "rackready-sim-firmware"
_PREVIOUS = {"bios": ("159", "BIOS.Setup.1-1"), "bmc": ("25227", "iDRAC.Embedded.1-1")}
"""SoftwareId and device in the ids of an iDRAC's inventory (mockup dell)."""
_RESTART_S = 0.3
"""Silence of a BMC that restarts with other firmware, s; of this rack, to be quick."""
_AC_S = 2.0
"""Silence of a BMC that cuts its own mains, s: long enough to be seen by a poll a second on a busy machine."""
_STATE_LAG_S = 0.2
"""How long an iLO shows the end of its update before after it took another one, s: it fetches the file first."""
Task = dict[str, Any]


class Updates:
    """Updates of every BMC."""

    def __init__(self, hardware: Hardware, misbehaviour: Misbehaviour) -> None:
        self._hardware, self._misbehaviour = hardware, misbehaviour

    def inventory(self) -> dict[str, Document]:
        """Return the firmware inventory."""
        self._finish()
        chassis = self._hardware.chassis()
        found: dict[str, Document] = {}
        for part, ident in _IDS.items():
            version = chassis.get(part, "")
            number, device = _PREVIOUS[part]
            named = f"Installed-{number}-{version}__{device}" if self._state("bmc_service").get("device_ids") else ident
            place = f"{_INVENTORY}/{named}"
            shown = _padded(version) if named == "HostBIOS_0" else version
            found[place] = resource(place, "SoftwareInventory", "v1_4_0", Version=shown, Updateable=True)
        if self._state("bmc_service").get("uefi"):
            place = f"{_INVENTORY}/UEFI"
            found[place] = resource(place, "SoftwareInventory", "v1_4_0", Version=chassis.get("bios", ""))
        for ident, (_, version) in self._kept().items():
            place = f"{_INVENTORY}/{ident}"
            found[place] = resource(place, "SoftwareInventory", "v1_4_0", Version=version, Updateable=True)
        if self._keeps() == "images":
            place = f"{_INVENTORY}/{_image(chassis.get('bmc', ''))}"
            found[place] = resource(place, "SoftwareInventory", "v1_4_0", Version=chassis.get("bmc", ""))
        return collection(_INVENTORY, "SoftwareInventory", found)

    def page(self, listed: Document, skip: int) -> Document:
        """Return a page of a collection (DSP0266, Members@odata.nextLink)."""
        size = int(self._state("bmc_service").get("page", 0)) or len(listed["Members"])
        after = {"Members@odata.nextLink": f"{_INVENTORY}?$skip={skip + size}"}
        more = after if skip + size < len(listed["Members"]) else {}
        return {**listed, "Members": listed["Members"][skip : skip + size], **more}

    def _keeps(self) -> str:
        return str(self._state("bmc_service").get("keeps", ""))

    def _kept(self) -> dict[str, tuple[str, str]]:
        """Return id -> (part, version) of what the BMC keeps from before its last updates."""
        before: dict[str, str] = self._hardware.state().get("firmware_before", {})
        keeps = self._keeps()
        parts = {part: version for part, version in before.items() if keeps != "images" or part == "bmc"}
        return {_ident(keeps, part, version): (part, version) for part, version in parts.items()} if keeps else {}

    def links(self) -> Document:
        """Return what a manager has of its images in its resource."""
        if self._keeps() != "images":
            return {}
        active = {"@odata.id": f"{_INVENTORY}/{_image(self._hardware.chassis().get('bmc', ''))}"}
        images = [active, *({"@odata.id": f"{_INVENTORY}/{ident}"} for ident in self._kept())]
        return {"ActiveSoftwareImage": active, "SoftwareImages": images, "SoftwareImages@odata.count": len(images)}

    def activate(self, body: dict[str, Any]) -> Any:  # noqa: ANN401 - a Flask response or None
        """Answer a PATCH of a manager that names its active image; None for another change."""
        link = (body.get("Links") or {}).get("ActiveSoftwareImage") if isinstance(body.get("Links"), dict) else None
        if not isinstance(link, dict) or self._keeps() != "images":
            return None
        part, version = self._kept().get(str(link.get("@odata.id", "")).rpartition("/")[2], ("", ""))
        if not part:
            error = {"code": "Base.1.13.0.PropertyValueNotInList", "message": "@odata.id"}
            return flask.Response(json.dumps({"error": error}), 400)
        self._flash({"part": part, "version": version})
        self._misbehaviour.silence(_RESTART_S)
        return flask.Response(status=204)

    def kept_image(self, address: str) -> str:
        """Return the image that SimpleUpdate finds at an entry of the inventory, "" for none."""
        part, version = self._kept().get(address.rpartition("/")[2], ("", ""))
        return f"{_MAGIC} {part} {version}" if part and self._keeps() == "previous" else ""

    def service(self) -> Document:
        """Return the update service."""
        self._finish()
        push = {} if self._state("bmc_service").get("no_push") else {"MultipartHttpPushUri": f"{_BASE}/upload"}
        action = {"#UpdateService.SimpleUpdate": {"target": f"{_BASE}/Actions/UpdateService.SimpleUpdate"}}
        listed = {"FirmwareInventory": {"@odata.id": _INVENTORY}, "ServiceEnabled": True}
        more = self._state("bmc_service").get("update_service", {})
        if self._task_at() == "hpe":
            begun = [task for task in self._tasks().values() if time.time() - task["at"] >= _STATE_LAG_S]
            more = {**more, **accepted.hpe([task["ended"] for task in begun])}
        return resource(
            _BASE, "UpdateService", "v1_11_0", Name="Update Service", Actions=action, **push, **listed, **more
        )

    def begin(self, image: str, parameters: dict[str, Any]) -> flask.Response:
        """Begin an update with an image; a wrong image, and a target that is not there, are refused."""
        words = image.split()
        entries = self.inventory()
        for target in parameters.get("Targets", []):
            if not target.startswith("/redfish/v1/") or (target.startswith(_INVENTORY) and target not in entries):
                error = {"code": "Base.1.8.1.ResourceMissingAtURI", "message": target}
                return flask.Response(json.dumps({"error": error}), 400)
        if len(words) != 3 or words[0] != _MAGIC or words[1] not in _IDS:  # noqa: PLR2004 - the image's three words
            return flask.Response(json.dumps({"error": {"code": "Base.1.8.1.GeneralError", "message": "image"}}), 400)
        tasks = self._tasks()
        task = {"part": words[1], "version": words[2], "at": time.time(), "ended": "", "parameters": parameters}
        ident = str(len(tasks) + 1)
        self._write({**tasks, ident: task})
        return accepted.answer(self._task_at(), self.task(ident))

    def monitor(self, ident: str) -> flask.Response:
        """Answer for a task's monitor: the task while it runs, then once 204, whatever its end, and then 404."""
        task = self.task(ident)
        if not self._tasks()[ident]["ended"]:
            return accepted.answer(self._task_at(), task)
        tasks = self._tasks()
        if tasks[ident].get("told"):
            flask.abort(404)
        tasks[ident]["told"] = True
        self._write(tasks)
        return flask.Response(status=204)

    def wants_image_type(self) -> bool:
        """Return whether a push needs OemParameters with ImageType."""
        return bool(self._state("bmc_service").get("image_type"))

    def _task_at(self) -> str:
        return str(self._state("bmc_service").get("task_at", ""))

    def restarted(self, why: str) -> None:
        """Make the BMC's firmware active that waits for this restart: ``reset`` of the manager, or ``ac``."""
        if why == "ac":
            self._misbehaviour.silence(_AC_S)
        if self._state("bmc_service").get("bmc_needs") not in {why, "reset"}:
            return
        with self._hardware.store.hardware_locked():
            state = self._hardware.store.state(NODE.get())
            state["chassis"].update(state.pop("firmware_resting", {}))
            self._hardware.store.write_state(NODE.get(), state)

    def task(self, ident: str) -> Document:
        """Return a task."""
        self._finish()
        task = self._tasks()[ident]
        place = f"{_TASKS}/{ident}"
        bad = task["ended"] == "Exception"
        text = "The image does not match the component." if bad else f"The task with id {ident} has completed."
        kind = "TaskAborted" if bad else "TaskCompletedOK"
        messages = [{"MessageId": f"TaskEvent.1.0.{kind}", "Message": text}]
        return resource(
            place,
            "Task",
            "v1_4_2",
            Name="Firmware Update",
            TaskState=task["ended"] or ("Starting" if task.get("staged") else "Running"),
            TaskStatus="Critical" if bad else "OK",
            PercentComplete=100 if task["ended"] else 0,
            Messages=messages if task["ended"] else [],
        )

    def listed(self) -> Document:
        """Return the collection of tasks."""
        self._finish()
        if self._task_at() in accepted.NO_TASK:
            return collection(_TASKS, "Task", {})[_TASKS]
        return collection(_TASKS, "Task", {f"{_TASKS}/{ident}": {} for ident in self._tasks()})[_TASKS]

    def _finish(self) -> None:
        """End the tasks whose time is over: their versions are there, or wait for a boot."""
        faults, tasks = self._state("bmc_faults"), self._tasks()
        ripe = [
            task
            for task in tasks.values()
            if not task["ended"] and time.time() - task["at"] >= float(faults.get("update_s", 0.3))
        ]
        for task in ripe:
            if self._waits(task):
                continue
            asks = task["part"] == "bios" and self._state("bmc_service").get("user_intervention")
            task["ended"] = "Exception" if faults.get("task_fails") else "UserIntervention" if asks else "Completed"
            if not faults.get("task_fails") and not faults.get("keeps_version") and not task.get("staged"):
                self._flash(task)
        if ripe:
            self._write(tasks)

    def _waits(self, task: Task) -> bool:
        """Whether a task waits for a boot; the first time, its firmware is staged."""
        if task["part"] != "bios" or not self._state("bmc_service").get("waits_for_boot"):
            return False
        if not task.get("staged"):
            task["staged"] = True
            self._flash(task)
        return "bios" in self._hardware.state().get("firmware_staged", {})

    def _flash(self, task: Task) -> None:
        with self._hardware.store.hardware_locked():
            state = self._hardware.store.state(NODE.get())
            state.setdefault("firmware_before", {})[task["part"]] = state["chassis"].get(task["part"], "")
            rests = "firmware_resting" if state.get("bmc_service", {}).get("bmc_needs") else "chassis"
            place = state.setdefault(rests if task["part"] == "bmc" else "firmware_staged", {})
            place[task["part"]] = task["version"]
            self._hardware.store.write_state(NODE.get(), state)
        if task["part"] == "bmc" and rests == "chassis":
            self._misbehaviour.silence(_RESTART_S)  # it restarts with its new firmware

    def _state(self, key: str) -> dict[str, Any]:
        found: dict[str, Any] = self._hardware.state().get(key, {})
        return found

    def _file(self) -> Path:
        return self._hardware.store.base / "bmc" / f"{NODE.get()}-tasks.json"

    def _tasks(self) -> dict[str, Task]:
        try:
            found: dict[str, Task] = json.loads(self._file().read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return found

    def _write(self, tasks: dict[str, Task]) -> None:
        write_json(self._file(), tasks)


def blueprint(updates: Updates) -> flask.Blueprint:
    """Return the task service."""
    service = flask.Blueprint("updates", __name__)

    @service.get(f"{_TASKS}/<ident>")
    def _task(ident: str) -> Any:  # noqa: ANN401 - a Flask response
        try:
            return updates.task(ident)
        except KeyError:
            return flask.abort(404)

    @service.get(f"{_TASKS}/<ident>/Monitor")
    @service.get(f"{accepted.MONITORS}/<ident>")
    def _monitor(ident: str) -> Any:  # noqa: ANN401
        try:
            return updates.monitor(ident)
        except KeyError:
            return flask.abort(404)

    @service.get(_TASKS)
    def _list() -> Any:  # noqa: ANN401
        return updates.listed()

    return service


def _ident(keeps: str, part: str, version: str) -> str:
    """Return the id of a kept version in the inventory."""
    number, device = _PREVIOUS[part]
    names = {"previous": f"Previous-{number}-{version}__{device}", "backup": f"Backup_{part.upper()}"}
    return names.get(keeps) or _image(version)


def _padded(version: str) -> str:
    """Return a version as HostBIOS_0 has it: 01.01.03 where BiosVersion is 1.1.3 (mockup nvidia_viking)."""
    return ".".join(number.zfill(2) for number in version.split("."))


def _image(version: str) -> str:
    """Return the id of an image: OpenBMC's is a hash of its version."""
    return hashlib.sha512(version.encode()).hexdigest()[:8]


def answer(updates: Updates, manager: str) -> Any:  # noqa: ANN401 - a Flask response or None
    """Answer for the update service before sushy-tools' own, which simulates no update."""
    request = flask.request
    path = request.path.rstrip("/")
    if request.method == "GET" and path == _BASE:
        return updates.service()
    if request.method == "GET" and path.startswith(_INVENTORY):
        found = updates.inventory().get(path) or flask.abort(404)
        return updates.page(found, int(request.args.get("$skip", 0))) if path == _INVENTORY else found
    if request.method == "PATCH" and path == manager:
        body = request.get_json(silent=True)
        return updates.activate(body if isinstance(body, dict) else {})
    if request.method == "POST" and path == f"{manager}/Actions/Manager.Reset":
        updates.restarted("reset")
        return None  # its answer is that of redfish/certificates.py
    return _post(updates, path) if request.method == "POST" else None


def _post(updates: Updates, path: str) -> Any:  # noqa: ANN401 - a Flask response or None
    request = flask.request
    if path == f"{_BASE}/upload":
        file = request.files.get("UpdateFile")
        given = json.loads(request.form.get("UpdateParameters", "{}"))
        if updates.wants_image_type() and "ImageType" not in json.loads(request.form.get("OemParameters", "{}")):
            error = {"code": "Base.1.8.1.PropertyMissing", "message": "OemParameters"}
            return flask.Response(json.dumps({"error": error}), 400)
        return updates.begin(file.read().decode(errors="replace") if file is not None else "", given)
    if not path.endswith("/UpdateService.SimpleUpdate"):
        return None
    body = request.get_json(silent=True)
    given = body if isinstance(body, dict) else {}
    image = str(given.get("ImageURI", ""))
    kept = image.startswith(_INVENTORY)
    return updates.begin(updates.kept_image(image) if kept else image.rpartition("/")[2].replace("+", " "), given)

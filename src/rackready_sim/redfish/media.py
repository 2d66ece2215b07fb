"""Virtual media, Secure Boot, and the Settings object of the boot override, which sushy-tools lacks or does otherwise.

Shapes: NVIDIA/libredfish c094c9e6, tests/mockups: VirtualMedia of nvidia_gb200 (USB1) and supermicro (VirtualMedia1),
SecureBoot and SD of nvidia_viking.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flask

from rackready_sim.errors import SimError
from rackready_sim.metal.cd import CdDrive
from rackready_sim.redfish.context import NODE
from rackready_sim.redfish.driver import Hardware, RackSystems
from rackready_sim.redfish.resources import Document, collection, resource
from rackready_sim.store import write_json

_SLOT = "USB1"
_JOBS, _JOB = "/redfish/v1/JobService/Jobs", "JID_102241909559"
_OTHER = "other"


class Media:
    """What is inserted in each BMC's one CD slot, and Secure Boot. Bare metal really has the CD and the firmware.

    ``bmc_service``: ``media``: a slot that fetches no image, in place of sushy-tools'; ``media_wants_protocol``:
    InsertMedia needs TransferProtocolType; ``eject_keeps_inserted``: shows what was ejected, as an iDRAC does for a
    while (OpenStack Ironic, ironic/drivers/modules/redfish/boot.py, _insert_vmedia_in_resource);
    ``boot_in_settings``: the boot override is in the Settings object; ``secure_boot_job``: a change of Secure Boot is a
    job of the BIOS, which runs at the next start and shows then (OpenStack Ironic,
    ironic/drivers/modules/redfish/management.py, _wait_for_secure_boot; bmc-toolbox/bmclib, pull request 471).
    ``bmc_faults.bios_job``: another job of the BIOS waits from the beginning, and leaves Secure Boot as it is.
    """

    def __init__(self, hardware: Hardware, systems: RackSystems) -> None:
        self._hardware, self._systems = hardware, systems

    def answer(self, system: str) -> Any:  # noqa: ANN401 - a Flask response or None
        """Answer a request for one of these resources; None for others."""
        request, body = flask.request, flask.request.get_json(silent=True)
        given: dict[str, Any] = body if isinstance(body, dict) else {}
        if self._hardware.state().get("bmc_faults", {}).get("bios_job") and "job_state" not in self._read():
            self._write(job=_OTHER, job_state="Scheduled")
        path = request.path.rstrip("/")
        slot = f"{system}/VirtualMedia/{_SLOT}"
        slots: dict[tuple[str, str], Callable[[], Any]] = {
            ("GET", f"{system}/VirtualMedia"): lambda: self._list(system),
            ("GET", slot): lambda: self._slot(slot),
            ("POST", f"{slot}/Actions/VirtualMedia.InsertMedia"): lambda: self._insert(given),
            ("POST", f"{slot}/Actions/VirtualMedia.EjectMedia"): self._eject,
        }
        secure = {
            ("GET", f"{system}/SecureBoot"): lambda: self._secure_boot(system),
            ("PATCH", f"{system}/SecureBoot"): lambda: self._set_secure_boot(given),
        }
        found: Callable[[], Any] | None = {
            **(slots if self._service().get("media") or self._is_metal() else {}),
            **({} if self._is_metal() else secure),
            **(self._jobs() if self._service().get("secure_boot_job") else {}),
            ("GET", f"{system}/SD"): lambda: self._settings(system),
            ("PATCH", f"{system}/SD"): lambda: self._set_boot(system, given),
        }.get((request.method, path))
        return found() if found is not None else None

    def links(self, document: Document, system: str) -> None:
        """Add what a system has of these to its resource."""
        document["SecureBoot"] = {"@odata.id": f"{system}/SecureBoot"}
        if self._service().get("boot_in_settings"):
            document["@Redfish.Settings"] = {
                "@odata.type": "#Settings.v1_2_2.Settings",
                "SettingsObject": {"@odata.id": f"{system}/SD"},
            }
            document["Boot"]["BootSourceOverrideTarget"] = "None"
            document["Boot"]["BootSourceOverrideEnabled"] = "Disabled"
            document["Boot"].pop("HttpBootUri", None)

    def _list(self, system: str) -> Document:
        base = f"{system}/VirtualMedia"
        return collection(base, "VirtualMedia", {f"{base}/{_SLOT}": {}})[base]

    def _slot(self, slot: str) -> Document:
        image = self._read().get("image")
        if self._service().get("eject_keeps_inserted"):
            image = image or self._read().get("ejected")
        actions = {
            f"#VirtualMedia.{word}": {"target": f"{slot}/Actions/VirtualMedia.{word}"}
            for word in ("InsertMedia", "EjectMedia")
        }
        return resource(
            slot,
            "VirtualMedia",
            "v1_3_0",
            Name="Virtual Removable Media",
            MediaTypes=["CD", "USBStick"],
            Image=image,
            Inserted=image is not None,
            ConnectedVia="URI" if image is not None else "NotConnected",
            WriteProtected=True,
            Actions=actions,
        )

    def _insert(self, given: dict[str, Any]) -> flask.Response:
        if self._service().get("media_wants_protocol") and "TransferProtocolType" not in given:
            return refused("Base.1.8.1.ActionParameterMissing", "TransferProtocolType")
        if not str(given.get("Image", "")).startswith(("http://", "https://")):
            return refused("Base.1.8.1.ActionParameterValueFormatError", "Image")
        if self._is_metal():
            try:
                self._drive().insert(given["Image"])
            except SimError:
                return refused("Base.1.8.1.CouldNotEstablishConnection", "Image")
        self._write(image=given["Image"], ejected=None)
        return flask.Response(status=204)

    def _eject(self) -> flask.Response:
        if self._is_metal():
            self._drive().eject()
        self._write(image=None, ejected=self._read().get("image") or self._read().get("ejected"))
        return flask.Response(status=204)

    def _drive(self) -> CdDrive:
        return CdDrive(self._hardware.store.base / "metal" / NODE.get())

    def _is_metal(self) -> bool:
        """Whether the node is bare metal: Secure Boot is then in the variables of its firmware, and app.py shows it."""
        return "metal" in self._hardware.state()

    def _secure_boot(self, system: str) -> Document:
        self._run_job(system)
        found = self._read()
        now = bool(found.get("secure_now", False))
        return resource(
            f"{system}/SecureBoot",
            "SecureBoot",
            "v1_1_0",
            Name="UEFI Secure Boot",
            SecureBootCurrentBoot="Enabled" if now else "Disabled",
            SecureBootEnable=bool(found.get("secure", now)),
            SecureBootMode="UserMode",
        )

    def _set_secure_boot(self, given: dict[str, Any]) -> flask.Response:
        if not isinstance(given.get("SecureBootEnable"), bool):
            return refused("Base.1.8.1.PropertyValueTypeError", "SecureBootEnable")
        if not self._service().get("secure_boot_job"):
            self._write(secure=given["SecureBootEnable"])
            return flask.Response(status=204)
        if self._read().get("job") is not None:
            return refused("IDRAC.2.14.SYS011", "SecureBootEnable")
        self._write(job=given["SecureBootEnable"], job_state="Scheduled")
        return flask.Response(status=202, headers={"Location": f"{_JOBS}/{_JOB}"})

    def _run_job(self, system: str) -> None:
        """Carry out what waits for a start: the first look after it finds the job at work, the second one its end."""
        found = self._read()
        if found.get("job") is None or self._systems.get_power_state(system.rsplit("/", 1)[-1]) != "On":
            return
        if found["job_state"] == "Scheduled":
            self._write(job_state="Running")
        elif found["job"] == _OTHER:
            self._write(job=None, job_state="Completed")
        else:
            self._write(secure=found["job"], secure_now=found["job"], job=None, job_state="Completed")

    def _jobs(self) -> dict[tuple[str, str], Callable[[], Any]]:
        """Return the job service. Shapes: NVIDIA/libredfish c094c9e6, tests/mockups/dell, JobService."""
        at, state = f"{_JOBS}/{_JOB}", self._read().get("job_state")
        job = resource(at, "Job", "v1_0_7", Name="ConfigBIOS:BIOS.Setup.1-1", JobState=state)
        listed = collection(_JOBS, "Job", {at: job} if state else {})
        service = resource(_JOBS.rpartition("/")[0], "JobService", "v1_0_4", Jobs={"@odata.id": _JOBS})
        found = {**listed, service["@odata.id"]: service}
        return {("GET", address): lambda document=document: document for address, document in found.items()}  # type: ignore[misc]

    def _settings(self, system: str) -> Document:
        found = self._hardware.boot().read()
        boot = {
            "BootSourceOverrideTarget": found["target"],
            "BootSourceOverrideEnabled": found["enabled"],
            "BootSourceOverrideMode": found["mode"],
            "HttpBootUri": found["uri"] or None,
        }
        return resource(f"{system}/SD", "ComputerSystem", "v1_17_0", Name="Settings", Boot=boot)

    def _set_boot(self, system: str, given: dict[str, Any]) -> flask.Response:
        boot = {key: "" if value is None else value for key, value in given.get("Boot", {}).items()}
        self._systems.set_boot(system.rsplit("/", 1)[-1], boot)
        return flask.Response(status=204)

    def _service(self) -> dict[str, Any]:
        found: dict[str, Any] = self._hardware.state().get("bmc_service", {})
        return found

    def _file(self) -> Path:
        return self._hardware.store.base / "bmc" / f"{NODE.get()}-media.json"

    def _read(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self._file().read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return found

    def _write(self, **values: Any) -> None:
        write_json(self._file(), {**self._read(), **values})


def refused(code: str, argument: str, status: int = 400) -> flask.Response:
    """Return a refusal with one message about one argument."""
    message = {"MessageId": code, "MessageArgs": [argument], "Message": f"{argument} is wrong or missing."}
    body = {"error": {"code": code, "message": message["Message"], "@Message.ExtendedInfo": [message]}}
    return flask.Response(json.dumps(body), status=status, content_type="application/json")

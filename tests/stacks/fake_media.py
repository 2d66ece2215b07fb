"""A BMC with a CD slot and Secure Boot, for tests of provisioning."""

from __future__ import annotations

from typing import Any

from tests.stacks.fake_rack import Redfish

_SYSTEM = "/redfish/v1/Systems/1"
_SLOT = f"{_SYSTEM}/VirtualMedia/USB1"
_SECURE = f"{_SYSTEM}/SecureBoot"


class MediaRedfish(Redfish):
    """Adds both to the system. What it was asked is in ``asked`` of the machine: insert, eject, secure on."""

    def _documents(self) -> dict[str, dict[str, Any]]:
        found = super()._documents()
        found[_SYSTEM] |= {
            "VirtualMedia": {"@odata.id": f"{_SYSTEM}/VirtualMedia"},
            "SecureBoot": {"@odata.id": _SECURE},
        }
        found[_SYSTEM]["Boot"]["BootSourceOverrideTarget@Redfish.AllowableValues"].append("Cd")
        members = [{"@odata.id": _SLOT}]
        found[f"{_SYSTEM}/VirtualMedia"] = {
            "@odata.id": f"{_SYSTEM}/VirtualMedia", "Name": "Virtual media", "Members": members,
            "Members@odata.count": 1,
        }  # fmt: skip
        found[_SLOT] = self._slot()
        secure = self.machine.secure_boot
        found[_SECURE] = {"@odata.id": _SECURE, "Id": "SecureBoot", "Name": "UEFI", "SecureBootEnable": secure}
        return found

    def _slot(self) -> dict[str, Any]:
        image = self.machine.image or None
        actions = {
            f"#VirtualMedia.{word}": {"target": f"{_SLOT}/Actions/VirtualMedia.{word}"}
            for word in ("InsertMedia", "EjectMedia")
        }
        return {
            "@odata.id": _SLOT, "Id": "USB1", "Name": "CD", "MediaTypes": ["CD"], "Image": image,
            "Inserted": image is not None, "ConnectedVia": "URI" if image else "NotConnected", "WriteProtected": True,
            "Actions": actions,
        }  # fmt: skip

    def _act(self, body: dict[str, Any]) -> None:
        if not self.path.startswith(_SLOT):
            super()._act(body)
            return
        ejected = self.path.endswith("EjectMedia")
        self.machine.asked.append("eject" if ejected else "insert")
        image = "" if ejected else str(body["Image"])
        if self.machine.loading is None:
            self.machine.image = image
        else:
            self.machine.loading.append(image)
        self._answer(204, None)

    def do_PATCH(self) -> None:  # noqa: N802 - http.server's name
        if self.path != _SECURE:
            super().do_PATCH()
        elif self._may():
            wanted = self._body()["SecureBootEnable"]
            self.machine.asked.append(f"secure {'on' if wanted else 'off'}")
            self.machine.secure_boot = wanted
            self._answer(204, None)


class DellRedfish(MediaRedfish):
    """An iDRAC: a change of Secure Boot is a job, which the second look after a start finds done.

    ``carries_out``: whether it ends with the change.
    """

    carries_out = True

    def _documents(self) -> dict[str, dict[str, Any]]:
        found = super()._documents()
        node = self.machine
        if self.path == _SECURE and node.secure_job is not None and node.power == "On":
            node.asked.append("look")
            if node.asked.count("look") > 1 and not node.stuck:
                node.secure_boot = node.secure_job if self.carries_out else node.secure_boot
                node.secure_job = None
        jobs = "/redfish/v1/JobService/Jobs"
        state = "Completed" if node.secure_job is None else "Scheduled"
        job = {"@odata.id": f"{jobs}/JID_1", "Id": "JID_1", "Name": "ConfigBIOS:BIOS.Setup.1-1", "JobState": state}
        found |= {
            "/redfish/v1/JobService": {"@odata.id": "/redfish/v1/JobService", "Jobs": {"@odata.id": jobs}},
            jobs: {"@odata.id": jobs, "Members": [{"@odata.id": f"{jobs}/JID_1"}], "Members@odata.count": 1},
            f"{jobs}/JID_1": job,
        }
        return found

    def _service_root(self) -> dict[str, Any]:
        return {**super()._service_root(), "Vendor": "Dell", "JobService": {"@odata.id": "/redfish/v1/JobService"}}

    def do_PATCH(self) -> None:  # noqa: N802 - http.server's name
        if self.path != _SECURE:
            super().do_PATCH()
        elif self._may():
            wanted = self._body()["SecureBootEnable"]
            if self.machine.unlicensed:
                self._answer(403, {"error": {"@Message.ExtendedInfo": [{"MessageId": "IDRAC.2.14.LIC501"}]}})
                return
            self.machine.asked.append(f"secure {'on' if wanted else 'off'}")
            if self.machine.secure_job is not None:
                self._answer(400, {"error": {"@Message.ExtendedInfo": [{"MessageId": "IDRAC.2.14.SYS011"}]}})
                return
            self.machine.secure_job = wanted
            self._answer(202, None)

"""Answers of BMCs to an update, by where they name its task (``task_at`` of ``bmc_service``).

- "": Location is the task, as on an iDRAC (bmc-toolbox/bmclib 89df130, internal/redfishwrapper/firmware_test.go);
- ``body``: no Location, the Task is the body, as on a Supermicro (NVIDIA/libredfish c094c9e6, src/supermicro.rs,
  update_firmware_multipart);
- ``message``: no Location, the path is an argument of the message Accepted, as on a Supermicro X12 (bmclib,
  internal/redfishwrapper/firmware.go, TaskAccepted);
- ``monitor``: Location is the monitor, .../Tasks/N/Monitor (NVIDIA/bmcweb 7f3a16ae, redfish-core/lib/task.hpp);
- ``monitors``: Location is the monitor, .../TaskMonitors/N (openbmc/bmcweb 7debb892, the same file);
- ``monitor-bare``: as ``monitor``, without a body;
- ``hpe``: neither, as on an iLO 5 before 2.30; Oem.Hpe.State of UpdateService shows it (proliantutils 03490ef4,
  proliantutils/redfish/resources/update_service.py);
- ``none``: neither, and nothing shows it.
"""

from __future__ import annotations

import json
from typing import Any

import flask

from rackready_sim.redfish.resources import Document

MONITORS = "/redfish/v1/TaskService/TaskMonitors"
NO_TASK = frozenset({"hpe", "none"})
_SUCCESS = {"error": {"code": "iLO.0.10.ExtendedInfo", "@Message.ExtendedInfo": [{"MessageId": "Base.1.4.Success"}]}}


def answer(task_at: str, task: Document) -> flask.Response:
    """Return the answer to an update, or of its monitor while it runs."""
    place = str(task["@odata.id"])
    monitor = f"{MONITORS}/{task['Id']}" if task_at == "monitors" else f"{place}/Monitor"
    if task_at in NO_TASK:
        return _response(200, _SUCCESS)
    if task_at == "message":
        return _response(202, _accepted(place))
    if task_at == "monitor-bare":
        return flask.Response(status=202, headers={"Location": monitor})
    header = {"body": "", "monitor": monitor, "monitors": monitor}.get(task_at, place)
    return _response(202, task, header)


def hpe(ends: list[str]) -> dict[str, Any]:
    """Return what an iLO's UpdateService shows of its updates. ``ends``: of each, "" while it runs."""
    state = "Idle" if not ends else {"": "Updating", "Exception": "Error"}.get(ends[-1], "Complete")
    result = {"Result": {"MessageId": "iLO.2.8.UnableToFlash"}} if state == "Error" else {}
    return {"Oem": {"Hpe": {"State": state, **result}}}


def _accepted(place: str) -> dict[str, Any]:
    message = {
        "MessageId": "SMC.1.0.OemSimpleupdateAcceptedMessage",
        "Message": f"Please also check Task Resource {place} to see more information.",
        "MessageArgs": [place],
    }
    return {"Accepted": {"code": "Base.v1_10_3.Accepted", "@Message.ExtendedInfo": [message]}}


def _response(code: int, body: dict[str, Any], location: str = "") -> flask.Response:
    headers = {"Location": location} if location else {}
    return flask.Response(json.dumps(body), code, headers, content_type="application/json")

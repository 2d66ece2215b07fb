"""Vendors' actions that cut a machine's mains, by ``ac_cycle`` of ``bmc_service``.

- ``nvidia``: of chassis BMC_0, with an ActionInfo (NVIDIA/libredfish c094c9e6, tests/mockups/nvidia_gb200; refused
  while the host is on: NVIDIA/bmcweb 7f3a16ae, redfish-core/lib/chassis.hpp);
- ``dell``: of chassis System.Embedded.1 (dell/dellemc-openmanage-ansible-modules, redfish_powerstate.py; only while the
  server is off: dell/iDRAC-Redfish-Scripting e7ba7634, ServerVirtualAcPowerCycleREDFISH.py).

The BMC is away for a moment, and the host stays off.
"""

from __future__ import annotations

import json
from typing import Any

import flask

from rackready_sim.redfish.context import NODE
from rackready_sim.redfish.driver import Hardware
from rackready_sim.redfish.power import Power
from rackready_sim.redfish.resources import Document, resource
from rackready_sim.redfish.update import Updates

_NVIDIA, _DELL = "/redfish/v1/Chassis/BMC_0", "/redfish/v1/Chassis/System.Embedded.1"
_INFO = f"{_NVIDIA}/Oem/Nvidia/AuxPowerResetActionInfo"
_PLACES = {"nvidia": _NVIDIA, "dell": _DELL}
_TARGETS = {
    "nvidia": f"{_NVIDIA}/Actions/Oem/NvidiaChassis.AuxPowerReset",
    "dell": f"{_DELL}/Actions/Oem/DellOemChassis.ExtendedReset",
}
_TYPES = {"nvidia": "AuxPowerCycle", "dell": "PowerCycle"}


def answer(hardware: Hardware, power: Power, updates: Updates) -> Any:  # noqa: ANN401 - a Flask response or None
    """Answer for the chassis that has the action, its ActionInfo, and the action."""
    kind = str(hardware.state().get("bmc_service", {}).get("ac_cycle", ""))
    path, method = flask.request.path.rstrip("/"), flask.request.method
    if not kind:
        return None
    if method == "GET" and path == _PLACES[kind]:
        return resource(path, "Chassis", "v1_22_0", ChassisType="Component", Actions={"Oem": _action(kind)})
    if method == "GET" and kind == "nvidia" and path == _INFO:
        parameter = {"Name": "ResetType", "Required": True, "DataType": "String", "AllowableValues": [_TYPES[kind]]}
        return resource(path, "ActionInfo", "v1_2_0", Parameters=[parameter])
    if method == "POST" and path == _TARGETS[kind]:
        return _cut(kind, power, updates)
    return None


def _action(kind: str) -> Document:
    if kind == "nvidia":
        return {"#NvidiaChassis.AuxPowerReset": {"@Redfish.ActionInfo": _INFO, "target": _TARGETS[kind]}}
    values = {"ResetType@Redfish.AllowableValues": ["PowerCycle"]}
    final = {"FinalPowerState@Redfish.AllowableValues": ["On", "Off"]}
    return {"#DellOemChassis.ExtendedReset": {**values, **final, "target": _TARGETS[kind]}}


def _cut(kind: str, power: Power, updates: Updates) -> flask.Response:
    body = flask.request.get_json(silent=True)
    wanted = body.get("ResetType") if isinstance(body, dict) else None
    if wanted != _TYPES[kind] or power.state(NODE.get()) != "Off":
        code = "ChassisPowerStateOffRequired" if wanted == _TYPES[kind] else "ActionParameterValueError"
        return flask.Response(json.dumps({"error": {"code": f"Base.1.13.0.{code}", "message": "0"}}), 400)
    updates.restarted("ac")
    return flask.Response(status=204)

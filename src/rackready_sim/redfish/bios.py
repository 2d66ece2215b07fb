"""Staged BIOS attributes: a PATCH of the settings object (``Bios/SD``), applied by the next boot.

Shape: NVIDIA/libredfish c094c9e6, tests/mockups/nvidia_viking, Systems/DGX/Bios and its SD. Attributes are in the
hardware state (``bmc.bios``, ``bmc.bios_pending``). ``bmc_faults.ignores_bios``: a PATCH is accepted and lost.
"""

from __future__ import annotations

import json
from typing import Any

import flask

from rackready_sim.redfish.context import NODE
from rackready_sim.redfish.driver import Hardware


def answer(hardware: Hardware, system: str) -> Any:  # noqa: ANN401 - a Flask response or None
    """Answer a PATCH of the settings object; None for other requests."""
    request = flask.request
    if request.method != "PATCH" or request.path.rstrip("/") != f"{system}/Bios/SD":
        return None
    body = request.get_json(silent=True)
    given = body.get("Attributes") if isinstance(body, dict) else None
    if not isinstance(given, dict) or not given:
        return _refused("Base.1.8.1.PropertyMissing", "Attributes")
    with hardware.store.hardware_locked():
        state = hardware.store.state(NODE.get())
        unknown = sorted(set(given) - set(state["bmc"]["bios"]))
        if unknown:
            return _refused("Base.1.8.1.PropertyUnknown", unknown[0])
        if not state.get("bmc_faults", {}).get("ignores_bios"):
            state["bmc"]["bios_pending"] |= given
            hardware.store.write_state(NODE.get(), state)
    return flask.Response(status=204)


def _refused(code: str, argument: str) -> flask.Response:
    message = {"MessageId": code, "MessageArgs": [argument], "Message": f"{argument} is wrong or missing."}
    body = {"error": {"code": code, "message": message["Message"], "@Message.ExtendedInfo": [message]}}
    return flask.Response(json.dumps(body), status=400, content_type="application/json")

"""sushy-tools' WSGI application with our drivers, and with additions and corrections to its templates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import flask
from sushy_tools.emulator import main as emulator

from rackready_sim.redfish import telemetry
from rackready_sim.redfish.context import NODE
from rackready_sim.redfish.driver import BOOT_TARGETS, Hardware, NoStorage, RackChassis, RackSystems
from rackready_sim.redfish.power import Power
from rackready_sim.redfish.sessions import Sessions, blueprint

_ROOT = "/redfish/v1"


class RackApplication(emulator.Application):  # type: ignore[misc]
    """Properties that give the application our drivers in place of its own."""

    rack_systems: RackSystems
    rack_chassis: RackChassis
    rack_storage = NoStorage()

    @property
    def systems(self) -> RackSystems:
        """Return our systems driver."""
        return self.rack_systems

    @property
    def chassis(self) -> RackChassis:
        """Return our chassis driver."""
        return self.rack_chassis

    @property
    def storage(self) -> NoStorage:
        """Return no storage."""
        return self.rack_storage

    @property
    def drives(self) -> NoStorage:
        """Return no drives."""
        return self.rack_storage


def build_app(hardware: Hardware, power: Power, sessions: Sessions, state_dir: Path) -> RackApplication:
    """Return the application; build it once per process.

    sushy-tools keeps its routes on one global application.
    """
    app = emulator.app
    app.__class__ = RackApplication
    app.rack_systems = RackSystems(hardware, power)
    app.rack_chassis = RackChassis(hardware)
    app.config["SUSHY_EMULATOR_STATE_DIR"] = str(state_dir)
    app.register_blueprint(blueprint(sessions))
    app.before_request(lambda: _telemetry(hardware))
    app.before_request(lambda: _patch_boot(app.rack_systems))
    app.after_request(lambda response: _correct(response, hardware, power))
    return app  # type: ignore[no-any-return]


def _telemetry(hardware: Hardware) -> Any:  # noqa: ANN401 - a Flask response or None
    """Answer for resources that sushy-tools lacks; collections with their members if requested ($expand)."""
    request = flask.request
    if request.method != "GET":
        return None
    found = telemetry.documents(hardware.state(), *_places(hardware))
    document = found.get(request.path.rstrip("/"))
    if document is None:
        return None
    if "$expand" in request.args and "Members" in document:
        links = ({"@odata.id"} == set(member) for member in document["Members"])
        document = {
            **document,
            "Members": [
                found[member["@odata.id"]] if link else member
                for link, member in zip(links, document["Members"], strict=True)
            ],
        }
    return flask.jsonify(document)


def _places(hardware: Hardware) -> tuple[str, str, str]:
    """Return the addresses of the node's system, chassis and manager.

    sushy-tools gives a manager its system's identity.
    """
    system, chassis = hardware.uuid("system"), hardware.uuid("chassis")
    return f"{_ROOT}/Systems/{system}", f"{_ROOT}/Chassis/{chassis}", f"{_ROOT}/Managers/{system}"


def _patch_boot(systems: RackSystems) -> Any:  # noqa: ANN401 - a Flask response or None
    """Apply a change of the boot override here: sushy-tools ignores whether it applies once."""
    request = flask.request
    if request.method != "PATCH" or request.endpoint != "system_resource" or request.view_args is None:
        return None
    body = request.get_json(silent=True)
    if not isinstance(body, dict) or set(body) != {"Boot"} or not isinstance(body["Boot"], dict) or not body["Boot"]:
        return None
    systems.set_boot(str(request.view_args["identity"]), body["Boot"])
    return flask.Response(status=204)


def _correct(response: flask.Response, hardware: Hardware, power: Power) -> flask.Response:
    """Replace the identity in the templates' answers with that of the machine."""
    correct = {
        "root_resource": _root,
        "system_resource": _system,
        "chassis_resource": _chassis,
        "manager_resource": _manager,
    }.get(flask.request.endpoint or "")
    if correct is None or flask.request.method != "GET" or response.status_code != 200:  # noqa: PLR2004 - HTTP OK
        return response
    document = json.loads(response.get_data())
    correct(document, hardware, power)
    response.set_data(json.dumps(document))
    return response


def _root(document: dict[str, Any], hardware: Hardware, power: Power) -> None:
    del power
    document.update(
        {
            "Id": "RootService",
            "Name": "Root Service",
            "Vendor": hardware.chassis()["manufacturer"],
            "UUID": hardware.uuid("root"),
        }
    )
    document["SessionService"] = {"@odata.id": f"{_ROOT}/SessionService"}
    document["Links"] = {"Sessions": {"@odata.id": f"{_ROOT}/SessionService/Sessions"}}
    document["ProtocolFeaturesSupported"] = {
        "ExpandQuery": {"ExpandAll": False, "Levels": True, "Links": False, "MaxLevels": 1, "NoLinks": True}
    }
    for absent in ("CertificateService", "UpdateService", "Registries"):
        document.pop(absent, None)


def _system(document: dict[str, Any], hardware: Hardware, power: Power) -> None:
    del power
    for absent in ("Memory", "Storage", "SimpleStorage", "SecureBoot", "Processors"):
        document.pop(absent, None)
    document.update(telemetry.links(hardware.state(), *_places(hardware))[0])
    chassis, boot = hardware.chassis(), hardware.boot().read()
    document.update(
        {
            "Manufacturer": chassis["manufacturer"],
            "Model": chassis["product"],
            "SerialNumber": chassis.get("board_serial") or chassis["serial"],
            "SystemType": "Physical",
        }
    )
    document.pop("SKU", None)
    if chassis.get("board_serial"):
        document["SKU"] = chassis["serial"]  # as Dell: the Service Tag; SerialNumber is the board's
    document["Boot"]["BootSourceOverrideEnabled"] = boot["enabled"]
    document["Boot"]["BootSourceOverrideTarget@Redfish.AllowableValues"] = list(BOOT_TARGETS)


def _chassis(document: dict[str, Any], hardware: Hardware, power: Power) -> None:
    chassis = hardware.chassis()
    for invented in ("AssetTag", "SKU", "PartNumber", "Location", "HeightMm", "WidthMm", "DepthMm", "WeightKg"):
        document.pop(invented, None)
    state = power.state(NODE.get())
    document.update(
        {
            "Manufacturer": chassis["manufacturer"],
            "Model": chassis["product"],
            "SerialNumber": chassis.get("board_serial") or chassis["serial"],
        }
    )
    document.update({"ChassisType": "RackMount", "PowerState": state})
    document.pop("Thermal", None)
    document.update(telemetry.links(hardware.state(), *_places(hardware))[1])


def _manager(document: dict[str, Any], hardware: Hardware, power: Power) -> None:
    del power
    document.update(
        {
            "Description": "Baseboard Management Controller",
            "Model": "AST2600",
            "FirmwareVersion": hardware.chassis().get("bmc", ""),
        }
    )
    document.update(telemetry.links(hardware.state(), *_places(hardware))[2])

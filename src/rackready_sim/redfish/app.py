"""sushy-tools' WSGI application with our drivers, and with additions and corrections to its templates."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flask
from sushy_tools.emulator import main as emulator

from rackready_sim.redfish import accounts, bios, certificates, mains, media, parts, telemetry, update
from rackready_sim.redfish.context import NODE
from rackready_sim.redfish.driver import BOOT_TARGETS, Hardware, NoStorage, RackChassis, RackSystems
from rackready_sim.redfish.misbehave import Misbehaviour
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
    app.register_blueprint(accounts.blueprint(sessions.accounts))
    own = media.Media(hardware, app.rack_systems)
    app.before_request(lambda: own.answer(_places(hardware)[0]))
    updates = update.Updates(hardware, sessions.misbehaviour)
    app.register_blueprint(update.blueprint(updates))
    app.before_request(lambda: update.answer(updates, _places(hardware)[2]))
    app.before_request(lambda: mains.answer(hardware, power, updates))
    app.before_request(lambda: bios.answer(hardware, _places(hardware)[0]))
    web = certificates.Certificates(hardware, sessions.misbehaviour)
    app.before_request(lambda: web.answer(_places(hardware)[2]))
    app.before_request(lambda: _telemetry(hardware, power, sessions.misbehaviour))
    app.before_request(lambda: _patch_boot(app.rack_systems, sessions.misbehaviour))
    app.before_request(lambda: _settle(sessions.misbehaviour))
    app.after_request(
        lambda response: _correct(response, hardware, power, _Own(own, web, updates, sessions.misbehaviour))
    )
    return app  # type: ignore[no-any-return]


def _telemetry(hardware: Hardware, power: Power, misbehaviour: Misbehaviour) -> Any:  # noqa: ANN401 - a response or None
    """Answer for resources that sushy-tools lacks; collections with their members if requested ($expand)."""
    request = flask.request
    if request.method != "GET":
        return None
    state = hardware.state()
    if misbehaviour.gpus_hidden(power.state(NODE.get())):
        state = {**state, "gpus": []}
    found = telemetry.documents(state, *_places(hardware))
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


def _patch_boot(systems: RackSystems, misbehaviour: Misbehaviour) -> Any:  # noqa: ANN401 - a Flask response or None
    """Apply a change of the boot override here: sushy-tools ignores whether it applies once."""
    request = flask.request
    if request.method != "PATCH" or request.endpoint != "system_resource" or request.view_args is None:
        return None
    body = request.get_json(silent=True)
    if not isinstance(body, dict) or set(body) != {"Boot"} or not isinstance(body["Boot"], dict) or not body["Boot"]:
        return None
    if misbehaviour.faults().get("ignores_boot_override"):
        return flask.Response(status=204)
    systems.set_boot(str(request.view_args["identity"]), {key: value or "" for key, value in body["Boot"].items()})
    return flask.Response(status=204)


def _settle(misbehaviour: Misbehaviour) -> Any:  # noqa: ANN401 - a Flask response or None
    """Refuse a reset type that the BMC does not take yet."""
    request = flask.request
    body = request.get_json(silent=True) if request.path.endswith("/Actions/ComputerSystem.Reset") else None
    if not isinstance(body, dict) or not misbehaviour.settling(str(body.get("ResetType"))):
        return None
    return media.refused("Base.1.12.ActionParameterValueConflict", "ResetType", 409)


@dataclass(frozen=True, slots=True)
class _Own:
    """Our services that add to the templates' answers."""

    media: media.Media
    web: certificates.Certificates
    updates: update.Updates
    misbehaviour: Misbehaviour

    def add(self, document: dict[str, Any], kind: str, places: tuple[str, str, str]) -> None:
        """Add to a resource of a kind what these services have of it."""
        if kind == "system_resource":
            self.media.links(document, places[0])
            document["PowerState"] = self.misbehaviour.power(document["PowerState"])
        elif kind == "manager_resource":
            document.update(self.web.links(places[2]))
            document["Links"].update(self.updates.links())
        elif kind == "root_resource":
            document.update(self.web.root())


def _correct(response: flask.Response, hardware: Hardware, power: Power, own: _Own) -> flask.Response:
    """Replace the identity in the templates' answers with that of the machine."""
    correct = {
        "root_resource": _root,
        "system_collection_resource": _systems,
        "system_resource": _system,
        "chassis_resource": _chassis,
        "manager_resource": _manager,
        "secure_boot": _secure_boot,
    }.get(flask.request.endpoint or "")
    if correct is None or flask.request.method != "GET" or response.status_code != 200:  # noqa: PLR2004 - HTTP OK
        return response
    if flask.request.path.rstrip("/") in parts.boards(hardware.state()):
        return response  # it is complete, and no host
    document = json.loads(response.get_data())
    correct(document, hardware, power)
    own.add(document, flask.request.endpoint or "", _places(hardware))
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
    document["AccountService"] = {"@odata.id": f"{_ROOT}/AccountService"}
    document["Links"] = {"Sessions": {"@odata.id": f"{_ROOT}/SessionService/Sessions"}}
    document.update(hardware.state().get("bmc_service", {}).get("root", {}))
    document["ProtocolFeaturesSupported"] = {
        "ExpandQuery": {"ExpandAll": False, "Levels": True, "Links": False, "MaxLevels": 1, "NoLinks": True}
    }
    document["UpdateService"] = {"@odata.id": f"{_ROOT}/UpdateService"}
    document["Tasks"] = {"@odata.id": f"{_ROOT}/TaskService"}
    for absent in ("CertificateService", "Registries"):
        document.pop(absent, None)


def _systems(document: dict[str, Any], hardware: Hardware, power: Power) -> None:
    """Add the GPU board beside the host."""
    del power
    document["Members"] += [{"@odata.id": address} for address in parts.boards(hardware.state())]
    document["Members@odata.count"] = len(document["Members"])


def _system(document: dict[str, Any], hardware: Hardware, power: Power) -> None:
    del power
    for absent in ("Memory", "Storage", "SimpleStorage", "Processors"):
        document.pop(absent, None)
    if "metal" not in hardware.state():
        document.pop("SecureBoot", None)
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
    if hardware.state().get("bmc_service", {}).get("uefi"):
        document.pop("BiosVersion", None)
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


def _secure_boot(document: dict[str, Any], hardware: Hardware, power: Power) -> None:
    """Give the state of the last start, which sushy-tools takes to be that of the next."""
    del power
    if "metal" not in hardware.state():
        return
    document["SecureBootCurrentBoot"] = "Enabled" if hardware.flash().secure_boot else "Disabled"
    document["SecureBootMode"] = "UserMode"


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

"""The Redfish emulator, asked over its WSGI interface, with a fake in place of containers."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import Client

from rackready.sim.boot import BootSettings
from rackready.sim.redfish.app import build_app
from rackready.sim.redfish.driver import Hardware
from rackready.sim.redfish.sessions import Sessions, guard
from rackready.sim.store import Store, write_private

NODES = {"node01": "SERIAL-1", "node02": "SERIAL-2"}


class FakePower:
    """Remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.states = dict.fromkeys(NODES, "Off")

    def state(self, node: str) -> str:
        return self.states[node]

    def request(self, node: str, action: str) -> None:
        self.asked.append((node, action))


class Rack:
    """Two BMCs."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root)
        self.power = FakePower()
        for node, serial in NODES.items():
            nics = [{"netdev": "enp24s0np0", "mac": f"b8:3f:d2:00:00:{node[-2:]}"}]
            chassis = {"serial": serial, "manufacturer": "NVIDIA", "product": "DGXH100", "bios": "1.06", "bmc": "25.06"}
            self.store.write_state(node, {"chassis": chassis, "nics": nics})
            write_private(self.store.secret(f"{node}-bmc"), f"secret-{node}")
        sessions = Sessions(self.store)
        app = build_app(Hardware(self.store), self.power, sessions, root)
        self.clients = {node: Client(guard(app, node, sessions)) for node in NODES}

    def ask(self, node: str, path: str, *, method: str = "GET", body: Any = None, password: str = "", token: str = "") -> Any:  # noqa: ANN401 - a test response, a JSON body
        headers = {"X-Auth-Token": token} if token else {}
        if not token:
            secret = password or f"secret-{node}"
            headers["Authorization"] = "Basic " + base64.b64encode(f"admin:{secret}".encode()).decode()
        return self.clients[node].open(path, method=method, json=body, headers=headers)

    def system(self, node: str) -> str:
        members = self.ask(node, "/redfish/v1/Systems").json["Members"]
        assert len(members) == 1
        return str(members[0]["@odata.id"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Rack:
    """Built once: sushy-tools keeps its routes on one global application."""
    return Rack(tmp_path_factory.mktemp("redfish"))


@pytest.fixture
def rack(made: Rack) -> Iterator[Rack]:
    made.power.asked.clear()
    made.power.states.update(dict.fromkeys(NODES, "Off"))
    yield made
    for path in (made.store.base / "bmc").glob("*.json"):
        path.unlink()


def test_a_bmc_shows_its_own_machine(rack: Rack) -> None:
    for node, serial in NODES.items():
        document = rack.ask(node, rack.system(node)).json
        assert (document["SerialNumber"], document["Manufacturer"], document["Model"]) == (serial, "NVIDIA", "DGXH100")
        assert document["PowerState"] == "Off"
        assert document["Boot"]["BootSourceOverrideEnabled"] == "Disabled"
        chassis = rack.ask(node, document["Links"]["Chassis"][0]["@odata.id"]).json
        assert chassis["SerialNumber"] == serial
        manager = rack.ask(node, document["Links"]["ManagedBy"][0]["@odata.id"]).json
        assert manager["FirmwareVersion"] == "25.06"
    assert rack.system("node01") != rack.system("node02")


def test_a_bmc_does_not_know_another_ones_machine(rack: Rack) -> None:
    other = rack.system("node02")
    assert rack.ask("node01", other).status_code == 404
    assert rack.ask("node01", f"{other}/Actions/ComputerSystem.Reset", method="POST", body={"ResetType": "On"}).status_code == 404
    assert rack.power.asked == []


@pytest.mark.parametrize("path", ["/redfish/v1/Systems", "/redfish/v1/SessionService/Sessions", "/redfish/v1/Chassis"])
def test_a_wrong_password_is_refused(rack: Rack, path: str) -> None:
    assert rack.ask("node01", path, password="secret-node02").status_code == 401
    assert rack.ask("node01", path).status_code == 200
    assert rack.clients["node01"].get(path).status_code == 401


def test_the_service_root_needs_no_password_and_names_the_session_service(rack: Rack) -> None:
    root = json.loads(rack.clients["node01"].get("/redfish/v1/").get_data())
    assert root["SessionService"] == {"@odata.id": "/redfish/v1/SessionService"}
    assert root["Links"]["Sessions"]["@odata.id"] == "/redfish/v1/SessionService/Sessions"


def test_a_session_is_good_for_its_own_bmc_until_it_is_closed(rack: Rack) -> None:
    path = "/redfish/v1/SessionService/Sessions"
    refused = rack.clients["node01"].post(path, json={"UserName": "admin", "Password": "wrong"})
    assert refused.status_code == 401
    answer = rack.clients["node01"].post(path, json={"UserName": "admin", "Password": "secret-node01"})
    token = answer.headers["X-Auth-Token"]
    assert answer.status_code == 201
    assert rack.ask("node01", "/redfish/v1/Systems", token=token).status_code == 200
    assert rack.ask("node02", "/redfish/v1/Systems", token=token).status_code == 401
    assert rack.ask("node01", answer.headers["Location"], method="DELETE", token=token).status_code == 204
    assert rack.ask("node01", "/redfish/v1/Systems", token=token).status_code == 401


def test_the_number_of_sessions_is_bounded(rack: Rack) -> None:
    path = "/redfish/v1/SessionService/Sessions"
    for _ in range(70):
        rack.clients["node02"].post(path, json={"UserName": "admin", "Password": "secret-node02"})
    assert rack.ask("node02", path).json["Members@odata.count"] == 64


def test_an_override_meant_once_clears_after_the_boot(rack: Rack) -> None:
    system = rack.system("node01")
    boot = {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}
    assert rack.ask("node01", system, method="PATCH", body={"Boot": boot}).status_code == 204
    shown = rack.ask("node01", system).json["Boot"]
    assert (shown["BootSourceOverrideTarget"], shown["BootSourceOverrideEnabled"]) == ("Pxe", "Once")
    BootSettings(rack.store, "node01").booted()
    shown = rack.ask("node01", system).json["Boot"]
    assert (shown["BootSourceOverrideTarget"], shown["BootSourceOverrideEnabled"]) == ("None", "Disabled")
    assert rack.ask("node02", rack.system("node02")).json["Boot"]["BootSourceOverrideEnabled"] == "Disabled"


def test_an_override_meant_for_good_stays(rack: Rack) -> None:
    system = rack.system("node01")
    rack.ask("node01", system, method="PATCH", body={"Boot": {"BootSourceOverrideTarget": "Hdd", "BootSourceOverrideEnabled": "Continuous"}})
    BootSettings(rack.store, "node01").booted()
    assert rack.ask("node01", system).json["Boot"]["BootSourceOverrideEnabled"] == "Continuous"


@pytest.mark.parametrize("boot", [{"BootSourceOverrideTarget": "Moon"}, {"BootSourceOverrideEnabled": "Twice"}, {"Nonsense": 1}])
def test_a_boot_setting_that_does_not_exist_is_refused(rack: Rack, boot: dict[str, Any]) -> None:
    assert rack.ask("node01", rack.system("node01"), method="PATCH", body={"Boot": boot}).status_code == 400
    assert BootSettings(rack.store, "node01").read()["enabled"] == "Disabled"


@pytest.mark.parametrize("kind", ["On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart"])
def test_a_reset_reaches_the_power_of_that_node_and_answers_at_once(rack: Rack, kind: str) -> None:
    target = rack.ask("node02", rack.system("node02")).json["Actions"]["#ComputerSystem.Reset"]["target"]
    assert rack.ask("node02", target, method="POST", body={"ResetType": kind}).status_code == 204
    assert rack.power.asked == [("node02", kind)]


def test_an_unknown_reset_type_is_refused(rack: Rack) -> None:
    target = f"{rack.system('node01')}/Actions/ComputerSystem.Reset"
    assert rack.ask("node01", target, method="POST", body={"ResetType": "Explode"}).status_code == 400
    assert rack.power.asked == []

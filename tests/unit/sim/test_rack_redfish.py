"""The Redfish emulator, asked over WSGI and over TLS by the gates' own client; a fake stands in for containers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rackready.design.site import load_site
from rackready.drivers import redfish
from rackready.gates.base import Output
from rackready.gates.bmc.connection import Bmcs
from rackready.gates.bmc.cycle import Cycler
from rackready.gates.engine.registry import all_gates, gate
from rackready.gates.engine.runner import Runner
from rackready.gates.records.offline import facts
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome, Verdict
from rackready.model.site import Bmc as BmcSite
from rackready_sim import faults
from rackready_sim.boot import BootSettings
from rackready_sim.hardware import build_state
from rackready_sim.redfish.server import BmcServer
from rackready_sim.store import write_private
from rackready_sim.tls import ensure_certificates
from tests.gates.test_bmc_cycles import Host
from tests.unit.sim.emulated import NODES, Rack, emulated

SANITY = sorted(gate_id for gate_id in all_gates() if gate_id.startswith("bmc/") and "/sanity/" in gate_id)


@pytest.fixture(scope="module")
def made() -> Rack:
    return emulated()


@pytest.fixture
def rack(made: Rack) -> Iterator[Rack]:
    made.power.asked.clear()
    made.power.states.update(dict.fromkeys(NODES, "Off"))
    as_new(made)  # other files of this worker use the same BMCs
    yield made
    as_new(made)


def as_new(made: Rack) -> None:
    """Remove what the BMCs keep: accounts, passwords, staged settings."""
    for path in (made.store.base / "bmc").glob("*.json"):
        path.unlink()
    for node in NODES:
        write_private(made.store.secret(f"{node}-bmc"), f"secret-{node}")


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


def test_a_dell_reports_its_service_tag_as_sku(rack: Rack) -> None:
    state = rack.store.state("node01")
    other = {"manufacturer": "Dell Inc.", "serial": "8XYZ123", "board_serial": "MXFC400123"}
    rack.store.write_state("node01", {**state, "chassis": {**state["chassis"], **other}})
    try:
        document = rack.ask("node01", rack.system("node01")).json
        assert (document["SerialNumber"], document["SKU"]) == ("MXFC400123", "8XYZ123")
        assert "SKU" not in rack.ask("node02", rack.system("node02")).json
    finally:
        rack.store.write_state("node01", state)


def test_a_bmc_does_not_know_another_ones_machine(rack: Rack) -> None:
    other = rack.system("node02")
    assert rack.ask("node01", other).status_code == 404
    assert (
        rack.ask("node01", f"{other}/Actions/ComputerSystem.Reset", method="POST", body={"ResetType": "On"}).status_code
        == 404
    )
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
    rack.ask(
        "node01",
        system,
        method="PATCH",
        body={"Boot": {"BootSourceOverrideTarget": "Hdd", "BootSourceOverrideEnabled": "Continuous"}},
    )
    BootSettings(rack.store, "node01").booted()
    assert rack.ask("node01", system).json["Boot"]["BootSourceOverrideEnabled"] == "Continuous"


@pytest.mark.parametrize(
    "boot", [{"BootSourceOverrideTarget": "Moon"}, {"BootSourceOverrideEnabled": "Twice"}, {"Nonsense": 1}]
)
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


@pytest.fixture
def served(rack: Rack) -> Iterator[BmcSite]:
    """Serve node01 over TLS as a real BMC does."""
    before = rack.store.state("node01")
    address = "127.84.1.1"
    ensure_certificates(rack.store.tls, {"node01": address})
    server = BmcServer(address, 0, rack.guards["node01"], rack.store.tls / "node01.pem")
    server.serve_in_background()
    password = {"file": str(rack.store.secret("node01-bmc"))}
    yield BmcSite.model_validate(
        {"address": address, "port": server.server_port, "password": password, "ca": str(rack.store.tls / "ca.pem")}
    )
    server.shutdown()
    server.server_close()
    rack.store.write_state("node01", before)


@pytest.fixture
def told(rack: Rack, served: BmcSite) -> Callable[[str, dict[str, Any]], Verdict]:
    """Let a gate ask the served BMC through our driver: password, session, links, $expand."""

    def ask(gate_id: str, state: dict[str, Any]) -> Verdict:
        rack.store.write_state("node01", state)
        known, found = facts("dgx_h100"), gate(gate_id)
        run = found.plan(known, ["node01"])[0]
        command = run.commands[0]
        answer = Bmcs({"node01": served}).run("node01", command.argv, timeout_s=30)
        assert rack.store.secret("node01-bmc").read_text() not in answer.stdout
        return found.evaluate(
            known,
            run,
            {
                command.key: Output(
                    command.key, "node01", "GET", answer.exit_code, answer.stdout, failure=answer.failure
                )
            },
        )

    return ask


@pytest.mark.parametrize("gate_id", SANITY)
def test_gates_ask_the_emulator_over_tls_and_a_healthy_node_passes(
    told: Callable[[str, dict[str, Any]], Verdict], gate_id: str
) -> None:
    found = told(gate_id, build_state(load_site("sim"), "node01"))
    assert (found.outcome, [str(finding) for finding in found.findings]) == (Outcome.PASS, [])


@pytest.mark.parametrize(
    "fault", ["psu-failed", "inlet-hot", "leak", "sel-cpu-ierr", "bios-changed", "bmc-firmware-other"]
)
def test_a_fault_in_the_hardware_state_reaches_its_gate(
    told: Callable[[str, dict[str, Any]], Verdict], fault: str
) -> None:
    state = build_state(load_site("sim"), "node01")
    faults.inject(state, fault)
    assert told(faults.FAULTS[fault].caught_by, state).outcome is Outcome.FAIL


def test_collections_come_expanded_when_they_are_asked_so(rack: Rack) -> None:
    before = rack.store.state("node01")
    rack.store.write_state("node01", build_state(load_site("sim"), "node01"))
    chassis = rack.ask("node01", "/redfish/v1/Chassis").json["Members"][0]["@odata.id"]
    plain = rack.ask("node01", f"{chassis}/Sensors").json["Members"]
    expanded = rack.ask("node01", f"{chassis}/Sensors?$expand=.($levels=1)").json["Members"]
    assert len(plain) == len(expanded) == 28
    assert [set(item) for item in plain] == [{"@odata.id"}] * 28
    assert all("Reading" in item for item in expanded)
    rack.store.write_state("node01", before)


def test_a_part_that_a_power_cycle_loses_is_gone_from_the_next_boot_on(rack: Rack) -> None:
    before = rack.store.state("node01")
    state = build_state(load_site("sim"), "node01")
    faults.inject(state, "part-missing-after-power-cycle", kind="dimms", index=7)
    states = []
    for boots in (0, 1):
        state["boot_count"] = boots
        rack.store.write_state("node01", state)
        system = rack.system("node01")
        states.append(rack.ask("node01", f"{system}/Memory/DIMM7").json["Status"]["State"])
    assert states == ["Enabled", "Absent"]
    rack.store.write_state("node01", before)


def test_a_dimm_that_a_power_cycle_loses_is_named_by_the_gate_on_power_cycles(
    rack: Rack, served: BmcSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        redfish, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: time.sleep(min(seconds, 0.01)))
    )
    state = build_state(load_site("sim"), "node01")
    faults.inject(state, "part-missing-after-power-cycle", kind="dimms", index=7)
    rack.store.write_state("node01", state)

    def boots(node: str) -> None:
        now = rack.store.state(node)
        rack.store.write_state(node, {**now, "boot_count": now["boot_count"] + 1})

    monkeypatch.setattr(rack.power, "boots", boots)
    rack.power.states["node01"] = "On"
    ledger = Ledger.open(tmp_path / "state.sqlite")
    cycler = Cycler(ledger, "c1", lambda _node: "", lambda _node: state["chassis"]["serial"], rest_s=0.0)
    host = Host(lambda: rack.store.state("node01")["boot_count"])
    runner = Runner(
        host.connection(), facts("dgx_h100"), lambda *_: None, bmc=Bmcs({"node01": served}, cycler), wait_s=0.01
    )
    found = runner.gate(gate("bmc/power/stress/cycles", {"cycles": 3, "boot_s": 30}), ["node01"])[0].verdict
    serial = state["bmc"]["dimms"][7]["serial"]
    assert found.outcome is Outcome.FAIL
    assert [str(finding).split(" Actual: ")[0] for finding in found.findings] == [
        f"node01 dimm DIMM7: gone after a power cycle: 1 (cold) - Expected: {serial}"
    ]
    assert rack.power.asked == [("node01", "GracefulShutdown"), ("node01", "On")]
    assert found.note == "0 of 3 power cycles (cold), 54 parts compared after each"
    ledger.close()

"""Updates by `rackready baseline`: their tasks wherever a BMC names them, and the power only after they have ended."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rackready.campaign import baseline, firmware_versions
from rackready.drivers import redfish, redfish_errors, redfish_task, redfish_update
from rackready.drivers.redfish import Bmc
from rackready.drivers.redfish_errors import BmcError, BmcLoginError
from rackready.drivers.redfish_mains import AcCycle
from rackready.gates.bmc import cycle
from rackready.model.baseline import FirmwareFile, named_as
from rackready_sim.store import write_private
from tests.unit.cli.bmc_node import Node
from tests.unit.cli.test_baseline import rest_briefly, rows
from tests.unit.sim.bmc_service import NODE, served

Call = Callable[..., tuple[int, str, str]]
NAMED = ("", "body", "message", "monitor", "monitors", "monitor-bare")
TO = "1.6.8"


@pytest.fixture
def node(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    del call
    monkeypatch.setattr(redfish, "_PAUSE_S", 0.01)
    monkeypatch.setattr(redfish_task, "_POLL_S", 0.05)
    monkeypatch.setattr(baseline, "_POLL_S", 0.05)
    monkeypatch.setattr(baseline, "_VERSION_S", 1.0)
    rest_briefly(monkeypatch)
    with served(tmp_path) as service:
        yield Node(service, tmp_path)


def runs(node: Node) -> list[str]:
    """The tasks of the BMC that have not ended."""
    found = json.loads((node.service.rack.store.base / "bmc" / f"{NODE}-tasks.json").read_text(encoding="utf-8"))
    limit = float(node.service.state()["bmc_faults"]["update_s"])
    return [key for key, task in found.items() if time.time() - task["at"] < limit]


def flashes_when_switched(node: Node, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return what runs at each request to the power, as it happens."""
    seen: list[list[str]] = []
    power = node.service.rack.power
    real = power.request
    monkeypatch.setattr(power, "request", lambda *given: (seen.append(runs(node)), real(*given))[1])
    return seen


@pytest.mark.parametrize("task_at", [*NAMED, "hpe"])
def test_the_power_is_cycled_only_after_the_update_wherever_its_task_is(
    call: Call, node: Node, monkeypatch: pytest.MonkeyPatch, task_at: str
) -> None:
    node.service.set(bmc_service={"task_at": task_at})
    node.service.faulty(update_s=1.0)
    seen = flashes_when_switched(node, monkeypatch)
    node.wants(bios=TO, files=[node.image("bios", TO)])
    code, row = rows(call, "--apply")
    assert (code, row["message"]) == (0, f"bios 1.6.7 -> {TO}"), row
    assert node.resets() == ["On", "GracefulShutdown"]
    assert seen == [[], []]


@pytest.mark.parametrize("task_at", [*NAMED, "hpe"])
def test_an_update_that_fails_is_told_wherever_its_task_is(call: Call, node: Node, task_at: str) -> None:
    node.service.set(bmc_service={"task_at": task_at})
    node.service.faulty(task_fails=True, update_s=0.3)
    node.wants(bios=TO, files=[node.image("bios", TO)])
    code, row = rows(call, "--apply")
    told = {"hpe": "UpdateService Completed Actual: Error: iLO.2.8.UnableToFlash. "}
    normal = "TaskService/Tasks/1 Completed Actual: Exception: The image does not match the component. "
    assert code == 1
    assert told.get(task_at, normal) in row["message"]
    assert node.resets() == []


@pytest.mark.parametrize("task_at", ["monitor-bare", "monitors"])
def test_a_monitor_that_has_ended_leads_to_its_task(call: Call, node: Node, task_at: str) -> None:
    node.service.set(bmc_service={"task_at": task_at})
    node.service.faulty(task_fails=True, update_s=0.0)
    node.wants(bios=TO, files=[node.image("bios", TO)])
    assert "Actual: Exception: The image" in rows(call, "--apply")[1]["message"]
    assert node.resets() == []


def test_without_task_and_state_the_version_shows_the_end(
    call: Call, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.service.set(bmc_service={"task_at": "none"})
    node.service.faulty(update_s=0.6)
    node.wants(bmc="26.01.01", files=[node.image("bmc", "26.01.01")])
    assert rows(call, "--apply")[0] == 0
    monkeypatch.setattr(redfish_task, "TASK_S", 1.0)
    node.wants(bios=TO, files=[node.image("bios", TO)])
    code, row = rows(call, "--apply")
    assert code == 1
    assert row["message"] == (
        f"{node.where()}: firmware update of bios - Expected: it ends within 1 s Actual: the BMC names no task, "
        "and the version is the old one. Cut no power before it has ended. Look at the BMC's event log; run again when "
        "it has ended."
    )
    assert node.resets() == [], "nothing shows that it has ended"


def test_an_old_complete_of_an_ilo_is_no_end(call: Call, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.service.set(bmc_service={"task_at": "hpe"})
    node.service.faulty(update_s=0.5)
    for version in ("1.6.8", "1.6.9"):
        node.wants(bios=version, files=[node.image("bios", version)])
        seen = flashes_when_switched(node, monkeypatch)
        assert rows(call, "--apply")[0] == 0
        assert seen
        assert not any(seen)


def test_nothing_is_switched_while_another_task_runs(call: Call, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.wants(bios=TO, files=[node.image("bios", TO)])
    monkeypatch.setattr(redfish_task, "busy", lambda _bmc: "/redfish/v1/TaskService/Tasks/9")
    code, row = rows(call, "--apply")
    assert code == 1
    assert row["message"].startswith(
        f"{node.where()}: power cycle, to activate firmware - Expected: no update or other task that runs Actual: "
        "/redfish/v1/TaskService/Tasks/9. Nothing was switched off. Wait until it has ended, then run again."
    )
    assert node.resets() == []


def test_an_ilo_that_flashes_is_busy(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.service.set(bmc_service={"task_at": "hpe"})
    node.service.faulty(update_s=1.0)
    with Bmc(NODE, node.service.site()) as bmc:
        monkeypatch.setattr(redfish_update, "wait_for_update", lambda *_: None)
        redfish_update.update(bmc, FirmwareFile.model_validate(node.image("bios", TO)), TO, lambda: None)
        time.sleep(0.3)
        assert redfish_task.busy(bmc) == "/redfish/v1/UpdateService (Updating)"
        time.sleep(1.0)
        assert redfish_task.busy(bmc) == ""


def test_an_idrac_that_asks_for_a_restart_gets_it_and_is_not_busy(call: Call, node: Node) -> None:
    node.service.set(bmc_service={"root": {"Vendor": "Dell"}, "user_intervention": True})
    node.wants(bios=TO, files=[node.image("bios", TO)])
    assert rows(call, "--apply")[0] == 0
    assert node.service.state()["chassis"]["bios"] == TO
    with Bmc(NODE, node.service.site()) as bmc:
        assert (redfish_task.busy(bmc), redfish_task.staged(bmc)) == ("", False)


def boots_late(node: Node, monkeypatch: pytest.MonkeyPatch, then: Callable[[], None], late_s: float = 1.5) -> None:
    """Let what a boot brings come later than the time for the BMC's own version."""
    monkeypatch.setattr(baseline, "_VERSION_S", 0.3)
    node.service.rack.power.boots = lambda _name: threading.Timer(late_s, then).start()


def test_a_bios_that_is_slow_after_the_power_cycle_is_waited_for(
    call: Call, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firmware_versions, "HOST_S", 60.0)
    boots_late(node, monkeypatch, lambda: node._boot(NODE))
    node.wants(bios=TO, files=[node.image("bios", TO)])
    code, row = rows(call, "--apply")
    assert (code, row["message"]) == (0, f"bios 1.6.7 -> {TO}"), row


def test_an_idrac_whose_task_goes_on_is_waited_for(call: Call, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firmware_versions, "HOST_S", 0.3)
    node.service.set(bmc_service={"root": {"Vendor": "Dell"}, "waits_for_boot": True})
    boots_late(node, monkeypatch, lambda: node._boot(NODE))
    node.wants(bios=TO, files=[node.image("bios", TO)])
    code, row = rows(call, "--apply")
    assert (code, row["message"]) == (0, f"bios 1.6.7 -> {TO}"), row


def test_a_task_that_fails_after_the_power_cycle_is_told_with_its_message(
    call: Call, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firmware_versions, "HOST_S", 60.0)
    node.service.set(bmc_service={"root": {"Vendor": "Dell"}, "waits_for_boot": True})

    def fails() -> None:
        path = node.service.rack.store.base / "bmc" / f"{NODE}-tasks.json"
        tasks = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({key: {**task, "ended": "Exception"} for key, task in tasks.items()}))

    boots_late(node, monkeypatch, fails, 0.1)
    node.wants(bios=TO, files=[node.image("bios", TO)])
    code, row = rows(call, "--apply")
    assert code == 1
    assert row["message"].startswith(
        f"{node.where()}: firmware update of bios - Expected: /redfish/v1/TaskService/Tasks/1 Completed Actual: "
        "Exception: The image does not match the component. "
    )


def test_the_next_file_waits_for_the_restart_of_the_bmc(
    call: Call, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A BMC that does not restart by itself is restarted before it gets the next file."""
    monkeypatch.setattr(baseline, "_VERSION_S", 0.3)
    node.service.set(bmc_service={"bmc_needs": "reset"})
    files = [node.image("bmc", "26.01.01"), node.image("bios", TO)]
    node.wants(bmc="26.01.01", bios=TO, files=files)
    assert rows(call, "--apply")[0] == 0
    posts = [item.rpartition("/")[2] for item in node.service.asked if item.startswith("POST")]
    seen = [item for item in posts if item in {"upload", "Manager.Reset"}]
    assert seen == ["upload", "Manager.Reset", "upload"]


def test_states_that_end_a_task() -> None:
    whole = {"TaskState": "UserIntervention", "PercentComplete": 100}
    ends = [{"TaskState": "Completed"}, {"TaskState": "Cancelled"}, whole]
    goes_on = [{"TaskState": "Interrupted"}, {"TaskState": "Pending"}, {**whole, "PercentComplete": 40}, {}]
    assert [redfish_task._ended(task, frozenset()) for task in [*ends, *goes_on]] == [True] * 3 + [False] * 4


def test_a_login_that_is_refused_while_waiting_is_tried_twice_more(
    node: Node, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(redfish_errors, "_LOGIN_S", 0.3)
    rack = node.service.rack
    old = tmp_path / "password"
    old.write_bytes(rack.store.secret(f"{NODE}-bmc").read_bytes())
    file = FirmwareFile.model_validate(node.image("bmc", "26.01.01"))
    node.service.faulty(update_s=60)
    begun = time.monotonic()

    def changed() -> None:
        write_private(rack.store.secret(f"{NODE}-bmc"), "another")
        rack.sessions.forget(NODE)

    with Bmc(NODE, node.service.site(password={"file": str(old)})) as bmc, pytest.raises(BmcLoginError):
        redfish_update.update(bmc, file, "26.01.01", changed)
    write_private(rack.store.secret(f"{NODE}-bmc"), old.read_text(encoding="utf-8"))
    assert node.service.logins() == 1 + 3
    assert time.monotonic() - begun > 2 * 0.3


def test_a_task_that_may_not_be_read_for_a_while_is_looked_at_again(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """403 from a BMC that starts and has not read the rights of its accounts yet."""
    monkeypatch.setattr(redfish_errors, "_LOGIN_S", 0.1)
    service, refused = node.service, list[str]()
    served = service._app

    def app(environ: dict[str, Any], start_response: Any) -> Any:  # noqa: ANN401 - WSGI
        path = str(environ["PATH_INFO"])
        if "/TaskService/" not in path or len(refused) > 1:
            return served(environ, start_response)
        refused.append(path)
        start_response("403 Forbidden", [("Content-Type", "application/json")])
        return [b'{"error": {"@Message.ExtendedInfo": [{"MessageId": "Base.1.8.1.InsufficientPrivilege"}]}}']

    monkeypatch.setattr(service, "_app", app)
    with Bmc(NODE, service.site()) as bmc:
        redfish_update.update(bmc, FirmwareFile.model_validate(node.image("bios", TO)), TO, lambda: None)
    assert len(refused) == 2


def test_a_session_that_is_forgotten_is_closed_without_a_login(node: Node) -> None:
    sessions = node.service.rack.sessions
    before = set(sessions._tokens)
    with Bmc(NODE, node.service.site()) as bmc:
        bmc.login()
        bmc.forget()
        assert set(sessions._tokens) == before, "a BMC that was only slow still counts it"
        bmc.login()
        sessions.forget(NODE)
        bmc.forget()
    assert node.service.logins() == 2


def test_a_bmc_that_needs_it_is_restarted_and_the_host_is_not(call: Call, node: Node) -> None:
    node.service.set(bmc_service={"bmc_needs": "reset"})
    node.wants(bmc="26.01.01", files=[node.image("bmc", "26.01.01")])
    assert rows(call, "--apply")[0] == 0
    assert sum(item.endswith("/Actions/Manager.Reset") for item in node.service.asked) == 1
    assert node.resets() == []


MAINS = {
    "nvidia": ("NVIDIA", "/redfish/v1/Chassis/BMC_0/Actions/Oem/NvidiaChassis.AuxPowerReset"),
    "dell": ("Dell", "/redfish/v1/Chassis/System.Embedded.1/Actions/Oem/DellOemChassis.ExtendedReset"),
}


@pytest.mark.parametrize("kind", MAINS)
def test_a_board_that_needs_an_ac_cycle_gets_it_from_its_bmc(
    call: Call, node: Node, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(cycle, "_AGAIN_S", 0.05)
    vendor, action = MAINS[kind]
    node.service.set(bmc_service={"root": {"Vendor": vendor}, "ac_cycle": kind, "bmc_needs": "ac"})
    node.service.rack.power.states[NODE] = "On"
    node.wants(bmc="26.01.01", files=[node.image("bmc", "26.01.01")])
    code, row = rows(call, "--apply")
    assert code == 0, row
    assert node.service.asked.count(f"POST {action}") == 1
    assert node.resets() == ["GracefulShutdown", "On"], "the host is off while the mains is cut"


def test_a_host_is_on_again_where_the_bmc_refuses_to_cut_its_mains(
    call: Call, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: AcCycle, bmc: Bmc) -> None:
        raise BmcError(bmc.where, self.target, actual="refused")

    monkeypatch.setattr(AcCycle, "ask", refused)
    node.service.set(bmc_service={"root": {"Vendor": "NVIDIA"}, "ac_cycle": "nvidia", "bmc_needs": "ac"})
    node.service.rack.power.states[NODE] = "On"
    node.wants(bmc="26.01.01", files=[node.image("bmc", "26.01.01")])
    assert rows(call, "--apply")[0] == 1
    assert node.resets() == ["GracefulShutdown", "On"]


def test_a_bmc_that_cuts_nothing_is_no_ac_cycle(call: Call, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycle, "_GONE_S", 0.1)
    monkeypatch.setattr(AcCycle, "ask", lambda _self, _bmc: None)
    node.service.set(bmc_service={"root": {"Vendor": "NVIDIA"}, "ac_cycle": "nvidia", "bmc_needs": "ac"})
    node.service.rack.power.states[NODE] = "On"
    node.wants(bmc="26.01.01", files=[node.image("bmc", "26.01.01")])
    code, row = rows(call, "--apply")
    assert code == 1
    assert "AC power cycle by the BMC" in str(row)
    assert "answered all the time: nothing was cut" in str(row)
    assert node.resets() == ["GracefulShutdown", "On"]


def test_a_bios_gets_a_cold_cycle_also_where_the_bmc_can_cut_the_mains(call: Call, node: Node) -> None:
    node.service.set(bmc_service={"root": {"Vendor": "NVIDIA"}, "ac_cycle": "nvidia"})
    node.wants(bios=TO, files=[node.image("bios", TO)])
    assert rows(call, "--apply")[0] == 0
    assert not any("AuxPowerReset" in item for item in node.service.asked)


def parameters(node: Node) -> dict[str, object]:
    """What the BMC was told with its last file."""
    found = json.loads((node.service.rack.store.base / "bmc" / f"{NODE}-tasks.json").read_text(encoding="utf-8"))
    told: dict[str, object] = found[max(found)]["parameters"]
    return told


def test_targets_may_be_paths_and_the_vendors_parameters_are_sent(call: Call, node: Node) -> None:
    times = {"SupportedValues": ["Immediate"]}
    service = {"MultipartHttpPushUri@Redfish.OperationApplyTimeSupport": times}
    node.service.set(bmc_service={"update_service": service})
    oem = {"Supermicro": {"BIOS": {"PreserveNVRAM": True}}}
    more = {"targets": ["/redfish/v1/Systems/1/Bios", "HostBIOS_0"], "oem": oem}
    node.wants(bios=TO, files=[{**node.image("bios", TO), **more}])
    assert rows(call, "--apply")[0] == 0
    assert parameters(node) == {
        "Targets": ["/redfish/v1/Systems/1/Bios", "/redfish/v1/UpdateService/FirmwareInventory/HostBIOS_0"],
        "Oem": oem,
        "@Redfish.OperationApplyTime": "Immediate",
    }


def test_a_forced_update_says_so(call: Call, node: Node) -> None:
    node.wants(bios="1.6.1", files=[{**node.image("bios", "1.6.1"), "force": True}])
    assert rows(call, "--apply")[0] == 0
    assert parameters(node) == {"ForceUpdate": True}


@pytest.mark.parametrize("switched", [False, True])
def test_a_dgx_has_force_as_a_setting_that_stays_as_it_is(call: Call, node: Node, *, switched: bool) -> None:
    options = {"ForceUpdate": switched, "HttpPushUriApplyTime": {"ApplyTime": "Immediate"}}
    node.service.set(bmc_service={"update_service": {"HttpPushUriOptions": options}})
    node.wants(bios="1.6.1", files=[{**node.image("bios", "1.6.1"), "force": True}])
    code, row = rows(call, "--apply")
    if switched:
        assert (code, parameters(node)) == (0, {})
        return
    assert row["message"] == (
        f"{node.where()}: force of bios - Expected: ForceUpdate true in HttpPushUriOptions of UpdateService, which "
        "this BMC wants switched on first Actual: false. Switch it on (`nvfwupd ... force_update enable`), run again, "
        "and switch it off afterwards: it counts for every update. The file was not sent."
    )
    assert not any("upload" in item for item in node.service.asked)


SWITCHED_OFF = {"update_service": {"HttpPushUriOptions": {"ForceUpdate": False}}}
FORCED = {"force": True}
WITH_FORM = {"oem_parameters": {"ImageType": "BIOS"}, "url": "https://192.0.2.9/x"}
NOT_TAKEN = {
    "force": (SWITCHED_OFF, FORCED, "force of bios"),
    "form": ({"no_push": True}, WITH_FORM, "oem_parameters of bios"),
    "no way": ({"no_push": True}, {}, "firmware of bios"),
}


@pytest.mark.parametrize("case", NOT_TAKEN)
def test_a_file_that_the_bmc_does_not_take_is_known_before_the_first_is_sent(call: Call, node: Node, case: str) -> None:
    service, more, where = NOT_TAKEN[case]
    node.service.set(bmc_service=service)
    first = {**node.image("bmc", "26.01.01"), "url": "https://192.0.2.9/bmc"}
    node.wants(bmc="26.01.01", bios=TO, files=[first, {**node.image("bios", TO), **more}])
    code, row = rows(call, "--apply")
    assert (code, row["message"].partition(" - ")[0]) == (1, f"{node.where()}: {where}"), row
    assert "not sent." in row["message"]
    assert not any("upload" in item or "SimpleUpdate" in item for item in node.service.asked)


def test_amis_part_of_the_form_is_sent(call: Call, node: Node) -> None:
    node.service.set(bmc_service={"image_type": True})
    node.wants(bmc="26.01.01", files=[{**node.image("bmc", "26.01.01"), "oem_parameters": {"ImageType": "BMC"}}])
    assert rows(call, "--apply")[0] == 0


def test_a_form_part_is_not_left_out_where_the_bmc_fetches_the_file(call: Call, node: Node) -> None:
    node.service.set(bmc_service={"no_push": True})
    file = {**node.image("bmc", "26.01.01"), "oem_parameters": {"ImageType": "BMC"}, "url": "https://192.0.2.9/x"}
    node.wants(bmc="26.01.01", files=[file])
    assert "oem_parameters of bmc - Expected: a BMC that takes a file" in rows(call, "--apply")[1]["message"]
    assert not any("SimpleUpdate" in item for item in node.service.asked)


def test_a_file_that_is_sent_again_is_whole(call: Call, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library repeats a request whose session has ended."""
    real = redfish_update._push

    def ended(*given: Any) -> Any:  # noqa: ANN401 - as the original
        node.service.rack.sessions.forget(NODE)
        return real(*given)

    monkeypatch.setattr(redfish_update, "_push", ended)
    node.wants(bios=TO, files=[node.image("bios", TO)])
    assert rows(call, "--apply")[0] == 0
    assert node.service.asked.count("POST /redfish/v1/UpdateService/upload") == 2


def test_the_bios_of_a_grace_host_is_in_the_inventory_and_needs_an_ac_cycle(
    call: Call, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cycle, "_AGAIN_S", 0.05)
    vendor, action = MAINS["nvidia"]
    node.service.set(bmc_service={"root": {"Vendor": vendor}, "ac_cycle": "nvidia", "uefi": True})
    node.service.rack.power.states[NODE] = "On"
    node.wants(bios=TO, files=[node.image("bios", TO)])
    code, row = rows(call, "--apply")
    assert (code, row["message"]) == (0, f"bios 1.6.7 -> {TO}"), row
    assert node.service.asked.count(f"POST {action}") == 1


def test_nothing_is_told_that_nobody_declared(call: Call, node: Node) -> None:
    node.wants(bios=TO, files=[node.image("bios", TO)])
    assert rows(call, "--apply")[0] == 0
    assert parameters(node) == {}


@pytest.mark.parametrize("target", ["Systems/1/Bios", "/etc/passwd", "https://192.0.2.9/redfish/v1/x"])
def test_a_target_of_another_form_is_refused(target: str) -> None:
    given = {"part": "bios", "file": "x", "sha256": "0" * 64, "targets": [target]}
    with pytest.raises(ValueError, match="targets"):
        FirmwareFile.model_validate(given)


def test_a_part_of_an_idrac_is_named_by_its_device(call: Call, node: Node) -> None:
    """Its ids hold the version, so that no id stays when the part is updated."""
    node.service.set(bmc_service={"device_ids": True, "page": 1})
    file = {**node.image("bios", TO), "part": "BIOS.Setup.1-1", "targets": ["BIOS.Setup.1-1"]}
    node.wants(firmware={"BIOS.Setup.1-1": TO}, files=[file])
    assert rows(call, "--apply")[0] == 0
    assert parameters(node)["Targets"] == [
        "/redfish/v1/UpdateService/FirmwareInventory/Installed-159-1.6.7__BIOS.Setup.1-1"
    ]
    assert rows(call, "--check")[1]["message"] == "as its baseline"


def test_a_part_that_is_not_in_the_inventory_is_told_with_those_that_are(call: Call, node: Node) -> None:
    node.wants(firmware={"NIC.Slot.5-1": "1"})
    assert rows(call, "--check")[1]["message"] == (
        f"{node.where()}: firmware NIC.Slot.5-1 - Expected: one entry of the firmware inventory Actual: none of that "
        "name among HostBMC_0, HostBIOS_0. Correct its id in baselines."
    )


def test_names_of_a_part() -> None:
    ids = ["Installed-0-24.40.10.00__NIC.Slot.5-1", "Previous-0-22__NIC.Slot.5-1", "Installed-0-1__NIC.Slot.5-10"]
    assert named_as("NIC.Slot.5-1", ids) == ids[:1]
    assert named_as(ids[1], ids) == ids[1:2]
    assert named_as("5-1", ids) == []

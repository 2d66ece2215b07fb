"""`rackready baseline`: firmware and BIOS settings compared, applied, verified; updates that fail or are cut."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackready.campaign import baseline, firmware_versions
from rackready.campaign.before_provision import run_prepared
from rackready.drivers import redfish, redfish_http, redfish_task, redfish_update
from rackready.drivers.redfish import Bmc, PowerAction
from rackready.ledger.store import Ledger
from rackready.model.baseline import in_words_of, matching, same, same_version
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.paths import EnvPaths
from tests.unit.cli.bmc_node import Node
from tests.unit.sim.bmc_service import NODE, served

Call = Callable[..., tuple[int, str, str]]
WANTED: dict[str, Any] = {"bios_settings": {"SriovSupport": "Disabled", "PcieRelaxedOrdering": "No"}}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redfish, "_PAUSE_S", 0.01)
    monkeypatch.setattr(redfish_task, "_POLL_S", 0.1)
    monkeypatch.setattr(baseline, "_POLL_S", 0.1)
    monkeypatch.setattr(baseline, "_VERSION_S", 2.0)
    rest_briefly(monkeypatch)


def rest_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let power cycles rest for no time, and give new versions little of it."""
    monkeypatch.setattr(firmware_versions, "HOST_S", 1.0)
    real = baseline.cycler
    monkeypatch.setattr(baseline, "cycler", lambda *given: replace(real(*given), rest_s=0.0))


@pytest.fixture
def node(call: Call, tmp_path: Path) -> Iterator[Node]:
    del call
    with served(tmp_path) as service:
        yield Node(service, tmp_path)


def rows(call: Call, way: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = call("baseline", way, "--limit", "node01", "--output", "json")
    return code, json.loads(out)["nodes"][0]


def test_a_check_names_what_differs_and_changes_nothing(call: Call, node: Node) -> None:
    node.wants(**WANTED, bios="1.6.8")
    before = node.service.state()
    code, row = rows(call, "--check")
    assert code == 1
    assert row["message"] == (
        "bios 1.6.7 -> 1.6.8, BIOS PcieRelaxedOrdering Yes -> No, BIOS SriovSupport Enabled -> Disabled"
    )
    assert (node.service.state(), node.resets()) == (before, [])
    code, out, _ = call("baseline", "--check", "--limit", "node01")
    assert "differs" in out
    assert out.splitlines()[-1] == "nothing was changed"


@pytest.mark.parametrize(("power", "asked"), [("Off", ["On", "GracefulShutdown"]), ("On", ["ForceRestart"])])
def test_settings_are_staged_once_applied_by_one_restart_and_verified(
    call: Call, node: Node, power: str, asked: list[str]
) -> None:
    node.service.rack.power.states[NODE] = power
    node.wants(**WANTED)
    code, row = rows(call, "--apply")
    assert (code, row["outcome"], row["changed"]) == (0, "pass", True), row
    assert node.resets() == asked
    assert sum(item.startswith("PATCH") and item.endswith("/Bios/SD") for item in node.service.asked) == 1
    assert node.service.state()["bmc"]["bios"]["SriovSupport"] == "Disabled"
    assert node.service.rack.power.states[NODE] == power
    again = rows(call, "--apply")
    assert (again[0], again[1]["changed"], again[1]["message"]) == (0, False, "as its baseline")
    assert node.resets() == asked


def test_a_bmc_that_accepts_and_ignores_settings_is_not_restarted(call: Call, node: Node) -> None:
    node.service.faulty(ignores_bios=True)
    node.wants(bios_settings={"SriovSupport": "Disabled"})
    code, row = rows(call, "--apply")
    assert (code, row["outcome"], node.resets()) == (1, "error", [])
    assert row["message"].partition("/Bios/SD")[2] == (
        " - Expected: SriovSupport Disabled Actual: accepted and ignored: SriovSupport not shown. Lift a BIOS lockdown "
        "or clear pending jobs at the BMC, then run again; nothing was restarted."
    )


def test_an_unknown_attribute_is_named(call: Call, node: Node) -> None:
    node.wants(bios_settings={"SriovSuport": "Enabled"})
    assert rows(call, "--apply")[1]["message"] == (
        f"{node.where()}: BIOS SriovSuport - Expected: Enabled Actual: no such attribute. "
        "Correct the name in the baseline for this BIOS version, or power the node on once."
    )


def test_firmware_is_pushed_polled_activated_and_verified(call: Call, node: Node) -> None:
    node.wants(bmc="26.01.01", bios="1.6.8", files=[node.image("bmc", "26.01.01"), node.image("bios", "1.6.8")])
    code, row = rows(call, "--apply")
    assert (code, row["message"]) == (0, "bmc 25.06.27 -> 26.01.01, bios 1.6.7 -> 1.6.8"), row
    assert node.service.asked.count("POST /redfish/v1/UpdateService/upload") == 2
    assert node.resets() == ["On", "GracefulShutdown"], "one power cycle activates the BIOS; then off, as it was"
    assert rows(call, "--check") == (0, {**row, "changed": False, "message": "as its baseline"})


def test_the_three_forms_of_a_dgx_bios_version_are_one(call: Call, node: Node) -> None:
    node.wants(bios="1.06.07", firmware={"HostBIOS_0": "1.6.7"})
    assert rows(call, "--check") == (0, {**rows(call, "--check")[1], "message": "as its baseline"})
    node.wants(bios="1.06.08", files=[node.image("bios", "1.6.8")])
    code, row = rows(call, "--apply")
    assert (code, row["message"]) == (0, "bios 1.6.7 -> 1.06.08"), row


def test_versions_are_compared_by_their_numbers() -> None:
    alike = [("1.06.07", "1.6.7"), ("01.06.07", "1.6.7"), ("25.06.27", "25.06.27"), ("U8E122J", "U8E122J")]
    assert all(same_version(*pair) for pair in alike)
    other = [
        ("1.4", "1.40"),
        ("2.1", "2.1.0"),
        ("1.06.07", ""),
        ("96.00.0A", "96.0.0A"),
        ("007", "7"),
        ("1.6.7", "1.6.8"),
    ]
    assert not any(same_version(*pair) for pair in other)


def inventory_after(node: Node, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let the firmware inventory of the BMC take so long."""
    app = node.service._app

    def answer(environ: dict[str, Any], start_response: Any) -> Any:  # noqa: ANN401 - WSGI
        if "FirmwareInventory" in environ["PATH_INFO"]:
            time.sleep(seconds)
        return app(environ, start_response)

    monkeypatch.setattr(node.service, "_app", answer)
    monkeypatch.setattr(redfish_http, "READ_S", seconds * 0.6)


def test_the_inventory_has_minutes_where_other_requests_have_seconds(
    call: Call, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    inventory_after(node, monkeypatch, 2.0)
    node.wants(firmware={"HostBIOS_0": "1.6.7"})
    assert rows(call, "--check")[1]["message"] == "as its baseline"


def test_an_answer_that_takes_too_long_is_no_missing_cable_and_is_not_asked_for_again(
    call: Call, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    inventory_after(node, monkeypatch, 2.0)
    monkeypatch.setattr(redfish_http, "INVENTORY_S", 0.5)
    node.wants(firmware={"HostBIOS_0": "1.6.7"})
    message = rows(call, "--check")[1]["message"]
    assert message.startswith(f"{node.where()}: slow - Expected: Redfish answers the request in time Actual: ")
    assert message.endswith(
        "It takes connections: look at its event log, restart the BMC if that stays, then run again."
    )
    assert sum("FirmwareInventory" in item for item in node.service.asked) == 1


def test_a_bmc_that_takes_no_file_fetches_it(call: Call, node: Node) -> None:
    node.service.set(bmc_service={"no_push": True})
    file = node.image("bmc", "26.01.01")
    node.wants(bmc="26.01.01", files=[file])
    assert "Give url for it in baselines: the BMC fetches the file from there." in rows(call, "--apply")[1]["message"]
    node.wants(bmc="26.01.01", files=[{**file, "url": "https://192.0.2.9/rackready-sim-firmware+bmc+26.01.01"}])
    assert rows(call, "--apply")[0] == 0


def test_a_failing_task_is_told_with_the_bmcs_own_message(call: Call, node: Node) -> None:
    node.service.faulty(task_fails=True)
    node.wants(bmc="26.01.01", files=[node.image("bmc", "26.01.01")])
    code, row = rows(call, "--apply")
    assert code == 1
    assert row["message"] == (
        f"{node.where()}: firmware update of bmc - Expected: /redfish/v1/TaskService/Tasks/1 Completed Actual: "
        "Exception: The image does not match the component. Other nodes were not updated. Check that the file is for "
        "this model, and the BMC's event log."
    )
    assert node.resets() == []


def test_a_file_with_another_hash_is_not_sent(call: Call, node: Node) -> None:
    wrong = {**node.image("bmc", "26.01.01"), "sha256": "0" * 64}
    node.wants(bmc="26.01.01", files=[wrong])
    assert "SHA-256 " + "0" * 64 + " Actual: " in rows(call, "--apply")[1]["message"]
    assert not any("upload" in item for item in node.service.asked)


def test_a_version_without_a_file_is_told(call: Call, node: Node) -> None:
    node.wants(bios="1.6.8")
    assert rows(call, "--apply")[1]["message"] == (
        f"{node.where()}: firmware - Expected: bios 1.6.8 Actual: bios 1.6.7. "
        "Give its file in baselines (files), or update it with the vendor's package."
    )


class KilledError(Exception):
    pass


def killed(*_args: object) -> None:
    raise KilledError


def test_an_update_of_a_killed_run_is_waited_for_and_not_sent_again(
    call: Call, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.service.faulty(update_s=1.5)
    node.wants(bmc="26.01.01", files=[node.image("bmc", "26.01.01")])
    with monkeypatch.context() as patched:
        patched.setattr(redfish_update, "wait_for_update", killed)
        assert call("baseline", "--apply", "--limit", "node01")[0] == 2
    assert rows(call, "--apply")[0] == 0
    assert node.service.asked.count("POST /redfish/v1/UpdateService/upload") == 1
    with Ledger.open(EnvPaths(node.root, "sim").database) as ledger:
        assert [entry.status for entry in ledger.entries("node01") if entry.operation == "firmware"] == ["done"]


def test_an_update_of_a_killed_run_goes_on_though_force_was_switched_off_since(
    call: Call, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.service.faulty(update_s=8)
    node.wants(bmc="26.01.01", files=[{**node.image("bmc", "26.01.01"), "force": True}])
    with monkeypatch.context() as patched:
        patched.setattr(redfish_update, "wait_for_update", killed)
        assert call("baseline", "--apply", "--limit", "node01")[0] == 2
    node.service.set(bmc_service={"update_service": {"HttpPushUriOptions": {"ForceUpdate": False}}})
    assert rows(call, "--apply")[0] == 0
    assert node.service.asked.count("POST /redfish/v1/UpdateService/upload") == 1


def test_provision_applies_only_where_the_site_says_so(node: Node) -> None:
    ctx = PhaseContext("sim", node.root, "c")
    done: list[list[str]] = []

    def provision(_ctx: PhaseContext, nodes: list[str]) -> dict[str, NodeResult]:
        done.append(nodes)
        return {name: NodeResult(Outcome.PASS) for name in nodes}

    node.wants(**WANTED)
    found = run_prepared(ctx, ["node01"], provision)
    assert (found["node01"].outcome, done.pop(), node.resets()) == (Outcome.ERROR, [], [])
    node.wants(**WANTED, apply=True)
    found = run_prepared(ctx, ["node01"], provision)
    assert found["node01"].changed
    assert done == [["node01"]]
    node.wants(bios="9.9", apply=True)
    found = run_prepared(ctx, ["node01"], provision)
    assert (found["node01"].outcome, done[-1]) == (Outcome.ERROR, [])


def test_one_node_goes_first_and_a_bad_one_stops_the_others() -> None:
    nodes = [f"node{k:02}" for k in range(1, 12)]
    seen: list[str] = []

    def do(node: str) -> NodeResult:
        seen.append(node)
        return NodeResult(Outcome.ERROR if node == "node03" else Outcome.PASS)

    out = baseline._in_waves(do, nodes)
    assert (seen[0], sorted(seen[1:])) == ("node01", nodes[1:9])
    assert list(out) == nodes
    assert out["node11"].message == (
        "node11: baseline - Expected: node03 comes to it first Actual: that went wrong. "
        "Nothing was done to node11: repair node03, or leave it out, then run again."
    )
    assert not out["node11"].touched


def test_a_value_is_sent_in_the_words_of_the_bios() -> None:
    assert in_words_of("Enabled", now=False) is True
    assert in_words_of(True, "Disable") == "Enable"  # noqa: FBT003 - a value of YAML
    assert in_words_of("Enable", "Disabled") == "Enabled"
    assert in_words_of(True, "Disabled") == "Enabled"  # noqa: FBT003
    assert in_words_of(False, "Auto") == "Disabled"  # noqa: FBT003
    assert in_words_of("disabled", "Enabled") == "Disabled"
    assert in_words_of("Auto", "Disabled") == "Auto"
    assert in_words_of("4", 2) == 4
    assert in_words_of("Force Enable", "Disable") == "Force Enable"
    assert same("Enable", True)  # noqa: FBT003
    assert matching("PCIeACSCTL", ["PCIeACSCTL_1E3C", "PCIeACSCTLX_1E3C"]) == ["PCIeACSCTL_1E3C"]


def test_both_or_neither_way_is_refused(call: Call) -> None:
    assert call("baseline")[::2] == (2, "baseline - Expected: --check or --apply Actual: neither. Give one.\n")


def test_the_driver_restarts_a_hanging_model_by_off_and_on(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _s: None)
    node.service.rack.power.states[NODE] = "On"
    state = node.service.state()
    node.service.is_a("lenovo")
    node.service.set(chassis={**state["chassis"], "product": "ThinkSystem SR675 V3"})
    with Bmc(NODE, node.service.site()) as bmc:
        bmc.power(PowerAction.RESET)
    assert node.resets() == ["ForceOff", "On"]

"""`rackready baseline --rollback`: firmware brought back from what the BMC keeps, and where it cannot be."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rackready.campaign import baseline, rollback
from rackready.drivers import redfish, redfish_rollback, redfish_task
from rackready.drivers.redfish import Bmc
from rackready.drivers.redfish_errors import BmcUnreachableError
from rackready.ledger.store import Ledger
from rackready.paths import EnvPaths
from tests.unit.cli.test_baseline import Node, rest_briefly
from tests.unit.sim.bmc_service import served

Call = Callable[..., tuple[int, str, str]]
TO = {"bmc": "26.01.01", "bios": "1.6.8"}
WAS = {"bmc": "25.06.27", "bios": "1.6.7"}
SIMPLE = "POST /redfish/v1/UpdateService/Actions/UpdateService.SimpleUpdate"


@pytest.fixture
def node(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    del call
    monkeypatch.setattr(redfish, "_PAUSE_S", 0.05)
    for module in (redfish_task, baseline, rollback):
        monkeypatch.setattr(module, "_POLL_S", 0.1)
    monkeypatch.setattr(baseline, "_VERSION_S", 1.0)
    monkeypatch.setattr(rollback, "_ACTIVE_S", 2.0)
    rest_briefly(monkeypatch)
    with served(tmp_path) as service:
        yield Node(service, tmp_path)


def row(call: Call, *way: str) -> tuple[int, dict[str, Any]]:
    code, out, err = call("baseline", *way, "--output", "json")
    assert out, err
    return code, json.loads(out)["nodes"][0]


def updated(call: Call, node: Node, keeps: str, *parts: str) -> None:
    node.service.set(bmc_service={"keeps": keeps})
    node.wants(**{part: TO[part] for part in parts}, files=[node.image(part, TO[part]) for part in parts])
    assert row(call, "--apply", "--limit", "node01")[0] == 0
    node.service.asked.clear()
    node.service.rack.power.asked.clear()


def versions(node: Node) -> dict[str, str]:
    return {part: node.service.state()["chassis"][part] for part in WAS}


def test_an_idrac_installs_its_previous_entries_the_bmc_last(call: Call, node: Node) -> None:
    updated(call, node, "previous", "bmc", "bios")
    code, found = row(call, "--rollback", "node01", "--check")
    words = "bios 1.6.8 -> 1.6.7, bmc 26.01.01 -> 25.06.27"
    assert (code, found["message"], versions(node)) == (1, words, TO)
    assert not any(item.startswith("POST") and "Update" in item for item in node.service.asked)
    code, found = row(call, "--rollback", "node01")
    assert (code, found["outcome"], found["message"], versions(node)) == (0, "pass", words, WAS), found
    assert node.service.asked.count(SIMPLE) == 2
    assert node.resets() == ["On", "GracefulShutdown"], "one power cycle activates the BIOS; then off, as it was"
    again = row(call, "--rollback", "node01")
    assert (again[0], again[1]["message"]) == (0, "at its versions before the last update")
    assert node.service.asked.count(SIMPLE) == 2


def test_openbmc_starts_its_other_image(call: Call, node: Node) -> None:
    updated(call, node, "images", "bmc")
    code, found = row(call, "--rollback", "node01")
    assert (code, found["message"], versions(node)["bmc"]) == (0, "bmc 26.01.01 -> 25.06.27", WAS["bmc"]), found
    assert sum(item.startswith("PATCH /redfish/v1/Managers/") for item in node.service.asked) == 1
    assert node.resets() == [], "the host stays as it is"


def test_an_idrac_whose_task_ends_after_the_boot_is_cycled_meanwhile(call: Call, node: Node) -> None:
    dell = {"root": {"Vendor": "Dell"}, "keeps": "previous", "waits_for_boot": True}
    node.service.set(bmc_service=dell)
    node.wants(bios=TO["bios"], files=[node.image("bios", TO["bios"])])
    assert row(call, "--apply", "--limit", "node01")[0] == 0
    assert versions(node)["bios"] == TO["bios"]
    assert row(call, "--rollback", "node01")[0] == 0
    assert versions(node)["bios"] == WAS["bios"]


CANNOT = {
    "": ("bios", "the BMC lists none"),
    "backup": ("bios", "1.6.7 (Backup_BIOS), which Redfish cannot make active"),
    "images": ("bios", "the BMC lists none"),
}


@pytest.mark.parametrize("keeps", CANNOT)
def test_a_bmc_that_cannot_is_told_with_the_way_that_remains(call: Call, node: Node, keeps: str) -> None:
    part, kept = CANNOT[keeps]
    updated(call, node, keeps, part)
    code, found = row(call, "--rollback", "node01")
    assert (code, versions(node)[part]) == (1, TO[part])
    assert found["message"] == (
        f"{node.where()}: rollback of bios - Expected: a kept image of version 1.6.7 Actual: {kept}. Nothing was "
        "changed. State bios 1.6.7 and its file in baselines, then run `rackready baseline --apply --limit node01`; "
        "or use the vendor's tool."
    )


def test_one_part_that_cannot_keeps_the_others_as_they_are(call: Call, node: Node) -> None:
    updated(call, node, "images", "bmc", "bios")
    code, found = row(call, "--rollback", "node01")
    assert (code, found["outcome"], versions(node)) == (1, "error", TO)
    assert not any(item.startswith("PATCH") for item in node.service.asked)


def test_another_kept_version_is_not_taken(call: Call, node: Node) -> None:
    updated(call, node, "previous", "bios")
    state = node.service.state()
    node.service.set(firmware_before={**state["firmware_before"], "bios": "1.5.0"})
    message = row(call, "--rollback", "node01")[1]["message"]
    assert "Actual: 1.5.0 (Previous-159-1.5.0__BIOS.Setup.1-1). Nothing was changed." in message


def test_a_node_that_was_not_updated_has_nothing_to_go_back_to(call: Call, node: Node) -> None:
    node.wants(bmc=WAS["bmc"])
    code, found = row(call, "--rollback", "node01")
    assert code == 1
    assert found["message"] == (
        "node01: rollback - Expected: a firmware update by rackready Actual: none is recorded. State the version and "
        "its file in baselines, then run `rackready baseline --apply --limit node01`."
    )


def test_a_version_check_that_fails_names_the_rollback(call: Call, node: Node) -> None:
    node.service.faulty(keeps_version=True)
    node.wants(bios=TO["bios"], files=[node.image("bios", TO["bios"])])
    code, found = row(call, "--apply", "--limit", "node01")
    assert code == 1
    assert found["message"] == (
        f"{node.where()}: firmware - Expected: bios 1.6.8 Actual: bios 1.6.7. The BMC took the file and keeps its "
        "version: look at its event log. `rackready baseline --rollback node01` brings the version before back, if "
        "the BMC keeps it."
    )


def test_a_rollback_that_changes_nothing_is_told(call: Call, node: Node) -> None:
    updated(call, node, "previous", "bmc")
    node.service.faulty(keeps_version=True)
    code, found = row(call, "--rollback", "node01")
    assert code == 1
    assert found["message"] == (
        "node01 BMC: rollback - Expected: bmc 25.06.27 Actual: bmc 26.01.01. The BMC took the request and keeps its "
        "version: look at its event log, then use the vendor's tool."
    )


class _KilledError(Exception):
    """The process was killed here."""


def killed(*_args: object) -> None:
    raise _KilledError


def test_a_rollback_cut_before_the_boot_goes_on(call: Call, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    updated(call, node, "previous", "bios")
    node.service.set(bmc_service={"root": {"Vendor": "Dell"}, "keeps": "previous", "waits_for_boot": True})
    with monkeypatch.context() as patched:
        patched.setattr(baseline.NodeWork, "activate", killed)
        assert call("baseline", "--rollback", "node01")[0] == 2
    assert row(call, "--rollback", "node01")[0] == 0
    assert (node.service.asked.count(SIMPLE), versions(node)["bios"]) == (1, WAS["bios"])


def test_a_cut_rollback_goes_on_and_asks_once(call: Call, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    updated(call, node, "previous", "bmc")
    node.service.faulty(update_s=1.5)

    with monkeypatch.context() as patched:
        patched.setattr(redfish_rollback, "wait_for_update", killed)
        assert call("baseline", "--rollback", "node01")[0] == 2
    assert row(call, "--rollback", "node01")[0] == 0
    assert (node.service.asked.count(SIMPLE), versions(node)["bmc"]) == (1, WAS["bmc"])
    with Ledger.open(EnvPaths(node.root, "sim").database) as ledger:
        assert [item.status for item in ledger.entries("node01") if item.operation == rollback.ROLLBACK] == ["done"]


def test_a_cut_rollback_waits_only_so_long_for_a_bmc_that_is_away(
    call: Call, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    updated(call, node, "previous", "bmc")
    node.service.faulty(update_s=60)
    with monkeypatch.context() as patched:
        patched.setattr(redfish_rollback, "wait_for_update", killed)
        assert call("baseline", "--rollback", "node01")[0] == 2
    node.service.asked.clear()

    def away(bmc: Bmc) -> str:
        raise BmcUnreachableError(bmc.where, expected="an answer", actual="none", next_step="Check its cable.")

    monkeypatch.setattr(rollback, "AWAY_S", 0.5)
    monkeypatch.setattr(redfish_task, "TASK_S", 30.0)
    monkeypatch.setattr(redfish_task, "busy", away)
    begun = time.monotonic()
    code, found = row(call, "--rollback", "node01")
    took = time.monotonic() - begun
    expected = f"{node.where()} - Expected: an answer Actual: none. Check its cable."
    assert (code, found["outcome"], found["message"]) == (1, "error", expected)
    assert 0.5 < took < 20, "it says so long before the time of a task is over"
    assert SIMPLE not in node.service.asked


@pytest.mark.parametrize(("option", "shown"), [(["--apply"], "--apply"), (["--limit", "node02"], "--limit")])
def test_a_rollback_takes_names_only(call: Call, option: list[str], shown: str) -> None:
    code, _, err = call("baseline", "--rollback", "node01", *option)
    assert code == 2
    assert err == f"baseline --rollback - Expected: names of nodes only Actual: {shown}. Leave it out.\n"

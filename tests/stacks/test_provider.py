"""The provider's answers to the engine, without an engine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pulumi.provider.experimental import provider as api
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.runtime.rpc import UNKNOWN

from rackready.ledger.store import Ledger
from rackready.stacks.kinds import METAL
from rackready.stacks.provider import MetalProvider
from rackready.stacks.values import IncompleteError, plain, wrapped
from tests.stacks.fake_rack import FakeRack

URN = METAL.urns("t-rack01", ["node01"])[1]


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[FakeRack]:
    made = FakeRack(tmp_path / "rack", 1, net=82)
    yield made
    made.stop()


@pytest.fixture
def inputs(rack: FakeRack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("RACKREADY_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("RACKREADY_ENV", "t")
    monkeypatch.setenv("RACKREADY_CAMPAIGN", "c7")
    site = rack.site()
    node = site["racks"][0]["nodes"][0]
    return {
        "env": "t",
        "node": "node01",
        "serial": node["serial"],
        "bmc": node["bmc"],
        "ssh": {**site["access"], "address": node["address"]},
        "boot": "Hdd",
        "timeout_s": 5,
    }


def props(data: dict[str, Any]) -> dict[str, PropertyValue]:
    return {key: wrapped(value) for key, value in data.items()}


def create(inputs: dict[str, Any], *, preview: bool = False) -> dict[str, Any]:
    response = asyncio.run(MetalProvider().create(api.CreateRequest(URN, props(inputs), 0, preview)))
    assert response.resource_id == "node01"
    return {key: plain(value) for key, value in response.properties.items()}


def diff(old: dict[str, Any], new: dict[str, Any]) -> api.DiffResponse:
    return asyncio.run(MetalProvider().diff(api.DiffRequest(URN, "node01", props(old), props(new), [])))


def test_values_survive_the_way_there_and_back() -> None:
    data = {"a": 1, "b": [True, None, "x", 1.5], "c": {"d": {}}}
    assert plain(wrapped(data)) == data


def test_check_names_each_malformed_input(inputs: dict[str, Any]) -> None:
    bad = {**inputs, "serial": "", "bmc": {**inputs["bmc"], "address": "nowhere"}, "colour": "red"}
    response = asyncio.run(MetalProvider().check(api.CheckRequest(URN, {}, props(bad), b"")))
    assert {failure.property: failure.reason for failure in response.failures or []} == {
        "serial": "Expected: at least 1 character",
        "bmc.address": "Expected: an IPv4 address such as 192.0.2.1",
        "colour": "Expected: no key of that name",
    }


def test_check_lets_good_inputs_through(inputs: dict[str, Any]) -> None:
    response = asyncio.run(MetalProvider().check(api.CheckRequest(URN, {}, props({**inputs, "power": None}), b"")))
    assert not response.failures
    assert set(response.inputs or {}) == set(inputs)


def test_a_preview_touches_nothing(rack: FakeRack, inputs: dict[str, Any]) -> None:
    response = asyncio.run(MetalProvider().create(api.CreateRequest(URN, props(inputs), 0, preview=True)))
    assert response.properties["power"].value == UNKNOWN
    assert (rack.nodes[0].logins, rack.nodes[0].asked) == (0, [])


def test_create_gives_what_is_known_and_tells_of_progress(
    rack: FakeRack, inputs: dict[str, Any], tmp_path: Path
) -> None:
    state = create(inputs)
    assert state["made"] is True
    assert state["power"] == "On"
    assert state["bmc"] == inputs["bmc"]
    assert not any(rack.nodes[0].password in str(value) for value in state.values())
    ledger = Ledger.open(tmp_path / "state.sqlite")
    assert [event.text for event in ledger.events("c7")] == [
        "boot override Hdd once, power on",
        "powered on, waiting for SSH",
        "SSH answers, host key pinned",
    ]
    ledger.close()


def test_nothing_differs_after_a_create(inputs: dict[str, Any]) -> None:
    assert diff(create(inputs), inputs).changes is False


def test_a_node_that_is_to_be_erased_differs_until_that_campaign_has_imaged_it(
    inputs: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imaged = {**inputs, "imaging": {"boot": "Pxe", "image": "debian12", "digest": "ab" * 32}}
    old = {**imaged, "power": "On"}
    monkeypatch.setenv("RACKREADY_CAMPAIGN", "c1")
    assert diff(old, imaged).changes is False
    monkeypatch.setenv("RACKREADY_ERASE", "node02,node01")
    assert diff(old, imaged).diffs == ["erase"]
    with Ledger.open(tmp_path / "state.sqlite") as ledger:
        ledger.done(ledger.begin("node01", "image", "ab" * 32, {"run": "c1"}).token)
    assert diff(old, imaged).changes is False
    monkeypatch.setenv("RACKREADY_CAMPAIGN", "c2")
    assert diff(old, imaged).diffs == ["erase"]


def test_power_and_inputs_are_differences_and_nothing_is_ever_replaced(inputs: dict[str, Any]) -> None:
    found = diff({**inputs, "power": "Off"}, {**inputs, "serial": "OTHER"})
    assert (found.changes, sorted(found.diffs), found.replaces) == (True, ["power", "serial"], [])
    assert not found.delete_before_replace


def test_ssh_that_never_comes_is_recorded_as_made(rack: FakeRack, inputs: dict[str, Any]) -> None:
    rack.nodes[0].boot_s = -1
    with pytest.raises(IncompleteError, match="SSH - Expected: an answer within 1 s") as caught:
        create({**inputs, "timeout_s": 1})
    assert (caught.value.resource_id, plain(caught.value.properties["made"])) == ("node01", True)


def test_read_sees_a_power_off_and_delete_leaves_it_so(rack: FakeRack, inputs: dict[str, Any]) -> None:
    state = create(inputs)
    rack.set_power(rack.nodes[0], "Off")
    seen = asyncio.run(MetalProvider().read(api.ReadRequest(URN, "node01", props(state), props(inputs))))
    assert plain(seen.properties["power"]) == "Off"
    assert {key: plain(value) for key, value in seen.inputs.items()} == inputs
    asyncio.run(MetalProvider().delete(api.DeleteRequest(URN, "node01", props(state), 0)))
    assert rack.nodes[0].asked == ["boot Hdd Once", "On"]


def test_a_cancel_ends_the_waiting(rack: FakeRack, inputs: dict[str, Any]) -> None:
    rack.nodes[0].boot_s = -1
    provider = MetalProvider()

    async def cancelled() -> None:
        task = asyncio.ensure_future(
            provider.create(api.CreateRequest(URN, props({**inputs, "timeout_s": 60}), 0, preview=False))
        )
        await asyncio.to_thread(rack.nodes[0].asked_something.wait, 20)
        await provider.cancel()
        await task

    with pytest.raises(IncompleteError, match="stopped by the operator"):
        asyncio.run(cancelled())

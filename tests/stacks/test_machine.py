"""One machine, with a controller that dies at any time: no second power-on; only our power-ons are powered off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paramiko
import pytest

from rackready.drivers.hostkey_accept import HOST_KEY
from rackready.drivers.redfish import Bmc
from rackready.drivers.redfish_errors import BmcIdentityError, BmcLoginError
from rackready.drivers.ssh import session
from rackready.drivers.ssh.pins import fingerprint, text_of
from rackready.ledger.store import Ledger
from rackready.model.problems import RackreadyError
from rackready.stacks import machine as module
from rackready.stacks import power
from rackready.stacks.args import NodeArgs
from rackready.stacks.machine import POWER_ON, MachineIncompleteError, StackMachine
from tests.stacks.fake_rack import FakeNode, FakeRack
from tests.unit.drivers.jump_server import USER, serve_jump


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours runs after it."""


def killed(*_args: object, **_kwargs: object) -> None:
    raise Killed


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[FakeRack]:
    made = FakeRack(tmp_path / "rack", 1, net=81)
    yield made
    made.stop()


@pytest.fixture
def node(rack: FakeRack) -> FakeNode:
    return rack.nodes[0]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger.open(tmp_path / "state.sqlite")
    yield made
    made.close()


def node_args(rack: FakeRack, **changes: Any) -> NodeArgs:
    site = rack.site()
    node = site["racks"][0]["nodes"][0]
    ssh = {**site["access"], "address": node["address"]}
    return NodeArgs.model_validate(
        {
            "env": "t",
            "node": "node01",
            "serial": node["serial"],
            "bmc": node["bmc"],
            "ssh": ssh,
            "timeout_s": 10,
            **changes,
        }
    )


def machine(rack: FakeRack, ledger: Ledger, said: list[str] | None = None, **changes: Any) -> StackMachine:
    args = node_args(rack, **changes)
    return StackMachine(args, ledger, rack.folder, proceed=lambda: None, say=(said if said is not None else []).append)


def test_powers_on_waits_and_pins(rack: FakeRack, node: FakeNode, ledger: Ledger) -> None:
    said: list[str] = []
    state = machine(rack, ledger, said).ensure(made=False)
    assert node.asked == ["boot Hdd Once", "On"]
    assert (state.power, state.made, bool(state.boot_id), bool(state.host_key)) == ("On", True, True, True)
    assert said == ["boot override Hdd once, power on", "powered on, waiting for SSH", "SSH answers, host key pinned"]
    assert [(item.operation, item.status) for item in ledger.entries("node01")] == [(POWER_ON, "done")]


def test_a_node_behind_a_jump_host_is_waited_for_through_it(
    rack: FakeRack, node: FakeNode, ledger: Ledger, tmp_path: Path
) -> None:
    with serve_jump(tmp_path / "jump") as jump:
        hop = {"host": "127.0.0.1", "port": jump.port, "user": USER, "private_key": str(jump.client_key)}
        plain = node_args(rack)
        args = {**plain.ssh.model_dump(mode="json"), "jump": hop}
        state = machine(rack, ledger, ssh=args).ensure(made=False)
        assert (state.power, state.host_key) == ("On", text_of(node.host_key))
        assert jump.opened == [(node.address, rack.ssh_port)]
    session.close_jumps()


def test_the_boot_target_is_the_one_asked_for(rack: FakeRack, node: FakeNode, ledger: Ledger) -> None:
    machine(rack, ledger, boot="Pxe").ensure(made=False)
    assert node.asked == ["boot Pxe Once", "On"]


def fresh(rack: FakeRack, node: FakeNode) -> None:
    """The machine comes up with another key: an installer made it."""
    rack.set_power(node, "Off")
    node.host_key = paramiko.ECDSAKey.generate(bits=256)


def test_an_installation_of_ours_pins_its_new_key_by_itself_also_after_a_kill(
    rack: FakeRack, node: FakeNode, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(rack, ledger).ensure(made=False)
    machine(rack, ledger).remove(made=True)
    fresh(rack, node)
    with monkeypatch.context() as patch:
        patch.setattr(module, "wait_and_pin", killed)
        with pytest.raises(Killed):
            machine(rack, ledger, boot="Pxe").ensure(made=False)
    assert machine(rack, ledger, boot="Pxe").ensure(made=False).host_key == text_of(node.host_key)
    entry = ledger.entries("node01")[-1]
    assert (entry.operation, entry.status, entry.result) == (HOST_KEY, "done", {"pinned": fingerprint(node.host_key)})


def test_one_installation_excuses_one_new_key_and_no_later_one(rack: FakeRack, node: FakeNode, ledger: Ledger) -> None:
    machine(rack, ledger, boot="Pxe").ensure(made=False)
    fresh(rack, node)
    rack.set_power(node, "On")
    with pytest.raises(
        MachineIncompleteError,
        match=r"SSH host key changed, no login was tried - .*`rackready hostkey accept node01` shows both keys",
    ):
        machine(rack, ledger, boot="Pxe").ensure(made=True)


def test_a_running_machine_is_adopted_and_left_on(rack: FakeRack, node: FakeNode, ledger: Ledger) -> None:
    rack.set_power(node, "On")
    state = machine(rack, ledger).ensure(made=False)
    assert not state.made
    machine(rack, ledger).remove(made=state.made)
    assert node.asked == []
    assert node.power == "On"


def test_what_we_powered_on_is_powered_off(rack: FakeRack, node: FakeNode, ledger: Ledger) -> None:
    state = machine(rack, ledger).ensure(made=False)
    machine(rack, ledger).remove(made=state.made)
    assert node.power == "Off"
    assert node.asked[2:] == ["GracefulShutdown"]


def test_on_off_on_in_a_row_is_three_effects(rack: FakeRack, node: FakeNode, ledger: Ledger) -> None:
    machine(rack, ledger).ensure(made=False)
    machine(rack, ledger).remove(made=True)
    assert machine(rack, ledger).ensure(made=False).made
    machine(rack, ledger).remove(made=True)
    assert [item for item in node.asked if not item.startswith("boot")] == [
        "On",
        "GracefulShutdown",
        "On",
        "GracefulShutdown",
    ]


def test_a_machine_that_was_powered_on_by_hand_after_our_power_off_is_adopted(
    rack: FakeRack, node: FakeNode, ledger: Ledger
) -> None:
    machine(rack, ledger).ensure(made=False)
    machine(rack, ledger).remove(made=True)
    rack.set_power(node, "On")
    assert not machine(rack, ledger).ensure(made=False).made


def test_powered_off_behind_our_back_it_is_powered_on_again(rack: FakeRack, node: FakeNode, ledger: Ledger) -> None:
    machine(rack, ledger).ensure(made=False)
    rack.set_power(node, "Off")
    assert machine(rack, ledger).observe() == ("Off", "")
    assert machine(rack, ledger).ensure(made=True).made
    assert node.boots() == 2


@pytest.mark.parametrize("where", ["set_boot_once", "before power", "after power"])
def test_killed_in_the_middle_it_is_powered_on_exactly_once(
    rack: FakeRack, node: FakeNode, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(power, "_LAG_S", 0.5)
    real = Bmc.power

    def dies(self: Bmc, *args: Any, **kwargs: Any) -> str:
        if where == "after power":
            real(self, *args, **kwargs)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Bmc, "set_boot_once" if where == "set_boot_once" else "power", dies)
        with pytest.raises(Killed):
            machine(rack, ledger).ensure(made=False)
    assert [item.status for item in ledger.entries("node01")] == ["intent"]
    state = machine(rack, ledger).ensure(made=False)
    assert node.boots() == 1
    assert state.made
    assert [item.status for item in ledger.entries("node01")] == (
        ["done"] if where == "after power" else ["failed", "done"]
    )


def test_killed_after_a_request_that_the_bmc_shows_late(
    rack: FakeRack, node: FakeNode, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.power_lag_s = 2.0
    with monkeypatch.context() as patch:
        patch.setattr(Bmc, "_wait_power", killed)
        with pytest.raises(Killed):
            machine(rack, ledger).ensure(made=False)
    assert (node.power, node.boots()) == ("Off", 1)
    assert machine(rack, ledger).ensure(made=False).made
    assert node.boots() == 1


def test_killed_while_it_waited_for_ssh(
    rack: FakeRack, node: FakeNode, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, "wait_and_pin", killed)
        with pytest.raises(Killed):
            machine(rack, ledger).ensure(made=False)
    assert machine(rack, ledger).ensure(made=False).made
    assert node.boots() == 1


def test_another_epoch_forgets_who_powered_it_on(rack: FakeRack, node: FakeNode, ledger: Ledger) -> None:
    machine(rack, ledger).ensure(made=False)
    ledger.raise_epoch("node01", "repaired")
    assert not machine(rack, ledger).ensure(made=False).made
    assert node.boots() == 1


def test_ssh_that_never_comes_leaves_what_was_made_on_record(rack: FakeRack, node: FakeNode, ledger: Ledger) -> None:
    node.boot_s = -1
    with pytest.raises(
        MachineIncompleteError, match=r"node01 127\.81\.2\.1:\d+: SSH - Expected: an answer within 1 s"
    ) as caught:
        machine(rack, ledger, timeout_s=1).ensure(made=False)
    assert (caught.value.state.power, caught.value.state.made) == ("On", True)
    assert node.boots() == 1


def test_the_wrong_machine_is_left_alone(rack: FakeRack, node: FakeNode, ledger: Ledger) -> None:
    with pytest.raises(BmcIdentityError, match="serial OTHER"):
        machine(rack, ledger, serial="OTHER").ensure(made=False)
    with pytest.raises(BmcIdentityError, match="serial OTHER"):
        machine(rack, ledger, serial="OTHER").remove(made=True)
    assert node.asked == []
    assert ledger.entries() == []


def test_a_bmc_that_cannot_tell_is_unknown_with_its_reason(rack: FakeRack, ledger: Ledger) -> None:
    (rack.folder / "node01-bmc").write_text("wrong")
    power, problem = machine(rack, ledger).observe()
    assert power == "Unknown"
    assert "Redfish refused the login of user admin" in problem
    with pytest.raises(BmcLoginError):
        machine(rack, ledger).ensure(made=False)


def test_a_stop_ends_the_waiting(rack: FakeRack, node: FakeNode, ledger: Ledger) -> None:
    node.boot_s = -1
    worker = machine(rack, ledger)

    def stop() -> None:
        if node.boots():
            raise RackreadyError("stopped as asked")

    worker._proceed = stop
    with pytest.raises(MachineIncompleteError, match="stopped as asked"):
        worker.ensure(made=False)

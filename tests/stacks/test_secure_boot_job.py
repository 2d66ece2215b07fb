"""Secure Boot of an iDRAC: switched by a restart of its own, once, whenever the controller dies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rackready.drivers import redfish, redfish_secure_boot
from rackready.drivers.boot_service import BootService
from rackready.drivers.redfish import BootTarget
from rackready.drivers.redfish_errors import BmcError
from rackready.ledger.store import Ledger
from rackready.stacks import imaging as module
from rackready.stacks import power
from rackready.stacks.machine import StackMachine
from rackready.stacks.power import made_by_us
from rackready.stacks.secure_boot import SECURE_BOOT, SHOW, cut_off
from tests.stacks.fake_media import DellRedfish
from tests.stacks.fake_rack import FakeRack
from tests.stacks.imaging_parts import Bench, Killed, good
from tests.stacks.test_machine import node_args

JOB = ["secure on", "On", "look", "look", "GracefulShutdown"]
BOOT = ["insert", "boot Cd Once", "On", "eject"]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    for name, value in (("_POLL_S", 0.02), ("_POWER_S", 0.0), ("_OFF_S", 1.0)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(power, "_LAG_S", 0.2)
    monkeypatch.setattr(redfish, "_PAUSE_S", 0.01)
    monkeypatch.setattr(redfish_secure_boot, "_POLL_S", 0.05)
    monkeypatch.setattr(redfish_secure_boot, "_WAIT_S", 10.0)
    monkeypatch.setattr(BootService, "medium", lambda self, node: f"{self.media(node)}{'0a' * 16}.iso")
    rack = FakeRack(tmp_path / "rack", 1, net=85, kind=DellRedfish)
    ledger = Ledger.open(tmp_path / "state.sqlite")
    made = Bench(rack, ledger, tmp_path / "state")
    made.write_job(BootTarget.CD)
    made.node.answers[SHOW] = "   1\n"
    yield made
    ledger.close()
    rack.stop()


def test_a_job_of_the_bios_is_carried_out_before_the_node_boots_for_its_image(bench: Bench) -> None:
    bench.machine(good, secure_boot=True).ensure(made=False)
    assert bench.node.asked == [*JOB, *BOOT]
    assert bench.node.secure_boot


def test_what_is_as_wanted_needs_no_restart(bench: Bench) -> None:
    bench.node.secure_boot = True
    bench.machine(good, secure_boot=True).ensure(made=False)
    assert bench.node.asked == BOOT


@pytest.mark.parametrize(
    "point", ["Secure Boot is to be turned on", "on, until its BIOS", "Secure Boot is turned on", "virtual media"]
)
def test_a_controller_that_dies_orders_no_second_job(bench: Bench, point: str) -> None:
    bench.kill_at = point
    with pytest.raises(Killed):
        bench.machine(good, secure_boot=True).ensure(made=False)
    bench.machine(good, secure_boot=True).ensure(made=False)
    asked = bench.node.asked
    assert (asked.count("secure on"), asked.count("boot Cd Once"), asked[-1]) == (1, 1, "eject")
    assert bench.node.boots() == 2, "one for the job, and one for the image"
    assert bench.node.secure_boot
    assert [entry.status for entry in bench.ledger.entries("node01") if entry.operation == SECURE_BOOT][-1] == "done"


def test_a_job_that_waits_already_is_taken(bench: Bench) -> None:
    bench.node.secure_job = True
    bench.machine(good, secure_boot=True).ensure(made=False)
    assert bench.node.asked == [*JOB[1:], *BOOT]


def test_a_job_that_is_not_carried_out_leaves_the_node_off_and_the_next_run_goes_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.node.stuck = True
    monkeypatch.setattr(redfish_secure_boot, "_WAIT_S", 0.2)
    with pytest.raises(BmcError) as caught:
        bench.machine(good, secure_boot=True).ensure(made=False)
    assert str(caught.value).endswith(
        "Secure Boot - Expected: SecureBootEnable True within 0 s after a restart Actual: False. Look at the BMC's job "
        "queue and end what hangs there, then run again."
    )
    assert (bench.node.power, bench.node.override) == ("Off", ("None", "Disabled"))
    bench.node.stuck = False
    bench.machine(good, secure_boot=True).ensure(made=False)
    assert bench.node.asked[-len(BOOT) :] == BOOT
    assert bench.node.secure_boot


@pytest.mark.parametrize("at", ["stuck", "Secure Boot is to be turned on"])
@pytest.mark.parametrize("wanted", [False, None])
def test_a_job_that_waits_is_carried_out_before_the_node_boots_although_another_state_is_wanted_by_now(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, at: str, *, wanted: bool | None
) -> None:
    """Else the boot for the image would switch Secure Boot."""
    with monkeypatch.context() as patched:
        patched.setattr(redfish_secure_boot, "_WAIT_S", 0.2)
        bench.node.stuck = at == "stuck"
        bench.kill_at = at
        with pytest.raises((BmcError, Killed)):
            bench.machine(good, secure_boot=True).ensure(made=False)
    bench.node.stuck = False
    bench.node.answers[SHOW] = "   0\n"
    bench.node.asked.clear()
    bench.machine(good, secure_boot=wanted).ensure(made=False)
    turned_back = ["secure off", "On"] if wanted is False else []
    asked = [word for word in bench.node.asked if word not in {"look", "GracefulShutdown"}]
    assert asked == ["On", *turned_back, *BOOT]
    assert (bench.node.secure_job, bench.node.secure_boot) == (None, wanted is None)
    told = [line for line in bench.said if line.startswith(("an earlier run's job waits", "boot service armed"))]
    assert told[-1].startswith("boot service armed"), "the restart must not boot what is armed"


def cut_off_in_its_job(bench: Bench) -> None:
    bench.kill_at = "on, until its BIOS"
    with pytest.raises(Killed):
        bench.machine(good, secure_boot=True).ensure(made=False)
    assert bench.node.power == "On"


def test_destroy_powers_off_what_is_on_for_its_job_and_nothing_else(bench: Bench) -> None:
    cut_off_in_its_job(bench)
    bench.machine(good, secure_boot=True).remove(made=False)
    assert bench.node.power == "Off"
    bench.rack.set_power(bench.node, "On")
    bench.machine(good, secure_boot=True).remove(made=False)
    assert bench.node.power == "On", "somebody else powered it on"


@pytest.mark.parametrize("fault", ["unlicensed", "stuck"])
@pytest.mark.parametrize("then", ["ensure", "any", "remove"])
def test_a_node_that_is_powered_on_by_hand_after_a_failed_switch_is_left_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, fault: str, then: str
) -> None:
    monkeypatch.setattr(redfish_secure_boot, "_WAIT_S", 0.2)
    node = bench.node
    setattr(node, fault, True)
    wanted = {"secure_boot": True, "boot": "Pxe"}

    def machine(**changes: Any) -> StackMachine:
        args = node_args(bench.rack, **changes)
        return StackMachine(args, bench.ledger, bench.state, proceed=lambda: None, say=bench.said.append)

    with pytest.raises(BmcError):
        machine(**wanted).ensure(made=False)
    assert node.power == "Off"
    assert not cut_off(bench.ledger, "node01")
    node.secure_boot, node.secure_job = True, None
    bench.rack.set_power(node, "On")
    node.asked.clear()
    if then == "remove":
        machine(**wanted).remove(made=False)
    else:
        machine(**(wanted if then == "ensure" else {"boot": "Pxe"})).ensure(made=False)
    assert (node.power, node.asked) == ("On", [])


def test_a_node_that_cannot_be_powered_off_again_stays_ours(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.node.stuck = True
    bench.node.resets = ("On",)
    monkeypatch.setattr(redfish_secure_boot, "_WAIT_S", 0.2)
    with pytest.raises(BmcError, match="SecureBootEnable True within 0 s"):
        bench.machine(good, secure_boot=True).ensure(made=False)
    assert bench.node.power == "On"
    assert cut_off(bench.ledger, "node01")
    assert bench.said[-1].startswith("it may be on still, and the next run powers it off: ")


def test_a_node_that_is_cut_off_before_its_restart_is_not_on_because_of_us(bench: Bench) -> None:
    bench.kill_at = "Secure Boot is to be turned on"
    with pytest.raises(Killed):
        bench.machine(good, secure_boot=True).ensure(made=False)
    assert (bench.node.power, cut_off(bench.ledger, "node01")) == ("Off", False)


@pytest.mark.parametrize("then", ["ensure", "remove", "erase"])
def test_a_node_that_is_cut_off_in_its_job_stays_ours_after_a_repair(bench: Bench, then: str) -> None:
    cut_off_in_its_job(bench)
    bench.ledger.raise_epoch("node01", "rma")
    machine = bench.machine(good, secure_boot=True, consent="c1" if then == "erase" else "")
    if then == "remove":
        machine.remove(made=False)
        assert bench.node.power == "Off"
        return
    machine.ensure(made=False)
    assert (bench.node.asked[-len(BOOT) :], bench.node.secure_boot) == (BOOT, True)
    assert not cut_off(bench.ledger, "node01")


def test_a_node_that_is_on_for_its_job_counts_as_powered_on_by_us(bench: Bench) -> None:
    cut_off_in_its_job(bench)
    assert made_by_us(bench.ledger, "node01")


def test_another_job_of_the_bios_is_carried_out_first(bench: Bench) -> None:
    bench.node.secure_job = False
    bench.machine(good, secure_boot=True).ensure(made=False)
    asked = [item for item in bench.node.asked if item != "look"]
    assert asked == ["On", "GracefulShutdown", "secure on", "On", "GracefulShutdown", *BOOT]
    assert bench.node.secure_boot


def test_a_bios_that_ends_its_jobs_without_the_change_is_restarted_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DellRedfish, "carries_out", False)
    with pytest.raises(BmcError, match="SecureBootEnable True after 2 restarts Actual: False"):
        bench.machine(good, secure_boot=True).ensure(made=False)
    assert (bench.node.boots(), bench.node.power, cut_off(bench.ledger, "node01")) == (2, "Off", False)


def test_a_continued_installation_that_was_never_powered_on_makes_no_machine_ours(bench: Bench) -> None:
    """Else `rackready retire` would power off whoever uses the node by then."""
    bench.kill_at = "boot service armed"
    with pytest.raises(Killed):
        bench.machine(good).ensure(made=False)
    bench.node.unlicensed = True
    with pytest.raises(BmcError, match="licen"):
        bench.machine(good, secure_boot=True).ensure(made=False)
    assert bench.node.power == "Off"

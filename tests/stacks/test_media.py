"""Imaging from virtual media, and Secure Boot: what the BMC is asked, in which order, also when the controller dies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rackready.drivers.boot_service import BootService
from rackready.drivers.redfish import BootTarget
from rackready.ledger.store import Ledger
from rackready.model.problems import RackreadyError
from rackready.stacks import imaging as module
from rackready.stacks import power
from rackready.stacks.imaging import ImagingError
from rackready.stacks.machine import MachineIncompleteError
from rackready.stacks.secure_boot import SHOW
from tests.stacks.fake_media import MediaRedfish
from tests.stacks.fake_rack import FakeRack
from tests.stacks.imaging_parts import Bench, Killed, good, refusing


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    for name, value in (("_POLL_S", 0.02), ("_POWER_S", 0.0), ("_OFF_S", 1.0)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(power, "_LAG_S", 0.2)
    monkeypatch.setattr(BootService, "medium", lambda self, node: f"{self.media(node)}{'0a' * 16}.iso")
    rack = FakeRack(tmp_path / "rack", 1, net=84, kind=MediaRedfish)
    ledger = Ledger.open(tmp_path / "state.sqlite")
    made = Bench(rack, ledger, tmp_path / "state")
    made.write_job(BootTarget.CD)
    yield made
    ledger.close()
    rack.stop()


def test_the_medium_is_inserted_before_power_and_ejected_after_the_image(bench: Bench) -> None:
    state = bench.machine(good).ensure(made=False)
    assert (state.power, state.made) == ("On", True)
    assert bench.node.asked == ["insert", "boot Cd Once", "On", "eject"]
    assert [line for line in bench.said if "virtual media" in line] == [
        "virtual media inserted",
        "virtual media ejected",
    ]
    assert bench.images() == ["done"]


@pytest.mark.parametrize("point", ["virtual media inserted", "ramdisk: done", "virtual media ejected", "image written"])
def test_a_controller_that_dies_leaves_no_medium_in_the_end(bench: Bench, point: str) -> None:
    bench.kill_at = point
    with pytest.raises(Killed):
        bench.machine(good).ensure(made=False)
    bench.machine(good).ensure(made=False)
    assert (bench.node.image, bench.images(), bench.node.boots()) == ("", ["done"], 1)


def test_an_older_medium_of_the_node_makes_room_and_somebody_elses_does_not(bench: Bench) -> None:
    bench.node.image = f"{bench.service.media('node01')}{'0b' * 16}.iso"
    bench.machine(good).ensure(made=False)
    assert bench.node.asked == ["eject", "insert", "boot Cd Once", "On", "eject"]


def test_a_slot_that_holds_somebody_elses_image_is_refused(bench: Bench) -> None:
    bench.node.image = "http://192.0.2.9/rescue.iso"
    with pytest.raises(RackreadyError, match=r"Actual: USB1 holds http://192.0.2.9/rescue.iso. Eject what is inserted"):
        bench.machine(good).ensure(made=False)
    assert (bench.node.asked, bench.node.power) == ([], "Off")


def test_a_refused_installation_ejects_its_medium_when_the_node_is_off(bench: Bench) -> None:
    with pytest.raises(ImagingError, match="imaging refused, nothing was written"):
        bench.machine(refusing).ensure(made=False)
    assert (bench.node.image, bench.node.power, bench.images()) == ("", "Off", ["failed"])


def test_destroy_ejects_what_an_unfinished_installation_left(bench: Bench) -> None:
    bench.kill_at = "ramdisk: writing"
    with pytest.raises(Killed):
        bench.machine(good).ensure(made=False)
    assert bench.node.image
    bench.machine().remove(made=True)
    assert (bench.node.image, bench.node.power, bench.service.armed()) == ("", "Off", [])


def test_secure_boot_is_set_before_power_and_verified_on_the_system(bench: Bench) -> None:
    bench.node.answers[SHOW] = "   1\n"
    bench.machine(good, secure_boot=True).ensure(made=False)
    assert bench.node.asked == ["secure on", "insert", "boot Cd Once", "On", "eject"]
    assert "Secure Boot is turned on for the next boot" in bench.said


def test_secure_boot_that_is_as_wanted_is_not_set_again(bench: Bench) -> None:
    bench.node.secure_boot, bench.node.answers[SHOW] = True, " 1\n"
    bench.machine(good, secure_boot=True).ensure(made=False)
    assert bench.node.asked[0] == "insert"


@pytest.mark.parametrize(
    ("shown", "actual"), [(" 0\n", "off"), (None, "unknown: the system shows no such variable of the firmware")]
)
def test_a_system_without_secure_boot_is_no_success(bench: Bench, shown: str | None, actual: str) -> None:
    if shown is not None:
        bench.node.answers[SHOW] = shown
    with pytest.raises(MachineIncompleteError) as found:
        bench.machine(good, secure_boot=True).ensure(made=False)
    assert str(found.value) == (
        f"node01 {bench.node.address}:{bench.rack.ssh_port}: Secure Boot - Expected: on (provisioning.secure_boot) "
        f"Actual: {actual}. Power the node off: the next `rackready provision` sets it, and powers it on. If it stays "
        "so, set it in the firmware setup."
    )

"""Imaging with a controller that dies at any time: one power-on, one installation, and nobody else's machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rackready.drivers.redfish import Bmc
from rackready.drivers.ssh.pins import pinned
from rackready.ledger.store import Ledger
from rackready.model.problems import RackreadyError
from rackready.stacks import imaging as module
from rackready.stacks import power
from rackready.stacks.imaging import ImagingError
from rackready.stacks.machine import MachineIncompleteError
from tests.stacks.fake_rack import FakeRack
from tests.stacks.imaging_parts import ERASE, Bench, Killed, good, refusing


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    for name, value in (("_POLL_S", 0.02), ("_POWER_S", 0.0), ("_OFF_S", 1.0)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(power, "_LAG_S", 0.2)
    rack = FakeRack(tmp_path / "rack", 1, net=83)
    ledger = Ledger.open(tmp_path / "state.sqlite")
    yield Bench(rack, ledger, tmp_path / "state")
    ledger.close()
    rack.stop()


def test_a_node_that_is_off_is_imaged_and_comes_up_with_our_host_key(bench: Bench) -> None:
    state = bench.machine(good).ensure(made=False)
    assert (state.power, state.made, state.host_key) == ("On", True, bench.keys[0].public)
    assert bench.node.asked == ["boot Pxe Once", "On"]
    assert bench.images() == ["done"]
    assert bench.service.armed() == []
    assert bench.said == [
        "boot service armed: write image debian12 to serial S1 (UEFI PXE boot)",
        "boot override Pxe once, power on",
        "ramdisk: started",
        "ramdisk: disks, system /dev/vda (serial S1, 480 GB): empty",
        "ramdisk: writing 40 %, debian12",
        "ramdisk: verified",
        "ramdisk: configured",
        "ramdisk: done",
        "image written, the node starts from its disk",
        "powered on, waiting for SSH",
        "SSH answers, host key pinned",
    ]


def test_a_second_run_changes_nothing(bench: Bench) -> None:
    bench.machine(good).ensure(made=False)
    assert bench.machine().ensure(made=True).made
    assert (bench.node.boots(), bench.images()) == (1, ["done"])


POINTS = [
    "boot service armed",
    "boot override Pxe once",
    "ramdisk: started",
    "ramdisk: writing",
    "ramdisk: done",
    "image written",
    "powered on, waiting for SSH",
    "SSH answers",
]


@pytest.mark.parametrize("point", POINTS)
def test_a_controller_that_dies_goes_on_with_one_power_on_and_one_installation(bench: Bench, point: str) -> None:
    bench.kill_at = point
    with pytest.raises(Killed):
        bench.machine(good).ensure(made=False)
    assert bench.images() in (["intent"], ["done"])
    state = bench.machine(good).ensure(made=False)
    assert (state.made, bench.node.boots(), bench.images()) == (True, 1, ["done"])


def killed(*_args: object, **_kwargs: object) -> None:
    raise Killed


def test_killed_in_the_power_on_request_nothing_is_powered_on_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Bmc, "power", killed)
        with pytest.raises(Killed):
            bench.machine(good).ensure(made=False)
    bench.machine(good).ensure(made=False)
    assert bench.node.asked == ["boot Pxe Once", "boot Pxe Once", "On"]


def test_killed_before_it_armed_the_node_an_earlier_refusal_of_the_same_plan_does_not_count(bench: Bench) -> None:
    with pytest.raises(ImagingError):
        bench.machine(refusing).ensure(made=False)
    bench.kill_at = "boot service armed"
    with pytest.raises(Killed):
        bench.machine().ensure(made=False)
    bench.reboot()
    assert bench.machine(good).ensure(made=False).made
    assert bench.images() == ["failed", "done"]


def dying(bench: Bench) -> Iterator[None]:
    """A machine that goes off while it is written, and comes back with the rest."""
    while bench.node.power != "On":
        yield
    bench.report("started")
    bench.report("writing", percent=10)
    yield
    bench.rack.set_power(bench.node, "Off")
    bench.reboot()
    yield
    yield from good(bench)


def test_a_machine_that_went_off_in_the_middle_is_powered_on_again_by_the_same_plan(bench: Bench) -> None:
    bench.machine(dying).ensure(made=False)
    assert bench.node.asked == ["boot Pxe Once", "On"] * 2
    assert bench.images() == ["done"]


def test_disks_with_data_are_named_and_left_until_the_operator_names_the_node(bench: Bench) -> None:
    with pytest.raises(ImagingError) as refused:
        bench.machine(refusing).ensure(made=False)
    assert str(refused.value) == (
        "node01: imaging refused, nothing was written - Expected: empty disks Actual: /dev/vda (serial S1, 480 GB): "
        f"gpt, 3 partitions; ext4 'root'. If nobody needs it, `{ERASE}` erases these disks."
    )
    assert (bench.node.power, bench.images(), bench.service.armed()) == ("Off", ["failed"], [])
    erasing: list[bool] = []

    def looks(bench: Bench) -> Iterator[None]:
        while not bench.service.armed():
            yield
        erasing.append(bench.plan["erase"])
        bench.reboot()
        yield from good(bench)

    bench.machine(looks, consent="c1").ensure(made=False)
    assert (erasing, bench.images()) == ([True], ["failed", "done"])


def test_erase_images_a_machine_of_ours_again_and_once_per_campaign(bench: Bench) -> None:
    bench.machine(good).ensure(made=False)
    bench.reboot()
    bench.machine(good, consent="c1").ensure(made=True)
    bench.machine(good, consent="c1").ensure(made=True)
    assert bench.images() == ["done", "done"]
    assert bench.node.asked == ["boot Pxe Once", "On", "GracefulShutdown", "boot Pxe Once", "On"]


def test_a_running_machine_of_somebody_else_is_never_imaged(bench: Bench) -> None:
    bench.rack.set_power(bench.node, "On")
    assert not bench.machine(good).ensure(made=False).made
    with pytest.raises(ImagingError) as refused:
        bench.machine(good, consent="c1").ensure(made=False)
    assert str(refused.value) == (
        "node01: --erase - Expected: powered off, or powered on by rackready Actual: power On, and rackready did not "
        "power it on. If nobody uses it, power it off, then run again."
    )
    assert (bench.node.asked, bench.images(), bench.service.armed()) == ([], [], [])


def test_a_machine_that_somebody_powers_on_between_is_left_alone(bench: Bench) -> None:
    def meddling(bench: Bench) -> Iterator[None]:
        bench.rack.set_power(bench.node, "On")
        yield

    with pytest.raises(ImagingError, match=r"its installation has not begun - Expected: powered off Actual: power On"):
        bench.machine(meddling).ensure(made=False)
    assert bench.node.asked == []


def test_an_edit_of_the_site_file_does_not_image_a_node_again(bench: Bench) -> None:
    bench.machine(good).ensure(made=False)
    bench.write_job(hostname="other")
    bench.machine(good).ensure(made=True)
    assert bench.images() == ["done"]
    assert any("the site file has changed since: it stays as it is" in line for line in bench.said)


def test_another_system_than_the_one_that_was_written_is_no_success(bench: Bench) -> None:
    def wrong(bench: Bench) -> Iterator[None]:
        for _ in good(bench):
            bench.node.answers.clear()
            yield

    with pytest.raises(MachineIncompleteError) as found:
        bench.machine(wrong).ensure(made=False)
    digest = bench.ledger.entries("node01")[0].desired[:8]
    assert str(found.value) == (
        f"node01 {bench.node.address}:{bench.rack.ssh_port}: the running system is not the one that was written - "
        f"Expected: plan {digest} in /var/lib/rackready/imaged.json Actual: none. "
        f"If it booted from another disk, correct its boot order; `{ERASE}` erases its disks and images it again."
    )
    assert bench.images() == ["intent"]


def test_another_host_key_than_ours_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    own = bench.node.host_key

    def other_key() -> None:
        Bench.install(bench)
        bench.node.host_key = own
        bench.rack.set_power(bench.node, "Off")
        bench.rack.set_power(bench.node, "On")

    monkeypatch.setattr(bench, "install", other_key)
    with pytest.raises(MachineIncompleteError, match="SSH host key changed, no login was tried"):
        bench.machine(good).ensure(made=False)
    assert pinned(bench.state / "known_hosts", f"[{bench.node.address}]:{bench.rack.ssh_port}") == bench.keys[0].public


NO_REPORT = (
    "node01: the ramdisk does not report - Expected: a first report Actual: none 0 s after power-on. Look at its "
    "console through the BMC, and whether 52:54:00:00:00:01 is the port that it boots from (boot_mac). Power it off "
    "before you run again: it then boots again."
)
NO_PROGRESS = (
    "node01: imaging makes no progress - Expected: the next report Actual: none for 0 s, last report: writing 40 %. "
    "Look at its console through the BMC. Power it off before you run again: it then boots again."
)


@pytest.mark.parametrize(("limit", "expected"), [("_BOOT_S", NO_REPORT), ("_SILENT_S", NO_PROGRESS)])
def test_silence_names_the_last_report(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, limit: str, expected: str
) -> None:
    monkeypatch.setattr(module, limit, 0.1)

    def stalls(bench: Bench) -> Iterator[None]:
        while bench.node.power != "On":
            yield
        if limit == "_SILENT_S":
            bench.report("writing", percent=40)

    with pytest.raises(MachineIncompleteError) as stuck:
        bench.machine(stalls).ensure(made=False)
    assert (str(stuck.value), bench.images()) == (expected, ["intent"])


def test_a_failure_of_the_ramdisk_has_its_code_and_leaves_the_node_off(bench: Bench) -> None:
    def fails(bench: Bench) -> Iterator[None]:
        while bench.node.power != "On":
            yield
        bench.report("failed", code="image-hash", message="image - Expected: abab Actual: cdcd.")
        yield

    with pytest.raises(RackreadyError) as failed:
        bench.machine(fails).ensure(made=False)
    assert str(failed.value) == (
        "node01: imaging failed, its disk is half written and does not boot - Expected: the image on its disks Actual: "
        "image-hash: image: cdcd (expected: abab). Build or import the image again."
    )
    assert (bench.node.power, bench.images(), bench.service.armed()) == ("Off", ["failed"], [])

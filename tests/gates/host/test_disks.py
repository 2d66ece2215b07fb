"""What counts as a drive of the host: one serial number once, of the right capacity, and nothing on USB."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from rackready.gates.records.offline import facts as platform_facts
from rackready.model.outcome import Outcome
from rackready.model.server_parts import HostParts
from tests.gates.host.machine import Node, facts
from tests.gates.host.test_damage import DISKS, drive
from tests.gates.host.test_judgement import Change, Document, judge
from tests.gates.support import tells

SAMSUNG = "SAMSUNG MZQL23T8HCLS-00A07"
DATA = ", ".join(f"/dev/nvme{place}" for place in (2, 3, 5, 6, 7, 8, 9))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def another(found: Document, name: str, **block: object) -> None:
    """Put one more drive on the node, by SATA or USB, that smartctl can read; ``block``: what lsblk says of it."""
    commands = found["commands"]
    document = json.loads(commands["smart /dev/nvme4"]["stdout"])
    document.update(serial_number="X9", device={"name": name})
    commands[f"smart {name}"] = {**commands["smart /dev/nvme4"], "stdout": json.dumps(document)}
    for key, items, item in (("scan", "devices", {"name": name}), ("lsblk", "blockdevices", {"path": name, **block})):
        listed = json.loads(commands[key]["stdout"])
        listed[items] += [item] if item != {"path": name} else []
        commands[key]["stdout"] = json.dumps(listed)


def without(found: Document, name: str) -> None:
    listed = json.loads(found["commands"]["scan"]["stdout"])
    listed["devices"] = [item for item in listed["devices"] if item["name"] != name]
    found["commands"]["scan"]["stdout"] = json.dumps(listed)
    del found["commands"][f"smart {name}"]


def small(size: int) -> Change:
    return drive(lambda said_: said_.update(user_capacity={"bytes": size, "blocks": size // 512}))


def test_a_drive_under_two_names_is_one_drive(node: Node) -> None:
    def twice(found: Document) -> None:
        found["commands"]["smart /dev/nvme4"]["stdout"] = found["commands"]["smart /dev/nvme3"]["stdout"]

    serial = node.state["host"]["drives"][3]["serial"]
    verdict = judge(node, DISKS, twice)
    assert [item[:3] for item in tells(verdict)] == [
        ("drive-count", "node01", "10 drives"),
        ("drive-serial-twice", "node01", "a different serial number on every drive"),
    ]
    assert verdict.findings[0].actual.startswith("9 (/dev/nvme0 ")
    assert verdict.findings[1].actual == f"{serial} on /dev/nvme3, /dev/nvme4"
    assert verdict.outcome is Outcome.FAIL


def controllers(total: int, free: int, *names: str) -> Change:
    """Drop the capacity, which smartctl does not print with several namespaces (smartmontools, nvmeprint.cpp)."""

    def change(found: Document) -> None:
        for name in names:
            said_ = json.loads(found["commands"][f"smart {name}"]["stdout"])
            del said_["user_capacity"], said_["logical_block_size"]
            said_.update(nvme_total_capacity=total, nvme_unallocated_capacity=free, nvme_number_of_namespaces=32)
            found["commands"][f"smart {name}"]["stdout"] = json.dumps(said_)

    return change


def test_a_drive_that_can_have_several_namespaces_has_the_capacity_that_they_hold(node: Node) -> None:
    data = [f"/dev/nvme{place}" for place in range(2, 10)]
    assert judge(node, DISKS, controllers(3840755982336, 0, *data)).outcome is Outcome.PASS
    firmware = judge(node, "group/host/validation/firmware", controllers(3840755982336, 0, *data))
    assert (firmware.outcome, firmware.measured) == (Outcome.PASS, ["node01"])
    half = judge(node, DISKS, controllers(3840755982336, 1920377991168, "/dev/nvme4"))
    boot = "3 of 1920 GB (/dev/nvme0, /dev/nvme1, /dev/nvme4)"
    assert tells(half) == [
        ("drive-capacity", "node01", "at least 8 of 3840 GB, 2 of 1920 GB", f"7 of 3841 GB ({DATA}), {boot}")
    ]
    none = judge(node, DISKS, controllers(3840755982336, 3840755982336, "/dev/nvme4"))
    words = "no namespace: of 3840755982336 bytes 3840755982336 are in none (exit 0)"
    assert tells(none) == [
        ("drive-health-unreadable", "node01 /dev/nvme4", "smartctl's document", words, "name=/dev/nvme4")
    ]
    assert none.outcome is Outcome.ERROR


@pytest.mark.parametrize(("size", "shown"), [(51200, "51200 bytes"), (1920383410176, "1920 GB")])
def test_a_drive_that_is_too_small_is_none_of_those_that_the_profile_has(node: Node, size: int, shown: str) -> None:
    verdict = judge(node, DISKS, small(size))
    boot = (
        "2 of 1920 GB (/dev/nvme0, /dev/nvme1), 1 of 51200 bytes (/dev/nvme4)"
        if size == 51200
        else f"3 of {shown} (/dev/nvme0, /dev/nvme1, /dev/nvme4)"
    )
    assert tells(verdict) == [
        ("drive-capacity", "node01", "at least 8 of 3840 GB, 2 of 1920 GB", f"7 of 3841 GB ({DATA}), {boot}")
    ]
    assert verdict.findings[0].next_step == (
        "Install drives of the capacity that the server was delivered with. If a namespace does not fill its drive, "
        "recreate it (`nvme list`)."
    )
    assert (verdict.outcome, verdict.measured) == (Outcome.FAIL, [])
    assert judge(node, DISKS, small(7681501126656)).outcome is Outcome.PASS, "a larger one serves as well"


def test_capacities_that_nobody_publishes_are_held_against_drives_of_the_same_model(node: Node) -> None:
    known, inputs = platform_facts("dgx_b200"), {"drives": 10}
    note = "no capacities are published for the drives: compared only with others of the same model"
    good = judge(node, DISKS, known=known, inputs=inputs)
    assert (good.outcome, good.note) == (Outcome.PASS, note)
    alone = judge(node, DISKS, drive(lambda said_: said_.update(model_name="USB STICK")), known=known, inputs=inputs)
    assert (alone.outcome, alone.note) == (Outcome.PASS, f"{note} (none for /dev/nvme4)")
    odd = judge(node, DISKS, small(51200), known=known, inputs=inputs)
    actual = f"7 of 3841 GB ({DATA}), 1 of 51200 bytes (/dev/nvme4)"
    assert tells(odd) == [
        ("drive-capacity-differs", "node01", "one capacity on all drives of a model", actual, f"model={SAMSUNG}")
    ]


@pytest.mark.parametrize(
    "block",
    [{"tran": "usb", "rm": False}, {"tran": None, "rm": True}, {"tran": None, "rm": "1"}],
    ids=["usb", "removable", "older"],
)
def test_a_drive_on_usb_or_that_can_be_taken_out_stands_in_for_none(node: Node, block: Document) -> None:
    note = "/dev/sda: on USB or removable, so not the host's: not judged"
    beside = judge(node, DISKS, lambda found: another(found, "/dev/sda", **block))
    assert (beside.outcome, beside.note) == (Outcome.PASS, note)

    def instead(found: Document) -> None:
        another(found, "/dev/sda", **block)
        without(found, "/dev/nvme4")

    verdict = judge(node, DISKS, instead)
    assert [item[:3] for item in tells(verdict)] == [("drive-count", "node01", "10 drives")]
    assert verdict.findings[0].actual.startswith("9 (/dev/nvme0 ")
    assert (verdict.outcome, verdict.note) == (Outcome.FAIL, note)


def test_virtual_media_of_a_bmc_are_no_parts_of_the_host_for_firmware_and_rates(node: Node) -> None:
    """The scan lists a USB bridge that smartctl cannot open with the others (smartctl.cpp, open_error)."""

    def media(found: Document) -> None:
        commands = found["commands"]
        words = {
            "messages": [{"string": "/dev/sda: Unknown USB bridge [0x046b:0xff31 (0x100)]", "severity": "error"}],
            "exit_status": 1,
        }
        commands["smart /dev/sda"] = {
            **commands["smart /dev/nvme4"],
            "exit_code": 1,
            "stdout": json.dumps({"smartctl": words}),
        }
        for key, items, item in (
            ("scan", "devices", {"name": "/dev/sda", "open_error": "Unknown USB bridge"}),
            ("lsblk", "blockdevices", {"path": "/dev/sda", "tran": "usb", "rm": True}),
        ):
            listed = json.loads(commands[key]["stdout"])
            commands[key]["stdout"] = json.dumps({**listed, items: [*listed[items], item]})

    verdict = judge(node, "group/host/validation/firmware", media)
    assert (tells(verdict), verdict.outcome, verdict.measured) == ([], Outcome.PASS, ["node01"])

    def stick(found: Document) -> None:
        commands = found["commands"]
        listed = json.loads(commands["lsblk"]["stdout"])
        listed["blockdevices"].append(
            {"path": "/dev/sda", "model": "Virtual HDisk0", "serial": "A1", "size": 4 << 30, "tran": "usb", "rm": True}
        )
        commands["lsblk"]["stdout"] = json.dumps(listed)
        slow = json.loads(commands["fio /dev/nvme4n1"]["stdout"])
        slow["jobs"][0]["read"].update(bw_bytes=20_000_000, io_bytes=slow["jobs"][0]["read"]["runtime"] * 20_000)
        commands["fio /dev/sda"] = {**commands["fio /dev/nvme4n1"], "stdout": json.dumps(slow)}

    slow = judge(node, "node/host/performance/disk-bandwidth", stick, inputs={"read_gb_s": 5.0})
    assert (tells(slow), slow.outcome) == ([], Outcome.PASS)


def test_a_drive_of_which_nobody_says_how_it_is_attached_is_an_error(node: Node) -> None:
    def change(found: Document) -> None:
        another(found, "/dev/sda", tran="sata", rm=False)
        without(found, "/dev/nvme4")

    def unlisted(found: Document) -> None:
        another(found, "/dev/sda")
        without(found, "/dev/nvme4")

    assert judge(node, DISKS, change).outcome is Outcome.PASS
    verdict = judge(node, DISKS, unlisted)
    assert tells(verdict) == [("drive-attachment-unknown", "node01 /dev/sda", "the drive on lsblk's list", "not there")]
    assert verdict.outcome is Outcome.ERROR


def test_a_profile_counts_its_drives_once() -> None:
    parts = facts("node01").nodes["node01"].platform.host
    assert parts is not None
    assert parts.drive_gb == {1920: 2, 3840: 8}
    with pytest.raises(ValidationError, match="drive_gb counts 9 drives - Expected: 10, as drives says"):
        HostParts.model_validate({**parts.model_dump(), "drive_gb": {1920: 1, 3840: 8}})

"""What the agent refuses before anything is written, with the exact words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rackready.ondevice.agent.choose import Chosen, choose
from rackready.ondevice.agent.contents import look
from rackready.ondevice.agent.disks import Disk, discover, find, wait_for
from rackready.ondevice.agent.errors import ImagingError
from rackready.ondevice.agent.host import Ended
from rackready.ondevice.agent.job import ImagingRun
from rackready.ondevice.agent.plan import Ref, parse
from rackready.ondevice.agent.report import Reporter
from tests.unit.ondevice.agent.machine import DIGEST, LABEL, Machine, document, signatures

GB = 10**9
SIZE = 100 * GB // 512 * 512


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.add_disk("vda", size=SIZE, serial="S1")
    return machine


def chosen(machine: Machine, complete: tuple[str, ...] = (), **changes: object) -> Chosen:
    plan = parse(document(**changes))
    disks = discover(machine)
    return choose(plan, disks, {disk.name: look(machine, disk) for disk in disks}, complete)


def refused(machine: Machine, complete: tuple[str, ...] = (), **changes: object) -> tuple[str, str]:
    before = len(machine.ran)
    with pytest.raises(ImagingError) as caught:
        chosen(machine, complete, **changes)
    assert not any(word in line for line in machine.ran[before:] for word in ("--all", "mkfs", "--create", "--zero"))
    return caught.value.code, caught.value.message


def with_old_system(machine: Machine) -> None:
    machine.partitioned("vda", ["", "root"])
    machine.add_part("vda", "vda1", ("vfat", "ESP"))
    machine.add_part("vda", "vda2", ("ext4", "root"))


def test_an_empty_disk_is_taken(machine: Machine) -> None:
    found = chosen(machine)
    assert [disk.path for disk in found.system] == ["/dev/vda"]
    assert found.erased == ()
    assert not found.new_scratch


def test_a_disk_with_data_is_refused(machine: Machine) -> None:
    with_old_system(machine)
    assert refused(machine) == (
        "disk-has-data",
        (
            "/dev/vda (serial S1, 100.0 GB) - Expected: empty, or half-written by this plan Actual: gpt, 2 partitions; "
            "vfat 'ESP' on /dev/vda1; ext4 'root' on /dev/vda2. If nobody needs it, erase it: --erase node01."
        ),
    )


def test_a_disk_with_data_is_taken_when_the_operator_says_so(machine: Machine) -> None:
    with_old_system(machine)
    assert [disk.name for disk in chosen(machine, erase=True).erased] == ["vda"]


def test_an_empty_partition_table_is_data_too(machine: Machine) -> None:
    machine.partitioned("vda", [])
    assert "Actual: gpt, 0 partitions. If" in refused(machine)[1]


def test_bytes_without_a_signature_are_data(machine: Machine) -> None:
    with machine.path("/dev/vda").open("r+b") as device:
        device.seek(-100, 2)
        device.write(b"x")
    assert "Actual: data without a known signature. If" in refused(machine)[1]


def test_our_half_written_disk_is_written_again(machine: Machine) -> None:
    machine.partitioned("vda", [LABEL, LABEL])
    machine.add_part("vda", "vda1")
    machine.add_part("vda", "vda2", ("ext4", "root"))
    found = chosen(machine)
    assert [disk.name for disk in found.system] == ["vda"]
    assert found.erased == ()


def test_a_half_written_disk_of_another_plan_is_data(machine: Machine) -> None:
    machine.partitioned("vda", [LABEL, LABEL])
    assert refused(machine, digest="00" * 32)[0] == "disk-has-data"


def test_a_foreign_partition_beside_ours_is_data(machine: Machine) -> None:
    machine.partitioned("vda", [LABEL, LABEL, "data"])
    assert refused(machine)[0] == "disk-has-data"


def test_a_complete_system_of_the_same_plan_is_data(machine: Machine) -> None:
    """Its pair's other disk was replaced: what it holds is the running system's."""
    machine.partitioned("vda", [LABEL, LABEL])
    machine.add_disk("vdb", size=SIZE, serial="S2")
    pair = {"system": [{"serial": "S1"}, {"serial": "S2"}]}
    assert refused(machine, ("vda",), disks=pair)[0] == "disk-has-data"


def test_a_disk_that_is_not_listed_may_hold_anything(machine: Machine) -> None:
    machine.add_disk("vdb", size=SIZE, serial="OTHER")
    machine.partitioned("vdb", ["precious"])
    assert [disk.name for disk in chosen(machine).system] == ["vda"]


def test_a_missing_disk_is_named_with_those_present(machine: Machine) -> None:
    assert refused(machine, disks={"system": [{"serial": "S9"}]}) == (
        "disk-missing",
        (
            "disk serial S9 - Expected: present Actual: /dev/vda (serial S1, 100.0 GB). Correct the site file, or look at "  # noqa: E501
            "the disk."
        ),
    )


def test_no_disk_at_all_says_so(tmp_path: Path) -> None:
    with pytest.raises(ImagingError, match="Actual: no disk at all"):
        find(discover(Machine(tmp_path)), Ref(serial="S1"))


def test_two_disks_of_one_serial_are_ambiguous(machine: Machine) -> None:
    machine.add_disk("vdb", size=SIZE, serial="S1")
    code, message = refused(machine)
    assert code == "disk-ambiguous"
    assert message == (
        "disk serial S1 - Expected: one disk Actual: /dev/vda (serial S1, 100.0 GB), /dev/vdb (serial S1, 100.0 GB). "
        "Name it by path in the site file."
    )


def test_two_entries_for_one_disk_are_ambiguous(machine: Machine) -> None:
    machine.udev("vda", "S: disk/by-path/pci-0000:00:02.0")
    both = {"system": [{"serial": "S1"}], "scratch": [{"path": "/dev/disk/by-path/pci-0000:00:02.0"}]}
    assert refused(machine, disks=both) == (
        "disk-ambiguous",
        "disks - Expected: each once Actual: two entries mean /dev/vda. Correct the site file.",
    )


def test_a_small_disk_is_refused(machine: Machine) -> None:
    machine.add_disk("vda", size=3 * GB, serial="S1")
    assert refused(machine) == (
        "image-too-large",
        "/dev/vda (serial S1, 3.0 GB) - Expected: 4.1 GB for image debian12 Actual: 3.0 GB.",
    )


def test_a_mounted_disk_is_refused_even_to_erase(machine: Machine) -> None:
    with_old_system(machine)
    machine.put("/proc/mounts", "/dev/vda2 / ext4 rw 0 0\n")
    machine.put("/proc/swaps", "Filename Type Size Used Priority\n/dev/vda1 partition 1 0 -2\n")
    assert refused(machine, erase=True) == (
        "disk-in-use",
        (
            "/dev/vda (serial S1, 100.0 GB) - Expected: not in use Actual: /dev/vda2 is mounted, /dev/vda1 is used "
            "as swap."
        ),
    )


def test_a_member_of_an_array_or_volume_group_is_in_use(machine: Machine) -> None:
    with_old_system(machine)
    machine.put("/sys/block/vda/vda2/holders/md127/x")
    machine.put("/sys/block/vda/holders/dm-0/x")
    message = refused(machine, erase=True)[1]
    assert "Actual: /dev/vda is part of dm-0, /dev/vda2 is part of md127." in message


def test_a_read_only_disk_is_refused(machine: Machine) -> None:
    machine.put("/sys/block/vda/ro", "1\n")
    assert refused(machine)[0] == "disk-read-only"


def test_all_reasons_are_given_at_once(machine: Machine) -> None:
    machine.add_disk("vda", size=3 * GB, serial="S1")
    machine.put("/sys/block/vda/ro", "1\n")
    with_old_system(machine)
    code, message = refused(machine)
    assert code == "disk-read-only"
    assert [word in message for word in ("writable", "for image debian12", "--erase node01")] == [True] * 3


def test_an_unreadable_disk_is_no_empty_disk(machine: Machine) -> None:
    failed = Ended(1, "", "wipefs: error: /dev/vda: probing initialization failed: Input/output error\n")
    machine.answers["wipefs", "--json", "--no-act", "/dev/vda"] = failed
    assert refused(machine) == (
        "tool",
        (
            "`wipefs --json --no-act /dev/vda` - Expected: exit code 0 Actual: 1: wipefs: error: /dev/vda: probing "
            "initialization failed: Input/output error."
        ),
    )


LOCKED = Ended(1, "", "wipefs: error: /dev/nvme1n1: probing initialization failed: Input/output error\n")


def test_a_disk_that_the_plan_does_not_mean_may_be_dead(machine: Machine) -> None:
    machine.add_disk("nvme1n1", serial="DEAD", kind="nvme")
    machine.answers["wipefs", "--json", "--no-act", "/dev/nvme1n1"] = LOCKED
    run = started(machine)
    with pytest.raises(AssertionError):  # it goes on, and reports
        run.run()
    words = (
        "cannot be read: `wipefs --json --no-act /dev/nvme1n1` - Expected: exit code 0 Actual: 1: wipefs: error: "
        "/dev/nvme1n1: probing initialization failed: Input/output error."
    )
    assert [(row["path"], row["holds"]) for row in run.reporter.disks] == [("/dev/nvme1n1", [words]), ("/dev/vda", [])]


@pytest.mark.parametrize("kind", ["system", "scratch"])
def test_a_dead_disk_that_the_plan_means_is_refused(machine: Machine, kind: str) -> None:
    machine.add_disk("nvme1n1", serial="DEAD", kind="nvme")
    machine.answers["wipefs", "--json", "--no-act", "/dev/nvme1n1"] = LOCKED
    disks = {"system": [{"serial": "S1"}], "scratch": []}
    disks[kind] = [{"serial": "DEAD"}]
    with pytest.raises(ImagingError) as caught:
        started(machine, disks=disks, erase=True).run()
    assert (caught.value.code, caught.value.message) == (
        "tool",
        (
            "`wipefs --json --no-act /dev/nvme1n1` - Expected: exit code 0 Actual: 1: wipefs: error: /dev/nvme1n1: "
            "probing initialization failed: Input/output error."
        ),
    )


def test_the_paths_of_a_drive_with_native_multipath_are_no_disks(machine: Machine) -> None:
    """Linux (drivers/nvme/host) sets GENHD_FL_HIDDEN on the paths of a drive whose controller reports CMIC."""
    machine.add_disk("nvme0n1", serial="NV1", kind="nvme")
    machine.put("/sys/block/nvme0n1/hidden", "0\n")
    machine.put("/sys/block/nvme0c0n1/size", f"{(100 << 30) // 512}\n")
    machine.put("/sys/block/nvme0c0n1/device/serial", "NV1\n")
    machine.put("/sys/block/nvme0c0n1/hidden", "1\n")
    disks = discover(machine)
    assert [disk.name for disk in disks] == ["nvme0n1", "vda"]
    assert find(disks, Ref(serial="NV1")).name == "nvme0n1"


def scratch(*serials: str) -> dict[str, object]:
    return {"system": [{"serial": "S1"}], "scratch": [{"serial": name} for name in serials]}


def test_our_scratch_disk_is_kept(machine: Machine) -> None:
    machine.add_disk("vdb", size=SIZE, serial="S2")
    machine.answers["wipefs", "--json", "--no-act", "/dev/vdb"] = Ended(0, signatures("vdb", ("ext4", "scratch")))
    found = chosen(machine, disks=scratch("S2"), erase=True)
    assert [disk.name for disk in found.scratch] == ["vdb"]
    assert not found.new_scratch
    assert found.erased == ()


def test_our_striped_scratch_disks_are_kept(machine: Machine) -> None:
    for name, serial in (("vdb", "S2"), ("vdc", "S3")):
        machine.add_disk(name, size=SIZE, serial=serial)
        answer = Ended(0, signatures(name, ("linux_raid_member", "any:scratch")))
        machine.answers["wipefs", "--json", "--no-act", f"/dev/{name}"] = answer
    assert not chosen(machine, disks=scratch("S2", "S3")).new_scratch


def test_what_striped_scratch_holds_is_known_before_anything_is_written(machine: Machine) -> None:
    for name, serial in (("vdb", "S2"), ("vdc", "S3")):
        machine.add_disk(name, size=SIZE, serial=serial)
        answer = Ended(0, signatures(name, ("linux_raid_member", "any:scratch")))
        machine.answers["wipefs", "--json", "--no-act", f"/dev/{name}"] = answer
    machine.answers["wipefs", "--json", "--no-act", "/dev/md2"] = Ended(0, signatures("md2", ("crypto_LUKS", "")))
    with pytest.raises(ImagingError) as caught:
        started(machine, disks=scratch("S2", "S3"), erase=True).run()
    assert (caught.value.code, caught.value.message) == (
        "disk-has-data",
        (
            "scratch on /dev/vdb (serial S2, 100.0 GB), /dev/vdc (serial S3, 100.0 GB) - Expected: a file system, or "
            "nothing Actual: crypto_LUKS on /dev/md2. If nobody needs it, run `wipefs --all` on /dev/vdb, /dev/vdc by "
            "hand."
        ),
    )


def test_an_empty_scratch_disk_is_made(machine: Machine) -> None:
    machine.add_disk("vdb", size=SIZE, serial="S2")
    assert chosen(machine, disks=scratch("S2")).new_scratch


def test_a_scratch_disk_with_other_data_is_refused(machine: Machine) -> None:
    machine.add_disk("vdb", size=SIZE, serial="S2")
    machine.answers["wipefs", "--json", "--no-act", "/dev/vdb"] = Ended(0, signatures("vdb", ("xfs", "results")))
    code, message = refused(machine, disks=scratch("S2"))
    assert code == "disk-has-data"
    assert "Actual: xfs 'results' on /dev/vdb. If" in message


def test_disks_are_told_by_every_number_they_have(machine: Machine) -> None:
    machine.add_disk("nvme0n1", serial="NV1", kind="nvme")
    machine.add_disk("sda")
    machine.udev(
        "sda",
        "P: /devices/pci0000:00/sda",
        "S: disk/by-id/wwn-0x5000c500a1b2c3d4",
        "E: ID_SERIAL_SHORT=5000c500a1b2c3d4",
        "E: ID_SCSI_SERIAL=ZA1B2C3D",
        "E: ID_MODEL=ST4000NM0035",
    )
    machine.put("/sys/block/sr0/size", "100\n")
    machine.put("/sys/block/loop0/size", "100\n")
    machine.put("/sys/block/sdb/size", "0\n")
    nvme, sda, vda = discover(machine)
    assert (nvme.serial, nvme.part(2), vda.part(2)) == ("NV1", "/dev/nvme0n1p2", "/dev/vda2")
    assert sda == Disk("sda", 100 << 30, ("ZA1B2C3D", "5000c500a1b2c3d4"), "ST4000NM0035", sda.links)
    assert sda.fits(Ref(path="/dev/disk/by-id/wwn-0x5000c500a1b2c3d4"))
    assert sda.fits(Ref(serial="5000c500a1b2c3d4"))


def test_late_disks_are_waited_for(machine: Machine) -> None:
    assert [disk.name for disk in wait_for(machine, [Ref(serial="S9")], limit_s=0.02, pause=0.01)] == ["vda"]
    assert machine.ran.count("udevadm settle --timeout=30") >= 2
    machine.ran.clear()
    wait_for(machine, [Ref(serial="S1")])
    assert machine.ran.count("udevadm settle --timeout=30") == 1


def test_the_digest_of_tests_fits_the_label() -> None:
    assert parse(document()).label == LABEL == f"rackready-{DIGEST[:8]}"


def started(machine: Machine, **changes: object) -> ImagingRun:
    """A run of the agent that would only begin: whatever it asks for after its checks is an error of the test."""
    machine.put("/sys/class/dmi/id/product_serial", "ABC123\n")
    return ImagingRun(machine, parse(document(**changes)), no_stream, Reporter(no_report, "https://b/plan.json", "0a"))


def no_stream(_url: str, _size: int) -> Iterator[bytes]:
    raise AssertionError


def no_report(_url: str, _document: object, *, tries: int = 0) -> None:
    raise AssertionError(tries)


def test_another_machine_than_the_plans_is_refused(machine: Machine) -> None:
    with pytest.raises(ImagingError) as caught:
        started(machine, serial="OTHER").run()
    assert (caught.value.code, caught.value.message) == (
        "serial-mismatch",
        (
            "this machine - Expected: serial OTHER of node01 Actual: product_serial ABC123. Compare cabling and site "
            "file: the plan of another machine reached this one."
        ),
    )


@pytest.mark.parametrize(
    ("wanted", "variable", "actual"),
    [
        ("on", b"\6\0\0\0\0", "off"),
        ("off", b"\6\0\0\0\1", "on"),
        ("on", None, "no UEFI variable SecureBoot"),
    ],
)
def test_another_state_of_secure_boot_is_refused_before_anything_else(
    machine: Machine, wanted: str, variable: bytes | None, actual: str
) -> None:
    secure_boot(machine, variable)
    with pytest.raises(ImagingError) as caught:
        started(machine, secure_boot=wanted).run()
    assert (caught.value.code, caught.value.message) == (
        "secure-boot",
        (
            f"Secure Boot - Expected: {wanted} Actual: {actual}. "
            "Set it in the firmware setup, or set provisioning.secure_boot: any."
        ),
    )
    assert machine.ran == []


@pytest.mark.parametrize(
    ("wanted", "variable"),
    [("on", b"\6\0\0\0\1"), ("off", b"\6\0\0\0\0"), ("any", b"\6\0\0\0\1"), ("any", None)],
)
def test_the_wanted_state_of_secure_boot_is_no_obstacle(machine: Machine, wanted: str, variable: bytes | None) -> None:
    secure_boot(machine, variable)
    with pytest.raises(AssertionError):  # it goes on, and reports
        started(machine, secure_boot=wanted).run()
    assert machine.ran


def secure_boot(machine: Machine, value: bytes | None) -> None:
    """Set the firmware's variable: four bytes of attributes, then the value."""
    if value is not None:
        path = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
        machine.put(path)
        machine.path(path).write_bytes(value)

"""Scratch drives that erase themselves: what is refused, what is made anew, and a kill at each step.

Shapes: `mdadm --detail --export` of mdadm 4.2, `blkid --output export` of util-linux 2.38; only the fields that are
read. Identify Controller and Namespace: NVM Express Base 2.0, 5.17.2.1, and NVM Command Set 1.0, 4.1.5.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackready.ondevice import scratch_drives, scratch_erase
from rackready.ondevice.nvme_admin import NvmeDrive, NvmeError, drive_of
from rackready.ondevice.scratch_drives import Drives
from rackready.ondevice.scratch_erase import answer

SIZE = 64 * 4096
UUID, ARRAY = "0f9c6f0e-6d5b-4f5f-8f37-0d5b3c6f3a11", "6d8f7c1b:0a1b2c3d:4e5f6071:82939a4b"


class KilledError(Exception):
    """The process ends here."""


class Made(Drives):
    """Drives that are files, and programs that act on them."""

    def __init__(self, root: Path, *drives: str, array: str = "md2", kind: str = "xfs") -> None:
        super().__init__(str(root))
        self.drives, self.array, self.kind = list(drives), array, kind
        self.calls: list[str] = []
        self.kill_at = -1
        self.fna, self.oacs, self.flbas, self.dps = 0, 2, 1, 0
        self.level, self.chunk, self.layout = "raid0", "524288", "-1"  # as Linux 6.1 shows them
        self.missing = ""
        self.limits: list[float] = []
        self.works = True
        self.fails: dict[str, str] = {}
        for drive in drives:
            self.drive(drive)
        if array:
            self.assemble()
        self.mount()

    def drive(self, name: str) -> None:
        for folder in (f"sys/block/{name}/holders", f"sys/devices/{name}/{name}"):
            self.at(folder).mkdir(parents=True)
        self.at(f"sys/block/{name}/device").symlink_to(self.at(f"sys/devices/{name}"))
        self.at(f"sys/block/{name}/wwid").write_text(f"eui.0025384{name}\n")
        self.at(f"sys/devices/{name}/serial").write_text(f"S6{name}  \n")
        self.at("dev").mkdir(exist_ok=True)
        self.at(f"dev/{name}").write_bytes(b"tenant's data " * (SIZE // 14))
        with self.at(f"dev/{name}").open("r+b") as file:
            file.truncate(SIZE)

    def assemble(self) -> None:
        self.at(f"dev/{self.array}").write_bytes(b"")
        self.assemble_again()

    def mount(self) -> None:
        device = f"/dev/{self.array or self.drives[0]}"
        self.at("proc/self").mkdir(parents=True, exist_ok=True)
        self.at("scratch").mkdir(exist_ok=True)
        self.at("proc/self/mounts").write_text(
            f"/dev/sda2 / ext4 rw 0 0\n{device} /scratch {self.kind} rw,noatime 0 0\n"
        )

    def run(self, *argv: str, timeout_s: float = 120) -> tuple[int, str]:
        del timeout_s
        changes = argv[0] in {"umount", "mount", "mdadm"} or argv[0].startswith("mkfs")
        if changes and argv[1:2] != ("--detail",):
            self.call(" ".join(argv))
        if argv[0] in self.fails:
            return 1, self.fails[argv[0]]
        return self.act(argv)

    def call(self, words: str) -> None:
        self.calls.append(words)
        if len(self.calls) == self.kill_at:
            self.kill_at = -1
            raise KilledError

    def has(self, program: str) -> bool:
        return program != self.missing

    def look(self, device: str) -> NvmeDrive:
        assert self.at(device).exists()
        controller, namespace = bytearray(4096), bytearray(4096)
        controller[256], controller[524] = self.oacs, self.fna
        namespace[26], namespace[29] = self.flbas, self.dps
        return drive_of(1, bytes(controller), bytes(namespace))

    def format(self, device: str, drive: NvmeDrive, timeout_s: float) -> None:
        self.limits.append(timeout_s)
        self.call(f"format {device} nsid=0x{drive.nsid:x} cdw10=0x{drive.cdw10:x}")
        if "format" in self.fails:
            raise NvmeError(self.fails["format"])
        if self.works:
            self.at(device).write_bytes(bytes(SIZE))

    def act(self, argv: tuple[str, ...]) -> tuple[int, str]:
        if argv[:2] == ("mdadm", "--detail"):
            return 0, self.detail()
        if argv[:2] == ("mdadm", "--stop"):
            shutil.rmtree(self.at(f"sys/block/{self.array}/md"))
            for drive in self.drives:
                self.at(f"sys/block/{drive}/holders/{self.array}").rmdir()
        elif argv[:2] == ("mdadm", "--create"):
            self.assemble_again()
        elif argv[0] == "umount":
            self.at("proc/self/mounts").write_text("/dev/sda2 / ext4 rw 0 0\n")
        elif argv[0] == "mount":
            self.mount()
        elif argv[0] == "blkid":
            return 0, f"DEVNAME={argv[-1]}\nLABEL=scratch\nUUID={UUID}\nTYPE={self.kind}\n"
        return 0, ""

    def detail(self) -> str:
        head = f"MD_LEVEL={self.level}\nMD_DEVICES={len(self.drives)}\nMD_METADATA=1.2\n"
        head += f"MD_UUID={ARRAY}\nMD_NAME=any:scratch\n"
        rows = [
            f"MD_DEVICE_dev_{name}_ROLE={k}\nMD_DEVICE_dev_{name}_DEV=/dev/{name}\n"
            for k, name in enumerate(self.drives)
        ]
        return head + "".join(rows)

    def assemble_again(self) -> None:
        self.at(f"sys/block/{self.array}/md").mkdir(parents=True, exist_ok=True)
        self.at(f"sys/block/{self.array}/md/chunk_size").write_text(f"{self.chunk}\n")
        self.at(f"sys/block/{self.array}/md/layout").write_text(f"{self.layout}\n")
        for drive in self.drives:
            self.at(f"sys/block/{drive}/holders/{self.array}").mkdir(exist_ok=True)


def ask(disks: Made, op: str = "erase", *mounts: str) -> dict[str, Any]:
    return answer(disks, {"op": op, "scratch": list(mounts or ("/scratch",))})


NAMED = f"--uuid={ARRAY} --name=scratch --homehost=any"
MEMBERS = f"--raid-devices=2 --metadata=1.2 {NAMED} /dev/nvme1n1 /dev/nvme2n1"
ARRAY_CALLS = [
    "umount /scratch",
    "mdadm --stop /dev/md2",
    "format /dev/nvme1n1 nsid=0x1 cdw10=0x201",
    "format /dev/nvme2n1 nsid=0x1 cdw10=0x201",
    f"mdadm --create /dev/md2 --run --quiet --level=raid0 --chunk=512 {MEMBERS}",
    f"mkfs.xfs -q -f -m uuid={UUID} -L scratch /dev/md2",
    "mount -t xfs -o rw,noatime /dev/md2 /scratch",
]


def test_a_striped_scratch_is_erased_and_made_anew(tmp_path: Path) -> None:
    disks = Made(tmp_path, "nvme1n1", "nvme2n1")
    disks.at("scratch").chmod(0o1777)
    found = ask(disks)
    assert (found["refused"], found["erased"], found["begun"]) == ("", ["/dev/nvme1n1", "/dev/nvme2n1"], False)
    assert disks.calls == ARRAY_CALLS
    assert not any(b"tenant" in disks.at(f"dev/{name}").read_bytes() for name in disks.drives)
    assert disks.at("scratch").stat().st_mode & 0o7777 == 0o1777


def test_one_drive_that_can_erases_cryptographically(tmp_path: Path) -> None:
    disks = Made(tmp_path, "nvme1n1", array="", kind="ext4")
    disks.fna = 4
    assert ask(disks)["refused"] == ""
    assert disks.calls == [
        "umount /scratch",
        "format /dev/nvme1n1 nsid=0x1 cdw10=0x401",
        f"mkfs.ext4 -q -F -m 0 -U {UUID} -L scratch /dev/nvme1n1",
        "mount -t ext4 -o rw,noatime /dev/nvme1n1 /scratch",
    ]


def test_a_look_changes_nothing(tmp_path: Path) -> None:
    disks = Made(tmp_path, "nvme1n1", "nvme2n1")
    found = ask(disks, "look")
    assert [plan["members"] for plan in found["plans"]] == [["/dev/nvme1n1", "/dev/nvme2n1"]]
    assert (found["begun"], disks.calls) == (False, [])


def test_a_drive_that_only_says_that_it_erased_is_found_out(tmp_path: Path) -> None:
    disks = Made(tmp_path, "nvme1n1", array="")
    disks.works = False
    found = ask(disks)
    assert found["refused"] == ("/dev/nvme1n1: Format NVM ended well, but the mark at byte 0 is still there")
    assert found["begun"], "the plan is kept, so the next run begins with the drives"


@pytest.mark.parametrize("place", range(1, len(ARRAY_CALLS) + 1))
def test_a_run_that_was_killed_is_done_again_from_its_plan(tmp_path: Path, place: int) -> None:
    disks = Made(tmp_path, "nvme1n1", "nvme2n1")
    disks.kill_at = place
    with pytest.raises(KilledError):
        ask(disks)
    found = ask(disks)
    assert (found["refused"], found["begun"]) == ("", False)
    assert disks.calls[-1] == ARRAY_CALLS[-1]
    assert [call for call in disks.calls if call.startswith("format")][-2:] == ARRAY_CALLS[2:4]
    assert not any(b"tenant" in disks.at(f"dev/{name}").read_bytes() for name in disks.drives)


def test_a_program_that_fails_is_told_with_its_words(tmp_path: Path) -> None:
    disks = Made(tmp_path, "nvme1n1", "nvme2n1")
    disks.fails["umount"] = "umount: /scratch: target is busy.\n"
    assert ask(disks)["refused"] == "umount /scratch: exit 1: umount: /scratch: target is busy."
    assert b"tenant" in disks.at("dev/nvme1n1").read_bytes()


def partition(disks: Made) -> None:
    disks.at("sys/block/nvme1n1/nvme1n1p1").mkdir()


def other_holder(disks: Made) -> None:
    disks.at("sys/block/nvme1n1/holders/dm-0").mkdir()


def second_namespace(disks: Made) -> None:
    disks.at("sys/devices/nvme1n1/nvme1n2").mkdir()


def other_file_system(disks: Made) -> None:
    disks.kind = "btrfs"
    disks.mount()


def unmounted(disks: Made) -> None:
    disks.at("proc/self/mounts").write_text("")


def member_lost(disks: Made) -> None:
    real = disks.act
    lost = "MD_LEVEL=raid0\nMD_DEVICES=2\nMD_METADATA=1.2\nMD_UUID=x\nMD_DEVICE_dev_nvme1n1_ROLE=0\n"
    found = f"{lost}MD_DEVICE_dev_nvme1n1_DEV=/dev/nvme1n1\n"
    disks.act = lambda argv: (0, found) if argv[:2] == ("mdadm", "--detail") else real(argv)  # type: ignore[method-assign]


def spare_member(disks: Made) -> None:
    real = disks.detail
    row = "MD_DEVICE_dev_nvme3n1_ROLE=spare\nMD_DEVICE_dev_nvme3n1_DEV=/dev/nvme3n1\n"
    disks.detail = lambda: real() + row  # type: ignore[method-assign]


def reshaped(disks: Made) -> None:
    disks.chunk = "524288 (65536)"
    disks.assemble_again()


def strange_layout(disks: Made) -> None:
    disks.level, disks.layout = "raid6", "18"
    disks.assemble_again()


def without_format(disks: Made) -> None:
    disks.oacs = 0


def no_answer(disks: Made) -> None:
    def look(_device: str) -> NvmeDrive:
        raise OSError(25, "Inappropriate ioctl for device")

    disks.look = look  # type: ignore[method-assign]


def no_program(disks: Made) -> None:
    disks.missing = "mkfs.xfs"


def nameless(disks: Made) -> None:
    disks.at("sys/block/nvme1n1/wwid").unlink()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (partition, "/scratch: /dev/nvme1n1: also used by nvme1n1p1"),
        (other_holder, "/scratch: /dev/nvme1n1: also used by dm-0"),
        (
            second_namespace,
            "/scratch: /dev/nvme1n1: its drive has other namespaces (nvme1n2), which a format may erase",
        ),
        (other_file_system, "/scratch: a btrfs file system; only ext4 and xfs are made anew"),
        (unmounted, "/scratch: nothing is mounted there, so its disks are not known"),
        (spare_member, "/dev/md2: nvme3n1: spare or failed in the array, and not erased with it"),
        (nameless, "/dev/nvme1n1: the kernel tells no identity of it: wwid '', serial 'S6nvme1n1'"),
        (reshaped, "/dev/md2: chunk_size '524288 (65536)': the array is reshaped now"),
        (strange_layout, "/dev/md2: a raid6 of layout 18, which would not be made anew"),
        (without_format, "/dev/nvme1n1: its drive cannot erase itself: no Format NVM (OACS bit 1)"),
        (
            no_answer,
            "/dev/nvme1n1: its drive does not say what it can do: [Errno 25] Inappropriate ioctl for device",
        ),
        (no_program, "/scratch: mkfs.xfs is not installed, so its file system could not be made anew"),
        (member_lost, "/dev/md2: an array whose members are not all there: mdadm --detail --export says so"),
    ],
)
def test_what_is_not_erased(tmp_path: Path, change: Callable[[Made], None], text: str) -> None:
    disks = Made(tmp_path, "nvme1n1", "nvme2n1")
    change(disks)
    found = ask(disks)
    assert (found["refused"], found["begun"], disks.calls) == (text, False, [])
    assert b"tenant" in disks.at("dev/nvme1n1").read_bytes()


def test_a_disk_that_is_no_nvme_is_refused(tmp_path: Path) -> None:
    disks = Made(tmp_path, "sdb", array="")
    assert ask(disks)["refused"] == "/scratch: /dev/sdb: no whole NVMe namespace, so its drive cannot erase it alone"


def test_another_path_to_the_same_namespace_is_no_other_one(tmp_path: Path) -> None:
    disks = Made(tmp_path, "nvme1n1", array="")
    disks.at("sys/devices/nvme1n1/nvme1c1n1").mkdir()
    assert ask(disks)["refused"] == ""


def test_the_format_of_blocks_is_kept(tmp_path: Path) -> None:
    disks = Made(tmp_path, "nvme1n1", array="")
    disks.flbas, disks.dps = (
        0x33,
        0x0A,
    )  # LBA format 19 with metadata in the block, protection type 2 in its first bytes
    assert ask(disks)["refused"] == ""
    assert "format /dev/nvme1n1 nsid=0x1 cdw10=0x1353" in disks.calls


def test_a_drive_that_formats_only_all_of_it_is_asked_for_that(tmp_path: Path) -> None:
    disks = Made(tmp_path, "nvme1n1", array="")
    disks.fna = 1
    assert ask(disks)["refused"] == ""
    assert "format /dev/nvme1n1 nsid=0xffffffff cdw10=0x201" in disks.calls


def test_an_erase_has_the_time_that_its_size_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disks = Made(tmp_path, "nvme1n1", "nvme2n1")
    monkeypatch.setattr(disks, "size", lambda _: 15_360_000_000_000)
    monkeypatch.setattr(disks, "places", lambda _: [0, SIZE // 2, SIZE - 4096])
    assert ask(disks, "look")["longest_s"] == 2 * (3600 + 15360)
    assert ask(disks)["refused"] == ""
    assert disks.limits == [3600 + 15360] * 2
    assert disks.limits[0] > 15.36e12 / 4e9 * 2, "the whole drive, overwritten"


def test_a_drive_that_did_not_erase_itself_is_told(tmp_path: Path) -> None:
    disks = Made(tmp_path, "nvme1n1", array="")
    disks.fails["format"] = "admin command 0x80: NVMe status 0x10a"
    found = ask(disks)
    assert found["refused"] == "/dev/nvme1n1: its drive did not erase itself: admin command 0x80: NVMe status 0x10a"
    assert found["begun"]


@pytest.mark.parametrize(
    ("level", "chunk", "layout", "wanted"),
    [
        ("raid1", "0", "0", ""),
        ("raid5", "65536", "2", "--chunk=64 --layout=left-symmetric "),
        ("raid6", "524288", "0", "--chunk=512 --layout=left-asymmetric "),
        ("raid10", "524288", "258", "--chunk=512 --layout=n2 "),
        ("raid10", "524288", "513", "--chunk=512 --layout=f2 "),
        ("raid10", "524288", "66049", "--chunk=512 --layout=o2 "),
    ],
)
def test_chunk_size_and_layout_return(tmp_path: Path, level: str, chunk: str, layout: str, wanted: str) -> None:
    disks = Made(tmp_path, "nvme1n1", "nvme2n1")
    disks.level, disks.chunk, disks.layout = level, chunk, layout
    disks.assemble_again()
    assert ask(disks)["refused"] == ""
    assert disks.calls[4].startswith(
        f"mdadm --create /dev/md2 --run --quiet --level={level} {wanted}--raid-devices=2 --metadata=1.2 "
    )


def test_marks_lie_at_both_ends_and_in_the_middle(tmp_path: Path) -> None:
    disks = Made(tmp_path, "nvme1n1", array="")
    assert disks.places("/dev/nvme1n1") == [0, SIZE // 2, SIZE - scratch_drives.MARK_BYTES]


def test_a_plan_of_an_earlier_run_does_not_erase_what_is_in_use_now(tmp_path: Path) -> None:
    disks = Made(tmp_path, "nvme1n1", array="")
    disks.kill_at = 2
    with pytest.raises(KilledError):
        ask(disks)
    disks.at("proc/self/mounts").write_text("/dev/nvme1n1 / ext4 rw 0 0\n")
    assert ask(disks)["refused"] == "/scratch: /dev/nvme1n1 is also mounted at /"
    assert b"tenant" in disks.at("dev/nvme1n1").read_bytes()


def test_a_plan_of_an_earlier_run_does_not_erase_another_drive_of_that_name(tmp_path: Path) -> None:
    disks = Made(tmp_path, "nvme1n1", array="")
    disks.kill_at = 2
    with pytest.raises(KilledError):
        ask(disks)
    disks.at("sys/devices/nvme1n1/serial").write_text("S6OTHER")
    was, now = "eui.0025384nvme1n1 S6nvme1n1", "eui.0025384nvme1n1 S6OTHER"
    assert ask(disks)["refused"] == (
        f"/dev/nvme1n1: was {was} when the erase began, and is {now}: its plan is {scratch_erase.JOURNAL}"
    )
    assert b"tenant" in disks.at("dev/nvme1n1").read_bytes()


def test_a_drive_that_a_container_has_mounted_is_not_erased(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disks = Made(tmp_path, "nvme1n1", "nvme2n1")

    def busy(device: str) -> None:
        if device == "/dev/nvme2n1":
            raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(disks, "take", busy)
    found = ask(disks)
    expected = "/dev/nvme2n1: still in use, by a container perhaps: Device or resource busy"
    assert (found["refused"], found["begun"]) == (expected, True)
    assert not any(call.startswith("format") for call in disks.calls)


def test_two_runs_at_once_do_not_erase(tmp_path: Path) -> None:
    disks = Made(tmp_path, "nvme1n1", array="")
    with scratch_erase.alone(disks):
        found = ask(disks)
    assert (found["refused"], disks.calls) == ("another run erases these drives: wait for its end", [])
    assert ask(disks)["refused"] == ""

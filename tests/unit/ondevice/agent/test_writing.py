"""What is written, and in which order: partitions, arrays, first-boot settings, boot loader, marker."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from rackready.ondevice.agent import configure, layout, loader, present, scratch
from rackready.ondevice.agent.choose import Chosen
from rackready.ondevice.agent.contents import Contents, Signature, look
from rackready.ondevice.agent.disks import Disk, discover
from rackready.ondevice.agent.errors import ImagingError
from rackready.ondevice.agent.host import Ended
from rackready.ondevice.agent.job import ImagingRun
from rackready.ondevice.agent.plan import parse
from rackready.ondevice.agent.report import Reporter
from tests.unit.ondevice.agent.machine import DIGEST, LABEL, Machine, document, signatures

ROOT_UUID, ESP_UUID = "4a6e57a8-180a-404c-ac83-4f0c194ebbd1", "ABBE-57F4"
VDA, VDB = Disk("vda", 100 << 30, ("S1",)), Disk("vdb", 100 << 30, ("S2",))
PLAN = parse(document())
ROCKY = 'ID="rocky"\nID_LIKE="rhel centos fedora"\n'
ARRAY = "79d2a5f3:0b5ab1c5:a24c5d23:8ea3d9d4"
EXPORTED = f"MD_LEVEL=raid1\nMD_DEVICES=2\nMD_METADATA=1.2\nMD_UUID={ARRAY}\nMD_DEVNAME=md1\nMD_NAME=any:root\n"
"""Lines of mdadm 4.2 (mdadm-project/mdadm, Detail.c)."""
FIRMWARE = (
    "BootCurrent: 0003\nTimeout: 0 seconds\nBootOrder: 0001,0000,0002,0003\nBoot0000* UiApp\n"
    "Boot0001* debian (rackready 1)\nBoot0002* UEFI PXEv4 (MAC:525400000001)\nBoot0003* debian\n"
)
"""efibootmgr 17 of Debian 12 without -v, with OVMF."""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path / "machine")
    for name in ("vda", "vdb"):
        machine.add_disk(name, serial={"vda": "S1", "vdb": "S2"}[name])
        for number in (1, 2):
            machine.put(f"/sys/block/{name}/{name}{number}/partition", f"{number}\n")
    for device, uuid in (("/dev/vda2", ROOT_UUID), ("/dev/vda1", ESP_UUID)):
        words = ("blkid", "--probe", "--match-tag", "UUID", "--output", "value", device)
        machine.answers[words] = Ended(0, f"{uuid}\n")
    return machine


@pytest.fixture
def target(tmp_path: Path) -> Path:
    target = tmp_path / "target"
    for name in ("etc/ssh", "usr/lib", "var/lib/dbus"):
        (target / name).mkdir(parents=True)
    (target / "usr/lib/os-release").write_text('ID=debian\nVERSION_ID="12"\n')
    return target


def test_one_disk_gets_an_esp_and_a_root(machine: Machine) -> None:
    made = layout.partition(machine, PLAN, [VDA])
    assert made == layout.Volumes("/dev/vda1", "/dev/vda2", pair=False)
    assert machine.ran == [
        "sfdisk --quiet --wipe always --wipe-partitions always /dev/vda",
        "blockdev --rereadpt /dev/vda",
        "udevadm settle --timeout=60",
        "mkfs.ext4 -q -F -O ^metadata_csum_seed,^orphan_file -L root /dev/vda2",
    ]
    assert machine.inputs == [
        (
            f'label: gpt\nsize=550MiB, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, name="{LABEL}"\n'
            f'type=0FC63DAF-8483-4772-8E79-3D69D8477DE4, name="{LABEL}"\n'
        )
    ]


def test_a_pair_is_raid1_with_the_esp_readable_as_a_plain_partition(machine: Machine) -> None:
    made = layout.partition(machine, PLAN, [VDA, VDB])
    assert made == layout.Volumes("/dev/md0", "/dev/md1", pair=True)
    created = [line for line in machine.ran if line.startswith("mdadm")]
    assert created == [
        (
            "mdadm --create /dev/md0 --run --quiet --name=esp --homehost=any --level=1 --raid-devices=2 --metadata=1.0 "
            "/dev/vda1 /dev/vdb1"
        ),
        (
            "mdadm --create /dev/md1 --run --quiet --name=root --homehost=any --level=1 --raid-devices=2 --metadata=1.2 "  # noqa: E501
            "--bitmap=internal /dev/vda2 /dev/vdb2"
        ),
    ]


def test_other_partitions_than_the_written_ones_are_a_failure(machine: Machine) -> None:
    machine.put("/sys/block/vda/vda3/partition", "3\n")
    with pytest.raises(ImagingError) as caught:
        layout.partition(machine, PLAN, [VDA])
    assert caught.value.message == ("/dev/vda (serial S1, 107.4 GB) - Expected: 2 partitions Actual: vda1, vda2, vda3.")


def test_superblocks_of_arrays_go_before_the_partitions_do(machine: Machine) -> None:
    found = Contents(
        signatures=(Signature("/dev/vda2", "linux_raid_member", "host:0"), Signature("/dev/vda3", "LVM2_member")),
        parts=("/dev/vda2", "/dev/vda3"),
    )
    layout.erase(machine, VDA, found)
    assert machine.ran == [
        "mdadm --zero-superblock --force /dev/vda2",
        "wipefs --all --force --quiet /dev/vda2",
        "wipefs --all --force --quiet /dev/vda3",
    ]


def test_several_scratch_disks_are_striped(machine: Machine) -> None:
    layout.make_scratch(machine, PLAN, Chosen((), (VDA, VDB), new_scratch=True, erased=()))
    assert machine.ran[2:] == [
        "modprobe raid0",
        (
            "mdadm --create /dev/md2 --run --quiet --name=scratch --homehost=any --level=0 --raid-devices=2 --metadata=1.2 "  # noqa: E501
            "/dev/vda /dev/vdb"
        ),
        "mkfs.ext4 -q -F -m 0 -L scratch /dev/md2",
    ]


BLKID = "blkid --probe --usages filesystem --match-tag TYPE --output value"


def striped(machine: Machine, code: int, kind: str = "", first: bytes = b"") -> None:
    """Add the array of scratch disks, of which blkid says this; ``first``: what begins it."""
    machine.put("/sys/block/md2/size", f"{(4 << 20) // 512}\n")
    machine.put("/sys/block/md2/md/level", "raid0\n")
    machine.path("/dev/md2").write_bytes(first.ljust(4 << 20, b"\0"))
    machine.answers[tuple(BLKID.split())] = Ended(code, f"{kind}\n" if kind else "", "said\n" if code > 2 else "")


def test_an_array_whose_file_system_the_power_cut_off_gets_one_and_is_not_made_again(machine: Machine) -> None:
    striped(machine, 2)
    assert scratch.lacks_file_system(machine, PLAN, (VDA, VDB))
    looked = [line for line in machine.ran if not line.startswith("modprobe")]
    assert looked == [
        "mdadm --assemble /dev/md2 --run --readonly /dev/vda /dev/vdb",
        f"{BLKID} /dev/md2",
        "wipefs --json --no-act /dev/md2",
        "mdadm --stop /dev/md2",
    ]
    machine.ran.clear()
    run = ImagingRun(machine, PLAN, lambda _url, _size: iter(()), Reporter(lambda *_a, **_k: None, "", ""))
    chosen = Chosen((), (VDA, VDB), new_scratch=False, erased=(), no_file_system=True)
    assert run._scratch(chosen, {}) == "/dev/md2"
    assert machine.ran[1:] == [
        "mdadm --assemble /dev/md2 --run /dev/vda /dev/vdb",
        "mkfs.ext4 -q -F -m 0 -L scratch /dev/md2",
    ]


@pytest.mark.parametrize(
    ("kind", "first", "lacks"),
    [
        ("ext4", b"", False),
        ("xfs", b"XFSB".ljust(512, b"\0"), False),
        ("xfs", b"XFSB".ljust(126, b"\0") + b"\1", True),
    ],
)
def test_a_finished_file_system_is_kept(machine: Machine, kind: str, first: bytes, *, lacks: bool) -> None:
    striped(machine, 0, kind, first)
    assert scratch.lacks_file_system(machine, PLAN, (VDA, VDB)) is lacks


@pytest.mark.parametrize(
    ("code", "found", "erase", "message"),
    [
        (2, (), False, "Actual: data without a known signature. If nobody needs it, erase it: --erase node01."),
        (2, (), True, ""),
        (2, ("LVM2_member", ""), True, "Actual: LVM2_member on /dev/md2. If nobody needs it, run `wipefs --all` on"),
        (0, ("gpt", ""), True, "Actual: gpt on /dev/md2. If nobody needs it, run `wipefs --all` on /dev/vda, /dev/vdb"),
        (8, (), True, "`blkid` of /dev/md2 - Expected: one file system or none Actual: 8: said."),
        (4, (), True, "`blkid` of /dev/md2 - Expected: one file system or none Actual: 4: said."),
    ],
)
def test_an_array_with_other_data_is_never_formatted_unasked(
    machine: Machine, code: int, found: tuple[str, ...], message: str, *, erase: bool
) -> None:
    striped(machine, code, first=b"".ljust(5000, b"d"))
    if found:
        answer = Ended(0, signatures("/dev/md2", (found[0], found[1])))
        machine.answers["wipefs", "--json", "--no-act", "/dev/md2"] = answer
    plan = parse(document(erase=erase))
    if not message:
        assert scratch.lacks_file_system(machine, plan, (VDA, VDB))
        return
    with pytest.raises(ImagingError) as caught:
        scratch.lacks_file_system(machine, plan, (VDA, VDB))
    assert message in caught.value.message
    assert machine.ran[-1] == "mdadm --stop /dev/md2"


def test_kept_scratch_is_mounted_as_what_it_is(machine: Machine) -> None:
    machine.answers["blkid", "--probe", "--match-tag", "UUID", "--output", "value", "/dev/vdb"] = Ended(0, "U\n")
    machine.answers[(*BLKID.split(), "/dev/vdb")] = Ended(0, "ext4\n")
    disks = {"system": [{"serial": "S1"}], "scratch": [], "scratch_filesystem": "xfs", "scratch_mount": "/scratch"}
    table = configure.fstab(machine, parse(document(disks=disks)), layout.volumes([VDA]), "/dev/vdb")
    assert "UUID=U /scratch ext4 defaults,nofail," in table


def test_the_first_boot_finds_its_mounts_and_its_seed(machine: Machine, target: Path) -> None:
    (target / "etc/machine-id").write_text("0123\n")
    (target / "var/lib/dbus/machine-id").symlink_to("/etc/machine-id")
    (target / "etc/ssh/ssh_host_ed25519_key").write_text("of the image")
    (target / "etc/hostname").symlink_to("/etc/passwd")
    configure.configure(machine, PLAN, target, layout.volumes([VDA]), "")
    assert (target / "etc/fstab").read_text() == (
        "# Written by rackready.\n"
        f"UUID={ROOT_UUID} / ext4 errors=remount-ro 0 1\nUUID={ESP_UUID} /boot/efi vfat umask=0077 0 1\n"
    )
    assert (target / "etc/machine-id").read_text() == ""
    assert (target / "etc/hostname").read_text() == "node01\n"
    assert not (target / "etc/hostname").is_symlink()
    assert not (target / "var/lib/dbus/machine-id").is_symlink()
    assert list((target / "etc/ssh").iterdir()) == []
    folder = target / "var/lib/cloud/seed/nocloud"
    assert sorted(path.name for path in folder.iterdir()) == ["meta-data", "network-config", "user-data"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "user-data").stat().st_mode) == 0o600
    assert "datasource_list: [NoCloud, None]" in (target / "etc/cloud/cloud.cfg.d/99-rackready.cfg").read_text()


def test_a_pair_names_its_arrays_in_the_initramfs(machine: Machine, target: Path) -> None:
    machine.answers["mdadm", "--detail", "--scan"] = Ended(
        0, "ARRAY /dev/md1 metadata=1.2 name=any:root UUID=1:2:3:4\n"
    )
    machine.answers["blkid",] = Ended(0, f"{ROOT_UUID}\n")
    configure.configure(machine, PLAN, target, layout.volumes([VDA, VDB]), "")
    assert "ARRAY /dev/md1 metadata=1.2" in (target / "etc/mdadm/mdadm.conf").read_text()
    assert any(line.endswith("update-initramfs -u -k all") for line in machine.ran)


@pytest.mark.parametrize(("disks", "options"), [([VDA], ""), ([VDA, VDB], " --mdadmconf --add mdraid")])
def test_rhel_gets_an_initramfs_for_any_hardware(
    machine: Machine, target: Path, disks: list[Disk], options: str
) -> None:
    (target / "usr/lib/os-release").write_text(ROCKY)
    machine.answers["mdadm", "--detail", "--scan"] = Ended(0, "ARRAY /dev/md1 metadata=1.2 UUID=1:2:3:4\n")
    machine.answers["blkid",] = Ended(0, f"{ROOT_UUID}\n")
    configure.configure(machine, PLAN, target, layout.volumes(disks), "")
    made = [line.partition("dracut ")[2] for line in machine.ran if " dracut " in line]
    assert made == [f"--regenerate-all --force --no-hostonly{options}"]
    assert (target / "etc/mdadm.conf").is_file() == bool(options)


def test_rhel_on_a_pair_names_the_array_of_its_root(machine: Machine, target: Path) -> None:
    (target / "usr/lib/os-release").write_text(ROCKY)
    entry = target / "boot/loader/entries/0123-5.14.0.conf"
    entry.parent.mkdir(parents=True)
    entry.write_text(
        "title Rocky\nlinux /boot/vmlinuz-5.14.0\noptions root=UUID=old ro rd.md=0 rd.md.uuid=of:the:image\n"
    )
    machine.answers["blkid",] = Ended(0, f"{ROOT_UUID}\n")
    machine.answers["mdadm", "--detail", "--export", "/dev/md1"] = Ended(0, EXPORTED)
    loader.prepare(machine, PLAN, target, layout.volumes([VDA, VDB]))
    words = f"root=UUID={ROOT_UUID} ro rd.md.uuid={ARRAY} console=ttyS0"
    assert entry.read_text().endswith(f"\noptions {words}\n")
    assert (target / "etc/kernel/cmdline").read_text() == f"{words}\n"
    assert f"GRUB_CMDLINE_LINUX='rd.md.uuid={ARRAY} console=ttyS0'\n" in (target / "etc/default/grub").read_text()


def test_an_array_without_a_uuid_is_a_failure(machine: Machine) -> None:
    with pytest.raises(ImagingError) as caught:
        layout.array_uuid(machine, "/dev/md1")
    assert caught.value.message == "/dev/md1 - Expected: an array with MD_UUID Actual: none."


def test_the_marker_is_about_one_plan(target: Path) -> None:
    assert not configure.has_marker(PLAN, target)
    configure.write_marker(PLAN, target)
    assert configure.has_marker(PLAN, target)
    assert not configure.has_marker(parse(document(digest="00" * 32)), target)
    assert json.loads((target / configure.MARKER).read_text())["digest"] == DIGEST


def test_a_damaged_marker_is_no_half_written_disk(target: Path) -> None:
    (target / configure.MARKER).parent.mkdir(parents=True)
    (target / configure.MARKER).write_text("{")
    with pytest.raises(ImagingError, match="Expected: a marker of rackready"):
        configure.has_marker(PLAN, target)


def with_loader(target: Path) -> None:
    for name in ("shim/shimx64.efi.signed", "shim/mmx64.efi.signed", "grub/x86_64-efi-signed/grubx64.efi.signed"):
        path = target / "usr/lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.name)


def test_debian_gets_its_signed_loader_twice(machine: Machine, target: Path, tmp_path: Path) -> None:
    with_loader(target)
    assert loader.install(machine, target, tmp_path / "esp", ROOT_UUID) == "debian"
    names = sorted(str(path.relative_to(tmp_path / "esp")) for path in (tmp_path / "esp").rglob("*") if path.is_file())
    assert names == [
        "EFI/BOOT/BOOTX64.EFI", "EFI/BOOT/grub.cfg", "EFI/BOOT/grubx64.efi", "EFI/BOOT/mmx64.efi",
        "EFI/debian/BOOTX64.CSV", "EFI/debian/grub.cfg", "EFI/debian/grubx64.efi", "EFI/debian/mmx64.efi",
        "EFI/debian/shimx64.efi",
    ]  # fmt: skip
    assert (tmp_path / "esp/EFI/debian/grub.cfg").read_text() == (
        f"search.fs_uuid {ROOT_UUID} root\nset prefix=($root)'/boot/grub'\nconfigfile $prefix/grub.cfg\n"
    )


def ubuntu(target: Path, shim: str = "/usr/lib/shim/shimx64.efi.signed.latest") -> None:
    """Put the loader as Ubuntu's packages do: shim is an absolute link of update-alternatives."""
    with_loader(target)
    (target / "usr/lib/os-release").write_text('ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\n')
    folder = target / "usr/lib/shim"
    for name, link in (("shimx64.efi.signed", "shimx64.efi.signed.latest"), ("mmx64.efi.signed", "mmx64.efi")):
        (folder / name).replace(folder / link)
    (target / "etc/alternatives").mkdir(parents=True)
    (folder / "shimx64.efi.signed").symlink_to("/etc/alternatives/shimx64.efi.signed")
    (target / "etc/alternatives/shimx64.efi.signed").symlink_to(shim)


def test_ubuntus_loader_is_followed_inside_the_target(machine: Machine, target: Path, tmp_path: Path) -> None:
    ubuntu(target)
    assert loader.install(machine, target, tmp_path / "esp", ROOT_UUID) == "ubuntu"
    files = {path.name: path.read_text() for path in (tmp_path / "esp/EFI/ubuntu").iterdir() if path.suffix == ".efi"}
    assert files == {
        "shimx64.efi": "shimx64.efi.signed",
        "grubx64.efi": "grubx64.efi.signed",
        "mmx64.efi": "mmx64.efi.signed",
    }
    assert (tmp_path / "esp/EFI/BOOT/BOOTX64.EFI").read_text() == "shimx64.efi.signed"


@pytest.mark.parametrize("leads", ["{outside}", "../../../../{outside}", "/usr/lib/shim/shimx64.efi.signed"])
def test_no_link_leads_out_of_the_target(machine: Machine, target: Path, tmp_path: Path, leads: str) -> None:
    outside = tmp_path / "outside"
    outside.write_text("of the ramdisk")
    ubuntu(target)
    shim = target / "usr/lib/shim/shimx64.efi.signed"
    shim.unlink()
    shim.symlink_to(leads.format(outside=outside))
    with pytest.raises(ImagingError, match=r"Expected: usr/lib/shim/shimx64\.efi\.signed Actual: missing"):
        loader.install(machine, target, tmp_path / "esp", ROOT_UUID)


def test_an_image_without_its_signed_loader_fails(machine: Machine, target: Path, tmp_path: Path) -> None:
    with pytest.raises(ImagingError) as caught:
        loader.install(machine, target, tmp_path, ROOT_UUID)
    assert (caught.value.code, caught.value.message) == (
        "boot-loader",
        (
            "image - Expected: usr/lib/shim/shimx64.efi.signed and usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed "
            "Actual: missing. Install the packages in the image."
        ),
    )


def test_rhel_keeps_its_packaged_loader(machine: Machine, target: Path, tmp_path: Path) -> None:
    (target / "usr/lib/os-release").write_text(ROCKY)
    for name in ("BOOT/BOOTX64.EFI", "rocky/shimx64.efi", "rocky/grubx64.efi"):
        path = target / "boot/efi/EFI" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("signed")
    entry = target / "boot/loader/entries/0123-5.14.0.conf"
    entry.parent.mkdir(parents=True)
    entry.write_text("title Rocky\nlinux /boot/vmlinuz-5.14.0\noptions root=UUID=old ro crashkernel=1G\n")
    loader.prepare(machine, PLAN, target, layout.volumes([VDA]))
    assert loader.install(machine, target, tmp_path / "esp", ROOT_UUID) == "rocky"
    assert entry.read_text().endswith(f"\noptions root=UUID={ROOT_UUID} ro crashkernel=1G console=ttyS0\n")
    assert (target / "etc/kernel/cmdline").read_text() == f"root=UUID={ROOT_UUID} ro crashkernel=1G console=ttyS0\n"
    assert (tmp_path / "esp/EFI/BOOT/BOOTX64.EFI").read_text() == "signed"
    assert f"--set=dev {ROOT_UUID}" in (tmp_path / "esp/EFI/rocky/grub.cfg").read_text()
    assert not any("grub2-install" in line for line in machine.ran)


def test_kernel_options_come_after_those_of_cloud_images(machine: Machine, target: Path) -> None:
    loader.prepare(machine, PLAN, target, layout.volumes([VDA]))
    text = (target / "etc/default/grub.d/90-rackready.cfg").read_text()
    assert 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX console=ttyS0"' in text
    assert machine.ran[-5].endswith("grub-mkconfig -o /boot/grub/grub.cfg")


@pytest.mark.parametrize(
    ("options", "serial"),
    [
        (["console=ttyS0"], "serial --unit=0 --speed=115200"),
        (["console=tty0", "console=ttyS1,57600n8"], "serial --unit=1 --speed=57600"),
        (["console=ttyS0", "console=ttyS2,115200"], "serial --unit=2 --speed=115200"),
        (["console=tty0"], ""),
    ],
)
def test_grub_uses_the_serial_port_of_the_kernel(
    machine: Machine, target: Path, options: list[str], serial: str
) -> None:
    loader.prepare(machine, parse(document(kernel_options=options)), target, layout.volumes([VDA]))
    text = (target / "etc/default/grub.d/90-rackready.cfg").read_text()
    wanted = f'GRUB_TERMINAL="console serial"\nGRUB_SERIAL_COMMAND="{serial}"\n'
    assert text.endswith(wanted) if serial else "serial" not in text


@pytest.mark.parametrize("word", ["a=$(id)", "b=`id`", 'c="d'])
def test_a_kernel_option_is_no_shell(machine: Machine, target: Path, word: str) -> None:
    with pytest.raises(ImagingError, match="Expected: no quote"):
        loader.prepare(machine, parse(document(kernel_options=[word])), target, layout.volumes([VDA]))


def test_firmware_gets_one_entry_per_disk_and_loses_old_ones(machine: Machine) -> None:
    machine.put("/sys/firmware/efi/efivars/BootOrder-8be4df61", "")
    machine.answers["efibootmgr",] = Ended(0, FIRMWARE)
    assert loader.entries(machine, "debian", [VDA, VDB]) == "firmware entry debian (rackready 1)"
    assert machine.ran[1:] == [
        "efibootmgr --quiet --bootnum 0001 --delete-bootnum",
        (
            "efibootmgr --quiet --create --disk /dev/vdb --part 1 --label debian (rackready 2) --loader "
            "\\EFI\\debian\\shimx64.efi"
        ),
        (
            "efibootmgr --quiet --create --disk /dev/vda --part 1 --label debian (rackready 1) --loader "
            "\\EFI\\debian\\shimx64.efi"
        ),
    ]


def test_firmware_that_refuses_an_entry_is_told(machine: Machine) -> None:
    assert loader.entries(machine, "debian", [VDA]).startswith("the firmware shows no variables")
    machine.put("/sys/firmware/efi/efivars/BootOrder-8be4df61", "")
    machine.answers["efibootmgr",] = Ended(5, "", "Could not prepare Boot variable: No space left on device\n")
    assert loader.entries(machine, "debian", [VDA]) == (
        "no entry in the firmware (`efibootmgr` - Expected: exit code 0 Actual: 5: Could not prepare Boot variable: No "
        "space left on device.): it boots EFI/BOOT/BOOTX64.EFI"
    )


def ours(machine: Machine) -> None:
    for name in ("vda", "vdb"):
        machine.partitioned(name, [LABEL, LABEL])
        machine.add_part(name, f"{name}1", ("vfat", "ESP"))
        machine.add_part(name, f"{name}2", ("ext4", "root"))


@pytest.mark.parametrize("is_complete", [True, False])
def test_a_complete_system_is_found_without_a_write(machine: Machine, is_complete: bool) -> None:  # noqa: FBT001
    ours(machine)
    if is_complete:
        configure.write_marker(PLAN, machine.path("/run/rackready/present"))
    disks = discover(machine)[:1]
    found = present.complete(machine, PLAN, disks, {disk.name: look(machine, disk) for disk in disks})
    assert found == (frozenset({"vda"}) if is_complete else frozenset())
    mounts = [line for line in machine.ran if line.startswith(("mount", "umount"))]
    where = machine.path("/run/rackready/present")
    assert mounts == [f"mount -o ro,noload,nodev,nosuid,noexec /dev/vda2 {where}", f"umount {where}"]


def test_a_system_that_cannot_be_mounted_is_not_overwritten(machine: Machine) -> None:
    ours(machine)
    machine.answers["mount",] = Ended(32, "", "mount: wrong fs type\n")
    disks = discover(machine)[:1]
    with pytest.raises(ImagingError) as caught:
        present.complete(machine, PLAN, disks, {disk.name: look(machine, disk) for disk in disks})
    assert caught.value.code == "disk-has-data"
    assert caught.value.message.endswith("If nobody needs it, erase it: --erase node01.")

"""Images of the RHEL family: a menu that GRUB finds on the new disk, with the image's own options.

The entries are as the installer of Rocky Linux 9.5 writes them, on LVM with a file system of its own for /boot.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.ondevice.agent import bls
from rackready.ondevice.agent.errors import ImagingError
from rackready.ondevice.agent.host import Ended
from tests.unit.ondevice.agent.machine import Machine

UUID = "4a6e57a8-180a-404c-ac83-4f0c194ebbd1"
RELEASE = "5.14.0-503.14.1.el9_5.x86_64"
MACHINE_ID = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
CRASH = "crashkernel=1G-4G:192M,4G-64G:256M,64G-:512M"
OF_THE_SOURCE = "resume=/dev/mapper/rl-swap rd.lvm.lv=rl/root rd.lvm.lv=rl/swap"
INSTALLED = f"""title Rocky Linux ({RELEASE}) 9.5 (Blue Onyx)
version {RELEASE}
linux /vmlinuz-{RELEASE}
initrd /initramfs-{RELEASE}.img $tuned_initrd
options root=/dev/mapper/rl-root ro {CRASH} {OF_THE_SOURCE} rhgb quiet $tuned_params
grub_users $grub_users
grub_arg --unrestricted
grub_class rocky
"""
DEFAULTS = f"""GRUB_TIMEOUT=5
GRUB_DISTRIBUTOR="$(sed 's, release .*$,,g' /etc/system-release)"
GRUB_DEFAULT=saved
GRUB_DISABLE_SUBMENU=true
GRUB_TERMINAL_OUTPUT="console"
GRUB_CMDLINE_LINUX="{CRASH} {OF_THE_SOURCE} rhgb quiet"
GRUB_DISABLE_RECOVERY="true"
GRUB_ENABLE_BLSCFG=true
"""
MAKE = (
    "chroot {target} /usr/bin/env PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "
    "grub2-mkconfig -o /boot/grub2/grub.cfg"
)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    target = tmp_path / "target"
    for name in ("boot/loader/entries", "etc/default"):
        (target / name).mkdir(parents=True)
    for name in (f"vmlinuz-{RELEASE}", f"initramfs-{RELEASE}.img"):
        (target / "boot" / name).write_text("")
    (target / "etc/default/grub").write_text(DEFAULTS)
    entry(target).write_text(INSTALLED)
    return target


def entry(target: Path, release: str = RELEASE) -> Path:
    return target / f"boot/loader/entries/{MACHINE_ID}-{release}.conf"


def test_an_entry_of_a_separate_boot_fits_one_root_file_system(machine: Machine, target: Path) -> None:
    bls.make_menu(machine, target, UUID, ("console=ttyS1,115200n8", "iommu=pt"))
    assert entry(target).read_text() == (
        f"title Rocky Linux ({RELEASE}) 9.5 (Blue Onyx)\nversion {RELEASE}\n"
        f"linux /boot/vmlinuz-{RELEASE}\ninitrd /boot/initramfs-{RELEASE}.img $tuned_initrd\n"
        "grub_users $grub_users\ngrub_arg --unrestricted\ngrub_class rocky\n"
        f"options root=UUID={UUID} ro {CRASH} rhgb quiet $tuned_params console=ttyS1,115200n8 iommu=pt\n"
    )


def test_an_entry_of_one_root_file_system_keeps_its_paths(machine: Machine, target: Path) -> None:
    text = INSTALLED.replace(" /vmlinuz", " /boot/vmlinuz").replace(" /initramfs", " /boot/initramfs")
    entry(target).write_text(text)
    bls.make_menu(machine, target, UUID, ())
    lines = entry(target).read_text().splitlines()
    assert lines[2:4] == [f"linux /boot/vmlinuz-{RELEASE}", f"initrd /boot/initramfs-{RELEASE}.img $tuned_initrd"]


def test_an_option_of_ours_replaces_those_of_its_name(machine: Machine, target: Path) -> None:
    bls.make_menu(machine, target, UUID, ("crashkernel=2G", "quiet"))
    last = f"options root=UUID={UUID} ro rhgb $tuned_params crashkernel=2G quiet"
    assert entry(target).read_text().splitlines()[-1] == last


def test_later_kernels_get_the_options_of_the_newest_one(machine: Machine, target: Path) -> None:
    rescue = entry(target, "0-rescue")
    rescue.write_text("title Rescue\nlinux /vmlinuz-0-rescue\noptions root=/dev/mapper/rl-root ro rescue\n")
    bls.make_menu(machine, target, UUID, ("iommu=pt",))
    assert (target / "etc/kernel/cmdline").read_text() == f"root=UUID={UUID} ro {CRASH} rhgb quiet iommu=pt\n"
    assert rescue.read_text() == (
        f"title Rescue\nlinux /vmlinuz-0-rescue\noptions root=UUID={UUID} ro rescue iommu=pt\n"
    ), "a kernel that is nowhere keeps its path"


def test_grubs_own_file_is_made_anew_without_other_systems(machine: Machine, target: Path) -> None:
    (target / "boot/grub2").mkdir()
    (target / "boot/grub2/grub.cfg").write_text("search --no-floppy --fs-uuid --set=root of-the-source\n")
    bls.make_menu(machine, target, UUID, ("iommu=pt",))
    assert machine.ran.count(MAKE.format(target=target)) == 1
    assert (target / "etc/default/grub").read_text() == (
        f"{DEFAULTS}# Written by rackready.\nGRUB_DISABLE_OS_PROBER=true\n"
        f"GRUB_CMDLINE_LINUX='{CRASH} rhgb quiet iommu=pt'\n"
    )


def test_an_image_without_settings_of_grub_gets_ours(machine: Machine, target: Path) -> None:
    (target / "etc/default/grub").unlink()
    bls.make_menu(machine, target, UUID, ())
    assert (target / "etc/default/grub").read_text() == (
        "# Written by rackready.\nGRUB_DISABLE_OS_PROBER=true\nGRUB_CMDLINE_LINUX=''\n"
    )


class Rewriting(Machine):
    """A grub2-mkconfig that sets the entries' options anew."""

    def call(self, argv: Sequence[str], *, stdin: str = "") -> Ended:
        if "grub2-mkconfig" in argv:
            path = entry(Path(argv[1]))
            path.write_text(path.read_text().replace("options ", "options lost "))
        return super().call(argv, stdin=stdin)


def test_the_entries_are_right_after_the_menu_was_made(tmp_path: Path, target: Path) -> None:
    bls.make_menu(Rewriting(tmp_path / "machine"), target, UUID, ())
    assert "lost" not in entry(target).read_text()


def test_an_image_without_entries_is_refused(machine: Machine, target: Path) -> None:
    entry(target).unlink()
    with pytest.raises(ImagingError) as caught:
        bls.make_menu(machine, target, UUID, ())
    assert (caught.value.code, caught.value.message) == (
        "unknown-system",
        "image - Expected: boot/loader/entries/*.conf Actual: none.",
    )

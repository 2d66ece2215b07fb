"""The simulated boot loader: settings in grub-mkconfig's order, one menu, and a command line that waits for a boot."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from rackready_sim.programs.hwsim import bootdisk, paths

RELEASE = os.uname().release


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    for name, text in {
        "etc/default/grub": (
            'GRUB_DISTRIBUTOR="Debian"\nGRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX="hugepages=8"\n'
        ),
        "etc/default/grub.d/50-cloudimg-settings.cfg": 'GRUB_CMDLINE_LINUX_DEFAULT="console=ttyS0"\n',
        "etc/default/grub.d/90-rackready.cfg": 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX iommu=pt"\n',
        "etc/modprobe.d/rackready-nouveau.conf": "# ours\nblacklist nouveau\n",
        "var/lib/hw/root-device": "UUID=6f1f2c1e\n",
        f"boot/vmlinuz-{RELEASE}": "kernel",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_menu_has_the_settings_of_all_files_in_their_order(disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bootdisk.update_grub([]) == 0
    assert capsys.readouterr().err == (
        f"Generating grub configuration file ...\nFound linux image: /boot/vmlinuz-{RELEASE}\ndone\n"
    )
    lines = [line.strip() for line in (disk / "boot/grub/grub.cfg").read_text().splitlines() if "\tlinux\t" in line]
    entry = f"linux\t/boot/vmlinuz-{RELEASE} root=UUID=6f1f2c1e ro"
    assert lines == [
        f"{entry} hugepages=8 iommu=pt console=ttyS0",
        f"{entry} hugepages=8 iommu=pt console=ttyS0",
        f"{entry} single hugepages=8 iommu=pt",
    ]
    assert bootdisk.command_line() == (
        f"BOOT_IMAGE=/boot/vmlinuz-{RELEASE} root=UUID=6f1f2c1e ro hugepages=8 iommu=pt console=ttyS0"
    )


def test_a_broken_settings_file_fails_and_leaves_the_menu(disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bootdisk.update_grub([])
    before = (disk / "boot/grub/grub.cfg").read_text()
    (disk / "etc/default/grub.d/99-broken.cfg").write_text('GRUB_CMDLINE_LINUX="\n')
    assert bootdisk.update_grub([]) != 0
    assert "99-broken.cfg" in capsys.readouterr().err
    assert (disk / "boot/grub/grub.cfg").read_text() == before


def test_without_a_menu_there_is_no_command_line(disk: Path) -> None:
    assert not (disk / "boot/grub").exists()
    assert bootdisk.command_line() == ""


def test_an_update_makes_only_what_is_there_and_carries_the_blacklist(
    disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = disk / f"boot/initrd.img-{RELEASE}"
    assert bootdisk.update_initramfs(["-u", "-k", "all"]) == 0
    assert (image.exists(), capsys.readouterr().out) == (False, "")
    assert bootdisk.update_initramfs(["-c", "-k", RELEASE]) == 0
    assert capsys.readouterr().out == f"update-initramfs: Generating /boot/initrd.img-{RELEASE}\n"
    assert not bootdisk.early("nouveau")
    assert gzip.decompress(image.read_bytes()).startswith(b"070701")
    (disk / "etc/modprobe.d/rackready-nouveau.conf").unlink()
    assert not bootdisk.early("nouveau"), "an initramfs keeps what it was made with"
    assert bootdisk.update_initramfs(["-u", "-k", "all"]) == 0
    assert bootdisk.early("nouveau")


def test_an_update_without_a_mode_is_refused(disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert disk.is_dir()
    assert bootdisk.update_initramfs(["-k", "all"]) == 2
    assert "You must specify at least one of -c, -u, or -d." in capsys.readouterr().err

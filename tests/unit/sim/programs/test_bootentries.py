"""The simulated boot entries: grubby's words, what its --args and --remove-args do, and what dracut's image loads."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rackready_sim.programs.hwsim import bootdisk, bootentries, paths

RELEASE = os.uname().release
MACHINE = "3f0f0b6c5d1e4b0f8a6f2f3b6f0a9c11"
OPTIONS = "root=UUID=6f1f2c1e ro hugepages=8 $tuned_params"


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    for name, text in {
        "etc/redhat-release": "Rocky Linux release 9.5 (Blue Onyx)\n",
        "etc/default/grub": 'GRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX="hugepages=8"\nGRUB_ENABLE_BLSCFG=true\n',
        "etc/kernel/cmdline": "root=UUID=6f1f2c1e ro hugepages=8\n",
        f"boot/loader/entries/{MACHINE}-{RELEASE}.conf": (
            f"title Rocky Linux ({RELEASE}) 9.5 (Blue Onyx)\nversion {RELEASE}\nlinux /boot/vmlinuz-{RELEASE}\n"
            f"initrd /boot/initramfs-{RELEASE}.img $tuned_initrd\noptions {OPTIONS}\n"
        ),
        f"lib/modules/{RELEASE}/modules.dep": "",
        "boot/vmlinuz": "kernel",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_info_has_the_fields_of_grubby(disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert disk.is_dir()
    assert bootentries.grubby(["--info=ALL"]) == 0
    assert capsys.readouterr().out == (
        f'index=0\nkernel="/boot/vmlinuz-{RELEASE}"\nargs="ro hugepages=8 $tuned_params"\nroot="UUID=6f1f2c1e"\n'
        f'initrd="/boot/initramfs-{RELEASE}.img $tuned_initrd"\ntitle="Rocky Linux ({RELEASE}) 9.5 (Blue Onyx)"\n'
        f'id="{MACHINE}-{RELEASE}"\n'
    )
    assert bootentries.grubby(["--default-kernel"]) == 0
    assert capsys.readouterr().out == f"/boot/vmlinuz-{RELEASE}\n"


def test_an_update_of_all_reaches_entries_settings_and_the_next_kernels_line(disk: Path) -> None:
    assert bootentries.grubby(["--update-kernel=ALL", "--args=iommu=pt hugepages=16"]) == 0
    entry = (disk / f"boot/loader/entries/{MACHINE}-{RELEASE}.conf").read_text()
    assert "options root=UUID=6f1f2c1e ro $tuned_params iommu=pt hugepages=16\n" in entry
    assert 'GRUB_CMDLINE_LINUX="iommu=pt hugepages=16"\n' in (disk / "etc/default/grub").read_text()
    assert (disk / "etc/kernel/cmdline").read_text() == "root=UUID=6f1f2c1e ro iommu=pt hugepages=16\n"
    assert bootentries.command_line() == (
        f"BOOT_IMAGE=(hd0,gpt2)/boot/vmlinuz-{RELEASE} root=UUID=6f1f2c1e ro iommu=pt hugepages=16"
    )
    assert bootentries.grubby(["--update-kernel=ALL", "--remove-args=iommu=pt"]) == 0
    assert bootentries.command_line().endswith(" ro hugepages=16")


@pytest.mark.parametrize(
    ("remove", "add", "after"),
    [
        ("hugepages=2", "", "hugepagesz=1G hugepages=8 quiet"),
        ("hugepages", "", "hugepagesz=1G quiet"),
        ("huge", "", "hugepagesz=1G hugepages=2 hugepages=8 quiet"),
        ("", "hugepages=4", "hugepagesz=1G quiet hugepages=4"),
        ("", "hugepagesz=2M hugepages=8 hugepagesz=1G hugepages=2",
         "quiet hugepagesz=2M hugepages=8 hugepagesz=1G hugepages=2"),
    ],
)  # fmt: skip
def test_words_are_removed_and_replaced_as_update_args_does(remove: str, add: str, after: str) -> None:
    before = "hugepagesz=1G hugepages=2 hugepages=8 quiet"
    assert bootentries.changed(before, remove.split(), add.split()) == after


def test_arguments_without_a_kernel_are_refused(disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert disk.is_dir()
    assert bootentries.grubby(["--args=iommu=pt"]) == 1
    assert capsys.readouterr().err == "no action specified\n"


def test_dracut_leaves_out_an_omitted_driver_and_keeps_an_image_without_force(
    disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = disk / f"boot/initramfs-{RELEASE}.img"
    assert bootentries.dracut(["--force", str(image), RELEASE]) == 0
    assert bootdisk.early("nouveau")
    (disk / "etc/dracut.conf.d").mkdir(parents=True)
    (disk / "etc/dracut.conf.d/90-rackready-nouveau.conf").write_text('# ours\nomit_drivers+=" nouveau "\n')
    assert bootentries.dracut(["--regenerate-all"]) == 1
    assert capsys.readouterr().err == (f"dracut[F]: Will not override existing initramfs ({image}) without --force\n")
    assert bootdisk.early("nouveau")
    assert bootentries.dracut(["--force", "--regenerate-all"]) == 0
    assert not bootdisk.early("nouveau")


def test_dracut_removes_an_image_that_it_could_not_write(
    disk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    image = disk / f"boot/initramfs-{RELEASE}.img"
    assert bootentries.dracut(["--force", str(image), RELEASE]) == 0

    def full(place: Path, _data: bytes) -> int:
        place.write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    assert bootentries.dracut(["--force", "--regenerate-all"]) == 1
    assert not image.exists()
    assert capsys.readouterr().err == (
        f"cp: error writing '{image}': No space left on device\ndracut[F]: dracut: creation of {image} failed\n"
    )

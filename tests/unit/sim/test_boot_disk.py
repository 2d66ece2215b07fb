"""What an installer of RHEL leaves on a simulated disk: the kernel's packages, one boot entry, and its initramfs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rackready_sim import boot_disk, systems
from rackready_sim.programs.hwsim import bootentries, paths

RELEASE = os.uname().release
MACHINE = "3f0f0b6c5d1e4b0f8a6f2f3b6f0a9c11"

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("rpmbuild", "rpm"))),
    reason="packages are installed into a folder by rpmbuild and rpm, as root: `make setup-sim`",
)


def test_a_rocky_node_has_its_kernel_as_packages_and_boots_with_its_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("usr/lib", "root", "etc"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "lib").symlink_to("usr/lib")
    systems.install(systems.SYSTEMS["el9"], tmp_path)
    (tmp_path / "etc/machine-id").write_text(f"{MACHINE}\n")
    database = ["rpm", "--root", str(tmp_path), "--dbpath", "/var/lib/rpm"]
    ran: list[tuple[str, ...]] = []
    boot_disk.install(
        tmp_path,
        "BOOT_IMAGE=/boot/vmlinuz root=UUID=6f1f2c1e ro quiet iommu=pt",
        lambda _root, *argv: ran.append(argv),
    )
    asked = [*database, "-qf", "--qf", "%{NAME}", f"/lib/modules/{RELEASE}/vmlinuz"]
    assert subprocess.run(asked, check=True, capture_output=True, text=True).stdout == "kernel-core"
    names = subprocess.run([*database, "-qa", "--qf", "%{NAME}\n"], check=True, capture_output=True, text=True).stdout
    assert sorted(names.split()) == ["kernel", "kernel-core", "kernel-modules", "kernel-modules-core"]
    assert ran == [("dracut", "--force", f"/boot/initramfs-{RELEASE}.img", RELEASE)]
    entry = (tmp_path / f"boot/loader/entries/{MACHINE}-{RELEASE}.conf").read_text().splitlines()
    assert entry[0] == f"title Rocky Linux ({RELEASE}) 9.5 (Blue Onyx)"
    assert "options root=UUID=6f1f2c1e ro quiet iommu=pt $tuned_params" in entry
    assert 'GRUB_CMDLINE_LINUX="quiet iommu=pt"\n' in (tmp_path / "etc/default/grub").read_text()
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    assert bootentries.command_line() == (
        f"BOOT_IMAGE=(hd0,gpt2)/boot/vmlinuz-{RELEASE} root=UUID=6f1f2c1e ro quiet iommu=pt"
    )

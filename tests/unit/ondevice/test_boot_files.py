"""Boot menu and initramfs: made again when they are old, once, and refused when a program does not do its work."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.ondevice.boot_files import BootFiles, Sources
from rackready.ondevice.command import Done, NodeProblem

GRUB, MODPROBE = "/etc/default/grub.d/90-rackready.cfg", "/etc/modprobe.d/rackready-nouveau.conf"
SOURCES = Sources((GRUB,), ("iommu=pt",), (MODPROBE,))
ENTRY = """menuentry 'Debian GNU/Linux' --class debian {
\tlinux\t/boot/vmlinuz-6.1.0-40-amd64 root=UUID=6f1f2c1e ro iommu=pt quiet
\tinitrd\t/boot/initrd.img-6.1.0-40-amd64
}
"""


class Node:
    """A node whose update-grub and update-initramfs write what they should, unless told otherwise."""

    def __init__(self, root: Path, entry: str = ENTRY) -> None:
        self.root, self.entry, self.ran = root, entry, [""]
        self.broken: dict[str, Done] = {}
        for name in ("etc/default/grub.d", "etc/modprobe.d", "boot/grub"):
            (root / name).mkdir(parents=True)
        self.put("boot/grub/grub.cfg", ENTRY, 1000)
        self.put("boot/vmlinuz-6.1.0-40-amd64", "kernel", 1000)
        self.put("boot/initrd.img-6.1.0-40-amd64", "image", 1000)
        self.put(GRUB[1:], "GRUB_CMDLINE_LINUX", 900)
        self.put(MODPROBE[1:], "blacklist nouveau", 900)
        self.ran.clear()

    def put(self, name: str, text: str, when: int) -> None:
        (self.root / name).write_text(text)
        os.utime(self.root / name, (when, when))

    def __call__(self, argv: Sequence[str]) -> Done:
        self.ran.append(" ".join(argv))
        if argv[0] in self.broken:
            return self.broken[argv[0]]
        if argv[0] == "update-grub":
            self.put("boot/grub/grub.cfg", self.entry, 2000)
        else:
            self.put("boot/initrd.img-6.1.0-40-amd64", "image", 2000)
        return Done(0, "")

    def boot(self) -> BootFiles:
        return BootFiles(self, self.root, self.root / "var")


def test_nothing_runs_while_both_are_newer_than_their_settings(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert node.boot().ensure(SOURCES, 0, "") == []
    assert node.ran == []


@pytest.mark.parametrize(
    "name", ["6.1.0-40-amd64.bak", "6.1.0-40-amd64.dpkg-bak", "6.1.0-40-amd64.new", "6.1.0-40-amd64.old-dkms", "5.9.0"]
)
def test_a_copy_and_an_image_of_a_kernel_that_is_gone_are_left_alone(tmp_path: Path, name: str) -> None:
    node = Node(tmp_path)
    node.put(f"boot/initrd.img-{name}", "older copy", 1)
    assert node.boot().ensure(SOURCES, 0, "") == []
    assert node.ran == []


def test_a_kernel_that_ubuntu_s_list_alone_has_counts(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (tmp_path / "boot/vmlinuz-6.1.0-40-amd64").unlink()
    node.put(MODPROBE[1:], "blacklist nouveau", 1500)
    assert node.boot().stale(SOURCES) == []
    (tmp_path / "var/lib/initramfs-tools").mkdir(parents=True)
    node.put("var/lib/initramfs-tools/6.1.0-40-amd64", "", 1000)
    assert node.boot().stale(SOURCES) == [f"/boot/initrd.img-6.1.0-40-amd64: older than {MODPROBE}"]


def test_a_changed_blacklist_makes_the_initramfs_again_once(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.put(MODPROBE[1:], "blacklist nouveau", 1500)
    stale = [f"/boot/initrd.img-6.1.0-40-amd64: older than {MODPROBE}"]
    assert node.boot().ensure(SOURCES, 0, "", check=True) == stale
    assert node.ran == []
    assert node.boot().ensure(SOURCES, 0, "") == stale
    assert node.boot().ensure(SOURCES, 0, "") == []
    assert node.ran == ["update-initramfs -u -k all"]


def test_a_menu_without_the_option_is_made_again_whatever_its_age(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.put("boot/grub/grub.cfg", ENTRY.replace(" iommu=pt", ""), 1000)
    assert node.boot().ensure(SOURCES, 0, "") == ["/boot/grub/grub.cfg: without iommu=pt"]
    assert node.ran == ["update-grub"]


def test_a_menu_whose_later_word_takes_the_option_back_is_not_in_force(tmp_path: Path) -> None:
    later = ENTRY.replace("quiet", "quiet iommu=nopt")
    node = Node(tmp_path, later)
    node.put("boot/grub/grub.cfg", later, 1000)
    why = "without iommu=pt as the last of iommu=pt, iommu=nopt"
    assert node.boot().stale(SOURCES) == [f"/boot/grub/grub.cfg: {why}"]
    with pytest.raises(NodeProblem, match=why):
        node.boot().ensure(SOURCES, 0, "")


def test_an_option_that_was_taken_back_leaves_the_menu_too(tmp_path: Path) -> None:
    node = Node(tmp_path, ENTRY.replace(" iommu=pt", ""))
    node.put(GRUB[1:], "# no options", 1500)
    wanted = Sources((GRUB,), (), (MODPROBE,))
    assert node.boot().ensure(wanted, 0, "") == [f"/boot/grub/grub.cfg: older than {GRUB}"]
    assert node.boot().ensure(wanted, 0, "") == []


def test_a_node_without_grub_is_refused(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (tmp_path / "boot/grub/grub.cfg").unlink()
    node.broken["update-grub"] = Done(127, "update-grub: No such file or directory")
    with pytest.raises(NodeProblem) as caught:
        node.boot().ensure(SOURCES, 0, "")
    assert str(caught.value) == (
        "Expected: GRUB as the node's boot loader (program update-grub) "
        "Actual: update-grub: No such file or directory. "
        "Give iommu=pt to the node's own boot loader, and set base_kernel_options: [] for the node; then run again."
    )


def test_a_node_without_grub_is_left_alone_when_no_option_is_wanted(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (tmp_path / "boot/grub/grub.cfg").unlink()
    assert node.boot().ensure(Sources((GRUB,), (), (MODPROBE,)), 0, "") == []


def test_a_full_boot_is_reported_with_the_programs_words(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.put(MODPROBE[1:], "blacklist nouveau", 1500)
    words = "update-initramfs: Generating /boot/initrd.img\ncat: write error: No space left on device\n"
    node.broken["update-initramfs"] = Done(1, words)
    with pytest.raises(NodeProblem) as caught:
        node.boot().ensure(SOURCES, 0, "")
    assert str(caught.value) == (
        "Expected: `update-initramfs -u -k all` succeeds Actual: exit 1: cat: write error: No space left on device. "
        "Run it on the node."
    )


def test_a_program_that_changes_nothing_is_reported(tmp_path: Path) -> None:
    node = Node(tmp_path, ENTRY.replace(" iommu=pt", ""))
    node.put("boot/grub/grub.cfg", node.entry, 1000)
    with pytest.raises(NodeProblem) as caught:
        node.boot().ensure(SOURCES, 0, "")
    assert str(caught.value) == (
        "Expected: boot menu and initramfs newer than their settings "
        "Actual: /boot/grub/grub.cfg: without iommu=pt. "
        "Run `update-grub` and `update-initramfs -u -k all` on the node and read their output."
    )

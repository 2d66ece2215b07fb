"""Boot entries of the RHEL family: options given in one call, taken back if they are ours, and dracut for old images.

`grubby --info=ALL` as grubby 8.40-63 of EL 9 prints it (program grubby-bls, display_info_values).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.ondevice.boot_entries import BootEntries
from rackready.ondevice.boot_files import Sources
from rackready.ondevice.command import Done, NodeProblem

RELEASE = "5.14.0-503.11.1.el9_5.x86_64"
RESCUE = "0-rescue-3f0f0b6c5d1e4b0f8a6f2f3b6f0a9c11"
IMAGE = f"boot/initramfs-{RELEASE}.img"
OMIT = "/etc/dracut.conf.d/90-rackready-nouveau.conf"
PAGES = ("hugepagesz=2M", "hugepages=512", "hugepagesz=1G", "hugepages=2")
INFO = """index={index}
kernel="/boot/vmlinuz-{release}"
args="{args}"
root="/dev/mapper/rl-root"
initrd="/boot/initramfs-{release}.img $tuned_initrd"
title="Rocky Linux ({release}) 9.5 (Blue Onyx)"
id="3f0f0b6c5d1e4b0f8a6f2f3b6f0a9c11-{release}"
"""


class Node:
    """A node whose grubby and dracut change what they should, unless told otherwise."""

    def __init__(self, root: Path, args: str = "ro crashkernel=1G-4G:192M rd.lvm.lv=rl/root $tuned_params") -> None:
        self.root, self.entries = root, {RELEASE: args, RESCUE: args}
        self.ran: list[str] = []
        self.broken: dict[str, Done] = {}
        self.deaf = False
        for name in ("boot", f"lib/modules/{RELEASE}", "etc/dracut.conf.d", "var"):
            (root / name).mkdir(parents=True)
        (root / f"lib/modules/{RELEASE}/modules.dep").write_text("")
        for name in (f"boot/vmlinuz-{RELEASE}", IMAGE, f"boot/initramfs-{RELEASE}kdump.img", OMIT[1:]):
            self.put(name, 1000)

    def put(self, name: str, when: int) -> None:
        (self.root / name).write_text(name)
        os.utime(self.root / name, (when, when))

    def __call__(self, argv: Sequence[str]) -> Done:
        if argv[0] in self.broken:
            return self.broken[argv[0]]
        if argv[1] == "--info=ALL":
            rows = enumerate(self.entries.items())
            return Done(0, "".join(INFO.format(index=index, release=name, args=args) for index, (name, args) in rows))
        self.ran.append(" ".join(argv))
        if argv[0] == "dracut":
            self.put(IMAGE, 2000)
        elif not self.deaf:
            self.update(argv)
        return Done(0, "")

    def update(self, argv: Sequence[str]) -> None:
        given = dict(word[2:].partition("=")[::2] for word in argv[1:])
        names = [word.partition("=")[0] for word in given.get("args", "").split()]
        for name, args in self.entries.items():
            words = [word for word in args.split() if word not in given.get("remove-args", "").split()]
            kept = [word for word in words if word.partition("=")[0] not in names]
            self.entries[name] = " ".join([*kept, *given.get("args", "").split()])

    def boot(self) -> BootEntries:
        return BootEntries(self, self.root, self.root / "var")


def test_options_go_to_all_entries_in_one_call_once(tmp_path: Path) -> None:
    node = Node(tmp_path)
    wanted = Sources(options=("iommu=pt", *PAGES))
    stale = [f"/boot/loader/entries: without iommu=pt {' '.join(PAGES)}"]
    assert node.boot().ensure(wanted, 0, "", check=True) == stale
    assert (node.ran, (tmp_path / "var/kernel-options").exists()) == ([], False)
    assert node.boot().ensure(wanted, 0, "") == stale
    assert node.boot().ensure(wanted, 0, "") == []
    assert node.ran == [f"grubby --update-kernel=ALL --args=iommu=pt {' '.join(PAGES)}"]
    assert node.entries[RESCUE].endswith(f"$tuned_params iommu=pt {' '.join(PAGES)}")


def test_an_entry_that_lacks_an_option_is_enough(tmp_path: Path) -> None:
    node = Node(tmp_path, "ro iommu=pt")
    node.entries[RELEASE] = "ro iommu=nopt"
    assert node.boot().stale(Sources(options=("iommu=pt",))) == ["/boot/loader/entries: without iommu=pt"]


def test_an_option_that_is_ours_is_taken_back_and_one_of_the_installer_stays(tmp_path: Path) -> None:
    node = Node(tmp_path, "ro quiet")
    node.boot().ensure(Sources(options=("quiet", "iommu=pt")), 0, "")
    wanted = Sources(options=())
    back = ["/boot/loader/entries: with iommu=pt, which was taken back"]
    assert node.boot().ensure(wanted, 0, "", check=True) == back
    assert node.boot().ensure(wanted, 0, "") == back
    assert node.boot().ensure(wanted, 0, "") == []
    assert node.ran[1:] == ["grubby --update-kernel=ALL --remove-args=iommu=pt"]
    assert node.entries == {RELEASE: "ro quiet", RESCUE: "ro quiet"}
    assert (tmp_path / "var/kernel-options").read_text() == ""


def test_words_of_the_installer_that_ours_replaced_come_back(tmp_path: Path) -> None:
    node = Node(tmp_path, "ro console=tty0 console=ttyS0 iommu=on quiet")
    node.entries[RESCUE] = "ro console=tty0 console=ttyS0 quiet"
    node.boot().ensure(Sources(options=("console=ttyS1", "iommu=pt")), 0, "")
    node.boot().ensure(Sources(options=("console=ttyS2",)), 0, "")
    assert node.entries == {RELEASE: "ro quiet console=ttyS2", RESCUE: "ro quiet console=ttyS2"}
    back = ["without console=tty0 console=ttyS0", "with console=ttyS2, which was taken back"]
    wanted = Sources(options=())
    assert node.boot().ensure(wanted, 0, "") == [f"/boot/loader/entries: {why}" for why in back]
    line = "grubby --update-kernel=ALL --remove-args=console=ttyS2 --args=console=tty0 console=ttyS0"
    assert node.ran[-1] == line
    assert node.entries[RELEASE] == "ro quiet console=tty0 console=ttyS0"
    node.entries[RELEASE] = "ro quiet"  # from now on they are the owner's again
    assert node.boot().ensure(wanted, 0, "") == []


def test_a_run_that_was_killed_in_grubby_still_brings_the_words_back(tmp_path: Path) -> None:
    node = Node(tmp_path, "ro iommu=on")

    def killed(argv: Sequence[str]) -> Done:
        done = node(argv)
        if argv[1] != "--info=ALL":
            raise KeyboardInterrupt
        return done

    for options in (("iommu=pt",), ()):
        with pytest.raises(KeyboardInterrupt):
            BootEntries(killed, tmp_path, tmp_path / "var").ensure(Sources(options=options), 0, "")
    node.boot().ensure(Sources(options=()), 0, "")
    assert node.entries == {RELEASE: "ro iommu=on", RESCUE: "ro iommu=on"}


def test_a_caller_that_is_about_the_initramfs_leaves_the_options(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.boot().ensure(Sources(options=("iommu=pt",)), 0, "")
    assert node.boot().ensure(Sources(initramfs=(OMIT,)), 0, "") == []
    assert node.entries[RELEASE].endswith(" iommu=pt")


def test_dracut_makes_old_images_again_and_those_of_kdump_and_rescue_do_not_count(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.put(OMIT[1:], 1500)
    node.put(f"boot/initramfs-{RESCUE}.img", 1)
    wanted = Sources(initramfs=(OMIT,))
    assert node.boot().ensure(wanted, 0, "") == [f"/{IMAGE}: older than {OMIT}"]
    assert node.boot().ensure(wanted, 0, "") == []
    assert node.ran == ["dracut --force --regenerate-all"]


@pytest.mark.parametrize("sources", [Sources(initramfs=(OMIT,)), Sources(options=())])
def test_an_image_that_dracut_removed_is_made_again_for_each_caller(tmp_path: Path, sources: Sources) -> None:
    node = Node(tmp_path)
    (tmp_path / IMAGE).unlink()
    assert node.boot().ensure(sources, 0, "") == [f"/{IMAGE}: absent"]
    assert node.boot().ensure(sources, 0, "") == []
    assert node.ran == ["dracut --force --regenerate-all"]


def test_a_kernel_without_an_image_to_boot_needs_no_initramfs(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (tmp_path / "lib/modules/5.14.0-1.el9.x86_64").mkdir()
    (tmp_path / "lib/modules/5.14.0-1.el9.x86_64/modules.dep").write_text("")
    assert node.boot().ensure(Sources(initramfs=(OMIT,)), 0, "") == []


def test_an_image_that_a_killed_dracut_may_have_cut_off_is_made_again(tmp_path: Path) -> None:
    node, sources = Node(tmp_path), Sources(initramfs=(OMIT,))
    node.put(OMIT[1:], 1500)

    def killed(argv: Sequence[str]) -> Done:
        if argv[0] != "dracut":
            return node(argv)
        node.put(IMAGE, 2000)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        BootEntries(killed, tmp_path, tmp_path / "var").ensure(sources, 0, "")
    cut = [f"/{IMAGE}: perhaps incomplete, the last dracut did not succeed"]
    assert node.boot().ensure(sources, 0, "", check=True) == cut
    assert node.boot().ensure(sources, 0, "") == cut
    assert node.boot().ensure(sources, 0, "") == []
    assert node.ran == ["dracut --force --regenerate-all"]


def test_a_dracut_that_fails_leaves_its_mark(tmp_path: Path) -> None:
    node, sources = Node(tmp_path), Sources(initramfs=(OMIT,))
    node.put(OMIT[1:], 1500)
    node.broken["dracut"] = Done(1, "dracut[F]: dracut: creation of /boot/initramfs.img failed\n")
    with pytest.raises(NodeProblem) as caught:
        node.boot().ensure(sources, 0, "")
    assert str(caught.value) == (
        "Expected: `dracut --force --regenerate-all` succeeds "
        "Actual: exit 1: dracut[F]: dracut: creation of /boot/initramfs.img failed. Run it on the node."
    )
    assert node.boot().stale(sources) == [f"/{IMAGE}: perhaps incomplete, the last dracut did not succeed"]


def test_a_node_without_grubby_is_refused_and_left_alone_when_no_option_is_wanted(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.broken["grubby"] = Done(127, "grubby: No such file or directory")
    assert node.boot().ensure(Sources(options=()), 0, "") == []
    with pytest.raises(NodeProblem) as caught:
        node.boot().ensure(Sources(options=("iommu=pt",)), 0, "")
    assert str(caught.value) == (
        "Expected: GRUB as the node's boot loader (program grubby) Actual: grubby: No such file or directory. "
        "Give iommu=pt to the node's own boot loader, and set base_kernel_options: [] for the node; then run again."
    )


def test_nothing_wanted_and_nothing_given_asks_no_grubby(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.broken["grubby"] = Done(1, "grep: /boot/grub2/grubenv: Permission denied\n")
    assert node.boot().ensure(Sources(options=()), 0, "") == []


def test_entries_that_cannot_be_read_are_no_node_without_options(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.broken["grubby"] = Done(1, "grep: /boot/grub2/grubenv: Permission denied\n")
    with pytest.raises(NodeProblem) as caught:
        node.boot().stale(Sources(options=("iommu=pt",)))
    assert str(caught.value) == (
        "Expected: `grubby --info=ALL` succeeds Actual: exit 1: grep: /boot/grub2/grubenv: Permission denied. "
        "Run it on the node."
    )


def test_a_grubby_that_changes_nothing_is_reported(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.deaf = True
    with pytest.raises(NodeProblem) as caught:
        node.boot().ensure(Sources(options=("iommu=pt",)), 0, "")
    assert str(caught.value) == (
        "Expected: boot menu and initramfs newer than their settings "
        "Actual: /boot/loader/entries: without iommu=pt. "
        "Run `grubby --info=ALL` and `dracut --force --regenerate-all` on the node and read their output."
    )

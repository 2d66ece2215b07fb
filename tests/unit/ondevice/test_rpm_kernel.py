"""Kernel policy with dnf: packages that are locked together, headers that follow the kernel, locks of others.

Rows as rpm 4.16 and dnf 4.14 print them for the packages of RHEL 9's kernel.spec.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.ondevice.command import Done
from rackready.ondevice.kernel import Room
from rackready.ondevice.rpm_kernel import RpmKernel

OLD, NEW = "5.14.0-503.11.1.el9_5", "5.14.0-503.14.1.el9_5"
KERNEL = ("kernel", "kernel-core", "kernel-modules", "kernel-modules-core")


class Node:
    """A node with a running kernel, packages with their versions, and packages that its sources offer."""

    def __init__(self, root: Path, running: str, rows: list[tuple[str, str]], *offered: tuple[str, str]) -> None:
        self.root, self.running, self.rows, self.offered = root, running, rows, offered
        self.cached = True
        (root / "etc/dnf/plugins").mkdir(parents=True)

    def __call__(self, argv: Sequence[str]) -> Done:
        if argv[0] == "uname":
            return Done(0, f"{self.running}\n")
        if argv[0] == "df":
            return Done(0, "     Avail\n 900000000\n")
        if argv[0] == "dnf":
            if "-C" in argv and not self.cached:
                return Done(1, "Error: Cache-only enabled but no cache for 'baseos'\n")
            return Done(0, shown(row for row in self.offered if row[0] == argv[-1]))
        if argv[1] == "-qf":
            version = self.running.rpartition(".")[0]
            owner = [row for row in self.rows if row[0].endswith("-core") and row[1] == version][:1]
            known = argv[-1] == f"{self.root}/lib/modules/{self.running}/vmlinuz" and owner
            return Done(0, shown(owner)) if known else Done(1, f"file {argv[-1]} is not owned by any package\n")
        return Done(0, shown(row for row in self.rows if fnmatch.fnmatch(row[0], argv[-1])))

    def kernel(self) -> RpmKernel:
        return RpmKernel(self, self.root, self.root)

    def lock(self, *lines: str) -> None:
        (self.root / "etc/dnf/plugins/versionlock.list").write_text("".join(f"{line}\n" for line in lines))


def shown(rows: object) -> str:
    return "".join(f"{name}\t0:{version}\n" for name, version in rows)  # type: ignore[attr-defined]


def test_the_parts_of_the_kernel_are_locked_and_the_headers_come_in_its_version(tmp_path: Path) -> None:
    rows = [*((name, OLD) for name in KERNEL), ("kernel-headers", OLD), ("kernel-tools", OLD)]
    node = Node(tmp_path, f"{OLD}.x86_64", rows, ("kernel-devel-matched", OLD), ("kernel-devel-matched", NEW))
    policy = node.kernel().policy()
    wanted = {**dict.fromkeys(KERNEL, ""), "kernel-devel": OLD, "kernel-devel-matched": OLD}
    assert (policy.packages, policy.notes) == (wanted, [])
    node.cached = False
    assert node.kernel().policy().packages == wanted


def test_the_headers_follow_the_newest_kernel_which_boots_next(tmp_path: Path) -> None:
    rows = [(name, version) for version in (NEW, OLD) for name in KERNEL]
    node = Node(tmp_path, f"{OLD}.x86_64", rows, ("kernel-devel-matched", OLD), ("kernel-devel-matched", NEW))
    assert node.kernel().policy().packages["kernel-devel-matched"] == NEW


def test_headers_that_are_there_are_locked_with_the_kernel(tmp_path: Path) -> None:
    names = [*KERNEL, "kernel-devel", "kernel-devel-matched"]
    node = Node(tmp_path, f"{OLD}.x86_64", [(name, OLD) for name in names])
    assert node.kernel().policy().packages == dict.fromkeys(names, "")


def test_another_flavour_has_the_same_parts(tmp_path: Path) -> None:
    rows = [("kernel-64k-core", OLD), ("kernel-64k-modules", OLD), ("kernel-core", NEW)]
    node = Node(tmp_path, f"{OLD}.aarch64+64k", rows, ("kernel-64k-devel-matched", OLD))
    node.running = f"{OLD}.64k"
    assert node.kernel().policy().packages == {
        "kernel-64k-core": "",
        "kernel-64k-modules": "",
        "kernel-64k-devel": OLD,
        "kernel-64k-devel-matched": OLD,
    }


def test_headers_that_no_source_has_are_reported(tmp_path: Path) -> None:
    node = Node(tmp_path, f"{OLD}.x86_64", [("kernel-core", OLD)], ("kernel-devel-matched", NEW))
    policy = node.kernel().policy()
    assert policy.packages == {"kernel-core": ""}
    assert policy.notes == [
        f"kernel-devel-matched {OLD} is not in the node's package sources: a new kernel would come without headers"
    ]


def test_a_kernel_of_no_package_is_reported(tmp_path: Path) -> None:
    policy = Node(tmp_path, "6.18.44-site", [("kernel-core", OLD)]).kernel().policy()
    assert policy.packages == {}
    assert policy.notes == [
        "kernel 6.18.44-site is of no package of this system: its headers are installed with the driver"
    ]


def test_locks_of_others_are_reported_and_left_and_those_of_rackready_are_not(tmp_path: Path) -> None:
    names = [*KERNEL, "kernel-devel", "kernel-devel-matched"]
    node = Node(tmp_path, f"{OLD}.x86_64", [(name, OLD) for name in names])
    node.lock(f"kernel-core-0:{OLD}.*", f"kernel-0:{OLD}.*", "docker-ce-3:27.3.1-1.el9.*")
    (tmp_path / "holds").write_text("kernel-core\n")
    policy = node.kernel().policy()
    assert policy.foreign == ["docker-ce", "kernel"]
    assert policy.notes == ["held by others, left as they are: docker-ce, kernel"]
    assert policy.packages == dict.fromkeys(sorted({*names} - {"kernel"}), "")


@pytest.mark.parametrize(("name", "needed"), [("initramfs-a.img", 109), ("initrd.img-a", 100)])
def test_boot_needs_room_for_two_of_the_largest_initramfs_by_its_name_here(
    tmp_path: Path, name: str, needed: int
) -> None:
    node = Node(tmp_path, f"{OLD}.x86_64", [])
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot" / name).write_bytes(b"\0" * 4_500_000)
    assert node.kernel().room() == Room(900, needed)

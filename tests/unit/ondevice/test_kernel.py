"""Kernel policy: packages that are held together, headers that follow the kernel, holds of others, room in /boot.

Rows as `dpkg-query -W` of Debian 12 and Ubuntu 24.04 prints them for the metapackages of linux and linux-meta.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.ondevice.command import Done, NodeProblem
from rackready.ondevice.kernel import Kernel, Room

DEBIAN = "6.1.0-40-amd64"
DEBIAN_ROWS = (
    f"linux-image-{DEBIAN}\t6.1.153-1\tii \tkmod, linux-base (>= 4.3~), initramfs-tools (>= 0.120+deb8u2)\n"
    f"linux-image-amd64\t6.1.153-1\tii \tlinux-image-{DEBIAN} (= 6.1.153-1)\n"
    "linux-image-6.1.0-39-amd64\t6.1.148-1\tii \tkmod, linux-base (>= 4.3~)\n"
    "linux-base\t4.9\tii \tdebconf (>= 0.5)\n"
    "linux-libc-dev\t6.1.153-1\tii \t\n"
    "linux-headers-6.1.0-38-amd64\t6.1.147-1\trc \tlinux-headers-6.1.0-38-common (= 6.1.147-1)\n"
)
UBUNTU = "6.14.0-33-generic"
UBUNTU_ROWS = (
    f"linux-image-{UBUNTU}\t6.14.0-33.33~24.04.1\tii \tkmod, linux-base (>= 4.5ubuntu1~16.04.1)\n"
    f"linux-modules-{UBUNTU}\t6.14.0-33.33~24.04.1\tii \twireless-regdb\n"
    f"linux-image-generic-hwe-24.04\t6.14.0-33.33~24.04.1\tii \tlinux-image-{UBUNTU}, linux-firmware\n"
    "linux-generic-hwe-24.04\t6.14.0-33.33~24.04.1\tii \tlinux-image-generic-hwe-24.04 (= 6.14.0-33.33~24.04.1), "
    "linux-headers-generic-hwe-24.04 (= 6.14.0-33.33~24.04.1)\n"
)


class Node:
    """A node with a kernel, Linux packages, holds, and versions that its package sources offer."""

    def __init__(self, release: str, rows: str, *, offered: str = "", holds: str = "", free: str = "900000000") -> None:
        self.answers = {
            "uname": f"{release}\n",
            "dpkg-query": rows,
            "apt-mark": holds,
            "apt-cache": offered,
            "df": f"     Avail\n {free}\n",
        }

    def __call__(self, argv: Sequence[str]) -> Done:
        return Done(0, self.answers[argv[0]])


def madison(name: str, *versions: str) -> str:
    return "".join(
        f"{name} | {version} | http://deb.debian.org/debian bookworm/main amd64 Packages\n" for version in versions
    )


def test_image_and_metapackage_are_held_and_the_headers_come_in_the_version_of_the_image(tmp_path: Path) -> None:
    exact = madison(f"linux-headers-{DEBIAN}", "6.1.153-1")
    node = Node(DEBIAN, DEBIAN_ROWS, offered=madison("linux-headers-amd64", "6.1.158-1", "6.1.153-1") + exact)
    policy = Kernel(node, folder=tmp_path).policy()
    assert policy.packages == {
        f"linux-headers-{DEBIAN}": "",
        f"linux-image-{DEBIAN}": "",
        "linux-image-amd64": "",
        "linux-headers-amd64": "6.1.153-1",
    }
    assert policy.notes == []


def test_a_kernel_of_a_later_release_gets_the_headers_of_its_own_metapackage(tmp_path: Path) -> None:
    name = "linux-headers-generic-hwe-24.04"
    node = Node(UBUNTU, UBUNTU_ROWS, offered=madison(name, "6.14.0-33.33~24.04.1"))
    policy = Kernel(node, folder=tmp_path).policy()
    assert policy.packages == {
        f"linux-image-{UBUNTU}": "",
        f"linux-modules-{UBUNTU}": "",
        "linux-image-generic-hwe-24.04": "",
        "linux-generic-hwe-24.04": "",
        name: "6.14.0-33.33~24.04.1",
    }


@pytest.mark.parametrize(
    ("release", "headers"),
    [
        ("6.1.0-40-amd64", "linux-headers-amd64"),
        ("6.1.0-40-cloud-amd64", "linux-headers-cloud-amd64"),
        ("6.12.48+deb13-amd64", "linux-headers-amd64"),
        ("6.12.48+deb13-cloud-amd64", "linux-headers-cloud-amd64"),
        ("6.8.0-85-generic", "linux-headers-generic"),
        ("6.8.0-1018-nvidia-64k", "linux-headers-nvidia-64k"),
        ("5.15.0-1092-azure", "linux-headers-azure"),
    ],
)
def test_without_a_metapackage_the_release_names_the_headers(tmp_path: Path, release: str, headers: str) -> None:
    node = Node(release, f"linux-image-{release}\t1\tii \tkmod\n", offered=madison(headers, "1"))
    assert Kernel(node, folder=tmp_path).policy().packages == {f"linux-image-{release}": "", headers: ""}


def test_a_kernel_that_boots_next_is_held_with_the_one_that_runs(tmp_path: Path) -> None:
    rows = DEBIAN_ROWS + "linux-headers-amd64\t6.1.153-1\tii \tlinux-headers-6.1.0-40-amd64 (= 6.1.153-1)\n"
    policy = Kernel(Node("6.1.0-39-amd64", rows), folder=tmp_path).policy()
    assert policy.packages == dict.fromkeys(
        ["linux-headers-amd64", "linux-image-6.1.0-39-amd64", f"linux-image-{DEBIAN}", "linux-image-amd64"], ""
    )


def test_headers_of_another_version_than_the_image_are_not_installed(tmp_path: Path) -> None:
    node = Node(DEBIAN, DEBIAN_ROWS, offered=madison("linux-headers-amd64", "6.1.158-1"))
    policy = Kernel(node, folder=tmp_path).policy()
    assert "linux-headers-amd64" not in policy.packages
    assert policy.notes == [
        "linux-headers-amd64 6.1.153-1 is not in the node's package sources: a new kernel would come without headers"
    ]


def test_a_kernel_of_nobodys_metapackage_is_reported(tmp_path: Path) -> None:
    policy = Kernel(Node("6.18.44-fc-v595", ""), folder=tmp_path).policy()
    assert policy.packages == {}
    assert policy.notes == [
        "kernel 6.18.44-fc-v595 is of no metapackage of this system: its headers are installed with the driver"
    ]


def test_holds_of_others_are_reported_and_those_of_rackready_are_not(tmp_path: Path) -> None:
    (tmp_path / "holds").write_text("linux-image-amd64\nnvidia-open\n")
    rows = DEBIAN_ROWS + "linux-headers-amd64\t6.1.153-1\thi \tlinux-headers-6.1.0-40-amd64 (= 6.1.153-1)\n"
    node = Node(DEBIAN, rows, holds="docker-ce\nlinux-image-amd64\nlibc6:i386\nnvidia-open\n")
    policy = Kernel(node, folder=tmp_path).policy()
    assert policy.foreign == ["docker-ce", "libc6"]
    assert policy.notes == ["held by others, left as they are: docker-ce, libc6"]


def test_boot_needs_room_for_two_of_the_largest_initramfs(tmp_path: Path) -> None:
    (tmp_path / "boot").mkdir()
    for name, size in (("initrd.img-6.1.0-39-amd64", 3_000_000), ("initrd.img-6.1.0-40-amd64", 4_500_000)):
        (tmp_path / "boot" / name).write_bytes(b"\0" * size)
    assert Kernel(Node(DEBIAN, "", free="108999999"), tmp_path).room() == Room(108, 109)


def test_room_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NodeProblem) as caught:
        Kernel(lambda _argv: Done(1, "df: /boot: No such file or directory\n"), tmp_path).room()
    assert str(caught.value) == (
        f"Expected: the free space of {tmp_path}/boot Actual: df: /boot: No such file or directory. "
        f"Check `df {tmp_path}/boot` on the node."
    )

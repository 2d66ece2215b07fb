"""Build requirements of the driver's module: present, installable, or refused before anything is installed.

Exact words.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.ondevice.build import BuildTools
from rackready.ondevice.command import Done, NodeProblem
from rackready.ondevice.dnf import SKIP

KERNEL = "6.1.0-28-amd64"
NEEDS = {"/lib/modules/KERNEL/build/Makefile": "linux-headers-KERNEL", "/usr/sbin/dkms": "dkms", "/usr/bin/gcc": "gcc"}


class Node:
    """A node whose package sources offer some packages."""

    def __init__(self, *offered: str) -> None:
        self.offered = offered
        self.installed = ""
        self.asked: list[str] = []

    def __call__(self, argv: Sequence[str]) -> Done:
        if argv[0] == "uname":
            return Done(0, f"{KERNEL}\n")
        if argv[0] == "dpkg-query":
            return Done(0, self.installed)
        if argv[0] == "dpkg":
            return Done(0 if argv[2] > argv[4] else 1, "")
        self.asked += argv[2:]
        known = "".join(
            f"{name}:\n  Installed: (none)\n  Candidate: {'1.0' if name in self.offered else '(none)'}\n  Version "
            "table:\n"
            for name in argv[2:3]
        )
        more = "".join(
            f"{name}:\n  Installed: (none)\n  Candidate: 1.0\n  Version table:\n"
            for name in argv[3:]
            if name in self.offered
        )
        return Done(0, known + more)


def there(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("")


def test_what_is_missing_and_can_be_had_is_listed(tmp_path: Path) -> None:
    node = Node(f"linux-headers-{KERNEL}", "dkms", "gcc")
    assert BuildTools(node, tmp_path).absent(NEEDS) == [f"linux-headers-{KERNEL}", "dkms", "gcc"]


def test_what_is_there_is_enough_wherever_it_came_from(tmp_path: Path) -> None:
    there(tmp_path, f"lib/modules/{KERNEL}/build/Makefile", "usr/sbin/dkms", "usr/bin/gcc")
    node = Node()
    assert BuildTools(node, tmp_path).absent(NEEDS) == []
    assert node.asked == []


def test_headers_of_another_kernel_do_not_count(tmp_path: Path) -> None:
    there(tmp_path, "lib/modules/6.1.0-22-amd64/build/Makefile", "usr/sbin/dkms", "usr/bin/gcc")
    assert BuildTools(Node(f"linux-headers-{KERNEL}"), tmp_path).absent(NEEDS) == [f"linux-headers-{KERNEL}"]


def test_what_cannot_be_had_is_refused_by_name_with_the_next_step(tmp_path: Path) -> None:
    there(tmp_path, "usr/bin/gcc")
    with pytest.raises(NodeProblem) as caught:
        BuildTools(Node(), tmp_path).absent(NEEDS)
    assert str(caught.value) == (
        f"Expected: the build requirements of the driver's module for kernel {KERNEL}, installed or in "
        f"the node's package sources Actual: no dkms, no linux-headers-{KERNEL}. Make the node's package "
        "sources carry them and run `apt-get update` there (headers of a kernel that was replaced are "
        "often withdrawn: reboot into the newest installed kernel), then run again: "
        "docs/runbooks/driver-build.md."
    )


NO_MATCH = """Last metadata expiration check: 0:00:01 ago on Sun Nov 29 23:20:03 2026.
No match for argument: linux-headers-6.1.0-28-amd64
No match for argument: dkms
Error: Unable to find a match: linux-headers-6.1.0-28-amd64 dkms
"""
"""dnf 4.14.0 of Debian 12: `dnf --assumeno install`, with a repository that has gcc; with -q, the last line alone."""
NOT_STRICT = "".join(NO_MATCH.splitlines(keepends=True)[:-1])
"""With strict=False in dnf.conf."""
QUIET = NO_MATCH.splitlines()[-1]
EXCLUDED = """Last metadata expiration check: 0:00:01 ago on Sun Nov 29 23:20:03 2026.
No match for argument: dkms
All matches were filtered out by exclude filtering for argument: gcc
Error: Unable to find a match: dkms gcc
"""
"""The same with `-x gcc`."""


def dnf_refusal(root: Path, out: str) -> str:
    """Return what is refused on a node whose dnf answers ``out``."""
    there(root, "usr/bin/dnf", "etc/os-release")
    ran: list[Sequence[str]] = []

    def node(argv: Sequence[str]) -> Done:
        ran.append(argv)
        return Done(0, f"{KERNEL}\n") if argv[0] == "uname" else Done(1, out)

    with pytest.raises(NodeProblem) as caught:
        BuildTools(node, root).absent(NEEDS)
    assert ran[1] == ["dnf", "--assumeno", "install", *SKIP, f"linux-headers-{KERNEL}", "dkms", "gcc"]
    return str(caught.value)


@pytest.mark.parametrize("out", [NO_MATCH, NOT_STRICT, QUIET], ids=["default", "not strict", "debuglevel 0"])
def test_dnf_names_what_cannot_be_had(tmp_path: Path, out: str) -> None:
    refusal = dnf_refusal(tmp_path, out)
    assert f" Actual: no dkms, no linux-headers-{KERNEL}. " in refusal
    assert "and run `dnf makecache --refresh` there (" in refusal


def test_a_package_that_the_node_excludes_is_named_as_such(tmp_path: Path) -> None:
    assert dnf_refusal(tmp_path, EXCLUDED) == (
        "Expected: gcc may be installed Actual: excluded on the node by others. Look for it in `dnf versionlock list` "
        "and in exclude= or excludepkgs= below /etc/dnf and /etc/yum.repos.d on the node, ask who excluded it, remove "
        "the entry and run again."
    )


def test_one_that_cannot_be_had_is_enough_to_refuse(tmp_path: Path) -> None:
    with pytest.raises(
        NodeProblem, match=rf"Actual: no linux-headers-{KERNEL}\. Make the node's package sources carry them"
    ):
        BuildTools(Node("dkms", "gcc"), tmp_path).absent(NEEDS)


EPEL_GONE = """Error: Failed to download metadata for repo 'epel': Cannot prepare internal mirrorlist: Curl error (7)
Ignoring repositories: epel
No match for argument: {}
Error: Unable to find a match: {}
"""


@pytest.mark.parametrize("package", ["dkms", f"linux-headers-{KERNEL}"])
def test_a_repository_that_does_not_answer_is_named_and_no_other_kernel_advised(tmp_path: Path, package: str) -> None:
    assert dnf_refusal(tmp_path, EPEL_GONE.format(package, package)) == (
        f"Expected: the build requirements of the driver's module for kernel {KERNEL}, installed or in the node's "
        f"package sources Actual: no {package}; no metadata from epel (Cannot prepare internal mirrorlist: Curl error "
        "(7)). Make the node's package sources carry them and run `dnf makecache --refresh` there, then run again: "
        "docs/runbooks/driver-build.md. Or give the node a way to epel, if it is there."
    )


GCC_12 = {"/usr/bin/gcc-12": "gcc-12"}
GCC_11_TEXT = "gcc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0"
GCC_12_TEXT = "x86_64-linux-gnu-gcc-12 (Ubuntu 12.3.0-1ubuntu1~22.04) 12.3.0"
AUTO_CONF = "lib/modules/{}/build/include/config/auto.conf"


def built_with(root: Path, path: str, text: str) -> None:
    there(root, path)
    (root / path).write_text(f"CONFIG_X86_64=y\nCONFIG_CC_VERSION_TEXT={text}\nCONFIG_CC_IS_GCC=y\n")


def test_a_kernel_of_gcc_11_wants_no_gcc_12_that_its_mirror_lacks(tmp_path: Path) -> None:
    built_with(tmp_path, f"boot/config-{KERNEL}", f'"{GCC_11_TEXT}"')
    built_with(tmp_path, AUTO_CONF.format(KERNEL), GCC_11_TEXT)
    built_with(tmp_path, "boot/config-5.19.0-1-generic", f'"{GCC_12_TEXT}"')  # boots no more
    assert BuildTools(Node("dkms"), tmp_path).absent({"/usr/sbin/dkms": "dkms"} | GCC_12) == ["dkms"]


@pytest.mark.parametrize(
    ("path", "text"), [(f"boot/config-{KERNEL}", f'"{GCC_12_TEXT}"'), (AUTO_CONF.format(KERNEL), GCC_12_TEXT)]
)
def test_a_kernel_of_gcc_12_wants_it(tmp_path: Path, path: str, text: str) -> None:
    built_with(tmp_path, path, text)
    assert BuildTools(Node("gcc-12"), tmp_path).absent(GCC_12) == ["gcc-12"]
    with pytest.raises(NodeProblem) as caught:
        BuildTools(Node(), tmp_path, "DOCA-OFED's modules").absent(GCC_12)
    assert str(caught.value) == (
        f"Expected: the build requirements of DOCA-OFED's modules for kernel {KERNEL}, installed or in the node's "
        "package sources Actual: no gcc-12. Make the node's package sources carry them and run `apt-get update` there "
        "(a kernel of the node was built with gcc-12, and mirrors of earlier releases lack it: run `rackready mirror` "
        "again), then run again: docs/runbooks/driver-build.md."
    )


def test_the_compiler_of_a_newer_kernel_that_boots_next_is_wanted_too(tmp_path: Path) -> None:
    built_with(tmp_path, f"boot/config-{KERNEL}", f'"{GCC_11_TEXT}"')
    built_with(tmp_path, f"boot/config-{NEWER}", f'"{GCC_12_TEXT}"')
    node = Node("gcc-12")
    node.installed = leads_to(KERNEL, NEWER)
    assert BuildTools(node, tmp_path).absent(GCC_12) == ["gcc-12"]


MODULES = {"linux-modules-nvidia-580-server-open-KERNEL": "", "linux-signatures-nvidia-KERNEL": "6.1.0-28.28"}


def test_precompiled_modules_are_those_of_the_running_kernel(tmp_path: Path) -> None:
    names = [f"linux-modules-nvidia-580-server-open-{KERNEL}", f"linux-signatures-nvidia-{KERNEL}"]
    assert BuildTools(Node(*names), tmp_path).modules(MODULES) == dict(zip(names, ["", "6.1.0-28.28"], strict=True))


def test_a_kernel_without_precompiled_modules_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NodeProblem) as caught:
        BuildTools(Node(f"linux-signatures-nvidia-{KERNEL}"), tmp_path).modules(MODULES)
    assert str(caught.value) == (
        f"Expected: precompiled modules of the driver for kernel {KERNEL}, in the node's package sources Actual: no "
        f"linux-modules-nvidia-580-server-open-{KERNEL}. Boot a kernel that has them, or make the node's package "
        "sources carry them and run `apt-get update` there, then run again: docs/runbooks/driver-build.md."
    )


NEWER = "6.1.0-29-amd64"


def leads_to(*kernels: str) -> str:
    """Return metapackages of these kernels, as dpkg-query prints them."""
    return "".join(f"linux-image-{number}\t6.1\tii \tlinux-image-{name}\n" for number, name in enumerate(kernels))


def test_a_newer_kernel_that_boots_next_gets_its_precompiled_modules_in_the_version_of_the_sources(
    tmp_path: Path,
) -> None:
    names = [name.replace("KERNEL", kernel) for kernel in (KERNEL, NEWER) for name in MODULES]
    node = Node(*names)
    node.installed = leads_to(KERNEL, NEWER)
    assert BuildTools(node, tmp_path).modules(MODULES) == dict(zip(names, ["", "6.1.0-28.28", "", ""], strict=True))


def test_kernels_that_do_not_boot_next_need_no_modules(tmp_path: Path) -> None:
    names = [name.replace("KERNEL", KERNEL) for name in MODULES]
    node = Node(*names)
    node.installed = leads_to("6.1.0-27-amd64", "6.1.0-30-cloud-amd64")
    assert list(BuildTools(node, tmp_path).modules(MODULES)) == names


def test_a_newer_kernel_without_precompiled_modules_is_refused_before_a_reboot_ends_without_driver(
    tmp_path: Path,
) -> None:
    node = Node(*(name.replace("KERNEL", KERNEL) for name in MODULES), f"linux-signatures-nvidia-{NEWER}")
    node.installed = leads_to(NEWER)
    with pytest.raises(NodeProblem) as caught:
        BuildTools(node, tmp_path).modules(MODULES)
    assert str(caught.value) == (
        f"Expected: precompiled modules of the driver for newer kernel {NEWER}, which boots next, in the node's "
        f"package sources Actual: no linux-modules-nvidia-580-server-open-{NEWER}. Remove kernel {NEWER} from the "
        "node, or make the node's package sources carry them and run `apt-get update` there, then run again: "
        "docs/runbooks/driver-build.md."
    )


def test_at_boot_the_driver_is_loaded_after_dkms_has_built_it_for_a_new_kernel() -> None:
    root = Path(__file__).resolve().parents[3]
    unit = (root / "roles/nvidia_driver/templates/rackready-nvidia.service.j2").read_text(encoding="utf-8")
    assert "After=dkms.service\n" in unit

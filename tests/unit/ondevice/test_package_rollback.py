"""A change of packages that fails ends with the packages and holds that were there before, and the message says so."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.ondevice.apt import Apt
from rackready.ondevice.command import Done, NodeProblem
from rackready.ondevice.dnf import Dnf
from rackready.ondevice.packages import Wish
from tests.unit.ondevice import test_dnf
from tests.unit.ondevice.test_apt import Node

WISH = Wish({"dcgm": "4.7-1"}, hold=True)
BROKEN = "E: Sub-process /usr/bin/dpkg returned an error code (1)\n"


class Broken(Node):
    """A node on which one version of a package is unpacked, and its configuration fails."""

    def __init__(self) -> None:
        super().__init__()
        self.mirror = {"dcgm": ["4.7-1", "4.6-1"], "dcgm-plugins": ["4.7-1", "4.6-1"]}
        self.lists = dict(self.mirror)
        self.fails_at = "4.7-1"

    def __call__(self, argv: Sequence[str]) -> Done:
        done = super().__call__(argv)
        if f"dcgm={self.fails_at}" in argv:
            self.installed["dcgm"] = (self.fails_at, "hF ")
            self.installed["dcgm-plugins"] = (self.fails_at, "iU ")
            return Done(100, BROKEN)
        return done


@pytest.fixture
def node() -> Broken:
    return Broken()


@pytest.fixture
def apt(node: Broken, tmp_path: Path) -> Apt:
    (tmp_path / "var/lib/dpkg/updates").mkdir(parents=True)
    return Apt(run=node, root=tmp_path, folder=tmp_path / "rackready", lock_wait_s=0.2)


def test_failed_upgrade_brings_back_the_version_that_was_there(apt: Apt, node: Broken) -> None:
    node.installed = {"dcgm": ("4.6-1", "hi "), "bash": ("5-1", "ii ")}
    apt.folder.mkdir()
    apt.remember_holds(["dcgm"])
    with pytest.raises(NodeProblem) as caught:
        apt.ensure(WISH, "install", 1, "a")
    assert str(caught.value) == (
        "Expected: apt ends without an error Actual: E: Sub-process /usr/bin/dpkg returned an error code (1); "
        "rolled back: packages and holds are as before. See /var/log/apt/term.log on the node."
    )
    assert node.installed == {"dcgm": ("4.6-1", "hi "), "bash": ("5-1", "ii ")}
    assert node.ran[1].endswith("--allow-downgrades --purge dcgm=4.6-1 dcgm-plugins-")
    assert apt.own_holds() == {"dcgm"}
    assert apt.ensure(Wish({"dcgm": "4.6-1"}, hold=True), "install", 2, "a").notes == []


def test_failed_first_installation_leaves_nothing(apt: Apt, node: Broken) -> None:
    node.installed = {"bash": ("5-1", "ii ")}
    with pytest.raises(NodeProblem, match="rolled back: packages and holds are as before"):
        apt.ensure(WISH, "install", 1, "a")
    assert node.installed == {"bash": ("5-1", "ii ")}
    assert apt.own_holds() == set()


def test_a_rollback_that_fails_names_both_reasons(apt: Apt, node: Broken) -> None:
    node.installed = {"dcgm": ("4.5-1", "ii ")}
    node.fails["apt-get update"] = "E: Failed to fetch http://mirror/InRelease  Could not connect to mirror:80\n"
    with pytest.raises(NodeProblem) as caught:
        apt.ensure(WISH, "install", 1, "a")
    words = "error code (1); the rollback failed as well: wanted the package mirror answers, found Failed to fetch"
    assert words in str(caught.value)
    assert str(caught.value).endswith(
        " For the rollback: Check that the mirror is up and that its url in the site file is right, then run again."
    )


def test_without_rollback_the_caller_has_its_own_way_back(apt: Apt, node: Broken) -> None:
    node.installed = {"dcgm": ("4.6-1", "ii ")}
    with pytest.raises(NodeProblem, match=r"error code \(1\)\. See"):
        apt.ensure(dataclasses.replace(WISH, rollback=False), "install", 1, "a")
    assert node.installed["dcgm"] == ("4.7-1", "hF ")


def test_a_change_that_fails_before_packages_change_is_reported_as_it_is(apt: Apt, node: Broken) -> None:
    node.installed = {"dcgm": ("4.6-1", "hi "), "bash": ("5-1", "ii ")}
    with pytest.raises(NodeProblem) as caught:
        apt.ensure(WISH, "install", 1, "a")
    assert "rolled back" not in str(caught.value)
    assert str(caught.value).startswith("Expected: no hold that others set Actual: dcgm held, not by rackready. ")
    assert node.ran == []


def test_a_hold_of_others_is_no_companion_of_a_first_change(apt: Apt, node: Broken) -> None:
    """Without holds of its own, rackready once took every held package of the old version for its own."""
    node.installed = {"dcgm": ("4.6-1", "ii "), "other": ("4.6-1", "hi ")}
    apt.ensure(Wish({"dcgm": "4.8-1"}), "install", 1, "a")
    assert [line for line in node.ran if "unhold" in line] == []


def test_a_version_that_cannot_be_configured_gives_way_to_another_one(apt: Apt, node: Broken) -> None:
    """After a power cut in a bad upgrade, the site asks for the version that worked: it is no downgrade."""
    node.installed = {"dcgm": ("4.7-1", "hF "), "dcgm-plugins": ("4.7-1", "ii "), "bash": ("5-1", "ii ")}
    node.audit = "dcgm is half configured"
    node.fails = {"dpkg --configure": BROKEN, "apt-get install": BROKEN}
    apt.folder.mkdir()
    apt.remember_holds(["dcgm"])

    def run(argv: Sequence[str]) -> Done:
        if "dcgm=4.6-1" in argv:
            node.fails, node.audit = {}, ""
        return node(argv)

    apt.run = run
    change = apt.ensure(Wish({"dcgm": "4.6-1", "dcgm-plugins": "4.6-1"}, hold=True), "install", 1, "a")
    assert change.notes[-1] == "dpkg cannot configure dcgm: another version must replace it"
    assert node.installed["dcgm"] == ("4.6-1", "hi ")
    options = "--no-install-recommends --allow-change-held-packages --allow-downgrades"
    line = f"apt-get install {options} dcgm=4.6-1 dcgm-plugins=4.6-1"
    assert [each for each in node.ran if "dcgm=4.6-1" in each] == [line]


def test_another_role_that_has_nothing_to_change_passes_beside_it(apt: Apt, node: Broken) -> None:
    """Role base comes first: if it failed, the role that could replace the package would never run."""
    node.installed = {"dcgm": ("4.7-1", "hF "), "pin": ("1", "ii ")}
    node.audit = "dcgm is half configured"
    node.fails = {"dpkg --configure": BROKEN, "apt-get install": BROKEN}
    change = apt.ensure(Wish({"pin": ""}), "install", 1, "a")
    assert (change.changed, len(change.notes)) == ({}, 2)


REMOVES = "Inst nvidia-persistenced [580.1-1] (580.2-1 mirror)\nRemv nvidia-open [580.1-1]\n"


@pytest.mark.parametrize("may_remove", [[], ["nvidia-fabric*"]])
def test_what_another_role_holds_is_not_removed(apt: Apt, node: Broken, may_remove: list[str]) -> None:
    """Apt removed the driver when the persistence daemon was wanted in a version that does not fit it."""
    node.mirror = node.lists = {"nvidia-persistenced": ["580.2-1", "580.1-1"]}
    node.installed = {"nvidia-persistenced": ("580.1-1", "hi "), "nvidia-open": ("580.1-1", "hi ")}
    (apt.root / "var/lib/dpkg/status").write_text("")
    apt.folder.mkdir()
    apt.remember_holds(["nvidia-persistenced", "nvidia-open"])
    node.simulated = REMOVES
    wish = Wish({"nvidia-persistenced": "580.2-1"}, hold=True, may_remove=may_remove)
    with pytest.raises(NodeProblem) as caught:
        apt.ensure(wish, "install", 1, "a")
    assert str(caught.value) == (
        "Expected: nvidia-persistenced=580.2-1 beside the packages that rackready installed Actual: apt would remove "
        "nvidia-open. Choose versions that fit each other (software.set), then run again. No package was changed."
    )
    assert [line for line in node.ran if "--simulate" not in line] == []
    apt.ensure(dataclasses.replace(wish, may_remove=["nvidia-*"]), "install", 1, "a")
    assert node.installed["nvidia-persistenced"] == ("580.2-1", "hi ")


@pytest.mark.parametrize("wish", [WISH, Wish({"dcgm": ""}), Wish({"pin": "1"})], ids=["same", "any", "other"])
def test_a_version_that_cannot_be_configured_is_named_where_no_other_one_is_wanted(
    apt: Apt, node: Broken, wish: Wish
) -> None:
    node.installed = {"dcgm": ("4.7-1", "hF ")}
    node.audit = "dcgm is half configured"
    node.fails = {"dpkg --configure": BROKEN, "apt-get install": BROKEN}
    with pytest.raises(NodeProblem, match=r"Run `dpkg --configure -a` on the node and read its output; or choose"):
        apt.ensure(wish, "install", 1, "a")


def test_dnf_brings_packages_and_locks_back_and_leaves_kernels_alone(tmp_path: Path) -> None:
    node = test_dnf.Node(tmp_path)
    dnf = Dnf(run=node, root=tmp_path, folder=tmp_path / "rackready", lock_wait_s=0.2)
    dnf.ensure(test_dnf.WISH, "install", 1, "a")
    node.installed |= {"kernel-core": ["5.14-1", "5.14-2"], "gpg-pubkey": ["1-1", "2-1"]}
    before, locks = {name: list(items) for name, items in node.installed.items()}, test_dnf.locks(node)

    def run(argv: Sequence[str]) -> Done:
        done = node(argv)
        if argv[:3] == ["dnf", "-y", "install"] and "--allowerasing" not in argv:
            node.installed["kernel-core"].append("5.14-3")
            return Done(1, "Error: Transaction failed\n")
        return done

    dnf.run = run
    with pytest.raises(NodeProblem, match="rolled back: packages and holds are as before"):
        dnf.ensure(Wish({"nvidia-driver-cuda": test_dnf.NEW}, hold=True), "install", 2, "a")
    node.installed["kernel-core"].pop()
    assert node.installed == before
    assert test_dnf.locks(node) == locks

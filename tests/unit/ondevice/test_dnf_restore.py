"""Packages, streams and version locks of dnf go back to what they were; locks of other roles follow a change."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from rackready.ondevice.dnf import Dnf
from rackready.ondevice.packages import Wish
from tests.unit.ondevice.test_dnf import LOCK, NEW, OLD, WISH, Node, locks

PATTERNS = ("nvidia-*",)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def dnf(node: Node, tmp_path: Path) -> Dnf:
    return Dnf(run=node, root=tmp_path, folder=tmp_path / "rackready", lock_wait_s=0.2)


def test_locks_of_other_roles_at_the_old_version_give_way_and_follow(dnf: Dnf, node: Node) -> None:
    dnf.ensure(WISH, "install", 1, "a")
    node.installed["nvidia-persistenced"] = [OLD]
    dnf.remember_holds(["nvidia-persistenced"])
    node.versionlock(["add", "--raw", f"nvidia-persistenced-{OLD}.*"])
    dnf.ensure(Wish({"nvidia-driver-cuda": NEW}, hold=True), "install", 1, "a")
    assert f"versionlock delete {LOCK} nvidia-persistenced-{OLD}.*" in node.ran
    assert f"nvidia-persistenced-{OLD}.*" in locks(node), "the fake dnf left it, so its present version is locked again"


def test_packages_streams_and_locks_come_back_without_consent(dnf: Dnf, node: Node) -> None:
    dnf.ensure(dataclasses.replace(WISH, streams=["nvidia-driver:580-open"]), "install", 1, "a")
    before, held, own = dnf.snapshot(PATTERNS, ["nvidia-driver"]), locks(node), dnf.own_holds()
    upgrade = Wish({"nvidia-driver-cuda": NEW}, hold=True, streams=["nvidia-driver:595-open"])
    dnf.ensure(upgrade, "install", 1, "a")
    node.installed["nvidia-new-part"] = [NEW]
    dnf.remember_holds(["nvidia-new-part"])
    node.ran.clear()
    assert dnf.restore(before, PATTERNS, [])
    assert node.ran == [
        f"versionlock delete nvidia-driver-cuda-{NEW}.*",
        "module reset nvidia-driver",
        "makecache --refresh --repo rackready*",
        "module enable nvidia-driver:580-open",
        f"install --allowerasing nvidia-driver-cuda-{OLD}",
        "remove --noautoremove nvidia-new-part",
        f"versionlock add --raw {LOCK}",
    ]
    assert node.installed == {"bash": ["0:5.1-9.el9"], "nvidia-driver-cuda": [OLD]}
    assert (locks(node), dnf.own_holds(), dnf.stream("nvidia-driver")) == (held, own, "580-open")
    node.ran.clear()
    assert not dnf.restore(before, PATTERNS, [])
    assert node.ran == []

"""Package lists of the operating system: when they are fetched, and which source is named when it gives none.

apt's words are of apt 2.6.2, with sources that do not answer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.ondevice.apt import Apt
from rackready.ondevice.apt_lists import AGE_S, SystemLists
from rackready.ondevice.apt_words import Silent, silent
from rackready.ondevice.command import Done, NodeProblem
from rackready.ondevice.packages import Wish

UBUNTU = """# Ubuntu
Types: deb
URIs: http://archive.ubuntu.com/ubuntu
Suites: noble noble-updates
Components: main
"""
OWN = "Types: deb\nURIs: http://10.0.0.2:8080\nSuites: ./\n"
REFUSED = "Could not connect to 10.0.0.2:8080 (10.0.0.2). - connect (111: Connection refused)"
NO_NAME = "Could not resolve 'archive.ubuntu.com'"
DOWN = f"""Err:1 http://archive.ubuntu.com/ubuntu noble InRelease
  {NO_NAME}
Reading package lists...
E: Failed to fetch http://archive.ubuntu.com/ubuntu/dists/noble/InRelease  {NO_NAME}
E: Some index files failed to download. They have been ignored, or old ones used instead.
"""
SILENT = f"http://archive.ubuntu.com/ubuntu noble: {NO_NAME}"


class Node:
    """apt of a machine with rackready's source and the operating system's; both answer unless ``down`` says how not."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.known: set[str] = set()
        self.installed: set[str] = set()
        self.down: dict[str, str] = {}
        self.ran: list[str] = []
        (root / "var/lib/dpkg/updates").mkdir(parents=True)
        (root / "var/lib/apt/lists").mkdir(parents=True)
        self.source("sources.list.d/ubuntu.sources", UBUNTU)
        self.source("sources.list.d/rackready.sources", OWN)

    def source(self, name: str, text: str) -> None:
        path = self.root / "etc/apt" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def list_of(self, name: str, age_s: float = 0.0) -> None:
        path = self.root / "var/lib/apt" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (time.time() - age_s,) * 2)

    def __call__(self, argv: Sequence[str]) -> Done:
        if argv[:2] == ["apt-get", "update"]:
            return self.update("own" if any("Dir::Etc::sourcelist" in word for word in argv) else "all")
        if argv[0] == "apt-cache":
            return Done(
                0, "".join(f" {name} | 1-1 | http://m ./ Packages\n" for name in argv[2:] if name in self.known)
            )
        if argv[0] == "dpkg-query":
            return Done(0, "".join(f"{name}\t1-1\tii \n" for name in self.installed))
        if "install" in argv:
            self.ran.append("install")
            self.installed |= {word.partition("=")[0] for word in argv[argv.index("install") + 1 :] if word[0] != "-"}
        return Done(0, "")

    def update(self, which: str) -> Done:
        self.ran.append(f"update {which}")
        if which in self.down:
            return Done(100, self.down[which])
        self.known |= {"nvidia-open"} if which == "own" else {"nvidia-open", "chrony"}
        return Done(0, "")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def apt(node: Node, tmp_path: Path) -> Apt:
    return Apt(run=node, root=tmp_path, folder=tmp_path / "rackready", lock_wait_s=0.2)


@pytest.fixture
def lists(node: Node, tmp_path: Path) -> SystemLists:
    return SystemLists(node, tmp_path, tmp_path / "rackready")


def test_a_package_of_the_operating_system_is_found_on_an_image_without_lists(apt: Apt, node: Node) -> None:
    assert apt.ensure(Wish({"chrony": ""}), "install", 1, "a").changed == {"chrony": ("absent", "installed")}
    assert node.ran == ["update own", "update all", "install"]


def test_a_package_of_rackready_s_source_needs_no_other_list(apt: Apt, node: Node) -> None:
    node.down = {"all": DOWN}
    apt.ensure(Wish({"nvidia-open": "1-1"}), "install", 1, "a")
    assert node.ran == ["update own", "install"]


def test_without_other_sources_no_other_list_is_fetched(apt: Apt, node: Node) -> None:
    node.source("sources.list.d/ubuntu.sources", UBUNTU.replace("Types", "Enabled: no\nTypes"))
    apt.ensure(Wish({"chrony": ""}), "install", 1, "a")
    assert node.ran == ["update own", "install"]


def test_a_mirror_of_the_operating_system_that_does_not_answer_is_named(apt: Apt, node: Node) -> None:
    node.down = {"all": DOWN}
    with pytest.raises(NodeProblem) as caught:
        apt.ensure(Wish({"chrony": "1-1", "nvidia-open": ""}), "install", 1, "a")
    assert str(caught.value) == (
        "Expected: chrony=1-1 in the node's package sources Actual: not in those that answer; no list from "
        f"{SILENT}. Correct that source below /etc/apt on the node or give the node a way to it, or put the package on "
        "the mirror (software.mirror, software.repositories); then run again."
    )
    assert node.ran == ["update own", "update all"]


@pytest.mark.parametrize("which", ["own", "all"])
def test_a_source_of_rackready_s_that_does_not_answer_stays_a_refusal(apt: Apt, node: Node, which: str) -> None:
    url = "http://10.0.0.2:8080"
    node.down = {
        which: f"Err:1 {url} ./ InRelease\n  {REFUSED}\nE: Failed to fetch {url}/./InRelease  {REFUSED}\n{DOWN}"
    }
    with pytest.raises(NodeProblem) as caught:
        apt.ensure(Wish({"chrony": ""}), "install", 1, "a")
    assert str(caught.value) == (
        f"Expected: the package mirror answers Actual: {REFUSED}. Check that the mirror is up and that its url in the "
        "site file is right, then run again."
    )


def test_a_node_that_cannot_store_lists_says_so_and_not_that_a_mirror_is_silent(apt: Apt, node: Node) -> None:
    node.down = {"all": f"{DOWN}E: Write error - write (28: No space left on device)\n"}
    with pytest.raises(NodeProblem, match="Expected: room on the node's disk for the packages Actual: No space left"):
        apt.ensure(Wish({"chrony": ""}), "install", 1, "a")


WISH = Wish({}, system_lists=True)


def test_absent_lists_are_fetched_once(apt: Apt, node: Node) -> None:
    assert apt.ensure(WISH, "install", 1, "a").refreshed
    assert node.ran == ["update all"]
    assert not apt.ensure(WISH, "install", 2, "a").refreshed
    assert node.ran == ["update all"]


def test_a_dry_run_fetches_nothing(apt: Apt, node: Node) -> None:
    assert not apt.ensure(WISH, "install", 1, "a", check=True).refreshed
    assert node.ran == []


def test_old_lists_stay_and_the_source_is_reported_where_nothing_is_missing(apt: Apt, node: Node) -> None:
    node.down = {"all": DOWN}
    change = apt.ensure(WISH, "install", 1, "a")
    assert change.notes == [f"package source {SILENT}: the node keeps the lists that it has"]
    apt.ensure(WISH, "install", 2, "a")
    assert node.ran == ["update all"], "a mirror that is silent delays one run a day"


LIST = "lists/archive.ubuntu.com_ubuntu_dists_noble_InRelease"


@pytest.mark.parametrize(
    ("files", "old"),
    [
        ({}, True),
        ({LIST: AGE_S + 60}, True),
        ({LIST: AGE_S - 60}, False),
        ({LIST: AGE_S + 60, "periodic/update-stamp": 60}, False),
        ({LIST: AGE_S + 60, "periodic/update-success-stamp": 60}, False),
        ({"periodic/update-success-stamp": 60}, True),
        ({"lists/10.0.0.2:8080_._InRelease": 60}, True),
        ({LIST: AGE_S + 60, "lists/10.0.0.2:8080_._InRelease": 60}, True),
    ],
)
def test_age_of_lists(lists: SystemLists, node: Node, files: dict[str, float], *, old: bool) -> None:
    for name, age_s in files.items():
        node.list_of(name, age_s)
    assert lists.old() is old


def test_sources_of_others(lists: SystemLists, node: Node) -> None:
    node.source(
        "sources.list",
        "# deb http://commented ./\ndeb [arch=amd64 signed-by=/k] http://one noble main\n"
        "deb-src http://source noble main\n"
        "deb cdrom:[Debian]/ bookworm main\n",
    )
    node.source("sources.list.d/more.list", "deb http://two ./\n")
    node.source("sources.list.d/more.list.save", "deb http://three ./\n")
    node.source("sources.list.d/src.sources", "Types: deb-src\nURIs: http://four\nSuites: x\n")
    two = (
        "Types: deb deb-src\nURIs: http://five\n http://six\nSuites: x\n\nEnabled: no\nTypes: deb\nURIs: http://seven\n"
    )
    node.source("sources.list.d/two.sources", two)
    assert lists.sources() == [
        "http://one",
        "http://two",
        "http://five",
        "http://six",
        "http://archive.ubuntu.com/ubuntu",
    ]
    assert lists.own() == ["http://10.0.0.2:8080"]


def test_what_apt_says_about_sources_that_give_no_list() -> None:
    out = (
        f"{DOWN}W: Failed to fetch http://archive.ubuntu.com/ubuntu/dists/noble/InRelease  {NO_NAME}\n"
        "E: The repository 'http://ppa.example/x noble Release' does not have a Release file.\n"
        "E: Failed to fetch http://m.example/u/dists/noble/main/binary-amd64/Packages.gz  Hash Sum mismatch\n"
    )
    assert silent(out) == [
        Silent("http://archive.ubuntu.com/ubuntu noble", NO_NAME),
        Silent("http://ppa.example/x noble", "does not have a Release file"),
        Silent("http://m.example/u/dists/noble/main/binary-amd64/Packages.gz", "Hash Sum mismatch"),
    ]

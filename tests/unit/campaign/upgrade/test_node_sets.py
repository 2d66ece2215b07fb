"""Version sets of moved nodes: what the site is seen with, what an edit of its file means, and damage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from rackready.design.facts import desired_digest
from rackready.design.hostvars import groups
from rackready.design.node_sets import NodeSet, NodeSetsDamagedError, choice_of, read, regrouped, with_sets, write
from rackready.design.pinned import digest, pin, pinned_file, read_pinned
from rackready.design.site import load_site
from rackready.design.software_of import only
from rackready.ledger.node_sets import OPERATION, assign, assigned, refresh, settle
from rackready.ledger.store import Ledger
from rackready.model.operations import SoftwareGroup
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.model.upgrade import SetChoice
from rackready.paths import EnvPaths
from tests.unit.campaign.upgrade.upgrade_sites import FORMER, OLD, ROOT, site_of

LATER = SetChoice(set="hgx-r580-later")
MOVED = NodeSet(LATER, FORMER)


@pytest.fixture
def paths(tmp_path: Path) -> EnvPaths:
    """An environment with a profile of its own: a newer driver."""
    folder = tmp_path / "inventories/lab/profiles/software"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "inventories/sim/site.yml", tmp_path / "inventories/lab/site.yml")
    text = (ROOT / f"src/rackready/profiles/software/{OLD}.yml").read_text(encoding="utf-8")
    text = text.replace("580.173.02", "580.178.01").replace(f"id: {OLD}", f"id: {LATER.set}")
    (folder / f"{LATER.set}.yml").write_text(text, encoding="utf-8")
    return EnvPaths(tmp_path, "lab")


def sets_of(site: Site) -> dict[str, str]:
    return {node.name: choice_of(site, node.name).set for node in site.nodes()}


def load(paths: EnvPaths, *, written: bool = False) -> Site:
    return load_site(paths.env, root=paths.root, written=written)


def edit(paths: EnvPaths, wanted: str) -> None:
    document = yaml.safe_load(paths.site_file.read_text(encoding="utf-8"))
    document["software"]["set"] = wanted
    paths.site_file.write_text(yaml.safe_dump(document), encoding="utf-8")


def test_a_moved_node_is_seen_with_its_set_and_the_others_are_as_before(paths: EnvPaths) -> None:
    before = load(paths)
    with Ledger.open(paths.database) as ledger:
        assign(ledger, paths, "node02", MOVED)
    after = load(paths)
    assert sets_of(after) == {"node01": OLD, "node02": LATER.set, "node03": OLD, "node04": OLD}
    assert sets_of(load(paths, written=True)) == dict.fromkeys(sets_of(after), OLD)
    changed = [
        node.name for node in after.nodes() if desired_digest(before, node.name) != desired_digest(after, node.name)
    ]
    assert changed == ["node02"]
    own = groups(after)["software_upgraded_hgx_r580_later_own"]
    assert (own["hosts"], own["vars"]["nvidia_driver_version"]) == (["node02"], "580.178.01")


def test_the_pinned_site_keeps_the_sets(paths: EnvPaths) -> None:
    site = regrouped(load(paths), {"node02": LATER})
    pin(paths, site)
    assert sets_of(read_pinned(pinned_file(paths, digest(site)))) == sets_of(site)


def test_once_the_file_says_the_same_the_record_is_forgotten_and_a_revert_counts(paths: EnvPaths) -> None:
    with Ledger.open(paths.database) as ledger:
        assign(ledger, paths, "node02", MOVED)
        edit(paths, LATER.set)
        settle(ledger, paths, load(paths, written=True))
        assert assigned(ledger) == read(paths.node_sets) == {}
    edit(paths, OLD)
    assert set(sets_of(load(paths)).values()) == {OLD}


def test_an_edit_to_a_third_set_counts() -> None:
    site = site_of(software={"set": "hgx-r580-ubuntu2404"})
    assert with_sets(site, {"node02": MOVED}) is site


def test_nodes_that_are_gone_from_the_site_are_no_matter() -> None:
    site = site_of()
    assert with_sets(site, {"node99": MOVED}) is site


def test_the_same_choice_gives_the_same_site_whatever_came_before() -> None:
    site = site_of()
    once = regrouped(site, {"node01": LATER, "node02": LATER})
    twice = regrouped(regrouped(site, {"node02": LATER}), {"node01": LATER})
    assert digest(once) == digest(twice)
    assert digest(regrouped(once, {"node01": FORMER, "node02": FORMER})) == digest(site)


def test_groups_of_the_file_lose_the_nodes_that_move_and_keep_the_others() -> None:
    moved = regrouped(_grouped(site_of()), {"node01": FORMER, "node03": SetChoice(set="third")})
    assert sets_of(moved) == {"node01": OLD, "node02": LATER.set, "node03": "third", "node04": OLD}
    assert [(one.name, one.nodes) for one in moved.software.groups] == [
        ("canary", ["node02"]),
        ("upgraded-third-own", ["node03"]),
    ]


def test_a_branch_is_part_of_the_choice() -> None:
    branch = SetChoice(set=OLD, branch=580)
    assert choice_of(regrouped(site_of(), {"node01": branch}), "node01") == branch


def test_the_copy_is_written_again_from_the_ledger(paths: EnvPaths) -> None:
    with Ledger.open(paths.database) as ledger:
        assign(ledger, paths, "node02", MOVED)
        assign(ledger, paths, "node02", MOVED)
        assert len([one for one in ledger.entries("node02") if one.operation == OPERATION]) == 1
    paths.node_sets.unlink()
    refresh(paths)
    assert read(paths.node_sets) == {"node02": MOVED}


def test_a_node_that_goes_back_leaves_the_record(paths: EnvPaths) -> None:
    with Ledger.open(paths.database) as ledger:
        assign(ledger, paths, "node02", MOVED)
        ledger.raise_epoch("node02", "repair")
        assert assigned(ledger) == {"node02": MOVED}, "a repair does not change the set"
        assign(ledger, paths, "node02", NodeSet(FORMER, FORMER))
        assert assigned(ledger) == {}
    assert set(sets_of(load(paths)).values()) == {OLD}


@pytest.mark.parametrize("text", ["", "[]", '{"schema": "x", "nodes": {}}', '{"schema": "rackready/node-sets/v1"}'])
def test_a_damaged_copy_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "node_sets.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(NodeSetsDamagedError) as caught:
        read(path)
    assert str(caught.value).startswith(
        f"{path} - Expected: the version sets of upgraded nodes (rackready/node-sets/v1) Actual: "
    )
    assert str(caught.value).endswith(
        "damaged. Remove it, then run `rackready upgrade`: it writes it again from the ledger."
    )


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write(tmp_path / "x/sets.json", {"node02": MOVED})
    assert read(tmp_path / "x/sets.json") == {"node02": MOVED}


def _grouped(site: Site) -> Site:
    group = SoftwareGroup(name="canary", nodes=["node[01-02]"], set=LATER.set, driver_branch=None)
    return site.model_copy(update={"software": site.software.model_copy(update={"groups": [group]})})


def test_a_mirror_can_be_built_of_a_set_that_no_node_has_yet(paths: EnvPaths) -> None:
    chosen = only(load(paths), LATER.set)
    assert (chosen.software.set, len(chosen.nodes())) == (LATER.set, 4)
    with pytest.raises(RackreadyError, match="--set - Expected: one of hgx-r580-debian12, because a mirror serves one"):
        only(load(paths), "hgx-r580-ubuntu2404")

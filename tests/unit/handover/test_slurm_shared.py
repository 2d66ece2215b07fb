"""Nodes on which Slurm's files are not the node's own are refused by name before anything changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.drivers.scheduler.base import SchedulerError
from rackready.drivers.scheduler.slurm_nodes import NodeLook
from rackready.handover.slurm_classic import Spread, spread_over, to_copy
from tests.unit.handover.test_slurm_classic import PLAIN, WHERE, Nodes, classic_site, cluster, files


class Looking(Nodes):
    """Nodes that are found so."""

    found: dict[str, NodeLook]

    def look(self, nodes: list[str]) -> dict[str, NodeLook | str]:
        return {node: self.found[node] for node in nodes}


def look(*links: str, on: str = "ext4") -> NodeLook:
    return NodeLook({}, active=False, kill_mode="process", links=frozenset(links), filesystem=on)


def test_shared_folders_and_links_are_refused_by_name(tmp_path: Path) -> None:
    site = classic_site(tmp_path)
    nodes = Looking()
    nodes.found = {
        "node01": look(on="nfs4"), "node02": look("slurm.conf", "rackready_nodes.conf", "own.conf"),
        "node03": look(on="fuse.sshfs"),
    }  # fmt: skip
    with pytest.raises(SchedulerError) as caught:
        spread_over(site, files(site), cluster(), WHERE, nodes, list(nodes.found))  # type: ignore[arg-type]
    fetch = "or let nodes fetch them (enable_configless, and handover.files.distribution configless)."
    own = f"Nothing was changed. Give each node a folder of its own, {fetch}"
    assert str(caught.value).splitlines() == [
        f"node01: /etc/slurm - Expected: on a file system of the node alone Actual: nfs4. {own}",
        (
            "node02: rackready_nodes.conf, slurm.conf in /etc/slurm - Expected: files, which rackready replaces as a "
            f"whole Actual: links. Nothing was changed. Put the files themselves there, {fetch}"
        ),
        f"node03: /etc/slurm - Expected: on a file system of the node alone Actual: fuse.sshfs. {own}",
    ]


def test_a_link_that_rackready_does_not_write_is_no_concern(tmp_path: Path) -> None:
    site = classic_site(tmp_path)
    nodes = Looking()
    nodes.found = {"node01": look("cgroup.conf", on="overlay")}
    spread = spread_over(site, files(site), cluster(), WHERE, nodes, ["node01"])  # type: ignore[arg-type]
    assert spread.nodes == ("node01",)


@pytest.mark.parametrize(
    ("lines", "more"),
    [
        ("SlurmctldHost=ctl1(10.0.0.5)\n", ""),
        ("SlurmctldHost=ctl1(10.0.0.5)\nSlurmctldHost=ctl2(10.0.0.6)\n", "ctl2"),
        ("ControlMachine=ctl1\nBackupController=ctl3\n", "ctl3"),
    ],
)
def test_login_nodes_and_a_backup_controller_are_named_after_each_change(tmp_path: Path, lines: str, more: str) -> None:
    site = classic_site(tmp_path, not_written=[])
    now = cluster(**{"slurm.conf": PLAIN + lines})
    backup = f", and to the backup controller {more}, unless it shares the folder" if more else ""
    assert to_copy(files(site), ["slurm.conf"], Spread(), now) == (
        f"Copy slurm.conf from /etc/slurm on the Slurm controller to login nodes{backup}."
    )
    assert to_copy(files(site), [], Spread(), now) == ""

"""Nodes and GPUs of others in the same cluster: their jobs start as before, and their settings do not reach ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rackready.drivers.scheduler.base import SchedulerError
from rackready.handover.slurm_apply import candidate
from rackready.model.site import NvlinkDomain, Site
from rackready.render import slurm_files as render
from tests.unit.handover.test_slurm_apply import PARTS, THEIRS, WHERE, cluster, site_with

CPU = THEIRS + "NodeName=DEFAULT CPUs=64\nNodeName=cpu[01-03] State=UNKNOWN\nInclude more.conf\n"
MORE = "NodeName=login01 CPUs=4\n"


def with_cpus(**files: str) -> dict[str, str]:
    return {"slurm.conf": CPU, "more.conf": MORE, **files}


def domains(site: Site, *groups: str) -> Site:
    made = [NvlinkDomain.model_validate({"name": f"nvl{at}", "nodes": [nodes]}) for at, nodes in enumerate(groups, 1)]
    return site.model_copy(update={"nvlink_domains": made})


# --- topology ---------------------------------------------------------------------------------------------------------


def test_nodes_of_others_are_on_a_switch_of_the_tree(tmp_path: Path) -> None:
    site = site_with(tmp_path, {"topology": "tree"})
    found = candidate(site, cluster(with_cpus()), WHERE, {"node01": PARTS})
    assert found.files["topology.conf"].splitlines()[1:] == [
        "SwitchName=su1 Nodes=node01",
        "SwitchName=others Nodes=cpu[01-03],login01",
        "SwitchName=top Switches=su1,others",
    ]


def test_nodes_of_the_site_that_stand_in_somebody_elses_lines_are_on_a_switch_too(tmp_path: Path) -> None:
    site = site_with(tmp_path, {"topology": "tree"})
    theirs = {"slurm.conf": THEIRS + "NodeName=node02 CPUs=4\n"}
    found = candidate(site, cluster(theirs), WHERE, {"node01": PARTS})
    assert "SwitchName=others Nodes=node02\n" in found.files["topology.conf"]


def test_a_node_that_left_the_site_and_keeps_its_line_is_on_a_switch_too(tmp_path: Path) -> None:
    site = site_with(tmp_path, {"topology": "tree"})
    files = dict(candidate(site, cluster(), WHERE, {"node01": PARTS}).settled)
    line = "NodeName=gone09 NodeAddr=192.0.2.99 Sockets=2 CoresPerSocket=56 ThreadsPerCore=2 RealMemory=1024"
    files["rackready_nodes.conf"] += f"{line}\n"
    found = candidate(site, cluster(files), WHERE, {"node01": PARTS})
    assert "SwitchName=others Nodes=gone09\n" in found.files["topology.conf"]


def test_before_the_first_node_the_tree_has_those_of_others(tmp_path: Path) -> None:
    site = site_with(tmp_path, {"topology": "tree"})
    found = candidate(site, cluster(with_cpus()), WHERE, {})
    assert found.files["topology.conf"] == (
        f"{render.HEAD}\nSwitchName=others Nodes=cpu[01-03],login01\nSwitchName=top Switches=others\n"
    )


def test_blocks_are_refused_while_a_node_is_in_none(tmp_path: Path) -> None:
    site = domains(site_with(tmp_path, {"topology": "block"}), "node01")
    with pytest.raises(SchedulerError) as caught:
        candidate(site, cluster(with_cpus(), release=(24, 11)), WHERE, {"node01": PARTS, "node02": PARTS})
    assert str(caught.value) == (
        f"{WHERE} topology: blocks - Expected: every node of the cluster in an NVLink domain of the site Actual: "
        "cpu[01-03],login01,node02 in none: no job would start there. Set handover.files.topology to tree or none. "
        "Nodes of the site's own can be named in nvlink_domains."
    )


def test_blocks_that_hold_every_node_are_written(tmp_path: Path) -> None:
    site = domains(site_with(tmp_path, {"topology": "block"}), "node01", "node02")
    found = candidate(site, cluster(release=(24, 11)), WHERE, {"node01": PARTS, "node02": PARTS})
    assert found.files["topology.conf"].splitlines()[1:3] == [
        "BlockName=nvl1 Nodes=node01",
        "BlockName=nvl2 Nodes=node02",
    ]


# --- AutoDetect -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "gres", ["", "AutoDetect=nvml\n", "NodeName=cpu[01-03] AutoDetect=nvml\n", "NodeName=node01 AutoDetect=OFF\n"]
)
def test_our_nodes_are_not_detected_whatever_their_owner_wants_of_his(tmp_path: Path, gres: str) -> None:
    """Behind NVSwitch slurmd finds other links, and drops every GPU."""
    site = site_with(tmp_path)
    found = candidate(site, cluster({"gres.conf": gres}), WHERE, {"node01": PARTS})
    assert found.files["gres.conf"] == f"{gres}Include rackready_gres.conf\n"
    off = [line for line in found.files["rackready_gres.conf"].splitlines() if "AutoDetect" in line]
    assert off == ["NodeName=node01 AutoDetect=off"]
    now = cluster(dict(found.settled), known=frozenset({"node01"}))
    assert candidate(site, now, WHERE, {}).files == {}


def test_nodes_that_entered_before_get_the_line_too(tmp_path: Path) -> None:
    site = site_with(tmp_path)
    files = dict(candidate(site, cluster(), WHERE, {"node01": PARTS}).settled)
    wanted = files["rackready_gres.conf"]
    files["rackready_gres.conf"] = wanted.replace("NodeName=node01 AutoDetect=off\n", "")
    found = candidate(site, cluster(files, known=frozenset({"node01"})), WHERE, {})
    assert dict(found.files) == {"rackready_gres.conf": wanted}


def test_without_a_node_there_is_no_such_line(tmp_path: Path) -> None:
    assert candidate(site_with(tmp_path), cluster(), WHERE, {}).files["rackready_gres.conf"] == f"{render.HEAD}\n"


@pytest.mark.parametrize(
    ("files", "line"),
    [
        ({"gres.conf": "NodeName=node[01-04] AutoDetect=nvml # all\n"}, "NodeName=node[01-04] AutoDetect=nvml"),
        (
            {"gres.conf": "Include gpus.conf\n", "gpus.conf": "nodename=node01  Name=gpu autodetect=nvidia\n"},
            "nodename=node01 Name=gpu autodetect=nvidia",
        ),
    ],
)
def test_a_line_of_others_that_detects_our_nodes_is_named(tmp_path: Path, files: dict[str, Any], line: str) -> None:
    with pytest.raises(SchedulerError) as caught:
        candidate(site_with(tmp_path), cluster(files), WHERE, {"node01": PARTS})
    assert str(caught.value) == (
        f"{WHERE} gres.conf: AutoDetect of node01 - Expected: only `AutoDetect=off` of rackready_gres.conf Actual: "
        f"`{line}`. Take these nodes out of that line: rackready writes their GPUs."
    )

"""Settings of others in slurm.conf that do not fit, or that ours would replace."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.drivers.scheduler import slurm_values
from rackready.drivers.scheduler.base import SchedulerError
from rackready.handover.slurm_apply import candidate
from rackready.render.slurm_files import NODES
from tests.unit.handover.test_slurm_apply import PARTS, THEIRS, WHERE, cluster, site_with

UNSET = "ClusterName=x\nSlurmctldParameters=enable_configless\nPartitionName=admin State=UP\n"
ADMIN = THEIRS.replace("PartitionName=admin", "PartitionName=admin Default=yes")


def test_before_23_11_a_cluster_without_a_selecttype_gives_out_no_gpus(tmp_path: Path) -> None:
    site = site_with(tmp_path)
    text = (
        f"{WHERE} slurm.conf: SelectType - Expected: select/cons_tres Actual: not set, which is select/linear before "
        "Slurm 23.11. Correct it: only that plugin gives out GPUs."
    )
    for release in ((22, 5), (23, 2)):
        with pytest.raises(SchedulerError) as caught:
            candidate(site, cluster({"slurm.conf": UNSET}, release=release), WHERE, {"node01": PARTS})
        assert str(caught.value) == text
    assert candidate(site, cluster({"slurm.conf": UNSET}, release=(23, 11)), WHERE, {"node01": PARTS}).files


def test_the_default_partition_of_others_stays(tmp_path: Path) -> None:
    """Slurm takes the last Default=YES of all files, and ours is the last."""
    found = candidate(site_with(tmp_path), cluster({"slurm.conf": ADMIN}), WHERE, {"node01": PARTS})
    assert "PartitionName=gpu Nodes=node01 MaxTime=INFINITE State=UP" in found.files[NODES].splitlines()
    with_ours = cluster({"slurm.conf": f"{THEIRS}Include {NODES}\n", NODES: "PartitionName=gpu Default=YES\n"})
    found = candidate(site_with(tmp_path), with_ours, WHERE, {"node01": PARTS})
    assert "PartitionName=gpu Nodes=node01 Default=YES MaxTime=INFINITE State=UP" in found.files[NODES].splitlines()


def test_a_default_partition_beside_that_of_others_is_refused(tmp_path: Path) -> None:
    site = site_with(tmp_path, {"partitions": [{"name": "train", "default": True}]})
    with pytest.raises(SchedulerError) as caught:
        candidate(site, cluster({"slurm.conf": ADMIN}), WHERE, {"node01": PARTS})
    assert str(caught.value) == (
        f"{WHERE} slurm.conf: Default=YES of partition admin - Expected: no default partition beside train Actual: "
        "admin and train. Leave out default in handover.files.partitions, or take it off that partition: Slurm takes "
        "the last one."
    )
    candidate(site, cluster({"slurm.conf": ADMIN.replace("=yes", "=NO")}), WHERE, {"node01": PARTS})


@pytest.mark.parametrize(
    ("imex", "switch", "actual"),
    [
        ("shared", "switch/nvidia_imex", "switch/nvidia_imex with shared"),
        ("per_job", "", "not set with per_job"),
        ("shared", "", ""),
        ("per_job", "switch/nvidia_imex", ""),
        ("", "switch/nvidia_imex", ""),
    ],
)
def test_either_slurm_or_rackready_makes_imex_channels(imex: str, switch: str, actual: str) -> None:
    found = list(slurm_values.channels("x", {"switchtype": switch} if switch else {}, imex))
    assert [actual in problem.message for problem in found] == ([True] if actual else [])

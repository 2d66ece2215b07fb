"""Slurm's own prolog and health check on a rack: a faulty node is drained with the fault, the job runs elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.integration.project import Project, one_at_a_time, within

pytestmark = [pytest.mark.integration, pytest.mark.slow]

LIMIT = ("--limit", "node01,node02")
PROGRAM = "/usr/local/lib/rackready/slurm-check"
CHECKS = {"at": ["prolog", "epilog"], "others": True}
"""``others``: the simulated cluster has a node of its owner's, login01, which is down."""


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory, image: None) -> Iterator[Project]:
    """Two nodes in production on a cluster whose files are ours to write."""
    del image
    made = Project(tmp_path_factory.mktemp("rack") / "clone")
    change(made.root, CHECKS)
    try:
        with one_at_a_time():
            code, text = made.run("sim", "up")
        assert code == 0, text + made.progress()
        made.skip_incast("node01", "node02")
        code, document = made.json("deploy", *LIMIT)
        assert code == 0, made.progress()[-4000:]
        assert {row["state"] for row in document["nodes"]} == {"ready"}
        yield made
    finally:
        made.close()


def change(root: Path, checks: object) -> None:
    path = root / "inventories/sim/site.yml"
    site = yaml.safe_load(path.read_text(encoding="utf-8"))
    site["handover"]["files"] = {"folder": "/etc/slurm", "checks": checks}
    path.write_text(yaml.safe_dump(site), encoding="utf-8")


def node_line(project: Project, node: str) -> str:
    return project.ssh("slurmctl", f"scontrol show node {node} --oneliner")


def job_line(project: Project, number: str) -> str:
    return project.ssh("slurmctl", f"scontrol show job {number} --oneliner")


def submit(project: Project, seconds: int, more: str = "--uid=games") -> str:
    """Submit a job of a user whom every node knows; around one of root the check only prints."""
    ask = f"cd /tmp && sbatch {more} --parsable --nodes=1 --gres=gpu:8 --output=/dev/null --wrap="
    return project.ssh("slurmctl", f"{ask}'sleep {seconds}'").strip()


def test_slurm_runs_the_program_and_a_job_on_healthy_nodes(rack: Project) -> None:
    config = rack.ssh("slurmctl", "scontrol show config")
    found = dict(line.split("=", 1) for line in config.replace(" ", "").splitlines() if "=" in line)
    assert (found["Prolog"], found["Epilog"]) == (PROGRAM, PROGRAM)
    for node in ("node01", "node02"):
        rack.ssh(node, f"sudo {PROGRAM} --look")
    number = submit(rack, 1)
    assert within(300, lambda: "JobState=COMPLETED" in job_line(rack, number)), job_line(rack, number)
    assert {rack.sinfo()[node] for node in ("node01", "node02")} == {"idle"}


def test_a_fault_drains_the_node_and_the_job_finishes_elsewhere(rack: Project) -> None:
    holder = submit(rack, 3600)
    assert within(120, lambda: "JobState=RUNNING" in job_line(rack, holder)), job_line(rack, holder)
    busy = job_line(rack, holder).split(" NodeList=")[1].split()[0]
    bad = {"node01": "node02", "node02": "node01"}[busy]
    assert rack.run("sim", "inject", bad, "row-remap-failure", "--gpu", "3")[0] == 0
    number = submit(rack, 1)
    words = "Reason=rackready: check: gpu3: row remapping failed (Xid 64)"
    assert within(180, lambda: words in node_line(rack, bad)), node_line(rack, bad) + job_line(rack, number)
    assert "DRAIN" in node_line(rack, bad)
    assert within(120, lambda: "Restarts=1" in job_line(rack, number)), job_line(rack, number)
    assert words in node_line(rack, bad), "Slurm's own drain ('Prolog error') leaves our reason"
    assert "JobState=PENDING" in job_line(rack, number)
    assert "JobHeldAdmin" not in job_line(rack, number)
    rack.ssh("slurmctl", f"scancel {holder}")
    # Slurm lets a requeued job wait for the life of its credential, 121 s (slurm.conf(5), AuthInfo).
    assert within(600, lambda: "JobState=COMPLETED" in job_line(rack, number)), job_line(rack, number)
    assert f" NodeList={busy} " in job_line(rack, number)
    assert rack.run("sim", "clear", bad)[0] == 0
    rack.ssh(bad, f"sudo {PROGRAM}")
    assert words in node_line(rack, bad), "a healthy node stays drained until somebody resumes it"
    rack.ssh("slurmctl", f"scontrol update NodeName={bad} State=RESUME")


def test_a_job_of_root_runs_on_a_faulty_node(rack: Project) -> None:
    assert rack.run("sim", "inject", "node01", "row-remap-failure", "--gpu", "3")[0] == 0
    number = submit(rack, 1, "--nodelist=node01")
    assert within(300, lambda: "JobState=COMPLETED" in job_line(rack, number)), job_line(rack, number)
    assert "DRAIN" not in node_line(rack, "node01")
    assert rack.run("sim", "clear", "node01")[0] == 0


def test_the_health_check_drains_an_idle_node(rack: Project) -> None:
    change(rack.root, {"at": ["prolog", "epilog", "health"], "others": True, "interval_s": 60})
    assert rack.run("slurm", "apply", *LIMIT)[0] == 0, rack.progress()[-2000:]
    assert rack.run("sim", "inject", "node02", "nvlink-down", "--gpu", "5")[0] == 0
    words = "Reason=rackready: check: gpu5: NVLink down (17 of 18 active)"
    assert within(400, lambda: words in node_line(rack, "node02")), node_line(rack, "node02")
    assert "DRAIN" not in node_line(rack, "node01")

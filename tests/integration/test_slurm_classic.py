"""A Slurm cluster with its files on every node: rackready writes them, in the order that Slurm's own guide asks for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from rackready_sim.plan import clone_id
from tests.integration.project import Project, one_at_a_time, within
from tests.integration.slurm_controller import SlurmHost

pytestmark = [pytest.mark.integration, pytest.mark.slow]

LIMIT = ("--limit", "node01,node02")
NODES = ("node01", "node02")
CLASSIC = {"folder": "/etc/slurm", "distribution": "classic", "not_written": ["login01"]}
"""login01: the simulated cluster has a node of its owner's, which is down."""
DIFFERENT = "appears to have a different slurm.conf"
"""slurmctld's own words (Slurm, src/slurmctld/proc_req.c)."""


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory, image: None) -> Iterator[Project]:
    """Two nodes in production on a cluster whose files are ours to write, on every node."""
    del image
    made = Project(tmp_path_factory.mktemp("rack") / "clone")
    change(made.root, {})
    try:
        with one_at_a_time():
            code, text = made.run("sim", "up")
        assert code == 0, text + made.progress()
        made.skip_incast(*NODES)
        code, document = made.json("deploy", *LIMIT)
        assert code == 0, made.progress()[-4000:]
        assert {row["state"] for row in document["nodes"]} == {"ready"}
        yield made
    finally:
        made.close()


def change(root: Path, more: dict[str, object]) -> None:
    path = root / "inventories/sim/site.yml"
    site = yaml.safe_load(path.read_text(encoding="utf-8"))
    site["handover"]["files"] = CLASSIC | more
    path.write_text(yaml.safe_dump(site), encoding="utf-8")


def sums(project: Project, place: str) -> str:
    return project.ssh(place, "cd /etc/slurm && sha256sum gres.conf rackready_*.conf slurm.conf")


def same_everywhere(project: Project) -> bool:
    return len({sums(project, place) for place in ("slurmctl", *NODES)}) == 1


def running(project: Project, number: str) -> bool:
    return "JobState=RUNNING" in project.ssh("slurmctl", f"scontrol show job {number} --oneliner")


def mark(project: Project) -> int:
    return int(project.ssh("slurmctl", "wc -c < /var/log/slurm/slurmctld.log"))


def complaints(project: Project, since: int) -> str:
    log = project.ssh("slurmctl", f"tail -c +{since + 1} /var/log/slurm/slurmctld.log")
    return "\n".join(line for line in log.splitlines() if DIFFERENT in line)


def test_nodes_have_the_controllers_files_and_slurmctld_agrees(rack: Project) -> None:
    assert same_everywhere(rack)
    assert "enable_configless" not in rack.ssh("slurmctl", "scontrol show config")
    for node in NODES:
        assert "--conf-server" not in rack.ssh(node, "tr '\\0' ' ' < /proc/$(pidof -s slurmd)/cmdline")
    assert {rack.sinfo()[node] for node in NODES} == {"idle"}
    # The last change is registered: nodes answer anew, and slurmctld finds no other checksum.
    since = mark(rack)
    for node in NODES:
        rack.ssh(node, "sudo systemctl restart slurmd")
    assert within(60, lambda: {rack.sinfo()[node] for node in NODES} == {"idle"})
    assert complaints(rack, since) == ""
    # The words are really there when a node differs.
    rack.ssh("node01", "echo '# other' | sudo tee -a /etc/slurm/slurm.conf; sudo systemctl restart slurmd")
    assert within(60, lambda: "node01" in complaints(rack, since))
    code, _ = rack.run("slurm", "apply", *LIMIT)
    assert code == 2
    assert (
        "node01: slurm.conf in /etc/slurm - Expected: the same as on the Slurm controller Actual: different. Nothing "
        "was changed. Compare them, and make them the same or remove them there: a missing file is written."
    ) in " ".join(rack.progress().split())
    rack.ssh("node01", "sudo rm /etc/slurm/slurm.conf")
    assert rack.run("slurm", "diff", *LIMIT)[0] == 1
    assert rack.run("slurm", "apply", *LIMIT)[0] == 0, rack.progress()[-2000:]
    assert same_everywhere(rack)


def test_a_change_that_needs_a_restart_leaves_jobs_running(rack: Project) -> None:
    number = rack.ssh(
        "slurmctl", "cd /tmp && sbatch --parsable --nodes=1 --gres=gpu:8 --output=/dev/null --wrap='sleep 3600'"
    ).strip()
    assert within(120, lambda: running(rack, number))
    change(rack.root, {"topology": "tree"})
    since = mark(rack)
    assert rack.run("slurm", "apply", *LIMIT)[0] == 0, rack.progress()[-2000:]
    assert same_everywhere(rack)
    assert rack.ssh("node02", "cat /etc/slurm/topology.conf") == rack.ssh("slurmctl", "cat /etc/slurm/topology.conf")
    assert running(rack, number)
    assert "topology/tree" in rack.ssh("slurmctl", "scontrol show config")
    assert complaints(rack, since) == ""
    assert "Copy rackready_nodes.conf, topology.conf from /etc/slurm" in " ".join(rack.progress().split())
    # A reconfigure restarts nothing, and nobody registers with another checksum.
    started = rack.ssh("node01", "systemctl show slurmd --property=MainPID --value")
    change(rack.root, {"topology": "tree", "partitions": [{"name": "gpu", "default": True, "max_time": "2-00"}]})
    since = mark(rack)
    assert rack.run("slurm", "apply", *LIMIT)[0] == 0, rack.progress()[-2000:]
    assert rack.ssh("node01", "systemctl show slurmd --property=MainPID --value") == started
    assert "MaxTime=2-00:00:00" in rack.ssh("slurmctl", "scontrol show partition gpu")
    assert running(rack, number)
    assert complaints(rack, since) == ""


def test_a_run_killed_while_slurmctld_stands_still_is_ended_by_the_next(rack: Project) -> None:
    host = SlurmHost(f"rr-{clone_id(rack.root)}-slurmctl")
    before = host.ask("read")
    name = "rackready_nodes.conf"
    wanted = {name: before["files"][name] + "# more\n"}
    asked = {"files": wanted, "seen": before["seen"], "reload": "restart", "nodes": [], "hosts": list(NODES)}
    assert host.ask("begin", **asked)["result"] == "begun"
    # As a killed run leaves it: slurmctld stopped, one node written.
    assert host.ask("read")["answers"] is False
    rack.ssh("node01", f"echo '# more' | sudo tee -a /etc/slurm/{name}")
    assert rack.run("slurm", "diff", *LIMIT)[0] == 2
    assert rack.run("slurm", "apply", *LIMIT)[0] == 0, rack.progress()[-2000:]
    told = " ".join(rack.progress().split())
    assert "an interrupted change was taken back; with the old files slurmctld runs again; on the nodes too" in told
    now = host.ask("read")
    assert (now["files"], now["journal"], now["answers"]) == (before["files"], False, True)
    assert same_everywhere(rack)


def test_a_node_that_does_not_answer_is_named_before_anything_changes(rack: Project) -> None:
    change(rack.root, {"topology": "tree", "partitions": [{"name": "gpu", "default": True, "max_time": "12:00:00"}]})
    before = sums(rack, "slurmctl")
    rack.ssh("node02", "sudo systemctl stop ssh.socket ssh.service || sudo systemctl stop ssh")
    code, _ = rack.run("slurm", "apply", "--limit", "node01")
    assert code == 2
    told = " ".join(rack.progress().split())
    assert "node02: Slurm's files - Expected: can be read on every node of the cluster Actual: " in told
    assert sums(rack, "slurmctl") == before

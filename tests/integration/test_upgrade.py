"""An upgrade of a rack in waves, with jobs on its nodes, bad nodes in it, and kills in every wave. In order."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from rackready.ledger.store import EventRow
from tests.integration.project import ROOT, Project, within

pytestmark = [pytest.mark.integration, pytest.mark.slow]

NODES = ("node01", "node02", "node03", "node04")
SET, OLD, NEW = "hgx-r580-178-debian12", "580.173.02", "580.178.01"
DRIVER = "nvidia-smi --query-gpu=driver_version --format=csv,noheader"
JOB_S = 40


@pytest.fixture(scope="module")
def rack(project: Project) -> Project:
    """Four nodes in production, each with a job; the new driver does not load on node03, and node04 has a bad GPU."""
    folder = project.root / "inventories/sim/profiles/software"
    folder.mkdir(parents=True)
    text = (ROOT / "src/rackready/profiles/software/hgx-r580-debian12.yml").read_text(encoding="utf-8")
    text = text.replace(OLD, NEW).replace("id: hgx-r580-debian12", f"id: {SET}")
    (folder / f"{SET}.yml").write_text(text, encoding="utf-8")
    rails = {"id": "pair/fabric/performance/ib-write-bw", "after_boot": True, "max_age_hours": 168}
    project.change_site({"upgrade": {"wave_size": 2}, "gates": {"set": "quick", "also": [rails]}})
    code, _ = project.json("deploy")
    assert code == 0, project.progress()[-4000:]
    assert project.run("sim", "inject", "node03", "driver-refused", "--driver", NEW, "--step", "load")[0] == 0
    return project


class Users:
    """Users who submit a short job to every idle node, again and again. Each leaves a file at its begin and its end."""

    def __init__(self, rack: Project) -> None:
        self._rack, self._stop = rack, threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        work = f"touch /var/tmp/begun-$SLURM_JOB_ID; sleep {JOB_S}; touch /var/tmp/ended-$SLURM_JOB_ID"
        while not self._stop.wait(10):
            with suppress(AssertionError, subprocess.TimeoutExpired):
                for node in [name for name, state in self._rack.sinfo().items() if state == "idle"]:
                    ask = f"cd /tmp && sbatch --nodelist={node} --output=/dev/null --wrap='{work}'"
                    self._rack.ssh("slurmctl", ask)

    def leave(self) -> None:
        """Submit no more; jobs that did not begin are taken back."""
        self._stop.set()
        self._thread.join()
        self._rack.ssh("slurmctl", "scancel --state=PENDING --user=root")

    def jobs(self, node: str) -> tuple[set[str], set[str]]:
        """Return the numbers of jobs that began on a node, and of those that ended by themselves."""
        names = self._rack.ssh(node, "ls /var/tmp").split()
        begun, ended = (
            {name.removeprefix(word) for name in names if name.startswith(word)} for word in ("begun-", "ended-")
        )
        return begun, ended


@pytest.fixture(scope="module")
def users(rack: Project) -> Iterator[Users]:
    found = Users(rack)
    yield found
    with suppress(AssertionError):
        found.leave()


def killed_at(rack: Project, node: str, phase: str, *arguments: str) -> EventRow:
    """Run an upgrade and kill it with SIGKILL at the node's first line of a phase."""
    child = rack.start("upgrade", *arguments)
    seen = rack.until(child, lambda event: (event.node, event.phase) == (node, phase), within_s=800)
    child.kill()
    child.wait()
    assert seen is not None, rack.progress()[-4000:]
    return seen


def rows(document: dict[str, Any]) -> dict[str, Any]:
    return {row["name"]: row for row in document["nodes"]}


def loaded(rack: Project, node: str) -> set[str]:
    return set(rack.ssh(node, DRIVER).split())


def test_the_plan_names_changes_waves_and_durations(rack: Project) -> None:
    code, plan = rack.json("upgrade", "--to", SET, "--check")
    assert (code, plan["lacking"]) == (0, []), rack.progress()[-4000:]
    assert plan["waves"] == [["node01"], ["node02", "node03"], ["node04"]]
    first = rows(plan)["node01"]
    changed = {change["package"]: (change["before"], change["after"]) for change in first["changes"]}
    assert changed["nvidia-open"] == (f"{OLD}-1", f"{NEW}-1")
    assert changed["nvidia-fabricmanager"] == (f"{OLD}-1", f"{NEW}-1")
    assert first["reboot"] is False
    assert first["expected_seconds"] > 0
    assert loaded(rack, "node01") == {OLD}


def test_the_canary_waits_for_its_job_and_survives_a_kill(rack: Project, users: Users) -> None:
    assert within(120, lambda: all(users.jobs(node)[0] for node in NODES))
    killed_at(rack, "node01", "install", "--to", SET)
    begun, ended = users.jobs("node01")
    assert begun == ended
    assert rack.states()["node02"] == "ready"


def test_killed_in_the_second_wave_a_node_without_a_driver_goes_back(rack: Project) -> None:
    killed_at(rack, "node03", "install", "--to", SET)
    assert loaded(rack, "node01") == {NEW}
    code, document = rack.json("upgrade", "--to", SET)
    assert code == 1, rack.progress()[-4000:]
    found = rows(document)
    steps = {name: row["step"] for name, row in found.items()}
    assert steps == {"node01": "ready", "node02": "ready", "node03": "rolled-back", "node04": "waiting"}
    assert document["state"] == "stopped"
    assert document["reason"].startswith("new kind of failure in wave 2: install nvidia_driver : ")
    assert [loaded(rack, node) for node in NODES] == [{NEW}, {NEW}, {OLD}, {OLD}]
    assert rack.states() == dict.fromkeys(NODES, "ready")


def test_a_deploy_in_between_leaves_each_node_on_its_set(rack: Project) -> None:
    code, document = rack.json("deploy")
    assert (code, document["changed"]) == (0, []), rack.progress()[-4000:]


def test_killed_in_the_last_wave_a_node_that_fails_validation_stays_drained(rack: Project) -> None:
    assert rack.run("upgrade", "--to", SET)[0] == 2, "a stopped upgrade waits for the operator"
    assert rack.run("sim", "inject", "node04", "ecc-uncorrectable")[0] == 0
    killed_at(rack, "node04", "install", "--resume")
    code, document = rack.json("upgrade", "--to", SET)
    assert code == 1, rack.progress()[-4000:]
    assert (document["state"], rows(document)["node04"]["step"]) == ("finished", "failed")
    assert any(kind.startswith("node/gpu/sanity/ecc ") for kind in rows(document)["node04"]["kinds"])
    assert rack.states() == {"node01": "ready", "node02": "ready", "node03": "ready", "node04": "quarantined"}
    assert rack.sinfo()["node04"].startswith("drain")


def test_no_job_was_killed(rack: Project, users: Users) -> None:
    users.leave()
    assert within(JOB_S + 60, lambda: "R" not in rack.ssh("slurmctl", "squeue -h -o %t"))
    counts = {node: users.jobs(node) for node in NODES}
    assert all(begun == ended for begun, ended in counts.values()), counts
    assert sum(len(begun) for begun, _ in counts.values()) >= 2 * len(NODES)


def test_failed_only_takes_the_node_whose_driver_loads_now(rack: Project) -> None:
    assert rack.run("sim", "clear", "node03", "driver-refused")[0] == 0
    code, document = rack.json("upgrade", "--to", SET, "--failed-only")
    assert code == 1, "node04 is in quarantine still"
    assert {name: row["step"] for name, row in rows(document).items()} == {"node03": "ready", "node04": "left-out"}
    assert loaded(rack, "node03") == {NEW}


def test_the_site_file_may_then_name_the_set(rack: Project) -> None:
    path = rack.paths.site_file
    path.write_text(path.read_text(encoding="utf-8").replace("hgx-r580-debian12", SET), encoding="utf-8")
    code, document = rack.json("deploy", "--limit", "node01,node02,node03")
    assert (code, document["changed"]) == (0, []), rack.progress()[-4000:]


def test_a_leaf_pair_one_after_the_other(rack: Project) -> None:
    for leaf, other in (("leaf01", "leaf02"), ("leaf02", "leaf01")):
        code, begun = rack.json("upgrade", "--switch", leaf)
        assert (code, begun["nodes"]) == (0, ["node01", "node02", "node03"]), rack.progress()[-4000:]
        assert {rack.sinfo()[node] for node in begun["nodes"]} <= {"drained", "drained*"}
        assert rack.run("upgrade", "--switch", other)[0] == 2, "its nodes would lose rails twice"
        code, ended = rack.json("upgrade", "--switch", leaf, "--done")
        assert (code, ended["proven"]) == (0, True), rack.progress()[-4000:]
        assert all(rack.states()[node] == "ready" for node in begun["nodes"])

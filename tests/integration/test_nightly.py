"""A night on the simulated rack: a job keeps its node, the other is measured, and a killed night is put right."""

from __future__ import annotations

import json

import pytest

from tests.integration.matrix_nodes import LOADS
from tests.integration.project import Project
from tests.integration.test_production import job_state, reason, use
from tests.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

INTEGRITY = "node/gpu/stress/compute-integrity"
LIMIT = ("--limit", "node01,node02")
NIGHT = ("nightly", *LIMIT, "--again", "--max-share", "100", "--output", "json")


@pytest.fixture(scope="module")
def rack(project: Project) -> Project:
    """Two nodes in production; the load that takes 13 minutes by default takes one."""
    project.skip_incast("node01", "node02")
    code, document = project.json("deploy", *LIMIT)
    assert code == 0, project.progress()[-4000:]
    assert {row["name"]: row["state"] for row in document["nodes"]} == {"node01": "ready", "node02": "ready"}
    project.change_site({"gates": {"also": [{"id": INTEGRITY, "inputs": LOADS[INTEGRITY]}]}})
    return project


def test_a_night_disturbs_no_job_and_puts_nodes_back(rack: Project) -> None:
    ask = "cd /tmp && sbatch --parsable --job-name=train --nodelist=node01 --output=/dev/null --wrap='sleep 3600'"
    job = rack.ssh("slurmctl", ask).strip()
    until(lambda: job_state(rack, job) == "RUNNING")
    code, text = rack.run(*NIGHT)
    told = {one["name"]: (one["outcome"], one["reason"]) for one in json.loads(text)["nodes"]}
    assert told == {"node01": ("busy", f"job {job} (root, train)"), "node02": ("pass", "")}, text
    assert code == 0
    assert job_state(rack, job) == "RUNNING"
    assert use(rack)["node02"] == "idle"
    rack.ssh("slurmctl", f"scancel {job}")
    until(lambda: use(rack) == {"node01": "idle", "node02": "idle"})


def test_a_night_that_was_killed_is_put_right_by_the_next(rack: Project) -> None:
    child = rack.start(*NIGHT)
    until(lambda: [rack.states()[node] for node in ("node01", "node02")] == ["certified", "certified"])
    child.kill()
    child.wait()
    assert reason(rack, "node01").endswith(": measured while idle")
    code, text = rack.run(*NIGHT[:3], "--for", "1m", "--output", "json")
    document = json.loads(text)
    assert {one["name"]: one["open"] for one in document["resolved"]} == {"node01": False, "node02": False}, text
    assert code == 0
    assert set(use(rack).values()) == {"idle"}
    assert (rack.states()["node01"], rack.states()["node02"]) == ("ready", "ready")

"""`rackready worker`, and workers in `rackready status`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rackready.cli.worker import labels_of
from rackready.model.problems import RackreadyError
from tests.postgres import PostgresServer
from tests.unit.campaign.worker_lab import Lab
from tests.waiting import until


@pytest.fixture
def lab(postgres: PostgresServer, tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, postgres)
    yield made
    made.close()


def rackready(lab: Lab, *arguments: str) -> list[str]:
    del lab
    return [sys.executable, "-m", "rackready", *arguments, "--env", "lab", "--output", "json"]


def test_it_runs_until_it_is_stopped(lab: Lab) -> None:
    env = os.environ | {"RACKREADY_ROOT": str(lab.root)}
    argv = rackready(lab, "worker", "--label", "hall=a", "--name", "w1")
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env, cwd=lab.root)
    assert child.stdout is not None
    first = json.loads(child.stdout.readline())
    assert (first["event"], first["worker"], first["labels"]) == ("ready", "w1", {"hall": "a"})
    asked = subprocess.run(
        rackready(lab, "status", "--no-scheduler"), capture_output=True, text=True, env=env, cwd=lab.root, check=True
    )
    (row,) = json.loads(asked.stdout)["workers"]
    assert (row["name"], row["labels"], row["state"], row["batch"]) == ("w1", {"hall": "a"}, "alive", None)
    child.send_signal(signal.SIGTERM)
    rest, _ = child.communicate(timeout=180)
    assert child.returncode == 0
    assert [json.loads(line)["event"] for line in rest.splitlines()] == ["stopped"]
    assert lab.sql("SELECT ended IS NOT NULL FROM workers") == [(True,)]


def test_status_shows_what_a_worker_has_and_what_nobody_takes(lab: Lab) -> None:
    lab.worker("w1", mode="wait")
    lab.start("controller")
    until(lambda: len(lab.begun()) == 1)
    env = os.environ | {"RACKREADY_ROOT": str(lab.root), "COLUMNS": "200"}
    asked = subprocess.run(
        rackready(lab, "status", "--no-scheduler")[:-2],
        capture_output=True,
        text=True,
        env=env,
        cwd=lab.root,
        check=True,
    )
    pairs = {"node01, node02", "node03, node04"}  # the worker may take either batch first
    waiting = {pair for pair in pairs if f"waits for a worker: install of {pair}" in asked.stdout}
    assert len(waiting) == 1
    (taken,) = pairs - waiting
    assert f"install of {taken}" in asked.stdout


def test_without_a_server_there_are_no_workers(call: Any) -> None:  # noqa: ANN401
    code, _, said = call("worker")
    assert code == 2
    assert (
        "inventories/sim/database.yml: no workers are used - Expected: workers, with a PostgreSQL server Actual: no "
        "such file: the records are in a SQLite file. Write it as in docs/howto/workers.md." in " ".join(said.split())
    )


@pytest.mark.parametrize(
    ("written", "why"),
    [
        (["hall"], "--label hall - Expected: KEY=VALUE, each key once Actual: no KEY=VALUE."),
        (["hall=a", "hall=b"], "--label hall=b - Expected: KEY=VALUE, each key once Actual: hall twice."),
    ],
)
def test_a_label_is_a_key_with_a_value(written: list[str], why: str) -> None:
    with pytest.raises(RackreadyError) as caught:
        labels_of(written)
    assert str(caught.value) == f"{why} Write it as in --label hall=a."
    assert labels_of(["hall=a", "row=r1"]) == {"hall": "a", "row": "r1"}


def test_a_name_is_plain(call: Any) -> None:  # noqa: ANN401
    code, _, said = call("worker", "--name", "a b")
    assert code == 2
    assert (
        "--name - Expected: letters, digits, - _ . and at most 63 of them Actual: 'a b'. Give another name."
        in " ".join(said.split())
    )

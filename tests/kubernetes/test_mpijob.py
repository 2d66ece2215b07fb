"""Gates of several nodes as MPIJobs: the real MPI Operator runs them on nodes that are still held.

kwok plays kubelets and containers: the launcher "ends well" with a log that the test sets. No MPI runs.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes import client

from rackready.drivers.remote import Answer
from rackready.drivers.scheduler.kube_job import KubeJobs
from rackready.gates.base import Command
from rackready.gates.engine.registry import gate
from rackready.gates.fabric.mpijob import name_of
from rackready.model.kubernetes import LOG_BEGINS, KubernetesHandover
from tests.gates.support import rack
from tests.kubernetes.cluster import ROOT, Cluster, until

pytestmark = [pytest.mark.integration, pytest.mark.slow]
GATE = "cluster/fabric/performance/nccl-all-reduce"
LOG = "#                                                              out-of-place\n# Avg bus bandwidth    : 381.5\n"
SAID = f"{LOG_BEGINS}\n{LOG}"
Make = Callable[..., tuple[KubernetesHandover, Command]]


@pytest.fixture(scope="module")
def operator(cluster: Cluster) -> Cluster:
    cluster.run_mpi_operator()
    return cluster


@pytest.fixture
def job(operator: Cluster, name: str) -> Make:
    """Two held nodes, and the command by which the gate measures them."""

    def make(*, taint: str = "rackready.io/held", joined: int = 2) -> tuple[KubernetesHandover, Command]:
        names = {node: f"{name}-{node}" for node in ("node01", "node02")}
        for place in list(names.values())[:joined]:
            operator.join(place, taints=[{"key": taint, "effect": "NoSchedule"}])
            operator.core.patch_node(place, {"spec": {"unschedulable": True}})
        given = {"kubeconfig": operator.kubeconfig, "context": "here", "node_names": names}
        handover = KubernetesHandover.model_validate({"kind": "kubernetes", "taint": f"{taint}:NoSchedule", **given})
        facts = dataclasses.replace(rack(2), launcher="mpijob", cluster=handover)
        inputs = {"launches": 1, "image": "registry.example/nccl-tests:2.19"}
        return handover, gate(GATE, inputs).plan(facts, ["node01", "node02"])[0].commands[2]

    return make


def run(handover: KubernetesHandover, command: Command) -> Answer:
    return KubeJobs(handover).run(command.node, command.argv, stdin=command.stdin, timeout_s=90)


def jobs(cluster: Cluster) -> list[dict[str, Any]]:
    api = client.CustomObjectsApi(cluster.client("admin"))
    found: list[dict[str, Any]] = api.list_namespaced_custom_object("kubeflow.org", "v2beta1", "rackready", "mpijobs")[
        "items"
    ]
    return found


def pods(cluster: Cluster) -> dict[str, str]:
    found = cluster.core.list_namespaced_pod("rackready").items
    return {pod.metadata.labels["training.kubeflow.org/job-role"]: pod.spec.node_name for pod in found}


@pytest.mark.parametrize("taint", ["rackready.io/held", "example.com/new"])
def test_held_nodes_are_measured_and_nothing_stays(operator: Cluster, job: Make, taint: str) -> None:
    operator.says(SAID)
    found = run(*job(taint=taint))
    assert (found.exit_code, found.stdout, found.stderr, found.failure) == (0, LOG, "", "")
    assert (jobs(operator), pods(operator)) == ([], {})


def test_a_node_that_is_not_in_the_cluster_is_told_by_the_scheduler(
    operator: Cluster, job: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rackready.drivers.scheduler.kube_job._UNPLACED_S", 3.0)
    found = run(*job(joined=1))
    assert (found.exit_code, found.stdout) == (1, "")
    assert "its pods do not start: rackready-gate-" in found.stderr
    assert "Unschedulable: 0/" in found.stderr
    assert jobs(operator) == []


def test_an_operator_that_may_make_no_pods_is_quoted(
    operator: Cluster, job: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rackready.drivers.scheduler.kube_job._UNPLACED_S", 3.0)
    label = "pod-security.kubernetes.io/enforce"
    operator.core.patch_namespace("rackready", {"metadata": {"labels": {label: "restricted"}}})
    try:
        found = run(*job())
    finally:
        operator.core.patch_namespace("rackready", {"metadata": {"labels": {label: None}}})
    assert (found.exit_code, jobs(operator)) == (1, [])
    assert "its pods do not start: worker pod created failed: " in found.stderr
    assert "violates PodSecurity" in found.stderr


KILLED = """
import sys
from pathlib import Path
from rackready.drivers.scheduler.kube_job import KubeJobs
from rackready.model.kubernetes import KubernetesHandover
handover = KubernetesHandover.model_validate_json(sys.argv[1])
KubeJobs(handover).run("node01", ("mpijob",), stdin=sys.stdin.read(), timeout_s=90)
"""


def test_what_a_killed_run_left_goes_before_the_next(operator: Cluster, job: Make) -> None:
    handover, command = job(joined=1)  # it waits for a node that is not there
    argv = [sys.executable, "-c", KILLED, handover.model_dump_json()]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"}
    killed = subprocess.Popen(argv, stdin=subprocess.PIPE, text=True, env=environment)
    assert killed.stdin is not None
    killed.stdin.write(command.stdin)
    killed.stdin.close()
    (left,) = until(lambda: jobs(operator), "the job is there")
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert left["metadata"]["name"] == name_of([handover.node_name(node) for node in ("node01", "node02")])
    place = handover.node_name("node02")
    operator.join(place)
    operator.says(SAID)
    found = run(handover, command)
    assert (found.exit_code, found.stdout) == (0, LOG)
    assert jobs(operator) == []


def test_a_stranger_is_told_which_right_it_lacks(operator: Cluster, job: Make) -> None:
    handover, command = job()
    stranger = handover.model_copy(update={"kubeconfig": operator.folder / "stranger.kubeconfig"})
    found = run(stranger, command)
    assert found.exit_code is None
    assert "a login with the rights of docs/howto/kubernetes.md Actual: 403: mpijobs.kubeflow.org" in found.failure

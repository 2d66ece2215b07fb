"""MPIJobs from the controller: made, waited for, read and taken away; what is told when they do not run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from rackready.drivers.process import STOP, Interrupted
from rackready.drivers.remote import Answer as Output
from rackready.drivers.scheduler import kube_job
from rackready.drivers.scheduler.base import SchedulerError
from rackready.drivers.scheduler.kube_api import Answer
from rackready.drivers.scheduler.kube_job import MANAGED, RUN, KubeJobs
from rackready.model.kubernetes import LOG_BEGINS, KubernetesHandover

NAME = "rackready-gate-0123456789"
MANIFEST = f"""apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {{name: {NAME}, labels: {{{MANAGED}: rackready}}}}
spec: {{slotsPerWorker: 8}}
"""
OURS = {"name": NAME, "labels": {MANAGED: "rackready"}}
GONE = Answer(404, {"message": "not found"})
UNPLACED = {
    "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
    "message": "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",
}  # fmt: skip


def pod(name: str, role: str = "worker", phase: str = "Running", **status: Any) -> dict[str, Any]:
    labels = {"training.kubeflow.org/job-name": NAME, "training.kubeflow.org/job-role": role}
    made = f"2026-11-28T05:0{len(name) % 10}:00Z"
    return {
        "metadata": {"name": name, "labels": labels, "creationTimestamp": made},
        "status": {"phase": phase, **status},
    }


def condition(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "status": "True", "reason": f"MPIJob{kind}", **more}


@dataclass
class Cluster:
    """An API server with one job and its pods. ``conditions``: the job's, one list a look; the last one stays."""

    conditions: list[list[dict[str, Any]]] = field(default_factory=lambda: [[], [condition("Succeeded", message="ok")]])
    pods: list[dict[str, Any]] = field(default_factory=lambda: [pod("w-0"), pod("launcher", "launcher", "Succeeded")])
    job: dict[str, Any] | None = None
    log: Answer = field(default_factory=lambda: Answer(200, {}))
    create: Answer | None = None
    where: str = "Kubernetes context prod"
    did: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    stays: bool = False
    stop_at_look: bool = False
    begins: str = ""
    tells: bool = True

    def create_mpijob(self, namespace: str, body: dict[str, Any]) -> Answer:
        assert namespace == "rackready"
        self.did.append("create")
        if self.create is None or self.create.status == 409:
            self.job = body
        return self.create or Answer(201, body)

    def mpijob(self, _namespace: str, name: str, *, cleaning: bool = False) -> Answer:
        assert name == NAME
        if self.job is None:
            return GONE
        if not cleaning and self.stop_at_look and "create" in self.did:
            STOP.set()
        made = "create" in self.did
        now = self.conditions.pop(0) if made and len(self.conditions) > 1 else self.conditions[0]
        return Answer(200, {**self.job, "status": {"conditions": now}})

    def delete_mpijob(self, _namespace: str, _name: str, *, cleaning: bool = False) -> Answer:
        self.did.append("delete, cleaning" if cleaning else "delete")
        self.job = self.job if self.stays else None
        return Answer(200, {})

    def pods_of(self, _namespace: str, selector: str) -> Answer:
        assert selector == f"training.kubeflow.org/job-name={NAME}"
        return Answer(200, {"items": self.pods})

    def warnings_of(self, _namespace: str, name: str) -> Answer:
        assert name == NAME
        return Answer(200, {"items": [{"message": text} for text in self.warnings]})

    def log_of(self, _namespace: str, name: str) -> tuple[Answer, str]:
        return self.log, f"{self.begins}log of {name}\n" if self.tells else ""

    def close(self) -> None:
        self.did.append("close")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    made = Cluster()
    for name, value in {"_POLL_S": 0.01, "_GONE_S": 0.1, "_UNPLACED_S": 0.05}.items():
        monkeypatch.setattr(kube_job, name, value)
    monkeypatch.setattr(kube_job, "connect", lambda _handover, *, writes: made if writes else None)
    yield made
    STOP.clear()


def run(_cluster: Cluster, timeout_s: float = 30.0, manifest: str = MANIFEST) -> Output:
    handover = KubernetesHandover.model_validate({"kind": "kubernetes", "kubeconfig": "/k", "context": "prod"})
    return KubeJobs(handover).run("node01", ("mpijob", NAME), stdin=manifest, timeout_s=timeout_s)


def test_a_job_that_succeeds_gives_its_launchers_log_and_goes(cluster: Cluster) -> None:
    found = run(cluster)
    assert (found.exit_code, found.stdout, found.stderr, found.failure) == (0, "log of launcher\n", "", "")
    assert cluster.did == ["create", "delete, cleaning", "close"]


def test_one_that_fails_tells_why_and_gives_its_log(cluster: Cluster) -> None:
    cluster.conditions = [[condition("Created"), condition("Failed", message="Job has reached its backoff limit")]]
    found = run(cluster)
    assert (found.exit_code, found.stdout) == (1, "log of launcher\n")
    assert found.stderr == f"MPIJob rackready/{NAME}: Failed: Job has reached its backoff limit\n"
    assert cluster.job is None


def test_a_condition_that_is_not_true_is_no_end(cluster: Cluster) -> None:
    cluster.conditions = [[{**condition("Failed"), "status": "False"}], [condition("Succeeded")]]
    assert run(cluster).exit_code == 0


def test_one_that_a_killed_run_left_goes_first(cluster: Cluster) -> None:
    cluster.job = {"metadata": OURS}
    assert run(cluster).exit_code == 0
    assert cluster.did == ["delete", "create", "delete, cleaning", "close"]


def test_one_of_others_with_that_name_is_left_alone(cluster: Cluster) -> None:
    cluster.job = {"metadata": {"name": NAME, "labels": {MANAGED: "argo"}}}
    assert run(cluster).failure == (
        f"node01: mpijob: Kubernetes context prod: MPIJob rackready/{NAME} - Expected: created, read and deleted "
        "Actual: one that rackready did not make. Rename or remove it, then run again."
    )
    assert cluster.did == ["close"]


def test_a_creation_that_was_sent_twice_is_ours(cluster: Cluster) -> None:
    cluster.create = Answer(409, {"message": "already exists"})
    assert run(cluster).exit_code == 0


def test_a_job_of_another_run_is_not_taken_for_ours(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(_namespace: str, _body: dict[str, Any]) -> Answer:
        cluster.job = {"metadata": {**OURS, "annotations": {RUN: "another"}}}
        return Answer(409, {"message": "already exists"})

    monkeypatch.setattr(cluster, "create_mpijob", other)
    assert "Actual: made by another run meanwhile. Run again when that run has ended." in run(cluster).failure
    assert cluster.job is not None, "it is theirs"
    assert cluster.did == ["close"]


def test_workers_that_end_before_a_launcher_came_are_named(cluster: Cluster) -> None:
    """The operator waits until all are ready, and makes a failed one no more (restartPolicy: Never)."""
    ended = [{"state": {"terminated": {"exitCode": 255}}}]
    cluster.conditions, cluster.pods = [[]], [pod("w-0"), pod("w-1", phase="Failed", containerStatuses=ended)]
    assert run(cluster).stderr.endswith(
        "its pods do not start: w-1: ended with exit code 255; its image needs sshd, and port 2222 must be free\n"
    )


def test_a_job_that_cannot_be_deleted_is_named_and_its_log_kept(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refuses = Answer(403, {"message": "mpijobs is forbidden"})
    monkeypatch.setattr(cluster, "delete_mpijob", lambda *_, **__: refuses)
    found = run(cluster)
    assert (found.exit_code, found.stdout, found.failure) == (0, "log of launcher\n", "")
    assert "It may still run, with the GPUs of its nodes: " in found.stderr
    assert found.stderr.endswith(f"Or by hand: `kubectl delete mpijob --namespace rackready {NAME}`.\n")
    assert capsys.readouterr().err == f"MPIJob rackready/{NAME}:{found.stderr}"


def test_a_cluster_without_the_operator_is_told(cluster: Cluster) -> None:
    cluster.create = Answer(404, {"message": "the server could not find the requested resource"})
    assert run(cluster).failure == (
        f"node01: mpijob: Kubernetes context prod: MPIJob rackready/{NAME} - Expected: created, read and deleted "
        "Actual: the server could not find the requested resource. Check the MPI Operator, the namespace and the "
        "rights in docs/howto/kubernetes.md, then run again."
    )


def test_pods_without_a_place_are_named_and_not_waited_for_long(cluster: Cluster) -> None:
    cluster.conditions = [[]]
    cluster.pods = [pod("w-1", phase="Pending", conditions=[UNPLACED])]
    found = run(cluster)
    assert (found.exit_code, found.stdout, found.timed_out) == (1, "", False)
    assert found.stderr == (
        f"MPIJob rackready/{NAME}: its pods do not start: w-1: Unschedulable: 0/2 nodes are available: 2 Insufficient "
        "nvidia.com/gpu.\n"
    )


@pytest.mark.parametrize("warnings", [["privileged: Forbidden", "privileged: Forbidden"], []])
def test_an_operator_that_makes_no_pods_is_told_with_its_own_words(cluster: Cluster, warnings: list[str]) -> None:
    cluster.conditions, cluster.pods, cluster.warnings = [[]], [], warnings
    why = warnings[0] if warnings else "the MPI Operator made no pod"
    assert run(cluster).stderr == f"MPIJob rackready/{NAME}: its pods do not start: {why}\n"


def test_an_image_that_cannot_be_pulled_ends_it_at_once(cluster: Cluster) -> None:
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "nccl:9"'}
    cluster.conditions = [[]]
    cluster.pods = [pod("w-0", phase="Pending", containerStatuses=[{"state": {"waiting": waiting}}])]
    assert run(cluster).stderr.endswith('do not start: w-0: ImagePullBackOff: Back-off pulling image "nccl:9"\n')


def test_one_that_does_not_end_is_timed_out_with_its_pods(cluster: Cluster) -> None:
    cluster.conditions = [[condition("Running")]]
    cluster.pods = [pod("w-0"), pod("w-1", phase="Pending")]
    found = run(cluster, timeout_s=0.05)
    assert (found.exit_code, found.timed_out) == (None, True)
    assert found.stderr == f"MPIJob rackready/{NAME}: did not end within its limit; pods: Running, Pending\n"
    assert cluster.job is None


def test_a_log_that_cannot_be_read_is_no_empty_log(cluster: Cluster) -> None:
    cluster.log = Answer(500, {"message": "dial tcp 10.0.0.5:10250: connect: connection refused"})
    assert "Actual: log of its launcher: dial tcp 10.0.0.5:10250: connect: connection refused." in run(cluster).failure
    assert cluster.job is None


MARKED = f"{MANIFEST}# echo '{LOG_BEGINS}'\n"


def test_a_log_without_its_beginning_was_rotated(cluster: Cluster) -> None:
    """What NCCL tells first is lost, and the table stays: the transport is unknown, whatever NCCL_DEBUG was."""
    assert run(cluster, manifest=MARKED).failure == (
        f"node01: mpijob: Kubernetes context prod: MPIJob rackready/{NAME} - Expected: created, read and deleted "
        "Actual: the log of its launcher was rotated: its beginning, where NCCL tells its transport, is lost. Raise "
        "containerLogMaxSize in kubelet's configuration on the nodes (kubernetes.io, Logging Architecture), restart "
        "kubelet, then run again."
    )
    assert cluster.job is None
    cluster.conditions = [[condition("Failed", message="exit code 1")]]
    found = run(cluster, manifest=MARKED)
    assert (found.exit_code, found.stdout) == (1, "log of launcher\n")
    assert found.stderr.endswith(
        "Failed: exit code 1; the log of its launcher was rotated: its beginning, where NCCL tells its transport, is "
        "lost\n"
    )


def test_a_log_with_its_beginning_is_given_without_the_mark(cluster: Cluster) -> None:
    cluster.begins = f"{LOG_BEGINS}\n"
    found = run(cluster, manifest=MARKED)
    assert (found.exit_code, found.stdout, found.stderr, found.failure) == (0, "log of launcher\n", "", "")


def test_an_empty_log_of_a_job_that_failed_was_not_rotated(cluster: Cluster) -> None:
    cluster.tells = False
    assert "was rotated" in run(cluster, manifest=MARKED).failure
    cluster.conditions = [[condition("Failed", message="no /bin/sh")]]
    assert run(cluster, manifest=MARKED).stderr == f"MPIJob rackready/{NAME}: Failed: no /bin/sh\n"


def test_the_newest_launcher_is_read(cluster: Cluster) -> None:
    cluster.pods = [pod("launcher-22", "launcher", "Failed"), pod("launcher-333", "launcher", "Succeeded")]
    assert run(cluster).stdout == "log of launcher-333\n"


def test_pods_that_do_not_go_are_told(cluster: Cluster) -> None:
    cluster.job, cluster.stays = {"metadata": OURS}, True
    assert "Actual: its pods are not gone 0 s after it was deleted. Look at them." in run(cluster).failure


def test_a_stop_deletes_the_job(cluster: Cluster) -> None:
    cluster.conditions, cluster.stop_at_look = [[condition("Running")]], True
    with pytest.raises(Interrupted):
        run(cluster)
    assert cluster.did == ["create", "delete, cleaning", "close"]


def test_a_stop_that_leaves_the_job_tells_it_at_once(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    """A stop gives no result that could tell it."""
    cluster.conditions, cluster.stop_at_look, cluster.stays = [[condition("Running")]], True, True
    with pytest.raises(Interrupted):
        run(cluster)
    assert capsys.readouterr().err == (
        f"MPIJob rackready/{NAME}: It may still run, with the GPUs of its nodes: Kubernetes context prod: MPIJob "
        f"rackready/{NAME} - Expected: created, read and deleted Actual: its pods are not gone 0 s after it was "
        f"deleted. Look at them. Or by hand: `kubectl delete mpijob --namespace rackready {NAME}`.\n"
    )


def test_a_cluster_that_cannot_be_reached_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise SchedulerError("kubeconfig /k", expected="a kubeconfig", actual="none", next_step="Correct it.")

    monkeypatch.setattr(kube_job, "connect", away)
    found = run(cast("Cluster", None))
    assert (found.exit_code, found.failure.startswith("node01: mpijob: kubeconfig /k - Expected: ")) == (None, True)

"""Measuring jobs in a Kubernetes cluster: an MPIJob is created, waited for, read, and taken away. From the controller.

The MPI Operator (Kubeflow, API v2beta1) makes its pods and sets ``status.conditions``; the launcher's log is returned.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any

import yaml

from rackready.drivers.process import STOP, check_stop
from rackready.drivers.remote import Answer as Output
from rackready.drivers.scheduler.base import SchedulerError
from rackready.drivers.scheduler.kube_api import KubeApi, connect
from rackready.model.kubernetes import DOMAIN, LOG_BEGINS, KubernetesHandover

MANAGED, US = "app.kubernetes.io/managed-by", "rackready"
RUN = f"{DOMAIN}/run"
"""Annotation that tells one creation from another: a request may be sent twice."""
_JOB, _ROLE = "training.kubeflow.org/job-name", "training.kubeflow.org/job-role"
"""Labels of an MPIJob's pods (kubeflow/mpi-operator v0.6.0, pkg/apis/kubeflow/v2beta1/constants.go)."""
_POLL_S = 2.0
_GONE_S = 120.0
"""Longest wait until a deleted job's pods are gone: the grace period of a pod is 30 s. Our judgement."""
_UNPLACED_S = 300.0
"""Longest time without pods, or with one that has no place, s: nothing better comes later. Our judgement."""
_HOPELESS = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
                       "CreateContainerConfigError", "CreateContainerError"})  # fmt: skip
"""Reasons for which a container does not start by itself (kubernetes pkg/kubelet/images, kuberuntime)."""
_NOT_FOUND, _CONFLICT = 404, 409
_SHOWN = 4


class KubeJobs:
    """The measuring jobs of a site's cluster."""

    def __init__(self, handover: KubernetesHandover) -> None:
        self._handover = handover

    def run(self, node: str, argv: Sequence[str], *, stdin: str, timeout_s: float) -> Output:
        """Run the MPIJob of a manifest (``stdin``, YAML) to its end and return its launcher's log as standard output.

        ``node``, ``argv``: for messages. Exit code 0: succeeded. Never raises for what the cluster does; raises
        Interrupted when the operator stops. The job is deleted in every case.
        """
        begun = time.monotonic()
        try:
            with closing(connect(self._handover, writes=True)) as api:
                job = _MpiJob(api, self._handover.namespace, stdin)
                try:
                    code, log, told = job.run(begun + timeout_s)
                except SchedulerError as error:
                    failure = f"{node}: {argv[0]}: {error}{job.left}"
                    return Output(None, "", "", time.monotonic() - begun, failure=failure)
        except SchedulerError as error:
            return Output(None, "", "", time.monotonic() - begun, failure=f"{node}: {argv[0]}: {error}")
        return Output(code, log, told, time.monotonic() - begun, timed_out=code is None)


class _MpiJob:
    """One job. Its name is made from its nodes, so one that a killed run left is found again."""

    def __init__(self, api: KubeApi, namespace: str, manifest: str) -> None:
        self._api, self._namespace, self._manifest = api, namespace, yaml.safe_load(manifest)
        self._name = str(self._manifest["metadata"]["name"])
        self._marked = LOG_BEGINS in manifest
        self._run = ""
        self.left = ""
        """Why the job may still be there, in words."""

    def run(self, deadline: float) -> tuple[int | None, str, str]:
        """Return the exit code (None: no end by the deadline), the log, and why it did not succeed."""
        with self._created():
            ended, why = self._end(deadline)
            log, whole = self._log()
            good = ended == "Succeeded"
            if good and not whole:
                raise self._refused(_ROTATED, _LARGER)
            told = (
                ""
                if good
                else f"MPIJob {self._namespace}/{self._name}: {why}{f'; {_ROTATED}' if log and not whole else ''}\n"
            )
        return (0 if good else 1 if ended else None), log, told + self.left

    @contextmanager
    def _created(self) -> Iterator[None]:
        """Keep the job while the context lasts. Raises SchedulerError."""
        self._away()
        self._run = secrets.token_hex(8)
        self._manifest["metadata"]["annotations"] = {RUN: self._run}
        try:
            answer = self._api.create_mpijob(self._namespace, self._manifest)
            if answer.status == _CONFLICT:  # of a request that was sent twice
                answer = self._api.mpijob(self._namespace, self._name)
                if answer.ok and answer.body["metadata"].get("annotations", {}).get(RUN) != self._run:
                    raise self._refused("made by another run meanwhile", "Run again when that run has ended.")
            if not answer.ok:
                raise self._refused(answer.told, _NEXT)
            yield
        finally:
            try:
                self._away(cleaning=True)
            except SchedulerError as error:  # what was measured stays
                command = f"kubectl delete mpijob --namespace {self._namespace} {self._name}"
                self.left = f" It may still run, with the GPUs of its nodes: {error} Or by hand: `{command}`.\n"
                with suppress(OSError):  # at once: a stop leaves no result that could tell it
                    sys.stderr.write(f"MPIJob {self._namespace}/{self._name}:{self.left}")

    def _away(self, *, cleaning: bool = False) -> None:
        """Delete a job of ours of this name, and wait until its pods are gone. Raises SchedulerError."""
        deadline = time.monotonic() + _GONE_S
        told = False
        while True:
            found = self._api.mpijob(self._namespace, self._name, cleaning=cleaning)
            if found.status == _NOT_FOUND:
                return
            if not found.ok:
                raise self._refused(found.told, _NEXT)
            if found.body["metadata"].get("labels", {}).get(MANAGED) != US:
                raise self._refused("one that rackready did not make", "Rename or remove it, then run again.")
            if cleaning and found.body["metadata"].get("annotations", {}).get(RUN) != self._run:
                return  # another run's
            if not told:
                answer = self._api.delete_mpijob(self._namespace, self._name, cleaning=cleaning)
                if not answer.ok and answer.status != _NOT_FOUND:
                    raise self._refused(answer.told, _NEXT)
                told = True
            if time.monotonic() > deadline:
                raise self._refused(f"its pods are not gone {_GONE_S:.0f} s after it was deleted", "Look at them.")
            if cleaning:  # also when the operator stops: the job must not go on
                time.sleep(_POLL_S)
            else:
                STOP.wait(_POLL_S)
                check_stop()

    def _end(self, deadline: float) -> tuple[str, str]:
        """Return the condition with which the job ended, "" when it did not, and why. Raises SchedulerError."""
        unplaced_since: float | None = None
        while True:
            found = self._api.mpijob(self._namespace, self._name)
            if not found.ok:
                raise self._refused(found.told, "Somebody deleted it: run again.")
            if ended := _ended(found.body):
                return ended["type"], f"{ended['type']}: {ended.get('message') or ended.get('reason')}"
            pods = self._pods()
            stuck = [text for pod in pods for text in _hopeless(pod)]
            waiting = [text for pod in pods for text in _unplaced(pod)] if pods else self._warnings()
            unplaced_since = (unplaced_since or time.monotonic()) if waiting else None
            stuck += _dead(pods)
            if unplaced_since is not None and time.monotonic() - unplaced_since > _UNPLACED_S:
                stuck += waiting
            if stuck:
                return "Failed", f"its pods do not start: {'; '.join(sorted(set(stuck))[:_SHOWN])}"
            if time.monotonic() > deadline:
                rest = "; ".join(waiting) or f"pods: {', '.join(_phase(pod) for pod in pods) or 'none'}"
                return "", f"did not end within its limit; {rest}"
            STOP.wait(_POLL_S)
            check_stop()

    def _pods(self) -> list[Mapping[str, Any]]:
        answer = self._api.pods_of(self._namespace, f"{_JOB}={self._name}")
        if not answer.ok:
            raise self._refused(answer.told, _NEXT)
        return list(answer.body.get("items", []))

    def _warnings(self) -> list[str]:
        """Return why the operator could not make pods: its events tell, e.g. that privileged pods are forbidden."""
        answer = self._api.warnings_of(self._namespace, self._name)
        if not answer.ok:
            raise self._refused(answer.told, _NEXT)
        texts = [" ".join(str(item.get("message", "")).split()) for item in answer.body.get("items", [])]
        return list(dict.fromkeys(texts)) or ["the MPI Operator made no pod"]

    def _log(self) -> tuple[str, bool]:
        """Return the log of the job's newest launcher, and whether it is whole. Raises SchedulerError."""
        launchers = [pod for pod in self._pods() if pod["metadata"].get("labels", {}).get(_ROLE) == "launcher"]
        launchers = [pod for pod in launchers if _phase(pod) not in {"Pending", "Unknown"}]
        if not launchers:
            return "", True
        newest = max(launchers, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))
        answer, text = self._api.log_of(self._namespace, newest["metadata"]["name"])
        if not answer.ok:
            raise self._refused(f"log of its launcher: {answer.told}", _NEXT)
        begin, whole, rest = text.partition(f"{LOG_BEGINS}\n")
        if whole:
            return begin + rest, True
        return text, not self._marked

    def _refused(self, actual: str, step: str) -> SchedulerError:
        return SchedulerError(
            self._api.where,
            f"MPIJob {self._namespace}/{self._name}",
            expected="created, read and deleted",
            actual=actual,
            next_step=step,
        )


_ROTATED = "the log of its launcher was rotated: its beginning, where NCCL tells its transport, is lost"
_LARGER = (
    "Raise containerLogMaxSize in kubelet's configuration on the nodes (kubernetes.io, Logging Architecture), restart "
    "kubelet, then run again."
)
_NEXT = "Check the MPI Operator, the namespace and the rights in docs/howto/kubernetes.md, then run again."


def _ended(job: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the condition with which a job ended (JobCondition of MPI Operator's API)."""
    conditions = job.get("status", {}).get("conditions") or []
    over = [item for item in conditions if item["type"] in {"Succeeded", "Failed"} and item["status"] == "True"]
    return dict(over[-1]) if over else None


def _phase(pod: Mapping[str, Any]) -> str:
    return str(pod.get("status", {}).get("phase", "Unknown"))


def _hopeless(pod: Mapping[str, Any]) -> Iterator[str]:
    """Yield why containers of a pod do not start and will not."""
    for item in pod.get("status", {}).get("containerStatuses") or []:
        waiting = item.get("state", {}).get("waiting") or {}
        if waiting.get("reason") in _HOPELESS:
            yield f"{pod['metadata']['name']}: {waiting['reason']}: {' '.join(str(waiting.get('message', '')).split())}"


def _dead(pods: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield why workers ended before there was a launcher: the operator waits for them, and starts none again."""
    if any(pod["metadata"].get("labels", {}).get(_ROLE) == "launcher" for pod in pods):
        return
    for pod in pods:
        if _phase(pod) == "Failed":
            states = [
                item.get("state", {}).get("terminated") or {} for item in pod["status"].get("containerStatuses") or []
            ]
            code = next((str(state["exitCode"]) for state in states if "exitCode" in state), "unknown")
            name = pod["metadata"]["name"]
            yield f"{name}: ended with exit code {code}; its image needs sshd, and port 2222 must be free"


def _unplaced(pod: Mapping[str, Any]) -> Iterator[str]:
    """Yield why the scheduler has no place for a pod."""
    for item in pod.get("status", {}).get("conditions") or []:
        if (item["type"], item["status"]) == ("PodScheduled", "False"):
            yield f"{pod['metadata']['name']}: {item.get('reason')}: {' '.join(str(item.get('message', '')).split())}"

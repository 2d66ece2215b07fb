"""An MPIJob of Kubeflow (API kubeflow.org/v2beta1) for a gate, and the schema that checks it before it is used.

The schema holds the fields that we set and those that the API requires, written from the API's documentation: Kubeflow
MPI Operator, docs/api v2beta1 (MPIJobSpec: slotsPerWorker, runPolicy, mpiReplicaSpecs, sshAuthMountPath,
launcherCreationPolicy, mpiImplementation; ReplicaSpec: replicas, restartPolicy, template), and Kubernetes' own
(PodSpec, Container).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from rackready.model.kubernetes import CORDON_TAINT, LOG_BEGINS, TAINT_KEY, KubernetesHandover

_LIFE_S = 3600
_DEADLINE_S = 1500
"""Shorter than the command may run (1,800 s), so that the job's end is seen. Our judgement."""
_GPU_TAINT = "nvidia.com/gpu"
"""Taint that sites commonly give to nodes with GPUs; NVIDIA's operator tolerates it (gpu-operator, values.yaml)."""
_SSH_PORT = 2222
"""Port of the workers' sshd: port 22 is the node's own on its network. The operator's images use this one, too
(kubeflow/mpi-operator #428, #593)."""
_SSHD = f"mkdir -p /run/sshd && ssh-keygen -A && exec /usr/sbin/sshd -De -p {_SSH_PORT} -o StrictModes=no"
"""The operator mounts its Secret at /root/.ssh, and that folder is open to all: sshd would refuse the key in it. So the
operator's own images set this, too (kubeflow/mpi-operator #424; build/base/sshd_config)."""
_RSH = f"-p {_SSH_PORT} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o ConnectionAttempts=10"
"""How mpirun's launcher reaches them. These replace the operator's own arguments, which set the attempts only."""
_BEGIN = f'echo \'{LOG_BEGINS}\'; exec "$0" "$@"'
"""Without its first line a log is not whole."""
_SHM = "shm"

Label = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
"""A DNS label (RFC 1123), as Kubernetes wants names."""


class _Part(BaseModel):
    """Base of the API's objects: it refuses unknown fields; names are the API's."""

    model_config = ConfigDict(extra="forbid", defer_build=True, frozen=True)


class Metadata(_Part):
    """ObjectMeta, as far as we set it."""

    name: Label
    labels: dict[str, str] = Field(default_factory=dict, description="labels")


class Environment(_Part):
    """EnvVar."""

    name: str = Field(min_length=1)
    value: str


class Resources(_Part):
    """ResourceRequirements."""

    limits: dict[str, int | str]


class SecurityContext(_Part):
    """SecurityContext for RDMA: memory may be locked, and the node's devices are visible."""

    capabilities: dict[Literal["add"], list[str]]
    privileged: bool = False


class VolumeMount(_Part):
    """VolumeMount."""

    name: Label
    mountPath: str = Field(pattern=r"^/")  # noqa: N815 - the API's name


class EmptyDir(_Part):
    """EmptyDirVolumeSource."""

    medium: Literal["", "Memory"] = ""


class Volume(_Part):
    """Volume, with the one source that we use."""

    name: Label
    emptyDir: EmptyDir  # noqa: N815 - the API's name


class Container(_Part):
    """Container."""

    name: Label
    image: str = Field(min_length=1)
    command: list[str] = Field(default_factory=list)
    env: list[Environment] = Field(default_factory=list)
    resources: Resources | None = None
    securityContext: SecurityContext | None = None  # noqa: N815 - the API's name
    volumeMounts: list[VolumeMount] = Field(default_factory=list)  # noqa: N815 - the API's name


class PodSpec(_Part):
    """PodSpec, as far as we set it."""

    containers: list[Container] = Field(min_length=1)
    affinity: dict[str, object] = Field(default_factory=dict)
    tolerations: list[dict[str, str]] = Field(default_factory=list)
    hostNetwork: bool = False  # noqa: N815 - the API's name
    dnsPolicy: Literal["ClusterFirst", "ClusterFirstWithHostNet"] = "ClusterFirst"  # noqa: N815 - the API's name
    volumes: list[Volume] = Field(default_factory=list)


class Template(_Part):
    """PodTemplateSpec."""

    spec: PodSpec


class Replicas(_Part):
    """ReplicaSpec."""

    replicas: int = Field(ge=1)
    restartPolicy: Literal["Never", "OnFailure"] = "Never"  # noqa: N815 - the API's name
    template: Template


class RunPolicy(_Part):
    """RunPolicy."""

    cleanPodPolicy: Literal["None", "Running", "All"] = "Running"  # noqa: N815 - the API's name
    ttlSecondsAfterFinished: int = Field(_LIFE_S, ge=0)  # noqa: N815 - the API's name
    activeDeadlineSeconds: int = Field(_DEADLINE_S, ge=1)  # noqa: N815 - the API's name
    backoffLimit: int = Field(0, ge=0)  # noqa: N815 - the API's name


class ReplicaSpecs(_Part):
    """Launcher and workers; there is exactly one launcher."""

    Launcher: Replicas
    Worker: Replicas


class Spec(_Part):
    """MPIJobSpec."""

    slotsPerWorker: int = Field(ge=1)  # noqa: N815 - the API's name
    launcherCreationPolicy: Literal["AtStartup", "WaitForWorkersReady"] = "WaitForWorkersReady"  # noqa: N815 - the API's name
    mpiImplementation: Literal["OpenMPI", "Intel", "MPICH"] = "OpenMPI"  # noqa: N815 - the API's name
    runPolicy: RunPolicy  # noqa: N815 - the API's name
    mpiReplicaSpecs: ReplicaSpecs  # noqa: N815 - the API's name


class MpiJob(_Part):
    """An MPIJob."""

    apiVersion: Literal["kubeflow.org/v2beta1"] = "kubeflow.org/v2beta1"  # noqa: N815 - the API's name
    kind: Literal["MPIJob"] = "MPIJob"
    metadata: Metadata
    spec: Spec


def name_of(nodes: Sequence[str]) -> str:
    """Return the job's name, made from the cluster's names of its nodes: two sites may hand over to one cluster.

    Groups of nodes run side by side, and one group does one thing at a time.
    """
    return f"rackready-gate-{hashlib.sha256(' '.join(nodes).encode()).hexdigest()[:10]}"


def job(  # noqa: PLR0913 - each is a part of the job
    nodes: Sequence[str],
    argv: Sequence[str],
    environment: Mapping[str, str],
    per_node: int,
    image: str,
    cluster: KubernetesHandover | None = None,
    *,
    mca: Mapping[str, str] | None = None,
) -> MpiJob:
    """Return the job: a launcher on one of these nodes, and one worker on each with all its GPUs.

    ``cluster``: names of the nodes there, and the taint that holds them: they are measured while they are held.
    ``mca``: parameters of Open MPI for the ranks. Workers see the node's network and devices (hostNetwork, privileged):
    rails and their HCAs are the node's, and a site without an RDMA device plugin has no other way to them. Raises
    ValidationError when it breaks the schema.
    """
    exported = [word for name, value in environment.items() for word in ("-x", f"{name}={value}")]
    rsh = ["--mca", "plm_rsh_args", _RSH]
    command = [
        *("/bin/sh", "-c", _BEGIN),
        "mpirun",
        "--allow-run-as-root",
        *rsh,
        *(word for name, value in (mca or {}).items() for word in ("--mca", name, value)),
        "-np",
        str(per_node * len(nodes)),
        "--bind-to",
        "none",
        *exported,
        *argv,
    ]
    launcher = Container(name="launcher", image=image, command=command)
    worker = Container(
        name="worker",
        image=image,
        command=["/bin/sh", "-c", _SSHD],
        env=[Environment(name=name, value=value) for name, value in environment.items()],
        resources=Resources(limits={"nvidia.com/gpu": per_node}),
        securityContext=SecurityContext(capabilities={"add": ["IPC_LOCK"]}, privileged=True),
        volumeMounts=[VolumeMount(name=_SHM, mountPath="/dev/shm")],  # noqa: S108 - the container's own, in memory: NCCL's ranks of a node share it
    )
    held = cluster.held.key if cluster is not None else TAINT_KEY
    places = [cluster.node_name(node) if cluster is not None else node for node in nodes]
    tolerations = [{"key": key, "operator": "Exists"} for key in (held, CORDON_TAINT, _GPU_TAINT)]
    workers = PodSpec(
        containers=[worker],
        affinity=_on(places) | _apart(name_of(places)),
        tolerations=tolerations,
        hostNetwork=True,
        dnsPolicy="ClusterFirstWithHostNet",
        volumes=[Volume(name=_SHM, emptyDir=EmptyDir(medium="Memory"))],
    )
    specs = ReplicaSpecs(
        Launcher=Replicas(
            replicas=1,
            template=Template(spec=PodSpec(containers=[launcher], affinity=_on(places), tolerations=tolerations)),
        ),
        Worker=Replicas(replicas=len(nodes), template=Template(spec=workers)),
    )
    return MpiJob(
        metadata=Metadata(name=name_of(places), labels={"app.kubernetes.io/managed-by": "rackready"}),
        spec=Spec(slotsPerWorker=per_node, runPolicy=RunPolicy(), mpiReplicaSpecs=specs),
    )


def _on(places: Sequence[str]) -> dict[str, object]:
    """Return the affinity to these nodes only."""
    match = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(places)}
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [match]}]}
        }
    }


def _apart(name: str) -> dict[str, object]:
    """Return the affinity that puts one worker of a job on each node."""
    workers = {"training.kubeflow.org/job-name": name, "training.kubeflow.org/job-role": "worker"}
    apart = {"labelSelector": {"matchLabels": workers}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}


def render(wanted: MpiJob) -> str:
    """Return the manifest as YAML, fields in the API's order."""
    text: str = yaml.safe_dump(
        wanted.model_dump(exclude_defaults=False, exclude_none=True), sort_keys=False, width=1000
    )
    return text

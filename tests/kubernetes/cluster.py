"""A real Kubernetes control plane on loopback: etcd, kube-apiserver, controllers, scheduler, and kwok as the kubelets.

`make setup-kubernetes` installs the programs. Every process ends with the test session; all state is in one folder.
"""

from __future__ import annotations

import json
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from kubernetes import client, config

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / ".rackready/tools/kubernetes"
HOWTO = ROOT / "docs/howto/kubernetes.md"
TAINT = {"key": "rackready.io/held", "effect": "NoSchedule"}
READY_S = 90.0
CONTROLLERS = (
    "disruption-controller",
    "replicaset-controller",
    "node-lifecycle-controller",
    "daemonset-controller",
    "pod-garbage-collector-controller",
    "job-controller",
    "garbage-collector-controller",
)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def until(true: Callable[[], Any], what: str, limit_s: float = READY_S) -> Any:  # noqa: ANN401 - what it waits for
    """Return the first true value. Fails after the limit."""
    deadline = time.monotonic() + limit_s
    while not (found := true()):
        assert time.monotonic() < deadline, f"{what}: not within {limit_s:.0f} s"
        time.sleep(0.2)
    return found


@dataclass
class Cluster:
    """The control plane. ``admin``: a client with all rights; ``core`` and ``apps`` are its APIs."""

    folder: Path
    tokens: dict[str, str] = field(default_factory=dict)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    etcd: int = field(default_factory=free_port)
    peer: int = field(default_factory=free_port)
    port: int = field(default_factory=free_port)
    kubelet: int = field(default_factory=free_port)

    @property
    def kubeconfig(self) -> Path:
        """The product's login: user rackready, with the rights that the guide names."""
        return self.folder / "rackready.kubeconfig"

    def start(self) -> None:
        self.tokens = {name: secrets.token_hex(16) for name in ("admin", "rackready", "stranger")}
        groups = {"admin": "system:masters", "rackready": "", "stranger": ""}
        lines = [f'{token},{name},{name},"{groups[name]}"' for name, token in self.tokens.items()]
        (self.folder / "tokens.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        self._service_account_key()
        self._logs()
        self._run(
            f"{PROGRAMS}/etcd",
            f"--data-dir={self.folder}/etcd",
            f"--listen-client-urls=http://127.0.0.1:{self.etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{self.etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{self.peer}",
            "--unsafe-no-fsync",
        )
        self.start_api()
        for name in self.tokens:
            self._write_kubeconfig(name)
        until(self.answers, "kube-apiserver")
        self._start_clients()
        self._grant()

    def start_api(self) -> None:
        self._run(
            f"{PROGRAMS}/kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self.etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--cert-dir={self.folder}/certs",
            f"--token-auth-file={self.folder}/tokens.csv",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount",
            "--allow-privileged=true",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.folder}/sa.pub",
            f"--service-account-signing-key-file={self.folder}/sa.key",
        )

    def stop_api(self) -> None:
        """Take the API server away. Its objects stay in etcd."""
        self._end("kube-apiserver")

    def api_is_back(self) -> None:
        """Wait for a server that was started again. Its clients ask ever more seldom for it: start them anew, too."""
        until(self.answers, "kube-apiserver")
        for name in ("kwok", "kube-scheduler", "kube-controller-manager"):
            self._end(name)
        self._start_clients()

    def _end(self, name: str) -> None:
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def _start_clients(self) -> None:
        """Start controllers, scheduler, and kwok for the kubelets."""
        admin = f"--kubeconfig={self.folder}/admin.kubeconfig"
        controllers = f"--controllers={','.join(CONTROLLERS)}"
        alone = ("--leader-elect=false", "--secure-port=0")
        self._run(f"{PROGRAMS}/kube-controller-manager", admin, controllers, *alone)
        self._run(f"{PROGRAMS}/kube-scheduler", admin, *alone)
        self._run(
            f"{PROGRAMS}/kwok",
            admin,
            "--manage-all-nodes",
            "--node-lease-duration-seconds=40",
            f"--config={PROGRAMS}/stages.yaml",
            f"--config={self.folder}/logs.yaml",
            f"--server-address=127.0.0.1:{self.kubelet}",
            "--node-ip=127.0.0.1",
            f"--node-port={self.kubelet}",
            f"--tls-cert-file={self.folder}/certs/apiserver.crt",
            f"--tls-private-key-file={self.folder}/certs/apiserver.key",
        )

    def stop(self) -> None:
        for process in reversed(self.running.values()):
            process.send_signal(signal.SIGKILL)
            process.wait()

    def answers(self) -> bool:
        try:
            return client.CoreV1Api(self.client("admin")).get_api_resources() is not None
        except Exception:  # noqa: BLE001 - it is starting
            return False

    def client(self, name: str) -> client.ApiClient:
        settings = client.Configuration()
        config.load_kube_config(str(self.folder / f"{name}.kubeconfig"), client_configuration=settings)
        settings.retries = 0
        return client.ApiClient(settings)

    @property
    def core(self) -> client.CoreV1Api:
        return client.CoreV1Api(self.client("admin"))

    def raw(self, name: str) -> dict[str, Any]:
        """Return a Node object as the API server sends it."""
        found: dict[str, Any] = json.loads(self.core.read_node(name, _preload_content=False).data)
        return found

    def join(self, name: str, *, taints: list[dict[str, str]] | None = None, **labels: str) -> None:
        """Make a Node object, as kubelet does when it registers with --register-with-taints."""
        body = {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
            "spec": {"taints": [TAINT] if taints is None else taints},
        }
        self.core.create_node(body)
        capacity = {"cpu": "64", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}
        self.core.patch_node_status(name, {"status": {"capacity": capacity, "allocatable": capacity}})
        until(lambda: self.is_ready(name), f"node {name} is ready")

    def is_ready(self, name: str) -> bool:
        status = self.raw(name)
        seen = {item["type"]: item["status"] for item in status["status"].get("conditions", [])}
        noisy = [item for item in status["spec"].get("taints", []) if item["key"].startswith("node.kubernetes.io/not")]
        return seen.get("Ready") == "True" and not noisy

    def replica_set(self, name: str, replicas: int, **spec: Any) -> None:
        """Make pods of a controller: they are made again elsewhere when they are evicted."""
        template = {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "c", "image": "c"}], **spec},
        }
        selector = {"matchLabels": {"app": name}}
        body = {"metadata": {"name": name}, "spec": {"replicas": replicas, "selector": selector, "template": template}}
        client.AppsV1Api(self.client("admin")).create_namespaced_replica_set("default", body)

    def budget(self, name: str, app: str, available: int) -> None:
        selector = {"matchLabels": {"app": app}}
        body = {"metadata": {"name": name}, "spec": {"minAvailable": available, "selector": selector}}
        client.PolicyV1Api(self.client("admin")).create_namespaced_pod_disruption_budget("default", body)

    def budget_needs(self, name: str, available: int) -> None:
        policy = client.PolicyV1Api(self.client("admin"))
        body = {"spec": {"minAvailable": available}}
        policy.patch_namespaced_pod_disruption_budget(
            name, "default", body, _content_type="application/merge-patch+json"
        )

    def pods(self, app: str, *phases: str) -> dict[str, str]:
        """Return the pods of an app that do not end, in these phases: name to node, empty where they run nowhere."""
        found = self.core.list_namespaced_pod("default", label_selector=f"app={app}").items
        return {
            pod.metadata.name: pod.spec.node_name or ""
            for pod in found
            if pod.metadata.deletion_timestamp is None and pod.status.phase in (phases or {"Pending", "Running"})
        }

    def run_on(self, app: str, node: str, count: int) -> None:
        """Wait until that many pods of an app run on a node."""
        until(lambda: list(self.pods(app, "Running").values()) == [node] * count, f"{count} pods of {app} on {node}")

    def _run(self, program: str, *arguments: str) -> None:
        """Start a program that ends with us, however we end."""
        name, quiet = Path(program).name, subprocess.DEVNULL
        argv = ["setpriv", "--pdeathsig", "KILL", program, *arguments]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(argv, stdout=log, stderr=log, stdin=quiet)

    def _service_account_key(self) -> None:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (self.folder / "sa.key").write_bytes(private)
        (self.folder / "sa.pub").write_bytes(public)

    def _logs(self) -> None:
        """Give every container the same log, which kwok serves as kubelet would, from CRI's form of a log."""
        self.says("")
        where = {"logs": [{"logsFile": f"{self.folder}/container.log"}]}
        document = {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "ClusterLogs", "metadata": {"name": "all"}}
        (self.folder / "logs.yaml").write_text(yaml.safe_dump({**document, "spec": where}), encoding="utf-8")

    def says(self, text: str) -> None:
        """Set what every container has printed."""
        lines = [f"2026-11-28T05:00:00.000000000Z stdout F {line}\n" for line in text.splitlines()]
        (self.folder / "container.log").write_text("".join(lines), encoding="utf-8")

    def run_mpi_operator(self) -> None:
        """Start the MPI Operator, which makes the pods of MPIJobs."""
        for name in ("mpi-operator", "rackready"):
            self.core.create_namespace({"metadata": {"name": name}})
        crd = yaml.safe_load((PROGRAMS / "mpijobs.yaml").read_text(encoding="utf-8"))
        client.ApiextensionsV1Api(self.client("admin")).create_custom_resource_definition(crd)
        jobs = client.CustomObjectsApi(self.client("admin"))
        until(lambda: _served(jobs), "MPIJobs are served")
        kubeconfig = f"-kubeConfig={self.folder}/admin.kubeconfig"
        self._run(f"{PROGRAMS}/mpi-operator", kubeconfig, "-monitoring-port=0", "-alsologtostderr")

    def _write_kubeconfig(self, name: str) -> None:
        cluster = {
            "server": f"https://127.0.0.1:{self.port}",
            "certificate-authority": f"{self.folder}/certs/apiserver.crt",
        }
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": self.tokens[name]}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": name}}],
            "current-context": "here",
        }
        path = self.folder / f"{name}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(document), encoding="utf-8")

    def _grant(self) -> None:
        """Give user rackready exactly the rights of the guide."""
        text = HOWTO.read_text(encoding="utf-8").split("```yaml\n# rights\n")[1].split("```")[0]
        rbac = client.RbacAuthorizationV1Api(self.client("admin"))
        role, binding = yaml.safe_load_all(text)
        rbac.create_cluster_role(role)
        rbac.create_cluster_role_binding(binding)


def _served(jobs: client.CustomObjectsApi) -> bool:
    try:
        return bool(jobs.list_cluster_custom_object("kubeflow.org", "v2beta1", "mpijobs"))
    except client.ApiException:
        return False


def without_ours(raw: dict[str, Any]) -> dict[str, Any]:
    """Return what others set on a node: all but our taint, labels, annotations and cordon, with its own taint."""
    meta, spec = raw["metadata"], raw["spec"]
    named = {
        kind: {key: value for key, value in meta.get(kind, {}).items() if not key.startswith("rackready.io/")}
        for kind in ("labels", "annotations")
    }
    taints = [
        item
        for item in spec.get("taints", [])
        if item["key"] not in {"rackready.io/held", "node.kubernetes.io/unschedulable"}
    ]
    rest = {key: value for key, value in spec.items() if key not in {"taints", "unschedulable"}}
    return {**named, "taints": taints, "spec": rest, "uid": meta["uid"]}


@contextmanager
def control_plane(folder: Path) -> Iterator[Cluster]:
    """Run a control plane. Skips the test where `make setup-kubernetes` has not run."""
    if not (PROGRAMS / "built.json").exists():
        pytest.skip("no Kubernetes control plane: `make setup-kubernetes` builds it")
    cluster = Cluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()

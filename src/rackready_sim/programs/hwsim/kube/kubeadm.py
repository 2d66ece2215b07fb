"""kubeadm join, and what kubelet does then: its certificate, its kubelet.conf, its registration. kwok does the rest.

Steps, files and messages: Kubernetes 1.35.0, cmd/kubeadm/app (cmd/join.go, cmd/phases/join/kubelet.go,
preflight/checks.go), pkg/kubelet/certificate/bootstrap and pkg/kubelet/kubelet_node_status.go (initialNode). Left out:
preflight checks of the machine, the configuration in the cluster, and the process kubelet itself. NVIDIA's device
plugin, which a cluster starts on the node, counts as started with it.
"""

from __future__ import annotations

import base64
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

from .. import machine
from .api import Api, Object
from .discovery import JoinError, discovered, yaml_of

_KUBELET = Path("/etc/kubernetes/kubelet.conf")
_BOOTSTRAP = Path("/etc/kubernetes/bootstrap-kubelet.conf")
_CA = Path("/etc/kubernetes/pki/ca.crt")
_PKI = Path("/var/lib/kubelet/pki")
_TOKEN = re.compile(r"[a-z0-9]{6}\.[a-z0-9]{16}")
_REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
_SIGNED_S = 60.0
_OK, _CREATED, _CONFLICT = 200, 201, 409
_USAGE = "usage of this kubeadm: join --config FILE | version -o short\n"
_JOINED = """
This node has joined the cluster:
* Certificate signing request was sent to apiserver and a response was received.
* The Kubelet was informed of the new secure connection details.

Run 'kubectl get nodes' on the control-plane to see this node join the cluster.

"""


def main(argv: list[str]) -> int:
    """Do what the words say, and return the exit code."""
    if argv == ["version", "-o", "short"]:
        print("v1.35.0")
        return 0
    if argv[:2] != ["join", "--config"] or len(argv) != 3:  # noqa: PLR2004 - the two words and a file
        sys.stderr.write(_USAGE)
        return 2
    try:
        join(yaml_of(Path(argv[2]).read_text()))
    except JoinError as error:
        sys.stderr.write(f"error: {error}\nTo see the stack trace of this error execute with --v=5 or higher\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"error: error execution phase kubelet-start: {error}\n")
        return 1
    return 0


def join(wanted: Object) -> None:
    """Join the cluster. Raises JoinError, OSError."""
    if (wanted["apiVersion"], wanted["kind"]) != ("kubeadm.k8s.io/v1beta4", "JoinConfiguration"):
        raise JoinError(f'no kind "{wanted["kind"]}" is registered for version "{wanted["apiVersion"]}"')
    print("[preflight] Running pre-flight checks")
    _preflight()
    tokens = [wanted["discovery"].get("tlsBootstrapToken"), wanted["discovery"].get("bootstrapToken", {}).get("token")]
    if any(token is not None and _TOKEN.fullmatch(token) is None for token in tokens):
        raise JoinError("discovery.bootstrapToken.token: Invalid value: the bootstrap token is invalid")
    try:
        endpoint, authority, token = discovered(wanted["discovery"])
    except JoinError as error:
        doubt = "couldn't validate the identity of the API Server"
        raise JoinError(f"error execution phase preflight: {doubt}: {error}") from error
    node = wanted["nodeRegistration"]
    api = Api(endpoint, authority.decode(), token)
    _write(_BOOTSTRAP, _kubeconfig(endpoint, authority, f"token: {token}"))
    _write(_CA, authority.decode())
    _absent(api, node["name"])
    print("[kubelet-start] Starting the kubelet")
    certificate = _certificate(api, node["name"])
    login = f"client-certificate: {certificate}\n    client-key: {certificate}"
    _write(_KUBELET, _kubeconfig(endpoint, authority, login))
    _register(Api(endpoint, authority.decode(), certificate=str(certificate)), node)
    _BOOTSTRAP.unlink()
    print(_JOINED, end="")


def _preflight() -> None:
    there = [path for path in (_KUBELET, _BOOTSTRAP, _CA) if path.exists()]
    if there:
        lines = "".join(
            f"\t[ERROR FileAvailable-{str(path).replace('/', '-')}]: {path} already exists\n" for path in there
        )
        raise JoinError(f"error execution phase preflight: [preflight] Some fatal errors occurred:\n{lines}")


def _absent(api: Api, name: str) -> None:
    status, found = api.send("GET", f"/api/v1/nodes/{name}")
    if status not in {_OK, 404}:
        raise JoinError(f'cannot get Node "{name}": {found.get("message")}')
    conditions = found.get("status", {}).get("conditions") or [] if status == _OK else []
    if any(item["type"] == "Ready" and item["status"] == "True" for item in conditions):
        raise JoinError(
            f'a Node with name "{name}" and status "Ready" already exists in the cluster. You must delete the existing '
            "Node or change the name of this new joining Node"
        )


def _certificate(api: Api, name: str) -> Path:
    """Let the cluster sign kubelet's certificate, and return the file with it and its key."""
    _PKI.mkdir(parents=True, exist_ok=True)
    key = _PKI / "kubelet-client.key.tmp"
    argv = ["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    argv += ["-keyout", str(key), "-subj", f"/O=system:nodes/CN=system:node:{name}"]
    request = subprocess.run(argv, capture_output=True, check=True).stdout
    spec = {
        "request": base64.b64encode(request).decode(),
        "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        "usages": ["digital signature", "client auth"],
    }
    body = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "node-csr-"},
        "spec": spec,
    }
    status, made = api.send("POST", _REQUESTS, body)
    if status != _CREATED:
        raise JoinError(f"cannot create certificate signing request: {made.get('message')}")
    deadline = time.monotonic() + _SIGNED_S
    while True:
        _, found = api.send("GET", f"{_REQUESTS}/{made['metadata']['name']}")
        signed = found.get("status", {}).get("certificate", "")
        if signed:
            break
        if time.monotonic() > deadline:
            raise JoinError("timed out waiting for the condition: the certificate was not signed")
        time.sleep(0.2)
    path = _PKI / "kubelet-client-current.pem"
    _write(path, base64.b64decode(signed).decode() + key.read_text())
    key.unlink()
    return path


def _register(api: Api, node: Object) -> None:
    """Register the node, as kubelet does at its first start: only now do its taints count."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    labels = {"kubernetes.io/hostname": platform.node(), "kubernetes.io/os": "linux", "kubernetes.io/arch": machine}
    body: Object = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node["name"], "labels": labels},
        "spec": {"taints": node["taints"]},
        "status": {"capacity": _capacity(), "allocatable": _capacity()},
    }
    status, found = api.send("POST", "/api/v1/nodes", body)
    if status not in {_CREATED, _CONFLICT}:
        raise JoinError(f"Unable to register node with API server: {found.get('message')}")


def _capacity() -> dict[str, str]:
    """Return what the node has for pods: kubelet's own (default of maxPods), and GPUs as NVIDIA's device plugin does.

    The plugin registers a device for each GPU that NVML shows (NVIDIA/k8s-device-plugin, internal/rm/nvml_manager.go).
    """
    total = Path("/proc/meminfo").read_text().split()[1]
    own = {"cpu": str(os.cpu_count()), "memory": f"{total}Ki", "pods": "110"}
    return {**own, "nvidia.com/gpu": str(_gpus())}


def _gpus() -> int:
    return len(machine.gpus())


def _kubeconfig(endpoint: str, authority: bytes, login: str) -> str:
    data = base64.b64encode(authority).decode()
    return (
        f"apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {data}\n    server: https://{endpoint}\n"
        "  name: kubernetes\ncontexts:\n- context:\n    cluster: kubernetes\n    user: kubelet\n  name: kubelet\n"
        f"current-context: kubelet\nkind: Config\nusers:\n- name: kubelet\n  user:\n    {login}\n"
    )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)

"""Start, find and stop the control plane: etcd, API server, controllers, scheduler, and kwok for the kubelets.

`make setup-kubernetes` builds the programs. They outlive `sim up`, as the BMCs do, and `sim down` ends them. All state
is below ``.rackready/sim/kubernetes``.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackready.paths import state_base
from rackready_sim.emulator import process_start
from rackready_sim.errors import describe
from rackready_sim.kube import certs
from rackready_sim.kube.client import Admin
from rackready_sim.kube.objects import objects
from rackready_sim.plan import KUBERNETES_PORT
from rackready_sim.store import Store, write_json

_ETCD, _PEER = 2379, 2380
_START_S = 180.0
"""On two idle cores it answers within 10 s; a busy machine takes longer. Our judgement."""
_SERVERS = ("etcd", "kube-apiserver")
"""Started first. kube-controller-manager ends when the API server is not healthy within 10 s of its own start
(kubernetes cmd/kube-controller-manager/app/controllermanager.go, CreateControllerContext: WaitForAPIServer)."""
_STOP_S = 10.0
_CONTROLLERS = (
    "bootstrap-signer-controller",
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-signing-controller",
    "daemonset-controller",
    "disruption-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
)
"""Of kube-controller-manager 1.35.0: what joins nodes, places and evicts pods."""


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """One rack's control plane. ``address``: this machine's, in the rack; ``loopback``: first octets of its BMCs'."""

    root: Path
    store: Store
    address: str
    loopback: str

    @property
    def folder(self) -> Path:
        """Return the folder of keys and state."""
        return self.store.base / "kubernetes"

    @property
    def token(self) -> Path:
        """Return the file of the token by which nodes join."""
        return self.store.secret(certs.JOINING)

    def up(self) -> list[str]:
        """Start what does not run, and return its names. Raises SimError."""
        programs = state_base(self.root) / "tools" / "kubernetes"
        if not (programs / "built.json").exists():
            raise describe(
                "Kubernetes control plane", f"built in {programs}", "not there", "Run `make setup-kubernetes`."
            )
        certs.ensure(self.folder, self.token, self.address, KUBERNETES_PORT)
        admin = Admin(self.folder / f"{certs.ADMIN}.kubeconfig")
        lines = self._programs(programs)
        started = [name for name in _SERVERS if self._start(name, lines[name])]
        self._wait(admin)
        started += [name for name in lines if name not in _SERVERS and self._start(name, lines[name])]
        for path, made in objects(certs.cluster(self.folder, self.address, KUBERNETES_PORT), self._secret()):
            admin.ensure(path, made)
        return started

    def answers(self) -> bool:
        """Return whether every program runs."""
        return all(_alive(self.folder, name) for name in self._programs(Path("/")))

    def _secret(self) -> str:
        return self.token.read_text(encoding="utf-8").strip()

    def _start(self, name: str, argv: list[str]) -> bool:
        """Start a program unless it runs with these arguments. Return whether it was started."""
        digest = hashlib.sha256(json.dumps(argv).encode()).hexdigest()
        before = _marker(self.folder, name)
        if before.get("digest") == digest and _alive(self.folder, name):
            return False
        _stop(self.folder, name)
        with self._log(name).open("ab") as log:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True
            )
        marker = {"pid": child.pid, "start": process_start(child.pid), "digest": digest}
        write_json(self.folder / "running" / f"{name}.json", marker)
        return True

    def _log(self, name: str) -> Path:
        return self.store.logs / f"{name}.log"

    def _wait(self, admin: Admin) -> None:
        deadline = time.monotonic() + _START_S
        while not admin.ready():
            dead = next((name for name in _SERVERS if not _alive(self.folder, name)), "")
            if dead or time.monotonic() > deadline:
                what = f"{dead} ended" if dead else f"not ready after {_START_S:.0f} s"
                log = self._log(dead or "kube-apiserver")
                tail = " | ".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-3:])
                raise describe("Kubernetes control plane", "it answers", f"{what}: {tail}", f"See {log}.")
            time.sleep(0.2)

    def _programs(self, programs: Path) -> dict[str, list[str]]:
        """Return each program's command line, in the order of their start."""
        keys, etcd = self.folder, f"http://{self.loopback}.2"
        admin = f"--kubeconfig={keys}/{certs.ADMIN}.kubeconfig"
        alone = ["--leader-elect=false", "--secure-port=0"]
        lines = {
            "etcd": [
                f"--data-dir={keys}/etcd",
                f"--listen-client-urls={etcd}:{_ETCD}",
                f"--advertise-client-urls={etcd}:{_ETCD}",
                f"--listen-peer-urls={etcd}:{_PEER}",
                "--unsafe-no-fsync",
            ],
            "kube-apiserver": [
                f"--etcd-servers={etcd}:{_ETCD}",
                f"--bind-address={self.address}",
                f"--secure-port={KUBERNETES_PORT}",
                f"--tls-cert-file={keys}/server.crt",
                f"--tls-private-key-file={keys}/server.key",
                f"--client-ca-file={keys}/ca.crt",
                "--authorization-mode=Node,RBAC",
                "--enable-bootstrap-token-auth",
                "--enable-admission-plugins=NodeRestriction",
                "--disable-admission-plugins=ServiceAccount",
                "--service-cluster-ip-range=10.96.0.0/16",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={keys}/sa.pub",
                f"--service-account-signing-key-file={keys}/sa.key",
            ],
            "kube-controller-manager": [
                admin,
                f"--controllers={','.join(_CONTROLLERS)}",
                f"--cluster-signing-cert-file={keys}/ca.crt",
                f"--cluster-signing-key-file={keys}/ca.key",
                *alone,
            ],
            "kube-scheduler": [admin, *alone],
            "kwok": [
                admin,
                "--manage-all-nodes",
                "--node-lease-duration-seconds=40",
                f"--config={programs}/stages.yaml",
            ],
        }
        return {name: [str(programs / name), *line] for name, line in lines.items()}


def stop(store: Store) -> list[str]:
    """Stop the programs of a control plane, the last started first, and no other process. Return their names."""
    folder = store.base / "kubernetes"
    order = ("kwok", "kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd")
    return [name for name in order if _stop(folder, name)]


def _marker(folder: Path, name: str) -> dict[str, Any]:
    try:
        found = json.loads((folder / "running" / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _alive(folder: Path, name: str) -> bool:
    """Return whether a program still runs. A process id alone may be another process's by now."""
    found = _marker(folder, name)
    return bool(found.get("start")) and process_start(int(found["pid"])) == found["start"]


def _stop(folder: Path, name: str) -> bool:
    ran = _alive(folder, name)
    if ran:
        for number in (signal.SIGTERM, signal.SIGKILL):
            _end(folder, name, number)
    (folder / "running" / f"{name}.json").unlink(missing_ok=True)
    return ran


def _end(folder: Path, name: str, number: signal.Signals) -> None:
    """Send a signal, through a handle so that no later process with the id receives it, and wait for the end."""
    pid = int(_marker(folder, name).get("pid", 0))
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if _alive(folder, name):
            signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)
    deadline = time.monotonic() + _STOP_S
    while _alive(folder, name) and time.monotonic() < deadline:
        time.sleep(0.05)
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # up and down in one process, as in tests

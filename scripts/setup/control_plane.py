"""A Kubernetes control plane for tests, in pinned versions, built from Go modules; it needs no container.

etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok, which plays kubelets, kubeadm, which checks the
files that it is to read, and Kubeflow's MPI Operator. ``tools/kubernetes`` pins every module by checksum (go.sum). The
programs land in ``.rackready/tools/kubernetes``.
"""

from __future__ import annotations

import json

import go_modules
from console import PRIVATE, ROOT, digest_of, make_private, say

BIN = PRIVATE / "tools" / "kubernetes"
STAMP = BIN / "built.json"
SOURCES = ROOT / "tools" / "kubernetes"
RECIPE = [
    SOURCES / part / name for part in ("control-plane", "etcd", "kwok", "mpi-operator") for name in ("go.mod", "go.sum")
]
PROGRAMS = {
    "etcd": ("etcd", "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": ("control-plane", "k8s.io/kubernetes/cmd/kube-apiserver"),
    "kube-controller-manager": ("control-plane", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    "kube-scheduler": ("control-plane", "k8s.io/kubernetes/cmd/kube-scheduler"),
    "kubeadm": ("control-plane", "k8s.io/kubernetes/cmd/kubeadm"),
    "kwok": ("kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    "mpi-operator": ("mpi-operator", "github.com/kubeflow/mpi-operator/cmd/mpi-operator"),
}
"""Program to the folder of its modules, and its package."""
STAGES = ("node/fast", "node/heartbeat-with-lease", "pod/fast")
"""kwok's own descriptions of how nodes and pods behave, in its module; without them it reports "no stages found"."""
MPIJOBS = "mpijobs.yaml"
"""The custom resource of MPIJobs, from the operator's module."""
_VERSION_VARIABLE = "k8s.io/component-base/version.gitVersion"


def ensure() -> None:
    """Make the programs available, or find them made. Raises SetupError."""
    if _current():
        say("Kubernetes control plane: up to date")
        return
    make_private()
    BIN.mkdir(mode=0o700, parents=True, exist_ok=True)
    go_modules.check_go()
    say("building a Kubernetes control plane from its Go modules: 5 to 15 minutes on 2 cores, once")
    for program, (part, package) in PROGRAMS.items():
        say(f"building {program}")
        version = go_modules.module_version("k8s.io/kubernetes", SOURCES / "control-plane")
        go_modules.build(SOURCES / part, package, BIN / program, f"-s -w -X {_VERSION_VARIABLE}={version}")
    _copy_stages()
    _copy_mpijobs()
    STAMP.write_text(json.dumps({"recipe": digest_of(*RECIPE)}) + "\n", encoding="utf-8")
    say("Kubernetes control plane: ready")


def _current() -> bool:
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    made = [BIN / name for name in (*PROGRAMS, "stages.yaml", MPIJOBS)]
    return stamp.get("recipe") == digest_of(*RECIPE) and all(path.exists() for path in made)


def _copy_stages() -> None:
    """Write kwok's stages as one file of YAML documents."""
    folder = go_modules.module_folder("sigs.k8s.io/kwok", SOURCES / "kwok") / "kustomize" / "stage"
    files = [path for name in STAGES for path in sorted((folder / name).glob("*.yaml"))]
    texts = [path.read_text(encoding="utf-8").strip() for path in files if path.name != "kustomization.yaml"]
    (BIN / "stages.yaml").write_text("\n---\n".join(texts) + "\n", encoding="utf-8")


def _copy_mpijobs() -> None:
    """Write the definition of the MPI Operator's custom resource."""
    folder = go_modules.module_folder("github.com/kubeflow/mpi-operator", SOURCES / "mpi-operator")
    text = (folder / "manifests" / "base" / "kubeflow.org_mpijobs.yaml").read_text(encoding="utf-8")
    (BIN / MPIJOBS).write_text(text, encoding="utf-8")

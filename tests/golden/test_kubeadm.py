"""Golden files: kubeadm's JoinConfiguration. `GOLDENS=rewrite pytest tests/golden` rewrites them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rackready.model.kubernetes import KubernetesHandover
from rackready.render.kube_join import join_configuration

HERE = Path(__file__).resolve().parent / "kubeadm"
_TOOLS = HERE.parents[2] / ".rackready/tools/kubernetes"
KUBEADM = shutil.which("kubeadm", path=f"{_TOOLS}:{os.environ.get('PATH', os.defpath)}")
TOKEN = "abcdef.0123456789abcdef"
"""The token of Kubernetes' own examples."""
BY_TOKEN = {
    "endpoint": "k8s.example.com:6443",
    "token": {"env": "TOKEN"},
    "ca_hashes": [f"sha256:{'0123456789abcdef' * 4}", f"sha256:{'fedcba9876543210' * 4}"],
}
BY_FILE = {"discovery_file": "/etc/rackready/cluster-info.conf"}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "token": (BY_TOKEN, {}, TOKEN),
    "token-taint-socket": (
        {**BY_TOKEN, "cri_socket": "unix:///run/containerd/containerd.sock"},
        {"taint": "example.com/wait=yes:NoSchedule", "node_suffix": ".gpu.example.com"},
        TOKEN,
    ),
    "file": (BY_FILE, {}, ""),
    "file-token": ({**BY_FILE, "token": {"env": "TOKEN"}}, {"node_names": {"node01": "spare-7"}}, TOKEN),
}


def text_of(name: str) -> str:
    kubeadm, more, token = CASES[name]
    handover = KubernetesHandover.model_validate(
        {"kind": "kubernetes", "kubeconfig": "/k", "context": "prod", "join": {"kubeadm": kubeadm}, **more}
    )
    assert handover.join is not None
    assert handover.join.kubeadm is not None
    place = "/run/rackready-join/discovery.conf"
    return join_configuration(handover.join.kubeadm, handover.node_name("node01"), handover.held, token, place, 600)


@pytest.mark.parametrize("name", CASES)
def test_configuration_is_as_reviewed(name: str) -> None:
    text = text_of(name)
    golden = HERE / f"{name}.yml"
    if os.environ.get("GOLDENS") == "rewrite":
        HERE.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


@pytest.mark.skipif(KUBEADM is None, reason="needs kubeadm 1.31 or newer: `make setup-kubernetes` builds it")
@pytest.mark.parametrize("name", CASES)
def test_kubeadm_itself_accepts_it(name: str, tmp_path: Path) -> None:
    """It looks for the discovery file where the configuration says that it is."""
    text = (HERE / f"{name}.yml").read_text(encoding="utf-8")
    (tmp_path / "discovery.conf").touch()
    (tmp_path / "join.yaml").write_text(text.replace("/run/rackready-join", str(tmp_path)), encoding="utf-8")
    assert KUBEADM is not None
    argv = [KUBEADM, "config", "validate", "--config", str(tmp_path / "join.yaml")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr

"""kubeadm of a simulated node, against what a real kube-apiserver 1.35.0 answered."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rackready.drivers.scheduler import kube_node
from rackready.drivers.scheduler.kube_authority import pins_of
from rackready_sim.programs.hwsim.kube import discovery, kubeadm

CAPTURED = Path(__file__).resolve().parents[3] / "fixtures/captured/kubernetes/cluster_info.json"
FOUND = json.loads(CAPTURED.read_text(encoding="utf-8"))
NUMBER, SECRET = FOUND["token"].split(".")
TEXT = FOUND["body"]["data"]["kubeconfig"]
SIGNATURE = FOUND["body"]["data"][f"jws-kubeconfig-{NUMBER}"]


class Server:
    """Answers every request for the ConfigMap with the captured one."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body

    def send(self, method: str, path: str) -> tuple[int, dict[str, Any]]:
        assert (method, path.rpartition("/")[2]) == ("GET", "cluster-info")
        return 200, self.body


def test_the_signature_of_the_real_controller_is_verified() -> None:
    assert discovery.signed(SIGNATURE, TEXT, SECRET)
    assert not discovery.signed(SIGNATURE, TEXT, "0123456789abcdef")
    assert not discovery.signed(SIGNATURE, TEXT.replace("6443", "6444"), SECRET)
    header, _, rest = SIGNATURE.partition(".")
    assert not discovery.signed(f"eyJhbGciOiJub25lIn0.{rest}", TEXT, SECRET), header
    assert not discovery.signed("damaged", TEXT, SECRET)


def test_the_cluster_is_taken_from_what_was_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    server: Any = Server(FOUND["body"])
    assert discovery.cluster_info(server, FOUND["token"]) == TEXT
    with pytest.raises(discovery.JoinError, match="failed to verify JWS signature"):
        discovery.cluster_info(server, f"{NUMBER}.0123456789abcdef")
    monkeypatch.setattr(discovery, "_LIMIT_S", -1)
    with pytest.raises(discovery.JoinError, match='JWS signature in the cluster-info ConfigMap for token ID "abcdef"'):
        discovery.cluster_info(server, "abcdef.0123456789abcdef")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_the_hash_of_a_ca_is_the_products() -> None:
    endpoint, authority = discovery.only_cluster(TEXT)
    assert endpoint.endswith(":6443")
    assert {discovery.pin(authority)} == pins_of(authority)


def test_a_node_registers_with_all_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them the product holds it, and without cpu and pods kwok would leave it with none."""
    sent: list[dict[str, Any]] = []

    class Taker:
        def send(self, _method: str, _path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
            sent.append(body)
            return 201, {}

    monkeypatch.setattr(kubeadm, "_gpus", lambda: 8)
    taker: Any = Taker()
    kubeadm._register(taker, {"name": "node01", "taints": []})
    status = sent[0]["status"]
    assert status["capacity"] == status["allocatable"]
    assert status["capacity"]["nvidia.com/gpu"] == "8"
    assert {"cpu", "memory", "pods"} < set(status["capacity"])
    assert kube_node.lacks_devices(sent[0], 8) == ""


def test_a_node_that_has_joined_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("_KUBELET", "_BOOTSTRAP", "_CA"):
        monkeypatch.setattr(kubeadm, name, tmp_path / name)
    (tmp_path / "_KUBELET").touch()
    config = tmp_path / "join.yaml"
    config.write_text("{apiVersion: kubeadm.k8s.io/v1beta4, kind: JoinConfiguration, discovery: {}}")
    assert kubeadm.main(["join", "--config", str(config)]) == 1
    said = capsys.readouterr()
    assert said.out == "[preflight] Running pre-flight checks\n"
    assert "[preflight] Some fatal errors occurred:\n\t[ERROR FileAvailable-" in said.err
    assert f"{tmp_path}/_KUBELET already exists\n" in said.err
    config.write_text("{apiVersion: kubeadm.k8s.io/v1beta3, kind: JoinConfiguration}")
    assert kubeadm.main(["join", "--config", str(config)]) == 1
    assert kubeadm.main(["init"]) == 2

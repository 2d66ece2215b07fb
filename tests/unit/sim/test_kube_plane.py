"""The simulated rack's Kubernetes: its keys, its objects, its programs' lives, and what the overlay tells of it."""

from __future__ import annotations

import base64
import json
import os
import signal
import time
from ipaddress import IPv4Network
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from rackready.design.overlays import merge
from rackready.design.site import parse_site
from rackready.design.yaml import read_yaml
from rackready.drivers.scheduler.kube_authority import pins_of
from rackready.handover.kube_join import _TOKEN
from rackready.model.kubernetes import KubernetesHandover
from rackready_sim import overlay
from rackready_sim.definition import site_without_overlay
from rackready_sim.errors import SimError
from rackready_sim.kube import certs, objects, plane
from rackready_sim.kube.client import Admin
from rackready_sim.kube.plane import ControlPlane
from rackready_sim.plan import build_plan
from rackready_sim.store import Store

ROOT = Path(__file__).resolve().parents[3]
NAMES = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ControlPlane:
    """A control plane whose programs do nothing until they are ended, and whose API server answers at once."""
    folder = tmp_path / ".rackready/tools/kubernetes"
    folder.mkdir(parents=True)
    for name in NAMES:
        (folder / name).write_text("#!/bin/sh\nexec sleep 600\n")
        (folder / name).chmod(0o755)
    (folder / "built.json").touch()
    monkeypatch.setattr(Admin, "ready", lambda _self: True)
    monkeypatch.setattr(Admin, "ensure", lambda _self, _path, _made: None)
    return ControlPlane(tmp_path, Store(tmp_path), "127.9.8.1", "127.9.8")


def pids(made: ControlPlane) -> dict[str, int]:
    return {name: json.loads((made.folder / f"running/{name}.json").read_text())["pid"] for name in NAMES}


def test_programs_start_once_again_when_they_died_and_end_together(made: ControlPlane) -> None:
    try:
        assert made.up() == NAMES
        assert (made.up(), made.answers()) == ([], True)
        first = pids(made)
        os.kill(first["kwok"], signal.SIGKILL)
        os.waitpid(first["kwok"], 0)
        assert made.answers() is False
        assert made.up() == ["kwok"]
        assert {**pids(made), "kwok": 0} == {**first, "kwok": 0}
    finally:
        ended = plane.stop(made.store)
    assert sorted(ended) == sorted(NAMES)
    assert plane.stop(made.store) == []
    assert all(not Path(f"/proc/{pid}").exists() for pid in first.values())


def test_an_id_that_another_process_has_by_now_is_not_ended(made: ControlPlane) -> None:
    try:
        made.up()
        path = made.folder / "running/etcd.json"
        marker = json.loads(path.read_text())
        path.write_text(json.dumps({**marker, "start": "another boot 1"}))
        assert "etcd" not in plane.stop(made.store)
        assert Path(f"/proc/{marker['pid']}").exists()
        os.kill(marker["pid"], signal.SIGKILL)
        os.waitpid(marker["pid"], 0)
    finally:
        plane.stop(made.store)


def test_a_program_that_ends_is_told_with_its_log(made: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Admin, "ready", lambda _self: time.sleep(0.1))
    program = made.root / ".rackready/tools/kubernetes/etcd"
    program.write_text("#!/bin/sh\necho 'address already in use' >&2\nexit 1\n")
    try:
        with pytest.raises(SimError) as caught:
            made.up()
    finally:
        plane.stop(made.store)
    log = made.store.logs / "etcd.log"
    assert str(caught.value) == (
        f"Kubernetes control plane - Expected: it answers Actual: etcd ended: address already in use. See {log}."
    )


def test_controllers_start_when_the_api_server_is_ready(made: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """kube-controller-manager ends when it waits longer than 10 s, as on a busy machine."""
    seen: list[list[str]] = []

    def ready(_self: Admin) -> bool:
        seen.append(sorted(path.stem for path in (made.folder / "running").iterdir()))
        return len(seen) > 1

    monkeypatch.setattr(Admin, "ready", ready)
    try:
        assert made.up() == NAMES
    finally:
        plane.stop(made.store)
    assert seen == [NAMES[:2]] * 2


def test_programs_that_were_not_built_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(SimError) as caught:
        ControlPlane(tmp_path, Store(tmp_path), "127.9.8.1", "127.9.8").up()
    assert str(caught.value) == (
        f"Kubernetes control plane - Expected: built in {tmp_path}/.rackready/tools/kubernetes Actual: not there. "
        "Run `make setup-kubernetes`."
    )


def test_keys_stay_until_the_address_changes_and_are_their_owners_alone(tmp_path: Path) -> None:
    folder, token = tmp_path / "keys", tmp_path / "token"
    certs.ensure(folder, token, "127.9.8.1", 6443)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {path.stat().st_mode & 0o777 for path in (*folder.iterdir(), token)} == {0o600}
    assert _TOKEN.fullmatch(token.read_text())
    certs.ensure(folder, token, "127.9.8.1", 6443)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files
    assert pins_of(files["ca.crt"]) == {certs.pin(folder)}
    authority = x509.load_pem_x509_certificate(files["ca.crt"]).public_key()
    login = yaml.safe_load(files["rackready.kubeconfig"])["users"][0]["user"]
    for pem in (files["server.crt"], base64.b64decode(login["client-certificate-data"])):
        issued = x509.load_pem_x509_certificate(pem)
        assert isinstance(authority, ec.EllipticCurvePublicKey)
        assert issued.signature_hash_algorithm is not None
        authority.verify(issued.signature, issued.tbs_certificate_bytes, ec.ECDSA(issued.signature_hash_algorithm))
    certs.ensure(folder, token, "127.9.8.2", 6443)
    assert (folder / "ca.crt").read_bytes() != files["ca.crt"]


def test_the_product_has_the_rights_of_the_guide_and_no_others() -> None:
    text = (ROOT / "docs/howto/kubernetes.md").read_text(encoding="utf-8")
    role = next(yaml.safe_load_all(text.split("```yaml\n# rights\n")[1].split("```")[0]))
    assert role["rules"] == objects.RIGHTS
    made = objects.objects({"server": "https://127.9.8.1:6443"}, "abcdef.0123456789abcdef")
    (ours,) = [item for path, item in made if path.endswith("clusterroles") and item["metadata"]["name"] == "rackready"]
    assert ours["rules"] == role["rules"]
    bound = [item["roleRef"]["name"] for _, item in made if "rackready" in str(item.get("subjects"))]
    assert bound == ["rackready"]


def test_the_overlay_tells_where_the_cluster_is_and_nothing_else_of_it(tmp_path: Path) -> None:
    site, store = site_without_overlay(ROOT, "sim-k8s"), Store(tmp_path)
    store.ensure_secrets(["node01"], ["leaf01"])
    plan = build_plan(site, clone="ab12cd", subnet=IPv4Network("10.64.7.0/24"), loopback="127.9.8")
    assert "slurmctl" not in plan.machines
    plant = ControlPlane(ROOT, store, plan.gateway, "127.9.8")
    certs.ensure(plant.folder, plant.token, plan.gateway, 6443)
    overlay.write(tmp_path / "overlay.yml", overlay.build(site, plan, store))
    raw = merge(read_yaml(ROOT / "inventories/sim-k8s/site.yml"), read_yaml(tmp_path / "overlay.yml"))
    found = parse_site(raw, source="test", base=ROOT).handover
    assert isinstance(found, KubernetesHandover)
    assert found.kubeconfig == plant.folder / "rackready.kubeconfig"
    assert found.join is not None
    assert found.join.kubeadm is not None
    assert found.join.kubeadm.endpoint == "10.64.7.1:6443"
    assert found.join.kubeadm.ca_hashes == [certs.pin(plant.folder)]
    assert str(found.join.kubeadm.token) == f"file {plant.token}"
    assert plant.token.read_text() not in (tmp_path / "overlay.yml").read_text()

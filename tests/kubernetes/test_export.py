"""What `rackready export kubernetes` writes, judged by the operators' own custom resources and charts.

`make setup-kubernetes` fetches those that are Go modules. RACKREADY_TEST_OPERATORS names a folder with others:
`gpu-operator` and `dra-driver` are charts, `network-operator` has the custom resources (config/crd/bases).
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from rackready.model.exported import ExportedFile
from rackready.render.exported import documents
from tests.kubernetes.cluster import PROGRAMS, Cluster, until
from tests.unit.design.kubernetes_sites import CASES, case, text

OPERATORS = PROGRAMS / "operators"
MORE = Path(os.environ.get("RACKREADY_TEST_OPERATORS", "/nonexistent"))
CHART = MORE / "gpu-operator" if (MORE / "gpu-operator").exists() else OPERATORS / "gpu-operator"
GPU_TAINT = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
HELD = {"key": "rackready.io/held", "operator": "Exists", "effect": "NoSchedule"}

pytestmark = pytest.mark.skipif(
    not (OPERATORS / "built.json").exists(), reason="no charts of operators: `make setup-kubernetes` fetches them"
)


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> client.CustomObjectsApi:
    """The API server, with the custom resources of the operators."""
    folders = [CHART / "crds", OPERATORS / "kueue", MORE / "network-operator"]
    crds = client.ApiextensionsV1Api(cluster.client("admin"))
    names = []
    for path in [path for folder in folders for path in sorted(folder.glob("*.yaml"))]:
        body = yaml.safe_load(path.read_text(encoding="utf-8"))
        crds.create_custom_resource_definition(body)
        names.append(body["metadata"]["name"])
    for name in names:
        until(lambda name=name: established(crds, name), f"custom resource {name}")
    return client.CustomObjectsApi(cluster.client("admin"))


def established(crds: client.ApiextensionsV1Api, name: str) -> bool:
    conditions = crds.read_custom_resource_definition(name).status.conditions or []
    return any(item.type == "Established" and item.status == "True" for item in conditions)


def create(api: client.CustomObjectsApi, body: dict[str, Any]) -> dict[str, Any]:
    """Create an object as `kubectl create --dry-run=server --validate=strict` does, and return it as it would be."""
    group, version = body["apiVersion"].split("/")
    kind = body["kind"].lower()
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    answer: dict[str, Any] = api.create_cluster_custom_object(
        group, version, plural, body, dry_run="All", field_validation="Strict"
    )
    return answer


def file_of(name: str, file: str) -> ExportedFile:
    found = [one for one in case(name).files if one.name == file]
    if not found:
        pytest.skip(f"case {name} has no {file}")
    return found[0]


@pytest.mark.parametrize("name", CASES)
def test_kueue_takes_topology_and_flavors(api: client.CustomObjectsApi, name: str) -> None:
    for body in documents(text(file_of(name, "kueue.yaml"))):
        assert create(api, body)["spec"] == body["spec"]


@pytest.mark.skipif(not (MORE / "network-operator").exists(), reason="RACKREADY_TEST_OPERATORS has no network-operator")
@pytest.mark.parametrize("name", CASES)
def test_the_network_operator_takes_its_policy(api: client.CustomObjectsApi, name: str) -> None:
    (body,) = documents(text(file_of(name, "nic-cluster-policy.yaml")))
    spec = create(api, body)["spec"]
    assert "ofedDriver" not in spec
    assert spec["tolerations"] == body["spec"]["tolerations"]
    assert json.loads(spec["rdmaSharedDevicePlugin"]["config"])["configList"]


def test_a_wrong_field_is_refused(api: client.CustomObjectsApi) -> None:
    topology, flavor = documents(text(file_of("roce", "kueue.yaml")))
    flavor["spec"]["toleration"] = flavor["spec"].pop("tolerations")
    with pytest.raises(ApiException) as refused:
        create(api, flavor)
    assert 'strict decoding error: unknown field "spec.toleration"' in json.loads(refused.value.body)["message"]
    topology["spec"]["levels"].reverse()
    with pytest.raises(ApiException) as refused:
        create(api, topology)
    assert "the kubernetes.io/hostname label can only be used at the lowest level of topology" in refused.value.body


def template(chart: Path, file: ExportedFile, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Let helm render a chart with values of ours."""
    (tmp_path / file.name).write_text(text(file), encoding="utf-8")
    argv = [f"{PROGRAMS}/helm", "template", "x", str(chart), "--namespace", "x", "--values", str(tmp_path / file.name)]
    argv += ["--kube-version", "1.35.0", "--api-versions", "resource.k8s.io/v1"]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def rendered(chart: Path, file: ExportedFile, tmp_path: Path) -> list[dict[str, Any]]:
    """Return the objects that a chart makes of values of ours."""
    made = template(chart, file, tmp_path)
    assert made.returncode == 0, made.stderr
    return [body for body in yaml.safe_load_all(made.stdout) if body]


def of_kind(bodies: list[dict[str, Any]], kind: str, part: str = "") -> dict[str, Any]:
    (found,) = [body for body in bodies if body["kind"] == kind and part in body["metadata"]["name"]]
    return found


@pytest.mark.parametrize("name", CASES)
def test_the_charts_cluster_policy_is_valid_and_installs_nothing_twice(
    api: client.CustomObjectsApi, tmp_path: Path, name: str
) -> None:
    values = file_of(name, "gpu-operator-values.yaml")
    bodies = rendered(CHART, values, tmp_path)
    policy = of_kind(bodies, "ClusterPolicy")
    spec = create(api, policy)["spec"]
    wanted = yaml.safe_load(text(values))
    off = [part for part in ("driver", "toolkit", "dcgm", "migManager") if spec[part]["enabled"]]
    assert off == []
    assert spec["devicePlugin"]["enabled"] == (name != "dra")
    assert spec["cdi"]["enabled"]
    assert spec["mig"]["strategy"] == ("mixed" if name == "mixed" else "single")
    assert spec["dcgmExporter"]["env"] == [{"name": "DCGM_REMOTE_HOSTENGINE_INFO", "value": "localhost:5555"}]
    assert spec["daemonsets"]["tolerations"] == wanted["daemonsets"]["tolerations"]
    worker = of_kind(bodies, "DaemonSet", "node-feature-discovery-worker")
    tolerations = worker["spec"]["template"]["spec"]["tolerations"]
    assert tolerations == wanted["node-feature-discovery"]["worker"]["tolerations"]


@pytest.mark.skipif(not (MORE / "dra-driver").exists(), reason="RACKREADY_TEST_OPERATORS has no dra-driver")
def test_the_dra_drivers_chart_takes_its_values(tmp_path: Path) -> None:
    file = file_of("dra", "dra-driver-values.yaml")
    wanted = yaml.safe_load(text(file))
    assert unknown_paths(wanted, yaml.safe_load((MORE / "dra-driver/values.yaml").read_text(encoding="utf-8"))) == []
    bodies = rendered(MORE / "dra-driver", file, tmp_path)
    pods = of_kind(bodies, "DaemonSet")["spec"]["template"]["spec"]
    assert pods["tolerations"] == wanted["kubeletPlugin"]["tolerations"]
    gpus = [one["name"] for one in pods["containers"] if one["name"] == "gpus"]
    assert gpus == ["gpus"]
    without = replace(file, documents=(tuple(one for one in file.documents[0] if "Override" not in one.path[0]),))
    assert template(MORE / "dra-driver", without, tmp_path).returncode != 0


def unknown_paths(values: dict[str, Any], chart: dict[str, Any], above: str = "") -> list[str]:
    """Return the values that a chart does not know. An empty mapping in the chart takes anything."""
    out = [f"{above}{key}" for key in values if chart and key not in chart]
    for key, value in values.items():
        if isinstance(value, dict) and isinstance(chart.get(key), dict):
            out += unknown_paths(value, chart[key], f"{above}{key}.")
    return out


@pytest.mark.parametrize("name", CASES)
def test_the_chart_knows_every_value(name: str) -> None:
    chart = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    values = yaml.safe_load(text(file_of(name, "gpu-operator-values.yaml")))
    assert unknown_paths(values, chart) == []
    values["toolkit"]["enable"] = values["toolkit"].pop("enabled")
    assert unknown_paths(values, chart) == ["toolkit.enable"]


def wanted_on(cluster: Cluster, node: str, name: str, tolerations: list[dict[str, str]]) -> int:
    """Make a DaemonSet for one node, and return how many pods its controller wants there."""
    spec = {
        "containers": [{"name": "c", "image": "c"}],
        "nodeSelector": {"kubernetes.io/hostname": node},
        "tolerations": tolerations,
    }
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": spec}
    body = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    apps = client.AppsV1Api(cluster.client("admin"))
    apps.create_namespaced_daemon_set("default", body)
    read = apps.read_namespaced_daemon_set_status
    until(lambda: read(name, "default").status.observed_generation == 1, f"DaemonSet {name}")
    return int(read(name, "default").status.desired_number_scheduled)


def test_pods_of_the_operator_run_on_a_held_node_and_others_do_not(cluster: Cluster, name: str) -> None:
    node = f"{name}-held"
    cluster.join(node)
    cluster.core.patch_node(node, {"spec": {"unschedulable": True}})
    values = yaml.safe_load(text(file_of("roce", "gpu-operator-values.yaml")))
    assert values["daemonsets"]["tolerations"] == [GPU_TAINT, HELD]
    assert wanted_on(cluster, node, f"{name}-others", [GPU_TAINT]) == 0
    assert wanted_on(cluster, node, f"{name}-operator", values["daemonsets"]["tolerations"]) == 1
    cluster.run_on(f"{name}-operator", node, 1)

"""Handover to Kubernetes in the site file: what is refused, names of nodes, and the facts that become labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rackready.design.hostvars import site_vars
from rackready.design.node_labels import label_value, node_labels
from rackready.design.site import parse_site
from rackready.design.yaml import read_judged
from rackready.model.kubernetes import KubernetesHandover
from rackready.model.problems import SiteInvalidError
from rackready.model.site import Site

SITE = Path(__file__).resolve().parents[3] / "inventories/sim/site.yml"


def parse(**settings: Any) -> Site:
    document, _ = read_judged(SITE)
    document["handover"] = {"kind": "kubernetes", "kubeconfig": "k8s/prod", "context": "prod", **settings}
    return parse_site(document, source="site.yml", base=Path("/base"))


def handover(**settings: Any) -> KubernetesHandover:
    found = parse(**settings).handover
    assert isinstance(found, KubernetesHandover)
    return found


def refusals(**settings: Any) -> list[str]:
    with pytest.raises(SiteInvalidError) as caught:
        parse(**settings)
    return [str(problem) for problem in caught.value.problems]


def test_a_cluster_by_kubeconfig_and_context_is_enough() -> None:
    found = handover()
    assert found.kubeconfig == Path("/base/k8s/prod")
    assert found.held.model_dump() == {"key": "rackready.io/held", "value": "", "effect": "NoSchedule"}
    assert (found.node_name("node01"), found.label_key("rack")) == ("node01", "rackready.io/rack")


def test_names_labels_and_taint_may_be_the_sites() -> None:
    found = handover(
        taint="example.com/wait=yes:NoSchedule",
        node_suffix=".gpu.example.com",
        node_names={"node02": "spare"},
        labels={"rack": "topology.example.com/rack", "gpu": None},
    )
    assert found.held.model_dump() == {"key": "example.com/wait", "value": "yes", "effect": "NoSchedule"}
    assert [found.node_name(name) for name in ("node01", "node02")] == ["node01.gpu.example.com", "spare"]
    assert [found.label_key(fact) for fact in ("rack", "gpu")] == ["topology.example.com/rack", None]


def test_the_way_to_the_cluster_reaches_no_node() -> None:
    assert "kubeconfig" not in site_vars(parse())["rackready_handover"]


def test_containerd_is_prepared_for_kubelet_only_where_nodes_go_to_kubernetes() -> None:
    assert site_vars(parse())["nvidia_container_toolkit_kubelet"] is True
    document, _ = read_judged(SITE)
    other = parse_site(document, source="site.yml", base=Path("/base"))
    assert "nvidia_container_toolkit_kubelet" not in site_vars(other)


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"context": ""},
        "handover.context: Expected: at least 1 character Actual: ''. Correct it.",
    ),
    (
        {"taint": "held"},
        (
            "handover.taint: no taint - Expected: one such as rackready.io/held:NoSchedule, as for kubelet "
            "--register-with-taints Actual: 'held'. Correct it."
        ),
    ),
    (
        {"taint": "a/b:NoExecute"},
        (
            "handover.taint: NoExecute ends pods without asking a PodDisruptionBudget - "
            "Expected: effect NoSchedule Actual: 'a/b:NoExecute'. Correct it."
        ),
    ),
    (
        {"taint": "a/b:PreferNoSchedule"},
        (
            "handover.taint: pods may still start with PreferNoSchedule - Expected: effect NoSchedule "
            "Actual: 'a/b:PreferNoSchedule'. Correct it."
        ),
    ),
    (
        {"labels": {"rack": "example.com/x", "unit": "example.com/x"}},
        ("handover: labels rack and unit have the key example.com/x - Expected: a key for each. Correct it."),
    ),
    (
        {"labels": {"rack": f"{'a.' * 127}io/x"}},
        "handover.labels.rack: no key of a label - Expected: one such as example.com/rack Actual: 'a.a.",
    ),
    (
        {"labels": {"rack": "not a key"}},
        (
            "handover.labels.rack: no key of a label - Expected: one such as example.com/rack "
            "Actual: 'not a key'. Correct it."
        ),
    ),
    (
        {"labels": {"color": "example.com/x"}},
        "handover.labels.color[key]: Expected: 'site', 'rack', ",
    ),
    (
        {"namespace": "Rack_1"},
        ("handover.namespace: no name of a namespace - Expected: lower-case letters, digits and - (RFC 1123)"),
    ),
    (
        {"node_suffix": "gpu.example.com"},
        (
            "handover.node_suffix: no suffix of names - Expected: a dot and a domain, e.g. .gpu.example.com "
            "Actual: 'gpu.example.com'. Correct it."
        ),
    ),
    (
        {"node_names": {"node01": "Node_1"}},
        (
            "handover.node_names.node01: no name of a node in Kubernetes - Expected: lower-case letters, "
            "digits, - and . (RFC 1123) Actual: 'Node_1'. Correct it."
        ),
    ),
    (
        {"node_names": {"node09": "spare"}},
        (
            "handover.node_names.node09: no node is called node09 - Expected: one of node01, node02, node03, node04. "
            "Correct the name."
        ),
    ),
    (
        {"node_names": {"node01": "spare", "node02": "spare"}},
        "handover.node_names.node02: node01 and node02 have the name spare in Kubernetes. Give each its own.",
    ),
    (
        {"node_names": {"node01": "node02"}},
        "handover.node_names.node01: node01 and node02 have the name node02 in Kubernetes. Give each its own.",
    ),
    (
        {"node_suffix": f".{'a' * 63}.{'b' * 63}.{'c' * 63}.{'d' * 63}"},
        (
            "handover.node_suffix: name of node01 in Kubernetes - Expected: at most 253 characters Actual: 262. "
            "Shorten it."
        ),
    ),
]


@pytest.mark.parametrize(("settings", "text"), REFUSED)
def test_refusal(settings: dict[str, Any], text: str) -> None:
    found = refusals(**settings)
    assert any(line.startswith(text) for line in found), found


def test_facts_of_a_node() -> None:
    assert node_labels(parse(), "node03") == {
        "site": "sim",
        "rack": "rack01",
        "unit": "1",
        "leafs": "leaf01_leaf02",
        "platform": "dgx_h100",
        "gpu": "h100_sxm",
        "gpus": "8",
        "rails": "8",
    }


def test_nodes_of_one_nvlink_domain_share_a_clique() -> None:
    site = parse()
    domains = [{"name": "nv1", "nodes": ["node[01-02]"]}]
    document = site.model_dump(by_alias=True) | {"nvlink_domains": domains}
    with_domains = Site.model_validate(document)
    assert [node_labels(with_domains, f"node0{n}").get("clique") for n in (1, 2, 3)] == ["nv1", "nv1", None]


@pytest.mark.parametrize("text", ["a" * 64, "leaf one", "_leaf", "x" * 80, "ü"])
def test_a_value_that_no_label_may_have_is_shortened_and_stays_its_own(text: str) -> None:
    made = label_value(text)
    assert len(made) <= 63
    assert made[0].isalnum()
    assert made[-1].isalnum()
    assert made != label_value(f"{text}2")
    assert label_value("h100_sxm") == "h100_sxm"


HASH = f"sha256:{'0123456789abcdef' * 4}"
WHOLE = {"endpoint": "k8s.example.com:6443", "token": {"env": "T"}, "ca_hashes": [HASH]}


def test_nodes_join_by_kubeadm_or_by_a_command() -> None:
    found = handover(join={"kubeadm": {**WHOLE, "token": {"file": "secrets/join"}}}).join
    assert found is not None
    assert found.kubeadm is not None
    assert found.kubeadm.token is not None
    assert found.kubeadm.token.file == Path("/base/secrets/join")
    assert found.words("node01", "t:NoSchedule") == []
    own = handover(join={"command": ["k", "--name={node}", "{taint}"]}).join
    assert own is not None
    assert own.words("node01", "t:NoSchedule") == ["k", "--name=node01", "t:NoSchedule"]


def test_how_nodes_join_reaches_no_node_by_variables() -> None:
    assert "join" not in site_vars(parse(join={"kubeadm": WHOLE}))["rackready_handover"]


@pytest.mark.parametrize(
    ("join", "text"),
    [
        ({}, "handover.join: give exactly one of kubeadm and command."),
        (
            {"kubeadm": WHOLE, "command": ["{taint}"]},
            "handover.join: give exactly one of kubeadm and command.",
        ),
        (
            {"command": ["join", "{node}", "{taints}"]},
            (
                "handover.join: a command without {taint} - Expected: {taint} in it, so "
                "that the node is held when it "
                "registers"
            ),
        ),
        (
            {"kubeadm": {"endpoint": "k8s.example.com:6443", "ca_hashes": [HASH]}},
            "handover.join.kubeadm: no token - Expected: token (file or env), or discovery_file",
        ),
        (
            {"kubeadm": {"endpoint": "k8s.example.com:6443", "token": {"env": "T"}}},
            (
                "handover.join.kubeadm: a token without ca_hashes - Expected: endpoint and "
                "ca_hashes, or discovery_file: "
                "without the CA's hash a node would join any server that answers"
            ),
        ),
        (
            {"kubeadm": {**WHOLE, "discovery_file": "info.conf"}},
            (
                "handover.join.kubeadm: endpoint and ca_hashes beside discovery_file - "
                "Expected: one way to find the "
                "cluster"
            ),
        ),
        (
            {"kubeadm": {**WHOLE, "ca_hashes": ["sha256:ABC"]}},
            (
                "handover.join.kubeadm.ca_hashes[0]: no hash of a CA - Expected: sha256: "
                "and 64 hexadecimal digits in lower "
                "case, as `kubeadm token create --print-join-command` prints it"
            ),
        ),
        (
            {"kubeadm": {**WHOLE, "endpoint": "https://k8s.example.com"}},
            (
                "handover.join.kubeadm.endpoint: no address of an API server - Expected: host:port, e.g. "
                "k8s.example.com:6443"
            ),
        ),
        (
            {"kubeadm": {**WHOLE, "endpoint": "k8s.example.com:70000"}},
            (
                "handover.join.kubeadm.endpoint: no address of an API server - Expected: host:port, e.g. "
                "k8s.example.com:6443"
            ),
        ),
    ],
)
def test_a_way_to_join_that_cannot_hold_a_node_is_refused(join: dict[str, Any], text: str) -> None:
    found = refusals(join=join)
    assert len(found) == 1
    assert found[0].startswith(text), found

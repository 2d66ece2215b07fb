"""Objects that a cluster has before nodes can join: what `kubeadm init` makes for them, and the product's rights. Pure.

Source: Kubernetes 1.35.0, cmd/kubeadm/app/phases/bootstraptoken (clusterinfo/clusterinfo.go, node/tlsbootstrap.go) and
constants.go.
"""

from __future__ import annotations

from typing import Any

from rackready.design.yaml import dump_yaml
from rackready_sim.kube.certs import PRODUCT

Object = dict[str, Any]
_RBAC, _GROUP = "rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
_JOINING = "system:bootstrappers:kubeadm:default-node-token"
RIGHTS: list[Object] = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    {"apiGroups": ["kubeflow.org"], "resources": ["mpijobs"], "verbs": ["get", "create", "delete"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
]
"""The product's rights: those of docs/howto/kubernetes.md, and no others."""


def objects(cluster: dict[str, str], token: str) -> list[tuple[str, Object]]:
    """Return path of the collection -> object, in the order in which they are made."""
    number, secret = token.split(".")
    clusters = "/apis/rbac.authorization.k8s.io/v1"
    info = {"apiVersion": "v1", "clusters": [{"cluster": cluster, "name": ""}], "kind": "Config"}
    return [
        (
            "/api/v1/namespaces/kube-system/secrets",
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": f"bootstrap-token-{number}"},
                "type": "bootstrap.kubernetes.io/token",
                "stringData": {
                    "token-id": number,
                    "token-secret": secret,
                    "usage-bootstrap-authentication": "true",
                    "usage-bootstrap-signing": "true",
                    "auth-extra-groups": _JOINING,
                },
            },
        ),
        (
            "/api/v1/namespaces/kube-public/configmaps",
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "cluster-info"},
                "data": {"kubeconfig": dump_yaml(info)},
            },
        ),
        (
            f"{clusters}/namespaces/kube-public/roles",
            _role(
                "Role",
                "kubeadm:bootstrap-signer-clusterinfo",
                [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["cluster-info"], "verbs": ["get"]}],
            ),
        ),
        (
            f"{clusters}/namespaces/kube-public/rolebindings",
            _binding("RoleBinding", "kubeadm:bootstrap-signer-clusterinfo", "Role", "User", "system:anonymous"),
        ),
        (
            f"{clusters}/clusterroles",
            _role("ClusterRole", "kubeadm:get-nodes", [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]),
        ),
        (f"{clusters}/clusterrolebindings", _for_nodes("kubeadm:get-nodes", "kubeadm:get-nodes")),
        (f"{clusters}/clusterrolebindings", _for_nodes("kubeadm:kubelet-bootstrap", "system:node-bootstrapper")),
        (
            f"{clusters}/clusterrolebindings",
            _for_nodes(
                "kubeadm:node-autoapprove-bootstrap",
                "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
            ),
        ),
        (f"{clusters}/clusterroles", _role("ClusterRole", PRODUCT, RIGHTS)),
        (f"{clusters}/clusterrolebindings", _binding("ClusterRoleBinding", PRODUCT, "ClusterRole", "User", PRODUCT)),
    ]


def _role(kind: str, name: str, rules: list[Object]) -> Object:
    return {"apiVersion": _RBAC, "kind": kind, "metadata": {"name": name}, "rules": rules}


def _for_nodes(name: str, role: str) -> Object:
    return _binding("ClusterRoleBinding", name, "ClusterRole", "Group", _JOINING, role)


def _binding(kind: str, name: str, of: str, subject: str, who: str, role: str = "") -> Object:
    return {
        "apiVersion": _RBAC,
        "kind": kind,
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _GROUP, "kind": of, "name": role or name},
        "subjects": [{"apiGroup": _GROUP, "kind": subject, "name": who}],
    }

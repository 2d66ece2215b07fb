"""kubeadm's JoinConfiguration for one node. Pure.

Format: kubeadm.k8s.io/v1beta4, read from Kubernetes 1.35.0, cmd/kubeadm/app/apis/kubeadm/v1beta4/types.go
(JoinConfiguration, NodeRegistrationOptions, Discovery, Timeouts). kubeadm hands ``nodeRegistration.taints`` to kubelet
as --register-with-taints (cmd/kubeadm/app/phases/kubelet/flags.go).
"""

from __future__ import annotations

from typing import Any

import yaml

from rackready.model.kube_join import KubeadmJoin
from rackready.model.kubernetes import Taint

_SHARES = {"discovery": 0.2, "tlsBootstrap": 0.4, "kubeletHealthCheck": 0.2}
"""Shares of a join's limit after which kubeadm gives up and tells why, e.g. that the token is not known. Judgement:
its own limits, 5, 5 and 4 minutes (v1beta4/defaults.go), leave nothing to tell before ours has ended it."""


def join_configuration(
    join: KubeadmJoin, name: str, taint: Taint, token: str, discovery_file: str, timeout_s: int
) -> str:
    """Return the file for `kubeadm join --config`.

    ``name``: of the node in Kubernetes; ``token``: "" for none; ``discovery_file``: its path on the node;
    ``timeout_s``: limit of the whole join, s.
    """
    registration: dict[str, Any] = {"name": name}
    if join.cri_socket is not None:
        registration["criSocket"] = join.cri_socket
    registration["taints"] = [{key: value for key, value in taint.model_dump().items() if value}]
    document = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "discovery": _discovery(join, token, discovery_file),
        "nodeRegistration": registration,
        "timeouts": {name: f"{int(share * timeout_s)}s" for name, share in _SHARES.items()},
    }
    return yaml.safe_dump(document, sort_keys=False, width=1000)


def _discovery(join: KubeadmJoin, token: str, discovery_file: str) -> dict[str, Any]:
    if join.discovery_file is not None:
        found: dict[str, Any] = {"file": {"kubeConfigPath": discovery_file}}
        return found | ({"tlsBootstrapToken": token} if token else {})
    by_token = {"apiServerEndpoint": join.endpoint, "caCertHashes": list(join.ca_hashes), "token": token}
    return {"bootstrapToken": by_token}

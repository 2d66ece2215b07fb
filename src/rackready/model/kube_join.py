"""How a node joins a Kubernetes cluster: by kubeadm with a configuration of ours, or by the site's own command."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from rackready.model.base import Model, PathLine, SecretRef, Word

NODE, TAINT = "{node}", "{taint}"
"""What rackready replaces in the site's own command: the node's name in Kubernetes, and the taint."""

_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_ENDPOINT = re.compile(r"(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")
_PORTS = range(1, 65536)


def _ca_hash(text: str) -> str:
    """Return a pin of the cluster's CA. Raises ValueError for one that kubeadm would refuse."""
    if _HASH.fullmatch(text) is None:
        message = (
            "no hash of a CA - Expected: sha256: and 64 hexadecimal digits in lower case, as "
            "`kubeadm token create --print-join-command` prints it"
        )
        raise ValueError(message)
    return text


def _endpoint(text: str) -> str:
    """Return an address of the API server. Raises ValueError for one without a host or a port."""
    found = _ENDPOINT.fullmatch(text)
    if found is None or int(found["port"]) not in _PORTS:
        message = "no address of an API server - Expected: host:port, e.g. k8s.example.com:6443"
        raise ValueError(message)
    return text


CaHash = Annotated[str, AfterValidator(_ca_hash)]
"""Pin of a cluster's CA: SHA-256 of its public key (SPKI), as kubeadm's caCertHashes."""


class KubeadmJoin(Model):
    """Join by `kubeadm join`. The cluster is found by a bootstrap token and its CA's hash, or by a file."""

    endpoint: Annotated[str, AfterValidator(_endpoint)] | None = Field(
        None, description="API server for nodes, host:port; with a bootstrap token"
    )
    token: SecretRef | None = Field(
        None, description="bootstrap token, as `kubeadm token create` prints it; read at each join"
    )
    ca_hashes: list[CaHash] = Field(
        default_factory=list, description="hashes of the cluster's CA, with a bootstrap token: sha256:<hex digits>"
    )
    discovery_file: PathLine | None = Field(
        None,
        description="kubeconfig on the controller with the cluster's address and CA, instead of endpoint and ca_hashes",
    )
    cri_socket: Word | None = Field(
        None,
        description="socket of the container runtime, where a node has several, e.g. "
        "unix:///run/containerd/containerd.sock",
    )

    @model_validator(mode="after")
    def _one_discovery(self) -> KubeadmJoin:
        by_token = [name for name in ("endpoint", "ca_hashes") if getattr(self, name)]
        if self.discovery_file is not None and by_token:
            message = f"{' and '.join(by_token)} beside discovery_file - Expected: one way to find the cluster"
            raise ValueError(message)
        if self.discovery_file is None and self.token is None:
            message = "no token - Expected: token (file or env), or discovery_file"
            raise ValueError(message)
        missing = [name for name in ("endpoint", "ca_hashes") if not getattr(self, name)]
        if self.discovery_file is None and missing:
            message = (
                f"a token without {' and '.join(missing)} - Expected: endpoint and ca_hashes, or discovery_file: "
                "without the CA's hash a node would join any server that answers"
            )
            raise ValueError(message)
        return self


class KubernetesJoin(Model):
    """How certified nodes that the cluster does not know join it, with the taint from their registration."""

    kubeadm: KubeadmJoin | None = Field(None, description="join by `kubeadm join`")
    command: list[str] | None = Field(
        None,
        min_length=1,
        description=f"the site's own command, run on the node as root, a word per entry; {NODE} becomes the node's "
        f"name in Kubernetes, {TAINT} the taint. No secret belongs here: everybody on the node sees the words",
    )
    timeout_s: int = Field(
        600,
        ge=10,
        le=3600,
        description="longest time of a join, again until the node is registered, and again until all are ready, s",
    )

    @model_validator(mode="after")
    def _one_way(self) -> KubernetesJoin:
        if (self.kubeadm is None) == (self.command is None):
            message = "give exactly one of kubeadm and command"
            raise ValueError(message)
        if self.command is not None and not any(TAINT in word for word in self.command):
            message = f"a command without {TAINT} - Expected: {TAINT} in it, so that the node is held when it registers"
            raise ValueError(message)
        return self

    def words(self, node: str, taint: str) -> list[str]:
        """Return the site's own command for a node, empty for kubeadm."""
        return [word.replace(NODE, node).replace(TAINT, taint) for word in self.command or []]

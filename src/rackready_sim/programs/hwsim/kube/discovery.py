"""How kubeadm finds a cluster and trusts it: by a bootstrap token and the CA's hash, or by a file.

Steps and messages: Kubernetes 1.35.0, cmd/kubeadm/app/discovery/token/token.go, and cluster-bootstrap/token/jws.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import importlib
import json
import subprocess
import sys
import time
from typing import Any

from .api import Api, Object

_INFO = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
_RETRY_S, _LIMIT_S = 1.0, 60.0
"""kubeadm's timeouts.discovery is 5 min; a simulated cluster answers at once."""


class JoinError(Exception):
    """kubeadm refuses; the text is its own."""


def yaml_of(text: str) -> Any:  # noqa: ANN401 - YAML
    """Return a YAML document. PyYAML comes with Debian's netplan.io; programs here run without the site's packages."""
    sys.path.append("/usr/lib/python3/dist-packages")
    return importlib.import_module("yaml").safe_load(text)


def discovered(discovery: Object) -> tuple[str, bytes, str]:
    """Return the cluster's address, its CA (PEM) and the token for the first login. Raises JoinError."""
    if "file" in discovery:
        with open(discovery["file"]["kubeConfigPath"]) as file:  # noqa: PTH123 - as kubeadm names it
            server, authority = only_cluster(file.read())
        return server, authority, discovery.get("tlsBootstrapToken", "")
    wanted = discovery["bootstrapToken"]
    endpoint, token = wanted["apiServerEndpoint"], wanted["token"]
    text = cluster_info(Api(endpoint), token)
    _, authority = only_cluster(text)
    found = pin(authority)
    if found not in wanted["caCertHashes"]:
        raise JoinError(
            f'cluster CA found in cluster-info ConfigMap is invalid: none of the public keys "{found}" are pinned'
        )
    if cluster_info(Api(endpoint, authority.decode()), token) != text:
        raise JoinError(
            "the second kubeconfig from the cluster-info ConfigMap (using validated TLS) was different from the first"
        )
    return only_cluster(text)[0], authority, token


def cluster_info(api: Api, token: str) -> str:
    """Return the kubeconfig of the ConfigMap, signed with the token. Raises JoinError."""
    number, _, secret = token.partition(".")
    deadline = time.monotonic() + _LIMIT_S
    while True:
        try:
            status, found = api.send("GET", _INFO)
            trouble = "" if status == 200 else f"failed to request the cluster-info ConfigMap: {found.get('message')}"  # noqa: PLR2004
        except OSError as error:
            found, trouble = {}, f"failed to request the cluster-info ConfigMap: {error}"
        data = found.get("data") or {}
        signature = data.get(f"jws-kubeconfig-{number}", "")
        if signature:
            break
        trouble = trouble or (f'could not find a JWS signature in the cluster-info ConfigMap for token ID "{number}"')
        if time.monotonic() > deadline:
            raise JoinError(trouble)
        time.sleep(_RETRY_S)
    text = str(data.get("kubeconfig", ""))
    if not signed(signature, text, secret):
        raise JoinError("failed to verify JWS signature of received cluster info object, can't trust this API Server")
    return text


def signed(signature: str, content: str, secret: str) -> bool:
    """Return whether a detached JWS (HS256) over the content was made with the token's secret."""
    header, _, rest = signature.partition(".")
    made = rest.lstrip(".")
    payload = _base64url(content.encode())
    wanted = hmac.new(secret.encode(), f"{header}.{payload}".encode(), hashlib.sha256).digest()
    try:
        algorithm = json.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)))["alg"]
    except (binascii.Error, ValueError, KeyError):
        return False
    return bool(algorithm == "HS256") and hmac.compare_digest(_base64url(wanted), made)


def only_cluster(text: str) -> tuple[str, bytes]:
    """Return host:port and CA of a kubeconfig's only cluster."""
    cluster = yaml_of(text)["clusters"][0]["cluster"]
    return cluster["server"].removeprefix("https://"), base64.b64decode(cluster["certificate-authority-data"])


def pin(authority: bytes) -> str:
    """Return the hash of a CA's public key."""
    argv = ["openssl", "x509", "-pubkey", "-noout"]
    key = subprocess.run(argv, input=authority, capture_output=True, check=True).stdout.decode()
    der = base64.b64decode("".join(key.splitlines()[1:-1]))
    return f"sha256:{hashlib.sha256(der).hexdigest()}"


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")

"""The administrator's requests to the API server: is it ready, and make what is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client, config

from rackready_sim.errors import describe
from rackready_sim.kube.certs import CONTEXT

_NOT_FOUND, _CONFLICT = 404, 409


class Admin:
    """A login with all rights."""

    def __init__(self, kubeconfig: Path) -> None:
        settings = client.Configuration()
        config.load_kube_config(  # type: ignore[no-untyped-call]
            str(kubeconfig), CONTEXT, client_configuration=settings, persist_config=False
        )
        settings.retries = 0
        self._client = client.ApiClient(settings)

    def ready(self) -> bool:
        """Return whether the API server is ready."""
        return self._send("GET", "/readyz")[0] == 200  # noqa: PLR2004 - RFC 9110

    def ensure(self, collection: str, wanted: dict[str, Any]) -> None:
        """Make an object, or replace one that is there. Raises SimError."""
        name = wanted["metadata"]["name"]
        status, said = self._send("POST", collection, wanted)
        if status == _CONFLICT and wanted["kind"] == "ConfigMap":
            return  # the signing controller has written into it
        if status == _CONFLICT:
            status, said = self._send("PUT", f"{collection}/{name}", wanted)
        if not 200 <= status < 300:  # noqa: PLR2004 - as above
            raise describe(f"Kubernetes: {wanted['kind']} {name}", "made", f"{status}: {said}", "Run again.")

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, str]:
        """Return the status, 0 without an answer, and what was said."""
        host = self._client.configuration.host
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        pool = self._client.rest_client.pool_manager
        try:
            answer = pool.request(method, f"{host}{path}", body=data, headers=headers, timeout=10.0, retries=False)
        except urllib3.exceptions.HTTPError as error:
            return 0, str(error)
        text = answer.data.decode(errors="replace")
        try:
            return answer.status, str(json.loads(text).get("message", ""))
        except (ValueError, AttributeError):
            return answer.status, text[:200]

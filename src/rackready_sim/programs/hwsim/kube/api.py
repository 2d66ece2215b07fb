"""Requests to an API server: by a token, by a certificate, or by nobody."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any

_TIMEOUT_S = 10.0
Object = dict[str, Any]


class Api:
    """One API server. Without ``authority`` (PEM) it is not verified; ``certificate`` is a file with its key."""

    def __init__(self, endpoint: str, authority: str = "", token: str = "", certificate: str = "") -> None:
        self.endpoint, self._token = endpoint, token
        self._context = ssl.create_default_context(cadata=authority or None)
        if not authority:
            self._context.check_hostname = False
            self._context.verify_mode = ssl.CERT_NONE
        if certificate:
            self._context.load_cert_chain(certificate)

    def send(self, method: str, path: str, body: Object | None = None) -> tuple[int, Object]:
        """Return status and object of one request. Raises OSError."""
        host, _, port = self.endpoint.rpartition(":")
        line = http.client.HTTPSConnection(host, int(port), timeout=_TIMEOUT_S, context=self._context)
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            line.request(method, path, None if body is None else json.dumps(body), headers)
            answer = line.getresponse()
            found = json.loads(answer.read() or b"{}")
        except (http.client.HTTPException, ValueError) as error:
            raise OSError(str(error)) from error
        finally:
            line.close()
        return answer.status, found

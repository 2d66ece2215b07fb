"""HTTPS to a server whose own certificate is pinned."""

from __future__ import annotations

import ssl
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.util.ssl_ import create_urllib3_context


class Pinned(HTTPAdapter):
    """Sends nothing to a server whose certificate is another: urllib3 compares its SHA-256, and else ends the TLS.

    The machine's certificate store is not read. It decides nothing here, and takes longer than the request itself.
    """

    def __init__(self, sha256: str) -> None:
        self._sha256 = sha256
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Give the pin to every connection. urllib3 adds what `verify` of the session asks for: nothing, or a CA."""
        context = create_urllib3_context(cert_reqs=ssl.CERT_NONE)
        super().init_poolmanager(*args, **kwargs, ssl_context=context, assert_fingerprint=self._sha256)

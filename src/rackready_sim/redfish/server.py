"""The listeners: one HTTPS address for each BMC, all in one process."""

from __future__ import annotations

import ssl
import threading
from pathlib import Path
from typing import Any

from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from rackready_sim.redfish.sessions import Wsgi

_SILENT_S = 60.0
_POLL_S = 0.1
"""Seconds until `shutdown` is seen: the default of half a second is most of the time of a short test."""


class _Handler(WSGIRequestHandler):
    """A handler that logs no request. Werkzeug closes each connection after its answer."""

    protocol_version = "HTTP/1.1"
    timeout = _SILENT_S

    def connection_dropped(self, error: BaseException, environ: dict[str, Any] | None = None) -> None:
        """Close a connection whose request found no answer."""
        super().connection_dropped(error, environ)
        self.close_connection = True

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing: a deploy sends thousands of requests."""


class BmcServer(ThreadedWSGIServer):
    """One BMC's web server.

    The TLS handshake runs in the connection's own thread, so a silent client delays no other.
    """

    daemon_threads = True

    def __init__(self, address: str, port: int, app: Wsgi, certificate: Path) -> None:
        super().__init__(address, port, app, handler=_Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self.ssl_context = context
        self._certificate, self._loaded = certificate, certificate.stat().st_mtime_ns

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as socketserver has it
        """Shake hands, then serve."""
        request.settimeout(_SILENT_S)
        assert self.ssl_context is not None  # noqa: S101 - set above
        self._reload()
        try:
            secured = self.ssl_context.wrap_socket(request, server_side=True)
        except (OSError, ssl.SSLError):  # a port scan, or a client that does not trust us
            return
        super().finish_request(secured, client_address)
        self.shutdown_request(secured)

    def _reload(self) -> None:
        """Take a certificate that was replaced since: connections from now on get it."""
        written = self._certificate.stat().st_mtime_ns
        if written != self._loaded and self.ssl_context is not None:
            self.ssl_context.load_cert_chain(self._certificate)
            self._loaded = written

    def serve_in_background(self) -> None:
        """Answer until the process ends."""
        threading.Thread(target=self.serve_forever, args=(_POLL_S,), daemon=True).start()

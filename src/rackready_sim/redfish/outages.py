"""Faults of a BMC's own computer: it answers 503 for a while, or restarts and answers nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable

from rackready_sim.redfish.sessions import Environ, Sessions, StartResponse, Wsgi
from rackready_sim.store import Store

_BUSY = "The service is temporarily unavailable. Retry in 1 seconds."
"""Message ServiceTemporarilyUnavailable of the Base registry (DSP8011)."""


class Outages:
    """What the hardware states say of the BMCs' own computers."""

    def __init__(self, store: Store, sessions: Sessions) -> None:
        self._store = store
        self._sessions = sessions

    def around(self, app: Wsgi, node: str) -> Wsgi:
        """Return the application of one BMC as it is reachable through its faults."""

        def answered(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
            bmc = self._store.seen(node).get("bmc") or {}
            if _now_in(bmc.get("restarting")):
                self._sessions.forget(node)
                message = f"{node}: its BMC restarts"
                raise ConnectionAbortedError(message)  # werkzeug closes the connection without an answer
            if _now_in(bmc.get("busy")):
                return _refuse(start_response)
            return app(environ, start_response)

        return answered


def _now_in(span: list[float] | None) -> bool:
    """Return whether it is now between two times, s since 1970."""
    return span is not None and span[0] <= time.time() < span[1]


def _refuse(start_response: StartResponse) -> list[bytes]:
    body = json.dumps({"error": {"code": "Base.1.0.ServiceTemporarilyUnavailable", "message": _BUSY}}).encode()
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body))), ("Retry-After", "1")]
    start_response("503 Service Unavailable", headers)
    return [body]

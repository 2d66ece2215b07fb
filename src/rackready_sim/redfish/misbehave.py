"""Faults of a BMC itself, from ``bmc_faults`` in the hardware state: busy, restarting, deaf to a boot override, slow.

- ``busy``: so many requests in a row are answered 503 (any but the service root).
- ``restarts``: after the next change it takes, the BMC answers nothing for so many seconds.
- ``ignores_boot_override``: a change of the boot override is accepted and lost.
- ``power_lag``: PowerState shows a change so many seconds late.
- ``settles_s``: so many seconds after an off, an On is refused (409 ActionParameterValueConflict), as an iDRAC10 does
  (OpenStack Ironic, ironic/drivers/modules/redfish/power.py, _set_power_state).
- ``gpus_late``: GPUs are listed only from so many seconds after the node is seen on.
- ``answer_lost``: a restart that a request causes takes its answer along.
- ``task_fails``: a firmware update ends in TaskState Exception; ``keeps_version``: it ends well and changes nothing.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable
from typing import Any

from rackready_sim.redfish.context import NODE
from rackready_sim.store import Store

_CHANGES = frozenset({"POST", "PATCH", "PUT"})
_OFFS = frozenset({"ForceOff", "GracefulShutdown"})
_SESSIONS = "/redfish/v1/SessionService/Sessions"


class Misbehaviour:
    """Faults of every BMC, and what each of them has done so far."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._busy: dict[str, int] = {}
        self._dark_until: dict[str, float] = {}
        self._silent_until: dict[str, float] = {}
        self._power: dict[str, tuple[str, float]] = {}
        self._on_since: dict[str, float] = {}
        self._off_at: dict[str, float] = {}

    def faults(self) -> dict[str, Any]:
        """Return the faults of the BMC that is asked."""
        found: dict[str, Any] = self._store.seen(NODE.get()).get("bmc_faults", {})
        return found

    def before(self, environ: dict[str, Any]) -> tuple[str, Iterable[bytes]] | None:
        """Return the status and body of a request that is not handled, or None. Raises ConnectionError: no answer."""
        node, path = NODE.get(), str(environ.get("PATH_INFO", "")).rstrip("/")
        if time.monotonic() < max(self._dark_until.get(node, 0.0), self._silent_until.get(node, 0.0)):
            raise ConnectionError
        wanted = int(self.faults().get("busy", 0))
        if wanted and path != "/redfish/v1" and self._busy.get(node, 0) < wanted:
            self._busy[node] = self._busy.get(node, 0) + 1
            return "503 Service Unavailable", [_error("Base.1.8.1.ServiceTemporarilyUnavailable")]
        return None

    def after(self, environ: dict[str, Any]) -> None:
        """Count a handled request; the BMC may restart because of it. Raises ConnectionError: its answer is lost."""
        if self.faults().get("answer_lost") and time.monotonic() < self._silent_until.get(NODE.get(), 0.0):
            raise ConnectionError
        seconds = float(self.faults().get("restarts", 0))
        path = str(environ.get("PATH_INFO", "")).rstrip("/")
        changed = environ.get("REQUEST_METHOD") in _CHANGES and path != _SESSIONS
        if seconds and changed and NODE.get() not in self._dark_until:
            self._dark_until[NODE.get()] = time.monotonic() + seconds

    def silence(self, seconds: float) -> None:
        """Let the BMC that is asked answer nothing for a time: its web server or it itself restarts."""
        self._silent_until[NODE.get()] = time.monotonic() + seconds

    def power(self, state: str) -> str:
        """Return the power state that the BMC shows."""
        lag, now = float(self.faults().get("power_lag", 0)), time.monotonic()
        shown, changed = self._power.setdefault(NODE.get(), (state, 0.0))
        if state == shown:
            self._power[NODE.get()] = (shown, 0.0)
            return shown
        if lag and not changed:
            self._power[NODE.get()] = (shown, now)
            return shown
        if lag and now - changed < lag:
            return shown
        self._power[NODE.get()] = (state, 0.0)
        return state

    def settling(self, kind: str) -> bool:
        """Note a reset type that is requested, and return whether it is refused, because an off was just before."""
        now, node = time.monotonic(), NODE.get()
        if kind in _OFFS:
            self._off_at[node] = now
        since = now - self._off_at.get(node, -math.inf)
        return kind == "On" and since < float(self.faults().get("settles_s", 0))

    def gpus_hidden(self, power: str) -> bool:
        """Return whether the BMC lists no GPU yet. ``power``: the node's power state."""
        late, node = float(self.faults().get("gpus_late", 0)), NODE.get()
        if power != "On":
            self._on_since.pop(node, None)
            return bool(late)
        since = self._on_since.setdefault(node, time.monotonic())
        return time.monotonic() - since < late

    def forget(self) -> None:
        """Start every fault anew: for tests."""
        self._busy.clear()
        self._dark_until.clear()
        self._silent_until.clear()
        self._power.clear()
        self._on_since.clear()
        self._off_at.clear()


def _error(code: str) -> bytes:
    return json.dumps({"error": {"code": code, "message": "The service is temporarily unavailable."}}).encode()

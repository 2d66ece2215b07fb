"""Power of bare-metal nodes: reset types by QEMU's control protocol, restarts by the guest, boot overrides."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from rackready_sim import faults
from rackready_sim.boot import BootSettings
from rackready_sim.errors import SimError
from rackready_sim.metal.machine import Metal, reap
from rackready_sim.metal.qmp import MONITOR, Qmp
from rackready_sim.redfish.power import Power, guarded, note
from rackready_sim.store import Store

log = logging.getLogger("rackready_sim.metal")
_RESTARTS = {
    "guest-reset": ("reboot", "host"),
    "host-qmp-system-reset": ("reset", "bmc"),
    "guest-panic": ("reboot", "host"),
}
"""Reason of QEMU's SHUTDOWN event (qapi/run-state.json, ShutdownCause) to the power log's words.

Others leave the machine off.
"""
_GRACE_S = 120.0
"""Longest wait of a graceful restart for the system, s: our choice."""
_PERIOD_S = 0.2
_ON, _OFF = ("On", "ForceOn"), ("ForceOff", "GracefulShutdown")


class MetalPower:
    """Bare-metal nodes of one rack. One thread for each node acts, one for each running machine listens to it."""

    def __init__(self, machines: dict[str, Metal], store: Store) -> None:
        self._machines = machines
        self._store = store
        self._queues = {name: ThreadPoolExecutor(1, thread_name_prefix=f"metal-{name}") for name in machines}
        self._pending: dict[str, list[str]] = {name: [] for name in machines}
        self._reported: dict[str, tuple[bool, float]] = {}
        self._lock = threading.Lock()

    def adopt(self) -> None:
        """Listen to machines that run since before this process started."""
        for name, machine in self._machines.items():
            if machine.running:
                self._queues[name].submit(guarded, name, partial(self._listen_again, name))

    def state(self, node: str) -> str:
        """Return the power state: a transition by the BMC as such, of a lagging BMC the one before."""
        running = self._lagging(node, running=self._machines[node].running)
        with self._lock:
            pending = self._pending[node][0] if self._pending[node] else ""
        if pending and pending not in _OFF:
            return "On" if running and pending in _ON else "PoweringOn"
        if pending and running:
            return "PoweringOff"
        return "On" if running else "Off"

    def _lagging(self, node: str, *, running: bool) -> bool:
        """Return what the BMC has seen: the state, or for ``power_lag_s`` after a change the state before it."""
        lag = float(self._store.state(node)["metal"]["power_lag_s"])
        now = time.monotonic()
        with self._lock:
            seen, since = self._reported.get(node, (running, 0.0))
            if seen == running or not lag:
                self._reported[node] = (running, 0.0)
                return running
            if not since:
                self._reported[node] = (seen, now)
                return seen
            if now - since < lag:
                return seen
            self._reported[node] = (running, 0.0)
            return running

    def request(self, node: str, action: str) -> None:
        """Queue an action and return at once."""
        with self._lock:
            self._pending[node].append(action)
            self._reported.setdefault(node, (self._machines[node].running, 0.0))
        self._queues[node].submit(self._run, node, action)

    def _run(self, node: str, action: str) -> None:
        try:
            guarded(node, lambda: self._act(node, action))
        finally:
            with self._lock:
                self._pending[node].remove(action)

    def _act(self, node: str, action: str) -> None:
        machine = self._machines[node]
        if action in _ON:
            if not machine.running:
                self._start(node)
                note(self._store, node, "on", "bmc")
        elif action == "ForceOff":
            if machine.cut():
                note(self._store, node, "off", "bmc")
        elif action == "GracefulShutdown":
            if machine.running:
                machine.press_power()
        elif action == "ForceRestart" and machine.pid:
            machine.press_reset()
        else:
            self._restart(node, graceful=action == "GracefulRestart")

    def _restart(self, node: str, *, graceful: bool) -> None:
        machine = self._machines[node]
        if graceful and machine.running:
            machine.press_power()
            deadline = time.monotonic() + _GRACE_S
            while machine.pid and time.monotonic() < deadline:
                time.sleep(_PERIOD_S)
        machine.cut()
        self._start(node)
        note(self._store, node, "graceful-restart" if graceful else "reset", "bmc")

    def _start(self, node: str) -> None:
        """Start the firmware with the override of this moment, which is used up if it was for one boot."""
        self._count(node)
        settings = BootSettings(self._store, node)
        override = settings.read()
        honoured = self._store.state(node)["metal"]["override"] == "honoured"
        target = override["target"] if honoured and override["enabled"] != "Disabled" else "None"
        events = self._machines[node].start(target)
        settings.booted()
        self._listen(node, events)

    def _count(self, node: str) -> None:
        with self._store.hardware_locked():
            state = self._store.state(node)
            state["boot_count"] = int(state.get("boot_count", 0)) + 1
            on_boot = getattr(faults, "on_boot", None)
            if on_boot is not None:
                on_boot(state)
            self._store.write_state(node, state)

    def _listen_again(self, node: str) -> None:
        try:
            events = Qmp(self._machines[node].folder / MONITOR)
        except SimError:
            log.warning("%s: its machine ended while nobody listened: it stays off", node)
            return
        self._listen(node, events)

    def _listen(self, node: str, events: Qmp) -> None:
        pid = self._machines[node].pid
        threading.Thread(target=self._wait_end, args=(node, pid, events), daemon=True).start()

    def _wait_end(self, node: str, pid: int, events: Qmp) -> None:
        """Wait until the machine ends, and start it again if its system or its reset button asked for that."""
        reason = ""
        for event in events.events():
            if event["event"] == "SHUTDOWN":
                reason = event["data"]["reason"]
        events.close()
        while self._machines[node].pid == pid:
            reap(pid)
            time.sleep(_PERIOD_S / 4)
        self._queues[node].submit(guarded, node, partial(self._ended, node, reason))

    def _ended(self, node: str, reason: str) -> None:
        if self._machines[node].running:
            return
        if reason in _RESTARTS:
            self._start(node)
            note(self._store, node, *_RESTARTS[reason])
        elif reason.startswith("guest"):
            note(self._store, node, "graceful-off", "host")


class Powers:
    """All nodes of one rack, each by what it is."""

    def __init__(self, of_node: dict[str, Power]) -> None:
        self._of_node = of_node

    def state(self, node: str) -> str:
        """Return Redfish's PowerState."""
        return self._of_node[node].state(node)

    def request(self, node: str, action: str) -> None:
        """Start a Redfish reset type and return at once."""
        self._of_node[node].request(node, action)

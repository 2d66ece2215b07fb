"""Power of the nodes: actions of BMCs, in the background and one after the other for each node."""

from __future__ import annotations

import json
import logging
import os
import select
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

from rackready_sim import faults, podman
from rackready_sim.boot import BootSettings
from rackready_sim.errors import SimError
from rackready_sim.machines import REBOOTED, Machines
from rackready_sim.redfish import staged
from rackready_sim.store import Store

log = logging.getLogger("rackready_sim.power")
_EXIT_SEEN_S = 90.0
"""Podman sees the end of a container within a second, and later where many racks share the machine."""
_TRIES = 5
_TRY_AGAIN_S = 3.0


class Power(Protocol):
    """Interface that the systems driver needs."""

    def state(self, node: str) -> str:
        """Return Redfish's PowerState: On, Off, PoweringOn or PoweringOff."""

    def request(self, node: str, action: str) -> None:
        """Start a Redfish reset type (On, ForceOff, GracefulShutdown, ...) and return at once."""


class NodePower:
    """Nodes as containers. Every finished action is written to the power log.

    ``switches`` have no BMC here, but they too restart when their system asks for a reboot.
    """

    def __init__(
        self, machines: Callable[[], Machines], store: Store, nodes: list[str], switches: list[str] | None = None
    ) -> None:
        self._machines = machines
        self._store = store
        self._switches = frozenset(switches or [])
        self._queues = {
            name: ThreadPoolExecutor(1, thread_name_prefix=f"power-{name}") for name in [*nodes, *self._switches]
        }
        self._pending: dict[str, list[str]] = {node: [] for node in nodes}
        self._watched: dict[str, int] = {}
        self._lock = threading.Lock()

    def adopt(self) -> None:
        """Watch running nodes, and restart those that asked for a reboot before this process started."""
        for node, queue in self._queues.items():
            queue.submit(guarded, node, partial(self._watch_or_reboot, node))

    def state(self, node: str) -> str:
        """Return the power state of the container; a transition in progress is reported as such.

        Podman is asked only about a node whose first process nobody watches: clients read this hundreds of times.
        """
        with self._lock:
            pending = self._pending[node][0] if self._pending[node] else ""
            watched = node in self._watched
        if watched and not pending:
            return "On"
        if pending in ("On", "ForceOn", "ForceRestart", "GracefulRestart", "PowerCycle"):
            return "PoweringOn" if pending not in ("On", "ForceOn") or not self._machines().running(node) else "On"
        running = self._machines().running(node)
        if pending and running:
            return "PoweringOff"
        return "On" if running else "Off"

    def request(self, node: str, action: str) -> None:
        """Queue an action."""
        with self._lock:
            self._pending[node].append(action)
        self._queues[node].submit(self._run, node, action)

    def _run(self, node: str, action: str) -> None:
        try:
            guarded(node, lambda: self._act(node, action))
        finally:
            with self._lock:
                self._pending[node].remove(action)

    def _act(self, node: str, action: str) -> None:
        if action in ("On", "ForceOn"):
            if self._boot(node):
                self._note(node, "on", "bmc")
        elif action in ("ForceOff", "GracefulShutdown"):
            graceful = action == "GracefulShutdown"
            if self._insist(node, lambda: self._machines().halt(node, graceful=graceful)):
                self._note(node, "graceful-off" if graceful else "off", "bmc")
        else:
            graceful = action == "GracefulRestart"
            self._insist(node, lambda: self._machines().halt(node, graceful=graceful))
            self._boot(node)
            self._note(node, "graceful-restart" if graceful else "reset", "bmc")

    def _insist(self, node: str, work: Callable[[], bool]) -> bool:
        """Repeat what podman refused: it cleans up after a container late on a busy machine, and a BMC does not mind.

        Raise the last refusal.
        """
        for left in reversed(range(_TRIES)):
            try:
                return work()
            except SimError as error:
                if not left:
                    raise
                log.warning("%s: %s: trying again", node, error)
                time.sleep(_TRY_AGAIN_S)
        raise AssertionError

    def _boot(self, node: str) -> bool:
        machines = self._machines()
        if self._insist(node, lambda: machines.running(node)):
            return False
        self._raise_boot_count(node)
        started = self._insist(node, lambda: machines.boot(node))
        if node in self._switches:
            self._insist(node, lambda: machines.settle_switch(node))
            self._watch(node)
            return started
        BootSettings(self._store, node).booted()
        self._watch(node)
        return started

    def _raise_boot_count(self, node: str) -> None:
        """Count the boot; a fault may appear from this boot on."""
        with self._store.hardware_locked():
            state = self._store.state(node)
            state["boot_count"] = int(state.get("boot_count", 0)) + 1
            staged.on_boot(state)
            on_boot = getattr(faults, "on_boot", None)
            if on_boot is not None:
                on_boot(state)
            self._store.write_state(node, state)

    def _watch(self, node: str) -> None:
        found = podman.inspect(self._machines().plan.machines[node].container)
        if found is not None and found.running:
            threading.Thread(target=self._wait_exit, args=(node, found.pid), daemon=True).start()

    def _wait_exit(self, node: str, pid: int) -> None:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            pass
        else:
            with self._lock:
                self._watched[node] = pid
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            poll.poll()
            os.close(handle)
            with self._lock:
                if self._watched.get(node) == pid:
                    del self._watched[node]
        self._queues[node].submit(guarded, node, partial(self._watch_or_reboot, node, ended=pid))

    def _watch_or_reboot(self, node: str, ended: int = 0) -> None:
        """Restart a system that asked for a reboot, as a machine would; leave one that was powered off."""
        container = self._machines().plan.machines[node].container
        deadline = time.monotonic() + _EXIT_SEEN_S
        found = podman.inspect(container)
        while found is not None and _ending(found, ended) and time.monotonic() < deadline:
            time.sleep(0.2)
            found = podman.inspect(container)
        if found is None:
            return
        if _ending(found, ended):
            log.error("%s: podman still says %r %.0f s after the container ended", node, found.status, _EXIT_SEEN_S)
        elif found.running:
            if not ended:
                self._watch(node)
        elif found.status == "exited" and found.exit_code == REBOOTED:
            self._boot(node)
            self._note(node, "reboot", "host")

    def _note(self, node: str, action: str, by: str) -> None:
        note(self._store, node, action, by)


def guarded(node: str, work: Callable[[], None]) -> None:
    """Run a queued job; errors go to the log, because nobody waits for the result."""
    try:
        work()
    except Exception:
        log.exception("%s: power action failed", node)


_NOTES = threading.Lock()


def note(store: Store, node: str, action: str, by: str) -> None:
    """Write a finished action to the power log."""
    line = json.dumps({"time": datetime.now(UTC).isoformat(), "node": node, "action": action, "by": by})
    with _NOTES, store.power_log.open("a", encoding="utf-8") as out:
        out.write(line + "\n")


def _ending(found: podman.Container, ended: int) -> bool:
    """Return whether podman has not yet seen the end of the process ``ended``.

    Podman passes through stopping and stopped until it has cleaned up.
    """
    return found.status in ("stopping", "stopped") or (found.running and found.pid == ended)

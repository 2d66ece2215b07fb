"""Simulated BMCs on loopback for bench-provision. usage: scripts/bench/bmcs.py ROOT, until SIGTERM.

SIGUSR1 writes the counts since the last one, or since the start, to a file below ROOT.

Each BMC is a listener of the simulated rack's own Redfish service (rackready_sim.redfish) with its own certificate,
password and hardware state. Powering one on starts an SSH server in place of its machine, some seconds later. The
listener counts: a connection counts as open while the kernel says that both ends hold it (tcp(7), TCP_INFO), looked at
whenever another one is accepted.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(_ROOT), str(_ROOT / "src")]

from rackready.stacks.end_with_engine import end_with  # noqa: E402 - run by path: the root is put on the path first
from rackready_sim.boot import BootSettings  # noqa: E402
from rackready_sim.redfish.app import build_app  # noqa: E402
from rackready_sim.redfish.driver import Hardware  # noqa: E402
from rackready_sim.redfish.server import BmcServer  # noqa: E402
from rackready_sim.redfish.sessions import Environ, Sessions, StartResponse, Wsgi, guard  # noqa: E402
from rackready_sim.store import Store, write_json  # noqa: E402
from rackready_sim.tls import ensure_certificates  # noqa: E402
from scripts.bench.bmc_plan import COUNTS, READY, Plan  # noqa: E402
from tests.stacks.fake_rack import FakeSsh  # noqa: E402

_ESTABLISHED = 1
"""TCP_ESTABLISHED of Linux (include/net/tcp_states.h), the first byte of struct tcp_info."""
_ON = frozenset({"On", "ForceOn"})
_PER_BMC = ("connections", "requests", "at_once", "requests_at_once", "powered_on")


@dataclass(slots=True)
class Tally:
    """Counts of all BMCs, by the name of the node."""

    connections: dict[str, int] = field(default_factory=dict)
    requests: dict[str, int] = field(default_factory=dict)
    at_once: dict[str, int] = field(default_factory=dict)
    requests_at_once: dict[str, int] = field(default_factory=dict)
    powered_on: dict[str, int] = field(default_factory=dict)
    all_at_once: int = 0
    _open: dict[str, list[socket.socket]] = field(default_factory=dict)
    _busy: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def connection(self, node: str, request: socket.socket) -> Iterator[None]:
        """Count a connection until its end. A handle of its own: TLS takes the first one over."""
        handle = socket.socket(fileno=os.dup(request.fileno()))
        with self._lock:
            self._open.setdefault(node, []).append(handle)
            now = {name: sum(map(_established, own)) for name, own in self._open.items()}
            self.connections[node] = self.connections.get(node, 0) + 1
            self.at_once[node] = max(self.at_once.get(node, 0), now[node])
            self.all_at_once = max(self.all_at_once, sum(now.values()))
        try:
            yield
        finally:
            with self._lock:
                self._open[node].remove(handle)
            handle.close()

    @contextmanager
    def request(self, node: str) -> Iterator[None]:
        """Count a request until its answer is made."""
        with self._lock:
            self.requests[node] = self.requests.get(node, 0) + 1
            self._busy[node] = self._busy.get(node, 0) + 1
            self.requests_at_once[node] = max(self.requests_at_once.get(node, 0), self._busy[node])
        try:
            yield
        finally:
            with self._lock:
                self._busy[node] -= 1

    def taken(self) -> dict[str, Any]:
        """Return the counts, and begin anew."""
        with self._lock:
            out = {name: getattr(self, name) for name in (*_PER_BMC, "all_at_once")}
            for name in _PER_BMC:
                setattr(self, name, {})
            self.all_at_once = 0
        return out


def _established(handle: socket.socket) -> bool:
    return handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _ESTABLISHED


class _Listener(BmcServer):
    """One BMC that counts its connections."""

    def __init__(self, node: str, address: str, plan: Plan, app: Wsgi, tally: Tally) -> None:
        self._node = node
        self._tally = tally
        super().__init__(address, plan.bmc_port, _counted(app, node, tally), Store(plan.root).tls / f"{node}.pem")

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as socketserver has it
        """Serve one connection."""
        with self._tally.connection(self._node, request):
            super().process_request_thread(request, client_address)


def _counted(app: Wsgi, node: str, tally: Tally) -> Wsgi:
    def answered(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        with tally.request(node):
            return list(app(environ, start_response))

    return answered


class Machines:
    """Power of machines that are SSH servers while they are on."""

    def __init__(self, plan: Plan, tally: Tally) -> None:
        import paramiko  # noqa: PLC0415 - beside its only use

        store = Store(plan.root)
        self._plan, self._tally, self._store = plan, tally, store
        self._authorized = paramiko.Ed25519Key.from_private_key_file(str(store.key)).get_base64()
        self._keys = {node: paramiko.ECDSAKey.generate(bits=256) for node in plan.bmcs}
        self._on: set[str] = set()
        self._lock = threading.Lock()
        self._hosts: list[FakeSsh] = []

    def state(self, node: str) -> str:
        """Return Redfish's PowerState."""
        return "On" if node in self._on else "Off"

    def request(self, node: str, action: str) -> None:
        """Power a machine on; the benchmark asks for nothing else."""
        if action not in _ON:
            message = f"{node}: {action}: the benchmark only powers on"
            raise NotImplementedError(message)
        with self._lock:
            self._tally.powered_on[node] = self._tally.powered_on.get(node, 0) + 1
            self._on.add(node)
        BootSettings(self._store, node).booted()
        threading.Timer(self._plan.boot_s, self._boot, (node,)).start()

    def _boot(self, node: str) -> None:
        plan = self._plan
        host = FakeSsh(plan.hosts[node], plan.ssh_port, self._keys[node], self._authorized, {})
        with self._lock:
            self._hosts.append(host)


def main() -> None:
    """Serve, and write the counts at every SIGUSR1."""
    plan = Plan.read(Path(sys.argv[1]))
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    logging.basicConfig(level=logging.WARNING)
    wanted = {signal.SIGTERM, signal.SIGUSR1}
    signal.pthread_sigmask(signal.SIG_BLOCK, wanted)  # threads inherit it: sigwait takes the signals
    store, tally = Store(plan.root), Tally()
    ensure_certificates(store.tls, plan.bmcs)
    sessions = Sessions(store)
    app = build_app(Hardware(store), Machines(plan, tally), sessions, store.base / "bmc")
    for node, address in plan.bmcs.items():
        _Listener(node, address, plan, guard(app, node, sessions), tally).serve_in_background()
    (plan.root / READY).touch()
    while signal.sigwait(wanted) == signal.SIGUSR1:
        counts = {**tally.taken(), "cpu_seconds": time.process_time()}
        write_json(plan.root / COUNTS, counts)
    os._exit(0)  # listeners and SSH servers are threads that nobody waits for


if __name__ == "__main__":
    main()

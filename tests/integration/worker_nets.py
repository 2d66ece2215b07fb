"""Machines of a test with workers, each in a network namespace of its own, and cables between them that can be pulled.

Each machine has a cable to the test's own bridge, where the database is. With a rack, each worker has a second one to
the rack's management bridge, so that it can lose the database alone: it still reaches the nodes then, which is the case
that must be shown. The controller stays in the namespace of this machine, and has a cable like the others.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path

from rackready_sim.hostnet import links, taken_networks

CONTROLLER, DATABASE = "ctl", "db"
_POOL = IPv4Network("10.62.0.0/15")
"""Beside the simulated racks' pool (10.64.0.0/10)."""
_OWN, _RACK = "x", "z"
_FIRST = 10
_RACK_FIRST = 239
"""Last octet of the first worker in the rack's network: beyond its machines."""
_GONE_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class RackNet:
    """The management network of a simulated rack: its bridge, and the BMCs' loopback network."""

    bridge: str
    subnet: IPv4Network
    bmcs: IPv4Network


@dataclass
class Nets:
    """The machines of one test. ``prefix``: begins every name, at most 9 characters, as in rr-a1b2c3."""

    prefix: str
    rack: RackNet | None = None
    addresses: dict[str, str] = field(default_factory=dict)

    def begin(self, workers: Iterable[str]) -> Nets:
        """Make the bridge, the namespaces and the cables."""
        free = (net for net in _POOL.subnets(new_prefix=24) if not any(net.overlaps(one) for one in taken_networks()))
        step = int(self.prefix.rpartition("-")[2], 16) % 256
        nets = list(free)
        subnet = nets[step % len(nets)]
        _ip("link", "add", "name", self.bridge, "type", "bridge")
        _ip("link", "set", self.bridge, "up")
        for octet, name in enumerate((CONTROLLER, DATABASE, *workers), _FIRST):
            self._add(name, f"{subnet[octet]}/{subnet.prefixlen}")
        if self.rack is not None:
            for number, name in enumerate(workers, 1):
                self._join_rack(self.rack, name, f"{self.rack.subnet[_RACK_FIRST + number]}")
        return self

    @property
    def bridge(self) -> str:
        return f"{self.prefix}-{_OWN}"

    def space(self, name: str) -> str:
        """Return the namespace of a machine, "" for the controller's."""
        return "" if name == CONTROLLER else f"{self.prefix}-{name}"

    def inside(self, name: str) -> list[str]:
        """Return what begins the command of a program on that machine."""
        return ["ip", "netns", "exec", self.space(name)] if self.space(name) else []

    def cut(self, name: str, *, whole: bool = False) -> None:
        """Pull a machine's cable to the database; ``whole``: the one to the rack, too."""
        self._set(name, "down", whole=whole)

    def heal(self, name: str) -> None:
        """Put its cables back."""
        self._set(name, "up", whole=True)

    def processes(self, name: str) -> list[int]:
        """Return the processes on a machine that is not the controller's."""
        found = subprocess.run(
            ["ip", "netns", "pids", self.space(name)], capture_output=True, text=True, check=False
        ).stdout
        return [int(word) for word in found.split()]

    def kill_all(self, name: str) -> None:
        """End everything on a machine, as a power cut does."""
        end_within(self.space(name))

    def close(self) -> None:
        """Remove everything, with the programs in it."""
        remove(self.prefix)

    def _add(self, name: str, address: str) -> None:
        port, end = f"{self.prefix}-{_OWN}{name}", f"{self.prefix}-y{name}" if name == CONTROLLER else "eth0"
        self._cable(name, port, end, self.bridge, address)
        self.addresses[name] = address.partition("/")[0]

    def _cable(self, name: str, port: str, end: str, bridge: str, address: str) -> None:
        space = self.space(name)
        if space and space not in spaces():
            _ip("netns", "add", space)
            _ip("-n", space, "link", "set", "lo", "up")
        within = ("-n", space) if space else ()
        _ip("link", "add", "name", port, "type", "veth", "peer", "name", end, *(("netns", space) if space else ()))
        _ip("link", "set", port, "master", bridge, "up")
        _ip(*within, "address", "add", address, "dev", end)
        _ip(*within, "link", "set", end, "up")

    def _join_rack(self, rack: RackNet, name: str, address: str) -> None:
        """Give a worker a cable to the rack, and the way to its BMCs, which are at loopback addresses here."""
        self._cable(name, f"{self.prefix}-{_RACK}{name}", "eth1", rack.bridge, f"{address}/{rack.subnet.prefixlen}")
        local = "net/ipv4/conf/{}/route_localnet"
        (Path("/proc/sys") / local.format(rack.bridge)).write_text("1", encoding="ascii")
        inside = f"echo 1 > /proc/sys/{local.format('eth1')}"
        subprocess.run([*self.inside(name), "sh", "-c", inside], check=True)
        way = ("via", str(rack.subnet[1]), "dev", "eth1", "src", address, "onlink")
        _ip("-n", self.space(name), "route", "add", "table", "local", str(rack.bmcs), *way)

    def _set(self, name: str, how: str, *, whole: bool) -> None:
        _ip("link", "set", f"{self.prefix}-{_OWN}{name}", how)
        rack = f"{self.prefix}-{_RACK}{name}"
        if whole and rack in links():
            _ip("link", "set", rack, how)


def spaces() -> list[str]:
    """Return the named network namespaces of this machine."""
    found = subprocess.run(["ip", "-j", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return [one["name"] for one in json.loads(found or "[]")]


def remove(prefix: str) -> list[str]:
    """Remove namespaces and interfaces with that prefix, and end the programs in them. Return what there was."""
    removed = []
    for space in spaces():
        if space.startswith(f"{prefix}-"):
            end_within(space)
            _ip("netns", "delete", space)
            removed.append(space)
    for name in links():
        if name.startswith((f"{prefix}-{_OWN}", f"{prefix}-{_RACK}", f"{prefix}-y")):
            subprocess.run(["ip", "link", "delete", name], capture_output=True, check=False)
            removed.append(name)
    return removed


def end_within(space: str) -> None:
    """End every program in a namespace: a dying one may still start another."""
    deadline = time.monotonic() + _GONE_WITHIN_S
    while time.monotonic() < deadline:
        found = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True, check=False).stdout
        pids = [int(word) for word in found.split() if not is_dead(int(word))]
        if not pids:
            return
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def is_dead(pid: int) -> bool:
    """Return whether a process has ended; it may still wait for its parent."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return text[text.rfind(")") + 2] == "Z"


def _ip(*arguments: str) -> None:
    argv: Sequence[str] = ["ip", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}"

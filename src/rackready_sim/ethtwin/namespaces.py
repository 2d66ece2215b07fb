"""The twin's switches: a network namespace with FRR's daemons for each, and a pair of interfaces for each cable."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackready_sim.errors import describe
from rackready_sim.ethtwin.frr import gateway_interface, text
from rackready_sim.ethtwin.underlay import Router

_DAEMONS = ("/usr/lib/frr/zebra", "/usr/lib/frr/bgpd", "/usr/lib/frr/bfdd")
"""Where Debian's and Ubuntu's package puts them, as FRR's own packages do."""
PACKAGES = {"vtysh": "frr", "ip": "iproute2", "ping": "iputils-ping", "sysctl": "procps"}
"""Programs of the twin, each with its package in Debian and Ubuntu."""
_USER = "frr"
"""The daemons give up root for this user, which the package makes."""
_TABLES = (Path("/proc/sys/net/ipv4/neigh/default/gc_thresh3"), Path("/proc/sys/net/ipv6/neigh/default/gc_thresh3"))
_SPARE = 256
"""Neighbors that this machine itself may have. The kernel's own limit is 1,024 (ip-sysctl, gc_thresh3)."""
_PREFIX = "rr-twin-"
_START_S = 60.0
_TOOL_S = 60.0
_AT_ONCE = 4
_SYSCTLS = {
    "net.ipv4.ip_forward": 1,
    "net.ipv6.conf.all.forwarding": 1,
    "net.ipv6.conf.default.forwarding": 1,
    "net.ipv6.conf.default.accept_dad": 0,
    "net.ipv4.fib_multipath_hash_policy": 1,
    "net.ipv4.icmp_ratelimit": 0,
}


def missing() -> list[str]:
    """Return the packages that the twin needs and this machine lacks."""
    lacking = [] if all(Path(path).exists() for path in _DAEMONS) else ["frr"]
    return sorted({*lacking, *(package for program, package in PACKAGES.items() if shutil.which(program) is None)})


def require() -> None:
    """Raise SimError if a program is missing, or without root."""
    if os.geteuid() != 0:
        raise describe("fabric twin", "root, for network namespaces", "another user", "Run it with sudo.")
    if lacking := missing():
        raise describe(
            "fabric twin",
            "FRR's zebra, bgpd, bfdd and vtysh, ip and ping",
            f"missing: {', '.join(lacking)}",
            f"Install them as root: apt-get install {' '.join(lacking)}. FRR's own service is not needed.",
        )


def require_room(cables: int) -> None:
    """Raise SimError if the kernel cannot know the neighbors of so many cables: all namespaces share its tables."""
    wanted = 2 * cables + _SPARE
    small = [path for path in _TABLES if (size := _size(path)) is not None and size < wanted]
    if small:
        words = [f"{path.relative_to('/proc/sys')}={wanted}".replace("/", ".") for path in small]
        raise describe(
            "fabric twin",
            f"room for {wanted} neighbors in the kernel's tables: {cables} cables have two ends each",
            f"{min(_size(path) or 0 for path in small)}",
            f"Raise it for this rehearsal: sysctl -w {' '.join(words)}.",
        )


def _size(table: Path) -> int | None:
    """Return the most neighbors of a table; None where the kernel does not say."""
    try:
        return int(table.read_text(encoding="utf-8"))
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class Namespaces:
    """The running twin. ``folder``: configuration and logs, a folder per switch."""

    routers: Mapping[str, Router]
    folder: Path
    mark: str

    def namespace(self, name: str) -> str:
        """Return the network namespace of a switch."""
        return f"{self.mark}-{list(self.routers).index(name)}"

    def place(self, name: str) -> Path:
        """Return the folder of a switch."""
        return self.folder / self.namespace(name)

    def routes(self) -> dict[str, dict[str, frozenset[str]]]:
        """Return switch -> prefix -> interfaces of the kernel's routes ("": its own address)."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return dict(zip(self.routers, pool.map(self._routes, self.routers), strict=True))

    def _routes(self, name: str) -> dict[str, frozenset[str]]:
        found: list[dict[str, Any]] = json.loads(
            _ip("-n", self.namespace(name), "-4", "-j", "route", "show", "table", "main") or "[]"
        )
        out = {f"{self.routers[name].routing.loopback}/32": frozenset({""})}
        for route in found:
            prefix = route["dst"] if "/" in route["dst"] else f"{route['dst']}/32"
            hops = [route, *route.get("nexthops", [])]
            if route.get("type", "unicast") == "unicast":
                out[prefix] = frozenset(_device(hop) for hop in hops if "dev" in hop)
        for gateway in self.routers[name].gateways:
            own = gateway_interface(gateway.vlan)
            out |= {prefix: frozenset({""}) for prefix, devices in out.items() if devices == {own}}
        return out

    def sessions(self) -> int:
        """Return the number of established ends of BGP sessions."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return sum(pool.map(self._sessions, self.routers))

    def _sessions(self, name: str) -> int:
        shown: dict[str, Any] = json.loads(self.vtysh(name, "show bgp ipv4 unicast summary json") or "{}")
        peers = shown.get("peers", {})
        return sum(peer.get("state") == "Established" for peer in peers.values())

    def vtysh(self, name: str, command: str) -> str:
        """Return the output of a command of FRR on a switch."""
        return _run(["vtysh", "--vty_socket", str(self.place(name)), "-c", command])

    def set_links(self, name: str, interfaces: Sequence[str], state: str) -> None:
        """Set interfaces of a switch up or down; the other ends of their cables lose or get their carrier."""
        lines = "".join(f"link set {interface} {state}\n" for interface in interfaces)
        _run(["ip", "-n", self.namespace(name), "-batch", "-"], lines)

    def answers(self, source: str, goal: str) -> bool:
        """Return whether a switch's loopback answers a ping from another's."""
        ends = self.routers[source].routing.loopback, self.routers[goal].routing.loopback
        argv = ["ip", "netns", "exec", self.namespace(source), "ping", "-q", "-c", "1", "-W", "2", "-I", *ends]
        return subprocess.run(argv, capture_output=True, check=False, stdin=subprocess.DEVNULL).returncode == 0


@contextmanager
def running(routers: Mapping[str, Router], folder: Path, mtu: int, bfd_ms: int) -> Iterator[Namespaces]:
    """Run the twin. ``mtu``: bytes; ``bfd_ms``: interval of BFD. What a killed twin left is removed first.

    Raises SimError if FRR refuses a configuration or does not start.
    """
    _sweep()
    folder.chmod(0o755)
    twin = Namespaces(routers, folder, f"{_PREFIX}{os.getpid()}")
    try:
        _wire(twin, mtu)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda name: _start(twin, name, bfd_ms), routers))
        yield twin
    finally:
        _remove(twin.mark)


def _device(hop: Mapping[str, Any]) -> str:
    """Return the interface of a next hop. Without a link it leads nowhere, until FRR takes it out."""
    down = {"dead", "linkdown"}.intersection(hop.get("flags", ()))
    return f"{hop['dev']} (down)" if down else str(hop["dev"])


def _wire(twin: Namespaces, mtu: int) -> None:
    names = [twin.namespace(name) for name in twin.routers]
    _run(["ip", "-batch", "-"], "".join(f"netns add {name}\n" for name in names))
    cables = []
    for name, router in twin.routers.items():
        own = twin.namespace(name)
        settings = [f"{key}={value}" for key, value in _SYSCTLS.items()]
        _run(["ip", "netns", "exec", own, "sysctl", "-q", "-w", *settings])
        cables += [
            f"link add {port.interface} mtu {mtu} netns {own} type veth "
            f"peer name {port.peer_interface} mtu {mtu} netns {twin.namespace(port.peer)}\n"
            for port in router.ports
            if (name, port.interface) < (port.peer, port.peer_interface)
        ]
    _run(["ip", "-batch", "-"], "".join(cables))
    for name, router in twin.routers.items():
        rails = [gateway_interface(gateway.vlan) for gateway in router.gateways]
        # The far end of the pair stands for the nodes of the rail: FRR announces a subnet whose interface has carrier.
        ends = [f"nodes{gateway.vlan}" for gateway in router.gateways]
        lines = [f"link add {near} type veth peer name {far}" for near, far in zip(rails, ends, strict=True)]
        ports = [port.interface for port in router.ports]
        lines += [f"link set {interface} up" for interface in ("lo", *rails, *ends, *ports)]
        _run(["ip", "-n", twin.namespace(name), "-batch", "-"], "".join(f"{line}\n" for line in lines))


def _start(twin: Namespaces, name: str, bfd_ms: int) -> None:
    place = twin.place(name)
    place.mkdir()
    shutil.chown(place, _USER, _USER)
    conf = place / "frr.conf"
    conf.write_text(text(twin.routers[name], bfd_ms), encoding="utf-8")
    _run(["vtysh", "-C", "-f", str(conf)])
    for daemon in _DAEMONS:
        own = Path(daemon).name
        argv = [daemon, "-d", "-f", os.devnull, "-i", str(place / f"{own}.pid")]
        argv += [
            "-z",
            str(place / "zserv.api"),
            "--vty_socket",
            str(place),
            "-P",
            "0",
            "--log",
            f"file:{place / own}.log",
        ]
        argv += ["--bfdctl", str(place / "bfdd.sock")] if own == "bfdd" else []
        _run(["ip", "netns", "exec", twin.namespace(name), *argv])
    # A daemon alone stops at the first line that is another one's: vtysh gives each its own, as frr.service does.
    _run(["vtysh", "--vty_socket", str(place), "-f", str(conf)])


def _sweep() -> None:
    """Remove the namespaces of twins whose process is gone."""
    for line in _ip("netns", "list").splitlines():
        name = line.split()[0]
        if name.startswith(_PREFIX):
            mark = name.rpartition("-")[0]
            if not Path("/proc", mark.removeprefix(_PREFIX)).exists():
                _remove(mark)


def _remove(mark: str) -> None:
    own = [line.split()[0] for line in _ip("netns", "list").splitlines() if line.startswith(f"{mark}-")]
    pids = [int(pid) for name in own for pid in _ip("netns", "pids", name).split()]
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + _START_S
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < until:
        time.sleep(0.02)
    _run(["ip", "-batch", "-"], "".join(f"netns delete {name}\n" for name in own))


def _ip(*words: str) -> str:
    return _run(["ip", *words])


def _run(argv: Sequence[str], typed: str = "") -> str:
    """Run a program to its end and return its output. Raises SimError for any other exit code than 0."""
    try:
        done = subprocess.run(argv, input=typed, capture_output=True, text=True, check=False, timeout=_TOOL_S)
    except subprocess.TimeoutExpired as error:
        raise describe(
            argv[0], f"an end within {_TOOL_S:g} s", "none", "Use a smaller site, or a faster machine."
        ) from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-400:]
        raise describe(" ".join(argv[:4]), "exit code 0", f"{done.returncode}: {said}", "See its output.")
    return done.stdout

"""Give network cards the names that the site declares, by PCI address: `nic_names.py FILE`.

udev runs this for every RDMA device that appears (rules of role nic_stack), and it then names RDMA devices alone: a
rule names interfaces before anything uses them. It runs after the system's own naming: rdma-core
calls the device of 0000:18:00.0 rocep24s0, its kernel name is mlx5_N (linux-rdma/rdma-core @1840c1b,
kernel-boot/rdma_rename.c). A kernel name may belong to another card for a moment, so its holder first gets the name
that rdma-core derives from its PCI address.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

Wanted = Mapping[str, Mapping[str, str]]
"""PCI address to the names of its ``infiniband`` device and ``net`` interface; a name may be absent."""
Start = Callable[..., "tuple[int, str]"]
KINDS = {"infiniband": "RDMA device", "net": "interface"}
_LOCK = "run/rackready-nic-names.lock"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def start(*argv: str) -> tuple[int, str]:
    """Run a program; return its exit code and its output. A missing program is code 127."""
    try:
        done = subprocess.run(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
            check=False,
            env={**os.environ, "PATH": _PATH, "LC_ALL": "C"},
        )
    except FileNotFoundError:
        return 127, f"{argv[0]}: not installed"
    except subprocess.TimeoutExpired:
        return 124, f"{argv[0]}: no end within 60 s"
    return done.returncode, " ".join(done.stdout.decode("utf-8", "replace").split())


class NicNames:
    """The names of one node's cards. ``root``: "/" except in tests."""

    def __init__(self, wanted: Wanted, run: Start = start, root: Path = Path("/")) -> None:
        self.wanted, self._run, self._root = wanted, run, root

    def differences(self) -> list[tuple[str, str, str, str]]:
        """Return kind, PCI address, wanted and present names of what differs; no present name is "none"."""
        found = []
        for pci, names in sorted(self.wanted.items()):
            for kind, name in sorted(names.items()):
                have = self.present(pci, kind)
                if name not in have:
                    found.append((kind, pci, name, ", ".join(have) or "none"))
        return found

    def refusals(self) -> dict[str, str]:
        """Return the PCI address of each interface with a default route, which must keep its name, to what to say."""
        routes, found = self._default_routes(), {}
        for pci, name, have in self._interfaces():
            if routes & {have, *self._above(have)}:
                found[pci] = f"{have} ({pci}) has the default route, so it does not become {name}"
        return found

    def waiting(self) -> dict[str, str]:
        """Return the PCI address of each interface that gets its name with the next boot only, to the reason."""
        reasons = {pci: self._in_use(have, name) for pci, name, have in self._interfaces()}
        return {pci: reason for pci, reason in reasons.items() if reason}

    def _interfaces(self) -> list[tuple[str, str, str]]:
        """Return PCI address, wanted and present name of what has exactly one interface, of another name."""
        here = [(pci, name, self.present(pci, kind)) for kind, pci, name, _ in self.differences() if kind == "net"]
        return [(pci, name, have[0]) for pci, name, have in here if len(have) == 1]

    def _in_use(self, interface: str, name: str) -> str:
        """Return why an interface cannot get its name now, "" when nothing uses it.

        At a boot udev names it before anything uses it, and interfaces have the kernel's names (ethN) first.
        """
        if (self._root / "sys/class/net" / name).exists():
            return f"another interface is {name} now"
        above = self._above(interface)
        if above:
            return f"{interface} is below {', '.join(above)}"
        code, text = self._run("ip", "-o", "address", "show", "dev", interface, "scope", "global")
        if code:
            return f"the addresses of {interface} were not readable: {text[:200]}"
        addresses = re.findall(r"\binet6? (\S+)", text)
        return f"{interface} has the address {', '.join(addresses)}" if addresses else ""

    def _above(self, interface: str) -> list[str]:
        """Return the bonds, bridges and VLANs above an interface (kernel, net/core/dev.c: links upper_NAME)."""
        uppers = (self._root / "sys/class/net" / interface).glob("upper_*")
        names = sorted(item.name.partition("_")[2] for item in uppers)
        return sorted({*names, *(other for name in names for other in self._above(name))})

    def present(self, pci: str, kind: str) -> list[str]:
        """Return the names that a PCI function has now: of RDMA devices (``infiniband``) or interfaces (``net``)."""
        place = self._root / "sys/bus/pci/devices" / pci / kind
        here = sorted(place.iterdir()) if place.is_dir() else []
        return [item.name for item in here if not _is_representor(item)]

    def apply(self) -> list[str]:
        """Rename what differs, has exactly one name and does not wait; return the refusals. One process at a time."""
        with (self._root / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            routed = self.refusals()
            refused, stays = list(routed.values()), {*routed, *self.waiting()}
            for kind, pci, name, have in self.differences():
                now = self.present(pci, kind)  # a device that was moved aside has another name than a moment ago
                if kind == "net" and pci in stays:
                    continue
                if len(now) != 1:
                    refused.append(f"{pci} {KINDS[kind]} {have}, one is needed for the name {name}")
                elif kind == "infiniband":
                    refused += self._rename_rdma(now[0], name)
                else:
                    refused += self._rename_net(now[0], name)
            return refused

    def _rename_rdma(self, old: str, new: str) -> list[str]:
        holder = self._holders().get(new)
        aside = self._do("rdma", "dev", "set", new, "name", self.by_pci(holder, new)) if holder is not None else []
        return aside or self._do("rdma", "dev", "set", old, "name", new)

    def _rename_net(self, old: str, new: str) -> list[str]:
        """Rename an interface, which must be down for it.

        systemd gives an interface its other names as alternative ones, and the kernel then refuses the new name with
        EEXIST. systemd itself drops it first, too (systemd/systemd, netlink-util.c, rtnl_set_link_name).
        """
        self._run("ip", "link", "property", "del", "dev", old, "altname", new)  # fails where there is none
        if not self._is_up(old):
            return self._do("ip", "link", "set", "dev", old, "name", new)
        refused = self._do("ip", "link", "set", "dev", old, "down")
        refused = refused or self._do("ip", "link", "set", "dev", old, "name", new)
        return refused + self._do("ip", "link", "set", "dev", old if refused else new, "up")

    def _is_up(self, interface: str) -> bool:
        """Return whether an interface is up (flag IFF_UP, bit 0; netdevice(7))."""
        flags = self._root / "sys/class/net" / interface / "flags"
        return flags.exists() and bool(int(flags.read_text(encoding="ascii"), 16) & 1)

    def _holders(self) -> dict[str, str]:
        """Return the name of every RDMA device of a PCI function to the function's address."""
        devices = self._root / "sys/bus/pci/devices"
        return {item.name: item.parent.parent.name for item in devices.glob("*/infiniband/*")}

    def by_pci(self, pci: str, device: str) -> str:
        """Return the name that rdma-core gives by PCI address (NAME_PCI), always with its function."""
        layer = self._root / "sys/class/infiniband" / device / "ports/1/link_layer"
        prefix = "ib" if layer.exists() and layer.read_text(encoding="ascii").strip() == "InfiniBand" else "roce"
        domain, bus, rest = pci.split(":")
        slot, function = rest.split(".")
        numbers = [int(word, 16) for word in (domain, bus, slot, function)]
        start_ = f"{prefix}P{numbers[0]}" if numbers[0] else prefix
        return f"{start_}p{numbers[1]}s{numbers[2]}f{numbers[3]}"

    def _default_routes(self) -> set[str]:
        """Return the interfaces with a default route.

        IPv4: destination and mask are 00000000 (proc(5)). IPv6: destination and its length are zero (kernel,
        net/ipv6/route.c, rt6_info_route); the kernel's own route that refuses is on lo.
        """
        four = [row[0] for row in self._table("route") if [row[1], *row[7:8]] == ["00000000"] * 2]
        six = [row[-1] for row in self._table("ipv6_route") if [row[0], row[1]] == ["0" * 32, "00"]]
        return {*four, *six}

    def _table(self, name: str) -> list[list[str]]:
        place = self._root / "proc/net" / name
        return [line.split() for line in place.read_text(encoding="ascii").splitlines()] if place.exists() else []

    def _do(self, *argv: str) -> list[str]:
        code, text = self._run(*argv)
        return [] if code == 0 else [f"`{' '.join(argv)}` exit {code}: {text[:200]}"]


def _is_representor(device: Path) -> bool:
    """Return whether an interface represents a function of its card: its port is pf0vf1, pf0sf1 or c1pf0vf1.

    A port of the card itself is p0, or has no name: then a read fails (kernel, net/devlink/port.c).
    """
    try:
        port = (device / "phys_port_name").read_text(encoding="ascii")
    except OSError:
        return False
    return re.match(r"(c\d+)?pf\d", port) is not None


def main(argv: list[str]) -> int:
    """Apply a file's names of RDMA devices; the exit code is 0 when nothing was refused."""
    wanted: Wanted = json.loads(Path(argv[1]).read_text(encoding="utf-8"))
    devices = {pci: {"infiniband": names["infiniband"]} for pci, names in wanted.items() if "infiniband" in names}
    refused = NicNames(devices).apply()
    sys.stderr.writelines(f"{line}\n" for line in refused)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))

"""Non-volatile parameters of network cards: read, write what differs, reset each card once, read again.

Commands: Mellanox/mstflint @b9d9e844, man/mstconfig.md and man/mstfwreset.md; MFT has the same programs as mlxconfig
and mlxfwreset. A card works with a written value only after its reset or the next boot.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from .command import Done, NodeProblem, Run, run
from .difference import Difference
from .fence import FOLDER, fence
from .lockdown import lockdown
from .nic_values import Parameter, number, parse
from .whole_file import replace_file

OPERATION = "install"
DECLARED = "boot.d/nic_stack.json"
"""Below the fence's folder: what the next boot must bring, for reboot_reasons."""
_TOOLS = (("mlxconfig", "mlxfwreset"), ("mstconfig", "mstfwreset"))
"""Programs of MFT, and the same of mstflint."""
_ADAPTER = "0x15b3"
"""PCI vendor of NVIDIA's network cards (pci.ids)."""
_LAYERS = {1: "InfiniBand", 2: "Ethernet"}
"""Values of LINK_TYPE (mlxconfig_host.db of mstflint: IB=1, ETH=2), and the port's link layer in sysfs."""
_LINK = "LINK_TYPE_P"
_DEFAULT = "00000000"
"""Destination of the default route in /proc/net/route."""
_ESTABLISHED = "01"
"""State of a TCP connection in /proc/net/tcp (tcp_states.h of Linux: TCP_ESTABLISHED)."""
_LEVEL = ("--level", "3")
"""Driver restart and PCI reset, or a refusal: with no level, the tool takes the lowest one that the card supports.

That may be 4, and the tool then reboots the node by itself (mlxfwresetlib/cmd_reg_mfrl.py, default_reset_level;
small_utils/mstfwreset.py, rebootMachine).
"""
_BACK_S = 60.0
"""Longest wait for a card after its reset; judgement: mlxfwreset itself returns after the driver's start."""
_UNLOCK = (
    "Load a signed module for the firmware tools (`mst start` of MFT, or mstflint_access of mstflint), or turn Secure "
    "Boot off; then run again: docs/howto/nic-stack.md."
)
Wanted = dict[str, dict[str, int]]
"""PCI address to parameter to value."""


class LockedError(NodeProblem):
    """The kernel is locked down, and the tool reads nothing of a card."""


@dataclass(frozen=True)
class ParameterDifference:
    """A parameter that is not as wanted. ``written``: the next boot has the value already."""

    pci: str
    name: str
    wanted: int
    actual: str
    written: bool

    def __str__(self) -> str:
        """Return it for messages."""
        return f"{self.pci} {self.name}={self.wanted}"

    def plain(self) -> Difference:
        """Return it without what only the writing of parameters needs."""
        return Difference("nic", f"{self.pci} {self.name}", str(self.wanted), self.actual)


@dataclass
class NicConfig:
    """The cards of one node. ``root`` is the start of its file system (tests)."""

    run: Run = run
    root: Path = Path("/")
    folder: Path = FOLDER
    lock_wait_s: float = 600.0
    back_s: float = _BACK_S
    notes: list[str] = field(default_factory=list)
    pending: list[ParameterDifference] = field(default_factory=list)

    def ensure(self, wanted: Wanted, token: int, ledger: str, *, check: bool = False) -> list[ParameterDifference]:
        """Bring the cards to the values; return what differed. Raises NodeProblem with the obstacle."""
        wanted = {pci: values for pci, values in wanted.items() if values and self._is_adapter(pci)}
        found = self.differences(wanted)
        if check or not found:
            self._declare([], check=check)
            return found
        with fence(OPERATION, token, ledger, folder=self.folder, wait_s=self.lock_wait_s) as notes:
            try:
                found = self.differences(wanted)
                self._refuse_used(found)
                found += self._write(wanted, found)
                self._reset(found)
                self._judge(wanted)
            except NodeProblem:
                if self.pending:
                    self._declare(self.pending)
                raise
            finally:
                self.notes += notes
        self._declare(self.pending)
        return found

    def differences(self, wanted: Wanted) -> list[ParameterDifference]:
        """Return the values that are not in force. Raises NodeProblem for a port of a fixed other type."""
        found: list[ParameterDifference] = []
        for pci, values in sorted(wanted.items()):
            try:
                have = self._query(pci, list(values))
            except LockedError as problem:
                self._unread(pci, values, problem)
                continue
            for name, value in values.items():
                if name not in have:
                    self._absent(pci, name, value)
                elif not have[name].is_in_force(value):
                    found.append(_difference(pci, name, value, have[name]))
        return found

    def _write(self, wanted: Wanted, found: list[ParameterDifference]) -> list[ParameterDifference]:
        """Write what differs; return parameters that only a written one shows (ADVANCED_PCI_SETTINGS hides some)."""
        for pci in sorted({item.pci for item in found}):
            self._set(pci, [item for item in found if item.pci == pci and not item.written])
        known = {(item.pci, item.name) for item in found}
        shown = [item for item in self.differences(wanted) if (item.pci, item.name) not in known]
        for pci in sorted({item.pci for item in shown}):
            self._set(pci, [item for item in shown if item.pci == pci and not item.written])
        return shown

    def _set(self, pci: str, items: list[ParameterDifference]) -> None:
        if not items:
            return
        argv = [self._tool(0), "-d", pci, "-y", "set", *[f"{item.name}={item.wanted}" for item in items]]
        done = self.run(argv)
        after = self._query(pci, [item.name for item in items]) if done.returncode == 0 else {}
        for item in items:
            now = after.get(item.name)
            if now is None or number(now.following) != item.wanted:
                actual = f"{now.following}" if now else f"exit {done.returncode}: {_last(done)}"
                step = f"Run `{' '.join(argv)}` on the node and read its output; the card may be locked by its vendor."
                raise NodeProblem(f"{item} written for the next boot", actual, step)

    def _reset(self, found: list[ParameterDifference]) -> None:
        """Reset each card once: the functions of one card share it. What no reset brings waits for a boot."""
        cards: dict[str, list[ParameterDifference]] = {}
        for item in found:
            cards.setdefault(item.pci.rpartition(".")[0], []).append(item)
        for items in cards.values():
            pci = items[0].pci
            if carried := self._carries(items):
                self.notes.append(f"{pci}: carries {carried}, so it is not reset; the next boot brings it")
                self.pending += items
                continue
            done = self.run([self._tool(1), "-d", pci, "reset", *_LEVEL, "--yes"])
            if done.returncode != 0:
                self.notes.append(f"{pci}: not reset ({_last(done)}); the next boot brings its values")
                self.pending += items
                continue
            self._wait_back([item.pci for item in items])

    def _judge(self, wanted: Wanted) -> None:
        waits = {(item.pci, item.name) for item in self.pending}
        left = [item for item in self.differences(wanted) if (item.pci, item.name) not in waits]
        if left:
            step = "Turn the node's power off and on: some cards take values over only then; then run again."
            expected = "; ".join(f"{item} in force after the reset" for item in left)
            raise NodeProblem(expected, "; ".join(f"{item.pci} {item.name} {item.actual}" for item in left), step)

    def _query(self, pci: str, names: list[str]) -> dict[str, Parameter]:
        """Return the parameters of a card. A failed reading does not count as a card without a parameter."""
        argv = [self._tool(0), "-d", pci, "-e", "query"]
        done = self.run(argv)
        have = parse(done.out)
        if not have and (mode := lockdown(self.root)):
            actual = f"exit {done.returncode}: {_last(done)}, in a kernel in lockdown ({mode})"
            raise LockedError(f"the parameters of {pci}", actual, _UNLOCK)
        if not have or (done.returncode != 0 and any(name not in have for name in names)):
            step = f"Run `{' '.join(argv)}` on the node and read its output."
            raise NodeProblem(f"the parameters of {pci}", f"exit {done.returncode}: {_last(done)}", step)
        return have

    def _absent(self, pci: str, name: str, value: int) -> None:
        """Compare the link where its type is fixed; note any other parameter that the firmware does not have."""
        if not name.startswith(_LINK):
            self._note(f"{pci}: its firmware has no {name}; left out")
            return
        layers = self._layers(pci)
        if layers and layers != [_LAYERS[value]]:
            step = "Replace the card, or correct fabric.kind in site.yml: this card's link type is fixed."
            raise NodeProblem(f"{pci} with link layer {_LAYERS[value]}", ", ".join(layers), step)

    def _unread(self, pci: str, values: dict[str, int], problem: LockedError) -> None:
        """Compare the link layer, which shows the link type; note what nobody can read while the kernel is locked."""
        layers = self._layers(pci)
        for name, value in values.items():
            if name.startswith(_LINK) and layers:
                if layers != [_LAYERS[value]]:
                    actual = f"{', '.join(layers)}; {problem.check['actual']}"
                    raise NodeProblem(f"{pci} with link layer {_LAYERS[value]}", actual, _UNLOCK)
            else:
                self._note(f"{pci}: {name} not reported, {value} wanted: {problem.check['actual']}")

    def _layers(self, pci: str) -> list[str]:
        return sorted({self._text(path) for path in self._ports(pci)})

    def _note(self, note: str) -> None:
        self.notes += [] if note in self.notes else [note]

    def _is_adapter(self, pci: str) -> bool:
        path = self._device(pci) / "vendor"
        if not path.exists():
            step = "Check `lspci` on the node, the card's slot and the platform profile."
            raise NodeProblem(f"a network card at {pci}", "none", step)
        if self._text(path) == _ADAPTER:
            return True
        self.notes.append(f"{pci}: vendor {self._text(path)}; mlxconfig works with NVIDIA's cards alone")
        return False

    def _carries(self, items: list[ParameterDifference]) -> str:
        """Return what the reset of a card would cut, such as this login; "" if nothing."""
        names = {path.name for item in items for path in (self._device(item.pci) / "net").glob("*")}
        rows = [line.split() for line in self._text(self.root / "proc/net/route").splitlines()[1:]]
        if any(len(row) > 1 and row[0] in names and row[1] == _DEFAULT for row in rows):
            return "the default route"
        own = {address for name in sorted(names) for address in self._addresses(name)}
        return "TCP connections" if own & self._connected() else ""

    def _addresses(self, netdev: str) -> list[str]:
        """Return a port's addresses without prefix lengths (`ip -o address`: index, name, family, address)."""
        done = self.run(["ip", "-o", "address", "show", "dev", netdev])
        if done.returncode != 0:
            step = "Run `ip address` on the node: a card is not reset before its addresses are known."
            raise NodeProblem(f"the addresses of {netdev}", f"exit {done.returncode}: {_last(done)}", step)
        rows = [line.split() for line in done.out.splitlines()]
        return [row[3].partition("/")[0] for row in rows if len(row) > 3 and row[2] in {"inet", "inet6"}]  # noqa: PLR2004 - as above

    def _connected(self) -> set[str]:
        """Return the local addresses of TCP connections (proc_net_tcp: words of 4 bytes in the host's order)."""
        found = set()
        for name in ("tcp", "tcp6"):
            for line in self._text(self.root / "proc/net" / name).splitlines()[1:]:
                row = line.split()
                if len(row) > 3 and row[3] == _ESTABLISHED:  # noqa: PLR2004 - sl, local, remote, st
                    words = bytes.fromhex(row[1].partition(":")[0])
                    raw = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
                    address = ip_address(raw)
                    found.add(str(getattr(address, "ipv4_mapped", None) or address))
        return found

    def _refuse_used(self, items: list[ParameterDifference]) -> None:
        """Refuse, before anything is written, a card whose RDMA device a program has open: its reset would end it."""
        names = {path.name for item in items for path in (self._device(item.pci) / "infiniband").glob("*")}
        verbs = {
            path.parent.name
            for path in (self.root / "sys/class/infiniband_verbs").glob("*/ibdev")
            if self._text(path) in names
        }
        users = {path.parents[1] for path in (self.root / "proc").glob("[0-9]*/fd/*") if target(path) in verbs}
        if users:
            words = ", ".join(f"process {path.name} ({self._text(path / 'comm')})" for path in sorted(users))
            cards = ", ".join(sorted({item.pci for item in items}))
            step = "Drain the node and end what uses its network cards; then run again. Nothing was changed."
            raise NodeProblem(f"{cards} open in no program, for other values and a reset", words, step)

    def _wait_back(self, cards: list[str]) -> None:
        deadline = time.monotonic() + self.back_s
        gone = list(cards)
        while gone:
            gone = [pci for pci in cards if not list((self._device(pci) / "infiniband").glob("*"))]
            if gone and time.monotonic() > deadline:
                step = "Check `dmesg | grep mlx5_core` on the node, then reboot it."
                expected = f"{', '.join(gone)} back within {self.back_s:.0f} s of its reset"
                raise NodeProblem(expected, "no RDMA device", step)
            if gone:
                time.sleep(0.5)

    def _declare(self, pending: list[ParameterDifference], *, check: bool = False) -> None:
        path = self.folder / DECLARED
        if check or (not pending and not path.exists()):
            return
        if not pending:
            path.unlink()
            return
        wanted: Wanted = {}
        for item in pending:
            wanted.setdefault(item.pci, {})[item.name] = item.wanted
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps({"nic": wanted}, sort_keys=True) + "\n")

    def _tool(self, which: int) -> str:
        for names in _TOOLS:
            if any((self.root / folder / names[0]).exists() for folder in ("usr/bin", "usr/sbin", "usr/local/bin")):
                return names[which]
        step = "Run role nic_stack: it installs mft."
        raise NodeProblem("mlxconfig of MFT, or mstconfig of mstflint", "neither installed", step)

    def _device(self, pci: str) -> Path:
        return self.root / "sys/bus/pci/devices" / pci

    def _ports(self, pci: str) -> list[Path]:
        names = [path.name for path in (self._device(pci) / "infiniband").glob("*")]
        return [
            path for name in names for path in (self.root / "sys/class/infiniband" / name).glob("ports/*/link_layer")
        ]

    @staticmethod
    def _text(path: Path) -> str:
        try:
            return path.read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""


def target(link: Path) -> str:
    """Return the last part of what an open file's link names, such as uverbs3."""
    try:
        return link.readlink().name
    except OSError:
        return ""


def _difference(pci: str, name: str, value: int, have: Parameter) -> ParameterDifference:
    return ParameterDifference(pci, name, value, have.current or have.following, number(have.following) == value)


def _last(done: Done) -> str:
    return next((line.strip() for line in reversed(done.out.splitlines()) if line.strip()), "no output").rstrip(".")

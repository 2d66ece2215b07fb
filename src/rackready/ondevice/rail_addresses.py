"""Addresses, routes and rules of a node's rails, kept by the network manager that the node runs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import rail_files
from .command import NodeProblem, Run, run
from .difference import Difference, words
from .fence import FOLDER, at_work, fence
from .file_state import digest, state
from .rail_claims import Card, Claim, read
from .rail_files import Files, HostRail
from .rail_managers import Ifupdown, Manager, Netplan, Networkd, NetworkManager
from .roce import Roce
from .way_in import WayIn
from .whole_file import replace_file

CHOICES = ("auto", "none", "netplan", "networkd", "networkmanager", "ifupdown")
_ALL = (Networkd, NetworkManager, Ifupdown, Netplan)
_SETTLE_S = 30.0
"""Longest wait for addresses and the way in after a manager was told, s (judgement: here it took less than one)."""
_OPERATION = "rails"
"""A marker of its own beside the lock of installations: the next installation ends that one's."""
_MISSING = 127
"""Exit code of a program that is not installed."""


@dataclass
class RailAddresses:
    """The rails of one node. ``root`` is the start of its file system (tests)."""

    rails: Sequence[Mapping[str, Any]]
    """Entries of host_roce_interfaces."""
    mtu: int
    run: Run = run
    root: Path = Path("/")
    folder: Path = FOLDER
    lock_wait_s: float = 600.0
    settle_s: float = _SETTLE_S
    pause: Callable[[float], None] = time.sleep
    notes: list[str] = field(default_factory=list)
    manager: str = "none"
    """Name of the manager that was chosen."""

    def ensure(self, wish: str, token: int, ledger: str, *, check: bool = False) -> list[Difference]:
        """Give the rails to a manager, and prove that they have their addresses; return what differed.

        ``wish``: one of CHOICES. Raises NodeProblem: no manager to choose, a file of somebody else that says otherwise,
        an interface that carries the way in, or addresses that are not as wanted afterwards. If the way in changes, the
        earlier files are put back first.
        """
        cards = [self._card(item) for item in self.rails]
        guard = WayIn(self.run)
        self._refuse_way_in(guard, cards)
        chosen, rails = self._choose(wish, guard, cards), [card.rail for card in cards]
        self.manager = chosen.name if chosen else "none"
        if chosen:
            chosen.refuse_unread()
            self._refuse_claims(chosen, cards)
            chosen.refuse_files(self._files(chosen, rails))
        found, left = self._differences(chosen, rails), at_work(_OPERATION, folder=self.folder)
        if check or not (found or left):
            return found
        with (
            fence("install", token, ledger, folder=self.folder, wait_s=self.lock_wait_s) as notes,
            fence(_OPERATION, token, ledger, folder=self.folder, wait_s=self.lock_wait_s) as own,
        ):
            found = self._differences(chosen, rails)
            self._change(chosen, rails, guard, anew=left)
            self.notes += dict.fromkeys([*notes, *own])
        return found

    def _card(self, item: Mapping[str, Any]) -> Card:
        """Return a rail and its MAC; with udev's path where that is the declared card's."""
        netdev, wanted = str(item["netdev"]), f"pci-{item.get('pci', '')}"
        said = self.run(["udevadm", "info", "--query=property", f"--path=/sys/class/net/{netdev}"]).out
        path = wanted if f"ID_PATH={wanted}" in said.splitlines() else ""
        return Card(HostRail.of(item, self.mtu, path), read(self.root / "sys/class/net" / netdev / "address").strip())

    def _refuse_way_in(self, guard: WayIn, cards: Sequence[Card]) -> None:
        """Refuse rails that carry the way in, also below a VLAN or a bond, and members of a bond or bridge."""
        places = {card.rail.netdev: self.root / "sys/class/net" / card.rail.netdev for card in cards}
        members = sorted(
            f"{name} in {(place / 'master').resolve().name}"
            for name, place in places.items()
            if (place / "master").exists()
        )
        if members:
            step = "Take the interface out of it on the node, then run again. Nothing was changed."
            raise NodeProblem("rails that are no part of a bond, bridge or VRF", ", ".join(members), step)
        mixed = sorted(set(places) & self._with_lower(guard.interfaces()))
        if mixed:
            raise NodeProblem(
                "a way into the node, and a default route, by none of its rails",
                f"{', '.join(mixed)} has it",
                "Move the default route and SSH to a management interface, or correct the node's platform profile.",
            )

    def _with_lower(self, names: set[str]) -> set[str]:
        """Return interfaces and those below them (kernel, net/core/dev.c: links lower_NAME in sysfs)."""
        folders = [self.root / "sys/class/net" / name for name in names]
        below = {link.name.partition("_")[2] for folder in folders for link in folder.glob("lower_*")}
        return names | (self._with_lower(below) if below else set())

    def _choose(self, wish: str, guard: WayIn, cards: Sequence[Card]) -> Manager | None:
        """Return the manager that the site names, else the one that runs here; None for none.

        Of several, the one that has the management interface, where it is the only one that has it.
        """
        known = {manager.name: manager for manager in self._front()}
        if wish == "none":
            return None
        if wish != "auto":
            if wish not in known or not known[wish].present():
                actual = f"not at work; {self._seen(known)}"
                raise NodeProblem(f"{wish} to set the rails' addresses", actual, _CHOOSE)
            return known[wish]
        here = [manager for manager in self._front() if manager.present()]
        if len(here) > 1:
            management = guard.interfaces()
            owners = [one for one in here if any(one.manages(name) for name in management)]
            ours = [one for one in here if any(one.holder(card.rail) == one.wanted_holder(card.rail) for card in cards)]
            here = owners if len(owners) == 1 else ours if not owners and len(ours) == 1 else here
        if len(here) > 1:
            raise NodeProblem("one network manager at work", self._seen(known), _CHOOSE)
        if not here:
            self.notes.append("no network manager is at work: the unit rackready-roce@ sets the rails' addresses")
        return here[0] if here else None

    def _front(self) -> list[Manager]:
        """Return the managers of this node, each by netplan where it renders for it."""
        first = Netplan if self._netplan() else Networkd
        return [kind(self.run, self.root) for kind in (first, NetworkManager, Ifupdown)]

    def _netplan(self) -> bool:
        """Return whether a file of the node's lets netplan render for networkd. Raises NodeProblem."""
        files = [path for folder in ("etc", "run", "lib") for path in self.root.glob(f"{folder}/netplan/*.yaml")]
        if not any("rackready" not in path.name for path in files):
            return False
        done = self.run(["netplan", "get", "network.renderer"])
        if done.returncode == _MISSING:
            return False
        if done.returncode != 0:
            step = "Correct the file that `netplan get` names on the node, then run again. Nothing was changed."
            said = " ".join(done.out.rpartition("Exception: ")[2].split())  # the last line of a Python traceback
            raise NodeProblem("netplan files that netplan reads", said[:400], step)
        return "NetworkManager" not in done.out

    def _seen(self, known: Mapping[str, Manager]) -> str:
        here = [name for name, manager in known.items() if manager.present()]
        return f"{' and '.join(here)} at work" if here else "none at work"

    def _refuse_claims(self, chosen: Manager, cards: Sequence[Card]) -> None:
        """Refuse other files' different configuration of a rail, of every manager at work."""
        here = [one for one in self._front() if one.name != chosen.name and one.present()]
        bad: list[tuple[HostRail, Claim]] = []
        for card in cards:
            claims = [claim for one in [chosen, *here] for claim in one.claims(card, ours=one is chosen)]
            bad += [(card.rail, claim) for claim in claims if not claim.same(card.rail)]
        if bad:
            raise NodeProblem(
                "; ".join(sorted({f"{rail.netdev} {rail.address}, set by rackready alone" for rail, _ in bad})),
                "; ".join(f"{rail.netdev} in {claim}" for rail, claim in bad),
                "Remove the interface from that file on the node, then run again. Nothing was changed.",
            )

    def _files(self, chosen: Manager | None, rails: Sequence[HostRail]) -> Files:
        """Return the wanted files: the manager's, and a word to networkd where it runs beside another."""
        aside = not isinstance(chosen, Networkd) and Networkd(self.run, self.root).present()
        return {**(chosen.files(rails) if chosen else {}), **(rail_files.foreign(rails) if aside else {})}

    def _differences(self, chosen: Manager | None, rails: Sequence[HostRail]) -> list[Difference]:
        files = self._files(chosen, rails)
        out = [
            Difference("file", path, f"{digest(text.encode())}, mode {mode:04o}", actual)
            for path, (text, mode) in sorted(files.items())
            if (actual := state(self._at(path))) != f"{digest(text.encode())}, mode {mode:04o}"
        ]
        out += [Difference("file", str(path), "absent", state(self._at(str(path)))) for path in self._stale(files)]
        return out + (self._unheld(chosen, rails) if chosen else [])

    def _unheld(self, chosen: Manager, rails: Sequence[HostRail]) -> list[Difference]:
        """Return what is not as wanted of the rails' addresses, and rails that another file or profile has."""
        out = []
        for rail in rails:
            found = Roce(rail.config, self._started, self.root).address_problems()
            out += [Difference("nic", f"{rail.netdev} {one['what']}", one["expected"], one["actual"]) for one in found]
            wanted, holder = chosen.wanted_holder(rail), chosen.holder(rail)
            if holder != wanted:
                name = f"{rail.netdev} in {chosen.name}"
                out.append(Difference("nic", name, wanted, holder or "no configuration"))
        return out

    def _stale(self, files: Files) -> list[str]:
        """Return rackready's files of rails or managers that are no longer wanted."""
        patterns = sorted({pattern for kind in _ALL for pattern in kind.patterns} | {rail_files.FOREIGN})
        found = [path for pattern in patterns for path in self.root.glob(pattern.lstrip("/"))]
        return sorted({f"/{path.relative_to(self.root)}" for path in found} - set(files))

    def _change(self, chosen: Manager | None, rails: Sequence[HostRail], guard: WayIn, *, anew: bool) -> None:
        """Bring the rails to a manager. ``anew``: an earlier run did not end; nobody knows which files managers saw."""
        files = self._files(chosen, rails)
        stale = self._stale(files)
        touched = [path for path in [*stale, *files] if not _same(self._at(path), files.get(path))]
        todo = rails if touched else [rail for rail in rails if chosen and self._unheld(chosen, [rail])]
        before, kept = guard.state(), {path: _kept(self._at(path)) for path in touched}
        try:
            self._write(chosen, todo, {path: files.get(path) for path in touched}, anew=anew)
        except NodeProblem as problem:  # files that a manager refuses must not wait for the next boot
            self._put_back(chosen, todo, kept)
            said = problem.check
            raise NodeProblem(said["expected"], said["actual"], f"{_BACK} {said['next_step']}") from problem
        after = self._way_back(guard, before)
        if after != before:
            self._put_back(chosen, todo, kept)
            raise NodeProblem(f"the way into the node as before: {before}", after, f"{_BACK} {_WAY_IN}")
        if chosen:
            self._settled(chosen, rails)
            chosen.again(rails)
            self._settled(chosen, rails)

    def _way_back(self, guard: WayIn, before: str) -> str:
        """Return the way in as soon as it is as before, else as it was last seen.

        A reload may configure the management interface again: where netplan renders for networkd, each
        `systemctl daemon-reload` writes its files anew. With DHCP it then has no default route for a moment.
        """
        deadline = time.monotonic() + self.settle_s
        while (after := guard.state()) != before and time.monotonic() < deadline:
            self.pause(0.5)
        return after

    def _write(
        self,
        chosen: Manager | None,
        rails: Sequence[HostRail],
        files: Mapping[str, tuple[str, int] | None],
        *,
        anew: bool,
    ) -> None:
        """Bring these files to the node, None for absent, and let the managers act, with ``anew`` all of them."""
        gone = [one for one in self._leaving(files) if not chosen or one.name != chosen.name]
        known = {one.name for one in [*gone, *([chosen] if chosen else [])]}
        gone += [one for one in self._front() if anew and one.name not in known and one.present()]
        for one in [*gone, *([chosen] if chosen else [])]:
            one.release(rails)
        self._place(files)
        for one in gone:
            one.apply([])
        for rail in rails:
            self._drop_rule(rail)
        if chosen:
            chosen.apply(rails)

    def _place(self, files: Mapping[str, tuple[str, int] | None]) -> None:
        for path, wanted in files.items():
            if wanted is None:
                self._at(path).unlink(missing_ok=True)
            else:
                self._at(path).parent.mkdir(parents=True, exist_ok=True)
                replace_file(self._at(path), wanted[0], mode=wanted[1])

    def _put_back(
        self, chosen: Manager | None, rails: Sequence[HostRail], kept: Mapping[str, tuple[str, int] | None]
    ) -> None:
        """Bring the earlier files back, and let their managers act as far as they can.

        What they refuse now is not told: it would hide why the files come back.
        """
        others = [one for one in self._with_file(kept) if not chosen or one.name != chosen.name]
        for one in [*others, *([chosen] if chosen else [])]:
            one.release(rails)
        self._place(kept)
        for rail in rails:
            self._drop_rule(rail)
        for one in [*others, *([chosen] if chosen else [])]:
            with suppress(NodeProblem):
                one.apply([rail for rail in rails if self._has_file(one, rail)])
            with suppress(NodeProblem):
                one.again([])

    def _leaving(self, files: Mapping[str, tuple[str, int] | None]) -> list[Manager]:
        """Return the managers at work that lose a file."""
        return self._with_file([path for path, wanted in files.items() if wanted is None])

    def _with_file(self, paths: Iterable[str]) -> list[Manager]:
        """Return the managers at work that read one of these files."""
        kinds = [kind(self.run, self.root) for kind in _ALL]
        theirs = [one for one in kinds if any(Path(path).match(pattern) for path in paths for pattern in one.patterns)]
        return [one for one in theirs if one.present()]

    def _has_file(self, manager: Manager, rail: HostRail) -> bool:
        """Return whether a manager's file of a rail is there and names it: the first, where it has more than one."""
        first = read(self._at(next(iter(manager.files([rail])))))
        return bool(re.search(rf"(?<![\w.-]){re.escape(rail.netdev)}(?![\w.-])", first))

    def _drop_rule(self, rail: HostRail) -> None:
        """Remove rules of the rail's table, of `ip` or an earlier address: a manager sets its own, and keeps others."""
        rule = ["lookup", str(rail.table), "priority", str(rail.table)]
        for _ in range(8 if rail.gateway else 0):
            if self.run(["ip", "rule", "del", *rule]).returncode != 0:
                return

    def _settled(self, chosen: Manager, rails: Sequence[HostRail]) -> None:
        """Wait until the rails are as wanted. Raises NodeProblem."""
        deadline = time.monotonic() + self.settle_s
        while left := self._unheld(chosen, rails):
            if time.monotonic() >= deadline:
                step = (
                    f"Read the journal of {chosen.name} on the node; docs/howto/rail-addresses.md says what it reads."
                )
                raise NodeProblem(words(left, "expected"), words(left, "actual"), step)
            self.pause(0.5)

    def _started(self, *argv: str) -> tuple[int, str]:
        done = self.run(argv)
        return done.returncode, done.out

    def _at(self, path: str) -> Path:
        return self.root / path.lstrip("/")


_CHOOSE = "Set fabric.address_manager in the site file, or stop the manager that is not to set them."
_BACK = "The earlier files are in place again."
_WAY_IN = "Attach the journal of the network manager to a report."


def _kept(path: Path) -> tuple[str, int] | None:
    return (path.read_text(encoding="utf-8"), path.stat().st_mode & 0o7777) if path.is_file() else None


def _same(path: Path, wanted: tuple[str, int] | None) -> bool:
    return _kept(path) == wanted

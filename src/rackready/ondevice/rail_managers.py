"""Network managers of a node, each with its files for the rails, and the way in which it takes them over.

Each configures rails alone. `netplan apply` is never used: it rebinds the driver of interfaces that are down
(netplan-apply(8)), and `netplan generate` writes every file anew, so that the next `networkctl reload` configures the
management interface again (seen with netplan 0.106 and systemd 252). So netplan generates into a folder of its own, and
the files of the rails alone are taken from there; the next boot generates the same. Each `systemctl daemon-reload` also
runs netplan's generator (systemd.generator(7)): after it the reload here is that next one.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from . import rail_files
from .command import NodeProblem, Run
from .rail_claims import Card, Claim, interfaces_files, of_ifupdown, of_networkd, of_profiles, read
from .rail_files import Files, HostRail
from .whole_file import replace_file

_FOLDERS = ("etc/systemd/network", "run/systemd/network", "usr/local/lib/systemd/network", "usr/lib/systemd/network")
"""Folders of .network files, by precedence (systemd.network(5))."""
_YAML = ("etc/netplan", "run/netplan", "lib/netplan")


@dataclass
class Manager:
    """A network manager; ``root`` is the start of the file system (tests)."""

    run: Run
    root: Path = Path("/")
    name: ClassVar[str] = ""
    patterns: ClassVar[Sequence[str]] = ()
    """Patterns of the files that rackready writes for it."""

    def present(self) -> bool:
        """Return whether it runs on this node, or has an interface to configure."""
        raise NotImplementedError

    def manages(self, netdev: str) -> bool:
        """Return whether it configures an interface now."""
        raise NotImplementedError

    def files(self, rails: Sequence[HostRail]) -> Files:
        """Return the files of the rails."""
        raise NotImplementedError

    def refuse_unread(self) -> None:
        """Raise NodeProblem where it would not read rackready's files."""

    def refuse_files(self, files: Files) -> None:
        """Raise NodeProblem where it would not accept rackready's files. Nothing is written."""

    def claims(self, card: Card, *, ours: bool = True) -> list[Claim]:
        """Return what others told it about a rail, without what rackready's own files precede.

        ``ours``: it has rackready's files. Then a file that only names the interface, as MAAS writes one for each
        card, is none. Without them such a file makes it manage the rail, and remove addresses of another manager.
        """
        raise NotImplementedError

    def release(self, rails: Sequence[HostRail]) -> None:
        """Let go of rails before their files change."""

    def apply(self, rails: Sequence[HostRail]) -> None:
        """Take over rails whose files are written. Raises NodeProblem."""

    def again(self, rails: Sequence[HostRail]) -> None:
        """Read all files again, as an administrator's reload does. Raises NodeProblem."""

    def holder(self, rail: HostRail) -> str:
        """Return the file or profile by which it holds a rail now, empty for none."""
        raise NotImplementedError

    def wanted_holder(self, rail: HostRail) -> str:
        """Return the holder that rackready's files lead to."""
        raise NotImplementedError

    def _do(self, *argv: str) -> str:
        done = self.run(argv)
        if done.returncode != 0:
            said = " ".join(done.out.split())[:300] or "no output"
            step = f"Run `{' '.join(argv)}` on the node and read its output."
            raise NodeProblem(f"`{' '.join(argv)}` succeeds", f"exit {done.returncode}: {said}", step)
        return done.out

    def _active(self, unit: str) -> bool:
        return self.run(["systemctl", "is-active", "--quiet", unit]).returncode == 0


class Networkd(Manager):
    """systemd-networkd, with .network files of its own."""

    name = "networkd"
    patterns = (rail_files.NETWORKD.format("*"),)

    def present(self) -> bool:
        """Return whether the service runs."""
        return self._active("systemd-networkd.service")

    def manages(self, netdev: str) -> bool:
        """Return whether it has a file for an interface."""
        return bool(self._file(netdev))

    def files(self, rails: Sequence[HostRail]) -> Files:
        """Return a file for each rail."""
        return rail_files.networkd(rails)

    def claims(self, card: Card, *, ours: bool = True) -> list[Claim]:
        """Return files that name the interface, and files that networkd looks at before rackready's."""
        return self._counting([self.root / folder for folder in _FOLDERS], card, ours=ours)

    def apply(self, rails: Sequence[HostRail]) -> None:
        """Read the files and configure the rails."""
        self.again(rails)
        for rail in rails:
            self._do("networkctl", "reconfigure", rail.netdev)

    def again(self, rails: Sequence[HostRail]) -> None:  # noqa: ARG002 - a reload is of all
        """Reload."""
        self._do("networkctl", "reload")

    def holder(self, rail: HostRail) -> str:
        """Return the .network file in force."""
        return self._file(rail.netdev)

    def wanted_holder(self, rail: HostRail) -> str:
        """Return the path of rackready's file."""
        return rail_files.NETWORKD.format(rail.netdev)

    def _counting(self, folders: Sequence[Path], card: Card, *, ours: bool) -> list[Claim]:
        own = Path(self.wanted_holder(card.rail)).name
        found = of_networkd(folders, card, own)
        return [one for one in found if one.place.name < own or (one.exact and not (ours and one.empty))]

    def _file(self, netdev: str) -> str:
        found = re.search(r"^\s*Network File: (/\S+)", self.run([*_STATUS, netdev]).out, re.MULTILINE)
        return found[1] if found else ""


_STATUS = ["networkctl", "--no-pager", "--full", "status"]


class NetworkManager(Manager):
    """NetworkManager, with keyfiles."""

    name = "networkmanager"
    patterns = (rail_files.PROFILE.format("*"), rail_files.DEVICES)

    def present(self) -> bool:
        """Return whether the service runs."""
        return self._active("NetworkManager.service")

    def manages(self, netdev: str) -> bool:
        """Return whether a profile is active on an interface, and not one that only shows what others did."""
        state = self._field("GENERAL.STATE", netdev)
        return bool(self._field("GENERAL.CONNECTION", netdev)) and "externally" not in state

    def files(self, rails: Sequence[HostRail]) -> Files:
        """Return a profile for each rail, and the settings of the devices."""
        return {**rail_files.profiles(rails), **rail_files.devices(rails)}

    def claims(self, card: Card, *, ours: bool = True) -> list[Claim]:
        """Return profiles that name the interface; rackready's profiles go before all others by their priority."""
        lines = self._do("nmcli", "--terse", "--fields", "FILENAME", "connection", "show").splitlines()
        paths = [self.root / line.replace("\\:", ":").lstrip("/") for line in lines if line.startswith("/")]
        own = Path(rail_files.PROFILE.format(card.rail.netdev)).name
        found = of_profiles([path for path in paths if path.name != own], card)
        return [one for one in found if one.exact and not (ours and one.empty)]

    def apply(self, rails: Sequence[HostRail]) -> None:
        """Load the profiles, then the settings of the devices, then start the profiles.

        A device that becomes managed without a profile would ask for an address by DHCP.
        """
        if not rails:
            self.again(rails)
        for rail in rails:
            self._do("nmcli", "connection", "load", rail_files.PROFILE.format(rail.netdev))
        self._do("nmcli", "general", "reload", "conf")
        for rail in rails:
            name = self.wanted_holder(rail)
            self._do("nmcli", "--wait", "30", "connection", "up", "id", name, "ifname", rail.netdev)

    def again(self, rails: Sequence[HostRail]) -> None:  # noqa: ARG002 - a reload is of all
        """Reload the profiles."""
        self._do("nmcli", "connection", "reload")

    def holder(self, rail: HostRail) -> str:
        """Return the name of the active profile."""
        return self._field("GENERAL.CONNECTION", rail.netdev)

    def wanted_holder(self, rail: HostRail) -> str:
        """Return the name of rackready's profile."""
        return rail_files.PROFILE_ID.format(rail.netdev)

    def _field(self, field: str, netdev: str) -> str:
        done = self.run(["nmcli", "--get-values", field, "device", "show", netdev])
        return done.out.strip() if done.returncode == 0 else ""


class Netplan(Networkd):
    """netplan with systemd-networkd as its renderer.

    Where it renders for NetworkManager, rackready writes keyfiles: netplan 0.106 leaves routing-policy out of its own.
    """

    name = "netplan"
    patterns = (rail_files.NETPLAN,)

    def files(self, rails: Sequence[HostRail]) -> Files:
        """Return one netplan file."""
        return rail_files.netplan(rails)

    def claims(self, card: Card, *, ours: bool = True) -> list[Claim]:
        """Return claims of .network files, of those that netplan would generate now in place of those in /run."""
        with tempfile.TemporaryDirectory(prefix="rackready-netplan-") as name:
            into = Path(name)
            self._generate(into, without=rail_files.NETPLAN)
            folders = [into / folder if folder.startswith("run/") else self.root / folder for folder in _FOLDERS]
            return [self._named(into, claim) for claim in self._counting(folders, card, ours=ours)]

    def refuse_files(self, files: Files) -> None:
        """Raise NodeProblem where netplan refuses a file: with one that it refuses, a boot has no network at all."""
        with tempfile.TemporaryDirectory(prefix="rackready-netplan-") as name:
            self._generate(Path(name), without=rail_files.NETPLAN, extra=files)

    def apply(self, rails: Sequence[HostRail]) -> None:
        """Generate the files of the rails, then as networkd."""
        pattern = f"run/systemd/network/10-netplan-{rail_files.NETPLAN_ID.format('*')}.*"
        with tempfile.TemporaryDirectory(prefix="rackready-netplan-") as name:
            into = Path(name)
            self._generate(into)
            fresh = {path.relative_to(into): path.read_text(encoding="utf-8") for path in into.glob(pattern)}
        for path in self.root.glob(pattern):
            if path.relative_to(self.root) not in fresh:
                path.unlink()
        for place, text in fresh.items():
            (self.root / place).parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.root / place, text)
        super().apply(rails)

    def wanted_holder(self, rail: HostRail) -> str:
        """Return the file that netplan generates."""
        return f"/run/systemd/network/10-netplan-{rail_files.NETPLAN_ID.format(rail.netdev)}.network"

    def _generate(self, into: Path, *, without: str = "", extra: Files | None = None) -> None:
        """Generate networkd's files of all definitions below ``into``: the node's, less ``without``, and ``extra``.

        Raises NodeProblem with netplan's words.
        """
        for folder in _YAML:
            if (self.root / folder).is_dir() and not (into / folder).exists():
                shutil.copytree(self.root / folder, into / folder)
        if without:
            (into / without.lstrip("/")).unlink(missing_ok=True)
        for path, (text, mode) in (extra or {}).items():
            (into / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            replace_file(into / path.lstrip("/"), text, mode=mode)
        done = self.run(["netplan", "generate", "--root-dir", str(into)])
        if done.returncode != 0:
            said = " ".join(done.out.replace(str(into), "").split())[:400]
            step = _OLD if rail_files.NETPLAN in said else _CORRECT
            raise NodeProblem("netplan files that netplan accepts", said or f"exit {done.returncode}", step)

    def _named(self, into: Path, claim: Claim) -> Claim:
        """Return the claim of a generated file under the name of the netplan file that has its definition."""
        if into not in claim.place.parents:
            return claim
        line = re.compile(rf"(?<![\w.-]){re.escape(claim.place.stem.partition('10-netplan-')[2])}[\"']?\s*:")
        files = [path for folder in _YAML for path in sorted((self.root / folder).glob("*.yaml"))]
        files = [path for path in files if path.name != Path(rail_files.NETPLAN).name]
        here = [path for path in files if line.search(read(path))]
        return Claim(here[-1] if here else self.root / _YAML[0], claim.addresses, claim.other, claim.exact)


_CORRECT = "Correct the file that `netplan generate` names on the node, then run again."
_OLD = "Update netplan on the node, or set fabric.address_manager: none in the site file."
"""Next step where netplan refuses rackready's file: its words are those of 0.106 (rail_files.py)."""


class Ifupdown(Manager):
    """Debian's ifupdown: programs without a service, which nothing asks again after a change by hand."""

    name = "ifupdown"
    patterns = (rail_files.STANZAS,)

    def present(self) -> bool:
        """Return whether it has an interface besides the loopback, and its program is there."""
        text = "".join(read(path) for path in interfaces_files(self.root) if path.name != Path(rail_files.STANZAS).name)
        others = [name for name in re.findall(r"^\s*iface\s+(\S+)", text, re.MULTILINE) if name != "lo"]
        return bool(others) and self.run(["ifquery", "--list", "--all"]).returncode == 0

    def manages(self, netdev: str) -> bool:
        """Return whether it has a stanza of an interface."""
        text = "".join(read(path) for path in interfaces_files(self.root))
        return bool(re.search(rf"^\s*iface\s+{re.escape(netdev)}\s", text, re.MULTILINE))

    def files(self, rails: Sequence[HostRail]) -> Files:
        """Return one file of stanzas."""
        return rail_files.stanzas(rails)

    def refuse_unread(self) -> None:
        """Raise NodeProblem where /etc/network/interfaces does not include the folder of rackready's file."""
        first = self.root / "etc/network/interfaces"
        if not re.search(r"^\s*source(-directory)?\s+\S*interfaces\.d(/\*)?/?\s*$", read(first), re.MULTILINE):
            step = "Add `source /etc/network/interfaces.d/*` to it, then run again."
            raise NodeProblem("/etc/network/interfaces that includes interfaces.d", "it does not", step)

    def claims(self, card: Card, *, ours: bool = True) -> list[Claim]:  # noqa: ARG002 - no stanza is empty
        """Return other stanzas of the interface: ifupdown would apply both."""
        return of_ifupdown(self.root, card, str(self.root / rail_files.STANZAS.lstrip("/")))

    def release(self, rails: Sequence[HostRail]) -> None:
        """Take rails down by the stanzas that they still have; also ends what was set by hand."""
        for rail in rails:
            self.run(["systemctl", "stop", f"ifup@{rail.netdev}.service"])
            self.run(["ifdown", "--force", rail.netdev])

    def apply(self, rails: Sequence[HostRail]) -> None:
        """Bring rails up, by the unit that ends with the device, so that a reset starts anew.

        A container has no units of devices (systemd, unit type device).
        """
        self.release(rails)
        for rail in rails:
            if self._active(f"sys-subsystem-net-devices-{rail.netdev}.device"):
                self._do("systemctl", "start", f"ifup@{rail.netdev}.service")
            else:
                self._do("ifup", rail.netdev)

    def again(self, rails: Sequence[HostRail]) -> None:
        """Bring up what is not up, as networking.service does at boot."""
        for rail in rails:
            self._do("ifup", rail.netdev)

    def holder(self, rail: HostRail) -> str:
        """Return the interface if ifupdown has it up."""
        return self.run(["ifquery", "--state", rail.netdev]).out.strip()

    def wanted_holder(self, rail: HostRail) -> str:
        """Return the line of `ifquery --state`."""
        return f"{rail.netdev}={rail.netdev}"

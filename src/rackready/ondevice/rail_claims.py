"""Configuration of others for a rail: what network managers were told about its interface, by which file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from .rail_files import HostRail


@dataclass(frozen=True)
class Card:
    """A rail's interface as the kernel and udev know it."""

    rail: HostRail
    mac: str = ""


@dataclass(frozen=True)
class Claim:
    """One file's configuration of an interface. ``exact``: it names this interface, not a pattern of several."""

    place: Path
    addresses: Sequence[str]
    other: str = ""
    exact: bool = True

    @property
    def empty(self) -> bool:
        """Return whether it gives the interface nothing of what a rail has, a name or an MTU at most."""
        return not self.addresses and not self.other

    def same(self, rail: HostRail) -> bool:
        """Return whether it gives the interface what it is to have, as far as addresses go."""
        return not self.other and set(self.addresses) == {rail.address}

    def __str__(self) -> str:
        """Return it for messages."""
        said = [text for text in (", ".join(self.addresses), self.other) if text]
        return f"{self.place}: {' and '.join(said) or 'no address'}"


def ini(text: str) -> list[tuple[str, str, str]]:
    """Return the entries of an INI file in order; sections and keys may repeat."""
    section, out = "", []
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif "=" in line and line[0] not in "#;":
            key, _, value = line.partition("=")
            out.append((section, key.strip(), value.strip()))
    return out


def values(entries: Sequence[tuple[str, str, str]], section: str, key: str) -> list[str]:
    """Return the values of a key, in order."""
    return [value for where, name, value in entries if (where, name) == (section, key)]


def of_networkd(folders: Sequence[Path], card: Card, ours: str) -> list[Claim]:
    """Return the claims of .network files, in the order in which networkd looks at them, without ``ours``.

    A file of an earlier folder replaces one of the same name in a later one, and an empty one masks it
    (systemd.network(5)).
    """
    files: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.network")):
            files.setdefault(path.name, path)
    claims = []
    for name in sorted(files):
        text = read(files[name])
        entries = ini(text)
        if name == ours or not entries:
            continue
        exact = _matches(entries, card)
        if exact is not None:
            claims.append(_network_claim(files[name], entries, exact=exact))
    return claims


def _matches(entries: Sequence[tuple[str, str, str]], card: Card) -> bool | None:
    """Return None when [Match] leaves the interface out, else whether it names it; unknown keys may match."""
    exact = False
    for where, key, value in entries:
        words = value.split()
        if where != "Match" or not words:
            continue
        if key in {"MACAddress", "PermanentMACAddress"}:
            if card.mac not in [word.lower().replace("-", ":") for word in words]:
                return None
            exact = True
        known = {"Name": card.rail.netdev, "Path": card.rail.path, "Type": "ether"}.get(key)
        if known is not None:
            inverted, words = words[0].startswith("!"), [word.lstrip("!") for word in words]
            if any(fnmatchcase(known, word) for word in words) == inverted:
                return None
            exact = exact or (key != "Type" and not inverted and known in words)
    return exact


def _network_claim(path: Path, entries: Sequence[tuple[str, str, str]], *, exact: bool) -> Claim:
    addresses = values(entries, "Network", "Address") + values(entries, "Address", "Address")
    dhcp = [value for value in values(entries, "Network", "DHCP") if value.lower() not in {"no", "false", "0", "none"}]
    out = [f"DHCP={dhcp[-1]}"] if dhcp else []
    out += ["Unmanaged=yes"] if values(entries, "Link", "Unmanaged")[-1:] in (["yes"], ["true"], ["1"]) else []
    for key in ("Bond", "Bridge", "VRF", "Gateway", "VLAN", "MACVLAN", "IPVLAN", "VXLAN", "Tunnel", "DNS"):
        out += [f"{key}={value}" for value in values(entries, "Network", key)]
    return Claim(path, addresses, " and ".join(out), exact)


def of_profiles(paths: Sequence[Path], card: Card) -> list[Claim]:
    """Return the claims of NetworkManager's profiles: keyfiles, and ifcfg files of RHEL 8 and older.

    Profiles that NetworkManager made by itself, and those that it does not start by itself, are none.
    """
    claims = [_ifcfg(path, card) if path.name.startswith("ifcfg-") else _keyfile(path, card) for path in paths]
    return [claim for claim in claims if claim is not None]


def _keyfile(path: Path, card: Card) -> Claim | None:
    entries = ini(read(path))
    name = values(entries, "connection", "interface-name")
    mac = [value.lower() for value in values(entries, "ethernet", "mac-address")]
    globs = [
        word for value in values(entries, "match", "interface-name") for word in re.split(r"[;\s]+", value) if word
    ]
    named = card.rail.netdev in name or (bool(card.mac) and card.mac in mac)
    if not named and (name or mac or (globs and not any(fnmatchcase(card.rail.netdev, word) for word in globs))):
        return None
    own = "true" in values(entries, ".nmmeta", "nm-generated")
    if own or "false" in values(entries, "connection", "autoconnect") or not entries:
        return None
    if not named and not set(values(entries, "connection", "type")) & {"ethernet", "802-3-ethernet"}:
        return None
    addresses = [value.split(",")[0] for at, key, value in entries if at == "ipv4" and re.fullmatch(r"address\d*", key)]
    method = "".join(values(entries, "ipv4", "method"))
    upper = values(entries, "connection", "master") + values(entries, "connection", "controller")
    asks = f"method={method}" if method in {"shared", "link-local"} else ""
    asks = "DHCP" if method == "auto" or not (method or addresses) else asks  # libnm: auto without [ipv4]
    return Claim(path, addresses, f"part of {upper[0]}" if upper else asks, named)


def _ifcfg(path: Path, card: Card) -> Claim | None:
    pairs = dict(re.findall(r"^\s*(\w+)=[\"']?([^\"'\n]*)", read(path), re.MULTILINE))
    if card.rail.netdev != pairs.get("DEVICE") and (not card.mac or card.mac != pairs.get("HWADDR", "").lower()):
        return None
    if pairs.get("ONBOOT", "yes").lower() == "no":
        return None
    found = [pairs[key] for key in ("IPADDR", "IPADDR0") if pairs.get(key)]
    address = f"{found[0]}/{pairs.get('PREFIX') or pairs.get('PREFIX0', '')}" if found else ""
    dhcp = "DHCP" if pairs.get("BOOTPROTO", "").lower() in {"dhcp", "bootp"} else ""
    upper = [pairs[key] for key in ("MASTER", "TEAM_MASTER", "BRIDGE") if pairs.get(key)]
    return Claim(path, [address] if address else [], f"part of {upper[0]}" if upper else dhcp)


def of_ifupdown(root: Path, card: Card, ours: str) -> list[Claim]:
    """Return the stanzas of the interface in /etc/network/interfaces and what it includes, but for ``ours``."""
    claims = []
    for path in interfaces_files(root):
        if str(path) == ours:
            continue
        for block in re.split(r"^(?=\s*(?:iface|auto|allow-|source|mapping))", read(path), flags=re.MULTILINE):
            head = re.match(rf"\s*iface\s+{re.escape(card.rail.netdev)}\s+inet\s+(\S+)", block)
            if head:
                addresses = re.findall(r"^\s+address\s+(\S+)", block, re.MULTILINE)
                claims.append(Claim(path, addresses, "a second stanza" if head[1] == "static" else head[1]))
    return claims


def interfaces_files(root: Path) -> list[Path]:
    """Return /etc/network/interfaces and the files that it includes (interfaces(5): source, source-directory)."""
    first = root / "etc/network/interfaces"
    return [first, *_included(root, first, read(first))] if first.is_file() else []


def _included(root: Path, first: Path, text: str) -> Iterator[Path]:
    for kind, pattern in re.findall(r"^\s*(source|source-directory)\s+(\S+)", text, re.MULTILINE):
        place = pattern if pattern.startswith("/") else f"{first.parent}/{pattern}"
        inside = f"{place}/*" if kind == "source-directory" else place
        for path in sorted(root.glob(inside.lstrip("/"))):
            if path.is_file() and (kind == "source" or re.fullmatch(r"[A-Za-z0-9_-]+", path.name)):
                yield path


def read(path: Path) -> str:
    """Return a file's text, empty when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

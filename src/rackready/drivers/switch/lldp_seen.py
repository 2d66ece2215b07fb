"""What devices report by LLDP, as links between the site's ports: names resolved, other ports left out. Pure.

Agents name themselves differently: by system name or FQDN, by chassis id, a NIC's firmware by the MAC address of its
port only (mlx5, `LLDP_NB_TX_MODE_P1`), and a port by interface name, MAC address or alias.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rackready.drivers.cabling_check.types import End, PlannedCable, Seen, Sighting
from rackready.drivers.switch.base import Neighbour


@dataclass(frozen=True, slots=True)
class Told:
    """What one device reports. ``trouble``: why it reports nothing; empty if it was read."""

    device: str
    ports: Mapping[str, Sequence[Neighbour]] = field(default_factory=dict)
    known_as: Collection[str] = ()
    """Names and chassis ids that it sends, beside its name in the site."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """MAC address -> its port."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Name of a port in LLDP -> its name in the site, where they differ."""
    rates: Mapping[str, int] = field(default_factory=dict)
    """Port -> rate of its link, Gb/s; 0: unknown."""
    port_names: bool = True
    """Whether what others hear of its ports is a name of the site, after ``aliases``."""
    trouble: str = ""


def seen_of(told: Iterable[Told], cables: Iterable[PlannedCable]) -> Seen:
    """Return the links at planned ports, and at other ports if a planned NIC is at their far end."""
    return _Resolver(list(told), list(cables)).seen()


def unnamed_of(told: Iterable[Told], cables: Iterable[PlannedCable]) -> dict[End, End]:
    """Return port -> what it hears, where that is a port of a switch whose names of ports were not read.

    Such a port may be the planned one, under another name: nothing can be said about its cable.
    """
    read = list(told)
    return {} if all(one.port_names for one in read) else _Resolver(read, list(cables)).unnamed()


class _Resolver:
    """Names of LLDP to names of the site."""

    def __init__(self, told: list[Told], cables: list[PlannedCable]) -> None:
        self._told = told
        self._ports = {end.end for cable in cables for end in (cable.a, cable.b)}
        self._devices = {end.device for end in self._ports}
        self._nics = {cable.a.end for cable in cables} - {cable.b.end for cable in cables}
        self._known = _owners(told)
        self._macs = {mac.lower(): End(one.device, port) for one in told for mac, port in one.addresses.items()}
        self._aliases = {one.device: one.aliases for one in told}
        self._rates = {End(one.device, port): rate for one in told for port, rate in one.rates.items()}
        self._nameless = {one.device for one in told if not one.port_names}
        self._foreign: dict[str, str] = {}

    def unnamed(self) -> dict[End, End]:
        if not self._nameless:
            return {}
        found: dict[End, End] = {}
        for one in self._told:
            for port, neighbours in sorted(one.ports.items()):
                if End(one.device, port) in self._ports:
                    unknown = [remote for remote in map(self._remote, neighbours) if self._is_unnamed(remote)]
                    found |= {End(one.device, port): remote for remote in unknown}
        return found

    def _is_unnamed(self, remote: End) -> bool:
        return remote.device in self._nameless and remote not in self._ports

    def seen(self) -> Seen:
        sightings = []
        for one in self._told:
            for port, neighbours in sorted(one.ports.items()):
                local = End(one.device, port)
                for neighbour in neighbours:
                    remote = self._remote(neighbour)
                    if local in self._ports or remote in self._nics:
                        rate = self._rates.get(local, 0) or self._rates.get(remote, 0)
                        sightings.append(Sighting(local, remote, rate))
                        self._describe(remote, neighbour)
        read = frozenset(one.device for one in self._told if not one.trouble)
        unknown = frozenset(self.unnamed())
        return Seen(read, tuple(_current(dict.fromkeys(sightings))), unknown, self._foreign)

    def _remote(self, neighbour: Neighbour) -> End:
        by_port = self._macs.get(neighbour.port.lower())
        if by_port is not None:
            return by_port
        device = self._device(neighbour)
        return End(device, self._aliases.get(device, {}).get(neighbour.port, neighbour.port))

    def _device(self, neighbour: Neighbour) -> str:
        """Return the device in the site: by what only that device sends, else by its name; else as it calls itself."""
        owner = self._known.get(neighbour.chassis.lower()) or self._known.get(neighbour.system.lower())
        if owner:
            return owner
        for name in (neighbour.system, neighbour.system.partition(".")[0]):
            if name in self._devices:
                return name
        return neighbour.system or neighbour.chassis

    def _describe(self, remote: End, neighbour: Neighbour) -> None:
        if remote.device not in self._devices:
            said = f", port {neighbour.description}" if neighbour.description not in {"", remote.port} else ""
            self._foreign[remote.device] = f"chassis {neighbour.chassis or 'unknown'}{said}"


def _current(sightings: Iterable[Sighting]) -> list[Sighting]:
    """Return the sightings without neighbours that are gone: an agent keeps one until its time to live ends.

    Of several neighbours of a port, those are gone whose port hears others and no more this one, if one is left that
    hears it. A cable that was moved would be two minutes of contradiction otherwise.
    """
    every = list(sightings)
    heard: dict[End, set[End]] = {}
    for one in every:
        heard.setdefault(one.local, set()).add(one.remote)
    out = []
    for one in every:
        mutual = {remote for remote in heard[one.local] if one.local in heard.get(remote, ())}
        gone = one.remote not in mutual and one.remote in heard
        if not (mutual and gone):
            out.append(one)
    return out


def _owners(told: Iterable[Told]) -> dict[str, str]:
    """Return name or chassis id -> device. What several devices send, such as a default host name, is left out."""
    owners: dict[str, set[str]] = {}
    for one in told:
        for known in one.known_as:
            owners.setdefault(known.lower(), set()).add(one.device)
    return {known: devices.pop() for known, devices in owners.items() if len(devices) == 1}

"""Host keys that are not the pinned ones: what a host shows now, what is pinned, and which machine its BMC answers for; then pinning what was accepted."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from rackready.drivers import ssh
from rackready.drivers.hostkeys import SCHEDULER, known_name, shown_key
from rackready.drivers.redfish import Bmc, BmcError
from rackready.ledger.effect import Observation, run_effect
from rackready.ledger.store import Ledger
from rackready.model.problems import RackreadyError
from rackready.model.site import Node, Site, SlurmHandover
from rackready.paths import EnvPaths

HOST_KEY = "host-key"
"""Operation under which a pin that replaces another, or that an operator accepted, is recorded."""

for _name in ("paramiko", "sushy"):  # what fails is said in our own words; they would say it a second time
    logging.getLogger(_name).setLevel(logging.CRITICAL)

_AT_ONCE = 32
"""Hosts asked side by side: each costs a thread that waits. As many as nodes of one rack that provisioning works on."""


class HostKeyRefusedError(RackreadyError):
    """A host key may not be accepted."""


@dataclass(frozen=True, slots=True)
class Place:
    """One host of a site: ``kind`` is node, switch or scheduler."""

    name: str
    kind: str
    address: str
    port: int
    node: Node | None = None

    @property
    def known(self) -> str:
        """Its name in known_hosts."""
        return known_name(self.address, self.port)


@dataclass(frozen=True, slots=True)
class Shown:
    """What is known of a host's key. Keys are "kind base64", "" when there is none.

    ``serial``: what its BMC answers, ``wanted``: what the site file says, ``bmc``: why the BMC could not be asked;
    ``trouble``: why no key may be accepted.
    """

    place: Place
    pinned: str = ""
    shown: str = ""
    serial: str = ""
    wanted: str = ""
    bmc: str = ""
    trouble: str = ""

    @property
    def differs(self) -> bool:
        """Whether there is a key to accept."""
        return not self.trouble and self.shown != self.pinned

    def unproven(self) -> str:
        """Return why the key may be accepted by a person alone, not by ``--yes``; empty when it may."""
        if not self.bmc:
            return ""
        expected = f"serial {self.wanted}" if self.wanted else "the serial of its chassis"
        step = (
            "--yes accepts no key without it: mend the BMC, or compare the fingerprint on the node's console and "
            "accept it at a terminal."
        )
        return f"{self.place.name}: its BMC - Expected: {expected} Actual: {self.bmc.rstrip('.')}. {step}"


def places(site: Site, wanted: Sequence[str], *, leave_out: Iterable[str] = ()) -> list[Place]:
    """Return the hosts of these names; of no names, every host of the site but those to leave out. Raises HostKeyRefusedError for a name that it has not."""
    found = [Place(node.name, "node", str(node.address), site.access.port, node) for node in site.nodes()]
    found += [Place(switch.name, "switch", str(switch.address), switch.port) for switch in site.switches]
    if isinstance(site.handover, SlurmHandover):
        found.append(Place(SCHEDULER, "scheduler", str(site.handover.controller), site.handover.port))
    known = {place.name: place for place in reversed(found)}  # a node of that name goes before the scheduler
    if unknown := [name for name in wanted if name not in known]:
        message = (
            f"{', '.join(unknown)} - Expected: some of {', '.join(reversed(known))} Actual: no such host. "
            "Correct the name."
        )
        raise HostKeyRefusedError(message)
    left = set(leave_out)
    return (
        [known[name] for name in dict.fromkeys(wanted)]
        if wanted
        else [place for place in found if place.name not in left]
    )


def look(paths: EnvPaths, hosts: Sequence[Place]) -> list[Shown]:
    """Return what each host shows, in the same order. Nobody logs in, and nothing is written."""
    with ThreadPoolExecutor(max_workers=max(1, min(_AT_ONCE, len(hosts))), thread_name_prefix="hostkey") as pool:
        return list(pool.map(lambda place: _look(paths, place), hosts))


def _look(paths: EnvPaths, place: Place) -> Shown:
    before = ssh.pinned(paths.known_hosts, place.known)
    try:
        found = Shown(place, before, shown_key(place.address, place.port, place.name, expected=before))
    except RackreadyError as error:
        return Shown(place, before, trouble=str(error))
    return _with_bmc(found, place.node) if place.node is not None and found.differs else found


def _with_bmc(found: Shown, node: Node) -> Shown:
    """Ask the node's BMC whose machine it is. One that answers for another machine stops it: then the address may lead to another one, too."""
    site = node.bmc.known()
    if site is None or node.serial is None:
        return replace(found, wanted=node.serial or "", bmc="not known yet: the manifest is not imported")
    try:
        with Bmc(node.name, site) as bmc:
            serial = bmc.identify().serial
    except BmcError as error:
        return replace(found, wanted=node.serial, bmc=str(error))
    if serial == node.serial:
        return replace(found, serial=serial, wanted=node.serial)
    step = (
        f"No key was accepted: correct serial or bmc.address of {node.name} in the site file, or the cabling of its "
        "BMC."
    )
    text = (
        f"{bmc.where}: answers for another machine - Expected: serial {node.serial} Actual: {serial or 'none'}. {step}"
    )
    return replace(found, serial=serial, wanted=node.serial, trouble=text)


def accept(paths: EnvPaths, ledger: Ledger, found: Shown) -> str:
    """Pin the key that a host showed, in place of any other; recorded in the ledger. Returns what was done. Call it only while holding the controller lock."""
    place = found.place
    run_effect(
        ledger,
        place.name,
        HOST_KEY,
        hashlib.sha256(found.shown.encode()).hexdigest(),
        before=lambda: {"pinned": named(found.pinned), "shown": named(found.shown), "serial": found.serial},
        observe=lambda _stored: (
            Observation.HAPPENED
            if ssh.pinned(paths.known_hosts, place.known) == found.shown
            else Observation.NOT_HAPPENED
        ),
        act=lambda _token: _pin(paths, found),
    )
    return f"{place.name}: pinned {named(found.shown)}" + (
        f" in place of {named(found.pinned)}" if found.pinned else ""
    )


def _pin(paths: EnvPaths, found: Shown) -> dict[str, object]:
    ssh.pin(paths.known_hosts, found.place.known, found.shown)
    return {"pinned": named(found.shown)}


def named(key: str) -> str:
    """Return a key's fingerprint, "none" for no key."""
    return ssh.fingerprint(key) if key else "none"

"""Acceptance of new host keys: the shown key, the pinned key, the serial from the BMC, and the pin itself."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from rackready.design.handover_of import handover_views
from rackready.drivers.redfish import Bmc
from rackready.drivers.redfish_errors import BmcError, BmcIdentityError
from rackready.drivers.ssh.first_contact import shown_key
from rackready.drivers.ssh.pins import fingerprint, pin, pinned
from rackready.drivers.ssh.target import SCHEDULER, SshTarget, jump_target, node_target, slurm_target, switch_target
from rackready.ledger.effect import Observation, run_effect
from rackready.ledger.store import Ledger
from rackready.model.near import hosts_among
from rackready.model.problems import RackreadyError, quoted
from rackready.model.serials import wanted_text
from rackready.model.site import Node, Site, SlurmHandover
from rackready.paths import EnvPaths

HOST_KEY = "host-key"
"""The ledger's operation for a pin that replaces another, or that an operator accepted."""

logging.getLogger("sushy").setLevel(logging.CRITICAL)  # our errors name the cause; sushy would print it again

_AT_ONCE = 32
"""Hosts read at a time, a waiting thread each: as many as provisioning works on in one rack."""


class HostKeyRefusedError(RackreadyError):
    """A host key may not be accepted."""


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """One host of a site: ``kind`` is node, switch, scheduler or jump host."""

    kind: str
    target: SshTarget
    node: Node | None = None

    @property
    def name(self) -> str:
        """Its name in `rackready hostkey accept`."""
        return self.target.accept_name

    @property
    def address(self) -> str:
        """The address at which its SSH answers."""
        return self.target.address

    @property
    def port(self) -> int:
        """The port at which its SSH answers."""
        return self.target.port

    def pinned(self) -> str:
        """Return its pinned key, "" when there is none."""
        return pinned(self.target.known_hosts, self.target.host)


@dataclass(frozen=True, slots=True)
class Shown:
    """A host's pinned and shown key, as "kind base64", "" when there is none.

    ``serial``: from its BMC; ``wanted``: from the site file; ``bmc``: why the BMC could not be read; ``trouble``: why
    no key may be accepted.
    """

    place: KeyPlace
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
        """Return why only a person may accept the key; empty when ``--yes`` may."""
        if not self.bmc:
            return ""
        expected = f"serial {self.wanted}" if self.wanted else "the serial of its chassis"
        step = (
            "--yes accepts no key without it: fix the BMC, or compare the fingerprint on the node's console and "
            "accept it at a terminal."
        )
        return f"{self.place.name}: its BMC - Expected: {expected} Actual: {quoted(self.bmc).rstrip('.')}. {step}"


def places(site: Site, paths: EnvPaths, wanted: Sequence[str], *, leave_out: Iterable[str] = ()) -> list[KeyPlace]:
    """Return the hosts of these names; without names, every host of the site but those to leave out.

    Raises HostKeyRefusedError for a name that the site does not have.
    """
    pins = paths.known_hosts
    found = [KeyPlace("node", node_target(site, node.name, pins), node) for node in site.nodes()]
    found += [KeyPlace("switch", switch_target(switch, pins)) for switch in site.switches]
    for view in handover_views(site):
        if isinstance(view.site.handover, SlurmHandover):
            found.append(KeyPlace(SCHEDULER, slurm_target(view.site.handover, pins)))
    if (jump := jump_target(site, pins)) is not None:
        found.append(KeyPlace("jump host", jump))
    known = {place.name: place for place in reversed(found)}  # a node of that name goes before the others
    if unknown := [name for name in wanted if name not in known]:
        raise HostKeyRefusedError(
            ", ".join(unknown),
            expected=f"some of {hosts_among(reversed(known), *unknown)}",
            actual="no such host",
            next_step="Correct the name.",
        )
    left = set(leave_out)
    return (
        [place for name in dict.fromkeys(wanted) for place in _called(name, found)]
        if wanted
        else [place for place in found if place.name not in left]
    )


def _called(name: str, found: Sequence[KeyPlace]) -> list[KeyPlace]:
    """Return the node of a name, else every host of that name: a site with several schedulers has several."""
    same = [place for place in found if place.name == name]
    return same[:1] if same[0].kind == "node" else same


def look(hosts: Sequence[KeyPlace]) -> list[Shown]:
    """Return the key that each host shows, in the same order, without a login and without writing anything."""
    with ThreadPoolExecutor(max_workers=max(1, min(_AT_ONCE, len(hosts))), thread_name_prefix="hostkey") as pool:
        return list(pool.map(_look, hosts))


def _look(place: KeyPlace) -> Shown:
    before = place.pinned()
    try:
        found = Shown(place, before, shown_key(place.target, expected=before))
    except RackreadyError as error:
        return Shown(place, before, trouble=str(error))
    return _with_bmc(found, place.node) if place.node is not None and found.differs else found


def _with_bmc(found: Shown, node: Node) -> Shown:
    """Add the serial that the node's BMC reports.

    A BMC of another machine stops the acceptance: the in-band address may belong to another machine as well.
    """
    site = node.bmc.known()
    if site is None or node.serial is None:
        return replace(found, wanted=node.serial or "", bmc="not known yet: the manifest is not imported")
    try:
        with Bmc(node.name, site) as bmc:
            bmc.require(node.serial, node.serial_kind)
    except BmcIdentityError as error:
        serials = error.serials
    except BmcError as error:
        return replace(found, wanted=node.serial, bmc=str(error))
    else:
        return replace(found, serial=node.serial, wanted=node.serial)
    step = (
        f"No key was accepted: correct serial or bmc.address of {node.name} in the site file, or the cabling of its "
        "BMC."
    )
    text = (
        f"{bmc.where}: answers for another machine - Expected: {wanted_text(node.serial, node.serial_kind)} "
        f"Actual: {serials}. {step}"
    )
    return replace(found, serial=str(serials), wanted=node.serial, trouble=text)


def accept(ledger: Ledger, found: Shown) -> str:
    """Pin the key that a host showed, in place of any other, record it in the ledger and return a message.

    Call it only while holding the controller lock.
    """
    place = found.place
    run_effect(
        ledger,
        place.name,
        HOST_KEY,
        hashlib.sha256(found.shown.encode()).hexdigest(),
        before=lambda: {"pinned": named(found.pinned), "shown": named(found.shown), "serial": found.serial},
        observe=lambda _stored: Observation.HAPPENED if place.pinned() == found.shown else Observation.NOT_HAPPENED,
        act=lambda _token: _pin(found),
    )
    return f"{place.name}: pinned {named(found.shown)}" + (
        f" in place of {named(found.pinned)}" if found.pinned else ""
    )


def _pin(found: Shown) -> dict[str, object]:
    pin(found.place.target.known_hosts, found.place.target.host, found.shown)
    return {"pinned": named(found.shown)}


def named(key: str) -> str:
    """Return a key's fingerprint, "none" for no key."""
    return fingerprint(key) if key else "none"

"""What a new switch must have before rackready can log in: name, management address, and a key for its first user."""

from __future__ import annotations

from dataclasses import dataclass

from rackready.design.subnets import managed_by
from rackready.design.switch_systems import system_of
from rackready.model.problems import RackreadyError
from rackready.model.site import Site, Switch


class Day0Error(RackreadyError):
    """The site does not tell what a new switch needs, or rackready has no file for its system."""


@dataclass(frozen=True, slots=True)
class Day0:
    """Facts of one new switch. ``address`` with prefix length; ``key``: public key in OpenSSH's form, one line."""

    name: str
    os: str
    user: str
    address: str
    gateway: str
    key: str


def day0_facts(site: Site, switch: Switch, key: str) -> Day0:
    """Return the facts of a switch of the site.

    Its subnet is that of ``networks.oob``, whose first host is the gateway. Raises Day0Error.
    """
    system = system_of(switch.os) if switch.os else None
    if system is None or switch.address is None:
        raise Day0Error(
            switch.name,
            "has no login",
            expected="os, address and password",
            next_step="Add them to switches, or set the switch up by hand.",
        )
    if switch.username not in {None, system.username}:
        raise Day0Error(
            f"{switch.name}: username",
            f"a new switch with {switch.os} has no such user",
            expected=system.username,
            actual=switch.username,
            next_step="Create the user by hand after day 0, or use the system's own.",
        )
    prefix, _, gateway = managed_by(site, "oob", str(switch.address))
    if not gateway:
        raise Day0Error(
            f"{switch.name}: {switch.address}",
            "its subnet and gateway are not known",
            expected="an address in the pool of networks.oob",
            next_step="Declare networks.oob, or set the address up by hand.",
        )
    return Day0(switch.name, switch.os, system.username, f"{switch.address}/{prefix}", gateway, key)

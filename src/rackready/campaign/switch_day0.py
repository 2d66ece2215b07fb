"""The day-0 file of one switch, for a boot service that serves it to the switch. Nothing is contacted."""

from __future__ import annotations

from rackready.campaign.switch_candidate import UnknownSwitchError
from rackready.design.day0 import Day0Error, day0_facts
from rackready.drivers.ssh.target import read_private_key
from rackready.drivers.switch.registry import driver_for
from rackready.model.site import Site


def switch_day0(site: Site, name: str) -> str:
    """Return the text of the file.

    Raises UnknownSwitchError; Day0Error where the site lacks a fact, or the driver has no such file; SshLoginError for
    the key.
    """
    switch = next((one for one in site.switches if one.name == name), None)
    if switch is None:
        names = ", ".join(one.name for one in site.switches) or "none: the site has no switches"
        raise UnknownSwitchError(f"--day0 {name}", expected=f"one of {names}")
    key = read_private_key(name, site.access.private_key)
    facts = day0_facts(site, switch, f"{key.get_name()} {key.get_base64()}")
    text = driver_for(name, switch.os).day0(facts)
    if not text:
        raise Day0Error(
            name,
            f"rackready writes no day-0 file for {switch.os}",
            next_step=f"Give it {facts.address}, gateway {facts.gateway} and a user at its console.",
        )
    return text

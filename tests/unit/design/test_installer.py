"""What an installer must be told and the site does not say: refused together, before a file is written."""

from __future__ import annotations

from typing import Any

import pytest

from rackready.design.installer import InstallerError
from tests.unit.design.installer_sites import PAIR, document, facts, facts_of
from tests.unit.design.written import parse, refusals


def refused(change: dict[str, Any], **node: Any) -> list[str]:
    """Return the refusals of a site whose provisioning section and first node are changed; None takes a key away."""
    found = document("debian12", PAIR)
    for place, changes in ((found["provisioning"], change), (found["racks"][0]["nodes"][0], node)):
        place.update(changes)
        for key in [key for key, value in changes.items() if value is None]:
            del place[key]
    with pytest.raises(InstallerError) as caught:
        facts_of(parse(found))
    return str(caught.value).splitlines()


def test_what_a_node_lacks_is_told_together() -> None:
    assert refused({}, boot_mac=None, disks=None) == [
        (
            "node01: boot_mac: MAC address of the in-band port - Expected: known Actual: not given. Add boot_mac to "
            "the node, e.g. from the vendor's manifest or its BMC."
        ),
        (
            "node01: disks: disks that may be written - Expected: named Actual: none. Add disks to the node, or "
            "provisioning.disks: by serial number, or by path below /dev/disk."
        ),
    ]


def test_a_section_without_mirrors_is_refused() -> None:
    assert refused({"installer": None}) == [
        (
            "provisioning.installer: mirrors of installers - Expected: a section Actual: none. Add the mirror of each "
            "operating system."
        )
    ]


def test_a_system_without_its_mirror_is_refused() -> None:
    other = {"mirrors": [{"system": "el9", "url": "http://192.0.2.2/el9"}]}
    assert refused({"installer": other}) == [
        "provisioning.installer.mirrors: mirror of debian12 - Expected: debian12 Actual: el9. Add it; node01 needs it."
    ]


def test_an_address_in_no_known_network_is_refused() -> None:
    service = {"address": "198.51.100.1", "interface": "eno2", "network": "198.51.100.0/24", "dns": ["198.51.100.2"]}
    assert refused({"service": service}) == [
        (
            "node01: address 192.0.2.11: its subnet is not known - Expected: in provisioning.service.network or the "
            "pool of networks.in_band Actual: in neither. Declare the network, or correct the address."
        )
    ]


def test_a_host_by_name_needs_name_servers() -> None:
    service = {"address": "192.0.2.1", "interface": "eno2", "network": "192.0.2.0/24"}
    assert refused({"service": service}) == [
        (
            "provisioning.service.dns: name servers - Expected: at least one, to look up ntp.site Actual: none. Add "
            "them, or give addresses instead of names."
        )
    ]


def test_one_mirror_of_each_system() -> None:
    mirror = {"system": "debian12", "url": "http://192.0.2.2/os"}
    said = refusals(document("debian12", PAIR, mirrors=[mirror, mirror]))
    assert any("debian12 - Expected: one mirror of each system Actual: several" in line for line in said)


@pytest.mark.parametrize("url", ["http://user:secret@192.0.2.2/", "http://192.0.2.2/a b", "http://192.0.2.2/'$(id)'"])
def test_a_url_that_a_script_would_read_otherwise_is_refused(url: str) -> None:
    assert refusals(document("debian12", PAIR, mirrors=[{"system": "debian12", "url": url}]))


def test_the_network_is_that_of_the_boot_service() -> None:
    port = facts("el9", PAIR).port
    assert (port.mac, port.prefix, port.netmask, port.gateway) == (
        "02:00:00:00:00:01",
        24,
        "255.255.255.0",
        "192.0.2.254",
    )

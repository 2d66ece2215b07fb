"""Provisioning in the site file: contradictions are refused at load, unknowns before a node is touched."""

from __future__ import annotations

from typing import Any

import pytest

from rackready.design.check_provisioning import unready
from rackready.design.deployable import NotDeployableError, require
from tests.unit.design.cabling.kit import lab
from tests.unit.design.written import Change, change, example, parse, refusals

STEP = "Add it, or set boot: disk."
SERVICE = {"address": "10.10.255.1", "interface": "eno2", "network": "10.10.0.0/16"}


def site(**provisioning: object) -> dict[str, Any]:
    """The lab with network boot; its first node has port and disks, and its second boots from its disk."""
    document = lab()
    document["provisioning"] = {
        "boot": "pxe",
        "image": "debian12",
        "disks": {"system": [{"serial": "S1"}]},
        "service": dict(SERVICE),
        **provisioning,
    }
    nodes = document["racks"][0]["nodes"]
    for number, node in enumerate(nodes, 1):
        node["address"] = f"10.10.0.{number}"
        node["boot_mac"] = f"52:54:00:00:00:{number:02}"
    nodes[1]["boot"] = "disk"
    return document


def test_the_site_itself_is_accepted() -> None:
    assert parse(site()).provisioning is not None


@pytest.mark.parametrize(
    "more", [{"boot": "media"}, {"secure_boot": "off"}, {"secure_boot": "on", "boot": "media"}], ids=str
)
def test_virtual_media_and_secure_boot_are_accepted(more: dict[str, object]) -> None:
    """A medium has signed loaders, whatever is sent over the network."""
    written = site(service={**SERVICE, "loader": "ipxe"}, **more)
    found = parse(written)
    require(found, ["node01", "node02"], "provision")


def _no_section(document: dict[str, Any]) -> None:
    del document["provisioning"]
    document["racks"][0]["nodes"][0]["boot"] = "http"


def _unsigned_loader(document: dict[str, Any]) -> None:
    document["provisioning"]["secure_boot"] = "on"
    document["provisioning"]["service"]["loader"] = "ipxe"


REFUSED: list[tuple[str, Change, str]] = [
    (
        "no-section",
        _no_section,
        f"racks[0].nodes[0].boot: boot http - Expected: a section provisioning with its service Actual: none. {STEP}",
    ),
    (
        "no-service",
        change("provisioning.service", None),
        f"provisioning.service: boot pxe - Expected: a boot service Actual: none. {STEP}",
    ),
    (
        "no-image",
        change("provisioning.image", None),
        f"provisioning.image: boot pxe - Expected: the name of an image in the image store Actual: none. {STEP}",
    ),
    (
        "unsigned-loader",
        _unsigned_loader,
        (
            "provisioning.service.loader: Secure Boot with the unsigned loader of network boot - Expected: signed "
            "Actual: ipxe. Set loader: signed, or boot: media."
        ),
    ),
    (
        "another-network",
        change("racks.0.nodes.0.address", "10.20.0.1"),
        (
            "racks[0].nodes[0].address: node01 boots over a network that its address is not in - Expected: an address "
            "in 10.10.0.0/16 (provisioning.service.network) Actual: 10.20.0.1. Correct the address, or "
            "provisioning.service.network."
        ),
    ),
    (
        "one-port-twice",
        change("racks.0.nodes.1.boot_mac", "52:54:00:00:00:01"),
        (
            "racks[0].nodes[1].boot_mac: boot MAC address 52:54:00:00:00:01 is already used by node node01. "
            "Give node node02 its own."
        ),
    ),
]


@pytest.mark.parametrize(("apply", "expected"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED])
def test_a_contradiction_is_refused_with_its_place(apply: Change, expected: str) -> None:
    document = site()
    apply(document)
    assert refusals(document) == [expected]


def test_http_boot_needs_a_dhcp_server_of_ours() -> None:
    document = site(boot="http")
    document["provisioning"]["service"]["dhcp"] = "proxy"
    assert refusals(document) == [
        (
            "provisioning.service.dhcp: UEFI HTTP boot with proxy DHCP - Expected: server Actual: proxy. "
            "Set dhcp: server, or boot: pxe."
        )
    ]


def test_a_node_that_boots_from_its_disk_may_be_anywhere() -> None:
    document = site()
    document["racks"][0]["nodes"][1]["address"] = "10.20.0.2"
    parse(document)


UNREADY: list[tuple[str, Change, str]] = [
    (
        "no-port",
        change("racks.0.nodes.0.boot_mac", None),
        (
            "node01: boot_mac: MAC address of the port that it boots from - Expected: known Actual: not given yet. "
            "Add boot_mac to the node, e.g. from the vendor's manifest or its BMC."
        ),
    ),
    (
        "no-disks",
        change("provisioning.disks", None),
        (
            "node01: disks: disks that may be written - Expected: known Actual: not given yet. "
            "Add disks to the node, or provisioning.disks: by serial number, or by path below /dev/disk."
        ),
    ),
    (
        "installer",
        change("provisioning.method", "installer"),
        "provisioning.method: installer - Expected: image Actual: not supported yet. Set method: image.",
    ),
]


def _messages(document: dict[str, Any], command: str) -> list[str]:
    found = parse(document)
    try:
        require(found, ["node01", "node02"], command)
    except NotDeployableError as error:
        return [str(message) for message in error.messages]
    return []


@pytest.mark.parametrize(("apply", "expected"), [pytest.param(*row[1:], id=row[0]) for row in UNREADY])
def test_what_imaging_lacks_is_refused_before_it_begins(apply: Change, expected: str) -> None:
    document, whole = site(), site()
    apply(document)
    assert expected in _messages(document, "provision")
    assert expected not in _messages(whole, "provision")
    assert expected not in _messages(document, "validate")


def test_a_node_with_arm_cores_is_not_imaged() -> None:
    """The ramdisk, its kernel and all boot loaders are for x86."""
    document = example("gb200-nvl72-8-racks")
    document["provisioning"] = {
        "boot": "media",
        "image": "debian12",
        "disks": {"system": [{"serial": "S1"}]},
        "service": {"address": "10.0.255.1", "interface": "eno2", "network": "10.0.0.0/8"},
    }
    found = parse(document)
    names = [node.name for node in found.nodes()][:2]
    assert str(unready(found, names)[0]) == (
        f"{', '.join(names)}: boot: imaging over the network - Expected: x86_64 Actual: aarch64. "
        "Install its system by other means, and set boot: disk: rackready takes it from there."
    )
    assert unready(parse(site()), ["node01", "node02"]) == []

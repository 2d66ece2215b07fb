"""Address space that hosts cannot use or that belongs to others is refused by exact text."""

from __future__ import annotations

import pytest

from tests.unit.design.written import Change, change, example, parse, refusals

B200, GB200, LAB = "b200-4su-roce", "gb200-nvl72-8-racks", "lab-4-nodes"
HELD = "Correct it. If a registry assigned that space to you, list it in public_space."
PRIVATE = "Expected: private (10/8, 172.16/12, 192.168/16) or shared (100.64/10) space Actual:"

SPACE: list[tuple[str, Change, str]] = [
    (
        B200,
        change("networks.oob.pool", "127.0.0.0/16"),
        (
            "networks.oob.pool: 127.0.0.0/16 of networks.oob is loopback (RFC 1122, 3.2.1.3): it never leaves a host"
            " - Expected: addresses of hosts Actual: 127.0.0.0/16. Correct it."
        ),
    ),
    (
        B200,
        change("networks.storage.pool", "169.254.0.0/16"),
        (
            "networks.storage.pool: 169.254.0.0/16 of networks.storage is link-local (RFC 3927): no router passes it on"
            " - Expected: addresses of hosts Actual: 169.254.0.0/16. Correct it."
        ),
    ),
    (
        B200,
        change("networks.storage.pool", "8.8.0.0/16"),
        f"networks.storage.pool: 8.8.0.0/16 of networks.storage is public - {PRIVATE} 8.8.0.0/16. {HELD}",
    ),
    (
        B200,
        change("networks.loopbacks", "172.32.0.0/20"),
        f"networks.loopbacks: 172.32.0.0/20 of networks.loopbacks is public - {PRIVATE} 172.32.0.0/20. {HELD}",
    ),
    (
        B200,
        change("networks.oob.pool", "172.0.0.0/8"),
        f"networks.oob.pool: 172.0.0.0/8 of networks.oob is public - {PRIVATE} 172.0.0.0/8. {HELD}",
    ),
    (
        GB200,
        change("networks.underlay.pool", "169.254.0.0/16"),
        (
            "networks.underlay.pool: 169.254.0.0/16 of networks.underlay is link-local (RFC 3927): no router passes "
            "it on"
            " - Expected: addresses of hosts Actual: 169.254.0.0/16. Correct it."
        ),
    ),
    (
        LAB,
        change("fabric.rails.0.subnet", {"first": "192.169.1.0/24"}),
        f"fabric.rails[0].subnet: 192.169.1.0/24 of rail 1 is public - {PRIVATE} 192.169.1.0/24. {HELD}",
    ),
    (
        LAB,
        change("racks.0.nodes.0.bmc.address", {"first": "100.128.0.1"}),
        (
            f"racks[0].nodes[0].bmc.address: address 100.128.0.1 of the BMC of node01 is public - {PRIVATE} "
            f"100.128.0.1. {HELD}"
        ),
    ),
    (
        LAB,
        change("racks.0.nodes.0.bmc.address", {"first": "169.254.0.17"}),
        (
            "racks[0].nodes[0].bmc.address: address 169.254.0.17 of the BMC of node01 is link-local (RFC 3927): no "
            "router passes it on"
            " - Expected: an address of a host Actual: 169.254.0.17. Correct it."
        ),
    ),
    (
        B200,
        change("networks.oob.dhcp_servers", ["9.9.9.9"]),
        f"networks.oob.dhcp_servers[0]: address 9.9.9.9 of DHCP server 9.9.9.9 is public - {PRIVATE} 9.9.9.9. {HELD}",
    ),
    (
        B200,
        change("public_space", ["10.0.0.0/8"]),
        (
            "public_space[0]: 10.0.0.0/8 is not public - Expected: public space that the site holds Actual: "
            "10.0.0.0/8. "
            "Remove it."
        ),
    ),
]


@pytest.mark.parametrize(("name", "mistake", "text"), SPACE)
def test_space_is_refused(name: str, mistake: Change, text: str) -> None:
    document = example(name)
    mistake(document)
    found = refusals(document)
    assert text in found, found


@pytest.mark.parametrize(
    ("name", "own", "held"),
    [
        (B200, change("networks.storage.pool", "8.8.0.0/16"), ["8.8.0.0/15"]),
        (B200, change("networks.storage.pool", "8.8.0.0/16"), ["8.8.0.0/17", "8.8.128.0/17"]),
        (B200, change("networks.storage.pool", "100.64.0.0/16"), []),
        (LAB, change("racks.0.nodes.0.bmc.address", {"first": "127.0.0.11"}), []),
    ],
    ids=["declared", "declared in two parts", "shared", "a tunnel's end"],
)
def test_space_of_the_site_is_taken(name: str, own: Change, held: list[str]) -> None:
    document = example(name)
    own(document)
    document["public_space"] = held
    parse(document)


def test_an_address_may_be_in_space_that_is_written_wrongly() -> None:
    document = example(B200)
    change("networks.storage.pool", "8.8.0.0/16")(document)
    document["public_space"] = ["8.8.0.0/16x", "9.0.0.0/8"]
    assert refusals(document) == [
        (
            "public_space[0]: Expected: an IPv4 network such as 192.0.2.0/24, with no bit of a host "
            "Actual: '8.8.0.0/16x'. Correct it."
        )
    ]

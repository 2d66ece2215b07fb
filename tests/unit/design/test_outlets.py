"""Outlets in the site file: entries that could switch another machine, or leave a supply on, are refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.design.cabling.kit import lab
from tests.unit.design.written import Change, change, parse, refusals

SUPPLIES = 6
"""Of a DGX H100 (its platform profile)."""


def site(name: str = "A{n}") -> dict[str, Any]:
    """The lab with two PDUs; its first node hangs on three outlets of each."""
    document = lab()
    rack = document["racks"][0]["name"]
    document["devices"] = [
        {
            "name": f"pdu{k}",
            "kind": "pdu",
            "rack": rack,
            "height_u": 0,
            "index": k,
            "bmc": {"address": f"192.0.2.24{k}", "password": {"env": "PDU"}},
        }
        for k in (1, 2)
    ]
    document["racks"][0]["nodes"][0]["outlets"] = [
        {"pdu": f"pdu{k}", "outlet": name.replace("{n}", str(n))} for k in (1, 2) for n in (1, 2, 3)
    ]
    return document


NODE = "racks.0.nodes.0.outlets"
HERE = "racks[0].nodes[0].outlets"
OWN = "Give each power supply its own outlet. Omit outlets for nodes that share the supplies of a chassis."


def test_the_lab_is_the_server_that_these_tests_are_about() -> None:
    found = parse(site()).nodes()[0]
    assert found.platform == "dgx_h100"
    assert [outlet.called for outlet in found.outlets] == [f"pdu{k} outlet A{n}" for k in (1, 2) for n in (1, 2, 3)]


def _also(**about: object) -> Change:
    """The second node names six outlets, the first of which is what a test says."""

    def apply(document: dict[str, Any]) -> None:
        first = {"pdu": "pdu1", "outlet": "B1", **about}
        document["racks"][0]["nodes"][1]["outlets"] = [
            first,
            *({"pdu": "pdu2", "outlet": f"B{k}"} for k in range(2, SUPPLIES + 1)),
        ]

    return apply


def test_a_place_that_no_number_can_be_put_in_is_refused() -> None:
    document = site()
    document["racks"][0]["nodes"][0]["outlets"][0]["outlet"] = "A{su_slot}"
    assert refusals(document) == [
        f"{HERE}[0].outlet: Expected: text that matches ^[A-Za-z0-9_.:-]{{1,64}}$ Actual: 'A{{su_slot}}'. Correct it."
    ]


def _one_service(document: dict[str, Any]) -> None:
    document["devices"][1]["bmc"]["address"] = "192.0.2.241"


REFUSED: list[tuple[str, Change, list[str]]] = [
    (
        "unknown",
        change(f"{NODE}.0.pdu", "pdu9"),
        [f"{HERE}[0].pdu: no PDU is called pdu9 - Expected: one of pdu1, pdu2. Correct the name."],
    ),
    (
        "no-pdu",
        change("devices.0.kind", "power_shelf"),
        [
            f"{HERE}[{k}].pdu: pdu1 is of kind power_shelf - Expected: pdu. "
            "Name the PDU that the supply is plugged into."
            for k in range(3)
        ],
    ),
    (
        "no-bmc",
        change("devices.1.bmc", None),
        [
            f"{HERE}[{k}].pdu: bmc of pdu2 is required and missing - "
            "Expected: the Redfish service that switches its outlets. "
            "Add bmc to the device, or remove the outlets of the node."
            for k in range(3, 6)
        ],
    ),
    ("twice", change(f"{NODE}.1.outlet", "A1"), [f"{HERE}[1].outlet: outlet A1 of pdu1 is given twice. {OWN}"]),
    (
        "two-nodes",
        _also(outlet="A2"),
        [f"racks[0].nodes[1].outlets[0].outlet: outlet A2 of pdu1 also feeds node01. {OWN}"],
    ),
    (
        "perhaps-the-same",
        _also(outlet="A2", rack_pdu="2"),
        [f"racks[0].nodes[1].outlets[0].outlet: outlet A2 of pdu1 also feeds node01. {OWN}"],
    ),
    (
        "one-service-by-two-names",
        _one_service,
        [f"{HERE}[{k}].outlet: outlet A{k - 2} of pdu2 is given twice. {OWN}" for k in range(3, 6)],
    ),
    (
        "too-few",
        lambda document: document["racks"][0]["nodes"][0]["outlets"].pop(),
        [
            (
                f"{HERE}: node01 has 5 outlets, but dgx_h100 has 6 power supplies - Expected: 6 outlets. "
                "List the outlet of every supply: a supply left out keeps the node powered on."
            )
        ],
    ),
    (
        "a-number",
        change(f"{NODE}.0.outlet", 1),
        [f"{HERE}[0].outlet: Expected: text Actual: 1. Put it in quotes, so that YAML reads it as text."],
    ),
    (
        "no-id",
        change(f"{NODE}.0.outlet", "../A1"),
        [f"{HERE}[0].outlet: Expected: text that matches ^[A-Za-z0-9_.:-]{{1,64}}$ Actual: '../A1'. Correct it."],
    ),
]


@pytest.mark.parametrize(("apply", "problems"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_is_refused(apply: Change, problems: list[str]) -> None:
    document = site()
    apply(document)
    assert refusals(document) == problems


def test_all_problems_are_reported_at_once() -> None:
    document = site()
    wanted = []
    for row in ("unknown", "no-bmc", "two-nodes"):
        _, apply, problems = next(item for item in REFUSED if item[0] == row)
        apply(document)
        wanted += problems
    assert set(wanted) <= set(refusals(document))


def test_a_pdu_at_the_address_of_a_bmc_is_refused() -> None:
    document = site()
    document["devices"][0]["bmc"]["address"] = document["racks"][0]["nodes"][0]["bmc"]["address"]
    assert refusals(document) == [
        f"{HERE}[{k}].pdu: the bmc of pdu1 has the address of the BMC of node01. Correct one of the two addresses."
        for k in range(3)
    ]


def test_a_virtual_node_has_no_outlets() -> None:
    document = site()
    outlets = document["racks"][0]["nodes"][0].pop("outlets")
    virtual = {key: value for key, value in document["racks"][0]["nodes"][1].items() if key not in {"unit", "serial"}}
    document["racks"][0]["nodes"][1] = {**virtual, "kind": "virtual", "host": "node01", "outlets": outlets}
    assert "racks[0].nodes[1].outlets: virtual node node02 has outlets. Remove them: its host has them." in refusals(
        document
    )


def test_chained_pdus_of_one_service_have_outlets_of_the_same_name() -> None:
    document = site()
    for outlet in document["racks"][0]["nodes"][0]["outlets"]:
        outlet["rack_pdu"] = "1"
    document["racks"][0]["nodes"][1]["outlets"] = [
        {**outlet, "rack_pdu": "2"} for outlet in document["racks"][0]["nodes"][0]["outlets"]
    ]
    assert parse(document).nodes()[1].outlets[0].called == "pdu1 PDU 2 outlet A1"


def test_a_range_of_nodes_names_its_outlets_by_their_numbers() -> None:
    document = site()
    nodes = document["racks"][0]["nodes"]
    del nodes[0]["outlets"]
    document["templates"] = {
        "nodes": {
            "fed": {
                "outlets": [{"pdu": f"pdu{k}", "outlet": place} for k in (1, 2) for place in ("A{n}", "B{n}", "C{n}")]
            }
        }
    }
    for node in nodes:
        node["template"] = "fed"
    assert [outlet.outlet for outlet in parse(document).nodes()[1].outlets] == ["A2", "B2", "C2"] * 2


def test_a_platform_with_unpublished_supplies_is_not_counted() -> None:
    document = site()
    document["racks"][0]["nodes"][0]["outlets"] = [{"pdu": "pdu1", "outlet": "A1"}]
    document["racks"][0]["nodes"][0]["platform"] = "gb200_nvl72"
    assert not [text for text in refusals_or_none(document) if "power supplies" in text]


def refusals_or_none(document: dict[str, Any]) -> list[str]:
    try:
        parse(document)
    except Exception as error:  # noqa: BLE001 - whatever else is wrong with that mixture is not the point
        return str(error).splitlines()
    return []

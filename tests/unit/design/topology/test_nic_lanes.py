"""Switches of a topology against the NICs of the nodes in a site file."""

from __future__ import annotations

from tests.unit.design.written import example, refusals


def test_nics_of_dgx_a100_are_refused_on_switches_with_faster_lanes() -> None:
    document = example("h100-1su-infiniband")
    document["templates"]["nodes"]["h100"]["platform"] = "dgx_a100"
    (text,) = (text for text in refusals(document) if text.startswith("topology.leaf"))
    assert text == (
        "topology.leaf.model: qm9700: lanes of a link of 200 Gb/s to the NICs of dgx_a100 - "
        "Expected: 4, as its QSFP56 ports have Actual: 2. rackready cannot plan switches that run their lanes at half "
        "their rate. Use a switch whose ports have that rate, such as one with a profile of your own, or describe the "
        "cables by links."
    )

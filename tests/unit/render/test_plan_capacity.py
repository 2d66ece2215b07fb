"""Lines of capacity in the text and in the page: "at least" where a draw is not published, and what is not judged."""

from __future__ import annotations

from typing import Any

from rackready.design.capacity.parts import DeviceModel, PoweredDevice, RackInput
from rackready.design.capacity.report import capacity
from rackready.model.facility import Facility, Feed, PowerNode
from rackready.render.plan_html import plan_html, shown_losses
from rackready.render.plan_text import facts

FIGURES: dict[str, Any] = {
    "max_w": 4000.0, "typical_w": None, "facility_w": 5000.0, "btu_h": 13648.0, "tons": 1.14, "liquid_w": 0.0,
    "air_w": 4000.0, "not_published": ["odd"],
    "largest_rack": {"name": "r1", "max_w": 4000.0, "partial": True}, "losses_looked_at": 8, "losses_not_survived": 1,
    "losses_not_judged": 5,
    "losses_survived": 2, "losses_accepted": 0, "over_with_nothing_lost": 0, "air_m3_h": None, "liquid_l_min": None,
    "no_liquid_share": [],
    "cdu_losses_looked_at": 0,
}  # fmt: skip


def lines(**changed: object) -> dict[str, str]:
    document: dict[str, Any] = {
        "nodes": {},
        "software": [],
        "schedulers": [],
        "racks": 1,
        "racks_with_nodes": 1,
        "devices": {},
        "switches": {},
        "fabric": {"counts": {}},
        "other_fabrics": [],
        "node_ports": {},
        "cables": {"listed": 0},
        "addresses": {},
    }
    return dict(facts({**document, "power_cords": {}, "capacity": FIGURES | changed}))


def test_sums_without_every_draw_are_least_ones() -> None:
    told = lines()
    assert told["power"] == "at least 4.0 kW, typical not published, largest rack r1 at least 4.0 kW"
    assert told["facility"] == "at least 5.0 kW with cooling and losses (PUE)"
    assert told["heat"] == "at least 13,648 BTU/h, 1.1 tons, liquid 0.0 kW, air 4.0 kW"
    assert told["losses"] == "8 single losses of power looked at, 2 survived, 1 not survived, 5 not judged"


def test_complete_sums_are_highest_ones_and_no_loss_is_not_a_pass() -> None:
    told = lines(not_published=[], largest_rack=None, losses_looked_at=0, losses_not_survived=0, losses_not_judged=0)
    assert told["power"] == "4.0 kW at most, typical not published"
    assert told["losses"] == "not judged: no single loss of power was looked at"
    assert lines(losses_not_judged=0)["losses"] == "8 single losses of power looked at, 2 survived, 1 not survived"


def test_page_says_at_least_and_not_judged() -> None:
    models = (DeviceModel("dual", 2, 2000.0, psus=2, psu_min=1), DeviceModel("odd", 1, None, psus=2, psu_min=1))
    feeds = tuple(Feed(name=name, source=f"rpp-{name}", breaker_a=60, volts=415) for name in "ab")
    rack = RackInput(
        "r1", tuple(PoweredDevice(model.id, model, 1 + 2 * number) for number, model in enumerate(models)), feeds
    )
    report = capacity(
        [rack], Facility(pue=1.5, power=[PowerNode(name=f"rpp-{name}", kind="rpp", rating_kw=100) for name in "ab"])
    )
    page = plan_html("lab", report, [rack])
    assert "<li>highest draw<b>at least 2.0 kW</b></li>" in page
    assert "<li>facility (x PUE)<b>at least 3.0 kW</b></li>" in page
    assert "<p>4 single losses of power looked at, 0 survived, 0 not survived, 4 not judged.</p>" in page
    assert page.count("<td>not judged</td>") == 4
    assert shown_losses(report.losses) == list(report.losses)

"""The HTML plan: self-contained, escaped, complete, with titled well-formed pictures, and small for a large site."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from rackready.design.capacity.parts import DeviceModel, PoweredDevice, RackInput
from rackready.design.capacity.report import capacity
from rackready.design.topology.types import EndpointLink, FabricPlan, TopoSwitch
from rackready.model.facility import Facility, Feed, PowerNode
from rackready.model.problems import Problem
from rackready.render import pictures
from rackready.render.plan_html import plan_html

DGX = DeviceModel("dgx_h100", 8, 10200.0, psus=6, psu_min=4)
ODD = DeviceModel("odd/1u", 1, None)
SVG = "{http://www.w3.org/2000/svg}"


def feeds(side: int = 1) -> tuple[Feed, ...]:
    return tuple(Feed(name=name, source=f"rpp-{name}{side}", breaker_a=60, volts=415) for name in "abc")


def rack(number: int, side: int = 1) -> RackInput:
    return RackInput(
        f"r{number:04d}", tuple(PoweredDevice(f"r{number:04d}-n{k}", DGX, 1 + 8 * k) for k in range(4)), feeds(side)
    )


def facility(sides: int = 1) -> Facility:
    return Facility(
        power=[
            PowerNode(name=f"rpp-{name}{side}", kind="rpp", rating_kw=2000)
            for side in range(1, sides + 1)
            for name in "abc"
        ]
    )


def fabric(leafs: int, pods: int = 1, planes: int = 1) -> FabricPlan:
    switches = [TopoSwitch(f"leaf-{n}", "leaf", 1 + n % planes, 1 + n % pods, n, "sn5600", 64) for n in range(leafs)]
    switches += [TopoSwitch(f"core-{n}", "core", 1, 0, n, "sn5600", 64) for n in range(4)]
    return FabricPlan(
        tuple(switches), (EndpointLink("n1", 1, 1, "leaf-0", 1),), counts={"leaf": leafs, "endpoint_cables": 1}
    )


def page(racks: list[RackInput], plan: FabricPlan | None = None, sides: int = 1, **more: object) -> str:
    return plan_html("lab", capacity(racks, facility(sides)), racks, plan, **more)  # type: ignore[arg-type]


def test_nothing_is_loaded_from_elsewhere() -> None:
    text = page([rack(1)], fabric(2))
    assert re.findall(r"(?:src|href|url\(|@import)", text) == []
    assert set(re.findall(r"https?://[^\s\"<]+", text)) == {"http://www.w3.org/2000/svg"}, (
        "the SVG name space is a name, nobody fetches it"
    )
    assert "<script" not in text


def test_every_rack_is_named_and_alike_ones_share_a_picture() -> None:
    racks = [rack(n) for n in range(1, 33)]
    text = page(racks)
    for item in racks:
        assert f"<td>{item.name}</td>" in text
    assert text.count('aria-label="racks r0001 .. r0032 (32 racks)"') == 1
    assert "x 32<details>" in text
    assert text.count(">…-n0  dgx_h100<") == 1, "a device is named also in the picture of many racks"


def test_devices_of_racks_alike_are_named_by_the_first_and_the_last() -> None:
    racks = [
        RackInput(f"net{n}", (PoweredDevice(f"leaf-{n}", DGX, 1), PoweredDevice("same", ODD, 40, "device")))
        for n in (1, 2, 3)
    ]
    text = page(racks)
    assert ">leaf-1 .. leaf-3  dgx_h100<" in text
    assert ">same  odd<" in text


def test_names_are_escaped_everywhere() -> None:
    evil = '<b onload="x">&'
    item = RackInput(evil, (PoweredDevice(evil, DGX, 1), PoweredDevice(evil, ODD, None, "device")), feeds())
    text = plan_html(evil, capacity([item], facility()), [item], None, [Problem(evil, evil, evil)], {evil: evil})
    assert evil not in text
    assert "<b onload" not in text
    assert "&lt;b onload=" in text


def test_problems_and_facts_of_others_are_shown() -> None:
    text = page(
        [rack(1)],
        problems=[Problem("racks[0]", "is odd - Expected: even Actual: odd.", "Mend it.")],
        facts={"cables": "1,024"},
    )
    assert '<span class="bad">racks[0]</span>: is odd - Expected: even Actual: odd. Mend it.' in text
    assert "<li>cables<b>1,024</b></li>" in text
    assert text.index("Problems (1)") < text.index("<li>racks<b>"), "problems come before figures"


def test_missing_figures_are_called_not_published() -> None:
    text = page([RackInput("r1", (PoweredDevice("x", ODD, 1), PoweredDevice("y", DGX, 2)), feeds())])
    assert '<td class="n">10.2+</td>' in text
    assert "not published" in text
    assert ">None<" not in text


@pytest.mark.parametrize(
    "text",
    [
        pictures.elevation(rack(1)),
        pictures.fabric(fabric(2)),
        pictures.fabric(fabric(400, 90, 2)),
        pictures.power_bars(()),
        pictures.distribution([1.0, 5e4]),
    ],
)
def test_pictures_are_well_formed_titled_and_within_their_frame(text: str) -> None:
    root = ET.fromstring(text)  # noqa: S314 - our own picture
    title = root.find(f"{SVG}title")
    assert title is not None
    assert title.text == root.get("aria-label")
    _, _, width, height = (float(part) for part in root.attrib["viewBox"].split())
    for item in root.iter(f"{SVG}rect"):
        x, y, w, h = (float(item.attrib[key]) for key in ("x", "y", "width", "height"))
        assert x >= 0 <= y
        assert w >= 0 <= h
        assert x + w <= width + 0.2
        assert y + h <= height + 0.2


def test_small_fabric_shows_each_switch_and_a_large_one_pods() -> None:
    small = pictures.fabric(fabric(2))
    assert ">leaf-0</text>" in small
    assert ">leaf-1</text>" in small
    medium = pictures.fabric(fabric(64, 4))
    assert medium.count("16 x sn5600") == 4
    large = pictures.fabric(fabric(400, 100))
    assert "100 pods x 4 sn5600" in large
    assert len(large) < 4000


def test_power_bar_over_its_rating_is_marked() -> None:
    report = capacity(
        [rack(1)], Facility(power=[PowerNode(name=f"rpp-{name}1", kind="rpp", rating_kw=18) for name in "abc"])
    )
    text = pictures.power_bars(report.nodes)
    assert text.count("OVER") == 3
    assert text.count('class="over"') == 3


def test_page_of_a_large_site_stays_small() -> None:
    racks = [rack(number, 1 + number // 32) for number in range(3125)]
    text = page(racks, fabric(400, 90), sides=98)
    assert len(text) < 5_000_000
    assert "<td>r3124</td>" in text
    assert text.count("<svg") == 4

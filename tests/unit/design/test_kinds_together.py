"""A problem of one kind never hides one of another: every two kinds are planted together, both are reported."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from rackready.design.plan import plan_site
from rackready.design.plan_beyond import with_plan
from rackready.design.site import load_site
from rackready.design.yaml import dump_yaml
from rackready.model.problems import SiteInvalidError
from tests.unit.design.written import ROOT, Change, change, example, refusals

TRUE: object = True
NOT_JUDGED = (
    "plan: fabric, loads and losses were not checked, because parts of the site are invalid. "
    "Correct the other problems, then run the plan again."
)
Text = Callable[[str], str]


def _same(text: str) -> str:
    return text


def _nothing(_document: dict[str, Any]) -> None:
    pass


def _addresses(document: dict[str, Any]) -> None:
    for place in (0, 1):
        document["racks"][2]["devices"][place]["address"] = "10.99.0.5"


def _without_gates(document: dict[str, Any]) -> None:
    del document["gates"]


KINDS: dict[str, tuple[Change, Text, str]] = {
    "two readings": (
        _nothing,
        lambda text: text.replace("height_u: 48", "height_u: 060"),
        "templates.racks.gpu.height_u: 060 is the number 48 in YAML 1.1",
    ),
    "key twice": (_nothing, lambda text: text + "name: other\n", "name: key 'name' is given twice"),
    "unknown key": (change("facility.colour", "red"), _same, "facility.colour: unknown key."),
    "value of a key": (change("facility.pue", 0.5), _same, "facility.pue: Expected: at least 1"),
    "value of an item": (
        change("racks.2.switch_slots.0.tier", "leef"),
        _same,
        "racks[2].switch_slots[0].tier: Expected: 'leaf', 'spine' or 'core'",
    ),
    "missing section": (_without_gates, _same, "gates: is required and missing."),
    "wrong section": (change("schema", "rackready/site/v9"), _same, "schema: Expected: 'rackready/site/v1'"),
    "template": (
        change("racks.1.template", "nope"),
        _same,
        "racks[1].template: templates.racks has no template 'nope'",
    ),
    "truth for a number": (
        change("racks.2.devices.2.psus_needed", TRUE),
        _same,
        "racks[2].devices[2].psus_needed: Expected: a number Actual: true.",
    ),
    "reference": (
        change("racks.2.feeds.1.from", "busway-9"),
        _same,
        "racks[2].feeds[1].from: no power node is called busway-9",
    ),
    "profile": (
        change("templates.nodes.h100.platform", "dgx_x"),
        _same,
        "templates.nodes.h100.platform: platform profile 'dgx_x' does not exist",
    ),
    "address twice": (
        _addresses,
        _same,
        "racks[2].devices[1].address: address 10.99.0.5 is already used by device ufm-1.",
    ),
    "overlap": (
        change("networks.storage.pool", "10.21.128.0/17"),
        _same,
        "networks.storage.pool: 10.21.128.0/17 of networks.storage overlaps",
    ),
    "space": (
        change("networks.loopbacks", "169.254.0.0/24"),
        _same,
        "networks.loopbacks: 169.254.0.0/24 of networks.loopbacks is link-local",
    ),
    "group": (
        change("tenants.1.pkey", "0x0011"),
        _same,
        "tenants[1].pkey: partition key 0x0011 is already used by tenant research.",
    ),
    "units": (change("racks.2.devices.1.unit", 20), _same, "racks[2].devices[1].unit: unit 20 is occupied by ufm-1."),
    "voltage": (
        change("racks.2.feeds.1.volts", 480),
        _same,
        "racks[2].feeds[1].volts: 480 V three-phase gives 277 V at the outlets",
    ),
    "figure": (
        change("facility.power.1.rating_kw", 400_000),
        _same,
        "facility.power[1].rating_kw: implausible value",
    ),
    "cooling": (
        change("racks.2.cooling", {"kind": "air", "max_kw": 90, "max_air_kw": 100}),
        _same,
        "racks[2].cooling.max_air_kw: air may remove more heat than",
    ),
    "overloaded feed": (
        change("racks.2.feeds.0.breaker_a", 6),
        _same,
        "rack net09: feed pdu-1 (415 V three-phase 6 A at 80 %) is over its rating",
    ),
    "circle of power": (
        change("facility.power.0", {"name": "grid", "kind": "sts", "fed_by": ["busway-1"]}),
        _same,
        "facility.power: power runs in a circle",
    ),
}

PLANNED = {"overloaded feed", "circle of power"}
"""Told by a plan."""
PARTS = {"value of an item", "template", "profile"}
"""Without these parts loads are unknown, and the refusal says that the plan was not checked."""


def refusal(tmp_path: Path, *kinds: str, planned: bool = True) -> list[str]:
    """Return the problems of a site with such mistakes; with ``planned`` also those that only a plan finds."""
    document = example("h100-1su-infiniband")
    document["racks"][2]["feeds"] = [
        {"name": f"pdu-{n}", "from": f"busway-{n}", "breaker_a": 60, "volts": 415} for n in (1, 2)
    ]
    for kind in kinds:
        KINDS[kind][0](document)
    text = dump_yaml(document)
    for kind in kinds:
        text = KINDS[kind][1](text)
    file = tmp_path / "site.yml"
    file.write_text(text, encoding="utf-8")
    try:
        site = load_site("x", site_file=file, root=ROOT)
    except SiteInvalidError as error:
        return [str(problem) for problem in (with_plan(error) if planned else error).problems]
    return [str(problem) for problem in plan_site(site).problems]


@pytest.mark.parametrize(("one", "other"), list(combinations(KINDS, 2)))
def test_two_kinds_are_both_reported(tmp_path: Path, one: str, other: str) -> None:
    found = refusal(tmp_path, one, other, planned=bool({one, other} & PLANNED))
    for kind in (one, other):
        expected = NOT_JUDGED if kind in PLANNED and {one, other} & PARTS else KINDS[kind][2]
        assert any(text.startswith(expected) for text in found), found


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in PLANNED | {"units"}])
def test_one_problem_makes_no_second_one(tmp_path: Path, kind: str) -> None:
    found = [text for text in refusal(tmp_path, kind) if text != NOT_JUDGED]
    assert [text for text in found if not text.startswith(KINDS[kind][2].partition(": ")[0])] == [], found


def test_four_at_once(tmp_path: Path) -> None:
    kinds = ("two readings", "value of a key", "address twice", "overloaded feed")
    found = refusal(tmp_path, *kinds)
    for kind in kinds:
        assert any(text.startswith(KINDS[kind][2]) for text in found), found


def test_an_emptied_list_is_not_reported_as_too_short() -> None:
    document = example("lab-4-nodes")
    document["racks"][0]["height_u"] = 99
    document["fabric"]["kind"] = "rocee"
    assert refusals(document) == [
        "fabric.kind: Expected: 'roce' or 'infiniband' Actual: 'rocee'. Correct it.",
        "racks[0].height_u: Expected: at most 60 Actual: 99. Correct it.",
    ]


def test_references_to_unreadable_racks_are_not_reported() -> None:
    document = example("b200-4su-roce")
    document["racks"] = "a[01-32]"
    assert refusals(document) == ["racks: Expected: a list Actual: 'a[01-32]'. Correct it."]

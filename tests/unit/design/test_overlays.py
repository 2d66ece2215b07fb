"""A wrong value in an overlay is reported with the overlay's name, and one of the site file without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.design.overlays import Layers, Overlay
from rackready.design.site import load_site
from rackready.model.problems import SiteInvalidError
from rackready.paths import EnvPaths
from tests.unit.design.written import example, refusals

LAB = "lab-4-nodes"


def node(name: str, **values: Any) -> dict[str, Any]:
    return {"racks": [{"name": "rack01", "nodes": [{"name": name, **values}]}]}


@pytest.mark.parametrize(
    ("overlays", "told"),
    [
        pytest.param(
            [node("node02", unit="low")],
            "over1.yml: racks[0].nodes[0].unit: Expected: a whole number Actual: 'low'. Correct it.",
            id="a value",
        ),
        pytest.param(
            [node("node02", unit="low"), node("node02", unit="high"), node("node01", serial="A")],
            "over2.yml: racks[0].nodes[0].unit: Expected: a whole number Actual: 'high'. Correct it.",
            id="the last of several",
        ),
        pytest.param(
            [node("node02", unit=None)],
            "over1.yml: racks[0].nodes[0].unit: is required and missing. Add the rack unit ",
            id="nothing in the place of a value",
        ),
        pytest.param(
            [node("node02", color="red")],
            "over1.yml: racks[0].nodes[0].color: unknown key. ",
            id="an unknown key",
        ),
        pytest.param(
            [node("node02", platform="dgx_h900")],
            "over1.yml: racks[0].nodes[0].platform: platform profile 'dgx_h900' does not exist - ",
            id="a meaning",
        ),
        pytest.param(
            [node("node02", bmc={"address": "192.0.2.300"})],
            "over1.yml: racks[0].nodes[0].bmc.address: Expected: an IPv4 address such as 192.0.2.1 ",
            id="a part of a mapping that both have",
        ),
        pytest.param(
            [node("node99", unit=40, address="192.0.2.99")],
            "over1.yml: racks[0].nodes[0]: node node99 of rack rack01 is not in site.yml. Rename the entry",
            id="a node that only the overlay has",
        ),
        pytest.param(
            [node("node99", platform="dgx_h100", unit=40)],
            "over1.yml: racks[0].nodes[0].address: is required and missing. ",
            id="a key of a node that the overlay adds",
        ),
    ],
)
def test_a_wrong_value_of_an_overlay_is_reported_at_its_place_there(overlays: list[dict[str, Any]], told: str) -> None:
    (problem,) = refusals(example(LAB), *overlays)
    assert problem.startswith(told)


def test_a_node_that_another_overlay_adds_has_its_serial_in_the_first() -> None:
    """machines.yml comes before the controller's own overlay."""
    bmc = {"address": "192.0.2.199", "username": "admin", "password": {"env": "BMC_PASSWORD"}}
    added = node("node99", platform="dgx_h100", unit=41, index=9, address="192.0.2.99", bmc=bmc)
    found = Layers([Overlay("machines.yml", node("node99", serial="A99")), Overlay("own.yml", added)])
    document = found.merge(example(LAB), Overlay("machines.yml", node("node99", serial="A99")))
    document = found.merge(document, Overlay("own.yml", added))
    assert found.problems == []
    (merged,) = [one for one in document["racks"][0]["nodes"] if one["name"] == "node99"]
    assert (merged["serial"], merged["platform"]) == ("A99", "dgx_h100")


def test_an_entry_is_not_called_unknown_where_a_node_of_its_rack_has_no_name() -> None:
    document = example(LAB)
    document["racks"][0]["nodes"].append({**document["racks"][0]["nodes"][0], "name": 102})
    found = refusals(document, node("node02", serial="A"))
    assert not [text for text in found if "is not in site.yml" in text], found
    assert found


def test_what_the_site_file_says_is_not_laid_to_an_overlay_beside_it() -> None:
    document = example(LAB)
    document["racks"][0]["nodes"][0]["unit"] = "low"
    beside = node("node02", serial="A", bmc={"username": "root"})
    assert refusals(document, beside) == ["racks[0].nodes[0].unit: Expected: a whole number Actual: 'low'. Correct it."]


def test_every_overlay_and_the_site_file_are_reported_where_all_are_wrong() -> None:
    document = example(LAB)
    document["racks"][0]["nodes"][0]["unit"] = "wrong"
    names = {"racks": [{"name": "rack01", "nodes": [{"name": f"node0{n}", "unit": "low"} for n in (1, 2)]}]}
    assert refusals(document, names) == [
        "over1.yml: racks[0].nodes[0].unit: Expected: a whole number Actual: 'low'. Correct it.",
        "over1.yml: racks[0].nodes[1].unit: Expected: a whole number Actual: 'low'. Correct it.",
        "racks[0].nodes[0].unit: Expected: a whole number Actual: 'wrong'. Correct it.",
    ]


@pytest.mark.parametrize(
    ("handover", "told"),
    [
        ({"kind": "slurmm"}, "over1.yml: handover.kind: Expected: one of "),
        ({"kind": "several", "parts": [{"handover": {"controller": "192.0.2.5"}}]}, None),
    ],
)
def test_the_kind_of_a_part_is_named(handover: dict[str, Any], told: str | None) -> None:
    found = refusals(example(LAB), {"handover": handover})
    wanted = told or "over1.yml: handover.parts[0].handover.kind: is required and missing. Add it."
    assert any(problem.startswith(wanted) for problem in found), found


def layers(below: dict[str, Any], *overlays: dict[str, Any] | None) -> Layers:
    made = Layers()
    for number, overlay in enumerate(overlays, 1):
        below = made.merge(below, Overlay(f"{number}", overlay))
    return made


BMC = ("racks", 0, "nodes", 0, "bmc")


@pytest.mark.parametrize(
    ("below", "overlays", "place", "there"),
    [
        pytest.param(
            node("n", bmc={"address": "a"}), [node("n", bmc={"username": "root"})], BMC, "", id="a merged mapping"
        ),
        pytest.param(
            node("n", bmc={"address": "a"}), [node("n", bmc={"username": "r"})], (*BMC, "address"), "", id="its rest"
        ),
        pytest.param(
            node("n", bmc={"address": "a"}),
            [node("n", bmc={"username": "r"})],
            (*BMC, "username"),
            "1: racks[0].nodes[0].bmc.username",
            id="its new key",
        ),
        pytest.param(
            node("n", bmc={"password": {"file": "x"}}),
            [node("n", bmc={"password": {"env": "A"}})],
            (*BMC, "password"),
            "1: racks[0].nodes[0].bmc.password",
            id="a secret is replaced whole",
        ),
        pytest.param(
            node("n"), [node("n", serial="A")], ("racks", 0, "nodes", 0, "name"), "", id="a name finds an item"
        ),
        pytest.param(node("n"), [node("n", serial="A")], ("racks", 0, "nodes"), "", id="a merged list"),
        pytest.param(
            {"links": [{"node": "n", "ports": "1"}]},
            [{"links": [{"node": "n"}]}],
            ("links", 0, "ports"),
            "1: links[0].ports",
            id="a list without names is replaced, with the keys that it lacks",
        ),
        pytest.param({"racks": []}, [{"racks": {"a": 1}}], ("racks",), "1: racks", id="another kind of value"),
        pytest.param(
            node("n"),
            [node("m", platform="p"), node("o", platform="p", unit=2)],
            ("racks", 0, "nodes", 2, "unit"),
            "2: racks[0].nodes[0].unit",
            id="a new item of the second overlay",
        ),
        pytest.param(
            node("n"),
            [node("m", platform="p"), node("m", unit=2), node("n", unit=3)],
            ("racks", 0, "nodes", 1, "unit"),
            "2: racks[0].nodes[0].unit",
            id="an item of one overlay that another changes",
        ),
        pytest.param({"a": 1}, [{"a": 2}], (), "", id="the whole document"),
        pytest.param({"a": 1}, [None], ("a",), "", id="an empty overlay"),
        pytest.param({"a": 1}, [], ("a",), "", id="no overlay"),
    ],
)
def test_who_decides_a_value(
    below: dict[str, Any], overlays: list[dict[str, Any] | None], place: tuple[str | int, ...], there: str
) -> None:
    assert layers(below, *overlays).place(place) == there


def test_the_loader_names_the_file_from_the_root(tmp_path: Path) -> None:
    paths = EnvPaths(tmp_path, "lab")
    paths.site_file.parent.mkdir(parents=True)
    paths.site_file.write_text(yaml.safe_dump(example(LAB)), encoding="utf-8")
    paths.overlay.parent.mkdir(parents=True)
    paths.overlay.write_text(yaml.safe_dump(node("node02", unit="low")), encoding="utf-8")
    with pytest.raises(SiteInvalidError) as caught:
        load_site("lab", root=tmp_path)
    assert str(caught.value.problems[0]).startswith(".rackready/overlays/lab.yml: racks[0].nodes[0].unit: Expected: ")

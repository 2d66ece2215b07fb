"""A wrong value in an overlay is reported with the overlay's name, and one of the site file without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.design.overlays import Overlay, merge, place_in_overlay
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
            "over1.yml: racks[0].nodes[0].platform: is required and missing. Add it.",
            id="a key of a node that only the overlay has",
        ),
    ],
)
def test_a_wrong_value_of_an_overlay_is_reported_at_its_place_there(overlays: list[dict[str, Any]], told: str) -> None:
    (problem,) = refusals(example(LAB), *overlays)
    assert problem.startswith(told)


def test_what_the_site_file_says_is_not_laid_to_an_overlay_beside_it() -> None:
    document = example(LAB)
    document["racks"][0]["nodes"][0]["unit"] = "low"
    beside = node("node02", serial="A", bmc={"username": "root"})
    assert refusals(document, beside) == ["racks[0].nodes[0].unit: Expected: a whole number Actual: 'low'. Correct it."]


def test_a_mapping_that_both_have_is_set_by_none() -> None:
    below = node("node02", bmc={"address": "192.0.2.1"})
    over = Overlay("over.yml", node("node02", bmc={"username": "root"}))
    merged = merge(below, over.document)
    bmc = ("racks", 0, "nodes", 0, "bmc")
    assert place_in_overlay([over], merged, below, bmc) == ""
    assert place_in_overlay([over], merged, below, (*bmc, "address")) == ""
    assert place_in_overlay([over], merged, below, (*bmc, "username")) == "over.yml: racks[0].nodes[0].bmc.username"
    assert place_in_overlay([over], merged, below, ()) == ""


def test_the_loader_names_the_file_from_the_root(tmp_path: Path) -> None:
    paths = EnvPaths(tmp_path, "lab")
    paths.site_file.parent.mkdir(parents=True)
    paths.site_file.write_text(yaml.safe_dump(example(LAB)), encoding="utf-8")
    paths.overlay.parent.mkdir(parents=True)
    paths.overlay.write_text(yaml.safe_dump(node("node02", unit="low")), encoding="utf-8")
    with pytest.raises(SiteInvalidError) as caught:
        load_site("lab", root=tmp_path)
    assert str(caught.value.problems[0]).startswith(".rackready/overlays/lab.yml: racks[0].nodes[0].unit: Expected: ")

"""One slip in the site file is one problem, with those that only a plan finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.design.plan_beyond import with_plan
from rackready.design.site import parse_site
from rackready.model.problems import SiteInvalidError

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def raw() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
    return document


def refused(document: dict[str, Any]) -> SiteInvalidError:
    with pytest.raises(SiteInvalidError) as caught:
        parse_site(document, source="site.yml", base=Path("/base"))
    return caught.value


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (
            "fabric.rails.1.subnet",
            "192.168.1.0/24",
            (
                "fabric.rails[1].subnet: subnet 192.168.1.0/24 overlaps the subnet of rail 1 (192.168.1.0/24). "
                "Give each rail its own subnet."
            ),
        ),
        (
            "racks.0.nodes.1.name",
            "node01",
            "racks[0].nodes[1].name: node node01 is given twice. Give each its own name.",
        ),
        (
            "switches.1.name",
            "node01",
            "switches[1].name: name node01 is already used by node node01. Give switch node01 its own.",
        ),
    ],
    ids=["rails of one subnet", "node", "switch and node"],
)
def test_one_slip_is_one_problem_with_those_of_the_plan(
    raw: dict[str, Any], path: str, value: str, problem: str
) -> None:
    here: Any = raw
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    for step in steps:
        here = here[step]
    here[last] = value
    assert [str(item) for item in with_plan(refused(raw)).problems if item.path != "plan"] == [problem]


def test_a_switch_name_given_twice_is_one_problem(raw: dict[str, Any]) -> None:
    raw["switches"][1]["name"] = "leaf01"
    assert [str(item) for item in refused(raw).problems] == [
        "switches[1].name: switch leaf01 is given twice. Give each its own name."
    ]

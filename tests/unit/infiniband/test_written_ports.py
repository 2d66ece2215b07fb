"""Ports of InfiniBand switches in links that are written by hand: names, numbers, and split ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.design.deployable import refusals
from rackready.design.own_profiles import read_own
from rackready.design.plan import lay
from rackready.design.site import parse_site
from rackready.design.yaml import read_yaml
from rackready.drivers.ib.planned import IbPlanError, planned_cables
from rackready.model.problems import SiteInvalidError
from rackready.model.site import Site

ROOT = Path(__file__).resolve().parents[3]
SPLIT = {"model": "qm9700", "ports": [{"ports": "1-64", "breakout": 2}]}
HALF = {"model": "qm9700", "ports": [{"ports": "1-8", "breakout": 2}]}


def site(link: str, nodes: int = 1, **switch: Any) -> Site:
    """Return a site of DGX H100 on one leaf, whose rails are in these ports."""
    document = read_yaml(ROOT / "inventories/sim-ib/site.yml")
    document["racks"][0]["nodes"] = document["racks"][0]["nodes"][:nodes]
    for node in document["racks"][0]["nodes"]:
        node["platform"] = "dgx_h100"
    document["fabric"]["infiniband"]["nodes"] = ["node01"]
    document["switches"] = [{"name": "leaf01", "model": "qm9700", **switch}]
    names = "node01" if nodes == 1 else f"node[01-{nodes:02}]"
    document["links"] = [{"node": names, "rails": "1-8", "switch": "leaf01", "ports": link}]
    own = read_own(ROOT / "inventories/sim-ib/profiles", ROOT)
    return parse_site(document, source="ports", base=ROOT, own=own)


def leaf_ports(own: Site) -> list[str]:
    return [cable.b.port for cable in planned_cables(lay(own)).cables]


@pytest.mark.parametrize("ports", ["1-8", "IB1/1/1-IB1/4/2"])
def test_ports_are_written_by_number_or_by_name(ports: str) -> None:
    own = site(ports)
    assert leaf_ports(own) == [f"IB1/{cage}/{twin}" for cage in range(1, 5) for twin in (1, 2)]
    assert planned_cables(lay(own)).switch_end("leaf01", 3).port == "IB1/2/1"
    assert refusals(own, ["node01"], "fabric") == []


@pytest.mark.parametrize("ports", ["1-16", "IB1/1/1-IB1/8/2"])
def test_ports_of_several_nodes_are_distributed(ports: str) -> None:
    assert leaf_ports(site(ports, nodes=2))[7:9] == ["IB1/4/2", "IB1/5/1"]


def test_the_site_of_the_guide_is_planned() -> None:
    text = (ROOT / "docs/howto/infiniband.md").read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]
    [link] = yaml.safe_load(text)["links"]
    [switch] = yaml.safe_load(text)["switches"]
    assert leaf_ports(site(link["ports"], **switch))[0] == "IB1/1/1"


@pytest.mark.parametrize(
    ("ports", "lost", "last"),
    [("60-67", "65, 66, 67", "IB1/32/2"), ("IB1/31/1-IB1/34/2", "IB1/33/1, IB1/33/2, IB1/34/1, IB1/34/2", "IB1/32/2")],
)
def test_ports_that_the_switch_does_not_have_are_named(ports: str, lost: str, last: str) -> None:
    with pytest.raises(SiteInvalidError) as caught:
        site(ports)
    text = f"leaf01 has no port {lost} - Expected: IB1/1/1 to {last}. Correct the port."
    assert [problem.message for problem in caught.value.problems] == [text.removesuffix(" Correct the port.")]


def test_split_ports_are_counted_as_the_switch_counts_them() -> None:
    """A public ibnetdiscover of an MQM9700 with 129 ports (one is SHARP's): [1], [2], [3] ... of 2xNDR."""
    own = site("1-8", **SPLIT)
    plan = planned_cables(lay(own))
    pairs = ("IB1/1/1", "IB1/1/2", "IB1/2/1", "IB1/2/2")
    assert leaf_ports(own) == [f"{port}/{sub}" for port in pairs for sub in (1, 2)]
    assert [plan.switch_end("leaf01", number).port for number in (1, 2, 128)] == [
        "IB1/1/1/1",
        "IB1/1/1/2",
        "IB1/32/2/2",
    ]
    assert {(cable.rate, cable.lanes) for cable in plan.cables} == {(200, 2)}
    assert refusals(own, ["node01"], "fabric") == []


def test_a_switch_that_is_split_in_part_is_refused() -> None:
    own = site("1-8", **HALF)
    text = (
        "leaf01: breakout - Expected: the same of all ports Actual: whole ports and sub-ports. "
        "Give all of its ports one breakout: rackready does not know yet how a switch with both numbers its ports."
    )
    assert [str(reason) for reason in refusals(own, ["node01"], "fabric")] == [text]
    with pytest.raises(IbPlanError, match="ports have unknown numbers"):
        planned_cables(lay(own))

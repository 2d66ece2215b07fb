"""Problems that only follow from a removed part are left out, whatever the words of a message are."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from rackready.design import check, plan_beyond, site
from rackready.design.assign import assign
from rackready.design.plan import plan_site
from rackready.design.plan_beyond import with_plan
from rackready.design.plan_summary import summary
from rackready.design.prune import STAND_INS, Pruned
from rackready.design.site_flaws import Flaw
from rackready.model.problems import Problem, SiteInvalidError
from tests.unit.design.written import Change, change, example, parse, refusals

WRONG: tuple[object, ...] = (7, [1], None)


def _both(*changes: Change) -> Change:
    def apply(document: dict[str, Any]) -> None:
        for one in changes:
            one(document)

    return apply


def _without(path: str) -> Change:
    *steps, last = path.split(".")

    def apply(document: dict[str, Any]) -> None:
        here = document
        for step in steps:
            here = here[step]
        del here[last]

    return apply


_AIR = change("templates.racks.gpu.cooling", {"kind": "liquid"})
SITES: dict[str, tuple[str, Change, set[str]]] = {
    "kind of the fabric": (
        "h100-1su-infiniband",
        change("fabric.kind", "infinibend"),
        {"fabric.kind"},
    ),
    "rails": ("lab-4-nodes", change("fabric.rails", 8), {"fabric.rails"}),
    "compute network": ("b200-4su-roce", change("networks.compute.per_unit", "small"), {"networks.compute.per_unit"}),
    "size of a unit's subnets": ("b200-4su-roce", change("networks.compute.per_unit", 27), {"racks[0]"}),
    "size of a rack's block of BMCs": (
        "gb200-nvl72-8-racks",
        change("networks.oob.per_rack", 29),
        {"networks.oob.per_rack"},
    ),
    "number of racks": ("b200-4su-roce", change("racks.0.index", 5), {"racks[0].index"}),
    "row of racks": ("b200-4su-roce", change("templates.racks.gpu.row", "row9"), {"templates.racks.gpu.row"}),
    "hall of racks": ("b200-4su-roce", change("templates.racks.gpu.hall", "hall-2"), {"templates.racks.gpu.hall"}),
    "position of racks": ("b200-4su-roce", change("racks.1.position", "x"), {"racks[1].position"}),
    "unit of a node": ("lab-4-nodes", change("racks.0.nodes.0.unit", "low"), {"racks[0].nodes[0].unit"}),
    "rack of a domain": ("gb200-nvl72-8-racks", change("nvlink_domains.0.rack", [1]), {"nvlink_domains[0].rack"}),
    "the other of a pair": ("h100-1su-infiniband", change("racks.2.devices.0.pair", 1), {"racks[2].devices[0].pair"}),
    "DSCP": (
        "lab-4-nodes",
        change("fabric.qos", {"dscp": "x", "cnp_dscp": 26, "priority": 3, "cnp_priority": 6}),
        {"fabric.qos.dscp", "fabric.qos.cnp_dscp"},
    ),
    "section of access": ("lab-4-nodes", change("access", [1]), {"access"}),
    "set of gates": ("lab-4-nodes", change("gates.set", 7), {"gates.set"}),
    "set of software": ("lab-4-nodes", _without("software.set"), {"software.set"}),
    "racks": ("b200-4su-roce", change("racks", "a[01-32]"), {"racks"}),
    "an address twice and a model that does not fit": (
        "h100-1su-infiniband",
        _both(change("racks.2.devices.0.address", "10.99.0.5"), change("racks.2.devices.1.address", "10.99.0.5"), _AIR),
        {"racks[2].devices[1].address", "templates.racks.gpu.cooling.kind"},
    ),
}


def _paths(name: str) -> set[str]:
    """Return the places of all problems of a changed example, those of its plan included."""
    which, apply, _ = SITES[name]
    document = example(which)
    apply(document)
    with pytest.raises(SiteInvalidError) as caught:
        parse(document)
    found = with_plan(caught.value).problems
    return {problem.path for problem in found} - {"plan"}


@pytest.mark.parametrize("name", SITES)
def test_a_removed_part_makes_no_further_problems(name: str) -> None:
    assert _paths(name) == SITES[name][2]


class _Reworded:
    """Replaces the words of every finding by others."""

    def __init__(self) -> None:
        self.number = 0

    def found(self, found: list[Flaw]) -> list[Flaw]:
        return [replace(item, message=self.words(), hint=self.words()) for item in found]

    def problems(self, problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
        return tuple(replace(item, message=self.words(), hint="") for item in problems)

    def words(self) -> str:
        self.number += 1
        return f"{'ab'[self.number % 2] * self.number}."


@pytest.mark.parametrize("name", SITES)
def test_the_words_of_a_message_decide_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words, checked = _Reworded(), check.check
    monkeypatch.setattr(check, "check", lambda *given: words.found(checked(*given)))
    monkeypatch.setattr(site, "assign", lambda document: words.found(assign(document)))
    shaped = site.shape_problem

    def shape(*given: Any, **more: Any) -> Problem:
        return replace(shaped(*given, **more), message=words.words())

    monkeypatch.setattr(site, "shape_problem", shape)

    def planned(*given: Any) -> Any:  # noqa: ANN401
        plan = plan_site(*given)
        return replace(plan, problems=words.problems(plan.problems))

    monkeypatch.setattr(plan_beyond, "plan_site", planned)
    assert _paths(name) == SITES[name][2]


@pytest.mark.parametrize("name", ["lab-4-nodes", "h100-1su-infiniband"])
@pytest.mark.parametrize("wrong", WRONG, ids=str)
@pytest.mark.parametrize(
    "key",
    [*STAND_INS, *(f"{section}.{key}" for section, own in STAND_INS.items() if isinstance(own, dict) for key in own)],
)
def test_a_stand_in_is_never_shown(name: str, key: str, wrong: object) -> None:
    document = example(name)
    section, _, inner = key.partition(".")
    if inner and inner not in document.get(section, {}):
        return
    change(key, wrong)(document)
    assert not [text for text in refusals(document) if "stand-in" in text]


def test_the_other_part_of_a_removed_key_is_still_checked() -> None:
    pruned = Pruned(keys={("racks", 0, "nodes", 0, "unit"), ("fabric", "kind")}, sections={"gates"})
    assert pruned.doubtful(("racks", 0, "nodes", 0), [("racks", 0, "nodes", 0, "unit")])
    assert pruned.doubtful(("racks", 0, "nodes", 0, "unit"))
    assert pruned.doubtful(("fabric", "mtu"))
    assert pruned.doubtful(("tenants", 0, "pkey"), [("fabric", "kind")])
    assert pruned.doubtful(("gates", "set"))
    assert pruned.doubtful(("racks", 1), [("gates",)])
    assert not pruned.doubtful(("racks", 0, "nodes", 0))
    assert not pruned.doubtful(("racks", 0), [("racks", 0, "nodes", 1, "unit")])
    assert not pruned.doubtful(())


def test_problems_of_a_plan_keep_their_form() -> None:
    document = example("h100-1su-infiniband")
    document["cable_stock"] = {"MFP7E10": [4]}
    (problem,) = json.loads(json.dumps(summary(plan_site(parse(document)))))["problems"]
    assert problem == {
        "path": "cable_stock.MFP7E10",
        "message": "Expected: lengths of 3, 5, 7, 10, 15, 20, 30, 50 m Actual: 4 m. "
        "Correct it, or add its part number to profiles/parts.",
        "hint": "",
    }


def test_problems_of_one_line_are_combined_by_their_sort() -> None:
    taken = [Problem("templates.nodes.h100", f"{letter} is taken.", "Move it.", sort="taken") for letter in "abcde"]
    other = Problem("templates.nodes.h100", "z is taken.", "Move it.", sort="other")
    elsewhere = replace(other, path="racks[0]", sort="taken")
    assert [str(problem) for problem in site.gathered([*taken, other, elsewhere])] == [
        "templates.nodes.h100: a is taken. Move it.",
        "templates.nodes.h100: b is taken. Move it.",
        "templates.nodes.h100: c is taken. (and 2 more like this) Move it.",
        "templates.nodes.h100: z is taken. Move it.",
        "racks[0]: z is taken. Move it.",
    ]


def test_a_port_that_the_server_does_not_have_is_no_crash_of_the_plan() -> None:
    document = example("h100-1su-infiniband")
    change("nic_plans.0.unused.0.name", "slot9")(document)
    with pytest.raises(SiteInvalidError) as caught:
        parse(document)
    assert [problem.path for problem in with_plan(caught.value).problems] == ["nic_plans[0].unused[0].name", "plan"]


def test_a_device_may_serve_a_rack_that_was_removed() -> None:
    document = example("gb200-nvl72-8-racks")
    document["racks"].append({"name": "r09", "template": 7, "nodes": "none"})
    document["devices"][0]["serves"] = ["r[01-09]"]
    found = refusals(document)
    assert found
    assert not [text for text in found if text.startswith("devices")], found


@pytest.mark.parametrize(
    ("switch", "found"),
    [
        (
            {"os": "sonik"},
            "switches[0].os: sn5600 does not run 'sonik' - Expected: one of cumulus_nvue, sonic. Correct it.",
        ),
        ({"model": "sn5601"}, "switches[0].model: switch profile 'sn5601' does not exist - Expected: one of "),
    ],
    ids=["system", "model"],
)
def test_ports_are_not_judged_by_a_switch_that_has_other_names(switch: dict[str, str], found: str) -> None:
    document = example("lab-4-nodes")
    leaf = document["switches"][0]
    document["switches"] = [{**leaf, "name": f"leaf0{k}", "address": f"192.0.2.2{k}"} for k in (1, 2)]
    document["switches"][0] |= {"os": "sonic"} | switch
    document["links"][0:1] = [
        {"node": f"node0{k}", "rails": "1-4", "switch": "leaf01", "ports": f"Ethernet{k * 32}-Ethernet{k * 32 + 24}"}
        for k in range(1, 5)
    ]
    (only,) = refusals(document)
    assert only.startswith(found)

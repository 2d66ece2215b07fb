"""The summary on top of a report: every node that needs work, once per kind of finding, with place and next step."""

from __future__ import annotations

from typing import Any

import pytest

from rackready.evidence.faults import Faults
from rackready.evidence.node_page import node_page
from rackready.model.outcome import Finding

NVLINK, DISKS = "node/gpu/sanity/nvlink", "node/host/sanity/disks"
WHERE = {"node01": ("rack-a", 7), "node02": ("rack-a", 13), "node03": ("rack-b", None)}
RACKS = [
    {"name": rack, "cells": [{"name": node, "unit": unit} for node, (own, unit) in WHERE.items() if own == rack]}
    for rack in ("rack-a", "rack-b")
]


def finding(
    where: str, what: str = "NVLink down", actual: str = "17", step: str = "Power the node off and on."
) -> dict[str, Any]:
    found = {"code": "nvlink-inactive", "where": where, "what": what, "expected": "18", "actual": actual}
    return Finding.model_validate(found | {"next_step": step}).model_dump(mode="json")


def gate(
    name: str, outcome: str, *findings: dict[str, Any], pending: bool = False, note: str | None = None
) -> dict[str, Any]:
    return {
        "gate": name,
        "title": "Every NVLink is active.",
        "outcome": outcome,
        "findings": list(findings),
        "fleet_pending": pending,
        "note": note,
    }


def node(
    name: str,
    outcome: str,
    *gates: dict[str, Any],
    state: str = "quarantined",
    reason: str = "",
    unmeasured: tuple[str, ...] = (),
    result: dict[str, str] | None = None,
) -> dict[str, Any]:
    coverage = {"outcome": "error" if unmeasured else "pass", "counts": {}, "unmeasured": list(unmeasured)}
    return {
        "name": name,
        "state": state,
        "reason": reason,
        "outcome": outcome,
        "gates": list(gates),
        "coverage": coverage,
        "result": result,
    }


def page(*nodes: dict[str, Any], small: bool = True) -> dict[str, Any]:
    found = Faults()
    for item in nodes:
        found.node(node_page(item, small=small))
    return found.page(RACKS)


def test_a_finding_of_several_nodes_is_one_group_with_its_racks_and_its_next_step() -> None:
    (group,) = page(*(node(name, "fail", gate(NVLINK, "fail", finding(f"{name} gpu2"))) for name in WHERE))["groups"]
    assert group["code"] == "nvlink-inactive"
    assert (group["outcome"], group["gate"], group["what"], group["nodes"], group["next_step"]) == (
        "fail",
        NVLINK,
        "NVLink down",
        3,
        "Power the node off and on.",
    )
    assert (group["alike"]["parts"], group["alike"]["expected"], group["alike"]["actual"]) == (["gpu2"], "18", "17")
    assert group["racks"] == {
        "rack-a": [{"node": "node01", "unit": 7}, {"node": "node02", "unit": 13}],
        "rack-b": [{"node": "node03", "unit": None}],
    }


def test_a_node_that_a_phase_did_not_pass_is_bad_though_all_its_gates_passed() -> None:
    said = "node02: rail 3 - Expected: an answer Actual: none. Check the cable."
    result = {"phase": "fabric", "outcome": "fail", "message": said}
    found = page(node("node02", "fail", gate(NVLINK, "pass"), state="installed", result=result))
    (group,) = found["groups"]
    assert (found["nodes"], group["outcome"], group["what"]) == (1, "fail", "phase fabric did not pass")
    assert [(place["node"], place["expected"], place["actual"]) for place in group["places"]] == [("node02", "", said)]


def test_what_a_judging_phase_said_is_told_only_where_no_record_tells_it() -> None:
    result = {"phase": "validate", "outcome": "fail", "message": "node01 gpu2: NVLink down"}
    bad = gate(NVLINK, "fail", finding("node01 gpu2"))
    assert [group["what"] for group in page(node("node01", "fail", bad, result=result))["groups"]] == ["NVLink down"]
    alone = {"phase": "validate", "outcome": "error", "message": "node01: unreachable"}
    (group,) = page(node("node01", "error", gate(NVLINK, "pass"), state="installed", result=alone))["groups"]
    assert (group["what"], group["places"][0]["actual"]) == ("phase validate did not pass", "node01: unreachable")


def test_causes_come_before_their_consequences() -> None:
    slow = gate("node/gpu/performance/nccl-all-reduce", "fail", finding("node01") | {"what": "all-reduce is slow"})
    down = gate(NVLINK, "fail", finding("node01 gpu2"))
    groups = page(node("node01", "fail", slow, down), node("node02", "fail", slow))["groups"]
    assert [group["what"] for group in groups] == ["NVLink down", "all-reduce is slow"]


def test_whose_a_finding_is_does_not_depend_on_its_words() -> None:
    reworded = finding("node01 gpu2") | {"where": "node01: the third GPU"}
    other = finding("node02 gpu2") | {"where": "node01 gpu2, as node02 sees it"}
    (group,) = page(node("node01", "fail", gate(NVLINK, "fail", reworded, other)))["groups"]
    assert [place["parts"] for place in group["places"]] == [[": the third GPU", "node01 gpu2, as node02 sees it"]]


def test_places_that_differ_say_each_what_was_found_and_what_to_do() -> None:
    one, other = finding("node01 gpu2"), finding("node02 gpu4", actual="16", step="Replace gpu4.")
    (group,) = page(
        node("node01", "fail", gate(NVLINK, "fail", one)), node("node02", "fail", gate(NVLINK, "fail", other))
    )["groups"]
    assert (group["alike"], group["next_step"]) == (None, "")
    assert [
        (place["rack"], place["unit"], place["node"], place["parts"], place["actual"], place["next_step"])
        for place in group["places"]
    ] == [
        ("rack-a", 7, "node01", ["gpu2"], "17", "Power the node off and on."),
        ("rack-a", 13, "node02", ["gpu4"], "16", "Replace gpu4."),
    ]


def test_parts_of_a_node_that_show_the_same_are_one_place() -> None:
    (group,) = page(node("node01", "fail", gate(NVLINK, "fail", *(finding(f"node01 gpu{at}") for at in range(8)))))[
        "groups"
    ]
    (place,) = group["places"]
    assert (group["nodes"], place["parts"], place["more"]) == (1, ["gpu0", "gpu1", "gpu2", "gpu3", "gpu4", "gpu5"], 2)


def test_the_worst_comes_first_then_what_most_nodes_have_and_coverage_last() -> None:
    groups = page(
        node(
            "node01",
            "error",
            gate(DISKS, "error", finding("node01 nvme3", "drive is not read")),
            unmeasured=("node01/gpu2/nvlink4",),
        ),
        node("node02", "fail", gate(NVLINK, "fail", finding("node02 gpu2"), finding("node02 gpu3", "NVLink slow"))),
        node("node03", "fail", gate(NVLINK, "fail", finding("node03 gpu2", "NVLink slow"))),
    )["groups"]
    assert [(group["outcome"], group["what"]) for group in groups] == [
        ("fail", "NVLink slow"),
        ("fail", "NVLink down"),
        ("error", "drive is not read"),
        ("error", "parts that no gate measured"),
    ]
    assert (groups[-1]["places"][0]["parts"], groups[-1]["next_step"]) == (
        ["gpu2/nvlink4"],
        "Run `rackready validate --limit node01`.",
    )


REPAIR = "When it is repaired, run `rackready repair NODE --reason '...'`, then `rackready deploy`."
RMA = "When it is back, run `rackready rma NODE --returned --reason '...'`, then `rackready deploy`."


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize(("state", "step"), [("stuck", REPAIR), ("quarantined", REPAIR), ("repair", RMA)])
def test_a_node_that_is_set_aside_though_no_gate_failed_is_told_with_its_reason_and_its_way_back(
    state: str, step: str, *, small: bool
) -> None:
    (group,) = page(
        node("node02", "pass", gate(NVLINK, "pass"), state=state, reason="no answer of its BMC"), small=small
    )["groups"]
    assert (group["outcome"], group["what"], group["places"][0]["actual"], group["next_step"]) == (
        state,
        "set aside without a finding of a gate",
        "no answer of its BMC",
        step,
    )


def test_a_node_that_nothing_measured_is_told_with_the_command_that_measures_it() -> None:
    found = page(node("node02", "not_run", state="declared"))
    (group,) = found["groups"]
    assert (found["nodes"], group["outcome"], group["what"]) == (1, "not_run", "no gate has measured it")
    assert group["next_step"] == "Run `rackready validate --limit node02`."


def test_a_record_without_a_finding_is_told_by_its_title_and_note() -> None:
    (group,) = page(node("node01", "not_run", gate(NVLINK, "not_run", note="a check before it failed")))["groups"]
    assert (group["what"], group["places"][0]["actual"]) == ("Every NVLink is active.", "a check before it failed")


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize(
    ("state", "told"), [("validated", ["gates that no bound could judge"]), ("certified", []), ("ready", [])]
)
def test_a_pass_that_no_bound_could_judge_is_told_by_its_field_until_the_node_is_certified(
    state: str, told: list[str], *, small: bool
) -> None:
    word = gate(DISKS, "pass", note="fleet pending")
    found = page(node("node01", "pass", gate(NVLINK, "pass", pending=True), word, state=state), small=small)
    assert [group["what"] for group in found["groups"]] == told
    assert [group["places"][0]["parts"] for group in found["groups"]] == [[NVLINK]] * len(told), (
        "what a note says decides nothing"
    )
    assert found["nodes"] == 0


def test_good_nodes_are_no_faults() -> None:
    assert page(
        node("node01", "pass", gate(NVLINK, "pass"), state="ready"),
        node("node02", "skip", gate(NVLINK, "skip"), state="certified"),
    ) == {
        "nodes": 0,
        "groups": [],
        "left": 0,
        "begin": {"racks": [], "nodes": []},
    }


def test_it_begins_with_the_node_that_has_the_most_findings() -> None:
    slow = finding("node02 gpu4", "NVLink slow", step="Reseat gpu4.")
    begin = page(
        node("node01", "fail", gate(NVLINK, "fail", finding("node01 gpu2"), finding("node01 gpu3"))),
        node("node02", "fail", gate(DISKS, "error", finding("node02 nvme3", "not read")), gate(NVLINK, "fail", slow)),
    )["begin"]
    assert [(row["rack"], row["unit"], row["node"], row["next_step"]) for row in begin["nodes"]] == [
        ("rack-a", 13, "node02", "Reseat gpu4."),
        ("rack-a", 7, "node01", "Power the node off and on."),
    ]
    assert [(fault.what, fault.parts) for row in begin["nodes"] for fault in row["faults"]] == [
        ("NVLink slow", ("gpu4",)),
        ("not read", ("nvme3",)),
        ("NVLink down", ("gpu2", "gpu3")),
    ]


def test_one_kind_of_finding_needs_no_table_of_where_to_begin() -> None:
    assert page(node("node01", "fail", gate(NVLINK, "fail", finding("node01 gpu2"))))["begin"]["nodes"] == []


def many(racks: int, bad: int, each: int = 8) -> dict[str, Any]:
    """A site in which as many nodes of the first rack, and the first of every other, have the same finding."""
    found = Faults()
    cells = [
        {"name": f"r{rack}", "cells": [{"name": f"r{rack}n{unit}", "unit": unit} for unit in range(1, each + 1)]}
        for rack in range(racks)
    ]
    for rack in range(racks):
        for unit in range(1, (bad if rack == 0 else 1) + 1):
            name = f"r{rack}n{unit}"
            found.node(node_page(node(name, "fail", gate(NVLINK, "fail", finding(f"{name} gpu2"))), small=False))
    return found.page(cells)


def test_a_rack_in_which_several_nodes_have_the_same_finding_comes_first() -> None:
    (rack,) = many(4, 3)["begin"]["racks"]
    assert (rack["rack"], rack["nodes"], rack["of"]) == ("r0", ["r0n1", "r0n2", "r0n3"], 8)
    assert (rack["what"], rack["next_step"]) == ("NVLink down", "Power the node off and on.")


@pytest.mark.parametrize(("racks", "bad"), [(4, 2), (1, 8)], ids=["two nodes", "the only rack"])
def test_no_rack_stands_out(racks: int, bad: int) -> None:
    assert many(racks, bad)["begin"]["racks"] == []


def test_where_to_begin_stays_short_however_many_nodes_are_bad() -> None:
    found = Faults()
    for number in range(1000):
        name = f"n{number}"
        items = [finding(f"{name} gpu2"), finding(f"{name} gpu3", "NVLink slow")][: 2 if number % 3 else 1]
        found.node(node_page(node(name, "fail", gate(NVLINK, "fail", *items)), small=False))
    assert [row["node"] for row in found.page([])["begin"]["nodes"]] == ["n1", "n2", "n4", "n5", "n7"]
    assert len(found.worst.nodes) <= 2 * 64, "memory does not grow with the site"


@pytest.mark.parametrize(("failed", "follows"), [(True, True), (False, False)], ids=["failed", "nothing failed"])
def test_what_was_not_run_follows_only_from_a_failure_of_the_same_node(*, failed: bool, follows: bool) -> None:
    """Without one it is the node's only trouble, and stays in sight."""
    failing = gate(NVLINK, "fail" if failed else "pass", *([finding("node01 gpu2")] if failed else []))
    other = node("node02", "fail", gate(NVLINK, "fail", finding("node02 gpu2")))
    waiting = gate(DISKS, "not_run", finding("node01", "disks was not run"))
    groups = page(node("node01", "fail", failing, waiting, unmeasured=("node01/gpu2",)), other)["groups"]
    assert [group["follows"] for group in groups if group["gate"] != NVLINK] == [follows, follows]

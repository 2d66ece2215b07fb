"""The plan of the fabric phase, computed from what was seen: nothing is asked and nothing is changed here."""

from __future__ import annotations

import json

from rackready.campaign.drained_phase import Results
from rackready.campaign.fabric_plan import FabricPhasePlan, FabricReadings, FabricWork, dry_results, plan
from rackready.model.outcome import Outcome
from rackready.model.phase import PLAN, UNTOUCHED, NodeResult

BEHIND = {
    "node01": ["leaf01"],
    "node02": ["leaf01"],
    "node03": ["leaf02"],
    "node04": ["leaf02"],
    "node05": ["leaf01", "leaf02"],
}
PASS = NodeResult(Outcome.PASS)
KEPT = NodeResult(Outcome.ERROR, "jobs run on it", touched=False)
NICS = NodeResult(Outcome.PASS, changed=True, data={"changes": ["MTU"]})


def planned(
    *asked: str,
    ours: tuple[str, ...] = (),
    busy: tuple[str, ...] = (),
    unknown: Results | None = None,
    switches: Results | None = None,
    ports: dict[str, list[str]] | None = None,
    nics: Results | None = None,
) -> FabricPhasePlan:
    looked = dict.fromkeys((node for node in asked if node in busy), PASS) | (nics or {})
    seen = FabricReadings(
        asked,
        frozenset({*ours, *asked}),
        BEHIND,
        busy,
        unknown or {},
        {"leaf01": PASS, "leaf02": PASS} | (switches or {}),
        ports or {},
        looked,
    )
    return plan(seen)


def short(work: FabricWork) -> tuple[list[str], list[str], list[str], list[str]]:
    return work.run, sorted(work.same), sorted(work.left), work.elsewhere


def test_where_nothing_changes_nobody_is_drained_and_nothing_runs_twice() -> None:
    found = planned("node01", "node02", busy=("node01",))
    assert (found.drain, short(found.after({}))) == ({}, (["node01", "node02"], ["node01"], [], []))


def test_only_a_node_that_changes_is_drained_with_the_reason() -> None:
    found = planned("node01", "node02", busy=("node01", "node02"), ports={"node01": ["leaf01"]}, nics={"node02": NICS})
    assert found.drain == {
        "node01": "fabric is about to change: its ports on leaf01",
        "node02": "fabric is about to change: MTU",
    }
    assert short(found.after({})) == (["node01", "node02"], [], [], [])


def test_who_keeps_its_jobs_keeps_its_switch_as_it_is() -> None:
    found = planned("node01", "node02", "node03", busy=("node01",), ports={"node01": ["leaf01"]})
    work = found.after({"node01": KEPT})
    assert short(work) == (["node03"], [], ["node01", "node02"], [])
    assert work.left["node02"].message == (
        "leaf01: its ports would change - Expected: all nodes in production behind it drained "
        "Actual: not drained: node01. "
        "Nothing was changed. Run again when their jobs have ended."
    )


def test_a_node_in_production_that_was_not_asked_for_bars_its_switch_and_is_not_drained() -> None:
    found = planned("node02", busy=("node01",), ports={"node01": ["leaf01"], "node02": ["leaf01"]})
    assert (found.drain, found.barred) == ({}, {"node01": "fabric is about to change: its ports on leaf01"})
    assert short(found.after({})) == ([], [], ["node02"], [])


def test_a_node_of_a_later_wave_is_drained_and_its_evidence_void() -> None:
    found = planned("node02", ours=("node01",), busy=("node01",), ports={"node01": ["leaf01"]})
    assert found.drain == {"node01": "fabric is about to change: its ports on leaf01"}
    assert short(found.after({})) == (["node02"], [], [], ["node01"])
    assert short(found.after({"node01": KEPT})) == ([], [], ["node02"], [])


def test_a_switch_that_cannot_be_previewed_is_left_as_it_is_while_somebody_behind_it_is_in_production() -> None:
    bad = {"leaf01": NodeResult(Outcome.ERROR, "leaf01: does not answer")}
    found = planned("node01", "node03", busy=("node02",), switches=bad, ports={"node01": ["leaf01"]})
    work = found.after({})
    assert short(work) == (["node03"], [], ["node01"], [])
    assert (work.left["node01"].message, work.left["node01"].data) == ("leaf01: does not answer", {UNTOUCHED: True})
    assert short(planned("node01", switches=bad).after({})) == (["node01"], [], [], []), (
        "nobody is in production behind it: it is tried"
    )


def test_a_node_left_alone_at_one_switch_whose_ports_change_at_another_is_not_as_it_was() -> None:
    bad = {"leaf02": NodeResult(Outcome.ERROR, "leaf02: does not answer")}
    found = planned("node01", "node05", busy=("node05",), switches=bad, ports={"node05": ["leaf01", "leaf02"]})
    work = found.after({})
    assert short(work) == (["node01"], [], ["node05"], [])
    assert (work.left["node05"].touched, work.left["node05"].data) == (True, {})


def test_a_node_of_which_nobody_knows_whether_it_has_jobs_is_left_alone() -> None:
    silent = NodeResult(Outcome.ERROR, "nobody can say it", data={UNTOUCHED: True}, touched=False)
    found = planned("node01", "node02", unknown={"node01": silent}, ports={"node01": ["leaf01"]})
    assert short(found.after({})) == ([], [], ["node01", "node02"], [])
    assert found.after({}).left["node01"] == silent


def test_a_dry_run_tells_who_would_be_drained_and_who_left_alone() -> None:
    found = planned("node01", "node03", busy=("node01", "node04"), ports={"node01": ["leaf01"], "node04": ["leaf02"]})
    out = dry_results(found, {"node01": NICS, "node03": PASS})
    assert (out["node01"].message, out["node01"].changed) == (
        "would be drained first: fabric is about to change: its ports on leaf01",
        True,
    )
    assert out["node03"].outcome is Outcome.ERROR
    assert out["node03"].message == (
        "leaf02: its ports would change - Expected: all nodes in production behind it drained "
        "Actual: not drained: node04. "
        "Nothing was changed. Run it for them, too (--limit), or for the whole site."
    )


NOTHING = {"why": "", "drain": "", "switches": [], "changes": [], "blocked": []}


def rows(found: FabricPhasePlan, dry: Results) -> dict[str, object]:
    return {node: json.loads(json.dumps(result.data[PLAN])) for node, result in dry_results(found, dry).items()}


def test_a_dry_run_shows_the_plan_as_json_where_no_node_is_in_production() -> None:
    found = planned("node01", "node02", "node03", ports={"node01": ["leaf01"]})
    failed = NodeResult(Outcome.ERROR, "node03: does not answer")
    assert rows(found, {"node01": NICS, "node02": PASS, "node03": failed}) == {
        "node01": NOTHING
        | {
            "step": "run",
            "why": "fabric is about to change: its ports on leaf01; MTU",
            "switches": ["leaf01"],
            "changes": ["MTU"],
        },
        "node02": NOTHING | {"step": "run"},
        "node03": NOTHING | {"step": "run", "why": "node03: does not answer"},
    }


def test_the_row_of_a_node_in_production_has_its_drain_and_of_one_left_alone_its_switches() -> None:
    ports = {"node01": ["leaf01"], "node04": ["leaf02"]}
    found = planned("node01", "node03", busy=("node01", "node04"), ports=ports)
    words = "fabric is about to change: its ports on leaf01"
    shown = rows(found, {"node01": PASS, "node03": PASS})
    assert shown["node01"] == NOTHING | {"step": "run", "why": words, "drain": words, "switches": ["leaf01"]}
    assert shown["node03"] == NOTHING | {
        "step": "leave",
        "why": dry_results(found, {"node03": PASS})["node03"].message,
        "blocked": ["leaf02"],
    }


def test_a_switch_without_a_preview_is_blocked_in_the_row() -> None:
    bad = {"leaf02": NodeResult(Outcome.ERROR, "leaf02: does not answer")}
    found = planned("node05", busy=("node03",), switches=bad)
    (row,) = rows(found, {"node05": PASS}).values()
    assert row == NOTHING | {"step": "leave", "why": "leaf02: does not answer", "blocked": ["leaf02"]}

"""Kill switches in the site file: invalid ones are refused by exact text, an expired one is a warning."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from rackready.design.check_gates import LONGEST_DAYS, today, warnings
from rackready.design.site import parse_site
from rackready.design.yaml import read_yaml
from rackready.model.problems import SiteInvalidError
from rackready.model.site import Site
from rackready.profiles.loader import gate_set, gates_of, set_of

ROOT = Path(__file__).resolve().parents[3]
R1 = "node/gpu/validation/dcgm-r1"
GOOD = {
    "gate": R1,
    "until": str(today() + timedelta(days=30)),
    "by": "storage team",
    "reason": "false alarms with DCGM 4.6.1",
}


def site_of(*disabled: dict[str, Any]) -> Site:
    document = read_yaml(ROOT / "inventories/sim/site.yml")
    return parse_site(
        {**document, "gates": {"set": "bringup", "disabled": list(disabled)}}, source="site.yml", base=ROOT
    )


def refusals(*disabled: dict[str, Any]) -> list[str]:
    with pytest.raises(SiteInvalidError) as refused:
        site_of(*disabled)
    return [str(problem) for problem in refused.value.problems]


def test_a_kill_switch_with_an_end_is_taken() -> None:
    assert site_of(GOOD).gates.skipped("node03", today()) == {
        R1: f"switched off until {GOOD['until']} by storage team: false alarms with DCGM 4.6.1"
    }


def test_the_last_day_may_be_ninety_days_ahead_and_no_more() -> None:
    last = today() + timedelta(days=LONGEST_DAYS)
    assert site_of({**GOOD, "until": str(last)}).gates.disabled
    later = last + timedelta(days=1)
    assert refusals({**GOOD, "until": str(later)}) == [
        (
            f"gates.disabled[0].until: gate {R1} is disabled until {later} - "
            f"Expected: {last} or before (at most 90 days ahead). "
            "Set an earlier date and review the gate then."
        )
    ]


@pytest.mark.parametrize("key", ["until", "by", "reason"])
def test_what_is_missing_is_refused(key: str) -> None:
    assert refusals({name: value for name, value in GOOD.items() if name != key}) == [
        f"gates.disabled[0].{key}: is required and missing. Add it."
    ]


@pytest.mark.parametrize(("key", "least"), [("by", 2), ("reason", 10)])
def test_blanks_are_no_name_and_no_reason(key: str, least: int) -> None:
    blank = " " * 12
    assert refusals({**GOOD, key: blank}) == [
        f"gates.disabled[0].{key}: Expected: at least {least} characters Actual: '{blank}'. Correct it."
    ]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("storage \x1b[2Jteam", "visible characters"),
        ("\u200b" * 12, "visible characters"),
        ("-- -- -- -- --", "words, with a letter or a digit"),
    ],
    ids=ascii,
)
@pytest.mark.parametrize("key", ["by", "reason"])
def test_what_nobody_sees_is_no_name_and_no_reason(key: str, words: str, expected: str) -> None:
    assert refusals({**GOOD, key: words}) == [
        f"gates.disabled[0].{key}: Expected: {expected} Actual: {words!r}. Correct it."
    ]


def test_a_gate_of_another_set_may_be_switched_off_since_that_set_may_be_run_by_name() -> None:
    gate = "node/gpu/performance/gemm-torch"
    site = site_of({**GOOD, "gate": gate})
    assert gate not in {entry.id for entry in gates_of(site.gates)}
    assert gate in {entry.id for entry in set_of(site.gates, "burnin").gates}
    assert set(site.gates.skipped("node01", today())) == {gate}


def test_a_gate_that_is_in_no_set_is_refused_and_so_is_one_given_twice() -> None:
    found = refusals({**GOOD, "gate": "node/gpu/sanity/inventry"}, GOOD, GOOD)
    assert found[0].startswith(
        "gates.disabled[0].gate: gate node/gpu/sanity/inventry is in no gate set - "
        "Expected: one of node/gpu/sanity/inventory, "
    )
    assert found[1] == f"gates.disabled[2].gate: gate {R1} is disabled twice. Keep one of the two."


def test_one_that_is_past_is_a_warning_and_the_gate_runs_again() -> None:
    past = date(2026, 1, 31)
    site = site_of({**GOOD, "until": str(past)})
    assert site.gates.skipped("node01", today()) == {}
    assert warnings(site, today()) == [
        (
            f"gates.disabled[0]: the kill switch of {R1} ended on 2026-01-31; the gate runs again. "
            "Remove the entry, or have storage team renew it with a new date and reason."
        )
    ]
    assert warnings(site, past) == []


def test_a_skip_names_nodes_as_slurm_does_and_only_such_as_there_are() -> None:
    document = read_yaml(ROOT / "inventories/sim/site.yml")

    def skips(*nodes: str) -> Site:
        entry = {"gate": R1, "nodes": list(nodes), "reason": "these nodes lend their GPUs to another team"}
        return parse_site({**document, "gates": {"set": "bringup", "skip": [entry]}}, source="site.yml", base=ROOT)

    found = skips("node[01-02]", "node04").gates
    assert [name for name in ("node01", "node02", "node03", "node04") if found.skipped(name, today())] == [
        "node01",
        "node02",
        "node04",
    ]
    with pytest.raises(SiteInvalidError) as refused:
        skips("node01", "node[03-06]")
    assert [str(problem) for problem in refused.value.problems] == [
        "gates.skip[0].nodes[1]: no nodes are called node05, node06. Correct the name or the range."
    ]


def test_a_gate_is_skipped_once_on_a_node() -> None:
    """The last of two reasons was the only one that a report ever showed."""
    document = read_yaml(ROOT / "inventories/sim/site.yml")

    def skips(*entries: tuple[str, str]) -> Site:
        listed = [
            {"gate": gate, "nodes": [nodes], "reason": f"reason number {place} of several"}
            for place, (gate, nodes) in enumerate(entries)
        ]
        return parse_site({**document, "gates": {"set": "bringup", "skip": listed}}, source="site.yml", base=ROOT)

    other = "node/gpu/sanity/ecc"
    assert skips((R1, "node01"), (R1, "node[02-03]"), (other, "node01")).gates.skip
    with pytest.raises(SiteInvalidError) as refused:
        skips((R1, "node[01-04]"), (other, "node02"), (R1, "node[01-04]"), (other, "node[02-03]"))
    actual = " - Expected: one reason Actual: another in"
    assert [str(problem) for problem in refused.value.problems] == [
        (
            f"gates.skip[2].nodes: gate {R1} is skipped twice on node01, node02, node03 and 1 more{actual} "
            "gates.skip[0]. Keep one of the two."
        ),
        f"gates.skip[3].nodes: gate {other} is skipped twice on node02{actual} gates.skip[1]. Keep one of the two.",
    ]


def test_a_site_adds_gates_to_its_set_and_says_otherwise_of_some() -> None:
    document = read_yaml(ROOT / "inventories/sim/site.yml")
    own = [
        {"id": R1, "max_age_hours": 24},
        {"id": "node/storage/performance/parallel-filesystem", "inputs": {"read_gb_s": 40}},
    ]
    site = parse_site({**document, "gates": {"set": "bringup", "also": own}}, source="site.yml", base=ROOT)
    found = {entry.id: entry for entry in gates_of(site.gates)}
    assert (found[R1].max_age_hours, found[R1].after_boot) == (24, False), (
        "the site's entry stands in place of the set's as a whole"
    )
    assert list(found)[-1] == "node/storage/performance/parallel-filesystem"
    assert len(found) == len(gate_set("bringup").gates) + 1
    with pytest.raises(
        SiteInvalidError, match=rf"gates\.also\[1\]\.id: gate {R1} is given twice\. Keep one of the two\."
    ):
        parse_site({**document, "gates": {"set": "bringup", "also": [own[0], own[0]]}}, source="site.yml", base=ROOT)


def test_a_set_that_is_run_by_name_takes_the_sites_values_and_nothing_more() -> None:
    """An image of the site applies to every set; gates that the site adds to its own set are not added to others."""
    document = read_yaml(ROOT / "inventories/sim/site.yml")
    torch = {
        "id": "node/gpu/performance/gemm-torch",
        "inputs": {"image": "registry.example/pytorch:25.10"},
        "max_age_hours": 2160,
    }
    own = [torch, {"id": "node/gpu/validation/container-run", "inputs": {"image": "registry.example/cuda:13.0"}}]
    site = parse_site({**document, "gates": {"set": "bringup", "also": own}}, source="site.yml", base=ROOT)
    burnin = set_of(site.gates, "burnin")
    assert {entry.id: entry.inputs for entry in burnin.gates if entry.inputs} == {torch["id"]: torch["inputs"]}
    assert [entry.id for entry in burnin.gates] == [entry.id for entry in gate_set("burnin").gates]
    assert (burnin.repeat_hours, burnin.wave_gap_s) == (gate_set("burnin").repeat_hours, gate_set("burnin").wave_gap_s)
    assert set_of(site.gates, "nightly") == gate_set("nightly")
    assert [entry.id for entry in gates_of(site.gates)][-2:] == [entry["id"] for entry in own]

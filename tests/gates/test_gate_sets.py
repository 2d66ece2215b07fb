"""Shipped gate sets: existing gates, valid inputs, a reason for every value and for every gate in no set."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.gates.base import Gate
from rackready.gates.engine.contract import breaches
from rackready.gates.engine.registry import all_gates, gate
from rackready.gates.engine.single_node import LEVELS
from rackready.profiles import loader
from rackready_sim.faults import FAULTS
from tests.gates.support import rack

FOLDER = Path(loader.__file__).parent / "gate_sets"
SETS = loader.known("gate_sets")
NAMED = {entry.id for name in SETS for entry in loader.gate_set(name).gates}
SHIPPED = {gate_id: kind for gate_id, kind in all_gates().items() if kind.__module__.startswith("rackready.")}


def test_the_promised_sets_are_there() -> None:
    assert set(SETS) >= {"quick", "bringup", "burnin", "maintenance", "nightly"}


@pytest.mark.parametrize("name", SETS)
def test_a_set_names_gates_that_there_are_each_once(name: str) -> None:
    entries = loader.gate_set(name).gates
    assert [entry.id for entry in entries if entry.id not in SHIPPED] == []
    assert len({entry.id for entry in entries}) == len(entries)
    for entry in entries:
        gate(entry.id, entry.inputs)


@pytest.mark.parametrize("name", SETS)
def test_a_set_names_gates_of_one_node_level_by_level(name: str) -> None:
    """They run so anyway; a file in another order would tell its reader another story."""
    alone = [found for entry in loader.gate_set(name).gates if (found := gate(entry.id)).single_node]
    assert [found.id for found in alone] == [
        found.id for found in sorted(alone, key=lambda found: LEVELS.index(found.level))
    ]


@pytest.mark.parametrize("name", SETS)
def test_every_value_of_a_set_has_its_reason_beside_it(name: str) -> None:
    """Each entry has an age, and a comment above it, above the few entries with it, or above all."""
    lines = (FOLDER / f"{name}.yml").read_text(encoding="utf-8").splitlines()
    assert all(entry.max_age_hours for entry in loader.gate_set(name).gates)
    assert any(line.startswith("#") and "Source" in line for line in lines)
    for key in ("repeat_hours", "wave_gap_s"):
        place = next((place for place, line in enumerate(lines) if line.startswith(f"{key}:")), None)
        assert place is None or lines[place - 1].startswith("#"), key
    first = next(place for place, line in enumerate(lines) if line.startswith("gates:")) + 1
    assert lines[first].lstrip().startswith("#"), "entries begin with a reason"


def test_every_gate_is_in_a_set_or_says_why_not() -> None:
    left_out = sorted(gate_id for gate_id, kind in SHIPPED.items() if gate_id not in NAMED and not kind.in_no_set)
    assert left_out == [], "name it in profiles/gate_sets/*.yml, or set in_no_set on its class with the reason"
    both = sorted(gate_id for gate_id, kind in SHIPPED.items() if gate_id in NAMED and kind.in_no_set)
    assert both == []


@pytest.mark.parametrize("kind", SHIPPED.values(), ids=SHIPPED)
def test_a_gate_keeps_the_contract_that_plug_ins_keep(kind: type[Gate]) -> None:
    assert breaches(kind) == []


def test_gates_of_level_sanity_only_look_and_no_others() -> None:
    """Every deploy runs them on nodes in production: a gate that loads or claims a part is of another level."""
    known = rack(2)
    runs = [
        run for gate_id, kind in SHIPPED.items() if kind.looks for run in gate(gate_id).plan(known, list(known.nodes))
    ]
    assert [
        run.id
        for run in runs
        if run.claims or run.launch_from or any(command.role != "step" for command in run.commands)
    ] == []


def test_quick_loads_nothing() -> None:
    ids = [entry.id for entry in loader.gate_set("quick").gates]
    loading = [
        gate_id for gate_id in ids if gate(gate_id).level != "sanity" and gate_id != "node/gpu/validation/dcgm-r1"
    ]
    assert loading == [], "under two minutes a node: checks, and DCGM's level 1"


def test_only_burn_in_repeats_and_it_comes_on_in_waves() -> None:
    found = loader.gate_set("burnin")
    assert found.repeat_hours is not None
    assert 24 <= found.repeat_hours <= 72
    assert found.wave_gap_s is not None
    assert [name for name in SETS if loader.gate_set(name).repeat_hours] == ["burnin"]


def test_a_metric_with_a_fleet_is_declared_where_no_bound_can_see_a_small_loss() -> None:
    assert [(one.name, one.effect) for one in gate("node/gpu/performance/nccl-all-reduce").fleet] == [("busbw", 0.03)]


@pytest.mark.parametrize("name", SETS)
def test_what_a_set_cannot_see_names_gates_that_it_lacks(name: str) -> None:
    found = loader.gate_set(name)
    listed = [item.gate for item in found.unseen]
    assert [gate_id for gate_id in listed if gate_id not in SHIPPED] == []
    assert set(listed) & {entry.id for entry in found.gates} == set()
    assert len(set(listed)) == len(listed)


def test_bringup_sees_every_known_fault_or_says_in_the_report_that_it_cannot() -> None:
    found = loader.gate_set("bringup")
    told = {entry.id for entry in found.gates} | {item.gate for item in found.unseen}
    assert [fault.name for fault in FAULTS.values() if fault.caught_by and fault.caught_by not in told] == []


@pytest.mark.parametrize("fault", ["gemm-slow-3", "nic-latency", "switch-ecn-off", "memory-slow"])
def test_bringup_decides_by_the_gate_that_sees(fault: str) -> None:
    required = {entry.id for entry in loader.gate_set("bringup").gates if entry.required}
    assert FAULTS[fault].caught_by in required


def test_the_page_of_gates_says_what_bringup_cannot_see() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/howto/gates.md").read_text(encoding="utf-8")
    assert [item.gate for item in loader.gate_set("bringup").unseen if f"`{item.gate}`" not in page] == []

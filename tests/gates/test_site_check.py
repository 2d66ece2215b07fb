"""A site file's gates: unknown ids and inputs are refused with the exact text after loading."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from rackready.design.site import parse_site
from rackready.design.yaml import read_yaml
from rackready.gates.engine import registry, site_check
from rackready.gates.engine.registry import GateInputsError, all_gates
from rackready.gates.engine.site_check import require_gates, without_image
from rackready.gates.fabric.collective import NcclGate
from rackready.model.problems import SiteInvalidError
from rackready.model.site import Site
from rackready.profiles.loader import gates_of

ROOT = Path(__file__).resolve().parents[2]
ALL_REDUCE = "node/gpu/performance/nccl-all-reduce"
CONTAINER = "node/gpu/validation/container-run"


def site_of(**gates: Any) -> Site:
    document = read_yaml(ROOT / "inventories/sim/site.yml")
    return parse_site({**document, "gates": {"set": "bringup", **gates}}, source="site.yml", base=ROOT)


def refusals(*also: dict[str, Any]) -> list[str]:
    with pytest.raises(SiteInvalidError) as refused:
        require_gates(site_of(also=list(also)), "site.yml")
    return [str(problem) for problem in refused.value.problems]


def test_a_gate_that_does_not_exist_is_refused() -> None:
    assert refusals({"id": "node/gpu/x"}) == [
        (
            "gates.also[0].id: gate node/gpu/x does not exist - Expected: an id that `rackready gate list` shows. "
            "Correct it."
        )
    ]


def test_inputs_that_a_gate_does_not_take_are_refused_each_at_its_place() -> None:
    found = refusals({"id": CONTAINER}, {"id": ALL_REDUCE, "inputs": {"launches": 0, "colour": "red"}})
    assert found == [
        (
            f"gates.also[1].inputs.colour: gate {ALL_REDUCE} has no such input - Expected: one of "
            "binary, launches, published_floor, published_source, size. Correct or remove it."
        ),
        (
            f"gates.also[1].inputs.launches: gate {ALL_REDUCE} - Expected: at least 1 Actual: 0. "
            f"Correct it; `rackready gate show {ALL_REDUCE}` describes the inputs."
        ),
    ]


def test_a_gate_that_is_made_with_wrong_inputs_is_refused_in_the_same_words() -> None:
    with pytest.raises(GateInputsError) as caught:
        registry.gate(CLOCK, {"max_offset_s": 61, "colour": "red"})
    accepted = ", ".join(sorted(all_gates()[CLOCK].Inputs.model_fields))
    assert str(caught.value).splitlines() == [
        (
            f"inputs.max_offset_s: gate {CLOCK} - Expected: at most 60 Actual: 61. "
            f"Correct it; `rackready gate show {CLOCK}` describes the inputs."
        ),
        f"inputs.colour: gate {CLOCK} has no such input - Expected: one of {accepted}. Correct or remove it.",
    ]


@pytest.mark.parametrize(
    ("gate", "inputs", "text"),
    [
        (
            "node/gpu/stress/burn",
            {"skips": {"denylist": "measured\u200b by the vendor"}},
            (
                "gate node/gpu/stress/burn - Expected: visible characters Actual: 'measured\\u200b by the vendor'. "
                "Correct it; `rackready gate show node/gpu/stress/burn` describes the inputs."
            ),
        ),
        (
            "node/gpu/performance/gemm",
            {"precisions": []},
            (
                "gate node/gpu/performance/gemm - Expected: at least 1 item Actual: none. "
                "Correct it; `rackready gate show node/gpu/performance/gemm` describes the inputs."
            ),
        ),
    ],
)
def test_a_refused_input_has_one_expected_and_its_own_actual(gate: str, inputs: dict[str, Any], text: str) -> None:
    found = [str(problem).split(": ", 1)[1] for problem in registry.input_problems("", gate, inputs)]
    assert found == [text]


def test_a_skip_of_a_test_that_the_gate_does_not_run_is_refused_at_its_place() -> None:
    burn = "node/gpu/stress/burn"
    [found] = refusals({"id": burn, "inputs": {"skips": {"memory": "measured by the vendor"}}})
    assert found.startswith(
        f"gates.also[0].inputs.skips.memory[key]: gate {burn} - Expected: one of the tests that it runs "
        "(cuda_main_library, denylist,"
    )
    assert found.endswith(
        "targeted_power, targeted_stress) Actual: 'memory'. Correct it; "
        f"`rackready gate show {burn}` describes the inputs."
    )


CLOCK, INVENTORY = "node/host/sanity/clock", "node/gpu/sanity/inventory"


@pytest.mark.parametrize(
    ("gate", "name", "value", "said"),
    [
        (CLOCK, "max_offset_s", True, "a number Actual: true"),
        (CLOCK, "max_offset_s", "7", "a number Actual: '7'"),
        (CLOCK, "max_offset_s", 1e308, "at most 60 Actual: 1e+308"),
        (CLOCK, "max_offset_s", math.inf, "a finite number Actual: inf"),
        (CLOCK, "max_offset_s", math.nan, "a finite number Actual: nan"),
        (INVENTORY, "memory_tolerance_mib", 10_000_000, "at most 4096 Actual: 10000000"),
        (INVENTORY, "pcie_width", True, "a whole number Actual: true"),
        (INVENTORY, "pcie_width", "16", "a whole number Actual: '16'"),
        ("node/gpu/sanity/ecc", "enabled", "yes", "true or false Actual: 'yes'"),
    ],
)
def test_what_is_no_number_or_beyond_all_reason_is_refused(gate: str, name: str, value: object, said: str) -> None:
    assert refusals({"id": gate, "inputs": {name: value}}) == [
        (
            f"gates.also[0].inputs.{name}: gate {gate} - Expected: {said}. Correct it; "
            f"`rackready gate show {gate}` describes the inputs."
        )
    ]


def test_an_age_that_is_no_number_is_refused() -> None:
    with pytest.raises(SiteInvalidError) as refused:
        site_of(also=[{"id": CLOCK, "max_age_hours": True}])
    assert [str(problem) for problem in refused.value.problems] == [
        "gates.also[0].max_age_hours: Expected: a number Actual: true. Write the number."
    ]


def test_inputs_are_taken_as_yaml_and_a_record_have_them() -> None:
    """Whole numbers for floats, lists for tuples, texts for times, and texts as the keys of JSON."""
    for gate, inputs in {
        CLOCK: {"max_offset_s": 1},
        INVENTORY: {"board_parts": ["692-2G520-0200-000"]},
        "node/gpu/performance/gemm": {"precisions": ["fp16"]},
        "node/gpu/sanity/xid": {"since": "2026-11-21T08:00:00+00:00"},
        "bmc/log/sanity/events": {"since": "2026-11-21T08:00:00Z"},
        "node/host/sanity/kernel-settings": {"hugepages": {2048: 16}},
        "node/host/performance/disk-bandwidth": {"models": {"X": 3}},
        "node/gpu/performance/inference": {"image": "i", "command": ["vllm", "bench"]},
    }.items():
        require_gates(site_of(also=[{"id": gate, "inputs": inputs}]), "site.yml")
        made = all_gates()[gate](inputs)
        assert all_gates()[gate](json.loads(made.inputs.model_dump_json())).inputs == made.inputs


def test_gates_that_are_right_and_a_site_that_adds_none_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    require_gates(site_of(also=[{"id": ALL_REDUCE, "inputs": {"launches": 3}}, {"id": CONTAINER}]), "site.yml")
    monkeypatch.setattr(site_check, "all_gates", lambda: pytest.fail("gates were loaded where the site adds none"))
    require_gates(site_of(), "site.yml")


def test_every_gate_of_the_set_is_found_that_kubernetes_could_not_start() -> None:
    site = site_of(launcher="mpijob")
    several = [
        entry.id
        for entry in gates_of(site.gates)
        if issubclass(all_gates()[entry.id], NcclGate) and not entry.id.startswith("node/")
    ]
    assert without_image(site) == several != []
    assert without_image(site_of(launcher="mpijob", also=[{"id": "node/gpu/performance/gemm-torch"}])) == several, (
        "its own python3 runs it without one"
    )
    assert without_image(site_of()) == []
    named = [{"id": wanted, "inputs": {"image": "registry.example/nccl:13"}} for wanted in several]
    assert without_image(site_of(launcher="mpijob", also=named)) == []


def test_a_program_in_a_container_without_an_image_is_found_unless_it_is_skipped_everywhere() -> None:
    skip = {"gate": CONTAINER, "reason": "no registry is reachable here"}
    assert without_image(site_of(also=[{"id": CONTAINER}])) == [CONTAINER]
    assert without_image(site_of(also=[{"id": CONTAINER}], skip=[{**skip, "nodes": ["node01"]}])) == [CONTAINER]
    assert without_image(site_of(also=[{"id": CONTAINER}], skip=[{**skip, "nodes": ["node[01-04]"]}])) == []


CLUSTER = {"kind": "kubernetes", "kubeconfig": "/k", "context": "prod"}


@pytest.mark.parametrize(
    ("handover", "text"),
    [
        (
            None,
            (
                "gates.launcher: mpijob - Expected: handover.kind kubernetes Actual: slurm. Choose the launcher "
                "openmpi, or name the cluster."
            ),
        ),
        (
            {**CLUSTER, "join": {"command": ["join", "{taint}"]}},
            (
                "gates.launcher: mpijob - Expected: nodes that are in the cluster while they are measured Actual: "
                "handover.join, which joins nodes that are certified already. Choose the launcher openmpi, or let "
                "others join the nodes, with the taint."
            ),
        ),
        (
            {**CLUSTER, "devices": "dra"},
            (
                "gates.launcher: mpijob - Expected: handover.devices device-plugin, since its workers ask for "
                "nvidia.com/gpu Actual: dra. Choose the launcher openmpi, or device-plugin."
            ),
        ),
    ],
)
def test_jobs_of_a_cluster_need_one_that_has_the_nodes(handover: dict[str, Any] | None, text: str) -> None:
    document = read_yaml(ROOT / "inventories/sim/site.yml")
    document = {**document, "gates": {"set": "bringup", "launcher": "mpijob"}}
    document |= {"handover": handover} if handover else {}
    with pytest.raises(SiteInvalidError) as refused:
        require_gates(parse_site(document, source="site.yml", base=ROOT), "site.yml")
    assert [str(problem) for problem in refused.value.problems] == [text]
    require_gates(parse_site({**document, "handover": CLUSTER}, source="site.yml", base=ROOT), "site.yml")

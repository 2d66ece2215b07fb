"""What a site declares off: gates that need it are refused until they are skipped, and never left out silently."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rackready.design.facts import desired_digest, node_facts
from rackready.design.hostvars import site_vars
from rackready.design.site import parse_site
from rackready.design.yaml import read_yaml
from rackready.drivers.role_packages import asked_for
from rackready.gates.base import Need
from rackready.gates.engine.recorder import Recorder
from rackready.gates.engine.registry import all_gates, gate
from rackready.gates.engine.site_check import require_gates
from rackready.gates.engine.stage_state import StageState
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome
from rackready.model.problems import SiteInvalidError
from rackready.model.site import Site
from rackready.profiles import loader
from tests.gates.captured import evaluate
from tests.gates.support import text

ROOT = Path(__file__).resolve().parents[2]
DIAGNOSTIC = [f"node/gpu/validation/dcgm-r{level}" for level in (1, 2, 3, 4)]
DELTAS = "node/host/stress/counter-deltas"
NEED_PERSISTENCE = {*DIAGNOSTIC, "node/gpu/stress/burn", "node/gpu/stress/compute-integrity", DELTAS}
"""Gates that run `dcgmi diag`, which ends with DCGM_FR_PERSISTENCE_MODE (29) on a GPU without the mode."""
NEED_DCGM = NEED_PERSISTENCE | {"node/gpu/validation/dcgm-health", "node/gpu/performance/gemm"}
"""Those, the gate that asks the host engine, and the one that runs dcgmproftester."""


def site_of(software: dict[str, Any], **gates: Any) -> Site:
    document = read_yaml(ROOT / "inventories/sim/site.yml")
    document["software"] |= software
    return parse_site({**document, "gates": {"set": "bringup", **gates}}, source="site.yml", base=ROOT)


def refusals(site: Site) -> list[str]:
    with pytest.raises(SiteInvalidError) as refused:
        require_gates(site, "site.yml")
    return [str(problem) for problem in refused.value.problems]


def refusal(place: str, gate_id: str, what: str, key: str, nodes: str) -> str:
    return (
        f"{place}: gate {gate_id} needs {what} - Expected: {key}: true, or a declared skip on {nodes} "
        f"Actual: {key}: false. Skip it with the reason (gates.skip)."
    )


OFF = {"persistence": False}
PERSISTENCE = ("persistence mode", "software.persistence")
SKIP = {"nodes": ["node[01-04]"], "reason": "the mode is off on this site"}
EVERY = "node01, node02, node03 and 1 more"


def test_the_gates_of_a_set_that_need_persistence_mode_are_refused_each() -> None:
    assert refusals(site_of(OFF)) == [
        refusal("gates.set", "node/gpu/validation/dcgm-r1", *PERSISTENCE, EVERY),
        refusal("gates.set", "node/gpu/validation/dcgm-r3", *PERSISTENCE, EVERY),
    ]


def test_a_declared_skip_on_some_nodes_leaves_the_others() -> None:
    skips = [
        {**SKIP, "gate": "node/gpu/validation/dcgm-r1"},
        {**SKIP, "gate": "node/gpu/validation/dcgm-r3", "nodes": ["node[01-03]"]},
    ]
    assert refusals(site_of(OFF, skip=skips)) == [
        refusal("gates.set", "node/gpu/validation/dcgm-r3", *PERSISTENCE, "node04"),
    ]
    skips[1]["nodes"] = ["node[01-04]"]
    require_gates(site_of(OFF, skip=skips), "site.yml")


def test_a_gate_that_the_site_adds_is_refused_at_its_own_place_beside_other_problems() -> None:
    skips = [{**SKIP, "gate": f"node/gpu/validation/dcgm-r{level}"} for level in (1, 3)]
    also = [{"id": "node/gpu/x"}, {"id": DELTAS}, {"id": "node/gpu/stress/burn", "inputs": {"power_s": 1}}]
    found = refusals(site_of(OFF, skip=skips, also=also))
    assert found[0].startswith("gates.also[0].id: gate node/gpu/x does not exist")
    assert found[1] == refusal("gates.also[1].id", DELTAS, *PERSISTENCE, EVERY)
    assert found[2].startswith("gates.also[2].inputs.power_s: gate node/gpu/stress/burn - Expected: ")
    assert len(found) == 3


def test_another_load_than_dcgm_s_needs_no_persistence_mode() -> None:
    assert gate(DELTAS).needs == {"dcgm", "persistence"}
    assert gate(DELTAS, {"load": ["stress-ng"]}).needs == frozenset()


def test_a_site_that_declares_nothing_off_is_not_refused() -> None:
    require_gates(site_of({}), "site.yml")


@pytest.mark.parametrize(("need", "wanted"), [("persistence", NEED_PERSISTENCE), ("dcgm", NEED_DCGM)])
def test_exactly_the_gates_that_use_it_need_it(need: Need, wanted: set[str]) -> None:
    assert {name for name in all_gates() if need in gate(name).needs} == wanted


def test_a_gate_that_is_run_by_name_does_not_run_and_says_why() -> None:
    site = site_of(OFF)
    state = StageState(site, facts("dgx_h100", 1), cast("Recorder", SimpleNamespace()), {})
    found = state.left_out(gate(DIAGNOSTIC[0]), "node01", "")
    assert found is not None
    assert found.outcome is Outcome.NOT_RUN
    assert [str(item) for item in found.findings] == [
        (
            "node01: node/gpu/validation/dcgm-r1 was not run - Expected: a measurement Actual: it needs persistence "
            "mode, and the site declares software.persistence: false. Skip it with the reason (gates.skip)."
        )
    ]
    assert state.left_out(gate("node/gpu/sanity/settings"), "node01", "") is None


@pytest.mark.parametrize(
    ("declared", "given", "shown", "wanted"),
    [
        (True, None, "Enabled", ""),
        (False, None, "Disabled", ""),
        (True, None, "Disabled", "Enabled"),
        (False, None, "Enabled", "Disabled"),
        (False, True, "Enabled", ""),
        (True, False, "Enabled", "Disabled"),
    ],
)
def test_the_settings_gate_expects_what_the_site_declares(
    *, declared: bool, given: bool | None, shown: str, wanted: str
) -> None:
    known_facts = facts("dgx_h100", 1)
    node = replace(known_facts.nodes["node01"], persistence=declared)
    known_facts = replace(known_facts, nodes={"node01": node})
    found = gate("node/gpu/sanity/settings", {} if given is None else {"persistence": given})
    report = text("smi/dgx_h100_healthy.xml").replace("<persistence_mode>Enabled<", f"<persistence_mode>{shown}<")
    verdict = evaluate(found, known_facts, found.plan(known_facts, ["node01"])[0], {"smi": report}, 0)
    assert [str(item) for item in verdict.findings] == [
        (
            f"node01 gpu{gpu}: persistence mode - Expected: {wanted} Actual: {shown}. Start nvidia-persistenced. "
            "Run install again: it sets this."
        )
        for gpu in (range(8) if wanted else ())
    ]


def test_the_declaration_reaches_facts_role_and_digest() -> None:
    on, off = site_of({}), site_of(OFF)
    assert node_facts(on, "node01").persistence
    assert not node_facts(off, "node01").persistence
    assert [site_vars(site)["nvidia_persistence_mode"] for site in (on, off)] == [True, False]
    assert desired_digest(on, "node01") != desired_digest(off, "node01")


NO_DCGM = {"manage_dcgm": False}
DCGM = ("DCGM", "software.manage_dcgm")
OF_BRINGUP = [f"node/gpu/validation/{name}" for name in ("dcgm-r1", "dcgm-health", "dcgm-r3")]


def test_the_gates_of_a_set_that_need_dcgm_are_refused_each() -> None:
    wanted = [*OF_BRINGUP, "node/gpu/performance/gemm"]
    assert refusals(site_of(NO_DCGM)) == [refusal("gates.set", name, *DCGM, EVERY) for name in sorted(wanted)]
    own = {"id": wanted[-1], "inputs": {"binary": "/opt/lab/dcgmproftester13"}}
    skips = [{**SKIP, "gate": name} for name in OF_BRINGUP]
    require_gates(site_of(NO_DCGM, skip=skips, also=[own]), "site.yml")


def test_a_gate_that_needs_both_is_refused_for_each() -> None:
    found = [line for line in refusals(site_of(NO_DCGM | OFF)) if "dcgm-r1 " in line]
    assert found == [refusal("gates.set", DIAGNOSTIC[0], *what, EVERY) for what in (DCGM, PERSISTENCE)]


@pytest.mark.parametrize("managed", ["managed", "unmanaged"])
def test_the_versions_gate_judges_dcgm_only_where_it_is_managed(managed: str) -> None:
    known_facts = facts("dgx_h100", 1)
    node = replace(known_facts.nodes["node01"], manage_dcgm=managed == "managed")
    known_facts = replace(known_facts, nodes={"node01": node})
    document = json.loads(text("versions/dgx_h100_healthy.json"))
    document["packages"]["datacenter-gpu-manager-4-core"] = None
    document["services"]["nvidia-dcgm.service"] = "inactive"
    found = gate("node/gpu/sanity/versions")
    verdict = evaluate(
        found, known_facts, found.plan(known_facts, ["node01"])[0], {"versions": json.dumps(document)}, 0
    )
    assert [item.what for item in verdict.findings] == (
        ["package datacenter-gpu-manager-4-core", "nvidia-dcgm.service"] if managed == "managed" else []
    )


def test_a_site_without_dcgm_asks_no_mirror_for_it() -> None:
    on, off = site_of({}), site_of(NO_DCGM)
    with_it, without = (asked_for(site, ROOT, loader.platform("dgx_h100")).roles for site in (on, off))
    assert "datacenter-gpu-manager-4-core" in with_it["dcgm"]
    assert without == {role: packages for role, packages in with_it.items() if role != "dcgm"}
    assert [site_vars(site)["dcgm_managed"] for site in (on, off)] == [True, False]
    assert desired_digest(on, "node01") != desired_digest(off, "node01")

"""Before a node is provisioned: its parts against the platform profile, its baseline, and the notes on these states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from rackready.campaign import inventory, phase_table, step
from rackready.campaign.before_provision import run_prepared
from rackready.campaign.request import CampaignRequest
from rackready.drivers import redfish
from rackready.ledger.history import history
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import REACHED, NodeResult, PhaseContext
from rackready.paths import EnvPaths
from rackready_sim import faults
from rackready_sim.redfish import misbehave
from tests.unit.cli.bmc_node import Node
from tests.unit.sim.bmc_service import NODE, served

ALL = "8 GPUs, 8 NICs, 10 drives, 32 memory modules, 2048 GiB of memory, 2 processors as in profile dgx_h100"
OPEN = "; not compared: model of the processors (the BMC does not report it)"
RMA = (
    "Power the node off, reseat the part and its cables; if it goes missing again, replace it (RMA), then its riser or "
    "board. Do not put the node into use."
)
WAITED = " (waited for 60 s, campaign.provision_timeout_s)"


class Clock:
    """Time that passes only in pauses between two looks; the BMC's delays count by it, too."""

    def __init__(self) -> None:
        self.now = 1000.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    time = SimpleNamespace(monotonic=lambda: found.now, sleep=found.sleep)
    monkeypatch.setattr(inventory, "time", time)
    monkeypatch.setattr(misbehave, "time", time)
    monkeypatch.setattr(redfish, "_PAUSE_S", 0.01)
    return found


@pytest.fixture
def node(call: Any, tmp_path: Path) -> Iterator[Node]:  # noqa: ANN401
    del call
    with served(tmp_path) as service:
        found = Node(service, tmp_path)
        found.site(campaign={"provision_timeout_s": 60})
        yield found


def prepared(node: Node, *, check: bool = False, **more: Any) -> tuple[NodeResult, list[list[str]]]:
    """Return the result of node01, and the calls of what provisions."""
    calls: list[list[str]] = []

    def provision(_ctx: PhaseContext, nodes: list[str]) -> dict[str, NodeResult]:
        calls.append(nodes)
        return {name: NodeResult(Outcome.PASS, changed=True, **more) for name in nodes}

    return run_prepared(PhaseContext("sim", node.root, "c1", check=check), ["node01"], provision)["node01"], calls


class Case(NamedTuple):
    """A fault of the matrix. ``resets``: what is asked of the power. ``text``: the note, or of a fail the message."""

    fault: str
    params: dict[str, Any]
    power: str
    outcome: Outcome
    text: str
    resets: list[str]


MATRIX = {
    "no fault, off": Case("", {}, "Off", Outcome.PASS, f"{ALL}{OPEN} (as listed while it is off)", []),
    "no fault, on": Case("", {}, "On", Outcome.PASS, f"{ALL}{OPEN}", []),
    "lists no GPUs for 20 s after power-on": Case(
        "bmc-gpus-late", {"seconds": 20}, "Off", Outcome.PASS, f"{ALL}{OPEN} (complete after 30 s)", ["On"]
    ),
    "lists no GPUs for 20 s, and is on": Case(
        "bmc-gpus-late", {"seconds": 20}, "On", Outcome.PASS, f"{ALL}{OPEN} (complete after 30 s)", []
    ),
    "never lists GPUs": Case(
        "bmc-gpus-late",
        {"seconds": 600},
        "On",
        Outcome.FAIL,
        "node01: GPUs missing - Expected: 8 GPUs Actual: 0, none at GPU_SXM_1, GPU_SXM_2, GPU_SXM_3, GPU_SXM_4, "
        f"GPU_SXM_5, GPU_SXM_6, GPU_SXM_7, GPU_SXM_8. {RMA}{WAITED}",
        [],
    ),
    "a GPU is missing": Case(
        "gpu-missing",
        {"gpu": 2},
        "Off",
        Outcome.FAIL,
        f"node01: GPUs missing - Expected: 8 GPUs Actual: 7, none at GPU_SXM_3. {RMA}{WAITED}",
        ["On", "GracefulShutdown"],
    ),
    "a NIC in the wrong slot": Case(
        "nic-wrong-slot",
        {"nic": 3},
        "On",
        Outcome.FAIL,
        "node01 mlx5_4 (rail 3): no NIC in its slot - Expected: a NIC at 00_4F_00 (PCI 0000:4f:00.0) Actual: none "
        "there, but DevType7_NIC2 at 00_B1_00, where the profile has none. Power the node off, put the card into this "
        "slot, or reseat it; replace it (RMA) if it stays missing. A NIC in another slot is on another GPU's PCIe "
        f"switch.{WAITED}",
        [],
    ),
}


@pytest.mark.parametrize("name", MATRIX)
def test_each_fault_has_its_outcome_and_message(node: Node, name: str) -> None:
    case = MATRIX[name]
    node.service.rack.power.states[NODE] = case.power
    if case.fault:
        state = node.service.state()
        faults.inject(state, case.fault, **case.params)
        node.service.set(**state)
    found, calls = prepared(node)
    assert (found.outcome, node.resets()) == (case.outcome, case.resets)
    notes = found.data[REACHED]
    assert notes["reachable"] == "its BMC answers for NVIDIA DGXH100, serial SIM-DGXH100-0001"
    if case.outcome is Outcome.PASS:
        assert (notes["inventoried"], calls) == (case.text, [["node01"]])
        return
    assert (found.message, calls) == (case.text, [[]]), "nothing is installed on it"
    assert "inventoried" not in notes
    assert [item["code"] for item in found.data["findings"]] == [
        "bmc-nic-not-in-its-slot" if "NIC" in name else "bmc-gpus-missing"
    ]
    assert node.service.rack.power.states[NODE] == case.power, "its power is as it was found"


def test_a_lag_of_the_power_state_is_waited_for(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redfish.time, "sleep", inventory.time.sleep)
    node.service.faulty(gpus_late=5, power_lag=10)
    found, _ = prepared(node)
    assert (found.outcome, node.resets()) == (Outcome.PASS, ["On"])
    assert found.data[REACHED]["inventoried"].startswith(f"{ALL}{OPEN} (complete after ")


def profile_without(monkeypatch: pytest.MonkeyPatch, *parts: str) -> None:
    """Let the platform profile say nothing about some parts."""
    platform = inventory.site_facts

    def silent(site: Any, nodes: list[str]) -> Any:  # noqa: ANN401
        facts = platform(site, nodes)
        one = facts.nodes["node01"]
        bare = one.platform.model_copy(update=dict.fromkeys(parts))
        return replace(facts, nodes={"node01": replace(one, platform=bare)})

    monkeypatch.setattr(inventory, "site_facts", silent)


def lists_no_gpus(node: Node) -> None:
    """A BMC that says nothing about GPUs, nor about a board for them, of a node that is on."""
    node.service.rack.power.states[NODE] = "On"
    node.service.set(gpus=[], chassis={**node.service.state()["chassis"], "manufacturer": "HPE"})


def unnamed(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The profile does not name the GPUs as a BMC would, and the BMC lists none."""
    profile_without(monkeypatch, "redfish")
    node.site(campaign={"provision_timeout_s": 900})
    lists_no_gpus(node)


def test_gpus_that_no_profile_names_are_not_waited_for_as_long_as_a_boot(
    node: Node, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    unnamed(node, monkeypatch)
    before = clock.now
    found, calls = prepared(node)
    assert (found.outcome, calls) == (Outcome.PASS, [["node01"]])
    assert clock.now - before == inventory._GPUS_S
    note = found.data[REACHED]["inventoried"]
    assert "not compared: GPUs (the BMC lists none, and profile dgx_h100 does not name them as a BMC would)" in note
    assert note.endswith(" (waited for 300 s for GPUs after all else was listed)")


def test_that_time_begins_once_all_else_is_listed(node: Node, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    unnamed(node, monkeypatch)
    look, before = inventory._Node._look, clock.now

    def late(self: Any) -> Any:  # noqa: ANN401
        verdict = look(self)
        return verdict.model_copy(update={"outcome": Outcome.FAIL}) if clock.now - before < 100 else verdict

    monkeypatch.setattr(inventory._Node, "_look", late)
    found, _ = prepared(node)
    assert found.outcome is Outcome.PASS
    assert clock.now - before == 90 + inventory._GPUS_S, "after the last look that lacked something else"


def test_a_profile_and_a_bmc_that_say_nothing_are_no_pass(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    profile_without(monkeypatch, "host", "redfish")
    lists_no_gpus(node)
    found, calls = prepared(node)
    assert (found.outcome, calls) == (Outcome.PASS, [["node01"]])
    assert found.data[REACHED]["inventoried"] == (
        "not compared: GPUs (the BMC lists none, and profile dgx_h100 does not name them as a BMC would), slots of "
        "NICs (profile dgx_h100 does not name them as its BMC does), drives (profile dgx_h100 says nothing about "
        "them), memory (profile dgx_h100 says nothing about them), processors (profile dgx_h100 says nothing about "
        f"them){WAITED}"
    )


def test_a_dry_run_powers_nothing_on(node: Node) -> None:
    node.service.faulty(gpus_late=5)
    found, _ = prepared(node, check=True)
    assert (found.outcome, node.resets()) == (Outcome.PASS, [])
    assert found.data[REACHED]["inventoried"] == ("not compared yet: power Off, and its BMC does not list all parts")


def test_a_bmc_that_refuses_the_login_is_asked_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BMC_WRONG", "not-the-password")
    bmc = {**node.service.site().model_dump(mode="json", exclude_none=True), "password": {"env": "BMC_WRONG"}}
    node.overlay({"racks": [{"name": "rack01", "nodes": [{"name": "node01", "bmc": bmc}]}]})
    found, calls = prepared(node)
    assert (found.outcome, calls, found.touched) == (Outcome.ERROR, [[]], False)
    assert found.message == (
        f"{node.where()}: Redfish refused the login of user admin - Expected: HTTP 200 Actual: 401. Check the password "
        "in environment variable BMC_WRONG."
    )
    assert node.service.logins() == 1


def test_a_declared_skip_and_parts_left_out_are_in_the_note(node: Node) -> None:
    also = {"id": "bmc/parts/sanity/inventory", "inputs": {"parts": ["gpus", "memory"]}}
    skip = {"gate": "bmc/parts/sanity/inventory", "nodes": ["node01"], "reason": "this BMC lists nothing useful"}
    node.site(gates={"also": [also], "skip": [skip]})
    assert prepared(node)[0].data[REACHED]["inventoried"] == (
        "not compared: the site skips bmc/parts/sanity/inventory: this BMC lists nothing useful"
    )
    node.site(gates={"also": [also]})
    assert prepared(node)[0].data[REACHED]["inventoried"] == (
        "8 GPUs, 32 memory modules, 2048 GiB of memory as in profile dgx_h100; not compared: nics (left out by the "
        "site), drives (left out by the site), processors (left out by the site) (as listed while it is off)"
    )


def test_a_run_that_was_killed_while_the_node_was_on_for_it_goes_on(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(Exception):
        pass

    def killed(*_args: object) -> None:
        raise KilledError

    node.service.faulty(gpus_late=5)
    with monkeypatch.context() as patched:
        patched.setattr(inventory._Node, "_wait", killed)
        with pytest.raises(KilledError):
            prepared(node)
    monkeypatch.setattr(inventory, "imaged_nodes", lambda site: site.nodes())
    found, calls = prepared(node)
    assert (found.outcome, calls) == (Outcome.PASS, [["node01"]])
    assert node.resets() == ["On", "GracefulShutdown"], "a node that is imaged next is off again"
    with Ledger.open(EnvPaths(node.root, "sim").database) as ledger:
        (entry,) = (entry for entry in ledger.entries("node01") if entry.operation == inventory.POWERED)
    assert (entry.status, entry.result) == ("done", {"left": "off"})


BASELINES = {
    "the profile's holds": (
        {},
        {},
        Outcome.PASS,
        "as the baseline of profile dgx_h100: BMC 25.06.27, BIOS 1.06.07, 6 BIOS settings",
    ),
    "the profile's does not": (
        {},
        {"bmc": "24.09.17"},
        Outcome.PASS,
        "passed through: not as the baseline of profile dgx_h100, and the site declares none: bmc 24.09.17 -> 25.06.27",
    ),
    "the site's holds": (
        {"bios": "1.6.7", "bios_settings": {"SriovSupport": "Enable"}},
        {},
        Outcome.PASS,
        "as the site's baseline: BIOS 1.6.7, 1 BIOS setting",
    ),
    "the site's does not": (
        {"bios": "1.6.8"},
        {},
        Outcome.ERROR,
        (
            "node01: firmware and BIOS - Expected: as the site's baseline Actual: bios 1.6.7 -> 1.6.8. Run "
            "`rackready baseline --apply --limit node01 --env sim`, or set `apply` in baselines.dgx_h100, or correct "
            "it there. Then run again."
        ),
    ),
    "the site's is brought about": (
        {"bios_settings": {"SriovSupport": "Disabled", "PcieRelaxedOrdering": "No"}, "apply": True},
        {},
        Outcome.PASS,
        (
            "brought to the site's baseline: 2 changes (BIOS PcieRelaxedOrdering Yes -> No, BIOS SriovSupport Enabled "
            "-> Disabled)"
        ),
    ),
    "the site's holds already": (
        {"bios": "1.6.7", "apply": True},
        {},
        Outcome.PASS,
        "as the site's baseline: BIOS 1.6.7",
    ),
}


@pytest.mark.parametrize("name", BASELINES)
def test_the_note_on_the_baseline_says_what_was_compared(node: Node, name: str) -> None:
    wanted, chassis, outcome, text = BASELINES[name]
    node.site(campaign={"provision_timeout_s": 60}, **({"baselines": {"dgx_h100": wanted}} if wanted else {}))
    node.service.set(chassis={**node.service.state()["chassis"], **chassis})
    found, calls = prepared(node)
    assert found.outcome is outcome
    if outcome is Outcome.PASS:
        assert (found.data[REACHED]["baselined"], calls) == (text, [["node01"]])
    else:
        assert (found.message, calls) == (text, [[]])
        assert list(found.data[REACHED]) == ["reachable", "inventoried"]


def run(node: Node, outcome: Outcome, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Run the phase with what provisions replaced; return the states of node01 with their reasons."""

    def provision(ctx: PhaseContext, nodes: list[str]) -> dict[str, NodeResult]:
        done = {name: NodeResult(outcome, "node01: no SSH" if outcome is not Outcome.PASS else "") for name in nodes}
        return run_prepared(ctx, nodes, lambda _ctx, left: {name: done[name] for name in left})

    monkeypatch.setitem(phase_table.PHASES, "provision", replaced_run(provision))
    monkeypatch.setattr(step, "drain_nodes", lambda *_: {})
    request = CampaignRequest("c1", "sim", str(node.root), "deploy", ("provision",), ("node01",), 1, (1,), 100, "")
    step.run_phase(request, "provision", ["node01"])
    with Ledger.open(EnvPaths(node.root, "sim").database) as ledger:
        return [(row.state.value, row.reason) for row in history(ledger, "node01")]


def replaced_run(provision: Any) -> phase_table.Phase:  # noqa: ANN401
    return replace(phase_table.PHASES["provision"], run=provision)


def test_the_ledger_has_what_was_compared_for_each_state(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(node, Outcome.PASS, monkeypatch)
    assert found[1:] == [
        ("reachable", "its BMC answers for NVIDIA DGXH100, serial SIM-DGXH100-0001"),
        ("inventoried", f"{ALL}{OPEN} (as listed while it is off)"),
        ("baselined", "as the baseline of profile dgx_h100: BMC 25.06.27, BIOS 1.06.07, 6 BIOS settings"),
        ("provisioned", ""),
    ]


def test_a_node_that_fails_its_inventory_is_quarantined_and_never_inventoried(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = node.service.state()
    faults.inject(state, "gpu-missing", gpu=7)
    node.service.set(**state)
    found = run(node, Outcome.PASS, monkeypatch)
    assert [state for state, _ in found] == ["declared", "reachable", "quarantined"]
    assert "none at GPU_SXM_8" in found[-1][1]


def test_a_node_that_fails_its_baseline_stays_inventoried(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.wants(bios="1.6.8")
    found = run(node, Outcome.PASS, monkeypatch)
    assert [state for state, _ in found] == ["declared", "reachable", "inventoried", "inventoried"]
    assert found[-1][1].startswith("node01: firmware and BIOS - Expected: as the site's baseline Actual: bios 1.6.7")
    node.wants(bios="1.6.7")
    found = run(node, Outcome.PASS, monkeypatch)[len(found) :]
    assert [state for state, _ in found if _] == ["inventoried", "baselined"]
    assert found[1][1].startswith(ALL), "the note is of the new look"
    assert found[-1] == ("provisioned", "")


def test_a_node_that_does_not_come_up_stays_baselined(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(node, Outcome.ERROR, monkeypatch)
    assert found[-1] == ("baselined", "node01: no SSH")

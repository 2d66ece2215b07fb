"""Scaling: sizes grow inside one NVLink domain, then by whole domains, each compared with its own bounds.

Efficiencies compare sizes over the same network only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from rackready.gates.base import GateFacts
from rackready.gates.engine.registry import GateInputsError, gate
from rackready.gates.fabric.collective import NcclGate
from rackready.gates.fabric.scaling import ScalingStep, steps
from rackready.model.outcome import Outcome, Verdict
from tests.gates.support import Said, outputs, rack
from tests.gates.test_collectives import counters, log, moved, said, table

SCALING = "cluster/fabric/performance/nccl-scaling"
RECORDED = "scaling efficiency is recorded and not judged: the gate set declares no min_efficiency"
FOUR = {"node01": "a", "node02": "a", "node03": "b", "node04": "b"}


def trays(names: Mapping[str, str]) -> GateFacts:
    """Nodes of one NVLink domain per rack, with as many GPUs and NICs as the others here. ``names``: node -> rack."""
    site = rack(len(names))
    tray = site.nodes["node01"].platform.model_copy(update={"nvlink_domain": 72})
    return dataclasses.replace(
        site,
        nodes={name: dataclasses.replace(node, platform=tray, rack=names[name]) for name, node in site.nodes.items()},
    )


def lines(site: GateFacts, step: ScalingStep) -> str:
    """NCCL's output for one size: MNNVL among the nodes of a domain, the network only between domains."""
    text = log(site, step.nodes)
    boards = step.domain.boards
    if boards > 1:
        text = text.replace("P2P/CUMEM", "P2P/MNNVL")
        clique = f"MNNVL 1 cliqueId 7ffd cliqueSize {8 * boards} cliqueRank 0"
        text += "".join(
            f"{node}:{2000 + 8 * place}:3000 [0] NCCL INFO {clique}\n" for place, node in enumerate(step.nodes)
        )
    return text if step.way == "network" else "".join(f"{line}\n" for line in text.splitlines() if "[send]" not in line)


def scaled(
    site: GateFacts,
    figures: Mapping[int, float],
    *,
    sent: float | None = None,
    factor: float = 1.0,
    inputs: Mapping[str, object] | None = None,
) -> Verdict:
    """Judge a run whose sizes give these figures.

    ``sent``: bytes of each node where they differ from the right ones; ``factor``: of what node03 must send.
    """
    found = gate(SCALING, {"launches": 1, **(inputs or {})})
    assert isinstance(found, NcclGate)
    (run,) = found.plan(site, list(site.nodes))
    texts, bytes_of = {}, dict.fromkeys(run.nodes, 0.0)
    for step in steps(site, run.nodes):
        size = len(step.nodes)
        if size in figures:
            texts[f"n{size}-launch0"] = Said(lines(site, step) + table(step.nodes, "all_reduce", figures[size]))
        for node in step.nodes if step.way == "network" else ():
            bytes_of[node] += (
                moved(site, found, step.nodes) / step.domain.boards * (factor if node == "node03" else 1.0)
            )
    bytes_of = bytes_of if sent is None else dict.fromkeys(run.nodes, sent)
    return found.evaluate(site, run, outputs(run, {**texts, **counters(site, bytes_of)}))


def efficiencies(verdict: Verdict) -> dict[str, dict[str, float]]:
    """Return by network: size -> efficiency."""
    out: dict[str, dict[str, float]] = {}
    for metric in verdict.metrics:
        if metric.name.startswith("scaling_efficiency_"):
            out.setdefault(metric.name.removeprefix("scaling_efficiency_"), {})[metric.target] = round(metric.value, 3)
    return out


# which sizes ---------------------------------------------------------------------------------------------------------


def racks_of(trays_each: int, racks: int) -> dict[str, str]:
    """Nodes distributed over the racks in turn, as a site file may list them."""
    return {f"node{number + 1:02}": f"rack{number % racks}" for number in range(trays_each * racks)}


@pytest.mark.parametrize(
    ("trays_each", "racks", "sizes"),
    [
        (2, 1, [1, 2]),
        (3, 1, [1, 2, 3]),
        (2, 2, [1, 2, 4]),
        (3, 5, [1, 2, 3, 6, 12, 15]),
        (18, 4, [1, 2, 4, 8, 16, 18, 36, 72]),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else None,
)
def test_sizes_beyond_one_domain_are_whole_domains(trays_each: int, racks: int, sizes: list[int]) -> None:
    site = trays(racks_of(trays_each, racks))
    found = steps(site, list(site.nodes))
    assert [len(step.nodes) for step in found] == sizes
    for step in found:
        in_racks = [site.nodes[node].rack for node in step.nodes]
        assert in_racks == sorted(in_racks), "nodes of a domain stand together"
        assert step.way == ("nvlink" if len(step.nodes) <= trays_each else "network")
        assert step.domain.boards == min(len(step.nodes), trays_each)


def test_where_a_domain_is_one_node_every_size_beyond_it_goes_over_the_network() -> None:
    site = rack(6)
    assert [(len(step.nodes), step.way) for step in steps(site, list(site.nodes))] == [
        (1, "nvlink"),
        (2, "network"),
        (4, "network"),
        (6, "network"),
    ]


def test_commands_follow_the_sizes_and_start_on_the_first_node() -> None:
    site = trays({"node01": "a", "node02": "b", "node03": "a", "node04": "b"})
    (run,) = gate(SCALING, {"launches": 1}).plan(site, list(site.nodes))
    assert run.nodes == ("node01", "node03", "node02", "node04")
    hosts = {
        command.key: command.argv[command.argv.index("-H") + 1].count(":")
        for command in run.commands
        if "launch" in command.key
    }
    assert hosts == {"n1-launch0": 1, "n2-launch0": 2, "n4-launch0": 4}
    assert run.launch_from == "node01"


# what is judged ------------------------------------------------------------------------------------------------------


def test_scaling_is_judged_size_by_size() -> None:
    good = scaled(rack(4), {1: 370.0, 2: 366.0, 4: 362.0})
    assert said(good) == ""
    assert good.outcome is Outcome.PASS
    assert good.note == RECORDED
    bad = scaled(rack(4), {1: 370.0, 2: 366.0, 4: 250.0})
    assert bad.outcome is Outcome.FAIL
    assert said(bad).startswith(
        "4 nodes: all-reduce of 32 GPUs is slow - Expected: at least 312.8 GB/s (floor) Actual: 250.0 GB/s"
    )


def test_an_efficiency_compares_figures_that_went_the_same_way() -> None:
    """A figure over the network is never divided by one over NVLink."""
    assert efficiencies(scaled(rack(4), {1: 371.0, 2: 366.0, 4: 348.0})) == {
        "nvlink": {"1 node": 1.0},
        "network": {"2 nodes": 1.0, "4 nodes": 0.951},
    }
    found = efficiencies(scaled(trays(FOUR), {1: 371.0, 2: 334.0, 4: 366.0}))
    assert found == {"nvlink": {"1 node": 1.0, "2 nodes": 0.9}, "network": {"4 nodes": 1.0}}


def test_a_size_that_was_not_run_is_an_error() -> None:
    verdict = scaled(rack(4), {1: 370.0, 4: 362.0})
    step = "Run the gate again; if that does not help, report a bug."
    assert said(verdict) == f"2 nodes launch 1: all_reduce_perf was not run - Expected: an output Actual: none. {step}"
    assert verdict.outcome is Outcome.ERROR


def test_a_declared_efficiency_is_a_floor_of_every_size_after_the_first() -> None:
    figures = {1: 370.0, 2: 366.0, 4: 340.0}
    assert scaled(rack(4), figures).outcome is Outcome.PASS, "340 GB/s is above the floor that its reference gives"
    held = scaled(rack(4), figures, inputs={"min_efficiency": 0.92})
    assert said(held) == ""
    assert held.note is None
    (mark,) = [found for found in held.criteria if "min_efficiency" in found.source]
    assert (mark.label, round(mark.bound, 2), mark.derived) == ("floor", 336.72, False)
    assert (
        mark.source == "declared in the gate set: min_efficiency 0.92 x busbw of the smallest size over the same "
        "network"
    )
    verdict = scaled(rack(4), figures, inputs={"min_efficiency": 0.95})
    step = (
        "It is slow from this number of nodes on: run the pair gate over the nodes that were added, and check the "
        "spine's ports: "
    )
    step += "docs/runbooks/nccl-slow.md"
    actual = "340.0 GB/s (median of 1: 340.0)"
    assert (
        said(verdict)
        == f"4 nodes: all-reduce of 32 GPUs is slow - Expected: at least 347.7 GB/s (floor) Actual: {actual}. {step}"
    )
    assert verdict.outcome is Outcome.FAIL


def test_a_lax_mark_lowers_no_floor() -> None:
    verdict = scaled(rack(4), {1: 370.0, 2: 366.0, 4: 250.0}, inputs={"min_efficiency": 0.5})
    assert "Expected: at least 312.8 GB/s (floor) Actual: 250.0 GB/s" in said(verdict)


def test_a_mark_judges_what_no_bound_can() -> None:
    """NVLink across several nodes has no reference: pending without a mark, judged with one."""
    site = trays({"node01": "a", "node02": "a"})
    assert scaled(site, {1: 370.0, 2: 300.0}, sent=1e6).remarks == f"fleet pending; {RECORDED}"
    good = scaled(site, {1: 370.0, 2: 350.0}, sent=1e6, inputs={"min_efficiency": 0.9})
    assert (said(good), good.note) == ("", None)
    bad = scaled(site, {1: 370.0, 2: 300.0}, sent=1e6, inputs={"min_efficiency": 0.9})
    assert said(bad).startswith(
        "2 nodes: all-reduce of 16 GPUs is slow - Expected: at least 333.0 GB/s (floor) Actual: 300.0 GB/s"
    )


@pytest.mark.parametrize(("share", "why"), [(0.0, "more than 0 Actual: 0.0"), (1.5, "at most 1 Actual: 1.5")])
def test_an_efficiency_that_is_none_is_refused(share: float, why: str) -> None:
    with pytest.raises(GateInputsError) as refused:
        gate(SCALING, {"min_efficiency": share})
    step = f"Correct it; `rackready gate show {SCALING}` describes the inputs."
    assert str(refused.value) == f"inputs.min_efficiency: gate {SCALING} - Expected: {why}. {step}"


# what was carried ----------------------------------------------------------------------------------------------------


def test_inside_one_nvlink_domain_the_rails_are_left_alone() -> None:
    site = trays({"node01": "a", "node02": "a"})
    good = scaled(site, {1: 370.0, 2: 370.0}, sent=1e6)
    assert said(good) == ""
    assert not any("rail" in part or "mlx5" in part for part in good.measured)
    bad = scaled(site, {1: 370.0, 2: 370.0}, sent=1e13)
    assert bad.outcome is Outcome.FAIL
    assert "node01: bytes sent over its rails - Expected: less than" in said(bad)


def test_several_domains_are_held_to_what_each_must_have_sent() -> None:
    site = trays(FOUR)
    good = scaled(site, {1: 370.0, 2: 370.0, 4: 366.0})
    assert said(good) == ""
    assert good.outcome is Outcome.PASS
    assert "node04/mlx5_4" in good.measured
    assert good.remarks == f"fleet pending; {RECORDED}"
    bad = scaled(site, {1: 370.0, 2: 370.0, 4: 366.0}, factor=0.5)
    assert bad.outcome is Outcome.FAIL
    step = (
        "The data took another way than the rails, or something else used them: check the transport, and "
        "that no job runs."
    )
    assert f"node03+node04: bytes sent over its rails - Expected: 5692 GB within 5% Actual: 4269 GB. {step}" in said(
        bad
    )


def test_a_domain_that_joined_later_sends_less() -> None:
    """Three domains: the third takes part in the last size only."""
    site = rack(3)
    figures = {1: 370.0, 2: 366.0, 3: 362.0}
    assert said(scaled(site, figures)) == ""
    assert "node03: bytes sent over its rails" in said(scaled(site, figures, factor=2.0))


def test_unequal_domains_are_said_at_once_and_nothing_is_launched() -> None:
    site = trays({"node01": "a", "node02": "a", "node03": "a", "node04": "b"})
    (run,) = gate(SCALING).plan(site, list(site.nodes))
    assert run.commands == ()
    verdict = gate(SCALING).evaluate(site, run, {})
    step = "Run it over domains of equal size and one platform: leave out the nodes that make them unequal (`--limit`)."
    wanted = "equal numbers of nodes of one platform in every domain Actual: 1 of 1 x dgx_h100, 1 of 3 x dgx_h100"
    assert said(verdict) == f"cluster: NVLink domains are unequal - Expected: {wanted}. {step}"
    assert verdict.outcome is Outcome.ERROR
    assert verdict.measured == []

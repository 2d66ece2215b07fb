"""Imported outputs of gates with several runs or launches, or an earlier pass: an incomplete import is not a pass."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from rackready.gates.bmc.fans import Fans
from rackready.gates.engine.registry import gate
from rackready.gates.engine.site_facts import site_facts
from rackready.model.outcome import Outcome
from rackready.model.problems import RackreadyError
from tests.gates.redfish_world import gathered
from tests.gates.support import between, launched, port, ports, text, wrote
from tests.gates.test_bmc_fans import there, without
from tests.gates.test_imported import PAIR, REDUCE, SITE, Carried


@pytest.fixture
def carried(tmp_path: Path) -> Carried:
    return Carried(tmp_path)


def test_a_fan_that_the_last_pass_saw_may_not_be_gone_from_an_import(carried: Carried) -> None:
    """Without the pass's outputs it would pass, and the next run would be compared with it."""
    trails = Fans({}).plan(site_facts(SITE, ["node01"]), ["node01"])[0].commands[0].argv[1:]
    carried.put("fans.json", gathered(there(), trails))
    carried.outputs = [carried.output(gate=Fans.id, key="redfish", file="fans.json")]
    assert [one.verdict.outcome for one in carried.bring()] == [Outcome.PASS]
    carried.put("fans.json", gathered(without("SPD_FAN_SYS1_F"), trails))
    carried.outputs[0]["time"] = "2026-11-22T10:00:00+00:00"
    carried.manifest()
    [found] = carried.bring()
    assert (found.verdict.outcome, [finding.what for finding in found.verdict.findings]) == (
        Outcome.FAIL,
        ["fans gone since the last pass"],
    )


def pair_of(carried: Carried, rails: Collection[int], slow: int = 0) -> None:
    """Outputs of node01 and node02 on these rails, one of them slow; each NIC wrote once when it is read again."""
    for node in ("node01", "node02"):
        carried.prints(f"{node}.json", node)
    carried.outputs = []
    for run in gate(PAIR).plan(site_facts(SITE, ["node01", "node02"]), ["node01", "node02"]):
        for command in (
            command for command in run.commands if int(run.about["rail"]) in rails and command.role != "server"
        ):
            file = f"{run.about['rail']}-{command.key}"
            perftest = (
                "perftest/dgx_h100_rail1_slow.txt"
                if int(run.about["rail"]) == slow
                else "perftest/dgx_h100_rail1_healthy.txt"
            )
            sent = 8388608 * 2000 if command.key.startswith("after") else 0
            client = command.key.startswith("client")
            carried.put(file, wrote(command.argv, perftest) if client else ports({command.argv[-1]: port(sent)}))
            more = {"gate": PAIR, "run": run.id, "node": command.node, "key": command.key, "file": file}
            carried.outputs.append(
                carried.output(**more, fingerprint=f"{command.node}.json", fingerprint_after=f"{command.node}.json")
            )


def test_a_pair_is_imported_with_all_its_rails_and_concluded_for_both_ends(carried: Carried) -> None:
    pair_of(carried, range(1, 9))
    found = carried.bring()
    assert [(one.node, one.gate, one.verdict.outcome) for one in found] == [
        ("node01", PAIR, Outcome.PASS),
        ("node02", PAIR, Outcome.PASS),
    ]
    runs = {f"node01+node02/rail{rail}" for rail in range(1, 9)}
    assert {record.target for record in carried.store.records(gate=PAIR)} == {*runs, "node01", "node02"}


ADDRESSES = ("node01:mlx5_0=10.4.1.23", "node02:mlx5_0=10.4.1.57")


def test_a_pair_that_had_other_addresses_is_imported_with_them(carried: Carried) -> None:
    pair_of(carried, range(1, 9))
    for way, ends in (("forth", ("10.4.1.23", "10.4.1.57")), ("back", ("10.4.1.57", "10.4.1.23"))):
        carried.put(f"1-client-{way}", between(text("perftest/dgx_h100_rail1_healthy.txt"), *ends))
    found = carried.bring(addresses=ADDRESSES)
    assert {one.verdict.outcome for one in found} == {Outcome.PASS}
    assert {tuple(record.inputs["imported"]["addresses"]) for record in carried.store.records(gate=PAIR)} == {ADDRESSES}


def test_addresses_of_no_nic_of_the_site_are_refused(carried: Carried) -> None:
    pair_of(carried, range(1, 9))
    for given, said in (
        (
            "gpu99:mlx5_0=10.4.1.23",
            "--address gpu99:... - Expected: a node of the site Actual: none of that name. Correct it.",
        ),
        (
            "node01:mlx5_0=10.4.1",
            (
                "--address node01:mlx5_0=10.4.1 - Expected: an IPv4 address Actual: Expected 4 octets in '10.4.1'. "
                "Correct it."
            ),
        ),
    ):
        with pytest.raises(RackreadyError) as refusal:
            carried.bring(addresses=(given,))
        assert str(refusal.value) == said
    assert carried.store.records() == []


@pytest.mark.parametrize(("slow", "outcome"), [(0, Outcome.ERROR), (1, Outcome.FAIL)], ids=["good", "slow"])
def test_some_rails_of_a_pair_are_no_pass_and_a_fail_of_them_stands(
    carried: Carried, slow: int, outcome: Outcome
) -> None:
    """The one that is bad may have been left out, and the gate would not be run again."""
    pair_of(carried, (1, 2), slow)
    found = carried.bring()
    assert [(one.node, one.verdict.outcome) for one in found] == [("node01", outcome), ("node02", outcome)]
    runs = ", ".join(f"node01+node02/rail{rail}" for rail in range(3, 9))
    assert [str(finding) for one in found for finding in one.verdict.findings if "in part" in finding.what] == [
        f"{node}: {PAIR} was captured in part - Expected: outputs of every run that the gate makes on these nodes "
        f"Actual: none of {runs}. "
        "Import the outputs of all runs together, or measure: `rackready validate`."
        for node in ("node01", "node02")
    ]
    assert [record.verdict.outcome for record in carried.store.records(target="node01")] == [outcome]


@pytest.mark.parametrize(("captured", "outcome"), [(1, Outcome.ERROR), (5, Outcome.PASS), (6, Outcome.PASS)])
def test_every_launch_that_the_site_declares_is_brought_or_it_is_an_error(
    carried: Carried, captured: int, outcome: Outcome
) -> None:
    """Four nodes ask for five launches (expectation.launches): one of them may be the best that somebody had."""
    for number in range(captured):
        carried.put(f"reduce{number}.txt", launched(text("nccl/dgx_h100_8_healthy.txt"), number))
    carried.outputs = [
        carried.output(gate=REDUCE, key=f"launch{number}", file=f"reduce{number}.txt") for number in range(captured)
    ]
    [found] = carried.bring()
    assert found.verdict.outcome is outcome
    missing = [str(finding) for finding in found.verdict.findings]
    assert len(missing) == max(0, 5 - captured)
    assert all("was not run - Expected: an output Actual: none." in text for text in missing)


def test_one_launch_that_is_brought_as_five_is_an_error(carried: Carried) -> None:
    carried.put("reduce.txt", text("nccl/dgx_h100_8_healthy.txt"))
    carried.outputs = [carried.output(gate=REDUCE, key=f"launch{number}", file="reduce.txt") for number in range(5)]
    [found] = carried.bring()
    assert found.verdict.outcome is Outcome.ERROR
    assert [f"{finding.where}: {finding.what}" for finding in found.verdict.findings] == [
        f"node01 launch {number}: all_reduce_perf is launch 1 again" for number in (2, 3, 4, 5)
    ]

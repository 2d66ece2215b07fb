"""Error rates of InfiniBand links: two readings of both ends of each cable, judged by their growth."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from rackready.gates.base import GateFacts, Output
from rackready.gates.engine.registry import gate
from rackready.model.outcome import Outcome, Verdict
from rackready.ondevice import ib_counters
from tests.gates.support import Said, Told, outputs, rack, tells

# perfquery and perfquery -x of infiniband-diags 44.0 on ibsim 0.10 (real programs, simulated ports).
PLAIN = """# Port counters: Lid 1 port 1 (CapMask: 0x1200)
PortSelect:......................1
CounterSelect:...................0x0000
SymbolErrorCounter:..............{symbols}
LinkErrorRecoveryCounter:........0
LinkDownedCounter:...............{downed}
PortRcvErrors:...................{errors}
PortRcvRemotePhysicalErrors:.....{remote}
PortRcvSwitchRelayErrors:........0
PortXmitDiscards:................0
PortXmitConstraintErrors:........0
PortRcvConstraintErrors:.........0
CounterSelect2:..................0x00
LocalLinkIntegrityErrors:........0
ExcessiveBufferOverrunErrors:....0
QP1Dropped:......................0
VL15Dropped:.....................0
PortXmitData:....................213408
PortRcvData:.....................213408
PortXmitPkts:....................2964
PortRcvPkts:.....................2964
PortXmitWait:....................0
"""
EXTENDED = """# Port extended counters: Lid 1 port 1 (CapMask: 0x1200 CapMask2: 0x0000000)
PortSelect:......................1
CounterSelect:...................0x0000
PortXmitData:....................213408
PortRcvData:.....................213408
PortXmitPkts:....................2964
PortRcvPkts:.....................{packets}
PortUnicastXmitPkts:.............0
PortUnicastRcvPkts:..............0
PortMulticastXmitPkts:...........0
PortMulticastRcvPkts:............0
"""
GATE = "node/fabric/stress/ib-errors"
OWN, FAR = "node01 mlx5_0 (rail 1)", "node01 mlx5_0 (rail 1, at the switch)"
NUMBERS = {"symbols": 3, "downed": 1, "errors": 0, "remote": 0, "packets": 5_000_000}


def on_infiniband() -> GateFacts:
    known = rack(1)
    return dataclasses.replace(known, fabric=known.fabric.model_copy(update={"kind": "infiniband"}))


def end(**changed: int) -> dict[str, str]:
    numbers = NUMBERS | changed
    return {"plain": PLAIN.format(**numbers), "extended": EXTENDED.format(**numbers)}


def device(
    uptime: float, own: Mapping[str, int] | None = None, peer: Mapping[str, int] | None = None
) -> dict[str, Any]:
    return {
        "rate": "400 Gb/sec (4X NDR)",
        "state": "4: ACTIVE",
        "uptime": f"{uptime:.2f} 99.00",
        "own": end(**(own or {})),
        "peer": {"guid": "0x0200000100000000", "port": 1, "lid": 2, **end(**(peer or {}))},
        "problem": "",
    }


def reading(uptime: float, first: dict[str, Any] | None = None, *, boot: str = "b1") -> dict[str, Any]:
    """Every HCA of the node, of which the first may differ."""
    names = [nic.rdma_device for nic in on_infiniband().nodes["node01"].nics]
    devices = {name: device(uptime) for name in names}
    devices["mlx5_0"] = first or devices["mlx5_0"]
    return {"format": ib_counters.FORMAT, "boot_id": boot, "devices": devices, "complete": True}


def judged(
    after: dict[str, Any] | None = None,
    before: dict[str, Any] | None = None,
    wait: Said | None = None,
    known: GateFacts | None = None,
    **inputs: object,
) -> Verdict:
    known = known or on_infiniband()
    made = gate(GATE, inputs)
    run = made.plan(known, ["node01"])[0]
    said = {
        "before": Said(json.dumps(before or reading(1000))),
        "wait": wait or Said(),
        "after": Said(json.dumps(after or reading(1725))),
    }
    found: dict[str, Output] = outputs(run, said if run.commands else {})
    return made.evaluate(known, run, found)


def test_links_without_new_errors_pass_with_their_numbers() -> None:
    verdict = judged(reading(1725, device(1725, {"symbols": 5}, {"packets": 9_000_000})))
    assert (verdict.outcome, verdict.findings, verdict.note) == (Outcome.PASS, [], None)
    found = {(one.name, one.target): one.value for one in verdict.metrics}
    assert (found["symbol_errors", OWN], found["symbol_errors", FAR], found["link_downed", OWN]) == (2, 0, 0)
    [limit] = {one.bound for one in verdict.criteria if one.metric == "symbol_errors"}
    assert limit == pytest.approx(400e9 * 725 * 1e-14)


@pytest.mark.parametrize(
    ("own", "peer", "finding"),
    [
        (
            {"symbols": 6},
            {},
            ("ib-bit-error-rate", OWN, "at most 2.90 in 725 s (bit error rate 1e-14)", "3"),
        ),
        ({}, {"symbols": 6}, ("ib-bit-error-rate", FAR, "at most 2.90 in 725 s (bit error rate 1e-14)", "3")),
        (
            {"downed": 2},
            {"downed": 3},
            ("ib-link-downed-at-both-ends", OWN, "not at both ends", "1 times here, 2 at the switch"),
        ),
        (
            {"remote": 1, "packets": 5_001_000},
            {},
            ("ib-packet-error-rate", OWN, "at most 1e-12 of 1000 packets", "1"),
        ),
        ({}, {"errors": 2}, ("ib-packet-error-rate", FAR, "at most 1e-12 of 0 packets", "2")),
    ],
)
def test_errors_beyond_their_limit_fail_the_end_that_counts_them(
    own: dict[str, int], peer: dict[str, int], finding: Told
) -> None:
    verdict = judged(reading(1725, device(1725, own, peer)))
    assert (verdict.outcome, tells(verdict)) == (Outcome.FAIL, [finding])


def test_a_link_that_went_down_at_one_end_only_is_noted() -> None:
    verdict = judged(reading(1725, device(1725, {"downed": 2})))
    assert verdict.outcome is Outcome.PASS
    assert verdict.note == f"{OWN}: LinkDowned grew at one end only (1 here, 0 at the switch)"


def test_a_longer_window_proves_the_lower_rate() -> None:
    verdict = judged(reading(8500, device(8500, {"symbols": 7})))
    assert verdict.outcome is Outcome.FAIL
    assert tells(verdict) == [("ib-bit-error-rate", OWN, "at most 3.00 in 7500 s (bit error rate 1e-15)", "4")]
    assert judged(reading(8500, device(8500, {"symbols": 6}))).outcome is Outcome.PASS


@pytest.mark.parametrize(("seconds", "outcome"), [(240, Outcome.ERROR), (250, Outcome.PASS)])
def test_a_window_that_proves_nothing_is_said_to_be_too_short(seconds: float, outcome: Outcome) -> None:
    verdict = judged(reading(1000 + seconds))
    assert verdict.outcome is outcome
    if outcome is Outcome.ERROR:
        words = ("at least 250 s at 400 Gb/s for a bit error rate of 1e-14", "240 s")
        assert ("ib-error-window-too-short", OWN, *words) in tells(verdict)


def test_a_slower_link_needs_more_time_for_the_same_proof() -> None:
    slow = {"rate": "200 Gb/sec (4X HDR)"}
    verdict = judged(reading(1450, device(1450) | slow), reading(1000, device(1000) | slow))
    assert tells(verdict)[0][2:] == ("at least 500 s at 200 Gb/s for a bit error rate of 1e-14", "450 s")


@pytest.mark.parametrize(
    ("own", "code", "words"),
    [
        ({"symbols": 2}, "ib-error-counter-went-back", ("at least 3", "2", "name=SymbolErrorCounter")),
        ({"downed": 0}, "ib-error-counter-went-back", ("at least 1", "0", "name=LinkDownedCounter")),
        ({"packets": 1}, "ib-error-counter-went-back", ("at least 5000000", "1", "name=PortRcvPkts")),
        ({"symbols": 65535}, "ib-error-counter-full", ("below 65535", "65535", "name=SymbolErrorCounter")),
        ({"downed": 255}, "ib-error-counter-full", ("below 255", "255", "name=LinkDownedCounter")),
    ],
)
def test_a_counter_that_was_cleared_or_is_full_is_an_error(
    own: dict[str, int], code: str, words: tuple[str, ...]
) -> None:
    verdict = judged(reading(1725, device(1725, own)))
    assert (verdict.outcome, tells(verdict)) == (Outcome.ERROR, [(code, OWN, *words)])


def test_an_adapter_that_counts_errors_in_64_bits_is_not_full_at_65535() -> None:
    def wide(count: int) -> dict[str, Any]:
        found = device(1000 if count < 65535 else 1725, {"symbols": 65535})
        found["own"]["extended"] += f"SymbolErrorCounter:..............{count}\n"
        return found

    assert judged(reading(1725, wide(65536)), reading(1000, wide(65534))).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda one: one.update(problem="perfquery exit 255: iberror"), "perfquery exit 255: iberror"),
        (lambda one: one.update(rate=None), "no rate or no time"),
        (lambda one: one.update(uptime="soon"), "no rate or no time"),
        (lambda one: one.update(peer={}), "not both ends"),
        (lambda one: one.pop("own"), "not both ends"),
    ],
)
def test_a_port_that_is_not_read_is_an_error(change: Callable[[dict[str, Any]], object], said: str) -> None:
    first = device(1725)
    change(first)
    verdict = judged(reading(1725, first))
    expected = ("ib-error-counters-unreadable", OWN, "counters of both ends, and the rate", said)
    assert (verdict.outcome, tells(verdict)) == (Outcome.ERROR, [expected])


@pytest.mark.parametrize(
    "text", ["", "ibwarn: _do_madrpc failed\n", PLAIN.format(**NUMBERS).replace("SymbolErrorCounter", "SymbolErrors")]
)
def test_a_text_of_another_shape_is_an_error(text: str) -> None:
    first = device(1725)
    first["own"]["plain"] = text
    verdict = judged(reading(1725, first))
    assert (verdict.outcome, verdict.findings[0].code) == (Outcome.ERROR, "ib-error-counters-unreadable")


def test_a_cable_that_moved_between_the_readings_is_an_error() -> None:
    first = device(1725)
    first["peer"]["port"] = 2
    words = ("one switch port at both readings", "0x0200000100000000 port 1 then 0x0200000100000000 port 2")
    assert tells(judged(reading(1725, first))) == [("ib-error-other-peer", FAR, *words)]


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        (reading(1000), reading(1000), "one-reading-twice"),
        (reading(1000), reading(1725, boot="b2"), "readings-of-two-boots"),
        (reading(1000), reading(1725) | {"complete": False}, "ib-error-reading-unreadable"),
        (reading(1000), reading(1725) | {"devices": []}, "ib-error-reading-unreadable"),
        (reading(1000), reading(1725) | {"devices": {}}, "ib-error-counters-unreadable"),
    ],
)
def test_readings_that_do_not_belong_together_are_errors(
    before: dict[str, Any], after: dict[str, Any], code: str
) -> None:
    verdict = judged(after, before)
    assert verdict.outcome is Outcome.ERROR
    assert {found.code for found in verdict.findings} == {code}


def test_a_wait_that_was_cut_is_an_error() -> None:
    assert judged(wait=Said(timed_out=True, exit_code=None)).outcome is Outcome.ERROR
    killed = judged(wait=Said(exit_code=137))
    assert (killed.outcome, tells(killed)) == (
        Outcome.ERROR,
        [("ib-error-wait-ended-early", "node01", "exit 0", "exit 137")],
    )


def test_other_fabrics_and_nodes_without_nics_have_nothing_to_judge() -> None:
    ethernet = judged(known=rack(1))
    assert (ethernet.outcome, ethernet.note) == (
        Outcome.PASS,
        "the compute fabric is not InfiniBand: nothing to judge",
    )
    known = on_infiniband()
    bare = dataclasses.replace(known.nodes["node01"], nics=())
    verdict = judged(known=dataclasses.replace(known, nodes={"node01": bare}))
    assert (verdict.outcome, verdict.note) == (
        Outcome.PASS,
        "the platform has no compute NICs: nothing to judge",
    )


def test_the_wait_is_the_input() -> None:
    run = gate(GATE, {"window_s": 7500}).plan(on_infiniband(), ["node01"])[0]
    assert [(one.key, one.argv[0], one.stage) for one in run.commands] == [
        ("before", "python3", 0),
        ("wait", "sleep", 1),
        ("after", "python3", 2),
    ]
    assert (run.commands[1].argv[1], run.commands[1].timeout_s, run.chained) == ("7500", 7560, True)

"""Counters before and after a load: a load that was none, and each kind of counter that may grow too much under it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackready.gates.base import Output
from rackready.gates.engine.registry import gate
from rackready.model.outcome import Outcome, Verdict
from rackready_sim.programs.hwsim import paths
from tests.gates.host.machine import Node, facts, sealed

Document = dict[str, Any]
Change = Callable[[Document], object]
Outputs = Mapping[str, Output]
GATE = "node/host/stress/counter-deltas"
BY_HAND = "First run the gates of the parts that it loads, then `dcgmi diag -r 2 -j` by hand."
HARDWARE = "a test of the hardware that passed on every GPU, and none that failed"


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outputs]:
    """What a healthy node says before, under and after the load."""
    with pytest.MonkeyPatch.context() as patch:
        node = Node(tmp_path_factory.mktemp("node"), patch)
        run = gate(GATE).plan(facts("node01"), ["node01"])[0]
        yield {command.key: node.answer(command) for command in sorted(run.commands, key=lambda item: item.stage)}
        paths.ROOT = Path("/")


def judged(outputs: Outputs, inputs: Mapping[str, object] | None = None, **changes: Change) -> Verdict:
    """Judge readings of which some were changed: ``before`` and ``after``."""
    made, known, changed = gate(GATE, inputs), facts("node01"), dict(outputs)
    for key, change in changes.items():
        found = json.loads(outputs[key].stdout)
        change(found)
        changed[key] = replace(outputs[key], stdout=sealed(found))
    return made.evaluate(known, made.plan(known, ["node01"])[0], changed)


def loaded(outputs: Outputs, **changes: object) -> Outputs:
    return {**outputs, "load": replace(outputs["load"], **changes)}  # type: ignore[arg-type]


def said(verdict: Verdict) -> list[tuple[str, str, str, str]]:
    return [(item.where, item.what, item.expected, item.actual) for item in verdict.findings]


def links(*words: tuple[str, str]) -> Change:
    """Change what nvidia-smi says of NVLinks, each word in its first place."""

    def change(found: Document) -> None:
        for old, new in words:
            assert old in found["commands"]["nvlink"]["stdout"]
            found["commands"]["nvlink"]["stdout"] = found["commands"]["nvlink"]["stdout"].replace(old, new, 1)

    return change


def test_a_load_that_says_nothing_is_none(healthy: Outputs) -> None:
    verdict = judged(loaded(healthy, stdout="", seconds=0.0))
    assert [str(finding) for finding in verdict.findings] == [
        f"node01: load failed - Expected: {HARDWARE} Actual: empty output. {BY_HAND}"
    ]
    assert (verdict.outcome, verdict.measured) == (Outcome.ERROR, [])


def test_a_load_that_failed_with_exit_0_is_none(healthy: Outputs) -> None:
    found = json.loads(healthy["load"].stdout)
    pcie = next(
        test for kind in found["DCGM Diagnostic"]["test_categories"] for test in kind["tests"] if test["name"] == "pcie"
    )
    pcie["results"][3]["status"] = "Fail"
    verdict = judged(loaded(healthy, stdout=json.dumps(found)))
    assert said(verdict) == [("node01", "load failed", HARDWARE, "pcie Fail on gpu3")]
    assert verdict.outcome is Outcome.ERROR


def test_a_load_that_only_looked_at_software_loaded_no_gpu(healthy: Outputs) -> None:
    found = json.loads(healthy["load"].stdout)
    for kind in found["DCGM Diagnostic"]["test_categories"]:
        for result in (result for test in kind["tests"] for result in test["results"]):
            if kind["category"] != "Deployment" and result["entity_id"] == 5:
                result["status"] = "Skip"
    assert said(judged(loaded(healthy, stdout=json.dumps(found)))) == [
        ("node01", "load failed", HARDWARE, "none on gpu5")
    ]


def test_a_load_of_ones_own_must_take_its_time(healthy: Outputs) -> None:
    own = {"load": ["all_reduce_perf"]}
    verdict = judged(loaded(healthy, stdout="hello", seconds=0.01), own)
    assert said(verdict) == [("node01", "load ended at once", "at least 1 s", "0.01 s")]
    assert verdict.outcome is Outcome.ERROR
    assert judged(loaded(healthy, stdout="", seconds=60.0), own).outcome is Outcome.PASS


def test_an_uncorrected_memory_error_under_load_fails(healthy: Outputs) -> None:
    def grow(found: Document) -> None:
        counts = next(files for pattern, files in found["files"].items() if "[cu]e_count" in pattern)
        counts[min(path for path in counts if path.endswith("/ue_count"))] = "5"

    verdict = judged(healthy, after=grow)
    assert (verdict.outcome, said(verdict)) == (
        Outcome.FAIL,
        [("node01", "ue_count rose under load", "by at most 0", "5")],
    )


def test_a_memory_counter_that_is_no_number_is_not_left_out_of_the_sum(healthy: Outputs) -> None:
    def spoil(found: Document) -> None:
        counts = next(files for pattern, files in found["files"].items() if "[cu]e_count" in pattern)
        counts[min(path for path in counts if path.endswith("/ue_count"))] = "many"

    verdict = judged(healthy, after=spoil)
    assert said(verdict) == [
        ("node01", "ue_count unreadable", "a count that does not go back", "0 before, nothing after")
    ]
    assert verdict.outcome is Outcome.ERROR


def test_crc_errors_of_an_nvlink_fail_by_their_rate(healthy: Outputs) -> None:
    assert judged(healthy, after=links(("CRC Errors: 0", "CRC Errors: 6000"))).outcome is Outcome.PASS
    verdict = judged(healthy, after=links(("CRC Errors: 0", "CRC Errors: 6600")))
    expected = ("node01 gpu0 nvlink0", "NVLink CRC errors under load", "at most 100 a second", "110 a second")
    assert (verdict.outcome, said(verdict)) == (Outcome.FAIL, [expected])
    back = judged(healthy, before=links(("CRC Errors: 0", "CRC Errors: 7")))
    words = (
        "node01 gpu0 nvlink0",
        "NVLink counter CRC Errors unreadable",
        "a count that does not go back",
        "7 before, 0 after",
    )
    assert (back.outcome, said(back)) == (Outcome.ERROR, [words])


def test_a_bit_error_rate_of_an_nvlink_after_the_load_fails(healthy: Outputs) -> None:
    def rate(text: str) -> Change:
        return links(("CRC Errors: 0", f"CRC Errors: 0\n\t Link 0: Effective BER: {text}"))

    assert judged(healthy, before=rate("0"), after=rate("15e-255")).outcome is Outcome.PASS
    verdict = judged(healthy, after=rate("5e-6"))
    words = ("node01 gpu0 nvlink0", "NVLink bit error rate after correction", "at most 1e-12", "5e-6")
    assert (verdict.outcome, said(verdict)) == (Outcome.FAIL, [words])
    for text in ("low", "-1", "1e5", "nan"):
        assert said(judged(healthy, after=rate(text))) == [
            ("node01 gpu0 nvlink0", "NVLink Effective BER unreadable", "a rate such as 15e-255", text)
        ]


@pytest.mark.parametrize(
    "name",
    [
        "Rx Errors",
        "Rx remote Errors",
        "Rx General Errors",
        "Tx discards",
        "Malformed packet Errors",
        "Rx Poison Errors",
    ],
)
def test_faults_of_nvlinks_of_the_fifth_generation_fail_under_whatever_name(healthy: Outputs, name: str) -> None:
    """Their names begin as those of traffic do, which grows on every link."""
    before, after = (
        links(("CRC Errors: 0", f"CRC Errors: 0\n\t Link 0: Tx packets: {sent}\n\t Link 0: {name}: {count}"))
        for sent, count in ((10, 0), (9000, 4))
    )
    words = f"nvlink_{name.removesuffix(' Errors').lower().replace(' ', '_')} rose under load"
    verdict = judged(healthy, before=before, after=after)
    assert (verdict.outcome, said(verdict)) == (Outcome.FAIL, [("node01 gpu0", words, "by at most 0", "4")])


def test_links_that_recovered_under_load_are_noted(healthy: Outputs) -> None:
    first, last = (links(("CRC Errors: 0", f"Link recovery successful events: {count}")) for count in (1, 4))
    verdict = judged(healthy, before=first, after=last)
    assert verdict.outcome is Outcome.PASS
    assert str(verdict.note).endswith("node01 gpu0 under load: 3 Link recovery successful events")


AGAIN = (
    "Run the gate again. For captured readings: give the one before the load and the one after it, both from this node."
)
BOOT, UPTIME = "/proc/sys/kernel/random/boot_id", "/proc/uptime"


def kernel(path: str, text: str | None) -> Change:
    return lambda found: found["files"].update({path: {} if text is None else {path: text}})


@pytest.mark.parametrize(
    ("changes", "what", "expected", "actual"),
    [
        (
            {"after": kernel(BOOT, "another")},
            "readings of two boots or two nodes",
            f"one boot ({BOOT})",
            "5f0c7d1e-0000-4000-8000-000000000001 before, another after",
        ),
        (
            {"before": kernel(BOOT, None)},
            "readings of two boots or two nodes",
            f"one boot ({BOOT})",
            "nothing before, 5f0c7d1e-0000-4000-8000-000000000001 after",
        ),
        (
            {"after": kernel(UPTIME, "4000.12 9000.00")},
            "readings not from before and after the load",
            "at least 60 s, the length of the load, from the first reading to the second",
            "0.0 s",
        ),
        (
            {"before": kernel(UPTIME, "5000.12 9000.00")},
            "readings not from before and after the load",
            "at least 60 s, the length of the load, from the first reading to the second",
            "-940.0 s",
        ),
        ({"after": kernel(UPTIME, None)}, "time of a reading missing", f"seconds since boot ({UPTIME})", "nothing"),
    ],
    ids=["another node", "no boot", "at once", "the other way round", "no time"],
)
def test_readings_that_are_no_pair_are_an_error(
    healthy: Outputs, changes: dict[str, Change], what: str, expected: str, actual: str
) -> None:
    verdict = judged(healthy, **changes)
    assert [str(finding) for finding in verdict.findings] == [
        f"node01: {what} - Expected: {expected} Actual: {actual}. {AGAIN}"
    ]
    assert (verdict.outcome, verdict.measured) == (Outcome.ERROR, [])


def test_one_reading_for_before_and_after_is_no_pair(healthy: Outputs) -> None:
    verdict = judged({**healthy, "before": replace(healthy["after"], key="before")})
    assert [str(finding) for finding in verdict.findings] == [
        f"node01: one reading before and after the load - Expected: two readings Actual: the same output twice. {AGAIN}"
    ]
    assert (verdict.outcome, verdict.measured) == (Outcome.ERROR, [])


def test_readings_that_tell_no_boot_are_known_by_their_gpus(healthy: Outputs) -> None:
    old = {key: kernel(BOOT, None) for key in ("before", "after")}
    verdict = judged(healthy, **old)
    words = "the readings have no boot id (an earlier version made them): only the GPUs show that they are of one node"
    assert verdict.outcome is Outcome.PASS
    assert words in (verdict.note or "")

    def other(found: Document) -> None:
        kernel(BOOT, None)(found)
        found["commands"]["nvlink"]["stdout"] = found["commands"]["nvlink"]["stdout"].replace(
            "UUID: GPU-", "UUID: GPU-9", 2
        )

    verdict = judged(healthy, **{**old, "after": other})
    assert [(item.what, item.expected) for item in verdict.findings] == [
        ("readings of different GPUs", "the UUIDs of the first reading")
    ]
    assert (verdict.outcome, verdict.measured) == (Outcome.ERROR, [])

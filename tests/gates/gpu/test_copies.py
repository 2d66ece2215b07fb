"""nvbandwidth: copies of each GPU against its link, its siblings and what is published, and the replays meanwhile."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rackready.gates.base import Output
from rackready.gates.engine.registry import gate
from rackready.gates.formats import nvbandwidth
from rackready.gates.gpu import nvbandwidth as nv
from rackready.gates.gpu.nvbandwidth import judge_bounds
from rackready.gates.judging.judge import Judge
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome, Verdict
from tests.gates.gpu.test_performance import COPY, SMI, judge
from tests.gates.support import Told, later, tells, text

JSON, TABLE = text("nvbandwidth/dgx_h100_healthy.json"), text("nvbandwidth/dgx_h100_healthy.txt")


def copies(
    change: Callable[[dict[str, dict[str, Any]]], object] = lambda _tests: None,
    *,
    replays: str = "0",
    seconds: float = 60.0,
    out: str | None = None,
) -> Verdict:
    found = json.loads(JSON)
    change({test["name"]: test for test in found["nvbandwidth"]["testcases"]})
    pieces = SMI.split("\t<gpu id=")
    before = int(pieces[3].split("<replay_counter>")[1].split("<")[0])
    pieces[3] = pieces[3].replace(f"<replay_counter>{before}<", f"<replay_counter>{before + int(replays)}<")
    outputs = {
        "before": SMI,
        "copy-0": out if out is not None else json.dumps(found),
        "after": later("\t<gpu id=".join(pieces)),
    }
    return judge(COPY, outputs, {"launches": 1}, seconds=seconds)


def set_cell(test: str, row: int, column: int, value: str) -> Callable[[dict[str, dict[str, Any]]], object]:
    return lambda tests: tests[test]["bandwidth_matrix"][row].__setitem__(column, value)


def test_copies_of_a_healthy_node_pass_as_json_and_as_text() -> None:
    assert copies().note is None
    assert tells(copies()) == []
    assert tells(copies(out=TABLE)) == []
    assert nvbandwidth.parse(TABLE).tests == nvbandwidth.parse(TABLE).tests
    assert {name: len(test.matrix) for name, test in nvbandwidth.parse(TABLE).tests.items()} == {
        name: len(test.matrix) for name, test in nvbandwidth.parse(JSON).tests.items()
    }


def test_copies_from_the_host_are_as_fast_as_the_hosts_own_link() -> None:
    """B300 GPUs have PCIe Gen6, the processors Gen5: nvbandwidth v0.10 on a Dell XE9780 shows 55.6 and 57 GB/s."""
    node = facts("dgx_b300", 1).nodes["node01"]
    told = Judge()
    assert judge_bounds(told, node, "node01", "host_to_device_memcpy_ce", dict.fromkeys(range(8), 55.6)) == set()
    bounds = {one.label: one.bound for one in told.criteria}
    assert bounds == {"ceiling": pytest.approx(64 * nv.IMPLAUSIBLE), "floor": pytest.approx(0.85 * 64 * 128 / 152)}
    assert judge_bounds(told, node, "node01", "host_to_device_memcpy_ce", {0: 41.0}) == {0}


@pytest.mark.parametrize(
    ("change", "where", "what", "outcome"),
    [
        (
            set_cell("host_to_device_memcpy_ce", 0, 3, "27.60"),
            "node01 gpu3",
            "host_to_device_memcpy_ce is slow",
            Outcome.FAIL,
        ),
        (
            set_cell("device_to_host_memcpy_ce", 0, 3, "48.10"),
            "node01 gpu3",
            "device_to_host_memcpy_ce behind its siblings",
            Outcome.FAIL,
        ),
        (
            set_cell("device_local_copy", 0, 3, "1100.0"),
            "node01 gpu3",
            "device_local_copy behind its siblings",
            Outcome.FAIL,
        ),
        (
            set_cell("host_to_device_memcpy_ce", 0, 3, "112.0"),
            "node01 gpu3",
            "host_to_device_memcpy_ce is implausible",
            Outcome.ERROR,
        ),
        (
            set_cell("host_to_device_memcpy_ce", 0, 3, "N/A"),
            "node01",
            "nvbandwidth test host_to_device_memcpy_ce has no number",
            Outcome.ERROR,
        ),
        (
            lambda tests: tests["device_local_copy"].update(status="Waived"),
            "node01",
            "nvbandwidth test device_local_copy did not run",
            Outcome.ERROR,
        ),
        (
            lambda tests: tests["device_local_copy"].update(status="Fine"),
            "node01",
            "nvbandwidth unreadable",
            Outcome.ERROR,
        ),
    ],
)
def test_copies_that_are_slow_or_missing(
    change: Callable[[dict[str, dict[str, Any]]], object], where: str, what: str, outcome: Outcome
) -> None:
    verdict = copies(change)
    assert (where, what) in {(finding.where, finding.what) for finding in verdict.findings}
    assert verdict.outcome is outcome
    assert "node01/gpu3" not in verdict.measured


MEDIAN = "(0.85 of the median of all pairs: behind NVSwitches all are alike)"


@pytest.mark.parametrize(
    ("cell", "outcome", "finding"),
    [
        (
            "12.00",
            Outcome.FAIL,
            ("nvbandwidth-peer-slow", f"at least {{least}} GB/s {MEDIAN}", "12.0 GB/s"),
        ),
        (
            "N/A",
            Outcome.ERROR,
            ("nvbandwidth-peer-no-number", "one for each pair of GPUs", "none"),
        ),
        (
            "446.00",
            Outcome.ERROR,
            ("nvbandwidth-peer-implausible", "at most {most} GB/s (the median of all pairs / 0.85)", "446.0 GB/s"),
        ),
    ],
    ids=["slow", "without a number", "implausible"],
)
def test_one_pair_that_a_gpus_median_hides_is_named(cell: str, outcome: Outcome, finding: Told) -> None:
    test = next(
        one for one in json.loads(JSON)["nvbandwidth"]["testcases"] if one["name"] == "device_to_device_memcpy_read_ce"
    )
    test["bandwidth_matrix"][3][5] = cell
    typical = statistics.median(float(value) for row in test["bandwidth_matrix"] for value in row if value != "N/A")
    verdict = copies(set_cell("device_to_device_memcpy_read_ce", 3, 5, cell))
    code, expected, actual = finding
    bound = expected.format(least=f"{0.85 * typical:.1f}", most=f"{typical / 0.85:.1f}")
    assert tells(verdict) == [(code, "node01 gpu3 and gpu5", bound, actual)]
    assert verdict.outcome is outcome
    assert not {"node01/gpu3", "node01/gpu5"} & set(verdict.measured)


def scaled(test: str, factor: float) -> Callable[[dict[str, dict[str, Any]]], object]:
    def change(tests: dict[str, dict[str, Any]]) -> None:
        rows = tests[test]["bandwidth_matrix"]
        tests[test]["bandwidth_matrix"] = [
            [cell if cell == "N/A" else f"{float(cell) * factor:.2f}" for cell in row] for row in rows
        ]

    return change


AZURE = "Azure azurehpc-health-checks, ND H100 v5: least of nvbandwidth device_to_device_memcpy_read_ce"
ASKED = "NVIDIA/DCGM nvvs/diag-skus.yaml.in asks 0.51 (B200) to 0.70 of the data sheet's bandwidth, 0.57 of H100's"


@pytest.mark.parametrize(
    ("test", "factor", "finding", "outcome"),
    [
        (
            "device_to_device_memcpy_read_ce",
            0.05,
            (
                "nvbandwidth-slow",
                f"at least 335.0 GB/s ({AZURE})",
                "18.6 GB/s",
                "test=device_to_device_memcpy_read_ce",
                "step=2",
            ),
            Outcome.FAIL,
        ),
        (
            "device_to_device_memcpy_read_ce",
            20,
            ("nvbandwidth-implausible", "at most 450 GB/s", "7437.0 GB/s", "test=device_to_device_memcpy_read_ce"),
            Outcome.ERROR,
        ),
        (
            "device_local_copy",
            0.05,
            (
                "nvbandwidth-slow",
                f"at least 837.5 GB/s (derived: 0.5 x 3350 GB/s / 2, as a copy reads and writes each byte; {ASKED})",
                "69.4 GB/s",
                "test=device_local_copy",
                "step=2",
            ),
            Outcome.FAIL,
        ),
    ],
    ids=["peers slow", "peers implausible", "own memory slow"],
)
def test_copies_that_are_equally_wrong_on_all_gpus(test: str, factor: float, finding: Told, outcome: Outcome) -> None:
    verdict = copies(scaled(test, factor))
    assert tells(verdict)[0] == (finding[0], "node01 gpu0", *finding[1:])
    assert (verdict.outcome, verdict.measured, len(verdict.findings)) == (outcome, [], 8)


def test_copies_between_peers_of_a_model_without_a_published_rate_follow_from_its_links() -> None:
    known = facts("dgx_b200", 1)
    found = gate(COPY, {"launches": 1})
    said = {"before": SMI, "copy-0": JSON, "after": later(SMI)}
    verdict = found.evaluate(
        known,
        found.plan(known, ["node01"])[0],
        {key: Output(key, "node01", "x", 0, out, seconds=60.0) for key, out in said.items()},
    )
    wanted = "at least 613.5 GB/s (derived: 0.85 x 18 links x 40.1 GB/s (NCCL src/graph/topo.h, SM100_NVLINK_BW))"
    assert wanted in {
        finding.expected for finding in verdict.findings if finding.what == "device_to_device_memcpy_read_ce is slow"
    }


def test_copies_to_a_host_over_a_link_that_is_not_published_wait_for_the_fleet() -> None:
    known = facts("dgx_h100", 1)
    bare = known.nodes["node01"].gpu.model_copy(update={"pcie": None})
    known = replace(known, nodes={"node01": replace(known.nodes["node01"], gpu=bare)})
    found, said = gate(COPY, {"launches": 1}), {"before": SMI, "copy-0": JSON, "after": later(SMI)}
    verdict = found.evaluate(
        known,
        found.plan(known, ["node01"])[0],
        {key: Output(key, "node01", "x", 0, out, seconds=60.0) for key, out in said.items()},
    )
    assert (verdict.outcome, verdict.fleet_pending) == (Outcome.PASS, True)


@pytest.mark.parametrize(("replays", "outcome"), [("31", Outcome.PASS), ("32", Outcome.FAIL)])
def test_replays_are_held_against_the_rate_of_the_link(replays: str, outcome: Outcome) -> None:
    """PCIe 5.0 x16: 1e-12 x 32 GT/s x 60 s x 16 lanes = 30.72, so 31 in a minute (DCGM)."""
    assert copies(replays=replays).outcome is outcome


@pytest.mark.parametrize(
    ("replays", "seconds", "actual"),
    [("-1", 60.0, "2 before, 1 after"), ("3", 0.0, "2 before, 5 after, in an unknown time")],
    ids=["went back", "no time"],
)
def test_replays_that_cannot_be_counted_are_an_error(replays: str, seconds: float, actual: str) -> None:
    verdict = copies(replays=replays, seconds=seconds)
    wanted = ("pcie-replays-no-rate", "node01 gpu2", "a counter that grows, and the time of the copies", actual)
    assert tells(verdict) == [wanted]
    assert verdict.outcome is Outcome.ERROR


def test_a_gpu_that_is_gone_after_the_copies_is_seen() -> None:
    pieces = SMI.split("\t<gpu id=")
    last = pieces[8].split("\t</gpu>\n", 1)[1]
    after = "\t<gpu id=".join(pieces[:8]).replace("<attached_gpus>8<", "<attached_gpus>7<") + last
    verdict = judge(COPY, {"before": SMI, "copy-0": JSON, "after": later(after)}, {"launches": 1})
    assert tells(verdict) == [("nvidia-smi-gpus-missing", "node01", "8", "7")]
    assert verdict.outcome is Outcome.FAIL


def test_the_copies_number_gpus_by_pci_address() -> None:
    """CUDA's own order is by speed: gpu3 would be another card than nvidia-smi's."""
    run = gate(COPY, {"launches": 2}).plan(facts("dgx_h100", 1), ["node01"])[0]
    assert [dict(command.env) for command in run.commands] == [
        {},
        {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        {},
    ]


PCI = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")


def listed(change: Callable[[list[str]], object] = lambda _lines: None) -> str:
    """What nvbandwidth 0.8 prints as JSON, with its list of devices (json_output.cpp, recordDevices)."""
    found = json.loads(JSON)
    devices = [f"{gpu}: NVIDIA H100 80GB HBM3 (00000000:{bus}:00): (node01)" for gpu, bus in enumerate(PCI)]
    change(devices)
    found["nvbandwidth"]["GPU Device list"] = devices
    return json.dumps(found)


def test_the_devices_that_nvbandwidth_lists_are_read_from_json_and_text() -> None:
    wanted = tuple(nvbandwidth.ListedGpu("NVIDIA H100 80GB HBM3", f"0000:{bus}:00") for bus in PCI)
    assert nvbandwidth.parse(listed()).devices == nvbandwidth.parse(TABLE).devices == wanted
    assert tells(copies(out=listed())) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda lines: lines.__setitem__(slice(None), [line.replace("H100 80GB HBM3", "H200") for line in lines]),
            ("gpus-of-another-model", "NVIDIA H100 80GB HBM3", "NVIDIA H200 (8 on node01)", "what=nvbandwidth ran on"),
        ),
        (
            lambda lines: lines.pop(),
            ("nvbandwidth-gpus", "8", "7"),
        ),
        (
            lambda lines: lines.__setitem__(slice(2), [lines[0].replace("1b", "43"), lines[1].replace("43", "1b")]),
            (
                "nvbandwidth-gpu-order",
                "by PCI address",
                f"0000:43:00, 0000:1b:00, {', '.join(f'0000:{bus}:00' for bus in PCI[2:])}",
            ),
        ),
        (
            lambda lines: lines.__setitem__(7, lines[7].replace("df", "e1")),
            (
                "nvbandwidth-other-gpus",
                f"{', '.join(f'0000:{bus}:00' for bus in PCI)}",
                f"{', '.join(f'0000:{bus}:00' for bus in (*PCI[:7], 'e1'))}",
            ),
        ),
    ],
    ids=["another model", "one is missing", "another order", "another node"],
)
def test_copies_on_other_gpus_are_no_measurement(change: Callable[[list[str]], object], said: Told) -> None:
    verdict = copies(out=listed(change))
    assert (tells(verdict), verdict.outcome, verdict.measured) == ([(said[0], "node01", *said[1:])], Outcome.ERROR, [])


@pytest.mark.parametrize(
    ("out", "said"),
    [
        (TABLE.replace("H100 80GB HBM3", "H200"), None),
        (
            (
                f"{TABLE}[CUDA_ERROR_ILLEGAL_ADDRESS] an illegal memory access was encountered in "
                "expression cuStreamSynchronize(stream) in run() : memcpy.cpp:300\n"
            ),
            (
                "nvbandwidth says: [CUDA_ERROR_ILLEGAL_ADDRESS] an illegal memory access was encountered "
                "in expression cuStreamSynchronize(stream) in run() : memcpy.cpp:300"
            ),
        ),
        (
            (f"{TABLE}NVML_ERROR: [GPU is lost] in expression nvmlInit() in main() : nvbandwidth.cpp:10\n"),
            ("nvbandwidth says: NVML_ERROR: [GPU is lost] in expression nvmlInit() in main() : nvbandwidth.cpp:10"),
        ),
        (
            f"{TABLE} Invalid value when checking the pattern at 0x7f3c00000000\n",
            "nvbandwidth says: Invalid value when checking the pattern at 0x7f3c00000000",
        ),
        (f"{TABLE}{TABLE}", "2 tables: the output of one command is wanted"),
        (f"{TABLE}{JSON}", "a table and JSON: the output of one command is wanted"),
        (f"{JSON}{JSON}", "two JSON documents, the second at line {line}: the output of one command is wanted"),
        (
            f"[CUDA_ERROR_LAUNCH_FAILED] unspecified launch failure in expression x\n{JSON}",
            "nvbandwidth says: [CUDA_ERROR_LAUNCH_FAILED] unspecified launch failure in expression x",
        ),
    ],
    ids=[
        "another model",
        "CUDA",
        "NVML",
        "pattern",
        "two tables",
        "table and JSON",
        "two documents",
        "words before JSON",
    ],
)
def test_words_of_an_error_and_a_second_output_are_no_pass(out: str, said: str | None) -> None:
    verdict = copies(out=out)
    assert (verdict.outcome, verdict.measured) == (Outcome.ERROR, [])
    if said is not None:
        assert [item.actual for item in verdict.findings] == [
            f"{said.format(line=JSON.count(chr(10)) + 1)} (exit code 0)"
        ]


def test_one_output_for_two_launches_is_one_launch() -> None:
    outputs = {"before": SMI, "copy-0": JSON, "copy-1": JSON, "after": later(SMI)}
    verdict = judge(COPY, outputs, {"launches": 2})
    wanted = (
        "same-launch-twice",
        "node01",
        "figures that differ",
        "the same of host_to_device_memcpy_ce, device_to_host_memcpy_ce",
        "one=1",
        "other=2",
        "program=nvbandwidth",
    )
    assert (tells(verdict), verdict.outcome, verdict.measured) == ([wanted], Outcome.ERROR, [])


def not_later(clock: str) -> Told:
    expected = f"later than 2026-11-22 {clock}, the time of the report before it"
    return "report-not-later", "node01", expected, "2026-11-22 06:00:00", "when=after"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            SMI,
            SMI,
            not_later("06:00:00"),
        ),
        (
            later(SMI),
            SMI,
            not_later("06:05:00"),
        ),
        (
            SMI,
            later(SMI, "yesterday"),
            (
                "report-time-not-told",
                "node01",
                "a timestamp before and after the load",
                "before 2026-11-22 06:00:00, after nothing",
            ),
        ),
        (SMI, later(SMI).replace("<uuid>GPU-", "<uuid>GPU-9"), None),
    ],
    ids=["the same file", "the other way round", "no time", "another node"],
)
def test_counters_before_and_after_are_of_one_node_in_this_order(before: str, after: str, said: Told | None) -> None:
    verdict = judge(COPY, {"before": before, "copy-0": JSON, "after": after}, {"launches": 1})
    assert (verdict.outcome, verdict.measured, len(verdict.findings)) == (Outcome.ERROR, [], 1)
    if said is not None:
        assert tells(verdict) == [said]
    else:
        first = verdict.findings[0]
        assert (first.code, first.expected) == ("other-gpus-after-load", "the UUIDs from before")
        assert first.actual.endswith("and 6 more")

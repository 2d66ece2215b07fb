"""All-reduce of one node."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from rackready.format_error import FormatError
from rackready.gates.engine.registry import GateInputsError, gate
from rackready.gates.formats import nccl_log, nccl_tests
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome
from tests.gates.nccl_table import at, settings
from tests.gates.support import Case, Said, Told, check, judge, launched, outputs, rack, text

GATE = "node/gpu/performance/nccl-all-reduce"
ONCE = {"launches": 1}
WHOLE, OF = "a whole table", "what=all-reduce of 8 GPUs"
OUT_OF_PLACE = "size=17179869184", "name=out of place"
FIRST, PERF = "node01 launch 1", "program=all_reduce_perf"
TABLE = text("nccl/dgx_h100_8_healthy.txt")
LARGEST = next(line for line in TABLE.splitlines() if line.startswith(" 17179869184"))
STARTING = "# Collective test starting: all_reduce_perf"
HEALTHY = Said(TABLE)

OF_MAIN = "at least 0.9 x 478.6 GB/s, the busbw of the largest message out of place"
OWN = "a launch of its own: other processes (host, process id), another communicator"


def of_communicator(number: str) -> str:
    """The healthy launch, with the line in which NCCL names its communicator."""
    line = (
        "node01:41000:41060 [0] NCCL INFO ncclCommInitRankConfig comm 0x55f0 rank 0 nranks 8 cudaDev 0 busId 1b000 "
        f"commId {number} - Init START\n"
    )
    return TABLE.replace("node01:41000:41060 [0]", f"{line}node01:41000:41060 [0]", 1)


def one(name: str, said: Said, outcome: Outcome, *findings: Told) -> Case:
    return Case(name, {"launch0": said}, outcome, findings, ONCE)


def slow_at(size: str, actual: str) -> Told:
    return "nccl-slow-at-size", "node01", OF_MAIN, actual, OF, f"name={size}"


CASES = [
    one("healthy, text", HEALTHY, Outcome.PASS),
    one(
        "healthy, JSON, which says nothing of the transport",
        Said(text("nccl/dgx_h100_8_healthy.json")),
        Outcome.ERROR,
        ("nccl-transport-not-told", "node01", "NCCL INFO lines of every node", "none of this node"),
    ),
    one(
        "JSON of a rank that is no number",
        Said(text("nccl/dgx_h100_8_healthy.json").replace('"rank": 0', '"rank": ""')),
        Outcome.ERROR,
        (
            "nccl-no-result",
            FIRST,
            WHOLE,
            "JSON with a value of another type: invalid literal for int() with base 10: '' (exit code 0)",
            PERF,
        ),
    ),
    one(
        "NVLS off",
        Said(text("nccl/dgx_h100_8_nvls_off.txt")),
        Outcome.FAIL,
        ("nccl-no-nvls", "node01", "available on 8 GPUs", "on 0"),
        ("nccl-node-slow", "node01", "at least 452.2 GB/s (floor)", "371.6 GB/s (median of 1: 371.6)", OF),
    ),
    one(
        "NVLink not used",
        Said(at(text("nccl/dgx_h100_8_shm.txt"), 477.9)),
        Outcome.FAIL,
        ("nccl-no-nvlink", "node01", "P2P channels over paths of type NVL", "SHM/direct/direct, SYS"),
        ("nccl-no-nvls", "node01", "available on 8 GPUs", "on 0"),
    ),
    one(
        "channels of all GPUs but one",
        Said("\n".join(line for line in TABLE.splitlines() if "[5] NCCL INFO Channel" not in line)),
        Outcome.ERROR,
        ("nccl-gpus-not-told", "node01", "channels to another GPU from 8 GPUs", "from 7"),
    ),
    Case(
        "one dip of three launches",
        {
            "launch0": HEALTHY,
            "launch1": Said(launched(text("nccl/dgx_h100_8_slow.txt"), 1)),
            "launch2": Said(launched(TABLE, 2)),
        },
        Outcome.PASS,
        (),
        {"launches": 3},
    ),
    one(
        "slow",
        Said(text("nccl/dgx_h100_8_slow.txt")),
        Outcome.FAIL,
        ("nccl-node-slow", "node01", "at least 452.2 GB/s (floor)", "402.3 GB/s (median of 1: 402.3)", OF),
    ),
    one(
        "wrong values",
        Said(text("nccl/dgx_h100_8_wrong_values.txt"), exit_code=1),
        Outcome.FAIL,
        ("nccl-wrong-results", FIRST, "0 wrong values", "48 wrong values"),
    ),
    one(
        "not checked",
        Said(text("nccl/dgx_h100_8_unchecked.txt")),
        Outcome.ERROR,
        ("nccl-not-checked", FIRST, "#wrong 0", "#wrong N/A"),
    ),
    one(
        "implausible",
        Said(at(TABLE, 878.6)),
        Outcome.ERROR,
        ("collective-implausible", "node01", "at most 700.0 GB/s (ceiling)", "878.6 GB/s (median of 1: 878.6)", OF),
    ),
    one(
        "exit code contradicts the table",
        Said(text("nccl/dgx_h100_8_healthy.txt"), exit_code=1),
        Outcome.ERROR,
        ("nccl-exit-code", FIRST, "exit code 0 with a whole table", "exit code 1", PERF),
    ),
    one(
        "a GPU failed, and the table is whole",
        Said(
            f"{TABLE}node01: Test CUDA failure common.cu:303 'unspecified launch failure'\n .. "
            "node01 pid 41000: Test failure common.cu:488\n"
        ),
        Outcome.ERROR,
        (
            "nccl-says-failure",
            FIRST,
            "a whole table and no error message",
            "Test CUDA failure common.cu:303 'unspecified launch failure'",
            PERF,
        ),
    ),
    one(
        "another model of GPU",
        Said(TABLE.replace("H100 80GB HBM3", "A100-SXM4-80GB")),
        Outcome.ERROR,
        (
            "gpus-of-another-model",
            FIRST,
            "NVIDIA H100 80GB HBM3",
            "NVIDIA A100-SXM4-80GB (8 on node01)",
            "what=all_reduce_perf ran on",
        ),
    ),
    one(
        "a part of a GPU",
        Said(TABLE.replace("[0000:df:00] NVIDIA H100 80GB HBM3", "[0000:df:00] NVIDIA H100 80GB HBM3 MIG 3g.40gb")),
        Outcome.ERROR,
        (
            "gpus-of-another-model",
            FIRST,
            "NVIDIA H100 80GB HBM3",
            "NVIDIA H100 80GB HBM3 MIG 3g.40gb (1 on node01)",
            "what=all_reduce_perf ran on",
        ),
    ),
    one("a driver that leaves out the vendor's name", Said(TABLE.replace("NVIDIA H100", "H100")), Outcome.PASS),
    one(
        "seven GPUs",
        Said("\n".join(line for line in text("nccl/dgx_h100_8_healthy.txt").splitlines() if "Rank  7" not in line)),
        Outcome.ERROR,
        (
            "nccl-other-run",
            FIRST,
            "8 ranks, sizes [8589934592, 17179869184]",
            "7 ranks, sizes [8589934592, 17179869184]",
            PERF,
        ),
    ),
    one("a build with a suffix in its name", Said(TABLE.replace(STARTING, f"{STARTING}_mpi")), Outcome.PASS),
    one(
        "another collective, built with a suffix",
        Said(TABLE.replace(STARTING, "# Collective test starting: reduce_scatter_perf_mpi")),
        Outcome.ERROR,
        (
            "nccl-other-run",
            FIRST,
            "8 ranks, sizes [8589934592, 17179869184]",
            "reduce_scatter_perf_mpi, 8 ranks, sizes [8589934592, 17179869184]",
            PERF,
        ),
    ),
    one(
        "a size with two results, the good one first",
        Said(TABLE.replace(LARGEST, f"{LARGEST}\n{LARGEST.replace('478.60', '300.60')}")),
        Outcome.ERROR,
        ("nccl-no-result", FIRST, WHOLE, "2 rows of size 17179869184 instead of one (exit code 0)", PERF),
    ),
    one(
        "one of two sizes",
        Said("\n".join(line for line in TABLE.splitlines() if not line.startswith("  8589934592"))),
        Outcome.ERROR,
        (
            "nccl-sizes-left-out",
            FIRST,
            "8 ranks, sizes [8589934592, 17179869184]",
            "8 ranks, sizes [17179869184]",
            PERF,
        ),
    ),
    one(
        "cut off before the footer",
        Said(text("nccl/dgx_h100_8_healthy.txt").split("# Out of bounds")[0]),
        Outcome.ERROR,
        (
            "nccl-no-result",
            FIRST,
            WHOLE,
            "no footer (out of bounds values, average): the output is cut off (exit code 0)",
            PERF,
        ),
    ),
    one(
        "NCCL fails",
        Said(
            "",
            "node01: Test NCCL failure all_reduce.cu:44 'unhandled cuda error (run with NCCL_DEBUG=INFO for "
            "details) / '",
            3,
        ),
        Outcome.ERROR,
        (
            "nccl-no-result",
            FIRST,
            WHOLE,
            (
                "empty output (exit code 3); it printed: Test NCCL failure all_reduce.cu:44 'unhandled "
                "cuda error (run with NCCL_DEBUG=INFO for details) / '"
            ),
            PERF,
        ),
    ),
    one(
        "hangs",
        Said(text("nccl/dgx_h100_8_healthy.txt")[:600], exit_code=None, timed_out=True),
        Outcome.ERROR,
        (
            "command-did-not-end",
            FIRST,
            "an end within its time limit",
            "still running after 1 s, killed",
            "command=all_reduce_perf",
        ),
    ),
    Case(
        "one output given as two launches",
        {"launch0": HEALTHY, "launch1": Said(launched(TABLE, 1)), "launch2": Said(f"{TABLE}\n")},
        Outcome.ERROR,
        (("nccl-same-launch-twice", "node01 launch 3", OWN, "the same output", PERF, "twin=1"),),
        {"launches": 3},
    ),
    Case(
        "one launch given twice with another figure",
        {"launch0": HEALTHY, "launch1": Said(at(TABLE, 478.7))},
        Outcome.ERROR,
        (("nccl-same-launch-twice", "node01 launch 2", OWN, "the same processes (node01 41000)", PERF, "twin=1"),),
        {"launches": 2},
    ),
    Case(
        "one communicator in two launches",
        {"launch0": Said(of_communicator("0x7e1")), "launch1": Said(launched(of_communicator("0x7e1"), 1))},
        Outcome.ERROR,
        (("nccl-same-launch-twice", "node01 launch 2", OWN, "the same communicator (commId 0x7e1)", PERF, "twin=1"),),
        {"launches": 2},
    ),
    Case(
        "two containers that number their processes alike",
        {"launch0": Said(of_communicator("0x7e1")), "launch1": Said(of_communicator("0x7e2"))},
        Outcome.PASS,
        (),
        {"launches": 2},
    ),
    one(
        "busbw that is no multiple of algbw",
        Said(TABLE.replace("478.60", "488.60")),
        Outcome.ERROR,
        (
            "nccl-row-figures",
            FIRST,
            "algbw 273.49 (size / time) and busbw 1.75 x algbw",
            "time 62818.2 us, algbw 273.49, busbw 488.6 GB/s",
            PERF,
            *OUT_OF_PLACE,
        ),
    ),
    one(
        "a time that is not that of its algbw",
        Said(TABLE.replace("62818.2", "72818.2")),
        Outcome.ERROR,
        (
            "nccl-row-figures",
            FIRST,
            "algbw 235.93 (size / time) and busbw 1.75 x algbw",
            "time 72818.2 us, algbw 273.49, busbw 478.6 GB/s",
            PERF,
            *OUT_OF_PLACE,
        ),
    ),
    one(
        "slow at the other large size",
        Said(at(TABLE, 90.0, only=8589934592)),
        Outcome.FAIL,
        slow_at("8589934592 bytes out of place", "90.0 GB/s (median of 1)"),
        slow_at("8589934592 bytes in place", "90.0 GB/s (median of 1)"),
    ),
    one(
        "slow in place",
        Said(at(TABLE, 478.6, in_place=200.0, only=17179869184)),
        Outcome.FAIL,
        slow_at("17179869184 bytes in place", "200.0 GB/s (median of 1)"),
    ),
    one("a little slower in place", Said(at(TABLE, 478.6, in_place=440.0)), Outcome.PASS),
    one(
        "fewer iterations than asked for",
        Said(TABLE.replace("iters: 50", "iters: 5").replace("validation: 1 graph: 0", "validation: 1 graph: 3")),
        Outcome.ERROR,
        ("nccl-other-settings", FIRST, "iters 50, graph 0", "iters 5, graph 3", PERF),
    ),
    one(
        "a barrier after each iteration",
        Said(
            TABLE.replace(
                "# Using devices",
                "# Blocking Enabled: wait and barrier after each inner iteration (-m) \n# Using devices",
            )
        ),
        Outcome.ERROR,
        ("nccl-other-settings", FIRST, "blocking 0", "blocking 1", PERF),
    ),
    one(
        "settings that are not told",
        Said("\n".join(line for line in TABLE.splitlines() if not line.startswith("# nThread"))),
        Outcome.ERROR,
        (
            "nccl-no-settings",
            FIRST,
            "the line '# nThread ... warmup iters: ... iters: ...'",
            "some are missing in its output",
            PERF,
        ),
    ),
    one("settings as newer versions tell them", Said(re.sub("(?m)^# nThread.*$", settings(8), TABLE)), Outcome.PASS),
    one(
        "not checked in place, where all-reduce is",
        Said(re.sub(r"(?m)0$", "N/A", LARGEST).join(TABLE.split(LARGEST))),
        Outcome.ERROR,
        ("nccl-not-checked", FIRST, "#wrong 0", "#wrong N/A"),
    ),
    Case(
        "one launch of two is missing",
        {"launch0": HEALTHY},
        Outcome.ERROR,
        (("command-not-run", "node01 launch 2", "an output", "none", "command=all_reduce_perf"),),
        {"launches": 2},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verdict(case: Case) -> None:
    check(GATE, case)


def test_every_bound_has_its_source() -> None:
    verdict = judge(GATE, CASES[0])
    assert {criterion.label: round(criterion.bound, 1) for criterion in verdict.criteria} == {
        "ceiling": 714.0,
        "reference": 476.0,
        "floor": 452.2,
    }
    assert all(criterion.source for criterion in verdict.criteria)
    assert verdict.metrics[0].value == 478.6


def test_a_published_mark_raises_the_floor() -> None:
    marked = {**ONCE, "published_floor": 479.0, "published_source": "a cloud's pass mark for this platform"}
    assert judge(GATE, Case("marked", {"launch0": HEALTHY}, Outcome.FAIL, (), marked)).outcome is Outcome.FAIL


@pytest.mark.parametrize("source", ["", "  "])
def test_a_mark_that_nobody_published_is_refused(source: str) -> None:
    with pytest.raises(GateInputsError) as refused:
        gate(GATE, {"published_floor": 0.001, "published_source": source})
    assert str(refused.value) == (
        f"inputs: gate {GATE} - Expected: published_source beside published_floor: an unpublished mark proves nothing. "
        f"Correct it; `rackready gate show {GATE}` describes the inputs."
    )


@pytest.mark.parametrize(("nodes", "launches"), [(1, 4), (4, 5), (200, 7)])
def test_the_size_of_the_fleet_sets_the_launches(nodes: int, launches: int) -> None:
    known = rack(nodes)
    run = gate(GATE).plan(known, ["node01"])[0]
    assert [command.key for command in run.commands] == [f"launch{number}" for number in range(launches)]
    assert [command.stage for command in run.commands] == list(range(launches))


def test_the_command_checks_results_and_uses_every_gpu() -> None:
    argv = gate(GATE).plan(rack(), ["node01"])[0].commands[0].argv
    assert argv == (
        "all_reduce_perf",
        "-b",
        "8589934592",
        "-e",
        "17179869184",
        "-f",
        "2",
        "-g",
        "8",
        "-w",
        "10",
        "-n",
        "50",
        "-c",
        "1",
    )


def test_blanks_behind_a_line_of_the_log_belong_to_no_name() -> None:
    said = nccl_log.parse(
        "node01:1:1 [0] NCCL INFO Using network IB \t\r\n\n  node01:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via "
        "P2P/CUMEM  \n"
    )
    assert (said["node01"].networks, said["node01"].inside) == ({"IB"}, set())
    said = nccl_log.parse("node01:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via P2P/CUMEM  \n")
    assert said["node01"].inside == {"P2P/CUMEM"}


def test_sizes_too_small_for_the_ranks_all_print_as_nothing() -> None:
    empty = (
        "           0             0     float     sum      -1    35.20    0.00    0.00    N/A    34.05    0.00    "
        "0.00    N/A"
    )
    said = nccl_tests.parse(TABLE.replace(LARGEST, f"{empty}\n{empty}\n{LARGEST}"))
    assert [row.size for row in said.rows] == [8 << 30, 0, 0, 16 << 30]


def test_a_document_with_a_size_twice_is_refused() -> None:
    whole = json.loads(text("nccl/dgx_h100_8_healthy.json"))
    whole["results"].append(whole["results"][-1])
    with pytest.raises(FormatError, match="2 rows of size 17179869184 instead of one"):
        nccl_tests.parse(json.dumps(whole))


def test_three_nodes_gather_whole_shares_of_the_size() -> None:
    """24 ranks: 16 GiB in shares of whole 16 bytes are 17179868928 bytes (src/all_gather.cu)."""
    shares = nccl_tests.parse(TABLE.replace("17179869184    4294967296", "17179868928    4294967232"))
    ranks = dataclasses.replace(shares, ranks=24)
    assert ranks.at(16 << 30) == shares.rows[-1]
    assert shares.at(16 << 30) is None


HARMLESS = (
    "node01:41000:41050 [0] transport/nvls.cc:254 NCCL WARN Cuda failure 1 'invalid argument'",
    "node01:41000:41050 [0] misc/ibvwrap.cc:94 NCCL WARN Failed to open libibverbs.so[.1]",
    (
        "node01:41000:41050 [0] transport/net_ib.cc:253 NCCL WARN NET/IB : mlx5_1:1 Got non-fatal async event: GID "
        "table change(18)"
    ),
    (
        'node01:41000:41050 [0] NCCL WARN Missing "iommu=pt" from kernel command line which can lead to system '
        "instablity or hang!"
    ),
    (
        "node01:41000:41050 [0] NCCL INFO Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, "
        "retrying 1/35 after 100 msec of sleep"
    ),
    "[node01:00493] plm:rsh: Warning: setpgid(499,499) failed in parent with errno=Permission denied(13)",
    "slurmstepd: error: task_p_pre_launch: Using sched_affinity for tasks",
)


@pytest.mark.parametrize("line", HARMLESS, ids=range(len(HARMLESS)))
def test_warnings_of_healthy_launches_are_none_of_a_failure(line: str) -> None:
    check(GATE, one("warned", Said(f"{line}\n{TABLE}", line), Outcome.PASS))


@pytest.mark.parametrize("platform", ["dgx_b200", "dgx_h200"])
def test_a_log_of_another_server_is_no_pass(platform: str) -> None:
    known = facts(platform)
    found = gate(GATE, ONCE)
    run = found.plan(known, list(known.nodes))[0]
    verdict = found.evaluate(known, run, outputs(run, {"launch0": HEALTHY}))
    assert verdict.outcome is Outcome.ERROR
    assert [finding.what for finding in verdict.findings] == ["all_reduce_perf ran on GPUs of another model"]

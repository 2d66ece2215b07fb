"""perftest's report of its call matches what the gates asked for, and its row does not contradict itself."""

from __future__ import annotations

import pytest

from rackready.gates.engine.registry import gate
from rackready.model.outcome import Outcome
from tests.gates.support import Case, Said, between, judge, outputs, rack, tells
from tests.gates.test_ib_latency import FORTH3, READ, WRITE, lat
from tests.gates.test_ib_latency import said as latencies
from tests.gates.test_ib_write_bw import AFTER, BACK, FORTH, GATE, HEALTHY, HEALTHY_BACK, UP, pair
from tests.gates.test_incast import client, judged
from tests.gates.test_incast_writes import FROM03

CALLS = [
    ("Connection type : RC", "Connection type : UC", "connection UC, qps 1, dual-port OFF, rdma_cm OFF"),
    ("Number of qps   : 1 ", "Number of qps   : 16", "connection RC, qps 16, dual-port OFF, rdma_cm OFF"),
    ("Dual-port       : OFF", "Dual-port       : ON", "connection RC, qps 1, dual-port ON, rdma_cm OFF"),
    ("rdma_cm QPs     : OFF", "rdma_cm QPs\t : ON", "connection RC, qps 1, dual-port OFF, rdma_cm ON"),
]
IDS = [row[2] for row in CALLS]
AS_ASKED = "connection RC, qps 1, dual-port OFF, rdma_cm OFF"


def changed(said: Said, old: str, new: str) -> Said:
    assert old in said.stdout
    return Said(said.stdout.replace(old, new))


def error(where: str, program: str, actual: str) -> str:
    return ("perftest-other-settings", where, AS_ASKED, actual, f"program={program}")


@pytest.mark.parametrize(("old", "new", "actual"), CALLS, ids=IDS)
def test_bandwidth_of_another_call_is_an_error(old: str, new: str, actual: str) -> None:
    verdict = judge(GATE, pair("call", Outcome.ERROR, client_forth=changed(HEALTHY, old, new)))
    assert (tells(verdict), verdict.outcome) == ([error(FORTH, "ib_write_bw", actual)], Outcome.ERROR)


@pytest.mark.parametrize(("old", "new", "actual"), CALLS, ids=IDS)
def test_incast_of_another_call_is_an_error(old: str, new: str, actual: str) -> None:
    verdict = judged(client_node03=changed(client(), old, new))
    assert (tells(verdict), verdict.outcome) == ([error(FROM03, "ib_write_bw", actual)], Outcome.ERROR)


@pytest.mark.parametrize(("old", "new", "actual"), CALLS, ids=IDS)
def test_latency_of_another_call_is_an_error(old: str, new: str, actual: str) -> None:
    verdict = judge(WRITE, Case("call", latencies(forth3=changed(lat(3), old, new)), Outcome.ERROR, nodes=2))
    assert (tells(verdict), verdict.outcome) == ([error(FORTH3, "ib_write_lat", actual)], Outcome.ERROR)


TITLE = "                    RDMA_Write BW Test"
POSTED = "Send Bidirectional Post List BW Test"
HEAD = "Connection type, Number of qps, Dual-port, rdma_cm QPs once each"
ROWS = [
    (
        TITLE, f"{TITLE}\n                    RDMA_Read BW Test",
        "2 heads of results (RDMA_Write BW Test, RDMA_Read BW Test) instead of one",
    ),
    (
        TITLE, f"{TITLE}\n                    {POSTED}",
        f"2 heads of results (RDMA_Write BW Test, {POSTED}) instead of one",
    ),
    (
        " Number of qps   : 1 ", " ",
        f"Dual-port, Connection type, rdma_cm QPs in the head of the result instead of {HEAD}",
    ),
    (
        "0.005830", "0.001000",
        "average 391.27 Gb/s, but 0.001000 million messages of 8388608 bytes a second are 67.11 Gb/s",
    ),
    (
        "0.005830", "0.005832",
        "average 391.27 Gb/s, but 0.005832 million messages of 8388608 bytes a second are 391.38 Gb/s",
    ),
    ("391.39", "391.25", "average 391.27 above peak 391.25: columns are not what they seem"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "reason"), ROWS)
def test_a_row_or_head_that_contradicts_itself_is_no_measurement(old: str, new: str, reason: str) -> None:
    verdict = judge(GATE, pair("row", Outcome.ERROR, client_back=changed(HEALTHY_BACK, old, new)))
    finding = ("ib-write-bw-unreadable", BACK, "one result block in Gb/sec", f"{reason} (exit code 0)")
    assert (tells(verdict), verdict.outcome) == ([finding], Outcome.ERROR)


def test_a_latency_with_two_heads_is_no_measurement() -> None:
    two = changed(
        lat(3), "RDMA_Write Latency Test", "RDMA_Write Latency Test\n                    RDMA_Read Latency Test"
    )
    verdict = judge(WRITE, Case("heads", latencies(forth3=two), Outcome.ERROR, nodes=2))
    reason = "2 heads of results (RDMA_Write Latency Test, RDMA_Read Latency Test) instead of one"
    finding = (
        "latency-unreadable",
        FORTH3,
        "one result block in microseconds",
        f"{reason} (exit code 0)",
        "program=ib_write_lat",
    )
    assert (tells(verdict), verdict.outcome) == ([finding], Outcome.ERROR)


def test_a_peak_of_zero_is_right_only_where_perftest_measures_none() -> None:
    none = changed(HEALTHY, "391.39 ", "0.00   ")
    verdict = judge(GATE, pair("peak", Outcome.ERROR, client_forth=none))
    expected = "a peak of at least the average, 391.27 Gb/s"
    finding = ("ib-write-bw-no-peak", FORTH, expected, "0.00 Gb/s")
    assert (tells(verdict), verdict.outcome) == ([finding], Outcome.ERROR)
    many, known = gate(GATE, {"iterations": 20001, "bytes_tolerance": 0.99}), rack(2)
    forth = changed(none, " 2000 ", " 20001")
    back = Said(between(forth.stdout, "192.168.1.12", "192.168.1.11"))
    run = many.plan(known, list(known.nodes))[0]
    assert (
        tells(
            many.evaluate(
                known, run, outputs(run, {**UP, "client-forth": forth, "client-back": back, "after-first": AFTER})
            )
        )
        == []
    )


@pytest.mark.parametrize("end", ["client_forth", "server_forth"])
def test_bandwidth_to_a_gpu_of_another_model_is_an_error(end: str) -> None:
    said = changed(HEALTHY, "NVIDIA H100 80GB HBM3", "NVIDIA L4")
    said = Said(
        "".join(
            line
            for line in said.stdout.splitlines(keepends=True)
            if end != "server_forth" or not line.startswith(" 8388608 ")
        )
    )
    verdict = judge(GATE, pair("model", Outcome.ERROR, **{end: said}))
    node = "node01" if end == "client_forth" else "node02"
    finding = (
        "gpus-of-another-model",
        FORTH,
        "NVIDIA H100 80GB HBM3",
        f"NVIDIA L4 (1 on {node})",
        "what=ib_write_bw used",
    )
    assert (tells(verdict), verdict.outcome) == ([finding], Outcome.ERROR)


def test_latency_to_a_gpu_of_another_model_is_an_error() -> None:
    said = latencies(gpu=True)
    said["forth3"] = changed(said["forth3"], "NVIDIA H100 80GB HBM3", "NVIDIA L4")
    verdict = judge(READ, Case("model", said, Outcome.ERROR, nodes=2))
    finding = (
        "gpus-of-another-model",
        FORTH3,
        "NVIDIA H100 80GB HBM3",
        "NVIDIA L4 (1 on node01)",
        "what=ib_read_lat used",
    )
    assert (tells(verdict), verdict.outcome) == ([finding], Outcome.ERROR)

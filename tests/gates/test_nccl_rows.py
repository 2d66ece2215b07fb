"""Rows of nccl-tests belong to the data that was asked for, and agree with each other and with the footer."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from rackready.format_error import FormatError
from rackready.gates.base import Output
from rackready.gates.engine.registry import gate
from rackready.gates.formats import nccl_tests
from rackready.gates.judging.judge import Judge
from rackready.gates.nccl import rows as nccl_rows
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome
from rackready.profiles import loader
from tests.gates.nccl_table import COLUMNS, averaged, row, settings
from tests.gates.support import Said, outputs, text

GIB = 1 << 30
PRINTED = "Give the output as the program printed it, or run the gate again."
SHOWN = "Run it with the command that `rackready gate show` prints."
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")


def table(collective: str, ranks: int = 8) -> str:
    """A launch of eight ranks as nccl-tests prints it."""
    head = [
        settings(),
        "# Using devices",
        *(
            f"#  Rank {rank} Group 0 Pid {900 + rank} on h device {rank} [0000:1b:00] NVIDIA H100 80GB HBM3"
            for rank in range(ranks)
        ),
    ]
    rows = [row(collective, ranks, size, busbw, busbw + 1.5) for size, busbw in ((8 * GIB, 350.25), (16 * GIB, 361.5))]
    foot = ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 1 ", "#", ""]
    return averaged("\n".join([*head, "#", COLUMNS, *rows, *foot]))


def said(collective: str, printed: str) -> list[str]:
    judge = Judge()
    right = nccl_rows.judge_rows(judge, "node01 launch 1", nccl_tests.parse(printed), f"{collective}_perf")
    assert right is not bool(judge.errors)
    return [str(finding) for finding in judge.errors]


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_what_the_programs_print_agrees(collective: str) -> None:
    assert said(collective, table(collective)) == []


def test_versions_before_2_11_name_no_operation_where_there_is_none() -> None:
    old = table("all_gather").replace("    none      -1", "").replace("   redop    root", "")
    old = old.replace(
        "# " + COLUMNS[2:].replace("   redop    root", ""),
        "#       size         count      type   redop    time   algbw   busbw  error     time   algbw   busbw  error",
    )
    assert said("all_gather", old) == []


CHANGES: dict[str, tuple[str, Callable[[str], str], str]] = {
    "another type": (
        "all_reduce",
        lambda one: one.replace("   float", "    half"),
        (
            "ran with other data - Expected: type float, redop sum Actual: type half, redop sum at "
            f"{8 * GIB} bytes. {SHOWN}"
        ),
    ),
    "another operation": (
        "all_reduce",
        lambda one: one.replace("  sum", " prod"),
        (
            "ran with other data - Expected: type float, redop sum Actual: type float, redop prod at "
            f"{8 * GIB} bytes. {SHOWN}"
        ),
    ),
    "an operation where there is none": (
        "alltoall",
        lambda one: one.replace(" none", "  sum"),
        (
            "ran with other data - Expected: type float, redop none Actual: type float, redop sum at "
            f"{8 * GIB} bytes. {SHOWN}"
        ),
    ),
    "another count": (
        "all_reduce",
        lambda one: one.replace(" 2147483648 ", " 1073741824 "),
        (
            f"contradicts itself at {8 * GIB} bytes - Expected: count 2147483648 of 4 bytes Actual: "
            f"count 1073741824. {PRINTED}"
        ),
    ),
    "the count of all ranks": (
        "all_gather",
        lambda one: one.replace(" 268435456 ", " 2147483648 "),
        (
            f"contradicts itself at {8 * GIB} bytes - Expected: count 268435456 of 4 bytes for each "
            f"of 8 ranks Actual: count 2147483648. {PRINTED}"
        ),
    ),
    "another average": (
        "all_reduce",
        lambda one: one.replace(": 356.625 ", ": 399.625 "),
        (
            "contradicts itself in its last lines - Expected: an average busbw of 356.62 GB/s, as "
            f"its rows have Actual: 399.625 GB/s. {PRINTED}"
        ),
    ),
}


@pytest.mark.parametrize(("collective", "change", "message"), CHANGES.values(), ids=CHANGES)
def test_rows_that_are_not_of_the_data_asked_for_are_an_error(
    collective: str, change: Callable[[str], str], message: str
) -> None:
    changed = change(table(collective))
    assert changed != table(collective)
    assert said(collective, changed) == [f"node01 launch 1: {collective}_perf {message}"]


def test_the_document_is_compared_like_the_table() -> None:
    whole = json.loads(text("nccl/dgx_h100_8_healthy.json"))
    assert said("all_reduce", json.dumps(whole)) == []
    average = whole["average_bus_bandwidth"]["bandwidth"]
    whole["average_bus_bandwidth"]["bandwidth"] = 9.0
    expected = f"an average busbw of {average:.2f} GB/s, as its rows have"
    message = f"all_reduce_perf contradicts itself in its last lines - Expected: {expected} Actual: 9 GB/s. {PRINTED}"
    assert said("all_reduce", json.dumps(whole)) == [f"node01 launch 1: {message}"]
    whole["results"][0]["type"] = "half"
    assert "type half, redop sum" in said("all_reduce", json.dumps(whole))[0]


def test_one_output_given_twice_is_not_called_cut_off() -> None:
    known, found = facts("dgx_h100", 1), gate("node/gpu/performance/nccl-all-reduce", {"launches": 1})
    run = found.plan(known, ["node01"])[0]
    printed = text("nccl/dgx_h100_8_healthy.txt") * 2
    verdict = found.evaluate(known, run, {"launch0": Output("launch0", "node01", "x", 0, printed, seconds=1.0)})
    message = (
        "node01 launch 1: all_reduce_perf gave no result - Expected: a whole table Actual: 2 "
        "tables of nccl-tests: the output of one command is wanted "
        "(exit code 0). Give each launch its own output, or run the gate again."
    )
    assert [str(finding) for finding in verdict.findings][:1] == [message]
    with pytest.raises(FormatError, match=r"^2 tables of nccl-tests: the output of one command is wanted$"):
        nccl_tests.parse(table("all_reduce") * 2)


def test_a_real_document_reads_as_its_table_does() -> None:
    """The document lists its devices in ``config``, and names the first rank of each process only."""
    found = nccl_tests.parse(text("h200_vm/nccl_all_reduce.json"))
    table = nccl_tests.parse(text("h200_vm/nccl_all_reduce.txt"))
    assert (found.ranks, found.hosts, found.devices) == (table.ranks, table.hosts, table.devices)
    assert (found.ranks, found.devices) == (1, (("vm", "NVIDIA H200"),))
    assert [row.size for row in found.rows] == [1 << 20, 4 << 20, 16 << 20, 64 << 20]
    many = json.loads(text("h200_vm/nccl_all_reduce.json"))
    many["config"]["ngpus"] = 8
    assert nccl_tests.parse(json.dumps(many)).ranks == 8
    many["config"]["devices"].append(many["config"]["devices"][0] | {"rank": 1, "pid": 2})
    with pytest.raises(FormatError, match=r"4 results and ranks \[0, 1\]: the document is not complete"):
        nccl_tests.parse(json.dumps(many))


def test_a_collective_of_one_gpu_measures_nothing() -> None:
    name = "node/gpu/performance/nccl-all-reduce"
    known = facts(loader.platform("dgx_h200").model_copy(update={"gpus": 1}))
    found = gate(name, {"launches": 1})
    run = found.plan(known, ["node01"])[0]
    verdict = found.evaluate(known, run, outputs(run, {"launch0": Said(text("h200_vm/nccl_all_reduce.txt"))}))
    message = (
        f"node01: {name} measures nothing - Expected: at least 2 GPUs Actual: 1. "
        "Declare the skip with its reason in site.yml (gates.skip)."
    )
    assert (verdict.outcome, [str(finding) for finding in verdict.findings]) == (Outcome.ERROR, [message])

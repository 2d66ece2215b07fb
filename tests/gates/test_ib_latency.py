"""Latency of rails: pass, fail and error of the two gates, the parser, and the end of a slow pair that is blamed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rackready.format_error import FormatError
from rackready.gates.base import FinishedRun
from rackready.gates.engine.registry import gate
from rackready.gates.fabric.latency import IbWriteLat
from rackready.gates.formats import perftest_lat
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome, Verdict
from rackready.ondevice.rdma_counters import ERRORS
from tests.gates.support import Case, Said, between, check, judge, outputs, port, ports, rack, tells, text

WRITE, READ = "pair/fabric/performance/ib-write-lat", "pair/fabric/performance/ib-read-lat-gpu"
HEALTHY = text("perftest/dgx_h100_rail1_lat_healthy.txt")
SENT = 2 * 2 * 10000 * 17
"""What a port sends in both directions: 2 bytes of data are 68 on the wire."""
NICS = {nic.rail: nic for nic in rack(1).nodes["node01"].nics}


def lat(  # noqa: PLR0913 - what a result differs by
    rail: int,
    typical: float = 1.99,
    *,
    gpu: bool = False,
    average: float | None = None,
    p99: float | None = None,
    dev: int | None = None,
    back: bool = False,
) -> Said:
    tail = p99 or typical + 0.2
    times = (
        min(1.91, typical),
        max(9.1, typical + 7, tail + 1),
        typical,
        average or typical + 0.03,
        0.07,
        tail,
        tail + 0.8,
    )
    row = " 2       10000          " + "\t".join(f"{value:<12.2f}" for value in times)
    body = HEALTHY.replace(": mlx5_0", f": {NICS[rail].rdma_device}")
    body = "\n".join(row if line.startswith(" 2 ") else line for line in body.splitlines()) + "\n"
    body = between(body, *(f"192.168.{rail}.{host}" for host in ((12, 11) if back else (11, 12))))
    if gpu:
        body = on_gpu(NICS[rail].gpu if dev is None else dev) + body.replace("RDMA_Write", "RDMA_Read")
    return Said(body)


def on_gpu(gpu: int) -> str:
    """Lines of either end before its head when it uses a GPU's memory."""
    head = f" [pid = 51234, dev = {gpu}] device name = [NVIDIA H100 80GB HBM3]\n creating CUDA Ctx\n"
    return f"{head} allocated GPU buffer of a 65536 address at 0x7f3b5e000000 for type CUDA_MEM_DEVICE\n"


def served(said: Said) -> Said:
    """A server's output: all but the row."""
    return Said("".join(line for line in said.stdout.splitlines(keepends=True) if not line.startswith(" 2 ")))


def links(sent: float = 0, errors: dict[str, dict[str, int]] | None = None, **state: str) -> Said:
    devices = {nic.rdma_device: port(sent, state=state.get(nic.rdma_device, "4: ACTIVE")) for nic in NICS.values()}
    for device, grown in (errors or {}).items():
        devices[device]["errors"] = dict.fromkeys(ERRORS, 0) | grown
    return Said(ports(devices))


def said(*, gpu: bool = False, **changed: Said) -> dict[str, Said]:
    out = {"link-first": links(), "link-second": links(), "after-first": links(SENT), "after-second": links(SENT)}
    for way in ("forth", "back"):
        for rail in NICS:
            out |= {
                f"server-{way}{rail}": Said(),
                f"{way}{rail}": lat(rail, 1.95 + 0.01 * (rail % 3), gpu=gpu, back=way == "back"),
            }
    return {**out, **{key.replace("_", "-"): value for key, value in changed.items()}}


def late(rail: int, way: str) -> Said:
    return lat(rail, average=3.9, p99=150.0, back=way == "back")


FORTH3 = "node01 mlx5_4 -> node02 mlx5_4 (rail 3)"
CASES = [
    Case("healthy", said(), Outcome.PASS, nodes=2),
    Case(
        "late beside the other rails",
        said(forth3=lat(3, 3.1)),
        Outcome.FAIL,
        (("latency-behind-other-rails", FORTH3, "at most 2.16 us (median of the others 1.96)", "3.10 us"),),
        nodes=2,
    ),
    Case(
        "above the published mark",
        said(forth3=lat(3, 1.96, average=5.4)),
        Outcome.FAIL,
        (("latency-high", FORTH3, "at most 5.0 us on average", "5.40 us"),),
        nodes=2,
    ),
    Case(
        "a link down",
        said(link_second=links(mlx5_4="1: DOWN")),
        Outcome.FAIL,
        (("rdma-link-down", "node02 mlx5_4 (rail 3)", "port ACTIVE", "port DOWN", "when=", "cable=its cable"),),
        nodes=2,
    ),
    Case(
        "a port that fell behind the run",
        said(after_second=links(SENT, mlx5_4="1: DOWN")),
        Outcome.FAIL,
        (
            (
                "rdma-link-down",
                "node02 mlx5_4 (rail 3)",
                "port ACTIVE",
                "port DOWN",
                "when= after the run",
                "cable=its cable",
            ),
        ),
        nodes=2,
    ),
    Case(
        "a port that counted errors",
        said(after_first=links(SENT, errors={"mlx5_4": {"symbol_error": 12}})),
        Outcome.FAIL,
        (("port-errors-grew", "node01 mlx5_4 (rail 3)", "by at most 0", "12", "name=symbol_error"),),
        nodes=2,
    ),
    Case(
        "ports that sent nothing",
        said(after_first=links(19999)),
        Outcome.FAIL,
        tuple(
            ("latency-port-bytes", f"node01 {nic.rdma_device} (rail {rail})", "at least 20000 bytes", "19999 bytes")
            for rail, nic in NICS.items()
        ),
        nodes=2,
    ),
    Case(
        "no reading behind the run",
        said(after_second=Said("")),
        Outcome.ERROR,
        tuple(
            ("rdma-bytes-unreadable", f"node02 {nic.rdma_device} (rail {rail})", "a complete document", "empty output")
            for rail, nic in NICS.items()
        ),
        nodes=2,
    ),
    Case(
        "bandwidth instead of latency",
        said(forth3=Said(text("perftest/dgx_h100_rail1_healthy.txt"))),
        Outcome.ERROR,
        (
            (
                "latency-unreadable",
                FORTH3,
                "one result block in microseconds",
                (
                    "no latency result block in microseconds: not ib_write_lat's or ib_read_lat's "
                    "output, or cut off (exit code 0)"
                ),
                "program=ib_write_lat",
            ),
        ),
        nodes=2,
    ),
    Case(
        "fewer messages",
        said(forth3=Said(lat(3, 0.01).stdout.replace(" 2       10000 ", " 2       10    "))),
        Outcome.ERROR,
        (("latency-something-else", FORTH3, "10000 messages", "10 messages", "program=ib_write_lat"),),
        nodes=2,
    ),
    Case(
        "another rail's addresses",
        said(forth3=Said(between(lat(3).stdout, "192.168.1.11", "192.168.1.12"))),
        Outcome.ERROR,
        (
            (
                "rdma-other-gids",
                FORTH3,
                "192.168.3.11 to 192.168.3.12",
                "192.168.1.11 to 192.168.1.12",
                "program=ib_write_lat",
            ),
        ),
        nodes=2,
    ),
    Case(
        "one message of a hundred that is late on one rail",
        said(forth3=lat(3, average=3.9, p99=150.0)),
        Outcome.FAIL,
        (("latency-tail-behind-other-rails", FORTH3, "at most 21.60 us (median of the others 2.16)", "150.00 us"),),
        nodes=2,
    ),
    Case("late messages as a busy host has them", said(forth3=lat(3, average=2.2, p99=20.0)), Outcome.PASS, nodes=2),
    Case(
        "late messages within the input",
        said(forth3=lat(3, average=3.9, p99=150.0)),
        Outcome.PASS,
        inputs={"tail": 100},
        nodes=2,
    ),
    Case(
        "late messages on all rails alike",
        {**said(), **{f"{way}{rail}": late(rail, way) for way in ("forth", "back") for rail in NICS}},
        Outcome.PASS,
        nodes=2,
    ),
    Case(
        "faster than hardware is",
        said(forth3=lat(3, 0.01, average=0.01)),
        Outcome.ERROR,
        (("latency-implausible", FORTH3, "at least 0.3 us", "0.01 us"),),
        nodes=2,
    ),
    Case(
        "servers that say what they used",
        {**said(), **{f"server-{way}{rail}": served(lat(rail)) for way in ("forth", "back") for rail in NICS}},
        Outcome.PASS,
        nodes=2,
    ),
    Case(
        "a server that used a GPU's memory",
        said(server_back3=Said(on_gpu(2) + served(lat(3)).stdout)),
        Outcome.ERROR,
        (
            (
                "latency-other-memory",
                "node02 mlx5_4 -> node01 mlx5_4 (rail 3)",
                "host memory",
                "GPU memory",
                "program=ib_write_lat",
            ),
        ),
        nodes=2,
    ),
    Case(
        "messages that did not arrive, as the server says, and exit code 0",
        said(server_forth3=Said("", " Completion with error at server\n Failed status 12: wr_id 0 syndrom 0x81\n")),
        Outcome.ERROR,
        (
            (
                "rdma-tool-contradicts",
                FORTH3,
                "exit code 0 and no message of a failure",
                "Completion with error at server",
                "program=ib_write_lat",
            ),
        ),
        nodes=2,
    ),
    Case(
        "not installed",
        said(forth3=Said("", "bash: line 1: exec: ib_write_lat: not found\n", 127)),
        Outcome.ERROR,
        (
            (
                "rdma-tool-failed",
                FORTH3,
                "exit code 0",
                "exit code 127: bash: line 1: exec: ib_write_lat: not found",
                "program=ib_write_lat",
            ),
        ),
        nodes=2,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verdict(case: Case) -> None:
    check(WRITE, case)


def test_gpu_memory_is_judged_by_the_other_rails_alone() -> None:
    assert judge(READ, Case("healthy", said(gpu=True), Outcome.PASS, nodes=2)).outcome is Outcome.PASS
    verdict = judge(READ, Case("host memory", said(gpu=True, forth3=lat(3)), Outcome.ERROR, nodes=2))
    assert tells(verdict) == [
        (
            "latency-something-else",
            FORTH3,
            "read of 2 bytes on mlx5_4, GPU memory",
            "write of 2 bytes on mlx5_4, host memory",
            "program=ib_read_lat",
        )
    ]
    assert "--use_cuda=0" in gate(READ).plan(rack(2), ["node01", "node02"])[0].commands[2].argv


def test_a_late_gpu_path_is_named() -> None:
    verdict = judge(READ, Case("late", said(gpu=True, forth3=lat(3, 3.1, gpu=True)), Outcome.FAIL, nodes=2))
    assert tells(verdict) == list(CASES[1].findings)
    assert verdict.outcome is Outcome.FAIL


@pytest.mark.parametrize(("gate_id", "most"), [(WRITE, 5.0), (READ, 10.0)])
def test_rails_that_are_all_late_do_not_judge_each_other(gate_id: str, most: float) -> None:
    gpu = gate_id == READ
    late = {f"{way}{rail}": lat(rail, 500.0, gpu=gpu, back=way == "back") for way in ("forth", "back") for rail in NICS}
    verdict = judge(gate_id, Case("all late", {**said(gpu=gpu), **late}, Outcome.FAIL, nodes=2))
    assert (verdict.outcome, verdict.measured, len(verdict.findings)) == (Outcome.FAIL, [], 16)
    assert next(one for one in tells(verdict) if one[1] == FORTH3) == (
        "latency-high",
        FORTH3,
        f"at most {most:.1f} us on average",
        "500.03 us",
    )


def test_a_gpu_without_a_published_mark_has_the_largest_of_any_and_it_is_said_to_be_derived() -> None:
    known = facts("dgx_a100", 1).nodes["node01"]
    for gate_id, value in ((WRITE, 9.0), (READ, 18.0)):
        found = gate(gate_id)
        assert isinstance(found, IbWriteLat)
        mark = found.mark(known)
        assert (mark.value, mark.derived) == (value, True)
        assert "derived: " in mark.source
        assert mark.source.count("derived") == 1


def test_memory_of_another_gpu_is_no_measurement_of_this_one() -> None:
    verdict = judge(READ, Case("another GPU", said(gpu=True, forth3=lat(3, gpu=True, dev=7)), Outcome.ERROR, nodes=2))
    assert tells(verdict) == [("latency-other-gpu", FORTH3, f"gpu{NICS[3].gpu}", "gpu7", "program=ib_read_lat", "end=")]
    assert verdict.outcome is Outcome.ERROR
    assert len(verdict.measured) == 28


def test_a_failed_rail_is_not_measured_and_the_others_are() -> None:
    assert len(judge(WRITE, CASES[0]).measured) == 32
    assert len(judge(WRITE, CASES[1]).measured) == 28


@pytest.mark.parametrize(
    ("kind", "layer", "other"),
    [("roce", "RoCE (link type Ethernet)", "IB"), ("infiniband", "InfiniBand (link type IB)", "Ethernet")],
)
def test_the_link_type_is_the_sites(kind: str, layer: str, other: str) -> None:
    known = rack(2)
    known = replace(known, fabric=known.fabric.model_copy(update={"kind": kind}))
    found = gate(WRITE)
    run = found.plan(known, list(known.nodes))[0]
    own = "Ethernet" if kind == "roce" else "IB"
    good = {
        key: Said(one.stdout.replace("Link type       : Ethernet", f"Link type       : {own}"))
        for key, one in said().items()
    }
    assert found.evaluate(known, run, outputs(run, good)).outcome is Outcome.PASS
    bad = good | {
        "forth3": Said(good["forth3"].stdout.replace(f"Link type       : {own}", f"Link type       : {other}"))
    }
    verdict = found.evaluate(known, run, outputs(run, bad))
    assert tells(verdict) == [
        ("rdma-transport", FORTH3, layer, f"link type {other}", f"link_type={(2 if kind == 'roce' else 1)}")
    ]
    assert verdict.outcome is Outcome.FAIL


def test_one_output_for_both_directions_of_a_rail_measured_one() -> None:
    """On InfiniBand no addresses distinguish the directions."""
    known = rack(2)
    known = replace(known, fabric=known.fabric.model_copy(update={"kind": "infiniband"}))
    found = gate(WRITE)
    run = found.plan(known, list(known.nodes))[0]
    good = {
        key: Said(one.stdout.replace("Link type       : Ethernet", "Link type       : IB"))
        for key, one in said().items()
    }
    verdict = found.evaluate(known, run, outputs(run, good | {"back3": good["forth3"]}))
    assert tells(verdict) == [
        (
            "rdma-one-output-both-ways",
            "node02 mlx5_4 -> node01 mlx5_4 (rail 3)",
            "one of each",
            "the same output",
            "program=ib_write_lat",
        )
    ]
    assert (verdict.outcome, len(verdict.measured)) == (Outcome.ERROR, 28)


def test_both_ends_are_measured_with_a_third_and_the_good_one_is_acquitted() -> None:
    known = rack(4)
    found = gate(WRITE)
    one, two = found.plan(known, list(known.nodes))
    bad, good = judge(WRITE, CASES[1]), Verdict(outcome=Outcome.PASS, measured=["x"])
    done = [FinishedRun(one, bad), FinishedRun(two, good)]
    again = found.follow_up(known, done)
    assert [run.nodes for run in again] == [("node01", "node03"), ("node02", "node04")]
    by_node = found.attribute(known, [*done, FinishedRun(again[0], bad), FinishedRun(again[1], good)])
    assert {node: verdicts[0].outcome.value for node, verdicts in by_node.items()} == {
        "node01": "fail",
        "node02": "pass",
        "node03": "pass",
        "node04": "pass",
    }


def test_a_pair_that_failed_is_not_measured_away_by_partners_that_pass() -> None:
    """Both ends are good with others: so it is the path between them, and both get the finding."""
    known = rack(4)
    found = gate(WRITE)
    one, two = found.plan(known, list(known.nodes))
    bad, good = judge(WRITE, CASES[1]), Verdict(outcome=Outcome.PASS, measured=["x"])
    done = [FinishedRun(one, bad), FinishedRun(two, good)]
    by_node = found.attribute(known, [*done, *(FinishedRun(run, good) for run in found.follow_up(known, done))])
    assert {node: verdicts[0].outcome.value for node, verdicts in by_node.items()} == {
        "node01": "fail",
        "node02": "fail",
        "node03": "pass",
        "node04": "pass",
    }
    words = "[both ends pass with other partners: the path between these two is bad]"
    assert by_node["node01"][0].findings[0].where == f"{FORTH3} {words}"
    assert by_node["node02"][0].blamed == ["node02"]


@pytest.mark.parametrize(
    ("damaged", "words"),
    [
        ("", "empty output"),
        (HEALTHY.replace("usec", "cycles"), "no latency result block"),
        ("\n".join(line for line in HEALTHY.splitlines() if not line.startswith(" 2 ")), "0 result rows"),
        (HEALTHY.replace("Link type       : Ethernet", ""), "no Link type in the head"),
        (HEALTHY.replace("1.91", "8.91"), "columns are not what they seem"),
    ],
)
def test_a_damaged_result_is_refused(damaged: str, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        perftest_lat.parse(damaged)

"""Latency gates: a figure that no hardware reaches is refused, and a server that uses other memory is found."""

from __future__ import annotations

import pytest

from rackready.model.outcome import Outcome
from tests.gates.support import Case, Said, Told, check, judge, tells
from tests.gates.test_ib_latency import FORTH3, NICS, READ, WRITE, lat, on_gpu, said, served


@pytest.mark.parametrize(
    ("server", "finding"),
    [
        (
            served(lat(3)),
            ("latency-other-memory", FORTH3, "GPU memory", "host memory", "program=ib_read_lat"),
        ),
        (
            Said(on_gpu(7) + served(lat(3)).stdout),
            ("latency-other-gpu", FORTH3, f"gpu{NICS[3].gpu}", "gpu7", "program=ib_read_lat", "end= at the receiver"),
        ),
    ],
    ids=["host memory", "another GPU"],
)
def test_a_server_that_lets_other_memory_be_read_is_an_error(server: Said, finding: Told) -> None:
    right = {f"server_forth{rail}": Said(on_gpu(nic.gpu) + served(lat(rail)).stdout) for rail, nic in NICS.items()}
    assert judge(READ, Case("as asked for", said(gpu=True, **right), Outcome.PASS, nodes=2)).outcome is Outcome.PASS
    verdict = judge(
        READ, Case("other memory", said(gpu=True, **{**right, "server_forth3": server}), Outcome.ERROR, nodes=2)
    )
    assert tells(verdict) == [finding]
    assert verdict.outcome is Outcome.ERROR


def test_rails_that_are_not_believed_judge_no_others() -> None:
    """Four of eight rails are implausibly fast: that must not make the others stand out."""
    fast = {f"forth{rail}": lat(rail, 0.01, average=0.01) for rail in (1, 2, 3, 4)}
    verdict = judge(WRITE, Case("half", {**said(), **fast}, Outcome.ERROR, nodes=2))
    assert [finding.code for finding in verdict.findings] == ["latency-implausible"] * 4
    assert verdict.outcome is Outcome.ERROR


def test_reads_are_believed_from_twice_the_time_of_writes_on() -> None:
    def fast(*, gpu: bool) -> dict[str, Said]:
        return {
            f"{way}{rail}": lat(rail, 0.5, average=0.5, gpu=gpu, back=way == "back")
            for way in ("forth", "back")
            for rail in NICS
        }

    verdict = judge(READ, Case("fast reads", {**said(gpu=True), **fast(gpu=True)}, Outcome.ERROR, nodes=2))
    assert {(finding.code, finding.expected, finding.actual) for finding in verdict.findings} == {
        ("latency-implausible", "at least 0.6 us", "0.50 us")
    }
    assert (verdict.outcome, verdict.measured) == (Outcome.ERROR, [])
    check(WRITE, Case("fast writes", {**said(), **fast(gpu=False)}, Outcome.PASS, nodes=2))


def test_an_upper_bound_of_a_latency_is_called_a_ceiling() -> None:
    verdict = judge(WRITE, Case("healthy", said(), Outcome.PASS, nodes=2))
    assert {(bound.op.value, bound.label) for bound in verdict.criteria if bound.metric == "latency_average"} == {
        ("ge", "floor"),
        ("le", "ceiling"),
    }

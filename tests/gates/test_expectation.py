"""Bounds: ceilings, references, floors and verdicts, against published healthy runs."""

from __future__ import annotations

import pytest

from rackready.gates.judging.expectation import (
    Bound,
    Collective,
    Domain,
    Efficiency,
    Judgement,
    ceiling,
    fleet_outliers,
    floor,
    judge,
    launches,
    reference,
)
from rackready.model.outcome import Outcome

H100 = {"gpus": 8, "nvlink": 450.0, "nic": 50.0, "nvls": True, "link_ring": 18 * 20.6}
A100 = {"gpus": 8, "nvlink": 300.0, "nic": 25.0, "link_ring": 12 * 20.0}
RACK = {"gpus": 72, "nvlink": 900.0, "nic": 50.0, "nvls": True, "link_ring": 18 * 40.1, "boards": 18}
EFA = Efficiency(0.84, "AWS H100 2 nodes, published validation results", measured=True)
NDR = Efficiency(0.92, "46-48 of 50 GB/s per NIC, nccl-tests issue 290", measured=True)


def verdict(
    domain: Domain,
    collective: Collective,
    value: float,
    *,
    algorithm: str = "default",
    published: float | None = None,
    efficiency: Efficiency | None = None,
) -> Judgement:
    known = Bound(published, "published", derived=False) if published else None
    expected = reference(domain, collective, algorithm, published=known, efficiency=efficiency)  # type: ignore[arg-type]
    single = domain.count <= 2
    return judge(
        "busbw",
        value,
        "GB/s",
        upper=ceiling(domain, collective, algorithm),
        expected=expected,
        lower=floor(expected, domain, single=single),
    )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("domain", "collective", "algorithm", "value"),
    [
        (Domain(count=1, **H100), "all_reduce", "ring", 450.0),
        (Domain(count=1, **H100), "all_reduce", "default", 700.0),
        (Domain(count=1, **H100), "all_gather", "default", 450.0),
        (Domain(count=1, **A100), "all_reduce", "default", 300.0),
        (Domain(count=2, **H100), "all_reduce", "default", 700.0),
        (Domain(count=2, **H100), "all_gather", "default", 450.0),
        (Domain(count=2, **H100), "alltoall", "default", 93.75),
        (Domain(count=4, **H100), "all_reduce", "ring", 400.0),
        (Domain(count=2, **H100), "all_reduce", "sharp", 750.0),
        (Domain(gpus=72, count=2, nvlink=900.0, nic=50.0, link_ring=18 * 40.1), "all_reduce", "ring", 900.0),
    ],
)
def test_ceiling(domain: Domain, collective: Collective, algorithm: str, value: float) -> None:
    bound = ceiling(domain, collective, algorithm)  # type: ignore[arg-type]
    assert bound is not None
    assert bound.value == pytest.approx(value)
    assert bound.derived


@pytest.mark.parametrize(
    ("domain", "collective", "algorithm", "value", "efficiency"),
    [
        (Domain(count=1, **H100), "all_reduce", "ring", 370.8, None),
        (Domain(count=1, **A100), "all_reduce", "ring", 240.0, None),
        (Domain(gpus=8, count=1, nvlink=900.0, link_ring=18 * 40.1), "all_reduce", "ring", 721.8, None),
        (Domain(count=2, **H100), "all_gather", "default", 368.0, NDR),
        (Domain(count=2, **H100), "alltoall", "default", 0.84 * 93.75, EFA),
        (Domain(count=2, **H100), "all_reduce", "default", None, NDR),
        (Domain(count=1, **H100), "alltoall", "default", None, None),
        (Domain(count=2, **RACK), "all_reduce", "ring", None, NDR),
        (Domain(count=2, **RACK), "all_gather", "default", None, NDR),
        (Domain(count=2, **RACK), "alltoall", "default", 0.92 * 50.0 * 143 / 72, NDR),
    ],
)
def test_reference(
    domain: Domain, collective: Collective, algorithm: str, value: float | None, efficiency: Efficiency | None
) -> None:
    bound = reference(domain, collective, algorithm, efficiency=efficiency)  # type: ignore[arg-type]
    assert (bound.value if bound else None) == (pytest.approx(value) if value else None)


PUBLISHED_HEALTHY = [
    ("H100 8 GPUs, nccl-tests issue 290", Domain(count=1, **H100), "all_reduce", 476.0, {"published": 476.0}),
    ("H100 8 GPUs, Voltage Park", Domain(count=1, **H100), "all_reduce", 479.7, {"published": 476.0}),
    ("H100 2 nodes on EFA", Domain(count=2, **H100), "all_reduce", 487.9, {"efficiency": EFA}),
    ("H100 2 nodes on EFA", Domain(count=2, **H100), "all_gather", 338.6, {"efficiency": EFA}),
    ("H100 2 nodes on EFA", Domain(count=2, **H100), "alltoall", 79.1, {"efficiency": EFA}),
    (
        "H100 2 nodes, 400 GB/s of NICs, nccl-tests issue 309",
        Domain(count=2, **H100),
        "all_reduce",
        470.0,
        {"efficiency": NDR},
    ),
    (
        "H100 4 nodes on InfiniBand, Voltage Park",
        Domain(count=4, **H100),
        "all_reduce",
        330.9,
        {"efficiency": NDR, "algorithm": "ring"},
    ),
    (
        "GB200 4 nodes in one NVLink domain",
        Domain(gpus=16, count=1, nvlink=900.0, nvls=True, link_ring=18 * 40.1),
        "all_reduce",
        882.5,
        {},
    ),
    (
        "GB200 4 nodes in one NVLink domain",
        Domain(gpus=16, count=1, nvlink=900.0, nvls=True, link_ring=18 * 40.1),
        "all_gather",
        609.3,
        {},
    ),
    (
        "GB200 4 nodes in one NVLink domain",
        Domain(gpus=16, count=1, nvlink=900.0, nvls=True, link_ring=18 * 40.1),
        "alltoall",
        568.7,
        {},
    ),
    (
        "GB300 8 nodes in one NVLink domain",
        Domain(gpus=32, count=1, nvlink=900.0, nvls=True, link_ring=18 * 40.1),
        "all_reduce",
        923.3,
        {},
    ),
    (
        "GB300 8 nodes in one NVLink domain",
        Domain(gpus=32, count=1, nvlink=900.0, nvls=True, link_ring=18 * 40.1),
        "alltoall",
        678.6,
        {},
    ),
    ("A100 8 GPUs, ring", Domain(count=1, **A100), "all_reduce", 235.3, {"algorithm": "ring"}),
]


@pytest.mark.parametrize(("name", "domain", "collective", "value", "known"), PUBLISHED_HEALTHY)
def test_published_healthy_runs_pass(
    name: str, domain: Domain, collective: Collective, value: float, known: dict[str, object]
) -> None:
    assert verdict(domain, collective, value, **known).outcome is Outcome.PASS, name  # type: ignore[arg-type]


def test_what_no_bound_judges_passes_as_pending_only() -> None:
    result = verdict(Domain(gpus=16, count=1, nvlink=900.0, nvls=True, link_ring=18 * 40.1), "all_reduce", 882.5)
    assert result.pending
    assert not verdict(Domain(count=1, **H100), "all_reduce", 476.0, published=476.0).pending


def test_a_slow_node_fails_and_an_impossible_one_is_an_error() -> None:
    node = Domain(count=1, **H100)
    assert verdict(node, "all_reduce", 452.1, published=476.0).outcome is Outcome.FAIL
    assert verdict(node, "all_reduce", 452.3, published=476.0).outcome is Outcome.PASS
    assert verdict(node, "all_reduce", 714.1, published=476.0).outcome is Outcome.ERROR
    assert verdict(node, "all_reduce", 713.9, published=476.0).outcome is Outcome.PASS


def test_references_over_a_slow_pcie_link_are_those_of_that_link() -> None:
    slow = Domain(count=2, **{**A100, "nic": 50.0, "gpu_link": 27.0})
    found = reference(slow, "all_gather", "default", efficiency=NDR)
    assert found is not None
    assert (found.value, found.derived) == (pytest.approx(0.92 * 8 * 27.0), True)
    assert found.source.endswith("; b is the payload rate of the GPU's PCIe link, below its NICs'")
    alltoall = reference(slow, "alltoall", "default", efficiency=NDR)
    assert alltoall is not None
    assert alltoall.value == pytest.approx(0.92 * 27.0 * 15 / 8)
    many = floor(None, Domain(count=64, **{**A100, "nic": 50.0, "gpu_link": 27.0}), single=False)
    assert many is not None
    assert many.value == pytest.approx(0.75 * 8 * 27.0)


@pytest.mark.parametrize("value", [0.0, -3.0, float("nan"), float("inf")])
def test_no_number_is_no_pass(value: float) -> None:
    assert verdict(Domain(count=1, **H100), "all_reduce", value, published=476.0).outcome is Outcome.ERROR


def test_a_derived_reference_gives_a_lower_floor() -> None:
    two = Domain(count=2, **H100)
    guess = Efficiency(0.92, "taken from another fabric", measured=False)
    derived = floor(reference(two, "all_gather", efficiency=guess), two)
    sourced = floor(reference(two, "all_gather", efficiency=NDR), two)
    assert derived is not None
    assert sourced is not None
    assert (derived.value, sourced.value) == (pytest.approx(0.85 * 368), pytest.approx(0.95 * 368))
    assert derived.derived
    assert not sourced.derived


def test_many_nodes_get_wider_floors() -> None:
    for count, single, factor in ((8, False, 0.85 * 368), (64, False, 0.75 * 370.8)):
        cluster = Domain(count=count, **H100)
        bound = floor(reference(cluster, "all_gather", efficiency=NDR), cluster, single=single)
        assert bound is not None
        assert bound.value == pytest.approx(factor)


@pytest.mark.parametrize("count", [33, 64, 1250])
@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter", "alltoall"])
def test_no_floor_of_many_nodes_lies_above_what_they_can_do(collective: Collective, count: int) -> None:
    cluster = Domain(count=count, **H100)
    most = ceiling(cluster, collective)
    bound = floor(reference(cluster, collective, efficiency=NDR), cluster, collective, single=False)
    assert most is not None
    assert bound is not None
    assert bound.value < 0.93 * most.value
    if collective == "alltoall":
        assert bound.value == pytest.approx(0.75 * 50 * (8 * count - 1) / (8 * count - 8))


def test_a_published_mark_never_lowers_the_floor() -> None:
    node = Domain(count=1, **H100)
    expected = Bound(476.0, "measured", derived=False)
    low = floor(expected, node, published=Bound(440.0, "a cloud", derived=False))
    high = floor(expected, node, published=Bound(460.0, "a cloud", derived=False))
    assert low is not None
    assert high is not None
    assert (low.value, high.value) == (pytest.approx(452.2), pytest.approx(460.0))


def test_gpus_without_nvlink_have_no_bound_from_physics() -> None:
    assert ceiling(Domain(gpus=8, count=1, nvlink=0.0), "all_reduce") is None


@pytest.mark.parametrize(("units", "count"), [(1, 4), (4, 5), (200, 7), (12500, 9)])
def test_launches(units: int, count: int) -> None:
    assert launches(units) == count


def test_fewer_than_sixteen_are_no_fleet() -> None:
    assert fleet_outliers([480.0] * 14 + [300.0], standard_error=1.0, effect=0.03) == []


def test_a_unit_behind_its_fleet_is_found_and_noise_is_not() -> None:
    fleet = [480.0 + (number % 5) for number in range(31)]
    assert fleet_outliers([*fleet, 440.0], standard_error=2.0, effect=0.03) == [31]
    assert fleet_outliers([*fleet, 477.0], standard_error=2.0, effect=0.03) == []

"""Settings that perftest prints in the head of its result: a test that no gate asks for is no evidence."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rackready.gates.formats import perftest, perftest_lat
from rackready.gates.formats.error import FormatError
from tests.gates.support import text

BANDWIDTH, LATENCY = text("perftest/dgx_h100_rail1_healthy.txt"), text("perftest/dgx_h100_rail1_lat_healthy.txt")
WAYS = [(perftest.parse, BANDWIDTH), (perftest_lat.parse, LATENCY)]


@pytest.mark.parametrize(("parse", "said"), WAYS, ids=["bandwidth", "latency"])
@pytest.mark.parametrize(
    ("good", "bad", "words"),
    [
        ("Connection type : RC", "Connection type : UC", "Connection type UC, Expected: RC"),
        ("Number of qps   : 1 ", "Number of qps   : 16", "Number of qps 16, Expected: 1"),
        ("Dual-port       : OFF", "Dual-port       : ON ", "Dual-port ON, Expected: OFF"),
        ("rdma_cm QPs     : OFF", "rdma_cm QPs     : ON", "rdma_cm QPs ON, Expected: OFF"),
    ],
)
def test_another_setting_is_refused(parse: Callable[[str], object], said: str, good: str, bad: str, words: str) -> None:
    assert good in said
    with pytest.raises(FormatError) as refused:
        parse(said.replace(good, bad))
    assert str(refused.value) == words


@pytest.mark.parametrize(("parse", "said"), WAYS, ids=["bandwidth", "latency"])
def test_the_head_of_another_test_beside_it_is_refused(parse: Callable[[str], object], said: str) -> None:
    with pytest.raises(FormatError) as refused:
        parse(f"                    RDMA_Read BW Test\n{said}")
    assert str(refused.value) == "2 heads of a result, Expected: one"

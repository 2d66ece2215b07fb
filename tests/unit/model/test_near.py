"""A name that does not exist: the message names those near it, and never a page of them."""

from __future__ import annotations

import pytest

from rackready.model.near import among, folded, hosts_among

PROFILES = ["b200_sxm", "dgx_b200", "dgx_b300", "dgx_h100", "dgx_h200", "gb200_nvl72", "gb300_nvl72", "l40s", "xe9680"]
EVEN = [f"gpu{number:04}" for number in range(1, 1_001)]
RAGGED = [f"r{rack}-s{slot}-gpu" for rack in range(1, 101) for slot in range(1, 11)]


@pytest.mark.parametrize(
    ("known", "wanted", "text"),
    [
        (["a", "b"], "c", "a, b"),
        ([], "c", "none"),
        (PROFILES, "dgx_h10", "dgx_h100, dgx_h200, dgx_b300, dgx_b200 and 5 more"),
        (PROFILES, "zzz", "b200_sxm, dgx_b200, dgx_b300, dgx_h100 and 5 more"),
    ],
    ids=["few", "none", "near", "none is near"],
)
def test_names_near_the_wanted_one_come_first(known: list[str], wanted: str, text: str) -> None:
    assert among(known, wanted) == text


def test_hosts_are_folded_where_that_is_short() -> None:
    assert hosts_among(EVEN, "gpu9999") == folded(EVEN) == "gpu[0001-1000]"
    assert hosts_among(EVEN[:2], "gpu9999") == "gpu0001, gpu0002"
    assert folded(EVEN[:2]) == "gpu[0001-0002]"
    assert folded(RAGGED, "r10-s1-gp").startswith("r10-s1-gpu, ")
    assert folded(RAGGED, "r10-s1-gp").endswith(" and 996 more")

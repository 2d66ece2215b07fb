"""Partition keys where somebody else manages the subnet: isolation of tenants is judged, the rest is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.drivers.ib.foreign_keys import foreign_remarks, judge_foreign
from rackready.model.place import Place
from rackready.model.site import Site
from tests.unit.infiniband.fabrics import site_of

WHERE = Place("a01-n1", "mlx5_0", "(rail 1)")
TENANTS = """
tenants:
  - {name: red, nodes: ["a01-n[1-2]"], pkey: "0x0011"}
  - {name: blue, nodes: ["a01-n3"], pkey: "0x0012", full_member: false}
"""
NEXT = (
    "Compare the port GUID of `ibstat` with the members of the partitions, in opensm's file or in UFM. Send opensm a "
    "HUP after a change of its file."
)


@pytest.fixture
def plain(tmp_path: Path) -> Site:
    return site_of(tmp_path, 4, 4)


@pytest.fixture
def shared(tmp_path: Path) -> Site:
    return site_of(tmp_path, 4, 4, TENANTS)


def judged(site: Site, node: str, *held: int, why: str = "") -> list[str]:
    return [str(item) for item in judge_foreign(WHERE, site, node, frozenset(held), why)]


@pytest.mark.parametrize("held", [{0xFFFF}, {0x7FFF, 0x8001}, {0xFFFF, 0x8010}, {0x8010}])
def test_without_tenants_any_key_will_do(plain: Site, held: set[int]) -> None:
    assert judged(plain, "a01-n1", *held) == []


def test_no_key_and_unread_keys_are_an_error(plain: Site, shared: Site) -> None:
    unread = "Check that the port is active, then read its keys again."
    where = "a01-n1 mlx5_0 (rail 1): partition keys - Expected:"
    assert judged(plain, "a01-n1") == [f"{where} at least one key Actual: none. {unread}"]
    assert judged(shared, "a01-n1") == [f"{where} 0x8011 Actual: none. {unread}"]
    assert judged(shared, "a01-n1", 0x8011, why="exit 1") == [f"{where} 0x8011 Actual: exit 1. {unread}"]


@pytest.mark.parametrize(
    ("node", "held"),
    [
        ("a01-n1", {0x7FFF, 0x8011}),
        ("a01-n1", {0x7FFF, 0x8011, 0x8010}),
        ("a01-n3", {0x7FFF, 0x0012}),
        ("a01-n4", {0x7FFF}),
        ("a01-n4", {0x7FFF, 0x8010}),
    ],
)
def test_the_own_key_suffices_and_one_of_no_tenant_is_no_fault(shared: Site, node: str, held: set[int]) -> None:
    assert judged(shared, node, *held) == []


@pytest.mark.parametrize(
    ("node", "held", "expected", "actual"),
    [
        ("a01-n1", {0x7FFF}, "0x8011, no key of another tenant", "0x7fff"),
        ("a01-n1", {0x7FFF, 0x0011}, "0x8011, no key of another tenant", "0x0011, 0x7fff"),
        ("a01-n1", {0x8011, 0x0012}, "0x8011, no key of another tenant", "0x0012, 0x8011"),
        ("a01-n1", {0x8011, 0xFFFF}, "0x8011, no key of another tenant", "0x8011, 0xffff"),
        ("a01-n3", {0x7FFF, 0x0012, 0x8012}, "0x0012, no key of another tenant", "0x0012, 0x7fff, 0x8012"),
        ("a01-n4", {0x7FFF, 0x8011}, "no key of a tenant", "0x7fff, 0x8011"),
        ("a01-n4", {0xFFFF}, "no key of a tenant", "0xffff"),
    ],
)
def test_what_opens_a_tenant_or_leaves_it_out_fails(
    shared: Site, node: str, held: set[int], expected: str, actual: str
) -> None:
    assert judged(shared, node, *held) == [
        f"a01-n1 mlx5_0 (rail 1): partition keys - Expected: {expected}, and not 0xffff Actual: {actual}. {NEXT}"
    ]


def test_keys_that_the_site_does_not_explain_are_told_once_for_all_their_ports(plain: Site, shared: Site) -> None:
    storage = {name: frozenset({0x7FFF, 0x8011, 0x8010}) for name in ("mlx5_0", "mlx5_3")}
    assert foreign_remarks(shared, {**storage, "mlx5_4": frozenset({0x7FFF, 0x8011})}) == [
        "partition key 0x8010 of no tenant of the site on mlx5_0, mlx5_3"
    ]
    assert foreign_remarks(plain, {"mlx5_0": frozenset({0x7FFF, 0x8001}), "mlx5_3": frozenset({0xFFFF})}) == [
        "partition keys 0x7fff, 0x8001 of no tenant of the site on mlx5_0"
    ]
    assert foreign_remarks(plain, {"mlx5_0": frozenset({0xFFFF, 0x8010})}) == [
        "partition key 0x8010 of no tenant of the site on mlx5_0"
    ]

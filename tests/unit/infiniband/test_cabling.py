"""The judge of cabling, in no vendor's terms: one cause, one finding, with both ends and the move that helps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rackready.drivers.cabling_check import findings as kinds
from rackready.drivers.cabling_check.judge import judge
from rackready.drivers.cabling_check.types import End, PlannedCable, PlannedEnd, Seen, Sighting

Pair = tuple[End, End]


def node(number: int, rail: int) -> PlannedEnd:
    return PlannedEnd(f"node{number}", f"mlx5_{rail - 1}", "a01", number, rail)


def leaf(rail: int, port: int, carries: int | None = None) -> PlannedEnd:
    return PlannedEnd(f"leaf{rail}", f"p{port}", "net", rail, rail if carries is None else carries)


CABLES = [
    *(PlannedCable(node(n, r), leaf(r, n), 400, 4) for r in (1, 2, 3) for n in (1, 2, 3, 4)),
    *(
        PlannedCable(leaf(r, 20 + s), PlannedEnd(f"spine{s}", f"p{r}", "net", 10 + s), 400, 4)
        for r in (1, 2, 3)
        for s in (1, 2)
    ),
]
PAIRS = [(cable.a.end, cable.b.end) for cable in CABLES]


def at(number: int, rail: int) -> Pair:
    return node(number, rail).end, leaf(rail, number).end


def trunk(rail: int, spine: int) -> Pair:
    return End(f"leaf{rail}", f"p{20 + spine}"), End(f"spine{spine}", f"p{rail}")


def seen(pairs: Sequence[Pair], *, words: str = "4xNDR", rate: int = 400, lanes: int = 4) -> Seen:
    both = [Sighting(*ends, rate, lanes, words) for a, b in pairs for ends in ((a, b), (b, a))]
    return Seen(frozenset(end.device for pair in pairs for end in pair), tuple(both))


def without(*gone: Pair) -> list[Pair]:
    return [pair for pair in PAIRS if pair not in gone]


def crossed(one: Pair, other: Pair) -> list[Pair]:
    return [*without(one, other), (one[0], other[1]), (other[0], one[1])]


def renamed(names: dict[str, str]) -> list[Pair]:
    def of(end: End) -> End:
        return End(names.get(end.device, end.device), end.port)

    return [(of(a), of(b)) for a, b in PAIRS]


def test_a_fabric_as_planned_has_no_findings() -> None:
    assert judge(CABLES, seen(PAIRS)) == []


@pytest.mark.parametrize(
    ("pairs", "code", "text"),
    [
        (
            without(at(1, 1)),
            "cable-missing",
            "node1 mlx5_0 (rack a01 unit 1, rail 1): no link to leaf1 p1 (rack net unit 1",
        ),
        (crossed(at(1, 1), at(2, 1)), "cable-swapped", "Swap the cables at leaf1 p1 (rack net unit 1, rail 1) and p2"),
        (
            crossed(at(1, 1), at(1, 2)),
            "cable-swapped",
            "2 cables are crossed, rails 1, 2 - Expected: node1 mlx5_0 (rack a01 unit 1, rail 1) to leaf1 p1",
        ),
        (
            crossed(at(1, 1), at(1, 2)),
            "cable-swapped",
            "Swap the cables at node1 mlx5_0 (rack a01 unit 1, rail 1) and mlx5_1",
        ),
        (
            crossed(trunk(1, 1), trunk(2, 2)),
            "cable-swapped",
            "Swap the cables at spine1 p1 (rack net unit 11) and spine2 p2",
        ),
        (
            [*without(at(1, 1)), (at(1, 1)[0], End("leaf2", "p9"))],
            "cable-wrong-rail",
            "rail 2 - Expected: leaf1 p1 (rack net unit 1, rail 1) Actual: leaf2 p9 (rack net unit 2, rail 2)",
        ),
        (
            [*without(at(1, 1)), (at(1, 1)[0], End("leaf1", "p9"))],
            "cable-wrong-port",
            "Move the cable from leaf1 p9 (rack net unit 1, rail 1) to leaf1 p1 (rack net unit 1, rail 1)",
        ),
        (
            [*without(trunk(1, 1)), (trunk(1, 1)[0], End("spine2", "p9"))],
            "cable-wrong-device",
            "leaf1 p21 (rack net unit 1, rail 1): cable ends at spine2",
        ),
        (
            [*without(at(1, 1), at(2, 1)), (at(1, 1)[0], at(2, 1)[1])],
            "cable-wrong-port",
            "no link: node2 mlx5_0 (rack a01 unit 2, rail 1) to leaf1 p2",
        ),
        (without(at(1, 1), at(1, 2), at(1, 3)), "cable-device-absent", "node1 (rack a01 unit 1): none of its 3 cables"),
        ([pair for pair in PAIRS if "leaf2" not in {pair[0].device, pair[1].device}], "cable-device-absent", "leaf2"),
        (
            [*without(at(1, 1)), (End("H-7", "1"), at(1, 1)[1])],
            "cable-foreign-device",
            "its 1 at leaf1 p1 (rack net unit 1, rail 1) in place of node1 mlx5_0",
        ),
        (
            [*PAIRS, (End("H-7", "1"), End("leaf1", "p9"))],
            "cable-foreign-device",
            "at leaf1 p9 (rack net unit 1, rail 1)",
        ),
        ([*PAIRS, (End("leaf1", "p9"), End("leaf2", "p9"))], "cable-unplanned", "link to leaf2 p9"),
        (renamed({"node1": "node2", "node2": "node1"}), "cable-device-exchanged", "and node2 at those of node1"),
        (renamed({"leaf1": "S-7"}), "cable-device-exchanged", "S-7: device is at the ports of leaf1"),
        (
            [
                *without(at(1, 1), at(2, 1), at(3, 1)),
                *zip((at(n, 1)[0] for n in (1, 2, 3)), (at(n, 1)[1] for n in (2, 3, 1)), strict=True),
            ],
            "cable-swapped",
            "3 cables are crossed - Expected",
        ),
        ([], "cable-nothing-seen", "18 planned cables, 0 ports with a link"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("cable-") else "",
)
def test_one_cause_is_one_finding(pairs: list[Pair], code: str, text: str) -> None:
    found = judge(CABLES, seen(pairs))
    assert [item.code for item in found] == [code]
    assert text in str(found[0])


@pytest.mark.parametrize(
    ("lanes", "rate", "words", "codes"),
    [
        (1, 100, "1xNDR", ["cable-width"]),
        (4, 200, "4xHDR", ["cable-speed"]),
        (2, 400, "2xXDR", []),
        (0, 0, "", []),
    ],
)
def test_width_and_rate_are_compared_where_they_are_known(lanes: int, rate: int, words: str, codes: list[str]) -> None:
    one, *rest = CABLES
    links = seen(PAIRS[1:]).sightings
    ends = ((one.a.end, one.b.end), (one.b.end, one.a.end))
    slow = Seen(seen(PAIRS).devices, (*links, *(Sighting(*pair, rate, lanes, words) for pair in ends)))
    found = judge([one, *rest], slow)
    assert [item.code for item in found] == codes
    assert all(words in item.actual for item in found)


def test_reports_of_one_end_alone_are_an_agent_and_not_a_cable() -> None:
    silent = at(1, 1)[0]
    whole = seen(PAIRS)
    found = judge(CABLES, replace(whole, sightings=tuple(item for item in whole.sightings if item.local != silent)))
    assert [item.code for item in found] == ["cable-one-sided"]
    unread = replace(
        whole,
        devices=whole.devices - {"node1"},
        sightings=tuple(item for item in whole.sightings if item.local.device != "node1"),
    )
    assert judge(CABLES, unread) == []


def test_two_neighbours_of_a_port_are_an_error_and_its_cable_is_not_judged() -> None:
    whole = seen(PAIRS)
    extra = Sighting(at(1, 1)[1], End("switch-between", "1"))
    found = judge(CABLES, replace(whole, sightings=(*whole.sightings, extra)))
    assert [item.code for item in found] == ["cable-ambiguous"]


def test_cables_that_nobody_read_are_an_error() -> None:
    gone = [at(n, 1) for n in (1, 2, 3, 4)] + [trunk(1, 1), trunk(1, 2)]
    blind = replace(seen(without(*gone)), devices=frozenset({"leaf2", "leaf3"}))
    assert {item.code for item in judge(CABLES, blind)} == {"cable-unread"}
    read = replace(blind, devices=frozenset({"leaf1", "leaf2", "leaf3"}))
    assert [item.code for item in judge(CABLES, read)] == ["cable-device-absent"]


def test_a_report_that_names_only_the_device_is_enough_where_it_is_right() -> None:
    whole = seen(PAIRS)
    a, b = at(1, 1)
    named = [item for item in whole.sightings if item.local not in {a, b}]
    assert judge(CABLES, replace(whole, sightings=(*named, Sighting(b, End("node1", "")), Sighting(a, b)))) == []


def test_every_kind_of_the_check_is_shown_here() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert [kind.code for kind in kinds.FINDINGS if f'"{kind.code}"' not in source] == []

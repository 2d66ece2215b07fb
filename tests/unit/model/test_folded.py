"""The same problem of many nodes is one line; JSON keeps every one of them."""

from __future__ import annotations

import pytest

from rackready.model.base import expand_names
from rackready.model.host_list import host_list, short_list
from rackready.model.problems import Problem, SiteInvalidError

GONE = ("is required and missing.", "Add it.")


def missing(path: str, item: str = "") -> Problem:
    return Problem(path, *GONE, item=item)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([f"node{number:02d}" for number in (1, 2, 3, 7)], "node[01-03,07]"),
        ([f"node{number:02d}" for number in range(8, 12)], "node[08-11]"),
        (["r1-gpu", "r2-gpu"], "r[1-2]-gpu"),
        (["node1", "node01"], "node1,node01"),
        (["leaf01", "storage"], "leaf01,storage"),
    ],
)
def test_names_become_a_host_list(names: list[str], text: str) -> None:
    assert host_list(names) == text
    assert sorted(name for part in text.split(",") if "[" not in text for name in expand_names(part)) == (
        sorted(names) if "[" not in text else []
    )
    if "[" in text:
        assert expand_names(text) == names


def test_the_same_problem_of_many_nodes_is_one_line() -> None:
    problems = [missing(f"racks[0].nodes[{place}].unit", f"node{place + 1:02d}") for place in range(4)]
    error = SiteInvalidError("site.yml", [*problems, missing("software.set")])
    assert str(error).splitlines() == [
        "site.yml: 5 problems; nothing was changed.",
        "  racks[0].nodes[0-3].unit (node[01-04]): is required and missing. Add it.",
        "  software.set: is required and missing. Add it.",
    ]
    assert len(error.problems) == 5


def test_two_of_a_kind_stay_two_lines() -> None:
    error = SiteInvalidError("site.yml", [missing("switches[0].os", "leaf01"), missing("switches[1].os", "leaf02")])
    assert len(str(error).splitlines()) == 3


def test_a_range_names_no_place_without_the_problem() -> None:
    places = [(0, 0), (0, 1), (1, 0)]
    problems = [missing(f"racks[{rack}].nodes[{node}].unit", f"n{rack}{node}") for rack, node in places]
    (line,) = str(SiteInvalidError("site.yml", problems)).splitlines()[1:]
    assert line == "  racks[*].nodes[*].unit (n[00-01,10]): is required and missing. Add it."


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([f"leaf-su{unit:03d}-r{rail}" for unit in (1, 2, 4) for rail in range(1, 9)], "leaf-su[001-002,004]-r[1-8]"),
        (["leaf-su001-r1", "leaf-su001-r2", "leaf-su002-r1"], "leaf-su001-r[1-2], leaf-su002-r1"),
        (["spine-001", "spine-002", "border"], "spine-[001-002], border"),
        ([f"p{plane}-core-{number:03d}" for plane in (1, 2) for number in (1, 2)], "p[1-2]-core-[001-002]"),
        ([], ""),
    ],
)
def test_names_for_a_person_have_two_ranges(names: list[str], text: str) -> None:
    assert short_list(names) == text

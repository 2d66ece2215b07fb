"""The plan as a pull-request comment: never too long, names what it leaves out, escapes markup in names."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rackready.design.device_facts import device_facts
from rackready.design.diff import difference
from rackready.design.plan import plan_site
from rackready.design.plan_summary import summary
from rackready.render.plan_markdown import LIMIT, cell, plan_markdown
from tests.unit.design.written import example, parse


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    plan = plan_site(parse(example("h100-1su-infiniband")))
    return summary(plan, None, difference({}, device_facts(plan)))


def many(count: int) -> dict[str, Any]:
    fields = [{"field": f"link {number}.1", "before": "leaf01 swp1", "after": "leaf01 swp2"} for number in range(8)]
    changed = {f"node gpu{number:05}": fields for number in range(count)}
    return {
        "against": "2027-01-01T00:00:00Z",
        "added": [f"node new{number:05}" for number in range(count)],
        "changed": changed,
        "removed": ["node old"],
    }


def test_first_line_says_what_a_reader_must_know(document: dict[str, Any]) -> None:
    assert "**Changes: 43 added, 0 changed, 0 removed** (nothing was applied yet)." in plan_markdown(document)
    none = {"against": "x", "added": [], "changed": {}, "removed": []}
    assert "**No change.**" in plan_markdown(document | {"difference": none})
    problem = {"path": "racks[0]", "message": "a | b", "hint": ""}
    text = plan_markdown(document | {"problems": [problem]})
    assert "**Not valid: 1 problems.**" in text
    assert (
        text.index("**Not valid")
        < text.index("<details open><summary>Problems (1)</summary>")
        < text.index("| nodes |")
    ), "problems come before figures"


@pytest.mark.parametrize("count", [100, 1_000, 20_000])
def test_never_longer_than_a_comment_may_be(document: dict[str, Any], count: int) -> None:
    text = plan_markdown(document | {"difference": many(count)})
    assert len(text) <= LIMIT
    shown = text.count("| node gpu")
    left = re.findall(r"^([\d,]+) more$", text, re.MULTILINE)
    assert shown + (int(left[0].replace(",", "")) if shown < 8 * count else 0) == 8 * count
    assert "| node old |" in text, "what is removed comes before what is changed and added"


def test_all_is_shown_where_there_is_room(document: dict[str, Any]) -> None:
    text = plan_markdown(document)
    assert " more\n" not in text
    assert text.count("<details") == text.count("</details>") == 4


def test_every_row_of_a_table_has_its_columns(document: dict[str, Any]) -> None:
    text = plan_markdown(document | {"difference": many(3)})
    table = text[text.index("| device | field") :].split("\n\n")[0].splitlines()
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {5}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", "a\\|b"),
        ("<script>", "&lt;script&gt;"),
        ("@team", "&#64;team"),
        ("[x](y)", "\\[x\\](y)"),
        ("a\nb", "a b"),
        ("dgx_h100", "dgx\\_h100"),
        ("\\|", "\\\\\\|"),
    ],
)
def test_nothing_becomes_markup(text: str, shown: str) -> None:
    assert cell(text) == shown

"""The page shows no empty section, opens only what is bad, and writes its numbers for people."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rackready.design.site import load_site
from rackready.evidence import overview_tables
from rackready.evidence.report import render
from tests.unit.evidence.test_report_browser import PAIR, document, gate


def healthy() -> dict[str, Any]:
    found = document()
    for node in found["nodes"]:
        node |= {"outcome": "pass", "state": "ready", "reason": "", "gates": [gate(node["name"], "pass", 477.0)]}
    found |= {"declared_skips": [], "unseen": [], "racks": overview_tables.racks(load_site("sim"), found["nodes"])}
    return found


def test_sections_without_content_are_left_out() -> None:
    page = render(healthy())
    for section in ("skips", "events", "unseen", "raw"):
        assert f'id="{section}"' not in page
        assert f'href="#{section}"' not in page
    assert "None." not in page


def test_progress_has_its_section() -> None:
    events = [{"at": "2026-01-01T00:00:00Z", "node": "node01", "phase": "install", "level": "ok", "text": "unchanged"}]
    page = render(healthy() | {"events": events})
    assert 'id="events"' in page
    assert 'href="#events"' in page


def test_inputs_of_a_bound_are_numbers_for_people() -> None:
    page = render(healthy())
    assert "computed with P = 450<" in page
    assert "450.0" not in page


@pytest.mark.parametrize("outcome", ["pass", "skip"])
def test_nothing_stands_open_where_everything_passed_or_was_skipped(outcome: str) -> None:
    found = healthy()
    found["runs"][0]["outcome"] = outcome
    assert re.findall(r"<details[^>]* open", render(found)) == []
    assert f"<code>{PAIR}</code>: 1 pair, all passed" in render(found)


def test_a_gate_that_could_not_judge_opens_no_distribution_of_good_values() -> None:
    found = healthy()
    found["nodes"][0]["gates"].append(gate("node01", "error", 476.0))
    opened = re.findall(r"<details open><summary>(.*?)</summary>", render(found))
    assert [text for text in opened if "metric" in text] == []

"""`rackready release reports`: what nodes reported, for people and programs, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rackready.campaign.pull import listing
from rackready.campaign.pull.listing import DIFFERS, NONE, SAME, NodeReports, ShownReport

Call = Callable[..., tuple[int, str, str]]
APPLIED = ShownReport(7, "apply", "install.yml", "a" * 64, 0.0, "pass")
CHECKED = ShownReport(7, "check", "install.yml", "a" * 64, 0.0, "pass", changes=("base : limits | Write limits",))


def answer(monkeypatch: pytest.MonkeyPatch, *found: NodeReports) -> None:
    monkeypatch.setattr(listing, "listed", lambda *_: list(found))


@pytest.fixture
def pulling(call: Call, tmp_path: Path) -> None:
    """Let the site's nodes pull."""
    del call  # it has written the site
    with (tmp_path / "inventories/sim/site.yml").open("a", encoding="utf-8") as file:
        file.write('pull: {url: "http://192.0.2.1:8480"}\n')


@pytest.mark.usefixtures("pulling")
def test_nodes_as_released_are_0(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, NodeReports("node01", SAME, 120.0, APPLIED))
    code, out, _ = call("release", "reports")
    assert code == 0
    assert [cell.strip() for cell in out.splitlines()[3].strip("│").split("│")] == [
        *("node01", "same", "2 min ago", "install.yml 7: pass", "none")
    ]


@pytest.mark.usefixtures("pulling")
@pytest.mark.parametrize("status", [DIFFERS, NONE])
def test_a_node_that_is_not_surely_as_released_is_1(call: Call, monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    answer(monkeypatch, NodeReports("node01", SAME, 60.0, APPLIED), NodeReports("node02", status))
    assert call("release", "reports")[0] == 1


@pytest.mark.usefixtures("pulling")
def test_what_differs_is_said(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, NodeReports("node01", DIFFERS, 7200.0, APPLIED, CHECKED))
    code, out, _ = call("release", "reports")
    assert (code, out.splitlines()[-1]) == (1, "node01: base : limits | Write limits")
    assert "2 h ago" in out
    code, out, _ = call("release", "reports", "--output", "json")
    document = json.loads(out)
    assert (code, document["same"], document["nodes"][0]["check"]["changes"]) == (1, False, list(CHECKED.changes))


def test_a_site_that_pushes_is_refused(call: Call) -> None:
    code, _, err = call("release", "reports")
    assert code == 2
    assert "Expected: pull in the site file Actual: none. Without it, nodes report nothing:" in " ".join(err.split())

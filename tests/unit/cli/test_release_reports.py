"""`rackready release reports`: what nodes reported, for people and programs, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rackready.campaign.pull import listing
from rackready.campaign.pull.listing import DIFFERS, NONE, SAME, NodeReports, PhaseReports, ShownReport

Call = Callable[..., tuple[int, str, str]]
APPLIED = ShownReport(7, "apply", "install", "install.yml", "a" * 64, 0.0, "pass")
CHECKED = ShownReport(
    7, "check", "install", "install.yml", "a" * 64, 0.0, "pass", changes=("base : limits | Write limits",)
)
TUNED = ShownReport(9, "apply", "optimize", "optimize.yml", "a" * 64, 0.0, "pass")
INSTALLED = PhaseReports("install", SAME, 120.0, APPLIED)


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
    answer(monkeypatch, NodeReports("node01", SAME, (INSTALLED, PhaseReports("optimize", SAME, 60.0, TUNED))))
    code, out, _ = call("release", "reports")
    assert code == 0
    assert [[cell.strip() for cell in line.strip("│").split("│")] for line in out.splitlines()[3:5]] == [
        ["node01", "install", "same", "2 min ago", "install.yml 7: pass", "none"],
        ["node01", "optimize", "same", "1 min ago", "optimize.yml 9: pass", "none"],
    ]


@pytest.mark.usefixtures("pulling")
@pytest.mark.parametrize("status", [DIFFERS, NONE])
def test_a_node_that_is_not_surely_as_released_is_1(call: Call, monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    answer(monkeypatch, NodeReports("node01", SAME, (INSTALLED,)), NodeReports("node02", status))
    assert call("release", "reports")[0] == 1


@pytest.mark.usefixtures("pulling")
def test_what_differs_is_said(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    differs = PhaseReports("install", DIFFERS, 7200.4, APPLIED, CHECKED)
    answer(monkeypatch, NodeReports("node01", DIFFERS, (differs, PhaseReports("optimize", SAME, 60.0, TUNED))))
    code, out, _ = call("release", "reports")
    assert (code, out.splitlines()[-1]) == (1, "node01: install: base : limits | Write limits")
    assert "2 h ago" in out
    code, out, _ = call("release", "reports", "--output", "json")
    document = json.loads(out)
    (node,) = document["nodes"]
    assert (code, document["same"], node["status"]) == (1, False, "differs")
    assert [(one["phase"], one["age_s"]) for one in node["phases"]] == [("install", 7200), ("optimize", 60)]
    assert node["phases"][0]["check"]["changes"] == list(CHECKED.changes)


def test_a_site_that_pushes_is_refused(call: Call) -> None:
    code, _, err = call("release", "reports")
    assert code == 2
    assert "Expected: pull in the site file Actual: none. Without it, nodes report nothing:" in " ".join(err.split())

"""What a campaign records as applied: ready nodes and verified switches of a deploy, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackready.campaign.applied import record_applied
from rackready.campaign.controller import Finished
from rackready.campaign.request import DEPLOY, CampaignRequest
from rackready.campaign.summary import NodeSummary
from rackready.ledger.applied import FILE, read
from rackready.model.site import Site
from rackready.paths import EnvPaths
from tests.unit.design.written import example, parse

GOOD = NodeSummary("", "ready", "handover", "pass", changed=True, reason="")
REQUEST = CampaignRequest("c1", "lab", "/", "deploy", DEPLOY, (), 8, (1,), 100, "d")


@pytest.fixture(scope="module")
def site() -> Site:
    return parse(example("lab-4-nodes"))


def rows(**changes: dict[str, Any]) -> list[NodeSummary]:
    names = ("node01", "node02", "node03", "node04")
    return [replace(GOOD, name=name, **changes.get(name, {})) for name in names]


def recorded(
    root: Path,
    site: Site,
    made: list[NodeSummary],
    request: CampaignRequest = REQUEST,
    *,
    came_to: set[str] | None = None,
) -> list[str]:
    paths = EnvPaths(root, "lab")
    results: dict[str, dict[str, Any]] = {row.name: {} for row in made if came_to is None or row.name in came_to}
    done = record_applied(paths, site, request, Finished("c1", results, resumed=False), made)
    assert sorted(read(paths.state).facts) == sorted(done)
    return done


def test_good_deploy_records_all(tmp_path: Path, site: Site) -> None:
    assert recorded(tmp_path, site, rows()) == [
        "node node01",
        "node node02",
        "node node03",
        "node node04",
        "switch leaf01",
        "switch leaf02",
    ]
    assert read(EnvPaths(tmp_path, "lab").state).facts["switch leaf01"]["port swp1"] == "node01 rail 1"


def test_failed_node_is_not_applied_though_its_switches_are(tmp_path: Path, site: Site) -> None:
    bad = {"state": "quarantined", "phase": "validate", "outcome": "fail"}
    done = recorded(tmp_path, site, rows(node02=bad))
    assert "node node02" not in done
    assert "switch leaf01" in done


@pytest.mark.parametrize(
    ("phase", "outcome", "switches"),
    [
        ("fabric", "fail", 0),
        ("install", "error", 0),
        ("fabric", "pass", 2),
        ("validate", "fail", 2),
        ("", "not_run", 0),
    ],
)
def test_switches_are_applied_from_the_fabric_phase_on(
    tmp_path: Path, site: Site, phase: str, outcome: str, switches: int
) -> None:
    all_so = {"state": "installed", "phase": phase, "outcome": outcome}
    done = recorded(tmp_path, site, rows(**{f"node0{number}": all_so for number in range(1, 5)}))
    assert len(done) == switches


def test_ready_node_whose_repeat_failed_is_not_applied(tmp_path: Path, site: Site) -> None:
    assert "node node03" not in recorded(tmp_path, site, rows(node03={"outcome": "error"}))


def test_node_that_the_campaign_never_came_to_is_not_applied(tmp_path: Path, site: Site) -> None:
    assert recorded(tmp_path, site, rows(), came_to=set()) == []


@pytest.mark.parametrize(
    "request_",
    [
        replace(REQUEST, check=True),
        *(replace(REQUEST, kind=kind) for kind in ("validate", "install", "fabric", "handover")),
    ],
)
def test_checks_and_single_phases_write_nothing(tmp_path: Path, site: Site, request_: CampaignRequest) -> None:
    assert recorded(tmp_path, site, rows(), request_) == []
    assert not (EnvPaths(tmp_path, "lab").state / FILE).exists()

"""Waves of a deploy: how they are cut, what stops them, and what a second terminal asks."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.campaign import stop_request, workflow
from rackready.campaign.request import CampaignRequest
from rackready.campaign.stop_request import StopRequest
from rackready.campaign.waves import waves_of
from rackready.design.site import load_site
from rackready.ledger.store import Ledger
from rackready.model.problems import SiteInvalidError
from rackready.model.site import Site
from rackready.paths import EnvPaths
from tests import forked
from tests.unit.campaign import fake_site

ROOT = Path(__file__).parents[3]


def site_with(tmp_path: Path, **campaign: object) -> Site:
    """Return the example site with other waves: racks a01 and a02, leaf pairs by unit."""
    folder = tmp_path / "inventories/example"
    folder.mkdir(parents=True)
    text = yaml.safe_load((ROOT / "inventories/example/site.yml").read_text(encoding="utf-8"))
    text["campaign"] = campaign
    (folder / "site.yml").write_text(yaml.safe_dump(text, sort_keys=False), encoding="utf-8")
    for beside in ("group_vars", "profiles"):
        if (ROOT / "inventories/example" / beside).exists():
            (folder / beside).symlink_to(ROOT / "inventories/example" / beside)
    return load_site("example", root=tmp_path)


def test_a_canary_goes_first_and_no_node_is_lost(tmp_path: Path) -> None:
    site = site_with(tmp_path, canary=1, wave_size=3, stop_above_pct=0)
    names = [node.name for node in site.nodes()]
    waves = waves_of(site, names)
    assert waves[0] == (names[0],)
    assert all(len(wave) <= 3 for wave in waves[1:])
    assert [node for wave in waves for node in wave] == names


@pytest.mark.parametrize("by", ["rack", "leaf"])
def test_a_wave_stays_within_one_domain(tmp_path: Path, by: str) -> None:
    from rackready.campaign.waves import leafs_of  # noqa: PLC0415

    site = site_with(tmp_path, canary=1, wave_size=64, wave_by=by, stop_at_new_kind=True)
    names = [node.name for node in site.nodes()]
    waves = waves_of(site, names)
    leafs = leafs_of(site)
    domain = (lambda node: leafs[node]) if by == "leaf" else (lambda node: site.rack_of(node).name)
    assert all(len({domain(node) for node in wave}) == 1 for wave in waves)
    assert len(waves) > len({domain(node) for node in names})
    assert sorted(node for wave in waves for node in wave) == sorted(names)


def test_a_canary_that_nothing_would_stop_after_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SiteInvalidError) as caught:
        site_with(tmp_path, canary=2)
    assert (
        "campaign: canary: 2 has no effect without a rule that stops the deploy after it: give stop_above_pct below "
        "100, or stop_at_new_kind: true." in str(caught.value)
    )


def test_without_canary_the_waves_are_those_of_the_site_in_order(tmp_path: Path) -> None:
    site = site_with(tmp_path, wave_size=2)
    names = [node.name for node in site.nodes()]
    assert waves_of(site, names) == (tuple(names[:2]), tuple(names[2:]))
    assert waves_of(site, names[:3]) == ((names[0],), tuple(names[1:3]))
    assert waves_of(site, []) == ()


class Batches:
    """Stands for the queue: a result for each node of a batch; ``bad``: node -> phase in which it fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, bad: dict[str, str], kinds: dict[str, str]) -> None:
        self.done: list[str] = []
        self.bad = bad
        monkeypatch.setattr(workflow.DBOS, "enqueue_workflow", self.enqueue)
        monkeypatch.setattr(workflow, "kinds_step", lambda _data, results: [kinds[node] for node in results])

    def enqueue(self, _queue: str, _work: object, _data: object, phase: str, nodes: list[str]) -> Batches:
        self.done.append(f"{phase} {' '.join(nodes)}")
        self.phase, self.nodes = phase, nodes
        return self

    def get_result(self, **_: object) -> dict[str, dict[str, Any]]:
        return {
            node: {"outcome": "fail" if self.bad.get(node) == self.phase else "pass", "message": "", "changed": False}
            for node in self.nodes
        }


def request_of(root: Path, kind: str = "deploy", **more: Any) -> dict[str, Any]:
    made = CampaignRequest(
        "c1", "x", str(root), kind, ("provision", "install"), ("n1", "n2", "n3"), 8, (1, 1, 1), 100, "d", **more
    )
    return made.plain()


def run(request: dict[str, Any]) -> dict[str, Any]:
    done: dict[str, Any] = inspect.unwrap(workflow.campaign_workflow)(request)
    return done


def test_a_new_kind_of_failure_stops_and_a_known_one_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Batches(monkeypatch, {"n1": "install", "n2": "install"}, {"n1": "install task a", "n2": "install task b"})
    done = run(request_of(tmp_path, stop_at_new_kind=True))
    assert done["stopped"] == "new kind of failure in wave 1: install task a"
    assert seen.done == ["provision n1", "install n1"]
    assert set(done["nodes"]) == {"n1"}


def test_the_same_kind_again_stops_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Batches(monkeypatch, {"n1": "install", "n2": "install"}, {"n1": "k", "n2": "k"})
    request = CampaignRequest.load(request_of(tmp_path))
    seen = {"k"}
    results = {"n2": {"outcome": "fail", "phase": "install", "message": ""}}
    assert workflow._reasons(request, request.plain(), "wave 2", 1, results, seen) == []
    request = CampaignRequest.load(request_of(tmp_path, stop_at_new_kind=True))
    assert workflow._reasons(request, request.plain(), "wave 2", 1, results, seen) == []
    assert workflow._reasons(request, request.plain(), "wave 2", 1, results, set()) == [
        "new kind of failure in wave 2: k"
    ]


def test_without_the_rule_every_wave_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Batches(monkeypatch, {"n1": "install"}, {})
    done = run(request_of(tmp_path))
    assert (done["stopped"], len(seen.done)) == ("", 6)


def test_a_failure_of_the_last_wave_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Batches(monkeypatch, {"n3": "install"}, {"n3": "k"})
    assert run(request_of(tmp_path, stop_at_new_kind=True))["stopped"] == ""


@pytest.mark.parametrize("word", [StopRequest.PAUSE, StopRequest.ABORT])
def test_what_is_asked_counts_before_the_next_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: StopRequest
) -> None:
    seen = Batches(monkeypatch, {}, {})
    paths = EnvPaths(tmp_path, "x")
    before = seen.enqueue

    def enqueue(queue: str, work: object, data: object, phase: str, nodes: list[str]) -> Batches:
        if nodes == ["n2"]:
            stop_request.put(paths.deploy_request, word)
        return before(queue, work, data, phase, nodes)

    monkeypatch.setattr(workflow.DBOS, "enqueue_workflow", enqueue)
    done = run(request_of(tmp_path))
    assert seen.done == ["provision n1", "install n1", "provision n2"]
    assert (done["asked"], done["stopped"]) == (word.value, f"asked by another terminal to {word.value}")
    assert done["nodes"]["n2"]["phase"] == "provision"


@pytest.mark.parametrize(("kind", "check"), [("install", False), ("deploy", True)])
def test_only_a_real_deploy_heeds_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, kind: str, check: bool
) -> None:
    seen = Batches(monkeypatch, {}, {})
    stop_request.put(EnvPaths(tmp_path, "x").deploy_request, StopRequest.PAUSE)
    assert run(request_of(tmp_path, kind, check=check))["asked"] == ""
    assert len(seen.done) == 6


def test_an_unreadable_request_pauses(tmp_path: Path) -> None:
    path = tmp_path / "request"
    path.write_bytes(b"\xff\x00 pau")
    assert stop_request.look(path) is StopRequest.PAUSE
    assert stop_request.take(path) is StopRequest.PAUSE
    assert stop_request.look(path) is StopRequest.NOTHING


def test_a_controller_that_is_asked_to_pause_records_it_and_the_request_counts_once(tmp_path: Path) -> None:
    """The whole engine as a program: the request is put while the install phase hangs."""
    child = forked.start([Path(fake_site.__file__), tmp_path, "ask:install"])
    out, _ = child.communicate(timeout=120)
    paths = EnvPaths(tmp_path, "x")
    with Ledger.read_only(paths.database) as ledger:
        (row,) = ledger.campaigns()
    assert (row["status"], row["summary"]["stopped"]) == ("paused", "asked by another terminal to pause"), out
    assert {result["phase"] for result in row["summary"]["results"].values()} == {"install"}
    assert not paths.deploy_request.exists()
    assert json.dumps(row["summary"]["results"])
    assert child.returncode == 1

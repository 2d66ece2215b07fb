"""`rackready nightly`: its words, its exit codes, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rackready.cli.duration import seconds
from rackready.ledger.lock import ControllerLock
from rackready.model.outcome import Outcome
from rackready.model.problems import RackreadyError
from tests.unit.campaign.night_world import NODES, World, kill, made

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    (tmp_path / "playbooks").mkdir()
    monkeypatch.setenv("RACKREADY_ROOT", str(tmp_path))
    return made(tmp_path, monkeypatch)


def test_a_night_tells_each_node_and_ends_with_one_where_one_failed(world: World, command: Command) -> None:
    world.gives["node02"] = Outcome.FAIL
    world.cluster.jobs["node03"] = "4711"
    code, out, err = command("nightly", "--env", "t", "--max-share", "100", "--for", "6h", "--output", "json")
    told = json.loads(out)
    assert code == 1
    assert [(one["name"], one["outcome"], one["reason"]) for one in told["nodes"]] == [
        ("node01", "pass", ""),
        ("node04", "pass", ""),
        ("node02", "fail", "node02 gpu2: slow"),
        ("node03", "busy", "job 4711 (ann, train)"),
    ]
    assert (told["check"], told["resolved"]) == (False, [])
    assert "measuring node01, node02, node04" in err


def test_a_preview_says_what_would_be_measured(world: World, command: Command) -> None:
    code, out, _ = command("nightly", "--env", "t", "--check")
    assert code == 0
    assert out.splitlines()[-1] == "1 measure, 3 later"
    assert (world.cluster.said, world.measured) == ([], [])


def test_nodes_are_limited(world: World, command: Command) -> None:
    code, _, _ = command("nightly", "--env", "t", "--limit", "node04")
    assert (code, world.measured) == (0, [["node04"]])


def test_what_a_killed_night_took_is_put_back_alone(
    world: World, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill(world, monkeypatch)
    world.measured.clear()
    code, out, _ = command("nightly", "--env", "t", "--put-back")
    assert (code, world.measured, world.cluster.reason) == (0, [], {})
    assert out.splitlines()[0] == "node01: put back into production: a night that was killed had taken it"
    code, _, err = command("nightly", "--env", "t", "--put-back", "--check")
    assert (code, err) == (
        2,
        "nightly - Expected: --put-back or --check Actual: both. Nothing was done. Leave one of them out.\n",
    )


def test_a_file_knows_of_no_jobs(world: World, command: Command) -> None:
    site = world.root / "inventories/t/site.yml"
    text = site.read_text(encoding="utf-8")
    site.write_text(f"{text[: text.index('handover:')]}handover: {{kind: file, path: ready.txt}}\n", encoding="utf-8")
    code, _, err = command("nightly", "--env", "t")
    assert code == 2
    assert " ".join(err.split()) == (
        f"{site} handover.kind: nightly - Expected: a scheduler that knows the jobs of a node Actual: file. Nothing "
        "was done: drain nodes by hand, then run `rackready gate run --set nightly --node NODE --env t`."
    )


def test_one_controller_at_a_time(world: World, command: Command) -> None:
    with ControllerLock(world.paths.lock, "rackready deploy", world.paths.database):
        code, _, err = command("nightly", "--env", "t")
    assert (code, world.measured) == (2, [])
    assert "rackready deploy" in err


@pytest.mark.parametrize(("text", "found"), [("90m", 5400.0), ("6h", 21600.0), ("168h", 604800.0)])
def test_durations(text: str, found: float) -> None:
    assert seconds("--for", text) == found


@pytest.mark.parametrize("text", ["", "0h", "6", "6d", "-1h", "1.5h", "169h", "99999h"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(RackreadyError) as caught:
        seconds("--for", text)
    assert str(caught.value) == (
        f"--for {text} - Expected: minutes or hours such as 90m or 6h, at most 168h Actual: {text or 'nothing'}. "
        "Correct it."
    )


def test_all_nodes_of_the_site_are_meant(world: World, command: Command) -> None:
    _, out, _ = command("nightly", "--env", "t", "--check", "--output", "json")
    assert {one["name"] for one in json.loads(out)["nodes"]} == set(NODES)
    assert world.marks() == []

"""`rackready watch`, `watch status`, `watch clear-storm` and `rackready ticket`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import validate

from rackready.cli import watch as cli_watch
from rackready.model.state import NodeState
from rackready.watch import lease as watch_lease
from rackready.watch import stream
from tests.unit.watch.test_engine import FALLEN, begin, log
from tests.unit.watch.test_tickets import desk
from tests.unit.watch.world import World

NEVER = "sim: tickets - Expected: those of a watch Actual: rackready watch never ran here."

NOTHING = "no node is in production: nothing to look at; `rackready status --env sim` shows the nodes' states"


@pytest.fixture
def world(call: Any, tmp_path: Path) -> World:  # noqa: ANN401
    """Return the records of the checkout that commands work on."""
    del call
    made = World(tmp_path)
    made.ready()
    return made


def ticketed(world: World) -> None:
    world.see("node03")
    world.actor().act()
    desk(world).work()


def test_without_a_deployment_there_is_nothing_to_watch(call: Any) -> None:  # noqa: ANN401
    code, _, said = call("watch")
    assert code == 2
    assert said == (
        "sim: nothing to watch - Expected: nodes that were handed over Actual: nothing deployed yet. "
        "Run `rackready deploy --env sim` first.\n"
    )


def test_tickets_without_a_watch_are_refused(call: Any) -> None:  # noqa: ANN401
    code, _, said = call("ticket", "list")
    assert code == 2
    assert said == f"{NEVER} Run `rackready watch --env sim`: docs/howto/watch.md.\n"


def test_a_second_watch_is_refused_and_names_the_first(world: World, call: Any) -> None:  # noqa: ANN401
    with watch_lease.lease(world.paths, world.ledger):
        code, _, said = call("watch", "--once")
    assert code == 2
    assert "another rackready watch runs - Expected: none Actual: pid " in said
    assert said.endswith("Leave it running: `rackready watch status` shows what it does. Or stop it first.\n")


def once(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Let every node say these lines, and the scheduler be that of the test."""
    end = json.dumps({"end": "", "code": 0})
    monkeypatch.setattr(stream.SshLines, "__call__", lambda *_: iter([begin(), *lines, end]))


def test_once_finds_nothing_on_healthy_nodes(world: World, call: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401
    del world
    once(monkeypatch)
    code, out, _ = call("watch", "--once", "--output", "json")
    document = json.loads(out)
    assert (code, document["waiting"]) == (0, [])
    assert {event["event"] for event in document["events"]} == {"watched"}


def test_once_reports_faults_of_a_scheduler_that_does_not_answer(
    world: World,
    call: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    once(monkeypatch, log(FALLEN, "c1"))
    code, out, _ = call("watch", "--once", "--output", "json")
    document = json.loads(out)
    assert code == 1
    assert {item["step"] for item in document["waiting"]} == {"draining", "held"}
    assert any("connection refused" in event["text"] for event in document["events"])
    row = world.ledger.state("node01")
    assert row is not None
    assert row.state is NodeState.READY, "nothing is recorded that did not happen"


def test_without_a_node_in_production_the_watch_says_what_it_waits_for(call: Any, tmp_path: Path) -> None:  # noqa: ANN401
    World(tmp_path)
    code, out, said = call("watch", "--once")
    assert (code, out) == (0, "no node was looked at\n")
    assert said[21:] == f"idle: {NOTHING}\n"
    code, out, _ = call("watch", "--once", "--output", "json")
    (event,) = json.loads(out)["events"]
    assert (code, event["event"], event["node"], event["text"]) == (0, "idle", "", NOTHING)


def test_status_says_why_nobody_is_watched(world: World, call: Any) -> None:  # noqa: ANN401
    del world
    code, out, _ = call("watch", "status", "--output", "json")
    document = json.loads(out)
    assert code == 1
    assert document["not_watched"]["node02"] == "rackready watch does not run"
    code, out, _ = call("watch", "status")
    assert "watch: does not run; 0 nodes watched" in out


def test_a_storm_is_shown_and_cleared(world: World, call: Any) -> None:  # noqa: ANN401
    for node in ("node02", "node03"):
        world.see(node)
    world.actor().act()
    _, out, _ = call("watch", "status")
    assert "storm: nothing more is drained (limit 1 of 4 nodes)" in out
    assert "node03: GpuXidRestartBm on gpu4: held: storm" in out
    code, out, _ = call("watch", "clear-storm", "--reason", "one bad feed", "--output", "json")
    assert (code, json.loads(out)) == (0, {"env": "sim", "reason": "one bad feed", "nodes": ["node03"]})
    code, _, said = call("watch", "clear-storm", "--reason", "again")
    assert code == 2
    assert said == "storm - Expected: one that is on Actual: none. `rackready watch status` shows what is held.\n"


def test_tickets_are_listed_shown_and_closed(world: World, call: Any) -> None:  # noqa: ANN401
    ticketed(world)
    code, out, _ = call("ticket", "list", "--output", "json")
    (ticket,) = json.loads(out)["tickets"]
    assert (code, ticket["id"], ticket["status"]) == (0, "T00001-node03", "open")
    _, out, _ = call("schema", "--of", "ticket")
    validate(ticket, json.loads(out))
    _, out, _ = call("ticket", "show", "T00001-node03")
    assert "part.slot: 0000:9d:00\n" in out
    code, out, _ = call("ticket", "close", "T00001-node03", "--reason", "false alarm of the lab")
    assert (code, out) == (0, "T00001-node03: closed: false alarm of the lab\n")
    assert json.loads(call("ticket", "list", "--output", "json")[1])["tickets"] == []
    assert len(json.loads(call("ticket", "list", "--all", "--output", "json")[1])["tickets"]) == 1
    code, _, said = call("ticket", "close", "T00001-node03", "--reason", "once more")
    assert code == 2
    assert said == ("T00001-node03 - Expected: an open ticket Actual: closed. `rackready ticket show T00001-node03`.\n")
    code, _, said = call("ticket", "show", "T9")
    assert (code, said) == (
        2,
        "T9 - Expected: the id of a ticket Actual: no such ticket. `rackready ticket list --all`.\n",
    )


def test_metrics_tell_who_is_watched_open_faults_and_storms(world: World, call: Any) -> None:  # noqa: ANN401
    ticketed(world)
    world.store.put_mark("beat", {"at": 1.0, "pid": 1})
    code, out, _ = call("export", "metrics")
    assert code == 0
    assert 'rackready_node_watched{site="sim",rack="rack01",unit="1",node="node01"} 0' in out
    assert (
        'rackready_node_watch_fault{site="sim",rack="rack01",unit="1",node="node03",condition="GpuXidRestartBm",'
        'part="gpu4"} 1' in out
    )
    assert 'rackready_watch_storm{site="sim"} 0' in out
    assert 'rackready_watch_beat_timestamp_seconds{site="sim"} 1' in out


def test_no_metric_of_a_watch_that_never_ran(call: Any) -> None:  # noqa: ANN401
    assert "rackready_watch" not in call("export", "metrics")[1]


def test_a_site_that_changed_is_taken_and_a_bad_one_is_told(world: World, call: Any) -> None:  # noqa: ANN401
    del call
    told: list[tuple[str, str, str]] = []
    reload = cli_watch._reload(world.paths, lambda *event: told.append(event))
    assert reload() is None
    text = world.paths.site_file.read_text(encoding="utf-8")
    world.paths.site_file.write_text(f"{text}watch: {{gpu_poll_s: 9}}\n", encoding="utf-8")
    site = reload()
    assert site is not None
    assert site.watch.gpu_poll_s == 9
    assert reload() is None, "once"
    world.paths.site_file.write_text(f"{text}watch: {{gpu_pol: 9}}\n", encoding="utf-8")
    assert reload() is None
    kind, _, said = told[-1]
    assert kind == "failed"
    assert said.startswith("the changed site file cannot be used; the watch keeps the previous one: ")


def test_status_of_the_site_shows_who_is_not_watched(world: World, call: Any) -> None:  # noqa: ANN401
    del world
    document = json.loads(call("status", "--no-scheduler", "--output", "json")[1])
    assert document["not_watched"]["node04"] == "rackready watch does not run"
    assert "node04 is not watched: rackready watch does not run\n" in call("status", "--no-scheduler")[1]


def test_status_of_a_site_that_was_never_watched_is_as_before(call: Any) -> None:  # noqa: ANN401
    assert "not_watched" not in json.loads(call("status", "--output", "json")[1])

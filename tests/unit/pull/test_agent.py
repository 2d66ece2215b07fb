"""The pull agent: what it refuses, in which words, and that an order is applied once."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.unit.pull.world import NODE, ROOT, World, sha

ANEW = "Run the phase again on the controller: it writes a new order."
RESTORED = "If the ledger was restored from a backup, follow docs/howto/ledger-backup.md."
AGAIN = "Run the phase again on the controller: it installs the agent again."


def test_an_order_is_applied_once_and_then_compared(world: World) -> None:
    order = world.order(7)
    code, lines = world.agent()
    assert (code, lines) == (
        0,
        [
            f"node01: install: apply of order 7, release {order['release'][:12]}",
            "node01: apply of order 7 ended with 0",
        ],
    )
    assert world.agent()[0] == 0
    assert world.played() == ["apply", "check"]
    assert world.stored() == ["7-apply", "7-check"]
    report = world.report("7-apply")
    assert (report.mode, report.sequence, report.release, report.exit_code) == ("apply", 7, order["release"], 0)
    assert (report.failure, report.timed_out) == (None, False)
    assert list((world.state / "outbox").iterdir()) == []
    assert list(world.run_folder.iterdir()) == []


def test_without_an_order_there_is_nothing_to_do(world: World) -> None:
    assert world.agent() == (0, ["node01: the controller has no order for this node"])
    assert world.stored() == []


def test_a_check_order_never_changes_the_node_and_outdates_older_orders(world: World) -> None:
    old = world.order(3)
    world.order(4, mode="check")
    assert world.agent()[0] == 0
    world.write_order(world.envelope(old))
    assert world.said() == f"node01: order - Expected: sequence 4 or newer Actual: sequence 3. {ANEW} {RESTORED}"
    assert world.played() == ["check"]
    assert world.report("3-apply").failure.code == "old-sequence"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changed", "code", "words"),
    [
        ({"version": 2}, "version", f"Expected: version 1 Actual: version 2. {AGAIN}"),
        ({"node": "node02"}, "other-node", f"Expected: node node01 Actual: an order for node02. {AGAIN}"),
        ({"site": "other"}, "other-site", f"Expected: site 5f2c-ledger Actual: an order for other. {AGAIN}"),
        ({"mode": "erase"}, "order-damaged", f"Expected: an order as version 1 has it Actual: wrong: mode. {ANEW}"),
        (
            {"playbook": "../x.yml", "limit_s": 0},
            "order-damaged",
            f"Expected: an order as version 1 has it Actual: wrong: playbook, limit_s. {ANEW}",
        ),
    ],
)
def test_an_order_that_is_not_for_this_node_is_refused(
    world: World, changed: dict[str, Any], code: str, words: str
) -> None:
    order = world.order(5, **changed)
    assert world.said() == f"node01: order - {words}"
    name = f"5-{order['mode']}" if order["mode"] == "apply" else "5-check"
    failure = world.report(name).failure
    assert failure is not None
    assert failure.code == code
    assert str(failure.message()) == f"node01: order - {words}"
    assert world.played() == []
    assert not (world.state / "state.json").exists()


def test_an_order_for_another_machine_is_refused(world: World) -> None:
    world.order(5, machine="SHA256:other")
    expected = f"node01: order - Expected: machine {world.machine} Actual: an order for SHA256:other. {AGAIN}"
    assert world.said() == expected


def test_an_order_of_another_key_is_refused(world: World) -> None:
    payload = world.order(5)
    world.write_order(world.envelope(payload, Ed25519PrivateKey.generate()))
    trusted = world.etc / "trusted.pem"
    assert world.said() == (
        f"node01: order - Expected: a signature of the site's key ({trusted}) Actual: no valid signature of it. {AGAIN}"
    )
    assert world.report("5-apply").failure.code == "signature"  # type: ignore[union-attr]


def test_one_of_several_trusted_keys_is_enough(world: World) -> None:
    new = (world.etc / "trusted.pem").read_bytes()
    other = World(world.tmp / "other")
    other.away()
    (world.etc / "trusted.pem").write_bytes((other.etc / "trusted.pem").read_bytes() + new)
    world.order(5)
    assert world.agent()[0] == 0


@pytest.mark.parametrize("place", ["payload", "signatures"])
def test_a_changed_order_is_refused(world: World, place: str) -> None:
    envelope = world.envelope(world.order(5))
    other = world.envelope(world.order(6))
    world.write_order({**envelope, place: other[place]})
    assert "Actual: no valid signature of it." in world.said()
    assert world.played() == []


@pytest.mark.parametrize("envelope", [[], "x", {}, {"payloadType": "a", "payload": "!", "signatures": []}])
def test_what_is_no_order_is_refused(world: World, envelope: object) -> None:
    world.write_order(envelope)
    assert world.said().startswith("node01: order - Expected: a DSSE envelope Actual: damaged (")
    assert world.report("0-check").failure.code == "order-damaged"  # type: ignore[union-attr]


def test_an_expired_order_is_refused_with_the_clock(world: World) -> None:
    now = int(time.time())
    world.order(5, issued=now - 100, expires=now - 50)
    said = world.said()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - 50))
    head = (
        f"node01: order - Expected: an order that is still valid Actual: it expired at {stamp}; the node's clock says "
    )
    assert said.startswith(head)
    assert said.endswith(f"Z. Check the node's clock (`timedatectl`). {ANEW}")
    assert world.played() == []


def test_an_order_of_the_future_is_refused_with_the_clock(world: World) -> None:
    now = int(time.time())
    world.order(5, issued=now + 3600, expires=now + 7200)
    said = world.said()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now + 3600))
    assert said.startswith(
        f"node01: order - Expected: an order of the past Actual: it was issued at {stamp}; the node's"
    )
    assert world.report("5-apply").failure.code == "clock"  # type: ignore[union-attr]


def test_an_order_that_was_done_here_is_compared_after_it_expired(world: World) -> None:
    order = world.order(5)
    assert world.agent()[0] == 0
    world.write_order(world.envelope({**order, "expires": order["issued"] - 1}))
    assert world.agent()[0] == 0
    assert world.played() == ["apply", "check"]


def test_a_refused_order_is_never_applied_for_its_report_counts(world: World) -> None:
    code = world.stub()
    world.order(5, **world.make(code))
    place = world.release / "objects/sha256" / sha(code)
    place.write_bytes(b"x" * len(code))
    assert world.said() == (
        f"node01: object {sha(code)[:12]} - Expected: {len(code)} bytes, SHA-256 {sha(code)[:12]} Actual: {len(code)} "
        f"bytes, SHA-256 {sha(b'x' * len(code))[:12]}. Run the phase again on the controller: it writes the release "
        "again."
    )
    place.write_bytes(code + b"more")
    assert f"Actual: more than {len(code)} bytes." in world.said()
    place.write_bytes(code)
    assert world.agent()[0] == 0
    assert world.played() == ["check"]
    assert world.stored() == ["5-apply", "5-check"]
    world.order(6)
    assert world.agent()[0] == 0
    assert world.played() == ["check", "apply"]


def test_a_refused_order_is_never_applied_after_a_kill_and_without_its_controller(world: World) -> None:
    """Killed between report and state; the report is in the outbox, which is sent before the order is looked at."""
    world.order(5, issued=int(time.time()) + 3600)
    assert "Expected: an order of the past" in world.said()
    body = (world.reports / NODE / "5-apply.json").read_text()
    kept = '{"final": true, "site": "%s", "body": %s}'
    for site in ("another", "5f2c-ledger"):
        (world.state / "state.json").unlink(missing_ok=True)
        (world.state / "outbox/9-apply.json").write_text(kept % ("another", body))
        (world.state / "outbox/5-apply.json").write_text(kept % (site, body))
        world.order(5)
        assert world.agent()[0] == 0
        assert world.state_of()["sequence"] == 5
    assert world.played() == ["apply", "check"]


@pytest.mark.parametrize("times", [{"issued": 3600, "expires": 7200}, {"issued": -100, "expires": -50}])
def test_an_order_that_was_refused_for_its_time_is_not_applied_once_the_clock_is_right(
    world: World, times: dict[str, int]
) -> None:
    now = int(time.time())
    payload = world.order(5, **{name: now + seconds for name, seconds in times.items()})
    assert "Check the node's clock" in world.said()
    world.write_order(world.envelope({**payload, "issued": now, "expires": now + 3600}))
    assert world.agent()[0] == 0
    assert world.played() == ["check"]


def test_a_damaged_object_on_the_node_is_fetched_again(world: World) -> None:
    code = world.stub()
    world.order(5, **world.make(code))
    assert world.agent()[0] == 0
    (world.state / "objects" / sha(code)).write_bytes(b"broken")
    assert world.agent()[0] == 0
    assert (world.state / "objects" / sha(code)).read_bytes() == code


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"version": 3}, "Expected: version 1 Actual: version 3."),
        ({"node": "node02"}, "Expected: node node01 Actual: a release for node02."),
        ({"files": "all"}, "Expected: a release as version 1 has it Actual: wrong: files."),
    ],
)
def test_a_release_that_is_not_this_nodes_is_refused(world: World, changed: dict[str, Any], words: str) -> None:
    world.order(5, **world.make(**changed))
    assert words in world.said()
    assert world.played() == []


def test_a_node_without_that_python_is_told_so(world: World) -> None:
    world.order(5, **world.make(python="3.98"))
    said = world.said()
    assert said.startswith("node01: release - Expected: Python 3.98 Actual: python3 is 3.")
    assert said.endswith("Install python3.98 on the node, or name another version in pull.python of the site file.")
    assert world.state_of()["state"] == "done"


def test_old_releases_and_objects_are_removed_all_but_the_one_before(world: World) -> None:
    releases = []
    for sequence in (1, 2, 3):
        releases.append(world.order(sequence, **world.make(world.stub(exit=0, number=sequence)))["release"])
        assert world.agent()[0] == 0
    assert {folder.name for folder in (world.state / "releases").iterdir()} == set(releases[1:])
    left = {file.name for file in (world.state / "objects").iterdir()}
    assert releases[0] not in left
    assert set(releases[1:]) < left


def test_a_stage_that_breaks_is_told_with_its_words(world: World) -> None:
    world.order(5, **world.make(world.stub(die=True)))
    assert world.said() == (
        "node01: release - Expected: a result of its code Actual: exit code 1, and it said: it broke. Run the phase "
        "again on the controller; attach this line to a report if it comes again."
    )
    assert world.state_of()["state"] == "done"
    assert world.agent()[0] == 3
    assert world.played() == ["apply", "check"]


def test_another_host_key_than_the_pinned_one_is_refused_at_once(world: World) -> None:
    world.install(machine="SHA256:other")
    code, lines = world.agent()
    assert code == 3
    assert lines == [f"node01: {world.ssh} - Expected: the SSH host key SHA256:other Actual: {world.machine}. {AGAIN}"]


def test_a_configuration_that_is_none_is_refused(world: World) -> None:
    path = world.etc / "config.json"
    path.write_text(json.dumps({"url": world.url, "node": NODE, "site": "", "machine": "m"}))
    assert world.agent() == (3, [f"{path} - Expected: texts Actual: no text in site. {AGAIN}"])
    path.unlink()
    assert world.agent()[1][0].startswith(f"{path} - Expected: JSON with url, node, site, machine Actual: FileNotFound")


def test_a_damaged_state_is_refused_for_an_old_order_could_be_applied(world: World) -> None:
    world.order(5)
    assert world.agent()[0] == 0
    (world.state / "state.json").write_text("{")
    assert world.agent()[0] == 3
    assert world.played() == ["apply"]


def test_only_a_broken_agent_is_a_failed_service(world: World) -> None:
    """A controller that is away, or a refusal, must not quarantine nodes by node/host/sanity/services."""
    unit = (ROOT / "roles/pull_agent/templates/rackready-pull.service.j2").read_text(encoding="utf-8")
    (good,) = re.findall(r"^SuccessExitStatus=(.*)$", unit, re.MULTILINE)
    world.write_order([])
    assert str(world.agent()[0]) in good.split()
    (world.tmp / "agent/rackready_pull/release.py").write_text("def prepared(*_): raise KeyError('x')\n")
    world.order(5)
    code, lines = world.agent()
    assert (code, lines[-1]) == (1, "KeyError: 'x'")
    assert str(code) not in good.split()
    (world.tmp / "agent/rackready_pull/release.py").write_text("def prepared(:\n")
    code, lines = world.agent()
    assert (code, lines[-1].partition(":")[0]) == (1, "SyntaxError")


def test_show_names_what_is_installed(world: World) -> None:
    code, lines = world.agent("show")
    shown = json.loads(lines[0])
    assert code == 0
    assert shown["config"] == sha((world.etc / "config.json").read_bytes())
    assert shown["key"] == sha((world.etc / "key").read_bytes())
    from rackready.ondevice.pull.report import agent_digest  # noqa: PLC0415 - as the controller computes it

    assert shown["agent"] == agent_digest()

"""Standing orders: the timer compares a node with the newest order of each phase, and with nothing that fell away."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.unit.pull.world import NODE, World

PHASES = ["install", "optimize"]
ANEW = "Run the phase again on the controller: it writes a new order."
RESTORED = "If the ledger was restored from a backup, follow docs/howto/ledger-backup.md."
AGAIN = "Run the phase again on the controller: it installs the agent again."


def order(world: World, sequence: int, phase: str, mode: str = "apply", **changed: Any) -> dict[str, Any]:
    """Write an order of a phase, whose release only it has, and let the node carry it out."""
    release = world.make(world.stub(number=sequence))
    given = {"phase": phase, "playbook": f"{phase}.yml", "phases": PHASES, **release, **changed}
    made = world.order(sequence, mode, **given)
    assert world.agent()[0] == 0
    return made


def by_timer(world: World) -> tuple[int, list[str]]:
    """Run the agent once more; return its code, and which orders it compares with."""
    code, lines = world.agent()
    return code, [line.partition(", release")[0] for line in lines if ", release" in line]


def test_the_timer_compares_with_each_phase_in_the_order_of_the_phases(world: World) -> None:
    order(world, 3, "optimize")
    order(world, 7, "install")
    order(world, 9, "optimize")
    assert world.played() == ["apply"] * 3, "an order that comes is carried out alone"
    assert by_timer(world) == (0, ["node01: install: check of order 7", "node01: optimize: check of order 9"])
    assert world.played() == ["apply"] * 3 + ["check"] * 2
    assert [(world.report(name).phase) for name in ("7-apply", "7-check", "9-check")] == ["install"] * 2 + ["optimize"]
    assert "3-check" not in world.stored(), "it is superseded"


def test_a_withdrawn_order_falls_away(world: World) -> None:
    order(world, 7, "install")
    order(world, 8, "optimize")
    order(world, 9, "install", "check")
    assert by_timer(world) == (0, ["node01: install: check of order 9", "node01: optimize: check of order 8"])


def test_a_phase_that_the_site_gives_up_falls_away(world: World) -> None:
    order(world, 7, "install")
    order(world, 9, "optimize", phases=["optimize"])
    assert by_timer(world) == (0, ["node01: optimize: check of order 9"])
    assert [file.name for file in (world.state / "standing").iterdir()] == ["optimize.json"]
    order(world, 10, "optimize")
    assert by_timer(world)[1] == ["node01: optimize: check of order 10"]


def test_an_order_of_another_ledger_falls_away(world: World) -> None:
    order(world, 70, "install")
    world.install(site="new")
    order(world, 2, "optimize", site="new")
    assert by_timer(world) == (0, ["node01: optimize: check of order 2"])


def test_a_standing_order_is_not_accepted_again(world: World) -> None:
    old = order(world, 7, "install")
    order(world, 9, "optimize")
    world.write_order(world.envelope(old))
    assert world.said() == f"node01: order - Expected: sequence 9 or newer Actual: sequence 7. {ANEW} {RESTORED}"
    assert world.played() == ["apply"] * 2


def test_a_standing_order_of_a_key_that_was_given_up_is_refused_and_holds_no_other_back(world: World) -> None:
    order(world, 7, "install")
    world.signer = Ed25519PrivateKey.generate()
    world.install()
    order(world, 9, "optimize")
    code, lines = world.agent()
    trusted = world.etc / "trusted.pem"
    assert code == 3
    assert lines[0] == (
        f"node01: order - Expected: a signature of the site's key ({trusted}) Actual: no valid signature of it. {AGAIN}"
    )
    assert lines[1] == "node01: check of order 7 refused"
    assert lines[2].startswith("node01: optimize: check of order 9")
    report = world.report("7-check")
    assert (report.phase, report.failure and report.failure.code) == ("install", "signature")
    order(world, 10, "install")
    assert by_timer(world)[0] == 0


def test_a_standing_order_that_somebody_wrote_is_never_applied(world: World) -> None:
    order(world, 9, "optimize")
    file, others = world.state / "standing/install.json", Ed25519PrivateKey.generate()
    for sequence, key, code, compared in (
        (8, others, 3, []),
        (8, None, 0, ["install: check of order 8"]),
        (99, None, 0, []),
    ):
        present = (world.release / f"orders/{NODE}.json").read_bytes()
        file.write_text(json.dumps(world.envelope(world.order(sequence), key)))
        (world.release / f"orders/{NODE}.json").write_bytes(present)
        lines = [f"node01: {line}" for line in (*compared, "optimize: check of order 9")]
        assert by_timer(world) == (code, lines)
    assert not file.exists(), "one that claims to be newer than the present order falls away"
    assert world.played().count("apply") == 1


def test_an_agent_that_kept_no_orders_keeps_the_present_one(world: World) -> None:
    order(world, 7, "install")
    (world.state / "standing/install.json").unlink()
    assert by_timer(world) == (0, ["node01: install: check of order 7"])
    order(world, 9, "optimize")
    assert by_timer(world)[1] == ["node01: install: check of order 7", "node01: optimize: check of order 9"]


def test_a_phase_that_differs_does_not_hide_behind_one_that_does_not(world: World) -> None:
    install = order(world, 7, "install")
    order(world, 9, "optimize")
    for folder in (world.release / "objects/sha256", world.state / "objects"):
        (folder / install["release"]).unlink()
    code, compared = by_timer(world)
    assert (code, compared) == (3, ["node01: optimize: check of order 9"])
    failure = world.report("7-check").failure
    assert failure is not None
    assert failure.code == "unreachable"


def test_releases_of_standing_orders_and_the_one_before_are_kept(world: World) -> None:
    made = [order(world, 5, "install"), order(world, 7, "install"), order(world, 9, "optimize")]
    made += [order(world, 10, "optimize"), order(world, 11, "optimize")]
    expected = {made[index]["release"] for index in (1, 3, 4)}
    for _ in range(2):
        assert {folder.name for folder in (world.state / "releases").iterdir()} == expected
        assert by_timer(world)[0] == 0
    left = {file.name for file in (world.state / "objects").iterdir()}
    assert expected | {made[1]["extra"]["sha256"]} <= left
    assert not {made[0]["release"], made[2]["release"]} & left


@pytest.mark.parametrize("phases", ["install", ["optimize"], ["install", "../x"], ["install"] * 17, [["install"]]])
def test_phases_that_are_none_are_refused(world: World, phases: object) -> None:
    world.order(5, phases=phases)
    words = f"Expected: an order as version 1 has it Actual: wrong: phases. {ANEW}"
    assert world.said() == f"{NODE}: order - {words}"
    assert world.played() == []

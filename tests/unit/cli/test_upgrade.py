"""`rackready upgrade`: its plan, its words, a whole run with fake waves, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rackready.campaign.summary import NodeSummary
from rackready.campaign.upgrade import switch_system
from rackready.campaign.upgrade.durations import Expected
from rackready.campaign.upgrade.mirror_check import Repositories
from rackready.campaign.upgrade.moves import Moves
from rackready.cli import campaign_run, upgrade_run
from rackready.design.node_sets import NodeSet
from rackready.design.site import load_site
from rackready.ledger import upgrades
from rackready.ledger.lock import ControllerLock
from rackready.ledger.node_sets import assign
from rackready.ledger.store import CHANGE, Ledger
from rackready.model.problems import Message
from rackready.model.state import NodeState
from rackready.model.upgrade import SetChoice
from rackready.paths import EnvPaths

ROOT = Path(__file__).resolve().parents[3]
Call = Callable[..., tuple[int, str, str]]
NODES = ("node01", "node02", "node03", "node04")
OLD, NEW = "hgx-r580-debian12", "hgx-r580-178-debian12"
GOOD = {"outcome": "pass", "phase": "handover", "message": "", "kinds": []}
NO_DRIVER = {"outcome": "fail", "phase": "install", "message": "node02: no driver", "kinds": ["install x : y"]}


class Waves:
    """What waves did, and how they end."""

    def __init__(self) -> None:
        self.moved: list[str] = []
        self.up: dict[str, dict[str, Any]] = {}

    def move(self, moves: Moves, nodes: Sequence[str], back: bool) -> dict[str, dict[str, Any]]:  # noqa: FBT001
        self.moved.append(f"{'back' if back else 'up'} {' '.join(nodes)}")
        with Ledger.open(moves.paths.database) as ledger:
            for node in nodes:
                record = moves.record.nodes[node]
                found = self.up.get(node, GOOD)
                if found is GOOD or back:
                    now = record.former if back else moves.record.to
                    assign(ledger, moves.paths, node, NodeSet(now, record.written))
        return {node: GOOD if back else self.up.get(node, GOOD) for node in nodes}


@pytest.fixture
def paths(tmp_path: Path) -> EnvPaths:
    return EnvPaths(tmp_path, "sim")


@pytest.fixture
def waves(call: Call, paths: EnvPaths, monkeypatch: pytest.MonkeyPatch) -> Waves:
    """Four nodes in production, a newer set in the site's profiles, and waves that only write down."""
    del call
    paths.root.joinpath("playbooks").rmdir()
    for name in ("playbooks", "roles", "plugins", "templates"):
        (paths.root / name).symlink_to(ROOT / name)
    folder = paths.inventory / "profiles/software"
    folder.mkdir(parents=True)
    text = (ROOT / f"src/rackready/profiles/software/{OLD}.yml").read_text(encoding="utf-8")
    text = text.replace("580.173.02", "580.178.01").replace(f"id: {OLD}", f"id: {NEW}")
    (folder / f"{NEW}.yml").write_text(text, encoding="utf-8")
    with Ledger.open(paths.database) as ledger:
        for node in NODES:
            ledger.set_state(node, NodeState.READY)
    found = Waves()

    def move(moves: Moves, nodes: Sequence[str], back: bool) -> dict[str, dict[str, Any]]:  # noqa: FBT001
        return found.move(moves, nodes, back)

    monkeypatch.setattr(Moves, "move", move)
    monkeypatch.setattr(upgrade_run, "in_service", lambda _site, _paths, ready, _say: set(ready))
    monkeypatch.setattr(Repositories, "problems", lambda *_: [])
    return found


def document(call: Call, *arguments: str) -> tuple[int, Any]:
    code, out, _ = call("upgrade", *arguments, "--output", "json")
    return code, json.loads(out)


def test_the_plan_shows_changes_reboot_duration_and_waves(call: Call, waves: Waves) -> None:
    code, out, _ = call("upgrade", "--to", NEW, "--check")
    assert code == 0
    changes = (
        "nvidia-open 580.173.02-1 -> 580.178.01-1; libnvidia-nscq 580.173.02-1 -> 580.178.01-1; "
        "nvidia-fabricmanager 580.173.02-1 -> 580.178.01-1; nvidia-persistenced 580.173.02-1 -> 580.178.01-1"
    )
    assert f"│ node02 │ 2    │ {OLD} │ {changes} │ no     │ not measured │" in out
    assert out.splitlines()[-5:] == [
        "reboot: the driver's module is replaced without a boot; install reboots if the node then asks for it",
        "wave 1 (canary): node01",
        "wave 2: node02, node03",
        "wave 3: node04",
        f"4 nodes to {NEW}; nothing was changed",
    ]
    assert waves.moved == []


def test_the_plan_as_a_document(call: Call, waves: Waves) -> None:
    del waves
    code, plan = document(call, "--to", NEW, "--check", "--limit", "node01,node02")
    assert code == 0
    assert plan["waves"] == [["node01"], ["node02"]]
    first = plan["nodes"][0]
    assert (first["name"], first["wave"], first["from"], first["reboot"], first["expected_seconds"]) == (
        "node01",
        1,
        {"set": OLD, "branch": None},
        False,
        None,
    )
    changes = {one["package"]: (one["role"], one["before"], one["after"]) for one in first["changes"]}
    assert changes["nvidia-open"] == ("nvidia_driver", "580.173.02-1", "580.178.01-1")
    assert plan["expected_source"] == "not measured"


def test_durations_are_those_of_nodes_that_an_earlier_campaign_changed(
    call: Call, waves: Waves, paths: EnvPaths
) -> None:
    del waves
    with Ledger.open(paths.database) as ledger:
        ledger.put_campaign(
            "c1", env="sim", kind="deploy", nodes=["node01"], site_digest="d", abi="1", status="finished"
        )
        ledger.event("c1", "node01", "install", "begins")
        ledger.done(ledger.begin("node01", CHANGE, "install", {}).token)
        ledger.event("c1", "node01", "handover", "released", "ok")
        ledger.event("c1", "node02", "install", "begins")
        ledger.event("c1", "node02", "handover", "released", "ok")
    _, plan = document(call, "--to", NEW, "--check")
    assert plan["expected_source"] == "longest of 1 nodes in campaign c1"
    assert plan["nodes"][0]["expected_seconds"] == 0


@pytest.mark.parametrize(("whole", "minutes"), [(False, 40), (True, 25)])
def test_a_window_must_hold_the_way_back_of_a_wave_too(whole: bool, minutes: int) -> None:  # noqa: FBT001
    """10 min of waiting for jobs; a node was measured to take 15 min, or the operator states them for all of a wave."""
    asked = cast("upgrade_run.UpgradeOptions", SimpleNamespace(drain_s=600))
    taken = Expected(900.0, "c1", whole=whole)
    assert upgrade_run._wave_s(load_site("sim", root=ROOT), asked, taken) == minutes * 60


def test_what_the_repositories_lack_is_shown_and_counts(
    call: Call, waves: Waves, monkeypatch: pytest.MonkeyPatch
) -> None:
    del waves
    lack = Message("node01", "packages of the way back", "offered", "no x", "Put it in.")
    monkeypatch.setattr(Repositories, "problems", lambda *_: [lack])
    code, out, _ = call("upgrade", "--to", NEW, "--check")
    assert (code, out.splitlines()[-1]) == (1, str(lack))
    code, _, err = call("upgrade", "--to", NEW)
    assert (code, err.splitlines()[-1]) == (2, str(lack))


def test_all_nodes_in_waves_and_then_the_site_file_is_to_name_the_set(call: Call, waves: Waves) -> None:
    code, out, err = call("upgrade", "--to", NEW)
    assert code == 0, err
    assert waves.moved == ["up node01", "up node02 node03", "up node04"]
    assert f"finished: 4 of 4 nodes on {NEW}" in out
    assert out.endswith(
        f"write `set: {NEW}` into software of the site file: until then the ledger keeps these nodes on it\n"
    )
    code, out, err = call("upgrade", "--to", NEW)
    assert (code, out) == (0, f"no node to move to {NEW}: nothing was changed\n")
    assert f"left out: node01 is on {NEW} already" in err


def test_a_stop_waits_for_the_operators_word(call: Call, waves: Waves) -> None:
    waves.up["node02"] = NO_DRIVER
    code, found = document(call, "--to", NEW)
    assert (code, found["state"]) == (1, "stopped")
    assert {row["name"]: row["step"] for row in found["nodes"]}["node02"] == "rolled-back"
    code, _, err = call("upgrade", "--to", NEW)
    assert code == 2
    assert err.startswith(
        f"upgrade {found['id']} - Expected: --resume Actual: stopped: new kind of failure in wave 2: "
    )
    code, out, _ = call("upgrade", "--resume")
    assert (code, waves.moved[-1]) == (1, "up node04")
    assert f"node02: `rackready upgrade --to {NEW} --failed-only` takes them again once repaired" in out
    waves.up.clear()
    assert document(call, "--to", NEW, "--failed-only")[0] == 0
    assert waves.moved[-1] == "up node02"


def test_the_last_upgrade_is_shown(call: Call, waves: Waves) -> None:
    assert call("upgrade")[1] == "no upgrade was begun. `rackready upgrade --to SET --check` shows a plan\n"
    assert document(call) == (0, {"env": "sim", "upgrade": None})
    waves.up["node01"] = NO_DRIVER
    call("upgrade", "--to", NEW)
    code, out, _ = call("upgrade")
    assert (code, "node01: node02: no driver" in out) == (0, True)
    assert "stopped: 0 of 4 nodes on" in out


def test_pause_and_abort_from_a_second_terminal(call: Call, waves: Waves, paths: EnvPaths) -> None:
    waves.up["node01"] = NO_DRIVER
    call("upgrade", "--to", NEW)
    with ControllerLock(paths.lock, "rackready upgrade", paths.database):
        code, found = document(call, "--pause")
    assert (code, found["asked"], found["what"].partition(": ")[2]) == (
        0,
        "pause",
        "asked to pause; it does so after the wave under way",
    )
    assert document(call, "--resume")[1]["state"] == "paused"
    assert waves.moved == ["up node01", "back node01"]
    code, out, _ = call("upgrade", "--abort")
    assert (code, out.partition(": ")[2]) == (0, "aborted\n")
    assert document(call)[1]["upgrade"]["state"] == "aborted"


def test_an_upgrade_whose_wave_was_cut_off_is_aborted_after_it(call: Call, waves: Waves, paths: EnvPaths) -> None:
    waves.up["node01"] = NO_DRIVER
    call("upgrade", "--to", NEW)
    with Ledger.open(paths.database) as ledger:
        record = upgrades.last(ledger)
        assert record is not None
        wave = {"number": 2, "nodes": ["node02"], "begun": 0.0}
        upgrades.save(ledger, record.model_validate({**record.model_dump(), "wave": wave, "state": "running"}))
    waves.moved.clear()
    assert (
        "its wave was cut off: `rackready upgrade --resume` ends the wave, then aborts" in call("upgrade", "--abort")[1]
    )
    assert document(call, "--resume")[1]["state"] == "aborted"
    assert waves.moved == ["up node02"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ("--to", NEW, "--resume"),
            (
                "upgrade - Expected: one of --resume, --pause, --abort, --to, --switches, --switch "
                "Actual: --resume, --to. Give one."
            ),
        ),
        (("--check",), "upgrade --check - Expected: --to SET Actual: none. Give --to SET."),
        (("--failed-only",), "upgrade --failed-only - Expected: --to SET Actual: none. Give --to SET."),
        (("--resume", "--limit", "node02"), "upgrade --limit - Expected: --to SET Actual: none. Give --to SET."),
        (("--resume", "--branch", "580"), "upgrade --branch - Expected: --to SET Actual: none. Give --to SET."),
        (("--abort", "--firmware"), "upgrade --firmware - Expected: --to SET Actual: none. Give --to SET."),
        (
            ("--to", "nope"),
            (
                f"--to - Expected: one of {NEW}, {OLD}, hgx-r580-el9, hgx-r580-ubuntu2204, hgx-r580-ubuntu2404 Actual: "
                "nope. Correct it, or add it to the site's profiles (docs/howto/profiles.md)."
            ),
        ),
        (("--to", NEW, "--branch", "535"), "--branch - Expected: one of 580 Actual: 535. Correct it."),
        (
            ("--to", NEW, "--failed-only"),
            f"--failed-only - Expected: an upgrade to {NEW} Actual: none. Begin one: `rackready upgrade --to {NEW}`.",
        ),
        (("--pause",), "upgrade --pause - Expected: an upgrade that is open Actual: none. There is nothing to do."),
        (
            ("--resume",),
            (
                "upgrade --resume - Expected: an upgrade that is open Actual: none. Begin one: "
                "`rackready upgrade --to SET`."
            ),
        ),
    ],
)
def test_refusals(call: Call, waves: Waves, arguments: tuple[str, ...], text: str) -> None:
    code, _, err = call("upgrade", *arguments)
    assert (code, err) == (2, f"{text}\n")
    assert waves.moved == []


def test_a_lower_driver_needs_the_sites_consent(call: Call, waves: Waves, paths: EnvPaths) -> None:
    for node in NODES:
        with Ledger.open(paths.database) as ledger:
            assign(ledger, paths, node, NodeSet(SetChoice(set=NEW), SetChoice(set=OLD)))
    code, _, err = call("upgrade", "--to", OLD)
    assert (code, err) == (
        2,
        (
            "node01: driver - Expected: a newer version, or software.allow_downgrade: true Actual: 580.178.01 -> "
            "580.173.02. Choose a newer set, or set software.allow_downgrade: true.\n"
        ),
    )
    text = paths.site_file.read_text(encoding="utf-8")
    paths.site_file.write_text(text.replace("software:\n", "software:\n  allow_downgrade: true\n"), encoding="utf-8")
    assert call("upgrade", "--to", OLD)[0] == 0
    assert waves.moved == ["up node01", "up node02 node03", "up node04"]


def test_another_upgrade_must_end_first_and_its_nodes_stay_the_same(call: Call, waves: Waves) -> None:
    waves.up["node01"] = NO_DRIVER
    _, found = document(call, "--to", NEW)
    code, _, err = call("upgrade", "--to", OLD)
    assert (code, err) == (
        2,
        (
            f"upgrade {found['id']} - Expected: none open but to {OLD} Actual: to {NEW}. "
            "Go on with `rackready upgrade --resume`, or end it with --abort.\n"
        ),
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), ": --limit - Expected: the nodes that it began with Actual: also node02, node03, node04"),
        (("--limit", "node01,node03"), ": --limit - Expected: the nodes that it began with Actual: also node03"),
        (("--limit", "node02"), ": --limit - Expected: the nodes that it began with Actual: not node01"),
        (("--limit", "node01", "--firmware"), " - Expected: without --firmware Actual: with --firmware"),
    ],
)
def test_an_open_upgrade_goes_on_with_the_nodes_and_the_work_that_it_began_with(
    call: Call, waves: Waves, paths: EnvPaths, arguments: tuple[str, ...], text: str
) -> None:
    waves.up["node01"] = NO_DRIVER
    _, found = document(call, "--to", NEW, "--limit", "node01")
    with Ledger.open(paths.database) as ledger:
        record = upgrades.last(ledger)
        assert record is not None
        upgrades.save(ledger, record.model_validate({**record.model_dump(), "state": "running"}))
    code, _, err = call("upgrade", "--to", NEW, *arguments)
    step = "Go on with `rackready upgrade --resume`, or end it with --abort."
    assert (code, err) == (2, f"upgrade {found['id']}{text}. {step}\n")
    assert call("upgrade", "--to", NEW, "--limit", " node01")[0] == 1


def test_who_is_left_out_is_said_with_its_reason(call: Call, waves: Waves, paths: EnvPaths) -> None:
    del waves
    with Ledger.open(paths.database) as ledger:
        ledger.set_state("node01", NodeState.QUARANTINED, "gpu3 is dead")
        ledger.set_state("node02", NodeState.REACHABLE)
    _, plan = document(call, "--to", NEW, "--check")
    assert plan["left_out"] == {
        "node01": "is quarantined: gpu3 is dead. Repair it first: `rackready repair node01 --reason '...'`",
        "node02": "is reachable: `rackready deploy` it first",
    }
    _, plan = document(call, "--to", "hgx-r580-ubuntu2404", "--check")
    assert plan["left_out"]["node03"] == "runs debian12, and hgx-r580-ubuntu2404 is for ubuntu2404"


def test_the_order_of_switches_is_shown(call: Call) -> None:
    code, out, _ = call("upgrade", "--switches")
    assert code == 0
    assert "│ 1     │ leaf01 │ cumulus_nvue │ node01, node02, node03, node04 │ none " in out
    assert out.endswith("one at a time: the next begins when the rails of its nodes are proven. Nothing was changed\n")
    code, out, _ = call("upgrade", "--switches", "--output", "json")
    assert json.loads(out)["switches"][1]["cut"]["node04"] == [5, 6, 7, 8]


def test_a_switch_is_begun_and_its_rails_are_proven(
    call: Call, waves: Waves, paths: EnvPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    del waves
    proven: list[tuple[str, ...]] = []

    def campaign(kind: str, phases: tuple[str, ...], *, limit: str, **_: object) -> tuple[list[Any], dict[str, Any]]:
        proven.append((kind, *phases, limit))
        with Ledger.open(paths.database) as ledger:
            for node in NODES:
                ledger.set_state(node, NodeState.READY)
        return [NodeSummary(node, "ready", "handover", "pass", changed=True, reason="") for node in NODES], {}

    monkeypatch.setattr(switch_system, "in_production", lambda *_: ([], {}))
    monkeypatch.setattr(switch_system, "take_out", lambda *_: {})
    monkeypatch.setattr(campaign_run, "carried_out", campaign)
    monkeypatch.setattr(campaign_run, "show_result", lambda *_: None)
    with Ledger.open(paths.database) as ledger:
        about = {"env": "sim", "kind": "deploy", "nodes": NODES, "site_digest": "d", "abi": "2", "summary": {}}
        ledger.put_campaign("c1", status="interrupted", **about)
    code, out, said = call("upgrade", "--switch", "leaf01")
    assert "campaign c1 was cut off and is not resumed: leaf01 gets another system" in " ".join(said.split())
    assert (code, out) == (
        0,
        (
            "leaf01: node01, node02, node03, node04 behind it: drained and empty\n"
            "rackready cannot upgrade a cumulus_nvue switch: upgrade leaf01 with its vendor's tools now, then run "
            "`rackready upgrade --env sim --switch leaf01 --done`\n"
        ),
    )
    assert call("upgrade", "--switch", "leaf02")[0] == 2
    code, out, _ = call("upgrade", "--switch", "leaf01", "--done")
    assert (code, out) == (0, "leaf01: the rails of node01, node02, node03, node04 are proven\n")
    phases = ("fabric", "validate", "optimize", "revalidate", "certify", "handover")
    assert proven == [("upgrade", *phases, "node01,node02,node03,node04")]
    assert call("upgrade", "--switch", "leaf02")[0] == 0

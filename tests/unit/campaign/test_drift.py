"""A drift run: what is compared, what cannot be asked, since when an item differs, and the exit code."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from rackready.campaign.drift import keys, roles, run, since, switches
from rackready.campaign.drift.applied import INFINIBAND, PHASES, Applied, applied, roles_of, tuned
from rackready.campaign.drift.found import DriftReading
from rackready.campaign.drift.run import drift_run
from rackready.design.facts import desired_digest
from rackready.design.site import load_site
from rackready.drivers.ssh.errors import no_answer
from rackready.drivers.ssh.pins import pin
from rackready.drivers.ssh.target import node_target
from rackready.ledger.drift import append_runs, runs_of
from rackready.ledger.error import ControllerBusyError
from rackready.ledger.lock import ControllerLock
from rackready.ledger.store import Ledger
from rackready.model.drift import DriftItem, DriftKind, DriftReport, WhenSeen
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.unit.design.several_sites import FILE, SLURM, part, several

ROOT = Path(__file__).resolve().parents[3]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJg0dXPzMb8e5OmVSUUkrIkJY1FS4OQY0vRn0C4fm0d1"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDyyyyPzMb8e5OmVSUUkrIkJY1FS4OQY0vRn0C4fm0d1"
NODES = ["node01", "node02"]


@pytest.fixture
def site() -> Site:
    return load_site("sim", root=ROOT, site_file=ROOT / "inventories/sim/site.yml")


@pytest.fixture
def paths(tmp_path: Path) -> EnvPaths:
    (tmp_path / "inventories/sim").mkdir(parents=True)
    (tmp_path / "inventories/sim/site.yml").write_bytes((ROOT / "inventories/sim/site.yml").read_bytes())
    (tmp_path / "playbooks").symlink_to(ROOT / "playbooks")
    return EnvPaths(tmp_path, "sim")


@pytest.fixture
def ledger(paths: EnvPaths) -> Ledger:
    return Ledger.open(paths.database)


def ctx(paths: EnvPaths, run_id: str = "drift-1") -> PhaseContext:
    return PhaseContext("sim", paths.root, run_id, check=True)


def apply(ledger: Ledger, site: Site, node: str, *phases: str) -> None:
    for phase in phases:
        ledger.done(ledger.begin(node, f"install:{phase}.yml", desired_digest(site, node), {}).token)


def item(name: str = "libnccl2", **more: Any) -> DriftItem:
    values = {"kind": DriftKind.PACKAGE, "expected": "2 held", "actual": "1", "source": "role x", "phase": "install"}
    return DriftItem(name=name, **(values | more))


def test_the_roles_come_from_the_playbooks_of_the_phases() -> None:
    assert roles_of(ROOT, "install")[:2] == ["base", "nic_stack"]
    assert roles_of(ROOT, "optimize") == ["mig", "gpu_tuning", "mps"]
    assert "gpu_tuning" not in roles_of(ROOT, "install"), "there it has a condition: it is the other phase's"
    every = {path.name for path in (ROOT / "roles").iterdir() if path.is_dir()}
    every -= {"pull_agent"}  # no phase: nodes that pull show their agent in each report
    assert {role for phase in (*PHASES, INFINIBAND) for role in roles_of(ROOT, phase)} == every, "each role is compared"


def test_only_what_was_applied_in_the_nodes_present_epoch_counts(ledger: Ledger, site: Site, paths: EnvPaths) -> None:
    assert applied(ledger, "node01") == Applied(())
    apply(ledger, site, "node01", "install", "optimize")
    ledger.failed(ledger.begin("node01", "install:fabric.yml", "x", {}).token, "no answer")
    assert applied(ledger, "node01") == Applied(("install", "optimize"), desired_digest(site, "node01"))
    assert tuned(ctx(paths), NODES) == ["node01"]
    apply(ledger, site, "node01", INFINIBAND)
    assert applied(ledger, "node01").phases == ("install", "fabric", "optimize")
    ledger.raise_epoch("node01", "repaired")
    assert applied(ledger, "node01").phases == ()
    assert tuned(ctx(paths), NODES) == []


def play(monkeypatch: pytest.MonkeyPatch, **results: NodeResult) -> dict[str, Any]:
    """Have the playbook return these results, and return what it was asked for."""
    asked: dict[str, Any] = {}

    def run_playbook(ctx: PhaseContext, playbook: str, nodes: list[str], variables: dict[str, Any]) -> Any:  # noqa: ANN401
        asked.update(check=ctx.check, playbook=playbook, nodes=nodes, variables=variables)
        return {node: results.get(node, NodeResult(Outcome.PASS)) for node in nodes}

    monkeypatch.setattr(roles, "run_playbook", run_playbook)
    return asked


def compared(
    monkeypatch: pytest.MonkeyPatch, paths: EnvPaths, site: Site, result: NodeResult
) -> tuple[DriftReading, dict[str, Any]]:
    asked = play(monkeypatch, node01=result)
    found = {"node01": DriftReading()}
    roles.compare_roles(ctx(paths), site, {"node01": Applied(("install", "optimize"))}, found)
    return found["node01"], asked


def test_a_munge_key_that_cannot_be_read_keeps_no_node_of_another_scheduler_from_being_compared(
    monkeypatch: pytest.MonkeyPatch, paths: EnvPaths
) -> None:
    parts = part("node[01-02]", SLURM | {"munge_key": {"vault": "/absent/keys.yml#munge"}}), part("node[03-04]", FILE)
    asked, found = play(monkeypatch), {"node01": DriftReading(), "node03": DriftReading()}
    roles.compare_roles(ctx(paths), several(*parts), dict.fromkeys(found, Applied(("install",))), found)
    assert asked["nodes"] == ["node03"]
    assert (len(found["node01"].not_asked), found["node03"].not_asked) == (1, [])
    assert "/absent/keys.yml" in found["node01"].not_asked[0]


@pytest.mark.parametrize("answers", [True, False])
def test_the_role_of_slurms_nodes_is_compared_with_the_controllers_that_handover_gave_it(
    monkeypatch: pytest.MonkeyPatch, paths: EnvPaths, site: Site, *, answers: bool
) -> None:
    """Without slurm.conf its options would look changed; the other roles are compared all the same."""
    controllers = {"slurm_node_controllers": ["10.0.0.5", "10.0.0.6"]}

    def read(*_: object) -> dict[str, list[str]]:
        if answers:
            return controllers
        raise RackreadyError("ctl", "Slurm's files", expected="an answer", actual="none", next_step="Look there.")

    monkeypatch.setattr(roles, "controller_vars", read)
    asked, found = play(monkeypatch), {"node01": DriftReading(), "node02": DriftReading()}
    done = {"node01": Applied(("install", "handover")), "node02": Applied(("install",))}
    roles.compare_roles(ctx(paths), site, done, found)
    given = asked["variables"]
    assert (controllers.items() <= given.items()) is answers
    assert ("slurm_node" in given["rackready_drift_roles"]["node01"]) is answers
    assert "enroot_pyxis" in given["rackready_drift_roles"]["node01"]
    text = "ctl: Slurm's files - Expected: an answer Actual: none. Look there."
    assert found["node01"].not_asked == ([] if answers else [text])
    assert found["node02"].not_asked == []


def test_roles_run_in_check_mode_and_name_their_phase(
    monkeypatch: pytest.MonkeyPatch, paths: EnvPaths, site: Site
) -> None:
    rows = [
        {"kind": "gpu", "name": "gpu3", "expected": "700 W", "actual": "600 W", "role": "gpu_tuning", "task": "t"},
        {"kind": "task", "name": "t2", "expected": "-", "actual": "-", "role": "gpu_tuning", "task": "t2"},
        {"kind": "task", "name": "t3", "expected": "-", "actual": "-", "role": "base", "task": "t3"},
    ]
    found, asked = compared(monkeypatch, paths, site, NodeResult(Outcome.PASS, changed=True, data={"items": rows}))
    assert (asked["check"], asked["playbook"]) == (True, "drift.yml")
    assert asked["variables"]["rackready_drift_roles"]["node01"] == [
        *roles_of(ROOT, "install"),
        "mig",
        "gpu_tuning",
        "mps",
    ]
    assert [(one.kind, one.name, one.source, one.phase) for one in found.items] == [
        (DriftKind.GPU, "gpu3", "role gpu_tuning", "optimize"),
        (DriftKind.TASK, "t3", "role base", "install"),
    ], "a task that follows another difference of its role is left out"
    assert found.not_asked == []


def test_a_failed_check_of_a_role_is_an_item_and_its_later_tasks_are_named_as_not_compared(
    monkeypatch: pytest.MonkeyPatch, paths: EnvPaths, site: Site
) -> None:
    check = {"expected": "9 MiB", "actual": "1 MiB", "next_step": "Free."}
    broken = [{"role": "base", "task": "preflight | Check the disk", "message": "in any words", "check": check}]
    found, _ = compared(monkeypatch, paths, site, NodeResult(Outcome.FAIL, "x", data={"broken": broken}))
    (one,) = found.items
    assert (one.kind, one.expected, one.actual, one.next_step) == (DriftKind.CHECK, "9 MiB", "1 MiB", "Free.")
    assert found.notes == [
        "role base stopped at this check (preflight | Check the disk): its later tasks were not compared"
    ]
    assert found.not_asked == []


def test_a_role_that_broke_otherwise_was_not_asked(
    monkeypatch: pytest.MonkeyPatch, paths: EnvPaths, site: Site
) -> None:
    for words in ("MODULE FAILURE: see stdout", "Expected: what a foreign role wants Actual: something else."):
        broken = [{"role": "base", "task": "limits | Apply", "message": words}]
        found, _ = compared(monkeypatch, paths, site, NodeResult(Outcome.FAIL, "x", data={"broken": broken}))
        assert found.items == []
        assert found.not_asked == [f"role base stopped at task limits | Apply: {words}"]


def test_a_node_that_ansible_could_not_reach_was_not_asked(
    monkeypatch: pytest.MonkeyPatch, paths: EnvPaths, site: Site
) -> None:
    found, _ = compared(monkeypatch, paths, site, NodeResult(Outcome.ERROR, "node01: drift: cannot log in"))
    assert found.not_asked == ["node01: drift: cannot log in"]


def test_host_keys_are_compared_without_a_login(monkeypatch: pytest.MonkeyPatch, paths: EnvPaths, site: Site) -> None:
    shown = {"node01": KEY, "node02": OTHER}
    for node in ("node01", "node02", "node04"):
        pin(paths.known_hosts, node_target(site, node, paths.known_hosts).host, KEY)

    def look(target: Any, **_more: Any) -> str:  # noqa: ANN401
        if target.name == "node04":
            raise no_answer(target.where, 15, "no answer")
        return shown[target.name]

    monkeypatch.setattr(keys, "shown_key", look)
    found = {name: DriftReading() for name in ("node01", "node02", "node03", "node04")}
    assert keys.compare_keys(site, paths, found) == ["node01"]
    (changed,) = found["node02"].items
    assert (changed.kind, changed.name) == (DriftKind.HOST_KEY, "SSH host key")
    assert changed.expected != changed.actual
    assert "hostkey accept node02" in changed.next_step
    assert found["node02"].not_asked[0].endswith("no login was tried: nothing else was compared")
    assert "SSH host key not pinned" in found["node03"].not_asked[0]
    assert "no answer" in found["node04"].not_asked[0]
    assert found["node01"] == DriftReading()


def test_a_switch_that_was_never_configured_is_not_asked(paths: EnvPaths, site: Site, ledger: Ledger) -> None:
    found = {"leaf01": DriftReading()}
    switches.compare_switches(site, paths, ledger, found)
    assert found["leaf01"].not_asked == ["leaf01: rackready did not configure it yet. Run `rackready fabric`."]


def test_an_item_names_the_last_campaign_and_the_first_drift_run(ledger: Ledger) -> None:
    for campaign in ("c1", "c2"):
        ledger.put_campaign(campaign, env="sim", kind="x", nodes=[], site_digest="", abi="", status="finished")
        ledger.event(campaign, "node01", "install", "unchanged", "ok")
    ledger.event("c2", "node01", "certify", "certified", "ok")
    report = DriftReport(name="node01", target="node", asked=True, compared=["install"])
    for number, (asked, items) in enumerate(
        [(True, [item()]), (True, []), (True, [item(actual="0")]), (False, []), (True, [item()])]
    ):
        row = report.model_copy(update={"asked": asked, "items": items})
        append_runs(ledger, f"d{number}", float(number), "", [row.model_dump(mode="json")])
    now = WhenSeen(run="d5", at="now")
    old, new, part = since.with_history(
        ledger, "node01", ["node01"], [item(), item("other"), item("BIOS", phase="")], now
    )
    assert (old.since and old.since.run, old.first_seen and old.first_seen.run) == ("c2", "d2")
    assert old.last_without is not None
    assert old.last_without.run == "d1", "a run that could not ask proves nothing; another value is the same item"
    assert (new.first_seen, new.last_without and new.last_without.run) == (now, "d4")
    assert part.since is not None
    assert part.since.run == "c2"


class World:
    """A site whose nodes, switches and readings answer as told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, items: dict[str, list[DriftItem]]) -> None:
        self.items = items
        self.asked: list[str] = []
        monkeypatch.setattr(run, "compare_keys", lambda _site, _paths, found: list(found))
        monkeypatch.setattr(run, "compare_roles", self.roles)
        monkeypatch.setattr(run, "compare_readings", lambda *_: None)
        monkeypatch.setattr(run, "compare_switches", lambda *_: None)

    def roles(self, ctx: PhaseContext, _site: Site, done: dict[str, Applied], found: dict[str, DriftReading]) -> None:
        assert ctx.check
        self.asked += list(done)
        for node in done:
            found[node].items += self.items.get(node, [])


def ask(paths: EnvPaths, site: Site, run_id: str = "drift-1", nodes: list[str] | None = None) -> run.DriftRun:
    return drift_run(ctx(paths, run_id), site, nodes or NODES, "rackready drift --env sim", lambda _text: None)


def test_a_run_is_recorded_and_its_exit_code_tells(
    monkeypatch: pytest.MonkeyPatch, paths: EnvPaths, site: Site, ledger: Ledger
) -> None:
    world = World(monkeypatch, {})
    for node in NODES:
        apply(ledger, site, node, *PHASES)
    assert ask(paths, site).exit_code == 0
    world.items = {"node01": [item()]}
    found = ask(paths, site, "drift-2")
    assert (found.exit_code, found.drifted, found.asked) == (1, True, True)
    (one,) = found.reports[0].items
    assert one.next_step == "`rackready deploy --env sim --limit node01` puts it right."
    assert (one.first_seen, one.last_without and one.last_without.run) == (
        WhenSeen(run="drift-2", at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(found.at))),
        "drift-1",
    )
    assert [row.run for row in runs_of(ledger, "node01")] == ["drift-2", "drift-1"]
    assert json.loads(json.dumps(next(runs_of(ledger, "node01")).report))["items"][0]["name"] == "libnccl2"
    assert [report.name for report in found.reports] == [*NODES, "leaf01", "leaf02"]


def test_a_node_in_quarantine_is_asked_and_its_next_step_is_the_repair(
    monkeypatch: pytest.MonkeyPatch, paths: EnvPaths, site: Site, ledger: Ledger
) -> None:
    World(monkeypatch, {"node01": [item()]})
    apply(ledger, site, "node01", *PHASES)
    ledger.set_state("node01", NodeState.QUARANTINED, "a gate failed")
    (one,) = ask(paths, site, nodes=["node01"]).reports[0].items
    assert one.next_step == (
        "It is in quarantine. When it is repaired, run `rackready repair node01 --env sim --reason '...'`, "
        "then `rackready deploy --env sim --limit node01`."
    )


def test_a_node_that_was_never_deployed_makes_it_2_and_the_others_are_asked(
    monkeypatch: pytest.MonkeyPatch, paths: EnvPaths, site: Site, ledger: Ledger
) -> None:
    world = World(monkeypatch, {"node01": [item()]})
    apply(ledger, site, "node01", "install")
    found = ask(paths, site)
    assert (found.exit_code, found.drifted, world.asked) == (2, True, ["node01"])
    assert found.reports[1].not_asked == [
        "node02: nothing was applied to it yet. Run `rackready deploy --env sim --limit node02` first."
    ]
    assert found.reports[0].notes == ["not compared, because never applied: fabric, optimize, handover"]


def test_a_site_file_edited_since_is_noted(
    monkeypatch: pytest.MonkeyPatch, paths: EnvPaths, site: Site, ledger: Ledger
) -> None:
    World(monkeypatch, {})
    for phase in PHASES:
        ledger.done(ledger.begin("node01", f"install:{phase}.yml", "another digest", {}).token)
    (note,) = ask(paths, site, nodes=["node01"]).reports[0].notes
    assert note == (
        "the site file changed since the last apply: some items may come from that. "
        "`rackready plan --env sim` shows what."
    )


def test_a_retired_node_is_left_out(
    monkeypatch: pytest.MonkeyPatch, paths: EnvPaths, site: Site, ledger: Ledger
) -> None:
    world = World(monkeypatch, {})
    apply(ledger, site, "node01", *PHASES)
    ledger.set_state("node02", NodeState.RETIRED, "sold")
    found = ask(paths, site)
    assert (found.exit_code, found.left_out, world.asked) == (0, ["node02"], ["node01"])


def test_without_any_record_it_is_refused(paths: EnvPaths, site: Site) -> None:
    with pytest.raises(RackreadyError) as error:
        ask(paths, site)
    assert str(error.value) == (
        "drift --env sim - Expected: nodes that rackready deployed Actual: no record of any. "
        "Run `rackready deploy --env sim` first."
    )
    assert not paths.state.exists()


def test_beside_a_deploy_it_is_refused(paths: EnvPaths, site: Site, ledger: Ledger) -> None:
    del ledger
    with ControllerLock(paths.lock, "rackready deploy", paths.database), pytest.raises(ControllerBusyError):
        ask(paths, site)

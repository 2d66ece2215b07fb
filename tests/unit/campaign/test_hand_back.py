"""A node leaves its tenant: the order of the steps, what refuses before anything is destroyed, and kills."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from rackready.campaign import hand_back, reboot
from rackready.campaign.hand_back import HandBackRefusedError, Return, alone, end, partners
from rackready.campaign.reboot import BootReading
from rackready.design.site import load_site
from rackready.drivers.redfish_sessions import Users
from rackready.drivers.scheduler.base import SchedulerError
from rackready.drivers.tenant_node import Left, Scratch
from rackready.handover.returned import HAND_BACK, open_return
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.unit.design.several_sites import KUBERNETES, SLURM, document, part

ROOT = Path(__file__).resolve().parents[3]
TRACES = Left({"process": ["77 miner (eve)"], "file": ["/scratch/x (eve)"]}, {"process": 1, "file": 1})
CLEAN = Left({}, {}, gone=2)
NO_SCRATCH = Scratch([], [])


class World:
    """One node as the engine sees it, and a list of what was done to it."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        (root / "inventories/t").mkdir(parents=True)
        raw = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
        (root / "inventories/t/site.yml").write_text(yaml.safe_dump(raw), encoding="utf-8")
        self.ctx = PhaseContext("t", root, "hand-back-1")
        self.did: list[str] = []
        self.traces, self.after, self.scratch = TRACES, CLEAN, NO_SCRATCH
        self.users = Users({"/redfish/v1/SessionService/Sessions/1": "eve"}, ("admin",))
        self.drain: dict[str, NodeResult] = {}
        self.dies_at = ""
        self.boot_id = 1
        patch.setattr(hand_back, "take_out", self._take_out)
        patch.setattr(Return, "_on_node", self._on_node)
        patch.setattr(Return, "_door", lambda _self: Door(self))
        patch.setattr(reboot, "Nodes", lambda *_: Boots(self))
        patch.setattr(reboot, "_POLL_S", 0.01)

    def step(self, name: str) -> None:
        self.did.append(name)
        if name == self.dies_at:
            self.dies_at = ""
            raise SystemExit

    def _take_out(self, _ctx: PhaseContext, reasons: dict[str, str]) -> dict[str, NodeResult]:
        self.step(f"drain: {reasons['node01']}")
        return self.drain

    @contextmanager
    def _on_node(self) -> Iterator[Tenant]:
        yield Tenant(self)

    def ledger(self) -> Ledger:
        return Ledger.open(EnvPaths(self.ctx.root, "t").database)

    def in_state(self, state: NodeState) -> None:
        with self.ledger() as ledger:
            ledger.set_state("node01", state, "why")

    def status(self) -> str:
        with self.ledger() as ledger:
            last = ledger.latest("node01", HAND_BACK)
            return last.status if last is not None else "none"

    def scrub(self) -> int:
        return Return(self.ctx, "node01").scrub("lease ended")


class Tenant:
    def __init__(self, world: World) -> None:
        self.world = world

    def traces(self, *, scrub: bool) -> Left:
        self.world.step("scrub" if scrub else "look")
        if scrub:
            self.world.traces = self.world.after
        return self.world.traces

    def scratch(self, *, erase: bool) -> Scratch:
        if erase:
            self.world.step("erase")
            return replace(self.world.scratch, erased=["/dev/nvme1n1"])
        return self.world.scratch


class Door:
    def __init__(self, world: World) -> None:
        self.world = world

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def users(self) -> Users:
        return self.world.users

    def close_others(self) -> int:
        self.world.step("close sessions")
        self.world.users = Users({}, self.world.users.accounts)
        return 1


class Boots:
    def __init__(self, world: World) -> None:
        self.world = world

    def look(self, _node: str) -> BootReading:
        return BootReading(f"boot-{self.world.boot_id}")

    def reboot(self, _node: str) -> None:
        self.world.boot_id += 1
        self.world.step("reboot")

    def wait_until_up(self, _node: str, _timeout_s: float) -> None:
        return


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


ALL = ["drain: hand-back: lease ended", "look", "scrub", "erase", "close sessions", "reboot", "look"]


def test_the_steps_in_their_order_and_the_return_stays_open_until_gates_passed(world: World) -> None:
    token = world.scrub()
    assert world.did == ALL
    with world.ledger() as ledger:
        row = ledger.state("node01")
        assert row is not None
        assert (row.state, row.reason) == (NodeState.REACHABLE, "handed back: lease ended")
        found = open_return(ledger, "node01")
    assert str(found).replace(str(found).split("begun ")[1][:20], "TIME") == (
        "node01: return from its tenant - Expected: ended: scrubbed, rebooted, and its gates passed Actual: begun TIME "
        "and not ended. Run `rackready hand-back node01 --reason ... --yes`."
    )
    end(world.ctx, "node01", token)
    with world.ledger() as ledger:
        assert open_return(ledger, "node01") is None


def test_a_node_that_never_was_with_a_tenant_has_no_open_return(world: World) -> None:
    with world.ledger() as ledger:
        assert open_return(ledger, "node01") is None


@pytest.mark.parametrize("step", ALL[1:-1])
def test_after_a_kill_the_same_command_does_it_all_again(world: World, step: str) -> None:
    world.dies_at = step
    with pytest.raises(SystemExit):
        world.scrub()
    assert world.status() == "intent"
    world.did.clear()
    world.ctx = replace(world.ctx, campaign="hand-back-2")
    world.scrub()
    assert world.did == ALL
    with world.ledger() as ledger:
        assert [item.status for item in ledger.entries("node01") if item.operation == HAND_BACK] == ["failed", "intent"]


def test_a_kill_while_it_drains_leaves_the_return_open(world: World) -> None:
    world.dies_at = ALL[0]
    with pytest.raises(SystemExit):
        world.scrub()
    assert world.status() == "intent", "else the next deploy would put the drained node back as it is"


def refused(world: World) -> str:
    with pytest.raises(HandBackRefusedError) as caught:
        world.scrub()
    return str(caught.value)


def untouched(world: World) -> bool:
    return not {"scrub", "erase", "close sessions", "reboot"} & set(world.did)


def test_jobs_keep_the_node(world: World) -> None:
    world.drain = {"node01": NodeResult(Outcome.ERROR, "node01: jobs run on it")}
    assert refused(world) == "node01: jobs run on it"
    assert (world.did, world.status()) == (ALL[:1], "done")
    with world.ledger() as ledger:
        assert open_return(ledger, "node01") is None, "nothing has begun: the tenant is still there"


def test_jobs_keep_the_node_and_an_earlier_return_open(world: World) -> None:
    world.dies_at = "scrub"
    with pytest.raises(SystemExit):
        world.scrub()
    world.drain = {"node01": NodeResult(Outcome.ERROR, "node01: jobs run on it")}
    assert refused(world) == "node01: jobs run on it"
    with world.ledger() as ledger:
        assert open_return(ledger, "node01") is not None


def test_a_repair_ends_no_return(world: World) -> None:
    world.scrub()
    with world.ledger() as ledger:
        ledger.raise_epoch("node01", "repaired")
        assert open_return(ledger, "node01") is not None


def test_what_was_measured_before_the_return_counts_no_more(world: World) -> None:
    with world.ledger() as ledger:
        before = ledger.last_change("node01").at
    world.scrub()
    with world.ledger() as ledger:
        assert (before, ledger.last_change("node01").at > 0) == (0.0, True)


def test_programs_that_do_not_end_stop_it_before_the_drives_are_erased(world: World) -> None:
    world.after = Left({"process": ["99 miner (eve)"]}, {"process": 1})
    assert refused(world) == (
        "node01: programs of tenants - Expected: ended Actual: alive after SIGKILL: 99 miner (eve). They wait in the "
        "kernel: reset the node, then run again. Nothing but keys and schedules was removed."
    )
    assert not {"erase", "close sessions", "reboot"} & set(world.did)


def test_sessions_of_a_monitor_are_no_trace(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Door, "close_others", lambda _self: 1)
    world.users = Users({"/a": "monitor"}, ("admin",))
    raw = yaml.safe_load((world.ctx.root / "inventories/t/site.yml").read_text(encoding="utf-8"))
    assert refused(world).endswith("BMC session: monitor. End what brings it back, then run again. To be sure, image "
                                   "the node: `deploy --erase`.")  # fmt: skip
    raw["hand_back"] = {"bmc_accounts": ["monitor"]}
    world.ctx = replace(world.ctx, campaign="hand-back-2")
    (world.ctx.root / "inventories/t/site.yml").write_text(yaml.safe_dump(raw), encoding="utf-8")
    world.scrub()


def test_a_quarantined_node_with_an_open_return_goes_on_after_its_repair(world: World) -> None:
    world.scrub()
    world.in_state(NodeState.QUARANTINED)
    with pytest.raises(HandBackRefusedError) as caught:
        Return(world.ctx, "node01").require_state()
    assert str(caught.value).endswith("Run `rackready repair node01 --reason '...'` first, then run this again.")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"traces": Left({}, {}, refused="/home lies on lustre")},
            (
                "node01: scrub - Expected: its traces can be removed Actual: /home lies on lustre. Correct "
                "hand_back in the site file."
            ),
        ),
        (
            {"traces": Left({"elsewhere": ["/srv/a (eve)", "/srv/b (eve)"]}, {"elsewhere": 7})},
            (
                "node01: files of tenants - Expected: only where the site lets them be removed Actual: /srv/a (eve); "
                "/srv/b (eve) and 5 more. Name their folders in hand_back.empty, or in hand_back.spare where they may "
                "stay."
            ),
        ),
        (
            {"scratch": Scratch([], [], refused="/scratch: nothing is mounted there")},
            (
                "node01: scratch - Expected: its drives can be erased Actual: /scratch: nothing is mounted there. "
                "Correct hand_back.scratch, or image the node."
            ),
        ),
        (
            {"users": Users({}, ("admin", "eve"))},
            (
                "node01: BMC accounts - Expected: only those that the site names Actual: also eve. Remove or "
                "disable them, or name them in hand_back.bmc_accounts."
            ),
        ),
        (
            {"traces": Left({"gpu-memory": ["RMDisableScrubOnFree=1: the driver does not"]}, {"gpu-memory": 1})},
            (
                "node01: GPU memory - Expected: cleared by the driver when it is freed Actual: "
                "RMDisableScrubOnFree=1: the driver does not. Correct the driver's options; reboot."
            ),
        ),
    ],
)
def test_what_is_refused_before_anything_is_destroyed(world: World, change: dict[str, Any], text: str) -> None:
    for name, value in change.items():
        setattr(world, name, value)
    assert refused(world) == text
    assert untouched(world)
    assert world.status() == "intent"


def test_scratch_that_was_not_erased_stops_before_the_reboot(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Scratch([], [], refused="nvme format: exit 1", begun=True)
    monkeypatch.setattr(Tenant, "scratch", lambda _self, *, erase: failed if erase else NO_SCRATCH)
    assert refused(world) == (
        "node01: scratch - Expected: erased and recreated Actual: nvme format: exit 1. Nothing uses the drives now. "
        "Correct the cause, then run again: it begins with them."
    )
    assert "reboot" not in world.did


def test_what_comes_back_after_the_reboot_is_refused(world: World) -> None:
    world.after = Left({"file": ["/var/mail/eve (eve)"]}, {"file": 1})
    assert refused(world) == (
        "node01: after scrub and reboot - Expected: no trace of a tenant Actual: file: /var/mail/eve (eve). End what "
        "brings it back, then run again. To be sure, image the node: `deploy --erase`."
    )
    assert world.status() == "intent"


def test_a_node_that_does_not_boot_is_not_clean(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Boots, "look", lambda _self, _node: BootReading(failure="no answer"))
    assert refused(world).startswith("node01: reasons for a reboot - Expected: read from the node Actual: no answer.")


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (
            None,
            "node01 - Expected: a deployment record Actual: none. Run `rackready deploy --env t --limit node01` first.",
        ),
        (
            NodeState.QUARANTINED,
            (
                "node01 - Expected: a node in service Actual: quarantined (why). Run `rackready repair node01 "
                "--reason '...'` first, and `deploy` it."
            ),
        ),
        (
            NodeState.RETIRED,
            (
                "node01 - Expected: a node in service Actual: retired (why). Run `rackready repair node01 "
                "--reason '...'` first, and `deploy` it."
            ),
        ),
    ],
)
def test_nodes_that_are_not_in_service_are_refused(world: World, state: NodeState | None, text: str) -> None:
    if state is not None:
        world.in_state(state)
    with pytest.raises(HandBackRefusedError) as caught:
        Return(world.ctx, "node01").require_state()
    assert str(caught.value) == text


def test_a_node_of_no_site_is_refused(world: World) -> None:
    with pytest.raises(HandBackRefusedError) as caught:
        Return(world.ctx, "node99")
    text = (
        "node99 - Expected: one of node01, node02, node03, node04 Actual: no such node. Correct the name: "
        "`rackready status` lists the nodes."
    )
    assert str(caught.value) == text


def test_what_was_found_in_words(world: World) -> None:
    world.scratch = Scratch(["/scratch (xfs) on /dev/nvme1n1"], [])
    world.users = Users({"/a": "eve", "/b": "root"}, ("admin", "eve"))
    assert Return(world.ctx, "node01").look().lines() == [
        "process: 77 miner (eve)",
        "file: /scratch/x (eve)",
        "scratch: /scratch (xfs) on /dev/nvme1n1",
        "BMC session: eve, root",
        "BMC account: eve",
    ]


def test_gates_that_need_more_nodes_are_left_to_the_deploy(world: World) -> None:
    site = alone(load_site("t", root=world.ctx.root), "node01")
    assert site.gates.set == "maintenance"
    skipped = site.gates.skipped("node01", date(2026, 11, 28))
    assert {name.split("/")[0] for name in skipped} == {"pair"}
    assert set(skipped.values()) == {"needs other nodes: the deploy that follows measures it with partners"}
    assert site.gates.skipped("node02", date(2026, 11, 28)) == {}


class Cluster:
    """A scheduler in which some nodes have jobs."""

    def __init__(self, *busy: str) -> None:
        self.busy = busy

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def jobs(self, node: str) -> list[str]:
        if self.busy == ("away",):
            raise SchedulerError("slurmctld does not answer")
        return ["4711"] if node in self.busy else []


@pytest.mark.parametrize(
    ("ready", "busy", "found"),
    [
        (["node01", "node03", "node04"], ["node03"], ["node04"]),
        (["node01", "node03", "node04"], ["node03", "node04"], ["node03"]),
        (["node01", "node03"], ["away"], ["node03"]),
        (["node01"], [], []),
    ],
)
def test_a_partner_is_a_node_in_service_without_jobs_if_there_is_one(
    world: World, monkeypatch: pytest.MonkeyPatch, ready: list[str], busy: list[str], found: list[str]
) -> None:
    with world.ledger() as ledger:
        ledger.set_state("node02", NodeState.QUARANTINED, "x")
        for name in ready:
            ledger.set_state(name, NodeState.READY, "x")
    monkeypatch.setattr(hand_back, "reader_for", lambda *_: Cluster(*busy))
    assert partners(world.ctx, "node01") == found


def test_a_scrub_that_broke_off_stops_it_before_the_drives_are_erased(world: World) -> None:
    world.after = Left({}, {}, refused="its files cannot be looked at: x was moved")
    assert refused(world) == (
        "node01: scrub - Expected: ended Actual: its files cannot be looked at: x was moved. Look at the node's disks "
        "and its log, then run again. Scratch was not erased."
    )
    assert not {"erase", "close sessions", "reboot"} & set(world.did)


def test_a_partner_has_the_scheduler_of_the_node(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = world.ctx.root / "inventories/t/site.yml"
    path.write_text(yaml.safe_dump(document(part("node[01,04]", SLURM), part("node[02-03]", KUBERNETES))))
    with world.ledger() as ledger:
        for name in ("node01", "node02", "node03", "node04"):
            ledger.set_state(name, NodeState.READY, "x")
    monkeypatch.setattr(hand_back, "reader_for", lambda *_: Cluster())
    assert partners(world.ctx, "node01") == ["node04"]

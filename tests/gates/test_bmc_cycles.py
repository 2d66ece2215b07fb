"""Power cycles: an inventory after each, which names missing parts.

A kill leaves no node off, and no node in production is touched.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from rackready.design.site import load_site
from rackready.drivers import redfish
from rackready.drivers.redfish_read import sealed
from rackready.drivers.remote import Answer
from rackready.drivers.scheduler.base import Job, SchedulerError, SchedulerNode, UnknownNodeError
from rackready.gates.base import Output, Run
from rackready.gates.bmc import cycle as module
from rackready.gates.bmc import guard
from rackready.gates.bmc.connection import Bmcs
from rackready.gates.bmc.cycle import OPERATION, Cycler
from rackready.gates.bmc.cycles import PowerCycles
from rackready.gates.engine.runner import Attempt, Runner
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome, Verdict
from rackready.model.site import Bmc as BmcSite
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.gates.fake import FakeConnection, answered
from tests.gates.support import Told, document, tells
from tests.gates.support import rack as facts
from tests.stacks.fake_rack import FakeNode, FakeRack


class Host:
    """Answers of the node's commands: a new boot id after every power cycle.

    A test may remove parts from a certain cycle on.
    """

    def __init__(self, boots: Callable[[], int]) -> None:
        self.boots = boots
        self.change: Callable[[dict[str, Any], int], object] = lambda _parts, _boots: None
        self.gpus: Callable[[dict[str, Any], int], object] = lambda _gpus, _boots: None
        self.back = 0

    def connection(self) -> FakeConnection:
        return FakeConnection(
            {
                "Print NVML's inventory": lambda *_: self._answer(document("nvml/dgx_h100_healthy.json"), self.gpus),
                "Print a node's identity": lambda *_: answered(
                    json.dumps(
                        {
                            "format": "rackready/fingerprint/v1",
                            "nics": [{"device": "mlx5_0", "guid": "b8"}],
                            "complete": True,
                        }
                    )
                ),
                "Print the parts": lambda *_: self._answer(self._parts(), self.change),
                "touch /run/rackready-before-cycle": answered(),
                "test ! -e": lambda *_: answered(code=self.back),
            }
        )

    def _parts(self) -> dict[str, Any]:
        pci = {"0000:18:00.0": {"id": "0x15b3:0x1021", "class": "0x020000", "width": 16}}
        disks = {"S4XX01": {"name": "nvme0n1", "sectors": "7501476528"}}
        return {
            "format": "rackready/part-inventory/v1",
            "boot_id": f"boot-{self.boots()}",
            "pci": pci,
            "disks": disks,
            "memory_bytes": 2**41,
            "complete": True,
        }

    def _answer(self, found: dict[str, Any], change: Callable[[dict[str, Any], int], object]) -> Answer:
        change(found, self.boots())
        return answered(json.dumps(found))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A BMC is asked again after milliseconds instead of a second."""
    monkeypatch.setattr(
        redfish, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: time.sleep(min(seconds, 0.01)))
    )


@pytest.fixture
def bmcs(tmp_path: Path) -> Iterator[FakeRack]:
    made = FakeRack(tmp_path / "rack", 1, net=83)
    yield made
    made.stop()


@pytest.fixture
def node(bmcs: FakeRack) -> FakeNode:
    bmcs.set_power(bmcs.nodes[0], "On")
    return bmcs.nodes[0]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger.open(tmp_path / "state.sqlite")
    yield made
    made.close()


def way(bmcs: FakeRack, ledger: Ledger, refuse: str = "") -> Bmcs:
    site = BmcSite.model_validate(bmcs.site()["racks"][0]["nodes"][0]["bmc"])
    return Bmcs({"node01": site}, Cycler(ledger, "c1", lambda _node: refuse, lambda _node: "FAKE-0001", rest_s=0.0))


def boots(node: FakeNode) -> int:
    return node.boots()


def measured(host: Host, bmc: Bmcs, cycles: int = 2, **inputs: object) -> tuple[Verdict, list[Attempt]]:
    attempts: list[Attempt] = []
    runner = Runner(host.connection(), facts(), lambda _gate, attempt: attempts.append(attempt), bmc=bmc, wait_s=0.01)
    done = runner.gate(PowerCycles({"cycles": cycles, "boot_s": 30, **inputs}), ["node01"])
    return done[0].verdict, attempts


def test_a_node_that_comes_back_whole_passes_cold_and_warm_in_turn(
    bmcs: FakeRack, node: FakeNode, ledger: Ledger
) -> None:
    found, attempts = measured(Host(lambda: boots(node)), way(bmcs, ledger), cycles=3)
    assert (found.outcome, tells(found)) == (Outcome.PASS, [])
    assert found.note == "3 of 3 power cycles (cold, warm), 12 parts compared after each"
    assert node.asked == ["GracefulShutdown", "On", "ForceRestart", "GracefulShutdown", "On"]
    assert [entry.status for entry in ledger.entries("node01") if entry.operation == OPERATION] == ["done"] * 3
    assert len(attempts) == 1


def test_a_gpu_that_does_not_come_back_is_named_with_its_serial_and_ends_the_row(
    bmcs: FakeRack, node: FakeNode, ledger: Ledger
) -> None:
    def lose(found: dict[str, Any], count: int) -> None:
        if count >= 2:
            found["count"] = 7
            del found["gpus"][5]

    host = Host(lambda: boots(node))
    host.gpus = lose
    found, _ = measured(host, way(bmcs, ledger), cycles=4)
    serial = document("nvml/dgx_h100_healthy.json")["gpus"][5]["serial"]
    assert found.outcome is Outcome.FAIL
    assert len(found.findings) == 1
    code, where, expected, *values = tells(found)[0]
    assert (code, where, values) == ("part-gone-after-cycle", f"node01 gpu {serial}", ["not there", "cycle=2 (warm)"])
    assert expected.startswith("NVIDIA H100 80GB HBM3 at ")
    assert node.asked == ["GracefulShutdown", "On", "ForceRestart"], "a node that lost a part is not cycled again"


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (
            lambda found: found["pci"]["0000:18:00.0"].update(width=8),
            ("part-width-changed-with-cycle", "node01 pci 0000:18:00.0", "x16", "x8", "cycle=1 (cold)"),
        ),
        (
            lambda found: found["disks"].pop("S4XX01"),
            ("part-gone-after-cycle", "node01 disk S4XX01", "7501476528 sectors", "not there", "cycle=1 (cold)"),
        ),
        (
            lambda found: found["pci"].pop("0000:18:00.0"),
            ("part-gone-after-cycle", "node01 pci 0000:18:00.0", "0x15b3:0x1021", "not there", "cycle=1 (cold)"),
        ),
        (
            lambda found: found.update(memory_bytes=2**41 - 2**36),
            ("part-changed-with-cycle", "node01 memory", "2048 GiB", "1984 GiB", "cycle=1 (cold)"),
        ),
        (
            lambda found: found["disks"].update(S4XX02={"name": "nvme1n1", "sectors": "7501476528"}),
            ("part-came-with-cycle", "node01 disk S4XX02", "not there", "7501476528 sectors", "cycle=1 (cold)"),
        ),
    ],
)
def test_what_differs_after_a_cycle_is_named(
    bmcs: FakeRack, node: FakeNode, ledger: Ledger, change: Callable[[dict[str, Any]], object], finding: Told
) -> None:
    host = Host(lambda: boots(node))
    host.change = lambda found, count: change(found) if count else None
    found, _ = measured(host, way(bmcs, ledger))
    assert (found.outcome, tells(found)) == (Outcome.FAIL, [finding])


def test_parts_that_can_no_longer_be_listed_after_a_cycle_are_a_fail(
    bmcs: FakeRack, node: FakeNode, ledger: Ledger
) -> None:
    host = Host(lambda: boots(node))
    host.gpus = lambda found, count: found.pop("complete") if count else None
    found, _ = measured(host, way(bmcs, ledger))
    wanted = (
        "cycle-later-look",
        "node01",
        "the same parts as before",
        "the document is not complete",
        "number=1",
        "cycle=cold",
    )
    assert (tells(found), found.outcome) == ([wanted], Outcome.FAIL)
    assert node.asked == ["GracefulShutdown", "On"]


def test_more_differences_than_are_named_are_counted(bmcs: FakeRack, node: FakeNode, ledger: Ledger) -> None:
    def add(found: dict[str, Any], count: int) -> None:
        found["disks"] |= {f"S{more}": {"name": f"nvme{more}n1", "sectors": "1"} for more in range(18) if count}

    host = Host(lambda: boots(node))
    host.change = add
    found, _ = measured(host, way(bmcs, ledger))
    codes = [finding.code for finding in found.findings]
    assert codes == [*["part-came-with-cycle"] * 16, "cycle-further-differences"]
    assert (tells(found)[-1][1:], found.outcome) == (("node01", "none", "2", "cycle=1 (cold)"), Outcome.FAIL)


def test_a_link_that_is_slower_after_a_cycle_is_named(bmcs: FakeRack, node: FakeNode, ledger: Ledger) -> None:
    host = Host(lambda: boots(node))
    host.change = lambda found, count: found["pci"]["0000:18:00.0"].update(
        speed="16.0 GT/s PCIe" if count else "32.0 GT/s PCIe"
    )
    found, _ = measured(host, way(bmcs, ledger))
    wanted = (
        "part-speed-changed-with-cycle",
        "node01 pci 0000:18:00.0",
        "32.0 GT/s PCIe",
        "16.0 GT/s PCIe",
        "cycle=1 (cold)",
    )
    assert (tells(found), found.outcome) == ([wanted], Outcome.FAIL)


def test_a_node_that_does_not_come_back_is_a_fail_and_not_tried_again(
    bmcs: FakeRack, node: FakeNode, ledger: Ledger
) -> None:
    host = Host(lambda: boots(node))
    host.back = 1
    runner = Runner(host.connection(), facts(), lambda *_: None, bmc=way(bmcs, ledger), wait_s=0.01)
    gate = PowerCycles({"cycles": 2, "boot_s": 30})
    object.__setattr__(gate, "inputs", gate.inputs.model_copy(update={"boot_s": 0.2}))
    found = runner.gate(gate, ["node01"])[0].verdict
    assert tells(found) == [
        ("cycle-not-back", "node01", "a booted system that answers on SSH", "not after 0 s", "number=1", "cycle=cold")
    ]
    assert node.asked == ["GracefulShutdown", "On"]


def test_a_cycle_after_which_the_same_boot_answers_did_not_happen(
    bmcs: FakeRack, node: FakeNode, ledger: Ledger
) -> None:
    found, attempts = measured(Host(lambda: 0), way(bmcs, ledger))
    assert (found.outcome, tells(found)) == (
        Outcome.ERROR,
        [("cycle-did-not-happen", "node01", "another boot id", "boot-0", "cycle=1 (cold)")],
    )
    assert node.asked == ["GracefulShutdown", "On"]
    assert len(attempts) == 1, "an error of a gate that takes the power away is not tried again by itself"


def test_nothing_is_cycled_when_the_first_look_is_not_whole(bmcs: FakeRack, node: FakeNode, ledger: Ledger) -> None:
    host = Host(lambda: boots(node))
    host.gpus = lambda found, _count: found.pop("complete")
    found, _ = measured(host, way(bmcs, ledger))
    assert found.outcome is Outcome.ERROR
    assert tells(found)[0] == ("cycle-first-look", "node01", "a complete one", "the document is not complete")
    assert node.asked == []


def test_a_node_in_production_is_refused_and_nothing_is_done(bmcs: FakeRack, node: FakeNode, ledger: Ledger) -> None:
    found, _ = measured(Host(lambda: boots(node)), way(bmcs, ledger, "the scheduler may start jobs on it"))
    assert (found.outcome, tells(found)) == (
        Outcome.ERROR,
        [
            (
                "cycle-not-done",
                "node01 BMC",
                "power off and on again",
                (
                    "node01: power cycle: the scheduler may start jobs on it (expected: a node on which "
                    "no jobs run or may start). Nothing was done to it: drain it first"
                ),
                "what=power cycle 1",
            )
        ],
    )
    assert node.asked == []
    assert ledger.entries("node01") == []


class Killed(BaseException):
    """Stands for SIGKILL: none of our code runs after it."""


def test_a_kill_between_off_and_on_is_found_and_the_node_powered_on_first(
    bmcs: FakeRack, node: FakeNode, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = BmcSite.model_validate(bmcs.site()["racks"][0]["nodes"][0]["bmc"])

    def killed(_seconds: float) -> None:
        raise Killed

    cycler = Cycler(ledger, "c1", lambda _node: "", lambda _node: "FAKE-0001", rest_s=0.01)
    with monkeypatch.context() as patch:
        patch.setattr(module.time, "sleep", lambda seconds: killed(seconds) if node.power == "Off" else None)
        with pytest.raises(Killed):
            cycler.cycle("node01", site, "cold", "1", proceed=lambda: None)
    assert node.power == "Off"
    assert [entry.status for entry in ledger.entries("node01")] == ["intent"]
    done = Cycler(ledger, "c2", lambda _node: "", lambda _node: "FAKE-0001", rest_s=0.0).cycle(
        "node01", site, "warm", "1", proceed=lambda: None
    )
    assert (done["kind"], done["result"], done["complete"]) == ("warm", "done", True)
    assert node.asked == ["GracefulShutdown", "On", "ForceRestart"], "powered on first, then cycled once"
    assert [entry.status for entry in ledger.entries("node01")] == ["done", "done"]
    assert ledger.entries("node01")[0].result == {"interrupted": True, "power": "On"}


def test_another_machine_behind_the_bmc_is_never_cycled(bmcs: FakeRack, node: FakeNode, ledger: Ledger) -> None:
    site = BmcSite.model_validate(bmcs.site()["racks"][0]["nodes"][0]["bmc"])
    bmc = Bmcs({"node01": site}, Cycler(ledger, "c1", lambda _node: "", lambda _node: "OTHER", rest_s=0.0))
    answer = bmc.run("node01", ("CYCLE", "cold", "1"), timeout_s=30)
    assert "answers for another machine, nothing was done to it" in answer.failure
    assert node.asked == []


def test_ac_is_refused_where_the_bmc_cannot(bmcs: FakeRack, node: FakeNode, ledger: Ledger) -> None:
    answer = way(bmcs, ledger).run("node01", ("CYCLE", "ac", "1"), timeout_s=30)
    assert answer.failure.endswith(
        "AC power cycle - Expected: outlets of the node in the site file, reset type FullPowerCycle, or a known action "
        "of the vendor Actual: none of them. Choose kind auto, cold or warm."
    )
    assert node.asked == []


def test_requests_that_nobody_knows_and_bmcs_that_nobody_gave_are_refused(
    bmcs: FakeRack, node: FakeNode, ledger: Ledger
) -> None:
    del node
    assert (
        "Expected: GET, or CYCLE where power may be cycled Actual: POST"
        in way(bmcs, ledger).run("node01", ("POST", "x"), timeout_s=5).failure
    )
    assert (
        way(bmcs, ledger)
        .run("node09", ("GET", "Systems/*"), timeout_s=5)
        .failure.startswith("node09: bmc - Expected: address and password in the site file")
    )


class Scheduler:
    """Answers for one node."""

    def __init__(self, *, usable: bool = False, jobs: int = 0, error: SchedulerError | None = None) -> None:
        self.node = SchedulerNode("node01", "idle", usable, drained=not usable, down=False)
        self.held = [Job(str(index), "ada", "gpu", "train") for index in range(jobs)]
        self.error = error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, _node: str) -> SchedulerNode:
        if self.error:
            raise self.error
        return self.node

    def jobs(self, _node: str) -> list[Job]:
        return self.held


@pytest.mark.parametrize(
    ("scheduler", "state", "why"),
    [
        (Scheduler(usable=True), None, "the scheduler may start jobs on it"),
        (Scheduler(jobs=2), None, "job 0 of ada runs on it"),
        (Scheduler(), NodeState.READY, ""),
        (Scheduler(error=UnknownNodeError("no such node")), NodeState.READY, ""),
        (
            Scheduler(error=SchedulerError("slurmctld is silent")),
            NodeState.READY,
            "the scheduler does not answer (slurmctld is silent)",
        ),
        (Scheduler(error=SchedulerError("slurmctld is silent")), NodeState.INSTALLED, ""),
    ],
)
def test_who_may_lose_its_power(
    scheduler: Scheduler,
    state: NodeState | None,
    why: str,
    ledger: Ledger,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guard, "adapter_for", lambda _site, _paths: scheduler)
    if state is not None:
        ledger.set_state("node01", state)
    assert guard.refusal(load_site("sim"), ledger, EnvPaths(tmp_path, "sim"), "node01") == why


def test_a_missing_look_is_not_taken_for_a_whole_one() -> None:
    gate = PowerCycles({"cycles": 1})
    run = gate.plan(facts(), ["node01"])[0]
    found = gate.evaluate(facts(), run, {"gpus-0": Output("gpus-0", "node01", "x", 0, "")})
    assert tells(found)[0] == ("cycle-first-look", "node01", "a complete one", "empty output")


def _outputs_of_one_cycle(bmcs: FakeRack, node: FakeNode, ledger: Ledger) -> tuple[PowerCycles, Run, dict[str, Output]]:
    _, attempts = measured(Host(lambda: boots(node)), way(bmcs, ledger), cycles=1)
    return PowerCycles({"cycles": 1, "boot_s": 30}), attempts[0].run, dict(attempts[0].outputs)


@pytest.mark.parametrize("key", ["mark-1", "cycle-1"])
def test_a_cycle_of_which_a_command_is_missing_did_not_happen(
    bmcs: FakeRack, node: FakeNode, ledger: Ledger, key: str
) -> None:
    gate, run, outputs = _outputs_of_one_cycle(bmcs, node, ledger)
    assert gate.evaluate(facts(), run, outputs).outcome is Outcome.PASS
    del outputs[key]
    found = gate.evaluate(facts(), run, outputs)
    said = ("cycle-not-run", "node01 BMC", "a power cycle, after a mark on the node", "none", "what=power cycle 1")
    assert (found.outcome, tells(found)) == (Outcome.ERROR, [said])


def test_a_mark_that_did_not_end_is_an_error(bmcs: FakeRack, node: FakeNode, ledger: Ledger) -> None:
    gate, run, outputs = _outputs_of_one_cycle(bmcs, node, ledger)
    outputs["mark-1"] = replace(outputs["mark-1"], exit_code=None, timed_out=True)
    said = ("cycle-not-begun", "node01", "SSH answers before it", "exit None", "what=power cycle 1")
    assert tells(gate.evaluate(facts(), run, outputs)) == [said]


def test_a_cycle_of_a_kind_that_nobody_knows_is_unreadable(bmcs: FakeRack, node: FakeNode, ledger: Ledger) -> None:
    gate, run, outputs = _outputs_of_one_cycle(bmcs, node, ledger)
    done = json.loads(outputs["cycle-1"].stdout)
    del done["kind"]
    outputs["cycle-1"] = replace(outputs["cycle-1"], stdout=json.dumps(done))
    found = gate.evaluate(facts(), run, outputs)
    assert found.outcome is Outcome.ERROR
    code, where, expected, _, *values = tells(found)[0]
    assert (code, where, values) == ("cycle-unreadable", "node01 BMC", ["what=power cycle 1"])
    assert expected == "a document of format rackready/power-cycle/v1"


def test_parts_that_the_bmc_could_not_tell_are_not_taken_for_gone(
    bmcs: FakeRack, node: FakeNode, ledger: Ledger
) -> None:
    gate, run, outputs = _outputs_of_one_cycle(bmcs, node, ledger)
    told = json.loads(outputs["bmc-0"].stdout)
    told["unread"]["/redfish/v1/Systems/1/Memory/DIMM1"] = "HTTP 500"
    outputs["bmc-0"] = replace(outputs["bmc-0"], stdout=json.dumps(sealed(told)))
    found = gate.evaluate(facts(), run, outputs)
    assert (found.outcome, tells(found)) == (
        Outcome.ERROR,
        [
            (
                "cycle-first-look",
                "node01",
                "a complete one",
                "the BMC did not report its parts: /redfish/v1/Systems/1/Memory/DIMM1: HTTP 500",
            )
        ],
    )


def test_a_bmc_whose_storage_lists_no_members_does_not_end_the_series(
    bmcs: FakeRack, node: FakeNode, ledger: Ledger
) -> None:
    """As a DGX H100's: Systems/DGX/Storage of the mockup nvidia_viking."""
    gate, run, outputs = _outputs_of_one_cycle(bmcs, node, ledger)
    at = "/redfish/v1/Systems/DGX/Storage"
    for key in ("bmc-0", "bmc-1"):
        told = json.loads(outputs[key].stdout)
        told |= {"unread": {at: "no collection: it has no Members"}, "no_members": [at]}
        outputs[key] = replace(outputs[key], stdout=json.dumps(sealed(told)))
    assert not gate.ended(run, outputs)
    found = gate.evaluate(facts(), run, outputs)
    assert (found.outcome, tells(found)) == (Outcome.PASS, [])
    assert str(found.note).endswith(f"; drives by the kernel alone: the BMC's {at} lists no members")

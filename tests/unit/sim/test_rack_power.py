"""What the BMCs do: boots counted, actions logged once each, reboots seen, nothing done twice."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rackready_sim.boot import BootSettings
from rackready_sim.errors import describe
from rackready_sim.machines import REBOOTED
from rackready_sim.podman import Container
from rackready_sim.redfish.power import NodePower
from rackready_sim.store import Store


class FakeMachines:
    """Containers that start and stop at once, unless told to wait."""

    def __init__(self) -> None:
        self.plan = SimpleNamespace(machines={"node01": SimpleNamespace(container="rr-x-node01")})
        self.on = False
        self.exit_code = 0
        self.boots = 0
        self.hold: Callable[[], bool] = lambda: False
        self.fail = False
        self.refusals: list[str] = []

    def refuse(self, act: str) -> None:
        if act in self.refusals:
            self.refusals.remove(act)
            raise describe("node01", "a container that ended", "cleanup", "Run again.")

    def running(self, name: str) -> bool:
        del name
        self.refuse("running")
        return self.on

    def boot(self, name: str) -> bool:
        del name
        while self.hold():
            time.sleep(0.01)
        self.refuse("boot")
        if self.fail:
            raise RuntimeError("no disk")
        self.on = True
        self.boots += 1
        return True

    def halt(self, name: str, *, graceful: bool) -> bool:
        del name, graceful
        self.refuse("halt")
        was, self.on = self.on, False
        return was

    def inspect(self, name: str) -> Container:
        return Container(name, "running" if self.on else "exited", 0, self.exit_code)


class Bench:
    """The power of one node, on fakes."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root)
        self.store.write_state("node01", {"boot_count": 0})
        self.machines = FakeMachines()
        self.power = NodePower(lambda: self.machines, self.store, ["node01"])  # type: ignore[arg-type, return-value]

    def do(self, action: str) -> None:
        self.power.request("node01", action)
        self.settle()

    def settle(self) -> None:
        self.power._queues["node01"].submit(lambda: None).result(timeout=10)

    def log(self) -> list[tuple[str, str]]:
        path = self.store.power_log
        lines: list[dict[str, Any]] = (
            [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        )
        return [(line["action"], line["by"]) for line in lines]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path)
    monkeypatch.setattr("rackready_sim.podman.inspect", made.machines.inspect)
    monkeypatch.setattr(NodePower, "_watch", lambda *_: None)
    return made


def test_power_on_boots_counts_and_logs_once(bench: Bench) -> None:
    BootSettings(bench.store, "node01").change(target="Pxe", enabled="Once")
    bench.do("On")
    bench.do("On")
    assert bench.machines.boots == 1
    assert bench.store.state("node01")["boot_count"] == 1
    assert bench.log() == [("on", "bmc")]
    assert BootSettings(bench.store, "node01").read()["enabled"] == "Disabled"
    assert bench.power.state("node01") == "On"


def test_off_when_off_does_nothing(bench: Bench) -> None:
    bench.do("ForceOff")
    bench.do("GracefulShutdown")
    assert bench.log() == []
    assert bench.power.state("node01") == "Off"


@pytest.mark.parametrize(
    ("action", "logged"),
    [
        ("ForceOff", "off"),
        ("GracefulShutdown", "graceful-off"),
        ("ForceRestart", "reset"),
        ("GracefulRestart", "graceful-restart"),
    ],
)
def test_each_action_is_logged_by_its_name(bench: Bench, action: str, logged: str) -> None:
    bench.do("On")
    bench.do(action)
    assert bench.log() == [("on", "bmc"), (logged, "bmc")]
    assert bench.store.state("node01")["boot_count"] == (2 if "Restart" in action else 1)


def test_the_answer_does_not_wait_for_the_boot(bench: Bench) -> None:
    held = [True]
    bench.machines.hold = lambda: held[0]
    bench.power.request("node01", "On")
    assert bench.power.state("node01") == "PoweringOn"
    held[0] = False
    bench.settle()
    assert bench.power.state("node01") == "On"


def test_during_a_reset_the_machine_is_not_on(bench: Bench) -> None:
    bench.do("On")
    held = [True]
    bench.machines.hold = lambda: held[0]
    bench.power.request("node01", "ForceRestart")
    assert bench.power.state("node01") == "PoweringOn"
    held[0] = False
    bench.settle()
    assert bench.power.state("node01") == "On"


def test_a_boot_that_fails_leaves_the_node_off_and_logs_no_action(bench: Bench) -> None:
    bench.machines.fail = True
    bench.do("On")
    assert bench.power.state("node01") == "Off"
    assert bench.log() == []


@pytest.mark.parametrize("refusal", ["running", "boot", "halt"])
def test_a_reset_that_podman_refuses_once_boots_all_the_same(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, refusal: str
) -> None:
    monkeypatch.setattr("rackready_sim.redfish.power._TRY_AGAIN_S", 0.0)
    bench.do("On")
    bench.machines.refusals = [refusal] * 2
    bench.do("ForceRestart")
    assert bench.machines.refusals == []
    assert bench.power.state("node01") == "On"
    assert bench.store.state("node01")["boot_count"] == 2
    assert bench.log() == [("on", "bmc"), ("reset", "bmc")]


def test_a_reset_that_podman_keeps_refusing_leaves_the_node_off(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackready_sim.redfish.power._TRY_AGAIN_S", 0.0)
    bench.do("On")
    bench.machines.refusals = ["boot"] * 9
    bench.do("ForceRestart")
    assert bench.power.state("node01") == "Off"
    assert bench.log() == [("on", "bmc")]


@pytest.mark.parametrize(("exit_code", "boots"), [(129, 2), (130, 1), (137, 1), (0, 1)])
def test_only_a_system_that_asked_for_a_reboot_is_started_again(bench: Bench, exit_code: int, boots: int) -> None:
    bench.do("On")
    bench.machines.on, bench.machines.exit_code = False, exit_code
    bench.power._watch_or_reboot("node01", ended=4711)
    assert bench.machines.boots == boots
    assert bench.log()[1:] == ([("reboot", "host")] if boots == 2 else [])


def test_a_reboot_asked_for_while_no_emulator_ran_is_done_at_its_start(bench: Bench) -> None:
    bench.machines.exit_code = 129
    bench.power.adopt()
    bench.settle()
    assert bench.machines.boots == 1


def test_a_switch_that_reboots_is_booted_and_cabled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, settled = Bench(tmp_path), []
    bench.store.write_state("spine01", {"power": "on"})
    bench.machines.plan.machines["spine01"] = SimpleNamespace(container="rr-x-spine01")
    monkeypatch.setattr(bench.machines, "settle_switch", lambda name: bool(settled.append(name)), raising=False)
    monkeypatch.setattr("rackready_sim.podman.inspect", bench.machines.inspect)
    monkeypatch.setattr(NodePower, "_watch", lambda *_: None)
    machines: Any = bench.machines
    power = NodePower(lambda: machines, bench.store, ["node01"], ["spine01"])
    machines.exit_code = REBOOTED
    power._watch_or_reboot("spine01")
    assert (machines.boots, settled) == (1, ["spine01"])
    machines.on, machines.exit_code = False, 0
    power._watch_or_reboot("spine01")
    assert machines.boots == 1, "it was powered off"


def test_a_node_whose_first_process_is_watched_is_on_without_a_question_to_podman(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, asked = Bench(tmp_path), []
    with subprocess.Popen(["sleep", "60"]) as first:
        monkeypatch.setattr(
            "rackready_sim.podman.inspect",
            lambda name: Container(name, "running" if first.poll() is None else "exited", first.pid, 0),
        )
        monkeypatch.setattr(bench.machines, "running", lambda name: bool(asked.append(name)) or first.poll() is None)
        bench.power.adopt()
        _until(lambda: bench.power.state("node01") == "On" and "node01" in bench.power._watched)
        asked.clear()
        assert bench.power.state("node01") == "On"
        assert asked == []
        first.kill()
    _until(lambda: bench.power.state("node01") == "Off")
    assert asked[-1] == "node01"


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)

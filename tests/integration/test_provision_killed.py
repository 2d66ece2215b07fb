"""Controller, engine or provider dies during provisioning: the next run continues, nothing is powered on twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rackready.drivers.process import reap
from rackready.ledger.lock import ControllerLock
from tests.integration.provisioning import ROOT, Bench, engine_missing
from tests.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.skipif(bool(engine_missing()), reason=engine_missing())]
NODES = ["node01", "node02", "node03", "node04"]
_CONTROLLER = """
import signal, sys
from pathlib import Path
from rackready.drivers import process
from rackready.model.phase import PhaseContext
from rackready.stacks.provision import run_provision
signal.signal(signal.SIGINT, lambda *_: process.STOP.set())
try:
    context = PhaseContext("bench", Path(sys.argv[1]), "killed")
    results = run_provision(context, ["node01", "node02", "node03", "node04"])
except process.Interrupted:
    sys.exit(130)
print({node: result.outcome.value for node, result in results.items()})
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "clone", net=91)
    yield made
    made.rack.stop()


def start(bench: Bench) -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen([sys.executable, "-c", _CONTROLLER, str(bench.root)], env=env, start_new_session=True)


def ours(bench: Bench) -> dict[int, str]:
    """Every process that works for this environment, with its name."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environ = (entry / "environ").read_bytes()
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            if f"RACKREADY_STATE_DIR={bench.paths.state}".encode() in environ and stat[stat.rfind(")") + 2] != "Z":
                found[int(entry.name)] = stat[stat.find("(") + 1 : stat.rfind(")")]
    return found


def boots(bench: Bench) -> list[int]:
    return [node.boots() for node in bench.rack.nodes]


def any_asked(bench: Bench) -> bool:
    return any(node.boots() for node in bench.rack.nodes)


def any_on(bench: Bench) -> bool:
    return any(node.power == "On" for node in bench.rack.nodes)


def one_recorded(bench: Bench) -> bool:
    return len((bench.paths.known_hosts.read_text() if bench.paths.known_hosts.exists() else "").splitlines()) == 1


def goes_on(bench: Bench) -> None:
    results = bench.provision()
    assert {node: result.outcome.value for node, result in results.items()} == dict.fromkeys(NODES, "pass"), results
    assert boots(bench) == [1, 1, 1, 1]
    assert all(result.data["made"] for result in results.values())
    assert not ours(bench)


@pytest.mark.parametrize("moment", [any_asked, one_recorded])
def test_controller_killed_the_next_run_ends_what_is_left_and_goes_on(
    bench: Bench, moment: Callable[[Bench], bool]
) -> None:
    for node, boot_s in zip(bench.rack.nodes, (0.5, 6, 6, 6), strict=True):
        node.power_lag_s, node.boot_s = 1.5, boot_s
    controller = start(bench)
    until(lambda: moment(bench))
    controller.send_signal(signal.SIGKILL)
    controller.wait()
    left = ours(bench)
    assert "pulumi" in left.values()
    ledger = bench.ledger()
    with ControllerLock(bench.paths.lock, "test", bench.paths.database):
        assert reap(ledger)
    ledger.close()
    until(lambda: not ours(bench), 5)
    goes_on(bench)


def test_all_but_the_provider_killed_it_ends_by_itself_and_the_lock_is_got_over(bench: Bench) -> None:
    for node in bench.rack.nodes:
        node.power_lag_s, node.boot_s = 1.5, 6
    controller = start(bench)
    until(lambda: any_asked(bench))
    for pid in [controller.pid, *(pid for pid, name in ours(bench).items() if not name.startswith("pulumi-resource"))]:
        os.kill(pid, signal.SIGKILL)
    controller.wait()
    until(lambda: not ours(bench), 5)
    assert list((bench.paths.pulumi / ".pulumi" / "locks").rglob("*.json")), "the engine left its lock"
    goes_on(bench)


def test_killed_and_then_given_up_what_was_powered_on_is_powered_off(bench: Bench) -> None:
    for node in bench.rack.nodes:
        node.boot_s = 30
    controller = start(bench)
    until(lambda: all(node.power == "On" for node in bench.rack.nodes[:2]))
    for pid in [controller.pid, *ours(bench)]:
        os.kill(pid, signal.SIGKILL)
    controller.wait()
    found = bench.destroy()
    assert {result.outcome.value for result in found.values()} == {"pass"}, found
    assert [node.power for node in bench.rack.nodes] == ["Off"] * 4


def test_the_provider_killed_is_an_error_of_the_nodes_in_flight(bench: Bench) -> None:
    for node in bench.rack.nodes:
        node.boot_s = 3
    controller = start(bench)
    until(lambda: any_on(bench))
    provider = next(pid for pid, name in ours(bench).items() if name.startswith("pulumi-resource"))
    os.kill(provider, signal.SIGKILL)
    assert controller.wait(timeout=60) == 0
    goes_on(bench)


def test_a_stop_ends_within_half_a_minute_and_the_next_run_goes_on(bench: Bench) -> None:
    for node in bench.rack.nodes:
        node.boot_s = -1
    bench.overlay(provision_timeout_s=300)
    controller = start(bench)
    until(lambda: any_on(bench))
    begun = time.monotonic()
    controller.send_signal(signal.SIGINT)
    assert controller.wait(timeout=60) == 130
    assert time.monotonic() - begun < 30
    assert not ours(bench)
    for node in bench.rack.nodes:
        node.boot_s = 0
        if node.power == "On":
            bench.rack.set_power(node, "On")
    goes_on(bench)

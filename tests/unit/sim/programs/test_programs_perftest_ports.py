"""Tests that share a port: a server waits for others that were prepared, and counts those that run with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from rackready_sim.programs.hwsim import machine as hardware
from rackready_sim.programs.hwsim import store
from rackready_sim.programs.hwsim.perf import ports

from .conftest import Machine

PORT = {"device": "mlx5_0"}
OTHER = "18715"


@pytest.fixture(autouse=True)
def _other_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    real = hardware.alive
    monkeypatch.setattr(hardware, "alive", lambda pid: pid == int(OTHER) or real(pid))


def set_other(begun: float | None, ended: float | None = None, *, pid: str = OTHER, device: str = "mlx5_0") -> None:
    with store.change() as runtime:
        runtime.setdefault("flows", {}).setdefault(device, {})[pid] = {"begun": begun, "ended": ended}


def pauses(monkeypatch: pytest.MonkeyPatch, then: Callable[[], None] = lambda: None) -> list[float]:
    """Count pauses; after the first one, another process acts."""
    done: list[float] = []

    def pause(seconds: float) -> None:
        if not done:
            then()
        done.append(seconds)
        clock["now"] += seconds

    clock = {"now": time.time()}
    monkeypatch.setattr(ports.time, "sleep", pause)
    monkeypatch.setattr(ports.time, "time", lambda: clock["now"])
    return done


def test_alone_it_waits_for_nobody(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.ready()
    waited = pauses(monkeypatch)
    ports.await_client(PORT)
    assert (ports.flows(PORT), waited) == (1, [])


def test_it_waits_for_a_server_whose_client_has_not_come(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.ready()
    set_other(None)
    waited = pauses(monkeypatch, lambda: set_other(time.time()))
    ports.await_client(PORT)
    assert (ports.flows(PORT), len(waited)) == (2, 1)


def test_a_client_that_never_comes_holds_it_up_for_a_short_time(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.ready()
    set_other(None)
    waited = pauses(monkeypatch)
    ports.await_client(PORT)
    assert ports.flows(PORT) == 1
    assert 1.9 < sum(waited) < 2.2


@pytest.mark.parametrize(
    ("other", "count"),
    [
        ({"begun": -1.0, "ended": None}, 2),
        ({"begun": -1.0, "ended": 0.5}, 2),
        ({"begun": -5.0, "ended": -1.0}, 1),
        ({"begun": -1.0, "ended": None, "pid": "4194305"}, 1),
        ({"begun": None, "ended": None, "pid": "4194305"}, 1),
        ({"begun": -1.0, "ended": None, "device": "mlx5_1"}, 1),
    ],
    ids=["runs", "ended-meanwhile", "ended-before", "died", "died-before-its-client-came", "another-port"],
)
def test_it_counts_those_that_run_with_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, other: dict[str, Any], count: int
) -> None:
    machine.ready()
    now = time.time()
    moments = {key: None if other[key] is None else now + other[key] for key in ("begun", "ended")}
    set_other(**{**other, **moments})
    waited = pauses(monkeypatch)
    ports.await_client(PORT)
    assert (ports.flows(PORT), waited) == (count, [])


def test_one_that_left_is_counted_no_more(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.ready()
    waited = pauses(monkeypatch)
    ports.await_client(PORT)
    assert ports.flows(PORT) == 1
    ports.leave(PORT)
    monkeypatch.setattr(ports.os, "getpid", lambda: int(OTHER))
    ports.time.sleep(0.1)
    ports.await_client(PORT)
    assert (ports.flows(PORT), len(waited)) == (1, 1)

"""`sim up` returns only when every machine that is always on answers."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path

import pytest

from rackready_sim import ready
from rackready_sim.definition import site_without_overlay
from rackready_sim.errors import SimError
from rackready_sim.plan import RackPlan, build_plan

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def plan() -> RackPlan:
    return build_plan(
        site_without_overlay(ROOT, "sim"), clone="ab12cd", subnet=IPv4Network("10.64.7.0/24"), loopback="127.9.8"
    )


def test_every_machine_but_the_nodes_is_waited_for(plan: RackPlan) -> None:
    asked: list[tuple[str, int]] = []
    late = {("10.64.7.22", 22): 2}

    def probe(address: str, port: int) -> bool:
        asked.append((address, port))
        late[address, port] = late.get((address, port), 0) - 1
        return late[address, port] < 0

    ready.wait(plan, 10, probe)
    assert set(asked) == {("10.64.7.2", 8080), ("10.64.7.5", 22), ("10.64.7.21", 22), ("10.64.7.22", 22)}
    assert asked.count(("10.64.7.22", 22)) == 3
    assert asked.count(("10.64.7.21", 22)) == 1


def test_who_stays_silent_is_named(plan: RackPlan) -> None:
    with pytest.raises(
        SimError,
        match=r"all of it answers within 0 s Actual: silent: leaf02 \(10\.64\.7\.22:22\)\. "
        r"See `podman logs rr-ab12cd-leaf02`",
    ):
        ready.wait(plan, 0, lambda address, _: address != "10.64.7.22")

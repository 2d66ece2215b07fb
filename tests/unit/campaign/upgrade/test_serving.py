"""Nodes in service are those on which jobs may start: the scheduler is asked, not our own record alone."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import pytest

from rackready.campaign.upgrade.plan import waves
from rackready.campaign.upgrade.serving import in_service
from rackready.drivers.scheduler.base import SchedulerAdapter, SchedulerError, SchedulerNode, UnknownNodeError
from rackready.handover import offer
from rackready.paths import EnvPaths
from tests.unit.campaign.upgrade.upgrade_sites import site_of

NODES = ["node01", "node02", "node03", "node04"]
STATES = {
    "node01": SchedulerNode("node01", "ALLOCATED", usable=True, drained=False, down=False),
    "node02": SchedulerNode("node02", "DRAIN", usable=False, drained=True, down=False, reason="mine", by="ann"),
    "node03": SchedulerNode("node03", "DOWN", usable=False, drained=False, down=True),
}


class Adapter:
    """A scheduler that does not know node04. ``away``: it does not answer."""

    away = False

    def __enter__(self) -> Self:
        if self.away:
            raise SchedulerError("slurmctl", expected="an answer", actual="none", next_step="Start it.")
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, node: str) -> SchedulerNode:
        if node not in STATES:
            raise UnknownNodeError(node, expected="a line", actual="none", next_step="Add it.")
        return STATES[node]


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch) -> Adapter:
    found = Adapter()

    def connect(*_: object) -> SchedulerAdapter:
        return found  # type: ignore[return-value]

    monkeypatch.setattr(offer, "adapter_for", connect)
    return found


def asked(root: Path) -> tuple[set[str], list[str]]:
    said: list[str] = []
    return in_service(site_of(), EnvPaths(root, "sim"), NODES, said.append), said


def test_a_node_that_others_drained_that_is_down_or_unknown_is_not_in_service(tmp_path: Path, adapter: Adapter) -> None:
    assert asked(tmp_path) == ({"node01"}, [])
    assert adapter.away is False


def test_without_the_schedulers_answer_every_ready_node_counts_and_that_is_said(
    tmp_path: Path, adapter: Adapter
) -> None:
    adapter.away = True
    line = (
        "node01, node02, node03, node04: unknown whether they are on offer in the scheduler: slurmctl - "
        "Expected: an answer Actual: none. Start it. Counted as in service."
    )
    assert asked(tmp_path) == (set(NODES), [line])


def test_the_last_node_on_which_a_tenant_can_work_is_not_taken(tmp_path: Path, adapter: Adapter) -> None:
    tenants = [{"name": "red", "nodes": ["node01", "node02"], "vlan": 1001}]
    serving, _ = asked(tmp_path)
    assert adapter.away is False
    taken, held = waves(site_of(tenants=tenants), ["node01"], serving | {"node03", "node04"})
    assert (taken, "tenant red: nodes in service" in held["node01"]) == ((), True)
    taken, held = waves(site_of(tenants=tenants), ["node01"], set(NODES))
    assert (taken, held) == ((("node01",),), {})

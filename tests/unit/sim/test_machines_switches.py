"""Switches that lose power and get it back: what happens to their cables, and in which order."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rackready_sim import hostnet, machines, podman, trunks
from rackready_sim.machines import Machines
from rackready_sim.plan import Cable, Trunk
from rackready_sim.store import Store

_TRUNK = Trunk("leaf01", "swp9", "spine01", "swp1")
_PIDS = {"node01": 1, "leaf01": 2, "spine01": 3}


@pytest.fixture
def rack(tmp_path: Path) -> Machines:
    store = Store(tmp_path)
    store.write_state("node01", {"nics": [{"rail": 1, "link": "up"}]})
    store.write_state("leaf01", {"power": "on", "cables": {}})
    store.write_state("spine01", {"power": "on", "cables": {}})
    kinds = {"node01": "node", "leaf01": "switch", "spine01": "switch"}
    named = {name: SimpleNamespace(name=name, role=role, container=f"rr-x-{name}") for name, role in kinds.items()}
    cables = {"node01": (Cable("node01", 1, "eth1", "b8:3f:d2:00:01:01", "leaf01", "swp1"),)}
    plan: Any = SimpleNamespace(
        machines=named,
        trunks=(_TRUNK,),
        cables=cables,
        of=lambda role: [machine for machine in named.values() if machine.role == role],
    )
    return Machines(plan, store, "image", own_images={"switch": "routed"})


@pytest.fixture
def steps(rack: Machines, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    done: list[str] = []

    at: list[hostnet.Socket | None] = [None]

    def plug(_plan: Any, _cable: Cable, socket: hostnet.Socket, _pids: Any) -> bool:  # noqa: ANN401 - unused
        at[0] = socket
        done.append(f"{socket.switch} nic in")
        return True

    def unplug(_plan: Any, _cable: Cable, socket: hostnet.Socket, _pids: Any) -> None:  # noqa: ANN401 - unused
        at[0] = None
        done.append(f"{socket.switch} nic out")

    def settle(ours: Any, pids: dict[str, int], _states: Any) -> dict[str, list[str]]:  # noqa: ANN401 - unused
        done.append(f"trunks of {len(ours)} with {' '.join(pids)}")
        return {"leaf01": ["swp9"], "spine01": ["swp1"]}

    def inspect(container: str) -> podman.Container:
        return podman.Container(container, "running", _PIDS[container.removeprefix("rr-x-")], 0)

    monkeypatch.setattr(podman, "inspect", inspect)
    monkeypatch.setattr(podman, "podman", lambda *words: done.append(f"reapply {words[1]}"))
    monkeypatch.setattr(hostnet, "add_nic", lambda *_: None)
    monkeypatch.setattr(hostnet, "links", lambda *_: {})
    monkeypatch.setattr(hostnet, "plugged", lambda *_: at[0])
    monkeypatch.setattr(hostnet, "plug", plug)
    monkeypatch.setattr(hostnet, "unplug", unplug)
    monkeypatch.setattr(hostnet, "attach", lambda *_, **__: None)
    monkeypatch.setattr(trunks, "settle", settle)
    monkeypatch.setattr(rack, "halt", lambda name, *, graceful: done.append(f"halt {name} {graceful}"))
    monkeypatch.setattr(rack, "boot", lambda name: done.append(f"boot {name}"))
    assert machines.trunks is trunks
    return done


def test_a_leaf_without_power_leaves_the_nics_in_their_nodes(rack: Machines, steps: list[str]) -> None:
    rack.cable("node01")
    steps.clear()
    rack._store.write_state("leaf01", {"power": "off", "cables": {}})
    assert rack.settle_switch("leaf01") is False
    assert steps == ["leaf01 nic out", "reapply rr-x-leaf01", "halt leaf01 False"]


def test_a_leaf_with_power_again_is_booted_then_cabled(rack: Machines, steps: list[str]) -> None:
    assert rack.settle_switch("leaf01") is True
    assert steps == [
        "boot leaf01",
        "leaf01 nic in",
        "reapply rr-x-leaf01",
        "trunks of 1 with leaf01 spine01",
        "reapply rr-x-leaf01",
        "reapply rr-x-spine01",
    ]


def test_a_switch_that_boots_is_not_asked_to_apply(rack: Machines, steps: list[str]) -> None:
    rack.trunks("spine01", 33)
    assert steps == ["trunks of 1 with leaf01 spine01", "reapply rr-x-leaf01"]


def test_a_machine_has_the_image_of_its_role(rack: Machines) -> None:
    images = {name: rack._image_of(machine) for name, machine in rack.plan.machines.items()}
    assert images == {"node01": "image", "leaf01": "routed", "spine01": "routed"}

"""Hardware state and faults of the simulated rack."""

from __future__ import annotations

import copy

import pytest

from rackready.design.site import load_site
from rackready_sim import faults
from rackready_sim.faults import FAULTS, FaultError
from rackready_sim.hardware import State, build_state, build_switch_state
from rackready_sim.metal import state as metal_state


@pytest.fixture(scope="module")
def healthy() -> State:
    return build_state(load_site("sim"), "node02")


def test_a_state_is_the_same_every_time_and_no_part_is_there_twice(healthy: State) -> None:
    site = load_site("sim")
    assert build_state(site, "node02") == healthy
    states = [build_state(site, node.name) for node in site.nodes()]
    for kind, key in (("gpus", "uuid"), ("gpus", "serial"), ("nics", "mac"), ("nics", "guid")):
        values = [part[key] for state in states for part in state[kind]]
        assert len(set(values)) == len(values) == 32


def test_a_state_follows_the_site_and_the_profiles(healthy: State) -> None:
    assert [gpu["pci"] for gpu in healthy["gpus"]][:2] == ["0000:1b:00.0", "0000:43:00.0"]
    assert [len(gpu["nvlink"]["links"]) for gpu in healthy["gpus"]] == [18] * 8
    assert healthy["nics"][4] == healthy["nics"][4] | {
        "rdma_device": "mlx5_6",
        "switch": "leaf02",
        "port": "swp5",
        "mac": "b8:3f:d2:00:02:05",
    }
    leaf = build_switch_state(load_site("sim"), "leaf02")
    assert leaf["cables"]["swp5"] == {"node": "node02", "netdev": "enp154s0np0"}
    assert len(leaf["ports"]) == 64


def _target(fault: str, node: State) -> State:
    """Return a machine that can have the fault."""
    if FAULTS[fault].layer == "boot" and "metal" not in node:
        return {**node, "metal": metal_state.build(load_site("sim-metal"), "node01")}
    switches = {"switch": ("sim", "leaf01"), "underlay": ("sim-spine", "leaf-su001-01")}
    at = switches.get(FAULTS[fault].layer)
    return node if at is None else build_switch_state(load_site(at[0]), at[1])


def test_a_switch_of_a_routed_fabric_is_cabled_to_others() -> None:
    site = load_site("sim-spine")
    leaf = build_switch_state(site, "leaf-su001-01")
    assert leaf["platform"]["version"] == "5.15.0"
    assert leaf["cables"]["swp9s0"] == {"switch": "spine-001", "port": "swp1s0", "link": "up"}
    assert leaf["ports"]["swp1s0"]["rate_gbps"] == 400
    assert leaf["ports"]["swp1"]["rate_gbps"] == 800
    other = build_switch_state(load_site("sim"), "leaf01")
    assert other["platform"]["version"] == "5.13.1"
    assert not [port for port in other["ports"] if "s" in port.removeprefix("swp")]


@pytest.mark.parametrize(
    ("fault", "params", "said"),
    [("trunk-down", {"port": "swp1s0"}, "Expected: one of swp9s0, "), ("switch-off", {}, "Expected: a switch")],
)
def test_faults_of_the_underlay_name_what_they_need(
    healthy: State, fault: str, params: dict[str, str], said: str
) -> None:
    state = healthy if fault == "switch-off" else build_switch_state(load_site("sim-spine"), "leaf-su001-01")
    with pytest.raises(FaultError, match=said):
        faults.inject(state, fault, **params)


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_every_fault_changes_the_hardware_and_is_repaired(healthy: State, name: str) -> None:
    healthy = _target(name, healthy)
    state = copy.deepcopy(healthy)
    faults.inject(state, name)
    assert state["faults"] == [{"name": name, "params": FAULTS[name].params}]
    assert {**state, "faults": []} != healthy
    assert FAULTS[name].description
    assert faults.clear(state, healthy) == 1
    assert state == healthy


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_fault_takes_each_of_its_parameters_by_name(healthy: State, name: str) -> None:
    """Also one that is called `name`."""
    state = copy.deepcopy(_target(name, healthy))
    faults.inject(state, name, **FAULTS[name].params)
    assert state["faults"] == [{"name": name, "params": FAULTS[name].params}]


def test_no_two_faults_have_one_name() -> None:
    names = [fault.name for layer in faults.LAYERS for fault in layer.FAULTS]
    assert len(names) == len(set(names)) == len(FAULTS)


def test_one_of_two_faults_is_repaired(healthy: State) -> None:
    state = copy.deepcopy(healthy)
    faults.inject(state, "nvlink-down", gpu=2)
    faults.inject(state, "gpu-slow", gpu="3", factor="0.5")
    assert faults.clear(state, healthy, "nvlink-down") == 1
    assert state["gpus"][2] == healthy["gpus"][2]
    assert state["gpus"][3]["compute_factor"] == 0.5
    assert faults.clear(state, healthy, "nic-down") == 0


@pytest.mark.parametrize(
    ("name", "params", "words"),
    [
        ("nonsense", {}, "Actual: 'nonsense'. Name a fault from the list."),
        ("nvlink-down", {"gpu": 8}, "node02 gpus - Expected: one of 0, 1, 2, 3, 4, 5, 6, 7 Actual: 8"),
        ("nvlink-down", {"gpu": 0, "link": 18}, "Actual: 18. Name a part that the node has."),
        ("nic-down", {"gpu": 1}, "Fault 'nic-down' - Expected: nic Actual: gpu"),
        ("nic-down", {"nic": "first"}, "Expected: a value of the parameter's type"),
    ],
)
def test_what_cannot_be_injected_changes_nothing(
    healthy: State, name: str, params: dict[str, object], words: str
) -> None:
    state = copy.deepcopy(healthy)
    with pytest.raises(FaultError) as caught:
        faults.inject(state, name, **params)
    assert words in str(caught.value)
    assert state == healthy

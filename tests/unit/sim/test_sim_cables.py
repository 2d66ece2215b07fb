"""Where the simulated rack plugs cable ends: by the hardware state, and found again in whatever port they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rackready.design.site import load_site
from rackready_sim import faults, hostnet
from rackready_sim.hardware import build_state
from rackready_sim.hostnet import Socket
from rackready_sim.machines import sockets
from rackready_sim.plan import Cable, build_plan, choose_subnet

ROOT = Path(__file__).resolve().parents[3]
SITE = load_site("no-overlay", site_file=ROOT / "inventories/sim/site.yml", root=ROOT)


@pytest.fixture
def cables() -> tuple[Cable, ...]:
    plan = build_plan(SITE, clone="abc123", subnet=choose_subnet("abc123", []), loopback="127.9.9")
    return plan.cables["node01"]


@pytest.fixture
def state() -> dict[str, Any]:
    return build_state(SITE, "node01")


def test_healthy_cables_are_where_the_site_plans_them(cables: tuple[Cable, ...], state: dict[str, Any]) -> None:
    found = sockets(cables, state["nics"])
    assert found[1] == Socket("leaf01", "swp1")
    assert found[8] == Socket("leaf02", "swp4")


@pytest.mark.parametrize(
    ("fault", "params", "moved"),
    [
        ("cables-swapped", {"nic": 1, "other": 2}, {1: Socket("leaf01", "swp2"), 2: Socket("leaf01", "swp1")}),
        ("cables-swapped", {"nic": 1, "other": 5}, {1: Socket("leaf02", "swp1"), 5: Socket("leaf01", "swp1")}),
        ("cable-wrong-port", {"nic": 6, "spare": "swp61"}, {6: Socket("leaf02", "swp61")}),
        ("nic-down", {"nic": 3}, {3: None}),
    ],
)
def test_a_fault_moves_its_cables_and_no_other(
    cables: tuple[Cable, ...],
    state: dict[str, Any],
    fault: str,
    params: dict[str, Any],
    moved: dict[int, Socket | None],
) -> None:
    before = sockets(cables, state["nics"])
    faults.inject(state, fault, **params)
    after = sockets(cables, state["nics"])
    assert {rail: socket for rail, socket in after.items() if socket != before[rail]} == moved


def test_a_rail_of_infiniband_has_no_cable_here_to_cross(state: dict[str, Any]) -> None:
    faults.inject(state, "cables-swapped", nic=1, other=2)
    assert sockets([], state["nics"]) == {}


def test_an_end_is_found_by_its_address_and_a_bridge_that_borrows_it_is_no_port(cables: tuple[Cable, ...]) -> None:
    mac = hostnet.end_mac(cables[0])
    assert mac == f"02{cables[0].mac[2:]}"
    leaf = {
        "br901": {"address": mac},
        "swp60": {"address": mac, "link_index": 7},
        "swp1": {"address": "02:00:00:00:00:09", "link_index": 8},
    }
    assert hostnet.plugged(cables[0], {"leaf02": {}, "leaf01": leaf}) == Socket("leaf01", "swp60")
    assert hostnet.plugged(cables[1], {"leaf01": leaf}) is None
